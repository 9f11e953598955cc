"""How long every peer takes for every workload, beside how short it could be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from benchmarks.bounds import lower_bound
from benchmarks.options import Options
from benchmarks.progress import progress
from benchmarks.recording import limited
from benchmarks.roster import DISPATCH
from benchmarks.runs import Contest, Entrant, Outcome
from benchmarks.work import Work, Workload
from benchmarks.worker import Job


def whole(workload: Workload) -> Workload:
    """The same calls, all of them known only when the last one is."""

    def late(turn: tuple[Work, ...]) -> tuple[Work, ...]:
        last = max(work.arrives for work in turn)
        return tuple(dataclasses.replace(work, arrives=last) for work in turn)

    return dataclasses.replace(workload, turns=tuple(map(late, workload.turns)))


WHOLE = Entrant(name="dispatch, whole message", entry=DISPATCH, change=whole)
"""What streaming is worth: this project on the same work, told all calls with the last one."""


def measure(options: Options) -> dict[str, object]:
    """By workload: its bound, and what each peer made of it."""
    entrants = [Entrant(name=entry.name, entry=entry) for entry in options.peers]
    if DISPATCH in options.peers:
        entrants.append(WHOLE)
    found: dict[str, object] = {}
    with Contest(entrants) as contest:
        for number, workload in enumerate(options.workloads, 1):
            place = f"{number}/{len(options.workloads)}"
            with progress(f"makespans {place}: {workload.name}") as told:
                found[workload.name] = measured(contest, workload, options, told)
    return found


def measured(
    contest: Contest, workload: Workload, options: Options, told: Callable[[], None]
) -> dict[str, object]:
    """One workload: its bound, and what each peer made of it."""
    entrants = [one for one in contest.entrants if one is not WHOLE or workload.streamed]
    outcomes = contest.compete(entrants, Job(workload=workload), options.rounds, told=told)
    bound = lower_bound(workload)
    waited = outcomes.pop(WHOLE.name, None)
    return {
        "about": workload.about,
        "lower_bound": bound,
        "limited": bool(limited(workload)),
        "whole_message": waited and waited.seconds,
        "peers": {name: described(each, bound) for name, each in outcomes.items()},
    }


def described(outcome: Outcome, bound: float) -> dict[str, object]:
    """An outcome as it stands in the results."""
    seconds = outcome.seconds
    return {
        "makespan": seconds,
        "ratio": seconds / bound if seconds is not None and bound else None,
        "violations": dataclasses.asdict(outcome.violations),
        "leaked": {"tasks": outcome.tasks, "threads": outcome.threads},
        "lacks": list(outcome.lacks),
        "failed": outcome.failed,
    }
