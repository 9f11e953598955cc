"""Waiting for, and stopping, one call of a turn that goes on."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from dispatch import AllOrNothing, Dispatcher, Status, ToolCall, UsageError, tool
from dispatch.events import Event
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import Stage, clock


def call(call_id: str, key: str = "k", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, "change", {"mark": call_id, "key": key, **arguments})


def test_a_result_is_there_as_soon_as_its_call_ends() -> None:
    """`wait` returns while siblings run on, and again at once afterwards."""

    async def turn() -> list[object]:
        async with Dispatcher(Stage().tools).turn() as turn:
            short = turn.submit(call("short", "x", seconds=1.0))
            turn.submit(call("long", "y", seconds=5.0))
            first = await turn.wait(short)
            return [first.status, clock(), await turn.wait(short) is first]

    assert [Status.OK, 1.0, True] == run_in_virtual_time(turn())


def test_many_may_wait_for_one_result_and_go() -> None:
    """A cancelled waiter changes nothing for the call and for the other waiters."""

    async def turn() -> tuple[bool, str]:
        async with Dispatcher(Stage().tools).turn() as turn:
            position = turn.submit(call("a"))
            waiters = [asyncio.create_task(turn.wait(position)) for _ in range(2)]
            await asyncio.sleep(0.5)
            waiters[0].cancel()
            result = await waiters[1]
            return waiters[0].cancelled(), result.status

    assert (True, Status.OK) == run_in_virtual_time(turn())


def test_a_result_that_may_change_is_waited_for_until_it_is_final() -> None:
    """In an all-or-nothing turn the result comes when the turn is decided."""

    async def turn() -> list[str]:
        turn = Dispatcher(Stage().tools, policy=AllOrNothing()).turn()
        turn.open()
        done = turn.submit(call("done", "x", seconds=1.0))
        turn.submit(call("fails", "y", seconds=2.0, fails=True))
        waiter = asyncio.create_task(turn.wait(done))
        await asyncio.sleep(1.5)
        early = waiter.done()
        turn.close()
        return [str(early), (await waiter).status]

    assert ["False", Status.ROLLED_BACK] == run_in_virtual_time(turn())


def test_a_running_call_is_stopped_alone() -> None:
    """Its successor starts when it has really ended; its siblings finish."""

    async def turn() -> tuple[list[str], str]:
        async with Dispatcher(Stage().tools).turn() as turn:
            first = turn.submit(call("first", seconds=9.0))
            turn.submit(call("second"))
            await asyncio.sleep(1.0)
            turn.cancel(first, "no longer wanted")
            result = await turn.finish()
        return [one.status for one in result], str(result[0].content())

    statuses, text = run_in_virtual_time(turn())
    assert [Status.CANCELLED, Status.OK] == statuses
    assert "[cancelled] stopped while running: no longer wanted" == text


def test_a_call_that_has_not_started_never_does() -> None:
    """The result tells that it never ran."""

    async def turn() -> tuple[str, object]:
        async with Dispatcher(Stage().tools).turn() as turn:
            turn.submit(call("first", seconds=9.0))
            second = turn.submit(call("second"))
            turn.cancel(second)
            result = await turn.wait(second)
            return result.content(), result.started_at

    assert ("[cancelled] never started: the host cancelled it", None) == run_in_virtual_time(turn())


def test_stopping_a_call_that_has_its_result_changes_nothing() -> None:
    """Late is too late."""

    async def turn() -> str:
        async with Dispatcher(Stage().tools).turn() as turn:
            position = turn.submit(call("a"))
            await turn.wait(position)
            turn.cancel(position)
            return (await turn.finish())[0].status

    assert Status.OK == run_in_virtual_time(turn())


def test_a_position_that_was_never_given_is_an_error() -> None:
    """Nobody waits for ever for a call that does not exist."""

    async def turn() -> None:
        async with Dispatcher(Stage().tools).turn() as turn:
            with pytest.raises(UsageError, match="no call 0"):
                await turn.wait(0)
            with pytest.raises(UsageError, match="no call 0"):
                turn.cancel(0)

    run_in_virtual_time(turn())


def test_what_has_not_started_is_withdrawn() -> None:
    """A running call finishes; one that waits for it, or for a slot, never starts."""

    async def turn() -> list[str]:
        dispatcher = Dispatcher(Stage().tools, max_concurrent=1)
        async with dispatcher.turn() as turn:
            turn.submit(call("runs", "x", seconds=2.0))
            turn.submit(call("waits", "x"))
            turn.submit(call("queues", "y"))
            await asyncio.sleep(1.0)
            turn.withdraw("the stream broke")
            return [result.content() for result in await turn.finish()]

    told = run_in_virtual_time(turn())
    assert ["[cancelled] never started: the stream broke"] * 2 == told[1:]
    assert "[" != told[0][0]


async def test_what_a_tool_sets_in_its_context_is_seen_by_nobody_else() -> None:
    """Sinks are told of its end, and of the calls after it, where the turn was opened."""
    who: ContextVar[str] = ContextVar("who", default="nobody")
    seen: list[tuple[str, str]] = []

    @tool(writes="key:one")
    async def changes() -> str:
        before = who.get()
        who.set("tool")
        return before

    def sink(event: Event) -> None:
        seen.append((event.state, who.get()))

    who.set("host")
    async with Dispatcher([changes], sinks=[sink]) as dispatcher:
        turn = await dispatcher.run([ToolCall("a", "changes", {}), ToolCall("b", "changes", {})])
    assert ["host", "host"] == [result.value for result in turn]
    assert 2 == [state for state, _ in seen].count("settled")
    assert {"host"} == {value for _, value in seen}
