"""How calls come in: names, late claims, identical calls, gates, and skipped dependents."""

import pytest

from dispatch.call import FailureKind, Phase, Status
from dispatch.core.books import Duplicates
from dispatch.core.life import CallState, Do, GateKind, TurnState
from dispatch.core.schedules import Schedule
from dispatch.core.turn import TurnMachine
from tests.core.single import (
    ALL,
    CANCELLED,
    FINE,
    READ_F,
    SKIPPED,
    F,
    G,
    asked,
    drive,
    endings,
    fail,
)

DEPENDENCY = (Status.ERROR, FailureKind.DEPENDENCY, None)
ERROR = (Status.ERROR, FailureKind.TOOL_ERROR, None)
LATE = GateKind.REWRITES


def starts(machine: TurnMachine) -> list[int]:
    """Who starts now, and runs on."""
    return drive(machine, hold=ALL)


# Names


def test_a_call_waits_for_what_it_names_even_if_that_comes_later() -> None:
    """[edit f after c, edit f, c edits f]: the order is 1, 2, 0, and no cycle comes of it."""
    machine = TurnMachine()
    machine.submit(F, call_id="a", names=("c",))
    machine.submit(F, call_id="b")
    machine.submit(F, call_id="c")
    assert [1, 2, 0] == drive(machine)


def test_calls_that_name_each_other_or_nobody_fail_when_the_turn_closes() -> None:
    """Only they do: who stands behind such a call runs once it is clear that it never will."""
    machine = TurnMachine()
    machine.submit(F, call_id="a", names=("b",))
    machine.submit(F, call_id="b", names=("a",))
    machine.submit(F, call_id="c", names=("never",))
    machine.submit(F, call_id="d", names=("c",))
    machine.submit(F, call_id="e")
    assert [4] == drive(machine)
    machine.close()
    drive(machine)
    assert [DEPENDENCY] * 3 + [FINE] * 2 == endings(machine)
    assert TurnState.GONE is machine.state


def test_after_a_repeated_id_means_all_calls_with_it() -> None:
    """The call waits for both."""
    machine = TurnMachine()
    machine.submit(call_id="a")
    machine.submit(call_id="a")
    machine.submit(call_id="b", names=("a",))
    assert [0, 1] == starts(machine)
    machine.returned(0, Status.OK)
    assert [] == starts(machine)
    machine.returned(1, Status.OK)
    assert [2] == starts(machine)


def test_the_value_of_a_repeated_id_cannot_be_taken() -> None:
    """A `Ref` to one of several is a wrong argument."""
    machine = TurnMachine()
    machine.submit(call_id="a")
    machine.submit(call_id="a")
    machine.submit(None, names=("a",), refs=("a",))
    assert (Status.ERROR, FailureKind.INVALID_ARGUMENTS, None) == endings(machine)[2]


# Late claims


def test_unknown_claims_hold_back_what_claims_something_and_nothing_else() -> None:
    """[late, edit f, pure, edit g]: the pure call runs; the others once the claims are known."""
    machine = TurnMachine()
    machine.submit(None, gate=LATE)
    for claims in (F, (), G):
        machine.submit(claims)
    assert [0] == asked(machine, Do.ASK)
    assert [2] == starts(machine)
    machine.known(0, F)
    assert [0, 3] == starts(machine)
    machine.returned(0, Status.OK)
    assert [1] == starts(machine)


def test_a_late_call_holds_back_until_it_is_known_and_not_until_it_has_run() -> None:
    """What turns out not to conflict runs beside it."""
    machine = TurnMachine()
    machine.submit(None, gate=LATE)
    machine.submit(F)
    machine.known(0, G)
    assert [0, 1] == starts(machine)


def test_a_late_call_that_is_refused_frees_the_line() -> None:
    """Denied, it claims nothing."""
    machine = TurnMachine()
    machine.submit(None, gate=LATE)
    machine.submit(F)
    machine.refused(0, FailureKind.REJECTED, Phase.GATE)
    assert [1] == starts(machine)


def test_a_call_that_takes_a_value_waits_for_it_and_then_for_its_claims() -> None:
    """RESOLVE is asked once the other has ended, not once it has settled."""
    machine = TurnMachine()
    machine.submit(call_id="a")
    machine.submit(None, names=("a",), refs=("a",))
    drive(machine, hold=ALL)
    machine.returned(0, Status.OK)
    assert [1] == asked(machine, Do.RESOLVE)
    machine.known(1, F)
    assert [1] == starts(machine)


def test_a_value_of_a_call_that_failed_skips_whoever_takes_it() -> None:
    """Always, and its own takers too; the cause is the first failure."""
    machine = TurnMachine()
    machine.submit(call_id="a")
    machine.submit(None, call_id="b", names=("a",), refs=("a",))
    machine.submit(None, names=("b",), refs=("b",))
    drive(machine, hold=ALL)
    fail(machine, 0)
    assert [ERROR, (*SKIPPED, 0), (*SKIPPED, 0)] == endings(machine)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [(Schedule.GROUPS, [0, 1]), (Schedule.CLUSTERS, [0, 1]), (Schedule.SERIAL, [0])],
)
def test_a_late_call_ends_a_part(schedule: Schedule, expected: list[int]) -> None:
    """What stands before it is planned and run first; what stands behind it waits."""
    machine = TurnMachine(schedule)
    for claims in (F, G):
        machine.submit(claims)
    machine.submit(None, gate=LATE)
    machine.submit(READ_F)
    machine.close()
    assert expected == starts(machine)
    for position in expected:
        machine.returned(position, Status.OK)
    drive(machine)
    assert CallState.PLANNED is machine.calls[3].state
    machine.known(2, G)
    assert [2, 3] == drive(machine)


# Gates


def test_a_gate_is_asked_at_once_and_its_call_keeps_its_place() -> None:
    """[edit f behind a gate, edit f, edit g]: the second waits, the third runs."""
    machine = TurnMachine()
    machine.submit(F, gate=GateKind.ASKS)
    machine.submit(F)
    machine.submit(G)
    assert [2] == starts(machine)
    machine.allowed(0)
    assert [0] == starts(machine)


def test_a_gate_that_changed_the_arguments_adds_claims_and_keeps_the_place() -> None:
    """Old and new claims are asked for together."""
    machine = TurnMachine()
    machine.submit(F, gate=GateKind.ASKS)
    machine.allowed(0, G)
    assert {*F, *G} == {*machine.calls[0].claims}


@pytest.mark.parametrize("ending", ["denied", "timed out", "cancelled"])
def test_whoever_ends_before_it_ran_passes_on_its_place_only(ending: str) -> None:
    """[x waits for approval, a, c], all on f: c still waits for x (A4, N6)."""
    machine = TurnMachine()
    machine.submit(F, gate=GateKind.ASKS)
    machine.submit(F, gate=GateKind.ASKS)
    machine.submit(F)
    if ending == "denied":
        machine.refused(1, FailureKind.REJECTED, Phase.GATE)
    else:
        machine.stop(1, Status.TIMED_OUT if ending == "timed out" else Status.CANCELLED)
    assert [] == starts(machine)
    machine.allowed(0)
    assert [0] == starts(machine)
    machine.returned(0, Status.OK)
    assert [2] == starts(machine)


# Identical calls


def identical(duplicates: Duplicates, *middle: object) -> TurnMachine:
    """Two identical edits of f, with a read of f between them if `middle`."""
    machine = TurnMachine(duplicates=duplicates)
    machine.submit(F, same="x")
    for _ in middle:
        machine.submit(READ_F)
    machine.submit(F, same="x")
    return machine


def test_identical_calls_run_both_unless_told_otherwise() -> None:
    """The default."""
    assert [0, 1] == drive(identical(Duplicates.RUN))


@pytest.mark.parametrize("ok", [True, False])
def test_an_identical_call_takes_the_outcome_of_the_one_it_joins(*, ok: bool) -> None:
    """Also a failure; it never starts."""
    machine = identical(Duplicates.COALESCE)
    assert [0] == starts(machine)
    if ok:
        machine.returned(0, Status.OK)
    else:
        fail(machine, 0)
    assert [FINE if ok else ERROR] * 2 == endings(machine)
    assert CallState.SETTLED is machine.calls[1].state


def test_an_identical_call_is_rejected() -> None:
    """It names the call that it repeats."""
    machine = identical(Duplicates.REJECT)
    assert (Status.ERROR, FailureKind.DUPLICATE, 0) == endings(machine)[1]


@pytest.mark.parametrize("duplicates", [Duplicates.COALESCE, Duplicates.REJECT])
def test_a_conflicting_call_between_makes_a_call_another_one(duplicates: Duplicates) -> None:
    """[edit f, read f, edit f]: the second edit may do something else."""
    assert [0, 1, 2] == drive(identical(duplicates, "read"))


def test_a_call_joins_only_what_has_not_settled() -> None:
    """The same edit again, after the first is over, runs again."""
    machine = TurnMachine(duplicates=Duplicates.COALESCE)
    machine.submit(F, same="x")
    drive(machine)
    machine.submit(F, same="x")
    assert [1] == drive(machine)


def test_a_late_identical_call_is_asked_about_only_if_it_does_not_join() -> None:
    """Gates that may rewrite are asked once for the two."""
    machine = TurnMachine(duplicates=Duplicates.COALESCE)
    machine.submit(None, same="x", gate=LATE)
    machine.submit(None, same="x", gate=LATE)
    assert [0] == asked(machine, Do.ASK)
    machine.known(0, F)
    assert [] == asked(machine, Do.ASK)
    assert [0] == drive(machine)
    assert [FINE, FINE] == endings(machine)


def test_who_has_joined_can_be_cancelled_alone() -> None:
    """The one it joined runs on."""
    machine = identical(Duplicates.COALESCE)
    starts(machine)
    machine.stop(1, Status.CANCELLED)
    machine.returned(0, Status.OK)
    assert [FINE, (*CANCELLED, None)] == endings(machine)


# Dependents


@pytest.mark.parametrize("skips", [True, False])
def test_a_failure_skips_those_behind_it_only_if_the_turn_says_so(*, skips: bool) -> None:
    """[f fails, f, g, f again later]: the cause is the first failure, not the skip between."""
    machine = TurnMachine(skips=skips)
    for claims in (F, F, G):
        machine.submit(claims)
    starts(machine)
    fail(machine, 0)
    machine.submit(F)
    drive(machine)
    behind = (*SKIPPED, 0) if skips else FINE
    assert [behind, behind] == [endings(machine)[1], endings(machine)[3]]
    assert machine.calls[2].status is None


# Suspension and nesting


def test_a_call_is_suspended_until_the_last_thing_it_waits_for_is_there() -> None:
    """It gives its slots back once, and asks for them once."""
    machine = TurnMachine()
    machine.submit(F)
    starts(machine)
    machine.suspended(0)
    machine.suspended(0)
    assert [(Do.FREE, 0)] == machine.actions
    machine.actions.clear()
    machine.woken(0)
    assert [] == machine.actions
    machine.woken(0)
    assert [(Do.REQUEST, 0)] == machine.actions


def test_a_resuming_call_that_is_stopped_takes_no_slots() -> None:
    """Its request is taken back, and it is told."""
    machine = TurnMachine()
    machine.submit(F)
    starts(machine)
    machine.suspended(0)
    machine.woken(0)
    machine.actions.clear()
    machine.stop(0, Status.CANCELLED)
    assert [(Do.WITHDRAW, 0), (Do.SIGNAL, 0)] == machine.actions


def test_a_call_settles_only_once_everything_nested_in_it_is_gone() -> None:
    """It has its result before that; whoever waits for it does not start."""
    machine = TurnMachine()
    machine.submit(F)
    machine.submit(F)
    starts(machine)
    machine.nested(0, 1)
    machine.nested(0, 1)
    machine.returned(0, Status.OK)
    machine.nested(0, -1)
    assert (CallState.ENDED, []) == (machine.calls[0].state, starts(machine))
    machine.nested(0, -1)
    assert (CallState.SETTLED, [1]) == (machine.calls[0].state, starts(machine))


def test_a_stop_that_came_too_late_counts_for_nothing() -> None:
    """The tool had returned before it was told: what it did stands."""
    machine = TurnMachine()
    machine.submit(F)
    starts(machine)
    machine.stop(0, Status.CANCELLED)
    machine.missed(0)
    machine.returned(0, Status.OK)
    assert [FINE] == endings(machine)
