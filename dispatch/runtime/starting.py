"""Starting the tools of one turn, and taking what they returned.

Owns the moment between a call's slots and its tool: cancel wins over a slot that comes in the same
step, and whatever cannot be started is that call's error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dispatch.core.life import CallState
from dispatch.core.turn import TurnMachine
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.hosting import Hosting
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.invoke import Outcome
from dispatch.runtime.nesting import Scope
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.running import RunningCall
from dispatch.runtime.settings import TurnSettings

Tell = Callable[[int, str, str | None, str | None], None]


class Starting:
    """See the module. `cancelled` stops the turn; `interrupted` is told what ends the program."""

    def __init__(
        self,
        machine: TurnMachine,
        calls: list[RunningCall],
        inbox: Inbox,
        settings: TurnSettings,
        token: CancelToken,
        table: ResourceTable,
        *,
        depth: int,
        above: Scope | None,
        tell: Tell | None,
        cancelled: Callable[[str], None],
        interrupted: Callable[[BaseException], None],
    ) -> None:
        self._machine = machine
        self._calls = calls
        self._inbox = inbox
        self._settings = settings
        self._token = token
        self._table = table
        self._depth = depth
        self._above = above
        self._tell = tell
        self._cancelled = cancelled
        self._interrupted = interrupted
        self.running: set[int] = set()
        """The calls that have their slots."""
        self.peak = 0
        self.holdings: Holdings
        self.hosting: Hosting

    def start(self, request: int, position: int) -> None:
        """A call has the slots of this request: start its tool, or let it go on."""
        if self._token.reason is not None:  # cancelled in the same step: cancel wins
            self._cancelled(self._token.reason)
        call, record = self._calls[position], self._machine.calls[position]
        if call.request != request or record.state is not CallState.READY:
            return
        now = self._inbox.loop.time()
        goes_on = record.alive
        self._machine.started(position, heeds_token=call.heeds_token)
        if self._tell is not None:
            self._tell(position, CallState.RUNNING, None, None)
        self._settings.totals.runs(1)
        self.running.add(position)
        self.peak = max(self.peak, len(self.running))
        if goes_on:
            call.resumed(now)
            self.hosting.go_on(call)
            return
        call.in_rate = self.holdings.rate_since(call)
        call.started = now
        try:
            call.start(
                self._inbox.loop,
                scope=self._scope(position),
                pool=self._settings.pool,
                context=partial(self._context, call),
                middleware=self._settings.middleware,
                done=partial(self._returned, position),
                ended=partial(self.holdings.thread_ended, call),
            )
        except Exception as error:  # noqa: BLE001 - no thread to be had, an odd task factory
            self._take_outcome(position, Outcome(error=error))

    def stopped(self, position: int) -> None:
        """The call runs no more: it has ended, or is suspended."""
        if position in self.running:
            self.running.remove(position)
            self._settings.totals.runs(-1)

    def _scope(self, position: int) -> Scope:
        call = self._calls[position]
        return Scope(
            self._table,
            tool=call.call.name,
            turn_id=self._settings.turn_id,
            position=position,
            depth=self._depth,
            above=self._above,
            host=self.hosting,
            loop=self._inbox.loop,
        )

    def _context(self, call: RunningCall) -> CallContext:
        def progress(text: str) -> None:
            if self._tell is not None:
                self._inbox.post(self._tell, call.position, "progress", None, text)

        assert call.scope is not None  # noqa: S101 - it is being started
        return CallContext(
            call.call,
            CancelToken(),
            self._settings.grace,
            progress,
            scope=call.scope,
            ground=self.hosting,
        )

    def _returned(self, position: int, outcome: Outcome) -> None:
        self._inbox.take(self._take_outcome, position, outcome)

    def _take_outcome(self, position: int, outcome: Outcome) -> None:
        call, record = self._calls[position], self._machine.calls[position]
        if call.scope is not None:
            call.scope.end()
        if record.state is not CallState.ENDED:  # else it was given up: its late result is dropped
            call.outcome = outcome
        if not outcome.began:
            call.started = None
        if outcome.fatal:
            call.reason = f"the tool raised {type(outcome.error).__name__}"
        elif outcome.foreign and record.asked is None:
            call.reason = "its task was cancelled from outside"
        self._machine.returned(position, *outcome.ending(), ran=outcome.began)
        if outcome.fatal and outcome.error is not None:
            self._interrupted(outcome.error)
