"""One call while its turn lives: where it stands in time, what it holds, what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dispatch.call import Failure, FailureKind, Phase, Status, ToolCall, ToolResult
from dispatch.claims import Claim
from dispatch.core.life import CallRecord
from dispatch.render import EMPTY, render
from dispatch.runtime import result
from dispatch.runtime.admission import Admitted
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import PARTIAL_LIMIT, CallContext
from dispatch.runtime.fault import report
from dispatch.runtime.invoke import Invocation, Outcome
from dispatch.runtime.nesting import Scope
from dispatch.runtime.rollback import Undone

if TYPE_CHECKING:
    from dispatch.runtime.resources import ResourceTable

SHOWN_VALUE = (Status.OK, Status.ROLLED_BACK)
SHOWN_PARTIAL = (Status.CANCELLED, Status.TIMED_OUT, Status.UNKNOWN)

_PHASES = ("order", "gate", "order", "lock", "slot")
"""What a call waits for until it is asked about, allowed, free, granted, in the line of a rate."""
_NO_VARIABLES = Context()


@dataclass(slots=True, eq=False)
class RunningCall:
    """What the driver keeps for one call. Times are seconds on the loop's clock, None before."""

    admitted: Admitted
    position: int
    submitted: float
    variables: Context
    call: ToolCall = field(init=False)
    """The call as the model wrote it."""
    claimed: tuple[Claim, ...] | None = field(init=False)
    answer: ToolResult | None = None
    """What an earlier turn has answered in its place."""
    began: int = 0
    """How often the table had changed when it started; `began_in` is another one's table."""
    began_in: ResourceTable | None = None
    asked: float | None = None
    allowed: float | None = None
    ordered: float | None = None
    locked: float | None = None
    started: float | None = None
    ticket: int | None = None
    in_rate: float | None = None
    suspended: float = 0.0
    suspended_at: float | None = None
    request: int | None = None
    owner: int = 0
    overdue: bool = False
    state: str | None = None
    takes_rates: bool = False
    asking: asyncio.Task[None] | None = None
    gate_token: CancelToken | None = None
    waiters: tuple[Callable[[], object], ...] = ()
    undone: Undone | None = None
    timer: asyncio.TimerHandle | None = None
    grace: asyncio.TimerHandle | None = None
    """Runs from the moment at which a stop has reached it."""
    abandoned_wait: asyncio.TimerHandle | None = None
    context: CallContext | None = None
    scope: Scope | None = None
    invocation: Invocation | None = None
    outcome: Outcome | None = None
    reason: str = ""
    holder: str = ""
    in_thread: bool = False
    stuck: bool = False

    def __post_init__(self) -> None:
        self.call = self.admitted.call
        self.claimed = self.admitted.claims

    @property
    def heeds_token(self) -> bool:
        """Whether its tool can see its token at all."""
        tool = self.admitted.tool
        return tool is not None and tool.arguments.context_parameter is not None

    def settled(self) -> None:
        """Nothing of it runs any more: keep nothing that only a running tool needs."""
        if self.scope is not None:
            self.scope.alive = False
        self.scope = self.invocation = None
        self.variables = _NO_VARIABLES

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
        for timer in (self.timer, self.grace, self.abandoned_wait):
            if timer is not None:
                timer.cancel()
        self.timer = self.grace = self.abandoned_wait = None

    def result(self, record: CallRecord, now: float, cause: str) -> ToolResult:
        """The call's one result; `cause` names the call that it was skipped for. Never raises."""
        status = record.status or Status.ERROR
        outcome, context = self.outcome, self.context
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
            attempts=0 if self.started is None else 1 if context is None else context.attempt,
            queued_at=self.submitted,
            started_at=self.started,
            finished_at=now,
            waits=self._waits(now),
            partial=partial,
            exception=outcome.error if outcome is not None else None,
        )

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
        waits = {"suspended": self.suspended} if self.suspended else {}
        since = self.submitted
        ends = (self.asked, self.allowed, self.ordered, self.locked, self.in_rate)
        for cause, until in zip(_PHASES, ends, strict=True):
            if until is not None and until > since:
                waits[cause] = waits.get(cause, 0.0) + until - since
                since = until
        until = now if self.started is None else self.started
        if until > since:
            cause = self._last_cause()
            waits[cause] = waits.get(cause, 0.0) + until - since
        return waits

    def _last_cause(self) -> str:
        """What a call waited for until it started, or still waits for."""
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
