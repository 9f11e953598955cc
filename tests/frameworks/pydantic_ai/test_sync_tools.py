"""`def` tools: in threads of their own, off the loop, and true about when they have ended."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from pydantic_ai import FunctionToolset, ModelRetry

from dispatch import ResourceTable, write
from dispatch.runtime.threads import is_idle_worker
from tests.frameworks.pydantic_ai.agents import (
    CHECK,
    FILE,
    FREE,
    answers,
    asks,
    dispatched,
    scripted,
)

TENANT: ContextVar[str] = ContextVar("tenant_of_threads", default="nobody")


async def test_sync_tools_overlap_and_leave_the_loop_free(way: str) -> None:
    """M1: two blocking tools run side by side, and only the loop, going on, lets them end."""
    both_in = threading.Barrier(3)
    may_end = threading.Event()

    def block(n: int) -> int:
        both_in.wait(10)
        assert may_end.wait(10)
        return n

    async def ticker() -> None:
        await asyncio.to_thread(both_in.wait, 10)
        for _ in range(10):
            await asyncio.sleep(0)
        may_end.set()

    agent = dispatched(
        way,
        scripted(asks(("block", {"n": 0}), ("block", {"n": 1}))),
        [block],
        descriptors={"block": FREE},
    )
    ticking = asyncio.create_task(ticker())
    told = answers(await agent.run("go"))
    await ticking
    assert [("c0", "success", 0), ("c1", "success", 1)] == told


async def test_sync_tools_see_context_variables_and_leak_none(way: str) -> None:
    """M4: tools in threads see the caller's context variables; what one sets no other sees."""

    def who(name: str) -> str:
        seen = TENANT.get()
        TENANT.set(name)
        return seen

    agent = dispatched(way, scripted(asks(*[("who", {"name": name}) for name in "ab"])), [who])
    TENANT.set("acme")
    assert ["acme", "acme"] == [content for _, _, content in answers(await agent.run("go"))]
    assert "acme" == TENANT.get()


async def test_sync_tools_run_in_daemon_threads(way: str) -> None:
    """Their threads never keep a program from ending."""

    def where() -> bool:
        return threading.current_thread().daemon

    agent = dispatched(way, scripted(asks(("where", {}))), [where])
    assert [("c0", "success", True)] == answers(await agent.run("go"))


@pytest.mark.parametrize("error", [StopIteration, LookupError, ModelRetry], ids=str)
async def test_what_a_sync_tool_raises_is_told(way: str, error: type[Exception]) -> None:
    """Whatever a `def` tool raises is that call's failure, StopIteration too, and nothing hangs."""

    def find() -> str:
        raise error("nothing")

    agent = dispatched(way, scripted(asks(("find", {}))), [find])
    (told,) = answers(await agent.run("go"))
    assert ("c0", "retried" if error is ModelRetry else "failed") == told[:2]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_sync_tool_that_ends_the_program(way: str, error: type[BaseException]) -> None:
    """SystemExit and KeyboardInterrupt in a `def` tool end the program, and are never results."""

    def leave() -> str:
        raise error

    async def main() -> None:
        await dispatched(way, scripted(asks(("leave", {}))), [leave]).run("go")

    with pytest.raises(error):
        asyncio.run(main())


class Stuck:
    """A `def` tool that ends when the test lets it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.started = asyncio.Event()
        self.release = threading.Event()
        self.running = 0

    def edit(self, path: str) -> str:
        """Edit a file, without an end."""
        self.running += 1
        self.loop.call_soon_threadsafe(self.started.set)
        assert self.release.wait(15)
        self.running -= 1
        return path

    async def let_go(self) -> None:
        """End it some time after it started: later than limits of 0.05 s that began before."""
        await self.started.wait()
        self.loop.call_later(0.3, self.release.set)


async def test_a_cancelled_call_keeps_its_claims_while_its_thread_runs(way: str) -> None:
    """A cancelled run returns within two graces; nobody gets the file before the thread is back."""
    table = ResourceTable()
    stuck = Stuck()
    agent = dispatched(
        way,
        scripted(asks(("edit", {"path": "f"}))),
        [stuck.edit],
        descriptors={"edit": FILE},
        resources=table,
        grace=0.02,
    )
    running = asyncio.create_task(agent.run("go"))
    await stuck.started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert 1 == stuck.running
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), table.hold(write("file", "f")):
            pass
    stuck.release.set()
    async with asyncio.timeout(10), table.hold(write("file", "f")):
        assert 0 == stuck.running


async def test_a_call_that_the_host_timed_out_keeps_its_claims(way: str) -> None:
    """pydantic-ai's own time limit: the retry prompt is its own, the file stays taken.

    The next turn's edit of that file waits until the thread has returned.
    """
    stuck = Stuck()

    async def peek(path: str) -> str:
        return f"{stuck.running} running"

    toolset = FunctionToolset[Any]([peek])
    toolset.add_function(stuck.edit, timeout=0.05)
    agent = dispatched(
        way,
        scripted(asks(("edit", {"path": "f"})), asks(("peek", {"path": "f"}), first=1)),
        toolset,
        descriptors={"edit": FILE, "peek": FILE},
        grace=0.02,
    )
    _, result = await asyncio.gather(stuck.let_go(), agent.run("go"))
    told = answers(result)
    text = "Timed out after 0.05 seconds."
    assert [("c0", "retried", text), ("c1", "success", "0 running")] == told


async def test_the_hosts_time_limit_is_told_while_the_thread_still_runs(way: str) -> None:
    """The model gets its retry prompt after the grace, not only when the thread has returned."""
    stuck = Stuck()
    toolset = FunctionToolset[Any]()
    toolset.add_function(stuck.edit, timeout=0.05)
    agent = dispatched(way, scripted(asks(("edit", {"path": "f"}))), toolset, grace=0.02)
    told = answers(await agent.run("go"))
    assert 1 == stuck.running
    stuck.release.set()
    assert [("c0", "retried", "Timed out after 0.05 seconds.")] == told


async def test_a_time_limit_of_dispatch_on_a_thread(way: str) -> None:
    """A `def` tool that outlives dispatch's limit is given up, and its result says so."""
    stuck = Stuck()
    agent = dispatched(
        way,
        scripted(asks(("edit", {"path": "f"}))),
        [stuck.edit],
        descriptors={"edit": FILE},
        call_timeout=0.05,
        grace=0.02,
    )
    told = answers(await agent.run("go"))
    assert 1 == stuck.running
    stuck.release.set()
    assert ("c0", "failed") == told[0][:2]
    assert "may still be running" in told[0][2]


async def test_a_thread_that_returns_in_time_ends_its_call(way: str) -> None:
    """A call whose thread returns within the graces is timed out, and its claims are free."""
    table = ResourceTable()
    stuck = Stuck()
    agent = dispatched(
        way,
        scripted(asks(("edit", {"path": "f"}))),
        [stuck.edit],
        descriptors={"edit": FILE},
        resources=table,
        call_timeout=0.05,
        grace=10.0,
    )
    _, result = await asyncio.gather(stuck.let_go(), agent.run("go"))
    told = answers(result)
    text = f"[timed_out] timed out after 0.05 s while running{CHECK}"
    assert [("c0", "failed", text)] == told
    async with asyncio.timeout(5), table.hold(write("file", "f")):
        pass


async def test_no_thread_is_left_busy(way: str) -> None:
    """After a run the threads of its tools are idle, and go by themselves."""

    def act(n: int) -> int:
        return n

    agent = dispatched(
        way, scripted(asks(*[("act", {"n": n}) for n in range(5)])), [act], undeclared="parallel"
    )
    await agent.run("go")
    mine = [one for one in threading.enumerate() if one.name.startswith("dispatch-pydantic-ai")]
    for _ in range(100):
        if all(is_idle_worker(one) for one in mine):
            break
        await asyncio.sleep(0.01)
    assert mine
    assert all(is_idle_worker(one) for one in mine)


@pytest.mark.parametrize("end", ["cancelled", "left running"])
def test_a_stuck_thread_does_not_hold_up_the_end_of_a_loop(way: str, end: str) -> None:
    """K9: asyncio.run returns though a tool's thread, which is a daemon, does not."""
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def stuck() -> None:
        started.set()
        release.wait(60)
        ended.set()

    async def main() -> None:
        agent = dispatched(way, scripted(asks(("stuck", {}))), [stuck], grace=0.05)
        running = asyncio.create_task(agent.run("go"))
        await asyncio.to_thread(started.wait)
        if end == "cancelled":
            running.cancel()
            await asyncio.wait({running})

    asyncio.run(main())
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)
