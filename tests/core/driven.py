"""A small synchronous driver: the real machines of turns on one table, told of events one by one.

Tools start as soon as the table grants their claims; there are no slots. Owners are named as in
the reference: by the path from the root turn down, so that the two can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from dispatch.claims import Claim
from dispatch.core.life import TURN, CallState, Do, TurnState
from dispatch.core.policy import AllOrNothing, Policy
from dispatch.core.table import Granted, TableMachine
from dispatch.core.turn import TurnMachine

Claims = tuple[Claim, ...]
Path = tuple[int, ...]


@dataclass(eq=False)
class DrivenTurn:
    """One machine; its tickets by position, and those that passed to the turn."""

    path: Path
    parent: tuple[DrivenTurn, int] | None
    machine: TurnMachine
    policies: dict[str, Policy]
    owner: int
    owners: dict[int, int] = field(default_factory=dict)
    tickets: dict[int, int] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)
    heeds: dict[int, bool] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        return self.machine.state in (TurnState.DECIDED, TurnState.GONE)

    @property
    def holds(self) -> bool:
        """Whether what is done in it may yet be undone."""
        return not self.decided and (self.machine.groups.atomic or self.machine.holding)

    def heir(self) -> DrivenTurn | None:
        """The nearest turn above that holds."""
        if self.parent is None:
            return None
        above = self.parent[0]
        return above if above.holds else above.heir()


class Machine(Protocol):
    """What can be sent through JSON."""

    def dump(self) -> dict[str, Any]: ...


M = TypeVar("M", bound=Machine)


def reloaded(machine: M, load: Callable[[Any], M]) -> M:
    """The same machine, sent through JSON."""
    state = machine.dump()
    again = load(json.loads(json.dumps(state)))
    assert state == again.dump()
    return again


class Driven:
    """All turns, and their table."""

    def __init__(self) -> None:
        self.table = TableMachine()
        self.turns: dict[Path, DrivenTurn] = {}
        self.opened = 0
        self.started: list[Path] = []
        self._checks = 0
        self._ready: list[tuple[DrivenTurn, int]] = []
        self._touched: dict[DrivenTurn, None] = {}

    # Events

    def open(
        self, parent: Path | None = None, *, atomic: bool = False, whole: bool = False
    ) -> Path:
        """A new turn, nested in the call at `parent` or at the top; returns its path."""
        self.opened += 1
        above = None if parent is None else (self.turns[parent[:-1]], parent[-1])
        policies: dict[str, Policy] = {"": AllOrNothing()} if atomic else {}
        turn_above = above and (above[0] if above[0].holds else above[0].heir())
        machine = TurnMachine(policies=policies, whole=whole, holding=bool(turn_above))
        owner = self.table.open(self._owner(*above) if above else 0)
        path = (*(parent or ()), self.opened)
        self.turns[path] = DrivenTurn(path, above, machine, policies, owner)
        if above is not None:
            self._touch(above[0]).suspended(above[1])
            self._touch(above[0]).nested(above[1], 1)
        self.settle()
        return path

    def submit(self, path: Path, claims: Claims, *, heeds: bool = False) -> None:
        turn = self.turns[path]
        turn.heeds[len(turn.machine.calls)] = heeds
        self.tell(path, lambda machine: machine.submit(claims))

    def tell(self, path: Path, event: Callable[[TurnMachine], object]) -> None:
        """An event of the turn at `path`, and all that it leads to."""
        event(self._touch(self.turns[path]))
        self.settle()

    def skip(self, path: Path) -> None:
        """End what waits with the ticket of this call, or of this turn."""
        turn = self.turns.get(path) or self.turns[path[:-1]]
        self._touch(turn).skip(TURN if path in self.turns else path[-1])
        self.settle()

    # What the machines ask for

    def settle(self) -> None:
        """Carry out all actions, then start who is ready; then end who waits in vain for its root.

        One thing at a time, and the actions that it leads to first; so slots come last, as they do
        from limits that are asked once nothing else is left to do.
        """
        while self._act() or self._start() or self._skip_relative():
            pass

    def check(self) -> None:
        """Check every book; after every third event send through JSON what was told something."""
        self.table.validate()
        for turn in self._touched:
            turn.machine.validate()
        self._checks += 1
        if self._checks % 3:
            return
        self.table = reloaded(self.table, TableMachine.load)
        for turn in self._touched:
            load = partial(TurnMachine.load, policies=turn.policies)
            turn.machine = reloaded(turn.machine, load)
        self._touched = {}

    def _touch(self, turn: DrivenTurn) -> TurnMachine:
        self._touched[turn] = None
        return turn.machine

    def paths(self) -> dict[int, Path]:
        """The owners of the table as paths."""
        found = {turn.owner: path for path, turn in self.turns.items()}
        for path, turn in self.turns.items():
            found |= {owner: (*path, position) for position, owner in turn.owners.items()}
        return found

    def _act(self) -> bool:
        for turn in list(self.turns.values()):
            if turn.machine.actions:
                do, position = self._touch(turn).actions.pop(0)
                self._carry_out(turn, do, position)
                self._tell_news()
                return True
        return False

    def _start(self) -> bool:
        """Give the slots to the next that asked, if it has not ended or waits again meanwhile."""
        while self._ready:
            turn, position = self._ready.pop(0)
            call = turn.machine.calls[position]
            if call.state is CallState.READY:
                if not call.alive:
                    self.started.append((*turn.path, position))
                self._touch(turn).started(position, heeds_token=turn.heeds[position])
                return True
        return False

    def _carry_out(self, turn: DrivenTurn, do: Do, position: int) -> None:
        machine, table = turn.machine, self.table
        ticket = turn.tickets.get(position, 0)
        if do is Do.ENTER:
            self._enter(turn, position)
        elif do is Do.REQUEST:
            self._ready.append((turn, position))
        elif do is Do.END and machine.calls[position].alive and ticket:
            table.abandon(ticket)
        elif do is Do.SETTLE or (do is Do.WITHDRAW and not machine.calls[position].alive):
            self._leave(turn.tickets.pop(position, 0))
        elif do is Do.HOLD and ticket:
            table.move(turn.tickets.pop(position), turn.owner)
            turn.held.append(ticket)
        elif do is Do.UNDO and ticket and not table.tickets[ticket].granted:
            self._leave(turn.tickets.pop(TURN))
        elif do is Do.DECIDE:
            self._decide(turn)
        elif do is Do.LEAVE:
            self._forget(turn)

    def _enter(self, turn: DrivenTurn, position: int) -> None:
        machine = turn.machine
        if position == TURN:
            ticket = self.table.enter(turn.owner, machine.ticket_claims)
        else:
            owner = self._owner(turn, position)
            ticket = self.table.enter(owner, machine.calls[position].claims)
        turn.tickets[position] = ticket.number
        (machine.granted if ticket.granted else machine.blocked)(position)

    def _owner(self, turn: DrivenTurn, position: int) -> int:
        if position not in turn.owners:
            turn.owners[position] = self.table.open(turn.owner)
        return turn.owners[position]

    def _leave(self, ticket: int) -> None:
        if ticket in self.table.tickets:
            self.table.leave(ticket)

    def _decide(self, turn: DrivenTurn) -> None:
        heir = turn.heir()
        held, turn.held = [*turn.held, turn.tickets.pop(TURN, 0)], []
        for ticket in held:
            if heir is not None and ticket and self.table.tickets[ticket].granted:
                self.table.move(ticket, heir.owner)
                heir.held.append(ticket)
            else:
                self._leave(ticket)
        if turn.parent is not None:
            self._touch(turn.parent[0]).woken(turn.parent[1])

    def _forget(self, turn: DrivenTurn) -> None:
        del self.turns[turn.path]
        for owner in (*turn.owners.values(), turn.owner):
            self.table.close(owner)
        if turn.parent is not None:
            self._touch(turn.parent[0]).nested(turn.parent[1], -1)

    def _tell_news(self) -> None:
        news, self.table.news = self.table.news, []
        for item in news:
            for turn in list(self.turns.values()):
                for position, ticket in list(turn.tickets.items()):
                    if ticket == item.ticket and isinstance(item, Granted):
                        self._touch(turn).granted(position)
                    elif ticket == item.ticket:
                        del turn.tickets[position]
                        self._touch(turn).deadlocked(position)

    def _skip_relative(self) -> bool:
        """End the first that waits for a given up call of its own root turn, if any does."""
        for ticket in self.table.waiting():
            holder = self.table.held_up_by(ticket)
            if holder and self.table.same_root(holder, ticket):
                path = self.paths()[self.table.tickets[ticket].owner]
                turn = self.turns.get(path) or self.turns[path[:-1]]
                self._touch(turn).skip(TURN if path in self.turns else path[-1])
                return True
        return False
