"""Worker threads for `def` tools: daemons of our own, made on demand and never joined.

The loop's default executor is left to others: a stuck tool must not fill it, and leaving a
program must not wait for a tool that cannot be stopped. How many run at once is bounded by the
dispatcher's limits, since a tool starts only with its slot; a call that was given up has lost its
slot, so its thread is replaced, up to a bound. An idle thread goes after a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from weakref import WeakSet

from dispatch.errors import ToolError
from dispatch.runtime.activity import ACTIVITY
from dispatch.runtime.futures import fail, resolve

IDLE_SECONDS = 5.0
MOST_STUCK = 64
"""Threads that a pool replaces while calls that were given up keep them busy."""

T = TypeVar("T")
Work = Callable[[], object]

_idle: set[threading.Thread] = set()
_pools: WeakSet[WorkerPool] = WeakSet()


def is_idle_worker(thread: threading.Thread) -> bool:
    """Whether it is a worker thread without work, which goes by itself before long."""
    return thread in _idle


class WorkerPool:
    """Runs work in daemon threads. Usable from any thread."""

    def __init__(self, name: str = "dispatch-worker") -> None:
        self._name = name
        self._made = 0
        self.begin()
        _pools.add(self)

    def begin(self) -> None:
        """Have no threads: at first, and in a child process, which has none of its parent's."""
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._idle = 0
        self._stuck = 0

    def submit(self, work: Work) -> None:
        """Run the work in an idle thread, or a new one. It must not raise.

        Raises `RuntimeError` if the system gives no more threads, and `ToolError` if `MOST_STUCK`
        threads are busy with calls that could not be stopped.
        """
        if self._stuck >= MOST_STUCK:
            raise ToolError(
                f"{MOST_STUCK} calls that could not be stopped are still busy, so no more threads"
                " are started until one of them ends",
                retryable=True,
            )
        ACTIVITY.add(1)
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._queue.put(work)
                return
            self._made += 1
            name = f"{self._name}-{self._made}"
        first = [work]  # emptied by the thread, which keeps its arguments while it lives
        try:
            threading.Thread(target=self._serve, args=(first,), name=name, daemon=True).start()
        except RuntimeError:
            ACTIVITY.add(-1)
            raise

    def stuck(self, change: int) -> None:
        """One thread more (1) is busy with a call that was given up, or one less (-1)."""
        with self._lock:
            self._stuck += change

    def close(self) -> None:
        """Let the idle threads go now. Busy ones go when they are done and have been idle."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._queue.put(None)

    def _serve(self, first: list[Work]) -> None:
        work: Work | None = first.pop()
        while work is not None:
            try:
                work()
            finally:
                ACTIVITY.add(-1)
            del work  # an idle thread keeps nothing of its last call alive
            with self._lock:
                self._idle += 1
            _idle.add(threading.current_thread())
            work = self._next()
            _idle.discard(threading.current_thread())

    def _next(self) -> Work | None:
        try:
            return self._queue.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    return None
        return self._queue.get()  # counted as idle no more: work for this thread is on its way


def _forked() -> None:
    """In a child process."""
    _idle.clear()
    for pool in _pools:
        pool.begin()


os.register_at_fork(after_in_child=_forked)


async def run_apart(pool: WorkerPool, function: Callable[[], T]) -> T:
    """Call it in a thread of the pool and return what it returns, or raise what it raises.

    Cancelling does not wait for the thread, so the function must leave nothing behind.
    """
    loop = asyncio.get_running_loop()
    returned: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            tell = partial(resolve, returned, function())
        except BaseException as error:  # noqa: BLE001 - raised below
            tell = partial(fail, returned, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell)

    pool.submit(work)
    return await returned
