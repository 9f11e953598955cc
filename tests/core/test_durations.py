"""What is known of how long tools take, and the chains in seconds that come of it."""

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


def test_the_first_duration_is_the_estimate_and_later_ones_move_it() -> None:
    """An average in which the newest counts: between the old estimate and the new duration."""
    durations = Durations()
    durations.learn("a", 8.0)
    assert [8.0, 8.0] == durations.of(["a", "a"])
    durations.learn("a", 2.0)
    (estimate,) = durations.of(["a"]) or [0.0]
    assert 2.0 < estimate < 8.0


def test_a_tool_that_behaves_otherwise_is_known_anew() -> None:
    """From 60 s to 1 s: after twenty calls the estimate is near 1."""
    durations = Durations()
    for seconds in [60.0] * 20 + [1.0] * 20:
        durations.learn("a", seconds)
    assert pytest.approx([1.0], abs=0.5) == durations.of(["a"])


def test_an_unknown_tool_counts_as_the_mean_of_the_known() -> None:
    """Of those calls of the turn whose tool is known; a tool elsewhere does not count."""
    durations = Durations()
    for tool, seconds in (("a", 2.0), ("b", 8.0), ("elsewhere", 1000.0)):
        durations.learn(tool, seconds)
    assert [2.0, 5.0, 8.0, 5.0] == durations.of(["a", "x", "b", "y"])


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


@pytest.mark.parametrize("durations", [None, [1.0, 1.0, 1.0, 9.0]], ids=["calls", "seconds"])
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
