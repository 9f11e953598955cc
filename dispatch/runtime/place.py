"""Where a turn stands: nested in what, in which table, and who keeps what may yet be undone."""

from __future__ import annotations

from dataclasses import dataclass

from dispatch.core.life import TurnState
from dispatch.core.turn import TurnMachine
from dispatch.runtime.nesting import Keeper, Scope
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.settings import TurnSettings


@dataclass(slots=True, eq=False, repr=False)
class Place:
    """`parent` is what it is nested in; `owner` what it stands below in `table`. Never changed."""

    table: ResourceTable
    owner: int = 0
    keeper: Keeper | None = None
    parent: Scope | None = None

    @property
    def may_be_undone(self) -> bool:
        """Whether a turn above this one undoes its calls if it fails."""
        undoes = self.parent is not None and self.parent.undoes
        return self.keeper is not None and not undoes

    @property
    def depth(self) -> int:
        """How many turns this one is nested in."""
        return 0 if self.parent is None else self.parent.depth + 1


def place_of(settings: TurnSettings, parent: Scope | None) -> Place:
    """The place of a turn that is started in this scope.

    A dispatcher whose host chose no table takes that of the call it runs in. A call further up may
    have its claims in the table of this turn though the nearest one has not.
    """
    if parent is None:
        return Place(settings.table)
    table = parent.own.table if settings.own_table else settings.table
    inside = parent.on(table)
    owner = 0 if inside is None else inside.owner
    return Place(table, owner, parent.keeper, parent)


def stranded(machine: TurnMachine, parent: Scope | None) -> None:
    """The loop of the turn is gone, and now its last tool too: let its parent go on."""
    if parent is None or machine.state is TurnState.GONE:
        return
    if machine.state in (TurnState.OPEN, TurnState.CLOSED):
        parent.wake()
    parent.nest(-1)
