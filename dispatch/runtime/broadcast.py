"""Telling sinks what happens. A sink that raises is removed and logged; the turn never notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from dispatch.call import ToolCall
from dispatch.events import CallEvent, Event, Sink, TurnEvent
from dispatch.render import safe_str


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
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - foreign code
                self._sinks.remove(sink)
                import structlog  # only here: it brings rich along, and hardly any sink raises

                log = structlog.get_logger("dispatch")
                text = f"{type(error).__name__}: {safe_str(error)}"
                log.warning("sink removed because it raised", sink=safe_str(sink), error=text)


class Teller:
    """Tells of one turn."""

    def __init__(self, turn_id: str, tell: Broadcast, now: Callable[[], float]) -> None:
        self._turn_id = turn_id
        self._tell = tell
        self._now = now

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
        self._tell(TurnEvent(turn_id=self._turn_id, state=state, at=self._now(), calls=calls))
