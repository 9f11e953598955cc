"""The turn machine: order, endings and the life of each call of one turn. Pure.

Events are methods; what to do about them is appended to `actions`, to be carried out in order by
the driver, which answers with further events. Owns the order of conflicting calls of this turn;
the claims of other turns are the table's (`core.table`), slots the limits' (`core.limits`).

A call is PLANNED until nothing it must wait for is left, then QUEUED for its claims, READY for
its slots, RUNNING, STOPPING once it was asked to end, ENDED when it has its result, and SETTLED
when its tool has really stopped and all its predecessors are settled. Only SETTLED frees
successors: a call that ends without having run passes its place on when its turn would have come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dispatch.call import FailureKind, Phase, Status
from dispatch.claims import Claim
from dispatch.core.graph import ConflictGraph
from dispatch.core.life import PHASES, STOP_KINDS, Action, CallRecord, CallState, Do, TurnState
from dispatch.core.order import Order
from dispatch.core.schedules import Schedule


class TurnMachine:
    """One turn; see the module. Positions number the calls in intent order."""

    def __init__(self, schedule: Schedule = Schedule.DATAFLOW) -> None:
        self.schedule = schedule
        self.state = TurnState.OPEN
        self.order = Order(schedule)
        self.calls: list[CallRecord] = []
        self.actions: list[Action] = []
        self.stopped: Status | None = None
        self._chains: Sequence[int] = ()
        self._open_calls = 0
        self._unsettled = 0

    # Events

    def submit(self, claims: tuple[Claim, ...], refused: FailureKind | None = None) -> int:
        """The next call of the turn; `refused` ends it at once, without claims, as an error."""
        position = len(self.calls)
        call = CallRecord(position, self.order.add(() if refused else claims))
        self.calls.append(call)
        self._open_calls += 1
        self._unsettled += 1
        if refused is not None:
            self._end(call, Status.ERROR, refused)
        elif self.stopped is not None:
            self._stop(call, self.stopped)
        if not self.schedule.needs_whole_turn:
            self.order.link()
            self._advance((call,))
        return position

    def close(self) -> None:
        """No more calls will come."""
        if self.state is not TurnState.OPEN:
            return
        self.state = TurnState.CLOSED
        if self.schedule.needs_whole_turn:
            self.order.link_whole()
            self._advance(self.calls)
        if len(self.calls) > 1:
            self._chains = self.graph.remaining_chains()
            for call in self.calls:
                if call.state is CallState.READY:
                    self._do(Do.PREFER, call)
        self._decide()

    def blocked(self, position: int) -> None:
        """The table could not grant the claims at once: another turn's call stands before."""
        call = self.calls[position]
        call.conflicting = call.serialized = True

    def granted(self, position: int) -> None:
        """The table granted the claims."""
        call = self.calls[position]
        if call.state is CallState.QUEUED:
            self._ready(call)

    def started(self, position: int, *, heeds_token: bool) -> None:
        """The slots are taken and the tool runs; it may be able to see its token."""
        call = self.calls[position]
        call.state = CallState.RUNNING
        call.alive = True
        call.heeds_token = heeds_token

    def missed(self, position: int) -> None:
        """The tool had returned before the stop reached it: what it did counts."""
        call = self.calls[position]
        if call.state is CallState.STOPPING:
            call.state = CallState.RUNNING
            call.asked = None
            call.cancelled = False

    def returned(
        self,
        position: int,
        status: Status,
        kind: FailureKind | None = None,
        *,
        ran: bool = True,
    ) -> None:
        """The tool has really stopped. What it did counts unless it was asked to stop before.

        It may not have `ran` at all: its task was cancelled before the first step.
        """
        call = self.calls[position]
        call.alive = False
        if call.state is not CallState.ENDED:
            if call.asked is not None:
                status, kind = call.asked, STOP_KINDS[call.asked]
            phase = Phase.RUN if ran else Phase.SLOT
            self._end(call, status, kind, phase=phase if kind else None)
        self._settle([call.node])

    def stop(self, position: int, status: Status) -> None:
        """End one call as `status` (cancelled or timed out): at once if it never ran."""
        call = self.calls[position]
        self._stop(call, status)
        self._settle([call.node])

    def stop_all(self, status: Status) -> None:
        """End every call that has no result yet, and every call that still comes."""
        self.stopped = self.stopped or status
        for call in self.calls:
            self._stop(call, status)
        self._settle([call.node for call in self.calls])

    def skip(self, position: int, cause: int | None = None) -> None:
        """The table makes it wait for a call that was given up: end it, if it still waits.

        `cause` is that call's position, if it is one of this turn.
        """
        call = self.calls[position]
        if call.state is CallState.QUEUED:
            self._skip(call, cause)
            self._settle([call.node])

    def grace_over(self, position: int) -> None:
        """The tool did not stop in time: cancel its task, and after that give it up."""
        call = self.calls[position]
        if call.state is not CallState.STOPPING:
            return
        if call.cancelled:
            self._abandon(call)
        else:
            self._cancel(call)

    # Questions

    @property
    def graph(self) -> ConflictGraph:
        """The conflict graph of the calls submitted so far."""
        return self.order.graph

    def chain(self, position: int) -> int:
        """How many calls the longest chain behind this one has; 1 while the turn is open."""
        return self._chains[self.calls[position].node] if self._chains else 1

    def validate(self) -> None:
        """Raise `AssertionError` if the books of this turn do not balance."""
        checks = {
            "open calls counted": self._open_calls
            == sum(call.status is None for call in self.calls),
            "unsettled calls counted": self._unsettled
            == sum(call.state is not CallState.SETTLED for call in self.calls),
            "one ending each": all(
                (call.status is not None) == (call.state in (CallState.ENDED, CallState.SETTLED))
                for call in self.calls
            ),
            "settled calls are still": not any(
                call.alive for call in self.calls if call.state is CallState.SETTLED
            ),
            "predecessors settled first": all(
                call.state in (CallState.PLANNED, CallState.ENDED)
                or not self.order.waits(call.node)
                for call in self.calls
                if self.order.linked(call.node)
            ),
            "decided when all ended": (self.state in (TurnState.DECIDED, TurnState.GONE))
            == (self.state is not TurnState.OPEN and not self._open_calls),
            "gone when all settled": (self.state is TurnState.GONE)
            == (self.state in (TurnState.DECIDED, TurnState.GONE) and not self._unsettled),
        }
        broken = [name for name, holds in checks.items() if not holds]
        if broken:
            raise AssertionError(f"turn: not {', not '.join(broken)}: {self.dump()}")

    def dump(self) -> dict[str, Any]:
        """The whole state as JSON types; `load` gives an equal machine. No action may be open."""
        return {
            "schedule": self.schedule,
            "state": self.state,
            "stopped": self.stopped,
            "claims": [[[list(c.key), c.mode] for c in claims] for claims in self.graph.claims],
            "calls": [call.dump() for call in self.calls],
            "settled": list(self.order.settled),
            "doomed": [list(pair) for pair in self.order.doomed.items()],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> TurnMachine:
        """The machine that `dump` described: the graph is built again, the rest is taken over."""
        machine = cls(Schedule(state["schedule"]))
        for claims in state["claims"]:
            machine.submit(tuple(Claim(tuple(key), mode) for key, mode in claims))
        if state["state"] != TurnState.OPEN:
            machine.close()
        machine.actions.clear()
        machine.state = TurnState(state["state"])
        machine.stopped = state["stopped"] and Status(state["stopped"])
        machine.calls = [CallRecord.load(call) for call in state["calls"]]
        machine._open_calls = sum(call.status is None for call in machine.calls)
        machine._unsettled = sum(call.state is not CallState.SETTLED for call in machine.calls)
        machine.order.restore(state["settled"], [(node, cause) for node, cause in state["doomed"]])
        return machine

    # Transitions

    def _do(self, do: Do, call: CallRecord) -> None:
        self.actions.append((do, call.position))

    def _advance(self, calls: Iterable[CallRecord]) -> None:
        """These calls have their edges: skip what cannot begin, start what need not wait."""
        for call in calls:
            conflicts = self.order.conflicts(call.node)
            call.conflicting = bool(conflicts)
            call.waited = self.order.waits(call.node)
            call.serialized = not all(self.order.settled[node] for node in conflicts)
            cause = self.order.doomed.get(call.node)
            if cause is not None and call.state is CallState.PLANNED:
                self._skip(call, cause)
        self._settle([call.node for call in calls])

    def _enter(self, call: CallRecord) -> None:
        if self.graph.claims[call.position]:
            call.state = CallState.QUEUED
            self._do(Do.ENTER, call)
        else:
            self._ready(call)

    def _ready(self, call: CallRecord) -> None:
        call.state = CallState.READY
        self._do(Do.REQUEST, call)

    def _stop(self, call: CallRecord, status: Status) -> None:
        if call.state in (CallState.PLANNED, CallState.QUEUED, CallState.READY):
            self._end(call, status, STOP_KINDS[status], phase=PHASES[call.state])
        elif call.state is CallState.RUNNING:
            call.state = CallState.STOPPING
            call.asked = status
            if call.heeds_token:
                self._do(Do.SIGNAL, call)
            else:
                self._cancel(call)

    def _cancel(self, call: CallRecord) -> None:
        call.cancelled = True
        self._do(Do.CANCEL, call)

    def _skip(self, call: CallRecord, cause: int | None) -> None:
        phase = PHASES[call.state]
        self._end(call, Status.SKIPPED, FailureKind.ABANDONED, phase=phase, cause=cause)

    def _abandon(self, call: CallRecord) -> None:
        """Give it up; whatever of this turn waits for it, directly or not, ends too."""
        self._end(call, Status.UNKNOWN, FailureKind.ABANDONED, phase=Phase.RUN)
        for position in self.order.doom(call.node, call.position):
            waiting = self.calls[position]
            if waiting.state is CallState.PLANNED:
                self._skip(waiting, call.position)
        self._decide()

    def _end(
        self,
        call: CallRecord,
        status: Status,
        kind: FailureKind | None,
        *,
        phase: Phase | None = None,
        cause: int | None = None,
    ) -> None:
        if call.state in (CallState.QUEUED, CallState.READY):
            self._do(Do.WITHDRAW, call)
        elif call.state in (CallState.RUNNING, CallState.STOPPING):
            self._do(Do.FREE, call)
        call.state = CallState.ENDED
        call.status, call.kind, call.phase, call.cause = status, kind, phase, cause
        self._do(Do.END, call)
        self._open_calls -= 1

    def _decide(self) -> None:
        if self.state is TurnState.CLOSED and not self._open_calls:
            self.state = TurnState.DECIDED
            self.actions.append((Do.DECIDE, -1))
        if self.state is TurnState.DECIDED and not self._unsettled:
            self.state = TurnState.GONE
            self.actions.append((Do.LEAVE, -1))

    def _settle(self, nodes: Iterable[int]) -> None:
        """Let go on, or settle, what has nothing left to wait for; and all that this frees."""
        order = self.order
        stack = [node for node in reversed(list(nodes)) if order.linked(node)]
        while stack:
            node = stack.pop()
            if not order.waits(node) and not order.settled[node] and self._passes(node):
                stack += reversed(order.settle(node))
        self._decide()

    def _passes(self, node: int) -> bool:
        """Whether a node whose predecessors are settled is settled itself."""
        position = self.order.position(node)
        if position < 0:
            return True
        call = self.calls[position]
        if call.state is CallState.PLANNED:
            self._enter(call)
        if call.state is not CallState.ENDED or call.alive:
            return False
        call.state = CallState.SETTLED
        self._unsettled -= 1
        self._do(Do.SETTLE, call)
        return True
