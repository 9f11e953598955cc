"""Waiting lines for slots: who stands where. Pure.

Owns the order of requests that count against the same limits and rates. A line whose requests go
strictly one after another (resuming ones; those under a rate) has only its oldest to offer; in
any other the longest chain of the turn goes first. A request that was passed as often as the
line's bound allows is *late*.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping

from dispatch.core.requests import Need, Request, arrival, urgency

OVERTAKES = 8
"""How often a request may be passed, times its smallest limit."""

Scope = tuple[tuple[str, ...], tuple[str, ...]]
"""Names of limits and of rates."""
_UNLIMITED: Scope = ((), ())

REMEMBERED = 1024
"""Needs may be without number (a tag per task): what is known of them is not kept."""
EMPTY_LINES = 64


class _Turn:
    """The requests of one turn in a line, the longest chain on top; stale entries are skipped."""

    __slots__ = ("heap", "live")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Request]] = []
        self.live = 0


class Line:
    """The waiting requests that count against the same limits and rates, in order of arrival."""

    __slots__ = (
        "_order",
        "_turns",
        "bound",
        "fresh",
        "late",
        "live",
        "offered",
        "paused",
        "rates",
        "resuming",
        "slots",
        "strict",
    )

    def __init__(self, scope: Scope, resuming: bool, limits: Mapping[str, int]) -> None:
        self.slots, self.rates = scope
        self.resuming = resuming
        self.strict = resuming or bool(self.rates)
        counted = [limits[name] for name in self.slots]
        self.paused = 0 in counted
        self.bound = OVERTAKES * min(filter(None, counted), default=0)
        self.live = 0
        self.late: list[Request] = []
        self.fresh: dict[int, Request] = {}
        self.offered: tuple[int, int] | None = None
        """Rank and number of the request with which it stands among the other lines."""
        self._order: deque[Request] = deque()
        self._turns: dict[int, _Turn] = {}

    def add(self, request: Request) -> None:
        """Put a request at the end; it keeps its passes."""
        request.line = self
        request.slots = self.slots
        self.live += 1
        if self.rates and request.rate_since is None:
            self.fresh[request.number] = request
        request.late = 0 < self.bound <= request.passes
        if request.late:
            insort(self.late, request, key=arrival)
        else:
            self._order.append(request)
        if not self.strict:
            turn = self._turns.get(request.turn)
            if turn is None:
                turn = self._turns[request.turn] = _Turn()
            turn.live += 1
            heapq.heappush(turn.heap, (-request.chain, request.number, request))

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        request.line = None
        self.live -= 1
        if self.fresh:
            self.fresh.pop(request.number, None)
        if request.late:
            del self.late[bisect_left(self.late, request.number, key=arrival)]
        if len(self._order) > 2 * self.live + 64:
            self._order = deque(other for other in self._order if other.line is self)
        if not self.strict:
            turn = self._turns[request.turn]
            turn.live -= 1
            if not turn.live:
                del self._turns[request.turn]

    def prefer(self, request: Request, chain: float) -> None:
        """Change the chain behind a request."""
        request.chain = chain
        if not self.strict:
            heapq.heappush(
                self._turns[request.turn].heap, (-request.chain, request.number, request)
            )

    def front(self, kept: Request | None) -> Request:
        """The request that speaks for the line; for `kept` alone the free slots may be meant."""
        if kept is not None and kept.line is self and not self.resuming:
            return kept
        return self.late[0] if self.late and not self.strict else self._oldest()

    def next(self, kept: Request | None) -> Request | None:
        """The request to go first, if this is the only line with anything to offer."""
        if len(self._turns) == 1 and not (self.strict or self.late or kept):
            return self.best(next(iter(self._turns)), None)
        first = self.front(kept)
        return first if first.resuming or first.late else self.best(first.turn, kept)

    def best(self, turn: int, kept: Request | None) -> Request | None:
        """The request of this turn to go first, if there is one that may."""
        if self.strict:
            oldest = self.front(kept)
            return oldest if oldest.turn == turn else None
        own = self._turns.get(turn)
        if own is None:
            return None
        while own.heap[0][2].line is not self or own.heap[0][2].chain != -own.heap[0][0]:
            heapq.heappop(own.heap)
        return own.heap[0][2]

    def pass_before(self, number: int) -> int:
        """A request that came later than these took a slot that they need; how many are late now.

        Those that were late before do not count again.
        """
        waiting, late = [], len(self.late)
        while self._order and self._order[0].number < number:
            request = self._order.popleft()
            if request.line is not self:
                continue
            request.passes += 1
            if request.passes >= self.bound:
                request.late = True
                insort(self.late, request, key=arrival)
            else:
                waiting.append(request)
        self._order.extendleft(reversed(waiting))
        return len(self.late) - late

    def stand(self, kept: Request | None, now: float) -> None:
        """Slots are free and the rates are closed: note since when."""
        alone = kept is not None and kept.line is self and not self.resuming
        standing = [kept] if kept is not None and alone else list(self.fresh.values())
        for request in standing:
            if self.fresh.pop(request.number, None) is not None:
                request.rate_since = now

    def has(self, turn: int) -> bool:
        """Whether a request of this turn waits here; not asked of a strict line."""
        return turn in self._turns

    def shares(self, slots: tuple[str, ...]) -> bool:
        """Whether one of these slots is needed here."""
        return any(name in slots for name in self.slots)

    def _oldest(self) -> Request:
        order = self._order
        while order and order[0].line is not self:
            order.popleft()
        if not order or (self.late and self.late[0].number < order[0].number):
            return self.late[0]
        return order[0]


def heads(offers: list[tuple[Line, Request]]) -> list[tuple[Line, Request]]:
    """The requests that stand first in the queues of all their rates; so do those without."""
    first: dict[str, int] = {}
    for line, request in offers:
        for name in line.rates:
            first[name] = min(request.number, first.get(name, request.number))
    return [
        (line, request)
        for line, request in offers
        if all(first[name] == request.number for name in line.rates)
    ]


def precedence(offer: tuple[Line, Request]) -> tuple[int, int]:
    """Sorts what the lines offer: who resumes, who is late, then by arrival."""
    return offer[1].rank, offer[1].number


class Lines:
    """All lines, by what their requests count against and whether they resume."""

    def __init__(self) -> None:
        self._limits: Mapping[str, int] = {}
        self._rates: Container[str] = ()
        self.late = 0
        """How many requests are late."""
        self._lines: dict[tuple[Scope, bool], Line] = {}
        self._most = EMPTY_LINES
        """With so many lines it is time to forget the empty ones."""
        self._scopes: dict[Need, Scope] = {}
        self._offers: list[tuple[int, int, Line]] = []
        """What each line offers, first the one to go first; stale entries are skipped."""
        self._by_slot: dict[str, list[Line]] = {}
        self._by_turn: dict[int, dict[Line, None]] = {}

    def clear(self, limits: Mapping[str, int], rates: Container[str]) -> None:
        """These are the limits, at their lowest, and the rates from now on; no request waits."""
        self._limits, self._rates = limits, rates
        self.late = 0
        for known in (self._lines, self._scopes, self._offers, self._by_slot, self._by_turn):
            known.clear()

    @property
    def all(self) -> Iterable[Line]:
        """Every line, also those in which nobody waits."""
        return self._lines.values()

    def scope(self, need: Need) -> Scope:
        """The limits and rates there are for a need."""
        scope = self._scopes.get(need)
        if scope is None:
            if len(self._scopes) >= REMEMBERED:
                self._scopes.clear()
            slots = tuple(name for name in need.slots if name in self._limits)
            rates = tuple(name for name in need.rates if name in self._rates)
            scope = self._scopes[need] = (slots, rates)
        return scope

    def add(self, request: Request) -> None:
        """Put a request at the end of its line."""
        scope = self._scopes.get(request.need) or self.scope(request.need)
        if not request.rated:
            scope = (scope[0], ())
        line = self._lines.get((scope, request.resuming))
        if line is None:
            line = self._new_line(scope, request.resuming)
        line.add(request)
        self.late += request.late
        if self._limits:
            if not line.strict:
                self._by_turn.setdefault(request.turn, {})[line] = None
            self._offer(line)

    def remove(self, request: Request) -> Line:
        """Take a request out of its line, which is returned."""
        line = request.line
        assert line is not None, "it waits"  # noqa: S101 - for the type checker
        line.remove(request)
        self.late -= request.late
        if self._limits:
            if not line.strict and not line.has(request.turn):
                lines = self._by_turn[request.turn]
                del lines[line]
                if not lines:
                    del self._by_turn[request.turn]
            self._offer(line)
        return line

    def pass_before(self, request: Request) -> None:
        """Count for every older request that needs a slot which this one took."""
        sharing = [line for name in request.slots for line in self._by_slot[name] if line.live]
        for line in dict.fromkeys(sharing):
            self.late += line.pass_before(request.number)

    def next(self, has_room: Callable[[tuple[str, ...]], bool]) -> Request | None:
        """The request to go first, where there are no rates and nobody is late."""
        first = self._first(has_room)
        if first is None or first.resuming:
            return first
        lines = [line for line in self._by_turn[first.turn] if has_room(line.slots)]
        return min(filter(None, [line.best(first.turn, None) for line in lines]), key=urgency)

    def _first(self, has_room: Callable[[tuple[str, ...]], bool]) -> Request | None:
        """The first of what those lines offer whose limits have room."""
        offers, full, first = self._offers, [], None
        while offers and first is None:
            rank, number, line = offers[0]
            if line.offered != (rank, number):
                heapq.heappop(offers)
            elif has_room(line.slots):
                first = line.front(None)
            else:
                full.append(heapq.heappop(offers))
        for offer in full:
            heapq.heappush(offers, offer)
        return first

    def _offer(self, line: Line) -> None:
        """Put the line where it stands now, by the request that speaks for it."""
        first = line.front(None) if line.live else None
        offer = None if first is None else (first.rank, first.number)
        if offer is not None and offer != line.offered:
            heapq.heappush(self._offers, (*offer, line))
        line.offered = offer
        if len(self._offers) > 2 * len(self._lines) + EMPTY_LINES:
            lines = self._lines.values()
            self._offers = [(*known.offered, known) for known in lines if known.offered]
            heapq.heapify(self._offers)

    def _new_line(self, scope: Scope, resuming: bool) -> Line:
        if len(self._lines) >= self._most:
            self._lines = {key: line for key, line in self._lines.items() if line.live}
            self._most = 2 * len(self._lines) + EMPTY_LINES
            for name, lines in self._by_slot.items():
                self._by_slot[name] = [line for line in lines if line.live]
        line = self._lines[scope, resuming] = Line(scope, resuming, self._limits)
        for name in line.slots:
            self._by_slot.setdefault(name, []).append(line)
        return line

    def kept(self) -> Request | None:
        """The oldest late request, for which slots are kept; unless a limit of it is paused."""
        late = [line.late[0] for line in self._lines.values() if line.late and not line.paused]
        return min(late, key=arrival, default=None)

    def next_of_all(self) -> Request | None:
        """The request to go first where there is no limit but the total, so that none is late."""
        resuming = self._lines.get((_UNLIMITED, True))
        if resuming is not None and resuming.live:
            return resuming.front(None)
        return self._lines[_UNLIMITED, False].next(None)
