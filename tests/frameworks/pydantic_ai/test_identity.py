"""Which result belongs to which call: ids, and histories that were broken off."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    ModelMessage,
    capture_run_messages,
)
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelResponse, ToolCallPart

from tests.frameworks.pydantic_ai.agents import (
    FREE,
    answers,
    asks,
    dispatched,
    scripted,
    some_steps,
)


async def test_many_calls_of_one_tool(way: str) -> None:
    """E4: calls of one name are calls of their own."""

    async def search(text: str) -> str:
        return text.upper()

    turn = asks(("search", {"text": "x"}), ("search", {"text": "y"}))
    agent = dispatched(way, scripted(turn), [search], descriptors={"search": FREE})
    assert ["X", "Y"] == [content for _, _, content in answers(await agent.run("go"))]


@pytest.mark.parametrize("call_id", ["", "same"])
async def test_repeated_ids_are_refused_by_the_host(way: str, call_id: str) -> None:
    """E5, E6: pydantic-ai itself refuses a message with repeated ids, empty ones too; none runs."""
    ran = []

    async def act() -> None:
        ran.append(1)

    turn = ModelResponse([ToolCallPart("act", {}, call_id), ToolCallPart("act", {}, call_id)])
    agent = dispatched(way, scripted(turn), [act])
    with pytest.raises(UnexpectedModelBehavior, match="unique"):
        await agent.run("go")
    assert [] == ran


async def test_ids_that_a_provider_left_out_are_made(way: str) -> None:
    """E6: calls without ids get some from pydantic-ai, and each gets its own result."""

    async def act(n: int) -> int:
        return n

    turn = ModelResponse([ToolCallPart("act", {"n": n}) for n in range(3)])
    agent = dispatched(way, scripted(turn), [act], descriptors={"act": FREE})
    told = answers(await agent.run("go"))
    assert [0, 1, 2] == [content for _, _, content in told]
    assert [part.tool_call_id for part in turn.tool_calls] == [call_id for call_id, _, _ in told]


async def test_an_abort_keeps_what_is_finished(way: str) -> None:
    """D1, D2: when a run is aborted, finished calls keep their results, and every call is closed.

    pydantic-ai closes the call that hung when the history is used again.
    """
    hangs = asyncio.Event()

    async def fast(n: int) -> int:
        return n

    async def hang() -> str:
        hangs.set()
        await asyncio.Event().wait()
        return "never"

    agent = dispatched(
        way,
        scripted(asks(("fast", {"n": 1}), ("fast", {"n": 2}), ("hang", {}))),
        [fast, hang],
        descriptors={"fast": FREE, "hang": FREE},
        grace=0.01,
    )
    messages: list[ModelMessage] = []
    running = asyncio.create_task(recorded(agent, messages))
    await hangs.wait()
    await some_steps()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [("c0", "success", 1), ("c1", "success", 2)] == answers(messages)
    told = answers(await agent.run("go on", message_history=messages))
    assert [("c0", "success"), ("c1", "success"), ("c2", "interrupted")] == [t[:2] for t in told]


async def test_aborting_three_times_closes_every_call_once(way: str) -> None:
    """D3: each attempt at a turn closes its own calls, and closing them again changes nothing."""
    started = asyncio.Event()

    async def hang() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    steps = [asks(("hang", {}), ("hang", {}), first=2 * n) for n in range(3)]
    agent = dispatched(way, scripted(*steps), [hang], descriptors={"hang": FREE}, grace=0.01)
    history: list[ModelMessage] = []
    for _ in range(3):
        started.clear()
        messages: list[ModelMessage] = []
        running = asyncio.create_task(recorded(agent, messages, history))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        history = messages
    result = await agent.run("the last", message_history=history)
    asked = [
        part.tool_call_id
        for message in result.all_messages()
        if isinstance(message, ModelResponse)
        for part in message.tool_calls
    ]
    assert asked == [call_id for call_id, _, _ in answers(result)]
    assert 6 == len(asked)


async def recorded(
    agent: Agent[Any, Any], messages: list[ModelMessage], history: list[ModelMessage] | None = None
) -> None:
    """Run the agent; the messages are there however the run ends."""
    with capture_run_messages() as captured:
        try:
            await agent.run("go", message_history=history)
        finally:
            messages.extend(captured)
