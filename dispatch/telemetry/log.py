"""Events as structured log lines. Arguments and values are never logged: they may hold secrets."""

from __future__ import annotations

from typing import Protocol

import structlog

from dispatch.call import Status
from dispatch.events import CallEvent, Event, Sink


class Logger(Protocol):
    """What is needed of a logger, structlog's or another."""

    def log(self, level: int, event: str, /, **fields: object) -> object:
        """Log one line."""
        ...


DEBUG, INFO, WARNING = 10, 20, 30


def structlog_sink(logger: Logger | None = None) -> Sink:
    """A sink that logs every event through structlog.

    Transitions are logged at debug level, a call's end at info, or warning if it did not succeed;
    a result that came too late, and was dropped, as a warning.
    """
    log: Logger = logger or structlog.get_logger("dispatch")

    def sink(event: Event) -> None:
        fields: dict[str, object] = {"turn": event.turn_id, "at": event.at}
        if isinstance(event, CallEvent):
            fields |= {"call": event.index, "id": event.call_id, "tool": event.tool}
            fields |= {"status": event.status} if event.status else {}
            log.log(_level(event), f"call {event.state}", **fields)
        else:
            log.log(DEBUG, f"turn {event.state}", calls=event.calls, **fields)

    return sink


def _level(event: CallEvent) -> int:
    if event.state == "late":
        return WARNING
    if event.state != "ended":
        return DEBUG
    return INFO if event.status == Status.OK else WARNING
