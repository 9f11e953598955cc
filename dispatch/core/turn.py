"""The turn machine: order, endings, policies and the life of each call of one turn. Pure.

Events are methods; what to do about them is appended to `actions`, to be carried out in order by
the driver, which answers with further events. Owns the order of conflicting calls of this turn;
the claims of other turns are the table's (`core.table`), slots the limits' (`core.limits`).

A call is PLANNED until nothing it must wait for is left, then QUEUED for its claims, READY for
its slots, RUNNING, SUSPENDED while it waits for something else, STOPPING once it was asked to end,
ENDED when it has its result, and SETTLED when its tool and all that is nested in it have stopped
and its predecessors are settled. Only SETTLED frees successors, also if the call never ran.
"""

from __future__ import annotations

from collections.abc import Collection

from dispatch.call import FailureKind, Phase, Status
from dispatch.core.balance import unbalanced
from dispatch.core.groups import Group
from dispatch.core.intake import Intake
from dispatch.core.life import (
    STOP_KINDS,
    TURN,
    CallRecord,
    CallState,
    Do,
    TicketState,
    TurnState,
)
from dispatch.core.policy import Verdict


class TurnMachine(Intake):
    """One turn; see the module. Positions number the calls in intent order."""

    # Events of a running call

    def blocked(self, position: int) -> None:
        """The table could not grant the claims at once: another turn's call stands before."""
        if position != TURN:
            call = self.calls[position]
            call.conflicting = call.serialized = True

    def granted(self, position: int) -> None:
        """The table granted the claims, of a call or of the whole turn."""
        if position == TURN:
            self.ticket = TicketState.GRANTED
            self._look_at(self.calls)
        elif self.calls[position].state is CallState.QUEUED:
            self._ready(self.calls[position])
        self._run()

    def deadlocked(self, position: int) -> None:
        """The table took the ticket out because of a deadlock; it was a call's, or the turn's."""
        for waiting in self._first_open() if position == TURN else [position]:
            call = self.calls[waiting]
            if call.state in (CallState.PLANNED, CallState.QUEUED):
                self._end(call, Status.ERROR, FailureKind.DEADLOCK, phase=Phase.LOCK)
        self._run()

    def started(self, position: int, *, heeds_token: bool = False) -> None:
        """The slots are taken and the tool runs, or goes on; it may be able to see its token."""
        call = self.calls[position]
        call.state = CallState.RUNNING
        if not call.alive:
            call.alive = True
            call.heeds_token = heeds_token

    def suspended(self, position: int) -> None:
        """The tool waits for something else than its slots: it gives them all back meanwhile."""
        call = self.calls[position]
        call.waits += 1
        if call.state is CallState.RUNNING:
            call.state = CallState.SUSPENDED
            self._do(Do.FREE, call)
        elif call.state is CallState.READY and call.alive:
            call.state = CallState.SUSPENDED
            self._do(Do.WITHDRAW, call)

    def woken(self, position: int) -> None:
        """One thing that the tool waited for is there; after the last one it takes its slots."""
        call = self.calls[position]
        call.waits -= 1
        if call.state is CallState.SUSPENDED and not call.waits:
            self._ready(call)

    def nested(self, position: int, change: int) -> None:
        """One turn more (1) or less (-1) that is nested in the call lives."""
        call = self.calls[position]
        call.open_turns += change
        self._look_at([call])
        self._run()

    def held_up_below(self, position: int) -> None:
        """A call nested in this one was given up: once this one has ended, it may never settle."""
        call = self.calls[position]
        call.held_up = True
        if call.status is not None:
            self._doom(call)
        self._run()

    def missed(self, position: int) -> None:
        """The tool had returned before the stop reached it: what it did counts."""
        call = self.calls[position]
        if call.state is CallState.STOPPING:
            call.state = CallState.RUNNING
            call.asked = None
            call.cancelled = call.by_policy = False

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
        if call.status is None:
            if call.asked is not None:
                status, kind = call.asked, STOP_KINDS[call.asked]
            phase = Phase.RUN if ran else Phase.SLOT
            self._end(call, status, kind, phase=phase if kind else None)
        else:
            self._looks.append(position)
        self._run()

    def stop(self, position: int, status: Status) -> None:
        """End one call as `status` (cancelled or timed out): at once if it never ran."""
        self._stop(self.calls[position], status)
        self._run()

    def stop_all(self, status: Status) -> None:
        """End every call that has no result yet, and every call that still comes."""
        self.stopped = self.stopped or status
        for group in self.groups.by_name.values():
            if self.state is TurnState.OPEN and group.atomic and group.verdict is None:
                group.verdict = Verdict(satisfied=False, reason="the turn was stopped while open")
        for call in self.calls:
            self._stop(call, status)
        self._run()

    def skip(self, position: int, cause: int | None = None) -> None:
        """The table makes it wait for a call that was given up: end it, if it still waits.

        `cause` is that call's position, if it is one of this turn.
        """
        if position == TURN:
            self._skip_planned(self._first_open(), cause, FailureKind.ABANDONED)
        elif self.calls[position].state is CallState.QUEUED:
            self._skip(self.calls[position], cause, FailureKind.ABANDONED)
        self._run()

    def grace_over(self, position: int) -> None:
        """The tool did not stop in time: cancel its task, and after that give it up."""
        call = self.calls[position]
        if call.state is CallState.STOPPING:
            if call.cancelled:
                self._end(call, Status.UNKNOWN, FailureKind.ABANDONED, phase=Phase.RUN)
            else:
                self._cancel(call)
        self._run()

    def undone(self, failed: Collection[int] = ()) -> None:
        """The compensations have run; those of the calls in `failed` did not all succeed.

        A call that took the outcome of another one takes this outcome too.
        """
        self.is_undone = True
        for call in self.calls:
            group = self.groups[call.group]
            if not group.atomic or group.verdict is None or group.verdict.satisfied:
                continue
            if (
                call.position in failed or call.leader in failed
            ) and call.kind is not FailureKind.ABANDONED:
                self._revise(call, Status.UNKNOWN, FailureKind.IN_DOUBT)
            elif call.status is Status.OK:
                call.cause = group.tally.first_failure
                self._revise(call, Status.ROLLED_BACK, FailureKind.ROLLED_BACK)
        self._run()

    # Questions

    @property
    def verdict(self) -> Verdict:
        """Whether the turn is satisfied, once it is decided."""
        return self.groups.verdict()

    def keeps(self, position: int) -> bool:
        """Whether what is nested in the call may yet be undone with it."""
        return self.holding or self.awaits_verdict(position)

    def is_final(self, position: int) -> bool:
        """Whether the result of a call that has ended will not change any more."""
        decided = self.state in (TurnState.DECIDED, TurnState.GONE)
        return decided or not self.awaits_verdict(position)

    def awaits_verdict(self, position: int) -> bool:
        """Whether the call's result stands only once its group is decided."""
        return self.groups.atomic and self.groups[self.calls[position].group].atomic

    def validate(self) -> None:
        """Raise `AssertionError` if the books of this turn do not balance."""
        broken = unbalanced(self)
        if self._endings or self._looks:
            broken.append("nothing left to react to")
        if broken:
            raise AssertionError(f"turn: not {', not '.join(broken)}: {self.dump()}")

    # Transitions

    def _first_open(self) -> list[int]:
        """The first call without a result ends for the turn's ticket; the policy does the rest."""
        return [call.position for call in self.calls if call.status is None][:1]

    def _ready(self, call: CallRecord) -> None:
        call.state = CallState.READY
        self._do(Do.REQUEST, call)

    def _stop(self, call: CallRecord, status: Status) -> None:
        if call.status is not None or call.state is CallState.STOPPING:
            return
        if not call.alive:
            self._end(call, status, STOP_KINDS[status], phase=self.phase(call))
            return
        if call.state is CallState.READY:
            self._do(Do.WITHDRAW, call)
        call.state = CallState.STOPPING
        call.asked = status
        if call.heeds_token:
            self._do(Do.SIGNAL, call)
        else:
            self._cancel(call)

    def _cancel(self, call: CallRecord) -> None:
        call.cancelled = True
        self._do(Do.CANCEL, call)

    def _revise(self, call: CallRecord, status: Status, kind: FailureKind) -> None:
        call.status, call.kind, call.phase = status, kind, Phase.ROLLBACK
        self._do(Do.REVISE, call)

    def _enter(self, call: CallRecord) -> None:
        if call.claims:
            call.state = CallState.QUEUED
            self.actions.append((Do.ENTER, call.position))
        else:
            call.state = CallState.READY
            self.actions.append((Do.REQUEST, call.position))

    def _run(self) -> None:
        """Let every ending and every freed call have its effects, and the effects theirs."""
        while True:
            if self._endings:
                self._react(self._endings.popleft())
            elif self._looks:
                self._look(self.calls[self._looks.popleft()])
            elif self.flows:
                self._flow()
            elif self.ticket is not TicketState.WANTED or not self._ask_for_ticket():
                break
        if self.state is not TurnState.OPEN and not self.open_calls:
            self._decide()

    def _look(self, call: CallRecord) -> None:
        """Go on with a call that nothing stands before any more."""
        if not self.order.is_free(call.node):
            return
        if call.state is CallState.PLANNED:
            if not call.gated and call.leader < 0 and self._may_enter:
                self._enter(call)
        elif call.state is CallState.ENDED and not call.alive and not call.open_turns:
            call.state = CallState.SETTLED
            self.unsettled -= 1
            undecided = self.state in (TurnState.OPEN, TurnState.CLOSED)
            held = (self.holding or self.groups.atomic) and self.keeps(call.position)
            self.actions.append((Do.HOLD if undecided and held else Do.SETTLE, call.position))
            for node in self.order.settle(call.node):
                self._looks.append(self.order.position(node))

    def _react(self, call: CallRecord) -> None:
        """What the end of a call means for others."""
        group = self.groups.by_name[call.group]
        if call.counted:
            group.count(call.position, ok=call.status is Status.OK)
            if group.judged():
                self._conclude(group)
        for position in call.followers:
            follower = self.calls[position]
            if follower.status is None and call.status is not None:
                self._end(follower, call.status, call.kind, phase=call.phase, cause=call.cause)
        if self._ref_waiters:
            self._resolve_refs_to(call.position)
        if self.skips:
            self._fail_dependents(call)
        if call.alive or call.held_up:
            self._doom(call)
        self._looks.append(call.position)

    def _doom(self, call: CallRecord) -> None:
        """If it may never settle, whatever of this turn waits for it, directly or not, ends too."""
        if call.may_never_settle and self.order.linked(call.node):
            doomed = self.order.doom(call.node, call.position)
            self._skip_planned(doomed, call.position, FailureKind.ABANDONED)

    def _conclude(self, group: Group) -> None:
        """The group has its verdict: stop what is open in it, but what others need."""
        if not group.tally.open or group.verdict is None:
            return
        spared = self._needed_outside(group.name) if group.verdict.satisfied else ()
        for call in self.calls:
            if call.group == group.name and call.status is None and call.position not in spared:
                self._drop(call, group)

    def _needed_outside(self, group: str) -> set[int]:
        """The calls that an open call outside the group names, directly or through others."""
        outside = [c for c in self.calls if c.group != group and c.status is None]
        needed: set[int] = set()
        stack = [
            target
            for call in outside
            for target in (call.targets or self._arrivals.named(call.names))
        ]
        while stack:
            position = stack.pop()
            if position not in needed:
                needed.add(position)
                stack += self.calls[position].targets
                leader = self.calls[position].leader
                stack += [leader] if leader >= 0 else []
        return needed

    def _decide(self) -> None:
        if self.state is TurnState.CLOSED:
            if self.groups.atomic and self.to_undo and not self.is_undone:
                if not self._undoing:
                    self._undoing = True
                    self.actions.append((Do.UNDO, TURN))
                return
            self.state = TurnState.DECIDED
            self.actions.append((Do.DECIDE, TURN))
        if self.state is TurnState.DECIDED and not self.unsettled:
            self.state = TurnState.GONE
            self.actions.append((Do.LEAVE, TURN))
