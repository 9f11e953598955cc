"""Limits and approvals: what is capped, who waits, and who is asked about what."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dispatch import (
    Allow,
    Deny,
    Dispatcher,
    FailureKind,
    Gate,
    GateContext,
    Limits,
    Phase,
    ResourceTable,
    Status,
    ToolCall,
    TurnResult,
)
from dispatch.runtime.gates import Decision
from dispatch.testing import run_in_virtual_time
from dispatch.toolkit import coding_tools
from tests.runtime.stage import WAYS, Desk, Stage, at, begins, call, clock, kinds, played, row
from tests.timeline import SCHEDULES

REJECTED = FailureKind.REJECTED

ways = pytest.mark.parametrize("way", WAYS)
schedules = pytest.mark.parametrize("schedule", SCHEDULES)
both_kinds = pytest.mark.parametrize("rewrites", [False, True], ids=["asks", "rewrites"])


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name != "serial"])
def test_a_class_of_work_has_its_own_limit_and_holds_nobody_back(schedule: str) -> None:
    """L2: 6 calls of class `worker`, cap 4, before 6 others: all 12 run, the others at once."""
    stage = Stage()
    workers = row(6, tags=("worker",))
    others = [call(f"other {n}") for n in range(6)]
    result = played(
        stage, [*workers, *others], schedule=schedule, limits=Limits(12, per_tag={"worker": 4})
    )
    assert [None] * 12 == kinds(result)
    assert [0.0] * 4 + [1.0] * 2 == [stage.began(str(n)) for n in range(6)]
    assert {0.0} == {stage.began(f"other {n}") for n in range(6)}
    assert [{}] * 4 + [{"slot": 1.0}] * 2 == [each.waits for each in result[:6]]


@pytest.mark.parametrize(
    "limits",
    [Limits(2), Limits(8, per_tool={"free": 2}), Limits(8, per_tag={"t": 2})],
    ids=["total", "tool", "tag"],
)
def test_what_is_over_the_limit_waits_and_is_not_refused(limits: Limits) -> None:
    """L7: three calls, cap 2: the third waits for a slot, whichever limit it is."""
    stage = Stage()
    result = played(stage, row(3, tags=("t",)), limits=limits)
    assert [None] * 3 == kinds(result)
    assert [0, 0, 1] == begins(stage)
    assert 2 == stage.peak


def budget(calls: int) -> Callable[[ToolCall, GateContext], Awaitable[Decision]]:
    """A gate that lets so many calls pass, each reserved before anything is awaited."""
    left = calls

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        nonlocal left
        if not left:
            return Deny("the budget of calls is spent; do not try again")
        left -= 1
        await asyncio.sleep(1)
        return Allow()

    return gate


@ways
@schedules
def test_a_budget_of_calls_is_never_overshot(schedule: str, way: str) -> None:
    """L8: a limit of 6 and a batch of 8: 6 start, 2 are refused by the rule, all are answered."""
    stage = Stage()
    turn = [call(str(n)) for n in range(8)]
    result = played(stage, turn, way=way, schedule=schedule, gates=[budget(6)])
    assert [None] * 6 + [REJECTED] * 2 == kinds(result)
    assert 6 == len(stage.marks)


def test_a_budget_is_shared_by_turns_that_run_together() -> None:
    """L8: two turns of 5 with one budget of 6: still 6."""
    stage = Stage()

    async def main() -> int:
        dispatcher = Dispatcher(stage.tools, gates=[budget(6)])
        turns = await asyncio.gather(
            *(dispatcher.run([call(f"{t}{n}") for n in range(5)]) for t in "ab")
        )
        return sum(each.ok for turn in turns for each in turn)

    assert 6 == run_in_virtual_time(main())
    assert 6 == len(stage.marks)


@ways
@schedules
@both_kinds
def test_a_denied_call_is_refused_and_its_siblings_are_still_asked(
    rewrites: bool, schedule: str, way: str
) -> None:
    """O2: A is denied; B, C and the corrected retry D of the same key are asked about and run."""
    stage, desk = Stage(), Desk(a=Deny("not that file"))
    turn = [call(mark, "change", key="k") for mark in "abcd"]
    result = played(stage, turn, way=way, schedule=schedule, gates=[Gate(desk, rewrites=rewrites)])
    assert dict.fromkeys("abcd", 0.0) == desk.asked
    assert ["b", "c", "d"] == stage.marks
    failure = result[0].failure
    assert failure is not None
    assert (REJECTED, Phase.GATE, False) == (failure.kind, failure.phase, failure.retryable)
    assert "[error] not that file" == result[0].content()
    assert (None, 0, {"gate": 1.0}) == (
        result[0].started_at,
        result[0].attempts,
        result[0].waits,
    )


def test_nothing_is_held_while_a_gate_is_asked() -> None:
    """O5: an edit waits 10 s for approval; another turn edits and reads the same file meanwhile,
    though only one call may run at once. Its own turn's read keeps its place behind it."""
    stage, desk = Stage(), Desk(10)
    table = ResourceTable()

    async def main() -> None:
        asks = Dispatcher(stage.tools, max_concurrent=1, resources=table, gates=[desk])
        other = Dispatcher(stage.tools, resources=table, limits=asks.limits)
        first = asyncio.create_task(
            asks.run([call("edit", "change", key="f"), call("read", "look", key="f")])
        )
        await asyncio.sleep(1)
        assert (0, 0) == (table.statistics().held, table.statistics().waiting)
        await other.run(
            [call("other edit", "change", key="f"), call("other read", "look", key="f")]
        )
        assert 3.0 == clock()
        result = await first
        assert {"gate": 10.0} == result[0].waits
        assert {"gate": 10.0, "order": 1.0} == result[1].waits

    run_in_virtual_time(main())
    assert (10.0, 11.0) == (stage.began("edit"), stage.began("read"))


def test_an_edit_is_checked_again_once_it_was_approved(tmp_path: Path) -> None:
    """O5: another turn rewrites the file while an edit waits 10 s for approval: the edit is told

    that its text is not there any more, and what the other one wrote is kept."""
    (tmp_path / "f.txt").write_text("old\n")
    table = ResourceTable(root=tmp_path)

    async def main() -> TurnResult:
        asks = Dispatcher(coding_tools(tmp_path), root=tmp_path, resources=table, gates=[Desk(10)])
        other = Dispatcher(coding_tools(tmp_path), root=tmp_path, resources=table)
        given = {"path": "f.txt", "old": "old", "new": "mine"}
        edit = asyncio.create_task(asks.run([ToolCall("e", "edit_file", given)]))
        await asyncio.sleep(2)
        written = await other.run(
            [ToolCall("w", "write_file", {"path": "f.txt", "content": "newer\n"})]
        )
        assert written[0].ok
        return await edit

    turn = run_in_virtual_time(main())
    assert (Status.ERROR, "newer\n") == (turn[0].status, (tmp_path / "f.txt").read_text())
    assert "f.txt" in turn[0].content()


def test_an_answer_for_one_can_settle_its_siblings() -> None:
    """O6: three prompts are open; "always" on the second answers the other two by its new rule."""
    prompts: dict[str, asyncio.Future[str]] = {}
    always = asyncio.Event()

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        prompts[one.id] = asyncio.get_running_loop().create_future()
        rule = asyncio.create_task(always.wait())
        either: list[asyncio.Future[Any]] = [prompts[one.id], rule]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        rule.cancel()
        return Allow()

    def say_always() -> None:
        assert {"a", "b", "c"} == prompts.keys()
        always.set()

    stage = Stage()

    async def main() -> TurnResult:
        at(3.0, say_always)
        return await Dispatcher(stage.tools, gates=[gate]).run([call("a"), call("b"), call("c")])

    assert [None] * 3 == kinds(run_in_virtual_time(main()))
    assert [3.0] * 3 == [stage.began(mark) for mark in "abc"]


@ways
def test_decisions_are_matched_by_call_whatever_their_number_and_order(way: str) -> None:
    """O7: only two of five need approval, and they are decided last one first."""
    waiting: dict[str, asyncio.Future[Decision]] = {}

    async def gate(one: ToolCall, context: GateContext) -> Decision:
        if context.tool.name == "free":
            return Allow()
        waiting[one.id] = asyncio.get_running_loop().create_future()
        return await waiting[one.id]

    stage = Stage()
    turn = [call("1"), call("2", "change", key="a"), call("3"), call("4", "change", key="b")]

    async def main() -> TurnResult:
        at(1.0, lambda: waiting["4"].set_result(Deny("no 4")))
        at(2.0, lambda: waiting["2"].set_result(Allow()))
        return await Dispatcher(stage.tools, gates=[gate]).run([*turn, call("5")])

    result = run_in_virtual_time(main())
    assert [None, None, None, REJECTED, None] == kinds(result)
    assert [0, 2, 0, 0] == [stage.began(mark) for mark in "1235"]
