"""Very many calls: no recursion, no growth, nothing lost."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from dispatch import Dispatcher, ToolCall, TurnResult, tool, write
from tests.runtime import soak

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("waits_for", ["a slot", "a claim"])
def test_a_turn_begins_as_cheaply_when_many_wait(waits_for: str) -> None:
    """How many functions that calls does not grow with those who wait: 300 are like 30."""

    @tool(resource_keys=lambda given: [write("one")] if waits_for == "a claim" else [])
    async def wait() -> None:
        await release.wait()

    async def called(waiting: int) -> int:
        """How many functions are called on behalf of one turn, until it waits for its tool."""
        dispatcher = Dispatcher([wait, free], max_concurrent=2 if waits_for == "a claim" else 1)
        many = [
            asyncio.create_task(dispatcher.run([ToolCall("", "wait", {})])) for _ in range(waiting)
        ]
        await asyncio.sleep(0)
        calls = Counter[str]()

        def note(frame: FrameType, event: str, arg: object) -> None:
            calls[event] += 1

        sys.setprofile(note)
        one = dispatcher.turn()
        one.open()
        one.submit(ToolCall("", "free", {"number": 1}))
        sys.setprofile(None)
        release.set()
        await asyncio.gather(one.finish(), *many)
        release.clear()
        return calls["call"]

    async def main() -> list[int]:
        return [await called(waiting) for waiting in (30, 30, 300)]

    release = asyncio.Event()
    _, few, many = asyncio.run(main())
    assert many < 2 * few  # not equal: now and then a dispatcher looks through its open turns


@pytest.mark.timeout(600)
def test_a_hundred_thousand_calls_leave_nothing_and_take_no_more_room() -> None:
    """Failures, time-outs and cancels among them; every result is there, and memory stays flat."""
    command = [sys.executable, "-m", "tests.runtime.soak"]
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, check=True)
    told = json.loads(done.stdout)
    completed = soak.TURNS - soak.TURNS // 100
    assert soak.TURNS * soak.CALLS == sum(told["ended"].values())
    assert {
        "cancelled": soak.TURNS // 100 * soak.CALLS,
        "error": completed,
        "timed_out": completed,
    } == {status: count for status, count in told["ended"].items() if status != "ok"}
    assert told["grown"] < 4
