from hypothesis import given
from hypothesis import strategies as st

from dispatch.claims import Claim, conflict
from dispatch.core.live import LiveIndex
from tests.core.turns import claim_sets

Claims = tuple[Claim, ...]


@given(st.lists(claim_sets, max_size=8), st.data())
def test_it_finds_exactly_the_tickets_that_conflict(
    entries: list[Claims], data: st.DataObject
) -> None:
    """After any entering and leaving, `conflicting` and `clear` agree with comparing every pair."""
    index = LiveIndex()
    for ticket, claims in enumerate(entries, start=1):
        index.add(ticket, claims)
    gone = data.draw(st.sets(st.integers(1, len(entries)))) if entries else set()
    for ticket in gone:
        index.remove(ticket, entries[ticket - 1])
    asked = data.draw(claim_sets)
    before = data.draw(st.integers(0, len(entries) + 1))
    expected = {
        ticket
        for ticket, claims in enumerate(entries, start=1)
        if ticket not in gone and conflict(asked, claims)
    }
    assert expected == set(index.conflicting(asked))
    assert expected == set(index.conflicting(asked, newest_first=True))
    assert {t for t in expected if t < before} == set(index.conflicting(asked, before=before))
    assert (not expected) == index.clear(asked)


@given(st.lists(claim_sets, max_size=8))
def test_nothing_is_left_when_everybody_has_gone(entries: list[Claims]) -> None:
    """A node without entries does not exist, so an idle table holds no memory."""
    index = LiveIndex()
    for ticket, claims in enumerate(entries):
        index.add(ticket, claims)
    for ticket, claims in enumerate(entries):
        index.remove(ticket, claims)
    for root in (index._root, index._tools):
        assert ({}, {}, {}) == (root.children, root.here, root.below)
