"""Going on after a run that was broken off in the middle of its calls, with the real wires."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic_ai import ModelMessage, UserError, capture_run_messages

from dispatch.adapters.pydantic_ai import close_open_calls
from tests.frameworks.pydantic_ai.agents import FREE, answers, dispatched, some_steps
from tests.frameworks.pydantic_ai.test_histories import FIRST, LOST, PROVIDERS, act, asked
from tests.frameworks.pydantic_ai.test_wire import model_of
from tests.providers import Call, Step, serve

BY_HOST = "The tool call was interrupted before a result was produced."


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_cancelled_run_and_a_new_prompt(way: str, provider: str) -> None:
    """D1, D2: [quick, hang] is cancelled; a new run with a new prompt is taken by the provider.

    The quick call's real result is in it, and the other is told as interrupted: one each.
    """
    hangs = asyncio.Event()

    async def act(n: int) -> str:
        if n:
            hangs.set()
            await asyncio.Event().wait()
        return f"did {n}"

    turn = Step("", (Call("act", {"n": 0}), Call("act", {"n": 1})))
    with serve([turn, Step("done")]) as server:
        async with model_of(provider, server.url) as model:
            given: Any = model
            agent = dispatched(way, given, [act], descriptors={"act": FREE}, grace=0.01)
            with capture_run_messages() as messages:
                running = asyncio.create_task(agent.run("go"))
                await hangs.wait()
                await some_steps()
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            result = await agent.run("something else", message_history=messages)
    assert "done" == result.output
    outcomes = [(outcome, content) for _, outcome, content in answers(result)]
    assert [("success", "did 0"), ("interrupted", BY_HOST)] == outcomes


async def test_a_prompt_on_top_of_open_calls(way: str) -> None:
    """D1: pydantic-ai refuses it before any hook; `close_open_calls` on the history opens the way.

    That is a run that died with its process, before any result was there.
    """
    history: list[ModelMessage] = [FIRST, asked("x", "y")]
    with serve([Step("done")] * 3) as server:
        async with model_of("anthropic", server.url) as model:
            given: Any = model
            agent = dispatched(way, given, [act])
            with pytest.raises(UserError, match="unprocessed tool calls"):
                await agent.run("go on", message_history=history)
            result = await agent.run("go on", message_history=close_open_calls(history))
    assert "done" == result.output
    assert [("x", "interrupted", LOST), ("y", "interrupted", LOST)] == answers(result)
