"""What pydantic-ai makes of the streams of imitators, and what of it reaches dispatch.

pydantic-ai assembles the calls: a call that it glued together is refused, and nothing runs twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai import DefaultAsyncHttpxClient as OpenAIHttp
from pydantic_ai import capture_run_messages
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.frameworks.pydantic_ai.agents import FREE, answers, dispatched
from tests.frameworks.pydantic_ai.test_wire import model_of
from tests.providers import Call, Step, serve

TWO = (Call("act", {"n": 1}), Call("act", {"n": 2}))
ENDED = "the run ended"

Told = list[tuple[str, Any]]


@asynccontextmanager
async def streaming(provider: str, url: str) -> AsyncIterator[Model]:
    """A model whose client talks to this server, Responses too."""
    if provider != "responses":
        async with model_of(provider, url) as model:
            yield model
        return
    async with AsyncOpenAI(
        base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=OpenAIHttp(verify=False)
    ) as client:
        yield OpenAIResponsesModel("gpt-6-sol", provider=OpenAIProvider(openai_client=client))


async def streamed(way: str, provider: str, step: Step) -> tuple[str, list[int], Told]:
    """Stream the step to an agent: how the run ended, what ran, and what the model was told.

    Every answer has an id of its own, and the provider takes them.
    """
    ran = []

    async def act(n: int) -> str:
        ran.append(n)
        return f"did {n}"

    with serve([step, Step("done")]) as server:
        async with streaming(provider, server.url) as model:
            given: Any = model
            agent = dispatched(way, given, [act], descriptors={"act": FREE})
            with capture_run_messages() as messages:
                try:
                    async with agent.run_stream("go") as stream:
                        output = await stream.get_output()
                except UnexpectedModelBehavior:
                    output = ENDED
    told = answers(messages)
    assert len(told) == len({call_id for call_id, _, _ in told})
    return output, sorted(ran), [(outcome, content) for _, outcome, content in told]


@pytest.mark.parametrize("provider", ["anthropic", "openai", "responses"])
async def test_interleaved_fragments(way: str, provider: str) -> None:
    """E1, E2: fragments that take turns make two calls, each of which runs once."""
    output, ran, told = await streamed(way, provider, Step("", TWO, quirk="interleaved"))
    assert ("done", [1, 2]) == (output, ran)
    assert [("success", "did 1"), ("success", "did 2")] == told


async def test_all_calls_on_one_index(way: str) -> None:
    """E1: pydantic-ai glues them, names too; there is no such tool, and the model is told so."""
    output, ran, told = await streamed(way, "openai", Step("", TWO, quirk="index0"))
    assert ("done", []) == (output, ran)
    assert [("retried", "Unknown tool name: 'actact'. Available tools: 'act'")] == told


@pytest.mark.parametrize("cuts", [(), (3,)], ids=["whole", "growing"])
async def test_cumulative_chunks(way: str, cuts: tuple[int, ...]) -> None:
    """E5: what was repeated is glued and refused by pydantic-ai; nothing runs twice."""
    calls = (Call("act", {"n": 1}, cuts=cuts), Call("act", {"n": 2}, cuts=()))
    output, ran, told = await streamed(way, "openai", Step("", calls, quirk="cumulative"))
    assert ("done", [2]) == (output, ran)
    assert ["retried", "success"] == [outcome for outcome, _ in told]
    assert "Unknown tool name: 'actact" in told[0][1]


async def test_a_call_announced_twice(way: str) -> None:
    """E8: pydantic-ai takes it for two calls of one id, and ends the run; none of them runs."""
    assert (ENDED, [], []) == await streamed(
        way, "responses", Step("", TWO, quirk="announced_twice")
    )


@pytest.mark.parametrize("provider", ["anthropic", "openai", "responses"])
async def test_arguments_of_two_calls_in_one(way: str, provider: str) -> None:
    """E3: two objects in one call's arguments are refused aloud, not dropped; others run."""
    calls = (Call("act", '{"n": 1}{"n": 2}'), Call("act", {"n": 3}))
    output, ran, told = await streamed(way, provider, Step("", calls))
    assert ("done", [3]) == (output, ran)
    assert ["retried", "success"] == [outcome for outcome, _ in told]
    assert "trailing characters" in str(told[0][1])


@pytest.mark.parametrize("quirk", ["no_ids", "empty_ids"])
async def test_calls_without_ids(way: str, quirk: str) -> None:
    """E6: calls without ids get some from pydantic-ai; each runs once and has its own answer."""
    output, ran, told = await streamed(way, "openai", Step("", TWO, quirk=quirk))
    assert ("done", [1, 2]) == (output, ran)
    assert [("success", "did 1"), ("success", "did 2")] == told
