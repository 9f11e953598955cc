"""With pydantic-ai's own models and the providers' SDKs, against a server on loopback.

It answers 400 where the provider would: calls without results, results without calls, …
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from anthropic import DefaultAsyncHttpxClient as AnthropicHttp
from openai import AsyncOpenAI
from openai import DefaultAsyncHttpxClient as OpenAIHttp
from pydantic_ai import Agent, FunctionToolset, ModelRetry
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.frameworks.pydantic_ai.agents import FREE, MEND, answers, dispatched, some_steps
from tests.providers import Call, Step, serve

TURN = Step(
    calls=(
        Call("act", {"n": 0}),
        Call("act", {"n": 1}),
        Call("act", {"n": "x"}),
        Call("act", {"n": 3}),
        Call("act", {"n": 4}),
    ),
)


@asynccontextmanager
async def model_of(provider: str, url: str) -> AsyncIterator[Model]:
    """A model of pydantic-ai whose client talks to this server."""
    if provider == "anthropic":
        async with AsyncAnthropic(
            base_url=url, api_key="any", max_retries=0, http_client=AnthropicHttp(verify=False)
        ) as anthropic:
            yield AnthropicModel(
                "claude-sonnet-5-5", provider=AnthropicProvider(anthropic_client=anthropic)
            )
    else:
        async with AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="any",
            max_retries=0,
            http_client=OpenAIHttp(verify=False),
        ) as openai:
            yield OpenAIChatModel("gpt-6-sol", provider=OpenAIProvider(openai_client=openai))


def acting(
    way: str, model: Model, shift: int = 0, ended: list[int] | None = None
) -> Agent[Any, Any]:
    """An agent whose tool succeeds, fails, and asks for a retry; `shift` changes its timing."""

    async def act(n: int) -> str:
        await some_steps((n * 7 + shift * 3) % 11)
        if ended is not None:
            ended.append(n)
        if n == 1:
            raise OSError("disk full")
        if n == 3:
            raise ModelRetry("not three")
        return f"did {n}"

    toolset = FunctionToolset[Any]([act])
    given: Any = model
    return dispatched(way, given, toolset, descriptors={"act": FREE})


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_the_provider_takes_the_history(way: str, provider: str, streamed: bool) -> None:
    """D1: results, failures and retries of one turn are one answer per call, as the API wants."""
    with serve([TURN, Step("done")]) as server:
        async with model_of(provider, server.url) as model:
            agent = acting(way, model)
            if streamed:
                async with agent.run_stream("go") as stream:
                    assert "done" == await stream.get_output()
                told = answers(stream.all_messages())
            else:
                result = await agent.run("go")
                assert "done" == result.output
                told = answers(result)
        ids = results_sent(provider, json.loads(server.requests[1]))
    outcomes = ["success", "failed", "retried", "retried", "success"]
    assert outcomes == [outcome for _, outcome, _ in told]
    assert ids == [call_id for call_id, _, _ in told]


def results_sent(provider: str, request: dict[str, Any]) -> list[str]:
    """The ids of the results in a request, in the order sent."""
    messages = request["messages"]
    if provider == "openai":
        return [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    return [one["tool_use_id"] for one in messages[2]["content"] if one["type"] == "tool_result"]


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
async def test_the_same_bytes_under_ten_timings(way: str, provider: str) -> None:
    """D7: in whatever order calls end, the next request of a run is the same, byte for byte."""
    bodies, orders = set(), set()
    with serve([TURN, Step("done")]) as server:
        for shift in range(10):
            ended: list[int] = []
            async with model_of(provider, server.url) as model:
                await acting(way, model, shift, ended).run("go")
            bodies.add(server.requests[-1])
            orders.add(tuple(ended))
    assert 1 == len(bodies)
    assert len(orders) > 3


async def test_what_the_model_reads_of_a_failure(way: str) -> None:
    """G3: Anthropic gets the tool's own words, marked as an error."""
    with serve([TURN, Step("done")]) as server:
        async with model_of("anthropic", server.url) as model:
            await acting(way, model).run("go")
        blocks = json.loads(server.requests[1])["messages"][2]["content"]
    text = {"type": "text", "text": f"[error] OSError: disk full{MEND}"}
    assert ([text], True) == (blocks[1]["content"], blocks[1]["is_error"])
