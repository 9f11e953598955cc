"""Which result of a history belongs to which call, wherever both stand.

A result answers the latest call before it that has its key and no result yet, or the first of
those that one message has. What is left over on either side is what a repair mends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dispatch.adapters.answers import Answer, answers
from dispatch.adapters.budget import Budget
from dispatch.adapters.names import Found, Names, Wire, wire_of
from dispatch.adapters.wire import plain
from dispatch.call import ToolCall, ToolResult

LOST = (
    "[unknown] the result of this call was lost: it may or may not have run."
    " Check that before you call it again."
)


@dataclass(slots=True, eq=False)
class Asked:
    """A call of the history, and the result that was found for it, as the how-manieth."""

    call: ToolCall
    keys: frozenset[str]
    result: Any = None
    place: int = 0

    @property
    def wire(self) -> Wire:
        """What its message said of it, and the id that it must have."""
        return wire_of(self.call)


class Pairing:
    """Reads a history from its beginning."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        """The ids of all calls by now."""
        self._messages: list[list[Asked]] = []
        self._names = Names()
        self._results = 0

    def asked(self, found: Iterable[Found], *, goes_on: bool = False) -> list[Asked]:
        """The calls of one more message, or some more of the last one."""
        if not goes_on:
            self._names = Names(self.taken)
            self._messages.append([])
        new = [_asked(one, self._names) for one in found]
        self.taken.update(ids(new))
        self._messages[-1] += new
        return new

    def answered(self, key: str, result: Any) -> Asked | None:
        """The call that this result answers; None if there is none, so that it must go."""
        for calls in reversed(self._messages):
            for one in calls:
                if not one.place and key in one.keys:
                    self._results += 1
                    one.result, one.place = result, self._results
                    return one
        return None


def ids(calls: Iterable[Asked]) -> list[str]:
    """The ids that the calls must have on the wire."""
    return [one.wire.id for one in calls]


def are_named(calls: Iterable[Asked]) -> bool:
    """Whether all of them have those ids."""
    return all(one.wire.given == one.wire.id for one in calls)


def by_result(calls: Iterable[Asked]) -> list[Asked]:
    """The calls in the order of their results, and behind them those that have none."""
    return sorted(calls, key=lambda one: (not one.place, one.place))


def _asked(found: Found, names: Names) -> Asked:
    call = names.calls(found)[0]
    given = found.id if isinstance(found.id, str) else ""
    return Asked(call, frozenset({given, found.key or given, wire_of(call).id}))


class Known:
    """What is known of calls whose results are not in the history: theirs, or that it was lost.

    Of several results of one id the last is taken.
    """

    def __init__(self, results: Iterable[ToolResult], budget: Budget | None) -> None:
        last = {(wire_of(result.call).id, result.call.id): result for result in results}
        self._by_id = {answer.id: answer for answer in answers(last.values(), budget)}

    def answer(self, asked: Asked) -> Answer:
        """The answer to this call."""
        known, call = self._by_id.get(asked.wire.id), asked.call
        if known is None:
            return Answer(asked.wire.id, call, ok=False, pieces=[LOST])
        return Answer(asked.wire.id, call, known.ok, known.pieces)


def fields_of(message: Any) -> dict[str, Any]:
    """The fields of a message or block, to be copied with one of them changed."""
    return dict(message) if isinstance(message, Mapping) else dict(plain(message))


MakeResult = Callable[[Asked], Any]
