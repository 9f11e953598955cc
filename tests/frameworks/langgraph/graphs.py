"""Graphs with a scripted model, and dispatch in them by either way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode, tools_condition

from dispatch import ToolConcurrency
from dispatch.adapters.langgraph import DispatchMiddleware, DispatchToolNode

FREE = ToolConcurrency(safe_parallel=True)
FILE = ToolConcurrency(writes="file:{path}")
THREAD: Any = {"configurable": {"thread_id": "one"}}

Asked = tuple[str, Mapping[str, Any]]
Graph = Any
"""A compiled graph; its type has more parameters than these tests care for."""


class ScriptedModel(GenericFakeChatModel):
    """Says what it is given, whatever the tools are."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def asks(*calls: Asked, first: int = 0) -> AIMessage:
    """A model's message with these calls; their ids are c0, c1, … in intent order."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": dict(arguments), "id": f"c{index}"}
            for index, (name, arguments) in enumerate(calls, start=first)
        ],
    )


def scripted(*steps: AIMessage) -> ScriptedModel:
    """A model that says these one after the other, then "done"."""
    return ScriptedModel(messages=iter([*steps, AIMessage("done")]))


def node_graph(
    node: ToolNode, message: AIMessage | None = None, state: Any = MessagesState, **compiled: Any
) -> Graph:
    """A graph of a model that says the message, then "done", and the node; or of the node alone."""
    builder = StateGraph(state)
    builder.add_node("tools", node)
    if message is None:
        builder.add_edge(START, "tools")
        return builder.compile(**compiled)
    steps = [message, AIMessage("done")]

    def model(state: Any) -> dict[str, Any]:
        said = sum(isinstance(one, AIMessage) for one in state["messages"])
        return {"messages": [steps[said]]}

    builder.add_node("model", model)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(**compiled)


def node_with_model(model: Any, node: ToolNode, tools: Sequence[Any], **compiled: Any) -> Graph:
    """A graph of a real model and the node; the history is put in order if it is one of ours."""
    bound = model.bind_tools(tools)

    def closed(state: Any) -> list[AnyMessage]:
        messages: list[AnyMessage] = state["messages"]
        if isinstance(node, DispatchToolNode):
            return node.close_open_calls(messages)
        return messages

    def ask(state: Any) -> dict[str, Any]:
        messages = closed(state)
        said = bound.invoke(messages)
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *messages, said]}

    async def aask(state: Any) -> dict[str, Any]:
        messages = closed(state)
        said = await bound.ainvoke(messages)
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *messages, said]}

    builder = StateGraph(MessagesState)
    asking: Any = RunnableLambda(ask, aask)
    builder.add_node("model", asking)
    builder.add_node("tools", node)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(**compiled)


def built(tools: Sequence[Any], message: AIMessage, saver: str, **options: Any) -> Graph:
    """A graph of a node with these tools; `saver` says whether what is done is kept."""
    keeper = InMemorySaver() if saver == "saved" else None
    store = options.pop("store", None)
    return node_graph(DispatchToolNode(tools, **options), message, checkpointer=keeper, store=store)


def dispatched(
    way: str,
    message: AIMessage,
    tools: Sequence[BaseTool],
    *,
    saved: bool = False,
    agent: Mapping[str, Any] | None = None,
    node: Mapping[str, Any] | None = None,
    **options: Any,
) -> Graph:
    """A graph whose model says the message, and whose tools run through dispatch by this way."""
    checkpointer = InMemorySaver() if saved else None
    if way == "node":
        tool_node = DispatchToolNode(tools, **{**(node or {}), **options})
        return node_graph(tool_node, message, checkpointer=checkpointer)
    given = dict(agent or {})
    middleware = [*given.pop("middleware", ()), DispatchMiddleware(**options)]
    return create_agent(
        scripted(message), list(tools), middleware=middleware, checkpointer=checkpointer, **given
    )


async def run(graph: Graph, **config: Any) -> dict[str, Any]:
    """The state at the end of one run from the start."""
    state: dict[str, Any] = await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
    return state


def answers(state: Mapping[str, Any] | Sequence[AnyMessage]) -> list[tuple[str, str, Any]]:
    """What the model was told of its calls: id, status and content, in the order told."""
    messages = state["messages"] if isinstance(state, Mapping) else state
    return [
        (message.tool_call_id, message.status, message.content)
        for message in messages
        if isinstance(message, ToolMessage)
    ]


class Meeting:
    """Lets nobody on before `parties` have come: proof that so many run at once."""

    def __init__(self, parties: int) -> None:
        self._barrier = asyncio.Barrier(parties)

    async def join(self) -> None:
        """Wait for the others."""
        await self._barrier.wait()


class Overlap:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.peak = max(self.peak, self.now)

    async def __aexit__(self, *_: object) -> None:
        self.now -= 1


async def some_steps(count: int = 20) -> None:
    """Let everything else go on."""
    for _ in range(count):
        await asyncio.sleep(0)
