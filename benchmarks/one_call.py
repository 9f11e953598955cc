"""What a call costs through the dispatcher when its tool does nothing, beside plain asyncio.

Everything is measured in turns within one run, so that the ratios mean something on any machine;
the microseconds do not. Run it with `python benchmarks/one_call.py`.
"""

import asyncio
import platform
import time
from collections.abc import Awaitable, Callable
from statistics import median

from dispatch import Dispatcher, ToolCall, tool

ROUNDS_OF_ONE = 1_000
ROUNDS_OF_MANY = 20
MANY = 1_000
WIDTH = 8


async def noop(text: str) -> str:
    """Return the text."""
    return text


@tool(safe_parallel=True)
async def free(text: str) -> str:
    """Return the text; conflicts with nothing."""
    return text


@tool(reads="file:{text}")
async def reads(text: str) -> str:
    """Return the text; claims a file, so a path is resolved for every call."""
    return text


async def main() -> None:
    """Measure and print."""
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    async with Dispatcher([free, reads], max_concurrent=WIDTH) as dispatcher:
        one = await measured(ROUNDS_OF_ONE, one_call(dispatcher))
        many = await measured(ROUNDS_OF_MANY, many_calls(dispatcher))
    report("one call", one, calls=1)
    report(f"{MANY:,} calls, {WIDTH} at once", many, calls=MANY)


def one_call(dispatcher: Dispatcher) -> dict[str, Callable[[], Awaitable[object]]]:
    """One call, the plainest way first."""
    return {
        "await the function": lambda: noop("x"),
        "asyncio.gather": lambda: asyncio.gather(noop("x")),
        "dispatcher, safe_parallel": lambda: dispatcher.run([ToolCall("1", "free", {"text": "x"})]),
        "dispatcher, reads a file": lambda: dispatcher.run([ToolCall("1", "reads", {"text": "x"})]),
    }


def many_calls(dispatcher: Dispatcher) -> dict[str, Callable[[], Awaitable[object]]]:
    """Many calls at once, the plainest way first."""
    return {
        "gather with a semaphore": gather_many,
        "dispatcher, safe_parallel": lambda: dispatcher.run(calls("free")),
        "dispatcher, reads a file": lambda: dispatcher.run(calls("reads")),
    }


async def gather_many() -> list[str]:
    """The same bound on how many run at once, without anything else."""
    semaphore = asyncio.Semaphore(WIDTH)

    async def bounded(number: int) -> str:
        async with semaphore:
            return await noop(str(number))

    return await asyncio.gather(*(bounded(number) for number in range(MANY)))


def calls(name: str) -> list[ToolCall]:
    """Calls of one tool, each with arguments of its own."""
    return [ToolCall(str(number), name, {"text": str(number)}) for number in range(MANY)]


async def measured(
    rounds: int, ways: dict[str, Callable[[], Awaitable[object]]]
) -> dict[str, float]:
    """The median seconds of each way; every round takes all of them, one after the other."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + rounds // 10):
        for name, way in ways.items():
            began = time.perf_counter()
            await way()
            took = time.perf_counter() - began
            if number >= rounds // 10:  # the first rounds warm up
                seconds[name].append(took)
    return {name: median(times) for name, times in seconds.items()}


def report(title: str, medians: dict[str, float], *, calls: int) -> None:
    """Print the medians, and the dispatcher's as ratios to every way without it."""
    plain = [name for name in medians if "dispatcher" not in name]
    print(f"\n{title}")
    for name, seconds in medians.items():
        ratios = [f"{seconds / medians[base]:.1f} x {base}" for base in plain if name not in plain]
        line = f"  {name:26} {seconds / calls * 1e6:8.2f} us a call   {', '.join(ratios)}"
        print(line.rstrip())


if __name__ == "__main__":
    asyncio.run(main())
