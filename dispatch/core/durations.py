"""How long the calls of each tool take: a running estimate, for the order of waiting calls. Pure.

Only the order among the calls of one turn hangs on it, never whether a call runs; so a wrong
estimate costs time and nothing else. An exponential average, as TCP estimates its round trip
(Jacobson 1988): a tool whose behaviour changes is known anew after some ten calls.
"""

from __future__ import annotations

from collections.abc import Iterable

WEIGHT = 0.25
"""What the newest duration counts in the estimate of its tool."""


class Durations:
    """Seconds from start to end, by tool name.

    Safe to share between threads: a lost update is one sample less.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def learn(self, tool: str, seconds: float) -> None:
        """A call of this tool has taken so long."""
        known = self._seconds.get(tool)
        self._seconds[tool] = seconds if known is None else known + (seconds - known) * WEIGHT

    def of(self, tools: Iterable[str]) -> list[float] | None:
        """How long calls of these tools take, as multiples of what a tool among them takes.

        None if nothing is known of any of them; one that has not run yet counts as 1, so that
        what is known and what is not can stand in one line.
        """
        names = list(tools)
        known = {name: self._seconds[name] for name in self._seconds.keys() & set(names)}
        mean = sum(known.values()) / len(known) if known else 0.0
        return [known.get(name, mean) / mean for name in names] if mean else None
