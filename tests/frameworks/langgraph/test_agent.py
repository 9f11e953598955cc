"""`DispatchMiddleware` among the other middleware of `create_agent`."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolRetryMiddleware,
    wrap_tool_call,
)
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import SecretStr

from dispatch import AllOrNothing, UsageError
from dispatch.adapters.langgraph import DispatchMiddleware
from dispatch.runtime.threads import is_idle_worker
from tests.frameworks.langgraph.graphs import (
    FILE,
    FREE,
    THREAD,
    Meeting,
    Overlap,
    answers,
    asks,
    dispatched,
    run,
    scripted,
    some_steps,
)
from tests.providers import Call, Step, serve


def editor(files: dict[str, str], overlap: Overlap) -> BaseTool:
    """A tool that loses an edit if two of its calls overlap."""

    @tool
    async def edit(path: str, word: str) -> str:
        """Add a word."""
        async with overlap:
            text = files.get(path, "")
            await some_steps()
            files[path] = f"{text}{word} "
        return f"added {word}"

    return edit


KEY = SecretStr("any")
EDITS = asks(*[("edit", {"path": "a", "word": word}) for word in ("one", "two", "three")])


class Dawdling(AgentMiddleware[Any, Any, Any]):
    """Holds back the calls, the first the longest."""

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        await some_steps({"one": 60, "two": 30}.get(request.tool_call["args"]["word"], 0))
        return await handler(request)


@pytest.mark.parametrize("where", ["last", "first"])
async def test_other_hooks_do_not_turn_the_order_round(where: str) -> None:
    """Calls that an outer hook lets through in another order still run in the model's order."""
    files: dict[str, str] = {}
    ours = DispatchMiddleware(descriptors={"edit": FILE})
    stack: list[Any] = [Dawdling(), ours] if where == "last" else [ours, Dawdling()]
    graph = create_agent(scripted(EDITS), [editor(files, Overlap())], middleware=stack)
    await run(graph)
    assert {"a": "one two three "} == files


async def test_a_call_that_never_comes_holds_up_nobody() -> None:
    """A hook that answers a call itself keeps it from dispatch; the others go on all the same."""
    from langchain_core.messages import ToolMessage

    class Cached(AgentMiddleware[Any, Any, Any]):
        async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            if request.tool_call["id"] == "c0":
                return ToolMessage("cached", tool_call_id="c0")
            return await handler(request)

    files: dict[str, str] = {}
    tools, given = [editor(files, Overlap())], {"middleware": [Cached()]}
    graph = dispatched("agent", EDITS, tools, agent=given, descriptors={"edit": FILE})
    told = [content for _, _, content in answers(await run(graph))]
    assert ["cached", "added two", "added three"] == told


@pytest.mark.parametrize("where", ["last", "first"])
async def test_retry_middleware_retries(where: str) -> None:
    """A call that a hook around dispatch, or inside it, tries again gets its second result."""
    tries: list[int] = []

    @tool
    async def flaky() -> str:
        """Fail the first time."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("lost")
        return "ok"

    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    ours = DispatchMiddleware()
    stack: list[Any] = [retry, ours] if where == "last" else [ours, retry]
    graph = create_agent(scripted(asks(("flaky", {}))), [flaky], middleware=stack)
    assert [("c0", "success", "ok")] == answers(await run(graph))
    assert 2 == len(tries)


async def test_a_back_off_holds_nothing_when_dispatch_stands_last() -> None:
    """While a hook waits to try a call again, a call of the same file goes on."""
    other_done = asyncio.Event()
    tries: list[int] = []

    @tool
    async def flaky(path: str) -> str:
        """Fail the first time."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("lost")
        return "ok"

    @tool
    async def other(path: str) -> str:
        """Let the retry go on."""
        other_done.set()
        return "other"

    class Patient(AgentMiddleware[Any, Any, Any]):
        async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            try:
                return await handler(request)
            except ConnectionError:
                await other_done.wait()
                return await handler(request)

    graph = dispatched(
        "agent",
        asks(("flaky", {"path": "a"}), ("other", {"path": "a"})),
        [flaky, other],
        agent={"middleware": [Patient()]},
        descriptors={"flaky": FILE, "other": FILE},
    )
    told = [content for _, _, content in answers(await run(graph))]
    assert ["ok", "other"] == told


async def test_human_in_the_loop_decides_before_dispatch_runs() -> None:
    """Of three calls one is rejected by a human: the others run, in order, and it never does."""
    files: dict[str, str] = {}
    graph = dispatched(
        "agent",
        EDITS,
        [editor(files, Overlap())],
        saved=True,
        agent={"middleware": [HumanInTheLoopMiddleware({"edit": True})]},
        descriptors={"edit": FILE},
    )
    state = await graph.ainvoke({"messages": []}, THREAD)
    assert 3 == len(state["__interrupt__"][0].value["action_requests"])
    decisions = [{"type": kind} for kind in ("approve", "reject", "approve")]
    state = await graph.ainvoke(Command(resume={"decisions": decisions}), THREAD)
    assert {"a": "one three "} == files
    assert {"c0", "c1", "c2"} == {call_id for call_id, _, _ in answers(state)}


def test_sync_agents_run_the_turn_too() -> None:
    """`invoke` of an agent: sync hooks, sync tools, in order where they conflict."""
    files: dict[str, str] = {}
    seen: list[str] = []

    @tool
    def edit(path: str, word: str) -> str:
        """Add a word."""
        files[path] = f"{files.get(path, '')}{word} "
        return f"added {word}"

    @wrap_tool_call
    def note(request: Any, handler: Callable[..., Any]) -> Any:
        seen.append(request.tool_call["id"])
        return handler(request)

    given = {"middleware": [note]}
    graph = dispatched("agent", EDITS, [edit], agent=given, descriptors={"edit": FILE})
    told = answers(graph.invoke({"messages": [HumanMessage("go")]}))
    assert ["added one", "added two", "added three"] == [content for _, _, content in told]
    assert {"a": "one two three "} == files
    assert {"c0", "c1", "c2"} == set(seen)


async def test_two_runs_of_one_agent_share_the_table_but_no_turn() -> None:
    """Two conversations at once: their calls to one file never overlap, both are answered."""
    files: dict[str, str] = {}
    overlap = Overlap()
    ours = DispatchMiddleware(descriptors={"edit": FILE})
    tools = [editor(files, overlap)]
    graphs = [create_agent(scripted(EDITS), tools, middleware=[ours]) for _ in range(2)]
    states = await asyncio.gather(*map(run, graphs))
    assert [3, 3] == [len(answers(state)) for state in states]
    assert 6 == len(files["a"].split())
    assert 1 == overlap.peak


@pytest.mark.parametrize(
    "options", [{"policy": AllOrNothing()}, {"schedule": "groups"}, {"schedule": "clusters"}]
)
def test_what_needs_a_whole_turn_is_refused(options: dict[str, Any]) -> None:
    """Each call waits in a task of its own, so nothing may wait for the end of the turn."""
    with pytest.raises(UsageError):
        DispatchMiddleware(**options)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_over_the_wire(provider: str) -> None:
    """With the real clients: one message of three calls is answered whole, in order, in time."""
    files: dict[str, str] = {}
    calls = [Call("edit", {"path": "a", "word": word}) for word in ("one", "two", "three")]
    with serve([Step(calls=tuple(calls)), Step("done")]) as server:
        model = chat_model(provider, server.url)
        tools = [editor(files, Overlap())]
        ours = DispatchMiddleware(descriptors={"edit": FILE})
        state = await run(create_agent(model, tools, middleware=[ours]))
    assert "done" == state["messages"][-1].text
    told = [content for _, _, content in answers(state)]
    assert ["added one", "added two", "added three"] == told
    assert {"a": "one two three "} == files


def chat_model(provider: str, url: str) -> Any:
    """LangChain's model of this provider, which asks our server."""
    if provider == "anthropic":
        return ChatAnthropic(
            model_name="claude-sonnet-5-5", base_url=url, api_key=KEY, max_retries=0
        )  # type: ignore[call-arg]
    return ChatOpenAI(model="gpt-6-sol", base_url=f"{url}/v1", api_key=KEY, max_retries=0)


async def test_calls_in_flight_at_once_meet(saver: str) -> None:
    """Calls that touch nothing run side by side, though each is a task of LangGraph's own."""
    meeting = Meeting(3)

    @tool
    async def meet(x: int) -> str:
        """Meet."""
        await meeting.join()
        return "met"

    message = asks(*[("meet", {"x": at}) for at in range(3)])
    ours = DispatchMiddleware(descriptors={"meet": FREE})
    keeper = InMemorySaver() if saver == "saved" else None
    graph = create_agent(scripted(message), [meet], middleware=[ours], checkpointer=keeper)
    told = [content for _, _, content in answers(await run(graph, **THREAD))]
    assert ["met"] * 3 == told


@pytest.mark.parametrize("module", ["dispatch", "dispatch.adapters", "dispatch.adapters.langgraph"])
def test_no_framework_is_imported_before_it_is_asked_for(module: str) -> None:
    """Importing dispatch, its adapters, or this package alone loads neither framework."""
    code = f"import sys, {module}; print(sorted({{'langgraph', 'langchain'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()


async def test_the_outputs_of_past_turns_are_not_kept() -> None:
    """The middleware forgets what its calls gave once all calls of the message have been told."""
    told: list[weakref.ref[ToolMessage]] = []

    class Watching(AgentMiddleware[Any, Any, Any]):
        """Sees what comes out of dispatch."""

        async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            output = await handler(request)
            told.append(weakref.ref(output))
            return output

    calls = [("edit", {"path": path, "word": "x"}) for path in "ab"]
    stack: list[Any] = [Watching(), DispatchMiddleware(descriptors={"edit": FILE})]
    others = set(threading.enumerate())
    for _ in range(3):
        await run(create_agent(scripted(asks(*calls)), [editor({}, Overlap())], middleware=stack))
    assert 6 == len(told)
    new = set(threading.enumerate()) - others
    workers = [one for one in new if one.name.startswith("dispatch-worker")]
    while any(one.is_alive() and not is_idle_worker(one) for one in workers):
        pass
    gc.collect()
    assert [None] * 4 == [one() for one in told[:4]]


async def test_repeated_ids_lose_no_call() -> None:
    """E6: calls of one id run in order, wait for none of their own, and are told one by one."""
    files: dict[str, str] = {}
    message = AIMessage("", tool_calls=[{**one, "id": "same"} for one in EDITS.tool_calls])
    ours = DispatchMiddleware(descriptors={"edit": FILE})
    graph = create_agent(scripted(message), [editor(files, Overlap())], middleware=[ours])
    told = answers(await asyncio.wait_for(run(graph), 10))
    assert [("same", "success", f"added {word}") for word in ("one", "two", "three")] == told
    assert {"a": "one two three "} == files
