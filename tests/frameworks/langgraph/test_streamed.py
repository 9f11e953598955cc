"""What LangChain's own models make of odd streams, before dispatch sees their calls."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from dispatch.adapters.langgraph import DispatchMiddleware, DispatchToolNode
from tests.frameworks.langgraph.graphs import node_with_model, run
from tests.frameworks.langgraph.models import chat_model
from tests.providers import Call, Step, serve

CALLS = (Call("search", {"x": 1}), Call("search", {"x": 2}))
RIGHT = [("search", {"x": 1}), ("search", {"x": 2})]


def searching(ran: list[int]) -> BaseTool:
    """A tool that notes what it runs with."""

    @tool
    async def search(x: int) -> str:
        """Search."""
        ran.append(x)
        return f"found {x}"

    return search


@pytest.mark.parametrize(
    ("wire", "quirk", "calls"),
    [
        ("chat", "index0", RIGHT),
        ("chat", "interleaved", RIGHT),
        ("anthropic", "interleaved", RIGHT),
        ("anthropic", "object_arguments", RIGHT),
        ("chat", "cumulative", [("searchsearch", {"x": 1}), ("search", {"x": 2})]),
        ("responses", "announced_twice", [("search", {}), ("search", {})]),
    ],
)
async def test_what_langchain_reads(
    wire: str, quirk: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    """E1, E2, E3, E5, E8: LangChain's stream readers get some of these wrong by themselves."""
    with serve([Step(calls=CALLS, quirk=quirk)]) as server:
        model = chat_model(wire, server.url, streaming=True).bind_tools([searching([])])
        message = await model.ainvoke([HumanMessage("go")])
    assert calls == [(one["name"], one["args"]) for one in message.tool_calls]
    assert 2 == len({one["id"] for one in message.tool_calls})


@pytest.mark.parametrize(
    ("wire", "quirk", "runs"),
    [
        ("chat", "index0", [1, 2]),
        ("chat", "interleaved", [1, 2]),
        ("anthropic", "interleaved", [1, 2]),
        ("anthropic", "object_arguments", [1, 2]),
        ("chat", "cumulative", [2]),
        ("responses", "announced_twice", []),
        ("chat", "empty_ids", [1, 2]),
        ("anthropic", "empty_ids", [1, 2]),
        ("chat", "repeated_ids", [1, 2]),
        ("anthropic", "repeated_ids", [1, 2]),
    ],
)
async def test_what_langchain_read_runs_once_and_is_answered_once(
    way: str, wire: str, quirk: str, runs: list[int]
) -> None:
    """E1, E2, E3, E5, E6, E8: each call as it was read has one run and one answer on the wire."""
    ran: list[int] = []
    tools = [searching(ran)]
    with serve([Step(calls=CALLS, quirk=quirk), Step("done")]) as server:
        model = chat_model(wire, server.url, streaming=True)
        if way == "agent":
            ours = DispatchMiddleware(undeclared="parallel")
            graph = create_agent(model, tools, middleware=[ours])
        else:
            graph = node_with_model(model, DispatchToolNode(tools, undeclared="parallel"), tools)
        state = await run(graph, recursion_limit=12)
    assert "done" == state["messages"][-1].text
    assert 2 == sum(isinstance(one, ToolMessage) for one in state["messages"])
    assert runs == sorted(ran)


@pytest.mark.parametrize("wire", ["anthropic", "chat", "responses"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "whole"])
async def test_what_a_limit_cut_off_never_runs(way: str, wire: str, streaming: bool) -> None:
    """Guarantee 8: LangChain makes whole arguments of a call that was cut off; it is refused, and
    its siblings run."""
    ran: list[str] = []

    @tool
    async def note(text: str = "nothing") -> str:
        """Note it."""
        ran.append(text)
        return "noted"

    calls = (Call("note", {"text": "first"}), Call("note", {"text": "a long second text"}))
    with serve([Step(calls=calls, quirk="cut_off"), Step("done")]) as server:
        model = chat_model(wire, server.url, streaming=streaming)
        if way == "agent":
            ours = DispatchMiddleware(undeclared="parallel")
            graph = create_agent(model, [note], middleware=[ours])
        else:
            graph = node_with_model(model, DispatchToolNode([note], undeclared="parallel"), [note])
        state = await run(graph)
    assert ["first"] == ran
    told = [one.text for one in state["messages"] if isinstance(one, ToolMessage)]
    others = [text for text in told if text != "noted"]
    assert 1 == len(others)
    ways = ("may be cut off", "truncated", "could not be read")  # ours, the agent's, the repair's
    assert any(one in others[0] for one in ways)
