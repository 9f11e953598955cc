"""Very many calls: no recursion, no growth, nothing lost."""

import asyncio
import gc
import sys
from collections import Counter

import psutil
import pytest

from dispatch import (
    CallContext,
    Dispatcher,
    Limits,
    Status,
    ToolCall,
    ToolError,
    TurnResult,
    read,
    tool,
    write,
)
from dispatch.testing import assert_no_leaks, run_in_virtual_time

MANY = 10_000


@tool(safe_parallel=True)
async def free(number: int) -> int:
    """Finish without a single await."""
    return number


@tool(resource_keys=lambda given: [write("one")])
async def chained(number: int) -> int:
    """The same, each behind the one before."""
    return number


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["free", "chained"])
@pytest.mark.parametrize("eager", [False, True])
def test_tools_that_finish_at_once_neither_recurse_nor_hang(name: str, eager: bool) -> None:
    """10,000 in one turn, side by side or one behind the other; also where tasks begin eagerly."""
    if eager and sys.version_info < (3, 12):
        pytest.skip("eager tasks came with Python 3.12")

    async def main() -> TurnResult:
        if eager:
            factory = getattr(asyncio, "eager_task_factory")  # noqa: B009 - unknown to 3.11
            asyncio.get_running_loop().set_task_factory(factory)
        calls = [ToolCall(str(n), name, {"number": n}) for n in range(MANY)]
        return await Dispatcher([free, chained]).run(calls)

    turn = asyncio.run(main())
    assert list(range(MANY)) == [result.value for result in turn]


SOAK_TURNS, SOAK_CALLS = 1000, 100
"""100,000 calls, of which every hundredth each fails, takes too long, or is in a cancelled turn."""


@tool(resource_keys=lambda given: [read("key", str(given["number"] % 7))])
async def look(number: int) -> int:
    """Read one of seven keys."""
    await asyncio.sleep(0.01)
    if number == 33:
        raise ToolError("this one fails")
    if number == 66:
        await asyncio.sleep(1000)
    return number


@tool(resource_keys=lambda given: [write("key", str(given["number"] % 7))])
async def change(number: int, context: CallContext) -> int:
    """Write one of seven keys, and nest a call now and then."""
    await asyncio.sleep(0.01)
    if number % 50 == 0:
        await context.run([ToolCall("n", "look", {"number": number})])
    return number


def soak_calls() -> list[ToolCall]:
    return [
        ToolCall(
            str(n),
            "change" if n % 5 == 0 else "look",
            {"number": n},
            timeout=5.0 if n == 66 else None,
        )
        for n in range(SOAK_CALLS)
    ]


async def soak(dispatcher: Dispatcher, turns: int) -> Counter[Status]:
    """So many turns, every hundredth of them cancelled in the middle; how the calls ended."""
    ended: Counter[Status] = Counter()
    for number in range(turns):
        task = asyncio.ensure_future(dispatcher.run(soak_calls()))
        if number % 100 == 99:
            await asyncio.sleep(0.005)
            task.cancel()
        try:
            turn = await task
        except asyncio.CancelledError as error:
            turn = error.turn  # type: ignore[attr-defined]
        assert [str(n) for n in range(SOAK_CALLS)] == [result.call.id for result in turn]
        ended.update(result.status for result in turn)
    return ended


def megabytes() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss) / 2**20


@pytest.mark.timeout(600)
def test_a_hundred_thousand_calls_leave_nothing_and_take_no_more_room() -> None:
    """Failures, time-outs and cancels among them; every result is there, and memory stays flat."""

    async def main() -> tuple[Counter[Status], float]:
        dispatcher = Dispatcher([look, change], limits=Limits(20, per_tool={"change": 5}))
        async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits):
            await soak(dispatcher, SOAK_TURNS // 10)
            before = megabytes()
            ended = await soak(dispatcher, SOAK_TURNS)
            return ended, megabytes() - before

    ended, grown = run_in_virtual_time(main())
    assert SOAK_TURNS * SOAK_CALLS == ended.total()
    assert SOAK_TURNS // 100 * SOAK_CALLS == ended[Status.CANCELLED]
    completed = SOAK_TURNS - SOAK_TURNS // 100
    assert (completed, completed) == (ended[Status.ERROR], ended[Status.TIMED_OUT])
    assert grown < 8
