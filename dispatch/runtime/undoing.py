"""The rollback of a turn: which compensations run, and what that means for the results.

Owns the task in which they run. Begins when every call has its result and a group that must be
undone failed; ends by telling the machine, which then decides the turn.
"""

from __future__ import annotations

import asyncio

from dispatch.core.policy import AllOrNothing
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.nesting import Scope
from dispatch.runtime.rollback import Compensation, Rollback, Undone
from dispatch.runtime.running_turn import RunningTurn

DEFAULT_TIMEOUT = AllOrNothing().rollback_timeout


class Undoing:
    """See the module."""

    def __init__(self, turn: RunningTurn, holdings: Holdings) -> None:
        self._turn = turn
        self._holdings = holdings
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run the compensations of the groups that failed; the machine is told afterwards."""
        ours = [one for one in self._holdings.compensations if self._failed(one.position)]
        if not ours:
            self._turn.machine.undone()
            return
        self._task = self._turn.inbox.loop.create_task(self._run(ours))

    async def _run(self, compensations: list[Compensation]) -> None:
        rollback = Rollback(
            self._turn.inbox.loop,
            self._turn.settings.pool,
            grace=self._turn.settings.grace,
            scope_of=self._scope,
            obstacle=self._obstacle,
            left_running=self._holdings.left_running,
            fatal=self._turn.interrupted,
        )
        undone = await rollback.run(compensations, self._timeout)
        self._turn.inbox.take(self._tell, undone)

    def _tell(self, undone: dict[int, Undone]) -> None:
        self._holdings.forget(self._failed)
        for position, what in undone.items():
            self._turn.calls[position].undone = what
        self._turn.machine.undone([position for position, what in undone.items() if what.faults])

    def _failed(self, position: int) -> bool:
        group = self._turn.machine.groups[self._turn.machine.calls[position].group]
        return group.atomic and group.verdict is not None and not group.verdict.satisfied

    def _timeout(self, position: int) -> float:
        policy = self._turn.machine.groups[self._turn.machine.calls[position].group].policy
        return policy.rollback_timeout if isinstance(policy, AllOrNothing) else DEFAULT_TIMEOUT

    def _obstacle(self, one: Compensation) -> str | None:
        if self._turn.machine.calls[one.position].alive:
            return "its call was given up and may still be running"
        other = self._turn.place.table.blocked_by_abandoned(one.claims)
        if other is None:
            return None
        return f"{other.claimant.name_of(other.call)} was given up and may still touch the same"

    def _scope(self, position: int) -> Scope:
        holdings = self._holdings
        return self._turn.scope(position, undoes=True, owner=holdings.owner, keeper=holdings)
