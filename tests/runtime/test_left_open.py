"""What tools, middleware and gates leave open, and turns that are stopped half-way."""

import asyncio
import contextlib
import threading
import time
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    Allow,
    CallContext,
    Dispatcher,
    Gate,
    GateContext,
    Limits,
    Ref,
    ResourceTable,
    Status,
    ToolCall,
    TurnResult,
    tool,
    write,
)
from dispatch.runtime.gates import Decision
from dispatch.runtime.middleware import Handler
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import call, edit


def test_an_attempt_that_a_middleware_leaves_running_is_stopped_first() -> None:
    """The call ends only once no attempt runs: nothing overlaps it, no limit is exceeded."""
    running: list[str] = []
    most: list[int] = []

    @tool(writes="key:{key}")
    async def slow(key: str) -> str:
        running.append(key)
        most.append(len(running))
        try:
            await asyncio.sleep(3)
        finally:
            running.remove(key)
        return key

    class Early:
        def __init__(self, following: Handler) -> None:
            self.following = following

        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            self.left = asyncio.ensure_future(self.following(call, context))
            await asyncio.sleep(1)
            return "early"

    async def main() -> TurnResult:
        dispatcher = Dispatcher([slow], middleware=[Early], limits=Limits(1))
        turn = await dispatcher.run([call("slow", key="a"), call("slow", key="a")])
        assert 0 == dispatcher.resources.statistics().held
        return turn

    turn = run_in_virtual_time(main())
    assert ["early", "early"] == [result.value for result in turn]
    assert ([1, 1], []) == (most, running)


def test_a_call_that_was_given_up_keeps_its_claims_between_attempts() -> None:
    """Its middleware heeds no cancel and tries again: whoever writes the same comes after that."""
    log: list[str] = []
    given_up = threading.Event()

    @tool(writes="key:{key}")
    def slow(key: str) -> None:
        log.append("in")
        assert given_up.wait(10)
        time.sleep(0.1)  # in which another writer would come, if it could
        log.append("out")

    @tool(writes="key:{key}")
    async def other(key: str) -> None:
        log.append("other")

    class Stubborn:
        def __init__(self, following: Handler) -> None:
            self.following = following

        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            for _ in range(2):
                with contextlib.suppress(BaseException):
                    await self.following(call, context)

    async def main() -> list[Status]:
        table = ResourceTable()
        stubborn = Dispatcher([slow], middleware=[Stubborn], resources=table, grace=0.02)
        turn = await stubborn.run([call("slow", 0.05, key="a")])
        given_up.set()
        await Dispatcher([other], resources=table).run([call("other", 5.0, key="a")])
        return [result.status for result in turn]

    assert [Status.UNKNOWN] == asyncio.run(main())
    assert ["in", "out", "in", "out", "other"] == log


@pytest.mark.parametrize("kind", ["cancels itself", "raises an odd thing", "answers too late"])
def test_a_gate_that_behaves_oddly_refuses(kind: str) -> None:
    """It is that call's refusal, and no hang."""

    async def gate(call: ToolCall, context: GateContext) -> Decision:
        if kind == "cancels itself":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        elif kind == "raises an odd thing":
            raise GeneratorExit
        else:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
        return Allow()

    dispatcher = Dispatcher([edit], gates=[Gate(gate, timeout=2)])
    turn = run_in_virtual_time(dispatcher.run([call("edit", key="a")]))
    assert (Status.ERROR, "rejected") == (turn[0].status, turn[0].failure and turn[0].failure.kind)


def test_an_open_all_or_nothing_turn_that_is_stopped_is_undone() -> None:
    """Whatever was still to come never came, so what is done does not stand."""
    undone: list[str] = []

    @tool(safe_parallel=True)
    async def book(context: CallContext) -> str:
        context.on_rollback(undone.append, "booking")
        return "booked"

    async def main() -> tuple[TurnResult, list[str]]:
        turn = Dispatcher([book]).turn(policy=AllOrNothing())
        with contextlib.suppress(ValueError):
            async with turn:
                turn.submit(call("book"))
                await asyncio.sleep(1)
                raise ValueError("the stream broke")
        return await turn.finish(), undone

    turn, done = run_in_virtual_time(main())
    assert (False, Status.ROLLED_BACK, ["booking"]) == (turn.satisfied, turn[0].status, done)


def test_a_turn_that_a_tool_leaves_open_is_closed_with_the_tool() -> None:
    """Its calls run to their end, and then what waits for the tool goes on."""

    @tool(writes="key:outer")
    async def leaves(context: CallContext) -> str:
        turn = context.turn()
        turn.open()
        turn.submit(call("edit", key="inner", seconds=2))
        return "left"

    @tool(writes="key:outer")
    async def after() -> float:
        return asyncio.get_running_loop().time()

    turn = run_in_virtual_time(
        Dispatcher([leaves, after, edit]).run([call("leaves"), call("after")])
    )
    assert ("left", 2.0) == (turn[0].value, turn[1].value)


def test_a_hold_may_end_before_a_turn_that_is_nested_in_it() -> None:
    """The nested calls still stand below the call itself, whose claims are not in their way."""

    async def main() -> TurnResult:
        table = ResourceTable()

        @tool(writes="key:a")
        async def outer(context: CallContext) -> str:
            async with table.hold(write("key", "z")):
                calls = [call("edit", key="a", seconds=1), call("edit", key="a", seconds=1)]
                nested = asyncio.ensure_future(context.run(calls))
                await asyncio.sleep(0.1)
            return (await nested)[1].content()

        turn = await Dispatcher([outer, edit], resources=table).run([call("outer")], timeout=9)
        statistics = table.statistics()
        assert (0, 0) == (statistics.held, statistics.waiting)
        return turn

    assert "edited a" == run_in_virtual_time(main())[0].value


def test_a_time_limit_of_the_tool_itself_does_not_let_it_run_without_slots() -> None:
    """`asyncio.timeout` around a wait ends it only once the call has its slots again."""
    times: list[float] = []

    @tool(safe_parallel=True)
    async def waits(context: CallContext) -> str:
        try:
            async with asyncio.timeout(1), context.suspended():
                await asyncio.sleep(60)
        except TimeoutError:
            times.append(asyncio.get_running_loop().time())
        return "waited"

    dispatcher = Dispatcher([waits, edit], max_concurrent=1)
    calls = [call("waits"), call("edit", key="a", seconds=5)]
    turn = run_in_virtual_time(dispatcher.run(calls))
    assert ([5.0], 1) == (times, turn.stats.peak)


@pytest.mark.parametrize(
    "odd",
    [
        lambda: ToolCall("b", "edit", {"key": "a"}, after=(None,)),  # type: ignore[arg-type]
        lambda: ToolCall("b", "edit", {"key": "a"}, after=(3,)),  # type: ignore[arg-type]
        lambda: ToolCall(["b"], "edit", {"key": "a"}),  # type: ignore[arg-type]
        lambda: ToolCall("b", "edit", {"key": Ref("a", 5)}),  # type: ignore[arg-type]
        lambda: ToolCall("b", "edit", {"key": Ref(None)}),  # type: ignore[arg-type]
    ],
)
def test_odd_names_are_refused_before_anything_runs(odd: Any) -> None:
    """They are the host's mistake, and raise at once."""
    with pytest.raises(TypeError):
        run_in_virtual_time(Dispatcher([edit]).run([call("edit", key="a"), odd()]))


def test_a_tool_whose_name_is_no_text_is_unknown() -> None:
    """What a model wrote as a name is its mistake, told in a result; its siblings run."""
    odd = ToolCall("odd", ["edit"], {"key": "a"})  # type: ignore[arg-type]
    dispatcher = Dispatcher([edit])
    for _ in range(2):  # the second time something is known of how long its siblings take
        turn = run_in_virtual_time(dispatcher.run([odd, call("edit", key="a")]))
        assert [Status.ERROR, Status.OK] == [result.status for result in turn]
        assert "no tool is named \"['edit']\"" in turn[0].content()


def test_an_option_that_does_not_exist_is_refused() -> None:
    """A misspelt policy must not become best effort."""
    with pytest.raises(TypeError, match="'polcy' is no option of a turn"):
        Dispatcher([edit]).turn(polcy=AllOrNothing())  # type: ignore[call-arg]
