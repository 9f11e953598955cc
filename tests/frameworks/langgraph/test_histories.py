"""Histories that a stopped run or a compaction has broken, sent to servers that take none such."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    ToolMessage,
    trim_messages,
)
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt

from dispatch.adapters.history import LOST
from dispatch.adapters.langgraph import DispatchMiddleware, DispatchToolNode, close_open_calls
from dispatch.adapters.repair import LEFT_OUT
from tests.frameworks.langgraph.graphs import THREAD, Graph, answers, asks, node_with_model
from tests.frameworks.langgraph.models import WIRES, chat_model
from tests.providers import Call, Server, Step, serve

STOPPED = "[cancelled] stopped while running"
NEVER = "[cancelled] never started"


def graph_of(way: str, server: Server, wire: str, tools: list[BaseTool], **options: Any) -> Graph:
    """A graph with a real client; without dispatch if there are no options."""
    model, saver = chat_model(wire, server.url), InMemorySaver()
    if way == "agent":
        stack: list[Any] = [*options.pop("before", ())]
        stack += [DispatchMiddleware(**options)] if options else []
        return create_agent(model, tools, middleware=stack, checkpointer=saver)
    node = DispatchToolNode(tools, **options) if options else ToolNode(tools)
    return node_with_model(model, node, tools, checkpointer=saver)


class Stalling:
    """Tools of which one hangs, and runs that are cancelled when the others are done."""

    def __init__(self) -> None:
        self.hangs = asyncio.Event()
        self.done = asyncio.Event()

        @tool
        async def quick(x: int) -> str:
            """Be done."""
            self.done.set()
            return f"real {x}"

        @tool
        async def hang() -> str:
            """Wait for ever."""
            await self.done.wait()
            self.hangs.set()
            await asyncio.Event().wait()
            return "never"

        self.tools: list[BaseTool] = [quick, hang]

    async def abort(self, graph: Graph, config: Any = THREAD) -> None:
        """Run until the one hangs, then cancel."""
        self.hangs.clear()
        running = asyncio.ensure_future(graph.ainvoke({"messages": [HumanMessage("go")]}, config))
        await self.hangs.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


TURN = Step(calls=(Call("quick", {"x": 1}), Call("hang", {})))
PARALLEL: dict[str, Any] = {"undeclared": "parallel", "grace": 0.05}
AGAIN: Any = {"messages": [HumanMessage("and now?")]}


@pytest.mark.parametrize("wire", WIRES)
async def test_plain_langgraph_is_refused_after_a_cancel(way: str, wire: str) -> None:
    """D1: by itself a thread whose run was cancelled is refused by the provider for ever."""
    stalling = Stalling()
    with serve([TURN, Step("done")]) as server:
        graph = graph_of(way, server, wire, stalling.tools)
        await stalling.abort(graph)
        for _ in range(2):
            with pytest.raises(Exception, match="400"):
                await graph.ainvoke(AGAIN, THREAD)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("aborts", [1, 3])
async def test_a_cancelled_turn_is_answered_before_the_thread_goes_on(
    way: str, wire: str, aborts: int
) -> None:
    """D1, D2, D3: what was done is told, what was stopped says so, once each, also in the state."""
    stalling = Stalling()
    with serve([*[TURN] * aborts, Step("done"), Step("again")]) as server:
        graph = graph_of(way, server, wire, stalling.tools, **PARALLEL)
        for _ in range(aborts):
            await stalling.abort(graph)
        state = await graph.ainvoke(AGAIN, THREAD)
        told = answers(state)
        state = await graph.ainvoke(AGAIN, THREAD)
        assert "again" == state["messages"][-1].text
        sent = [json.loads(body) for body in server.requests[-2:]]
    assert ["success", "error"] * aborts == [status for _, status, _ in told]
    assert ["real 1"] * aborts == [content for _, _, content in told[::2]]
    assert all(content.startswith(STOPPED) for _, _, content in told[1::2])
    assert 2 * aborts == len({call_id for call_id, _, _ in told})
    assert told == answers(state)
    before, after = (one.get("messages") or one["input"] for one in sent)
    assert len(before) < len(after)


async def test_a_call_that_was_not_reached_says_so(way: str) -> None:
    """D12: a call behind the one that was cancelled never started, and its answer says that."""
    stalling = Stalling()
    calls = (*TURN.calls, Call("quick", {"x": 2}))
    with serve([Step(calls=calls), Step("done")]) as server:
        graph = graph_of(way, server, "anthropic", stalling.tools, schedule="serial", grace=0.05)
        await stalling.abort(graph)
        told = [content for _, _, content in answers(await graph.ainvoke(AGAIN, THREAD))]
    assert "real 1" == told[0]
    assert told[1].startswith(STOPPED)
    assert "never started" in told[2]


async def test_a_question_that_nobody_answered_says_so(way: str) -> None:
    """H6: a conversation that goes on past a question is told that it was left open."""

    @tool
    async def ask() -> str:
        """Ask."""
        return str(interrupt("sure?"))

    with serve([Step(calls=(Call("ask", {}),)), Step("done")]) as server:
        graph = graph_of(way, server, "anthropic", [ask], **PARALLEL)
        await graph.ainvoke({"messages": [HumanMessage("go")]}, THREAD)
        told = answers(await graph.ainvoke(AGAIN, THREAD))
    assert "[cancelled] it waited for a human's answer" in told[0][2]


async def test_what_one_thread_did_is_not_told_in_another(way: str) -> None:
    """Equal messages and ids in two threads: the second knows nothing of the first's results."""
    stalling = Stalling()
    other: Any = {"configurable": {"thread_id": "other"}}
    with serve([TURN, Step("done")]) as server:
        graph = graph_of(way, server, "anthropic", stalling.tools, **PARALLEL)
        await stalling.abort(graph)
        messages = (await graph.aget_state(THREAD)).values["messages"][:2]  # and no results
        state = await graph.ainvoke({"messages": [*messages, HumanMessage("now?")]}, other)
    assert [LOST, LOST] == [content for _, _, content in answers(state)]


def broken_far_back() -> list[AnyMessage]:
    """A history with an open call, a result of no call, and ten messages behind them."""
    talk: list[AnyMessage] = []
    for at in range(5):
        talk += [HumanMessage(f"question {at}"), AIMessage(f"answer {at}")]
    orphan = ToolMessage("whose?", tool_call_id="gone")
    answer = ToolMessage("real 1", tool_call_id="c0")
    asked = asks(("quick", {"x": 1}), ("hang", {}))
    return [HumanMessage("go"), asked, answer, AIMessage("well"), orphan, *talk]


def interleaved() -> list[AnyMessage]:
    """Two batches whose results stand between, before and behind other messages."""
    first = asks(("quick", {"x": 1}), ("quick", {"x": 2}))
    second = asks(("quick", {"x": 3}), first=2)
    results = [ToolMessage(f"real {at + 1}", tool_call_id=f"c{at}") for at in range(3)]
    said = HumanMessage("a subagent speaks")
    return [
        HumanMessage("go"),
        first,
        results[1],
        said,
        second,
        results[0],
        AIMessage("x"),
        results[2],
    ]


def compacted() -> list[AnyMessage]:
    """What LangChain's own `trim_messages` leaves of a batch that it cuts in two."""
    whole: list[Any] = [
        HumanMessage("go"),
        asks(("quick", {"x": 1}), ("quick", {"x": 2})),
        ToolMessage("real 1", tool_call_id="c0"),
        ToolMessage("real 2", tool_call_id="c1"),
        AIMessage("well"),
    ]
    left: list[Any] = trim_messages(whole, max_tokens=2, token_counter=len)
    return left


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("broken", [broken_far_back, interleaved, compacted])
async def test_broken_histories_are_taken(way: str, wire: str, broken: Any) -> None:
    """D4, D5, D11: whatever is broken, and wherever, the provider takes it, and the rest stays."""
    stalling = Stalling()
    said = [*broken(), HumanMessage("and now?")]
    with serve([Step("done")] * 20) as server:
        if (broken, wire) != (interleaved, "responses"):  # which takes results anywhere later
            plain = graph_of(way, server, wire, stalling.tools)
            with pytest.raises(Exception, match="400"):
                await plain.ainvoke({"messages": [*broken(), HumanMessage("now?")]}, THREAD)
        graph = graph_of(way, server, wire, stalling.tools, **PARALLEL)
        state = await graph.ainvoke({"messages": said}, THREAD)
    assert "done" == state["messages"][-1].text
    talk = [one.text for one in said if isinstance(one, HumanMessage)]
    kept = [one.text for one in state["messages"] if isinstance(one, HumanMessage)]
    assert talk == [text for text in kept if text != LEFT_OUT]


async def test_what_a_hook_cuts_out_of_a_request_is_mended_in_it() -> None:
    """D11: a hook cuts what is sent, inside a batch: it is told from the state, each time."""

    class Trimming(AgentMiddleware[Any, Any, Any]):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            left = [
                one for one in request.messages if getattr(one, "tool_call_id", "") != "toolu_0_0"
            ]
            return await handler(request.override(messages=left))

    calls = (Call("quick", {"x": 1}), Call("quick", {"x": 2}))
    with serve([Step(calls=calls), Step("done"), Step("done")]) as server:
        tools, options = Stalling().tools, {**PARALLEL, "before": [Trimming()]}
        graph = graph_of("agent", server, "anthropic", tools, **options)
        state = await graph.ainvoke({"messages": [HumanMessage("go")]}, THREAD)
        await graph.ainvoke(AGAIN, THREAD)
        sent = [json.loads(body)["messages"][2]["content"][:2] for body in server.requests[1:]]
    assert ["real 1", "real 2"] == [content for _, _, content in answers(state)]
    told = [{one["tool_use_id"]: one["content"] for one in those} for those in sent]
    assert [{"toolu_0_0": "real 1", "toolu_0_1": "real 2"}] * 2 == told


@pytest.mark.parametrize("broken", [broken_far_back, interleaved, compacted])
def test_repairing_twice_is_repairing_once(broken: Any) -> None:
    """D3: what is in order comes back as the very same messages."""
    once = close_open_calls(broken())
    again = close_open_calls(once)
    assert len(once) == len(again)
    assert all(one is other for one, other in zip(once, again, strict=True))


@pytest.mark.parametrize("by", ["ainvoke", "invoke"])
async def test_a_failed_run_is_told_when_the_thread_goes_on(way: str, by: str) -> None:
    """G4: after an error that nobody handled a new message is taken, and both calls are told."""
    done = threading.Event()

    @tool
    def quick() -> str:
        """Be done."""
        done.set()
        return "real"

    @tool
    def fatal() -> str:
        """Fail once the other is done."""
        done.wait(10)
        raise ValueError("broken")

    async def go(graph: Graph, given: Any) -> Any:
        if by == "ainvoke":
            return await graph.ainvoke(given, THREAD)
        return await asyncio.to_thread(graph.invoke, given, THREAD)

    with serve([Step(calls=(Call("quick", {}), Call("fatal", {}))), Step("done")]) as server:
        graph = graph_of(way, server, "anthropic", [quick, fatal], **PARALLEL)
        with pytest.raises(ValueError, match="broken"):
            await go(graph, {"messages": [HumanMessage("go")]})
        first, second = answers(await go(graph, AGAIN))
    assert ("success", "real") == first[1:]
    assert "error" == second[1]
    assert "ValueError: broken" in second[2]


async def test_the_stream_of_messages_tells_nothing_twice() -> None:
    """A history that is put in order comes out of `messages` only as far as it is new."""
    stalling = Stalling()
    with serve([TURN, Step("done")]) as server:
        graph = graph_of("agent", server, "anthropic", stalling.tools, **PARALLEL)
        await stalling.abort(graph)
        told = [
            (one.type, one.text.partition(":")[0])
            async for one, _ in graph.astream(AGAIN, THREAD, stream_mode="messages")
            if one.text
        ]
    assert [("tool", "real 1"), ("tool", STOPPED), ("ai", "done")] == told


async def test_langchains_summaries_are_taken() -> None:
    """D11: `SummarizationMiddleware` before dispatch: all that is sent is taken by the provider."""
    summary = GenericFakeChatModel(messages=iter([AIMessage("so far")] * 20))
    hook = SummarizationMiddleware(summary, trigger=("messages", 4), keep=("messages", 2))
    batch = asks(("quick", {"x": 1}), ("quick", {"x": 2}))
    results = [ToolMessage(f"real {at}", tool_call_id=f"c{at}") for at in range(2)]
    with serve([Step("done")] * 3) as server:
        options = {**PARALLEL, "before": [hook]}
        graph = graph_of("agent", server, "anthropic", Stalling().tools, **options)
        given: Any = {"messages": [HumanMessage("go"), batch, *results, HumanMessage("now?")]}
        state = await graph.ainvoke(given, THREAD)
    assert any("so far" in one.text for one in state["messages"])
    assert "done" == state["messages"][-1].text
