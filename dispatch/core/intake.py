"""The first half of the turn machine: from a call's arrival to its place in the graph. Pure.

Owns admission. A call takes its place in admission order (`core.arrivals`), then stands in line
until its claims are known: a call whose claims are not known yet (a `Ref`; a gate that may rewrite)
holds back those behind it that claim anything, until they are known and not until it has run. At
the head of the line it joins an identical call, or enters the graph, and its gates are asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from dispatch.call import FailureKind, Phase, Status
from dispatch.claims import Claim, combine, write
from dispatch.core.books import Books, Duplicates, first_failure
from dispatch.core.groups import REST, Group
from dispatch.core.life import (
    STOP_KINDS,
    CallRecord,
    CallState,
    Do,
    GateKind,
    TicketState,
    TurnState,
)
from dispatch.core.schedules import Schedule

EXCLUSIVE = (write(),)
"""In place of claims that were never known."""


class Intake(Books):
    """How the calls of a turn come in; see the module."""

    # Events

    def submit(
        self,
        claims: tuple[Claim, ...] | None = (),
        refused: FailureKind | None = None,
        *,
        answer: tuple[Status, FailureKind | None] | None = None,
        call_id: str = "",
        names: tuple[str, ...] = (),
        refs: tuple[str, ...] = (),
        same: str | None = None,
        group: str = REST,
        gate: GateKind = GateKind.NONE,
    ) -> int:
        """The next call of the turn; `refused` ends it at once, without claims, as an error.

        `answer` ends it too: how an earlier turn has answered an equal call. `claims` are None as
        long as they are not known. `names` are the ids that it waits for, those of `refs` among
        them.
        """
        call = CallRecord(len(self.calls))
        self.calls.append(call)
        self.open_calls += 1
        self.unsettled += 1
        judged = self.groups.by_name[group]
        judged.tally.calls += 1
        ends = refused is not None or answer is not None
        named = names or same is not None or gate is not GateKind.NONE
        if not (ends or named) and claims is not None and self._goes_straight(judged):
            self._begin(call, claims, call_id, group)
            return call.position
        self._describe(call, claims, names, refs, same, group, gate)
        if refused is not None:
            call.names = ()
            self._end(call, Status.ERROR, refused)
        elif answer is not None:
            call.names = ()
            self._end(call, *answer)
        elif self.stopped is not None:
            self._end(call, self.stopped, STOP_KINDS[self.stopped], phase=Phase.ORDER)
        elif judged.verdict is not None:
            self._drop(call, judged)
        for placed in self._arrivals.arrive(call.position, call_id, call.names):
            self._place(self.calls[placed])
        self.flows = True
        self._run()
        return call.position

    def close(self, durations: Sequence[float] | None = None) -> None:
        """No more calls will come; `durations` are estimates by position, if there are any."""
        if self.state is not TurnState.OPEN:
            return
        if self._arrivals.parked:
            self._give_up_parked()
        self.state = TurnState.CLOSED
        for group in self.groups.close():
            self._conclude(group)
        if self.ticket is TicketState.WANTED and not self._can_take_one_ticket():
            self.ticket = TicketState.NONE
            self._look_at(self.calls)
        self.flows = self.flows or bool(self._line) or self.schedule.needs_whole_turn
        self._run()
        if len(self.calls) > 1:
            self._rank(durations)

    def _give_up_parked(self) -> None:
        """What is still parked waits for a call that will never come."""
        for position, reason in self._arrivals.hopeless().items():
            self.calls[position].note = reason
            if self.calls[position].status is None:
                self._end(self.calls[position], Status.ERROR, FailureKind.DEPENDENCY)
        for position in sorted(self._arrivals.parked):
            if self.calls[position].status is not None and position in self._arrivals.parked:
                for placed in self._arrivals.give_up(position):
                    self._place(self.calls[placed])

    def known(self, position: int, claims: tuple[Claim, ...]) -> None:
        """The claims of a late call are known, and its gates have let it pass."""
        call = self.calls[position]
        if call.late and call.status is None:
            call.late = False
            call.claims = claims
            self.flows = True
        self._run()

    def resolved(self, position: int) -> None:
        """The values that a late call takes are filled in, but its gates may rewrite them."""
        call = self.calls[position]
        if call.status is None:
            self._ask_early(call)
        self._run()

    def allowed(self, position: int, added: tuple[Claim, ...] = ()) -> None:
        """The gates let the call pass.

        If they changed its arguments it keeps its place, and must be granted `added` claims too.
        """
        call = self.calls[position]
        if call.gated:
            call.gated = False
            call.claims = combine([*call.claims, *added]) if added else call.claims
            self._look_at([call])
        self._run()

    def refused(self, position: int, kind: FailureKind, phase: Phase | None = None) -> None:
        """A gate denied the call, or its arguments turned out to be wrong."""
        call = self.calls[position]
        if call.status is None and not call.alive:
            self._end(call, Status.ERROR, kind, phase=phase)
        self._run()

    def _flow(self) -> None:
        """Let go on in line whoever may; see the module."""
        self.flows = False
        held_back = False
        staying = []
        for position in self._line:
            call = self.calls[position]
            if call.late and call.status is None and call.deferred and not held_back:
                self._join_or_ask(call)
            if call.late and call.status is None:
                held_back = True
                staying.append(position)
            elif not held_back or self._passes(call):
                self._admit(call)
            else:
                staying.append(position)
        self._line = staying
        if self.state is not TurnState.OPEN or not self.schedule.needs_whole_turn:
            self._link()

    # From arrival to the graph

    def _goes_straight(self, group: Group) -> bool:
        """Whether a call that names nobody may go straight into the graph."""
        return (
            not self._line
            and not self._arrivals.parked
            and self.stopped is None
            and group.verdict is None
            and self.ticket is TicketState.NONE
            and self.schedule is Schedule.DATAFLOW
            and not self.order.doomed
            and not self.order.failed
        )

    def _begin(self, call: CallRecord, claims: tuple[Claim, ...], call_id: str, group: str) -> None:
        """What all the steps below come to for such a call."""
        self._arrivals.seat(call.position, call_id)
        call.node, free = self.order.begin(call.position, claims)
        if group:
            call.group = group
        if claims:
            call.claims = claims
            call.conflicting = bool(self.graph.index.predecessors[call.node])
        if free:
            self._enter(call)
        else:
            call.serialized = call.waited = True

    def _resolve_refs_to(self, position: int) -> None:
        """A call has ended whose value others may take."""
        for waiting in self._ref_waiters.pop(position, ()):
            self._resolve(self.calls[waiting])

    def _describe(
        self,
        call: CallRecord,
        claims: tuple[Claim, ...] | None,
        names: tuple[str, ...],
        refs: tuple[str, ...],
        same: str | None,
        group: str,
        gate: GateKind,
    ) -> None:
        """Note what differs from the defaults, which is nothing for most calls."""
        if claims:
            call.claims = claims
        elif claims is None:
            call.late = True
        if names:
            call.names = names
        if refs:
            call.refs = refs
        if same is not None:
            call.same = same
        if group:
            call.group = group
        if gate is not GateKind.NONE:
            call.gate = gate

    def _place(self, call: CallRecord) -> None:
        """The call has its place in the order."""
        self._line.append(call.position)
        self.flows = True
        targets = self._arrivals.targets.pop(call.position, ())
        if call.status is not None:
            return
        if targets:
            call.targets = targets
        if call.refs:
            call.ref_targets = self._arrivals.named(call.refs)
            repeated = [ref for ref in call.refs if len(self._arrivals.ids[ref]) > 1]
            if repeated:
                call.note = f"several calls have the id {repeated[0]!r}; take the value of one"
                self._end(call, Status.ERROR, FailureKind.INVALID_ARGUMENTS)
                return
            self._resolve(call)
        elif call.late:
            self._ask_early(call)

    def _resolve(self, call: CallRecord) -> None:
        """Fill in the values of other calls, once all of them have ended."""
        targets = [self.calls[position] for position in call.ref_targets]
        waiting = next((target for target in targets if target.status is None), None)
        if call.status is not None:
            return
        if waiting is not None:
            self._ref_waiters.setdefault(waiting.position, []).append(call.position)
            return
        lost = next((target for target in targets if target.status is not Status.OK), None)
        if lost is None:
            call.refs = ()
            self._do(Do.RESOLVE, call)
        else:
            abandoned = lost.kind is FailureKind.ABANDONED
            kind = FailureKind.ABANDONED if abandoned else FailureKind.SKIPPED
            self._skip(call, first_failure(lost), kind)

    def _ask_early(self, call: CallRecord) -> None:
        """Ask the gates that may rewrite, unless the call may join one that is asked already."""
        if call.same is not None and self.duplicates is not Duplicates.RUN:
            call.deferred = call.same in self._seen
            self._seen.add(call.same)
        if not call.deferred:
            self._do(Do.ASK, call)

    def _join_or_ask(self, call: CallRecord) -> None:
        """A late call is at the head of the line, behind one that is identical."""
        call.deferred = False
        leader = self.calls[self._leaders[call.same]] if call.same in self._leaders else None
        if leader is not None and self._joins(leader, EXCLUSIVE if leader.late else leader.claims):
            call.late = False
            call.claims = leader.claims
        else:
            self._do(Do.ASK, call)

    def _passes(self, call: CallRecord) -> bool:
        """Whether it may pass a call whose claims are not known: it conflicts with nothing."""
        return (
            self.schedule is Schedule.DATAFLOW
            and (not call.claims or call.status is not None)
            and all(self.calls[target].node >= 0 for target in call.targets)
        )

    def _admit(self, call: CallRecord) -> None:
        """At the head of the line: join an identical call, or enter the graph."""
        after = call.targets
        if call.same is not None and call.status is None and self.duplicates is not Duplicates.RUN:
            leader = self._leaders.get(call.same)
            if leader is not None and self._joins(self.calls[leader], call.claims):
                self._join(call, self.calls[leader])
                after = (leader,)
            else:
                self._leaders[call.same] = call.position
        elif call.same is not None and call.late and call.status is Status.ERROR:
            self._leaders[call.same] = call.position  # the refusal is that of its copies too
        plain = call.status is None and call.leader < 0
        call.node = self.order.add(call.position, call.claims if plain else (), after)
        if plain and call.gate is GateKind.ASKS:
            call.gated = True
            self._do(Do.ASK, call)

    def _joins(self, leader: CallRecord, claims: tuple[Claim, ...]) -> bool:
        """Whether a call identical to the leader may take its outcome."""
        if self.duplicates is Duplicates.COALESCE and leader.state is CallState.SETTLED:
            return False
        return not self.graph.index.touched_since(claims, leader.node)

    def _join(self, call: CallRecord, leader: CallRecord) -> None:
        if self.duplicates is Duplicates.REJECT:
            self._end(
                call, Status.ERROR, FailureKind.DUPLICATE, phase=Phase.ORDER, cause=leader.position
            )
            return
        call.leader = leader.position
        leader.followers = (*leader.followers, call.position)
        call.counted = False
        group = self.groups[call.group]
        group.tally.calls -= 1
        if leader.status is not None:
            self._end(call, leader.status, leader.kind, phase=leader.phase, cause=leader.cause)
        if group.judged():
            self._conclude(group)

    def _link(self) -> None:
        """Make the edges of what was admitted: skip what cannot begin, look at the rest."""
        settled = self.order.settled
        part = [self.calls[self.order.position(node)] for node in self.order.link()]
        for call in part:
            conflicts = self.graph.conflicts(call.node)
            if conflicts:
                call.conflicting = True
                call.serialized = not all(settled[node] for node in conflicts)
            if self.order.waits(call.node):
                call.waited = True
            for causes, kind in (
                (self.order.doomed, FailureKind.ABANDONED),
                (self.order.failed, FailureKind.SKIPPED),
            ):
                if call.node in causes:
                    self._skip_planned([call.position], causes[call.node], kind)
            if self.skips:
                self._fail_dependents(call)
        self._look_at(part)
