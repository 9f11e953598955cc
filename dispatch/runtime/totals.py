"""The sums of a dispatcher's turns, from any thread: what `Dispatcher.statistics` reads."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence

from dispatch.call import Status, ToolResult
from dispatch.core.stats import DispatcherStats, summed


class Totals:
    """Grows with every turn that is decided; costs a few additions per turn and per start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns = self._calls = self._conflicting = self._serialized = 0
        self._makespan = self._run_time = self._lower_bound = self._busy = 0.0
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

    def decided(
        self,
        now: float,
        results: Sequence[ToolResult],
        run_time: float,
        conflicting: int,
        serialized: int,
        lower_bound: float,
    ) -> None:
        """A turn is decided, and this was measured of it."""
        makespan, waits, statuses = summed(results)
        with self._lock:
            self._open -= 1
            if not self._open:
                self._busy += now - self._since
            self._turns += 1
            self._calls += len(results)
            self._makespan += makespan
            self._run_time += run_time
            self._conflicting += conflicting
            self._serialized += serialized
            self._lower_bound += lower_bound
            for cause, seconds in waits.items():
                self._waits[cause] += seconds
            for status, count in statuses.items():
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
                turns=self._turns,
                calls=self._calls,
                makespan=self._makespan,
                run_time=self._run_time,
                busy=self._busy,
                conflicting=self._conflicting,
                conflict_serialized=self._serialized,
                lower_bound=self._lower_bound,
                running=self._running,
                peak=self._peak,
                waits=dict(sorted(self._waits.items())),
                statuses=dict(self._statuses),
            )
