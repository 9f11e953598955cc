"""Undoing an all-or-nothing group: its compensations, newest first, one at a time.

Owns the running of compensations and what is told of them. Each runs shielded from whatever
cancels the turn, under the claims that the turn still holds, without slots, for at most the
policy's `rollback_timeout`. One that conflicts with a call that was given up is not run: that call
may still be doing what would be undone. After a failure the others still run.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dispatch.claims import Claim
from dispatch.render import safe_str
from dispatch.runtime.futures import resolve
from dispatch.runtime.invoke import Outcome, TaskInvocation, ThreadInvocation
from dispatch.runtime.nesting import PARENT, Scope
from dispatch.runtime.threads import WorkerPool

_NUMBERS = itertools.count(1)


@dataclass(slots=True, eq=False, repr=False)
class Compensation:
    """What undoes one step of a call; `number` grows in the order in which they were given.

    `claims` and `ticket` are those of the call that gave it. Never changed once it is made.
    """

    position: int
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    claims: tuple[Claim, ...] = ()
    ticket: int | None = None
    number: int = field(default_factory=lambda: next(_NUMBERS))
    variables: Context = field(default_factory=copy_context)

    @property
    def name(self) -> str:
        """How people would name it."""
        return getattr(self.function, "__qualname__", type(self.function).__name__)


@dataclass(slots=True, eq=False, repr=False)
class Undone:
    """What came of a call's compensations: how many ran, and what went wrong."""

    ran: int = 0
    faults: list[str] = field(default_factory=list)


class Rollback:
    """Runs compensations on one loop. `scope_of` gives what a compensation of a call runs in.

    `left_running` is told of one that could not be stopped, and whether it is in a thread; what it
    returns is called, from any thread, once that one has really ended.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pool: WorkerPool,
        *,
        grace: float,
        scope_of: Callable[[int], Scope],
        obstacle: Callable[[Compensation], str | None],
        left_running: Callable[[Compensation, bool], Callable[[bool], None]],
        fatal: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._pool = pool
        self._grace = grace
        self._scope_of = scope_of
        self._obstacle = obstacle
        self._left_running = left_running
        self._fatal = fatal

    async def run(
        self, compensations: Sequence[Compensation], timeout_of: Callable[[int], float]
    ) -> dict[int, Undone]:
        """Run them all, newest first; what came of it, by the position of their call."""
        undone: dict[int, Undone] = {}
        for one in sorted(compensations, key=lambda each: each.number, reverse=True):
            told = undone.setdefault(one.position, Undone())
            obstacle = self._obstacle(one)
            if obstacle is not None:
                told.faults.append(f"{one.name} was not run: {obstacle}")
                continue
            fault = await self._run_one(one, timeout_of(one.position))
            told.ran += 1
            if fault is not None:
                told.faults.append(f"{one.name} {fault}")
        return undone

    async def _run_one(self, one: Compensation, timeout: float) -> str | None:
        ended: asyncio.Future[Outcome] = self._loop.create_future()
        scope = self._scope_of(one.position)
        variables = one.variables.copy()
        variables.run(PARENT.set, scope)
        end = _End()
        try:
            invocation = self._invoke(one, variables, partial(resolve, ended), end)
        except RuntimeError as error:  # no thread to be had
            return f"was not run: {safe_str(error)}"
        outcome = await _within(ended, timeout)
        if outcome is None:
            scope.stop(f"the rollback timed out after {timeout:g} s")
            invocation.cancel()
            stopped = await _within(ended, self._grace)
            if stopped is None:
                scope.abandoned = True
                in_thread = isinstance(invocation, ThreadInvocation)
                end.then(self._left_running(one, in_thread))
                ended.add_done_callback(lambda _: end.come())
                return f"did not end within {timeout:g} s and could not be stopped"
            outcome = stopped
            if outcome.error is not None and not outcome.fatal:
                return f"was stopped after {timeout:g} s"
        scope.alive = False
        if outcome.error is None:
            return None
        if outcome.fatal:
            self._fatal(outcome.error)
        return f"failed: {type(outcome.error).__name__}: {safe_str(outcome.error)}"

    def _invoke(
        self,
        one: Compensation,
        variables: Context,
        done: Callable[[Outcome], None],
        end: _End,
    ) -> TaskInvocation | ThreadInvocation:
        handler = partial(one.function, *one.args)
        if inspect.iscoroutinefunction(one.function):
            return TaskInvocation(self._loop, handler, one.kwargs, variables, done)
        return ThreadInvocation(
            self._loop, handler, one.kwargs, variables, done, pool=self._pool, ended=end.come
        )


class _End:
    """The real end of one compensation, and what is to be done then. Usable from any thread."""

    def __init__(self) -> None:
        self._awaits: bool | None = None
        self._then: Callable[[bool], None] = lambda awaits: None

    def come(self, awaits: bool = False) -> None:
        """It has ended; or its thread has, and what that returned must be awaited yet."""
        self._awaits = awaits
        self._then(awaits)

    def then(self, do: Callable[[bool], None]) -> None:
        self._then = do
        if self._awaits is not None:  # meanwhile; doing it twice does no harm
            do(self._awaits)


async def _within(ended: asyncio.Future[Outcome], timeout: float) -> Outcome | None:
    """Wait for the end so long, whoever cancels this task."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout
    while not ended.done() and loop.time() < until:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([ended], timeout=until - loop.time())
    return ended.result() if ended.done() else None
