"""Ctrl-C and its relatives, from before a turn starts until its results are out.

The first signal cancels the work, later ones change nothing: a cancelled turn settles within two
graces, and its results must be printed whole and its processes gone whatever else is pressed
meanwhile. Signals that were ignored when the command started stay ignored (`nohup`, `&`).
"""

from __future__ import annotations

import asyncio
import atexit
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE = 2.0
"""Seconds after the work in which a signal is a repetition; later it ends what hangs."""


class Interrupts:
    """Runs work that signals cancel, and keeps the signals from harming what follows it."""

    def __init__(self) -> None:
        self.seen = False
        self._runner = asyncio.Runner()
        self._cancel: Callable[[], object] | None = None
        self._over: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = handle(self._heard)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._runner.close()
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run `work` to its end. Raises `KeyboardInterrupt` if a signal ended it."""
        try:
            return self._runner.run(self._cancellable(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._cancel = None
            self._over = time.monotonic()

    async def _cancellable(self, work: Coroutine[object, object, T]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            cancel = task.cancel
            self._cancel = lambda: loop.call_soon_threadsafe(cancel)
            if self.seen:
                cancel()
        return await work

    def _heard(self, number: int, frame: FrameType | None) -> None:
        _Heard.is_first()
        first, self.seen = not self.seen, True
        if self._cancel is not None:
            if first:
                self._cancel()
        elif self._over is not None and time.monotonic() - self._over > PATIENCE:
            raise KeyboardInterrupt


def handle(handler: Callable[[int, FrameType | None], object]) -> dict[signal.Signals, Any]:
    """Have `handler` called for the signals that are not ignored; return what was before."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {number: signal.getsignal(number) for number in SIGNALS}
    taken = {n: was for n, was in before.items() if was not in (signal.SIG_IGN, None)}
    for number in taken:
        signal.signal(number, handler)
    return taken


def interrupt_once() -> None:
    """Let every signal interrupt what this process does, and one that follows it change nothing.

    For a whole command, before and after its `Interrupts`: a repetition must find neither the
    default of a signal nor the code that ends the command.
    """

    def heard(number: int, frame: FrameType | None) -> None:
        if _Heard.is_first():
            raise KeyboardInterrupt

    handle(heard)


class _Heard:
    """When this process heard its last signal, on the monotonic clock."""

    last = -math.inf

    @classmethod
    def is_first(cls) -> bool:
        """Note a signal; whether it repeats none."""
        before, cls.last = cls.last, time.monotonic()
        return cls.last - before > PATIENCE


def end_with(code: int) -> None:
    """Let signals change no exit code any more; one that finds the process hanging ends it.

    For the end of the process: all is printed, only the interpreter's own shutdown is to come,
    which also removes what is left of temporary folders.
    """
    over = time.monotonic()

    def heard(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - over > PATIENCE:
            os._exit(code)

    handle(heard)
    atexit.register(lambda: [signal.signal(number, signal.SIG_IGN) for number in SIGNALS])
