"""What can happen next. Pure.

Unless a setup is explored in full, endings that nothing looks at are *folded*: a time-out into a
cancel, "missed" into a late return, the token's grace into that of the task, and a failure into a
success where no policy and no dependent looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dispatch.core.life import CallRecord, CallState, TurnState
from tests.exhaustive.driver import Event
from tests.exhaustive.setups import Detail, Setup
from tests.exhaustive.world import WANTED, World

OPTIONAL = frozenset({"cancel", "time out", "give up", "cancel turn"})
"""What need not ever happen: no state may depend on it to get on."""


def possible(world: World) -> Iterator[Event]:
    """Every event that can happen now, in a fixed order."""
    for number, machine in enumerate(world.turns):
        if machine is not None:
            yield from _of_turn(world, number)
    for call in world.submitted():
        turn = world.setup.turn_of[call]
        record = world.machine(turn).calls[world.position(call)]
        folded = _folded(world.setup, turn)
        for kind in (*_on_its_own(world, call, record), *_from_outside(world, call, record)):
            if kind not in folded:
                yield kind, call


def _folded(setup: Setup, turn: int) -> tuple[str, ...]:
    if setup.detail is Detail.FULL:
        return ()
    return ("fail", "time out") if setup.turns[turn].is_plain else ("time out",)


def _of_turn(world: World, number: int) -> Iterator[Event]:
    machine = world.machine(number)
    if machine.state is TurnState.OPEN:
        complete = len(machine.calls) == len(world.setup.turns[number].calls)
        submit = "submit all" if world.setup.at_once else "submit"
        yield ("close" if complete else submit), number
    if world.mail[number]:
        yield "tell", number
    if world.undoing[number]:
        yield "undone", number
        yield "undone in doubt", number
    over = machine.state in (TurnState.DECIDED, TurnState.GONE)
    if world.setup.detail is not Detail.BRIEF and machine.stopped is None and not over:
        yield "cancel turn", number


def _on_its_own(world: World, call: int, record: CallRecord) -> Iterator[str]:
    """What a call's tool and its slots can do."""
    track = world.calls[call]
    if track.slot == WANTED and world.limits is None:
        yield "start"
    if record.state is CallState.RUNNING:
        yield "finish"
        yield "fail"
        nested = world.setup.nested_in.get(call)
        if nested is not None and world.turns[nested] is None:
            yield "nest"
    elif track.alive and record.state in (CallState.STOPPING, CallState.ENDED):
        yield "finish"
        if record.state is CallState.STOPPING and world.setup.detail is Detail.FULL:
            yield "miss"


def _from_outside(world: World, call: int, record: CallRecord) -> Iterator[str]:
    """What can be done to a call that has not ended."""
    if record.state is CallState.STOPPING:
        yield "grace over"
    elif record.status is None:
        brief = world.setup.detail is Detail.BRIEF and call not in world.setup.nested_in
        if brief and record.alive:
            yield "give up"
        else:
            yield "cancel"
            yield "time out"
    if record.state is CallState.QUEUED and _is_held_up(world, call):
        yield "skip"


def _is_held_up(world: World, call: int) -> bool:
    """Whether it waits for a call that was given up, of another root turn: only so long."""
    holder = world.table.held_up_by(world.calls[call].ticket)
    if not holder:
        return False
    turn_of, roots = world.setup.turn_of, world.setup.roots
    return roots[turn_of[world.seats[holder]]] != roots[turn_of[call]]
