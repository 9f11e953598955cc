"""Starting the tools of one turn, and taking what they returned.

Owns the moment between a call's slots and its tool: cancel wins over a slot that comes in the same
step, and whatever cannot be started is that call's error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dispatch.call import Status
from dispatch.core.life import CallRecord, CallState
from dispatch.errors import AttemptTimedOut
from dispatch.runtime.attempts import Attempts
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.hosting import Hosting
from dispatch.runtime.invoke import Invocation, Outcome, TaskInvocation, ThreadInvocation
from dispatch.runtime.nesting import PARENT, Scope
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn
from dispatch.runtime.slots import Slots
from dispatch.tool import Tool


class Starting:
    """See the module. `token` is the turn's."""

    def __init__(
        self,
        turn: RunningTurn,
        token: CancelToken,
        slots: Slots,
        holdings: Holdings,
        hosting: Hosting,
    ) -> None:
        self._turn = turn
        self._token = token
        self._slots = slots
        self._holdings = holdings
        self._hosting = hosting
        self._running: set[int] = set()
        self.peak = 0
        """The most calls that had their slots at once."""

    def start(self, request: int, position: int) -> None:
        """A call has the slots of this request: start its tool, or let it go on."""
        if self._token.reason is not None:  # cancelled in the same step: cancel wins
            self._turn.cancelled(self._token.reason)
        turn = self._turn
        call, record = turn.calls[position], turn.machine.calls[position]
        if call.request != request or record.state is not CallState.READY:
            return
        now, goes_on = turn.inbox.loop.time(), record.alive
        turn.machine.started(position, heeds_token=call.heeds_token)
        if turn.teller is not None:
            turn.tell(position, CallState.RUNNING)
        turn.settings.totals.runs(1)
        self._running.add(position)
        if len(self._running) > self.peak:
            self.peak = len(self._running)
        if goes_on:
            call.resumed(now)
            self._hosting.go_on(call)
            return
        if turn.settings.limits.rated:
            call.in_rate = self._slots.rate_since(call)
        call.started = now
        call.began = turn.place.table.changes
        call.scope = turn.scope(position, self._hosting)
        try:
            call.invocation = self._invoke(call, call.scope)
        except Exception as error:  # noqa: BLE001 - no thread to be had, an odd task factory
            self._take_outcome(position, Outcome(error=error))

    def _invoke(self, call: RunningCall, scope: Scope) -> Invocation:
        """Invoke the tool, with this call as the parent of whatever it starts."""
        tool, arguments = call.admitted.tool, call.admitted.arguments or {}
        assert tool is not None  # noqa: S101 - a refused call never becomes ready
        variables, inbox = call.variables, self._turn.inbox
        variables.run(PARENT.set, scope)
        done = partial(inbox.take_last, self._take_outcome, call.position)
        parameter = tool.arguments.context_parameter
        if parameter is not None:
            call.context = self._context(call, scope)
            arguments = {**arguments, parameter: call.context}
        if self._turn.settings.middleware is not None:
            return self._wrap(call, scope, tool, arguments, done)
        if tool.is_async:
            return TaskInvocation(inbox.loop, tool.handler, arguments, variables, done)
        call.in_thread = True
        ended, pool = partial(self._holdings.thread_ended, call), self._turn.settings.pool
        return ThreadInvocation(
            inbox.loop, tool.handler, arguments, variables, done, pool=pool, ended=ended
        )

    def _wrap(
        self,
        call: RunningCall,
        scope: Scope,
        tool: Tool,
        arguments: Mapping[str, Any],
        done: Callable[[Outcome], None],
    ) -> Invocation:
        """Invoke the middleware, which invokes the tool."""
        settings = self._turn.settings
        context = call.context = call.context or self._context(call, scope)
        context.attempt = 0
        ended = partial(self._holdings.thread_ended, call)
        late = partial(self._late, call.position)
        learn = partial(self._slots.learn, call)
        attempts = Attempts(
            call, tool, arguments, pool=settings.pool, ended=ended, late=late, learn=learn
        )
        context.invoke, context.prepare = attempts, attempts.prepare
        wrapped = {"middleware": settings.middleware, "call": call.call, "context": context}
        loop = self._turn.inbox.loop
        return TaskInvocation(loop, attempts.wrapped, wrapped, call.variables, done)

    def stopped(self, position: int) -> None:
        """The call runs no more: it has ended, or is suspended."""
        if position in self._running:
            self._running.remove(position)
            self._turn.settings.totals.runs(-1)

    def _context(self, call: RunningCall, scope: Scope) -> CallContext:
        def progress(text: str) -> None:
            if self._turn.teller is not None:
                self._turn.inbox.post(self._turn.tell, call.position, "progress", None, text)

        return CallContext(
            call.call,
            CancelToken(),
            self._turn.settings.grace,
            progress,
            scope=scope,
            ground=self._hosting,
        )

    def _late(self, position: int) -> None:
        self._turn.tell(position, "late")

    def _take_outcome(self, position: int, outcome: Outcome) -> None:
        call, record = self._turn.calls[position], self._turn.machine.calls[position]
        if call.scope is not None:
            call.scope.alive = False
            if call.scope.open_turns:
                call.scope.end()
        if record.state is not CallState.ENDED:
            call.outcome = outcome
        elif outcome.error is None:  # it was given up: its late result is dropped
            self._late(position)
        if not outcome.began:
            call.started = None
        if call.grace is None and record.state is CallState.STOPPING:  # that has not reached it
            self._turn.machine.missed(position)
        if self._turn.settings.middleware is None:
            self._slots.learn(call, outcome.error)
        if outcome.error is None:
            self._turn.machine.returned(position, Status.OK)
        else:
            self._fail(call, record, outcome, outcome.error)

    def _fail(
        self, call: RunningCall, record: CallRecord, outcome: Outcome, error: BaseException
    ) -> None:
        if outcome.fatal:
            call.reason = f"the tool raised {type(error).__name__}"
        elif isinstance(error, AttemptTimedOut) and record.asked is None:
            call.reason = str(error)
        elif outcome.foreign and record.asked is None:
            call.reason = "its task was cancelled from outside"
        self._turn.machine.returned(call.position, *outcome.ending(), ran=outcome.began)
        if outcome.fatal:
            self._turn.interrupted(error)
