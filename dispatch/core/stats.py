"""What a turn's times say: overlap, waiting, and how close to the best possible it was. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dispatch.call import Status, ToolResult

SUSPENDED = "suspended"
"""The cause of waiting that is not counted as running, though the tool has started."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What is measured of one turn, and summed up over many; times in seconds.

    `makespan` is from the first submission to the last result. `run_time` is the sum of the run
    times, without the time that calls were suspended. `conflicting` counts calls with a conflicting
    predecessor, `conflict_serialized` those that really waited for one. `waits` has seconds by
    cause, one phase at a time, over all calls. `peak` is the most calls that ran at once;
    `lower_bound` what no schedule could beat with these run times under these limits; `statuses`
    counts results by status.
    """

    calls: int = 0
    makespan: float = 0.0
    run_time: float = 0.0
    conflicting: int = 0
    conflict_serialized: int = 0
    peak: int = 0
    waits: Mapping[str, float] = field(default_factory=dict)
    lower_bound: float = 0.0
    statuses: Mapping[Status, int] = field(default_factory=dict)

    @property
    def cancellation_rate(self) -> float:
        """Cancelled calls over all calls."""
        return self.statuses.get(Status.CANCELLED, 0) / self.calls if self.calls else 0.0

    @property
    def stretch(self) -> float:
        """Makespan over its lower bound: 1.0 is the best there can be."""
        return self.makespan / self.lower_bound if self.lower_bound > 0 else 1.0


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)  # no field of its own
class TurnStats(Measures):
    """The measures of one turn."""

    @property
    def parallelism_factor(self) -> float:
        """Run time over makespan: 1.0 is a serial run without gaps."""
        return self.run_time / self.makespan if self.makespan > 0 else 1.0


@dataclass(frozen=True, kw_only=True)
class DispatcherStats(Measures):
    """The measures of all turns that a dispatcher has decided: sums, but for `peak`.

    `busy` is the time in which at least one turn was open; `peak` is over calls of whatever turn,
    and `running` are those that run now.
    """

    turns: int = 0
    busy: float = 0.0
    running: int = 0

    @property
    def parallelism_factor(self) -> float:
        """Run time over the time in which at least one turn was open."""
        return self.run_time / self.busy if self.busy > 0 else 1.0


def run_times(results: Sequence[ToolResult]) -> list[float]:
    """Seconds that each call's tool ran and was not suspended; 0 for those that never did."""
    return [
        0.0
        if result.started_at is None
        else result.finished_at - result.started_at - result.waits.get(SUSPENDED, 0.0)
        for result in results
    ]


def summed(
    results: Sequence[ToolResult],
) -> tuple[float, dict[str, float], dict[Status, int]]:
    """Makespan, seconds waited by cause, and how many results have each status."""
    first, last = math.inf, -math.inf
    waits: dict[str, float] = {}
    statuses: dict[Status, int] = {}
    for result in results:
        if result.queued_at < first:
            first = result.queued_at
        if result.finished_at > last:
            last = result.finished_at
        statuses[result.status] = statuses.get(result.status, 0) + 1
        for cause, seconds in result.waits.items():
            waits[cause] = waits.get(cause, 0.0) + seconds
    return last - first if results else 0.0, waits, statuses


def turn_stats(
    results: Sequence[ToolResult],
    times: Sequence[float],
    *,
    conflicting: int,
    conflict_serialized: int,
    peak: int,
    lower_bound: float,
) -> TurnStats:
    """The measures of a turn that has ended; `times` are its `run_times`."""
    makespan, waits, statuses = summed(results)
    return TurnStats(
        calls=len(results),
        makespan=makespan,
        run_time=sum(times),
        conflicting=conflicting,
        conflict_serialized=conflict_serialized,
        peak=peak,
        waits=dict(sorted(waits.items())),
        lower_bound=lower_bound,
        statuses=statuses,
    )
