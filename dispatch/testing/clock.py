"""Virtual time: an event loop whose clock jumps to the next timer when nothing else can happen.

An hour of `asyncio.sleep` takes no time, and the same program gives the same times on every run.
While a worker thread or a subprocess is busy the clock does not jump: it runs with real time, so
a time-out does not fire before the work had its chance.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from dispatch.runtime.activity import ACTIVITY

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


GLANCE = 0.01
"""Real seconds after which a loop that waits for busy threads looks whether they still are."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time; `time()` begins at 0 and is in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._executing = 0
        super().__init__(_VirtualSelector(self))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.now

    def busy(self) -> bool:
        """Whether a worker thread, an executor or a subprocess is at work."""
        return ACTIVITY.busy > 0 or self._executing > 0

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run it as any loop does; virtual time does not jump until it is done."""
        future = super().run_in_executor(executor, func, *args)
        self._executing += 1
        future.add_done_callback(self._executed)
        return future

    def _executed(self, future: object) -> None:
        self._executing -= 1


class _VirtualSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        busy = self._loop.busy()  # first: a thread wakes the loop before it is idle
        events = super().select(0)
        if events:
            return events
        if busy:
            began = time.monotonic()
            events = super().select(min(timeout, GLANCE))
            self._loop.now += min(time.monotonic() - began, timeout)
            return events
        self._loop.now += timeout
        return []


def run_in_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in virtual time: run it to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
