"""Runs that are streamed, watched or taken step by step."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

from pydantic_ai import (
    AgentStreamEvent,
    RunContext,
)
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
)

from tests.frameworks.pydantic_ai.agents import (
    FREE,
    Meeting,
    answers,
    asks,
    dispatched,
    scripted,
    some_steps,
)


async def test_a_streamed_run(way: str) -> None:
    """run_stream runs the calls of the turns before the text that it streams."""
    meeting = Meeting(2)

    async def act(n: int) -> int:
        await meeting.join()
        return n

    turn = asks(("act", {"n": 0}), ("act", {"n": 1}))
    agent = dispatched(way, scripted(turn), [act], descriptors={"act": FREE})
    async with agent.run_stream("go") as stream:
        assert "done" == await stream.get_output()
    assert [("c0", "success", 0), ("c1", "success", 1)] == answers(stream.all_messages())


async def test_the_event_stream(way: str) -> None:
    """Calls are announced in intent order, results as they come; the history has intent order."""
    meeting = Meeting(2)
    events: list[AgentStreamEvent] = []

    async def act(n: int) -> int:
        await meeting.join()
        await some_steps(10 - 5 * n)
        return n

    async def listen(ctx: RunContext[Any], stream: AsyncIterable[AgentStreamEvent]) -> None:
        events.extend([event async for event in stream])

    turn = asks(("act", {"n": 0}), ("act", {"n": 1}))
    agent = dispatched(way, scripted(turn), [act], descriptors={"act": FREE})
    result = await agent.run("go", event_stream_handler=listen)
    called = [e.part.tool_call_id for e in events if isinstance(e, FunctionToolCallEvent)]
    ended = [e.part.tool_call_id for e in events if isinstance(e, FunctionToolResultEvent)]
    assert (["c0", "c1"], ["c1", "c0"]) == (called, ended)
    assert ["c0", "c1"] == [call_id for call_id, _, _ in answers(result)]


async def test_step_by_step(way: str) -> None:
    """agent.iter sees the same nodes, and its messages have one result per call."""

    async def act() -> str:
        return "ok"

    agent = dispatched(way, scripted(asks(("act", {}), ("act", {}))), [act])
    async with agent.iter("go") as run:
        nodes = [type(node).__name__ async for node in run]
    assert ["UserPromptNode", "ModelRequestNode", "CallToolsNode"] == nodes[:3]
    assert ["c0", "c1"] == [call_id for call_id, _, _ in answers(run.all_messages())]
