"""Several attempts at one call: counted, with slots and rates of their own, in threads too."""

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from dispatch import (
    CallContext,
    Dispatcher,
    Limits,
    Rate,
    Tool,
    ToolCall,
    ToolError,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Layer, Stage, call, clock, played
from tests.timeline import SCHEDULES

schedules = pytest.mark.parametrize("schedule", SCHEDULES)


class Again(Layer):
    """Tries three times, with a pause for which it gives its slots back if `suspends`."""

    pause = 0.0
    suspends = False

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        for _ in range(2):
            try:
                return await self.following(call, context)
            except ToolError:
                if self.suspends:
                    async with context.suspended():
                        await asyncio.sleep(self.pause)
                else:
                    await asyncio.sleep(self.pause)
        return await self.following(call, context)


class Flaky:
    """A tool that fails until its third attempt; when each began, and in which thread."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.began: list[float] = []
        self.threads: set[int] = set()

    @property
    def tools(self) -> list[Tool]:
        @tool(safe_parallel=True)
        async def flaky(ctx: CallContext) -> int:
            self.began.append(clock())
            assert len(self.began) == ctx.attempt
            await asyncio.sleep(self.seconds)
            return self.outcome()

        @tool(safe_parallel=True)
        def blocking() -> int:
            self.began.append(0.0)
            self.threads.add(threading.get_ident())
            return self.outcome()

        return [flaky, blocking, *Stage().tools]

    def outcome(self) -> int:
        if len(self.began) < 3:
            raise ToolError(f"failure {len(self.began)}")
        return len(self.began)

    def run(self, *turn: ToolCall, **options: Any) -> TurnResult:
        """The turn in virtual time."""

        async def main() -> TurnResult:
            return await Dispatcher(self.tools, **options).run(turn)

        return run_in_virtual_time(main())


FLAKY = ToolCall("f", "flaky", {})


@schedules
def test_attempts_are_counted_for_the_tool_and_in_the_result(schedule: str) -> None:
    """The context says which one it is, from 1; a call that never fails has one."""
    flaky = Flaky()
    result = flaky.run(FLAKY, call("a"), schedule=schedule, middleware=[Again])
    assert (3, 3) == (result[0].value, result[0].attempts)
    assert [0.0, 1.0, 2.0] == flaky.began
    assert 1 == result[1].attempts


def test_each_attempt_takes_its_rate_anew() -> None:
    """One start in 5 s: the attempts begin at 0, 5 and 10; the waits between are suspensions."""
    flaky = Flaky()
    limits = Limits(rates={"flaky": Rate(1, 5)})
    result = flaky.run(FLAKY, limits=limits, middleware=[Again])
    assert [0.0, 5.0, 10.0] == flaky.began
    assert {"suspended": 8.0} == result[0].waits
    assert 3.0 == result.stats.run_time


@pytest.mark.parametrize(
    ("suspends", "attempts", "others"),
    [(True, [0, 3, 6], [1, 4]), (False, [0, 2, 4], [5, 7])],
    ids=["suspended pause", "plain pause"],
)
def test_each_attempt_takes_its_slots_anew(
    suspends: bool, attempts: list[int], others: list[int]
) -> None:
    """One slot in all: in a pause for which the layer suspends, other calls have it; else it is
    kept. An attempt goes before calls that have not started."""
    flaky, stage = Flaky(), Stage()
    layer = type("Pausing", (Again,), {"pause": 1.0, "suspends": suspends})

    async def main() -> TurnResult:
        tools = [*flaky.tools[:1], *stage.tools]
        dispatcher = Dispatcher(tools, max_concurrent=1, middleware=[layer])
        return await dispatcher.run([FLAKY, call("a", seconds=2.0), call("b", seconds=2.0)])

    assert 3 == run_in_virtual_time(main())[0].attempts
    assert attempts == flaky.began
    assert others == [stage.began("a"), stage.began("b")]


def test_def_tools_run_in_threads_at_every_attempt() -> None:
    """Never on the loop's thread, with the caller's context variables, and with nested calls."""
    flaky = Flaky()
    result = flaky.run(ToolCall("b", "blocking", {}), middleware=[Again])
    assert (3, 3) == (result[0].value, result[0].attempts)
    assert threading.get_ident() not in flaky.threads

    who: ContextVar[str] = ContextVar("who", default="nobody")

    @tool(safe_parallel=True)
    def ask(ctx: CallContext) -> str:
        return f"{who.get()} {ctx.run_sync([call('a', seconds=0.0)])[0].value}"

    class Naming(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            who.set(f"{who.get()} and a layer")
            return await super().__call__(call, context)

    async def main() -> TurnResult:
        who.set("host")
        dispatcher = Dispatcher([ask, *Stage().tools], middleware=[Naming])
        return await dispatcher.run([ToolCall("1", "ask", {})])

    assert "host and a layer a" == asyncio.run(main())[0].value


def test_a_def_tool_that_is_cancelled_through_a_layer_keeps_its_claims_until_it_ends() -> None:
    """The layer gives up after a moment; the thread cannot be stopped, so the next writer of the
    key waits for it all the same."""
    release, log = threading.Event(), list[str]()

    @tool(writes="key:k")
    def block() -> None:
        release.wait(10)
        log.append("thread ended")

    @tool(writes="key:k")
    async def edit() -> None:
        log.append("edit")

    class Hasty(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            if call.name == "edit":
                return await super().__call__(call, context)
            asyncio.get_running_loop().call_later(0.05, release.set)
            async with asyncio.timeout(0.01):
                return await super().__call__(call, context)

    dispatcher = Dispatcher([block, edit], middleware=[Hasty])
    result = dispatcher.run_sync([ToolCall("1", "block", {}), ToolCall("2", "edit", {})])
    assert ["thread ended", "edit"] == log
    assert "the middleware 'Hasty' failed: TimeoutError" in result[0].content()
    assert result[1].ok


def test_a_layer_can_limit_each_attempt() -> None:
    """The first attempt hangs and is cut off, the second answers: the call is a success."""
    began: list[float] = []

    @tool(safe_parallel=True)
    async def hang_once() -> str:
        began.append(clock())
        await asyncio.sleep(100 if len(began) == 1 else 1)
        return "answer"

    class Limited(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            try:
                async with asyncio.timeout(2):
                    return await super().__call__(call, context)
            except TimeoutError:
                return await super().__call__(call, context)

    async def main() -> TurnResult:
        dispatcher = Dispatcher([hang_once], middleware=[Limited])
        return await dispatcher.run([ToolCall("1", "hang_once", {})])

    result = run_in_virtual_time(main())
    assert ("answer", 2, [0.0, 2.0]) == (result[0].value, result[0].attempts, began)


def test_attempts_side_by_side_are_refused() -> None:
    """A call holds the slots of one invocation, so a second one beside it is an error."""

    class Hedging(Layer):
        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            attempts = [self.following(call, context) for _ in range(2)]
            return [*map(str, await asyncio.gather(*attempts, return_exceptions=True))]

    stage = Stage()
    result = played(stage, [call("a"), call("b")], middleware=[Hedging], max_concurrent=1)
    assert 1 == stage.peak
    first, second = result[0].value
    assert "a" == first
    assert "one attempt after the other" in second
    assert [1, 1] == [each.attempts for each in result]
