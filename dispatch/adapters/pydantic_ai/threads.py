"""Where pydantic-ai's `def` tools run: daemon threads of our own, known by the call they run for.

pydantic-ai gives the functions of a tool to an executor, which can be chosen, and waits for them no
more once the tool was cancelled or timed out. Nothing stops a thread. So a call whose tool has
ended while a thread of it still runs is stopped as by its time limit: it is given up after the
grace, and keeps its claims until the thread has returned. Its task ends then and not later, so
that no event loop waits at its end for a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from pydantic_ai import Agent

from dispatch.call import ToolCall
from dispatch.runtime.context import CallContext
from dispatch.runtime.futures import resolve
from dispatch.runtime.middleware import Handler
from dispatch.runtime.nesting import Scope, current
from dispatch.runtime.threads import WorkerPool

LOOK_EVERY = 0.05
"""Seconds after which is looked again whether a call that waits for its threads was given up."""

P = ParamSpec("P")
T = TypeVar("T")


class TrackedThreads:
    """The innermost middleware: what it wraps ends only once no thread of it runs any more."""

    def __init__(self) -> None:
        self._pool = WorkerPool("dispatch-pydantic-ai")

    def __call__(self, following: Handler) -> Handler:
        """Wrap the handler that runs the tool."""

        async def tracked(call: ToolCall, context: CallContext) -> Any:
            threads = CallThreads(self._pool)
            try:
                with Agent.using_thread_executor(threads):
                    return await following(call, context)
            finally:
                if threads.busy:
                    context.time_out("the host gave up on it")
                    await threads.until_given_up()

        return tracked


class CallThreads(Executor):
    """The threads of one call."""

    def __init__(self, pool: WorkerPool) -> None:
        self.busy = 0
        self._pool = pool
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._left: Callable[[], None] | None = None
        self._waiting: asyncio.Future[None] | None = None

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the function in a thread. Raises what `WorkerPool.submit` raises."""
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                self._back()
                return
            try:
                value = function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                self._back()
                future.set_exception(_raisable(error))
            else:
                self._back()
                future.set_result(value)

        self._change(1)
        try:
            self._pool.submit(work)
        except BaseException:
            self._change(-1)
            raise
        return future

    async def until_given_up(self) -> None:
        """Wait until no thread is busy, or its call was given up, whoever cancels meanwhile."""
        scope = current()
        assert scope is not None  # noqa: S101 - it runs in a call
        while self.busy and not scope.is_given_up:
            self._waiting = self._loop.create_future()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self._waiting}, timeout=LOOK_EVERY)
        self._leave(scope)

    def _leave(self, scope: Scope) -> None:
        """Let the call end without its threads: it settles when the last one is back."""
        with self._lock:
            if not self.busy:
                return
            scope.nest(1)
            self._pool.stuck(1)

            def back() -> None:
                self._pool.stuck(-1)
                scope.nest(-1)

            self._left = back

    def _change(self, by: int) -> None:
        with self._lock:
            self.busy += by

    def _back(self) -> None:
        """A function has returned. In its thread."""
        self._change(-1)
        with self._lock:
            if self.busy:
                return
            left, self._left = self._left, None
        if left is not None:
            left()
        if self._waiting is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(resolve, self._waiting, None)


def _raisable(error: BaseException) -> BaseException:
    """The same, or what no future can hold as what a coroutine would make of it."""
    if not isinstance(error, StopIteration):
        return error
    raisable = RuntimeError("a function in a thread raised StopIteration")
    raisable.__cause__ = error
    return raisable
