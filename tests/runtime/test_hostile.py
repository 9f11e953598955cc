"""Tools as hostile as real ones: whatever they do, the turn returns in time with all its results.

Each row of `ROWS` is one such tool. Its call stands among three good ones, and is stopped by its
own time limit or by a cancel of the whole turn from another thread.
"""

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dispatch import (
    CallContext,
    CallEvent,
    Dispatcher,
    FailureKind,
    Limits,
    ResourceTable,
    Status,
    Tool,
    ToolCall,
    TurnResult,
)
from dispatch.testing import assert_no_leaks
from tests.runtime.test_process import is_running, sh, until

SLACK = 2.0
"""Seconds that a loaded machine may take beyond what is promised."""
BOUND = 300_000
"""Characters of a result that nobody exceeds."""
LONG = 60.0
SAY_WHO = "echo $$ >tmp; mv tmp pid"
BLOCKED = 1.0
GOOD = ("fine", "plain", "patient")

Ending = tuple[Status, FailureKind | None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A hostile tool, `async def` or `def`, and how its call ends.

    `ending` is None where it ends as it was stopped, by the time limit or the cancel. `lingers` if
    the tool goes on after its call was given up. `adds` are seconds that nobody can take from it.
    """

    act: Callable[["World", CallContext], Any]
    ending: Ending | None = None
    lingers: bool = False
    adds: float = 0.0
    limit: float = 0.2
    harms: bool = False
    """Whether it cancels the tasks of its siblings and of the host: they can but tell."""

    @property
    def grace(self) -> float:
        """Short where both are used up; else a loaded machine must have its time to stop."""
        return 0.2 if self.lingers else 2.0


class World:
    """One hostile call among good ones, another turn that wants what it claims, and what came."""

    def __init__(self, row: Row, folder: Path) -> None:
        self.row = row
        self.folder = folder
        self.main = asyncio.current_task()
        self.began, self.over, self.freed = (threading.Event() for _ in range(3))
        self.freed_here = asyncio.Event()
        self.stopped_at = self.patience = 0.0
        self.told: list[str] = []
        self.over_before_next: list[bool] = []
        self.meeting = threading.Barrier(2)
        self.table, self.limits = ResourceTable(), Limits(2)
        shared: dict[str, Any] = {"resources": self.table, "limits": self.limits}
        self.dispatcher = Dispatcher(self.tools(), grace=row.grace, sinks=[self.tell], **shared)
        follow = Tool("follow", self.follow, writes="key:taken")
        self.other = Dispatcher([follow], abandoned_wait=LONG, **shared)

    def tools(self) -> list[Tool]:
        """The hostile one writes a key, the others touch nothing."""
        act = self.row.act

        async def on_the_loop(ctx: CallContext) -> object:
            try:
                return await act(self, ctx)
            finally:
                self.over.set()

        def in_a_thread(ctx: CallContext) -> object:
            try:
                return act(self, ctx)
            finally:
                self.over.set()

        async def fine() -> None: ...
        def plain() -> None: ...
        async def patient() -> None:
            await asyncio.sleep(self.patience)

        def meet() -> None:
            self.meeting.wait(10)

        hostile = on_the_loop if inspect.iscoroutinefunction(act) else in_a_thread
        good = (fine, plain, patient, meet)
        return [
            Tool("hostile", hostile, writes="key:taken"),
            *(Tool(each.__name__, each, safe_parallel=True) for each in good),
        ]

    def follow(self) -> None:
        """The other turn's tool: notes whether the hostile one was really over by then."""
        self.over_before_next.append(self.over.is_set())

    def tell(self, event: object) -> None:
        """Keep what the hostile call goes through."""
        if isinstance(event, CallEvent) and event.tool == "hostile":
            self.told.append(event.state)

    async def play(self, limit: float | None) -> TurnResult:
        """The turn. The hostile call comes once two of the good ones have ended."""
        self.patience = LONG if limit is None or self.row.harms else limit + 0.1
        async with self.dispatcher.turn() as turn:
            for name in GOOD:
                turn.submit(ToolCall(name, name, {}))
            await until(lambda: len(turn.snapshot()) == 2)
            self.stopped_at = time.monotonic() + (limit or LONG)
            turn.submit(ToolCall("hostile", "hostile", {}, timeout=limit))
            return await turn.finish()

    async def stopped(self, how: str) -> TurnResult:
        """The turn, in which the hostile call has a time limit, or whose task is cancelled."""
        task = asyncio.create_task(self.play(self.row.limit if how == "limit" else None))
        if how == "cancel":
            canceller = partial(self.cancel, asyncio.get_running_loop(), task)
            threading.Thread(target=canceller, daemon=True).start()
        try:
            return await task
        except asyncio.CancelledError as error:
            turn: TurnResult = error.turn  # type: ignore[attr-defined]
            return turn

    def cancel(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[TurnResult]") -> None:
        """Cancel the turn from another thread once the hostile tool is at it."""
        while not (self.began.is_set() or (self.folder / "pid").exists()):
            time.sleep(0.002)
        self.stopped_at = time.monotonic()
        loop.call_soon_threadsafe(task.cancel)

    def free(self) -> None:
        """Let everything end that waits for it."""
        self.freed.set()
        self.freed_here.set()


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


async def swallow(world: World, ctx: CallContext) -> str:
    world.began.set()
    while not world.freed.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await world.freed_here.wait()
    return "late"


def block_the_thread(world: World, ctx: CallContext) -> str:
    world.began.set()
    world.freed.wait(LONG)
    return "late"


async def ignore_sigterm(world: World, ctx: CallContext) -> None:
    script = f"trap '' TERM; {SAY_WHO}; sleep {LONG}; sleep {LONG}"
    await ctx.run_process(sh(script), cwd=world.folder)


async def leave_the_session(world: World, ctx: CallContext) -> None:
    script = f"setsid sh -c '{SAY_WHO}; exec sleep {LONG}' & wait"
    await ctx.run_process(sh(script), cwd=world.folder)


async def flood(world: World, ctx: CallContext) -> None:
    await ctx.run_process(sh(f"{SAY_WHO}; exec yes flooded"), cwd=world.folder)


async def close_the_executor(world: World, ctx: CallContext) -> None:
    await asyncio.to_thread(int)
    await asyncio.get_running_loop().shutdown_default_executor()
    world.began.set()
    await asyncio.sleep(LONG)


async def fill_the_executor(world: World, ctx: CallContext) -> None:
    loop = asyncio.get_running_loop()
    blocked = [loop.run_in_executor(None, world.freed.wait, LONG) for _ in range(200)]
    world.began.set()
    await asyncio.gather(*blocked)


async def block_the_loop(world: World, ctx: CallContext) -> None:
    world.began.set()
    time.sleep(BLOCKED)
    await asyncio.sleep(LONG)


async def block_the_loop_when_cancelled(world: World, ctx: CallContext) -> None:
    world.began.set()
    try:
        await asyncio.sleep(LONG)
    finally:
        time.sleep(BLOCKED)


async def raise_what_has_no_text(world: World, ctx: CallContext) -> None:
    world.began.set()
    raise Unspeakable


async def raise_it_when_cancelled(world: World, ctx: CallContext) -> None:
    world.began.set()
    try:
        await asyncio.sleep(LONG)
    except asyncio.CancelledError:
        raise Unspeakable from None


async def return_what_cannot_be_shown(world: World, ctx: CallContext) -> object:
    world.began.set()
    return [Unspeakable()]


async def leave_tasks_behind(world: World, ctx: CallContext) -> list[str]:
    left = [asyncio.create_task(world.freed_here.wait()) for _ in range(20)]
    world.began.set()
    return [task.get_name() for task in left]


async def raise_a_cancellation(world: World, ctx: CallContext) -> None:
    world.began.set()
    raise asyncio.CancelledError("on its own")


async def cancel_everybody(world: World, ctx: CallContext) -> str:
    for task in asyncio.all_tasks() - {asyncio.current_task(), world.main}:
        task.cancel()
    world.began.set()
    return "alone"


OK: Ending = (Status.OK, None)
FAILED: Ending = (Status.ERROR, FailureKind.TOOL_ERROR)
GIVEN_UP: Ending = (Status.UNKNOWN, FailureKind.ABANDONED)
STOPPED: dict[str, Ending] = {
    "limit": (Status.TIMED_OUT, FailureKind.TIMEOUT),
    "cancel": (Status.CANCELLED, FailureKind.CANCELLED),
}
ROWS = {
    "swallows cancellation": Row(act=swallow, ending=GIVEN_UP, lingers=True),
    "a thread that cannot be stopped": Row(act=block_the_thread, ending=GIVEN_UP, lingers=True),
    "a child that ignores SIGTERM": Row(act=ignore_sigterm, limit=0.5),
    "a grandchild that called setsid": Row(act=leave_the_session, limit=0.5),
    "a process that floods its pipe": Row(act=flood, limit=0.5),
    "closes the default executor": Row(act=close_the_executor),
    "fills the default executor": Row(act=fill_the_executor),
    "never yields for a second": Row(act=block_the_loop, adds=BLOCKED),
    "does not yield when cancelled": Row(act=block_the_loop_when_cancelled, adds=BLOCKED),
    "raises from __str__": Row(act=raise_what_has_no_text, ending=FAILED),
    "raises from __str__ when cancelled": Row(act=raise_it_when_cancelled),
    "a value that cannot be shown": Row(act=return_what_cannot_be_shown, ending=OK),
    "spawns tasks and returns": Row(act=leave_tasks_behind, ending=OK),
    "raises CancelledError itself": Row(
        act=raise_a_cancellation, ending=(Status.ERROR, FailureKind.CANCELLED)
    ),
    "cancels everybody's tasks": Row(act=cancel_everybody, ending=OK, harms=True),
}


@pytest.mark.parametrize("how", ["limit", "cancel"])
@pytest.mark.parametrize("name", ROWS)
def test_whatever_a_tool_does_its_turn_returns_in_time(name: str, how: str, tmp_path: Path) -> None:
    """One result per call, siblings unharmed, slots back, claims kept until it is really over."""

    async def main() -> None:
        world = World(ROWS[name], tmp_path)
        async with assert_no_leaks(world.table, limits=world.limits, within=10.0):
            try:
                turn = await world.stopped(how)
                took = max(0.0, time.monotonic() - world.stopped_at)
                check_time(name, took, world.row)
                check_results(world, turn, STOPPED[how])
                await check_what_comes_after(world)
            finally:
                world.free()
            await check_the_late_end(world, turn)
            await world.dispatcher.aclose()

    asyncio.run(main())


def check_time(name: str, took: float, row: Row) -> None:
    """Two graces and a quarter of a second after the stop, and what nobody can take from it."""
    limit = 2 * row.grace + 0.25
    told = f"returned in {took:.2f} s (2 x grace + 0.25 = {limit:.2f} s)"
    print(f"{name}: {told}")  # noqa: T201 - what was measured, beside what was promised
    assert took < limit + row.adds + SLACK


def check_results(world: World, turn: TurnResult, stopped: Ending) -> None:
    """One per call in intent order; only a cancel of the turn stops the sibling that still runs."""
    by_cancel = stopped == STOPPED["cancel"] or world.row.harms
    patient = STOPPED["cancel"] if by_cancel else OK
    assert [*GOOD, "hostile"] == [result.call.id for result in turn]
    assert [OK, OK, patient, world.row.ending or stopped] == [
        (result.status, result.failure and result.failure.kind) for result in turn
    ]
    assert [] == [result for result in turn if not 0 < len(result.content()) < BOUND]
    pids = [int(file.read_text()) for file in world.folder.glob("pid")]
    assert [] == [pid for pid in pids if is_running(pid)]


async def check_what_comes_after(world: World) -> None:
    """Slots and threads are there for others; what it claims is not, as long as it goes on."""
    assert (0, not world.row.lingers) == (world.limits.running, world.over.is_set())
    follower = asyncio.create_task(world.other.run([ToolCall("", "follow", {})]))
    met = await world.dispatcher.run([ToolCall("", "meet", {})] * 2)
    assert [OK, OK] == [(result.status, result.failure) for result in met]
    if world.row.lingers:
        table = world.table.statistics()
        assert (1, 1, []) == (table.held, table.waiting, world.over_before_next)
        world.free()
    followed = await asyncio.wait_for(follower, 10)
    assert (Status.OK, [True]) == (followed[0].status, world.over_before_next)


async def check_the_late_end(world: World, turn: TurnResult) -> None:
    """What it returns after it was given up is told as late, and is in no result."""
    await until(lambda: "settled" in world.told)
    assert world.row.lingers == ("late" in world.told)
    if world.row.lingers:
        assert (None, None) == (turn[3].value, turn[3].exception)
        assert "late" not in turn[3].content()
