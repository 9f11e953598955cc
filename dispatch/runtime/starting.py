"""Starting the tools of one turn, and taking what they returned.

Owns the moment between a call's slots and its tool: cancel wins over a slot that comes in the same
step, and whatever cannot be started is that call's error.
"""

from __future__ import annotations

from functools import partial

from dispatch.core.life import CallState
from dispatch.errors import AttemptTimedOut
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.hosting import Hosting
from dispatch.runtime.invoke import Outcome
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn


class Starting:
    """See the module. `token` is the turn's."""

    def __init__(
        self, turn: RunningTurn, token: CancelToken, holdings: Holdings, hosting: Hosting
    ) -> None:
        self._turn = turn
        self._token = token
        self._holdings = holdings
        self._hosting = hosting
        self._running: set[int] = set()
        self.peak = 0
        """The most calls that had their slots at once."""

    def start(self, request: int, position: int) -> None:
        """A call has the slots of this request: start its tool, or let it go on."""
        if self._token.reason is not None:  # cancelled in the same step: cancel wins
            self._turn.cancelled(self._token.reason)
        call, record = self._turn.both(position)
        if call.request != request or record.state is not CallState.READY:
            return
        turn, now = self._turn, self._turn.now
        goes_on = record.alive
        turn.machine.started(position, heeds_token=call.heeds_token)
        turn.tell(position, CallState.RUNNING)
        turn.settings.totals.runs(1)
        self._running.add(position)
        self.peak = max(self.peak, len(self._running))
        if goes_on:
            call.resumed(now)
            self._hosting.go_on(call)
            return
        call.in_rate = self._holdings.rate_since(call)
        call.started = now
        call.began = turn.place.table.changes
        try:
            call.start(
                turn.inbox.loop,
                scope=turn.scope(position, host=self._hosting),
                pool=turn.settings.pool,
                context=partial(self._context, call),
                middleware=turn.settings.middleware,
                done=partial(self._returned, position),
                ended=partial(self._holdings.thread_ended, call),
                late=partial(self._late, position),
            )
        except Exception as error:  # noqa: BLE001 - no thread to be had, an odd task factory
            self._take_outcome(position, Outcome(error=error))

    def stopped(self, position: int) -> None:
        """The call runs no more: it has ended, or is suspended."""
        if position in self._running:
            self._running.remove(position)
            self._turn.settings.totals.runs(-1)

    def _context(self, call: RunningCall) -> CallContext:
        def progress(text: str) -> None:
            if self._turn.teller is not None:
                self._turn.inbox.post(self._turn.tell, call.position, "progress", None, text)

        assert call.scope is not None  # noqa: S101 - it is being started
        return CallContext(
            call.call,
            CancelToken(),
            self._turn.settings.grace,
            progress,
            scope=call.scope,
            ground=self._hosting,
        )

    def _returned(self, position: int, outcome: Outcome) -> None:
        self._turn.inbox.take(self._take_outcome, position, outcome)

    def _late(self, position: int) -> None:
        self._turn.tell(position, "late")

    def _take_outcome(self, position: int, outcome: Outcome) -> None:
        call, record = self._turn.both(position)
        if call.scope is not None:
            call.scope.end()
        if record.state is not CallState.ENDED:
            call.outcome = outcome
        elif outcome.error is None:  # it was given up: its late result is dropped
            self._late(position)
        if not outcome.began:
            call.started = None
        if outcome.fatal:
            call.reason = f"the tool raised {type(outcome.error).__name__}"
        elif isinstance(outcome.error, AttemptTimedOut) and record.asked is None:
            call.reason = str(outcome.error)
        elif outcome.foreign and record.asked is None:
            call.reason = "its task was cancelled from outside"
        self._turn.machine.returned(position, *outcome.ending(), ran=outcome.began)
        if outcome.fatal and outcome.error is not None:
            self._turn.interrupted(outcome.error)
