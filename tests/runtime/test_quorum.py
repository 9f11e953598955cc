"""A quorum: what is enough, what can no longer be, and what is stopped because of it."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    Dispatcher,
    Quorum,
    Ref,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import ask, asked, left_over, statuses, texts, told

MET = "[cancelled] stopped while running: quorum met"


@pytest.mark.parametrize(
    ("schedule", "ended", "rest"),
    [
        *((name, 3.0, MET) for name in ("dataflow", "groups", "clusters")),
        ("serial", 6.0, "[cancelled] never started: quorum met"),
    ],
)
def test_a_quorum_is_enough_and_the_rest_is_cancelled(
    schedule: str, ended: float, rest: str
) -> None:
    """U6: five calls, three needed, two slow: over with the third success; all accounted for."""
    dispatcher = Dispatcher([ask], policy=Quorum(3), schedule=schedule)
    calls = [asked(seconds) for seconds in (1, 60, 2, 60, 3)]
    order = calls if schedule != "serial" else sorted(calls, key=lambda c: c.arguments["seconds"])  # type: ignore[index]
    turn = run_in_virtual_time(dispatcher.run(order))
    assert (True, 5) == (turn.satisfied, len(turn))
    assert ["cancelled"] * 2 + ["ok"] * 3 == sorted(statuses(turn))
    assert {(ended, rest)} == {(r.finished_at, r.content()) for r in turn if not r.ok}
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_quorum_that_cannot_be_reached_any_more_fails_early() -> None:
    """U6: five calls, three needed: over with the third failure."""
    calls = [asked(n, fails=True) for n in (1, 2, 3)] + [asked(60), asked(60)]
    turn = run_in_virtual_time(Dispatcher([ask], policy=Quorum(3)).run(calls))
    why = "quorum cannot be met: 0 of 3 needed calls succeeded"
    assert (False, why) == (turn.satisfied, turn.reason)
    assert [("error", 1.0), ("error", 2.0), ("error", 3.0)] == told(turn)[:3]
    assert [f"[cancelled] stopped while running: {why}"] * 2 == texts(turn)[3:]
    assert 3.0 == turn[4].finished_at


def test_a_quorum_may_let_the_rest_finish() -> None:
    """`stop_early=False`: satisfied all the same, and every call has its own result."""
    policy = Quorum(1, stop_early=False)
    turn = run_in_virtual_time(Dispatcher([ask], policy=policy).run([asked(1), asked(5)]))
    assert (True, [("ok", 1.0), ("ok", 5.0)]) == (turn.satisfied, told(turn))


def test_a_quorum_that_lets_the_rest_finish_still_fails_early() -> None:
    """What cannot be reached is not worth waiting for."""
    policy = Quorum(2, stop_early=False)
    calls = [asked(1, fails=True), asked(9)]
    turn = run_in_virtual_time(Dispatcher([ask], policy=policy).run(calls))
    assert (False, [("error", 1.0), ("cancelled", 1.0)]) == (turn.satisfied, told(turn))


def test_more_than_there_are_calls_is_never_met() -> None:
    """Judged when the turn is closed: nothing runs in vain."""
    turn = run_in_virtual_time(Dispatcher([ask], policy=Quorum(3)).run([asked(1), asked(1)]))
    assert (False, ["cancelled"] * 2) == (turn.satisfied, statuses(turn))
    assert 0.0 == turn[0].finished_at


def test_an_empty_turn_meets_no_quorum() -> None:
    """Nothing succeeded."""
    assert not run_in_virtual_time(Dispatcher([ask], policy=Quorum(1)).run([])).satisfied


def test_whether_a_quorum_can_be_reached_is_judged_when_the_turn_is_closed() -> None:
    """While the model writes, more calls may come; once it is met, further ones are not run."""

    async def main() -> TurnResult:
        async with Dispatcher([ask], policy=Quorum(2)).turn() as turn:
            turn.submit(asked(1, fails=True))
            await asyncio.sleep(2)
            turn.submit(asked(1))
            turn.submit(asked(1))
            await asyncio.sleep(2)
            turn.submit(asked(1))
            return await turn.finish()

    turn = run_in_virtual_time(main())
    expected = [("error", 1.0), ("ok", 3.0), ("ok", 3.0), ("cancelled", 4.0)]
    assert (True, expected) == (turn.satisfied, told(turn))
    assert "[cancelled] never started: quorum met" == turn[3].content()


def test_unknown_is_no_success() -> None:
    """A call that was given up may have happened, and does not count."""

    @tool(safe_parallel=True)
    async def refuse() -> None:
        while asyncio.get_running_loop().time() < 100:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                continue

    dispatcher = Dispatcher([ask, refuse], policy=Quorum(2), grace=0.5)
    calls = [asked(1), ToolCall("", "refuse", {}, timeout=2.0), asked(60)]
    turn = run_in_virtual_time(dispatcher.run(calls[:2]))
    assert (False, ["ok", "unknown"]) == (turn.satisfied, statuses(turn))
    turn = run_in_virtual_time(Dispatcher([ask, refuse], policy=Quorum(2), grace=0.5).run(calls))
    assert (True, ["ok", "unknown", "ok"]) == (turn.satisfied, statuses(turn))


@pytest.mark.parametrize("link", ["after", "ref", "through another"])
def test_a_call_that_one_outside_the_group_needs_is_not_cancelled(link: str) -> None:
    """The quorum is met at 1 s; the call that is needed finishes, the one that is not does not."""

    @tool(safe_parallel=True)
    async def use(value: str = "") -> str:
        return f"used {value}"

    needed = asked(5, name="needed", tags=("q",))
    between = asked(1, name="between", tags=("q",), after=("needed",))
    outside = ToolCall(
        "outside",
        "use",
        {"value": Ref("needed")} if link == "ref" else {},
        after={"after": ("needed",), "ref": (), "through another": ("between",)}[link],
    )
    calls = [asked(1, tags=("q",)), needed, asked(9, tags=("q",)), between, outside]
    turn = run_in_virtual_time(Dispatcher([ask, use], policies={"q": Quorum(1)}).run(calls))
    rest = "ok" if link == "through another" else "cancelled"
    assert ["ok", "ok", "cancelled", rest, "ok"] == statuses(turn)
    assert (True, 1.0) == (turn.satisfied, turn[2].finished_at)


def test_a_policy_cancellation_is_no_failure_to_another_group() -> None:
    """With `dependents="skip"`, what names a call that the quorum did without runs all the same."""

    async def main() -> TurnResult:
        dispatcher = Dispatcher([ask], policies={"q": Quorum(1)}, dependents="skip")
        async with dispatcher.turn() as turn:
            turn.submit(asked(1, tags=("q",)))
            turn.submit(asked(60, name="slow", tags=("q",)))
            await asyncio.sleep(2)
            turn.submit(asked(1, after=("slow",)))
            return await turn.finish()

    turn = run_in_virtual_time(main())
    assert (True, ["ok", "cancelled", "ok"]) == (turn.satisfied, statuses(turn))


@pytest.mark.parametrize("required", [0, -1, 1.5, True, "2"])
def test_a_quorum_is_a_whole_number_from_one_on(required: Any) -> None:
    with pytest.raises(ValueError, match="quorum"):
        Quorum(required)
