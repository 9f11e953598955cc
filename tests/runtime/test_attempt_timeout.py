"""A limit for one attempt: what is tried again, what the call ends as, what refuses to end."""

import asyncio
import threading
from typing import Any

import pytest

from dispatch import (
    CallContext,
    Dispatcher,
    FailureKind,
    Limits,
    Phase,
    Rate,
    Status,
    ToolCall,
    TurnResult,
    tool,
)
from dispatch.middleware import AttemptTimedOut, AttemptTimeout
from dispatch.runtime.middleware import Handler
from dispatch.testing import assert_no_leaks, refusing, run_in_virtual_time, stuck
from tests.runtime.keyed import ask, asked, call, told


class Twice:
    """Tries again once if an attempt took too long."""

    def __init__(self, following: Handler) -> None:
        self.following = following

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        try:
            return await self.following(call, context)
        except AttemptTimedOut:
            return await self.following(call, context)


def test_an_attempt_that_takes_too_long_ends_and_the_call_with_it() -> None:
    """`timed_out` while running, with the limit named; siblings and quick calls notice nothing."""
    dispatcher = Dispatcher([ask], middleware=[AttemptTimeout(5)])
    turn = run_in_virtual_time(dispatcher.run([asked(60), asked(4)]))
    assert [("timed_out", 5.0), ("ok", 4.0)] == told(turn)
    failure = turn[0].failure
    assert failure is not None
    assert (FailureKind.TIMEOUT, Phase.RUN) == (failure.kind, failure.phase)
    assert "[timed_out] an attempt timed out after 5 s while running" == turn[0].content()
    assert isinstance(turn[0].exception, AttemptTimedOut)


def test_each_attempt_has_its_own_limit() -> None:
    """The first of two is cut off, the second one answers; the call's own limit covers both."""
    ran: list[float] = []

    @tool(safe_parallel=True)
    async def slow_at_first() -> str:
        ran.append(asyncio.get_running_loop().time())
        await asyncio.sleep(60 if len(ran) % 2 else 1)
        return "answer"

    async def main(timeout: float | None) -> TurnResult:
        dispatcher = Dispatcher([slow_at_first], middleware=[Twice, AttemptTimeout(5)])
        return await dispatcher.run([call("slow_at_first", timeout=timeout)])

    turn = run_in_virtual_time(main(None))
    assert ([("ok", 6.0)], 2) == (told(turn), turn[0].attempts)
    assert [("timed_out", 5.5)] == told(run_in_virtual_time(main(5.5)))
    assert [0.0, 5.0] * 2 == ran


def test_tools_may_have_limits_of_their_own() -> None:
    """By name; the others have the common one."""
    limits = AttemptTimeout(5, per_tool={"ask": 2})
    turn = run_in_virtual_time(Dispatcher([ask], middleware=[limits]).run([asked(60)]))
    assert [("timed_out", 2.0)] == told(turn)


def test_a_time_out_of_the_tool_itself_is_its_error() -> None:
    """A `TimeoutError` that the limit did not make stays what it is."""

    @tool
    async def fails() -> None:
        raise TimeoutError("the server did not answer")

    turn = run_in_virtual_time(
        Dispatcher([fails], middleware=[AttemptTimeout(5)]).run([call("fails")])
    )
    assert "[error] TimeoutError: the server did not answer" == turn[0].content()


def test_an_attempt_that_swallows_its_cancel_stops_the_call() -> None:
    """A grace after its limit the call is stopped, and given up like any other."""

    async def main() -> None:
        release = asyncio.Event()
        tools = [refusing(release=release)]
        dispatcher = Dispatcher(tools, middleware=[AttemptTimeout(5)], grace=1.0)
        async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits):
            turn = await dispatcher.run([call("refuse")])
            release.set()
        assert [("unknown", 7.0)] == told(turn)
        assert "an attempt timed out after 5 s, and it did not stop" in turn[0].content()

    run_in_virtual_time(main())


def test_a_thread_that_cannot_be_stopped_does_not_outlive_its_limit_for_the_turn() -> None:
    """Its attempt never ends, so the call is given up."""
    release = threading.Event()

    async def main() -> None:
        tools = [stuck(release=release)]
        dispatcher = Dispatcher(tools, middleware=[AttemptTimeout(0.1)], grace=0.05)
        async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits, within=5.0):
            turn = await dispatcher.run([call("stuck")])
            release.set()
        assert Status.UNKNOWN is turn[0].status

    asyncio.run(main())


@pytest.mark.parametrize(
    "limits", [{"seconds": 0}, {"seconds": None}, {"seconds": 5, "per_tool": {"ask": -1}}]
)
def test_a_limit_must_be_above_zero(limits: dict[str, Any]) -> None:
    """The one that is not is named."""
    with pytest.raises(ValueError, match=r"(seconds|per_tool\['ask'\]) must be above 0 seconds"):
        AttemptTimeout(**limits)


def test_waiting_for_slots_and_rates_is_no_part_of_an_attempt() -> None:
    """The second attempt waits a minute for its rate, and then has its five seconds."""

    class Retry:
        def __init__(self, following: Handler) -> None:
            self.following = following

        async def __call__(self, call: ToolCall, context: CallContext) -> Any:
            try:
                return await self.following(call, context)
            except ValueError:
                return await self.following(call, context)

    ran: list[float] = []

    @tool(safe_parallel=True)
    async def fails_at_first() -> str:
        ran.append(asyncio.get_running_loop().time())
        if len(ran) == 1:
            raise ValueError
        await asyncio.sleep(4)
        return "fine"

    limits = Limits(8, rates={"fails_at_first": Rate(1, 60)})
    dispatcher = Dispatcher([fails_at_first], limits=limits, middleware=[Retry, AttemptTimeout(5)])
    turn = run_in_virtual_time(dispatcher.run([call("fails_at_first")]))
    assert ([("ok", 64.0)], [0.0, 60.0], 2) == (told(turn), ran, turn[0].attempts)
