"""Where the time of a call goes that does nothing, by part of the package.

A deterministic profiler (`cProfile`) makes each function dearer, so parts with many small functions
look larger than they are. How many functions a call passes is exact, and the same in every run.
"""

from __future__ import annotations

import asyncio
import cProfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import CodeType
from typing import Any

from benchmarks.counting import TOOLS, WIDTH, calls
from benchmarks.workloads import NOOPS, ONE_NOOP
from dispatch import Dispatcher, ToolCall

PACKAGE = Path(__file__).resolve().parents[1] / "dispatch"
LOOP = "the event loop"
REST = "the benchmark and the standard library"
MACHINES = "who waits for whom, and whose turn it is"
ADMISSION = "looking up the tool, its arguments and claims"
RESULTS = "results and measures"
CARRYING = "carrying out: tasks, slots, claims, timers, cancelling"
PARTS = {
    ADMISSION: (
        *("arguments.py", "call.py", "claims.py", "concurrency.py", "refs.py", "schema.py"),
        *("templates.py", "tool.py", "runtime/admission.py", "runtime/grouping.py"),
    ),
    RESULTS: (
        *("core/durations.py", "core/stats.py", "render.py", "runtime/concluding.py"),
        *("runtime/ended.py", "runtime/result.py", "runtime/totals.py"),
    ),
    MACHINES: ("core/",),
    CARRYING: ("",),
}
"""The first that fits: files of the package, or all below a folder."""
TURNS = {ONE_NOOP.name: 200, NOOPS.name: 3}


def measure() -> dict[str, dict[str, dict[str, float]]]:
    """By workload and part: its share of the time, and functions of Python passed per call."""
    return {
        ONE_NOOP.name: asyncio.run(_profiled(calls("free", 1), TURNS[ONE_NOOP.name])),
        NOOPS.name: asyncio.run(_profiled(calls("free", 1000), TURNS[NOOPS.name])),
    }


async def _profiled(turn: list[ToolCall], times: int) -> dict[str, dict[str, float]]:
    async with Dispatcher(TOOLS, max_concurrent=WIDTH) as dispatcher:
        await dispatcher.run(turn)
        profiler = cProfile.Profile(builtins=False)
        profiler.enable()
        for _ in range(times):
            await dispatcher.run(turn)
        profiler.disable()
    return shares(profiler.getstats(), times * len(turn))


def shares(entries: Iterable[Any], count: int) -> dict[str, dict[str, float]]:
    """Of what a profiler saw of so many calls: share and functions of every part."""
    seconds: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for entry in entries:
        part = part_of(entry.code)
        seconds[part] += entry.inlinetime
        functions[part] += entry.callcount
    total = seconds.total()
    return {
        part: {"share": seconds[part] / total, "functions": functions[part] / count}
        for part in (*PARTS, LOOP, REST)
    }


def part_of(code: CodeType | str) -> str:
    """The part that a function belongs to."""
    name = code if isinstance(code, str) else code.co_filename
    path = Path(name)
    if path.is_relative_to(PACKAGE):
        inside = path.relative_to(PACKAGE).as_posix()
        return next(part for part, names in PARTS.items() if inside.startswith(names))
    return LOOP if {"asyncio", "uvloop"} & set(path.parts) or path.stem == "selectors" else REST
