"""`dispatch run`: one turn on real files, with Ctrl-C ending it at once and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dispatch import Dispatcher, TurnResult
from dispatch.call import ToolCall
from dispatch.cli.exits import INTERRUPTED, NOT_SATISFIED, SATISFIED, complain, write_out
from dispatch.cli.progress import turn_progress
from dispatch.cli.results import json_text, summary, text_lines
from dispatch.tool import Toolbox

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line of `dispatch run` says."""

    root: Path
    schedule: str
    max_concurrent: int | None = None
    timeout: float | None = None
    as_json: bool = False
    require_ok: bool = False


def run_turn(calls: Sequence[ToolCall], tools: Toolbox, options: RunOptions) -> int:
    """Run the calls, print their results, and return the exit code."""
    with contextlib.redirect_stdout(sys.stderr):  # stdout is for results, also if a tool prints
        turn, interrupted = interruptible(_run(calls, tools, options))
    if as_lines := [] if turn is None else _output(turn, interrupted, options):
        write_out(as_lines)
    if turn is not None:
        complain(summary(turn))
    if interrupted or turn is None:
        complain("interrupted")
        return INTERRUPTED
    all_ok = all(result.ok for result in turn.results)
    return SATISFIED if turn.satisfied and (all_ok or not options.require_ok) else NOT_SATISFIED


def interruptible(work: Coroutine[object, object, T]) -> T:
    """Run `work` in a loop where Ctrl-C, SIGTERM and SIGHUP cancel it.

    Raises `KeyboardInterrupt` if that ended it.
    """
    with asyncio.Runner() as runner:
        try:
            return runner.run(_cancelled_by_signals(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


async def _cancelled_by_signals(work: Coroutine[object, object, T]) -> T:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, task.cancel)
    return await work


async def _run(
    calls: Sequence[ToolCall], tools: Toolbox, options: RunOptions
) -> tuple[TurnResult | None, bool]:
    """The turn's result, and whether it was interrupted before its end."""
    with turn_progress(calls) as progress:
        async with Dispatcher(
            tools,
            root=options.root,
            max_concurrent=options.max_concurrent,
            schedule=options.schedule,
            sinks=(progress,),
        ) as dispatcher:
            try:
                return await dispatcher.run(calls, timeout=options.timeout), False
            except asyncio.CancelledError as error:
                return getattr(error, "turn", None), True


def _output(turn: TurnResult, interrupted: bool, options: RunOptions) -> list[str]:
    if options.as_json:
        return [json_text(turn, interrupted=interrupted)]
    return list(text_lines(turn))
