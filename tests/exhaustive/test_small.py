"""The part of the exploration that is quick enough for every run: turns of up to 3 calls."""

import pytest

from tests.exhaustive.explore import Exploration
from tests.exhaustive.parts import Part, parts
from tests.exhaustive.queue import Queue, Seat
from tests.exhaustive.setups import Setup, TurnPlan
from tests.exhaustive.shapes import ONE, TWO, orbits

TURNS = {1: 13, 2: 169, 3: 2197}
"""How many turns of so many calls with at most one claim there are."""
SMALL = [part for part in parts(3, brief=True) if part.calls <= 3]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("part", SMALL, ids=[part.name for part in SMALL])
def test_no_interleaving_of_a_small_turn_breaks_a_rule(part: Part) -> None:
    """Every rule holds after every event, in every order of events, and every turn ends."""
    setups, turns = part.setups()
    explored = [Exploration(setup).run() for setup in setups]
    assert [] == [one.violation for one in explored if one.violation is not None]
    assert len(part.alphabet) ** part.calls == turns
    assert all(one.states > 1 for one in explored)


@pytest.mark.parametrize("calls", TURNS)
def test_the_orbits_together_are_all_turns(calls: int) -> None:
    """Each turn is a renaming of exactly one that is looked at."""
    assert TURNS[calls] == sum(count for _, count in orbits(ONE, calls))


def test_two_claims_are_on_different_keys() -> None:
    """There are 13 ways to claim at most once and 54 to claim two of the four keys."""
    assert 13 + 54 == len(TWO) == len(set(TWO))


def test_a_turn_that_claims_nothing_has_the_states_that_can_be_counted() -> None:
    """One call without claims, counted by hand from the tables of the design.

    Not there; stopped before it came (open or closed); and, with the turn open or closed: ready,
    running, stopping, given up, over; once the turn was stopped it can be no more ready or running.
    """
    explored = Exploration(Setup(turns=(TurnPlan(calls=((),)),))).run()
    assert None is explored.violation
    assert 24 == explored.states


def test_a_nested_ticket_passes_whoever_waits_for_its_ancestor() -> None:
    """The queue that judges the table: c, nested in p, passes x, which waits for p."""
    p, x, c = (
        Seat(1, 1, 0, granted=True),
        Seat(2, 2, 1, granted=False),
        Seat(3, 3, 2, granted=False),
    )
    conflicts = frozenset({(0, 1), (1, 0), (1, 2), (2, 1)})
    queue = Queue((p, x, c), {1: 0, 2: 0, 3: 1}, conflicts, frozenset())
    assert [[p], []] == [queue.blockers(x), queue.blockers(c)]
