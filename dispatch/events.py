"""What is told about a turn while it happens: frozen facts, made only when somebody listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """One call entered `state` at `at` (seconds on the event loop's clock).

    `state` is a name of the call's life: planned, queued, ready, running, suspended,
    stopping, ended, settled; `revised` when the result changed because its group was undone;
    `late` when its tool returned after the call had its result, so that what it returned was
    dropped; or `progress`, with the text in `detail`. `status` is set from `ended` on.
    """

    turn_id: str
    index: int
    call_id: str
    tool: str
    state: str
    at: float
    status: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvent:
    """A turn entered `state` (open, decided, gone); `calls` were admitted so far.

    `parent` is the call that the turn is nested in, as that one's turn and position: with it, the
    events of subagents that run side by side are told apart.
    """

    turn_id: str
    state: str
    at: float
    calls: int
    detail: str | None = None
    parent: tuple[str, int] | None = None


Event = CallEvent | TurnEvent
Sink = Callable[[Event], None]
"""Receives every event, in order, on the loop's thread. One that raises is removed and logged."""
