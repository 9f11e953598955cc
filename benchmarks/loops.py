"""This project on other event loops: asyncio's own, with eager tasks, and uvloop."""

from __future__ import annotations

from benchmarks.bounds import lower_bound
from benchmarks.options import Options
from benchmarks.progress import progress
from benchmarks.roster import DISPATCH
from benchmarks.runs import Contest, Entrant
from benchmarks.worker import LOOPS, Job


def measure(options: Options) -> dict[str, object]:
    """Ratios to the bound by workload and loop, and by loop why it failed; costs has the rest."""
    entrants = [Entrant(name=name, entry=DISPATCH, loop=name) for name in LOOPS]
    ratios: dict[str, dict[str, float | None]] = {}
    failed: dict[str, str] = {}
    with Contest(entrants) as contest:
        for workload in options.workloads:
            bound = lower_bound(workload)
            with progress(f"loops: {workload.name}") as told:
                job = Job(workload=workload)
                found = contest.compete(entrants, job, options.rounds, told=told)
            failed |= {name: each.failed for name, each in found.items() if each.failed}
            ratios[workload.name] = {
                name: None if each.seconds is None else each.seconds / bound
                for name, each in found.items()
            }
    return {"makespans": ratios, "failed": failed}
