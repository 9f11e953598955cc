"""The state of a few turns on one table: the pure machines, and what a runtime has to remember.

Owners, tickets, slots, which tools are alive, news on its way. All of it is JSON. Changed by
`driver` only.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from dispatch.core.groups import REST
from dispatch.core.limits import SlotMachine
from dispatch.core.table import TableMachine
from dispatch.core.turn import TurnMachine
from tests.exhaustive.queue import Queue, Seat
from tests.exhaustive.setups import Setup

NO_SLOT, WANTED, TAKEN = 0, 1, 2


class Track:
    """What a runtime knows of one call; `ended` counts its endings. 0 is "none" and "no"."""

    __slots__ = ("alive", "ended", "given_up", "late", "owner", "request", "slot", "ticket")

    def __init__(self, state: Collection[int] = (0,) * 8) -> None:
        (
            self.owner,
            self.ticket,
            self.alive,
            self.given_up,
            self.ended,
            self.slot,
            self.late,
            self.request,
        ) = state

    def dump(self) -> list[int]:
        """The state, as `Track(state)` takes it."""
        return [
            self.owner,
            self.ticket,
            self.alive,
            self.given_up,
            self.ended,
            self.slot,
            self.late,
            self.request,
        ]


class World:
    """See the module. `faults` is what went wrong in the last event."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.table = TableMachine()
        self.limits = SlotMachine(setup.total) if setup.total else None
        self.turns: list[TurnMachine | None] = [None for _ in setup.turns]
        self.turn_owners = [0 for _ in setup.turns]
        self.calls = [Track() for _ in setup.claims]
        self.parents: dict[int, int] = {}
        """The owner above each owner."""
        self.seats: dict[int, int] = {}
        """Whose ticket it is, by number."""
        self.mail: list[list[list[int]]] = [[] for _ in setup.turns]
        """Per turn: tickets it has to be told about, and whether they were granted (or failed)."""
        self.undoing = [False for _ in setup.turns]
        self.faults: list[str] = []
        self._before: dict[frozenset[int], Sequence[frozenset[int]]] = {}

    def dump(self, part: int) -> Any:
        """One part of the state as JSON types: 0 is what a runtime knows, then the `machines`."""
        if part:
            machine = self.machines[part - 1]
            return None if machine is None else machine.dump()
        return {
            "owners": self.turn_owners,
            "calls": [call.dump() for call in self.calls],
            "parents": list(self.parents.items()),
            "seats": list(self.seats.items()),
            "mail": self.mail,
            "undoing": self.undoing,
        }

    @property
    def machines(self) -> list[TableMachine | SlotMachine | TurnMachine | None]:
        """The table, the limits if there are any, and the turns that have begun."""
        return [self.table, self.limits, *self.turns]

    def load(self, part: int, text: str) -> None:
        """Take one part of the state from the JSON text of what `dump` described."""
        state = json.loads(text)
        if part == 0:
            self._load_own(state)
        elif part == 1:
            self.put(part, TableMachine.load(state))
        elif part == 2:
            self.put(part, state and SlotMachine.load(state))
        else:
            policies = {REST: self.setup.turns[part - 3].policy}
            self.put(part, state and TurnMachine.load(state, policies))

    def put(self, part: int, machine: Any) -> None:
        """Take this machine, or None, as that part of the state."""
        if part == 1:
            self.table = machine
        elif part == 2:
            self.limits = machine
        else:
            self.turns[part - 3] = machine

    def _load_own(self, state: dict[str, Any]) -> None:
        self.turn_owners = state["owners"]
        self.calls = [Track(call) for call in state["calls"]]
        self.parents = dict(state["parents"])
        self.seats = dict(state["seats"])
        self.mail, self.undoing = state["mail"], state["undoing"]

    def machine(self, turn: int) -> TurnMachine:
        """The machine of a turn that has begun."""
        machine = self.turns[turn]
        assert machine is not None
        return machine

    def position(self, call: int) -> int:
        """The position of the call in its turn."""
        return call - self.setup.first[self.setup.turn_of[call]]

    def submitted(self) -> Iterator[int]:
        """The calls that are there by now."""
        for first, machine in zip(self.setup.first, self.turns, strict=False):
            if machine is not None:
                yield from range(first, first + len(machine.calls))

    def before(self) -> Sequence[frozenset[int]]:
        """Per call: the calls of its turn that must be settled first, once they are there."""
        late = frozenset(call for call, track in enumerate(self.calls) if track.late)
        if late not in self._before:
            self._before[late] = self.setup.before(late)
        return self._before[late]

    def queue(self, waiting: Collection[Seat] = (), *, giver: int = -1) -> Queue:
        """All tickets as if these still waited; only the calls of root turn `giver` given up.

        Those of every turn, if it is -1.
        """
        numbers = {seat.number for seat in waiting}
        setup = self.setup
        seats = [
            Seat(number, ticket.owner, self.seats[number], ticket.granted)
            for number, ticket in self.table.tickets.items()
            if number not in numbers
        ]
        given_up = [
            call
            for call, track in enumerate(self.calls)
            if track.given_up and giver in (-1, setup.roots[setup.turn_of[call]])
        ]
        return Queue([*seats, *waiting], self.parents, setup.conflicts, frozenset(given_up))

    def new_owner(self, parent: int) -> int:
        """Open an owner in the table, and remember what is above it."""
        owner = self.table.open(parent)
        self.parents[owner] = parent
        return owner

    def close_owner(self, owner: int) -> None:
        """Close it again."""
        self.table.close(owner)
        del self.parents[owner]
