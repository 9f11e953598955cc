"""Undoing: compensations newest first, once each, whatever cancels the turn, and what they tell."""

import asyncio
import contextvars
import threading

import pytest

from dispatch import (
    AllOrNothing,
    BestEffort,
    CallContext,
    CancelToken,
    Dispatcher,
    ResourceTable,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import (
    Diary,
    call,
    cancelled,
    edit,
    fail,
    left_over,
    rolled_back,
    statuses,
    step,
    undoing,
)


def test_compensations_run_newest_first_one_at_a_time() -> None:
    """Across calls and within one, in the order in which they were given, not that of the calls."""
    spans: list[tuple[str, float, float]] = []

    async def undo(name: str) -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        spans.append((name, began, asyncio.get_running_loop().time()))

    @tool(writes="key:{key}")
    async def twice(key: str, wait: float, ctx: CallContext) -> None:
        ctx.on_rollback(undo, f"{key}1")
        await asyncio.sleep(wait)
        ctx.on_rollback(undo, name=f"{key}2")

    calls = [
        call("twice", key="a", wait=3),
        call("twice", key="b", wait=1),
        call("fail", seconds=4),
    ]
    run_in_virtual_time(Dispatcher([twice, fail], policy=AllOrNothing()).run(calls))
    expected = [("a2", 4.0, 5.0), ("b2", 5.0, 6.0), ("b1", 6.0, 7.0), ("a1", 7.0, 8.0)]
    assert expected == spans


def test_what_a_failed_or_stopped_call_did_is_undone_too() -> None:
    """Half of it may have happened; a call that never ran has nothing to undo."""
    diary = Diary()
    calls = [step("runs", seconds=9), step("fails", fate="fails"), step("waits", "runs")]
    run_in_virtual_time(Dispatcher(diary.tools(), policy=AllOrNothing()).run(calls))
    assert {"-runs", "-fails"} == set(diary.undone)
    assert diary.newest_first == diary.undone


def test_every_kind_of_function_may_undo() -> None:
    """`async def` on the loop; `def` in a thread, on which it may block."""
    loop_thread = threading.get_ident()
    seen: list[tuple[str, bool]] = []

    async def on_the_loop() -> None:
        seen.append(("async def", threading.get_ident() == loop_thread))

    def in_a_thread() -> None:
        seen.append(("def", threading.get_ident() == loop_thread))

    class Undo:
        async def __call__(self) -> None:
            seen.append(("object", threading.get_ident() == loop_thread))

    turn = rolled_back(on_the_loop, in_a_thread, Undo())
    assert [("object", True), ("def", False), ("async def", True)] == seen
    assert "3 compensations ran" in turn[0].content()


def test_what_is_no_function_is_refused_in_the_tool() -> None:
    """The call fails with a clear error instead of the rollback."""

    @tool(safe_parallel=True)
    async def wrong(ctx: CallContext) -> None:
        ctx.on_rollback("undo")  # type: ignore[arg-type]

    turn = Dispatcher([wrong]).run_sync([call("wrong")])
    assert "on_rollback takes a function" in turn[0].content()


def test_a_tool_in_a_thread_may_be_undone() -> None:
    """`def` tools give compensations from their threads; a compensation sees their variables."""
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
    seen: list[str] = []

    def undo() -> None:
        seen.append(tenant.get())

    @tool(safe_parallel=True)
    def act(ctx: CallContext) -> None:
        tenant.set("acme")
        ctx.on_rollback(undo)

    dispatcher = Dispatcher([act, fail], policy=AllOrNothing())
    turn = dispatcher.run_sync([call("act"), call("fail", seconds=0.05)])
    assert (["acme"], ["rolled_back", "error"]) == (seen, statuses(turn))


def test_other_policies_never_call_a_compensation() -> None:
    """What is done stays done."""
    diary = Diary()
    calls = [step("a"), step("b", fate="fails")]
    turn = run_in_virtual_time(Dispatcher(diary.tools()).run(calls))
    assert (["ok", "error"], []) == (statuses(turn), diary.undone)


@pytest.mark.parametrize("how", ["task", "task, repeatedly", "token", "timeout", "block", "close"])
def test_compensations_are_shielded_from_whatever_ends_the_turn(how: str) -> None:
    """A turn that is cut short is rolled back: a success is undone, the undoing takes its time."""
    diary = Diary()
    dispatcher = Dispatcher(diary.tools(), policy=AllOrNothing(), grace=0.5)
    calls = [step("a", undo=3), step("b", seconds=60, undo=3)]

    async def block() -> TurnResult:
        async with dispatcher.turn() as turn:
            for one in calls:
                turn.submit(one)
            await asyncio.sleep(60)
        raise AssertionError

    async def main() -> tuple[TurnResult, float]:
        token = CancelToken()
        timeout = 2.0 if how == "timeout" else None
        running = block() if how == "block" else dispatcher.run(calls, token=token, timeout=timeout)
        task = asyncio.create_task(running)
        await asyncio.sleep(2)
        if how == "token":
            token.cancel("enough")
        elif how == "close":
            await dispatcher.aclose()
        elif how in ("task", "task, repeatedly", "block"):
            loop = asyncio.get_running_loop()
            for after in range(1, 5 if "repeatedly" in how else 1):
                loop.call_later(after, task.cancel)
            return await cancelled(task), loop.time()
        return await task, asyncio.get_running_loop().time()

    turn, when = run_in_virtual_time(main())
    assert ["-b", "-a"] == diary.undone
    stopped = "timed_out" if how == "timeout" else "cancelled"
    assert (["rolled_back", stopped], 8.5) == (statuses(turn), when)
    assert (0, 0, 0) == left_over(dispatcher)


def test_compensations_take_no_slots() -> None:
    """They run though another turn has the only one."""
    diary = Diary()

    async def main() -> tuple[TurnResult, float]:
        dispatcher = Dispatcher([*diary.tools(), edit], policy=AllOrNothing(), max_concurrent=1)
        async with dispatcher.turn() as turn:
            turn.submit(step("a"))
            await asyncio.sleep(2)
            other = asyncio.create_task(dispatcher.run([call("edit", key="x", seconds=60)]))
            await asyncio.sleep(1)
            turn.submit(ToolCall("", "nobody", {}))
            result = await turn.finish()
        when = asyncio.get_running_loop().time()
        await other
        return result, when

    turn, when = run_in_virtual_time(main())
    assert (["rolled_back", "error"], 3.0, ["-a"]) == (statuses(turn), when, diary.undone)


@pytest.mark.parametrize("how", ["dispatcher", "context", "thread", "own loop"])
def test_a_compensation_may_start_a_turn_on_what_its_turn_holds(how: str) -> None:
    """The claims of the turn are not in its way, other turns are kept out until all is over."""
    table = ResourceTable()
    done: list[str] = []

    @tool(writes="key:own")
    async def restore() -> None:
        await asyncio.sleep(0.05)
        done.append("restored")

    @tool(writes="key:own")
    async def look() -> list[str]:
        return list(done)

    calls = [call("restore")] * 2

    @tool(writes="key:own")
    async def act(ctx: CallContext) -> None:
        async def undo() -> None:
            run = ctx.run if how == "context" else dispatcher.run
            assert (await run(calls, policy=BestEffort())).satisfied

        def undo_in_thread() -> None:
            run = asyncio.run(dispatcher.run(calls)) if how == "own loop" else None
            assert (run or dispatcher.run_sync(calls)).satisfied

        ctx.on_rollback(undo if how in ("dispatcher", "context") else undo_in_thread)

    policy = AllOrNothing(rollback_timeout=5.0)
    dispatcher = Dispatcher([act, fail, restore, look], resources=table, policy=policy)

    async def main() -> tuple[TurnResult, TurnResult]:
        task = asyncio.create_task(dispatcher.run([call("act"), call("fail", seconds=0.1)]))
        await asyncio.sleep(0.05)
        return await dispatcher.run([call("look")]), await task

    other, turn = asyncio.run(main())
    assert ["rolled_back", "error"] == statuses(turn), turn[0].content()
    assert ["restored", "restored"] == other[0].value
    assert (0, 0, 0) == left_over(dispatcher)


def test_what_a_thread_did_in_a_loop_of_its_own_is_undone_with_its_call() -> None:
    """An agent framework in a `def` tool: its nested turn is over, its loop gone, its undo here."""
    diary = Diary()
    table = ResourceTable()
    inner = Dispatcher(diary.tools(), resources=table)

    @tool(safe_parallel=True)
    def agent() -> list[str]:
        return statuses(asyncio.run(inner.run([step("a", seconds=0.01)])))

    outer = Dispatcher([agent, fail], resources=table, policy=AllOrNothing())
    turn = outer.run_sync([call("agent"), call("fail", seconds=0.3)])
    assert (["rolled_back", "error"], ["+a", "-a"]) == (statuses(turn), diary.lines)
    assert (0, 0, 0) == left_over(outer, inner)


def test_an_all_or_nothing_turn_inside_a_compensation_undoes_itself_alone() -> None:
    """Its own failure is undone by itself; its success is never undone by the turn it undoes."""
    diary = Diary()
    tools = [*diary.tools(), fail]
    table = ResourceTable()
    inner = Dispatcher(tools, policy=AllOrNothing(), resources=table)

    async def undo() -> None:
        turn = await inner.run([step("restored")])
        assert turn.satisfied
        turn = await inner.run([step("half"), call("fail", seconds=2)])
        assert not turn.satisfied

    @tool(safe_parallel=True)
    async def agent(ctx: CallContext) -> list[str]:
        turn = await ctx.run([call("act"), call("fail")], policy=AllOrNothing())
        return statuses(turn)

    outer = Dispatcher([undoing(undo), agent, *tools], resources=table, policy=AllOrNothing())
    turn = run_in_virtual_time(outer.run([call("agent"), call("fail", seconds=20)]))
    assert (["rolled_back", "error"], ["rolled_back", "error"]) == (statuses(turn), turn[0].value)
    assert ["+restored", "+half", "-half"] == diary.lines
    assert (0, 0, 0) == left_over(outer, inner)
