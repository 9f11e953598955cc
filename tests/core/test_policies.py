"""What policies make of endings, within one turn: all or nothing, quorum, and groups by tag."""

import pytest

from dispatch.call import FailureKind, Status
from dispatch.core.life import CallState, Do, TicketState, TurnState
from dispatch.core.policy import AllOrNothing, BestEffort, Quorum, Tally, Verdict
from dispatch.core.turn import TurnMachine
from tests.core.single import (
    ALL,
    CANCELLED,
    FINE,
    SKIPPED,
    F,
    G,
    asked,
    drive,
    endings,
    fail,
    judged_by,
)

ROLLED_BACK = (Status.ROLLED_BACK, FailureKind.ROLLED_BACK)
ERROR = (Status.ERROR, FailureKind.TOOL_ERROR)


def test_the_first_failure_of_all_or_nothing_ends_the_rest_and_undoes_what_is_done() -> None:
    """[ok, fails, running, waits]: undone, failed, cancelled, skipped, for the first failure."""
    machine = judged_by(AllOrNothing(), (), F, (), F)
    drive(machine, hold=ALL)
    machine.returned(0, Status.OK)
    fail(machine, 1)
    assert [2] == asked(machine, Do.SIGNAL)
    assert (*SKIPPED, 1) == endings(machine)[3]
    machine.returned(2, Status.OK)
    assert ([-1], TurnState.CLOSED) == (asked(machine, Do.UNDO), machine.state)
    machine.undone()
    expected = [(*ROLLED_BACK, 1), (*ERROR, None), (*CANCELLED, 1), (*SKIPPED, 1)]
    assert expected == endings(machine)
    assert (TurnState.GONE, Verdict(satisfied=False, reason="call 1 failed")) == (
        machine.state,
        machine.verdict,
    )


def test_a_compensation_that_fails_leaves_its_call_in_doubt() -> None:
    """What it did may still stand; the others are undone."""
    machine = judged_by(AllOrNothing(), (), (), ())
    drive(machine, hold=ALL)
    machine.returned(0, Status.OK)
    machine.returned(1, Status.OK)
    fail(machine, 2)
    machine.undone([0])
    in_doubt = (Status.UNKNOWN, FailureKind.IN_DOUBT, None)
    assert [in_doubt, (*ROLLED_BACK, 2), (*ERROR, None)] == endings(machine)
    assert [0, 1] == asked(machine, Do.REVISE)


def test_results_of_all_or_nothing_are_final_only_when_it_is_decided() -> None:
    """A success may still be undone while a sibling runs."""
    machine = judged_by(AllOrNothing(), (), ())
    drive(machine, hold=frozenset({1}))
    assert not machine.is_final(0)
    machine.returned(1, Status.OK)
    assert (machine.is_final(0), [FINE, FINE]) == (True, endings(machine))


def test_what_an_all_or_nothing_turn_claimed_passes_to_the_turn() -> None:
    """Each call holds until the turn is decided; by best effort it gives back at once."""
    for policy, wanted in ((AllOrNothing(), Do.HOLD), (BestEffort(), Do.SETTLE)):
        machine = judged_by(policy, F, G)
        drive(machine, hold=ALL)
        machine.returned(0, Status.OK)
        assert [0] == asked(machine, wanted)


def test_a_turn_below_one_that_may_be_undone_holds_too() -> None:
    """`holding`: claims pass to the turn, whatever its own policy."""
    machine = TurnMachine(holding=True)
    machine.submit(F)
    drive(machine, hold=ALL)
    machine.returned(0, Status.OK)
    assert [0] == asked(machine, Do.HOLD)


def test_a_whole_all_or_nothing_turn_asks_once_and_then_starts() -> None:
    """One ticket for the claims of all calls; nothing starts before it is granted."""
    machine = judged_by(AllOrNothing(), F, G, whole=True)
    assert [(Do.ENTER, -1)] == machine.actions
    assert ({*F, *G}, TicketState.QUEUED) == ({*machine.ticket_claims}, machine.ticket)
    machine.actions.clear()
    machine.granted(-1)
    assert [0, 1] == drive(machine)


def test_the_one_ticket_waits_for_all_gates() -> None:
    """No claim is held over an approval; a denial means that nothing is asked for at all."""
    machine = TurnMachine(policies={"": AllOrNothing()}, whole=True)
    for position in range(2):
        machine.submit(F)
        machine.calls[position].gated = True
    machine.close()
    machine.allowed(0)
    assert [] == asked(machine, Do.ENTER)
    machine.allowed(1)
    assert [-1] == asked(machine, Do.ENTER)


def test_a_deadlock_of_the_turns_ticket_ends_its_first_call_and_so_all() -> None:
    """The victim is the turn: one call says why, the others are skipped for it."""
    machine = judged_by(AllOrNothing(), F, G, whole=True)
    machine.deadlocked(-1)
    deadlock = (Status.ERROR, FailureKind.DEADLOCK, None)
    assert [deadlock, (*SKIPPED, 0)] == endings(machine)


def test_a_turn_of_several_groups_takes_no_single_ticket() -> None:
    """It grows its holds instead."""
    machine = TurnMachine(policies={"t": AllOrNothing()}, whole=True)
    machine.submit(F, group="t")
    machine.submit(G)
    machine.close()
    assert ([0, 1], TicketState.NONE) == (asked(machine, Do.ENTER), machine.ticket)


def test_a_quorum_stops_the_rest_as_soon_as_it_is_met() -> None:
    """Two of four: the third is told to stop, the fourth never starts, nobody failed."""
    machine = judged_by(Quorum(2), (), (), F, F)
    drive(machine, hold=ALL)
    machine.returned(0, Status.OK)
    machine.returned(1, Status.OK)
    assert [2] == asked(machine, Do.SIGNAL)
    machine.returned(2, Status.OK)
    assert [FINE, FINE, (*CANCELLED, None), (*CANCELLED, None)] == endings(machine)
    assert Verdict(satisfied=True, reason="quorum met") == machine.groups[""].verdict


def test_a_quorum_may_let_the_rest_finish() -> None:
    """Without `stop_early` every call runs."""
    machine = judged_by(Quorum(1, stop_early=False), (), ())
    drive(machine)
    assert ([FINE, FINE], True) == (endings(machine), machine.verdict.satisfied)


def test_a_quorum_stops_when_it_can_no_longer_be_reached() -> None:
    """Two of two, one fails: the other is stopped, but not before the turn is closed."""
    machine = TurnMachine(policies={"": Quorum(2)})
    machine.submit()
    machine.submit()
    drive(machine, hold=ALL)
    fail(machine, 0)
    assert CallState.RUNNING is machine.calls[1].state
    machine.close()
    assert (CallState.STOPPING, False) == (machine.calls[1].state, machine.verdict.satisfied)


def test_stopping_early_spares_what_a_call_outside_the_group_needs() -> None:
    """Directly or through others: 1 and 2 are needed by 3, so only 4 is stopped."""
    machine = TurnMachine(policies={"t": Quorum(1)})
    machine.submit(call_id="a", group="t")
    machine.submit(call_id="b", group="t")
    machine.submit(call_id="c", group="t", names=("b",))
    machine.submit(call_id="d", names=("c",))
    machine.submit(call_id="e", group="t")
    drive(machine, hold=ALL)
    machine.returned(0, Status.OK)
    running, waits = CallState.RUNNING, CallState.PLANNED
    assert [running, waits, waits, CallState.STOPPING] == [c.state for c in machine.calls[1:]]


def test_a_tags_policy_judges_and_stops_only_its_group() -> None:
    """The failure of a call outside means nothing to it, nor its failure to the call outside."""
    machine = TurnMachine(policies={"t": AllOrNothing()})
    for group in ("", "t", "t", ""):
        machine.submit(group=group)
    drive(machine, hold=ALL)
    fail(machine, 0)
    assert CallState.RUNNING is machine.calls[1].state
    fail(machine, 1)
    assert [CallState.STOPPING, CallState.RUNNING] == [c.state for c in machine.calls[2:]]


def test_a_call_that_comes_after_the_verdict_never_starts() -> None:
    """All or nothing skips it for the first failure, a met quorum cancels it."""
    failed, met = TurnMachine(policies={"": AllOrNothing()}), TurnMachine(policies={"": Quorum(1)})
    for machine in (failed, met):
        machine.submit()
        drive(machine, hold=ALL)
    fail(failed, 0)
    met.returned(0, Status.OK)
    failed.submit()
    met.submit()
    assert (*SKIPPED, 0) == endings(failed)[1]
    assert (*CANCELLED, None) == endings(met)[1]


def test_an_unknown_outcome_is_no_success() -> None:
    """A call that was given up fails all or nothing, and counts for no quorum."""
    for policy in (AllOrNothing(), Quorum(1)):
        machine = judged_by(policy, ())
        drive(machine, hold=ALL)
        machine.stop(0, Status.TIMED_OUT)
        machine.grace_over(0)
        machine.grace_over(0)
        machine.undone()
        assert (Status.UNKNOWN, False) == (machine.calls[0].status, machine.verdict.satisfied)


class Faulty:
    """A policy that raises."""

    atomic = False

    def judge(self, tally: Tally) -> Verdict | None:
        raise LookupError(tally)


def test_a_policy_that_raises_leaves_its_group_unsatisfied() -> None:
    """The reason says so, and the turn ends."""
    machine = judged_by(Faulty(), ())
    drive(machine)
    reason = "the policy raised LookupError"
    assert (TurnState.GONE, Verdict(satisfied=False, reason=reason)) == (
        machine.state,
        machine.verdict,
    )


@pytest.mark.parametrize("policy", [AllOrNothing(), BestEffort()])
def test_a_turn_without_calls_is_satisfied(policy: AllOrNothing | BestEffort) -> None:
    """There is nothing that could have failed."""
    assert judged_by(policy).verdict.satisfied
