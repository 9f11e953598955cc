"""A turn that is over is freed with the last reference to its result, without the collector."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from dispatch import AllOrNothing, CallContext, CancelToken, Dispatcher, ToolCall, TurnResult, tool
from dispatch.runtime.threads import is_idle_worker

WORKERS = "test-freed"
"""The name of this module's worker threads."""


class Value:
    """Something that a weak reference can follow."""


class Failed(Exception):
    """An exception of its own can be followed too."""


@tool(safe_parallel=True)
async def free() -> Value:
    """Touch nothing."""
    return Value()


@tool(writes="key:disk")
async def claims() -> Value:
    """Touch the disk."""
    return Value()


@tool(writes="key:disk")
async def sees_its_context(ctx: CallContext) -> Value:
    """Touch the disk, and be told of a cancel."""
    ctx.progress("going on")
    return Value()


@tool(safe_parallel=True)
async def nests(ctx: CallContext) -> Value:
    """Have a turn of its own."""
    await ctx.run([ToolCall("inner", "claims", {})])
    return Value()


@tool(safe_parallel=True)
def in_a_thread() -> Value:
    """Run in a worker thread."""
    return Value()


@tool(safe_parallel=True)
async def fails() -> Value:
    """Raise, so that there is a traceback."""
    raise Failed


@tool(safe_parallel=True)
async def fails_with_its_context(ctx: CallContext) -> Value:
    """Raise where the traceback knows of the turn."""
    raise Failed


@tool(safe_parallel=True)
def fails_in_a_thread() -> Value:
    """Raise in a worker thread."""
    raise Failed


@tool(safe_parallel=True, timeout=0.01)
async def takes_too_long() -> Value:
    """Be stopped."""
    return await asyncio.Future()


TOOLS = (
    fails,
    fails_with_its_context,
    fails_in_a_thread,
    takes_too_long,
    free,
    claims,
    sees_its_context,
    nests,
    in_a_thread,
)


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def values_of(turn: TurnResult) -> list[weakref.ref[object]]:
    return [weakref.ref(result.exception or result.value) for result in turn]


async def left_alive(dispatcher: Dispatcher, values: list[weakref.ref[object]]) -> int:
    """How many there are once the loop and the threads are done with the turn."""
    await asyncio.sleep(0)
    for thread in threading.enumerate():
        ours = thread.name.startswith(WORKERS)
        while ours and thread.is_alive() and not is_idle_worker(thread):
            pass
    return sum(value() is not None for value in values)


@pytest.mark.parametrize("name", [one.name for one in TOOLS])
@pytest.mark.parametrize("many", [1, 3])
async def test_a_turn_goes_with_its_result(name: str, many: int) -> None:
    """What its tools returned is gone as soon as nobody holds the result of the turn."""
    async with Dispatcher(TOOLS) as dispatcher:
        dispatcher._pool._name = WORKERS
        turn = await dispatcher.run([ToolCall(str(n), name, {}) for n in range(many)])
        values = values_of(turn)
        assert many == await left_alive(dispatcher, values)
        del turn
        assert 0 == await left_alive(dispatcher, values)


async def test_a_turn_that_could_be_undone_goes_too() -> None:
    """The same where claims pass to the turn until it is decided."""
    async with Dispatcher(TOOLS, policy=AllOrNothing()) as dispatcher:
        turn = await dispatcher.run([ToolCall("a", "claims", {}), ToolCall("b", "claims", {})])
        values = values_of(turn)
        del turn
        assert 0 == await left_alive(dispatcher, values)


async def test_a_streamed_turn_goes_too() -> None:
    """The same for a turn that was open, and a result that was read from its events."""
    async with Dispatcher(TOOLS) as dispatcher:
        async with dispatcher.turn() as turn:
            turn.submit(ToolCall("a", "claims", {}))
            values = [weakref.ref((await turn.wait(0)).unwrap())]
        del turn
        assert 0 == await left_alive(dispatcher, values)


async def test_its_plan_and_its_measures_are_there_as_long_as_the_result_is() -> None:
    """They are made when they are asked for, from what is kept."""
    async with Dispatcher(TOOLS) as dispatcher:
        turn = await dispatcher.run([ToolCall("a", "claims", {}), ToolCall("b", "claims", {})])
        await asyncio.sleep(0)
        assert ((0,), (1,)) == turn.plan.groups
        assert (2, 1) == (turn.stats.calls, turn.stats.conflict_serialized)


async def test_a_turn_that_is_stopped_by_the_last_step_of_its_call_goes_too() -> None:
    """The stop comes too late for the call, and nothing waits for it to end."""
    token = CancelToken()

    @tool(safe_parallel=True)
    async def stops_all() -> Value:
        token.cancel("with its last step")
        return Value()

    async with Dispatcher([stops_all], grace=60) as dispatcher:
        turn = await dispatcher.run([ToolCall("a", "stops_all", {})], token=token)
        values = values_of(turn)
        del turn
        assert 0 == await left_alive(dispatcher, values)
