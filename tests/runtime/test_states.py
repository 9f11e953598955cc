"""States and suspension: slots given back, and taken again in one step before new calls."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    CallContext,
    CancelToken,
    Deadlock,
    Dispatcher,
    Limits,
    ResourceTable,
    Status,
    ToolCall,
    TurnResult,
    UsageError,
    tool,
    write,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import call, edit, left_over, told


def now() -> float:
    return asyncio.get_running_loop().time()


@tool(safe_parallel=True)
async def task(ctx: CallContext, states: list[str], seconds: float = 1.0) -> list[float]:
    """Go through these states, so long in each; when each was entered."""
    entered = []
    for state in states:
        await ctx.set_state(state)
        entered.append(now())
        await asyncio.sleep(seconds)
    return entered


def entered(turn: TurnResult) -> list[Any]:
    return [result.value for result in turn]


def test_two_calls_that_swap_full_states_both_go_on() -> None:
    """One in each of two states with room for one: neither waits for the other to leave."""
    dispatcher = Dispatcher([task], limits=Limits(8, per_tag={"a": 1, "b": 1}))
    calls = [call("task", states=list("ab")), call("task", states=list("ba"))]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [[0.0, 1.0], [0.0, 1.0]] == entered(turn)
    assert [("ok", 2.0), ("ok", 2.0)] == told(turn)
    assert (0, 0, 0) == left_over(dispatcher)


def test_three_calls_may_go_round_three_full_states() -> None:
    """A swap in a circle, and again."""
    dispatcher = Dispatcher([task], limits=Limits(8, per_tag=dict.fromkeys("abc", 1)))
    calls = [call("task", states=list(states)) for states in ("abcab", "bcabc", "cabca")]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [[0.0, 1.0, 2.0, 3.0, 4.0]] * 3 == entered(turn)


def test_a_full_state_is_waited_for_without_any_slot() -> None:
    """Neither the state that was left nor the total is held meanwhile; arrivals are in order."""
    dispatcher = Dispatcher([task, edit], limits=Limits(2, per_tag={"b": 1}))
    calls = [
        call("task", states=["b"], seconds=5),
        call("task", states=["a", "b"]),
        call("edit", key="k", seconds=2),
        call("edit", key="l", seconds=2),
    ]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [[0.0], [0.0, 5.0]] == entered(turn)[:2]
    assert [1.0, 3.0] == [result.started_at for result in turn[2:]]
    assert {"suspended": 4.0} == turn[1].waits


def test_a_state_with_room_is_entered_without_a_pause() -> None:
    """Not even a call that waits to go on comes between: the slot of the total is kept."""

    @tool(safe_parallel=True)
    async def waits(ctx: CallContext) -> float:
        async with ctx.suspended():
            await asyncio.sleep(0.5)
        return now()

    dispatcher = Dispatcher([waits, task, edit], limits=Limits(1, per_tag={"a": 1, "b": 1}))
    calls = [call("waits"), call("task", states=list("abab")), call("edit", key="k")]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [4.0, [0.0, 1.0, 2.0, 3.0]] == entered(turn)[:2]
    assert 4.0 == turn[2].started_at
    assert "suspended" not in turn[1].waits


def test_a_call_may_enter_the_state_that_it_is_in() -> None:
    """Also when that is full, with itself."""
    dispatcher = Dispatcher([task], limits=Limits(1, per_tag={"a": 1}))
    turn = run_in_virtual_time(dispatcher.run([call("task", states=list("aaa"))]))
    assert [0.0, 1.0, 2.0] == turn[0].value


def test_a_state_that_nobody_limits_has_only_the_total() -> None:
    """Any name is a state."""
    turn = run_in_virtual_time(
        Dispatcher([task], max_concurrent=1).run([call("task", states=["x", "y"])])
    )
    assert [0.0, 1.0] == turn[0].value


def test_a_state_counts_beside_the_tags_that_the_call_has() -> None:
    """Its own tags stay; only one state takes the place of another."""

    @tool(safe_parallel=True, tags={"own"})
    async def tagged(ctx: CallContext) -> float:
        await ctx.set_state("a")
        await asyncio.sleep(1)
        return now()

    limits = Limits(8, per_tag={"own": 2, "a": 1})
    turn = run_in_virtual_time(Dispatcher([tagged], limits=limits).run([call("tagged")] * 4))
    assert [1.0, 2.0, 3.0, 4.0] == sorted(entered(turn))


def test_the_slots_of_a_state_are_given_back_when_the_call_ends() -> None:
    """However it ends: a failure, a time-out, a cancel while it waits for the state."""

    @tool(safe_parallel=True)
    async def fails(ctx: CallContext) -> None:
        await ctx.set_state("a")
        raise ValueError

    dispatcher = Dispatcher([fails, task], limits=Limits(8, per_tag={"a": 1}))
    calls = [
        call("task", states=["a"], seconds=9),
        call("fails", 2.0),
        call("task", 10.0, states=["a"], seconds=9),
        call("fails"),
    ]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [("ok", 9.0), ("timed_out", 2.0), ("timed_out", 10.5), ("error", 10.5)] == told(turn)
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_pause_of_a_state_is_lifted_live() -> None:
    """A limit of 0 holds whoever wants in, until it is raised."""
    limits = Limits(8, per_tag={"a": 0})

    async def main() -> TurnResult:
        asyncio.get_running_loop().call_later(5, lambda: limits.change(per_tag={"a": 1}))
        return await Dispatcher([task], limits=limits).run([call("task", states=["a"])] * 2)

    assert [[5.0], [6.0]] == entered(run_in_virtual_time(main()))


def test_a_parent_keeps_no_state_while_its_children_run() -> None:
    """Suspended in state a, its child may enter a; the parent has its state again afterwards."""
    running = {"a": 0}

    @tool(safe_parallel=True)
    async def agent(ctx: CallContext, deep: int) -> list[float]:
        await ctx.set_state("a")
        running["a"] += 1
        assert 1 == running["a"]
        await asyncio.sleep(1)
        running["a"] -= 1
        below = (await ctx.run([call("agent", deep=deep - 1)]))[0].unwrap() if deep else []
        running["a"] += 1
        assert 1 == running["a"]
        await asyncio.sleep(1)
        running["a"] -= 1
        return [now(), *below]

    dispatcher = Dispatcher([agent], limits=Limits(8, per_tag={"a": 1}))
    turn = run_in_virtual_time(dispatcher.run([call("agent", deep=2)]))
    assert [[6.0, 5.0, 4.0]] == entered(turn), turn[0].content()


def test_a_state_may_be_set_while_a_nested_turn_is_open() -> None:
    """It is entered once the nested turn has ended, in one step."""

    @tool(safe_parallel=True)
    async def agent(ctx: CallContext) -> float:
        turn = ctx.run([call("edit", key="k", seconds=3)])
        await asyncio.gather(turn, ctx.set_state("a"))
        return now()

    dispatcher = Dispatcher([agent, task, edit], limits=Limits(8, per_tag={"a": 1}))
    calls = [call("agent"), call("task", states=["a"], seconds=5)]
    assert [5.0, [0.0]] == entered(run_in_virtual_time(dispatcher.run(calls)))


def test_a_context_made_by_hand_has_no_state() -> None:
    """Its call belongs to no turn: a clear error."""
    made = CallContext(ToolCall("", "x", {}), CancelToken(), 0.5, lambda text: None)
    with pytest.raises(UsageError, match="made by hand"):
        asyncio.run(made.set_state("a"))


def test_a_suspended_call_lets_others_run_and_goes_on_before_new_ones() -> None:
    """No slot while it waits; then the next that comes free, though others have waited longer."""

    @tool(writes="key:own")
    async def waits(ctx: CallContext) -> float:
        async with ctx.suspended():
            await asyncio.sleep(3.5)
        return now()

    dispatcher = Dispatcher([waits, edit], max_concurrent=1)
    calls = [call("waits"), *[call("edit", key=str(n), seconds=2) for n in range(4)]]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert 4.0 == turn[0].value
    assert [0.0, 2.0, 4.0, 6.0] == [result.started_at for result in turn[1:]]
    assert {"suspended": 4.0} == turn[0].waits
    assert 1 == dispatcher.statistics().peak


def test_a_suspended_call_keeps_its_claims() -> None:
    """Only slots are given back."""

    @tool(writes="key:a")
    async def waits(ctx: CallContext) -> None:
        async with ctx.suspended():
            await asyncio.sleep(3)

    turn = run_in_virtual_time(
        Dispatcher([waits, edit]).run([call("waits"), call("edit", key="a")])
    )
    assert 3.0 == turn[1].started_at


def test_suspensions_may_lie_in_each_other() -> None:
    """The slots come back after the last one, and with nested turns between them."""

    @tool(safe_parallel=True)
    async def waits(ctx: CallContext) -> float:
        async with ctx.suspended():
            await ctx.run([call("edit", key="k", seconds=1)])
            async with ctx.suspended():
                await asyncio.sleep(1)
            await asyncio.sleep(1)
        return now()

    dispatcher = Dispatcher([waits, edit], max_concurrent=1)
    calls = [call("waits"), call("edit", key="a", seconds=5)]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert ([0.0, 0.0], 8.0) == ([turn[0].started_at, turn[1].started_at], turn[0].value)


def test_a_body_that_fails_waits_for_its_slots_too() -> None:
    """Whoever catches the error works with a slot again, not beside the call that has it."""

    @tool(safe_parallel=True)
    async def backs_off(ctx: CallContext) -> float:
        try:
            async with ctx.suspended():
                await asyncio.sleep(1)
                raise LookupError
        except LookupError:
            return now()

    dispatcher = Dispatcher([backs_off, edit], max_concurrent=1)
    calls = [call("backs_off"), call("edit", key="a", seconds=5)]
    assert 5.0 == run_in_virtual_time(dispatcher.run(calls))[0].value


def test_a_hold_that_fails_waits_for_its_slots_too() -> None:
    """The victim of a deadlock goes on with a slot, not beside the call that has it."""
    table = ResourceTable()

    @tool(resource_keys=lambda given: [write("key", given["mine"])])
    async def holds(mine: str, other: str, wait: float) -> float:
        await asyncio.sleep(wait)
        try:
            async with table.hold(write("key", other)):
                await asyncio.sleep(1)
        except Deadlock:
            pass
        return now()

    async def main() -> list[TurnResult]:
        narrow = Dispatcher([holds, edit], resources=table, max_concurrent=1)
        older = Dispatcher([holds], resources=table)
        first = older.run([call("holds", mine="a", other="b", wait=2)])
        calls = [call("holds", mine="b", other="a", wait=1), call("edit", key="c", seconds=5)]
        return list(await asyncio.gather(first, narrow.run(calls)))

    assert 6.0 == run_in_virtual_time(main())[1][0].value


@pytest.mark.parametrize("where", ["suspended", "waiting for its slots"])
def test_a_suspended_call_can_be_stopped(where: str) -> None:
    """While it waits for something, and while it waits to go on."""

    @tool(safe_parallel=True)
    async def waits(ctx: CallContext, seconds: float) -> None:
        async with ctx.suspended():
            await asyncio.sleep(seconds)

    dispatcher = Dispatcher([waits, edit], max_concurrent=1, grace=0.5)
    seconds = 60 if where == "suspended" else 1
    calls = [call("waits", 2.0, seconds=seconds), call("edit", key="a", seconds=9)]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [Status.TIMED_OUT, Status.OK] == [result.status for result in turn]
    assert turn[0].finished_at <= 3.25
    assert (0, 0, 0) == left_over(dispatcher)
