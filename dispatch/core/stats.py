"""What a turn's times say: overlap, waiting, and how close to the best possible it was. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dispatch.call import Status, ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStats:
    """Measures of one turn; times in seconds.

    `makespan` is from the first submission to the last result. `run_time` is the sum of the run
    times and `parallelism_factor` that sum over the makespan (1.0 is a serial run without gaps).
    `conflicting` counts calls with a conflicting predecessor, `conflict_serialized` those that
    really waited for one. `waits` has seconds by cause, one phase at a time, over all calls.
    `peak` is the most calls that ran at once; `lower_bound` what no schedule could beat with these
    run times under these limits; `statuses` counts results by status.
    """

    calls: int
    makespan: float
    run_time: float
    parallelism_factor: float
    conflicting: int
    conflict_serialized: int
    peak: int
    waits: Mapping[str, float]
    lower_bound: float
    statuses: Mapping[Status, int]


def run_times(results: Sequence[ToolResult]) -> list[float]:
    """Seconds that each call's tool ran; 0 for those that never did."""
    return [
        0.0 if result.started_at is None else result.finished_at - result.started_at
        for result in results
    ]


def turn_stats(
    results: Sequence[ToolResult],
    *,
    conflicting: int,
    conflict_serialized: int,
    lower_bound: float,
) -> TurnStats:
    """The measures of a turn that has ended."""
    run_time = sum(run_times(results))
    makespan = 0.0
    if results:
        first = min(result.queued_at for result in results)
        makespan = max(result.finished_at for result in results) - first
    waits: Counter[str] = Counter()
    for result in results:
        waits.update(result.waits)
    return TurnStats(
        calls=len(results),
        makespan=makespan,
        run_time=run_time,
        parallelism_factor=run_time / makespan if makespan > 0 else 1.0,
        conflicting=conflicting,
        conflict_serialized=conflict_serialized,
        peak=_peak(results),
        waits=dict(sorted(waits.items())),
        lower_bound=lower_bound,
        statuses=dict(Counter(result.status for result in results)),
    )


def _peak(results: Sequence[ToolResult]) -> int:
    """The most intervals open at once; one that ends where another begins does not overlap it."""
    edges = [(r.started_at, 1) for r in results if r.started_at is not None]
    edges += [(r.finished_at, -1) for r in results if r.started_at is not None]
    peak = running = 0
    for _, step in sorted(edges):
        running += step
        peak = max(peak, running)
    return peak
