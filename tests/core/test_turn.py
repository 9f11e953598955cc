import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.call import STATUS_KINDS, FailureKind, Phase, Status
from dispatch.core.life import CallState, TurnState
from dispatch.core.schedules import Schedule
from dispatch.core.turn import TurnMachine
from tests.core.single import READ_F, F, G, drive, turn_of
from tests.core.turns import walk


@given(st.integers(0, 10**9))
def test_any_interleaving_keeps_the_rules(seed: int) -> None:
    """Over random turns on one table, with every kind of event at any moment, through JSON:

    no conflicting calls overlap, each starts only after its predecessors have settled, each gets
    one ending with a kind that its status allows, every turn ends, and nothing is left behind.
    """
    world = walk(seed)
    assert [] == world.faults
    assert [TurnState.GONE] * len(world.turns) == [turn.state for turn in world.turns]
    every = {(n, call.position) for n, turn in enumerate(world.turns) for call in turn.calls}
    assert sorted(every) == sorted(world.ended)
    for turn in world.turns:
        for call in turn.calls:
            assert call.status is not None
            kinds = STATUS_KINDS[call.status]
            assert call.kind in kinds if kinds else call.kind is None
    assert ({}, {}, {}) == (world.table.tickets, world.limits.holders, world.requests)


def test_a_call_that_never_ran_frees_its_successors_only_in_its_turn() -> None:
    """[x runs, a is cancelled, c]: all touch f, and c still waits for x."""
    machine = turn_of(F, F, F)
    machine.close()
    drive(machine, hold=frozenset({0}))
    machine.stop(1, Status.CANCELLED)
    assert (CallState.ENDED, CallState.PLANNED) == (machine.calls[1].state, machine.calls[2].state)
    assert [] == drive(machine)
    machine.returned(0, Status.OK)
    assert [2] == drive(machine)


def test_a_read_before_a_write_is_an_order_too() -> None:
    """The write waits for the earlier read, and the read after it for the write."""
    machine = turn_of(READ_F, F, READ_F)
    assert [0] == drive(machine, hold=frozenset({0}))
    machine.returned(0, Status.OK)
    assert [1, 2] == drive(machine)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule.DATAFLOW, [0, 2, 3]),
        (Schedule.GROUPS, [0, 2]),
        (Schedule.CLUSTERS, [0, 2]),
        (Schedule.SERIAL, [0]),
    ],
)
def test_schedules_are_more_or_fewer_edges(schedule: Schedule, expected: list[int]) -> None:
    """[f, f, g, g]: while 0 runs, who else starts depends on nothing but the schedule's edges."""
    machine = turn_of(F, F, G, G, schedule=schedule)
    machine.close()
    hold = frozenset({0, 2}) if schedule is Schedule.CLUSTERS else frozenset({0})
    assert expected == drive(machine, hold=hold)


@pytest.mark.parametrize("schedule", [Schedule.GROUPS, Schedule.CLUSTERS])
def test_some_schedules_start_nothing_before_the_turn_is_closed(schedule: Schedule) -> None:
    """They need the whole turn; the call starts as soon as it is closed."""
    machine = turn_of(F, schedule=schedule)
    assert [] == drive(machine)
    machine.close()
    assert [0] == drive(machine)


def test_a_group_waits_for_the_whole_group_before_it() -> None:
    """A barrier: nobody of group two starts while one call of group one still runs."""
    machine = turn_of(F, F, G, schedule=Schedule.GROUPS)
    machine.close()
    assert [0, 2] == drive(machine, hold=frozenset({2}))
    machine.returned(2, Status.OK)
    assert [1] == drive(machine)


def test_who_waits_for_an_abandoned_call_ends_as_skipped() -> None:
    """Directly or through others, also when it is submitted later; the others run."""
    machine = turn_of(F, F, F, G)
    drive(machine, hold=frozenset({0}))
    machine.stop(0, Status.TIMED_OUT)
    machine.grace_over(0)
    machine.grace_over(0)
    machine.submit(F)
    machine.submit(G)
    drive(machine)
    endings = [(call.status, call.kind, call.cause) for call in machine.calls]
    skipped = (Status.SKIPPED, FailureKind.ABANDONED, 0)
    fine = (Status.OK, None, None)
    given_up = (Status.UNKNOWN, FailureKind.ABANDONED, None)
    assert [given_up, skipped, skipped, fine, skipped, fine] == endings
    machine.close()
    states = [machine.state]
    machine.returned(0, Status.OK)
    assert [TurnState.DECIDED, TurnState.GONE] == [*states, machine.state]
    assert machine.calls[0].status is Status.UNKNOWN


def test_a_tool_that_returns_after_it_was_told_to_stop_has_not_succeeded() -> None:
    """Whoever was asked to stop ends as what it was asked for."""
    machine = turn_of(F)
    drive(machine, hold=frozenset({0}))
    machine.stop(0, Status.TIMED_OUT)
    machine.returned(0, Status.OK)
    call = machine.calls[0]
    assert (Status.TIMED_OUT, FailureKind.TIMEOUT, Phase.RUN) == (
        call.status,
        call.kind,
        call.phase,
    )


def test_a_grant_after_a_cancel_starts_nothing() -> None:
    """Cancel wins over a claim that is granted in the same step."""
    machine = turn_of(F)
    machine.stop(0, Status.CANCELLED)
    machine.granted(0)
    assert machine.calls[0].state is CallState.SETTLED
    assert (Status.CANCELLED, Phase.LOCK) == (machine.calls[0].status, machine.calls[0].phase)


def test_a_call_that_comes_after_the_turn_was_stopped_never_starts() -> None:
    """It ends at once, as what the turn ended as."""
    machine = turn_of(F)
    machine.stop_all(Status.TIMED_OUT)
    machine.submit(G)
    assert [] == drive(machine)
    assert [Status.TIMED_OUT] * 2 == [call.status for call in machine.calls]


def test_a_turn_without_calls_ends_when_it_is_closed() -> None:
    """Zero calls are a turn like any other."""
    machine = TurnMachine()
    machine.close()
    assert machine.state is TurnState.GONE


def test_every_status_has_its_kinds_and_every_kind_a_status() -> None:
    """The one table that maps statuses to kinds of failure is total."""
    assert set(Status) == set(STATUS_KINDS)
    assert set(FailureKind) == set().union(*STATUS_KINDS.values())
