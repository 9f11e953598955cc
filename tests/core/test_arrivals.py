from hypothesis import given
from hypothesis import strategies as st

from dispatch.core.arrivals import Arrivals

IDS = "abcdef"

names = st.lists(st.sampled_from(IDS), max_size=2, unique=True).map(tuple)
named_calls = st.lists(st.tuples(st.sampled_from(IDS), names), max_size=6)

Named = list[tuple[str, tuple[str, ...]]]


def admitted(calls: Named) -> tuple[list[int], Arrivals]:
    """The order in which the calls take their places, and what is left."""
    arrivals = Arrivals()
    order = [
        placed
        for position, (call_id, after) in enumerate(calls)
        for placed in arrivals.arrive(position, call_id, after)
    ]
    return order, arrivals


@given(named_calls)
def test_a_call_stands_behind_all_that_had_to_come_for_it(calls: Named) -> None:
    """Every id that a call names has a place before it; whoever names nothing new keeps its place.

    Checked against looking at all that is parked from the start each time.
    """
    expected: list[int] = []
    for position in range(len(calls)):
        waiting = [p for p in range(position + 1) if p not in expected]
        while True:
            ids = {calls[p][0] for p in expected}
            free = [p for p in waiting if p not in expected and set(calls[p][1]) <= ids]
            if not free:
                break
            expected.append(free[0])
    order, _arrivals = admitted(calls)
    assert expected == order


@given(named_calls)
def test_what_can_never_come_is_found_exactly(calls: Named) -> None:
    """Calls on a cycle of names, and calls that name an id that nobody has; nobody else."""
    order, arrivals = admitted(calls)
    ids = {call_id for call_id, _after in calls}

    def behind(position: int) -> set[int]:
        """The parked calls that this one names, directly or through others."""
        found: set[int] = set()
        stack = [position]
        while stack:
            wanted = set(calls[stack.pop()][1]) - {calls[p][0] for p in order}
            new = {p for p, (i, _) in enumerate(calls) if i in wanted and p not in order} - found
            found |= new
            stack += new
        return found

    lost = {p for p, (_, after) in enumerate(calls) if set(after) - ids}
    cyclic = {p for p in range(len(calls)) if p not in order and p in behind(p)}
    assert sorted(lost | cyclic) == list(arrivals.hopeless())


@given(named_calls)
def test_admission_makes_no_cycle_that_nobody_wrote(calls: Named) -> None:
    """If names alone form no cycle and all ids come, everybody gets a place."""
    order, arrivals = admitted(calls)
    if not arrivals.hopeless():
        assert sorted(order) == list(range(len(calls)))


@given(named_calls)
def test_it_survives_json(calls: Named) -> None:
    """What is parked, and who has which id, is the same after a round trip."""
    _order, arrivals = admitted(calls)
    again = Arrivals.load(arrivals.dump())
    assert arrivals.dump() == again.dump()
    assert arrivals.hopeless() == again.hopeless()


def test_a_call_that_names_a_later_one_stands_right_behind_it() -> None:
    """[a after c, b, c]: the order is b, c, a, whatever conflicts."""
    assert [1, 2, 0] == admitted([("a", ("c",)), ("b", ()), ("c", ())])[0]


def test_a_reason_names_the_missing_id_or_the_cycle() -> None:
    """[a after b, b after a, c after nobody, d after c]: d itself is not at fault."""
    calls: Named = [("a", ("b",)), ("b", ("a",)), ("c", ("x",)), ("d", ("c",))]
    cycle = "it waits for itself, by way of 'a', 'b'"
    missing = "it waits for 'x', and no call of this turn has that id"
    assert {0: cycle, 1: cycle, 2: missing} == admitted(calls)[1].hopeless()
