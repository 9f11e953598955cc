"""The life of a call and of a turn: states, what the machine records, what it asks for."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum, auto
from operator import attrgetter
from typing import Any

from dispatch.call import FailureKind, Phase, Status
from dispatch.claims import Claim
from dispatch.core.groups import REST


class CallState(StrEnum):
    """Where a call is in its life; the design names what it holds in each."""

    PLANNED = "planned"
    QUEUED = "queued"
    READY = "ready"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    ENDED = "ended"
    SETTLED = "settled"


class TurnState(StrEnum):
    """Where a turn is in its life: GONE once nothing of it is left in the table or running."""

    OPEN = "open"
    CLOSED = "closed"
    DECIDED = "decided"
    GONE = "gone"


class TicketState(StrEnum):
    """The one ticket with which an all-or-nothing turn takes all its claims, if it takes one."""

    NONE = "none"
    WANTED = "wanted"
    QUEUED = "queued"
    GRANTED = "granted"


class GateKind(StrEnum):
    """What gates a call has to pass: none, some, or some that may change what it claims."""

    NONE = "none"
    ASKS = "asks"
    REWRITES = "rewrites"


class Do(IntEnum):
    """What the driver is asked to do about a call, or about the turn (position -1)."""

    RESOLVE = auto()
    """Fill in the values of other calls; answer with `known`, or `refused`."""
    ASK = auto()
    """Ask the gates; answer with `allowed`, `known` or `refused`."""
    ENTER = auto()
    """Ask the table for the claims; answer with `granted`."""
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
    """The call has its result; it may still change if its group is undone."""
    SETTLE = auto()
    """Give the claims back."""
    HOLD = auto()
    """The claims pass to the turn."""
    UNDO = auto()
    """Run the compensations of the groups that failed; answer with `undone`."""
    REVISE = auto()
    """The call's result changed because its group was undone."""
    DECIDE = auto()
    """Every result is final: give back, or pass up, what the turn holds."""
    LEAVE = auto()
    """Nothing of the turn is left anywhere."""


Action = tuple[Do, int]
"""One thing to do, and the position of the call (-1 for the turn)."""
TURN = -1
"""In place of a position: the turn itself."""


PHASES = {
    CallState.PLANNED: Phase.ORDER,
    CallState.QUEUED: Phase.LOCK,
    CallState.READY: Phase.SLOT,
}
STOP_KINDS = {
    Status.CANCELLED: FailureKind.CANCELLED,
    Status.TIMED_OUT: FailureKind.TIMEOUT,
}


@dataclass(slots=True, eq=False)
class CallRecord:
    """What the turn machine knows of one call.

    How it came: the ids in `names` that it names, those in `refs` whose values it takes,
    `same` equal for identical calls, its `group` and `gate`. `late` while its claims are unknown,
    `gated` while a gate has not answered, `deferred` while its gates are not asked because it may
    join an identical call. `targets` and `ref_targets` are the positions it names; `node` its place
    in the graph (-1: none yet); `leader` the call it has joined (-1: none), with `followers`.

    `alive` says whether its tool may still be doing something, `open_turns` how many turns nested
    in it are not gone, `held_up` whether one of them has a call that was given up, `waits` how many
    reasons it has to be suspended; `asked` what it will have ended as if it stops now, `cancelled`
    whether its task was cancelled. `waited` says whether anything stood before it in its turn,
    `serialized` whether that was a conflicting call.
    `status`, `kind`, `phase`, `cause` and `note` describe the ending; `by_policy` whether its
    group's policy ended it; `counted` whether the policy counts it.
    """

    position: int
    state: CallState = CallState.PLANNED
    claims: tuple[Claim, ...] = ()
    names: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    same: str | None = None
    group: str = REST
    gate: GateKind = GateKind.NONE
    late: bool = False
    gated: bool = False
    deferred: bool = False
    targets: tuple[int, ...] = ()
    ref_targets: tuple[int, ...] = ()
    node: int = -1
    leader: int = -1
    followers: tuple[int, ...] = ()
    alive: bool = False
    heeds_token: bool = False
    open_turns: int = 0
    held_up: bool = False
    waits: int = 0
    asked: Status | None = None
    cancelled: bool = False
    conflicting: bool = False
    serialized: bool = False
    waited: bool = False
    status: Status | None = None
    kind: FailureKind | None = None
    phase: Phase | None = None
    cause: int | None = None
    note: str = ""
    by_policy: bool = False
    counted: bool = True

    @property
    def may_never_settle(self) -> bool:
        """Whether it, or a call nested in it, was given up; asked once it has ended."""
        return self.alive or (self.held_up and self.open_turns > 0)

    def dump(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON types."""
        state: dict[str, Any] = {"position": self.position}
        state |= {
            name: value
            for name, default, value in zip(_NAMES, _DEFAULTS, _values(self), strict=True)
            if value is not default and value != default
        }
        if self.claims:
            state["claims"] = [[list(claim.key), claim.mode] for claim in self.claims]
        return state

    @classmethod
    def load(cls, state: dict[str, Any]) -> CallRecord:
        """The record that `dump` described."""
        record = cls(state["position"])
        for name, value in state.items():
            setattr(record, name, value if value is None else _LOAD.get(name, _plain)(value))
        return record


_NAMES = [field.name for field in fields(CallRecord)[1:]]
_DEFAULTS = [field.default for field in fields(CallRecord)[1:]]
_values = attrgetter(*_NAMES)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _claims(value: Any) -> tuple[Claim, ...]:
    return tuple(Claim(tuple(key), mode) for key, mode in value)


_LOAD: dict[str, Any] = {
    "claims": _claims,
    "state": CallState,
    "gate": GateKind,
    "asked": Status,
    "status": Status,
    "kind": FailureKind,
    "phase": Phase,
}
