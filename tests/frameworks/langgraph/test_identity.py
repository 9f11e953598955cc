"""Cases E and T6: whose answer is whose, and the state that calls of one turn see."""

from __future__ import annotations

import operator
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState
from langgraph.prebuilt import InjectedState
from langgraph.types import Command

from dispatch import ToolConcurrency
from dispatch.adapters.langgraph import DispatchToolNode
from tests.frameworks.langgraph.graphs import (
    FILE,
    THREAD,
    answers,
    asks,
    dispatched,
    node_graph,
    run,
)


async def test_same_names_and_odd_ids_all_run(way: str) -> None:
    """E4: two calls of one tool both run, and each is answered with its own result."""

    @tool
    async def search(what: str) -> str:
        """Search."""
        return f"found {what}"

    message = asks(("search", {"what": "X"}), ("search", {"what": "Y"}))
    state = await run(dispatched(way, message, [search], undeclared="parallel"))
    assert [("c0", "success", "found X"), ("c1", "success", "found Y")] == answers(state)


@pytest.mark.parametrize("call_id", ["", None, "same"], ids=["empty", "none", "repeated"])
async def test_calls_are_answered_by_position(saver: str, call_id: str | None) -> None:
    """E6: ids that are empty, missing or repeated lose no call and no answer."""

    @tool
    async def search(what: str) -> str:
        """Search."""
        return f"found {what}"

    message = AIMessage(
        "", tool_calls=[{"name": "search", "args": {"what": x}, "id": call_id} for x in "XY"]
    )
    graph = dispatched("node", message, [search], saved=saver == "saved", undeclared="parallel")
    told = answers(await run(graph, **THREAD))
    assert [(call_id or "", "success", f"found {x}") for x in "XY"] == told


async def test_a_coalesced_call_is_answered_under_its_own_id() -> None:
    """A10: equal calls that are joined run once, and every id has its answer."""
    ran: list[str] = []

    @tool
    async def append(text: str) -> str:
        """Append."""
        ran.append(text)
        return "ok"

    message = asks(*[("append", {"text": "x"})] * 3)
    state = await run(dispatched("node", message, [append], duplicates="coalesce"))
    assert ["x"] == ran
    assert [(f"c{at}", "success", "ok") for at in range(3)] == answers(state)


@pytest.mark.parametrize("listed", [False, True], ids=["command", "list"])
async def test_a_coalesced_command_is_done_once_and_answers_every_id(
    way: str, listed: bool
) -> None:
    """A10: what a `Command` changes is changed once; each of the joined calls has its answer."""

    @tool
    async def append(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Append."""
        answer = ToolMessage("ok", tool_call_id=tool_call_id)
        if listed:
            return [Command(update={"messages": [HumanMessage(text)]}), answer]
        return Command(update={"messages": [answer, HumanMessage(text)]})

    message = asks(*[("append", {"text": "x"})] * 3)
    state = await run(dispatched(way, message, [append], duplicates="coalesce"))
    assert [(f"c{at}", "success", "ok") for at in range(3)] == answers(state)
    assert 1 == sum(one.content == "x" for one in state["messages"])


class AgentKeys(AgentState[Any]):
    """What an agent keeps."""

    key: str


class GraphKeys(MessagesState):
    """What a graph keeps."""

    key: str


@tool
async def set_key(value: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Set."""
    answer = ToolMessage("set", tool_call_id=tool_call_id)
    return Command(update={"key": value, "messages": [answer]})


@tool
async def use(key: Annotated[str, InjectedState("key")]) -> str:
    """Use."""
    return key


@pytest.mark.parametrize("serial", [True, False], ids=["serial", "conflict"])
async def test_a_later_call_sees_the_state_that_an_earlier_one_left(
    way: str, saver: str, serial: bool
) -> None:
    """T6: what `set` writes to the state is what `use`, which stands behind it, is given."""
    tools, is_saved = [set_key, use], saver == "saved"
    options: dict[str, Any] = {"schedule": "serial", "undeclared": "parallel"} if serial else {}
    message = asks(("use", {}), ("set_key", {"value": "k"}), ("use", {}))
    if way == "agent":
        schema = {"state_schema": AgentKeys}
        graph = dispatched(way, message, tools, saved=is_saved, agent=schema, **options)
    else:
        node = DispatchToolNode(tools, **options)
        kept = InMemorySaver() if is_saved else None
        graph = node_graph(node, message, GraphKeys, checkpointer=kept)
    state = await graph.ainvoke({"messages": [], "key": "old"}, THREAD)
    assert ["old", "set", "k"] == [content for _, _, content in answers(state)]
    assert "k" == state["key"]


async def test_calls_that_do_not_conflict_see_the_state_that_the_model_saw() -> None:
    """Which state a call sees never depends on who is quicker."""
    node = DispatchToolNode([set_key, use], undeclared="parallel")
    message = asks(("set_key", {"value": "k"}), ("use", {}))
    state = await node_graph(node, message, GraphKeys).ainvoke({"messages": [], "key": "old"})
    assert ["set", "old"] == [content for _, _, content in answers(state)]


async def test_defaults_count_where_it_is_told_what_a_call_stands_behind(way: str) -> None:
    """Which state a call sees depends on the arguments that its tool gets, defaults included."""

    @tool
    async def put(tool_call_id: Annotated[str, InjectedToolCallId], path: str = "a") -> Any:
        """Put."""
        return Command(update={"messages": [ToolMessage("put", tool_call_id=tool_call_id)]})

    @tool
    async def look(state: Annotated[dict[str, Any], InjectedState], path: str = "b") -> str:
        """Look."""
        return str(sum(isinstance(one, ToolMessage) for one in state["messages"]))

    message = asks(("put", {}), ("look", {}), ("look", {"path": "a"}))
    files = {"put": FILE, "look": ToolConcurrency(reads="file:{path}")}
    graph = dispatched(way, message, [put, look], descriptors=files, max_concurrent=1)
    assert ["put", "0", "1"] == [content for _, _, content in answers(await run(graph))]


class Reduced(MessagesState):
    """A list that updates are added to."""

    seen: Annotated[list[str], operator.add]


@tool
async def note(text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Note."""
    answer = ToolMessage("noted", tool_call_id=tool_call_id)
    return Command(update={"seen": [text], "messages": [answer]})


@tool
async def recall(state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Recall."""
    told = [one.content for one in state["messages"] if isinstance(one, ToolMessage)]
    return f"{state['seen']} {told}"


async def test_the_state_between_calls_is_merged_by_the_graphs_own_reducers() -> None:
    """T6: two appends before a read are both there, merged as the graph merges them."""
    message = asks(("note", {"text": "b"}), ("note", {"text": "c"}), ("recall", {}))
    graph = node_graph(DispatchToolNode([note, recall]), message, Reduced)
    state = await graph.ainvoke({"messages": [], "seen": ["a"]})
    assert "['a', 'b', 'c'] ['noted', 'noted']" == answers(state)[2][2]
    assert ["a", "b", "c"] == state["seen"]
