"""What tools leave behind, layers that block, output that comes late, and who is isolated."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from pathlib import Path

import pytest

from dispatch import (
    CallContext,
    CallEvent,
    DeclarationError,
    Dispatcher,
    ResourceTable,
    Status,
    Tool,
    ToolCall,
    TurnResult,
    tool,
    write,
)
from dispatch.events import Event
from dispatch.runtime.middleware import Handler
from dispatch.testing import run_in_virtual_time
from tests.runtime.keyed import cancelled, statuses
from tests.runtime.test_process import sh, until
from tests.timeline import calls


def shell(folder: Path, script: str) -> Tool:
    @tool(name="shell", safe_parallel=True)
    async def run(ctx: CallContext) -> str:
        return (await ctx.run_process(sh(script), cwd=folder)).output

    return run


def processes_in(folder: Path) -> dict[str, int]:
    """The processes with this folder as their working directory: what they run, and their group."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is a stranger's
            if (process / "cwd").readlink() == folder:
                found[(process / "cmdline").read_text()] = os.getpgid(int(process.name))
    return found


@pytest.mark.parametrize("how", ["limit", "cancel", "end"])
async def test_no_descendant_is_alive_when_the_result_is_there(tmp_path: Path, how: str) -> None:
    """J1: a grandchild that sleeps in the background, below a shell that waits or that ends."""
    stay = "" if how == "end" else "; wait"
    grandchild = f"(sleep 60 & echo up >tmp; mv tmp ready{stay}) ; wait"
    dispatcher = Dispatcher([shell(tmp_path, grandchild)], grace=2.0)
    call = ToolCall("", "shell", {}, timeout=0.2 if how == "limit" else None)
    running = asyncio.create_task(dispatcher.run([call]))
    if how == "cancel":
        await until((tmp_path / "ready").exists)
        assert "sleep\x0060\x00" in processes_in(tmp_path)
        turn = await cancelled(running)
    else:
        turn = await running
    assert {} == processes_in(tmp_path)
    assert {"limit": ["timed_out"], "cancel": ["cancelled"], "end": ["ok"]}[how] == statuses(turn)


async def test_each_process_of_a_tool_has_a_session_and_a_group_of_its_own(tmp_path: Path) -> None:
    """J2: so the group of a call can be killed, and neither a sibling's nor ours is."""
    told = [tmp_path / name for name in ("a", "b")]

    @tool(safe_parallel=True)
    async def report(ctx: CallContext, name: str) -> None:
        script = f"ps -o pid=,pgid=,sid= -p $$ >tmp{name}; mv tmp{name} {name}; sleep 60 & wait"
        await ctx.run_process(sh(script), cwd=tmp_path)

    dispatcher = Dispatcher([report], grace=2.0)
    first = asyncio.create_task(dispatcher.run(calls(("report", {"name": "a"}))))
    second = asyncio.create_task(dispatcher.run(calls(("report", {"name": "b"}))))
    await until(lambda: all(file.exists() for file in told))
    numbers = [{int(number) for number in file.read_text().split()} for file in told]
    ours = {os.getpgrp(), os.getsid(0)}
    assert [1, 1] == [len(process_group_session) for process_group_session in numbers]
    assert [True] * 3 == [numbers[0] != numbers[1], *(ours.isdisjoint(each) for each in numbers)]
    assert ["cancelled"] == statuses(await cancelled(first))
    assert numbers[1] == set(processes_in(tmp_path).values())
    assert ["cancelled"] == statuses(await cancelled(second))
    assert {} == processes_in(tmp_path)


FATAL = [ValueError, MemoryError, asyncio.CancelledError, KeyboardInterrupt, SystemExit]


@pytest.mark.parametrize("fatal", FATAL)
@pytest.mark.parametrize("by", ["claim", "hold"])
def test_a_lock_is_free_as_soon_as_its_call_has_failed(by: str, fatal: type[BaseException]) -> None:
    """J4: another turn waits for the key of a call that fails at 1 s, beside a sibling of a minute;
    it goes on at 1 s, and so does the next turn."""
    table = ResourceTable()

    @tool(name="fail", writes="key:session")
    async def claim() -> None:
        await asyncio.sleep(1)
        raise fatal

    @tool(name="fail", safe_parallel=True)
    async def hold() -> None:
        async with table.hold(write("key", "session")):
            await asyncio.sleep(1)
            raise fatal

    @tool(safe_parallel=True)
    async def sibling() -> None:
        await asyncio.sleep(60)

    @tool(writes="key:session")
    async def use() -> None: ...

    async def main() -> list[float | None]:
        dispatcher = Dispatcher([claim if by == "claim" else hold, sibling], resources=table)
        first = asyncio.create_task(_ended(dispatcher.run(calls(("fail", {}), ("sibling", {})))))
        await asyncio.sleep(0.5)
        other = Dispatcher([use], resources=table)
        turns = [await other.run(calls(("use", {}))) for _ in range(2)]
        await first
        return [turn[0].started_at for turn in turns]

    assert [1.0, 1.0] == run_in_virtual_time(main())
    assert 0 == table.statistics().held


async def _ended(turn: Coroutine[object, object, TurnResult]) -> None:
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        await turn


class Meets:
    """A layer that blocks until three calls are in it, in a thread as a blocking layer must."""

    meeting: threading.Barrier

    def __init__(self, following: Handler) -> None:
        self.following = following

    async def __call__(self, call: ToolCall, context: CallContext) -> object:
        await asyncio.to_thread(self.meeting.wait, 10)
        return await self.following(call, context)


async def test_blocking_work_around_async_tools_runs_side_by_side() -> None:
    """M2: three calls below a layer that blocks, and three `def` tools that wrap async ones: each
    three are inside at once, so all take as long as one."""
    Meets.meeting = threading.Barrier(3)
    inside, everybody = 0, asyncio.Event()

    @tool(safe_parallel=True)
    async def work() -> str:
        nonlocal inside
        inside += 1
        if inside == 3:
            everybody.set()
        await everybody.wait()
        return "done"

    @tool(safe_parallel=True)
    def wrap() -> object:
        return inner.run_sync(calls(("work", {})))[0].value

    inner = Dispatcher([work])
    wrapped = await Dispatcher([wrap]).run(calls(*([("wrap", {})] * 3)), timeout=10)
    assert ["done"] * 3 == [result.value for result in wrapped]
    below = await Dispatcher([work], middleware=[Meets]).run(calls(*([("work", {})] * 3)))
    assert ["done"] * 3 == [result.value for result in below]


class Blocks:
    def __init__(self, following: Handler) -> None:
        self.following = following

    def __call__(self, call: ToolCall, context: CallContext) -> object:
        raise AssertionError("it would block the loop")


def test_a_layer_that_would_block_the_loop_is_refused() -> None:
    """M2: a plain `def` around async tools runs on the loop, so it is an error from the start."""
    with pytest.raises(DeclarationError, match="async def"):
        Dispatcher([], middleware=[Blocks])  # type: ignore[list-item]


class Late:
    """A tool that does not stop: it answers once it is released, which is during the next turn."""

    def __init__(self) -> None:
        self.released, self.told = threading.Event(), threading.Event()
        self.events: list[CallEvent] = []

    def see(self, event: Event) -> None:
        """Keep it, and note that what came late was told."""
        if isinstance(event, CallEvent):
            self.events.append(event)
            if event.state == "late":
                self.told.set()

    async def on_the_loop(self, ctx: CallContext) -> str:
        ctx.progress("early output")
        while not self.released.is_set():
            try:
                await asyncio.sleep(0.002)
            except asyncio.CancelledError:
                continue
        ctx.progress("late progress")
        return "late output"

    def in_a_thread(self, ctx: CallContext) -> str:
        ctx.progress("early output")
        self.released.wait(15)
        ctx.progress("late progress")
        return "late output"

    def release(self) -> str:
        """The tool of the next turn: runs until the late output has come."""
        self.released.set()
        return "second" if self.told.wait(15) else "nothing came late"


@pytest.mark.parametrize("kind", ["on_the_loop", "in_a_thread"])
@pytest.mark.parametrize("how", ["limit", "cancel"])
async def test_late_output_is_in_no_result_of_this_or_the_next_turn(how: str, kind: str) -> None:
    """Q4: it comes while the next turn runs, whose calls have the same ids: it is told as late, of
    its own turn, and dropped. No result is empty, so nothing needs to be invented."""
    late = Late()
    act = Tool("act", getattr(late, kind), safe_parallel=True)
    release = Tool("release", late.release, safe_parallel=True)
    dispatcher = Dispatcher([act, release], grace=0.05, sinks=[late.see])
    call = ToolCall("c0", "act", {}, timeout=0.1 if how == "limit" else None)
    running = asyncio.create_task(dispatcher.run([call], turn_id="first"))
    await until(lambda: any(event.state == "progress" for event in late.events))
    first = await (running if how == "limit" else cancelled(running))
    before = first[0].content()
    second = await dispatcher.run([ToolCall("c0", "release", {})], turn_id="second")
    assert ["second"] == [result.content() for result in second]
    assert [(Status.UNKNOWN, None)] == [(result.status, result.value) for result in first]
    assert before == first[0].content()
    assert (True, False) == ("early output" in before, "late " in before)
    assert [("first", 0)] == [(e.turn_id, e.index) for e in late.events if e.state == "late"]


PIN: ContextVar[Path] = ContextVar("pin")


class Agents:
    """Two agents that pin a folder each, at the same time; one of them lets go while both work."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.both_in, self.one_out = threading.Barrier(2), threading.Event()
        tools: list[Callable[..., object]] = [self.pin, self.pin_in_a_thread, self.folder]
        self.tools = [Tool(each.__name__, each, safe_parallel=True) for each in tools]
        self.turn = calls(("pin", {}), ("pin_in_a_thread", {}), ("folder", {}))

    async def work(self, ctx: CallContext, name: str) -> list[str]:
        """Pin a folder, wait until the other has pinned its own, and see what own calls see."""
        PIN.set(self.root / name)
        await asyncio.to_thread(self.both_in.wait, 10)
        if name == "Q":
            PIN.set(self.root)
            self.one_out.set()
        await asyncio.to_thread(self.one_out.wait, 10)
        return [str(result.value) for result in await ctx.run(self.turn)]

    def work_in_a_thread(self, ctx: CallContext, name: str) -> list[str]:
        """The same from a `def` tool."""
        PIN.set(self.root / name)
        self.both_in.wait(10)
        if name == "Q":
            PIN.set(self.root)
            self.one_out.set()
        self.one_out.wait(10)
        return [str(result.value) for result in ctx.run_sync(self.turn)]

    async def pin(self) -> Path:
        return PIN.get()

    def pin_in_a_thread(self) -> Path:
        return PIN.get()

    async def folder(self, ctx: CallContext) -> str:
        return (await ctx.run_process(["pwd"], cwd=PIN.get())).output.strip()


@pytest.mark.parametrize("kind", ["work", "work_in_a_thread"])
async def test_isolation_is_of_the_call_that_entered_it(tmp_path: Path, kind: str) -> None:
    """S4: P and Q enter at once, then Q leaves: all that P nests, in tasks, threads and processes,
    is still at P, and the host is where it was."""
    (tmp_path / "P").mkdir()
    agents = Agents(tmp_path)
    enter = Tool("enter", getattr(agents, kind), safe_parallel=True)
    before = Path.cwd()
    turn: TurnResult = await Dispatcher([enter, *agents.tools]).run(
        calls(("enter", {"name": "P"}), ("enter", {"name": "Q"})), timeout=15
    )
    assert [[str(tmp_path / "P")] * 3, [str(tmp_path)] * 3] == [result.value for result in turn]
    assert (before, None) == (Path.cwd(), PIN.get(None))
