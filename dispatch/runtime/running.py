"""One call while its turn lives: where it stands in time, what it holds, what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

from dispatch.call import Failure, Status, ToolCall, ToolResult
from dispatch.core.life import CallRecord
from dispatch.render import EMPTY, render
from dispatch.runtime import result
from dispatch.runtime.admission import Admitted
from dispatch.runtime.context import PARTIAL_LIMIT, CallContext
from dispatch.runtime.fault import report
from dispatch.runtime.invoke import Invocation, Outcome, TaskInvocation, ThreadInvocation
from dispatch.runtime.nesting import PARENT, CallScope
from dispatch.runtime.threads import WorkerPool

SHOWN_PARTIAL = (Status.CANCELLED, Status.TIMED_OUT, Status.UNKNOWN)


class RunningCall:
    """What the driver keeps for one call. Times are seconds on the loop's clock, None before."""

    __slots__ = (
        "admitted",
        "context",
        "grace",
        "holder",
        "in_thread",
        "invocation",
        "locked",
        "ordered",
        "outcome",
        "position",
        "reason",
        "request",
        "scope",
        "started",
        "submitted",
        "ticket",
        "timer",
        "variables",
    )

    def __init__(
        self, admitted: Admitted, position: int, submitted: float, variables: Context
    ) -> None:
        self.admitted = admitted
        self.position = position
        self.submitted = submitted
        self.variables = variables
        self.ordered: float | None = None
        self.locked: float | None = None
        self.started: float | None = None
        self.ticket: int | None = None
        self.request: int | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.grace: asyncio.TimerHandle | None = None
        self.context: CallContext | None = None
        self.scope: CallScope | None = None
        self.invocation: Invocation | None = None
        self.outcome: Outcome | None = None
        self.reason = ""
        self.holder = ""
        self.in_thread = False

    @property
    def call(self) -> ToolCall:
        """The call as the model wrote it."""
        return self.admitted.call

    @property
    def heeds_token(self) -> bool:
        """Whether its tool can see its token at all."""
        tool = self.admitted.tool
        return tool is not None and tool.arguments.context_parameter is not None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        turn_id: str,
        pool: WorkerPool,
        context: Callable[[], CallContext],
        done: Callable[[Outcome], None],
        ended: Callable[[], None],
    ) -> None:
        """Invoke the tool, with this call as the parent of whatever it starts."""
        tool, arguments = self.admitted.tool, dict(self.admitted.arguments or {})
        assert tool is not None  # noqa: S101 - a refused call never becomes ready
        self.scope = CallScope(tool.name, turn_id, self.position, self.ticket or 0)
        self.variables.run(PARENT.set, self.scope)
        if tool.arguments.context_parameter is not None:
            self.context = context()
            arguments[tool.arguments.context_parameter] = self.context
        self.in_thread = not tool.is_async
        self.invocation = (
            TaskInvocation(loop, tool.handler, arguments, self.variables, done)
            if tool.is_async
            else ThreadInvocation(
                loop, tool.handler, arguments, self.variables, done, pool=pool, ended=ended
            )
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
            value=outcome.value if outcome is not None and status is Status.OK else None,
            failure=failure,
            attempts=0 if self.started is None else 1,
            queued_at=self.submitted,
            started_at=self.started,
            finished_at=now,
            waits=self._waits(now),
            partial=partial,
            exception=outcome.error if outcome is not None else None,
        )

    def _failure(self, record: CallRecord, cause: str) -> Failure:
        admitted, outcome = self.admitted, self.outcome
        if admitted.refusal is not None:
            return result.refused(admitted.refusal, admitted.message)
        if record.status is Status.ERROR and outcome is not None and outcome.error is not None:
            if isinstance(outcome.error, asyncio.CancelledError):
                return result.self_cancelled()
            return result.raised(outcome.error)
        return result.stopped(record, self.reason, cause=cause, safe=admitted.repeatable)

    def _waits(self, now: float) -> dict[str, float]:
        waits: dict[str, float] = {}
        if self.admitted.refusal is not None:
            return waits
        since = self.submitted
        steps = (("order", self.ordered), ("lock", self.locked), ("slot", self.started))
        for cause, until in steps:
            if (self.started is None and until is None) or until is not None:
                end = now if until is None else until
                if end > since:
                    waits[cause] = end - since
                since = end
        return waits

    def _partial(self) -> str:
        shown = self.context.partial if self.context is not None else ""
        if self.outcome is not None and self.outcome.error is None:
            returned = render(self.outcome.value)[:PARTIAL_LIMIT]
            if returned != EMPTY:
                shown = f"{shown}\n{returned}" if shown else returned
        return shown
