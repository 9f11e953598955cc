"""Requests for slots, and what they count against. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dispatch.core.lines import Line


class Need(NamedTuple):
    """Everything a call counts against; right whatever limits and rates there are."""

    tool: str
    tags: tuple[str, ...]
    cost: float

    @property
    def slots(self) -> dict[str, None]:
        """Names of the limits that may concern it, beside the total."""
        return dict.fromkeys([f"tool:{self.tool}", *(f"tag:{tag}" for tag in self.tags)])

    @property
    def rates(self) -> dict[str, None]:
        """Names of the rates that may concern it."""
        return dict.fromkeys([self.tool, *self.tags])


class Request:
    """One request: it waits in a line for slots, then it holds them."""

    __slots__ = (
        "chain",
        "late",
        "line",
        "need",
        "number",
        "passes",
        "rate_since",
        "rated",
        "resuming",
        "slots",
        "turn",
    )

    def __init__(
        self, number: int, turn: int, need: Need, chain: float, resuming: bool, rated: bool
    ) -> None:
        self.number = number
        self.turn = turn
        self.need = need
        self.chain = chain
        self.resuming = resuming
        self.rated = rated
        self.passes = 0
        self.late = False
        self.rate_since: float | None = None
        self.line: Line | None = None
        self.slots: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """0 if it resumes, 1 if it is late, else 2: what goes before turn and chain."""
        return 0 if self.resuming else 2 - self.late

    def dump(self) -> list[Any]:
        """The whole state as JSON types, but for its place in a line."""
        need = [self.need.tool, list(self.need.tags), self.need.cost]
        marks = [self.resuming, self.rated, self.passes, self.rate_since]
        return [self.number, self.turn, need, self.chain, *marks]

    @classmethod
    def load(cls, state: Any) -> Request:
        """The request that `dump` described."""
        number, turn, (tool, tags, cost), chain, resuming, rated, passes, since = state
        request = cls(number, turn, Need(tool, tuple(tags), cost), chain, resuming, rated)
        request.passes, request.rate_since = passes, since
        return request


def arrival(request: Request) -> int:
    """Sorts by when the requests came."""
    return request.number


def urgency(request: Request) -> tuple[float, int]:
    """Sorts the requests of one turn: the longest chain first, then by arrival."""
    return -request.chain, request.number
