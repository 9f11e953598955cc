from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.claims import READ, WRITE, Claim, conflict
from dispatch.core.graph import ConflictGraph
from tests.core.turns import turns

Claims = tuple[Claim, ...]
F = ("file", "f")


def graph_of(calls: list[Claims]) -> ConflictGraph:
    graph = ConflictGraph()
    for position, claims in enumerate(calls):
        graph.add(position, claims)
    return graph


@given(turns)
def test_groups_are_the_topological_generations(calls: list[Claims]) -> None:
    """A call's group is one after the last group of the calls it conflicts with."""
    group_of = {
        position: number
        for number, group in enumerate(graph_of(calls).groups())
        for position in group
    }
    expected: dict[int, int] = {}
    for position, claims in enumerate(calls):
        before = [expected[e] for e in range(position) if conflict(claims, calls[e])]
        expected[position] = max(before, default=-1) + 1
    assert expected == group_of


@given(turns)
def test_clusters_are_the_connected_components(calls: list[Claims]) -> None:
    """Two calls share a cluster exactly if conflicts connect them, directly or through others."""
    component = list(range(len(calls)))
    for later in range(len(calls)):
        for earlier in range(later):
            if conflict(calls[later], calls[earlier]):
                old, new = component[later], component[earlier]
                component = [new if c == old else c for c in component]
    expected = {
        tuple(i for i in range(len(calls)) if component[i] == c) for c in dict.fromkeys(component)
    }
    assert expected == set(graph_of(calls).clusters())


@given(turns, st.data())
def test_the_critical_path_is_a_longest_chain(calls: list[Claims], data: st.DataObject) -> None:
    """Its calls conflict one with the next, and no chain of conflicts takes longer."""
    durations = data.draw(st.lists(st.integers(1, 9), min_size=len(calls), max_size=len(calls)))
    graph = graph_of(calls)
    path = graph.critical_path(durations)
    longest: list[int] = []
    for position, claims in enumerate(calls):
        before = [longest[e] for e in range(position) if conflict(claims, calls[e])]
        longest.append(max(before, default=0) + durations[position])
    assert max(longest, default=0) == sum(durations[i] for i in path)
    assert max(longest, default=0) == graph.lower_bound(durations)
    for earlier, later in pairwise(path):
        assert conflict(calls[earlier], calls[later])


def test_the_lower_bound_counts_the_work_under_a_limit() -> None:
    """Six independent seconds under a limit of two take at least three."""
    graph = graph_of([(Claim(("k", str(i)), WRITE),) for i in range(6)])
    assert 3.0 == graph.lower_bound([1.0] * 6, [(2, range(6))])


@given(turns)
def test_a_wait_is_explained_by_calls_that_really_conflict(calls: list[Claims]) -> None:
    """Every direct wait names claims of the two calls that clash, and a call waits iff it must."""
    graph = graph_of(calls)
    for position, claims in enumerate(calls):
        waits, more = graph.waits(position)
        assert len(waits) == 20 or more == 0
        for wait in waits:
            assert wait.pair is not None
            mine, theirs = wait.pair
            assert (True, True) == (mine in claims, theirs in calls[wait.cause])
            assert conflict([mine], [theirs])
        assert bool(waits) == any(conflict(claims, calls[e]) for e in range(position))


def test_a_long_wait_names_the_nearest_twenty_and_counts_the_rest() -> None:
    """Explaining stays short however many calls there are to wait for."""
    calls: list[Claims] = [(Claim((*F, str(i)), READ),) for i in range(50)]
    waits, more = graph_of([*calls, (Claim(F, WRITE),)]).waits(50)
    assert (list(range(49, 29, -1)), 30) == ([wait.cause for wait in waits], more)


def test_durations_must_fit_the_calls() -> None:
    """A wrong number of durations is said, not guessed about."""
    with pytest.raises(ValueError, match="2 calls need as many durations, not 1"):
        graph_of([(), ()]).lower_bound([1.0])


def test_what_a_nearer_call_waits_for_is_not_named_again() -> None:
    """[edit f, edit f, read all]: the read waits for the second edit, and so for the first."""
    graph = graph_of([(Claim(F, WRITE),), (Claim(F, WRITE),), (Claim((), READ),)])
    waits, more = graph.waits(2)
    assert ([1], 0) == ([wait.cause for wait in waits], more)


def test_a_wait_for_a_named_call_has_no_claims_to_show() -> None:
    """[edit f, edit g after the first]: the second waits, and no claim is the reason."""
    graph = ConflictGraph()
    graph.add(0, (Claim(F, WRITE),))
    graph.add(1, (Claim(("file", "g"), WRITE),), (0,))
    waits, _more = graph.waits(1)
    assert [(0, None)] == [(wait.cause, wait.pair) for wait in waits]
    assert [[], []] == [list(graph.conflicts(node)) for node in (0, 1)]
