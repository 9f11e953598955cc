"""What a turn and its calls hold in the table: their claims.

Owns asking, getting and giving back, and what happens to a call that waits for one that was given
up. Told by the table from any thread; passes the news on through the inbox. Claims that may yet be
undone pass from a call to its turn, and, when the turn is decided, to the turn above if that may
yet be undone.

Invariant: a ticket is given back exactly once, whoever comes first: the loop, or the worker thread
of a call that nobody waits for any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from dispatch.core.life import TURN, CallState, TicketState
from dispatch.runtime.place import stranded
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.rollback import Compensation
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn
from dispatch.runtime.slots import Slots


class Holdings:
    """The claims of one turn."""

    def __init__(self, turn: RunningTurn, slots: Slots) -> None:
        self.compensations: list[Compensation] = []
        self._turn = turn
        self._machine = turn.machine
        self._calls = turn.calls
        self._inbox = turn.inbox
        self.loop = turn.inbox.loop
        self._table = turn.place.table
        self._slots = slots
        self._held: list[int] = []
        self._ticket: int | None = None
        self._undecided = True
        self._is_stranded = False
        self._held_up_until: dict[int, float] = {}
        self._giving_back = threading.Lock()
        self._table.release_lost()
        self.owner = self._table.open(turn.place.owner)

    # Told from anywhere

    def claims_granted(self, call: int) -> bool:
        """Told by the table."""
        return self._inbox.post(self._machine.granted, call)

    def claims_deadlocked(self, call: int, parties: str) -> bool:
        """Told by the table."""
        return self._inbox.post(self._deadlocked, call, parties)

    def claims_held_up(self, call: int) -> bool:
        """Told by the table."""
        return self._inbox.post(self._held_up, call)

    def is_dead(self, call: int) -> bool:
        """Whether the call's loop is closed and no thread of its own is left that may end."""
        return self._turn.is_dead(call)

    def name_of(self, call: int) -> str:
        """How people would name the call, or the turn."""
        if call == TURN:
            return f"the turn {self._turn.turn_id}"
        return f"{self._calls[call].call.name} (call {call})"

    def keep(
        self, table: ResourceTable, tickets: list[int], compensations: list[Compensation]
    ) -> bool:
        """Take over what a nested turn or hold held, and would undo.

        False if the tickets were not taken: this turn is decided, or has its own in another table.
        """
        with self._giving_back:
            if not self._undecided:
                return False
            self.compensations += compensations
            if table is not self._table:
                return False
            self._table.move(tickets, self.owner, self)
            self._held += tickets
            return True

    # Claims

    def enter(self, position: int) -> None:
        """Ask the table for the claims of a call, or of the whole turn; the machine is told."""
        if position == TURN:
            self._ticket, granted = self._table.enter(
                self, TURN, self._machine.ticket_claims, self.owner
            )
        else:
            call = self._calls[position]
            call.ordered = self._turn.now
            record = self._machine.calls[position]
            later = record.waited or call.allowed is not None
            claims = self._turn.admission.claims_now(call.admitted) if later else record.claims
            call.ticket, granted = self._table.enter(self, position, claims, self.call_owner(call))
        if granted:
            self._machine.granted(position)
        else:
            self._machine.blocked(position)

    def call_owner(self, call: RunningCall) -> int:
        """The call's place in the tree of owners. From any thread."""
        with self._giving_back:
            if not call.owner:
                call.owner = self._table.open(self.owner)
            return call.owner

    def give_claims_back(self, call: RunningCall) -> None:
        """Give the claims back, and wake whoever waits for them. From any thread."""
        ticket = self._taken(call)
        if ticket is not None:
            self._table.leave(ticket)
        self._forget(call)

    def hold(self, call: RunningCall) -> None:
        """The claims pass to the turn, until it is decided."""
        ticket = self._taken(call)
        if ticket is not None:
            self._table.move([ticket], self.owner, self)
            self._held.append(ticket)
        self._forget(call)

    def withdraw(self, position: int) -> None:
        """Take back what was asked for; of a call that never ran, the claims too if it has them."""
        call, record = self._turn.both(position)
        call.withdrawn(record, self._slots.rate_since(call))
        ticket = None if record.alive else self._taken(call)  # what never ran holds nothing
        if ticket is not None:
            self._table.leave(ticket)
        self._slots.free(position)

    def _taken(self, call: RunningCall) -> int | None:
        """The call's ticket, for whoever comes first."""
        with self._giving_back:
            ticket, call.ticket = call.ticket, None
        return ticket

    def _forget(self, call: RunningCall) -> None:
        """The call is over: what it ran in has ended, and it has no place in the tree any more."""
        if call.scope is not None:
            call.scope.alive = False
        with self._giving_back:
            owner, call.owner = call.owner, 0
        if owner:
            self._table.close(owner)

    def decide(self) -> None:
        """Give back what the turn holds, or pass it to the turn above that may yet be undone."""
        with self._giving_back:
            self._undecided = False
            held, self._held = self._held, []
            compensations, self.compensations = self.compensations, []
            ticket, self._ticket = self._ticket, None
        if ticket is not None:
            if self._machine.ticket is TicketState.GRANTED:
                held.insert(0, ticket)
            else:
                self._table.leave(ticket)
        place = self._turn.place
        if place.keeper is not None and place.parent is not None:
            passed = [replace(one, position=place.parent.position) for one in compensations]
            if place.keeper.keep(self._table, held, passed):
                return
        for number in held:
            self._table.leave(number)

    def leave(self) -> None:
        """Nothing of the turn is left: forget its place in the tree of owners."""
        self._table.close(self.owner)

    def forget(self, undone: Callable[[int], bool]) -> None:
        """Keep nothing of the calls that were undone: what undoing them began is not undone."""
        with self._giving_back:
            self.compensations = [one for one in self.compensations if not undone(one.position)]

    def left_running(self, one: Compensation, in_thread: bool) -> Callable[[bool], None]:
        """It could not be stopped: the claims of its call stay until it ends.

        To be called then is what is returned; and when its thread has returned something that must
        be awaited yet, with True.
        """
        ticket = one.ticket
        with self._giving_back:
            if ticket is None or ticket not in self._held:
                return lambda awaits: None
            self._held.remove(ticket)
        call = self._calls[one.position]
        call.in_thread = in_thread
        self._table.abandon(ticket, self, one.position)

        def ended(awaits: bool) -> None:
            call.in_thread = False
            if not awaits or self.loop.is_closed():
                self._table.leave(ticket)
            if self.loop.is_closed():
                self.stranded()

        return ended

    def abandon(self, call: RunningCall) -> None:
        """The call was given up and keeps its claims; whoever waits for it is told."""
        if call.scope is not None:
            call.scope.abandoned = True
        with self._giving_back:
            call.stuck = call.in_thread
            if call.stuck:
                self._turn.settings.pool.stuck(1)
        for ticket in self._table.granted_below(call.owner) if call.owner else ():
            self._table.abandon(ticket, self, call.position)

    def _deadlocked(self, position: int, parties: str) -> None:
        open_calls = [c for c in self._machine.calls if c.status is None]
        which = open_calls[0].position if position == TURN and open_calls else position
        if which != TURN:
            self._calls[which].reason = f"deadlock: it and {parties} wait for each other"
        self._machine.deadlocked(position)

    def _held_up(self, position: int) -> None:
        """It waits for one that was given up: of its own root turn not at all, else so long."""
        call = None if position == TURN else self._calls[position]
        ticket = self._ticket if call is None else call.ticket
        holder = None if ticket is None else self._table.held_up_by(ticket)
        if ticket is None or holder is None or not self._is_queued(position):
            return
        name = holder.claimant.name_of(holder.call)
        if self._table.same_root(ticket, holder.ticket):
            cause = holder.call if holder.claimant is self and holder.call != TURN else None
            self._skip(position, name, cause)
            return
        wait = self._turn.settings.abandoned_wait
        if self._turn.settings.timeout or self._has_limits(position):
            return
        now = self._turn.now
        until = self._held_up_until.setdefault(holder.ticket, now + wait)
        if now >= until:
            self._skip(position, f"{name} of another turn", None)
            return
        timer = self._inbox.loop.call_at(until, self._inbox.post, self._held_up, position)
        if call is not None:
            call.abandoned_wait = timer

    def _has_limits(self, position: int) -> bool:
        """Whether every call that waits has a time limit."""
        records = self._machine.calls
        waiting = [c for c in self._waiting(position) if records[c.position].status is None]
        return all(call.timer is not None for call in waiting)

    def _waiting(self, position: int) -> list[RunningCall]:
        return self._calls if position == TURN else [self._calls[position]]

    def _is_queued(self, position: int) -> bool:
        if position == TURN:
            return self._machine.ticket is TicketState.QUEUED
        return self._machine.calls[position].state is CallState.QUEUED

    def _skip(self, position: int, holder: str, cause: int | None) -> None:
        for call in self._waiting(position):
            call.holder = holder
        self._machine.skip(position, cause)

    def thread_ended(self, call: RunningCall, awaits: bool = False) -> None:
        """Give back what the loop may never give back for it, as it may be gone.

        That is a call that was given up, or one whose loop was closed in the middle of its turn;
        not one that `awaits` what the thread returned on a loop that is there.
        """
        with self._giving_back:
            call.in_thread, stuck, call.stuck = False, call.stuck, False
            if stuck:
                self._turn.settings.pool.stuck(-1)
        closed = self.loop.is_closed()
        record = self._machine.calls[call.position]
        over = record.state is CallState.ENDED and not record.open_turns
        if closed or (over and not awaits and not self._machine.keeps(call.position)):
            self.give_claims_back(call)
        if closed:
            self._slots.give_back(call)
            self._slots.grant()
            self.stranded()

    def stranded(self) -> None:
        """The loop is gone: once no thread runs either, whatever the turn is nested in goes on."""
        with self._giving_back:
            if self._is_stranded or any(call.in_thread for call in self._calls):
                return
            self._is_stranded = True
        stranded(self._machine, self._turn.place.parent)
