"""The results as tables, the same for the screen and for the page. Pure; measures nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.roster import ROSTER
from benchmarks.standings import Results, Standing, standings
from benchmarks.targets import MANY, ONE, PEER, Target, targets

KINDS = {
    "overlaps": "overlaps",
    "reordered": "wrong order",
    "over_limit": "over limit",
    "lost": "lost",
}
"""What violations are called in the results, and in the tables."""
PROFILED = ("time", "functions")
MARK = "*"
MARKED = f"{MARK} broke the rules there, so it did not do the same work."


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of texts."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: tuple[str, ...] = ()
    is_detail: bool = False
    """Too long for a screen."""


def tables(results: Results) -> list[Table]:
    """All that have something in them."""
    makers: tuple[Callable[[Results], Table], ...] = (
        targets_table,
        peers_table,
        ratios_table,
        violations_table,
        kinds_table,
        lacks_table,
        failures_table,
        workloads_table,
        loops_table,
        loop_costs_table,
        costs_table,
        profile_table,
        other_costs_table,
        plans_table,
        machine_plans_table,
        lambda results: facts_table("Functions", results.get("functions")),
        lambda results: facts_table("Adaptive limit", results.get("adaptive")),
    )
    return [table for table in (make(results) for make in makers) if table.rows]


def targets_table(results: Results) -> Table:
    """What was to be reached."""
    rows = [
        (
            target.what,
            f"{sign(target)}{target.limit:g} {target.unit}".rstrip(),
            "-" if target.found is None else f"{number(target.found)} {target.unit}".rstrip(),
            target.verdict,
        )
        for target in targets(results)
    ]
    missed = [target for target in targets(results) if target.is_met is False and target.why]
    return Table(
        title="Targets",
        header=("what", "target", "measured", ""),
        rows=rows,
        notes=tuple(f"{target.what}: {target.why}" for target in missed),
    )


def sign(target: Target) -> str:
    """Which way the target goes; what may not happen at all has none."""
    if target.at_least:
        return "≥ "
    return "≤ " if target.limit else ""


def peers_table(results: Results) -> Table:
    """Every peer over all workloads."""
    return Table(
        title="Peers: makespan / lower bound over the workloads, and what may not happen",
        header=("peer", "version", "mean", "worst", "rules broken on", *KINDS.values(), "left"),
        rows=[_peer(one, results.get("versions") or {}) for one in standings(results)],
        notes=(
            "mean: geometric; of the workloads that it ran. left: tasks and threads left behind.",
            f"{MARK} broke the rules on some, so it did not do the same work.",
        ),
    )


def _peer(one: Standing, versions: Mapping[str, str | None]) -> tuple[str, ...]:
    packages = {entry.name: entry.distribution for entry in ROSTER}
    mark = MARK if one.violated else ""
    return (
        one.peer,
        versions.get(packages.get(one.peer) or "") or "",
        ratio(one.mean, mark),
        ratio(one.worst, mark),
        f"{len(one.violated)} of {one.ran}",
        *(str(one.total[kind]) for kind in KINDS),
        str(one.tasks + one.threads),
    )


def ratios_table(results: Results) -> Table:
    """The ratio of each peer on each workload."""

    def cell(found: Mapping[str, Any]) -> str:
        if found["failed"]:
            return "failed"
        return ratio(found["ratio"], MARK if any(found["violations"].values()) else "")

    return _grid("Makespan / lower bound by workload", results, cell, MARKED)


def violations_table(results: Results) -> Table:
    """How often each peer did on each workload what may not happen."""

    def cell(found: Mapping[str, Any]) -> str:
        return "failed" if found["failed"] else str(sum(found["violations"].values()) or "·")

    about = "Overlaps, wrong order, over a limit, lost results; the worst of the rounds."
    return _grid("Violations by workload", results, cell, about)


def _grid(
    title: str, results: Results, cell: Callable[[Mapping[str, Any]], str], note: str
) -> Table:
    workloads = results.get("makespans") or {}
    peers = [one.peer for one in standings(results)]
    return Table(
        title=title,
        header=("peer", *(str(number) for number, _ in enumerate(workloads, 1))),
        rows=[
            (
                peer,
                *(
                    cell(each["peers"][peer]) if peer in each["peers"] else "-"
                    for each in workloads.values()
                ),
            )
            for peer in peers
        ],
        notes=(note, "The numbers stand for the workloads listed below."),
    )


def kinds_table(results: Results) -> Table:
    """The violations of each peer on each workload by kind."""
    return Table(
        title="Violations by kind",
        header=("peer", "workload", *KINDS.values()),
        rows=[
            (one.peer, workload, *(str(kinds[kind]) for kind in KINDS))
            for one in standings(results)
            for workload, kinds in one.violated.items()
        ],
        is_detail=True,
    )


def lacks_table(results: Results) -> Table:
    """What each peer has no word for."""
    return Table(
        title="What a peer has no word for, where a workload needs it",
        header=("peer", "lacks"),
        rows=[
            (one.peer, ", ".join(one.lacks) or ("nothing" if one.ran else "-"))
            for one in standings(results)
        ],
    )


def failures_table(results: Results) -> Table:
    """Who did not run what, and why."""
    return Table(
        title="Failed",
        header=("peer", "workloads", "why"),
        rows=[
            (one.peer, _places(results, [w for w in one.failed if one.failed[w] == why]), why)
            for one in standings(results)
            for why in dict.fromkeys(one.failed.values())
        ]
        + [
            (peer, name, why)
            for name, failed in ((results.get("costs") or {}).get("failed") or {}).items()
            for peer, why in failed.items()
        ],
    )


def _places(results: Results, names: Sequence[str]) -> str:
    workloads = list(results["makespans"])
    if len(names) == len(workloads):
        return "all"
    return " ".join(str(workloads.index(name) + 1) for name in names)


def workloads_table(results: Results) -> Table:
    """What the workloads are."""
    return Table(
        title="Workloads",
        header=("", "workload", "bound, ms", f"{PEER}, ms", "what"),
        rows=[
            (
                str(place),
                name,
                f"{each['lower_bound'] * 1e3:.0f}",
                _milliseconds(each["peers"].get(PEER, {}).get("makespan")),
                each["about"],
            )
            for place, (name, each) in enumerate((results.get("makespans") or {}).items(), 1)
        ],
    )


def loops_table(results: Results) -> Table:
    """This project on other event loops."""
    loops = results.get("loops") or {}
    title = f"{PEER} on other event loops: makespan / lower bound"
    notes = tuple(f"{name}: {why}" for name, why in (loops.get("failed") or {}).items())
    return replace(_by_column(title, loops.get("makespans"), ratio), notes=notes)


def loop_costs_table(results: Results) -> Table:
    """What calls cost on other event loops."""
    costs = results.get("costs") or {}
    others: Mapping[str, Any] = costs.get("loops") or {}
    by_way = {
        f"{name}, {way}": {
            loop: each.get(name, {}).get(way) for loop, each in {"default": costs, **others}.items()
        }
        for name in (ONE, MANY)
        for way in dict.fromkeys(way for each in others.values() for way in each.get(name, {}))
    }
    return _by_column("Other event loops: µs a call", by_way, number)


def costs_table(results: Results) -> Table:
    """What a call costs that does nothing."""
    costs = results.get("costs") or {}
    measured = {name: costs[name] for name in (ONE, MANY) if costs.get(name)}
    ways = dict.fromkeys(way for each in measured.values() for way in each)
    return Table(
        title="Cost of a call that does nothing, µs a call",
        header=("way", *measured),
        rows=[
            (way, *(cost(costs, name, way) for name in measured))
            for way in sorted(ways, key=lambda way: way.startswith(PEER), reverse=True)
        ],
        notes=(
            f"At most 8 of them may run at once. {MARKED}",
            "Frameworks whose tools run only inside an agent are timed with the agent, whose model"
            f" is scripted and answers at once; {PEER} is given its calls, as the other"
            " dispatchers are.",
        ),
    )


def cost(costs: Mapping[str, Any], name: str, way: str) -> str:
    """A cost, marked if not all of the work was done."""
    broke = (costs.get("broke the rules") or {}).get(name) or ()
    found = costs[name].get(way)
    return number(found) + (MARK if found is not None and way in broke else "")


def profile_table(results: Results) -> Table:
    """Where the time of such a call goes."""
    profile: Mapping[str, Any] = (results.get("costs") or {}).get("profile") or {}
    parts = dict.fromkeys(part for each in profile.values() for part in each)
    return Table(
        title="Where the time of such a call goes",
        header=("part", *(f"{name}: {what}" for name in profile for what in PROFILED)),
        rows=[
            (part, *(text for each in profile.values() for text in _profiled(each[part])))
            for part in parts
        ],
        notes=(
            "As a profiler sees it, which makes every function dearer; C functions count for who"
            " called them. The functions of Python that a call passes are the same in every run.",
        ),
    )


def _profiled(part: Mapping[str, float]) -> tuple[str, str]:
    return f"{part['share']:.0%}", f"{part['functions']:.1f}"


def other_costs_table(results: Results) -> Table:
    """Memory and import."""
    costs = results.get("costs") or {}
    return facts_table(
        "Memory and import", {name: costs[name] for name in ("memory", "import") if name in costs}
    )


def plans_table(results: Results) -> Table:
    """What planning costs over the size of the turn."""
    plans = (results.get("costs") or {}).get("plan")
    return _by_column("Planning, µs a call, by the number of calls", plans, number)


def machine_plans_table(results: Results) -> Table:
    """The same by the machine of a whole turn, which also knows who may start."""
    plans = (results.get("costs") or {}).get("plan by the turn's machine")
    return _by_column("The same by the machine that runs a turn", plans, number)


def _by_column(
    title: str,
    measured: Mapping[str, Mapping[str, Any]] | None,
    shown: Callable[[float | None], str],
) -> Table:
    columns = list(dict.fromkeys(name for each in (measured or {}).values() for name in each))
    return Table(
        title=title,
        header=("", *columns),
        rows=[
            (name, *(shown(each.get(column)) for column in columns))
            for name, each in (measured or {}).items()
        ],
    )


def facts_table(title: str, facts: Mapping[str, Any] | None) -> Table:
    """Names and values, whatever they are; series are for the charts."""
    return Table(title=title, header=("", ""), rows=list(_facts(facts or {})))


def _facts(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        match value:
            case Mapping():
                yield from _facts(value, f"{before}{name}, ")
            case bool() | None:
                yield f"{before}{name}", {True: "yes", False: "no", None: "-"}[value]
            case int() | float():
                yield f"{before}{name}", number(value)
            case list() if all(isinstance(each, str) for each in value):
                yield f"{before}{name}", ", ".join(value) or "none"
            case list():
                continue
            case _:
                yield f"{before}{name}", str(value)


def ratio(value: float | None, mark: str = "") -> str:
    """A ratio with as many digits as matter."""
    return "-" if value is None else f"{value:.{2 if value < 10 else 1}f}{mark}"


def number(value: float | None) -> str:
    """A number with as many digits as matter."""
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 if abs(value) < 10 else 1}f}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f}"
