"""What the calls of one turn hold: their claims in the table, their slots in the limits.

Owns asking, getting and giving back, and what happens to a call that waits for one that was given
up. Told by the table and the limits from any thread; passes the news on through the inbox.
Invariants: a ticket and a slot are given back exactly once, whoever comes first: the loop, or the
worker thread of a call that nobody waits for any more.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from dispatch.core.life import CallState
from dispatch.core.turn import TurnMachine
from dispatch.runtime.admission import Admission
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.limits import Limits
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.running import RunningCall

_NUMBERS = itertools.count(1)


class Holdings:
    """The claims and slots of one turn. `start` is told when a call has its slots."""

    def __init__(
        self,
        machine: TurnMachine,
        calls: list[RunningCall],
        inbox: Inbox,
        *,
        admission: Admission,
        table: ResourceTable,
        limits: Limits,
        start: Callable[[int, int], None],
        abandoned_wait: float | None,
    ) -> None:
        self.number = next(_NUMBERS)
        self.slots_wanted = False
        self._machine = machine
        self._calls = calls
        self._inbox = inbox
        self._admission = admission
        self._table = table
        self._limits = limits
        self._start = start
        self._abandoned_wait = abandoned_wait
        self._held_up_until: dict[int, float] = {}
        self._giving_back = threading.Lock()
        table.clear_dead()
        limits.clear_dead()

    # Told from anywhere

    def claims_granted(self, call: int) -> bool:
        """Told by the table."""
        return self._inbox.post(self._machine.granted, call)

    def claims_held_up(self, call: int) -> bool:
        """Told by the table."""
        return self._inbox.post(self._held_up, call)

    def slots_taken(self, request: int, call: int) -> bool:
        """Told by the limits."""
        return self._inbox.post(self._start, request, call)

    def is_dead(self, call: int) -> bool:
        """Whether the call's loop is closed and no thread of its own is left that may end."""
        return self._inbox.loop.is_closed() and not self._calls[call].in_thread

    # Claims

    def enter(self, position: int) -> None:
        """Ask the table for the call's claims; the machine is told what came of it."""
        call = self._calls[position]
        call.ordered = self._inbox.loop.time()
        claims = call.admitted.claims
        if self._machine.calls[position].waited:
            claims = self._admission.claims_now(call.admitted)
        call.ticket, granted = self._table.enter(self, position, claims)
        if granted:
            self._machine.granted(position)
        else:
            self._machine.blocked(position)

    def give_claims_back(self, call: RunningCall) -> None:
        """Give the claims back, and wake whoever waits for them. From any thread."""
        if call.scope is not None:
            call.scope.alive = False
        with self._giving_back:
            ticket, call.ticket = call.ticket, None
        if ticket is not None:
            self._table.leave(ticket)

    def abandon(self, call: RunningCall) -> None:
        """The call was given up and keeps its claims; whoever waits for it is told."""
        if call.ticket is not None:
            self._table.abandon(call.ticket, call.call.name, self, call.position)

    def _held_up(self, position: int) -> None:
        """The call waits for one that was given up.

        It waits for one of its own turn not at all, for one of another turn only so long if it has
        no time limit.
        """
        call = self._calls[position]
        holder = None if call.ticket is None else self._table.held_up_by(call.ticket)
        if holder is None or self._machine.calls[position].state is not CallState.QUEUED:
            return
        if holder.claimant is self:
            self._machine.skip(position, holder.call)
            return
        if call.timer is not None or self._abandoned_wait is None:
            return
        loop = self._inbox.loop
        now = loop.time()
        until = self._held_up_until.setdefault(holder.ticket, now + self._abandoned_wait)
        if now < until:
            call.grace = loop.call_at(until, self._inbox.post, self._held_up, position)
        else:
            call.holder = f"{holder.name} of another turn"
            self._machine.skip(position)

    # Slots

    def request(self, position: int) -> None:
        """Ask the limits for slots; `start` is told when they are taken."""
        call = self._calls[position]
        call.locked = self._inbox.loop.time()
        if call.ordered is None:
            call.ordered = call.locked
        dimensions = self._limits.dimensions(call.call.name, call.admitted.tags)
        chain = self._machine.chain(position)
        call.request = self._limits.request(self, position, dimensions, chain)
        self.slots_wanted = True

    def prefer(self, position: int) -> None:
        """The chain behind a waiting call is known now."""
        request = self._calls[position].request
        if request is not None:
            self._limits.prefer(request, self._machine.chain(position))

    def free(self, position: int) -> None:
        """Give the slots back, or the request for them."""
        self._give_slots_back(self._calls[position])
        self.slots_wanted = True

    def grant(self) -> None:
        """Let start whoever may, of any turn."""
        self.slots_wanted = False
        self._limits.grant()

    def _give_slots_back(self, call: RunningCall) -> None:
        with self._giving_back:
            request, call.request = call.request, None
        if request is not None:
            self._limits.give_back(request)

    # From a worker thread

    def thread_ended(self, call: RunningCall) -> None:
        """Give back what the loop may never give back for it, as it may be gone.

        That is a call that was given up, or one whose loop was closed in the middle of its turn.
        """
        call.in_thread = False
        closed = self._inbox.loop.is_closed()
        if closed or self._machine.calls[call.position].state is CallState.ENDED:
            self.give_claims_back(call)
        if closed:
            self._give_slots_back(call)
            self._limits.grant()
