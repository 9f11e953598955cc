"""Limits shared by turns, dispatchers, threads and loops: the slot machine behind a mutex.

Owns who asked, and who is asked to come back when a rate opens. The mutex is held for the machine
alone; starters are told outside it, and one whose loop is gone is taken out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeVar

from dispatch.core.adaptive import AdaptiveLimit
from dispatch.core.limits import TOTAL, SlotMachine
from dispatch.core.rates import Rate
from dispatch.core.requests import Need
from dispatch.errors import DeclarationError
from dispatch.runtime.loops import Party, PerLoop
from dispatch.runtime.signals import is_rate_limit

T = TypeVar("T")

DEFAULT_TOTAL = 8
EARLY = 0.001
"""By how many seconds the timer of a loop may fire before its time."""


class Starter(Party, Protocol):
    """Whoever asked for slots: told, from any thread, that a request has them."""

    number: int

    def slots_taken(self, request: int, call: int) -> bool:
        """Whether the news arrived; False if the starter's loop is gone."""
        ...

    def call_limits_at(self, when: float) -> bool:
        """Call `grant` at this moment of the loop's clock; False if the loop is gone.

        Pass `grant` a `now` that is not before `when`: a loop's timer may fire a little early.
        """
        ...

    def limits_changed(self) -> bool:
        """Call `grant` soon, on the starter's loop; False if the loop is gone."""
        ...


class _Asked(NamedTuple):
    """A starter, the request and call it asked for, and the moment it was told to come back."""

    starter: Starter
    call: int
    request: int
    when: float


class Limits:
    """How many calls may run at once, and how many may start within a time.

    Args:
        total: The most calls at once, whatever they are. It bounds every other limit.
        per_tool: Limits by tool name. A tool that is not named has only the total.
        per_tag: Limits by tag; a call counts against the limit of every tag it has. Each of these
            may be an `AdaptiveLimit`, which finds its own height.
        rates: `Rate`s by the name of a tool or a tag. A call takes its cost from the rate of its
            tool and from that of every tag it has, at the start of each attempt.

    One object may be given to several dispatchers, which then share it, and may be changed at any
    time from any thread. A limit of 0 pauses what it counts. Raises `DeclarationError` for a limit
    that is no `AdaptiveLimit` nor a whole number of at least 0, and for a rate that is no `Rate`.
    """

    def __init__(
        self,
        total: int | AdaptiveLimit = DEFAULT_TOTAL,
        per_tool: Mapping[str, int | AdaptiveLimit] | None = None,
        per_tag: Mapping[str, int | AdaptiveLimit] | None = None,
        rates: Mapping[str, Rate] | None = None,
    ) -> None:
        _check(total, per_tool, per_tag, rates)
        self._machine = SlotMachine(total, per_tool, per_tag, rates)
        self.rated = False
        """Whether there is any rate, or was."""
        self.named: Mapping[str, int] = {}
        """Every limit by name: `total`, `tool:NAME`, `tag:NAME`; an adaptive one at its highest."""
        self._take_note()
        self._lock = threading.Lock()
        self._starters: PerLoop[Starter] = PerLoop()
        self._asked: _Asked | None = None

    def change(
        self,
        *,
        total: int | AdaptiveLimit | None = None,
        per_tool: Mapping[str, int | AdaptiveLimit | None] | None = None,
        per_tag: Mapping[str, int | AdaptiveLimit | None] | None = None,
        rates: Mapping[str, Rate | None] | None = None,
    ) -> None:
        """Change the limits and rates that are named, and no others; from any thread.

        Given None, a name loses its limit or rate. What may start now starts at once, on its own
        loop. After a limit is lowered, running calls finish; 0 pauses until it is raised. A rate
        that is changed keeps the tokens it has, as far as the new burst holds them. Raises
        `DeclarationError` as the constructor does, and changes nothing then.
        """
        now = self.total if total is None else total
        _check(now, _given(per_tool), _given(per_tag), _given(rates))
        with self._lock:
            self._machine.change(total=total, per_tool=per_tool, per_tag=per_tag, rates=rates)
            self._take_note()
            waiting = [self._starters.all[request][0] for request in self._machine.queue]
        for starter in {starter.number: starter for starter in waiting}.values():
            starter.limits_changed()

    def need(self, tool: str, tags: Iterable[str], cost: float = 1.0) -> Need:
        """Everything a call of this tool with these tags counts against, also after changes."""
        return self._machine.need(tool, tags, cost)

    def refused(self, need: Need) -> str | None:
        """The name of a rate whose burst the cost is above, so that the call could never run."""
        with self._lock:
            return self._machine.refused(need)

    def request(
        self,
        starter: Starter,
        call: int,
        need: Need,
        chain: float,
        *,
        resuming: bool = False,
        rated: bool = True,
    ) -> int:
        """Ask for slots; `grant` tells the starter once they are taken.

        A call that goes on after it was suspended is `resuming`; it goes before all that have not
        started. It takes tokens again unless `rated` is False, as only another attempt should.
        """
        with self._lock:
            request = self._machine.request(
                starter.number, need, chain, resuming=resuming, rated=rated
            )
            self._starters.add(request, starter, call)
            return request

    def prefer(self, request: int, chain: float) -> None:
        """The chain of conflicts behind a waiting request has become known."""
        with self._lock:
            self._machine.prefer(request, chain)

    def give_back(self, request: int) -> None:
        """Take a request back, or give its slots back if it has them."""
        with self._lock:
            if self._starters.pop(request) is None:
                return  # released before, as its loop was closed
            if request in self._machine.holders:
                self._machine.release(request)
            else:
                self._machine.withdraw(request)

    def swap(self, request: int, need: Need) -> bool:
        """Exchange the slots that a request has for those of `need`, if there is room at once.

        False, and nothing has changed, if there is none. Call `grant` afterwards.
        """
        with self._lock:
            held = request in self._starters.all and not self._machine.waiting(request)
            return held and self._machine.swap(request, need)

    def learn(self, request: int, error: BaseException | None) -> bool:
        """An attempt that holds slots has ended so: adaptive limits of it rise or fall.

        Returns whether there are any; call `grant` afterwards then.
        """
        if not self._machine.heights.by_name:
            return False
        rejected = error is not None and is_rate_limit(error)
        if error is None or rejected:
            with self._lock:
                self._machine.learn(request, rejected=rejected)
        return True

    def rate_since(self, request: int) -> float | None:
        """Since when a request has waited for nothing but its rates; None if it has not."""
        with self._lock:
            return self._machine.rate_since(request)

    def grant(self, now: float) -> None:
        """Start what may start now, and see to it that somebody comes back when a rate opens."""
        take, asked, lost = self._machine.take, None, True
        while lost:
            taken, lost = [], False
            with self._lock:
                while (request := take(now)) is not None:
                    taken.append((request, *self._starters.all[request]))
            for request, starter, call in taken:
                if not starter.slots_taken(request, call):
                    lost = True
                    self.give_back(request)
            if not lost and self._machine.buckets:
                asked = self._ask(now)
                if asked is not None and not asked.starter.call_limits_at(asked.when):
                    lost = True
                    self.give_back(asked.request)

    def release_lost(self, now: float) -> None:
        """Release the slots of calls whose loop was closed in the middle of their turn."""
        with self._lock:
            lost = self._starters.lost()
        for request, starter in lost:
            self.give_back(request)
            starter.stranded()
        if lost:
            self.grant(now)

    @property
    def total(self) -> int:
        """The most calls at once now; setting it is `change(total=...)`."""
        return self._machine.total

    @total.setter
    def total(self, total: int | AdaptiveLimit) -> None:
        self.change(total=total)

    @property
    def per_tool(self) -> Mapping[str, int]:
        """The limits by tool name, as they are now; read-only."""
        return self._named("tool:")

    @property
    def per_tag(self) -> Mapping[str, int]:
        """The limits by tag, as they are now; read-only."""
        return self._named("tag:")

    @property
    def rates(self) -> Mapping[str, Rate]:
        """The rates by name of a tool or tag, as they are now; read-only."""
        buckets = self._machine.buckets
        return MappingProxyType({name: bucket.rate for name, bucket in buckets.items()})

    @property
    def running(self) -> int:
        """How many calls hold slots now."""
        return len(self._machine.holders)

    @property
    def waiting(self) -> int:
        """How many calls wait for slots or rates now."""
        return len(self._machine.queue)

    def _take_note(self) -> None:
        """Of what stays as it is until the next change, so that no turn has to look for it."""
        self.rated = self._machine.rated
        limits = self._machine.heights.ceilings({TOTAL: self.total, **self._machine.limits})
        named = {"total" if name == TOTAL else name: limit for name, limit in limits.items()}
        self.named = MappingProxyType(named)

    def _named(self, kind: str) -> Mapping[str, int]:
        limits = self._machine.limits.items()
        return MappingProxyType(
            {name.removeprefix(kind): limit for name, limit in limits if name.startswith(kind)}
        )

    def _ask(self, now: float) -> _Asked | None:
        """Who must come back and when, unless somebody will be back by then."""
        asked = self._asked
        lost = asked is not None and asked.starter.is_dead(asked.call)
        with self._lock:
            wake = self._machine.next_wake(now)
            if wake is None or (not lost and self._will_be_back(now, wake[0])):
                return None
            when, request = wake
            self._asked = _Asked(*self._starters.all[request], request, when)
            return self._asked

    def _will_be_back(self, now: float, when: float) -> bool:
        """Whether the one who was asked comes in time.

        One whose request no longer waits is not counted on: its turn may have ended, and its loop.
        """
        asked = self._asked
        if asked is None or not self._machine.waiting(asked.request):
            return False
        return now < asked.when - EARLY and asked.when <= when


def _given(changes: Mapping[str, T | None] | None) -> dict[str, T]:
    return {name: value for name, value in (changes or {}).items() if value is not None}


def _check(
    total: int | AdaptiveLimit,
    per_tool: Mapping[str, int | AdaptiveLimit] | None,
    per_tag: Mapping[str, int | AdaptiveLimit] | None,
    rates: Mapping[str, Rate] | None,
) -> None:
    _check_limit("total", total)
    for what, limits in (("tool", per_tool), ("tag", per_tag)):
        for name, limit in (limits or {}).items():
            _check_limit(f"{what} {name!r}", limit)
    for name, rate in (rates or {}).items():
        if not isinstance(rate, Rate):
            raise DeclarationError(f"rate of {name!r}: must be a Rate, not {rate!r}")


def _check_limit(what: str, limit: int | AdaptiveLimit) -> None:
    if isinstance(limit, AdaptiveLimit):
        return
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise DeclarationError(
            f"limit of {what}: must be a whole number, 0 (paused) or more, not {limit!r}"
        )
