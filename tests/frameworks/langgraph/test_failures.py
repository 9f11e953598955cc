"""Cases G and M: failures among siblings, threads, context variables."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool
from langgraph.errors import GraphBubbleUp

from dispatch import AllOrNothing, ToolConcurrency
from tests.frameworks.langgraph.graphs import (
    FREE,
    THREAD,
    answers,
    asks,
    dispatched,
    run,
    some_steps,
)

HANDLED: dict[str, Any] = {"node": {"handle_tool_errors": True}}


@tool
async def good(x: int) -> str:
    """Work."""
    return f"real {x}"


@tool
async def bad() -> str:
    """Fail."""
    raise ValueError("exit code 1")


def handled(way: str, *tools: BaseTool) -> dict[str, Any]:
    """What makes the failure of a tool an answer: the node's setting, or an agent's middleware."""
    from langchain.agents.middleware import ToolRetryMiddleware

    if way == "node":
        return HANDLED
    retry = ToolRetryMiddleware(max_retries=0, on_failure=lambda error: f"failed: {error}")
    return {"agent": {"middleware": [retry]}}


async def test_one_failure_leaves_the_others_their_results(way: str, saver: str) -> None:
    """G1, G2, G4: of 27 calls one fails; 26 have real results, and its answer says why."""
    calls: list[Any] = [("good", {"x": at}) for at in range(26)]
    message = asks(*calls[:13], ("bad", {}), *calls[13:])
    graph = dispatched(
        way,
        message,
        [good, bad],
        saved=saver == "saved",
        undeclared="parallel",
        **handled(way),
    )
    told = answers(await run(graph, **THREAD))
    assert [f"c{at}" for at in range(27)] == [one[0] for one in told]
    assert 26 == sum(one[2].startswith("real") for one in told)
    assert "exit code 1" in told[13][2]


async def test_a_skipped_call_names_the_failure_that_led_to_it() -> None:
    """G3: the failure is told as it was, and the call that depends on it names it."""
    graph = dispatched(
        "node", asks(("bad", {}), ("good", {"x": 1})), [good, bad], dependents="skip", **HANDLED
    )
    (_, first, error), (_, second, skipped) = answers(await run(graph))
    assert ("error", "error") == (first, second)
    assert "exit code 1" in error
    assert "bad (call 0) failed" in skipped


@pytest.mark.parametrize(
    ("way", "stops"), [("node", "raises"), ("node", "jumps"), ("agent", "raises")]
)
async def test_a_failure_that_nobody_handles_stops_the_others_first(
    way: str, saver: str, stops: str
) -> None:
    """G5, G6: siblings are stopped and awaited before the error is raised; nothing comes after."""
    began, effects = asyncio.Event(), list[str]()

    @tool
    async def fatal() -> str:
        """Fail once the other runs."""
        await began.wait()
        error = ValueError if stops == "raises" else GraphBubbleUp
        raise error("out of here")

    @tool
    async def writer() -> str:
        """Write much later."""
        began.set()
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            await some_steps()
            effects.append("stopped")
            raise
        effects.append("wrote")
        return "wrote"

    @tool
    async def patch() -> str:
        """Run behind the writer."""
        effects.append("patched")
        return "patched"

    graph = dispatched(
        way,
        asks(("fatal", {}), ("writer", {}), ("patch", {})),
        [fatal, writer, patch],
        saved=saver == "saved",
        descriptors={
            "fatal": FREE,
            "writer": ToolConcurrency(writes="file:a"),
            "patch": ToolConcurrency(writes="file:a"),
        },
        grace=0.05,
    )
    expected = ValueError if stops == "raises" else GraphBubbleUp
    with pytest.raises(expected, match="out of here"):
        await run(graph, **THREAD)
    assert ["stopped"] == effects
    await asyncio.sleep(0.05)
    assert ["stopped"] == effects


async def test_fail_fast_returns_at_once() -> None:
    """G8: under all-or-nothing the second call's failure cancels the first, which notices it."""
    cancelled = []

    @tool
    async def sleep() -> str:
        """Sleep."""
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append("sleep")
            raise
        return "slept"

    graph = dispatched(
        "node",
        asks(("sleep", {}), ("bad", {})),
        [sleep, bad],
        undeclared="parallel",
        policy=AllOrNothing(),
        grace=0.05,
        **HANDLED,
    )
    (_, _, first), (_, _, second) = answers(await run(graph))
    assert ["sleep"] == cancelled
    assert first.startswith("[cancelled]")
    assert "exit code 1" in second


async def test_what_a_stopped_tool_holds_is_closed(way: str) -> None:
    """G9: when one of two fails, the other is cancelled, awaited and closed."""
    connected, story = asyncio.Event(), list[str]()

    @tool
    async def connect_a() -> str:
        """Connect, slowly."""
        story.append("open")
        connected.set()
        try:
            await asyncio.sleep(60)
        finally:
            await some_steps()
            story.append("closed")
        return "connected"

    @tool
    async def connect_b() -> str:
        """Fail once A has begun."""
        await connected.wait()
        raise ConnectionError("no B")

    message = asks(("connect_a", {}), ("connect_b", {}))
    graph = dispatched(way, message, [connect_a, connect_b], undeclared="parallel", grace=0.05)
    with pytest.raises(ConnectionError, match="no B"):
        await run(graph)
    assert ["open", "closed"] == story


async def test_sync_tools_do_not_block_the_loop(way: str, saver: str) -> None:
    """M1: two blocking tools run at once, in threads, and the loop goes on meanwhile."""
    meeting = threading.Barrier(3)
    threads: set[int] = set()

    @tool
    def block(x: int) -> str:
        """Block until the other one and the loop have come."""
        threads.add(threading.get_ident())
        meeting.wait(10)
        return f"{x}"

    message = asks(("block", {"x": 1}), ("block", {"x": 2}))
    graph = dispatched(way, message, [block], saved=saver == "saved", descriptors={"block": FREE})
    state, _ = await asyncio.gather(run(graph, **THREAD), asyncio.to_thread(meeting.wait, 10))
    assert ["1", "2"] == [content for _, _, content in answers(state)]
    assert 2 == len(threads - {threading.get_ident()})


TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


@pytest.mark.parametrize(
    ("way", "kind", "by"),
    [
        ("node", "sync", "ainvoke"),
        ("node", "sync", "invoke"),
        ("node", "async", "ainvoke"),
        ("node", "async", "invoke"),
        ("agent", "sync", "ainvoke"),
        ("agent", "sync", "invoke"),
        ("agent", "async", "ainvoke"),
    ],
)
async def test_tools_see_the_callers_context_variables(
    way: str, saver: str, kind: str, by: str
) -> None:
    """M4: both tools read what the caller set; what one writes the other does not see."""

    def seen(x: int) -> str:
        found = TENANT.get()
        TENANT.set(f"changed by {x}")
        return found

    @tool("look")
    def look(x: int) -> str:
        """Look."""
        return seen(x)

    @tool("look")
    async def alook(x: int) -> str:
        """Look."""
        return seen(x)

    TENANT.set("acme")
    message = asks(("look", {"x": 1}), ("look", {"x": 2}))
    one = look if kind == "sync" else alook
    graph = dispatched(way, message, [one], saved=saver == "saved", descriptors={"look": FREE})
    if by == "invoke":
        state = await asyncio.to_thread(graph.invoke, {"messages": []}, THREAD)
    else:
        state = await run(graph, **THREAD)
    assert ["acme", "acme"] == [content for _, _, content in answers(state)]
