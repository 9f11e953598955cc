"""How much the hot paths do, counted and not timed: the same on every machine and in every run.

Counted is what the package itself does: calls made in it or by it (into C, the standard library, a
tool), bytecode instructions in its own code, tasks, and callbacks on the loop. What others do
inside such a call is theirs. Nothing random or timed is left: the loop's clock is a counter, files
are claimed below a folder that does not exist, garbage is not collected, and the first run of a
path, which fills what is kept, does not count.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, TypeVarTuple

from benchmarks.shapes import Claims, alternating, distinct, greps, planned
from dispatch import CallContext, Dispatcher, ToolCall, tool

MANY = 1_000
FEW = 50
NESTED = 100
WIDTH = 8
STEP = 1e-6
PACKAGE = "dispatch"
Given = TypeVarTuple("Given")
Counts = dict[str, int]
"""By what was counted: how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """Something that is done often: `work` does it for so many calls, which are made already."""

    calls: int
    work: Callable[[int], Coroutine[Any, Any, object]]

    @property
    def few(self) -> int:
        """For how many calls instructions are counted, which takes longest."""
        return min(FEW, self.calls)


@tool(safe_parallel=True)
async def free(text: str) -> str:
    """Return the text; conflicts with nothing."""
    return text


@tool(reads="file:{text}")
async def reads(text: str) -> str:
    """Return the text; claims a file, so a path is resolved for every call."""
    return text


@tool(writes="file:{text}")
async def writes(text: str) -> str:
    """Return the text; claims a file for itself."""
    return text


@tool(safe_parallel=True)
async def nests(text: str, ctx: CallContext) -> str:
    """Run one call in a turn of its own, inside this one."""
    return (await ctx.run([ToolCall("inner", "free", {"text": text})]))[0].content()


TOOLS = (free, reads, writes, nests)


def calls(name: str, count: int, text: str = "") -> list[ToolCall]:
    """Calls of one tool; each has a text of its own unless one is given for all."""
    return [
        ToolCall(str(number), name, {"text": text or f"no-such-folder/{number}"})
        for number in range(count)
    ]


def turn(name: str, most: int, text: str = "", **options: Any) -> Path:
    """A path that is one turn of such calls, after which all of them must have succeeded."""
    dispatcher = Dispatcher(TOOLS, root="/", max_concurrent=WIDTH, **options)

    async def run(made: Sequence[ToolCall]) -> None:
        (await dispatcher.run(made)).raise_for_failures()

    return Path(calls=most, work=lambda count: run(calls(name, count, text)))


def streamed(name: str, most: int) -> Path:
    """The same turn with each call submitted alone, as a model writes it."""
    dispatcher = Dispatcher(TOOLS, root="/", max_concurrent=WIDTH)

    async def run(made: Sequence[ToolCall]) -> None:
        async with dispatcher.turn() as open_turn:
            for call in made:
                open_turn.submit(call)
                await asyncio.sleep(0)

    return Path(calls=most, work=lambda count: run(calls(name, count)))


def plan(shape: Callable[[int], list[Claims]]) -> Path:
    """A path from resolved claims to the graph."""

    async def run(claims: Sequence[Claims]) -> None:
        planned(claims)

    return Path(calls=MANY, work=lambda count: run(shape(count)))


class Middleware:
    """Passes every call on."""

    def __init__(self, following: Callable[..., Awaitable[Any]]) -> None:
        self._following = following

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        return await self._following(call, context)


def sink(event: object) -> None:
    """Hear of everything."""


PATHS: Mapping[str, Path] = {
    "a turn of one call": turn("free", 1),
    "a turn of one call that reads a file": turn("reads", 1),
    "1,000 calls, safe_parallel": turn("free", MANY),
    "1,000 calls, each reads a file": turn("reads", MANY),
    "1,000 calls, each writes the same file": turn("writes", MANY, "no-such-folder/a"),
    "1,000 calls, one after the other as in a stream": streamed("free", MANY),
    "1,000 calls with a sink": turn("free", MANY, sinks=[sink]),
    "1,000 calls with a middleware": turn("free", MANY, middleware=[Middleware]),
    "100 calls, each runs a turn of one call": turn("nests", NESTED),
    "plan of 1,000 calls, mostly distinct files": plan(distinct),
    "plan of 1,000 calls, one file": plan(alternating),
    "plan of 1,000 calls, a folder and its files": plan(greps),
}


class SteadyLoop(asyncio.SelectorEventLoop):
    """Its clock moves by one step whenever somebody looks at it."""

    _now = 0.0

    def time(self) -> float:
        self._now += STEP
        return self._now


class CountingLoop(SteadyLoop):
    """Counts tasks and callbacks while it is told to; the task that runs the path is none."""

    def __init__(self) -> None:
        super().__init__()
        self.is_counting = False
        self.counts = {"tasks": 0, "tasks at once": 0, "callbacks": 0}

    def create_task(self, *args: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(*args, **options)
        if self.is_counting:
            self.counts["tasks"] += 1
            at_once = len(asyncio.all_tasks(self)) - 1
            self.counts["tasks at once"] = max(self.counts["tasks at once"], at_once)
        return task

    def call_soon(
        self, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None
    ) -> asyncio.Handle:
        self.counts["callbacks"] += self.is_counting
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[*Given], object], *args: *Given, context: Context | None = None
    ) -> asyncio.Handle:
        self.counts["callbacks"] += self.is_counting
        return super().call_soon_threadsafe(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Given], object],
        *args: *Given,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self.counts["callbacks"] += self.is_counting
        return super().call_at(when, callback, *args, context=context)


def counted(path: Path) -> Counts:
    """What one run of a path does."""
    counts: Counts = {}
    run(path.work(path.calls))
    with collecting_nothing():
        for counting, count in ((counting_calls, path.calls), (counting_instructions, path.few)):
            work = path.work(count)
            with counting(counts):
                run(work)
        loop = CountingLoop()
        run(watched(loop, path.work(path.calls)), loop)
    return {**counts, **loop.counts}


def run(work: Coroutine[Any, Any, object], loop: SteadyLoop | None = None) -> None:
    """Run a path on a loop of its own."""
    with asyncio.Runner(debug=False, loop_factory=lambda: loop or SteadyLoop()) as runner:
        runner.run(work)


async def watched(loop: CountingLoop, work: Coroutine[Any, Any, object]) -> None:
    """Count what the loop is given to do for this."""
    loop.is_counting = True
    await work
    loop.is_counting = False


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """No garbage is collected inside, so that nothing runs that somebody's death has called for."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def counting_calls(counts: Counts) -> Iterator[None]:
    """Count the calls made in the package or by it: of Python functions, and into C."""
    made, ours = 0, _namespaces()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal made
        if event == "c_call":
            made += id(frame.f_globals) in ours
        elif event == "call":
            caller = frame.f_back
            made += id(frame.f_globals) in ours or (
                caller is not None and id(caller.f_globals) in ours
            )

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)
    counts["calls"] = made


if sys.version_info >= (3, 12):

    @contextmanager
    def counting_instructions(counts: Counts) -> Iterator[None]:
        """Count the bytecode instructions that the package executes."""
        executed, ours = 0, _namespaces()
        seen: dict[int, tuple[CodeType, bool]] = {}
        monitoring = sys.monitoring
        tool, event = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION

        def instruction(code: CodeType, offset: int) -> object:
            nonlocal executed
            known = seen.get(id(code))
            if known is None:  # equal code may stand in two modules: only the frame tells whose
                known = seen[id(code)] = (code, id(sys._getframe(1).f_globals) in ours)
            executed += known[1]
            return None if known[1] else monitoring.DISABLE

        monitoring.use_tool_id(tool, PACKAGE)
        monitoring.register_callback(tool, event, instruction)
        monitoring.set_events(tool, event)
        try:
            yield
        finally:
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)
            monitoring.restart_events()
        counts["instructions"] = executed

else:

    @contextmanager
    def counting_instructions(counts: Counts) -> Iterator[None]:
        """Count the bytecode instructions that the package executes."""
        executed, ours = 0, _namespaces()

        def entered(frame: FrameType, event: str, argument: object) -> Any:
            if id(frame.f_globals) not in ours:
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            return inside

        def inside(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal executed
            executed += event == "opcode"
            return inside

        sys.settrace(entered)
        try:
            yield
        finally:
            sys.settrace(None)
        counts["instructions"] = executed


def _namespaces() -> frozenset[int]:
    """What the globals of the package's code are; what a dataclass generates has these too."""
    return frozenset(
        id(vars(module))
        for name, module in sys.modules.items()
        if name == PACKAGE or name.startswith(f"{PACKAGE}.")
    )
