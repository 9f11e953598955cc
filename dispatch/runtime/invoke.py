"""Running one tool: a task for `async def`, a daemon worker thread for `def`.

Owns the difference between "asked to stop" and "really stopped": `done` is called once, on the
loop, when the tool is really gone. A thread says `ended` before that, from itself, since its loop
may be closed by then, with whether what it returned must be awaited yet. Whatever a tool raises is
an `Outcome`, never an exception here.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from dispatch.call import FailureKind, Status
from dispatch.errors import AttemptTimedOut, Deadlock
from dispatch.runtime.futures import resolve, uncancelled
from dispatch.runtime.threads import WorkerPool


@dataclass(slots=True)
class Outcome:
    """What a tool returned or raised; never changed once it is made.

    `foreign` if its task was cancelled by someone else, not `began` if that was before its first
    step; `awaitable` if the value must still be awaited.
    """

    value: Any = None
    error: BaseException | None = None
    foreign: bool = False
    began: bool = True
    awaitable: bool = False

    @property
    def fatal(self) -> bool:
        """Whether it must never become a result: the program is asked to end."""
        return isinstance(self.error, KeyboardInterrupt | SystemExit)

    def ending(self) -> tuple[Status, FailureKind | None]:
        """How the call ended, if nobody had asked it to stop."""
        if self.error is None:
            return Status.OK, None
        if self.foreign or self.fatal:
            return Status.CANCELLED, FailureKind.CANCELLED
        if isinstance(self.error, asyncio.CancelledError):
            return Status.ERROR, FailureKind.CANCELLED
        if isinstance(self.error, AttemptTimedOut):
            return Status.TIMED_OUT, FailureKind.TIMEOUT
        if isinstance(self.error, Deadlock):
            return Status.ERROR, FailureKind.DEADLOCK
        return Status.ERROR, FailureKind.TOOL_ERROR


class Invocation(Protocol):
    """A running tool; `finished` once it has returned, though the turn may not know it yet."""

    @property
    def finished(self) -> bool:
        """Whether it has returned."""
        ...

    def cancel(self) -> None:
        """Cancel it where it can be cancelled; a thread cannot."""
        ...


class TaskInvocation:
    """An `async def` tool in a task of its own, which tells of its end in its last step."""

    __slots__ = ("_done", "_task", "finished")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Callable[..., Any],
        arguments: Mapping[str, Any],
        context: Context,
        done: Callable[[Outcome], None],
    ) -> None:
        self._done = done
        self.finished = False
        self._task: asyncio.Task[None] | None = None
        self._task = loop.create_task(self._call(handler, arguments), context=context)
        if not self.finished:  # as an eager task is that never waited
            self._task.add_done_callback(self._gone)

    def cancel(self) -> None:
        """Cancel the task."""
        if self._task is not None:
            self._task.cancel()

    async def _call(self, handler: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        task = asyncio.current_task()
        try:
            outcome = Outcome(value=await handler(**arguments))
        except asyncio.CancelledError as error:
            outcome = Outcome(error=error, foreign=task is not None and task.cancelling() > 0)
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything
            outcome = Outcome(error=error)
        if task is _running_task():  # else it does not run: it is thrown away, with its loop
            if self._task is not None:
                self._task.remove_done_callback(self._gone)
            self._end(outcome)
        del outcome, task  # the traceback of an error refers to this frame

    def _gone(self, task: asyncio.Task[None]) -> None:
        """It was cancelled before its first step."""
        self._end(Outcome(error=asyncio.CancelledError(), foreign=True, began=False))

    def _end(self, outcome: Outcome) -> None:
        self.finished = True
        done, self._done, self._task = self._done, _ignored, None
        done(outcome)


class ThreadInvocation:
    """A `def` tool in a worker thread; if it returns an awaitable, a task awaits that."""

    __slots__ = ("_awaiting", "_cancelled", "_context", "_done", "_loop", "finished")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handler: Callable[..., Any],
        arguments: Mapping[str, Any],
        context: Context,
        done: Callable[[Outcome], None],
        *,
        pool: WorkerPool,
        ended: Callable[[bool], None],
    ) -> None:
        self._loop = loop
        self._context = context
        self._done = done
        self._awaiting: TaskInvocation | None = None
        self._cancelled = False
        self.finished = False

        def work() -> None:
            outcome = _called(handler, arguments, context)
            self.finished = not outcome.awaitable
            ended(outcome.awaitable)
            try:
                loop.call_soon_threadsafe(self._finish, outcome)
            except RuntimeError:  # the loop is closed: nobody waits any more
                ended(False)
            del outcome  # the traceback of its error refers to this frame

        pool.submit(work)

    def cancel(self) -> None:
        """Cancel what is awaited; the thread itself cannot be stopped."""
        self._cancelled = True
        if self._awaiting is not None:
            self._awaiting.cancel()

    def _finish(self, outcome: Outcome) -> None:
        if not outcome.awaitable:
            self._done(outcome)
            return
        value = outcome.value
        done = partial(self._awaited, value)
        self._awaiting = TaskInvocation(self._loop, _awaited, {"value": value}, self._context, done)
        if self._cancelled:
            self._awaiting.cancel()

    def _awaited(self, value: Any, outcome: Outcome) -> None:
        if not outcome.began and inspect.iscoroutine(value):
            value.close()  # nobody will await it any more
        self._done(replace(outcome, began=True))  # the thread did


async def run_in_thread(
    loop: asyncio.AbstractEventLoop,
    handler: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    pool: WorkerPool,
    ended: Callable[[bool], None],
) -> Any:
    """Call it in a worker thread, with this task's context variables, and wait until it returns.

    Cancelling waits for the thread all the same, since that cannot be stopped, and is raised then.
    `ended` is called in the thread, as it returns, with whether something on the loop goes on.
    """
    outcome = await uncancelled(_in_thread(loop, handler, arguments, pool, ended))
    if outcome.error is None:
        return await outcome.value if outcome.awaitable else outcome.value
    try:
        raise outcome.error
    finally:
        del outcome  # the traceback of its error refers to this frame


def _in_thread(
    loop: asyncio.AbstractEventLoop,
    handler: Callable[..., Any],
    arguments: Mapping[str, Any],
    pool: WorkerPool,
    ended: Callable[[bool], None],
) -> asyncio.Future[Outcome]:
    returned: asyncio.Future[Outcome] = loop.create_future()
    context = copy_context()

    def work() -> None:
        outcome = _called(handler, arguments, context)
        ended(True)  # the task that waits for it goes on, whatever came of the call meanwhile
        try:
            loop.call_soon_threadsafe(resolve, returned, outcome)
        except RuntimeError:  # as above
            ended(False)
        del outcome  # as above

    pool.submit(work)
    return returned


def _called(handler: Callable[..., Any], arguments: Mapping[str, Any], context: Context) -> Outcome:
    try:
        value = context.run(handler, **arguments)
        return Outcome(value=value, awaitable=inspect.isawaitable(value))
    except BaseException as error:  # noqa: BLE001 - a tool may raise anything
        return Outcome(error=error)


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs
        return None


def _ignored(outcome: Outcome) -> None:
    """In place of what has been told."""


async def _awaited(value: Any) -> Any:
    return await value
