"""`DispatchToolNode` and `DispatchMiddleware` with the real clients, whole and streamed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, tool

from dispatch.adapters.langgraph import DispatchMiddleware, DispatchToolNode
from tests.frameworks.langgraph.graphs import (
    FILE,
    Graph,
    Overlap,
    answers,
    node_with_model,
    some_steps,
)
from tests.frameworks.langgraph.models import WIRES, chat_model
from tests.providers import Call, Step, serve


def graph_of(way: str, model: Any, tools: list[BaseTool], **options: Any) -> Graph:
    """A graph with a real client."""
    if way == "agent":
        return create_agent(model, tools, middleware=[DispatchMiddleware(**options)])
    return node_with_model(model, DispatchToolNode(tools, **options), tools)


GO: Any = {"messages": [HumanMessage("go", id="go")]}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_a_message_of_three_edits(way: str, wire: str, streaming: bool) -> None:
    """A2, D1: three edits of one file are all there, and are answered once each, in order."""
    files, overlap = {"a": ""}, Overlap()

    @tool
    async def edit(path: str, word: str) -> str:
        """Add a word."""
        async with overlap:
            text = files[path]
            await some_steps()
            files[path] = f"{text}{word} "
        return f"added {word}"

    calls = [Call("edit", {"path": "a", "word": word}) for word in ("one", "two", "three")]
    with serve([Step("let me", calls=tuple(calls)), Step("done")]) as server:
        model = chat_model(wire, server.url, streaming=streaming)
        state = await graph_of(way, model, [edit], descriptors={"edit": FILE}).ainvoke(GO)
        assert 2 == len(server.requests)
    told = [content for _, _, content in answers(state)]
    assert ["added one", "added two", "added three"] == told
    assert {"a": "one two three "} == files
    assert 1 == overlap.peak
    assert "done" == state["messages"][-1].text


@pytest.mark.parametrize("wire", ["anthropic", "chat"])
async def test_equal_turns_are_sent_as_equal_bytes(way: str, wire: str) -> None:
    """D7: the same turn under ten timings: ten times the same bytes of the next request."""
    count = 5
    calls = tuple(Call("work", {"at": at}) for at in range(count))

    async def sent(order: list[int]) -> bytes:
        gates, ended = [asyncio.Event() for _ in order], list[int]()

        @tool
        async def work(at: int) -> dict[str, int]:
            """Wait for its place, in this order of ends."""
            place = order.index(at)
            if place:
                await gates[order[place - 1]].wait()
            ended.append(at)
            gates[at].set()
            return {"b": at, "a": 1}

        with serve([Step(calls=calls), Step("done")]) as server:
            graph = graph_of(way, chat_model(wire, server.url), [work], undeclared="parallel")
            await graph.ainvoke(GO)
            assert order == ended
            return server.requests[1]

    orders = [random.Random(seed).sample(range(count), count) for seed in range(10)]
    assert 9 <= len({tuple(order) for order in orders})
    assert 1 == len({await sent(order) for order in orders})
