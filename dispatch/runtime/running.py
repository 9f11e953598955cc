"""One call while its turn lives: where it stands in time, what it holds, what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING

from dispatch.call import Failure, FailureKind, Phase, Status, ToolCall, ToolResult
from dispatch.core.life import CallRecord
from dispatch.core.lines import Need
from dispatch.render import EMPTY, render
from dispatch.runtime import result
from dispatch.runtime.admission import Admitted
from dispatch.runtime.attempts import Attempts
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import PARTIAL_LIMIT, CallContext
from dispatch.runtime.fault import report
from dispatch.runtime.invoke import Invocation, Outcome, TaskInvocation, ThreadInvocation
from dispatch.runtime.limits import Limits
from dispatch.runtime.middleware import Handler
from dispatch.runtime.nesting import PARENT, Scope
from dispatch.runtime.rollback import Undone
from dispatch.runtime.threads import WorkerPool

if TYPE_CHECKING:
    from dispatch.runtime.resources import ResourceTable

SHOWN_VALUE = (Status.OK, Status.ROLLED_BACK)
SHOWN_PARTIAL = (Status.CANCELLED, Status.TIMED_OUT, Status.UNKNOWN)


class RunningCall:
    """What the driver keeps for one call. Times are seconds on the loop's clock, None before."""

    __slots__ = (
        "admitted",
        "allowed",
        "answer",
        "asked",
        "asking",
        "began",
        "began_in",
        "claimed",
        "context",
        "gate_token",
        "grace",
        "holder",
        "in_rate",
        "in_thread",
        "invocation",
        "locked",
        "ordered",
        "outcome",
        "overdue",
        "owner",
        "position",
        "reason",
        "request",
        "scope",
        "started",
        "state",
        "stuck",
        "submitted",
        "suspended",
        "suspended_at",
        "takes_rates",
        "ticket",
        "timer",
        "undone",
        "variables",
        "waiters",
    )

    def __init__(
        self, admitted: Admitted, position: int, submitted: float, variables: Context
    ) -> None:
        self.admitted = admitted
        self.position = position
        self.submitted = submitted
        self.variables = variables
        self.answer: ToolResult | None = None
        """What an earlier turn has answered in its place."""
        self.began = 0
        """How often the table had changed when it started; `began_in` is another one's table."""
        self.began_in: ResourceTable | None = None
        self.claimed = admitted.claims
        self.asked: float | None = None
        self.allowed: float | None = None
        self.ordered: float | None = None
        self.locked: float | None = None
        self.started: float | None = None
        self.ticket: int | None = None
        self.in_rate: float | None = None
        self.suspended = 0.0
        self.suspended_at: float | None = None
        self.request: int | None = None
        self.owner = 0
        self.overdue = False
        self.state: str | None = None
        self.takes_rates = False
        self.asking: asyncio.Task[None] | None = None
        self.waiters: list[Callable[[], object]] = []
        self.undone: Undone | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.grace: asyncio.TimerHandle | None = None
        self.context: CallContext | None = None
        self.scope: Scope | None = None
        self.invocation: Invocation | None = None
        self.outcome: Outcome | None = None
        self.reason = ""
        self.holder = ""
        self.in_thread = self.stuck = False
        self.gate_token: CancelToken | None = None

    @property
    def call(self) -> ToolCall:
        """The call as the model wrote it."""
        return self.admitted.call

    @property
    def heeds_token(self) -> bool:
        """Whether its tool can see its token at all."""
        tool = self.admitted.tool
        return tool is not None and tool.arguments.context_parameter is not None

    def need(self, limits: Limits) -> Need:
        """What it counts against: its tool, its tags, and the state it has entered."""
        tags = self.admitted.tags if self.state is None else {*self.admitted.tags, self.state}
        return limits.need(self.call.name, tags, self.admitted.cost)

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        scope: Scope,
        pool: WorkerPool,
        context: Callable[[], CallContext],
        middleware: Handler | None,
        done: Callable[[Outcome], None],
        ended: Callable[[], None],
        late: Callable[[], None],
    ) -> None:
        """Invoke the tool, with this call as the parent of whatever it starts."""
        tool, arguments = self.admitted.tool, dict(self.admitted.arguments or {})
        assert tool is not None  # noqa: S101 - a refused call never becomes ready
        self.scope = scope
        self.variables.run(PARENT.set, scope)
        parameter = tool.arguments.context_parameter
        if parameter is not None or middleware is not None:
            self.context = context()
            if parameter is not None:
                arguments[parameter] = self.context
        self.in_thread = not tool.is_async
        if middleware is not None and self.context is not None:
            self.context.attempt = 0
            self.in_thread = False
            attempts = Attempts(self, tool, arguments, pool=pool, ended=ended, late=late)
            self.context.invoke, self.context.prepare = attempts, attempts.prepare
            wrapped = {"middleware": middleware, "call": self.call, "context": self.context}
            self.invocation = TaskInvocation(loop, attempts.wrapped, wrapped, self.variables, done)
        elif tool.is_async:
            self.invocation = TaskInvocation(loop, tool.handler, arguments, self.variables, done)
        else:
            self.invocation = ThreadInvocation(
                loop, tool.handler, arguments, self.variables, done, pool=pool, ended=ended
            )

    def withdrawn(self, record: CallRecord, rate_since: float | None) -> None:
        """It will not start: note if it was its rate that it waited for, and not a slot."""
        if not record.alive:
            self.in_rate = rate_since
        if record.phase is Phase.SLOT and self.in_rate is not None:
            record.phase = Phase.RATE

    def resumed(self, now: float) -> None:
        """It is suspended no more: it goes on, or has ended."""
        self.takes_rates = False
        if self.suspended_at is not None:
            self.suspended += now - self.suspended_at
            self.suspended_at = None

    def copied(self, leader: ToolResult, now: float) -> ToolResult:
        """The result of an identical call, which this one has joined, as its own."""
        return replace(
            leader,
            call=self.call,
            index=self.position,
            attempts=0,
            queued_at=self.submitted,
            started_at=None,
            finished_at=now,
            waits={"order": now - self.submitted} if now > self.submitted else {},
        )

    def stop_timers(self) -> None:
        """Let no timer of this call fire any more."""
        for timer in (self.timer, self.grace):
            if timer is not None:
                timer.cancel()
        self.timer = self.grace = None

    def result(self, record: CallRecord, now: float, cause: str) -> ToolResult:
        """The call's one result; `cause` names the call that it was skipped for. Never raises."""
        status = record.status or Status.ERROR
        outcome = self.outcome
        try:
            failure = None if status is Status.OK else self._failure(record, cause)
            partial = self._partial() if status in SHOWN_PARTIAL else ""
        except Exception as error:  # noqa: BLE001 - what the tool left behind is foreign
            report("what a tool left behind could not be told", error, tool=self.call.name)
            failure, partial = result.unclear(record), ""
        return ToolResult(
            call=self.call,
            index=self.position,
            status=status,
            value=outcome.value if outcome is not None and status in SHOWN_VALUE else None,
            failure=failure,
            attempts=self._attempts(),
            queued_at=self.submitted,
            started_at=self.started,
            finished_at=now,
            waits=self._waits(now),
            partial=partial,
            exception=outcome.error if outcome is not None else None,
        )

    def _attempts(self) -> int:
        if self.started is None:
            return 0
        return 1 if self.context is None else self.context.attempt

    def _failure(self, record: CallRecord, cause: str) -> Failure:
        admitted, outcome = self.admitted, self.outcome
        if admitted.refusal is not None and admitted.refusal is record.kind:
            phase = Phase.GATE if record.kind is FailureKind.REJECTED else record.phase
            return result.refused(admitted.refusal, admitted.message, phase)
        if record.status is Status.ERROR and outcome is not None and outcome.error is not None:
            at_fault = self._at_fault(outcome.error)
            if isinstance(outcome.error, asyncio.CancelledError):
                return result.self_cancelled(at_fault)
            return result.raised(outcome.error, at_fault)
        safe = admitted.repeatable
        return result.stopped(record, self.reason, cause=cause, safe=safe, undone=self.undone)

    def _at_fault(self, error: BaseException) -> str:
        """The middleware that raised this, if one did."""
        context = self.context
        return "" if context is None or context.raised is not error else context.at_fault

    def _waits(self, now: float) -> dict[str, float]:
        """Seconds by cause; one phase after the other, those after the last one are not there."""
        waits: dict[str, float] = {}
        if self.suspended:
            waits["suspended"] = self.suspended
        since = self.submitted
        steps = (
            ("order", self.asked),
            ("gate", self.allowed),
            ("order", self.ordered),
            ("lock", self.locked),
            ("slot", self.in_rate),
            ("rate" if self.in_rate is not None else "slot", self.started),
        )
        reached = [step for step in steps if step[1] is not None]
        waiting = self.started is None
        for cause, until in [*reached, *([(self._waits_for(), now)] if waiting else [])]:
            end = now if until is None else until
            if end > since:
                waits[cause] = waits.get(cause, 0.0) + end - since
                since = end
        return waits

    def _waits_for(self) -> str:
        """What a call that has not started waits for."""
        if self.asking is not None and self.allowed is None:
            return "gate"
        if self.ordered is None:
            return "order"
        if self.locked is None:
            return "lock"
        return "slot" if self.in_rate is None else "rate"

    def _partial(self) -> str:
        shown = self.context.partial if self.context is not None else ""
        if self.outcome is not None and self.outcome.error is None:
            returned = render(self.outcome.value)[:PARTIAL_LIMIT]
            if returned != EMPTY:
                shown = f"{shown}\n{returned}" if shown else returned
        return shown
