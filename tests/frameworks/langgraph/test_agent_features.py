"""What `create_agent` gives its tools, unchanged by `DispatchMiddleware`; and timing, both ways."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
import structlog
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config, get_store, get_stream_writer
from langgraph.prebuilt import InjectedState, InjectedStore, ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

from dispatch import ToolConcurrency
from dispatch.adapters.langgraph import DispatchMiddleware
from tests.frameworks.langgraph.graphs import (
    FREE,
    THREAD,
    ScriptedModel,
    answers,
    asks,
    dispatched,
    run,
    scripted,
    some_steps,
)

GO: Any = {"messages": [HumanMessage("go")]}


async def test_state_store_id_and_runtime_are_injected(saver: str) -> None:
    """InjectedState, InjectedStore, InjectedToolCallId and ToolRuntime arrive as without it."""

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
    given = {"store": store}
    graph = dispatched("agent", message, [everything], saved=saver == "saved", agent=given)
    told = [content for _, _, content in answers(await run(graph, **THREAD))]
    assert ["1 2 kept c0", "2 2 kept c1"] == told


@pytest.mark.parametrize("by", ["writer", "runtime"])
async def test_the_stream_comes_out_as_it_is_written(way: str, saver: str, by: str) -> None:
    """What a tool writes is read while it runs: it goes on only once it has been read."""
    read = asyncio.Event()

    @tool
    async def tell(x: int, runtime: ToolRuntime) -> str:
        """Tell, and wait until that has been read."""
        write = get_stream_writer() if by == "writer" else runtime.stream_writer
        write({"progress": x})
        await read.wait()
        write({"read": x})
        return "told"

    graph = dispatched(way, asks(("tell", {"x": 1})), [tell], saved=saver == "saved")
    told = []
    async for one in graph.astream(GO, THREAD, stream_mode="custom"):
        told.append(one)
        read.set()
    assert [{"progress": 1}, {"read": 1}] == told


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
        return f"{config['configurable']['user']}"

    heard = Heard()
    config = {**THREAD["configurable"], "user": "ann"}
    graph = dispatched("agent", asks(("who", {})), [who], saved=saver == "saved")
    state = await run(graph, configurable=config, callbacks=[heard])
    assert [("c0", "success", "ann")] == answers(state)
    assert ["start who", "end c0"] == heard.story


def test_one_middleware_serves_two_loops_at_once(saver: str) -> None:
    """Two threads with a loop each use one agent; a shared file has one writer at a time."""
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
    ours = DispatchMiddleware(descriptors=descriptors)
    told: list[Any] = []

    def own_loop(thread: str) -> None:
        keeper = InMemorySaver() if saver == "saved" else None
        graph = create_agent(
            scripted(message), [meet, edit], middleware=[ours], checkpointer=keeper
        )
        config: Any = {"configurable": {"thread_id": thread}}
        told.append(answers(asyncio.run(graph.ainvoke(GO, config))))

    threads = [threading.Thread(target=own_loop, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    expected = [("c0", "success", "met"), ("c1", "success", "a"), ("c2", "success", "b")]
    assert [expected, expected] == told
    assert [1] == peak


async def test_tools_that_ran_alone_are_named_once_over_two_runs() -> None:
    """A middleware that serves two runs says once which tools ran alone."""

    @tool
    async def count(x: int) -> str:
        """Count."""
        return f"{x}"

    steps = [AIMessage("done"), asks(("count", {"x": 1}))] * 2
    model = ScriptedModel(messages=iter(steps[::-1][:4]))
    graph = create_agent(model, [count], middleware=[DispatchMiddleware()])
    with structlog.testing.capture_logs() as logs:
        states = [await run(graph), await run(graph)]
    assert [1, 1] == [len(answers(state)) for state in states]
    assert [["count"]] == [log["tools"] for log in logs if log["log_level"] == "warning"]


async def test_the_loop_ticks_while_sync_tools_block(way: str, saver: str) -> None:
    """M1: two tools block their threads until the loop has ticked a hundred times meanwhile."""
    blocking, ticked = threading.Barrier(3), threading.Event()

    @tool
    def block(x: int) -> str:
        """Block until the other one blocks, too, and the loop has ticked."""
        blocking.wait(10)
        return f"{x} {ticked.wait(10)}"

    async def tick() -> None:
        await asyncio.to_thread(blocking.wait, 10)
        for _ in range(100):
            await asyncio.sleep(0)
        ticked.set()

    message = asks(("block", {"x": 1}), ("block", {"x": 2}))
    graph = dispatched(way, message, [block], saved=saver == "saved", descriptors={"block": FREE})
    state, _ = await asyncio.gather(run(graph, **THREAD), tick())
    assert ["1 True", "2 True"] == [content for _, _, content in answers(state)]


async def test_what_comes_late_changes_nothing(way: str) -> None:
    """D9: the result of a call that was given up is there at last, and goes nowhere."""
    let_go, returned = threading.Event(), threading.Event()

    class Late(str):
        """A result that says when it is gone."""

        def __del__(self) -> None:
            returned.set()

    @tool
    def stuck() -> str:
        """Block its thread."""
        let_go.wait(10)
        return Late("late")

    graph = dispatched(way, asks(("stuck", {})), [stuck], saved=True, call_timeout=0.1, grace=0.02)
    state = await run(graph, **THREAD)
    let_go.set()
    assert await asyncio.to_thread(returned.wait, 10)
    await some_steps()
    kept = answers((await graph.aget_state(THREAD)).values)
    assert answers(state) == kept
    ((call_id, status, content),) = kept
    assert ("c0", "error") == (call_id, status)
    assert "late" not in content


async def test_a_call_without_a_name_is_answered() -> None:
    """F4: what LangChain has read wrong of a stream, and has no name, is told so."""
    asked: Any = {"name": "", "args": {}, "id": None, "type": "tool_call"}
    request = ToolCallRequest(tool_call=asked, tool=None, state={}, runtime=None)  # type: ignore[arg-type]

    async def handler(request: ToolCallRequest) -> Any:
        raise AssertionError("it ran")

    told: Any = await DispatchMiddleware().awrap_tool_call(request, handler)
    assert ("error", "") == (told.status, told.tool_call_id)
    assert told.text.startswith("[error] no tool is named ''")
