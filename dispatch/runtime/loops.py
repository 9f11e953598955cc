"""The event loops that turns of one table, or of the same limits, run on, and which are gone.

A loop that is closed in the middle of a turn tells nobody, so whoever opens a turn has to look.
Looking costs as much as there are loops, whatever waits on them.
"""

from __future__ import annotations

import asyncio


class Loops:
    """Not safe between threads: to be used under the lock of what is shared."""

    def __init__(self) -> None:
        self._known: set[asyncio.AbstractEventLoop] = set()

    def enter(self) -> bool:
        """Note the running loop; whether another one was closed since this was last asked."""
        lost = [loop for loop in self._known if loop.is_closed()]
        self._known.difference_update(lost)
        self._known.add(asyncio.get_running_loop())
        return bool(lost)
