"""Cases O1 and H6: what waits for a human, what is cancelled, and what never runs twice."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from dispatch import AllOrNothing
from dispatch.adapters.langgraph import DispatchToolNode
from tests.frameworks.langgraph.graphs import (
    FREE,
    THREAD,
    Graph,
    answers,
    asks,
    dispatched,
    node_graph,
    run,
)

ran: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    ran.clear()


@tool
async def approve(what: str) -> str:
    """Do it if a human agrees."""
    if interrupt(f"may I {what}?") != "yes":
        return f"denied: {what}"
    ran.append(what)
    return f"did {what}"


@tool
def approve_sync(what: str) -> str:
    """Do it if a human agrees, in a thread."""
    if interrupt(f"may I {what}?") != "yes":
        return f"denied: {what}"
    ran.append(what)
    return f"did {what}"


@tool
async def auto(what: str) -> str:
    """Do it."""
    ran.append(what)
    return f"did {what}"


BATCH = asks(("approve", {"what": "A"}), ("approve", {"what": "B"}), ("auto", {"what": "C"}))


async def go(graph: Graph, given: Any, by: str = "ainvoke") -> dict[str, Any]:
    """One run of the graph."""
    if by == "invoke":
        state: dict[str, Any] = await asyncio.to_thread(graph.invoke, given, THREAD)
    else:
        state = await graph.ainvoke(given, THREAD)
    return state


def asked(state: dict[str, Any]) -> dict[str, str]:
    """The open questions: id by text."""
    return {one.value: one.id for one in state.get("__interrupt__", ())}


@pytest.mark.parametrize(
    ("way", "by"), [("node", "ainvoke"), ("node", "invoke"), ("agent", "ainvoke")]
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at_once", "one_by_one"])
async def test_parallel_questions_are_answered_one_by_one(way: str, by: str, at_once: bool) -> None:
    """O1: B is approved and runs once, A is denied, C has run once and never again."""
    graph = dispatched(way, BATCH, [approve, auto], saved=True, undeclared="parallel")
    questions = asked(await go(graph, {"messages": []}, by))
    assert {"may I A?", "may I B?"} == set(questions)
    assert 2 == len(set(questions.values()))
    assert ["C"] == ran
    said = {questions["may I B?"]: "yes", questions["may I A?"]: "no"}
    if at_once:
        state = await go(graph, Command(resume=said), by)
    else:
        for question, answer in said.items():
            state = await go(graph, Command(resume={question: answer}), by)
    assert ["C", "B"] == ran
    assert ["denied: A", "did B", "did C"] == [content for _, _, content in answers(state)]


async def test_plain_langgraph_asks_both_questions_under_one_id() -> None:
    """O1: what this adapter is needed for: ToolNode's parallel questions have equal ids."""
    from langgraph.prebuilt import ToolNode

    graph = node_graph(ToolNode([approve, auto]), BATCH, checkpointer=InMemorySaver())
    state = await go(graph, {"messages": []})
    assert 1 == len(state["__interrupt__"])
    await go(graph, Command(resume="yes"))
    assert 2 == ran.count("C")


async def test_a_question_in_a_thread_is_answered(way: str) -> None:
    """`interrupt()` works in a `def` tool, which runs in a worker thread."""
    message = asks(("approve_sync", {"what": "A"}))
    graph = dispatched(way, message, [approve_sync], saved=True)
    questions = asked(await go(graph, {"messages": []}))
    state = await go(graph, Command(resume={questions["may I A?"]: "yes"}))
    assert [("c0", "success", "did A")] == answers(state)


async def test_a_call_behind_a_question_waits_for_the_answer(way: str) -> None:
    """The order of the turn does not depend on when a human answers."""
    message = asks(("auto", {"what": "1"}), ("approve", {"what": "2"}), ("auto", {"what": "3"}))
    graph = dispatched(way, message, [approve, auto], saved=True)
    questions = asked(await go(graph, {"messages": []}))
    assert ["1"] == ran
    state = await go(graph, Command(resume={questions["may I 2?"]: "yes"}))
    assert ["1", "2", "3"] == ran
    assert ["did 1", "did 2", "did 3"] == [content for _, _, content in answers(state)]


async def test_several_questions_of_one_tool_are_answered_in_turn(way: str) -> None:
    """A tool may ask twice; LangGraph runs it again up to the question that is open."""

    @tool
    async def twice() -> str:
        """Ask twice."""
        return f"{interrupt('first?')} {interrupt('second?')}"

    graph = dispatched(way, asks(("twice", {})), [twice], saved=True)
    assert {"first?"} == set(asked(await go(graph, {"messages": []})))
    assert {"second?"} == set(asked(await go(graph, Command(resume="a"))))
    assert [("c0", "success", "a b")] == answers(await go(graph, Command(resume="b")))


async def test_without_a_checkpointer_all_questions_come_out() -> None:
    """Nothing can be resumed there, but the calls beside a question still settle first."""
    state = await run(dispatched("node", BATCH, [approve, auto], undeclared="parallel"))
    assert {"may I A?", "may I B?"} == {one.value for one in state["__interrupt__"]}
    assert ["C"] == ran


async def test_finished_calls_do_not_run_again_after_a_cancel(way: str) -> None:
    """H6: two writes are done, one call runs; cancelled and resumed, only that one runs again."""
    running = asyncio.Event()

    @tool
    async def slow(what: str) -> str:
        """Be cancelled the first time."""
        ran.append(what)
        if ran.count(what) == 1:
            running.set()
            await asyncio.Event().wait()
        return f"did {what}"

    message = asks(("auto", {"what": "1"}), ("auto", {"what": "2"}), ("slow", {"what": "3"}))
    graph = dispatched(way, message, [auto, slow], saved=True, grace=0.05)
    first = asyncio.ensure_future(go(graph, {"messages": []}))
    await running.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    state = await go(graph, None)
    assert ["1", "2", "3", "3"] == ran
    assert ["did 1", "did 2", "did 3"] == [content for _, _, content in answers(state)]


async def test_what_ends_while_it_is_being_stopped_counts_as_done(way: str) -> None:
    """H6: a tool that finishes in its grace, after the cancel, has happened: it does not rerun."""
    running = asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Finish in spite of being cancelled."""
        ran.append("stubborn")
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished"
        return "never"

    graph = dispatched(way, asks(("stubborn", {})), [stubborn], saved=True, grace=0.1)
    first = asyncio.ensure_future(go(graph, {"messages": []}))
    await running.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    state = await go(graph, None)
    assert ["stubborn"] == ran
    assert [("c0", "success", "finished")] == answers(state)


def test_finished_calls_do_not_run_again_after_ctrl_c() -> None:
    """H6: Ctrl-C in a run without a loop stops the turn within its graces; resuming reruns less."""
    let_go = threading.Event()

    @tool
    def first(what: str) -> str:
        """Be done."""
        ran.append(what)
        return f"did {what}"

    @tool
    def stuck(what: str) -> str:
        """Interrupt the program, the first time, and go on."""
        ran.append(what)
        if ran.count(what) == 1:
            os.kill(os.getpid(), signal.SIGINT)
            let_go.wait(10)
        return f"did {what}"

    message = asks(("first", {"what": "1"}), ("first", {"what": "2"}), ("stuck", {"what": "3"}))
    graph = dispatched("node", message, [first, stuck], saved=True, grace=0.1)
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({"messages": []}, THREAD)
    let_go.set()
    state = graph.invoke(None, THREAD)
    assert ["1", "2", "3"] == ran[:3]
    assert 1 == ran.count("1") == ran.count("2")
    assert ["did 1", "did 2"] == [content for _, _, content in answers(state)][:2]
    assert 3 == len(answers(state))


async def test_a_failed_run_that_is_continued_runs_only_what_has_not_ended() -> None:
    """P2: after an error that nobody handles, the finished sibling's result is still there."""
    broken = [True]

    @tool
    async def fails() -> str:
        """Fail while it is broken."""
        if broken:
            raise ValueError("broken")
        return "mended"

    message = asks(("auto", {"what": "1"}), ("fails", {}), ("auto", {"what": "2"}))
    graph = dispatched("node", message, [auto, fails], saved=True)
    with pytest.raises(ValueError, match="broken"):
        await go(graph, {"messages": []})
    broken.clear()
    state = await go(graph, None)
    assert ["did 1", "mended", "did 2"] == [content for _, _, content in answers(state)]
    assert ["1", "2"] == ran


async def test_a_question_undoes_a_group_until_it_is_answered() -> None:
    """All or nothing: what is rolled back because a call waits for a human is done again later."""
    message = asks(("approve", {"what": "A"}), ("auto", {"what": "B"}))
    graph = dispatched(
        "node", message, [approve, auto], saved=True, undeclared="parallel", policy=AllOrNothing()
    )
    questions = asked(await go(graph, {"messages": []}))
    assert {"may I A?"} == set(questions)
    state = await go(graph, Command(resume="yes"))
    told = [("c0", "success", "did A"), ("c1", "success", "did B")]
    assert told == answers(state)


async def test_a_graph_in_a_tool_asks_for_itself() -> None:
    """Two agents as tools ask at once: each is answered alone, and goes on where it stopped."""

    def inner(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt(f"{state['messages'][-1].content}?"))]}

    builder = StateGraph(MessagesState)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    agent = builder.compile()

    @tool
    async def ask_agent(what: str) -> str:
        """Ask an agent."""
        state = await agent.ainvoke({"messages": [HumanMessage(what)]})
        return str(state["messages"][-1].content)

    message = asks(("ask_agent", {"what": "A"}), ("ask_agent", {"what": "B"}))
    graph = dispatched("node", message, [ask_agent], saved=True, undeclared="parallel")
    questions = asked(await go(graph, {"messages": []}))
    assert {"A?", "B?"} == set(questions)
    await go(graph, Command(resume={questions["B?"]: "b"}))
    state = await go(graph, Command(resume={questions["A?"]: "a"}))
    assert [("c0", "success", "a"), ("c1", "success", "b")] == answers(state)


async def test_resumable_can_be_turned_off() -> None:
    """`resumable=False` saves nothing between the calls: the node runs again as a whole."""
    message = asks(("auto", {"what": "C"}), ("approve", {"what": "A"}))
    node = DispatchToolNode(
        [approve, auto], descriptors={"auto": FREE, "approve": FREE}, resumable=False
    )
    graph = node_graph(node, message, checkpointer=InMemorySaver())
    await go(graph, {"messages": []})
    await go(graph, Command(resume="yes"))
    assert ["C", "C", "A"] == ran


async def test_the_stream_of_updates_is_that_of_a_tool_node() -> None:
    """The calls' own tasks do not show in `updates`: one update of the node, as ever."""
    graph = dispatched("node", asks(("auto", {"what": "1"})), [auto], saved=True)
    updates = [one async for one in graph.astream({"messages": []}, THREAD, stream_mode="updates")]
    assert [["model"], ["tools"], ["model"]] == [list(update) for update in updates]
