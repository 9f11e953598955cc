"""What the makespans of all workloads come to for each peer. Pure; knows the results as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

Results = Mapping[str, Any]
"""The results, by section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One peer over all workloads."""

    peer: str
    ran: int
    """How many workloads it ran to the end."""
    mean: float | None
    """Geometric mean of the ratios to the lower bound."""
    worst: float | None
    violated: Mapping[str, Counter[str]]
    """By workload: what it did that may not happen. Only workloads where it did."""
    failed: Mapping[str, str]
    """By workload: why it did not run to the end."""
    lacks: Sequence[str]
    """What it has no word for, in any of the workloads."""
    tasks: int
    threads: int

    @property
    def total(self) -> Counter[str]:
        """The violations of all workloads, by kind."""
        return sum(self.violated.values(), Counter())


def standings(results: Results) -> list[Standing]:
    """All peers in the order of the results."""
    workloads = results.get("makespans") or {}
    peers = dict.fromkeys(peer for each in workloads.values() for peer in each["peers"])
    return [standing(peer, workloads) for peer in peers]


def standing(peer: str, workloads: Mapping[str, Any]) -> Standing:
    """What became of one peer."""
    found = {name: each["peers"][peer] for name, each in workloads.items() if peer in each["peers"]}
    ratios = [each["ratio"] for each in found.values() if each["ratio"] is not None]
    leaked = [each.get("leaked") or {} for each in found.values()]
    violated = {name: Counter(each["violations"]) for name, each in found.items()}
    return Standing(
        peer=peer,
        ran=sum(each["makespan"] is not None for each in found.values()),
        mean=geometric_mean(ratios),
        worst=max(ratios, default=None),
        violated={name: +kinds for name, kinds in violated.items() if +kinds},
        failed={name: each["failed"] for name, each in found.items() if each["failed"]},
        lacks=list(dict.fromkeys(word for each in found.values() for word in each["lacks"])),
        tasks=max((each.get("tasks", 0) for each in leaked), default=0),
        threads=max((each.get("threads", 0) for each in leaked), default=0),
    )


def geometric_mean(ratios: Sequence[float]) -> float | None:
    """The mean of ratios; None of none."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else None
