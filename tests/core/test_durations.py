"""What is known of how long tools take, and the chains that come of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.claims import READ, WRITE, Claim, conflict
from dispatch.core.durations import Durations
from dispatch.core.life import Do
from dispatch.core.turn import TurnMachine
from tests.core.single import READ_F, Claims, F, G, asked
from tests.core.test_graph import graph_of
from tests.core.turns import turns


def test_nothing_known_is_no_estimate() -> None:
    """Before any of these tools has run there are no seconds, whatever others took."""
    durations = Durations()
    assert None is durations.of(["a", "b"])
    durations.learn("other", 3.0)
    assert (None, None) == (durations.of(["a", "b"]), durations.of([]))


def test_tools_that_take_no_time_are_not_told_apart() -> None:
    """On a clock that stood still nothing was learnt."""
    durations = Durations()
    durations.learn("a", 0.0)
    assert None is durations.of(["a", "b"])


def test_the_first_duration_is_the_estimate_and_later_ones_move_it() -> None:
    """An average in which the newest counts: between the old estimate and the new duration."""
    durations = Durations()
    for tool in ("a", "b"):
        durations.learn(tool, 8.0)
    assert [1.0, 1.0, 1.0] == durations.of(["a", "b", "a"])
    durations.learn("a", 2.0)
    estimate, other = durations.of(["a", "b"]) or [0.0, 0.0]
    assert 2.0 < 8.0 * estimate / other < 8.0


def test_a_tool_that_behaves_otherwise_is_known_anew() -> None:
    """From 60 s to 1 s: after twenty calls the estimate is near 1."""
    durations = Durations()
    for seconds in [60.0] * 20 + [1.0] * 20:
        durations.learn("a", seconds)
    durations.learn("b", 1.0)
    assert pytest.approx([1.0, 1.0], abs=0.2) == durations.of(["a", "b"])


def test_an_unknown_tool_takes_as_long_as_a_known_one() -> None:
    """On average over the tools of the turn, each counted once; a tool elsewhere does not count."""
    durations = Durations()
    for tool, seconds in (("a", 2.0), ("b", 8.0), ("elsewhere", 1000.0)):
        durations.learn(tool, seconds)
    assert [0.4, 1.0, 1.6, 1.0, 0.4] == durations.of(["a", "x", "b", "y", "a"])


@given(st.floats(1e-9, 1e9), st.integers(1, 50))
def test_the_calls_of_one_tool_are_all_of_length_one(seconds: float, calls: int) -> None:
    """Exactly: then nobody who waits has to be told of a chain that is as long as it was."""
    durations = Durations()
    durations.learn("a", seconds)
    assert [1.0] * calls == durations.of(["a"] * calls)


@given(turns, st.data())
def test_a_remaining_chain_is_the_longest_in_seconds(
    calls: list[Claims], data: st.DataObject
) -> None:
    """By brute force over all pairs of conflicting calls; in calls where no seconds are given."""
    size = len(calls)
    seconds = data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    graph = graph_of(calls)
    for durations in (seconds, None):
        chains = graph.remaining_chains(durations)
        found = {position: chains[node] for position, node in graph.nodes.items()}
        longest: dict[int, float] = {}
        for position in reversed(range(size)):
            behind = [
                longest[later]
                for later in range(position + 1, size)
                if conflict(calls[position], calls[later])
            ]
            own = 1 if durations is None else durations[position]
            longest[position] = own + max(behind, default=0)
        assert longest == found


def closed(durations: list[float] | None) -> TurnMachine:
    """Three writes of f and one of g, closed with these estimates."""
    machine = TurnMachine()
    for claims in (F, F, F, G):
        machine.submit(claims)
    machine.close(durations)
    return machine


def chains(machine: TurnMachine) -> list[float]:
    return [machine.chain(call.position) for call in machine.calls]


def test_a_turn_ranks_by_seconds_where_there_are_any_and_else_by_calls() -> None:
    """The write of g takes longer than the three of f together, but is one call."""
    assert [3, 2, 1, 1] == chains(closed(None))
    assert [3, 2, 1, 9] == chains(closed([1.0, 1.0, 1.0, 9.0]))


def test_no_chain_is_known_before_the_turn_is_closed() -> None:
    """Whatever may still come, all calls stand equal."""
    machine = TurnMachine()
    for claims in (F, F, G):
        machine.submit(claims)
    assert [1, 1, 1] == chains(machine)


def test_those_who_asked_before_the_close_are_ranked_anew() -> None:
    """A call that waits for slots since before is told of its chain; one that runs is not."""
    machine = TurnMachine()
    for claims in (F, F, G):
        machine.submit(claims)
    for position in asked(machine, Do.ENTER):
        machine.granted(position)
    assert [0, 2] == asked(machine, Do.REQUEST)
    machine.started(0, heeds_token=True)
    machine.close([1.0, 1.0, 9.0])
    assert ([2], 9) == (asked(machine, Do.PREFER), machine.chain(2))


def test_those_whose_chain_is_what_they_asked_with_are_not_told() -> None:
    """One call of length 1 stands where it stood; one with another behind it does not."""
    machine = TurnMachine()
    for claims in (F, G, F):
        machine.submit(claims)
    for position in asked(machine, Do.ENTER):
        machine.granted(position)
    assert [0, 1] == asked(machine, Do.REQUEST)
    machine.close([1.0, 1.0, 1.0])
    assert [0] == asked(machine, Do.PREFER)


@pytest.mark.parametrize("durations", [None, [1.0, 1.0, 1.0, 9.0]], ids=["calls", "estimates"])
def test_the_ranks_go_through_json(durations: list[float] | None) -> None:
    """A loaded turn has the chains of the dumped one, in seconds too."""
    machine = closed(durations)
    asked(machine, Do.ENTER)
    state = json.loads(json.dumps(machine.dump()))
    loaded = TurnMachine.load(state)
    assert (chains(machine), state) == (chains(loaded), loaded.dump())


def test_reads_that_meet_in_one_write_each_have_the_whole_chain() -> None:
    """A chain that is read by a later claim goes through a join, which takes no time."""
    reads: list[Claims] = [(Claim(("file", "f", str(n)), READ),) for n in range(30)]
    last: Claims = (Claim(("file", "f"), WRITE),)
    graph = graph_of([*reads, last, READ_F])
    found = graph.remaining_chains([*[float(n) for n in range(30)], 100.0, 1000.0])
    expected = [*[n + 1100.0 for n in range(30)], 1100.0, 1000.0]
    assert expected == [found[node] for node in graph.nodes.values()]
