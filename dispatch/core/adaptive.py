"""A limit that finds its own height: up with successes, down with rate-limit signals. Pure.

Owns the height and what counts as news of it. The idea is TCP's congestion control (Jacobson 1988;
AIMD, Chiu and Jain 1989), with two differences. A rejection names the capacity quite exactly, so
the limit goes to what was accepted, one below what was in flight, and not to half. And the way up
is one step in the first round trip after a signal, then two, four, and so on: where the capacity
stays, a round trip costs one rejection; where it has grown, the limit is there in a few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dispatch.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class AdaptiveLimit:
    """A limit between `min` and `max` that follows what the other side can take.

    Give it to `Limits` in place of a number. It starts at `min`. A call that succeeds while the
    limit is used up raises it by one. A rate-limit signal, an attempt that ends with an exception
    of the HTTP status 429 or 529, lowers it to one less than were running, if it is above that.

    After a signal, calls that were running then change nothing by their success: they tell of
    another height. Of the others, only one raises the limit in the first round trip, at most two
    in the second, four in the third, and so on until the next signal. A round trip ends with the
    first success of a call that began in it.

    Raises `DeclarationError` unless 1 <= min <= max, whole numbers both.
    """

    min: int
    max: int

    def __post_init__(self) -> None:
        for name, value in (("min", self.min), ("max", self.max)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise DeclarationError(
                    f"{name} of an AdaptiveLimit: a whole number of at least 1, not {value!r}"
                )
        if self.min > self.max:
            raise DeclarationError(
                f"an AdaptiveLimit goes from min to max, not from {self.min} down to {self.max}"
            )


class Height:
    """The present height of one adaptive limit. `start` numbers the starts of calls."""

    __slots__ = ("bounds", "left", "limit", "lowered_at", "round_at", "step")

    def __init__(self, bounds: AdaptiveLimit) -> None:
        self.bounds = bounds
        self.limit = bounds.min
        self.lowered_at = 0
        """The number of the last start before the last signal."""
        self.round_at = 0
        """The number of the last start before this round trip."""
        self.step = bounds.max
        """By how much the next round trip may raise it; before the first signal by any number."""
        self.left = 0
        """By how much this one still may."""

    def succeeded(self, start: int, starts: int, used: int) -> None:
        """A call of this limit, one of `used`, succeeded; `starts` is the last start's number."""
        if used < self.limit or self.limit >= self.bounds.max or start <= self.lowered_at:
            return
        if start > self.round_at:
            self.round_at = starts
            self.left = self.step
            self.step = min(2 * self.step, self.bounds.max)
        if self.left:
            self.left -= 1
            self.limit += 1

    def rejected(self, starts: int, used: int) -> None:
        """A call of this limit, one of `used`, got a rate-limit signal."""
        self.lowered_at = starts
        self.step = 1
        self.limit = max(self.bounds.min, min(self.limit, used - 1))

    def dump(self) -> list[Any]:
        """The whole state as JSON types."""
        bounds = [self.bounds.min, self.bounds.max]
        return [*bounds, self.limit, self.lowered_at, self.round_at, self.step, self.left]

    @classmethod
    def load(cls, state: Any) -> Height:
        """The height that `dump` described."""
        height = cls(AdaptiveLimit(state[0], state[1]))
        height.limit, height.lowered_at, height.round_at, height.step, height.left = state[2:]
        return height


class Heights:
    """All adaptive limits of one slot machine by name, and which start each holder had."""

    def __init__(self) -> None:
        self.by_name: dict[str, Height] = {}
        self._starts = 0
        self._started: dict[int, int] = {}

    def set(self, name: str, limit: int | AdaptiveLimit | None) -> int | None:
        """The limit of this name is changed; returns its present height, None if it has none."""
        if not isinstance(limit, AdaptiveLimit):
            self.by_name.pop(name, None)
            if not self.by_name:
                self._started.clear()
            return limit
        height = self.by_name.get(name)
        if height is None or height.bounds != limit:
            height = self.by_name[name] = Height(limit)
        return height.limit

    def started(self, number: int) -> None:
        """A request has its slots."""
        self._starts += 1
        self._started[number] = self._starts

    def ended(self, number: int) -> None:
        """It has given them back."""
        self._started.pop(number, None)

    def learn(self, number: int, used: Mapping[str, int], *, rejected: bool) -> dict[str, int]:
        """An attempt of a holder has ended; returns the new heights of the limits in `used`."""
        start = self._started.get(number, 0)
        after = {}
        for name, count in used.items():
            height = self.by_name.get(name)
            if height is None:
                continue
            if rejected:
                height.rejected(self._starts, count)
            else:
                height.succeeded(start, self._starts, count)
            after[name] = height.limit
        return after

    def floors(self, limits: Mapping[str, int]) -> Mapping[str, int]:
        """The limits, each adaptive one as low as it can get."""
        if not self.by_name:
            return limits
        return {**limits, **{name: height.bounds.min for name, height in self.by_name.items()}}

    def ceilings(self, limits: Mapping[str, int]) -> Mapping[str, int]:
        """The limits, each adaptive one as high as it can get."""
        return {**limits, **{name: height.bounds.max for name, height in self.by_name.items()}}

    def dump(self) -> list[Any]:
        """The whole state as JSON types."""
        heights = {name: height.dump() for name, height in self.by_name.items()}
        return [heights, self._starts, [list(pair) for pair in self._started.items()]]

    @classmethod
    def load(cls, state: Any) -> Heights:
        """The heights that `dump` described."""
        heights = cls()
        heights.by_name = {name: Height.load(height) for name, height in state[0].items()}
        heights._starts, heights._started = state[1], dict(state[2])
        return heights
