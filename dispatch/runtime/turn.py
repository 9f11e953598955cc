"""A turn as the host sees it: submit, close, events, snapshot, finish."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextvars import copy_context
from types import TracebackType
from typing import Self

from anyio import CancelScope

from dispatch.call import Status, ToolCall, ToolResult
from dispatch.core.life import TurnState
from dispatch.errors import TurnClosed, UsageError
from dispatch.runtime.admission import checked
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.driver import Driver
from dispatch.runtime.ended import Ended
from dispatch.runtime.fault import report
from dispatch.runtime.futures import Latch
from dispatch.runtime.nesting import Scope, current
from dispatch.runtime.result import TurnResult
from dispatch.runtime.resuming import Answers
from dispatch.runtime.settings import TurnSettings

CHUNK = 256
"""Calls that are admitted before the loop gets a chance to do something else."""


class Turn:
    """The tool calls of one model turn, submitted one by one. Made by `Dispatcher.turn`.

    Use it as `async with`: leaving the block finishes the turn; leaving it by an exception stops
    what is still open first and waits until that has settled, at most two graces. It belongs to
    the event loop it was entered on; its `token` may be cancelled from any thread.
    """

    def __init__(
        self,
        turn_id: str,
        settings: TurnSettings,
        tokens: Iterable[CancelToken] = (),
        opened: Callable[[Turn], None] = lambda turn: None,
        gone: Callable[[Turn], None] = lambda turn: None,
        scope: Scope | None = None,
    ) -> None:
        self.id = turn_id
        self.token = CancelToken()
        self._settings = settings
        self._tokens = tuple(tokens)
        self._opened, self._gone = opened, gone
        self._scope = scope
        self._at_once = False
        self._parent: Scope | None = None
        self._driver: Driver | None = None
        self._ended: Ended | None = None
        self._over = Latch()
        self._result: TurnResult | None = None
        self._by_end: tuple[int, ...] = ()
        """Once it is over: the positions in the order in which the calls ended."""
        self._forget: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.finish()
            return
        reason = "cancelled" if isinstance(error, asyncio.CancelledError) else "the host failed"
        self._running.stop(Status.CANCELLED, f"{reason} while the turn was open")
        await self._settled(self._running)
        if isinstance(error, asyncio.CancelledError):
            error.turn = self._result  # type: ignore[attr-defined]

    def open(self) -> None:
        """Bind the turn to the running loop; inside a tool it is nested in the tool's call.

        `async with` does this. Raises `UsageError` inside a call that was given up, or where turns
        are nested too deep.
        """
        if self._driver is not None:
            raise UsageError("this turn was entered before; make another with dispatcher.turn()")
        scope = None if self._scope is None else self._scope.innermost_alive()
        scope = scope or current()  # a compensation may use the context of the call that it undoes
        if scope is not None:
            scope.check(self._settings.max_depth)
            undone_above = scope.keeper is not None and not scope.undoes
            if undone_above and self._settings.answers is not None:
                raise UsageError("no turn can be resumed in a call that may yet be undone")
        self._driver = Driver(
            self.id,
            self._settings,
            self.token,
            parent=scope,
            whole=self._at_once,
            ended=self._one_ended,
            decided=self._decided,
            gone=self._left,
        )
        self._opened(self)
        tokens = self._tokens
        if scope is not None:
            self._parent = scope
            scope.nest(1)
            scope.own.open_turns.append(self._driver.close_soon)
            tokens = (*tokens, scope.token)
        self._forget = [token.on_cancel(self.token.cancel) for token in tokens]
        self._forget.append(self.token.on_cancel(self._driver.cancel))
        self._settings.totals.opened(asyncio.get_running_loop().time())
        if self._settings.timeout is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._settings.timeout, self._time_out)

    def submit(self, call: ToolCall) -> int:
        """Admit the next call and return its position; it may start at once.

        Raises `TurnClosed` after `close`. A call that cannot be run (unknown tool, bad arguments)
        is admitted and gets an error result.
        """
        position = self._submit(call)
        self._running.pump()
        return position

    def cancel(self, position: int, reason: str = "the host cancelled it") -> None:
        """Stop one call: at once if it never ran, else its tool gets its token, then is cancelled.

        Nothing happens to a call that has its result. Its siblings go on.
        """
        self._with(position).stop_call(position, reason)

    def withdraw(self, reason: str = "the host withdrew it") -> None:
        """Stop every call whose tool has not started yet; those that run finish."""
        running = self._running
        for position, record in enumerate(running.machine.calls):
            if record.status is None and not record.alive:
                running.stop_call(position, reason)

    async def wait(self, position: int) -> ToolResult:
        """Wait for the result of one call, as soon as it is final. Cancelling changes nothing.

        Like `cancel`, it raises `UsageError` for a position that no call has.
        """
        self._with(position)
        return await self._told().of(position)

    def close(self) -> None:
        """End admission. The turn is over once every call has its result."""
        self._running.close()

    def snapshot(self) -> tuple[ToolResult, ...]:
        """The results there are by now, in intent order. Readable at any time.

        Those of an all-or-nothing group may still change until the turn is decided.
        """
        if self._result is not None:
            return self._result.results
        results = {} if self._driver is None else self._driver.turn.results
        return tuple(result for _, result in sorted(results.items()))

    async def events(self) -> AsyncIterator[ToolResult]:
        """Yield every result as its call ends, from the first one on, until the turn is over.

        Results of an all-or-nothing group come when the turn is decided, in intent order. Any
        number of readers; a slow one never slows the turn, and a cancelled one just goes.
        """
        async for result in self._told().each():
            yield result

    async def finish(self) -> TurnResult:
        """Close the turn, wait for every call, and return the results in intent order.

        Cancelling it stops the open calls, waits for them at most two graces, and raises the
        `CancelledError` with the `TurnResult` as its `turn`. A `KeyboardInterrupt` or `SystemExit`
        that a tool raised stops its siblings and is raised from here, with its `turn` too.
        """
        await self._settled(self._running)
        return self._whole()

    async def run(self, calls: Iterable[ToolCall]) -> TurnResult:
        """Submit all of these, each as it is taken from the iterable, and finish. See `finish`."""
        return await self.run_checked(map(checked, calls))

    async def run_checked(self, calls: Iterable[ToolCall]) -> TurnResult:
        """The same for calls that the host is known to have made well."""
        self._at_once = True
        async with self:
            running = self._running
            admit, submit = running.turn.admission.admit, running.submit
            for count, call in enumerate(calls, start=1):
                submit(admit(call), copy_context())
                if count % CHUNK == 0:
                    running.pump()
                    await asyncio.sleep(0)
        return self._whole()

    def answers(self) -> Answers:
        """What the calls of another turn may be answered with. Raises `UsageError` before the end.

        For `resume=`, which calls it.
        """
        if self._result is None:
            raise UsageError("a turn can be resumed once it is over; stop or finish it first")
        return self._result.answers()

    async def over(self) -> None:
        """Wait until every call has its result, from any loop. Cancelling it changes nothing."""
        if self._driver is not None and not self._driver.stranded:
            await self._over.wait()

    @property
    def result(self) -> TurnResult | None:
        """What `finish` returns, as soon as the turn is over."""
        return self._result

    @property
    def stranded(self) -> bool:
        """Whether its loop was closed, so that nothing of it will ever go on."""
        return self._driver is not None and self._driver.stranded

    @property
    def _running(self) -> Driver:
        if self._driver is None:
            raise UsageError(
                "the turn was not entered; write `async with dispatcher.turn() as turn`"
            )
        self._driver.check_thread()
        return self._driver

    def _with(self, position: int) -> Driver:
        running = self._running
        if not isinstance(position, int) or not 0 <= position < len(running.turn.calls):
            raise UsageError(f"the turn has no call {position!r}; `submit` returns the position")
        return running

    def _submit(self, call: ToolCall) -> int:
        running = self._running
        if running.machine.state is not TurnState.OPEN:
            raise TurnClosed(f"call {call.id!r} came after the turn was closed; start another turn")
        return running.submit(running.turn.admission.admit(checked(call)), copy_context())

    def _whole(self) -> TurnResult:
        if self._result is None:
            raise UsageError("the turn is not over")
        return self._result

    async def _settled(self, running: Driver) -> None:
        """Close, and wait until every call has its result, also while being cancelled; then raise.

        What must end the program goes before a cancel. A turn that is nested in a call then waits
        for the slots of that call.
        """
        running.close()
        ending: BaseException | None = None
        try:
            if self._result is None:
                await self._over.wait()
            if self._parent is not None:
                await self._parent.going_on()
        except asyncio.CancelledError as error:
            ending = error
            running.stop(Status.CANCELLED, _reason(error))
            await self._stopped()
            if self._parent is not None:
                await self._parent.going_on()
        ending = running.turn.fatal or ending
        if ending is not None:
            ending.turn = self._result  # type: ignore[attr-defined]
            raise ending

    async def _stopped(self) -> None:
        """Wait for the end of a turn that was stopped, whoever cancels however often meanwhile."""
        with CancelScope(shield=True):
            while self._result is None:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._over.wait()

    def _told(self) -> Ended:
        """The results for whoever wants them one by one; nothing is kept before somebody does."""
        running = self._running
        if self._ended is None:
            self._ended = Ended()
            known = self._result or running.turn.results
            for position in self._by_end or running.turn.results:
                self._one_ended(known[position])
            if self._result is not None:
                self._ended.complete(self._result)
        return self._ended

    def _one_ended(self, result: ToolResult) -> None:
        ended, driver = self._ended, self._driver
        if ended is None or driver is None or driver.machine.awaits_verdict(result.index):
            return
        ended.add(result)

    def _decided(self) -> None:
        running, settings = self._running, self._settings
        if self._timer is not None:
            self._timer.cancel()
        for forget in self._forget:
            forget()
        results = self.snapshot()
        for group in running.machine.groups.by_name.values():
            if group.fault is not None:
                report("the policy raised", group.fault, turn=self.id)
        result = TurnResult(
            self.id,
            results,
            running.machine.verdict,
            running.turn.plan,
            running.turn.lower_bound,
            running.machine.calls,
            settings.limits.named,
            running.peak,
            running.turn.answers,
        )
        self._result = result
        self._by_end = tuple(running.turn.results)
        if self._parent is not None:
            self._parent.wake()
        if self._ended is not None:
            self._ended.complete(results)
        self._over.set(running.loop)
        result.add_to(settings.totals, running.turn.now)

    def _left(self) -> None:
        if self._parent is not None:
            self._parent.nest(-1)
        self._gone(self)

    def _time_out(self) -> None:
        timeout = self._settings.timeout or 0.0
        self._running.stop(Status.TIMED_OUT, f"the turn timed out after {timeout:g} s")


def _reason(error: asyncio.CancelledError) -> str:
    text = str(error)
    return f"the turn was cancelled ({text})" if text else "the turn was cancelled"
