"""The life of a call and of a turn: states, what the machine records, what it asks for."""

from __future__ import annotations

from enum import IntEnum, StrEnum, auto
from typing import Any

from dispatch.call import FailureKind, Phase, Status


class CallState(StrEnum):
    """Where a call is in its life; the design names what it holds in each."""

    PLANNED = "planned"
    QUEUED = "queued"
    READY = "ready"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"
    SETTLED = "settled"


class TurnState(StrEnum):
    """Where a turn is in its life: GONE once nothing of it is left in the table or running."""

    OPEN = "open"
    CLOSED = "closed"
    DECIDED = "decided"
    GONE = "gone"


class Do(IntEnum):
    """What the driver is asked to do about a call (or, for the last two, the turn)."""

    ENTER = auto()
    """Ask the table for the call's claims; answer with `granted`."""
    REQUEST = auto()
    """Ask for slots; answer with `started`."""
    WITHDRAW = auto()
    """Take back what was asked for and not given."""
    PREFER = auto()
    """The chain behind a waiting request is known now."""
    SIGNAL = auto()
    """Set the call's token; after the grace answer with `grace_over`."""
    CANCEL = auto()
    """Cancel the call's task; after the grace answer with `grace_over`."""
    FREE = auto()
    """Give the slots back."""
    END = auto()
    """The call's result is final."""
    SETTLE = auto()
    """Give the claims back."""
    DECIDE = auto()
    """Every call has its result."""
    LEAVE = auto()
    """Nothing of the turn is left anywhere."""


Action = tuple[Do, int]
"""One thing to do, and the position of the call (-1 for the turn)."""


PHASES = {
    CallState.PLANNED: Phase.ORDER,
    CallState.QUEUED: Phase.LOCK,
    CallState.READY: Phase.SLOT,
    CallState.RUNNING: Phase.RUN,
    CallState.STOPPING: Phase.RUN,
}
STOP_KINDS = {
    Status.CANCELLED: FailureKind.CANCELLED,
    Status.TIMED_OUT: FailureKind.TIMEOUT,
}


class CallRecord:
    """What the turn machine knows of one call.

    `alive` says whether its tool may still be doing something, `asked` what it will have ended as
    if it stops now, `cancelled` whether its task was cancelled, `waited` whether anything stood
    before it in its turn, `serialized` whether that was a conflicting call. `status`, `kind`,
    `phase` and `cause` describe the ending.
    """

    __slots__ = (
        "alive",
        "asked",
        "cancelled",
        "cause",
        "conflicting",
        "heeds_token",
        "kind",
        "node",
        "phase",
        "position",
        "serialized",
        "state",
        "status",
        "waited",
    )

    def __init__(self, position: int, node: int) -> None:
        self.position = position
        self.node = node
        self.state = CallState.PLANNED
        self.alive = False
        self.heeds_token = False
        self.asked: Status | None = None
        self.cancelled = False
        self.conflicting = False
        self.serialized = False
        self.waited = False
        self.status: Status | None = None
        self.kind: FailureKind | None = None
        self.phase: Phase | None = None
        self.cause: int | None = None

    def dump(self) -> dict[str, Any]:
        """The record as JSON types."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def load(cls, state: dict[str, Any]) -> CallRecord:
        """The record that `dump` described."""
        record = cls(state["position"], state["node"])
        for name, value in state.items():
            kind = _ENUMS.get(name)
            setattr(record, name, value if kind is None or value is None else kind(value))
        return record


_ENUMS: dict[str, type[StrEnum]] = {
    "state": CallState,
    "asked": Status,
    "status": Status,
    "kind": FailureKind,
    "phase": Phase,
}
