"""What the host gets back: the results of a turn, and the sentences that say what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import overload

from dispatch.call import Failure, FailureKind, Phase, Status, ToolResult
from dispatch.core.life import CallRecord
from dispatch.core.plan import Plan
from dispatch.core.policy import Verdict
from dispatch.core.stats import TurnStats, run_times, turn_stats
from dispatch.errors import CallFailed, Deadlock, ToolError
from dispatch.render import safe_str
from dispatch.runtime.resuming import Answers
from dispatch.runtime.rollback import Undone
from dispatch.runtime.totals import Totals

WAITING = {
    Phase.GATE: "while waiting for approval",
    Phase.ORDER: "while waiting for an earlier call",
    Phase.LOCK: "while waiting for what another turn holds",
    Phase.SLOT: "while waiting for a free slot",
    Phase.RATE: "while waiting for its rate",
    Phase.RUN: "while running",
}
MESSAGE_LIMIT = 20_000
MEMBERS = 20
"""How many members of an exception group are told."""


class TurnResult(Sequence[ToolResult]):
    """One result per call, in the order the model asked. Iterable and indexable by position.

    `satisfied` and `reason` are the policy's verdict. `plan`, `stats` and `warnings` are made when
    they are first asked for.
    """

    def __init__(
        self,
        turn_id: str,
        results: Sequence[ToolResult],
        verdict: Verdict,
        plan: Callable[[], Plan],
        bound: Callable[[Sequence[float], Mapping[str, int]], float],
        records: Sequence[CallRecord],
        limits: Mapping[str, int],
        peak: int,
        answers: Callable[[Iterable[ToolResult]], Answers],
    ) -> None:
        self.turn_id = turn_id
        self.results = tuple(results)
        self.satisfied = verdict.satisfied
        self.reason = verdict.reason
        self._make_plan = plan
        self._bound = bound
        self._limits = limits
        self._peak = peak
        self._answers = answers
        self._conflicting = [record.conflicting for record in records].count(True)
        self._serialized = [record.serialized for record in records].count(True)

    @cached_property
    def plan(self) -> Plan:
        """What waited for what, and why."""
        return self._make_plan()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What had to be guessed, and so ran alone."""
        return self.plan.warnings

    def answers(self) -> Answers:
        """What the calls of another turn may be answered with. For `resume=`, which calls it."""
        return self._answers(self.results)

    @cached_property
    def stats(self) -> TurnStats:
        """Overlap, waiting and distance from the lower bound."""
        times = run_times(self.results)
        return turn_stats(
            self.results,
            times,
            conflicting=self._conflicting,
            conflict_serialized=self._serialized,
            peak=self._peak,
            lower_bound=self._bound(times, self._limits),
        )

    def add_to(self, totals: Totals, now: float) -> None:
        """Add its measures to those of its dispatcher."""
        times = run_times(self.results)
        work = sum(times)
        bound = work if len(times) < 2 else self._bound(times, self._limits)
        totals.decided(now, self.results, work, self._conflicting, self._serialized, bound)

    def raise_for_failures(self) -> None:
        """Raise an `ExceptionGroup` of `CallFailed`, in intent order, if any call failed."""
        failed = []
        for result in self.results:
            if not result.ok:
                failed.append(CallFailed(result))
                failed[-1].__cause__ = result.exception
        if failed:
            raise ExceptionGroup(f"{len(failed)} of {len(self.results)} calls failed", failed)

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[ToolResult]:
        return iter(self.results)

    @overload
    def __getitem__(self, index: int) -> ToolResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ToolResult, ...]: ...
    def __getitem__(self, index: int | slice) -> ToolResult | tuple[ToolResult, ...]:
        return self.results[index]

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.stats.statuses.items())
        return f"<TurnResult {self.turn_id}: {counts or 'no calls'}>"


def raised(error: BaseException, middleware: str = "") -> Failure:
    """A tool raised: its own text for a `ToolError`, else the exception's type and text.

    `middleware` names the one that raised it, if it was not the tool.
    """
    by_whom = f"the middleware {middleware!r} failed: " if middleware else ""
    if isinstance(error, ToolError):
        return Failure(
            kind=FailureKind.TOOL_ERROR,
            message=_bounded(safe_str(error)),
            retryable=error.retryable,
            phase=Phase.RUN,
            exception_type=type(error).__name__,
            details={**error.details, "middleware": middleware} if middleware else error.details,
        )
    deadlock = isinstance(error, Deadlock)
    return Failure(
        kind=FailureKind.DEADLOCK if deadlock else FailureKind.TOOL_ERROR,
        retryable=deadlock,
        message=_bounded(by_whom + _told(error)),
        phase=Phase.RUN,
        exception_type=type(error).__name__,
        details={"middleware": middleware} if middleware else {},
    )


def refused(kind: FailureKind, message: str, phase: Phase | None = None) -> Failure:
    """The call was never run, because of what the model wrote or a gate decided."""
    return Failure(kind=kind, message=message, phase=phase)


def stopped(
    record: CallRecord, reason: str, *, cause: str = "", safe: bool = False, undone: Undone | None
) -> Failure:
    """The call was cancelled, timed out, skipped, given up or undone.

    `cause` names the call that led to it, `safe` says if running it twice is as good as once.
    """
    kind, phase = record.kind or FailureKind.CANCELLED, record.phase
    ran = phase in (Phase.RUN, Phase.ROLLBACK)
    return Failure(
        kind=kind,
        message=_bounded(_why(record, kind, reason, cause, undone)),
        retryable=kind in _RETRYABLE and (safe or not ran or kind is FailureKind.ROLLED_BACK),
        cause=record.cause,
        phase=phase,
    )


_RETRYABLE = frozenset(
    {
        FailureKind.CANCELLED,
        FailureKind.TIMEOUT,
        FailureKind.SKIPPED,
        FailureKind.ABANDONED,
        FailureKind.DEADLOCK,
        FailureKind.ROLLED_BACK,
    }
)


def _why(
    record: CallRecord, kind: FailureKind, reason: str, cause: str, undone: Undone | None
) -> str:
    ran = record.phase is Phase.RUN
    if kind is FailureKind.ROLLED_BACK:
        ran_back = undone.ran if undone is not None else 0
        what = f"{ran_back} compensation{'s'[: ran_back != 1]} ran"
        what = what if ran_back else "it had nothing to undo"
        why = f"{cause} failed" if cause else "the turn was stopped"
        return f"it succeeded, and was rolled back because {why}; {what}"
    if kind is FailureKind.IN_DOUBT:
        faults = "; ".join(undone.faults) if undone is not None else ""
        return f"rolling it back failed, so it may or may not have happened: {faults}"
    if kind is FailureKind.DUPLICATE:
        return f"the same as {cause}, whose result stands; ask again later if it must run twice"
    if kind is FailureKind.ABANDONED and record.status is Status.UNKNOWN:
        return (
            f"{reason}, and it did not stop: it may still be running, and what it does may or may"
            " not have happened"
        )
    if kind is FailureKind.ABANDONED:
        return f"never started: it waits for {cause}, which could not be stopped"
    if kind is FailureKind.TIMEOUT:
        phase = record.phase or Phase.RUN
        return f"{reason} {WAITING[phase]}" + ("" if ran else "; it never started")
    if kind is FailureKind.SKIPPED:
        return f"never started: {cause} failed" if cause else f"never started: {reason}"
    if kind is FailureKind.CANCELLED:
        return f"{'stopped while running' if ran else 'never started'}: {reason}"
    return reason or record.note or "never started"


def unclear(record: CallRecord) -> Failure:
    """The tool left behind something of which nothing can be told."""
    return Failure(
        kind=record.kind or FailureKind.TOOL_ERROR,
        message="the tool failed, and what it raised cannot be shown",
        phase=record.phase,
    )


def self_cancelled(middleware: str = "") -> Failure:
    """The tool, or this middleware, raised `CancelledError` though nobody had asked it to stop."""
    who = f"the middleware {middleware!r}" if middleware else "the tool"
    return Failure(
        kind=FailureKind.CANCELLED,
        message=f"{who} cancelled itself: it raised CancelledError though nobody had stopped it",
        phase=Phase.RUN,
        exception_type="CancelledError",
        details={"middleware": middleware} if middleware else {},
    )


def _told(error: BaseException) -> str:
    """The exception's type and text; for a group, those of its first members too, however deep."""
    lines: list[str] = []
    stack = [error]
    while stack and len(lines) <= MEMBERS:
        one = stack.pop()
        name, text = type(one).__name__, safe_str(one)
        lines.append(name if text == name else f"{name}: {text}")
        if isinstance(one, BaseExceptionGroup):
            stack += reversed(one.exceptions[:MEMBERS])
    return "\n- ".join(lines)


def _bounded(text: str) -> str:
    if len(text) <= MESSAGE_LIMIT:
        return text or "failed without a message"
    half = MESSAGE_LIMIT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
