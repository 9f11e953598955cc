from hypothesis import given
from hypothesis import strategies as st

from dispatch.claims import READ, WRITE, Claim, conflict
from dispatch.core.table import Granted, TableMachine
from tests.core.turns import claim_sets

Claims = tuple[Claim, ...]
F: Claims = (Claim(("file", "f"), WRITE),)
G: Claims = (Claim(("file", "g"), WRITE),)
H: Claims = (Claim(("file", "h"), WRITE),)


def entered(table: TableMachine, claims: Claims, parent: int = 0) -> int:
    return table.enter(table.open(parent), claims).number


def left(table: TableMachine, number: int) -> list[int]:
    """Let a ticket leave; returns the tickets that are granted because of it, in order."""
    table.leave(number)
    news, table.news = table.news, []
    return [item.ticket for item in news if isinstance(item, Granted)]


@given(st.data())
def test_waiting_is_first_come_first_served(data: st.DataObject) -> None:
    """A ticket is granted exactly when no held and no earlier waiting ticket conflicts with it.

    Checked against a list that is searched from the start each time.
    """
    table = TableMachine()
    claims: dict[int, Claims] = {}
    granted: set[int] = set()
    for _ in range(data.draw(st.integers(0, 30))):
        if bool(claims) and data.draw(st.booleans()):
            number = data.draw(st.sampled_from(sorted(claims)))
            del claims[number]
            granted.discard(number)
            woken = left(table, number)
            expected = [w for w in sorted(set(claims) - granted) if _free(w, claims, granted)]
            assert expected == woken
            granted.update(woken)
        else:
            wanted = data.draw(claim_sets)
            ticket = table.enter(table.open(), wanted)
            claims[ticket.number] = wanted
            assert _free(ticket.number, claims, granted) == ticket.granted
            if ticket.granted:
                granted.add(ticket.number)
        table.validate()
        for number in set(claims) - granted:
            assert _blockers(number, claims, granted) == table.blockers(number)


def _blockers(number: int, claims: dict[int, Claims], granted: set[int]) -> list[int]:
    return [
        other
        for other in sorted(claims)
        if other != number
        and (other in granted or other < number)
        and conflict(claims[number], claims[other])
    ]


def _free(number: int, claims: dict[int, Claims], granted: set[int]) -> bool:
    return not _blockers(number, claims, granted)


def test_an_exclusive_waiter_is_not_overtaken_by_readers() -> None:
    """Readers that come after a waiting writer wait for it: nobody starves."""
    table = TableMachine()
    reader: Claims = (Claim(("file", "f"), READ),)
    first = entered(table, reader)
    writer = entered(table, F)
    late = entered(table, reader)
    assert [writer] == left(table, first)
    assert [late] == left(table, writer)


def test_withdrawing_a_waiter_lets_those_behind_it_go() -> None:
    """A cancelled waiter leaves no hole: who waited only for it is granted at once."""
    table = TableMachine()
    reader: Claims = (Claim(("file", "f"), READ),)
    entered(table, reader)
    writer = entered(table, F)
    late = entered(table, reader)
    assert [late] == left(table, writer)


def test_claims_of_ancestors_do_not_count() -> None:
    """A call below the holder of a key enters its own claim; everybody else waits for both."""
    table = TableMachine()
    turn = table.open()
    parent = table.open(turn)
    held = table.enter(parent, F)
    child = table.enter(table.open(table.open(parent)), F)
    stranger = table.enter(table.open(), F)
    assert (True, True, False) == (held.granted, child.granted, stranger.granted)
    table.validate()
    assert [] == left(table, held.number)
    assert [stranger.number] == left(table, child.number)


def test_cousins_below_one_holder_exclude_each_other() -> None:
    """Two children under one inherited claim do not overlap."""
    table = TableMachine()
    parent = table.open()
    table.enter(parent, F)
    first, second = (table.enter(table.open(parent), F) for _ in range(2))
    assert (True, False) == (first.granted, second.granted)
    assert [second.number] == left(table, first.number)


def test_a_thousand_writers_of_one_key_take_turns() -> None:
    """A long queue is served in order, one at a time."""
    table = TableMachine()
    tickets = [entered(table, F) for _ in range(1000)]
    order = [tickets[0]]
    while order[-1] != tickets[-1]:
        order += left(table, order[-1])
    assert tickets == order


def test_who_waits_for_an_abandoned_ticket_is_known_however_far() -> None:
    """Directly, through a holder that nests such a call, or entered later; no more once it left."""
    table = TableMachine()
    stuck, parent = entered(table, F), table.open()
    held = table.enter(parent, G).number
    child = entered(table, F, parent)
    through, elsewhere = entered(table, G), entered(table, H)
    assert 0 == table.held_up_by(through)
    assert [child, through] == sorted(table.abandon(stuck))
    late = entered(table, F)
    waiters = (child, through, late, elsewhere)
    assert [stuck, stuck, stuck, 0] == [table.held_up_by(w) for w in waiters]
    assert [child] == left(table, stuck)
    assert [0, 0, 0] == [table.held_up_by(w) for w in (child, through, late)]
    assert ([held], [child]) == (table.blockers(through), table.blockers(late))


def test_a_waiter_that_waits_in_vain_is_passed() -> None:
    """Who waits only for a waiter that waits for an abandoned ticket goes first, now and later."""
    table = TableMachine()
    stuck = entered(table, F)
    vain, behind = entered(table, (*F, *G)), entered(table, G)
    table.abandon(stuck)
    assert [Granted(behind)] == table.news
    table.news.clear()
    later = entered(table, G)
    assert ([stuck, behind], [behind]) == (table.blockers(vain), table.blockers(later))
    assert [later] == left(table, behind)
