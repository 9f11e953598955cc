"""A slow reference of the table, written from the design and not from the core.

Lists and pairwise tests. Owners are paths: a turn is named by where it is nested, a call by its
turn and its position, so an ancestor is a prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dispatch.claims import Claim, conflict

Claims = tuple[Claim, ...]
Path = tuple[int, ...]


@dataclass(eq=False)
class Ticket:
    """A request for claims; `lost` once its call was given up."""

    owner: Path
    claims: Claims
    granted: bool = False
    lost: bool = False

    def below(self, other: Ticket) -> bool:
        return self.owner[: len(other.owner)] == other.owner


class Table:
    """Tickets in the order in which they came."""

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []

    def enter(self, owner: Path, claims: Claims) -> Ticket:
        """A new ticket, which is looked at first."""
        ticket = Ticket(owner, claims)
        self.tickets.append(ticket)
        ticket.granted = not self.blockers(ticket)
        return ticket

    @property
    def waiting(self) -> list[Ticket]:
        return [ticket for ticket in self.tickets if not ticket.granted]

    def obstacles(self, ticket: Ticket) -> list[Ticket]:
        """Held or earlier conflicting tickets, but those of the ticket's ancestors."""
        earlier = self.tickets[: self.tickets.index(ticket)]
        return [
            other
            for other in self.tickets
            if other is not ticket
            and (other.granted or other in earlier)
            and not ticket.below(other)
            and conflict(ticket.claims, other.claims)
        ]

    def holders(self, ticket: Ticket) -> list[Ticket]:
        return [other for other in self.obstacles(ticket) if other.granted]

    def waiting_below(self, holder: Ticket) -> list[Ticket]:
        return [ticket for ticket in self.waiting if ticket.below(holder)]

    def lost_before(self, ticket: Ticket) -> list[Ticket]:
        """The tickets of given up calls that this one waits for, through whoever holds."""
        found, seen = [], {ticket}
        stack = [ticket]
        while stack:
            for holder in self.holders(stack.pop()):
                if holder.lost and holder not in found:
                    found.append(holder)
                new = [below for below in self.waiting_below(holder) if below not in seen]
                seen.update(new)
                stack += new
        return found

    def blockers(self, ticket: Ticket) -> list[Ticket]:
        return [
            other
            for other in self.obstacles(ticket)
            if other.granted or not self._passes(ticket, other)
        ]

    def _passes(self, ticket: Ticket, waiter: Ticket) -> bool:
        """Whether the waiter waits in vain, or for an ancestor of the ticket."""
        return bool(self.lost_before(waiter)) or any(
            ticket.below(other) for other in self._awaited(waiter, ticket)
        )

    def _awaited(self, waiter: Ticket, but: Ticket) -> Iterator[Ticket]:
        """All that the waiter waits for, directly or not, but the ticket that asks."""
        seen, stack = {waiter, but}, [waiter]
        while stack:
            ticket = stack.pop()
            if ticket.granted:
                then = self.waiting_below(ticket)
            else:
                then = [o for o in self.obstacles(ticket) if o.granted or not self.lost_before(o)]
            for other in then:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
                    yield other

    def grant(self) -> bool:
        """Grant the first that nothing stands before."""
        free = next((ticket for ticket in self.waiting if not self.blockers(ticket)), None)
        if free is not None:
            free.granted = True
        return free is not None

    def victim(self) -> Ticket | None:
        """Of a cycle in which everybody holds something, the one that came last."""
        reach = {ticket: self._held_against(ticket) for ticket in self.waiting}
        for ticket in reach:
            if ticket in reach[ticket]:
                cycle = [other for other in reach[ticket] if ticket in reach[other]]
                return max(cycle, key=lambda t: (t.owner[0], self.tickets.index(t)))
        return None

    def _held_against(self, ticket: Ticket) -> set[Ticket]:
        """The waiting tickets below whoever holds what this one waits for, and so on."""
        found: set[Ticket] = set()
        stack = [ticket]
        while stack:
            for holder in self.holders(stack.pop()):
                new = [below for below in self.waiting_below(holder) if below not in found]
                found.update(new)
                stack += new
        return found
