"""Policies: all or nothing, quorum, per tag; what they stop, and what they tell."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    Allow,
    BestEffort,
    CallContext,
    Deny,
    Dispatcher,
    FailureKind,
    GateContext,
    Quorum,
    Ref,
    Status,
    ToolCall,
    ToolError,
    TurnResult,
    tool,
)
from dispatch.core.policy import Policy
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import Diary, ask, asked, left_over, statuses, step, texts, told
from tests.timeline import SCHEDULES


def test_each_group_is_judged_by_itself() -> None:
    """A quorum that fails and an all-or-nothing that succeeds harm nobody else; all must hold."""
    diary = Diary()
    policies: dict[str, Policy] = {"q": Quorum(2), "all": AllOrNothing()}
    dispatcher = Dispatcher([*diary.tools(), ask], policies=policies)
    calls = [
        asked(1, tags=("q",), fails=True),
        asked(9, tags=("q",)),
        step("a", tags=("all",), seconds=3),
        step("b", tags=("all",), seconds=3),
        asked(4),
        asked(2, fails=True),
    ]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert ["error", "cancelled", "ok", "ok", "ok", "error"] == statuses(turn)
    assert not turn.satisfied
    assert "q: quorum cannot be met: 0 of 2 needed calls succeeded" == turn.reason
    assert ["+a", "+b"] == diary.lines


def test_only_the_group_that_fails_is_undone() -> None:
    """Two all-or-nothing groups and a call in neither; `satisfied` means all of them."""
    diary = Diary()
    policies = {"x": AllOrNothing(), "y": AllOrNothing()}
    calls = [
        step("a", tags=("x",)),
        step("b", tags=("y",)),
        step("c"),
        step("d", tags=("x",), seconds=2, fate="fails"),
    ]
    turn = run_in_virtual_time(Dispatcher(diary.tools(), policies=policies).run(calls))
    assert ["rolled_back", "ok", "ok", "error"] == statuses(turn)
    assert (["+a", "+b", "+c", "+d", "-d", "-a"], False) == (diary.lines, turn.satisfied)
    assert "x: call 3 failed" == turn.reason


@pytest.mark.parametrize("where", ["call", "tool"])
def test_a_call_in_two_groups_is_refused(where: str) -> None:
    """It never runs; the message names the groups."""

    @tool(safe_parallel=True, tags={"x"})
    async def tagged() -> None: ...

    one = ToolCall("", "tagged", {}, tags=frozenset({"y"}))
    if where == "call":
        one = asked(1, tags=("x", "y", "z"))
    turn = run_in_virtual_time(
        Dispatcher([tagged, ask], policies={"x": Quorum(1), "y": BestEffort()}).run([one])
    )
    failure = turn[0].failure
    assert failure is not None
    assert (Status.ERROR, FailureKind.REJECTED, 0) == (
        turn[0].status,
        failure.kind,
        turn[0].attempts,
    )
    assert "it is in the groups 'x' and 'y'" in failure.message


def test_the_tags_of_a_tool_put_its_calls_in_a_group() -> None:
    """Like those of the call."""

    @tool(safe_parallel=True, tags={"search"})
    async def search(seconds: float) -> None:
        await asyncio.sleep(seconds)

    calls = [ToolCall("", "search", {"seconds": n}) for n in (1, 5)]
    turn = run_in_virtual_time(
        Dispatcher([search, ask], policies={"search": Quorum(1)}).run([*calls, asked(3)])
    )
    assert [("ok", 1.0), ("cancelled", 1.0), ("ok", 3.0)] == told(turn)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_first_failure_stops_the_rest_and_undoes_what_is_done(schedule: str) -> None:
    """Every ending says what became of its call: undone, failed, stopped, never started."""
    diary = Diary()
    calls = [
        step("done"),
        step("fails", seconds=2, fate="fails"),
        step("runs", seconds=9),
        step("waits", "fails"),
    ]
    dispatcher = Dispatcher(diary.tools(), policy=AllOrNothing(), schedule=schedule)
    turn = run_in_virtual_time(dispatcher.run(calls))
    serial = schedule == "serial"
    assert (False, "call 1 failed") == (turn.satisfied, turn.reason)
    assert [
        "rolled_back",
        "error",
        "skipped" if serial else "cancelled",
        "skipped",
    ] == statuses(turn)
    assert "done done" == turn[0].value
    assert [FailureKind.ROLLED_BACK, FailureKind.TOOL_ERROR] == [r.failure.kind for r in turn[:2]]  # type: ignore[union-attr]
    assert [1, None, 1, 1] == [r.failure.cause for r in turn]  # type: ignore[union-attr]
    assert "[skipped] never started: step (call 1) failed" == turn[3].content()
    assert diary.newest_first == diary.undone
    assert 2 + (not serial) == len(diary.undone)
    assert (0, 0, 0) == left_over(dispatcher)


@pytest.mark.parametrize("how", ["times out", "unknown tool", "bad arguments", "denied"])
def test_whatever_is_no_success_undoes_the_group(how: str) -> None:
    """A time-out while it runs; what is refused before lets nothing start at all."""
    diary = Diary()
    bad = {
        "times out": step("bad", seconds=9, timeout=3.0),
        "unknown tool": ToolCall("bad", "nobody", {}),
        "bad arguments": ToolCall("bad", "step", {"key": ["no text"]}),
        "denied": step("bad", "locked"),
    }[how]

    async def gate(call: ToolCall, ctx: GateContext) -> Allow | Deny:
        return Deny("locked") if ctx.arguments.get("key") == "locked" else Allow()

    dispatcher = Dispatcher(diary.tools(), policy=AllOrNothing(), gates=[gate])
    turn = run_in_virtual_time(dispatcher.run([step("a"), step("b", of="free"), bad]))
    if how == "times out":
        assert ["rolled_back", "rolled_back", "timed_out"] == statuses(turn)
        assert ["-bad", *diary.newest_first[1:]] == diary.undone
    else:
        assert (["skipped", "skipped", "error"], []) == (statuses(turn), diary.lines)
    assert (0, 0, 0) == left_over(dispatcher)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_if_all_succeed_nothing_is_undone(schedule: str) -> None:
    """Satisfied, with the values; no compensation runs, then or later."""
    diary = Diary()
    dispatcher = Dispatcher(diary.tools(), policy=AllOrNothing(), schedule=schedule)
    turn = run_in_virtual_time(dispatcher.run([step("a"), step("b", "a"), step("c", of="free")]))
    assert (True, None) == (turn.satisfied, turn.reason)
    assert ["done a", "done b", "done c"] == texts(turn)
    assert {"+a", "+b", "+c"} == set(diary.lines)
    assert (0, 0, 0) == left_over(dispatcher)


def test_an_empty_turn_is_all() -> None:
    """Nothing failed."""
    assert run_in_virtual_time(Dispatcher([ask], policy=AllOrNothing()).run([])).satisfied


@pytest.mark.parametrize("position", [0, 2])
def test_what_cannot_be_undone_is_refused_and_nothing_starts(position: int) -> None:
    """U4: a post in an all-or-nothing turn, wherever it stands; nothing of the turn has run."""
    diary = Diary()
    posted: list[str] = []

    @tool(safe_parallel=True, reversible=False)
    async def post() -> None:
        posted.append("posted")

    calls = [step("a"), step("b", of="free")]
    calls.insert(position, ToolCall("post", "post", {}))
    turn = run_in_virtual_time(Dispatcher([*diary.tools(), post], policy=AllOrNothing()).run(calls))
    failure = turn[position].failure
    assert failure is not None
    assert (Status.ERROR, FailureKind.REJECTED) == (turn[position].status, failure.kind)
    assert "post cannot be undone" in failure.message
    assert ["error", "skipped", "skipped"] == sorted(statuses(turn))
    assert ([], []) == (posted, diary.lines)


def test_the_first_edit_is_undone_when_the_second_fails() -> None:
    """U4: [edit ok, edit fails] leaves what was there before."""
    text = {"f": "old"}

    @tool(writes="key:{key}")
    async def edit(key: str, new: str, ctx: CallContext) -> None:
        if key not in text:
            raise ToolError("no such text")
        ctx.on_rollback(text.__setitem__, key, text[key])
        text[key] = new

    calls = [ToolCall("", "edit", {"key": key, "new": "new"}) for key in ("f", "missing")]
    turn = run_in_virtual_time(Dispatcher([edit], policy=AllOrNothing()).run(calls))
    assert ({"f": "old"}, ["rolled_back", "error"]) == (text, statuses(turn))


def test_what_cannot_be_undone_may_run_outside_the_group() -> None:
    """Only the group's calls must be reversible; in a stream a later one undoes the others."""
    diary = Diary()

    @tool(safe_parallel=True, reversible=False)
    async def post() -> str:
        return "posted"

    async def main() -> TurnResult:
        policies = {"all": AllOrNothing()}
        async with Dispatcher([*diary.tools(), post], policies=policies).turn() as turn:
            turn.submit(step("a", tags=("all",)))
            turn.submit(ToolCall("", "post", {}))
            await asyncio.sleep(2)
            turn.submit(ToolCall("", "post", {}, tags=frozenset({"all"})))
            return await turn.finish()

    turn = run_in_virtual_time(main())
    assert ["rolled_back", "ok", "error"] == statuses(turn)
    assert ["+a", "-a"] == diary.lines


@pytest.mark.parametrize("fate", ["ok", "fails"])
def test_events_come_when_the_group_is_decided_and_the_snapshot_is_provisional(fate: str) -> None:
    """Those of others come as they end; those of the group together, in intent order."""
    diary = Diary()

    async def main() -> tuple[list[tuple[int, str, float]], list[str], TurnResult]:
        clock = asyncio.get_running_loop().time
        seen: list[tuple[int, str, float]] = []

        async def read(turn: Any) -> None:
            async for each in turn.events():
                seen.append((each.index, str(each.status), clock()))  # noqa: PERF401 - at its time

        dispatcher = Dispatcher([*diary.tools(), ask], policies={"all": AllOrNothing()})
        async with dispatcher.turn() as turn:
            reader = asyncio.create_task(read(turn))
            turn.submit(step("a", tags=("all",), seconds=3, undo=1))
            turn.submit(step("b", tags=("all",), seconds=1, undo=1))
            turn.submit(asked(2))
            await asyncio.sleep(3.5)
            before = statuses(list(turn.snapshot()))
            turn.submit(step("c", tags=("all",), seconds=1, fate=fate))
            result = await turn.finish()
            await reader
        return seen, before, result

    seen, before, turn = run_in_virtual_time(main())
    ends = {"ok": ("ok", "ok", 4.5), "fails": ("rolled_back", "error", 6.5)}[fate]
    status, last, when = ends
    expected = [(2, "ok", 2.0), (0, status, when), (1, status, when), (3, last, when)]
    assert expected == seen
    assert ["ok", "ok", "ok"] == before
    assert [status, status, "ok", last] == statuses(turn)


def test_a_result_keeps_its_times_when_it_is_undone() -> None:
    """It ended when it ended, however long the undoing takes."""
    diary = Diary()
    calls = [step("a", undo=5), step("b", seconds=2, fate="fails")]

    async def main() -> tuple[TurnResult, float]:
        turn = await Dispatcher(diary.tools(), policy=AllOrNothing()).run(calls)
        return turn, asyncio.get_running_loop().time()

    turn, when = run_in_virtual_time(main())
    assert [("rolled_back", 1.0), ("error", 2.0)] == told(turn)
    assert 7.0 == when


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_rollback_has_some_time(seconds: float) -> None:
    with pytest.raises(ValueError, match="rollback_timeout"):
        AllOrNothing(rollback_timeout=seconds)


def test_a_ref_takes_a_value_of_the_group_before_it_is_decided() -> None:
    """Within the turn its calls see each other's effects; what follows from them is the model's."""
    diary = Diary()

    @tool(safe_parallel=True)
    async def use(value: str) -> str:
        return f"used {value}"

    calls = [
        step("a", tags=("all",)),
        ToolCall("b", "use", {"value": Ref("a")}),
        step("c", tags=("all",), seconds=5, fate="fails"),
    ]
    turn = run_in_virtual_time(
        Dispatcher([*diary.tools(), use], policies={"all": AllOrNothing()}).run(calls)
    )
    assert [("rolled_back", 1.0), ("ok", 1.0), ("error", 6.0)] == told(turn)
    assert "used done a" == turn[1].content()
