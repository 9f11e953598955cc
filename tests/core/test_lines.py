"""The lines of requests, looked through one by one, or only as far as somebody may go first."""

import sys
from collections import Counter
from types import FrameType

from hypothesis import given
from hypothesis import strategies as st

from dispatch.core.limits import SlotMachine
from dispatch.core.rates import Rate

PER_TOOL, PER_TAG = {"a": 1, "b": 2}, {"x": 1, "y": 2}
NEEDS = st.tuples(st.sampled_from("abc"), st.frozensets(st.sampled_from("xyz"), max_size=2))
REQUESTS = st.tuples(NEEDS, st.integers(1, 3), st.integers(1, 3), st.booleans())
STEPS = st.one_of(
    st.tuples(st.just("request"), REQUESTS),
    st.tuples(st.sampled_from(["release", "withdraw"]), st.integers(0, 99)),
    st.tuples(st.just("prefer"), st.tuples(st.integers(0, 99), st.integers(1, 5))),
    st.tuples(st.just("swap"), st.tuples(st.integers(0, 99), NEEDS)),
    st.tuples(
        st.just("limit"),
        st.tuples(st.sampled_from("abxy"), st.one_of(st.none(), st.integers(0, 3))),
    ),
)


class Pair:
    """One machine that may stop early, and one that never does, as it has a rate nobody needs."""

    def __init__(self) -> None:
        self.both = [
            SlotMachine(4, PER_TOOL, PER_TAG),
            SlotMachine(4, PER_TOOL, PER_TAG, {"none": Rate(1, 1)}),
        ]

    @property
    def waiting(self) -> list[int]:
        return list(self.both[0].queue)

    @property
    def running(self) -> list[int]:
        return list(self.both[0].holders)

    def request(self, given: tuple[tuple[str, frozenset[str]], int, int, bool]) -> None:
        need, turn, chain, resuming = given
        for slots in self.both:
            slots.request(turn, slots.need(*need), chain, resuming=resuming)

    def release(self, which: int) -> None:
        if self.running:
            number = self.running[which % len(self.running)]
            for slots in self.both:
                slots.release(number)

    def withdraw(self, which: int) -> None:
        if self.waiting:
            number = self.waiting[which % len(self.waiting)]
            for slots in self.both:
                slots.withdraw(number)

    def prefer(self, given: tuple[int, int]) -> None:
        if self.waiting:
            number = self.waiting[given[0] % len(self.waiting)]
            for slots in self.both:
                slots.prefer(number, given[1])

    def swap(self, given: tuple[int, tuple[str, frozenset[str]]]) -> None:
        if self.running:
            number = self.running[given[0] % len(self.running)]
            assert 1 == len({slots.swap(number, slots.need(*given[1])) for slots in self.both})

    def limit(self, given: tuple[str, int | None]) -> None:
        name, limit = given
        for slots in self.both:
            if name in "ab":
                slots.change(per_tool={name: limit})
            else:
                slots.change(per_tag={name: limit})

    def take(self) -> None:
        """The next request to start is the same one, until nobody may."""
        while True:
            first, second = (slots.take(0.0) for slots in self.both)
            assert first == second
            if first is None:
                return

    def validate(self) -> None:
        for slots in self.both:
            slots.validate()


@given(st.lists(STEPS, min_size=5, max_size=80))
def test_who_goes_first_is_found_without_looking_at_everybody(
    steps: list[tuple[str, object]],
) -> None:
    """With and without a rate, which makes the machine look through all lines, the order is one."""
    pair = Pair()
    for name, what in steps:
        getattr(pair, name)(what)
        pair.take()
        pair.validate()


def test_who_leaves_while_nobody_may_start_is_forgotten() -> None:
    """200 of one line give up, oldest first; then the oldest who still waits goes first."""
    slots = SlotMachine(1, PER_TOOL)
    holder, other, *waiting = [
        slots.request(number, slots.need("b" if number == 1 else "a", ()), 1)
        for number in range(300)
    ]
    assert holder == slots.take(0.0)
    for number in waiting[:200]:
        slots.withdraw(number)
    for expected in (other, waiting[200]):
        slots.release(holder)
        holder = expected
        assert expected == slots.take(0.0)


def test_finding_who_goes_first_is_as_cheap_among_many() -> None:
    """A limit per user: with 400 users who wait it takes as many calls as with 40."""

    def called(users: int) -> int:
        slots = SlotMachine(4, per_tag={f"user{n}": 1 for n in range(users)})
        for number in range(2 * users):
            slots.request(number, slots.need("chat", {f"user{number // 2}"}), 1)
        running = [slots.take(0.0) for _ in range(4)]
        calls = Counter[str]()

        def note(frame: FrameType, event: str, arg: object) -> None:
            calls[event] += 1

        sys.setprofile(note)
        for _ in range(20):
            slots.release(running.pop(0) or 0)
            running.append(slots.take(0.0))
        sys.setprofile(None)
        return calls["call"]

    assert called(400) == called(40)
