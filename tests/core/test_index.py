import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from dispatch.claims import READ, WRITE, Claim, combine, conflict
from dispatch.core.index import ConflictIndex
from tests.core.turns import MODES, turns

Claims = tuple[Claim, ...]


Named = list[set[int]]
"""Per call: the earlier calls that it waits for whatever it claims."""

deep_keys = st.lists(st.sampled_from("ab"), max_size=6).map(tuple)
tool_keys = deep_keys.map(lambda key: ("tool", *key))
deep_claims = st.builds(Claim, deep_keys | tool_keys, st.sampled_from(MODES))
deep_turns = st.lists(st.lists(deep_claims, min_size=1, max_size=2).map(combine), max_size=15)


@st.composite
def naming_turns(draw: st.DrawFn) -> tuple[list[Claims], Named]:
    """Calls that claim deep keys, some of which name earlier calls."""
    calls = draw(deep_turns)
    named = [
        draw(st.sets(st.integers(0, position - 1), max_size=2)) if position else set()
        for position in range(len(calls))
    ]
    return calls, named


def reachable(calls: list[Claims], named: Named | None = None) -> list[set[int]]:
    """Per call, the earlier calls that it waits for directly or through others, by the index."""
    index = ConflictIndex()
    nodes: list[int] = []
    for position, claims in enumerate(calls):
        after = [nodes[other] for other in named[position]] if named else ()
        nodes.append(index.add(position, claims, after))
    reach: list[set[int]] = []
    for node, before in enumerate(index.predecessors):
        assert all(other < node for other in before)
        assert len(set(before)) == len(before)
        found = set[int]().union(*(reach[other] for other in before))
        reach.append(found | {index.positions[other] for other in before})
    return [reach[node] - {-1} for node in nodes]


def closure(calls: list[Claims], named: Named | None = None) -> list[set[int]]:
    """The same by comparing every pair."""
    found: list[set[int]] = []
    for position, claims in enumerate(calls):
        before = {e for e in range(position) if conflict(claims, calls[e])}
        before |= named[position] if named else set()
        found.append(before.union(*(found[earlier] for earlier in before)))
    return found


@given(turns)
def test_the_index_orders_exactly_what_conflicts(calls: list[Claims]) -> None:
    """Reachability in the join graph is the transitive closure of the pairwise conflicts."""
    assert closure(calls) == reachable(calls)


@given(naming_turns())
def test_deep_keys_and_named_calls_are_ordered_too(turn: tuple[list[Claims], Named]) -> None:
    """Keys that share any part of their way, in both roots, among calls that name others."""
    assert closure(*turn) == reachable(*turn)


@given(turns | deep_turns)
def test_a_call_is_touched_by_whoever_comes_later_and_conflicts(calls: list[Claims]) -> None:
    """After every call, for every call so far; to ask changes nothing."""
    index = ConflictIndex()
    nodes: list[int] = []
    for position, claims in enumerate(calls):
        nodes.append(index.add(position, claims))
        before = list(index.predecessors)
        for earlier, node in enumerate(nodes):
            touched = any(
                conflict(calls[earlier], later) for later in calls[earlier + 1 : position + 1]
            )
            assert touched == index.touched_since(calls[earlier], node)
        assert before == index.predecessors
    assert reachable(calls) == closure(calls)


def test_a_deep_key_that_nobody_comes_near_costs_no_more_than_a_short_one() -> None:
    """Calls below folders of their own, however deep, leave nothing but themselves in the index."""

    def bytes_taken(depth: int) -> int:
        calls = [(Claim((str(n), *"x" * depth), WRITE),) for n in range(1000)]
        index = ConflictIndex()
        tracemalloc.start()
        for position, claims in enumerate(calls):
            index.add(position, claims)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return taken

    assert bytes_taken(500) <= 1.5 * bytes_taken(2)


def test_one_subtree_read_after_many_leaf_writes_costs_one_edge() -> None:
    """A claim that conflicts with a thousand others waits for one join, and so does the next."""
    index = ConflictIndex()
    for position in range(1000):
        index.add(position, (Claim(("file", "src", str(position)), WRITE),))
    first = index.add(1000, (Claim(("file", "src"), READ),))
    second = index.add(1001, (Claim(("file",), READ),))
    assert 1 == len(index.predecessors[first])
    assert 1 == len(index.predecessors[second])


def test_alternating_subtree_reads_and_leaf_writes_stay_linear() -> None:
    """The hostile shape for pairwise edges costs a constant number of edges a call."""
    index = ConflictIndex()
    for position in range(2000):
        claim = (
            Claim(("file", "src"), READ)
            if position % 2
            else Claim(("file", "src", str(position)), WRITE)
        )
        index.add(position, (claim,))
    assert sum(map(len, index.predecessors)) <= 4 * 2000


def test_keys_of_kind_tool_are_not_below_everything() -> None:
    """A write of everything does not touch keys of kind `tool`, and the other way round."""
    index = ConflictIndex()
    index.add(0, (Claim((), WRITE),))
    node = index.add(1, (Claim(("tool", "a"), WRITE),))
    assert () == index.predecessors[node]
