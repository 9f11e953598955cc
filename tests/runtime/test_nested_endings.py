"""How trees of calls end: cancelled, timed out, given up, left behind; in tasks and in threads."""

import asyncio
import threading
from typing import Any

import pytest

from dispatch import (
    CallContext,
    CancelToken,
    Dispatcher,
    ResourceTable,
    Status,
    ToolCall,
    TurnResult,
    UsageError,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import call, cancelled, edit, left_over, statuses, told


class Parent:
    """A tool that nests edits, and what became of the nested turns."""

    def __init__(self) -> None:
        self.turns: list[TurnResult] = []

    def dispatcher(self, **keywords: Any) -> Dispatcher:
        @tool(safe_parallel=True)
        async def parent(ctx: CallContext, keys: list[str], seconds: float = 60.0) -> str:
            await self._run(ctx, keys, seconds)
            return "done"

        return Dispatcher([parent, edit], **keywords)

    async def _run(self, ctx: CallContext, keys: list[str], seconds: float) -> None:
        try:
            turn = await ctx.run([call("edit", key=key, seconds=seconds) for key in keys])
        except asyncio.CancelledError as error:
            self.turns.append(error.turn)  # type: ignore[attr-defined]
            raise
        self.turns.append(turn)


@pytest.mark.parametrize("how", ["task", "token", "turn limit", "call limit", "close"])
def test_what_stops_the_parent_stops_what_is_nested_in_it(how: str) -> None:
    """At once, and within the graces; each result of the nested turn is there, and says why."""
    parent = Parent()
    dispatcher = parent.dispatcher(grace=0.5, max_concurrent=2)

    async def main() -> tuple[TurnResult, float]:
        clock = asyncio.get_running_loop().time
        token = CancelToken()
        limit = 1.0 if how == "call limit" else None
        calls = [call("parent", limit, keys=["a", "a", "b"])]
        timeout = 1.0 if how == "turn limit" else None
        task = asyncio.create_task(dispatcher.run(calls, token=token, timeout=timeout))
        await asyncio.sleep(1)
        if how == "task":
            return await cancelled(task), clock()
        if how == "token":
            token.cancel("enough")
        if how == "close":
            await dispatcher.aclose()
        return await task, clock()

    turn, when = run_in_virtual_time(main())
    expected = "timed_out" if "limit" in how else "cancelled"
    assert ([expected], True) == (statuses(turn), when <= 2.25)
    assert [["cancelled"] * 3] == [statuses(nested) for nested in parent.turns]
    assert [1, 0, 1] == [result.attempts for result in parent.turns[0]]
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_turn_that_is_started_after_the_stop_is_stopped_too() -> None:
    """A tool that ignores its cancellation and nests more work gets it back cancelled."""
    seen: list[TurnResult] = []

    @tool(safe_parallel=True)
    async def stubborn(ctx: CallContext) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(await ctx.run([call("edit", key="a", seconds=60)]))

    @tool(name="stubborn", safe_parallel=True)
    async def stubborn_without_token() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(await dispatcher.run([call("edit", key="a", seconds=60)]))

    for handler in (stubborn, stubborn_without_token):
        dispatcher = Dispatcher([handler, edit], grace=0.5)
        turn = run_in_virtual_time(dispatcher.run([call("stubborn", 1.0)]))
        assert ["timed_out"] == statuses(turn)
        assert turn[0].finished_at < 2.25
        assert (0, 0, 0) == left_over(dispatcher)
    assert [["cancelled"]] * 2 == [statuses(turn) for turn in seen]


def test_one_of_two_nested_turns_can_be_cancelled_alone() -> None:
    """Its sibling goes on; the parent goes on when both have ended."""

    @tool(safe_parallel=True)
    async def parent(ctx: CallContext) -> list[list[str]]:
        first = asyncio.create_task(ctx.run([call("edit", key="a", seconds=60)]))
        second = asyncio.create_task(ctx.run([call("edit", key="b", seconds=3)]))
        await asyncio.sleep(1)
        one = await cancelled(first)
        return [statuses(one), statuses(await second)]

    turn = run_in_virtual_time(Dispatcher([parent, edit], max_concurrent=2).run([call("parent")]))
    assert [["cancelled"], ["ok"]] == turn[0].value
    assert [("ok", 3.0)] == told(turn)


def test_a_nested_turn_has_its_own_time_limit() -> None:
    """The parent reads what there is, and goes on."""

    @tool(safe_parallel=True)
    async def parent(ctx: CallContext) -> list[str]:
        calls = [call("edit", key="a", seconds=1), call("edit", key="b", seconds=60)]
        return statuses(await ctx.run(calls, timeout=2))

    turn = run_in_virtual_time(Dispatcher([parent, edit]).run([call("parent")]))
    assert (["ok", "timed_out"], 2.0) == (turn[0].value, turn[0].finished_at)


def test_the_failure_of_a_nested_call_is_the_parents_to_judge() -> None:
    """It fails nobody by itself; raised, it is the parent's error with the whole story."""

    @tool(safe_parallel=True)
    async def parent(ctx: CallContext, strict: bool) -> int:
        turn = await ctx.run([call("nobody"), call("edit", key="a")])
        if strict:
            turn.raise_for_failures()
        return len(turn)

    calls = [call("parent", strict=False), call("parent", strict=True)]
    turn = run_in_virtual_time(Dispatcher([parent, edit]).run(calls))
    assert ["ok", "error"] == statuses(turn)
    assert "no tool is named 'nobody'" in turn[1].content()


def test_a_streamed_turn_may_be_nested() -> None:
    """Submitted call by call, read by its events; the parent works beside it."""

    @tool(safe_parallel=True)
    async def parent(ctx: CallContext) -> list[int]:
        async with ctx.turn() as turn:
            for seconds in (3.0, 1.0):
                turn.submit(call("edit", key=str(seconds), seconds=seconds))
            turn.close()
            return [result.index async for result in turn.events()]

    turn = run_in_virtual_time(Dispatcher([parent, edit]).run([call("parent")]))
    assert ([1, 0], 3.0) == (turn[0].value, turn[0].finished_at)


def test_a_parent_that_returns_with_an_open_turn_settles_when_that_has_gone() -> None:
    """Its result counts at once; its claims stay until what it left behind has really stopped."""
    left: list[asyncio.Task[TurnResult]] = []

    @tool(writes="key:a")
    async def leaves(ctx: CallContext) -> str:
        left.append(asyncio.create_task(ctx.run([call("edit", key="b", seconds=5)])))
        await asyncio.sleep(1)
        return "gone"

    async def main() -> list[TurnResult]:
        dispatcher = Dispatcher([leaves, edit])
        first = await dispatcher.run([call("leaves")])
        second = await dispatcher.run([call("edit", key="a")])
        return [first, second, await left[0]]

    first, second, nested = run_in_virtual_time(main())
    assert ([("ok", 1.0)], [("ok", 5.0)]) == (told(first), told(nested))
    assert 5.0 == second[0].started_at


@pytest.mark.parametrize("through", ["context", "dispatcher"])
def test_a_left_over_task_starts_top_level_turns_once_its_call_has_ended(through: str) -> None:
    """It is nested in nothing: it holds up nobody, and nobody's claims are passed for it."""
    left: list[asyncio.Task[TurnResult]] = []
    dispatcher: Dispatcher

    @tool(writes="key:a")
    async def leaves(ctx: CallContext) -> None:
        async def later() -> TurnResult:
            await asyncio.sleep(2)
            run = ctx.run if through == "context" else dispatcher.run
            return await run([call("edit", key="a", seconds=1)])

        left.append(asyncio.create_task(later()))

    async def main() -> list[TurnResult]:
        nonlocal dispatcher
        dispatcher = Dispatcher([leaves, edit])
        await dispatcher.run([call("leaves")])
        between = asyncio.create_task(dispatcher.run([call("edit", key="a", seconds=5)]))
        return [await left[0], await between]

    late, between = run_in_virtual_time(main())
    assert ([("ok", 6.0)], [("ok", 5.0)]) == (told(late), told(between))


def test_a_call_that_was_given_up_starts_nothing_any_more() -> None:
    """Its turn has gone on without it: what it tries to start is refused."""
    errors: list[str] = []

    @tool(safe_parallel=True)
    async def refuse(ctx: CallContext) -> None:
        while asyncio.get_running_loop().time() < 10:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                continue
        for run in (ctx.run, dispatcher.run):
            with pytest.raises(UsageError) as caught:
                await run([call("edit", key="a")])
            errors.append(str(caught.value))

    dispatcher = Dispatcher([refuse, edit], grace=0.5)

    async def main() -> TurnResult:
        turn = await dispatcher.run([call("refuse", 1.0)])
        await asyncio.sleep(30)
        return turn

    assert ["unknown"] == statuses(run_in_virtual_time(main()))
    assert 2 == len(errors)
    assert {"the call of 'refuse' was given up, so it starts nothing any more"} == set(errors)


def test_run_sync_nests_from_a_thread() -> None:
    """A `def` tool waits in its thread without a slot; its children run on the loop of its turn."""
    threads: list[bool] = []

    @tool(writes="key:a")
    def agent(ctx: CallContext, how: str) -> list[str]:
        run = ctx.run_sync if how == "context" else dispatcher.run_sync
        return statuses(run([call("edit", key="a"), call("where")]))

    @tool(safe_parallel=True)
    async def where() -> None:
        threads.append(threading.current_thread() is threading.main_thread())

    dispatcher = Dispatcher([agent, where, edit], max_concurrent=1)
    calls = [call("agent", 5.0, how="context"), call("agent", 5.0, how="dispatcher")]
    turn = dispatcher.run_sync(calls)
    assert ([["ok", "ok"]] * 2, [True, True]) == ([result.value for result in turn], threads)
    assert (0, 0, 0) == left_over(dispatcher)


def test_a_second_dispatcher_in_a_thread_is_nested_too() -> None:
    """An agent framework's own dispatcher, with `run_sync`, and in a loop of its own."""
    table = ResourceTable()
    inner = Dispatcher([edit], resources=table)

    @tool(writes="key:a")
    def agent(own_loop: bool) -> list[str]:
        calls = [call("edit", 5.0, key="a")]
        return statuses(asyncio.run(inner.run(calls)) if own_loop else inner.run_sync(calls))

    outer = Dispatcher([agent], resources=table, max_concurrent=1)
    turn = outer.run_sync([call("agent", own_loop=False), call("agent", own_loop=True)])
    assert [["ok"], ["ok"]] == [result.value for result in turn]
    assert (0, 0, 0) == left_over(outer, inner)


def test_run_sync_on_the_loop_is_refused() -> None:
    """It would block the loop that it waits for: a clear error at once, and no hang."""

    @tool(safe_parallel=True)
    async def wrong(ctx: CallContext) -> None:
        ctx.run_sync([call("edit", key="a")])

    turn = run_in_virtual_time(Dispatcher([wrong, edit]).run([call("wrong", 5.0)]))
    assert Status.ERROR is turn[0].status
    assert "write `await ….run(…)`" in turn[0].content()


@pytest.mark.parametrize("own_loop", [False, True], ids=["run_sync", "asyncio.run"])
def test_a_thread_whose_nested_turn_is_stopped_gets_it_back(own_loop: bool) -> None:
    """The parent's time limit reaches calls that a thread waits for, on whatever loop they run."""
    seen: list[list[str]] = []
    inner = Dispatcher([edit], grace=0.2)

    @tool(safe_parallel=True)
    def agent(ctx: CallContext) -> None:
        calls = [call("edit", key="a", seconds=60)]
        run = inner.run_sync if not own_loop else lambda calls: asyncio.run(inner.run(calls))
        seen.append(statuses(run(calls)))

    outer = Dispatcher([agent], grace=5)
    turn = outer.run_sync([call("agent", 0.05)])
    assert (["timed_out"], [["cancelled"]]) == (statuses(turn), seen)
    assert (0, 0, 0) == left_over(outer, inner)


def test_threads_and_tasks_nest_in_each_other() -> None:
    """Four deep, thread below task below thread, one slot for all of them."""

    @tool(safe_parallel=True)
    async def in_task(ctx: CallContext, deep: int) -> int:
        return 1 + (await ctx.run([call("in_thread", deep=deep - 1)]))[0].unwrap() if deep else 0

    @tool(safe_parallel=True)
    def in_thread(ctx: CallContext, deep: int) -> int:
        return 1 + ctx.run_sync([call("in_task", deep=deep - 1)])[0].unwrap() if deep else 0

    dispatcher = Dispatcher([in_task, in_thread], max_concurrent=1)
    calls = [ToolCall("", name, {"deep": 4}) for name in ("in_task", "in_thread")]
    assert [4, 4] == [result.value for result in dispatcher.run_sync(calls, timeout=10)]


def test_the_children_of_an_abandoned_call_are_stopped_with_it() -> None:
    """A thread that starts turns for ever: after the stop each comes back cancelled, or refused."""
    over = threading.Event()
    refused: list[str] = []

    @tool(safe_parallel=True)
    def endless(ctx: CallContext) -> None:
        try:
            while True:
                ctx.run_sync([call("edit", key="a", seconds=0.001)])
        except UsageError as error:
            refused.append(str(error))
        finally:
            over.set()

    dispatcher = Dispatcher([endless, edit], grace=0.1)

    async def main() -> list[TurnResult]:
        first = await dispatcher.run([call("endless", 0.1)])
        await asyncio.to_thread(over.wait, 10)
        return [first, await dispatcher.run([call("edit", 5.0, key="a")])]

    first, second = asyncio.run(main())
    assert (["unknown"], ["ok"]) == (statuses(first), statuses(second))
    assert ["the call of 'endless' was given up, so it starts nothing any more"] == refused
