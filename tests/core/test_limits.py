from dispatch.core.limits import SlotMachine

PLAIN = SlotMachine.need("plain", ())


def taken(slots: SlotMachine, now: float = 0.0) -> list[int]:
    """Everything that may start now, in order."""
    started = []
    while (number := slots.take(now)) is not None:
        started.append(number)
    return started


def asked(slots: SlotMachine, *tools: str, turn: int = 1) -> list[int]:
    """One request for each of these tools."""
    return [slots.request(turn, slots.need(tool, ()), 1) for tool in tools]


def test_requests_of_equal_standing_start_in_arrival_order() -> None:
    """First ready, first started, within a turn and between turns."""
    slots = SlotMachine(total=10)
    requests = [slots.request(turn, PLAIN, 1) for turn in (1, 2, 1, 2)]
    assert requests == taken(slots)


def test_within_a_turn_the_longest_chain_goes_first() -> None:
    """When slots are scarce the call with most behind it starts first."""
    slots = SlotMachine(total=1)
    _short, long = slots.request(1, PLAIN, 1), slots.request(1, PLAIN, 5)
    assert [long] == taken(slots)


def test_between_turns_the_earlier_ready_call_goes_first() -> None:
    """A long chain of one turn does not starve a single call of another."""
    slots = SlotMachine(total=1)
    single, _long = slots.request(1, PLAIN, 1), slots.request(2, PLAIN, 9)
    assert [single] == taken(slots)


def test_a_full_limit_never_holds_back_calls_that_do_not_need_it() -> None:
    """A queue for one tool's limit is passed by every other tool's calls."""
    slots = SlotMachine(total=10, per_tool={"slow": 1})
    first, *_rest = [slots.request(1, slots.need("slow", ()), 9) for _ in range(5)]
    assert [first, *asked(slots, "fast", "fast", "fast")] == taken(slots)


def test_a_tag_counts_calls_of_every_tool() -> None:
    """Two tools with one tag share that tag's limit."""
    slots = SlotMachine(total=10, per_tag={"api": 1})
    first = slots.request(1, slots.need("a", {"api"}), 1)
    second = slots.request(1, slots.need("b", {"api"}), 1)
    assert [first] == taken(slots)
    slots.release(first)
    assert [second] == taken(slots)


def test_a_chain_that_becomes_known_later_counts() -> None:
    """`prefer` moves a waiting request, and is without effect on one that has started."""
    slots = SlotMachine(total=1)
    first, second, third = asked(slots, "a", "a", "a")
    slots.prefer(third, 4)
    assert [third] == taken(slots)
    slots.prefer(third, 9)
    slots.release(third)
    assert [first] == taken(slots)
    slots.release(first)
    assert [second] == taken(slots)


def test_resuming_goes_before_starting_and_never_waits_for_another_resuming() -> None:
    """In their own order, each as soon as its slots are free."""
    slots = SlotMachine(total=2, per_tool={"a": 1})
    (holder,) = asked(slots, "a")
    assert [holder] == taken(slots)
    _fresh = asked(slots, "b")
    stuck, free = (slots.request(1, slots.need(tool, ()), 1, resuming=True) for tool in "ab")
    assert [free] == taken(slots)
    slots.release(holder)
    assert [stuck] == taken(slots)


def test_calls_that_swap_full_states_both_go_on() -> None:
    """A15: neither finds room while both hold; suspended, both have given back, and both resume."""
    slots = SlotMachine(total=8, per_tag={"draft": 1, "review": 1})
    draft, review = slots.need("task", {"draft"}), slots.need("task", {"review"})
    first, second = slots.request(1, draft, 1), slots.request(2, review, 1)
    assert [first, second] == taken(slots)
    before = slots.dump()
    assert (False, False, before) == (
        slots.swap(first, review),
        slots.swap(second, draft),
        slots.dump(),
    )
    slots.release(first)
    goes_on = slots.request(1, review, 1, resuming=True)
    assert [] == taken(slots)
    assert slots.swap(second, draft)
    assert [goes_on] == taken(slots)


def test_a_swap_counts_the_holders_own_slots_as_free() -> None:
    """With every slot in use by the holder itself there is room for its next state."""
    slots = SlotMachine(total=1, per_tool={"task": 1}, per_tag={"draft": 1, "review": 1})
    (holder, old, new) = (1, slots.need("task", {"draft"}), slots.need("task", {"review"}))
    assert [slots.request(1, old, 1)] == taken(slots) == [holder]
    assert slots.swap(holder, new)
    assert {"tool:task": 1, "tag:draft": 0, "tag:review": 1} == slots.used


def test_limits_change_under_way() -> None:
    """Lowered ones let holders finish, 0 pauses, raised ones start what waits, None removes."""
    slots = SlotMachine(total=9, per_tool={"a": 2})
    first, second, third, fourth, fifth = asked(slots, *"aaaaa")
    assert [first, second] == taken(slots)
    slots.change(per_tool={"a": 0})
    slots.release(first)
    slots.validate()
    assert [] == taken(slots)
    slots.change(per_tool={"a": 2})
    assert [third] == taken(slots)
    slots.change(total=0, per_tool={"a": None})
    assert [] == taken(slots)
    slots.change(total=3)
    assert [fourth] == taken(slots)
    slots.change(per_tag={"new": 1}, per_tool={"a": 4}, total=9)
    assert [fifth] == taken(slots)
    slots.validate()


def test_a_new_limit_counts_those_who_already_run() -> None:
    """It is as if it had always been there."""
    slots = SlotMachine(total=9)
    first, second, third = asked(slots, *"aaa")
    slots.withdraw(third)
    assert [first, second] == taken(slots)
    slots.change(per_tool={"a": 2})
    asked(slots, "a")
    assert [] == taken(slots)


def stuck_at_the_bound() -> tuple[SlotMachine, int, int]:
    """Limits of 1 for p, q and r; a holder of q, and a late request for p and q."""
    slots = SlotMachine(total=9, per_tool={"p": 1, "r": 1}, per_tag={"q": 1})
    holder = slots.request(1, slots.need("x", {"q"}), 1)
    late = slots.request(2, slots.need("p", {"q"}), 1)
    assert [holder] == taken(slots)
    passed(slots, "p", turn=3)
    return slots, holder, late


def passed(slots: SlotMachine, tool: str, turn: int) -> None:
    """Let eight calls of a long chain start and end."""
    for _ in range(8):
        number = slots.request(turn, slots.need(tool, ()), 9)
        assert [number] == taken(slots)
        slots.release(number)


def test_at_the_bound_slots_are_kept_but_resuming_calls_may_have_them() -> None:
    """A younger call waits for the late one; one that resumes does not, nor does any other tool."""
    slots, holder, late = stuck_at_the_bound()
    _younger, other = asked(slots, "p", "r", turn=4)
    assert [other] == taken(slots)
    resumed = slots.request(5, slots.need("p", ()), 1, resuming=True)
    assert [resumed] == taken(slots)
    slots.release(holder)
    slots.release(resumed)
    assert [late] == taken(slots)


def test_slots_are_kept_for_one_and_every_late_call_goes_first() -> None:
    """A second late call has nothing kept for it, and goes before the longest chain of its turn."""
    slots, _holder, _late = stuck_at_the_bound()
    second = slots.request(6, slots.need("r", ()), 1)
    passed(slots, "r", turn=6)
    slots.request(6, slots.need("r", ()), 99)
    assert [second] == taken(slots)


def test_nothing_is_kept_for_a_paused_call() -> None:
    """While one of its limits is 0 the others are free for all."""
    slots, _holder, _late = stuck_at_the_bound()
    (younger,) = asked(slots, "p")
    assert [] == taken(slots)
    slots.change(per_tag={"q": 0})
    assert [younger] == taken(slots)


# The two simulations of starvation, one second a step


def test_a_call_of_two_limits_is_not_starved_by_calls_of_one() -> None:
    """A14: p and q are never free together, until the call was passed 8 times; then it goes."""
    slots = SlotMachine(total=99, per_tag={"p": 1, "q": 1})
    assert [1] == [slots.request(1, slots.need("x", {"p"}), 1)] == taken(slots)
    running, both = {1: 1}, slots.request(2, slots.need("x", {"p", "q"}), 1)
    passed = 0
    for second in range(200):
        for number in [number for number, end in running.items() if end == second]:
            slots.release(number)
        slots.request(3 + second, slots.need("x", {"qp"[second % 2]}), 1)
        started = taken(slots)
        running |= dict.fromkeys(started, second + 2)
        if both in started:
            break
        passed += len(started)
    assert (8, True) == (passed, both in running)


def test_one_call_is_not_starved_by_a_stream_of_longer_chains() -> None:
    """A14: with a total of 1 and a new chain of two every second, the lone call starts in turn."""
    slots = SlotMachine(total=1)
    waiting = {slots.request(0, PLAIN, 2): False}
    lone = slots.request(1, PLAIN, 1)
    order = []
    for second in range(300):
        waiting[slots.request(2 + second, PLAIN, 2)] = True
        (number,) = taken(slots)
        order.append(number)
        slots.release(number)
        if waiting.pop(number, False):
            slots.request(2 + second, PLAIN, 1)
    assert 1 == order.index(lone)
