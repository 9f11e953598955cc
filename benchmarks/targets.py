"""The numbers to reach, each beside what was measured. Pure; knows the results as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.standings import Results, standing

PEER = "dispatch"
ONE = "one no-op call"
MANY = "1,000 no-op calls"
BASE = "gather with a semaphore"
OURS = "dispatch safe_parallel"
"""The plainest tool, validation and results included."""
THROUGHPUT = "throughput / best fixed limit"
TENTH, LARGEST = "10000", "100000"
MAKESPAN = (
    "the bound takes no time to start a call, and cannot always be reached; here each call costs"
    " what the tables below say."
)
LAYERS = (
    "a call passes {functions:.0f} functions of Python, and no part of it has most of its time"
    " (see where it goes below). A semaphore has no order, no arguments to check, nothing to"
    " cancel, and no result."
)
OPENING = (
    "it passes {functions:.0f} functions of Python, many of which open and decide the turn"
    " (see where its time goes below)."
)
FOLDERS = (
    "a claim is compared with what is claimed in each folder above it, and noted in each of them."
)
CLASSES = "what is left is making the package's own classes, each once in a process."
SHARED = (
    " Turns that share a limit take their slots in the order in which their calls were ready, so"
    " that none is put off for ever; who knows all turns beforehand can mix them better."
)
LINEAR = 1.5
"""How much more a call of the largest plan may cost than one of a plan a tenth as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A number to reach."""

    what: str
    limit: float
    unit: str = ""
    found: float | None = None
    """None if it was not measured."""
    at_least: bool = False
    why: str = ""
    """What stands in the way where it is not met."""

    @property
    def is_met(self) -> bool | None:
        """Whether it is reached; None if that is not known."""
        if self.found is None:
            return None
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    @property
    def verdict(self) -> str:
        """The same in words."""
        return {True: "met", False: "not met", None: "not measured"}[self.is_met]


def targets(results: Results) -> list[Target]:
    """All of them, whatever was measured."""
    adaptive = Target(
        what="throughput under an adaptive limit / the best fixed limit",
        limit=0.95,
        found=(results.get("adaptive") or {}).get(THROUGHPUT),
        at_least=True,
        why=_rejected(results.get("adaptive") or {}),
    )
    return [*_makespans(results), *_costs(results), adaptive, *_right(results)]


def _makespans(results: Results) -> Iterator[Target]:
    workloads = results.get("makespans") or {}
    ours = standing(PEER, workloads)
    yield Target(
        what="makespan / lower bound, geometric mean", limit=1.03, found=ours.mean, why=MAKESPAN
    )
    yield Target(
        what="makespan / lower bound, worst workload",
        limit=1.10,
        found=ours.worst,
        why=_worst(workloads),
    )
    yield Target(
        what="streamed turn under limits / the same turn after the whole message",
        limit=0.65,
        found=_most(
            each["peers"][PEER]["makespan"] / each["whole_message"]
            for each in workloads.values()
            if each.get("whole_message") and each.get("limited") and _ran(each)
        ),
    )


def _worst(workloads: Mapping[str, Any]) -> str:
    """Which workload that is, and what it has to do with it that its turns share something."""
    ratios = {name: each["peers"].get(PEER, {}).get("ratio") for name, each in workloads.items()}
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    if not known:
        return ""
    name = max(known, key=lambda name: known[name])
    shared = SHARED if name.startswith("several turns") and workloads[name].get("limited") else ""
    return f"that is the workload “{name}”.{shared}"


def _passing(costs: Mapping[str, Any], name: str, why: str) -> str:
    """The reason, with how many functions a call of this workload passes."""
    profile = (costs.get("profile") or {}).get(name)
    if not profile:
        return ""
    return why.format(functions=sum(part["functions"] for part in profile.values()))


def _rejected(scenes: Mapping[str, Any]) -> str:
    """What the best fixed limit does otherwise, in the scene that decides."""
    known = {
        name: scene
        for name, scene in scenes.items()
        if isinstance(scene, Mapping) and THROUGHPUT in scene and "429s/s" in scene
    }
    if not known:
        return ""
    name = min(known, key=lambda name: known[name][THROUGHPUT])
    rejections = known[name]["429s/s"]
    return (
        f"that is the scene “{name}”, in which the best fixed limit is rejected"
        f" {rejections['fixed']:.0f} times a second and loses nothing by it, the adaptive one"
        f" {rejections['adaptive']:.0f} times."
    )


def _ran(workload: Mapping[str, Any]) -> bool:
    return bool(workload["peers"].get(PEER, {}).get("makespan"))


def _costs(results: Results) -> Iterator[Target]:
    costs = results.get("costs") or {}
    many = costs.get(MANY) or {}
    mine, base = many.get(OURS), many.get(BASE)
    yield Target(
        what=f"a call of 1,000 that do nothing / {BASE}",
        limit=4.0,
        unit="x",
        found=mine / base if mine and base else None,
        why=_passing(costs, MANY, LAYERS),
    )
    yield Target(
        what="a turn of one call that does nothing",
        limit=60.0,
        unit="µs",
        found=(costs.get(ONE) or {}).get(OURS),
        why=_passing(costs, ONE, OPENING),
    )
    plans: Mapping[str, Mapping[str, float]] = costs.get("plan") or {}
    yield Target(
        what="plan of 100,000 calls, worst shape, a call",
        limit=3.0,
        unit="µs",
        found=_most(sizes[LARGEST] for sizes in plans.values() if LARGEST in sizes),
        why=FOLDERS,
    )
    yield Target(
        what="the same, against a call of a plan of 10,000 (linear)",
        limit=LINEAR,
        unit="x",
        found=_most(
            sizes[LARGEST] / sizes[TENTH]
            for sizes in plans.values()
            if LARGEST in sizes and TENTH in sizes
        ),
    )
    yield Target(
        what="import of dispatch beyond what it depends on",
        limit=20.0,
        unit="ms",
        found=(costs.get("import") or {}).get("beyond"),
        why=CLASSES,
    )


def _right(results: Results) -> Iterator[Target]:
    workloads = results.get("makespans") or {}
    ours = standing(PEER, workloads)
    is_known = any(PEER in each["peers"] for each in workloads.values())
    counted = {
        "overlaps, wrong order, over a limit, lost results": ours.total.total(),
        "tasks and threads left behind": ours.tasks + ours.threads,
        "workloads that it did not finish": len(ours.failed),
    }
    for what, count in counted.items():
        yield Target(what=what, limit=0, found=count if is_known else None)
    functions = results.get("functions") or {}
    yield Target(
        what="turns of real functions whose state is not the serial run's",
        limit=0,
        found=(functions.get("states that differ") or {}).get(PEER),
    )


def _most(values: Iterable[float]) -> float | None:
    return max(values, default=None)
