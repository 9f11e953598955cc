"""Work that goes on outside the event loop: worker threads and processes, counted per process.

Nothing here waits or decides. A virtual clock looks at it: time must not jump over real work.
"""

from __future__ import annotations

import os
import threading


class Activity:
    """How many worker threads and processes of this package are busy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.busy = 0

    def add(self, change: int) -> None:
        """Count one more (1) or one less (-1)."""
        with self._lock:
            self.busy += change

    def forked(self) -> None:
        """In a child process, which has nothing of that."""
        self._lock = threading.Lock()
        self.busy = 0


ACTIVITY = Activity()
os.register_at_fork(after_in_child=ACTIVITY.forked)
