"""What a call costs: of itself, in a plan, in memory, and to import the package at all.

Tools do nothing. What is compared is run in turns within one process, so that the ratios mean
something on any machine; the microseconds do not. Peers are run by `benchmarks.runs`, each in a
process of its own. `python -m benchmarks.costs` measures all but the peers and prints it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from benchmarks import profiling
from benchmarks.counting import TOOLS, WIDTH, Middleware, calls, free, sink
from benchmarks.options import Options
from benchmarks.progress import progress
from benchmarks.roster import NotInstalled
from benchmarks.runs import Contest, Entrant, Outcome
from benchmarks.shapes import SHAPES, admitted, planned
from benchmarks.worker import LOOPS, Job
from benchmarks.workloads import NOOPS, ONE_NOOP
from dispatch import Dispatcher, ToolCall

MANY = 1_000
SIZES = (100, 1_000, 10_000, 100_000)
PENDING = 10_000
IMPORTS = 11
PEERS_RUN = {workload.name: workload for workload in (ONE_NOOP, NOOPS)}
REPEATS = {ONE_NOOP.name: 100, NOOPS.name: 3}
"""How often each way is run before the next one's turn comes."""
ROOT = Path(__file__).resolve().parents[1]
Thing = TypeVar("Thing")
Ways = Mapping[str, Callable[[], Awaitable[object]]]
Costs = dict[str, float]
"""Microseconds a call, by way or by number of calls."""


def measure(options: Options) -> dict[str, Any]:
    """All of it, as the report wants it: sections by name."""
    found: dict[str, Any] = {}
    loops: dict[str, dict[str, Costs]] = {}
    for name in LOOPS:
        with progress(f"costs: calls that do nothing, loop {name}"):
            costs = on_loop(name, options.rounds)
        if name == "default":
            found |= costs
        elif costs:
            loops[name] = costs
    found["loops"] = loops
    outcomes = peers(options)
    for name, of_peers in outcomes.items():
        known = {peer: each.seconds for peer, each in of_peers.items() if each.seconds is not None}
        count = len(PEERS_RUN[name].turns[0])
        found[name] |= {peer: seconds * 1e6 / count for peer, seconds in known.items()}
    found["broke the rules"] = {
        name: [peer for peer, each in of_peers.items() if any(asdict(each.violations).values())]
        for name, of_peers in outcomes.items()
    }
    found["failed"] = {
        name: {peer: each.failed for peer, each in of_peers.items() if each.failed}
        for name, of_peers in outcomes.items()
    }
    sizes = SIZES[:-1] if options.quick else SIZES
    with progress("costs: plans"):
        plans = {shape: plan(make, sizes, options.rounds) for shape, make in SHAPES.items()}
    found["plan"] = plans
    found["plan growth"] = {shape: growth(costs) for shape, costs in plans.items()}
    with progress("costs: plans by the turn's machine, memory, profile, import"):
        found["plan by the turn's machine"] = {
            shape: plan(make, SIZES[1:3], options.rounds, admitted)
            for shape, make in SHAPES.items()
        }
        found["memory"] = memory()
        found["profile"] = profiling.measure()
        found["import"] = imports(IMPORTS if options.rounds > 1 else 1)
    return found


# Calls that do nothing


async def noop(text: str) -> str:
    """Return the text."""
    return text


def one_call(dispatcher: Dispatcher) -> Ways:
    """Ways to run one call, the plainest first."""
    return {
        "await the function": lambda: noop("x"),
        "gather of one": lambda: asyncio.gather(noop("x")),
        "dispatch safe_parallel": lambda: dispatcher.run([ToolCall("1", "free", {"text": "x"})]),
        "dispatch reads a file": lambda: dispatcher.run([ToolCall("1", "reads", {"text": "x"})]),
    }


def many_calls(dispatcher: Dispatcher, told: Dispatcher, wrapped: Dispatcher) -> Ways:
    """Ways to run a thousand, the plainest first; the dispatchers have nothing, a sink, a layer."""
    return {
        "gather with a semaphore": gather_many,
        "dispatch safe_parallel": lambda: dispatcher.run(calls("free", MANY)),
        "dispatch reads a file": lambda: dispatcher.run(calls("reads", MANY)),
        "dispatch with a sink": lambda: told.run(calls("free", MANY)),
        "dispatch with a middleware": lambda: wrapped.run(calls("free", MANY)),
    }


async def gather_many() -> list[str]:
    """The same bound on how many run at once, without anything else."""
    semaphore = asyncio.Semaphore(WIDTH)

    async def bounded(number: int) -> str:
        async with semaphore:
            return await noop(str(number))

    return await asyncio.gather(*(bounded(number) for number in range(MANY)))


def on_loop(name: str, rounds: int) -> dict[str, Costs]:
    """The cost of one call and of each of many on this loop; nothing where there is none."""
    try:
        with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
            return runner.run(_on_this_loop(rounds))
    except (NotInstalled, ImportError):
        return {}


async def _on_this_loop(rounds: int) -> dict[str, Costs]:
    async with (
        Dispatcher(TOOLS, max_concurrent=WIDTH) as dispatcher,
        Dispatcher([free], max_concurrent=WIDTH, sinks=[sink]) as told,
        Dispatcher([free], max_concurrent=WIDTH, middleware=[Middleware]) as wrapped,
    ):
        one, many = one_call(dispatcher), many_calls(dispatcher, told, wrapped)
        return {
            ONE_NOOP.name: await interleaved(one, 1, rounds, REPEATS[ONE_NOOP.name]),
            NOOPS.name: await interleaved(many, MANY, rounds, REPEATS[NOOPS.name]),
        }


async def interleaved(ways: Ways, count: int, rounds: int, repeats: int) -> Costs:
    """The median cost of a call of each way; every round takes all of them, the first warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-1, rounds):
        for name in in_turn(list(ways), number):
            way = ways[name]
            with settled():
                for _ in range(repeats):
                    began = time.perf_counter()
                    await way()
                    took = time.perf_counter() - began
                    if number >= 0:
                        seconds[name].append(took)
    return {name: median(times) * 1e6 / count for name, times in seconds.items()}


def in_turn(things: Sequence[Thing], number: int) -> Sequence[Thing]:
    """All of them, each round with another one first."""
    first = number % len(things)
    return [*things[first:], *things[:first]]


@contextmanager
def settled() -> Iterator[None]:
    """No garbage of others is left, and none of what they keep is looked through."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def peers(options: Options) -> dict[str, dict[str, Outcome]]:
    """What became of the same calls with every peer, by workload."""
    found: dict[str, dict[str, Outcome]] = {}
    entrants = [Entrant(name=entry.name, entry=entry) for entry in options.peers]
    if not entrants:
        return found
    with Contest(entrants) as contest:
        for name, workload in PEERS_RUN.items():
            job = Job(workload=workload, repeats=REPEATS[name])
            with progress(f"costs: {name}, the peers") as told:
                found[name] = contest.compete(entrants, job, options.rounds, told=told)
    return found


# Plans


def plan(
    shape: Callable[[int], Sequence[Any]],
    sizes: Sequence[int],
    rounds: int,
    make: Callable[[Sequence[Any]], object] = planned,
) -> Costs:
    """From resolved claims to the graph, by the number of calls."""
    turns = {size: shape(size) for size in sizes}
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(-1, rounds):
        for size in in_turn(sizes, number):
            with settled():
                for _ in range(max(1, MANY // size)):
                    began = time.perf_counter()
                    make(turns[size])
                    took = time.perf_counter() - began
                    if number >= 0:
                        seconds[size].append(took)
    return {str(size): median(times) * 1e6 / size for size, times in seconds.items()}


def growth(costs: Costs) -> float:
    """How much more a call of the largest turn costs than one of a turn a tenth as large."""
    *_, tenth, largest = costs.values()
    return largest / tenth


# Memory


def memory() -> Costs:
    """Bytes that a call takes while it waits, beside what the host has made."""
    return {
        "bytes of a call that waits for another call": asyncio.run(pending("writes", "a")),
        "bytes of a call that waits for a slot": asyncio.run(pending("free")),
    }


async def pending(name: str, text: str = "") -> float:
    """What each of many calls takes that waits behind one which runs."""
    made = calls(name, PENDING + 1, text)
    blocked = asyncio.Event()

    async def blocking(call: ToolCall, context: object) -> str:
        await blocked.wait()
        return "done"

    options: dict[str, Any] = {"max_concurrent": 1, "middleware": [lambda following: blocking]}
    async with Dispatcher(TOOLS, **options) as dispatcher, dispatcher.turn() as turn:
        turn.submit(made[0])
        await asyncio.sleep(0)
        gc.collect()
        tracemalloc.start()
        try:
            for call in made[1:]:
                turn.submit(call)
            await asyncio.sleep(0)
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        blocked.set()
    return taken / PENDING


# Import

DEPENDENCIES = ("anyio", "pydantic", "structlog")
LOADED = """
import sys, {names}, dispatch
names = "{names}".split(", ")
print(*(name for name in sys.modules if name.partition(".")[0] in names))
"""
TIMED = """
import time
began = time.process_time()
import {names}
bare = time.process_time()
import {parts}
dependencies = time.process_time()
import dispatch
print(bare - began, dependencies - began, time.process_time() - began)
"""


def imports(times: int) -> Costs:
    """Milliseconds of processor time in new processes, with everything compiled beforehand.

    `dependencies` are the three with all that the package uses of them: pydantic alone loads most
    of itself only when it is used. `bare` are the three as they are.
    """
    names = ", ".join(DEPENDENCIES)
    with TemporaryDirectory() as compiled:
        parts = _printed(LOADED.format(names=names), compiled)
        program = TIMED.format(names=names, parts=", ".join(parts))
        runs = [[float(each) * 1e3 for each in _printed(program, compiled)] for _ in range(times)]
    return {
        "milliseconds": median(total for _, _, total in runs),
        "dependencies": median(dependencies for _, dependencies, _ in runs),
        "bare": median(bare for bare, _, _ in runs),
        "beyond": median(total - dependencies for _, dependencies, total in runs),
    }


def _printed(program: str, compiled: str) -> list[str]:
    """The words that a program prints in a process of its own, which keeps its byte code there."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def main() -> None:
    """Measure all but the peers, and print it."""
    found = measure(Options(peers=()))
    print(f"CPython {platform.python_version()}, {platform.system()} {platform.machine()}")
    print("\n".join(lines(found)))


def lines(found: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """The numbers under their names."""
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield f"{indent}{name}"
            yield from lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name:44} {value:12.2f}"


if __name__ == "__main__":
    main()
