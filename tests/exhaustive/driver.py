"""A driver without clock and loop: what can happen from outside, and what follows at once.

An event is one thing that the outside does, to a call or a turn. News from the table reaches its
turn as an event of its own, as it does between loops and threads, so a cancel may come first.
What follows from an event is carried out before `act` returns.
"""

from __future__ import annotations

from collections.abc import Callable

from dispatch.call import FailureKind, Status
from dispatch.core.groups import REST
from dispatch.core.life import TURN, Do
from dispatch.core.requests import Need
from dispatch.core.turn import TurnMachine
from tests.exhaustive.queue import Seat, fault_of_grant, fault_of_victim
from tests.exhaustive.setups import Detail
from tests.exhaustive.world import NO_SLOT, TAKEN, WANTED, World

Event = tuple[str, int]
"""What happens, and the number of the call or turn that it happens to."""
NEED = Need("tool", (), 1.0)


class Driver(World):
    """A world that things happen to."""

    def begin(self) -> None:
        """Open the turns that are not nested."""
        for number, turn in enumerate(self.setup.turns):
            if turn.parent < 0:
                self._open(number)

    def act(self, event: Event) -> None:
        """Let this happen, and whatever follows from it at once."""
        self.faults = []
        kind, number = event
        if kind in TURN_EVENTS:
            TURN_EVENTS[kind](self, self.machine(number), number)
        else:
            CALL_EVENTS[kind](self, self.machine(self.setup.turn_of[number]), number)
        self._go_on()

    # Events of a turn

    def _open(self, number: int) -> None:
        plan = self.setup.turns[number]
        above = self.calls[plan.parent].owner if plan.parent >= 0 else 0
        self.turns[number] = TurnMachine(
            plan.schedule, {REST: plan.policy}, whole=plan.whole, skips=plan.skips
        )
        self.turn_owners[number] = self.new_owner(above)

    def _submit(self, machine: TurnMachine, number: int) -> None:
        claims = self.setup.turns[number].calls
        position = len(machine.calls)
        call = self.setup.first[number] + position
        self.calls[call].owner = self.new_owner(self.turn_owners[number])
        is_over = machine.groups[REST].verdict is not None
        self.calls[call].late = int(is_over or machine.stopped is not None)
        machine.submit(claims[position])
        if position + 1 == len(claims) and self.setup.detail is Detail.BRIEF:
            self._go_on()
            machine.close()

    def _submit_all(self, machine: TurnMachine, number: int) -> None:
        for _ in self.setup.turns[number].calls:
            self._submit(machine, number)

    def _undone(self, machine: TurnMachine, number: int, *, in_doubt: bool) -> None:
        self.undoing[number] = False
        done = [call.position for call in machine.calls if call.status is Status.OK]
        machine.undone(done if in_doubt else ())

    def _tell(self, machine: TurnMachine, number: int) -> None:
        """Tell a turn the next piece of news about its tickets."""
        ticket, granted = self.mail[number].pop(0)
        position = self._place(self.seats[ticket])
        if granted:
            machine.granted(position)
        else:
            self._forget(ticket)
            machine.deadlocked(position)

    # Events of a call

    def _nest(self, machine: TurnMachine, call: int) -> None:
        self._open(self.setup.nested_in[call])
        machine.suspended(self.position(call))
        machine.nested(self.position(call), 1)

    def _start(self, machine: TurnMachine, call: int) -> None:
        self.calls[call].slot, self.calls[call].alive = TAKEN, 1
        machine.started(self.position(call), heeds_token=self.setup.detail is Detail.FULL)

    def _return(self, machine: TurnMachine, call: int, status: Status = Status.OK) -> None:
        self.calls[call].alive = 0
        kind = None if status is Status.OK else FailureKind.TOOL_ERROR
        machine.returned(self.position(call), status, kind)

    def _miss(self, machine: TurnMachine, call: int) -> None:
        machine.missed(self.position(call))
        self._return(machine, call)

    def _give_up(self, machine: TurnMachine, call: int) -> None:
        machine.stop(self.position(call), Status.CANCELLED)
        self._go_on()
        machine.grace_over(self.position(call))

    # What follows from an event

    def _go_on(self) -> None:
        busy = True
        while busy:
            busy = False
            for number, machine in enumerate(self.turns):
                while machine is not None and machine.actions:
                    busy = True
                    actions, machine.actions = machine.actions, []
                    for do, position in actions:
                        self._carry_out(number, do, position)
            busy = self._skip_those_in_vain() or self._take_slots() or busy

    def _carry_out(self, number: int, do: Do, position: int) -> None:
        if do is Do.ENTER:
            self._enter(number, position)
        elif position == TURN:
            ABOUT_TURN[do](self, number)
        else:
            ABOUT_CALL[do](self, self.setup.first[number] + position)

    def _skip_those_in_vain(self) -> bool:
        """Calls that wait for one of their own root turn that was given up end at once."""
        roots, turn_of = self.setup.roots, self.setup.turn_of
        for ticket in list(self.table.waiting()):
            holder, who = self.table.held_up_by(ticket), self.seats[ticket]
            if holder and who >= 0 and self.calls[who].ended == 0:
                turn, cause = turn_of[who], self.seats[holder]
                if roots[turn] == roots[turn_of[cause]]:
                    own = turn == turn_of[cause]
                    self.machine(turn).skip(
                        self.position(who), self.position(cause) if own else None
                    )
                    return True
        return False

    def _take_slots(self) -> bool:
        if self.limits is not None:
            request = self.limits.take(0.0)
            ready = [n for n, t in enumerate(self.calls) if request and t.request == request]
        else:
            brief = self.setup.detail is Detail.BRIEF
            ready = [n for n, t in enumerate(self.calls) if brief and t.slot == WANTED]
        if not ready:
            return False
        call = ready[0]
        self._start(self.machine(self.setup.turn_of[call]), call)
        return True

    # Claims

    def _enter(self, number: int, position: int) -> None:
        machine = self.machine(number)
        who = ~number if position == TURN else self.setup.first[number] + position
        owner = self.turn_owners[number] if who < 0 else self.calls[who].owner
        claims = machine.ticket_claims if who < 0 else machine.calls[position].claims
        before = self._waiting()
        ticket = self.table.enter(owner, claims)
        self.seats[ticket.number] = who
        if who >= 0:
            self.calls[who].ticket = ticket.number
        seat = Seat(ticket.number, owner, who, granted=False)
        self._read_news({**before, ticket.number: seat})
        if ticket.granted:
            self.mail[number] = [item for item in self.mail[number] if item[0] != ticket.number]
            machine.granted(position)
        else:
            machine.blocked(position)

    def _read_news(self, before: dict[int, Seat]) -> None:
        """Look whether the table was right, given who waited `before`, and pass the news on."""
        news, self.table.news = self.table.news, []
        numbers = [item.ticket for item in news]
        tickets = self.table.tickets
        numbers += [n for n in before if n in tickets and tickets[n].granted and n not in numbers]
        for at, number in enumerate(numbers):
            queue = self.queue([before[later] for later in numbers[at:]])
            failed = number not in tickets
            fault = (fault_of_victim if failed else fault_of_grant)(queue, number)
            self.faults += [fault] if fault else []
            who = self.seats[number]
            turn = ~who if who < 0 else self.setup.turn_of[who]
            self.mail[turn].append([number, int(not failed)])

    def _waiting(self) -> dict[int, Seat]:
        tickets = self.table.tickets
        return {
            number: Seat(number, tickets[number].owner, self.seats[number], granted=False)
            for number in self.table.waiting()
        }

    def _leave(self, ticket: int) -> None:
        if ticket in self.table.tickets:
            before = self._waiting()
            self.table.leave(ticket)
            self._forget(ticket)
            self._read_news(before)
        else:
            self._forget(ticket)

    def _forget(self, ticket: int) -> None:
        who = self.seats.pop(ticket, -1)
        if who >= 0:
            self.calls[who].ticket = 0
        for mail in self.mail:
            mail[:] = [item for item in mail if item[0] != ticket]

    def _move(self, ticket: int, owner: int) -> None:
        before = self._waiting()
        self.table.move(ticket, owner)
        self._read_news(before)

    def _place(self, who: int) -> int:
        return TURN if who < 0 else self.position(who)

    # Actions about a call

    def _request(self, call: int) -> None:
        track = self.calls[call]
        track.slot = WANTED
        if self.limits is not None:
            turn = self.setup.turn_of[call]
            chain = self.machine(turn).chain(self.position(call))
            track.request = self.limits.request(turn, NEED, chain, resuming=bool(track.alive))

    def _prefer(self, call: int) -> None:
        if self.limits is not None:
            machine = self.machine(self.setup.turn_of[call])
            self.limits.prefer(self.calls[call].request, machine.chain(self.position(call)))

    def _withdraw(self, call: int) -> None:
        track = self.calls[call]
        if track.slot == WANTED:
            if self.limits is not None:
                self.limits.withdraw(track.request)
            track.slot = track.request = NO_SLOT
        elif track.ticket:
            self._leave(track.ticket)

    def _free(self, call: int) -> None:
        track = self.calls[call]
        if track.slot == TAKEN:
            if self.limits is not None:
                self.limits.release(track.request)
            track.slot = track.request = NO_SLOT

    def _stop_nested(self, call: int) -> None:
        """What is nested in a call that is asked to stop is asked too, by its token."""
        nested = self.setup.nested_in.get(call)
        if nested is not None and self.turns[nested] is not None:
            self.machine(nested).stop_all(Status.CANCELLED)

    def _end(self, call: int) -> None:
        track = self.calls[call]
        track.ended += 1
        track.given_up = track.alive
        if track.alive and track.ticket:
            before = self._waiting()
            self.table.abandon(track.ticket)
            self._read_news(before)

    def _settle(self, call: int) -> None:
        track = self.calls[call]
        track.given_up = 0
        if track.ticket:
            self._leave(track.ticket)
        self.close_owner(track.owner)

    def _hold(self, call: int) -> None:
        track = self.calls[call]
        track.given_up = 0
        if track.ticket:
            ticket, track.ticket = track.ticket, 0
            self._move(ticket, self.turn_owners[self.setup.turn_of[call]])
        self.close_owner(track.owner)

    # Actions about a turn

    def _held(self, number: int) -> list[int]:
        owner = self.turn_owners[number]
        return [n for n, ticket in self.table.tickets.items() if ticket.owner == owner]

    def _decide(self, number: int) -> None:
        for ticket in self._held(number):
            self._leave(ticket)
        parent = self.setup.turns[number].parent
        if parent >= 0:
            self.machine(self.setup.turn_of[parent]).woken(self.position(parent))

    def _undo(self, number: int) -> None:
        self.undoing[number] = True

    def _gone(self, number: int) -> None:
        self.close_owner(self.turn_owners[number])
        parent = self.setup.turns[number].parent
        if parent >= 0:
            self.machine(self.setup.turn_of[parent]).nested(self.position(parent), -1)


TURN_EVENTS: dict[str, Callable[[Driver, TurnMachine, int], None]] = {
    "submit": Driver._submit,
    "submit all": Driver._submit_all,
    "close": lambda driver, machine, number: machine.close(),
    "cancel turn": lambda driver, machine, number: machine.stop_all(Status.CANCELLED),
    "undone": lambda driver, machine, number: driver._undone(machine, number, in_doubt=False),
    "undone in doubt": lambda driver, machine, number: driver._undone(
        machine, number, in_doubt=True
    ),
    "tell": Driver._tell,
}
CALL_EVENTS: dict[str, Callable[[Driver, TurnMachine, int], None]] = {
    "start": Driver._start,
    "nest": Driver._nest,
    "finish": Driver._return,
    "fail": lambda driver, machine, call: driver._return(machine, call, Status.ERROR),
    "miss": Driver._miss,
    "cancel": lambda driver, machine, call: machine.stop(driver.position(call), Status.CANCELLED),
    "time out": lambda driver, machine, call: machine.stop(driver.position(call), Status.TIMED_OUT),
    "give up": Driver._give_up,
    "grace over": lambda driver, machine, call: machine.grace_over(driver.position(call)),
    "skip": lambda driver, machine, call: machine.skip(driver.position(call)),
}
ABOUT_TURN: dict[Do, Callable[[Driver, int], None]] = {
    Do.UNDO: Driver._undo,
    Do.DECIDE: Driver._decide,
    Do.LEAVE: Driver._gone,
}
ABOUT_CALL: dict[Do, Callable[[Driver, int], None]] = {
    Do.REQUEST: Driver._request,
    Do.PREFER: Driver._prefer,
    Do.WITHDRAW: Driver._withdraw,
    Do.FREE: Driver._free,
    Do.SIGNAL: Driver._stop_nested,
    Do.CANCEL: Driver._stop_nested,
    Do.END: Driver._end,
    Do.SETTLE: Driver._settle,
    Do.HOLD: Driver._hold,
    Do.REVISE: lambda driver, call: None,
}
