"""Limits shared by turns, dispatchers, threads and loops: the slot machine behind a mutex."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Protocol

from dispatch.core.limits import Dimensions, SlotMachine
from dispatch.errors import DeclarationError

DEFAULT_TOTAL = 8


class Starter(Protocol):
    """Whoever asked for slots: told, from any thread, that a request has them."""

    number: int

    def slots_taken(self, request: int, call: int) -> bool:
        """Whether the news arrived; False if the starter's loop is gone."""
        ...

    def is_dead(self, call: int) -> bool:
        """Whether nobody is left who could ever give the call's slots back."""
        ...


class Limits:
    """How many calls may run at once: in all, per tool and per tag.

    Args:
        total: The most calls at once, whatever they are. It bounds every other limit.
        per_tool: Limits by tool name. A tool that is not named has only the total.
        per_tag: Limits by tag; a call counts against the limit of every tag it has.

    One object may be given to several dispatchers, which then share it. Raises
    `DeclarationError` for a limit that is not a whole number above 0.
    """

    def __init__(
        self,
        total: int = DEFAULT_TOTAL,
        per_tool: Mapping[str, int] | None = None,
        per_tag: Mapping[str, int] | None = None,
    ) -> None:
        _check("total", total)
        for what, limits in (("tool", per_tool), ("tag", per_tag)):
            for name, limit in (limits or {}).items():
                _check(f"{what} {name!r}", limit)
        self.total = total
        self.per_tool = dict(per_tool or {})
        self.per_tag = dict(per_tag or {})
        self._machine = SlotMachine(total, self.per_tool, self.per_tag)
        self._lock = threading.Lock()
        self._starters: dict[int, tuple[Starter, int]] = {}

    def dimensions(self, tool: str, tags: Iterable[str]) -> Dimensions:
        """The limits that a call of this tool with these tags counts against, beside the total."""
        return self._machine.dimensions(tool, tags)

    def request(self, starter: Starter, call: int, dimensions: Dimensions, chain: int) -> int:
        """Ask for slots; `grant` tells the starter once they are taken."""
        with self._lock:
            request = self._machine.request(starter.number, dimensions, chain)
            self._starters[request] = (starter, call)
            return request

    def prefer(self, request: int, chain: int) -> None:
        """The chain of conflicts behind a waiting request has become known."""
        with self._lock:
            self._machine.prefer(request, chain)

    def give_back(self, request: int) -> None:
        """Take a request back, or give its slots back if it has them."""
        with self._lock:
            if self._starters.pop(request, None) is None:
                return  # released before, as its loop was closed
            if self._machine.waiting(request):
                self._machine.withdraw(request)
            else:
                self._machine.release(request)

    def grant(self) -> None:
        """Start what may start now."""
        while True:
            with self._lock:
                request = self._machine.take()
                if request is None:
                    return
                starter, call = self._starters[request]
            if not starter.slots_taken(request, call):
                self.give_back(request)

    def clear_dead(self) -> None:
        """Release the slots of calls whose loop was closed in the middle of their turn."""
        with self._lock:
            dead = [number for number, (who, call) in self._starters.items() if who.is_dead(call)]
        for request in dead:
            self.give_back(request)

    @property
    def named(self) -> dict[str, int]:
        """Every limit by name: `total`, `tool:NAME`, `tag:NAME`."""
        return {"total": self.total, **self._machine.limits}

    @property
    def running(self) -> int:
        """How many calls hold slots now."""
        return len(self._machine.holders)


def _check(what: str, limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise DeclarationError(f"limit of {what}: must be a whole number above 0, not {limit!r}")
