"""The table that turns, dispatchers, threads and event loops share: claims behind one mutex."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from dispatch.claims import READ, RESERVED_MODES, TOOL, Claim, FileKeys, checked, conflict
from dispatch.core.table import Granted, TableMachine
from dispatch.errors import Deadlock, DeclarationError
from dispatch.runtime.futures import resolve
from dispatch.runtime.loops import Party, PerLoop
from dispatch.runtime.nesting import PARENT, Scope, current

MAX_MODES = 16
REMEMBERED = 2048
"""Of so many changes the table knows what they touched."""


class Claimant(Party, Protocol):
    """Whoever entered claims: told, from any thread, what became of them."""

    def claims_granted(self, call: int) -> bool:
        """Whether the news arrived; False if the claimant's loop is gone."""
        ...

    def claims_deadlocked(self, call: int, parties: str) -> bool:
        """The ticket was taken out because of a deadlock with these."""
        ...

    def claims_held_up(self, call: int) -> bool:
        """The call waits, directly or not, for one that was given up and may never end."""
        ...

    def name_of(self, call: int) -> str:
        """How people would name the call."""
        ...


class Abandoned(NamedTuple):
    """A call that was given up and keeps its claims until it really ends."""

    ticket: int
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
        self._claimants: PerLoop[Claimant] = PerLoop()
        self._modes: set[str] = set()
        self._abandoned: dict[int, Abandoned] = {}
        self.changes = 0
        """How often claims that may change something were granted or given back."""
        self._changed: deque[tuple[Claim, ...]] = deque(maxlen=REMEMBERED)

    @asynccontextmanager
    async def hold(self, *claims: Claim | tuple[str, ...]) -> AsyncIterator[None]:
        """Hold these claims (or keys, for writing) while the body runs; waits its turn like a call.

        Outside of tools it keeps out whatever claims the same, what the body itself starts too.
        Inside a tool it is nested in the tool's call, which gives its slots back while it waits,
        and what the body starts is nested in it. Cancelling while it waits withdraws it. Raises
        `Deadlock` if it is the one to fail of a cycle.
        """
        resolved = self._files.resolve(checked(claims))
        self.check_modes(resolved)
        self.release_lost()
        outer = current()
        if outer is not None:
            outer.check_wanted()
        inside = None if outer is None else outer.on(self)
        keeper = None if inside is None else inside.keeper
        holder = _Holder("a hold" if outer is None else f"a hold in {outer.tool}")
        owner = self.open(0 if inside is None else inside.owner)
        ticket, granted = self.enter(holder, 0, resolved, owner)
        scope = None if outer is None else outer.held_in(self, owner)
        entered = PARENT.get()
        try:
            if not granted:
                await _waited(holder.granted, outer)
            granted = True
            if scope is not None:
                PARENT.set(scope)
            yield
        finally:
            PARENT.set(entered)
            if scope is not None:
                scope.alive = False
            if not (granted and keeper is not None and keeper.keep(self, [ticket], [])):
                self.leave(ticket)
            self.close(owner)

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

    def open(self, parent: int = 0) -> int:
        """A new owner below `parent`."""
        with self._lock:
            return self._machine.open(parent)

    def close(self, owner: int) -> None:
        """Forget an owner that has no tickets left."""
        with self._lock:
            self._machine.close(owner)

    def enter(
        self, claimant: Claimant, call: int, claims: tuple[Claim, ...], owner: int
    ) -> tuple[int, bool]:
        """Ask for claims: the ticket, and whether they were granted at once."""
        with self._lock:
            ticket = self._machine.enter(owner, claims)
            self._claimants.add(ticket.number, claimant, call)
            held_up = self._machine.held_up_by(ticket.number)
            if ticket.granted:
                self._note(claims)
            told = self._news(but=ticket.number if ticket.granted else 0)
        self._tell(told)
        if held_up:
            claimant.claims_held_up(call)
        return ticket.number, ticket.granted

    def move(self, tickets: Iterable[int], owner: int, claimant: Claimant) -> None:
        """These granted tickets pass to another owner, and to the turn that will leave them."""
        with self._lock:
            for ticket in tickets:
                if self._claimants.pop(ticket) is not None:
                    self._machine.move(ticket, owner)
                    self._claimants.add(ticket, claimant, -1)
            told = self._news()
        self._tell(told)

    def granted_below(self, owner: int) -> list[int]:
        """The granted tickets of this owner, and of whatever stands below it."""
        with self._lock:
            return self._machine.granted_below(owner)

    def abandon(self, ticket: int, claimant: Claimant, call: int) -> None:
        """The call that holds these claims was given up; whoever waits for it is told."""
        with self._lock:
            waiting = self._machine.abandon(ticket)
            held_up = [self._claimants.all[waiter] for waiter in waiting]
            if ticket in self._machine.abandoned:
                self._claimants.pop(ticket)
                self._claimants.add(ticket, claimant, call)
                self._abandoned[ticket] = Abandoned(ticket, claimant, call)
            told = self._news()
        self._tell(told)
        for waiter, position in held_up:
            waiter.claims_held_up(position)

    def held_up_by(self, ticket: int) -> Abandoned | None:
        """The abandoned call that this ticket waits for, directly or not."""
        with self._lock:
            holder = self._machine.held_up_by(ticket)
            return self._abandoned.get(holder)

    def same_root(self, first: int, second: int) -> bool:
        """Whether two tickets belong to the same root turn."""
        with self._lock:
            return self._machine.same_root(first, second)

    def blocked_by_abandoned(self, claims: tuple[Claim, ...]) -> Abandoned | None:
        """An abandoned call that conflicts with these claims."""
        with self._lock:
            return self._abandoned.get(self._machine.abandoned_conflict(claims))

    def release_lost(self) -> None:
        """Release what calls hold whose loop was closed in the middle of their turn."""
        with self._lock:
            lost = self._claimants.lost()
        for ticket, claimant in lost:
            self.leave(ticket)
            claimant.stranded()

    def leave(self, ticket: int) -> None:
        """Give claims back, or withdraw from waiting; wakes whoever goes next."""
        with self._lock:
            if self._claimants.pop(ticket) is None:
                return  # taken out before: a deadlock's victim, or its loop was closed
            known = self._machine.tickets.get(ticket)
            if known is not None and known.granted:
                self._note(known.claims)  # it may have changed things until now
            self._machine.leave(ticket)
            self._abandoned.pop(ticket, None)
            told = self._news()
        self._tell(told)

    def _news(self, but: int = 0) -> list[Callable[[], object]]:
        """Whom to tell what, once the lock is released."""
        told: list[Callable[[], object]] = []
        for news in self._machine.news:
            if isinstance(news, Granted):
                if news.ticket != but:
                    self._note(self._machine.tickets[news.ticket].claims)
                    told.append(partial(self._tell_granted, news.ticket))
                continue
            claimant, call = self._claimants.all[news.ticket]
            self._claimants.pop(news.ticket)
            parties = " and ".join(
                who.name_of(number)
                for who, number in map(self._claimants.all.__getitem__, news.parties)
            )
            told.append(partial(claimant.claims_deadlocked, call, parties))
        self._machine.news.clear()
        return told

    def changed_since(self, changes: int, claims: tuple[Claim, ...]) -> bool:
        """Whether something that conflicts with these claims may have been changed since then."""
        with self._lock:
            count = self.changes - changes
            latest = islice(reversed(self._changed), count)
            return count > REMEMBERED or any(conflict(one, claims) for one in latest)

    def _note(self, claims: tuple[Claim, ...]) -> None:
        """These claims were granted, or are given back."""
        touched = tuple(c for c in claims if c.mode != READ and c.key[:1] != (TOOL,))
        if touched:
            self.changes += 1
            self._changed.append(touched)

    def _tell(self, told: list[Callable[[], object]]) -> None:
        for tell in told:
            tell()

    def _tell_granted(self, ticket: int) -> None:
        with self._lock:
            known = self._claimants.all.get(ticket)
        if known is not None and not known[0].claims_granted(known[1]):
            self.leave(ticket)  # its loop is closed: nobody will


async def _waited(granted: asyncio.Future[None], outer: Scope | None) -> None:
    """Wait for the claims, without the slots of the call that this is in."""
    async with contextlib.nullcontext() if outer is None else outer.suspended():
        await granted


class _Holder:
    """A `hold` that waits in its own loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.loop = asyncio.get_running_loop()
        self.granted: asyncio.Future[None] = self.loop.create_future()

    def claims_granted(self, call: int) -> bool:
        return self._soon(self._grant)

    def claims_deadlocked(self, call: int, parties: str) -> bool:
        return self._soon(self._fail, parties)

    def claims_held_up(self, call: int) -> bool:
        return True  # a hold waits as long as its task lets it

    def is_dead(self, call: int) -> bool:
        return self.loop.is_closed()

    def stranded(self) -> None:
        """Nothing waits for a hold but its own task."""

    def name_of(self, call: int) -> str:
        return self._name

    def _soon(self, handle: Callable[..., None], *news: object) -> bool:
        try:
            self.loop.call_soon_threadsafe(handle, *news)
        except RuntimeError:  # the loop is closed: nobody will ever leave for this holder
            return False
        return True

    def _grant(self) -> None:
        resolve(self.granted, None)

    def _fail(self, parties: str) -> None:
        if not self.granted.done():
            self.granted.set_exception(
                Deadlock(f"deadlock: this hold and {parties} wait for each other")
            )
