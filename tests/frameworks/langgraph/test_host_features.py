"""What a `ToolNode` gives its tools and takes from them, unchanged by dispatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config, get_store, get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from dispatch.adapters.langgraph import DispatchToolNode
from tests.frameworks.langgraph.graphs import (
    THREAD,
    answers,
    asks,
    built,
    run,
)


@tool
async def good(x: int) -> str:
    """Work."""
    return f"real {x}"


async def test_state_store_id_and_runtime_are_injected(saver: str) -> None:
    """InjectedState, InjectedStore, InjectedToolCallId and ToolRuntime arrive as with ToolNode."""

    @tool
    async def everything(
        x: int,
        messages: Annotated[list[Any], InjectedState("messages")],
        store: Annotated[BaseStore, InjectedStore()],
        call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime,
    ) -> str:
        """Tell what has come."""
        item = await store.aget(("notes",), "a")
        assert runtime.state["messages"] == messages
        assert runtime.tool_call_id == call_id
        assert runtime.store is store
        assert get_store() is store
        return f"{x} {len(messages)} {item.value['text'] if item else ''} {call_id}"

    store = InMemoryStore()
    store.put(("notes",), "a", {"text": "kept"})
    message = asks(("everything", {"x": 1}), ("everything", {"x": 2}))
    graph = built([everything], message, saver, store=store)
    told = [content for _, _, content in answers(await run(graph, **THREAD))]
    assert ["1 2 kept c0", "2 2 kept c1"] == told


async def test_a_model_cannot_forge_what_is_injected(saver: str) -> None:
    """An argument of the model with the name of an injected one is dropped."""

    @tool
    async def look(messages: Annotated[list[Any], InjectedState("messages")]) -> str:
        """Count."""
        return f"{len(messages)}"

    graph = built([look], asks(("look", {"messages": []})), saver)
    assert [("c0", "success", "2")] == answers(await run(graph, **THREAD))


@pytest.mark.parametrize("by", ["writer", "runtime"])
async def test_tools_write_to_the_stream(saver: str, by: str) -> None:
    """What tools write with either stream writer comes out of `custom` as it is written."""

    @tool
    async def tell(x: int, runtime: ToolRuntime) -> str:
        """Tell."""
        write = get_stream_writer() if by == "writer" else runtime.stream_writer
        write({"progress": x})
        return "told"

    graph = built([tell], asks(("tell", {"x": 1}), ("tell", {"x": 2})), saver)
    given: Any = {"messages": []}
    told = [one async for one in graph.astream(given, THREAD, stream_mode="custom")]
    assert [{"progress": 1}, {"progress": 2}] == told


def test_tools_write_to_the_stream_of_a_run_without_a_loop(saver: str) -> None:
    """The same with `stream`, from a thread."""

    @tool
    def tell(x: int) -> str:
        """Tell."""
        get_stream_writer()({"progress": x})
        return "told"

    graph = built([tell], asks(("tell", {"x": 1}), ("tell", {"x": 2})), saver)
    given: Any = {"messages": []}
    told = list(graph.stream(given, THREAD, stream_mode="custom"))
    assert [{"progress": 1}, {"progress": 2}] == told


async def test_messages_come_out_once_each(saver: str) -> None:
    """`messages` streams each answer once, under the name of the node."""
    graph = built([good], asks(("good", {"x": 1}), ("good", {"x": 2})), saver)
    given: Any = {"messages": []}
    told = [
        (meta["langgraph_node"], message.tool_call_id)
        async for message, meta in graph.astream(given, THREAD, stream_mode="messages")
        if isinstance(message, ToolMessage)
    ]
    assert [("tools", "c0"), ("tools", "c1")] == told


class Heard(AsyncCallbackHandler):
    """Notes which tools began and ended."""

    def __init__(self) -> None:
        self.story: list[str] = []

    async def on_tool_start(self, serialized: Any, input_str: str, **rest: Any) -> None:
        self.story.append(f"start {serialized['name']}")

    async def on_tool_end(self, output: Any, **rest: Any) -> None:
        self.story.append(f"end {output.tool_call_id}")


async def test_config_and_callbacks_reach_the_tools(saver: str) -> None:
    """Tools see the run's config, by parameter and by `get_config`; callbacks hear of each once."""

    @tool
    async def who(config: RunnableConfig) -> str:
        """Tell."""
        assert get_config()["configurable"]["user"] == config["configurable"]["user"]
        return f"{config['configurable']['user']} {config['metadata']['langgraph_node']}"

    heard = Heard()
    config = {**THREAD["configurable"], "user": "ann"}
    graph = built([who], asks(("who", {})), saver)
    state = await run(graph, configurable=config, callbacks=[heard])
    assert [("c0", "success", "ann tools")] == answers(state)
    assert ["start who", "end c0"] == heard.story


@dataclass
class Context:
    """What is the same for a whole run."""

    tenant: str


async def test_the_runs_context_reaches_the_tools(saver: str) -> None:
    """`ToolRuntime.context` is what the run was given."""

    @tool
    async def who(runtime: ToolRuntime[Context]) -> str:
        """Tell."""
        return runtime.context.tenant

    builder = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("tools", DispatchToolNode([who]))
    builder.add_edge(START, "tools")
    graph = builder.compile(checkpointer=InMemorySaver() if saver == "saved" else None)
    given: Any = {"messages": [asks(("who", {}))]}
    state = await graph.ainvoke(given, THREAD, context=Context("acme"))
    assert [("c0", "success", "acme")] == answers(state)
