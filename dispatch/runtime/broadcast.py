"""Telling sinks what happens. A sink that raises is removed and logged; the turn never notices."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from dispatch.call import ToolCall
from dispatch.events import CallEvent, Event, Sink, TurnEvent
from dispatch.render import safe_str
from dispatch.runtime.fault import report


class Broadcast:
    """The sinks of one dispatcher. Falsy when nobody listens, so that no event need be made."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = list(sinks)

    def __bool__(self) -> bool:
        return bool(self._sinks)

    def __call__(self, event: Event) -> None:
        """Give the event to every sink, in the order they were given."""
        for sink in tuple(self._sinks):
            try:
                sink(event)
            except (Exception, asyncio.CancelledError, GeneratorExit) as error:  # noqa: BLE001
                with contextlib.suppress(ValueError):  # another thread was quicker
                    self._sinks.remove(sink)
                report("sink removed because it raised", error, sink=safe_str(sink))


class Teller:
    """Tells of one turn."""

    def __init__(
        self,
        turn_id: str,
        tell: Broadcast,
        now: Callable[[], float],
        parent: tuple[str, int] | None,
    ) -> None:
        self._turn_id = turn_id
        self._tell = tell
        self._now = now
        self._parent = parent

    def call(
        self,
        index: int,
        call: ToolCall,
        state: str,
        *,
        status: str | None = None,
        detail: str | None = None,
    ) -> None:
        """One call entered a state."""
        self._tell(
            CallEvent(
                turn_id=self._turn_id,
                index=index,
                call_id=call.id,
                tool=call.name,
                state=state,
                at=self._now(),
                status=status,
                detail=detail,
            )
        )

    def turn(self, state: str, calls: int) -> None:
        """The turn entered a state."""
        self._tell(
            TurnEvent(
                turn_id=self._turn_id,
                state=state,
                at=self._now(),
                calls=calls,
                parent=self._parent,
            )
        )
