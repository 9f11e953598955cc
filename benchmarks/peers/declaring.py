"""What the peers' files share: what a peer has no word for, its tools' signatures, its calls.

It knows workloads and kinds, and no peer's package; what takes part in a run stays in each file.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from benchmarks.recording import limited
from benchmarks.work import Kind, Workload

Result = TypeVar("Result")


def missing(
    workload: Workload, without: Collection[str], *, limits: bool | None = None
) -> tuple[str, ...]:
    """The words a peer is without and this workload needs, in the order of the table.

    `limits` says whether it needs one that the peer cannot keep: any at all, if not said.
    """
    works = [work for turn in workload.turns for work in turn]
    changes = any(work.writes or work.session for work in works)
    needed = {
        "order": changes,
        "keys": changes,
        "readers": changes and any(work.reads for work in works),
        "several keys": any(len(work.reads) + len(work.writes) > 1 for work in works),
        "subtrees": any("folder" in work.arguments for work in works),
        "limits": bool(limited(workload)) if limits is None else limits,
        "turns": len(workload.turns) > 1,
        "arrivals": workload.streamed,
    }
    return tuple(word for word, is_needed in needed.items() if is_needed and word in without)


def signed(
    function: Callable[..., Result], name: str, kind: Kind, **beside: type
) -> Callable[..., Result]:
    """The function as if written with a kind's parameters, its job and what else it takes."""
    types = {**dict.fromkeys((*kind.parameters, "job"), str), **beside}
    function.__name__ = name
    function.__doc__ = kind.about or name
    function.__annotations__ = {**types, "return": str}
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
            for each, annotation in types.items()
        ]
    )
    return function


def never_asked(*_: object, **__: object) -> Any:
    """In place of what a model's base class demands and no run here calls; being called is a fault.

    A peer whose next version does call it is shown as failed with this reason.
    """
    raise AssertionError("the model was asked in a way that this benchmark has no answer for")


def used(workload: Workload) -> tuple[str, ...]:
    """The tools that are called, in the order of their first calls."""
    return tuple(dict.fromkeys(work.tool for turn in workload.turns for work in turn))


def jobs_by_turn(workload: Workload) -> list[list[str]]:
    """By turn: the jobs of its calls."""
    return [
        [workload.job(turn, position) for position in range(len(works))]
        for turn, works in enumerate(workload.turns)
    ]


def calls(workload: Workload, turn: int) -> list[tuple[str, str, dict[str, str]]]:
    """The job of each call of a turn, its tool and its arguments, of which the job is one."""
    return [
        (job, work.tool, {**work.arguments, "job": job})
        for job, work in zip(jobs_by_turn(workload)[turn], workload.turns[turn], strict=True)
    ]


def openai_calls(workload: Workload, turn: int) -> list[dict[str, Any]]:
    """The calls of a turn in the form that OpenAI's chat completions give them."""
    return [
        {
            "id": job,
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments)},
        }
        for job, tool, arguments in calls(workload, turn)
    ]
