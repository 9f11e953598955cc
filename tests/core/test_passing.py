"""Who passes whom in the table, and which cycles are deadlocks: the cases behind the rules."""

import pytest

from dispatch.call import FailureKind, Status
from dispatch.claims import READ, WRITE, Claim
from dispatch.core.life import CallState
from dispatch.core.table import Deadlock, Granted, TableMachine
from tests.core.driven import Claims, Driven, Path

E, D, H = ((Claim((name,), WRITE),) for name in "edh")
EVERYTHING: Claims = (Claim((), WRITE),)
READ_D: Claims = (Claim(("d",), READ),)
BELOW_D: Claims = (Claim(("d", "x"), WRITE),)
DEADLOCK = (Status.ERROR, FailureKind.DEADLOCK)
IN_VAIN = (Status.SKIPPED, FailureKind.ABANDONED)


def turn(driven: Driven, *calls: Claims, parent: Path | None = None, **kinds: bool) -> Path:
    """A closed turn of these calls."""
    path = streamed(driven, *calls, parent=parent, **kinds)
    driven.tell(path, lambda machine: machine.close())
    return path


def streamed(driven: Driven, *calls: Claims, parent: Path | None = None, **kinds: bool) -> Path:
    """The same, but more calls may come."""
    path = driven.open(parent, **kinds)
    for claims in calls:
        driven.submit(path, claims)
    return path


def returns(driven: Driven, *call: int) -> None:
    driven.tell(call[:-1], lambda machine: machine.returned(call[-1], Status.OK))
    driven.check()


def give_up(driven: Driven, *call: int) -> None:
    """Time out a call that sees no token, and let its grace go by."""
    driven.tell(call[:-1], lambda machine: machine.stop(call[-1], Status.TIMED_OUT))
    driven.tell(call[:-1], lambda machine: machine.grace_over(call[-1]))
    driven.check()


def states(driven: Driven, path: Path) -> list[CallState]:
    return [call.state for call in driven.turns[path].machine.calls]


def endings(driven: Driven, path: Path) -> list[tuple[Status | None, FailureKind | None]]:
    return [(call.status, call.kind) for call in driven.turns[path].machine.calls]


@pytest.mark.parametrize("long", [False, True], ids=["alone", "beside a long holder"])
def test_a_nested_ticket_passes_as_soon_as_the_waiter_waits_for_its_ancestor(*, long: bool) -> None:
    """x queues behind h, c of p behind x; that h nests a wait for p lets c pass x in that step."""
    table = TableMachine()
    h, p = table.open(), table.open()
    held_h = table.enter(h, H)
    reader = table.enter(table.open(), E) if long else None
    x = table.enter(table.open(), (*E, *H))
    held_d = table.enter(p, D)
    c = table.enter(table.open(p), E)
    assert (False, False) == (x.granted, c.granted)
    hc = table.enter(table.open(h), D)
    assert (reader is None) == c.granted
    if reader is not None:
        assert ([reader.number], []) == (table.blockers(c.number), table.news)
        table.leave(reader.number)
    assert [Granted(c.number)] == table.news
    for ticket in (c, held_d, hc, held_h):
        table.leave(ticket.number)
    assert [Granted(t.number) for t in (c, hc, x)] == table.news
    table.validate()


@pytest.mark.parametrize("long", [False, True], ids=["alone", "beside a long holder"])
def test_whole_turns_pass_in_the_same_order(*, long: bool) -> None:
    """The same with turns: nothing fails, and what starts then is c, hc, x."""
    driven = Driven()
    h = turn(driven, H)
    beside = turn(driven, E) if long else ()
    x = turn(driven, (*E, *H))
    p = turn(driven, D)
    before = len(driven.started)
    c = turn(driven, E, parent=(*p, 0))
    assert [CallState.QUEUED] == states(driven, c)
    hc = turn(driven, D, parent=(*h, 0))
    if long:
        returns(driven, *beside, 0)
    assert [CallState.RUNNING] == states(driven, c)
    for call in ((*c, 0), (*p, 0), (*hc, 0), (*h, 0), (*x, 0)):
        returns(driven, *call)
    assert [(*c, 0), (*hc, 0), (*x, 0)] == driven.started[before:]
    assert {} == driven.turns


def test_an_undeclared_call_that_queues_does_not_stop_the_children_of_a_holder() -> None:
    """p reads d, x wants everything, p's child reads e: it goes on, and x comes last (A2, N2)."""
    driven = Driven()
    p, x = turn(driven, READ_D), turn(driven, EVERYTHING)
    c = turn(driven, E, parent=(*p, 0))
    assert ([CallState.RUNNING], [CallState.QUEUED]) == (states(driven, c), states(driven, x))


def test_a_waiter_that_waits_for_the_passing_ticket_itself_is_not_passed() -> None:
    """Being waited for is no reason to pass: w stands before n, and n comes after it."""
    table = TableMachine()
    top, other = table.open(), table.open()
    table.enter(top, D)
    first = table.enter(table.open(), E)
    w = table.enter(table.open(), (*D, *E))
    n = table.enter(other, E)
    table.enter(table.open(top), E)
    assert [first.number, w.number] == table.blockers(n.number)
    table.validate()


def test_what_the_passing_ticket_itself_waits_for_is_no_reason_to_pass() -> None:
    """x waits for g, below which y waits for c and another; that c waits behind z means nothing."""
    table = TableMachine()
    p, g = table.open(), table.open()
    names = {name: (Claim((name,), WRITE),) for name in "defgkl"}
    table.enter(p, names["d"])
    table.enter(g, names["g"])
    table.enter(table.open(), names["l"])
    table.enter(table.open(), (*names["d"], *names["e"]))
    x = table.enter(table.open(), (*names["g"], *names["f"]))
    c = table.enter(table.open(p), (*names["e"], *names["f"], *names["k"]))
    table.enter(table.open(g), (*names["k"], *names["l"]))
    assert (False, [x.number]) == (c.granted, table.blockers(c.number))
    table.validate()


def test_claims_that_pass_to_a_turn_may_close_a_cycle() -> None:
    """a's second call waits for b, b's child for what a's first call held and a holds now."""
    table = TableMachine()
    a, b = table.open(), table.open()
    held = table.enter(table.open(a), E)
    table.enter(b, D)
    second = table.enter(table.open(a), D)
    child = table.enter(table.open(b), E)
    assert [] == table.news
    table.move(held.number, a)
    assert [Deadlock(child.number, (second.number,))] == table.news


@pytest.mark.parametrize(
    ("parents", "child"),
    [((READ_D, READ_D), BELOW_D), ((E, H), EVERYTHING)],
    ids=["upgrades below one key (N8)", "undeclared children (N9)"],
)
def test_two_holders_that_want_what_the_other_holds_deadlock(
    parents: tuple[Claims, Claims], child: Claims
) -> None:
    """All hold something: found at once, the later ticket of the one root fails, the other runs."""
    driven = Driven()
    path = turn(driven, *parents)
    first, second = (streamed(driven, child, parent=(*path, n)) for n in range(2))
    assert [(None, None), DEADLOCK] == [*endings(driven, first), *endings(driven, second)]
    driven.tell(second, lambda machine: machine.close())
    returns(driven, *path, 1)
    assert [CallState.RUNNING] == states(driven, first)


@pytest.mark.parametrize("first", ["long", "cycle"])
def test_a_deadlock_beside_a_long_holder_is_found_at_once(first: str) -> None:
    """Whatever else a party waits for: every holder in its way is looked at, not one of them."""
    table = TableMachine()
    a, b, z = ((Claim((name,), WRITE),) for name in "abz")
    one, other, long = (table.open(table.open()) for _ in range(3))
    for owner, claims in ((one, a), (other, b), (long, z)):
        assert table.enter(owner, claims).granted
    wanted = (*z, *b) if first == "long" else (*b, *z)
    waiting = table.enter(table.open(table.open(one)), wanted)
    victim = table.enter(table.open(table.open(other)), a)
    assert [Deadlock(victim.number, (waiting.number,))] == table.news
    table.validate()


def test_the_youngest_root_loses_a_deadlock() -> None:
    """The older turn's call came to the queue last, and still the younger turn's fails."""
    table = TableMachine()
    old, young = table.open(), table.open()
    table.enter(old, E)
    table.enter(young, D)
    loser = table.enter(table.open(young), E)
    winner = table.enter(table.open(old), D)
    assert [Deadlock(loser.number, (winner.number,))] == table.news
    assert (False, [winner.number]) == (winner.granted, list(table.waiting()))


def test_streamed_all_or_nothing_turns_may_deadlock_and_the_younger_is_undone() -> None:
    """[e, then d] against [d, then e], both holding until they are decided (A5, N5)."""
    driven = Driven()
    old, young = driven.open(atomic=True), driven.open(atomic=True)
    for path, claims in ((old, E), (young, D)):
        driven.submit(path, claims)
        returns(driven, *path, 0)
    driven.submit(old, D)
    driven.submit(young, E)
    assert [(Status.OK, None), DEADLOCK] == endings(driven, young)
    assert [(Status.OK, None), (None, None)] == endings(driven, old)
    driven.tell(young, lambda machine: machine.close())
    assert CallState.QUEUED is states(driven, old)[1]
    driven.tell(young, lambda machine: machine.undone())
    assert CallState.RUNNING is states(driven, old)[1]


def test_whole_all_or_nothing_turns_take_one_ticket_and_never_deadlock() -> None:
    """[e, d] against [d, e]: the second starts nothing before the first is decided (A5)."""
    driven = Driven()
    first = turn(driven, E, D, atomic=True, whole=True)
    second = turn(driven, D, E, atomic=True, whole=True)
    assert [CallState.PLANNED] * 2 == states(driven, second)
    returns(driven, *first, 0)
    assert [CallState.PLANNED] * 2 == states(driven, second)
    returns(driven, *first, 1)
    assert [CallState.RUNNING] * 2 == states(driven, second)


def test_what_a_turn_holds_is_not_in_the_way_of_its_own_agents() -> None:
    """Edit e, then an agent that edits e in a nested turn: the turn is its ancestor (N4)."""
    driven = Driven()
    path = driven.open(atomic=True)
    driven.submit(path, E)
    driven.submit(path, ())
    returns(driven, *path, 0)
    nested = turn(driven, E, parent=(*path, 1))
    stranger = turn(driven, E)
    assert [CallState.RUNNING] == states(driven, nested)
    returns(driven, *nested, 0)
    returns(driven, *path, 1)
    assert [CallState.QUEUED] == states(driven, stranger)
    driven.tell(path, lambda machine: machine.close())
    assert [CallState.RUNNING] == states(driven, stranger)


def test_a_nested_claim_outlives_its_parent() -> None:
    """c on d/x below p on d is given up and p ends: another write of d/x still waits (A6, N7)."""
    driven = Driven()
    p = turn(driven, D)
    c = turn(driven, BELOW_D, parent=(*p, 0))
    give_up(driven, *c, 0)
    returns(driven, *p, 0)
    stranger = turn(driven, BELOW_D)
    assert [CallState.QUEUED] == states(driven, stranger)
    returns(driven, *c, 0)
    assert [CallState.RUNNING] == states(driven, stranger)


def test_who_waits_for_a_given_up_call_of_its_own_root_ends_at_once() -> None:
    """A cousin in another nested turn is skipped; the call of another root waits (A8)."""
    driven = Driven()
    root = turn(driven, (), ())
    one = turn(driven, E, parent=(*root, 0))
    cousin = streamed(driven, E, parent=(*root, 1))
    stranger = streamed(driven, E)
    assert [CallState.QUEUED] == states(driven, cousin)
    give_up(driven, *one, 0)
    assert [IN_VAIN, (None, None)] == [*endings(driven, cousin), *endings(driven, stranger)]
    driven.skip((*stranger, 0))
    assert [IN_VAIN] == endings(driven, stranger)


def test_a_whole_turn_that_waits_in_vain_is_skipped_too() -> None:
    """Its one ticket waits for a given up call: its first call says so, the others follow."""
    driven = Driven()
    holder = turn(driven, E)
    path = driven.open(atomic=True, whole=True)
    driven.submit(path, E)
    driven.submit(path, D)
    driven.tell(path, lambda machine: machine.close())
    give_up(driven, *holder, 0)
    driven.skip(path)
    assert [IN_VAIN, (Status.SKIPPED, FailureKind.SKIPPED)] == endings(driven, path)


def test_a_given_up_call_that_ends_after_all_holds_nobody_up() -> None:
    """Its claims pass to its undecided turn; who waits for them does not wait in vain."""
    driven = Driven()
    path = driven.open(atomic=True)
    driven.submit(path, E)
    stranger = turn(driven, E)
    give_up(driven, *path, 0)
    ticket = driven.turns[stranger].tickets[0]
    assert 0 != driven.table.held_up_by(ticket)
    returns(driven, *path, 0)
    assert ([CallState.QUEUED], 0) == (states(driven, stranger), driven.table.held_up_by(ticket))


def test_left_over_calls_below_a_turn_that_gave_its_claims_back_are_like_any_other() -> None:
    """The call is given up, its turn decided, and what it nested waits as one that nobody nests."""
    driven = Driven()
    root = driven.open(atomic=True)
    driven.submit(root, D)
    driven.submit(root, ())
    returns(driven, *root, 0)
    holder = turn(driven, E)
    turn(driven, E, parent=(*root, 1))
    give_up(driven, *root, 1)
    driven.tell(root, lambda machine: machine.close())
    driven.tell(root, lambda machine: machine.undone())
    driven.check()
    returns(driven, *holder, 0)
    assert (*root, 1, 3, 0) == driven.started[-1]
