"""What must hold of a turn after every event, whatever happened. Pure; for tests."""

from __future__ import annotations

from dispatch.core.books import Books
from dispatch.core.life import CallState, TicketState, TurnState


def unbalanced(books: Books) -> list[str]:
    """The invariants that do not hold, by name."""
    calls = books.calls
    over = books.state in (TurnState.DECIDED, TurnState.GONE)
    checks = {
        "open calls counted": books.open_calls == sum(c.status is None for c in calls),
        "unsettled calls counted": books.unsettled
        == sum(c.state is not CallState.SETTLED for c in calls),
        "one ending each": all(
            (c.status is not None) == (c.state in (CallState.ENDED, CallState.SETTLED))
            for c in calls
        ),
        "settled calls are still": not any(
            c.alive or c.open_turns for c in calls if c.state is CallState.SETTLED
        ),
        "predecessors settled first": all(
            c.state in (CallState.PLANNED, CallState.ENDED) or not books.order.waits(c.node)
            for c in calls
            if books.order.linked(c.node)
        ),
        "only what may start has started": not any(
            c.alive and (c.late or c.gated or c.leader >= 0) for c in calls
        ),
        "suspended for a reason": not any(
            c.state is CallState.SUSPENDED and not c.waits for c in calls
        ),
        "the turn's ticket comes first": books.ticket in (TicketState.NONE, TicketState.GRANTED)
        or not any(c.alive for c in calls),
        "tallies agree": all(
            group.tally.open
            == sum(c.status is None and c.counted for c in calls if c.group == group.name)
            for group in books.groups.by_name.values()
        ),
        "decided when all ended": over
        == (
            books.state is not TurnState.OPEN
            and not books.open_calls
            and (not books.to_undo or books.is_undone)
        ),
        "gone when all settled": (books.state is TurnState.GONE) == (over and not books.unsettled),
    }
    return [name for name, holds in checks.items() if not holds]
