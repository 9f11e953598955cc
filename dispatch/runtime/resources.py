"""The table that turns, dispatchers, threads and event loops share: claims behind one mutex."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from dispatch.claims import RESERVED_MODES, Claim, FileKeys, checked
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

    def is_dead(self, call: int) -> bool:
        """Whether nobody is left who could ever give the call's claims back."""
        ...


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A call that was given up and keeps its claims until it really ends."""

    ticket: int
    name: str
    claimant: Claimant
    call: int


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
        self._abandoned: dict[int, Abandoned] = {}

    @asynccontextmanager
    async def hold(self, *claims: Claim | tuple[str, ...]) -> AsyncIterator[None]:
        """Hold these claims (or keys, for writing) while the body runs; waits its turn like a call.

        Cancelling while it waits withdraws it. Inside a tool it raises `NotSupported`.
        """
        refuse_inside_tool("table.hold")
        resolved = self._files.resolve(checked(claims))
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

    def check_modes(self, claims: Iterable[Claim]) -> None:
        """Raise `DeclarationError` if these claims bring the commuting modes above 16 names."""
        modes = {claim.mode for claim in claims} - RESERVED_MODES
        if modes <= self._modes:
            return
        with self._lock:
            if len(self._modes | modes) > MAX_MODES:
                new = min(modes - self._modes)
                raise DeclarationError(
                    f"{new!r} would be one commuting mode more than the {MAX_MODES} of a table;"
                    " name modes by operation, not by call"
                )
            self._modes |= modes

    def enter(
        self, claimant: Claimant, call: int, claims: tuple[Claim, ...], parent: int = 0
    ) -> tuple[int, bool]:
        """Ask for claims: the ticket, and whether they were granted at once."""
        with self._lock:
            ticket = self._machine.enter(self._machine.open(parent), claims)
            self._claimants[ticket.number] = (claimant, call)
            held_up = self._machine.held_up_by(ticket.number)
        if held_up:
            claimant.claims_held_up(call)
        return ticket.number, ticket.granted

    def abandon(self, ticket: int, name: str, claimant: Claimant, call: int) -> None:
        """The call that holds these claims was given up; whoever waits for it is told."""
        with self._lock:
            told = [self._claimants[waiter] for waiter in self._machine.abandon(ticket)]
            if ticket in self._machine.abandoned:
                self._abandoned[ticket] = Abandoned(ticket, name, claimant, call)
        for waiting, position in told:
            waiting.claims_held_up(position)

    def held_up_by(self, ticket: int) -> Abandoned | None:
        """The abandoned call that this ticket waits for, directly or not."""
        with self._lock:
            holder = self._machine.held_up_by(ticket)
            return self._abandoned[holder] if holder else None

    def clear_dead(self) -> None:
        """Release what calls hold whose loop was closed in the middle of their turn."""
        with self._lock:
            dead = [ticket for ticket, (who, call) in self._claimants.items() if who.is_dead(call)]
        for ticket in dead:
            self.leave(ticket)

    def leave(self, ticket: int) -> None:
        """Give claims back, or withdraw from waiting; wakes whoever goes next."""
        leaving = [ticket]
        while leaving:
            number = leaving.pop()
            with self._lock:
                if self._claimants.pop(number, None) is None:
                    continue  # released before, as its loop was closed
                self._machine.close(self._machine.tickets[number].owner)
                granted = self._machine.leave(number)
                self._abandoned.pop(number, None)
                woken = [(other, *self._claimants[other]) for other in granted]
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

    def is_dead(self, call: int) -> bool:
        return self._loop.is_closed()

    def _grant(self) -> None:
        if not self.granted.done():
            self.granted.set_result(None)
