"""What a turn is doing right now: a live display on a terminal, plain lines elsewhere.

A progress is a sink of events and a context manager around one turn. It writes to the stream it
is given, never to stdout on its own account, and leaves nothing behind on a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from dispatch.call import ToolCall
from dispatch.cli.wording import cut, one_line, shown_call
from dispatch.events import CallEvent, Event

NAME_WIDTH = 60
SHOWN_RUNNING = 12


class TurnProgress(Protocol):
    """Shows one turn while it runs."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def __call__(self, event: Event) -> None:
        """Take one event of the turn."""
        ...


def turn_progress(calls: Sequence[ToolCall], *, quiet: bool = False) -> TurnProgress:
    """The progress that fits stderr: live if it is a terminal, else plain lines unless `quiet`."""
    console = Console(stderr=True)
    if console.is_terminal and calls:
        return LiveProgress(calls, console)
    return PlainProgress([] if quiet else calls, sys.stderr)


class PlainProgress:
    """One line when a call starts and one when it ends, with the seconds since the turn began."""

    def __init__(self, calls: Sequence[ToolCall], stream: TextIO) -> None:
        self._calls = calls
        self._stream = stream
        self._began: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.flush()

    def __call__(self, event: Event) -> None:
        """Write the line, if the event is one that people want to see."""
        if self._began is None:
            self._began = event.at
        if not isinstance(event, CallEvent) or event.index >= len(self._calls):
            return
        if (what := _plain_word(event)) is not None:
            shown = shown_call(self._calls[event.index], NAME_WIDTH)
            line = f"{event.at - self._began:8.2f} s  {what:<9}  {f'#{event.index}':>4}  {shown}"
            print(line, file=self._stream, flush=True)


def _plain_word(event: CallEvent) -> str | None:
    if event.state == "running":
        return "started"
    return event.status if event.state == "ended" else None


class _Count(ProgressColumn):
    """How many calls have ended; nothing for a single call."""

    def render(self, task: Task) -> Text:
        """Return the words for the turn's line, no words for a call's."""
        words = "" if task.total is None else f"{task.completed:.0f} of {task.total:.0f}"
        return Text(words, "green")


class LiveProgress:
    """A line for the turn and one for each running call; all vanish when the turn has ended."""

    def __init__(self, calls: Sequence[ToolCall], console: Console) -> None:
        self._calls = calls
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            _Count(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._total = self._progress.add_task("calls", total=len(calls))
        self._running: dict[int, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Add, change or remove the line of the call that the event is about."""
        if not isinstance(event, CallEvent) or event.index >= len(self._calls):
            return
        if event.state == "running":
            self._start(event.index)
        elif event.state == "progress" and event.detail:
            self._tell(event.index, event.detail)
        elif event.state == "ended":
            self._progress.advance(self._total)
            if (task := self._running.pop(event.index, None)) is not None:
                self._progress.remove_task(task)

    def _start(self, index: int) -> None:
        if index not in self._running and len(self._running) < SHOWN_RUNNING:
            shown = escape(self._shown(index))
            self._running[index] = self._progress.add_task(shown, total=None)

    def _tell(self, index: int, detail: str) -> None:
        if (task := self._running.get(index)) is not None:
            text = cut(f"{self._shown(index)}: {one_line(detail[:200])}", NAME_WIDTH)
            self._progress.update(task, description=escape(text))

    def _shown(self, index: int) -> str:
        return f"#{index} {shown_call(self._calls[index], NAME_WIDTH - 4)}"
