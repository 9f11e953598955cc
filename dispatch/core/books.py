"""What the turn machine keeps of one turn, and the small steps that everything in it is made of.

Owns the counts, what is to be looked at again, and the JSON form of a turn. The first half of the
machine (`core.intake`) brings calls in, the second (`core.turn`) runs and ends them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Self

from dispatch.call import FailureKind, Phase, Status
from dispatch.claims import Claim, combine
from dispatch.core.arrivals import Arrivals
from dispatch.core.graph import ConflictGraph
from dispatch.core.groups import Group, Groups
from dispatch.core.life import (
    PHASES,
    TURN,
    Action,
    CallRecord,
    CallState,
    Do,
    TicketState,
    TurnState,
)
from dispatch.core.order import Order
from dispatch.core.policy import Policy
from dispatch.core.schedules import Schedule

UNKNOWN_CHAIN = 1
"""A chain of one call of average length."""


class Duplicates(StrEnum):
    """What becomes of a call that is identical to an earlier one."""

    RUN = "run"
    COALESCE = "coalesce"
    REJECT = "reject"


class Books(ABC):
    """One turn's state.

    `policies` judge the calls whose group has that name; the others by best effort. A `whole` turn
    is submitted at once, so that an all-or-nothing one can take all its claims with one ticket.
    `holding`: claims pass to the turn as calls settle, because a turn above may yet be undone.
    `skips`: a call whose predecessor failed is skipped.
    """

    def __init__(
        self,
        schedule: Schedule = Schedule.DATAFLOW,
        policies: Mapping[str, Policy] | None = None,
        *,
        whole: bool = False,
        holding: bool = False,
        skips: bool = False,
        duplicates: Duplicates = Duplicates.RUN,
    ) -> None:
        self.schedule = schedule
        self.holding = holding
        self.skips = skips
        self.duplicates = duplicates
        self.state = TurnState.OPEN
        self.order = Order(schedule)
        self.groups = Groups(policies)
        self.calls: list[CallRecord] = []
        self.actions: list[Action] = []
        self.stopped: Status | None = None
        self.is_undone = False
        self.flows = False
        self.ticket = TicketState.WANTED if whole and self.groups.atomic else TicketState.NONE
        self._arrivals = Arrivals()
        self._line: list[int] = []
        self._leaders: dict[str, int] = {}
        self._seen: set[str] = set()
        self._ref_waiters: dict[int, list[int]] = {}
        self._chains: list[float] = []
        self._durations: list[float] | None = None
        self.open_calls = 0
        self.unsettled = 0
        self._undoing = False
        self._endings: deque[CallRecord] = deque()
        self._looks: deque[int] = deque()

    # Questions

    @property
    def graph(self) -> ConflictGraph:
        """The conflict graph of the calls admitted so far."""
        return self.order.graph

    def chain(self, position: int) -> float:
        """How long the longest chain behind this call is; 1 while the turn is open."""
        if not self._chains:
            return UNKNOWN_CHAIN
        node = self.calls[position].node
        if node < len(self._chains):
            return self._chains[node]
        return self._durations[position] if self._durations else 1  # it came in after the close

    def phase(self, call: CallRecord) -> Phase:
        """What a call that has not started waits for."""
        if call.state is not CallState.PLANNED:
            return PHASES[call.state]
        if call.gated or (call.late and not call.refs and not call.deferred):
            return Phase.GATE
        return Phase.LOCK if self.ticket is TicketState.QUEUED else Phase.ORDER

    @property
    def ticket_claims(self) -> tuple[Claim, ...]:
        """All that the turn's one ticket must claim."""
        return combine([claim for call in self.calls for claim in call.claims if call.node >= 0])

    @property
    def to_undo(self) -> bool:
        """Whether what some group did must be undone."""
        return any(
            group.atomic and group.verdict is not None and not group.verdict.satisfied
            for group in self.groups.by_name.values()
        )

    def dump(self) -> dict[str, Any]:
        """The whole state as JSON types, but for the policies. No action may be open."""
        order, graph = self.order, self.graph
        return {
            "schedule": self.schedule,
            "holding": self.holding,
            "skips": self.skips,
            "duplicates": self.duplicates,
            "state": self.state,
            "stopped": self.stopped,
            "undone": self.is_undone,
            "undoing": self._undoing,
            "ticket": self.ticket,
            "calls": [call.dump() for call in self.calls],
            "admitted": [
                [position, [[list(c.key), c.mode] for c in graph.claims[position]]]
                for position in graph.nodes
            ],
            "parts": list(order.parts),
            "settled": list(order.settled),
            "doomed": [list(pair) for pair in order.doomed.items()],
            "failed": [list(pair) for pair in order.failed.items()],
            "groups": self.groups.dump(),
            "arrivals": self._arrivals.dump(),
            "line": list(self._line),
            "leaders": [list(pair) for pair in self._leaders.items()],
            "seen": sorted(self._seen),
            "ref_waiters": [[p, list(waiting)] for p, waiting in self._ref_waiters.items()],
            "chains": bool(self._chains),
            "durations": self._durations,
        }

    @classmethod
    def load(cls, state: Mapping[str, Any], policies: Mapping[str, Policy] | None = None) -> Self:
        """The machine that `dump` described: the graph is built again, the rest is taken over."""
        machine = cls(
            Schedule(state["schedule"]),
            policies,
            holding=state["holding"],
            skips=state["skips"],
            duplicates=Duplicates(state["duplicates"]),
        )
        machine.state = TurnState(state["state"])
        machine.stopped = state["stopped"] and Status(state["stopped"])
        machine.is_undone, machine._undoing = state["undone"], state["undoing"]
        machine.ticket = TicketState(state["ticket"])
        machine.calls = [CallRecord.load(call) for call in state["calls"]]
        machine.open_calls = sum(call.status is None for call in machine.calls)
        machine.unsettled = sum(call.state is not CallState.SETTLED for call in machine.calls)
        machine._admit_again(state)
        machine.groups.restore(state["groups"])
        machine._arrivals = Arrivals.load(state["arrivals"])
        machine._line = list(state["line"])
        machine._leaders = dict(state["leaders"])
        machine._seen = set(state["seen"])
        machine._ref_waiters = {p: list(waiting) for p, waiting in state["ref_waiters"]}
        machine._durations = state["durations"]
        if state["chains"]:
            machine._chains = machine.graph.remaining_chains(machine._durations)
        return machine

    def _admit_again(self, state: Mapping[str, Any]) -> None:
        parts = deque(state["parts"])
        for position, claims in state["admitted"]:
            call = self.calls[position]
            after = (call.leader,) if call.leader >= 0 else call.targets
            claimed = tuple(Claim(tuple(key), mode) for key, mode in claims)
            self.order.add(position, claimed, after)
            if parts and len(self.graph.nodes) == sum(self.order.parts) + parts[0]:
                parts.popleft()
                self.order.link()
        if not self.schedule.needs_whole_turn:
            self.order.link()
        self.order.restore(state["settled"], state["doomed"], state["failed"])

    # Defined by the two halves

    @abstractmethod
    def _run(self) -> None:
        """Let everything that follows from the last event happen."""

    @abstractmethod
    def _enter(self, call: CallRecord) -> None:
        """Nothing stands before a call any more: it asks for its claims, or else its slots."""

    @abstractmethod
    def _conclude(self, group: Group) -> None:
        """A group has its verdict."""

    @abstractmethod
    def _stop(self, call: CallRecord, status: Status) -> None:
        """End a call, at once if it never ran."""

    # Small steps

    def _drop(self, call: CallRecord, group: Group) -> None:
        """The group has its verdict, so it does without this call."""
        call.by_policy = True
        if group.atomic:
            call.cause = group.tally.first_failure
        if group.atomic and not call.alive:
            self._end(call, Status.SKIPPED, FailureKind.SKIPPED, phase=self.phase(call))
        else:
            self._stop(call, Status.CANCELLED)

    def _skip(self, call: CallRecord, cause: int | None, kind: FailureKind) -> None:
        self._end(call, Status.SKIPPED, kind, phase=self.phase(call), cause=cause)

    def _skip_planned(self, positions: Iterable[int], cause: int | None, kind: FailureKind) -> None:
        for position in positions:
            call = self.calls[position]
            if call.state is CallState.PLANNED and call.leader < 0:
                self._skip(call, cause, kind)

    def _fail_dependents(self, call: CallRecord) -> None:
        """Skip whoever stands behind a call that failed, if the turn says so."""
        failed = call.status not in (None, Status.OK) and not call.by_policy
        if failed and self.order.linked(call.node):
            cause = first_failure(call)
            self._skip_planned(self.order.fail(call.node, cause), cause, FailureKind.SKIPPED)

    def _end(
        self,
        call: CallRecord,
        status: Status,
        kind: FailureKind | None,
        *,
        phase: Phase | None = None,
        cause: int | None = None,
    ) -> None:
        if call.state is CallState.RUNNING or call.state is CallState.STOPPING:
            self.actions.append((Do.FREE, call.position))
        elif call.state is CallState.QUEUED or call.state is CallState.READY:
            self.actions.append((Do.WITHDRAW, call.position))
        call.state = CallState.ENDED
        call.status, call.kind, call.phase = status, kind, phase
        if cause is not None:
            call.cause = cause
        call.gated = False
        self.flows = self.flows or call.late
        self.open_calls -= 1
        self._endings.append(call)
        self.actions.append((Do.END, call.position))

    def _rank(self, durations: Sequence[float] | None) -> None:
        """The chains behind all calls are known; tell of those whose requests are out already."""
        self._durations = None if durations is None else list(durations)
        self._chains = self.graph.remaining_chains(durations)
        asked = {position for do, position in self.actions if do is Do.REQUEST}
        for call in self.calls:
            changed = call.state is CallState.READY and self._chains[call.node] != UNKNOWN_CHAIN
            if changed and call.position not in asked:
                self._do(Do.PREFER, call)

    def _do(self, do: Do, call: CallRecord) -> None:
        self.actions.append((do, call.position))

    def _look_at(self, calls: Iterable[CallRecord]) -> None:
        for call in calls:
            self._looks.append(call.position)

    @property
    def _may_enter(self) -> bool:
        """Whether calls need not wait for the turn's one ticket."""
        return self.ticket in (TicketState.NONE, TicketState.GRANTED)

    def _can_take_one_ticket(self) -> bool:
        """Whether all calls are in one all-or-nothing group, and their claims can be known."""
        names = {call.group for call in self.calls if call.status is None}
        return (
            len(names) == 1
            and self.groups[names.pop()].atomic
            and not any(call.ref_targets for call in self.calls)
        )

    def _ask_for_ticket(self) -> bool:
        """Ask for the turn's one ticket once the gates of all its calls have answered."""
        if self.ticket is not TicketState.WANTED or self.state is TurnState.OPEN or self._line:
            return False
        if any(call.gated for call in self.calls) or not self.open_calls:
            return False
        if self.ticket_claims:
            self.ticket = TicketState.QUEUED
            self.actions.append((Do.ENTER, TURN))
        else:
            self.ticket = TicketState.GRANTED
            self._look_at(self.calls)
        return True


def first_failure(call: CallRecord) -> int:
    """The position of the call that first went wrong: a skip names its cause."""
    if call.status is Status.SKIPPED and call.cause is not None:
        return call.cause
    return call.position
