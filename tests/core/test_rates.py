import json
import math
import random
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch.core.limits import SlotMachine
from dispatch.core.rates import Rate
from dispatch.core.requests import Need
from dispatch.errors import DeclarationError
from tests.core.test_limits import taken


def wake_at(slots: SlotMachine, now: float) -> float | None:
    """When a request that only waits for its rate could start."""
    wake = slots.next_wake(now)
    return None if wake is None else wake[0]


@pytest.mark.parametrize(
    "numbers",
    [(0, 1), (1, 0), (1, -1), (math.inf, 1), (1, math.nan), (True, 1), ("1", 1), (1, 1, 0)],
    ids=str,
)
def test_a_rate_is_made_of_finite_numbers_above_zero(numbers: tuple[Any, ...]) -> None:
    """Anything else is refused, in words that say what would be right."""
    with pytest.raises(DeclarationError, match="of a rate: must be a finite number above 0, not "):
        Rate(*numbers)


def test_weighted_calls_of_one_rate_start_by_arrival() -> None:
    """A later, cheaper call never overtakes; a call without that rate is not held back."""
    slots = SlotMachine(total=9, rates={"api": Rate(4, per_seconds=4)})
    dear, cheap = (slots.request(1, slots.need("x", {"api"}, cost), 1) for cost in (3, 1))
    dearer, last = (slots.request(1, slots.need("x", {"api"}, cost), 9) for cost in (2, 1))
    other = slots.request(1, slots.need("x", ()), 1)
    assert ([dear, cheap, other], []) == (taken(slots), taken(slots, 1.0))
    assert (2.0, [dearer]) == (wake_at(slots, 1.0), taken(slots, 2.0))
    assert (3.0, [last], None) == (wake_at(slots, 2.0), taken(slots, 3.0), wake_at(slots, 3.0))


def test_a_name_that_is_tool_and_tag_counts_once() -> None:
    """The rate under both is one rate."""
    slots = SlotMachine(total=9, rates={"x": Rate(2, 60)})
    requests = [slots.request(1, slots.need("x", {"x"}), 1) for _ in range(3)]
    assert requests[:2] == taken(slots)


def test_only_calls_whose_slots_are_free_stand_in_a_rates_queue() -> None:
    """A13: one that waits for another tool's limit does not hold back the rate."""
    slots = SlotMachine(total=9, per_tool={"x": 1}, rates={"api": Rate(1, 1)})
    holder = slots.request(1, slots.need("x", ()), 1)
    assert [holder] == taken(slots)
    stuck = slots.request(1, slots.need("x", {"api"}), 9)
    free = slots.request(1, slots.need("y", {"api"}), 1)
    assert [free] == taken(slots)
    assert (None, None) == (wake_at(slots, 0.0), slots.rate_since(stuck))
    slots.release(holder)
    assert ([], 0.5, 1.0) == (taken(slots, 0.5), slots.rate_since(stuck), wake_at(slots, 0.5))
    assert ([stuck], 0.5) == (taken(slots, 1.0), slots.rate_since(stuck))


def test_a_resuming_call_takes_tokens_only_for_another_attempt() -> None:
    """Rated, it stands in the rate's queue as anybody; else it goes at once."""
    slots = SlotMachine(total=9, rates={"x": Rate(1, 1)})
    need = slots.need("x", ())
    first, second = (slots.request(1, need, 1) for _ in range(2))
    assert [first] == taken(slots)
    retry = slots.request(1, need, 1, resuming=True)
    woken = slots.request(1, need, 1, resuming=True, rated=False)
    assert ([woken], [second], [retry]) == (taken(slots), taken(slots, 1.0), taken(slots, 2.0))


def test_a_cost_above_the_burst_is_refused_and_never_stuck() -> None:
    """If the burst is lowered under a waiting call, it takes the full bucket and leaves a debt."""
    slots = SlotMachine(total=9, rates={"api": Rate(1, 1, burst=5)})
    need = slots.need("x", {"api"}, 4)
    first, second, third = (slots.request(1, need, 1) for _ in range(3))
    assert (None, [first]) == (slots.refused(need), taken(slots))
    slots.change(rates={"api": Rate(1, 1, burst=2)})
    assert ("api", 1.0) == (slots.refused(need), wake_at(slots, 0.0))
    assert ([second], 5.0, [third]) == (taken(slots, 1.0), wake_at(slots, 1.0), taken(slots, 5.0))


def test_a_changed_rate_keeps_its_tokens_cut_to_the_new_burst() -> None:
    """Neither refilled nor emptied by the change; removed, it holds nobody back."""
    slots = SlotMachine(total=9, rates={"x": Rate(8, 8)})
    first, second, third, fourth = (slots.request(1, slots.need("x", (), 3), 1) for _ in range(4))
    assert [first, second] == taken(slots)
    slots.change(rates={"x": Rate(1, 2)})
    slots.change(rates={"x": Rate(1, 2, burst=3)})
    assert (4.0, [third]) == (wake_at(slots, 0.0), taken(slots, 4.0))
    slots.change(rates={"x": None})
    assert [fourth] == taken(slots, 4.0)


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.floats(0, 1e9), st.lists(st.floats(0, 1)))
def test_a_rate_is_open_at_the_moment_it_named(
    amount: float, per_seconds: float, start: float, shares: list[float]
) -> None:
    """However floats are rounded: no call is woken too early, so nobody has to ask twice."""
    slots = SlotMachine(total=999, rates={"x": Rate(amount, per_seconds)})
    for share in shares:
        slots.request(1, slots.need("x", (), share * amount), 1)
    now, woken = start, 0
    taken(slots, now)
    while (wake := wake_at(slots, now)) is not None:
        assert wake > now
        now, woken = wake, woken + 1
        assert [] != taken(slots, now)
    assert (len(shares), True) == (len(slots.holders), woken <= len(shares))


# The order rules once more, as plainly as they can be said


@dataclass
class Waiting:
    number: int
    turn: int
    need: Need
    chain: int
    resuming: bool
    rated: bool
    passes: int = 0
    since: float | None = None


class Reference:
    """The rules of the machine by brute force: all waiting requests are looked at each time."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.limits: dict[str, int] = {}
        self.rates: dict[str, Rate] = {}
        self.tokens: dict[str, float] = {}
        self.now = 0.0
        self.waiting: list[Waiting] = []
        self.running: dict[int, Waiting] = {}

    def slots(self, need: Need) -> set[str]:
        return {f"tool:{need.tool}", *(f"tag:{tag}" for tag in need.tags)} & self.limits.keys()

    def rated(self, request: Waiting) -> set[str]:
        names = {request.need.tool, *request.need.tags} & self.rates.keys()
        return names if request.rated else set()

    def bound(self, request: Waiting) -> int:
        return 8 * min((self.limits[name] or 99 for name in self.slots(request.need)), default=99)

    def used(self, name: str) -> int:
        return sum(name in self.slots(holder.need) for holder in self.running.values())

    def room(self, need: Need) -> bool:
        free = all(self.used(name) < self.limits[name] for name in self.slots(need))
        return free and len(self.running) < self.total

    def kept(self) -> list[Waiting]:
        paused = {name for name, limit in self.limits.items() if limit == 0}
        return [
            request
            for request in self.waiting
            if self.late(request) and not paused & self.slots(request.need)
        ][:1]

    def late(self, request: Waiting) -> bool:
        return request.passes >= self.bound(request)

    def standing(self) -> list[Waiting]:
        """Those whose slots are free, by arrival."""
        return [
            request
            for request in self.waiting
            if self.room(request.need)
            and all(
                request is kept
                or request.resuming
                or not self.slots(request.need) & self.slots(kept.need)
                for kept in self.kept()
            )
        ]

    def heads(self) -> list[Waiting]:
        """Those with nobody before them in the queues of their rates."""
        seen: set[str] = set()
        heads = []
        for request in self.standing():
            if not self.rated(request) & seen:
                heads.append(request)
            seen |= self.rated(request)
        return heads

    def missing(self, request: Waiting, name: str) -> float:
        wanted = min(request.need.cost, self.rates[name].capacity)
        return max(0.0, wanted - self.tokens[name])

    def wait(self, request: Waiting) -> float:
        """Seconds until its rates are open."""
        return (
            max(
                (self.missing(request, name) / self.rates[name].per_second)
                for name in self.rated(request)
            )
            if self.rated(request)
            else 0.0
        )

    def take(self, now: float) -> int | None:
        for name, rate in self.rates.items():
            refilled = self.tokens[name] + (now - self.now) * rate.per_second
            self.tokens[name] = min(rate.capacity, refilled)
        self.now = now
        able = [request for request in self.heads() if self.wait(request) == 0]
        if not able:
            for request in self.standing():
                request.since = now if request.since is None else request.since
            return None
        chosen = self.first(able)
        self.start(chosen)
        return chosen.number

    def first(self, able: list[Waiting]) -> Waiting:
        for group in ([r for r in able if r.resuming], [r for r in able if self.late(r)]):
            if group:
                return group[0]
        mates = [request for request in able if request.turn == able[0].turn]
        return max(mates, key=lambda request: (request.chain, -request.number))

    def start(self, chosen: Waiting) -> None:
        self.waiting.remove(chosen)
        self.running[chosen.number] = chosen
        for name in self.rated(chosen):
            self.tokens[name] -= chosen.need.cost
        for request in self.waiting:
            passed = request.number < chosen.number and not chosen.resuming
            if passed and self.slots(request.need) & self.slots(chosen.need):
                request.passes += not self.late(request)

    def wake_at(self) -> float | None:
        return min(
            (self.now + self.wait(request) for request in self.heads() if self.rated(request)),
            default=None,
        )


NAMES = ("a", "b", "c"), ((), ("t",), ("t", "u"), ("a", "u"))


class Walk:
    """A machine and the reference through one random history."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.slots, self.reference = SlotMachine(3), Reference(3)
        self.now = 0.0
        self.change()

    def need(self) -> Need:
        tools, tags = NAMES
        cost = self.draw.choice([0.5, 1, 1, 2])
        return SlotMachine.need(self.draw.choice(tools), self.draw.choice(tags), cost)

    def request(self) -> None:
        if len(self.reference.waiting) > 12:
            return
        draw, need = self.draw, self.need()
        turn, chain = draw.randint(1, 9), draw.randint(1, 3)
        resuming, rated = draw.random() < 0.1, draw.random() < 0.8
        number = self.slots.request(turn, need, chain, resuming=resuming, rated=rated)
        self.reference.waiting.append(Waiting(number, turn, need, chain, resuming, rated))

    def release(self) -> None:
        if self.reference.running:
            number = self.draw.choice(list(self.reference.running))
            del self.reference.running[number]
            self.slots.release(number)

    def withdraw(self) -> None:
        if self.reference.waiting:
            request = self.draw.choice(self.reference.waiting)
            self.reference.waiting.remove(request)
            self.slots.withdraw(request.number)

    def prefer(self) -> None:
        if self.reference.waiting:
            request = self.draw.choice(self.reference.waiting)
            request.chain = self.draw.randint(1, 3)
            self.slots.prefer(request.number, request.chain)

    def swap(self) -> None:
        if self.reference.running:
            number, need = self.draw.choice(list(self.reference.running)), self.need()
            holder = self.reference.running.pop(number)
            room = self.reference.room(need)
            holder.need = need if room else holder.need
            self.reference.running[number] = holder
            assert room == self.slots.swap(number, need)

    def reload(self) -> None:
        state = json.loads(json.dumps(self.slots.dump()))
        self.slots = SlotMachine.load(state)
        assert state == self.slots.dump()

    def change(self) -> None:
        draw, reference = self.draw, self.reference
        reference.total = draw.choice([0, 2, 3, 5, 5, 5])
        tools = {name: draw.choice([None, None, 0, 1, 1, 2]) for name in draw.sample("abc", 2)}
        tags = {name: draw.choice([None, None, 0, 1, 1, 2]) for name in draw.sample("tu", 1)}
        rate = draw.choice([None, None, Rate(2, 4), Rate(4, 1, burst=2), Rate(1, 2, burst=1)])
        rates = {draw.choice("atu"): rate}
        self.slots.change(total=reference.total, per_tool=tools, per_tag=tags, rates=rates)
        named = {f"tool:{name}": limit for name, limit in tools.items()}
        named |= {f"tag:{name}": limit for name, limit in tags.items()}
        limits = reference.limits | named
        reference.limits = {name: limit for name, limit in limits.items() if limit is not None}
        for name, changed in rates.items():
            if changed is None:
                reference.rates.pop(name, None)
                reference.tokens.pop(name, None)
            else:
                tokens = reference.tokens.get(name, changed.capacity)
                reference.tokens[name] = min(tokens, changed.capacity)
                reference.rates[name] = changed

    def step(self) -> None:
        steps = [self.request, self.release, self.withdraw, self.prefer, self.swap, self.reload]
        weights = [30, 20, 2, 3, 3, 3]
        self.draw.choices([*steps, self.change], [*weights, 1])[0]()
        self.now += self.draw.choice([0, 0, 0, 0.5])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_the_machine_does_what_the_order_rules_say(seed: int) -> None:
    """Same starts in the same order, wake-ups and waits as by brute force, and books that balance.

    Limits and rates change under way, and the state goes through JSON.
    """
    walk = Walk(seed)
    for _ in range(150):
        walk.step()
        walk.slots.validate()
        started = True
        while started:
            expected = walk.reference.take(walk.now)
            assert expected == walk.slots.take(walk.now)
            started = expected is not None
            walk.slots.validate()
        assert walk.reference.wake_at() == wake_at(walk.slots, walk.now)
        for request in [*walk.reference.waiting, *walk.reference.running.values()]:
            assert request.since == walk.slots.rate_since(request.number)
