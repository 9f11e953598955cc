"""Who waits or holds what in something that turns of several event loops share.

A loop that is closed in the middle of a turn tells nobody, so whoever opens a turn looks for what
such loops left. That costs as much as there are loops, however much waits on them.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar


class Party(Protocol):
    """Whoever made an entry for a call."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it is told on."""
        ...

    def is_dead(self, call: int) -> bool:
        """Whether nobody is left who could ever take the call's entry out."""
        ...

    def stranded(self) -> None:
        """Its loop was closed: nothing that waits for it on another loop need wait any more."""
        ...


Who = TypeVar("Who", bound=Party)


class PerLoop(Generic[Who]):
    """Entries by number: whose they are, and for which call.

    Not safe between threads: to be used under the lock of what is shared.
    """

    def __init__(self) -> None:
        self.all: dict[int, tuple[Who, int]] = {}
        self._by_loop: dict[asyncio.AbstractEventLoop, dict[int, None]] = {}

    def add(self, number: int, who: Who, call: int) -> None:
        """Make a new entry."""
        self.all[number] = (who, call)
        numbers = self._by_loop.get(who.loop)
        if numbers is None:
            numbers = self._by_loop[who.loop] = {}
        numbers[number] = None

    def pop(self, number: int) -> tuple[Who, int] | None:
        """Take an entry out, if it is there."""
        entry = self.all.pop(number, None)
        if entry is not None:
            loop = entry[0].loop
            numbers = self._by_loop[loop]
            del numbers[number]
            if not numbers:
                del self._by_loop[loop]
        return entry

    def lost(self) -> list[tuple[int, Who]]:
        """The entries of closed loops that nobody will ever take out, and whose they are."""
        return [
            (number, who)
            for loop, numbers in self._by_loop.items()
            if loop.is_closed()
            for number in numbers
            for who, call in (self.all[number],)
            if who.is_dead(call)
        ]
