"""The table that turns, dispatchers, threads and event loops share: claims behind one mutex."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from dispatch.claims import RESERVED_MODES, Claim, FileKeys
from dispatch.core.table import TableMachine
from dispatch.errors import DeclarationError
from dispatch.runtime.nesting import refuse_inside_tool

MAX_MODES = 16


class Claimant(Protocol):
    """Whoever entered claims: told, from any thread, that they were granted."""

    def claims_granted(self, call: int) -> bool:
        """Whether the news arrived; False if the claimant's loop is gone."""
        ...

    def claims_held_up(self, call: int) -> bool:
        """The call waits, directly or not, for one that was given up and may never end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatistics:
    """A snapshot: tickets that hold claims and tickets that wait for them."""

    held: int
    waiting: int


class ResourceTable:
    """Which calls hold which claims, across everything that shares this table.

    Give one table to several dispatchers, in any threads and loops, and conflicting calls of any
    of them never overlap; waiting is first come first served. Relative file claims of `hold` are
    resolved against `root` (the working directory by default).
    """

    def __init__(self, *, root: str | os.PathLike[str] | None = None) -> None:
        self._files = FileKeys(root)
        self._machine = TableMachine()
        self._lock = threading.Lock()
        self._claimants: dict[int, tuple[Claimant, int]] = {}
        self._modes: set[str] = set()
        self._abandoned: dict[int, str] = {}

    @asynccontextmanager
    async def hold(self, *claims: Claim) -> AsyncIterator[None]:
        """Hold these claims while the body runs; waits its turn like any call.

        Cancelling while it waits withdraws it. Inside a tool it raises `NotSupported`.
        """
        refuse_inside_tool("table.hold")
        resolved = self._files.resolve(claims)
        self.check_modes(resolved)
        holder = _Holder()
        ticket, granted = self.enter(holder, 0, resolved)
        try:
            if not granted:
                await holder.granted
            yield
        finally:
            self.leave(ticket)

    def statistics(self) -> TableStatistics:
        """How many tickets hold claims, and how many wait, right now."""
        with self._lock:
            waiting = sum(1 for _ in self._machine.waiting())
            return TableStatistics(held=len(self._machine.tickets) - waiting, waiting=waiting)

    def check_modes(self, claims: tuple[Claim, ...]) -> None:
        """Raise `DeclarationError` if these claims bring the commuting modes above 16 names."""
        for claim in claims:
            if claim.mode in RESERVED_MODES or claim.mode in self._modes:
                continue
            with self._lock:
                if len(self._modes) >= MAX_MODES:
                    raise DeclarationError(
                        f"{claim.mode!r} would be the 17th commuting mode of one table;"
                        " name modes by operation, not by call"
                    )
                self._modes.add(claim.mode)

    def enter(
        self, claimant: Claimant, call: int, claims: tuple[Claim, ...], parent: int = 0
    ) -> tuple[int, bool]:
        """Ask for claims: the ticket, and whether they were granted at once."""
        with self._lock:
            ticket = self._machine.enter(self._machine.open(parent), claims)
            held_up = self._machine.held_up_by(ticket.number)
            if not ticket.granted:
                self._claimants[ticket.number] = (claimant, call)
        if held_up:
            claimant.claims_held_up(call)
        return ticket.number, ticket.granted

    def abandon(self, ticket: int, name: str) -> None:
        """The call that holds these claims was given up; whoever waits for it is told."""
        with self._lock:
            told = [self._claimants[waiter] for waiter in self._machine.abandon(ticket)]
            if ticket in self._machine.abandoned:
                self._abandoned[ticket] = name
        for claimant, call in told:
            claimant.claims_held_up(call)

    def held_up_by(self, ticket: int) -> tuple[int, str] | None:
        """The abandoned call that this ticket waits for, directly or not, and its name."""
        with self._lock:
            holder = self._machine.held_up_by(ticket)
            return (holder, self._abandoned[holder]) if holder else None

    def leave(self, ticket: int) -> None:
        """Give claims back, or withdraw from waiting; wakes whoever goes next."""
        leaving = [ticket]
        while leaving:
            number = leaving.pop()
            with self._lock:
                self._machine.close(self._machine.tickets[number].owner)
                granted = self._machine.leave(number)
                self._claimants.pop(number, None)
                self._abandoned.pop(number, None)
                woken = [(other, *self._claimants.pop(other)) for other in granted]
            leaving += [other for other, to, call in woken if not to.claims_granted(call)]


class _Holder:
    """A `hold` that waits in its own loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.granted: asyncio.Future[None] = self._loop.create_future()

    def claims_granted(self, call: int) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._grant)
        except RuntimeError:  # the loop is closed: nobody will ever leave for this holder
            return False
        return True

    def claims_held_up(self, call: int) -> bool:
        return True  # a hold waits as long as its task lets it

    def _grant(self) -> None:
        if not self.granted.done():
            self.granted.set_result(None)
