"""Who waits for whom in the table, directly or not: passing, deadlock, waiting in vain. Pure.

The wait-for graph has an edge from a waiting ticket to each ticket that conflicts with it and is
granted, or waits since before; and from a granted ticket to every waiting ticket below its owner,
since an owner gives nothing back while something nested in it waits. Nothing here changes state.

A cycle that goes through a mere waiter is no deadlock: the ticket in front of that waiter passes
it. So a deadlock is a cycle of waiting tickets each of which waits for something *granted*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dispatch.claims import Claim
from dispatch.core.live import LiveIndex
from dispatch.core.owners import Owners

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


class Waits:
    """The tickets of one table and the questions about who waits for whom."""

    def __init__(self) -> None:
        self.owners = Owners()
        self.tickets: dict[int, Ticket] = {}
        self.queue: dict[int, Ticket] = {}
        """The waiting tickets, in order."""
        self.held = LiveIndex()
        self.waiting = LiveIndex()
        self.abandoned: set[int] = set()
        """Granted tickets whose call was given up and may never end."""
        self.nested: set[int] = set()
        """Waiting tickets below an owner that holds something: only they pass or deadlock."""
        self.stuck: dict[int, int] = {}
        """Per waiting ticket that waits for an abandoned one: that one."""

    def holders(self, ticket: Ticket) -> Iterator[int]:
        """The granted tickets that stand in this one's way."""
        if self.held.clear(ticket.claims):
            return
        for other in self.held.conflicting(ticket.claims):
            if not self._above(ticket, other):
                yield other

    def earlier(self, ticket: Ticket, *, newest_first: bool = False) -> Iterator[int]:
        """The waiting tickets that stand before this one, but those that wait in vain."""
        if self.waiting.clear(ticket.claims):
            return
        found = self.waiting.conflicting(
            ticket.claims, newest_first=newest_first, before=ticket.number
        )
        for other in found:
            if other not in self.stuck and not self._above(ticket, other):
                yield other

    def blocker(self, ticket: Ticket, *, newest_first: bool = False) -> int:
        """One ticket that this one must wait for, or 0.

        A nested ticket passes every waiter that waits, directly or not, for one of its ancestors.
        The newest waiter comes first for a new ticket that is not nested: so a long queue on one
        key is a chain of watchers, and each leave looks at one of them.
        """
        if self.held.clear(ticket.claims) and self.waiting.clear(ticket.claims):
            return 0
        if not self.owners.nested(ticket.owner):
            if newest_first:
                return next(self.earlier(ticket, newest_first=True), 0) or next(
                    self.holders(ticket), 0
                )
            return next(self.holders(ticket), 0) or next(self.earlier(ticket), 0)
        holder = next(self.holders(ticket), 0)
        if holder:
            return holder
        return next((o for o in self.earlier(ticket) if not self._passes(ticket, o)), 0)

    def blockers(self, ticket: Ticket) -> list[int]:
        """Every ticket that this one must wait for, in order."""
        found = set(self.holders(ticket))
        found.update(o for o in self.earlier(ticket) if not self._passes(ticket, o))
        return sorted(found)

    def cycle(self, start: int) -> list[int]:
        """The waiting tickets of a deadlock that `start` is part of, the victim first; or none.

        The victim is the one whose root came last, then the latest. The others follow in the order
        in which they wait for each other: the last one waits for the victim.
        """
        edges = self._holding_edges(start)
        back = _reaching(start, edges)
        if start not in back:
            return []
        tied = {number: [o for o in edges[number] if o in back] for number in back}
        victim = max(back, key=lambda number: (self.root(number), number))
        return _shortest_cycle(victim, tied)

    def root(self, number: int) -> int:
        """The root owner of a ticket."""
        return self.owners.root(self.tickets[number].owner)

    def find_stuck(self) -> dict[int, int]:
        """Per waiting ticket that waits for an abandoned one, that one.

        A ticket passes waiters that wait in vain, so only what is granted can make it wait in vain:
        an abandoned ticket, or one whose owner has something below it that does.
        """
        stuck: dict[int, int] = {}
        above: dict[int, int] = {}
        found = bool(self.abandoned)
        while found:
            found = False
            for number, ticket in self.queue.items():
                if number in stuck:
                    continue
                for holder in self.holders(ticket):
                    cause = holder if holder in self.abandoned else above.get(self._owner(holder))
                    if cause:
                        stuck[number] = cause
                        above |= dict.fromkeys(self.owners.chain(ticket.owner), cause)
                        found = True
                        break
        return stuck

    def forget_nested(self) -> None:
        """An owner holds less than before: some may stand below nobody any more who holds."""
        if self.nested:
            self.nested = {n for n in self.nested if self.owners.nested(self._owner(n))}

    def _owner(self, number: int) -> int:
        return self.tickets[number].owner

    def _above(self, ticket: Ticket, other: int) -> bool:
        return self.owners.descends(ticket.owner, self.tickets[other].owner)

    def _passes(self, ticket: Ticket, waiter: int) -> bool:
        """Whether this waiter waits, directly or not, for an ancestor of the ticket.

        That it waits for the ticket itself is no reason: whoever is nested will pass the ticket.
        """
        ancestors = frozenset(self.owners.chain(ticket.owner))
        seen = {waiter, ticket.number}
        stack = [waiter]
        while stack:
            waiting = self.tickets[stack.pop()]
            for other in (*self.holders(waiting), *self.earlier(waiting)):
                blocking = self.tickets[other]
                if blocking.owner in ancestors and blocking is not ticket:
                    return True
                onward = self._below(blocking.owner) if blocking.granted else [other]
                stack += [one for one in onward if one not in seen]
                seen.update(onward)
        return False

    def _below(self, owner: int) -> list[int]:
        """The waiting tickets below this owner, which holds something."""
        return [n for n in self.nested if self.owners.descends(self.tickets[n].owner, owner)]

    def _holding_edges(self, start: int) -> dict[int, list[int]]:
        """Per waiting ticket from `start` on, those that it waits for by what is granted."""
        edges: dict[int, list[int]] = {}
        stack = [start]
        while stack:
            number = stack.pop()
            if number not in edges:
                owners = dict.fromkeys(map(self._owner, self.holders(self.tickets[number])))
                onward = dict.fromkeys(below for o in owners for below in self._below(o))
                edges[number] = sorted(onward)
                stack += edges[number]
        return edges


def _reaching(target: int, edges: dict[int, list[int]]) -> set[int]:
    """All from which `target` can be reached by at least one edge."""
    back: dict[int, list[int]] = {}
    for number, onward in edges.items():
        for other in onward:
            back.setdefault(other, []).append(number)
    found: set[int] = set()
    stack: list[int] = list(back.get(target, ()))
    while stack:
        number = stack.pop()
        if number not in found:
            found.add(number)
            stack += back.get(number, ())
    return found


def _shortest_cycle(start: int, edges: dict[int, list[int]]) -> list[int]:
    came_from: dict[int, int] = {}
    layer: Iterable[int] = [start]
    while start not in came_from:
        following = []
        for number in layer:
            for other in edges[number]:
                if other not in came_from:
                    came_from[other] = number
                    following.append(other)
        layer = following
    path = [start]
    while came_from[path[-1]] != start:
        path.append(came_from[path[-1]])
    return [start, *reversed(path[1:])]
