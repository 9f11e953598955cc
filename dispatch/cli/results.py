"""A turn's results for stdout, as text or JSON. Invariant: times stand under `timing` alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from dispatch import TurnResult
from dispatch.call import Failure, ToolResult
from dispatch.cli.wording import count, shown_call, visible


def text_lines(turn: TurnResult) -> Iterator[str]:
    """Each call with its status, and below it, indented, what the model is told."""
    for result in turn.results:
        yield f"#{result.index} {shown_call(result.call)}: {result.status}"
        for line in result.content().splitlines() or [""]:
            yield f"   {visible(line)}".rstrip()


def json_text(turn: TurnResult, *, interrupted: bool) -> str:
    """One JSON object: results in intent order, what was conflicting, and the times apart."""
    stats, began = turn.stats, _began(turn)
    document = {
        "satisfied": turn.satisfied,
        "reason": turn.reason,
        "interrupted": interrupted,
        "warnings": list(turn.warnings),
        "results": [_result(result) for result in turn.results],
        "conflicting": stats.conflicting,
        "timing": {
            "makespan": _rounded(stats.makespan),
            "run_time": _rounded(stats.run_time),
            "parallelism_factor": _rounded(stats.parallelism_factor),
            "conflict_serialized": stats.conflict_serialized,
            "peak": stats.peak,
            "waits": {cause: _rounded(seconds) for cause, seconds in stats.waits.items()},
            "calls": [_times(result, began) for result in turn.results],
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=True, default=str)


def summary(turn: TurnResult) -> str:
    """One line on the turn: how many calls ended how, in what time."""
    stats = turn.stats
    statuses = ", ".join(
        f"{number} {status}" for status, number in stats.statuses.items() if number
    )
    return (
        f"{count(stats.calls, 'call')} ({statuses or 'none'}) in {stats.makespan:.2f} s,"
        f" parallelism {stats.parallelism_factor:.2f},"
        f" {stats.conflicting} conflicting, {stats.conflict_serialized} waited for one"
    )


def _result(result: ToolResult) -> dict[str, Any]:
    return {
        "index": result.index,
        "id": result.call.id,
        "name": result.call.name,
        "status": str(result.status),
        "content": result.content(),
        "failure": None if result.failure is None else _failure(result.failure),
    }


def _failure(failure: Failure) -> dict[str, Any]:
    return {
        "kind": str(failure.kind),
        "message": failure.message,
        "retryable": failure.retryable,
        "cause": failure.cause,
        "phase": None if failure.phase is None else str(failure.phase),
    }


def _began(turn: TurnResult) -> float:
    return min((result.queued_at for result in turn.results), default=0.0)


def _times(result: ToolResult, began: float) -> dict[str, float | None]:
    started = result.started_at
    return {
        "queued": _rounded(result.queued_at - began),
        "started": None if started is None else _rounded(started - began),
        "finished": _rounded(result.finished_at - began),
    }


def _rounded(seconds: float) -> float:
    return round(seconds, 6)
