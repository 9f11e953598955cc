"""Who must wait for whom in the table, pairwise and from scratch; written from the design.

A ticket waits for conflicting granted tickets and for conflicting earlier waiting ones, its
owner's ancestors aside. It passes a waiter that waits, directly or not, for one of its ancestors
or for an abandoned call. A deadlock is a cycle of waiting tickets each of which waits for something
granted whose owner has the next one below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Seat(NamedTuple):
    """A ticket as it stands. `who` is the number of its call, or of its turn (~turn)."""

    number: int
    owner: int
    who: int
    granted: bool


class Queue:
    """All tickets of one table at one moment."""

    def __init__(
        self,
        seats: Iterable[Seat],
        parents: Mapping[int, int],
        conflicts: frozenset[tuple[int, int]],
        abandoned: frozenset[int],
    ) -> None:
        self.seats = sorted(seats)
        self.waiting = [seat for seat in self.seats if not seat.granted]
        self._parents = parents
        self._conflicts = conflicts
        self._abandoned = abandoned
        """Numbers of the calls that were given up and have not ended."""
        self.in_vain = self._find_in_vain()

    def above(self, owner: int) -> set[int]:
        """The owner and all its ancestors."""
        found = set()
        while owner:
            found.add(owner)
            owner = self._parents.get(owner, 0)
        return found

    def conflicting(self, seat: Seat) -> list[Seat]:
        """The tickets that are in this one's way if they come first, ancestors aside."""
        above = self.above(seat.owner)
        return [
            other
            for other in self.seats
            if (seat.who, other.who) in self._conflicts and other.owner not in above
        ]

    def holders(self, seat: Seat) -> list[Seat]:
        """The granted ones among them."""
        return [other for other in self.conflicting(seat) if other.granted]

    def ahead(self, seat: Seat) -> list[Seat]:
        """All that this ticket waits for by the plain rule, first come first served."""
        return [o for o in self.conflicting(seat) if o.granted or o.number < seat.number]

    def blockers(self, seat: Seat) -> list[Seat]:
        """All that this ticket really must wait for."""
        above = self.above(seat.owner)
        return [
            other
            for other in self.ahead(seat)
            if other.granted or not (other.number in self.in_vain or self._waits_for(other, above))
        ]

    def is_in_deadlock(self, seat: Seat) -> bool:
        """Whether this waiting ticket is on a cycle in which every party holds something."""
        return seat in self.cycle(seat)

    def cycle(self, seat: Seat) -> list[Seat]:
        """All waiting tickets that are on a cycle of holds together with this one."""
        onward = self._held_onward(seat)
        return [other for other in onward if seat in self._held_onward(other)]

    def root(self, seat: Seat) -> int:
        """The topmost owner above the ticket's."""
        return min(self.above(seat.owner))

    def _below(self, owner: int) -> list[Seat]:
        return [seat for seat in self.waiting if owner in self.above(seat.owner)]

    def _waits_for(self, seat: Seat, owners: set[int]) -> bool:
        seen: set[Seat] = set()
        stack = [seat]
        while stack:
            seat = stack.pop()
            if seat in seen:
                continue
            seen.add(seat)
            for other in self.ahead(seat):
                if other.owner in owners:
                    return True
                stack += self._below(other.owner) if other.granted else [other]
        return False

    def _held_onward(self, seat: Seat) -> list[Seat]:
        found: list[Seat] = []
        stack = [seat]
        while stack:
            for holder in self.holders(stack.pop()):
                new = [below for below in self._below(holder.owner) if below not in found]
                found += new
                stack += new
        return found

    def _find_in_vain(self) -> set[int]:
        if not self._abandoned:
            return set()
        found: set[int] = set()
        while True:
            more = {seat.number for seat in self.waiting if self._is_in_vain(seat, found)}
            if more == found:
                return found
            found = more

    def _is_in_vain(self, seat: Seat, known: set[int]) -> bool:
        return any(
            holder.who in self._abandoned
            or any(below.number in known for below in self._below(holder.owner))
            for holder in self.holders(seat)
        )


def fault_of_grant(queue: Queue, number: int) -> str | None:
    """What is wrong with granting this ticket, which still waits in `queue`."""
    seat = next(seat for seat in queue.seats if seat.number == number)
    blockers = [blocker.number for blocker in queue.blockers(seat)]
    return f"ticket {number} was granted before {blockers}" if blockers else None


def fault_of_victim(queue: Queue, number: int) -> str | None:
    """What is wrong with failing this ticket as a deadlock; it still waits in `queue`."""
    seat = next(seat for seat in queue.seats if seat.number == number)
    cycle = queue.cycle(seat)
    if seat not in cycle:
        return f"ticket {number} failed with a deadlock, and is on no cycle of holds"
    victim = max(cycle, key=lambda other: (queue.root(other), other.number))
    return None if victim == seat else f"ticket {number} failed in place of {victim.number}"
