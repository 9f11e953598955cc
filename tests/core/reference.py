"""A slow reference of turns on one table, written from the design and not from the core.

After every event everything is looked at from scratch, one consequence at a time, until nothing
follows any more. Its table is `tests.core.reference_table`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dispatch.call import FailureKind, Status
from dispatch.claims import combine, conflict
from dispatch.core.life import CallState
from tests.core.reference_table import Claims, Path, Table, Ticket


@dataclass(eq=False)
class Call:
    """One call; `chances` are the graces left before it is given up."""

    owner: Path
    turn: Turn
    claims: Claims
    chances: int
    ticket: Ticket | None = None
    started: bool = False
    alive: bool = False
    asked: Status | None = None
    result: tuple[Status, FailureKind | None] | None = None
    settled: bool = False
    nested: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.before = [call for call in self.turn.calls if conflict(self.claims, call.claims)]
        """The calls of its turn that must settle first."""

    @property
    def state(self) -> CallState:
        if self.result is not None:
            return CallState.SETTLED if self.settled else CallState.ENDED
        if not self.alive:
            return CallState.PLANNED if self.ticket is None else CallState.QUEUED
        if self.asked is not None:
            return CallState.STOPPING
        waits = any(not turn.decided for turn in self.nested)
        return CallState.SUSPENDED if waits else CallState.RUNNING

    def waits_for_lost(self) -> bool:
        """Whether a call that was given up stands before it, directly or through others."""
        return any(
            not call.settled and (call.result == LOST or call.waits_for_lost())
            for call in self.before
        )


@dataclass(eq=False)
class Turn:
    """One turn; `parent` is the call it is nested in, `holding` whether that might be undone."""

    owner: Path
    parent: Call | None
    atomic: bool
    whole: bool
    holding: bool = False
    calls: list[Call] = field(default_factory=list)
    closed: bool = False
    stopped: tuple[Status, FailureKind] | None = None
    failed: bool = False
    undone: bool = False
    decided: bool = False
    gone: bool = False
    ticket: Ticket | None = None
    held: list[Ticket] = field(default_factory=list)

    @property
    def open_calls(self) -> list[Call]:
        return [call for call in self.calls if call.result is None]

    @property
    def claims(self) -> Claims:
        """Those of all its calls."""
        return combine([claim for call in self.calls for claim in call.claims])

    @property
    def may_start(self) -> bool:
        """Whether its calls need not wait for the one ticket of the whole turn."""
        if not self.whole:
            return True
        return self.ticket.granted if self.ticket else self.closed and not self.claims

    @property
    def holds(self) -> bool:
        """Whether what it did may yet be undone, by itself or by a turn above."""
        return not self.decided and (self.atomic or self.holding)

    @property
    def heir(self) -> Turn | None:
        """The nearest turn above that holds."""
        if self.parent is None:
            return None
        above = self.parent.turn
        return above if above.holds else above.heir

    @property
    def to_undo(self) -> bool:
        """Whether its compensations must run now."""
        over = self.closed and not self.open_calls and not self.decided
        return over and self.failed and not self.undone


STOPPED = {Status.CANCELLED: FailureKind.CANCELLED, Status.TIMED_OUT: FailureKind.TIMEOUT}
SKIPPED = (Status.SKIPPED, FailureKind.SKIPPED)
LOST = (Status.UNKNOWN, FailureKind.ABANDONED)
IN_VAIN = (Status.SKIPPED, FailureKind.ABANDONED)
DEADLOCK = (Status.ERROR, FailureKind.DEADLOCK)


class Reference:
    """The events of a turn, and what follows from them."""

    def __init__(self) -> None:
        self.table = Table()
        self.turns: list[Turn] = []
        self.calls: dict[Path, Call] = {}
        self.opened = 0

    # Events

    def open(self, parent: Path | None, *, atomic: bool, whole: bool) -> Path:
        self.opened += 1
        call = None if parent is None else self.calls[parent]
        turn = Turn((*(parent or ()), self.opened), call, atomic, whole)
        turn.holding = turn.heir is not None
        self.turns.append(turn)
        if call is not None:
            call.nested.append(turn)
        return turn.owner

    def submit(self, owner: Path, claims: Claims, *, heeds: bool) -> None:
        turn = self.turn(owner)
        ends = turn.stopped or (SKIPPED if turn.failed else None)
        call = Call((*owner, len(turn.calls)), turn, () if ends else claims, 2 if heeds else 1)
        call.result = ends
        turn.calls.append(call)
        self.calls[call.owner] = call
        self._follow()

    def close(self, owner: Path) -> None:
        self.turn(owner).closed = True
        self._follow()

    def returned(self, owner: Path, *, ok: bool) -> None:
        call = self.calls[owner]
        if call.result is None:
            said = (Status.OK, None) if ok else (Status.ERROR, FailureKind.TOOL_ERROR)
            call.result = said if call.asked is None else (call.asked, STOPPED[call.asked])
        call.alive = False
        self._follow()

    def stop(self, owner: Path, status: Status) -> None:
        self._stop(self.calls[owner], status)
        self._follow()

    def stop_all(self, owner: Path, status: Status) -> None:
        turn = self.turn(owner)
        turn.stopped = turn.stopped or (status, STOPPED[status])
        for call in turn.calls:
            self._stop(call, status)
        self._follow()

    def grace_over(self, owner: Path) -> None:
        call = self.calls[owner]
        call.chances -= 1
        if not call.chances:
            call.result = LOST
            if call.ticket is not None:
                call.ticket.lost = True
        self._follow()

    def wait_over(self, owner: Path) -> None:
        """The call, or the turn's ticket, has waited too long for one that was given up."""
        self._end_waiter(owner, IN_VAIN)
        self._follow()

    def undone(self, owner: Path, failed: Path | None) -> None:
        turn = self.turn(owner)
        turn.undone = True
        for call in turn.calls:
            if call.owner == failed:
                call.result = (Status.UNKNOWN, FailureKind.IN_DOUBT)
            elif call.result == (Status.OK, None):
                call.result = (Status.ROLLED_BACK, FailureKind.ROLLED_BACK)
        self._follow()

    def turn(self, owner: Path) -> Turn:
        return next(turn for turn in self.turns if turn.owner == owner)

    # What follows

    def _follow(self) -> None:
        """Let one thing follow after the other, the most urgent first, until nothing does."""
        rules: tuple[Callable[[], bool], ...] = (
            self._judge,
            self._doom,
            self._withdraw,
            self.table.grant,
            self._break_deadlock,
            self._settle,
            self._decide,
            self._enter,
            self._start,
            self._skip_relatives,
        )
        while any(rule() for rule in rules):
            pass
        self.turns = [turn for turn in self.turns if not turn.gone]
        self.calls = {call.owner: call for turn in self.turns for call in turn.calls}

    def _stop(self, call: Call, status: Status) -> None:
        if call.alive and call.result is None:
            call.asked = call.asked or status
        elif call.result is None:
            call.result = (status, STOPPED[status])

    def _judge(self) -> bool:
        """The first failure of an all-or-nothing turn stops the rest."""
        for turn in self.turns:
            bad = any(call.result and call.result[0] is not Status.OK for call in turn.calls)
            if turn.atomic and bad and not turn.failed:
                turn.failed = True
                for call in turn.open_calls:
                    if call.alive:
                        self._stop(call, Status.CANCELLED)
                    else:
                        call.result = SKIPPED
                return True
        return False

    def _doom(self) -> bool:
        for call in self.calls.values():
            if call.state is CallState.PLANNED and call.waits_for_lost():
                call.result = IN_VAIN
                return True
        return False

    def _settle(self) -> bool:
        for call in self.calls.values():
            nested = all(turn.gone for turn in call.nested)
            still = call.result is not None and not call.alive and nested
            if still and not call.settled and all(other.settled for other in call.before):
                call.settled = True
                self._give_back(call)
                return True
        return False

    def _give_back(self, call: Call) -> None:
        ticket, call.ticket = call.ticket, None
        if ticket is not None and call.started and call.turn.holds:
            ticket.owner, ticket.lost = call.turn.owner, False
            call.turn.held.append(ticket)
        elif ticket is not None:
            self.table.tickets.remove(ticket)

    def _withdraw(self) -> bool:
        """Who ended while it waited waits no more."""
        for call in self.calls.values():
            if call.result and call.ticket is not None and not call.ticket.granted:
                self.table.tickets.remove(call.ticket)
                call.ticket = None
                return True
        for turn in self.turns:
            if turn.ticket is not None and not turn.ticket.granted and not turn.open_calls:
                self.table.tickets.remove(turn.ticket)
                turn.ticket = None
                return True
        return False

    def _decide(self) -> bool:
        for turn in self.turns:
            over = turn.closed and not turn.open_calls and not turn.to_undo
            if over and not turn.decided:
                heir, turn.decided = turn.heir, True
                self._pass_on(turn, heir)
                return True
            if turn.decided and not turn.gone and all(call.settled for call in turn.calls):
                turn.gone = True
                return True
        return False

    def _pass_on(self, turn: Turn, heir: Turn | None) -> None:
        if turn.ticket is not None:
            turn.held.append(turn.ticket)
        for ticket in turn.held:
            if heir is not None and ticket.granted:
                ticket.owner = heir.owner
                heir.held.append(ticket)
            else:
                self.table.tickets.remove(ticket)
        turn.held, turn.ticket = [], None

    def _enter(self) -> bool:
        for turn in self.turns:
            wanted = turn.whole and turn.closed and turn.open_calls and turn.claims
            if wanted and turn.ticket is None:
                turn.ticket = self.table.enter(turn.owner, turn.claims)
                return True
        for call in self.calls.values():
            if self._is_free(call) and call.claims and call.ticket is None:
                call.ticket = self.table.enter(call.owner, call.claims)
                return True
        return False

    def _is_free(self, call: Call) -> bool:
        if call.result is not None or call.started or not call.turn.may_start:
            return False
        return all(other.settled for other in call.before)

    def _start(self) -> bool:
        for call in self.calls.values():
            granted = call.ticket.granted if call.ticket else not call.claims
            if self._is_free(call) and granted:
                call.started = call.alive = True
                return True
        return False

    def _skip_relatives(self) -> bool:
        """Who waits for a given up call of its own root turn ends at once."""
        for ticket in self.table.waiting:
            if any(lost.owner[0] == ticket.owner[0] for lost in self.table.lost_before(ticket)):
                self._end_waiter(ticket.owner, IN_VAIN)
                return True
        return False

    def _break_deadlock(self) -> bool:
        victim = self.table.victim()
        if victim is not None:
            self._end_waiter(victim.owner, DEADLOCK)
        return victim is not None

    def _end_waiter(self, owner: Path, result: tuple[Status, FailureKind]) -> None:
        """End the call with this waiting ticket; if it is a turn's, the first of its calls."""
        call = self.calls.get(owner) or self.turn(owner).open_calls[0]
        call.result = result
