"""A turn as the host of its running calls: what nested turns, holds and tools ask of it.

Owns suspending and waking calls, their states, and who is told when a call goes on. Whatever is
asked from another thread is handled on the turn's loop; on that loop it is handled at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dispatch.call import Status
from dispatch.core.life import CallState
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.nesting import Keeper, Scope
from dispatch.runtime.options import TurnOptions
from dispatch.runtime.rollback import Compensation
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn
from dispatch.runtime.slots import Slots

if TYPE_CHECKING:
    from dispatch.runtime.turn import Turn


class Hosting:
    """See the module."""

    def __init__(self, turn: RunningTurn, holdings: Holdings, slots: Slots) -> None:
        self._turn = turn
        self._holdings = holdings
        self._slots = slots
        self._machine = turn.machine
        self._inbox = turn.inbox

    # For nested turns and holds

    def keeper_of(self, position: int) -> Keeper | None:
        """Who keeps what is nested in the call, if the call may yet be undone."""
        return self._holdings if self._machine.keeps(position) else None

    def call_owner(self, position: int) -> int:
        """The owner of the call in the table."""
        return self._holdings.call_owner(self._turn.calls[position])

    def suspend(self, position: int) -> None:
        """The call waits for something else than slots."""
        self._inbox.hand(self._machine.suspended, position)

    def wake(self, position: int) -> None:
        """It waits for one thing less."""
        self._inbox.hand(self._machine.woken, position)

    def again(self, position: int) -> None:
        """The call gives its slots back and takes those of another attempt, in one step."""
        self._inbox.hand(self._again, position)

    def nested(self, position: int, change: int) -> None:
        """One nested turn more or less lives."""
        self._inbox.hand(self._machine.nested, position, change)

    def held_up_below(self, position: int) -> None:
        """A call nested in this one was given up and may never end."""
        self._inbox.hand(self._machine.held_up_below, position)

    def when_going_on(self, position: int, tell: Callable[[], object]) -> None:
        """Tell once the call does not wait for its slots (any more)."""
        if not self._inbox.hand(self._when_going_on, position, tell):
            tell()

    # For the call's context

    def make_turn(self, options: TurnOptions, scope: Scope) -> Turn:
        """A turn nested in the call."""
        return self._turn.settings.make_turn(options, scope)

    def set_state(self, position: int, state: str | None, tell: Callable[[], object]) -> None:
        """Move the call to another state, and tell when it goes on."""
        if not self._inbox.hand(self._set_state, position, state, tell):
            tell()

    def time_out(self, position: int, reason: str) -> None:
        """Stop the call as its time limit would."""
        self._inbox.hand(self._turn.stop_one, position, Status.TIMED_OUT, reason)

    def compensate(
        self, position: int, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        """Keep this until the turn is decided."""
        claims, ticket = self._machine.calls[position].claims, self._turn.calls[position].ticket
        compensation = Compensation(position, function, args, kwargs, claims, ticket)
        self._holdings.compensations.append(compensation)

    # On the loop

    def go_on(self, call: RunningCall) -> None:
        """The call waits for its slots no more: it has them, or is asked to stop."""
        waiters, call.waiters = call.waiters, ()
        for tell in waiters:
            with contextlib.suppress(RuntimeError):  # the loop of whoever waits is closed
                tell()

    def _when_going_on(self, position: int, tell: Callable[[], object]) -> None:
        call = self._turn.calls[position]
        call.waiters = (*call.waiters, tell)
        if self._machine.calls[position].state is not CallState.READY:
            self.go_on(call)

    def _again(self, position: int) -> None:
        self._machine.suspended(position)
        self._turn.calls[position].takes_rates = True
        self._machine.woken(position)

    def _set_state(self, position: int, state: str | None, tell: Callable[[], object]) -> None:
        call, record = self._turn.both(position)
        call.state = state
        if record.state is CallState.RUNNING and self._slots.swap(call):
            self._slots.wanted = True
        elif record.alive and record.state in (CallState.RUNNING, CallState.READY):
            self._machine.suspended(position)
            self._machine.woken(position)
        self._when_going_on(position, tell)
