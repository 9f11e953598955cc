"""The rollback of a turn: which compensations run, and what that means for the results.

Owns the task in which they run. Begins when every call has its result and a group that must be
undone failed; ends by telling the machine, which then decides the turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dispatch.core.policy import AllOrNothing
from dispatch.core.turn import TurnMachine
from dispatch.runtime.holdings import Holdings
from dispatch.runtime.inbox import Inbox
from dispatch.runtime.nesting import Scope
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.rollback import Compensation, Rollback, Undone
from dispatch.runtime.running import RunningCall
from dispatch.runtime.settings import TurnSettings

DEFAULT_TIMEOUT = AllOrNothing().rollback_timeout


class Undoing:
    """See the module. `interrupted` is told what must end the program."""

    def __init__(
        self,
        machine: TurnMachine,
        calls: list[RunningCall],
        inbox: Inbox,
        holdings: Holdings,
        settings: TurnSettings,
        table: ResourceTable,
        *,
        depth: int,
        above: Scope | None,
        interrupted: Callable[[BaseException], None],
    ) -> None:
        self._machine = machine
        self._calls = calls
        self._inbox = inbox
        self._holdings = holdings
        self._settings = settings
        self._table = table
        self._depth = depth
        self._above = above
        self._interrupted = interrupted
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run the compensations of the groups that failed; the machine is told afterwards."""
        ours = [one for one in self._holdings.compensations if self._failed(one.position)]
        if not ours:
            self._machine.undone()
            return
        self._task = self._inbox.loop.create_task(self._run(ours))

    async def _run(self, compensations: list[Compensation]) -> None:
        rollback = Rollback(
            self._inbox.loop,
            self._settings.pool,
            grace=self._settings.grace,
            scope_of=self._scope,
            obstacle=self._obstacle,
            left_running=self._holdings.left_running,
            fatal=self._interrupted,
        )
        undone = await rollback.run(compensations, self._timeout)
        self._inbox.take(self._tell, undone)

    def _tell(self, undone: dict[int, Undone]) -> None:
        self._holdings.forget(self._failed)
        for position, what in undone.items():
            self._calls[position].undone = what
        self._machine.undone([position for position, what in undone.items() if what.faults])

    def _failed(self, position: int) -> bool:
        group = self._machine.groups[self._machine.calls[position].group]
        return group.atomic and group.verdict is not None and not group.verdict.satisfied

    def _timeout(self, position: int) -> float:
        policy = self._machine.groups[self._machine.calls[position].group].policy
        return policy.rollback_timeout if isinstance(policy, AllOrNothing) else DEFAULT_TIMEOUT

    def _obstacle(self, one: Compensation) -> str | None:
        if self._machine.calls[one.position].alive:
            return "its call was given up and may still be running"
        other = self._table.blocked_by_abandoned(one.claims)
        if other is None:
            return None
        return f"{other.claimant.name_of(other.call)} was given up and may still touch the same"

    def _scope(self, position: int) -> Scope:
        return Scope(
            self._table,
            tool=self._calls[position].call.name,
            turn_id=self._settings.turn_id,
            position=position,
            depth=self._depth,
            above=self._above,
            undoes=True,
            owner=self._holdings.owner,
            keeper=self._holdings,
            loop=self._inbox.loop,
        )
