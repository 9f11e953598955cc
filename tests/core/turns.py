"""Random claims, and a driver that walks pure machines through random interleavings."""

import json
import random
from dataclasses import dataclass, field

from hypothesis import strategies as st

from dispatch.call import FailureKind, Status
from dispatch.claims import READ, WRITE, Claim, combine, conflict
from dispatch.core.life import CallState, Do, TurnState
from dispatch.core.limits import SlotMachine
from dispatch.core.schedules import Schedule
from dispatch.core.table import Granted, TableMachine
from dispatch.core.turn import TurnMachine

MODES = (READ, WRITE, "append", "increment")
NEED = SlotMachine.need("plain", ())

keys = st.lists(st.sampled_from("ab"), max_size=3).map(tuple) | st.just(("tool", "a"))
claims = st.builds(Claim, keys, st.sampled_from(MODES))
claim_sets = st.lists(claims, max_size=3).map(combine)
turns = st.lists(claim_sets, max_size=12)


def random_claims(rng: random.Random) -> tuple[Claim, ...]:
    """At most two claims over a handful of overlapping keys."""
    return combine(
        Claim(tuple(rng.choice("ab") for _ in range(rng.randint(0, 2))), rng.choice(MODES))
        for _ in range(rng.randint(0, 2))
    )


CallKey = tuple[int, int]
"""Number of the turn, position of the call."""


@dataclass
class World:
    """Some turns on one table and one set of limits, driven synchronously."""

    rng: random.Random
    turns: list[TurnMachine]
    limits: SlotMachine
    table: TableMachine = field(default_factory=TableMachine)
    tickets: dict[CallKey, int] = field(default_factory=dict)
    requests: dict[CallKey, int] = field(default_factory=dict)
    alive: set[CallKey] = field(default_factory=set)
    ended: list[CallKey] = field(default_factory=list)
    started: list[CallKey] = field(default_factory=list)
    held_up: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def claims(self, key: CallKey) -> tuple[Claim, ...]:
        return self.turns[key[0]].graph.claims[key[1]]

    def settle(self) -> None:
        """Carry out actions until there are none, then check every book."""
        progress = True
        while progress:
            progress = False
            for number, turn in enumerate(self.turns):
                actions, turn.actions = turn.actions, []
                for do, position in actions:
                    progress = True
                    self._carry_out((number, position), do)
                    self._tell()
            while (request := self.limits.take(0.0)) is not None:
                progress = True
                self._start(next(key for key, r in self.requests.items() if r == request))
        for turn in self.turns:
            turn.validate()
        self.table.validate()
        self.limits.validate()

    def reload(self) -> None:
        """Send every machine through JSON."""
        for number, turn in enumerate(self.turns):
            self.turns[number] = TurnMachine.load(json.loads(json.dumps(turn.dump())))
            assert turn.dump() == self.turns[number].dump()
        table = TableMachine.load(json.loads(json.dumps(self.table.dump())))
        assert self.table.dump() == table.dump()
        limits = SlotMachine.load(json.loads(json.dumps(self.limits.dump())))
        assert self.limits.dump() == limits.dump()
        self.table, self.limits = table, limits

    def _carry_out(self, key: CallKey, do: Do) -> None:
        turn, position = self.turns[key[0]], key[1]
        if do is Do.ENTER:
            ticket = self.table.enter(self.table.open(), self.claims(key))
            self.tickets[key] = ticket.number
            (turn.granted if ticket.granted else turn.blocked)(position)
        elif do is Do.REQUEST:
            self.requests[key] = self.limits.request(key[0], NEED, turn.chain(position))
        elif do is Do.PREFER and key in self.requests:
            self.limits.prefer(self.requests[key], turn.chain(position))
        elif do in (Do.WITHDRAW, Do.FREE) and key in self.requests:
            request = self.requests.pop(key)
            waiting = self.limits.waiting(request)
            (self.limits.withdraw if waiting else self.limits.release)(request)
        elif do is Do.SETTLE and key in self.tickets:
            self.table.leave(self.tickets.pop(key))
        elif do is Do.END:
            self.ended.append(key)
            if turn.calls[position].alive and key in self.tickets:
                self.held_up += self.table.abandon(self.tickets[key])

    def _tell(self) -> None:
        news, self.table.news = self.table.news, []
        for item in news:
            assert isinstance(item, Granted)
            number, position = next(k for k, t in self.tickets.items() if t == item.ticket)
            self.turns[number].granted(position)

    def _start(self, key: CallKey) -> None:
        turn = self.turns[key[0]]
        for other in self.alive:
            if conflict(self.claims(key), self.claims(other)):
                self.faults.append(f"{key} overlaps {other}")
        for earlier in range(key[1]):
            settled = turn.calls[earlier].state is CallState.SETTLED
            if not settled and conflict(self.claims(key), self.claims((key[0], earlier))):
                self.faults.append(f"{key} starts before {earlier} has settled")
        self.alive.add(key)
        self.started.append(key)
        turn.started(key[1], heeds_token=self.rng.random() < 0.5)


def walk(seed: int, *, steps: int = 400, reload: float = 0.2) -> World:
    """Walk random turns to their end through a random interleaving of every kind of event."""
    rng = random.Random(seed)
    machines = [TurnMachine(rng.choice(list(Schedule))) for _ in range(rng.randint(1, 3))]
    world = World(rng, machines, SlotMachine(rng.randint(1, 3)))
    to_come = [rng.randint(0, 5) for _ in machines]
    for _ in range(steps):
        choices = _choices(world, to_come)
        if not choices:
            break
        kind, number, position = rng.choice(choices)
        _do(world, to_come, kind, number, position)
        world.settle()
        if rng.random() < reload:
            world.reload()
    return world


def _choices(world: World, to_come: list[int]) -> list[tuple[str, int, int]]:
    choices = []
    for number, turn in enumerate(world.turns):
        if turn.state is TurnState.OPEN:
            choices.append(("submit" if to_come[number] else "close", number, -1))
        for call in turn.calls:
            if (number, call.position) in world.alive:
                choices.append(("return", number, call.position))
            if call.state is CallState.STOPPING:
                choices.append(("grace", number, call.position))
            if world.tickets.get((number, call.position)) in world.held_up:
                choices.append(("skip", number, call.position))
            if call.status is None and world.rng.random() < 0.1:
                choices.append(("stop", number, call.position))
        if world.rng.random() < 0.03:
            choices.append(("stop all", number, -1))
    return choices


def _do(world: World, to_come: list[int], kind: str, number: int, position: int) -> None:
    turn, rng = world.turns[number], world.rng
    if kind == "submit":
        to_come[number] -= 1
        refused = FailureKind.UNKNOWN_TOOL if rng.random() < 0.1 else None
        turn.submit(random_claims(rng), refused)
    elif kind == "close":
        turn.close()
    elif kind == "return":
        world.alive.discard((number, position))
        turn.returned(position, Status.OK)
    elif kind == "grace":
        turn.grace_over(position)
    elif kind == "skip":
        turn.skip(position)
    elif kind == "stop":
        turn.stop(position, rng.choice([Status.CANCELLED, Status.TIMED_OUT]))
    else:
        turn.stop_all(Status.CANCELLED)
