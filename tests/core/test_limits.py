import json

from hypothesis import given
from hypothesis import strategies as st

from dispatch.core.limits import SlotMachine


def taken(slots: SlotMachine) -> list[int]:
    """Everything that may start now, in order."""
    started = []
    while (number := slots.take()) is not None:
        started.append(number)
    return started


def test_requests_of_equal_standing_start_in_arrival_order() -> None:
    """First ready, first started, within a turn and between turns."""
    slots = SlotMachine(total=10)
    requests = [slots.request(turn, (), 1) for turn in (1, 2, 1, 2)]
    assert requests == taken(slots)


def test_within_a_turn_the_longest_chain_goes_first() -> None:
    """When slots are scarce the call with most behind it starts first."""
    slots = SlotMachine(total=1)
    _short, long = slots.request(1, (), 1), slots.request(1, (), 5)
    assert [long] == taken(slots)


def test_between_turns_the_earlier_ready_call_goes_first() -> None:
    """A long chain of one turn does not starve a single call of another."""
    slots = SlotMachine(total=1)
    single, _long = slots.request(1, (), 1), slots.request(2, (), 9)
    assert [single] == taken(slots)


def test_a_full_limit_never_holds_back_calls_that_do_not_need_it() -> None:
    """A queue for one tool's limit is passed by every other tool's calls."""
    slots = SlotMachine(total=10, per_tool={"slow": 1})
    slow = slots.dimensions("slow", ())
    first, *_rest = [slots.request(1, slow, 9) for _ in range(5)]
    others = [slots.request(1, slots.dimensions("fast", ()), 1) for _ in range(3)]
    assert [first, *others] == taken(slots)


def test_a_tag_counts_calls_of_every_tool() -> None:
    """Two tools with one tag share that tag's limit."""
    slots = SlotMachine(total=10, per_tag={"api": 1})
    first = slots.request(1, slots.dimensions("a", {"api"}), 1)
    second = slots.request(1, slots.dimensions("b", {"api"}), 1)
    assert [first] == taken(slots)
    slots.release(first)
    assert [second] == taken(slots)


def test_a_chain_that_becomes_known_later_counts() -> None:
    """`prefer` moves a waiting request, and is without effect on one that has started."""
    slots = SlotMachine(total=1)
    first, second, third = (slots.request(1, (), 1) for _ in range(3))
    slots.prefer(third, 4)
    assert [third] == taken(slots)
    slots.prefer(third, 9)
    slots.release(third)
    assert [first] == taken(slots)
    slots.release(first)
    assert [second] == taken(slots)


@given(st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False), st.data())
def test_no_limit_is_ever_exceeded_and_nothing_startable_waits(
    total: int, limit: int, rng: object, data: st.DataObject
) -> None:
    """After any history the books balance, survive JSON, and only full limits make anybody wait."""
    slots = SlotMachine(total, {"a": limit, "b": 1}, {"t": 2})
    waiting: list[int] = []
    running: list[int] = []
    for _ in range(data.draw(st.integers(0, 40))):
        step = data.draw(st.sampled_from(["request", "release", "withdraw", "reload"]))
        if step == "request":
            tool = data.draw(st.sampled_from("abc"))
            tags = data.draw(st.sampled_from([(), ("t",), ("t", "other")]))
            turn, chain = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
            waiting.append(slots.request(turn, slots.dimensions(tool, tags), chain))
        elif step == "release" and running:
            slots.release(running.pop(data.draw(st.integers(0, len(running) - 1))))
        elif step == "withdraw" and waiting:
            slots.withdraw(waiting.pop(data.draw(st.integers(0, len(waiting) - 1))))
        elif step == "reload":
            state = json.loads(json.dumps(slots.dump()))
            slots = SlotMachine.load(state)
            assert state == slots.dump()
        for number in taken(slots):
            waiting.remove(number)
            running.append(number)
        slots.validate()
        assert running == [] or sorted(running) == sorted(slots.holders)
        for number in waiting:
            dimensions = slots._waiting[number].dimensions
            full = any(slots.used[name] >= slots.limits[name] for name in dimensions)
            assert full or len(slots.holders) >= total
