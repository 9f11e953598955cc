"""`dispatch run`: one turn on real files, with Ctrl-C ending it at once and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from dispatch import Dispatcher, TurnResult
from dispatch.call import ToolCall
from dispatch.cli.exits import INTERRUPTED, NOT_SATISFIED, SATISFIED, complain, write_out
from dispatch.cli.progress import turn_progress
from dispatch.cli.results import json_text, summary, text_lines
from dispatch.cli.signals import Interrupts
from dispatch.tool import Toolbox


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line of `dispatch run` says."""

    root: Path
    schedule: str
    max_concurrent: int | None = None
    timeout: float | None = None
    as_json: bool = False
    require_ok: bool = False


def run_turn(calls: Sequence[ToolCall], tools: Toolbox, options: RunOptions, out: TextIO) -> int:
    """Run the calls, print their results, and return the exit code."""
    with Interrupts() as interrupts:
        turn, interrupted = interrupts.run(_run(calls, tools, options))
        if turn is not None:
            write_out(_output(turn, interrupted, options), out)
            for warning in turn.warnings:
                complain(f"warning: {warning}")
            complain(summary(turn))
    if turn is None or interrupts.seen or interrupted:
        complain("interrupted")
        return INTERRUPTED
    all_ok = all(result.ok for result in turn.results)
    return SATISFIED if turn.satisfied and (all_ok or not options.require_ok) else NOT_SATISFIED


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
