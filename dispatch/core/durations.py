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
        """The estimates for calls of these tools; None if nothing is known of any of them.

        A tool that has not run yet counts as the mean of those among them that have.
        """
        found = [self._seconds.get(tool) for tool in tools]
        known = [seconds for seconds in found if seconds is not None]
        if not known:
            return None
        mean = sum(known) / len(known)
        return [mean if seconds is None else seconds for seconds in found]
