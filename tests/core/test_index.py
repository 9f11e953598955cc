from hypothesis import given

from dispatch.claims import READ, WRITE, Claim, conflict
from dispatch.core.index import ConflictIndex
from tests.core.turns import turns

Claims = tuple[Claim, ...]


def reachable(calls: list[Claims]) -> list[set[int]]:
    """Per call, the earlier calls that it waits for directly or through others, by the index."""
    index = ConflictIndex()
    nodes = [index.add(position, claims) for position, claims in enumerate(calls)]
    reach: list[set[int]] = []
    for node, before in enumerate(index.predecessors):
        assert all(other < node for other in before)
        found = set[int]().union(*(reach[other] for other in before))
        reach.append(found | {index.positions[other] for other in before})
    return [reach[node] - {-1} for node in nodes]


def closure(calls: list[Claims]) -> list[set[int]]:
    """The same by comparing every pair."""
    found: list[set[int]] = []
    for position, claims in enumerate(calls):
        before = {e for e in range(position) if conflict(claims, calls[e])}
        found.append(before.union(*(found[earlier] for earlier in before)))
    return found


@given(turns)
def test_the_index_orders_exactly_what_conflicts(calls: list[Claims]) -> None:
    """Reachability in the join graph is the transitive closure of the pairwise conflicts."""
    assert closure(calls) == reachable(calls)


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
    assert [] == index.predecessors[node]
