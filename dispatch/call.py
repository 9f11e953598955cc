"""What goes in and what comes out: calls, results, and the closed vocabulary of failure.

Owns `ToolCall`, `ToolResult`, `Failure` and their enumerations. Knows nothing of scheduling.
Invariants: every result has a status; a result that is not `ok` has a failure whose kind
`STATUS_KINDS` allows for that status; `content()` never raises and is never empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dispatch.errors import CallFailed
from dispatch.render import encodable, render


class Status(StrEnum):
    """How a call ended."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    SKIPPED = "skipped"
    ROLLED_BACK = "rolled_back"
    UNKNOWN = "unknown"


class FailureKind(StrEnum):
    """Why a call did not succeed. Closed: a new kind is a change of the contract."""

    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    TOOL_ERROR = "tool_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    STALE_READ = "stale_read"
    DEADLOCK = "deadlock"
    RATE_LIMITED = "rate_limited"
    REJECTED = "rejected"
    DUPLICATE = "duplicate"
    IN_DOUBT = "in_doubt"
    ABANDONED = "abandoned"
    ROLLED_BACK = "rolled_back"
    INVALID_OUTPUT = "invalid_output"
    DEPENDENCY = "dependency"
    BUDGET = "budget"


class Phase(StrEnum):
    """Where a call was when it failed, in the order a call passes through them."""

    GATE = "gate"
    ORDER = "order"
    LOCK = "lock"
    SLOT = "slot"
    RATE = "rate"
    RUN = "run"
    ROLLBACK = "rollback"
    RENDER = "render"


_OWN_FAULTS = frozenset(FailureKind) - {
    FailureKind.TIMEOUT,
    FailureKind.SKIPPED,
    FailureKind.IN_DOUBT,
    FailureKind.ABANDONED,
    FailureKind.ROLLED_BACK,
}

STATUS_KINDS: Mapping[Status, frozenset[FailureKind]] = {
    Status.OK: frozenset(),
    Status.ERROR: _OWN_FAULTS,  # `cancelled` too: a tool may raise CancelledError by itself
    Status.CANCELLED: frozenset({FailureKind.CANCELLED}),
    Status.TIMED_OUT: frozenset({FailureKind.TIMEOUT}),
    Status.SKIPPED: frozenset({FailureKind.SKIPPED, FailureKind.ABANDONED}),
    Status.ROLLED_BACK: frozenset({FailureKind.ROLLED_BACK}),
    Status.UNKNOWN: frozenset({FailureKind.ABANDONED, FailureKind.IN_DOUBT}),
}
"""Which kinds of failure go with which status. Total over both enumerations."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the model.

    Args:
        id: The provider's id. May be empty or repeated: results are matched by position.
        name: The tool's name as the model wrote it.
        arguments: A mapping, or the raw JSON text as the model wrote it.
        after: Ids of calls that must settle first.
        tags: Labels whose limits this call counts against, beside its tool's own.
        timeout: Seconds from submission to result, waiting included; None means the default.
        wire: What the adapter that read the call must know to answer it; nobody else looks at it.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | str
    after: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    timeout: float | None = None
    wire: object = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, kind in (("after", tuple), ("tags", frozenset)):
            value = getattr(self, name)
            if isinstance(value, str):
                raise TypeError(f"{name} takes several names; write {name}=({value!r},)")
            if not isinstance(value, kind):
                object.__setattr__(self, name, kind(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, whose doing it was, where, and whether trying again makes sense.

    `cause` is the position (in the same turn) of the call that led to this failure.
    """

    kind: FailureKind
    message: str
    retryable: bool = False
    cause: int | None = None
    phase: Phase | None = None
    exception_type: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The one result of one call. Times are seconds on the event loop's clock.

    `queued_at` is when the call was submitted, `started_at` is None if its tool never ran,
    `waits` has the seconds spent before the tool ran by cause, `partial` is what a call that was
    stopped had produced so far, `attempts` counts how often the tool was invoked, and `exception`
    is what the tool raised, for the host's logs; the model never sees it.
    """

    call: ToolCall
    index: int
    status: Status
    value: Any = None
    failure: Failure | None = None
    attempts: int = 0
    queued_at: float = 0.0
    started_at: float | None = None
    finished_at: float = 0.0
    waits: Mapping[str, float] = field(default_factory=dict)
    partial: str = ""
    exception: BaseException | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the tool ran and returned."""
        return self.status is Status.OK

    def content(self) -> str:
        """Text for the model: the value, or what went wrong.

        Never raises, is never empty, and can always be encoded as UTF-8.
        """
        if self.failure is None:
            return render(self.value)
        text = f"[{self.status}] {self.failure.message}"
        if self.partial:
            text += f"\nOutput before it stopped:\n{self.partial}"
        return encodable(text)

    def unwrap(self) -> Any:
        """Return the value, or raise `CallFailed` with this result if the call did not succeed."""
        if self.status is not Status.OK:
            raise CallFailed(self) from self.exception
        return self.value
