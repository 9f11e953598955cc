"""The table machine: which claims are held, who waits for them, and who goes next. Pure.

Owns tickets (an owner with one set of claims, granted or waiting) and owners (calls, turns,
holds) with their parents. Shared by every turn that uses one table; knows nothing of order within
a turn, slots or time.

Waiting is first come first served: a ticket waits for conflicting granted tickets and for
conflicting earlier waiting ones; its owner's ancestors do not count. A waiting ticket watches one
of its blockers and is looked at again when that one leaves; blockers of a ticket only ever
disappear, so one is enough.

Invariants (`validate`): no two granted tickets conflict unless one owner is the other's ancestor;
a waiting ticket watches one of its blockers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dispatch.claims import Claim, conflict
from dispatch.core.live import LiveIndex

Claims = tuple[Claim, ...]


class Ticket:
    """One owner's set of claims. `watchers` are the waiting tickets that watch this one."""

    __slots__ = ("claims", "granted", "number", "owner", "watchers", "watching")

    def __init__(self, number: int, owner: int, claims: Claims) -> None:
        self.number = number
        self.owner = owner
        self.claims = claims
        self.granted = False
        self.watching = 0
        self.watchers: list[int] = []


class TableMachine:
    """Claims in, grants out."""

    def __init__(self) -> None:
        self.tickets: dict[int, Ticket] = {}
        self.parents: dict[int, int] = {}
        self.abandoned: set[int] = set()
        """Granted tickets whose call was given up and may never end."""
        self._holders: dict[int, int] | None = None
        self._held = LiveIndex()
        self._waiting = LiveIndex()
        self._numbers = 0
        self._owners = 0

    def open(self, parent: int = 0) -> int:
        """A new owner below `parent` (0: none): a call, a turn or a hold."""
        self._owners += 1
        self.parents[self._owners] = parent
        return self._owners

    def close(self, owner: int) -> None:
        """Forget an owner that has no tickets left."""
        del self.parents[owner]

    def enter(self, owner: int, claims: Claims) -> Ticket:
        """A new ticket, granted at once if nothing conflicting is held or waits."""
        self._numbers += 1
        ticket = Ticket(self._numbers, owner, claims)
        self.tickets[ticket.number] = ticket
        self._holders = None
        blocker = self._newest_blocker(ticket)
        if blocker:
            self._watch(ticket, blocker)
            self._waiting.add(ticket.number, claims)
        else:
            self._grant(ticket)
        return ticket

    def leave(self, number: int) -> list[int]:
        """Withdraw or release a ticket; returns the tickets granted because of it, in order."""
        ticket = self.tickets.pop(number)
        self.abandoned.discard(number)
        self._holders = None
        if ticket.granted:
            self._held.remove(number, ticket.claims)
        else:
            self._waiting.remove(number, ticket.claims)
        granted = []
        for watcher in sorted(ticket.watchers):
            waiting = self.tickets.get(watcher)
            if waiting is None or waiting.watching != number:
                continue
            blocker = self._any_blocker(waiting)
            if blocker:
                self._watch(waiting, blocker)
            else:
                self._waiting.remove(watcher, waiting.claims)
                self._grant(waiting)
                granted.append(watcher)
        return granted

    def blockers(self, number: int) -> list[int]:
        """Every ticket that keeps this waiting one from its claims, in order."""
        ticket = self.tickets[number]
        if ticket.granted:
            return []
        found = set(self._held.conflicting(ticket.claims))
        found.update(other for other in self._waiting.conflicting(ticket.claims) if other < number)
        return sorted(other for other in found if not self._is_above(ticket, other))

    def abandon(self, number: int) -> list[int]:
        """The call of a granted ticket was given up; returns who waits for it, however far."""
        if number not in self.tickets:
            return []  # it ended at the same moment
        self.abandoned.add(number)
        self._holders = None
        return list(self._held_up())

    def held_up_by(self, number: int) -> int:
        """An abandoned ticket that this one waits for, directly or not; or 0."""
        return self._held_up().get(number, 0) if self.abandoned else 0

    def waiting(self) -> Iterator[int]:
        """The waiting tickets, in order."""
        return (number for number, ticket in self.tickets.items() if not ticket.granted)

    def validate(self) -> None:
        """Raise `AssertionError` if the invariants of this module do not hold."""
        granted = [ticket for ticket in self.tickets.values() if ticket.granted]
        for at, first in enumerate(granted):
            for second in granted[at + 1 :]:
                pair = conflict(first.claims, second.claims)
                if pair and not self._related(first.owner, second.owner):
                    raise AssertionError(f"table: tickets overlap: {pair}: {self.dump()}")
        for number in self.waiting():
            watching = self.tickets[number].watching
            if watching not in self.blockers(number):
                raise AssertionError(f"table: {number} watches {watching}: {self.dump()}")

    def dump(self) -> dict[str, Any]:
        """The whole state as JSON types; `load` gives an equal machine."""
        return {
            "numbers": self._numbers,
            "owners": self._owners,
            "abandoned": sorted(self.abandoned),
            "parents": [list(pair) for pair in self.parents.items()],
            "tickets": [
                [
                    t.number,
                    t.owner,
                    [[list(c.key), c.mode] for c in t.claims],
                    t.granted,
                    t.watching,
                ]
                for t in self.tickets.values()
            ],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> TableMachine:
        """The machine that `dump` described."""
        machine = cls()
        machine._numbers = state["numbers"]
        machine._owners = state["owners"]
        machine.abandoned = set(state["abandoned"])
        machine.parents = dict(state["parents"])
        for number, owner, claims, granted, watching in state["tickets"]:
            ticket = Ticket(number, owner, tuple(Claim(tuple(key), mode) for key, mode in claims))
            ticket.granted, ticket.watching = granted, watching
            machine.tickets[number] = ticket
            (machine._held if granted else machine._waiting).add(number, ticket.claims)
        for number, *_, watching in state["tickets"]:
            if watching:
                machine.tickets[watching].watchers.append(number)
        return machine

    def _held_up(self) -> dict[int, int]:
        """Per waiting ticket, the abandoned one that it waits for: one pass, in ticket order."""
        if self._holders is None:
            index = LiveIndex()
            holders = {number: number for number in self.abandoned}
            for number in sorted(self.abandoned):
                index.add(number, self.tickets[number].claims)
            for number in self.waiting():
                ticket = self.tickets[number]
                if not index.clear(ticket.claims):
                    others = index.conflicting(ticket.claims)
                    before = (o for o in others if not self._is_above(ticket, o))
                    holder = next(before, 0)
                    if holder:
                        holders[number] = holders[holder]
                        index.add(number, ticket.claims)
            self._holders = {n: h for n, h in holders.items() if n not in self.abandoned}
        return self._holders

    def _grant(self, ticket: Ticket) -> None:
        ticket.granted = True
        ticket.watching = 0
        self._held.add(ticket.number, ticket.claims)

    def _watch(self, ticket: Ticket, blocker: int) -> None:
        ticket.watching = blocker
        self.tickets[blocker].watchers.append(ticket.number)

    def _newest_blocker(self, ticket: Ticket) -> int:
        """A blocker of a new ticket, the latest waiter if there is one.

        So a long queue on one key is a chain of watchers, and a leave looks at one of them.
        """
        for index in (self._waiting, self._held):
            if not index.clear(ticket.claims):
                for other in index.conflicting(ticket.claims, newest_first=True):
                    if not self._is_above(ticket, other):
                        return other
        return 0

    def _any_blocker(self, ticket: Ticket) -> int:
        if not self._held.clear(ticket.claims):
            for other in self._held.conflicting(ticket.claims):
                if not self._is_above(ticket, other):
                    return other
        for other in self._waiting.conflicting(ticket.claims, before=ticket.number):
            if not self._is_above(ticket, other):
                return other
        return 0

    def _is_above(self, ticket: Ticket, other: int) -> bool:
        """Whether the other ticket's owner is this one's, or an ancestor of it."""
        return self._descends(ticket.owner, self.tickets[other].owner)

    def _descends(self, owner: int, ancestor: int) -> bool:
        while owner:
            if owner == ancestor:
                return True
            owner = self.parents.get(owner, 0)
        return False

    def _related(self, first: int, second: int) -> bool:
        return self._descends(first, second) or self._descends(second, first)
