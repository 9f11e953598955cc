"""What `DispatchToolNode` takes and gives: as `ToolNode` does, however it is invoked."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from langgraph.types import Command, Send

from dispatch import Change, ToolConcurrency
from dispatch.adapters.langgraph import DispatchToolNode
from tests.frameworks.langgraph.graphs import (
    FREE,
    THREAD,
    Meeting,
    Overlap,
    answers,
    asks,
    built,
    node_graph,
    run,
    some_steps,
)


@tool
async def good(x: int) -> str:
    """Work."""
    return f"real {x}"


@tool
async def bad(x: int = 0) -> str:
    """Fail."""
    raise ValueError("exit code 1")


def by_type(error: ValueError) -> str:
    """Handle value errors only."""
    return f"handled {error}"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (True, "Error: ValueError('exit code 1')\n Please fix your mistakes."),
        ("do better", "do better"),
        (by_type, "handled exit code 1"),
        (ValueError, "Error: ValueError('exit code 1')\n Please fix your mistakes."),
        ((KeyError, ValueError), "Error: ValueError('exit code 1')\n Please fix your mistakes."),
    ],
    ids=["true", "text", "function", "type", "types"],
)
async def test_errors_are_handled_as_the_node_says(saver: str, setting: Any, says: str) -> None:
    """`handle_tool_errors` that handles an error makes its own words of it; siblings go on."""
    message = asks(("bad", {}), ("good", {"x": 1}))
    graph = built([good, bad], message, saver, handle_tool_errors=setting)
    told = [("c0", "error", says), ("c1", "success", "real 1")]
    assert told == answers(await run(graph, **THREAD))


@pytest.mark.parametrize("setting", [False, KeyError, (KeyError,)], ids=["false", "type", "types"])
@pytest.mark.parametrize("by", ["ainvoke", "invoke"])
async def test_errors_that_are_not_handled_are_raised(saver: str, setting: Any, by: str) -> None:
    """`False`, or another type, raises the tool's own exception from the graph."""
    graph = built([good, bad], asks(("bad", {})), saver, handle_tool_errors=setting)
    by_thread = asyncio.to_thread(graph.invoke, {"messages": []}, THREAD)
    with pytest.raises(ValueError, match="exit code 1"):
        await (by_thread if by == "invoke" else run(graph, **THREAD))
    by_thread.close()


async def test_bad_arguments_and_unknown_tools_are_answered(saver: str) -> None:
    """By default wrong arguments and names are told to the model, and the siblings run."""
    message = asks(("good", {"x": "no"}), ("goood", {}), ("good", {"x": 1}))
    first, second, third = answers(await run(built([good], message, saver), **THREAD))
    assert ("c0", "error") == first[:2]
    assert "x: Input should be a valid integer" in first[2]
    assert ("c1", "error") == second[:2]
    assert "'good'" in second[2]
    assert ("c2", "success", "real 1") == third


async def test_commands_update_the_state(saver: str) -> None:
    """`Command` results go to the graph as they are, beside plain ones."""

    @tool
    async def set_name(name: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Set."""
        answer = ToolMessage("set", tool_call_id=call_id)
        return Command(update={"name": name, "messages": [answer]})

    class Named(MessagesState):
        name: str

    keeper = InMemorySaver() if saver == "saved" else None
    message = asks(("set_name", {"name": "Ann"}), ("good", {"x": 1}))
    graph = node_graph(DispatchToolNode([set_name, good]), message, Named, checkpointer=keeper)
    state = await run(graph, **THREAD)
    assert "Ann" == state["name"]
    assert [("c0", "success", "set"), ("c1", "success", "real 1")] == answers(state)


async def test_commands_to_the_parent_graph_are_merged(saver: str) -> None:
    """Hand-offs of several calls leave the graph as one command, as with ToolNode."""

    @tool
    async def hand_off(to: str) -> Command[Any]:
        """Send somebody something."""
        return Command(graph=Command.PARENT, goto=[Send("seen", {"to": to})])

    class Seen(MessagesState):
        names: Annotated[list[str], lambda old, new: [*old, *new]]

    message = asks(("hand_off", {"to": "a"}), ("hand_off", {"to": "b"}))
    inner = node_graph(DispatchToolNode([hand_off]))
    builder = StateGraph(Seen)
    builder.add_node("team", inner, destinations=("seen",))
    builder.add_node("seen", lambda given: {"names": [given["to"]]})
    builder.add_edge(START, "team")
    graph = builder.compile(checkpointer=InMemorySaver() if saver == "saved" else None)
    state = await graph.ainvoke({"messages": [message], "names": []}, THREAD)
    assert ["a", "b"] == state["names"]


def outside() -> Any:
    """What a graph tells a node, by hand."""
    return {"configurable": {"__pregel_runtime": Runtime()}}


@pytest.mark.parametrize("by", ["ainvoke", "invoke"])
@pytest.mark.parametrize("form", ["messages", "state", "calls", "empty"])
async def test_every_input_gives_what_a_tool_node_gives(form: str, by: str) -> None:
    """Lists of messages, states, bare calls, and messages without calls."""
    message = asks(("twice", {"x": 1}), ("twice", {"x": 2})) if form != "empty" else AIMessage("")
    given: Any = {
        "messages": [message],
        "state": {"messages": [message]},
        "calls": [{**call, "type": "tool_call"} for call in message.tool_calls],
        "empty": {"messages": [message]},
    }[form]

    @tool
    def twice(x: int) -> int:
        """Double."""
        return 2 * x

    async def ask(node: ToolNode) -> Any:
        if by == "ainvoke":
            return await node.ainvoke(given, outside())
        return await asyncio.to_thread(node.invoke, given, outside())

    assert await ask(ToolNode([twice])) == await ask(DispatchToolNode([twice]))


def test_invoke_works_where_a_loop_runs(saver: str) -> None:
    """As in a notebook: sync `invoke` under a running event loop, with sync and async tools."""

    @tool
    def plain(x: int) -> str:
        """Work."""
        return f"plain {x}"

    message = asks(("plain", {"x": 1}), ("good", {"x": 2}))

    async def cell() -> dict[str, Any]:
        graph = built([plain, good], message, saver)
        state: dict[str, Any] = graph.invoke({"messages": []}, THREAD)
        return state

    told = [("c0", "success", "plain 1"), ("c1", "success", "real 2")]
    assert told == answers(asyncio.run(cell()))


def test_async_tools_run_side_by_side_in_invoke(saver: str) -> None:
    """A graph without a loop runs tools that need one, and runs them at once."""
    meeting: list[Meeting] = []

    @tool
    async def meet(x: int) -> str:
        """Meet."""
        if not meeting:
            meeting.append(Meeting(2))
        await meeting[0].join()
        return "met"

    message = asks(("meet", {"x": 1}), ("meet", {"x": 2}))
    graph = built([meet], message, saver, descriptors={"meet": FREE})
    state = graph.invoke({"messages": []}, THREAD)
    assert ["met", "met"] == [content for _, _, content in answers(state)]


def test_one_node_serves_two_loops_at_once(saver: str) -> None:
    """Two threads with a loop each use one node; a shared file still has one writer at a time."""
    both, now, peak = threading.Barrier(2), [0], [0]

    @tool
    async def edit(path: str) -> str:
        """Write."""
        now[0] += 1
        peak[0] = max(peak[0], now[0])
        await some_steps()
        now[0] -= 1
        return path

    @tool
    def meet() -> str:
        """Meet the other loop's call."""
        both.wait(10)
        return "met"

    message = asks(("meet", {}), ("edit", {"path": "a"}), ("edit", {"path": "b"}))
    descriptors = {"meet": FREE, "edit": ToolConcurrency(writes="file:one")}
    graph = built([edit, meet], message, saver, descriptors=descriptors)
    told: list[Any] = []

    def own_loop(thread: str) -> None:
        config: Any = {"configurable": {"thread_id": thread}}
        told.append(answers(asyncio.run(graph.ainvoke({"messages": []}, config))))

    threads = [threading.Thread(target=own_loop, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    expected = [("c0", "success", "met"), ("c1", "success", "a"), ("c2", "success", "b")]
    assert [expected, expected] == told
    assert [1] == peak


@pytest.mark.parametrize("by", ["ainvoke", "invoke"])
async def test_max_concurrency_holds_in_both(saver: str, by: str) -> None:
    """L3: the run's `max_concurrency` is the bound, with a loop and without one."""
    overlap = Overlap()

    @tool
    async def work(x: int) -> str:
        """Count."""
        async with overlap:
            await some_steps()
        return f"{x}"

    message = asks(*[("work", {"x": at}) for at in range(8)])
    graph = built([work], message, saver, descriptors={"work": FREE})
    config = {**THREAD, "max_concurrency": 2}
    if by == "invoke":
        state = await asyncio.to_thread(graph.invoke, {"messages": []}, config)
    else:
        state = await run(graph, **config)
    assert [f"{at}" for at in range(8)] == [content for _, _, content in answers(state)]
    assert 2 == overlap.peak


@pytest.mark.parametrize("wrapper", ["sync", "async", "both"])
@pytest.mark.parametrize("by", ["ainvoke", "invoke"])
async def test_wrappers_of_the_node_wrap_each_call(saver: str, wrapper: str, by: str) -> None:
    """M2: `wrap_tool_call` and `awrap_tool_call` work; a sync one does not block the loop."""
    loop_thread, seen = threading.get_ident(), list[str]()

    def wrap(request: Any, execute: Any) -> Any:
        assert loop_thread != threading.get_ident()
        seen.append(request.tool_call["name"])
        return execute(request)

    async def awrap(request: Any, execute: Any) -> Any:
        seen.append(request.tool_call["name"])
        return await execute(request)

    @tool
    def plain(x: int) -> str:
        """Work."""
        return f"plain {x}"

    named: Any = {"sync": [wrap, None], "async": [None, awrap], "both": [wrap, awrap]}
    wrappers = named[wrapper]
    message = asks(("plain", {"x": 1}), ("good", {"x": 2}))
    options: Any = {"wrap_tool_call": wrappers[0], "awrap_tool_call": wrappers[1]}
    graph = built([plain, good], message, saver, **options)
    if by == "invoke":
        state = await asyncio.to_thread(graph.invoke, {"messages": []}, THREAD)
    else:
        state = await run(graph, **THREAD)
    assert [("c0", "success", "plain 1"), ("c1", "success", "real 2")] == answers(state)
    assert by == "invoke" or ["plain", "good"] == seen


async def test_a_wrapper_may_bring_a_tool_of_its_own(saver: str) -> None:
    """A name that the node does not know reaches the wrapper, and runs alone."""

    async def awrap(request: Any, execute: Any) -> Any:
        return await execute(request.override(tool=good) if request.tool is None else request)

    graph = built([bad], asks(("later", {"x": 7})), saver, awrap_tool_call=awrap)
    assert [("c0", "success", "real 7")] == answers(await run(graph, **THREAD))


async def test_a_gate_may_change_the_arguments(saver: str) -> None:
    """What a gate of the dispatcher allows with other arguments runs with those."""

    async def gate(call: Any, context: Any) -> Change:
        return Change({"x": 2})

    graph = built([good], asks(("good", {"x": 1})), saver, gates=[gate])
    assert [("c0", "success", "real 2")] == answers(await run(graph, **THREAD))


@pytest.mark.parametrize("by", ["ainvoke", "invoke"])
def test_what_must_end_the_program_is_raised(saver: str, by: str) -> None:
    """H8: a `SystemExit` in a tool is no answer: it is raised, and stops its siblings."""
    stopped: list[str] = []

    @tool
    def leave() -> str:
        """End the program."""
        raise SystemExit(3)

    @tool
    async def hang() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("hang")
        return "never"

    message = asks(("hang", {}), ("leave", {}))
    graph = built([leave, hang], message, saver, undeclared="parallel", grace=0.05)
    invoke = graph.invoke if by == "invoke" else lambda *given: asyncio.run(graph.ainvoke(*given))
    with pytest.raises(SystemExit):
        invoke({"messages": []}, THREAD)
    assert ["hang"] == stopped


def test_unknown_keywords_are_refused() -> None:
    """A keyword that neither ToolNode nor Dispatcher has is an error, not ignored."""
    nothing: list[BaseTool] = []
    with pytest.raises(TypeError, match="max_parallel"):
        DispatchToolNode(nothing, max_parallel=2)  # type: ignore[call-arg]
