"""The table machine: which claims are held, who waits for them, and who goes next. Pure.

Owns tickets (an owner with one set of claims, granted or waiting) and their owners (`core.owners`).
Shared by every turn that uses one table; knows nothing of order within a turn, slots or time. What
happened to tickets is appended to `news`, in order, for the caller to pass on.

Waiting is first come first served: a ticket waits for conflicting granted tickets and for
conflicting earlier waiting ones; its owner's ancestors do not count. It passes every waiter that
itself waits, directly or not, for one of its ancestors or for an abandoned ticket. A waiting ticket
watches one of its blockers and is looked at again when that one leaves. Blockers go in two ways
only: they leave, or they can be passed from now on; the latter happens when a nested ticket blocks,
when claims move to a turn, or when a ticket is abandoned, and then all are looked at again.

A cycle of waiting tickets in which each waits for something granted is a deadlock, found as it
closes: the ticket whose root came last, then the latest, is taken out.

Invariants (`validate`): no two granted tickets conflict unless one owner is the other's ancestor;
a waiting ticket watches one of its blockers; no deadlock stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dispatch.claims import Claim, conflict
from dispatch.core.waits import Claims, Ticket, Waits


class Granted(NamedTuple):
    """A ticket that waited has its claims."""

    ticket: int


class Deadlock(NamedTuple):
    """A waiting ticket was taken out because of a deadlock.

    `parties` are the other waiting tickets of the cycle: the victim waits for what the first one's
    owners hold, and so on; the last one waits for the victim's.
    """

    ticket: int
    parties: tuple[int, ...]


News = Granted | Deadlock


class TableMachine:
    """Claims in, grants out."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self._waits = Waits()
        self._numbers = 0

    @property
    def tickets(self) -> Mapping[int, Ticket]:
        """Every ticket by number."""
        return self._waits.tickets

    @property
    def abandoned(self) -> set[int]:
        """Granted tickets whose call was given up and may never end."""
        return self._waits.abandoned

    def open(self, parent: int = 0) -> int:
        """A new owner below `parent` (0: none): a call, a turn or a hold."""
        return self._waits.owners.open(parent)

    def close(self, owner: int) -> None:
        """Forget an owner that has no tickets left."""
        self._waits.owners.close(owner)

    def enter(self, owner: int, claims: Claims) -> Ticket:
        """A new ticket; `granted` says whether it has its claims already."""
        waits = self._waits
        self._numbers += 1
        ticket = Ticket(self._numbers, owner, claims)
        waits.tickets[ticket.number] = ticket
        blocker = waits.blocker(ticket, newest_first=True)
        if not blocker:
            self._grant(ticket)
            return ticket
        self._watch(ticket, blocker)
        waits.queue[ticket.number] = ticket
        waits.waiting.add(ticket.number, claims)
        if waits.owners.nested(owner):
            waits.nested.add(ticket.number)
            self._look_again()
            self._break_deadlocks(ticket.number)
        elif waits.abandoned:
            self._look_again()
        return ticket

    def leave(self, number: int) -> None:
        """Withdraw or release a ticket; whoever may go now is granted."""
        waits = self._waits
        ticket = waits.tickets.pop(number)
        if ticket.granted:
            waits.held.remove(number, ticket.claims)
            waits.owners.granted(ticket.owner, -1)
            waits.forget_nested()
        else:
            self._dequeue(ticket)
        if waits.abandoned:
            waits.abandoned.discard(number)
            waits.stuck = waits.find_stuck()
        self._look_at_watchers(ticket)

    def move(self, number: int, owner: int) -> None:
        """A granted ticket passes to another owner: from a call to its turn, or further up."""
        waits = self._waits
        ticket = waits.tickets[number]
        waits.owners.granted(ticket.owner, -1)
        waits.owners.granted(owner, 1)
        ticket.owner = owner
        waits.forget_nested()
        if number in waits.abandoned:  # its call has ended after all
            waits.abandoned.discard(number)
            waits.stuck = waits.find_stuck()
        below = [n for n, t in waits.queue.items() if waits.owners.descends(t.owner, owner)]
        if below:
            waits.nested.update(below)
            self._look_again(moved=number)
            for one in below:
                self._break_deadlocks(one)

    def abandon(self, number: int) -> list[int]:
        """The call of a granted ticket was given up; returns who waits for it, however far."""
        waits = self._waits
        if number not in waits.tickets:
            return []  # it ended at the same moment
        waits.abandoned.add(number)
        self._look_again()
        return [waiting for waiting, holder in waits.stuck.items() if holder == number]

    def granted_below(self, owner: int) -> list[int]:
        """The granted tickets of this owner, and of whatever stands below it."""
        owners = self._waits.owners
        return [
            number
            for number, ticket in self._waits.tickets.items()
            if ticket.granted and owners.descends(ticket.owner, owner)
        ]

    def blockers(self, number: int) -> list[int]:
        """Every ticket that keeps this waiting one from its claims, in order."""
        ticket = self._waits.tickets[number]
        return [] if ticket.granted else self._waits.blockers(ticket)

    def held_up_by(self, number: int) -> int:
        """An abandoned ticket that this one waits for, directly or not; or 0."""
        return self._waits.stuck.get(number, 0)

    def same_root(self, first: int, second: int) -> bool:
        """Whether two tickets, if they are still there, belong to the same root."""
        tickets, root = self._waits.tickets, self._waits.root
        return first in tickets and second in tickets and root(first) == root(second)

    def abandoned_conflict(self, claims: Claims) -> int:
        """An abandoned ticket that conflicts with these claims; or 0."""
        for number in sorted(self._waits.abandoned):
            if conflict(claims, self._waits.tickets[number].claims):
                return number
        return 0

    def waiting(self) -> Iterator[int]:
        """The waiting tickets, in order."""
        return iter(self._waits.queue)

    def validate(self) -> None:
        """Raise `AssertionError` if the invariants of this module do not hold."""
        waits = self._waits
        granted = [ticket for ticket in waits.tickets.values() if ticket.granted]
        for at, first in enumerate(granted):
            for second in granted[at + 1 :]:
                pair = conflict(first.claims, second.claims)
                if pair and not self._related(first.owner, second.owner):
                    raise AssertionError(f"table: tickets overlap: {pair}: {self.dump()}")
        for number, ticket in waits.queue.items():
            if ticket.watching not in waits.blockers(ticket):
                raise AssertionError(f"table: {number} watches no blocker: {self.dump()}")
            if waits.owners.nested(ticket.owner) != (number in waits.nested):
                raise AssertionError(f"table: {number} is nested or not: {self.dump()}")
            if waits.cycle(number):
                raise AssertionError(f"table: {number} is in a deadlock: {self.dump()}")
        if waits.stuck != waits.find_stuck():
            raise AssertionError(f"table: it is not known who waits in vain: {self.dump()}")

    def dump(self) -> dict[str, Any]:
        """The whole state as JSON types; `load` gives an equal machine. No news may be open."""
        return {
            "numbers": self._numbers,
            "owners": self._waits.owners.numbers,
            "abandoned": sorted(self._waits.abandoned),
            "closed": sorted(self._waits.owners.closed),
            "parents": [list(pair) for pair in self._waits.owners.parents.items()],
            "tickets": [
                [
                    t.number,
                    t.owner,
                    [[list(c.key), c.mode] for c in t.claims],
                    t.granted,
                    t.watching,
                ]
                for t in self._waits.tickets.values()
            ],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> TableMachine:
        """The machine that `dump` described."""
        machine = cls()
        machine._numbers = state["numbers"]
        waits = machine._waits
        waits.owners.restore(state["owners"], dict(state["parents"]), state["closed"])
        waits.abandoned = set(state["abandoned"])
        for number, owner, claims, granted, watching in state["tickets"]:
            ticket = Ticket(number, owner, tuple(Claim(tuple(key), mode) for key, mode in claims))
            ticket.granted, ticket.watching = granted, watching
            waits.tickets[number] = ticket
            if granted:
                waits.held.add(number, ticket.claims)
                waits.owners.granted(owner, 1)
            else:
                waits.waiting.add(number, ticket.claims)
                waits.queue[number] = ticket
        for ticket in waits.queue.values():
            waits.tickets[ticket.watching].watchers.append(ticket.number)
            if waits.owners.nested(ticket.owner):
                waits.nested.add(ticket.number)
        waits.stuck = waits.find_stuck()
        return machine

    def _look_at_watchers(self, ticket: Ticket) -> None:
        for watcher in sorted(ticket.watchers):
            waiting = self._waits.queue.get(watcher)
            if waiting is not None and waiting.watching == ticket.number:
                self._look_at(waiting)

    def _look_again(self, moved: int = 0) -> None:
        """Somebody may be passed who could not be passed before: look at all who wait, in order.

        Those that watch a ticket which has `moved` are among them.
        """
        waits = self._waits
        if waits.abandoned:
            waits.stuck = waits.find_stuck()
        everybody = waits.queue if waits.abandoned else sorted(waits.nested)
        for number in list(everybody):
            ticket = waits.queue.get(number)
            if ticket is None:
                continue
            if ticket.watching == moved or not waits.tickets[ticket.watching].granted:
                self._look_at(ticket)

    def _break_deadlocks(self, number: int) -> None:
        """Take out victims until this waiting ticket is part of no deadlock."""
        while number in self._waits.queue:
            victim, *parties = self._waits.cycle(number) or [0]
            if not victim:
                return
            self.news.append(Deadlock(victim, tuple(parties)))
            self.leave(victim)

    def _look_at(self, ticket: Ticket) -> None:
        """Grant it, or let it watch another blocker."""
        blocker = self._waits.blocker(ticket)
        if blocker:
            self._watch(ticket, blocker)
        else:
            self._dequeue(ticket)
            self._grant(ticket)
            self.news.append(Granted(ticket.number))

    def _dequeue(self, ticket: Ticket) -> None:
        waits = self._waits
        del waits.queue[ticket.number]
        waits.waiting.remove(ticket.number, ticket.claims)
        waits.nested.discard(ticket.number)
        waits.stuck.pop(ticket.number, None)

    def _grant(self, ticket: Ticket) -> None:
        ticket.granted = True
        ticket.watching = 0
        self._waits.held.add(ticket.number, ticket.claims)
        self._waits.owners.granted(ticket.owner, 1)

    def _watch(self, ticket: Ticket, blocker: int) -> None:
        if ticket.watching != blocker:
            ticket.watching = blocker
            self._waits.tickets[blocker].watchers.append(ticket.number)

    def _related(self, first: int, second: int) -> bool:
        owners = self._waits.owners
        return owners.descends(first, second) or owners.descends(second, first)
