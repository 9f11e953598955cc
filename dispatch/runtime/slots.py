"""What the calls of a turn hold in the limits: their slots.

Owns asking, getting and giving back, and what each call counts against. Told by the limits from any
thread; passes the news on through the inbox.

Invariant: slots are given back exactly once, whoever comes first: the loop, or the worker thread of
a call that nobody waits for any more.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from dispatch.core.requests import Need
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn

_NUMBERS = itertools.count(1)


class Slots:
    """The slots of one turn. `start` is told when a call has its own."""

    def __init__(self, turn: RunningTurn) -> None:
        self.number = next(_NUMBERS)
        self.wanted = False
        """Whether something has changed, so that calls may be able to start."""
        self.start: Callable[[int, int], None]
        self.stranded: Callable[[], None]
        self._turn = turn
        self._machine = turn.machine
        self._calls = turn.calls
        self._inbox = turn.inbox
        self.loop = turn.inbox.loop
        self._limits = turn.settings.limits
        self._needs = turn.settings.needs
        self._giving_back = threading.Lock()
        self._limits.release_lost(self.loop.time())

    # Told from anywhere

    def slots_taken(self, request: int, call: int) -> bool:
        """Told by the limits."""
        return self._inbox.post(self.start, request, call)

    def call_limits_at(self, when: float) -> bool:
        """Told by the limits: a rate opens then."""
        return self._inbox.post(self._grant_at, when)

    def limits_changed(self) -> bool:
        """Told by the limits."""
        return self._inbox.post(setattr, self, "wanted", True)

    def is_dead(self, call: int) -> bool:
        """Whether the call's loop is closed and no thread of its own is left that may end."""
        return self._turn.is_dead(call)

    # On the loop

    def request(self, position: int) -> None:
        """Ask the limits for slots; `start` is told when they are taken."""
        call, record = self._calls[position], self._machine.calls[position]
        if not record.alive:
            call.locked = self._inbox.loop.time()
            if call.ordered is None:
                call.ordered = call.locked
        call.request = self._limits.request(
            self,
            position,
            self._need(call),
            self._machine.chain(position),
            resuming=record.alive,
            rated=not record.alive or call.takes_rates,
        )
        self.wanted = True

    def swap(self, call: RunningCall) -> bool:
        """Exchange the slots that a running call has for those it needs now, if there is room."""
        request = call.request
        return request is not None and self._limits.swap(request, self._need(call))

    def _need(self, call: RunningCall) -> Need:
        """What it counts against: its tool, its tags, and the state it has entered."""
        admitted, name = call.admitted, call.call.name
        plain = not call.call.tags and call.state is None and admitted.cost == 1.0
        need = self._needs.get(admitted.tool) if plain else None
        if need is None:
            tags = admitted.tags if call.state is None else {*admitted.tags, call.state}
            need = self._limits.need(name, tags, admitted.cost)
            if plain:
                self._needs[admitted.tool] = need
        return need

    def rate_since(self, call: RunningCall) -> float | None:
        """Since when the call has stood, or stood, in a rate's queue."""
        if call.request is None or not self._limits.rated:
            return None
        return self._limits.rate_since(call.request)

    def learn(self, call: RunningCall, error: BaseException | None) -> None:
        """An attempt of the call has ended so, and still has its slots."""
        if call.request is not None and self._limits.learn(call.request, error):
            self._inbox.hand(setattr, self, "wanted", True)

    def prefer(self, position: int) -> None:
        """The chain behind a waiting call is known now."""
        request = self._calls[position].request
        if request is not None:
            self._limits.prefer(request, self._machine.chain(position))

    def free(self, position: int) -> None:
        """Give the slots back, or the request for them."""
        self.give_back(self._calls[position])
        self.wanted = True

    def grant(self) -> None:
        """Let start whoever may, of any turn."""
        self.wanted = False
        self._limits.grant(self._inbox.loop.time())

    def _grant_at(self, when: float) -> None:
        self._inbox.loop.call_at(when, self._rate_opened, when)

    def _rate_opened(self, when: float) -> None:
        self._limits.grant(max(when, self._turn.now))

    def give_back(self, call: RunningCall) -> None:
        """Give back what it has, or has asked for. From any thread."""
        with self._giving_back:
            request, call.request = call.request, None
        if request is not None:
            self._limits.give_back(request)
