"""What LangGraph does by itself, so that the page that says so stays true."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, interrupt

from tests.frameworks.langgraph.graphs import (
    THREAD,
    Graph,
    Overlap,
    answers,
    asks,
    node_graph,
    run,
    scripted,
    some_steps,
)


def plain(way: str, message: AIMessage, *tools: BaseTool, **options: Any) -> Graph:
    """A graph without dispatch."""
    keeper = InMemorySaver()
    if way == "agent":
        return create_agent(scripted(message), list(tools), checkpointer=keeper)
    return node_graph(ToolNode(tools, **options), message, checkpointer=keeper)


@pytest.mark.parametrize(("way", "peak"), [("node", 20), ("agent", 2)])
async def test_the_bound_is_ignored_by_the_async_node(way: str, peak: int) -> None:
    """L3: with `max_concurrency=2` the async ToolNode runs all at once; create_agent runs two."""
    overlap = Overlap()

    @tool
    async def work(x: int) -> str:
        """Count."""
        async with overlap:
            await some_steps()
        return f"{x}"

    message = asks(*[("work", {"x": at}) for at in range(20)])
    state = await run(plain(way, message, work), **THREAD, max_concurrency=2)
    assert [f"{at}" for at in range(20)] == [content for _, _, content in answers(state)]
    assert peak == overlap.peak


async def test_two_edits_lose_one(way: str) -> None:
    """A2: read, wait, write by two calls at once: one of the two edits is gone."""
    files = {"a": "one two"}

    @tool
    async def edit(old: str) -> str:
        """Replace."""
        text = files["a"]
        await some_steps()
        files["a"] = text.replace(old, old.upper())
        return "edited"

    message = asks(("edit", {"old": "one"}), ("edit", {"old": "two"}))
    state = await run(plain(way, message, edit), **THREAD)
    assert ["edited", "edited"] == [content for _, _, content in answers(state)]
    assert "ONE TWO" != files["a"]


@pytest.mark.parametrize(("way", "goes_on", "kept"), [("node", True, 0), ("agent", False, 1)])
async def test_an_error_takes_the_results_and_leaves_the_others_running(
    way: str, goes_on: bool, kept: int
) -> None:
    """G4, G5: ToolNode loses what was done and leaves the rest running; create_agent does not."""
    began, let_go, effects = asyncio.Event(), asyncio.Event(), list[str]()

    @tool
    async def quick() -> str:
        """Be done."""
        return "done"

    @tool
    async def fatal() -> str:
        """Fail once the writer runs."""
        await began.wait()
        raise ValueError("fatal")

    @tool
    async def writer() -> str:
        """Write later."""
        began.set()
        await let_go.wait()
        effects.append("wrote")
        return "wrote"

    graph = plain(way, asks(("quick", {}), ("fatal", {}), ("writer", {})), quick, fatal, writer)
    with pytest.raises(ValueError, match="fatal"):
        await run(graph, **THREAD)
    let_go.set()
    await some_steps()
    assert goes_on == ("wrote" in effects)
    state = await graph.aget_state(THREAD)
    assert kept == len(answers(state.values))


@pytest.mark.parametrize(("way", "runs"), [("node", 2), ("agent", 1)])
async def test_what_is_finished_runs_again_after_a_cancel(way: str, runs: int) -> None:
    """H6: resumed after a cancel, ToolNode runs the whole batch again; create_agent does not."""
    running, ran = asyncio.Event(), list[str]()

    @tool
    async def write() -> str:
        """Write."""
        ran.append("write")
        return "wrote"

    @tool
    async def slow() -> str:
        """Be cancelled the first time."""
        if not running.is_set():
            await some_steps(50)
            running.set()
            await asyncio.Event().wait()
        return "slow"

    graph = plain(way, asks(("write", {}), ("slow", {})), write, slow)
    first = asyncio.ensure_future(run(graph, **THREAD))
    await running.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    state = await graph.ainvoke(None, THREAD)
    assert ["wrote", "slow"] == [content for _, _, content in answers(state)]
    assert runs == len(ran)


@pytest.mark.parametrize(("way", "ids"), [("node", 1), ("agent", 2)])
async def test_questions_of_parallel_calls(way: str, ids: int) -> None:
    """H6: the questions of two calls have one id in ToolNode, and an id each in create_agent."""

    @tool
    async def ask(x: int) -> str:
        """Ask."""
        return str(interrupt(f"{x}?"))

    state = await run(plain(way, asks(("ask", {"x": 1}), ("ask", {"x": 2})), ask), **THREAD)
    assert ids == len({one.id for one in state["__interrupt__"]})


async def test_a_call_that_hangs_holds_up_the_turn(way: str) -> None:
    """D2: with one call done and one that hangs there is no answer of either, however long."""
    hanging = asyncio.Event()

    @tool
    async def quick() -> str:
        """Be done."""
        return "done"

    @tool
    async def hang() -> str:
        """Never end."""
        hanging.set()
        await asyncio.Event().wait()
        return "never"

    graph = plain(way, asks(("quick", {}), ("hang", {})), quick, hang)
    running = asyncio.ensure_future(run(graph, **THREAD))
    await hanging.wait()
    await some_steps(200)
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_later_call_sees_the_state_that_the_model_saw(way: str) -> None:
    """I: what an earlier call of the turn adds to the state, a later one does not see."""

    @tool
    async def add(call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Add a message."""
        said = [ToolMessage("added", tool_call_id=call_id)]
        return Command(update={"messages": said})

    @tool
    async def look(messages: Annotated[list[Any], InjectedState("messages")]) -> str:
        """Count."""
        await some_steps()
        return f"{len(messages)}"

    state = await run(plain(way, asks(("add", {}), ("look", {})), add, look), **THREAD)
    assert ["added", "2"] == [content for _, _, content in answers(state)]
