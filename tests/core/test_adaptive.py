"""Adaptive limits in the slot machine: what holds whatever the exact rule of rise and fall is."""

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch.core.adaptive import AdaptiveLimit
from dispatch.core.limits import TOTAL, SlotMachine
from dispatch.core.requests import Need
from dispatch.errors import DeclarationError
from tests.core.test_limits import taken

NEED = SlotMachine.need("x", {"t"})
MACHINES: dict[str, Callable[[AdaptiveLimit], SlotMachine]] = {
    TOTAL: SlotMachine,
    "tool:x": lambda bounds: SlotMachine(99, per_tool={"x": bounds}),
    "tag:t": lambda bounds: SlotMachine(99, per_tag={"t": bounds}),
}
ENOUGH = 500
"""Rounds of successes in which every sane rule gets from a min to a max of these tests."""

where = pytest.mark.parametrize("name", MACHINES, ids=["total", "tool", "tag"])


def heights(slots: SlotMachine) -> dict[str, int]:
    """The limits as they are now."""
    return {TOTAL: slots.total, **slots.limits}


def fill(slots: SlotMachine, need: Need = NEED) -> list[int]:
    """As many calls as there is room for."""
    holders: list[int] = []
    while True:
        number = slots.request(1, need, 1)
        if slots.take(0.0) is None:
            slots.withdraw(number)
            return holders
        holders.append(number)


def end(slots: SlotMachine, holders: list[int], *, rejected: bool = False) -> None:
    """These calls succeed, or are all refused, one after the other."""
    for number in holders:
        slots.learn(number, rejected=rejected)
        slots.release(number)


def grown(slots: SlotMachine, name: str) -> SlotMachine:
    """The machine, after successes with the limit used up, until it is at its highest."""
    highest = slots.heights.by_name[name].bounds.max
    for _ in range(ENOUGH):
        if heights(slots)[name] == highest:
            return slots
        end(slots, fill(slots))
    raise AssertionError(f"{name} did not get to {highest}: {heights(slots)}")


def reloaded(slots: SlotMachine) -> SlotMachine:
    """The machine after a round trip through JSON."""
    state = json.loads(json.dumps(slots.dump()))
    loaded = SlotMachine.load(state)
    assert state == loaded.dump()
    return loaded


@pytest.mark.parametrize(
    "bounds",
    [(0, 4), (-1, 4), (5, 4), (1, 0), (True, 4), (1, True), (1.0, 4), (1, "4"), (None, 4)],
    ids=str,
)
def test_a_declaration_that_cannot_be_is_refused(bounds: tuple[Any, Any]) -> None:
    """Only whole numbers with 1 <= min <= max are bounds, and the message says so."""
    with pytest.raises(DeclarationError, match="AdaptiveLimit"):
        AdaptiveLimit(*bounds)


@where
def test_it_starts_at_its_lowest(name: str) -> None:
    """Before anything is known the other side is not pressed."""
    slots = MACHINES[name](AdaptiveLimit(3, 7))
    assert (3, 3) == (heights(slots)[name], len(fill(slots)))


@where
def test_it_rises_while_it_is_used_up_and_never_above_its_highest(name: str) -> None:
    """Successes with no slot free raise it to max, and then not one further."""
    slots = grown(MACHINES[name](AdaptiveLimit(2, 6)), name)
    for _ in range(20):
        end(slots, fill(slots))
    assert (6, 6) == (heights(slots)[name], len(fill(slots)))
    slots.validate()


@where
def test_it_does_not_rise_while_slots_are_free(name: str) -> None:
    """One call at a time says nothing of what the other side takes beyond it."""
    slots = MACHINES[name](AdaptiveLimit(2, 6))
    for _ in range(ENOUGH):
        number = slots.request(1, NEED, 1)
        assert [number] == taken(slots)
        end(slots, [number])
    assert 2 == heights(slots)[name]


@where
def test_a_signal_lowers_it_and_never_below_its_lowest(name: str) -> None:
    """With all slots in use, the first signal lowers it; any number of them leaves it its min."""
    slots = grown(MACHINES[name](AdaptiveLimit(2, 6)), name)
    running = fill(slots)
    slots.learn(running[0], rejected=True)
    assert 2 <= heights(slots)[name] < 6
    slots.validate()
    for _ in range(20):
        end(slots, running, rejected=True)
        slots.validate()
        running = fill(slots)
    assert (2, 2) == (heights(slots)[name], len(running))


@where
def test_successes_in_flight_at_the_step_down_change_nothing(name: str) -> None:
    """They tell of the old height; calls that start afterwards raise it again."""
    slots = grown(MACHINES[name](AdaptiveLimit(1, 8)), name)
    refused, *flight = fill(slots)
    slots.learn(refused, rejected=True)
    lowered = heights(slots)[name]
    for number in flight:
        slots.learn(number, rejected=False)
    assert lowered == heights(slots)[name] < 8
    for number in (refused, *flight):
        slots.release(number)
    assert 8 == heights(grown(slots, name))[name]


@where
def test_calls_above_a_lowered_limit_finish_and_none_starts_until_there_is_room(name: str) -> None:
    """Nothing is taken back from those who run; the next one starts when fewer run than it says."""
    slots = grown(MACHINES[name](AdaptiveLimit(1, 5)), name)
    refused, *flight = fill(slots)
    waiting = slots.request(1, NEED, 1)
    slots.learn(refused, rejected=True)
    lowered = heights(slots)[name]
    running = [refused, *flight]
    while len(running) >= lowered:
        assert ([], len(running)) == (taken(slots), len(slots.holders))
        slots.release(running.pop())
        slots.validate()
    assert [waiting] == taken(slots)


@where
def test_the_state_goes_through_json_in_the_middle(name: str) -> None:
    """With calls in flight after a step down: the loaded machine goes on as the old one does."""
    old = grown(MACHINES[name](AdaptiveLimit(1, 8)), name)
    refused, *flight = fill(old)
    old.learn(refused, rejected=True)
    old.release(refused)
    new = reloaded(old)
    for number in flight:
        for slots in (old, new):
            slots.learn(number, rejected=False)
            slots.release(number)
        assert old.dump() == new.dump()
    for _ in range(20):
        for slots in (old, new):
            end(slots, fill(slots))
        assert old.dump() == new.dump()


def test_a_signal_is_told_to_all_limits_of_the_call_and_to_no_other() -> None:
    """Total, tool and tag of the call fall; another tool's limit stays, and so does a number."""
    high = AdaptiveLimit(1, 4)
    slots = SlotMachine(high, {"x": high, "y": high, "n": 3}, {"t": high, "n": 9})
    y = slots.need("y", ())
    for _ in range(ENOUGH):
        end(slots, fill(slots))
        end(slots, fill(slots, y))
    number, *_others = fill(slots, slots.need("x", {"t", "n"}))
    before = heights(slots)
    slots.learn(number, rejected=True)
    after = heights(slots)
    fallen = {name for name in before if after[name] < before[name]}
    assert {TOTAL, "tool:x", "tag:t"} == fallen
    assert (4, 3, 9) == (after["tool:y"], after["tool:n"], after["tag:n"])


def test_a_call_that_holds_nothing_teaches_nothing() -> None:
    """Neither one that waits, nor one that has ended, nor any under fixed limits."""
    slots = grown(SlotMachine(AdaptiveLimit(1, 4)), TOTAL)
    ended, *_others = fill(slots)
    slots.release(ended)
    (again,) = fill(slots)
    waiting = slots.request(1, NEED, 1)
    for number in (ended, waiting, 10_000):
        slots.learn(number, rejected=True)
    assert (4, True) == (slots.total, again in slots.holders)
    fixed = SlotMachine(2)
    end(fixed, fill(fixed), rejected=True)
    assert 2 == fixed.total


def test_a_limit_becomes_adaptive_and_a_number_again() -> None:
    """Within the new bounds at once, with who runs counted; a number is that, and stays it."""
    slots = SlotMachine(99, per_tool={"x": 5})
    running = fill(slots)
    slots.change(per_tool={"x": AdaptiveLimit(2, 3)})
    slots.validate()
    assert (5, 2, []) == (len(running), slots.limits["tool:x"], fill(slots))
    end(slots, running)
    grown(slots, "tool:x")
    slots.change(per_tool={"x": AdaptiveLimit(2, 3)}, total=50)
    assert 3 == slots.limits["tool:x"], "the same bounds are no news"
    slots.change(per_tool={"x": AdaptiveLimit(5, 9)})
    assert 5 <= slots.limits["tool:x"] <= 9
    slots.change(per_tool={"x": 4})
    end(slots, fill(slots), rejected=True)
    assert (4, {}) == (slots.limits["tool:x"], slots.heights.by_name)
    slots.change(per_tool={"x": AdaptiveLimit(2, 3)})
    slots.change(per_tool={"x": None})
    assert ({}, {}) == (slots.limits, slots.heights.by_name)
    assert 50 - len(slots.holders) == len(fill(slots))


def test_the_bound_of_passing_is_that_of_its_lowest() -> None:
    """Grown from 1 to 4, a call that needs it and a busy tag is passed 8 times, not 32."""
    slots = SlotMachine(99, {"p": AdaptiveLimit(1, 4)}, {"busy": 4})
    p = slots.need("p", ())
    while slots.limits["tool:p"] < 4:
        end(slots, fill(slots, p))
    slots.change(per_tag={"busy": 4, "other": 5})
    holders = fill(slots, slots.need("other", {"busy"}))
    late = slots.request(2, slots.need("p", {"busy"}), 1)
    for passed in range(40):  # noqa: B007 - it is looked at behind the loop
        slots.request(3, p, 9)
        started = taken(slots)
        if not started:
            break
        end(slots, started)
    assert 8 == passed
    end(slots, holders)
    assert late == slots.take(0.0)


# The guarantees in random histories

BOUNDS = (AdaptiveLimit(1, 4), AdaptiveLimit(2, 3), AdaptiveLimit(1, 1), AdaptiveLimit(3, 9))


class Walk:
    """A machine through one random history; each step checks what it may have changed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.bounds: dict[str, AdaptiveLimit] = {}
        self.flying: dict[str, set[int]] = {}
        """By limit: the calls that have run since before it was last lowered."""
        self.slots = SlotMachine(1, {"b": 2})
        for name in (TOTAL, "tool:a", "tag:t"):
            self.bound(name)

    def bound(self, name: str) -> None:
        """The limit of this name gets other bounds, or the same."""
        bounds = self.draw.choice(BOUNDS)
        if bounds != self.bounds.get(name):
            self.flying[name] = set()
        self.bounds[name] = bounds
        kind, _, of = name.partition(":")
        self.slots.change(
            total=bounds if kind == TOTAL else None,
            per_tool={of: bounds} if kind == "tool" else None,
            per_tag={of: bounds} if kind == "tag" else None,
        )

    def holder(self) -> int | None:
        running = list(self.slots.holders)
        return self.draw.choice(running) if running else None

    def concern(self, number: int) -> dict[str, int]:
        """The limits that a holder counts against, and how much of each is used."""
        used = {name: self.slots.used[name] for name in self.slots.holders[number].slots}
        return {TOTAL: len(self.slots.holders), **used}

    def request(self) -> None:
        tags = self.draw.choice([(), (), ("t",)])
        self.slots.request(
            self.draw.randint(1, 3), self.slots.need(self.draw.choice("abc"), tags), 1
        )

    def start(self) -> None:
        number = self.slots.take(0.0)
        if number is not None:
            limits = heights(self.slots)
            assert all(used <= limits[name] for name, used in self.concern(number).items())

    def release(self) -> None:
        number = self.holder()
        if number is not None:
            self.slots.release(number)
            for flying in self.flying.values():
                flying.discard(number)

    def learn(self, *, rejected: bool) -> None:
        number = self.holder()
        if number is None:
            return
        before, concern = heights(self.slots), self.concern(number)
        self.slots.learn(number, rejected=rejected)
        for name, height in heights(self.slots).items():
            told = name in self.bounds and name in concern
            news = told and concern[name] >= before[name] and number not in self.flying[name]
            may_rise, may_fall = news and not rejected, told and rejected
            assert may_rise or height <= before[name]
            assert may_fall or height >= before[name]
            if height < before[name]:
                self.flying[name] = set(self.slots.holders)

    def reload(self) -> None:
        self.slots = reloaded(self.slots)

    def step(self) -> None:
        steps: list[Callable[[], None]] = [
            *(self.request, self.start, self.release, self.reload),
            *(partial(self.learn, rejected=rejected) for rejected in (False, True)),
            lambda: self.bound(self.draw.choice(list(self.bounds))),
        ]
        self.draw.choices(steps, [30, 30, 15, 2, 20, 5, 1])[0]()
        self.slots.validate()
        limits = heights(self.slots)
        for name, bounds in self.bounds.items():
            assert bounds.min <= limits[name] <= bounds.max
        assert 2 == limits["tool:b"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_every_history_keeps_the_guarantees(seed: int) -> None:
    """Within the bounds; a start only where there is room; up and down only where it may be.

    A success raises a limit only if it was used up and the call began after the last step down; a
    signal raises none; limits that the call does not count against, and numbers, stay as they are.
    """
    walk = Walk(seed)
    for _ in range(200):
        walk.step()
