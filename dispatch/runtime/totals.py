"""The sums of a dispatcher's turns, from any thread: what `Dispatcher.statistics` reads."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from typing import Any

from dispatch.call import Status
from dispatch.core.stats import DispatcherStats, TurnStats

SUMMED = ("calls", "makespan", "run_time", "conflicting", "conflict_serialized", "lower_bound")


class Totals:
    """Grows with every turn that is decided; costs a few additions per turn and per start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, Any] = defaultdict(int)  # counts stay whole numbers
        self._waits: dict[str, float] = defaultdict(float)
        self._statuses: Counter[Status] = Counter()
        self._open = 0
        self._since = 0.0
        self._running = 0
        self._peak = 0

    def opened(self, now: float) -> None:
        """A turn has opened."""
        with self._lock:
            if not self._open:
                self._since = now
            self._open += 1

    def decided(self, now: float) -> None:
        """A turn is decided."""
        with self._lock:
            self._open -= 1
            if not self._open:
                self._sums["busy"] += now - self._since

    def add(self, stats: TurnStats) -> None:
        """What was measured of a turn that is decided."""
        with self._lock:
            self._sums["turns"] += 1
            for name in SUMMED:
                self._sums[name] += getattr(stats, name)
            for cause, seconds in stats.waits.items():
                self._waits[cause] += seconds
            for status, count in stats.statuses.items():
                self._statuses[status] += count

    def runs(self, change: int) -> None:
        """One call more (1) or less (-1) runs."""
        with self._lock:
            self._running += change
            if self._running > self._peak:
                self._peak = self._running

    def statistics(self) -> DispatcherStats:
        """A snapshot."""
        with self._lock:
            return DispatcherStats(
                **self._sums,
                running=self._running,
                peak=self._peak,
                waits=dict(sorted(self._waits.items())),
                statuses=dict(self._statuses),
            )
