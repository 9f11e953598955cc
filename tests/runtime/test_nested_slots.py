"""Slots and nesting: a call that waits for its children has none."""

import asyncio

import pytest

from dispatch import (
    CallContext,
    Dispatcher,
    Limits,
    Tool,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import call, edit, left_over, parent, statuses, told
from tests.timeline import SCHEDULES


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("limit", [1, 2])
def test_parents_that_fill_every_slot_do_not_wait_for_their_children(
    limit: int, schedule: str
) -> None:
    """K1: two parents with two children each through one limiter; a waiting parent has no slot."""
    dispatcher = Dispatcher([parent, edit], max_concurrent=limit, schedule=schedule)
    calls = [call("parent", keys=["a", "b"]), call("parent", keys=["c", "d"])]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [["ok", "ok"]] * 2 == [result.value for result in turn]
    one_by_one = limit == 1 or schedule == "serial"
    assert (4.0 if one_by_one else 2.0) == max(result.finished_at for result in turn)
    assert limit >= dispatcher.statistics().peak
    assert (0, 0, 0) == left_over(dispatcher)


@pytest.mark.parametrize(("limit", "seconds"), [(4, 1.0), (3, 1.0), (1, 3.0)])
def test_nested_work_never_waits_for_its_parents_slot(limit: int, seconds: float) -> None:
    """K2: three parents with a nested request each under four, three, one permits."""
    dispatcher = Dispatcher([parent, edit], max_concurrent=limit)
    calls = [call("parent", keys=[key]) for key in "abc"]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [["ok"]] * 3 == [result.value for result in turn]
    assert seconds == max(result.finished_at for result in turn)
    assert limit >= dispatcher.statistics().peak


def test_a_child_may_need_the_one_slot_that_its_parent_had() -> None:
    """K4: a parent on P (cap 1) has children on P and Q (cap 2): no deadlock, no cap exceeded."""
    running: dict[str, int] = {"p": 0, "q": 0}
    peak: dict[str, int] = {"p": 0, "q": 0}

    async def ask(tag: str, seconds: float) -> None:
        running[tag] += 1
        peak[tag] = max(peak[tag], running[tag])
        await asyncio.sleep(seconds)
        running[tag] -= 1

    @tool(safe_parallel=True, tags={"p"})
    async def agent(ctx: CallContext) -> list[str]:
        await ask("p", 1)
        calls = [call("p"), call("p"), call("q"), call("q"), call("q")]
        turn = await ctx.run(calls)
        await ask("p", 1)
        return statuses(turn)

    async def p() -> None:
        await ask("p", 1)

    async def q() -> None:
        await ask("q", 1)

    tools = [
        agent,
        Tool("p", p, safe_parallel=True, tags={"p"}),
        Tool("q", q, safe_parallel=True, tags={"q"}),
    ]
    dispatcher = Dispatcher(tools, limits=Limits(8, per_tag={"p": 1, "q": 2}))
    turn = run_in_virtual_time(dispatcher.run([call("agent")]))
    assert ([["ok"] * 5], {"p": 1, "q": 2}) == ([result.value for result in turn], peak)
    assert 4.0 == turn[0].finished_at


def test_nested_calls_of_two_parents_need_each_others_limits() -> None:
    """A (1) nests b, B (1) nests a: lending slots to one's own children would deadlock."""

    @tool(safe_parallel=True)
    async def a(ctx: CallContext, deep: bool = True) -> str:
        await asyncio.sleep(1)
        return str((await ctx.run([call("b", deep=False)]))[0].status) if deep else "leaf"

    @tool(safe_parallel=True)
    async def b(ctx: CallContext, deep: bool = True) -> str:
        await asyncio.sleep(1)
        return str((await ctx.run([call("a", deep=False)]))[0].status) if deep else "leaf"

    dispatcher = Dispatcher([a, b], limits=Limits(8, per_tool={"a": 1, "b": 1}))
    turn = run_in_virtual_time(dispatcher.run([call("a"), call("b")]))
    assert [("ok", 2.0), ("ok", 2.0)] == told(turn)


def test_a_resuming_call_goes_before_those_that_have_not_started() -> None:
    """The parent takes the slot that its child gives back; who waited longer is behind."""
    dispatcher = Dispatcher([parent, edit], max_concurrent=1)

    async def main() -> list[TurnResult]:
        first = asyncio.create_task(dispatcher.run([call("parent", keys=["a"], seconds=2)]))
        await asyncio.sleep(1)
        second = asyncio.create_task(dispatcher.run([call("edit", key="b", seconds=5)]))
        return [await first, await second]

    first, second = run_in_virtual_time(main())
    assert ([("ok", 2.0)], 2.0) == (told(first), second[0].started_at)
    assert {"suspended": 2.0} == first[0].waits


def test_statistics_count_nested_calls() -> None:
    """Sums over all turns, nested ones included; a suspended call is not running."""
    dispatcher = Dispatcher([parent, edit], max_concurrent=2)
    turn = run_in_virtual_time(dispatcher.run([call("parent", keys=["a", "b"])]))
    total = dispatcher.statistics()
    assert (2, 3, 2, 0) == (total.turns, total.calls, total.peak, total.running)
    assert ({"suspended": 1.0}, 1) == (turn.stats.waits, turn.stats.calls)
