"""Turns nested in calls: slots, claims, who passes whom, deadlocks, and the edges of the tree."""

import asyncio
from typing import Any

import pytest

from dispatch import (
    CallContext,
    Deadlock,
    Dispatcher,
    FailureKind,
    ResourceTable,
    Tool,
    ToolCall,
    TurnResult,
    read,
    tool,
    write,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import call, edit, left_over, parent, statuses, told
from tests.timeline import Timeline


def test_what_the_parent_claims_is_not_in_its_childrens_way_but_their_siblings_are() -> None:
    """Below the same key: the parent's write is passed, the children exclude each other."""
    timeline = Timeline()

    @tool(resource_keys=lambda given: [write("dir")])
    async def agent(ctx: CallContext) -> None:
        turns = [ctx.run([call("child", name=name, key="x")]) for name in "ab"]
        await asyncio.gather(*turns, ctx.run([call("child", name="c", key="y")]))

    @tool(writes="dir:{key}")
    async def child(name: str, key: str) -> None:
        with timeline.span(name):
            await asyncio.sleep(1)

    turn = run_in_virtual_time(Dispatcher([agent, child]).run([call("agent")]))
    assert "ok" == turn[0].status, turn[0].content()
    assert {"a": (0, 1), "b": (1, 2), "c": (0, 1)} == timeline.spans


def test_cousins_exclude_each_other() -> None:
    """Nested calls of two parents in one turn: claims are entered, not inherited."""
    dispatcher = Dispatcher([parent, edit])
    calls = [call("parent", keys=["a", "b"]), call("parent", keys=["b", "c"])]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert [("ok", 1.0), ("ok", 2.0)] == told(turn)


def test_a_nested_claim_stays_when_the_claim_of_its_parent_goes() -> None:
    """The child was given up and may still write; what waits for the parent's key waits for it."""

    @tool(writes="dir:x")
    async def stuck() -> None:
        while asyncio.get_running_loop().time() < 30:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                continue

    @tool(resource_keys=lambda given: [write("dir")])
    async def agent(ctx: CallContext) -> str:
        return str((await ctx.run([call("stuck", 1.0)]))[0].status)

    @tool(writes="dir:{key}")
    async def touch(key: str) -> None: ...

    async def main() -> tuple[TurnResult, TurnResult]:
        dispatcher = Dispatcher([stuck, agent, touch], grace=0.5)
        first = await dispatcher.run([call("agent")])
        return first, await dispatcher.run([call("touch", 60.0, key=key) for key in "xy"])

    first, second = run_in_virtual_time(main())
    assert (["unknown"], ["ok"]) == ([result.value for result in first], statuses(first))
    assert ["ok", "ok"] == statuses(second)
    assert second[0].started_at is not None
    assert second[0].started_at > 30


def work(name: str, keys: str, seconds: float = 1.0, *nested: ToolCall) -> ToolCall:
    """Write these keys for so long, then run what is nested."""
    arguments = {"keys": list(keys), "seconds": seconds, "nested": nested}
    return ToolCall(name, "work", arguments)


def worker(starts: list[tuple[str, float]], **keywords: object) -> Dispatcher:
    """A dispatcher whose tool `work` notes its starts."""

    async def run(ctx: CallContext, keys: list[str], seconds: float, nested: Any) -> str:
        starts.append((ctx.call.id, asyncio.get_running_loop().time()))
        await asyncio.sleep(seconds)
        return (await ctx.run(nested))[0].content() if nested else "done"

    tools = [Tool("work", run, resource_keys=lambda given: [write(key) for key in given["keys"]])]
    return Dispatcher(tools, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize("long", [False, True], ids=["alone", "beside a long holder"])
def test_a_nested_call_passes_a_waiter_that_waits_for_its_ancestor(long: bool) -> None:
    """h runs, x queues behind it, c of p behind x; that h nests a wait for p lets c pass x in that
    step, or as soon as the long holder of its key has gone; nothing fails."""
    starts: list[tuple[str, float]] = []
    dispatcher = worker(starts)

    async def main() -> list[TurnResult]:
        calls = {
            0.0: work("h", "h", 3.0, work("hc", "d")),
            0.25: work("x", "eh"),
            0.5: work("p", "d", 1.0, work("c", "e")),
        }
        if long:
            calls[0.125] = work("long", "e", 9.0)

        async def later(seconds: float, one: ToolCall) -> TurnResult:
            await asyncio.sleep(seconds)
            return await dispatcher.run([one])

        return list(await asyncio.gather(*(later(*item) for item in calls.items())))

    turns = run_in_virtual_time(main())
    assert {"ok"} == {turn[0].status for turn in turns}
    c = 9.125 if long else 3.0
    expected = [("h", 0.0), ("p", 0.5), ("c", c), ("hc", c + 1), ("x", c + 2)]
    assert expected == [start for start in starts if start[0] != "long"]
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_cycle_in_which_everybody_holds_something_ends_at_once() -> None:
    """The queued call whose root came last fails, and names the parties; the older tree goes on."""
    starts: list[tuple[str, float]] = []
    table = ResourceTable()
    older, younger = worker(starts, resources=table), worker(starts, resources=table)

    async def main() -> list[TurnResult]:
        one = older.run([work("old", "a", 2.0, work("old child", "b"))])
        two = younger.run([work("young", "b", 1.0, work("young child", "a"))])
        return list(await asyncio.gather(one, two))

    old, young = run_in_virtual_time(main())
    assert [("ok", 3.0)] == told(old)
    assert [("ok", 2.0)] == told(young)
    assert "deadlock: it and work (call 0) wait for each other" in young[0].content()
    assert (0, 0, 0) == left_over(older, younger)


@pytest.mark.parametrize("timeout", [None, 1.0])
def test_two_readers_that_both_write_below_what_they_read_are_a_deadlock(
    timeout: float | None,
) -> None:
    """An upgrade on both sides of one turn: one of them fails at once, without any time limit."""
    results: list[TurnResult] = []

    @tool(resource_keys=lambda given: [read("dir")])
    async def reader(ctx: CallContext, key: str) -> None:
        await asyncio.sleep(0.25)
        results.append(await ctx.run([call("below", key=key)]))

    @tool(writes="dir:{key}")
    async def below(key: str) -> None:
        await asyncio.sleep(0.25)

    calls = [call("reader", timeout, key="x"), call("reader", timeout, key="y")]
    run_in_virtual_time(Dispatcher([reader, below]).run(calls))
    failures = [turn[0].failure for turn in results]
    assert [FailureKind.DEADLOCK, None] == [failure and failure.kind for failure in failures]
    assert failures[0] is not None
    assert (True, "lock") == (failures[0].retryable, failures[0].phase)


def test_a_hold_inside_a_tool_is_nested_in_its_call() -> None:
    """It passes what its call claims, keeps others out, gives the slots back while it waits, and
    what its body starts is nested in it."""
    table = ResourceTable()
    times: list[float] = []

    @tool(writes="key:a")
    async def holds() -> str:
        async with table.hold(write("key", "a"), write("key", "b")):
            times.append(asyncio.get_running_loop().time())
            turn = await Dispatcher([edit], resources=table).run([call("edit", key="b", seconds=1)])
            return str(turn[0].status)

    async def main() -> list[TurnResult]:
        dispatcher = Dispatcher([holds, edit], resources=table, max_concurrent=1)
        first = asyncio.create_task(dispatcher.run([call("edit", key="b", seconds=3)]))
        await asyncio.sleep(1)
        second = asyncio.create_task(dispatcher.run([call("holds")]))
        return [await first, await second]

    first, second = run_in_virtual_time(main())
    assert ([3.0], ["ok"]) == (times, [result.value for result in second])
    assert [("ok", 3.0), ("ok", 4.0)] == told([*first, *second])
    assert (0, 0) == (table.statistics().held, table.statistics().waiting)


def test_a_hold_that_is_the_victim_of_a_deadlock_raises_it() -> None:
    """Where it waits, in the tool, which may do something about it."""
    table = ResourceTable()

    @tool(resource_keys=lambda given: [write("key", given["mine"])])
    async def holds(mine: str, other: str, wait: float) -> str:
        await asyncio.sleep(wait)
        try:
            async with table.hold(write("key", other)):
                return "held"
        except Deadlock as error:
            return str(error)

    async def main() -> list[TurnResult]:
        dispatchers = [Dispatcher([holds], resources=table) for _ in range(2)]
        first = dispatchers[0].run([call("holds", mine="a", other="b", wait=2)])
        second = dispatchers[1].run([call("holds", mine="b", other="a", wait=1)])
        return list(await asyncio.gather(first, second))

    first, second = run_in_virtual_time(main())
    assert "held" == first[0].value
    assert "deadlock: this hold and a hold in holds wait for each other" == second[0].value
    assert (0, 0) == (table.statistics().held, table.statistics().waiting)


def test_a_hold_outside_of_tools_keeps_out_what_its_body_starts() -> None:
    """There it is nobody's ancestor."""

    async def main() -> TurnResult:
        dispatcher = Dispatcher([edit])
        async with dispatcher.resources.hold(write("key", "a")):
            return await dispatcher.run([call("edit", 2.0, key="a"), call("edit", key="b")])

    assert [("timed_out", 2.0), ("ok", 0.0)] == told(run_in_virtual_time(main()))


def test_a_dispatcher_without_a_table_uses_that_of_its_parent() -> None:
    """An agent framework's dispatcher that knows of nothing: its reads wait for the writes of other
    turns, not for its own caller."""

    @tool(reads="key:{key}")
    async def look(key: str) -> float:
        return asyncio.get_running_loop().time()

    @tool(writes="key:a")
    async def agent() -> list[float]:
        turn = await Dispatcher([look]).run([call("look", key="a"), call("look", key="b")])
        return [result.value for result in turn]

    async def main() -> TurnResult:
        dispatcher = Dispatcher([agent, edit])
        other = asyncio.create_task(dispatcher.run([call("edit", key="b", seconds=5)]))
        await asyncio.sleep(1)
        turn = await dispatcher.run([call("agent")])
        await other
        return turn

    assert [[1.0, 5.0]] == [result.value for result in run_in_virtual_time(main())]


def test_a_dispatcher_with_a_table_of_its_own_keeps_to_it() -> None:
    """Nothing there knows of the caller's claims; its call still gives its slots back."""
    inner = Dispatcher([edit], resources=ResourceTable(), max_concurrent=1)

    @tool(writes="key:a")
    async def agent() -> str:
        return str((await inner.run([call("edit", key="b", seconds=1)]))[0].status)

    async def main() -> list[TurnResult]:
        dispatcher = Dispatcher([agent, edit], max_concurrent=1)
        first = asyncio.create_task(dispatcher.run([call("agent")]))
        await asyncio.sleep(0.5)
        second = await dispatcher.run([call("edit", key="b", seconds=0.25)])
        return [await first, second]

    first, second = run_in_virtual_time(main())
    assert ([("ok", 1.0)], [("ok", 0.75)]) == (told(first), told(second))


@pytest.mark.parametrize("depth", [1, 3])
def test_turns_are_nested_only_so_deep(depth: int) -> None:
    """The error names the tool and the setting; the calls above it end well."""

    @tool(safe_parallel=True)
    async def deeper(ctx: CallContext) -> str:
        turn = await ctx.run([call("deeper")])
        return turn[0].content()

    dispatcher = Dispatcher([deeper], max_depth=depth, max_concurrent=1)
    turn = run_in_virtual_time(dispatcher.run([call("deeper")]))
    assert "ok" == turn[0].status
    assert f"turns are nested {depth} deep already" in turn[0].content()
    assert "'deeper'" in turn[0].content()
    assert "max_depth" in turn[0].content()
    assert (0, 0, 0) == left_over(dispatcher)


def test_reading_what_the_parent_reads_needs_nobody() -> None:
    """Shared claims of parent, child and others at once."""

    @tool(resource_keys=lambda given: [read("dir")])
    async def reader(ctx: CallContext, deep: int) -> float:
        if deep:
            await ctx.run([call("reader", deep=deep - 1)])
        return asyncio.get_running_loop().time()

    turn = run_in_virtual_time(Dispatcher([reader]).run([call("reader", deep=5)] * 2))
    assert [0.0, 0.0] == [result.value for result in turn]
