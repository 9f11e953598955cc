"""Asking running calls to stop: the token first, then the task, each with its grace."""

from __future__ import annotations

from dispatch.core.life import CallState
from dispatch.runtime.concluding import why
from dispatch.runtime.hosting import Hosting
from dispatch.runtime.running import RunningCall
from dispatch.runtime.running_turn import RunningTurn

LEAST_GRACE = 0.01
"""Seconds: a cancelled task needs a few steps of the loop to end, even if no time is given."""

NESTED_FIRST = 0.1
"""Seconds that a call gets beyond its graces in which nested calls may end, or be given up."""


class Stopping:
    """The calls of one turn that are to end."""

    def __init__(self, turn: RunningTurn, hosting: Hosting) -> None:
        self._turn = turn
        self._hosting = hosting

    def signal(self, position: int) -> None:
        """Set the token of the call; its task is cancelled after the grace."""
        if self._stopping(self._turn.calls[position]):
            self._turn.tell(position, CallState.STOPPING)

    def cancel(self, position: int) -> None:
        """Cancel the task of the call; it is given up after the grace."""
        call = self._turn.calls[position]
        if not self._stopping(call):
            return
        if not call.heeds_token:  # else it was told when the token was set
            self._turn.tell(position, CallState.STOPPING)
        if call.invocation is not None:
            call.invocation.cancel()

    def _stopping(self, call: RunningCall) -> bool:
        """Begin its grace, unless the tool had returned before: then its result counts."""
        if call.invocation is not None and call.invocation.finished:
            self._turn.machine.missed(call.position)
            call.reason = ""
            return False
        self._hosting.go_on(call)
        call.grace = self._turn.inbox.loop.call_later(
            max(self._turn.settings.grace, LEAST_GRACE),
            self._turn.inbox.post,
            self._grace_over,
            call.position,
        )
        reason = why(self._turn, call)
        if call.scope is not None:
            call.scope.stop(reason)
        if call.context is not None:
            call.context.token.cancel(reason)
        return True

    def _grace_over(self, position: int) -> None:
        """Give what is nested in the call the first chance to be given up, not the call itself."""
        call, record = self._turn.both(position)
        if record.cancelled and record.open_turns and not call.overdue:
            call.overdue = True
            call.grace = self._turn.inbox.loop.call_later(
                NESTED_FIRST, self._turn.inbox.post, self._grace_over, position
            )
        else:
            self._turn.machine.grace_over(position)
