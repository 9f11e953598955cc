"""What pydantic-ai does by itself, as the documentation says; a new version may change it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, capture_run_messages

from tests.frameworks.pydantic_ai.agents import Overlap, answers, asks, scripted, some_steps


async def test_all_calls_start_at_once() -> None:
    """Fifty calls of a turn are in flight together; results are in the model's order."""
    overlap = Overlap()

    async def work(n: int) -> int:
        async with overlap:
            await some_steps(3)
        return n

    turn = asks(*[("work", {"n": n}) for n in range(50)])
    told = answers(await Agent(scripted(turn), tools=[work]).run("go"))
    assert 50 == overlap.peak
    assert list(range(50)) == [content for _, _, content in told]


async def test_updates_are_lost() -> None:
    """T1: ten increments of a shared counter end at one, and say that all went well."""
    counter = [0]

    async def increment() -> str:
        value = counter[0]
        await some_steps(3)
        counter[0] = value + 1
        return "ok"

    turn = asks(*[("increment", {})] * 10)
    told = answers(await Agent(scripted(turn), tools=[increment]).run("go"))
    assert [1] == counter
    assert ["ok"] * 10 == [content for _, _, content in told]


async def test_an_exception_ends_the_run() -> None:
    """G1: one call that raises ends the run; siblings are cancelled, finished ones are kept."""
    seen = []

    async def quick() -> str:
        return "ok"

    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    async def fails() -> str:
        await some_steps()
        raise LookupError("no match")

    agent = Agent(
        scripted(asks(("quick", {}), ("slow", {}), ("fails", {}))), tools=[quick, slow, fails]
    )
    with capture_run_messages() as messages, pytest.raises(LookupError):
        await agent.run("go")
    assert ["cancelled"] == seen
    assert [("c0", "success", "ok")] == answers(messages)


async def test_a_cancelled_run_leaves_its_threads_behind() -> None:
    """A cancelled run returns while a `def` tool goes on, and writes after the end of the run."""
    loop = asyncio.get_running_loop()
    started = asyncio.Event()
    release, written = threading.Event(), threading.Event()

    def write() -> str:
        loop.call_soon_threadsafe(started.set)
        assert release.wait(15)
        written.set()
        return "late"

    running = asyncio.create_task(Agent(scripted(asks(("write", {}))), tools=[write]).run("go"))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not written.is_set()
    release.set()
    assert await asyncio.to_thread(written.wait, 15)


async def test_a_retry_runs_beside_the_thread_that_was_timed_out() -> None:
    """After its time limit a `def` tool goes on, and the model's next try overlaps it."""
    release = threading.Event()
    inside: list[int] = []
    peaks: list[int] = []

    toolset = FunctionToolset[Any]()

    @toolset.tool_plain(timeout=0.05)
    def edit() -> str:
        inside.append(1)
        peaks.append(len(inside))
        if len(peaks) == 2:
            release.set()
        assert release.wait(15)
        inside.pop()
        return "edited"

    agent = Agent(scripted(asks(("edit", {})), asks(("edit", {}), first=1)), toolsets=[toolset])
    told = answers(await agent.run("go"))
    assert ["retried", "success"] == [outcome for _, outcome, _ in told]
    assert [1, 2] == peaks


async def test_runs_know_nothing_of_each_other() -> None:
    """Two runs of one agent are inside one sequential tool at the same time."""
    overlap = Overlap()

    async def alone() -> str:
        async with overlap:
            await some_steps(5)
        return "ok"

    toolset = FunctionToolset[Any]()
    toolset.add_function(alone, sequential=True)
    agent = Agent(scripted(asks(("alone", {}))), toolsets=[toolset])
    await asyncio.gather(agent.run("go"), agent.run("go"))
    assert 2 == overlap.peak


async def test_a_cancelled_run_keeps_what_is_finished() -> None:
    """D2: what was finished stays in the history; `async def` tools are cancelled and awaited."""
    hangs = asyncio.Event()
    seen = []

    async def quick() -> str:
        return "ok"

    async def hang() -> str:
        try:
            hangs.set()
            await asyncio.Event().wait()
        finally:
            await some_steps()
            seen.append("cleaned up")
        return "never"

    agent = Agent(scripted(asks(("quick", {}), ("hang", {}))), tools=[quick, hang])
    with capture_run_messages() as messages:
        running = asyncio.create_task(agent.run("go"))
        await hangs.wait()
        await some_steps()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert ["cleaned up"] == seen
    assert [("c0", "success", "ok")] == answers(messages)


async def test_a_sequential_tool_is_a_barrier() -> None:
    """U3: it starts when all calls before it have ended, and those behind it when it has."""
    story = []

    async def act(n: int) -> None:
        story.append(f"+{n}")
        await some_steps(5)
        story.append(f"-{n}")

    async def alone() -> None:
        story.append("+alone")
        await some_steps(5)
        story.append("-alone")

    toolset = FunctionToolset[Any]([act])
    toolset.add_function(alone, sequential=True)
    numbers = [("act", {"n": n}) for n in range(4)]
    turn = asks(*numbers[:2], ("alone", {}), *numbers[2:])
    await Agent(scripted(turn), toolsets=[toolset]).run("go")
    assert ["+0", "+1", "-0", "-1", "+alone", "-alone", "+2", "+3", "-2", "-3"] == story


def test_agents_and_loops_know_nothing_of_each_other() -> None:
    """Two agents with one sequential tool, in two event loops, are inside it at the same time."""
    both = threading.Barrier(2)

    async def alone() -> str:
        await asyncio.to_thread(both.wait, 10)
        return "ok"

    toolset = FunctionToolset[Any]()
    toolset.add_function(alone, sequential=True)

    def run() -> list[Any]:
        agent = Agent(scripted(asks(("alone", {}))), toolsets=[toolset])
        return answers(asyncio.run(agent.run("go")))

    with ThreadPoolExecutor(2) as pool:
        told = [one.result(15) for one in [pool.submit(run), pool.submit(run)]]
    assert [[("c0", "success", "ok")]] * 2 == told
