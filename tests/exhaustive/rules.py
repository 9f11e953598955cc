"""What must hold after every event, recomputed pairwise from what the driver saw.

The rules look at which tools are alive, which tickets are granted, and how often each call ended,
and compare that with what the machines say. The machines' own books are looked at by `explore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dispatch.call import STATUS_KINDS, FailureKind, Status
from dispatch.core.groups import REST
from dispatch.core.life import CallRecord, CallState, TicketState, TurnState
from dispatch.core.policy import AllOrNothing, Quorum
from tests.exhaustive.queue import Seat
from tests.exhaustive.world import TAKEN, WANTED, World

Rule = Callable[[World], Iterator[str]]


def broken(world: World) -> list[str]:
    """Everything that is wrong in this state, the last event included."""
    faults = list(world.faults)
    for rule in RULES:
        faults += rule(world)
    return faults


def left_behind(world: World) -> list[str]:
    """What is wrong with a state in which nothing has to happen any more."""
    faults = [
        f"turn {number} is {machine.state} for ever"
        for number, machine in enumerate(world.turns)
        if machine is not None and machine.state is not TurnState.GONE
    ]
    if world.table.tickets or world.table.dump()["parents"]:
        faults.append(f"left in the table: {world.table.dump()}")
    if world.limits is not None and (world.limits.holders or world.limits.queue):
        faults.append(f"left in the limits: {world.limits.dump()}")
    return faults


def record(world: World, call: int) -> CallRecord:
    """What the machine knows of the call."""
    return world.machine(world.setup.turn_of[call]).calls[world.position(call)]


def _one_ending_each(world: World) -> Iterator[str]:
    for call in world.submitted():
        known = record(world, call)
        if world.calls[call].ended != int(known.status is not None):
            yield f"call {call} ended {world.calls[call].ended} times and is {known.state}"
        if known.status is not None:
            kinds = STATUS_KINDS[known.status]
            if known.kind not in (kinds or {None}):
                yield f"call {call} ended {known.status} as {known.kind}"


def _no_overlap(world: World) -> Iterator[str]:
    alive = [call for call, track in enumerate(world.calls) if track.alive]
    for at, first in enumerate(alive):
        for second in alive[at + 1 :]:
            if (first, second) in world.setup.conflicts and not _related(world, first, second):
                yield f"calls {first} and {second} run side by side"


def _whoever_runs_holds_its_claims(world: World) -> Iterator[str]:
    granted = {world.seats[n] for n, ticket in world.table.tickets.items() if ticket.granted}
    for call, track in enumerate(world.calls):
        if (track.alive or track.slot == WANTED) and world.setup.claims[call]:
            if call not in granted:
                yield f"call {call} goes on without its claims"
            for other in granted - {call}:
                if (call, other) in world.setup.conflicts and not _covered(world, call, other):
                    yield f"call {call} goes on beside what {other} holds"


def _in_order(world: World) -> Iterator[str]:
    before = world.before()
    settled = _settled(world, before)
    for call in world.submitted():
        known, track = record(world, call), world.calls[call]
        machine = world.machine(world.setup.turn_of[call])
        waits = [other for other in before[call] if not settled[other]]
        if (track.alive or track.slot or track.ticket) and waits:
            yield f"call {call} is {known.state} before {waits} have settled"
        barred = machine.schedule.needs_whole_turn and machine.state is TurnState.OPEN
        if settled[call] and not barred and known.state is not CallState.SETTLED:
            yield f"call {call} has settled, but is {known.state}"
        if known.state is CallState.SETTLED and not settled[call]:
            yield f"call {call} is {known.state} before it has settled"
        barred |= machine.ticket not in (TicketState.NONE, TicketState.GRANTED)
        if known.state is CallState.PLANNED and not waits and not barred:
            yield f"call {call} is planned and waits for nothing"


def _nobody_waits_in_vain(world: World) -> Iterator[str]:
    before = world.before()
    for call in world.submitted():
        given_up = [other for other in _all_before(before, call) if world.calls[other].given_up]
        if record(world, call).status is None and given_up:
            yield f"call {call} waits for {given_up}, which may never end"


def _queued_for_a_reason(world: World) -> Iterator[str]:
    waiting = list(world.table.waiting())
    for call in world.submitted():
        if record(world, call).state is CallState.QUEUED:
            ticket = world.calls[call].ticket
            told = any(ticket == item[0] for mail in world.mail for item in mail)
            if ticket not in waiting and not told:
                yield f"call {call} is queued without a ticket that waits"
    if not waiting:
        return
    queue = world.queue()
    for seat in queue.waiting:
        if not queue.blockers(seat):
            yield f"ticket {seat.number} of {seat.who} waits for nothing"
        if queue.cycle(seat) and seat in queue.cycle(seat):
            yield f"ticket {seat.number} of {seat.who} is in a deadlock"
    known = {number for number in waiting if world.table.held_up_by(number)}
    if known != queue.in_vain:
        yield f"tickets {queue.in_vain} wait in vain, the table says {known}"
    yield from _not_by_their_own(world, queue.waiting, queue.in_vain)


def _not_by_their_own(world: World, waiting: list[Seat], in_vain: set[int]) -> Iterator[str]:
    for seat in waiting:
        if seat.number in in_vain and seat.who >= 0:
            root = world.setup.roots[world.setup.turn_of[seat.who]]
            if seat.number in world.queue(giver=root).in_vain:
                yield f"call {seat.who} waits for a call of its own turn that was given up"


def _within_the_limits(world: World) -> Iterator[str]:
    running = sum(track.slot == TAKEN for track in world.calls)
    ready = sum(track.slot == WANTED for track in world.calls)
    total = world.setup.total
    if total and running > total:
        yield f"{running} calls run, and {total} may"
    if total and ready and running < total:
        yield f"{ready} calls are ready and {total - running} slots free"
    for call in world.submitted():
        known, slot = record(world, call), world.calls[call].slot
        holds = known.state in (CallState.RUNNING, CallState.STOPPING)
        if slot == TAKEN and not holds:
            yield f"call {call} is {known.state} and has a slot"
        if (slot == WANTED) != (known.state is CallState.READY):
            yield f"call {call} is {known.state}, its slot {slot}"


def _policies_hold(world: World) -> Iterator[str]:
    for number, machine in enumerate(world.turns):
        if machine is None or machine.state not in (TurnState.DECIDED, TurnState.GONE):
            continue
        statuses = [call.status for call in machine.calls]
        succeeded = statuses.count(Status.OK)
        policy = machine.groups[REST].policy
        satisfied = {
            AllOrNothing: succeeded == len(statuses),
            Quorum: succeeded >= getattr(policy, "required", 0),
        }.get(type(policy), True)
        if machine.verdict.satisfied != satisfied:
            yield f"turn {number} is decided as {machine.verdict} with {statuses}"
        if isinstance(policy, AllOrNothing) and succeeded and not satisfied:
            yield f"turn {number} did only a part: {statuses}"


def _skips_name_a_failure(world: World) -> Iterator[str]:
    for call in world.submitted():
        known = record(world, call)
        machine = world.machine(world.setup.turn_of[call])
        if known.status is Status.SKIPPED and known.cause is not None:
            cause = machine.calls[known.cause]
            between = cause.status is Status.SKIPPED and cause.cause is not None
            if between or cause.status in (None, Status.OK):
                yield f"call {call} was skipped because of {known.cause}, which is {cause.status}"
            if known.kind is FailureKind.ABANDONED and cause.kind is not FailureKind.ABANDONED:
                yield f"call {call} was skipped as abandoned because of {known.cause}"


def _settled(world: World, waits: Sequence[frozenset[int]]) -> dict[int, bool]:
    """Per call: ended, its tool and all nested in it stopped, and its predecessors settled."""
    known: dict[int, bool] = {}
    setup, here = world.setup, set(world.submitted())

    def settled(call: int) -> bool:
        if call not in known:
            track, nested = world.calls[call], setup.nested_in.get(call)
            still = bool(track.ended) and not track.alive
            inner = None if nested is None else world.turns[nested]
            gone = inner is None or inner.state is TurnState.GONE
            before = waits[call] & here
            known[call] = still and gone and all(settled(other) for other in before)
        return known[call]

    return {call: call in here and settled(call) for call in range(len(setup.claims))}


def _all_before(before: Sequence[frozenset[int]], call: int) -> set[int]:
    found: set[int] = set()
    stack = [call]
    while stack:
        new = before[stack.pop()] - found
        found |= new
        stack += new
    return found


def _above(world: World, who: int) -> set[int]:
    """The call or turn itself, and all calls and turns that it is nested in."""
    setup = world.setup
    found = {who}
    while True:
        turn = ~who if who < 0 else setup.turn_of[who]
        found.add(~turn)
        who = setup.turns[turn].parent
        if who < 0:
            return found
        found.add(who)


def _related(world: World, first: int, second: int) -> bool:
    return first in _above(world, second) or second in _above(world, first)


def _covered(world: World, call: int, other: int) -> bool:
    """Whether what `other` holds does not count: an ancestor's, a nested call's, or the turn's."""
    held_by_turn = other >= 0 and not world.calls[other].ticket
    holder = ~world.setup.turn_of[other] if held_by_turn else other
    return _related(world, call, holder)


RULES: tuple[Rule, ...] = (
    _one_ending_each,
    _no_overlap,
    _whoever_runs_holds_its_claims,
    _in_order,
    _nobody_waits_in_vain,
    _queued_for_a_reason,
    _within_the_limits,
    _policies_hold,
    _skips_name_a_failure,
)
