"""Agents in tools, runs side by side, and several event loops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, ToolCallPart
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UsageLimitExceeded, UserError
from pydantic_ai.toolsets import CombinedToolset
from pydantic_ai.usage import UsageLimits

from dispatch import Quorum, ResourceTable
from dispatch.adapters.pydantic_ai import DispatchCapability, DispatchToolset
from tests.frameworks.pydantic_ai.agents import (
    FILE,
    FREE,
    Meeting,
    Overlap,
    answers,
    asks,
    dispatched,
    scripted,
    some_steps,
)


def editing(way: str, overlap: Overlap, **options: Any) -> Agent[Any, Any]:
    """An agent that edits one file twice in a turn."""

    async def edit(path: str) -> str:
        async with overlap:
            await some_steps(3)
        return path

    turn = asks(("edit", {"path": "f"}), ("edit", {"path": "f"}))
    return dispatched(way, scripted(turn), [edit], descriptors={"edit": FILE}, **options)


async def test_an_agent_in_a_tool_takes_nested_claims(way: str) -> None:
    """K5: an agent that a tool runs works though the tool holds everything; its calls are nested.

    Two such tools in one turn, with a slot for one call only, neither overlap nor deadlock.
    """
    overlap = Overlap()

    async def delegate(ctx: RunContext[Any]) -> str:
        result = await editing(way, overlap).run("go", usage=ctx.usage)
        return f"{len(answers(result))} edits"

    agent = dispatched(
        way, scripted(asks(("delegate", {}), ("delegate", {}))), [delegate], max_concurrent=1
    )
    told = answers(await agent.run("go"))
    assert [("c0", "success", "2 edits"), ("c1", "success", "2 edits")] == told
    assert 1 == overlap.peak


async def test_agents_in_tools_side_by_side(way: str) -> None:
    """Two subagents run at once; what they do with one file stays apart all the same."""
    overlap = Overlap()
    meeting = Meeting(2)

    async def delegate() -> str:
        await meeting.join()
        await editing(way, overlap).run("go")
        return "ok"

    agent = dispatched(
        way,
        scripted(asks(("delegate", {}), ("delegate", {}))),
        [delegate],
        descriptors={"delegate": FREE},
        max_concurrent=2,
    )
    told = answers(await agent.run("go"))
    assert [("c0", "success", "ok"), ("c1", "success", "ok")] == told
    assert 1 == overlap.peak


async def test_an_agent_in_a_tool_with_the_same_wrapper(way: str) -> None:
    """An agent may call itself: a turn of a turn of one and the same dispatcher."""

    async def countdown(n: int) -> str:
        if n == 0:
            return "0"
        model = scripted(asks(("countdown", {"n": n - 1})))
        result = await agent.run("go", model=model)
        return f"{n} {answers(result)[0][2]}"

    model = scripted(asks(("countdown", {"n": 3})))
    agent = dispatched(way, model, [countdown], max_concurrent=1)
    assert [("c0", "success", "3 2 1 0")] == answers(await agent.run("go"))


async def test_agents_nested_too_deep_are_told_so(way: str) -> None:
    """A recursion without an end becomes a failed result at max_depth, and nobody hangs."""

    async def again(n: int) -> str:
        model = scripted(asks(("again", {"n": n + 1})))
        return str(answers(await agent.run("go", model=model))[0][2])

    agent = dispatched(way, scripted(asks(("again", {"n": 0}))), [again], max_depth=4)
    (told,) = answers(await agent.run("go"))
    assert "nested 4 deep" in told[2]


async def test_run_sync_in_a_sync_tool_is_a_clear_error(way: str) -> None:
    """K5: pydantic-ai refuses run_sync in a tool with a UserError; dispatch lets it through."""

    def delegate() -> str:
        return str(editing(way, Overlap()).run_sync("go").output)

    agent = dispatched(way, scripted(asks(("delegate", {}))), [delegate])
    with pytest.raises(UserError, match="run_sync"):
        await agent.run("go")


async def test_a_limit_that_a_subagent_reaches_ends_the_run(way: str) -> None:
    """UsageLimitExceeded in a tool ends the run that shares the limit, as without dispatch."""

    async def delegate(ctx: RunContext[Any]) -> str:
        limits = UsageLimits(tool_calls_limit=1)
        await editing(way, Overlap()).run("go", usage=ctx.usage, usage_limits=limits)
        return "never"

    agent = dispatched(way, scripted(asks(("delegate", {}))), [delegate])
    with pytest.raises(UsageLimitExceeded):
        await agent.run("go")


async def test_a_subagent_that_fails_is_a_failed_call(way: str) -> None:
    """What a subagent's own model does wrong is that call's failure; its siblings go on."""

    async def delegate() -> str:
        turn = asks(*[("edit", {"odd": 1})] * 2)
        await editing(way, Overlap()).run("go", model=scripted(turn, turn))
        return "never"

    async def fine() -> str:
        return "fine"

    agent = dispatched(way, scripted(asks(("delegate", {}), ("fine", {}))), [delegate, fine])
    told = answers(await agent.run("go"))
    assert ("c0", "failed") == told[0][:2]
    assert "UnexpectedModelBehavior" in told[0][2]
    assert ("c1", "success", "fine") == told[1]


class Code:
    """A tool that calls another tool of its agent by the tool manager, as code execution does."""

    async def run_code(self, ctx: RunContext[Any]) -> str:
        """Run two edits."""
        assert ctx.tool_manager is not None
        calls = [ToolCallPart("edit", {"path": "f"}, f"inner{n}") for n in range(2)]
        done = await asyncio.gather(*[ctx.tool_manager.handle_call(call) for call in calls])
        return ", ".join(str(one) for one in done)


async def test_calls_that_a_tool_makes_of_its_own_agent_are_nested(way: str) -> None:
    """Tools that a tool calls by the run's tool manager do not wait for that tool."""
    overlap = Overlap()

    async def edit(path: str) -> str:
        async with overlap:
            await some_steps(3)
        return path

    agent = dispatched(
        way,
        scripted(asks(("run_code", {}), ("edit", {"path": "f"}))),
        [Code().run_code, edit],
        descriptors={"edit": FILE},
        max_concurrent=1,
    )
    told = answers(await agent.run("go"))
    assert [("c0", "success", "f, f"), ("c1", "success", "f")] == told
    assert 1 == overlap.peak


async def test_runs_of_one_agent_side_by_side(way: str) -> None:
    """Ten runs of one agent at once: turns are told apart, and no two edits overlap."""
    overlap = Overlap()
    agent = editing(way, overlap)
    results = await asyncio.gather(*[agent.run("go") for _ in range(10)])
    expected = [("c0", "success", "f"), ("c1", "success", "f")]
    assert [expected] * 10 == [answers(result) for result in results]
    assert 1 == overlap.peak


async def test_the_turns_of_two_runs_are_told_apart(way: str) -> None:
    """What one run's turn has reached ends no call of another run: each has its own quorum."""
    started, first_is_over = asyncio.Event(), asyncio.Event()

    async def search(ctx: RunContext[str], n: int) -> int:
        if ctx.deps == "second":
            started.set()
            await first_is_over.wait()
        return n

    agent = dispatched(
        way,
        scripted(asks(("search", {"n": 0}), ("search", {"n": 1}))),
        [search],
        agent={"deps_type": str},
        descriptors={"search": FREE},
        policy=Quorum(1),
        grace=0.02,
    )
    second = asyncio.create_task(agent.run("go", deps="second"))
    await started.wait()
    await agent.run("go", deps="first")
    first_is_over.set()
    assert ("c0", "success", 0) in answers(await second)


async def test_agents_that_share_a_table(way: str) -> None:
    """Two agents with one resource table keep apart; without one they do not know each other."""
    overlap = Overlap()
    table = ResourceTable()
    agents = [editing(way, overlap, resources=table) for _ in range(2)]
    await asyncio.gather(*[agent.run("go") for agent in agents])
    assert 1 == overlap.peak
    apart = [editing(way, overlap) for _ in range(2)]
    await asyncio.gather(*[agent.run("go") for agent in apart])
    assert 2 == overlap.peak


def test_one_agent_in_two_event_loops(way: str) -> None:
    """K6: one agent used from two loops in two threads: all are answered, and nothing overlaps."""
    inside = threading.Semaphore(1)
    overlapped: list[str] = []
    start = threading.Barrier(2)

    async def edit(path: str) -> str:
        if not inside.acquire(blocking=False):
            overlapped.append(path)
            return path
        await asyncio.sleep(0.002)
        inside.release()
        return path

    turn = asks(*[("edit", {"path": "f"})] * 5)
    agent = dispatched(way, scripted(turn), [edit], descriptors={"edit": FILE})
    told: list[Any] = []

    def use() -> None:
        start.wait(10)
        for _ in range(5):
            result = asyncio.run(run())
            told.append([outcome for _, outcome, _ in answers(result)])

    async def run() -> Any:
        return await agent.run("go")

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert [["success"] * 5] * 10 == told
    assert [] == overlapped


class PerRun(FunctionToolset[Any]):
    """A toolset that is another one in every run and every step, as dynamic toolsets are."""

    async def for_run(self, ctx: RunContext[Any]) -> PerRun:
        return PerRun(list(self.tools.values()))

    async def for_run_step(self, ctx: RunContext[Any]) -> PerRun:
        return PerRun(list(self.tools.values()))


async def test_the_wrapper_survives_being_replaced(way: str) -> None:
    """Toolsets that pydantic-ai replaces for each run and step keep one dispatcher around them."""
    overlap = Overlap()

    async def edit(path: str) -> str:
        async with overlap:
            await some_steps(3)
        return path

    steps = [asks(*[("edit", {"path": "f"})] * 2, first=2 * n) for n in range(2)]
    toolset = CombinedToolset([PerRun([edit]).renamed({"edit": "edit"})])
    agent = dispatched(way, scripted(*steps), toolset, descriptors={"edit": FILE})
    results = await asyncio.gather(*[agent.run("go") for _ in range(3)])
    assert [4, 4, 4] == [len(answers(result)) for result in results]
    assert 1 == overlap.peak


async def test_a_wrapper_inside_of_others() -> None:
    """The wrapper may stand below a prefix; names are then those of the toolset that it wraps."""
    overlap = Overlap()

    async def edit(path: str) -> str:
        async with overlap:
            await some_steps(3)
        return path

    toolset = DispatchToolset(FunctionToolset([edit]), descriptors={"edit": FILE}).prefixed("my")
    turn = asks(("my_edit", {"path": "f"}), ("my_edit", {"path": "f"}))
    result = await Agent(scripted(turn), toolsets=[toolset]).run("go")
    assert [("c0", "success", "f"), ("c1", "success", "f")] == answers(result)
    assert 1 == overlap.peak


async def test_a_capability_and_a_toolset_at_once() -> None:
    """Both together are one too many, and do no harm: the inner turn is nested in the call."""
    overlap = Overlap()

    async def edit(path: str) -> str:
        async with overlap:
            await some_steps(3)
        return path

    toolset = DispatchToolset(FunctionToolset([edit]), descriptors={"edit": FILE})
    capabilities: list[AbstractCapability[Any]] = [DispatchCapability(descriptors={"edit": FILE})]
    turn = asks(("edit", {"path": "f"}), ("edit", {"path": "f"}))
    agent = Agent(scripted(turn), toolsets=[toolset], capabilities=capabilities)
    assert ["f", "f"] == [content for _, _, content in answers(await agent.run("go"))]
    assert 1 == overlap.peak
