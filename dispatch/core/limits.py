"""Slots: how many calls may run at once, in all, per tool and per tag; and rates. Pure.

Owns who holds a slot and who waits for one. A request names all that it may count against; it gets
slots and rate tokens in one step or nothing. Knows nothing of calls and claims; `now` is passed in.

Order: requests that resume go first, as they came. Among the others whose limits have room and
whose rates are open, the turn whose request was ready first goes first; within one turn, the
longest remaining chain of conflicts (list scheduling, Graham 1966), then the earlier request. Only
requests whose slots are free stand in a rate's queue, and it goes strictly by arrival. A request
never waits for a limit or rate that it does not need.

Except for the bound: a request that was passed 8 times its smallest limit of a tool or tag, each
time by a younger one that took a slot it needs too, goes first, and for the oldest such request the
free slots of its limits (not of the total) are kept; a resuming request may take them all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dispatch.core.adaptive import AdaptiveLimit, Heights
from dispatch.core.lines import Line, Lines, heads, precedence
from dispatch.core.rates import Bucket, Rate, changed
from dispatch.core.requests import Need, Request, urgency

TOTAL = ""
"""The name of the limit of all calls."""


class SlotMachine:
    """Requests in, starts out. See the module for the order."""

    def __init__(
        self,
        total: int | AdaptiveLimit,
        per_tool: Mapping[str, int | AdaptiveLimit] | None = None,
        per_tag: Mapping[str, int | AdaptiveLimit] | None = None,
        rates: Mapping[str, Rate] | None = None,
    ) -> None:
        self.heights = Heights()
        self.total = 0
        self.limits: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.buckets: dict[str, Bucket] = {}
        self.holders: dict[int, Request] = {}
        self.queue: dict[int, Request] = {}
        self._excess: dict[str, int] = {}
        self._lines = Lines()
        self._numbers = 0
        self._now = 0.0
        self.rated = False
        """Whether there is or was any rate."""
        self.change(total=total, per_tool=per_tool, per_tag=per_tag, rates=rates)

    @staticmethod
    def need(tool: str, tags: Iterable[str], cost: float = 1.0) -> Need:
        """Everything a call of this tool with these tags may count against."""
        return Need(tool, tuple(sorted(tags)) if tags else (), cost)

    def refused(self, need: Need) -> str | None:
        """The name of a rate whose burst the cost is above, so that the call could never run."""
        for name in self._lines.scope(need)[1]:
            if need.cost > self.buckets[name].rate.capacity:
                return name
        return None

    def request(
        self, turn: int, need: Need, chain: float, *, resuming: bool = False, rated: bool = True
    ) -> int:
        """Ask for slots; returns the request's number. `take` says when it may start.

        A call that goes on after it was suspended is `resuming`. Without `rated` it takes no
        tokens, as it should unless it begins another attempt.
        """
        number = self._numbers = self._numbers + 1
        request = self.queue[number] = Request(number, turn, need, chain, resuming, rated)
        self._lines.add(request)
        return number

    def take(self, now: float) -> int | None:
        """The number of the next request that may start now, slots and tokens taken; or None."""
        if self.buckets:
            self._now = max(self._now, now)
        if not self.queue or len(self.holders) >= self.total:
            return None
        request = self._next(now) if self.limits or self.buckets else self._lines.next_of_all()
        if request is None:
            return None
        line = self._leave(request)
        self.holders[request.number] = request
        if self.heights.by_name:
            self.heights.started(request.number)
        if line.slots or line.rates:
            for name in line.rates:
                self.buckets[name].spend(request.need.cost, now)
            for name in line.slots:
                self.used[name] += 1
            if line.slots and not line.resuming:
                self._lines.pass_before(request)
        return request.number

    def release(self, number: int) -> None:
        """Give the slots of a started request back."""
        for name in self.holders.pop(number).slots:
            self.used[name] -= 1
        if self.heights.by_name:
            self.heights.ended(number)
        if self._excess:
            self._excess = self._exceeded()

    def learn(self, number: int, *, rejected: bool) -> None:
        """An attempt of a holder succeeded, or ended with a rate-limit signal (`rejected`)."""
        holder = self.holders.get(number)
        if holder is None or not self.heights.by_name:
            return
        used = {TOTAL: len(self.holders), **{name: self.used[name] for name in holder.slots}}
        after = self.heights.learn(number, used, rejected=rejected)
        self.total = after.pop(TOTAL, self.total)
        self.limits.update(after)
        self._excess = self._exceeded()

    def withdraw(self, number: int) -> None:
        """Take back a request that has not started."""
        self._leave(self.queue[number])

    def prefer(self, number: int, chain: float) -> None:
        """The chain behind a request has become known; without effect once it has started."""
        request = self.queue.get(number)
        if request is not None and request.line is not None and request.chain != chain:
            request.line.prefer(request, chain)

    def waiting(self, number: int) -> bool:
        """Whether the request has not been given its slots yet."""
        return number in self.queue

    def swap(self, number: int, need: Need) -> bool:
        """Exchange a holder's slots for those of `need`, if there is room for them at once.

        Its own slots count as free. Takes no tokens. False if there is no room; nothing has
        changed then.
        """
        holder = self.holders[number]
        slots = self._lines.scope(need)[0]
        for name in holder.slots:
            self.used[name] -= 1
        room = len(self.holders) <= self.total and self._have_room(slots)
        if room:
            holder.need = need
        self._hold(holder, slots if room else holder.slots)
        self._excess = self._excess and self._exceeded()
        return room

    def change(
        self,
        *,
        total: int | AdaptiveLimit | None = None,
        per_tool: Mapping[str, int | AdaptiveLimit | None] | None = None,
        per_tag: Mapping[str, int | AdaptiveLimit | None] | None = None,
        rates: Mapping[str, Rate | None] | None = None,
    ) -> None:
        """Change what is named, and only that; None for a name removes its limit or rate.

        Raised limits let requests start at the next `take`; with lowered ones holders finish; 0
        pauses. A changed rate keeps its tokens, as far as its burst holds them.
        """
        if total is not None:
            self.total = self.heights.set(TOTAL, total) or 0
        given = {f"tool:{name}": limit for name, limit in (per_tool or {}).items()}
        given |= {f"tag:{name}": limit for name, limit in (per_tag or {}).items()}
        limits: dict[str, int | None] = dict(self.limits)
        limits |= {name: self.heights.set(name, limit) for name, limit in given.items()}
        self.limits = {name: limit for name, limit in limits.items() if limit is not None}
        self.buckets = changed(self.buckets, rates or {}, self._now)
        self.rated = self.rated or bool(self.buckets)
        if per_tool or per_tag or rates:
            self._rebuild()
        self._excess = self._exceeded()

    def next_wake(self, now: float) -> tuple[float, int] | None:
        """When, at the earliest, a request that only waits for its rate could start, and which."""
        if not self.buckets or not self.queue or len(self.holders) >= self.total:
            return None
        kept = self._lines.kept()
        offers = [(line, line.front(kept)) for line in self._open_lines(kept)]
        moments = [
            (max(now, self._opens_at(line, request)), request.number)
            for line, request in heads(offers)
            if line.rates
        ]
        return min(moments, default=None)

    def rate_since(self, number: int) -> float | None:
        """Since when the request has only waited for its rates; None if it has not.

        Still known after it has started, until its release.
        """
        request = self.queue.get(number) or self.holders.get(number)
        return None if request is None else request.rate_since

    def validate(self) -> None:
        """Raise `AssertionError` if a limit is exceeded or the books do not balance."""
        held = [name for request in self.holders.values() for name in request.slots]
        lined = [line for line in self._lines.all if line.live]
        checks = {
            "within the limits, but for lowered ones": self._exceeded() == self._excess,
            "use adds up": self.used == {name: held.count(name) for name in self.limits},
            "every request in one line": len(self.queue) == sum(line.live for line in lined),
            "lines are known": all(request.line in lined for request in self.queue.values()),
            "late requests counted": self._lines.late == sum(len(line.late) for line in lined),
            "no more tokens than the burst": all(
                bucket.tokens <= bucket.rate.capacity for bucket in self.buckets.values()
            ),
        }
        broken = [name for name, holds in checks.items() if not holds]
        if broken:
            raise AssertionError(f"slots: not {', not '.join(broken)}: {self.dump()}")

    def dump(self) -> dict[str, Any]:
        """The whole state as JSON types; `load` gives an equal machine."""
        return {
            "total": self.total,
            "limits": dict(self.limits),
            "rates": {name: bucket.dump() for name, bucket in self.buckets.items()},
            "excess": dict(self._excess),
            "heights": self.heights.dump(),
            "numbers": self._numbers,
            "now": self._now,
            "holders": [request.dump() for request in self.holders.values()],
            "waiting": [request.dump() for request in self.queue.values()],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> SlotMachine:
        """The machine that `dump` described."""
        machine = cls(state["total"])
        machine.limits = dict(state["limits"])
        machine.buckets = {name: Bucket.load(bucket) for name, bucket in state["rates"].items()}
        machine.rated = bool(machine.buckets)
        machine.heights = Heights.load(state["heights"])
        machine._excess = dict(state["excess"])
        machine._numbers = state["numbers"]
        machine._now = state["now"]
        machine.holders = {held[0]: Request.load(held) for held in state["holders"]}
        machine.queue = {waits[0]: Request.load(waits) for waits in state["waiting"]}
        machine._rebuild()
        return machine

    # Inside

    def _leave(self, request: Request) -> Line:
        del self.queue[request.number]
        return self._lines.remove(request)

    def _hold(self, request: Request, slots: tuple[str, ...]) -> None:
        self.holders[request.number] = request
        request.slots = slots
        for name in slots:
            self.used[name] += 1

    def _next(self, now: float) -> Request | None:
        """Who goes first. All lines are looked at only if there are rates, or someone is late."""
        if not self.buckets and not self._lines.late:
            return self._lines.next(self._have_room)
        kept = self._lines.kept() if self.limits else None
        lines = self._open_lines(kept)
        if len(lines) == 1 and not self.buckets:
            return lines[0].next(kept)
        offers = [(line, line.front(kept)) for line in lines]
        if self.buckets:
            offers = [offer for offer in heads(offers) if self._opens_at(*offer) <= now]
        if not offers:
            for line in lines:
                line.stand(kept, now)
            return None
        line, first = min(offers, key=precedence)
        if first.resuming or first.late:
            return first
        best = [line.best(first.turn, kept) for line, _request in offers]
        return min(filter(None, best), key=urgency)

    def _open_lines(self, kept: Request | None) -> list[Line]:
        """The lines with room in their limits; what is kept for one is room for no other."""
        lines = []
        for line in self._lines.all:
            if line.live and (not line.slots or self._have_room(line.slots)):
                lines.append(line)  # noqa: PERF401 - a comprehension costs a call here
        if kept is None:
            return lines
        return [
            line
            for line in lines
            if line.resuming or line is kept.line or not line.shares(kept.slots)
        ]

    def _have_room(self, slots: tuple[str, ...]) -> bool:
        for name in slots:  # noqa: SIM110 - a generator costs more than all the rest
            if self.used[name] >= self.limits[name]:
                return False
        return True

    def _opens_at(self, line: Line, request: Request) -> float:
        moments = [self.buckets[name].opens_at(request.need.cost) for name in line.rates]
        return max(moments, default=-math.inf)

    def _exceeded(self) -> dict[str, int]:
        """What is used beyond a limit."""
        used, limits = self.used | {TOTAL: len(self.holders)}, self.limits | {TOTAL: self.total}
        return {name: count for name, count in used.items() if count > limits[name]}

    def _rebuild(self) -> None:
        """Work out again what everything counts against."""
        waiting = list(self.queue.values())
        self._lines.clear(self.heights.floors(self.limits), self.buckets)
        self.used = dict.fromkeys(self.limits, 0)
        for request in self.holders.values():
            self._hold(request, self._lines.scope(request.need)[0])
        for request in waiting:
            self._lines.add(request)
