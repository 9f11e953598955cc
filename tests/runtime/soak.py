"""100,000 calls in a process of its own, whose memory nothing else has used before.

Every hundredth each fails, takes too long, or is in a cancelled turn. Run as a module, it prints
how the calls ended and by how many megabytes the process has grown meanwhile, as JSON.
"""

import asyncio
import gc
import json
import sys
from collections import Counter

import psutil

from dispatch import CallContext, Dispatcher, Limits, Status, ToolCall, ToolError, read, tool, write
from dispatch.testing import assert_no_leaks, run_in_virtual_time

TURNS, CALLS = 1000, 100


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


def calls() -> list[ToolCall]:
    return [
        ToolCall(
            str(n),
            "change" if n % 5 == 0 else "look",
            {"number": n},
            timeout=5.0 if n == 66 else None,
        )
        for n in range(CALLS)
    ]


async def soak(dispatcher: Dispatcher, turns: int) -> Counter[Status]:
    """So many turns, every hundredth of them cancelled in the middle; how the calls ended."""
    ended: Counter[Status] = Counter()
    for number in range(turns):
        task = asyncio.ensure_future(dispatcher.run(calls()))
        if number % 100 == 99:
            await asyncio.sleep(0.005)
            task.cancel()
        try:
            turn = await task
        except asyncio.CancelledError as error:
            turn = error.turn  # type: ignore[attr-defined]
        assert [str(n) for n in range(CALLS)] == [result.call.id for result in turn]
        ended.update(result.status for result in turn)
    return ended


def megabytes() -> float:
    gc.collect()
    return float(psutil.Process().memory_info().rss) / 2**20


async def main() -> None:
    """Warm up, soak, and tell."""
    dispatcher = Dispatcher([look, change], limits=Limits(20, per_tool={"change": 5}))
    async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits):
        await soak(dispatcher, TURNS // 10)
        before = megabytes()
        ended = await soak(dispatcher, TURNS)
        json.dump({"ended": ended, "grown": megabytes() - before}, sys.stdout)


if __name__ == "__main__":
    run_in_virtual_time(main())
