"""Policies of the host's own, and which policy is taken."""

from typing import Any

import pytest

from dispatch import (
    BestEffort,
    Dispatcher,
    Quorum,
    TurnResult,
)
from dispatch.core.policy import Tally, Verdict
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import Diary, ask, asked, statuses, step, told


class Majority:
    """More than half: a policy of the host's own."""

    atomic = False

    def judge(self, tally: Tally) -> Verdict | None:
        if tally.closed and 2 * tally.ok > tally.calls:
            return Verdict(satisfied=True, reason="the majority has spoken")
        return Verdict(satisfied=False, reason="no majority") if tally.over else None


def test_a_policy_of_ones_own() -> None:
    """It is asked after every ending, and its reason is told."""
    dispatcher = Dispatcher([ask], policy=Majority())
    turn = run_in_virtual_time(dispatcher.run([asked(1), asked(2), asked(9)]))
    assert (True, [("ok", 1.0), ("ok", 2.0), ("cancelled", 2.0)]) == (turn.satisfied, told(turn))
    assert "[cancelled] stopped while running: the majority has spoken" == turn[2].content()
    turn = run_in_virtual_time(Dispatcher([ask], policy=Majority()).run([asked(1, fails=True)]))
    assert (False, "no majority") == (turn.satisfied, turn.reason)


def test_an_atomic_policy_of_ones_own_undoes_what_was_done() -> None:
    """Two of three, else nothing."""
    diary = Diary()

    class TwoOrNothing(Majority):
        atomic = True

    calls = [step("a"), step("b", fate="fails"), step("c", seconds=2, fate="fails")]
    turn = run_in_virtual_time(Dispatcher(diary.tools(), policy=TwoOrNothing()).run(calls))
    assert (False, ["rolled_back", "error", "error"]) == (turn.satisfied, statuses(turn))
    assert ["-c", "-b", "-a"] == diary.lines[3:]


def test_a_policy_without_a_verdict_is_not_satisfied() -> None:
    """The turn is over all the same, and says so."""

    class Silent:
        atomic = False

        def judge(self, tally: Tally) -> Verdict | None:
            return None

    turn = run_in_virtual_time(Dispatcher([ask], policy=Silent()).run([asked(1)]))
    assert (False, "the policy gave no verdict", ["ok"]) == (
        turn.satisfied,
        turn.reason,
        statuses(turn),
    )


def test_a_turn_may_have_policies_of_its_own() -> None:
    """They take the place of the dispatcher's, one by one."""
    dispatcher = Dispatcher([ask], policy=Quorum(1), policies={"x": Quorum(1)})
    calls = [asked(1, fails=True), asked(1, tags=("x",)), asked(2, tags=("x",))]

    async def main() -> list[TurnResult]:
        return [
            await dispatcher.run(calls),
            await dispatcher.run(calls, policy=BestEffort()),
            await dispatcher.run(calls, policy=BestEffort(), policies={}),
        ]

    first, second, third = run_in_virtual_time(main())
    assert [False, True, True] == [first.satisfied, second.satisfied, third.satisfied]
    assert ["error", "ok", "cancelled"] == statuses(second)
    assert ["error", "ok", "ok"] == statuses(third)


@pytest.mark.parametrize("bad", [Quorum, "best effort", object()], ids=["class", "text", "object"])
def test_what_is_no_policy_is_refused(bad: Any) -> None:
    """When it is given, for the turn or for a tag, and the error says what to write."""
    with pytest.raises(TypeError, match=r"Quorum\(2\)"):
        Dispatcher([ask], policy=bad)
    with pytest.raises(TypeError, match="for 'x'"):
        Dispatcher([ask], policies={"x": bad})
    with pytest.raises(TypeError, match="is no policy"):
        Dispatcher([ask]).turn(policy=bad)
