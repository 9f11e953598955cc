"""Random events for the real machines and for the reference, and the comparison of the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from dispatch.call import FailureKind, Status
from dispatch.claims import READ, WRITE, Claim, combine
from dispatch.core.life import TURN, CallState
from tests.core.driven import Driven
from tests.core.reference import Call, Reference, Turn

Path = tuple[int, ...]
Event = tuple[str, Path]

TURNS, CALLS, DEPTH = 5, 4, 3
KEYS = (("a",), ("a", "x"), ("a", "y"), ("b",), ("c",), ())
ONE = [(Claim(key, mode),) for key, mode in product(KEYS, (WRITE, READ, "append"))]
TWO = [combine((*a, *b)) for a in ONE[:12] for b in ONE[3:15]]
CLAIMS = [(), *ONE, *ONE, *TWO]

WEIGHTS = {
    "open": 2,
    "nest": 6,
    "submit": 12,
    "close": 5,
    "ok": 6,
    "error": 1,
    "cancel": 1,
    "time out": 1,
    "stop all": 1,
    "grace over": 4,
    "undone": 4,
    "wait over": 2,
}


class Pair:
    """The machines and the reference, told the same."""

    def __init__(self) -> None:
        self.driven = Driven()
        self.reference = Reference()
        self.steps = 0

    @property
    def over(self) -> bool:
        return not self.reference.turns

    def events(self) -> Iterator[Event]:
        """Everything that may happen now."""
        if len(self.reference.turns) < TURNS:
            yield "open", ()
        for turn in self.reference.turns:
            yield from self._events_of_turn(turn)
            for call in turn.calls:
                yield from self._events_of_call(call)
        for ticket in self.reference.table.waiting:
            if self.reference.table.lost_before(ticket):
                yield "wait over", ticket.owner

    def _events_of_turn(self, turn: Turn) -> Iterator[Event]:
        if not turn.closed:
            yield "close", turn.owner
            if len(turn.calls) < CALLS:
                yield "submit", turn.owner
        if turn.to_undo:
            yield "undone", turn.owner
        if turn.open_calls:
            yield "stop all", turn.owner

    def _events_of_call(self, call: Call) -> Iterator[Event]:
        if call.alive:
            yield "ok", call.owner
            yield "error", call.owner
        if call.result is None and call.asked is None:
            yield "cancel", call.owner
            yield "time out", call.owner
        if call.state is CallState.STOPPING:
            yield "grace over", call.owner
        elif call.alive and call.result is None and self._may_nest(call):
            yield "nest", call.owner

    def _may_nest(self, call: Call) -> bool:
        return len(self.reference.turns) < TURNS and len(call.owner) < 2 * DEPTH

    def step(self, kind: int, target: int, first: int, second: int) -> None:
        """One event, chosen by numbers: of the kinds that are possible by weight."""
        by_kind: dict[str, list[Path]] = {}
        for name, path in self.events():
            by_kind.setdefault(name, []).append(path)
        names = [name for name, weight in WEIGHTS.items() if name in by_kind for _ in range(weight)]
        name = names[kind % len(names)]
        self.happen(name, by_kind[name][target % len(by_kind[name])], first, second)

    def finish(self) -> None:
        """Let everything come to its end."""
        order = ("close", "ok", "undone")
        while not self.over:
            events = [event for event in self.events() if event[0] in order]
            assert events, "stuck"
            self.happen(*min(events, key=lambda event: order.index(event[0])), 0, 0)

    def happen(self, name: str, path: Path, first: int, second: int) -> None:
        """Tell both of one event, and compare them."""
        driven, reference = self.driven, self.reference
        turn, position = path[:-1], path[-1] if path else TURN
        if name in ("open", "nest"):
            atomic, whole = bool(first & 1), bool(first & 2)
            reference.open(path or None, atomic=atomic, whole=atomic and whole)
            driven.open(path or None, atomic=atomic, whole=whole)
        elif name == "submit":
            claims, heeds = CLAIMS[(first + 256 * second) % len(CLAIMS)], bool(second & 1)
            reference.submit(path, claims, heeds=heeds)
            driven.submit(path, claims, heeds=heeds)
        elif name == "close":
            reference.close(path)
            driven.tell(path, lambda machine: machine.close())
        elif name in ("ok", "error"):
            ok = name == "ok"
            said = (Status.OK, None) if ok else (Status.ERROR, FailureKind.TOOL_ERROR)
            reference.returned(path, ok=ok)
            driven.tell(turn, lambda machine: machine.returned(position, *said))
        elif name in ("cancel", "time out"):
            status = Status.CANCELLED if name == "cancel" else Status.TIMED_OUT
            reference.stop(path, status)
            driven.tell(turn, lambda machine: machine.stop(position, status))
        elif name == "stop all":
            reference.stop_all(path, Status.CANCELLED)
            driven.tell(path, lambda machine: machine.stop_all(Status.CANCELLED))
        elif name == "grace over":
            reference.grace_over(path)
            driven.tell(turn, lambda machine: machine.grace_over(position))
        elif name == "undone":
            failed = self._one_that_ran(path) if first & 1 else ()
            reference.undone(path, failed[0] if failed else None)
            driven.tell(path, lambda machine: machine.undone([p[-1] for p in failed]))
        else:
            reference.wait_over(path)
            driven.skip(path)
        self.steps += 1
        self.compare()

    def _one_that_ran(self, path: Path) -> tuple[Path, ...]:
        calls = self.reference.turn(path).calls
        return tuple(c.owner for c in calls if c.result == (Status.OK, None))[:1]

    def compare(self) -> None:
        """Both must tell the same of every call, every turn and every ticket."""
        self.driven.check()
        assert self._expected_turns() == self._actual_turns()
        assert self._expected_tickets() == self._actual_tickets()

    def _expected_turns(self) -> dict[Path, object]:
        return {
            turn.owner: (turn.decided, [(c.state, c.result) for c in turn.calls])
            for turn in self.reference.turns
        }

    def _actual_turns(self) -> dict[Path, object]:
        return {
            path: (
                turn.decided,
                [
                    (call.state, None if call.status is None else (call.status, call.kind))
                    for call in turn.machine.calls
                ],
            )
            for path, turn in self.driven.turns.items()
        }

    def _expected_tickets(self) -> Sequence[object]:
        """Who has or waits for what, what stands before it, and whether it waits in vain."""
        table = self.reference.table
        return sorted(
            (
                ticket.owner,
                sorted(ticket.claims),
                ticket.granted,
                [] if ticket.granted else sorted(b.owner for b in table.blockers(ticket)),
                not ticket.granted and bool(table.lost_before(ticket)),
            )
            for ticket in table.tickets
        )

    def _actual_tickets(self) -> Sequence[object]:
        table, paths = self.driven.table, self.driven.paths()
        return sorted(
            (
                paths[ticket.owner],
                sorted(ticket.claims),
                ticket.granted,
                sorted(paths[table.tickets[b].owner] for b in table.blockers(number)),
                bool(table.held_up_by(number)),
            )
            for number, ticket in table.tickets.items()
        )
