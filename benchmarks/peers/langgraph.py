"""LangGraph: its `ToolNode`, alone in a graph, starts all calls of a message at once.

Without a limit that matters the node gets the model's message. With one, the graph sends the node
each call by itself, as LangGraph's own agents do, because its `max_concurrency` counts steps of the
graph and the node does not look at it. Nothing says which calls may not overlap, and every run of
the graph counts for itself. No model takes part: what is timed is one run of a graph of one node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.types import Send
from pydantic import create_model

from benchmarks.peers.declaring import calls, missing, used
from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload


class LangGraph:
    """Runs each turn as one run of one graph."""

    name = "LangGraph ToolNode"
    distribution = "langgraph"

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Order, limits of a tool or a tag, everything between turns or before the last call."""
        limits = bool(workload.per_tool or workload.per_tag)
        return missing(workload, ("order", "limits", "turns", "arrivals"), limits=limits)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Write the model's messages; a graph of the same tools is compiled once."""
        workload = recording.workload
        most = max(map(len, workload.turns))
        limited = workload.limit is not None and workload.limit < most
        graph = _graph(frozenset(used(workload)), one_by_one=limited)
        config = RunnableConfig(max_concurrency=workload.limit)
        messages = [_message(workload, turn) for turn in range(len(workload.turns))]

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            asked = {"messages": [messages[index]]}
            state = await graph.ainvoke(asked, config, context=recording)
            return [reply.text for reply in state["messages"] if isinstance(reply, ToolMessage)]

        async def run() -> Answers:
            recording.start()
            return await asyncio.gather(*(turn(index) for index in range(len(messages))))

        yield run


@cache
def _graph(
    names: frozenset[str], *, one_by_one: bool
) -> CompiledStateGraph[Any, Recording, Any, Any]:
    graph = StateGraph(MessagesState, context_schema=Recording)
    graph.add_node("tools", ToolNode([_tool(name, KINDS[name]) for name in sorted(names)]))
    if one_by_one:
        graph.add_conditional_edges(START, _calls, ["tools"])
    else:
        graph.add_edge(START, "tools")
    return graph.compile()


async def _calls(state: MessagesState) -> list[Send]:
    return [Send("tools", [call]) for call in state["messages"][-1].tool_calls]


def _tool(name: str, kind: Kind) -> StructuredTool:
    fields: dict[str, Any] = dict.fromkeys((*kind.parameters, "job"), str)
    return StructuredTool.from_function(
        coroutine=_perform,
        name=name,
        description=kind.about or name,
        args_schema=create_model(name, **fields),
    )


async def _perform(job: str, runtime: ToolRuntime[Recording], **_: str) -> str:
    recording: Recording = runtime.context
    return await recording.perform(job)


def _message(workload: Workload, turn: int) -> AIMessage:
    asked = [
        {"type": "tool_call", "id": job, "name": tool, "args": arguments}
        for job, tool, arguments in calls(workload, turn)
    ]
    return AIMessage(content="", tool_calls=asked)
