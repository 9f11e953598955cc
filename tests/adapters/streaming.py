"""What the tests of streams share: the five assemblers, raw events, and the SDKs' own streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from importlib import import_module
from typing import Any

from dispatch import ToolCall, ToolResult
from dispatch.adapters import (
    AnthropicMessages,
    BedrockConverse,
    Gemini,
    OpenAIChat,
    OpenAIResponses,
)
from dispatch.adapters.provider import Provider
from dispatch.adapters.streams import Stream
from tests.providers import Call, Step, chunks
from tests.providers.clients import (
    SDKS,
    bedrock_client,
    bedrock_request,
    chat_request,
    gemini_request,
    messages_request,
    responses_request,
)
from tests.providers.script import JSON

PROVIDERS: dict[str, Provider[Any, Any]] = {
    "anthropic": AnthropicMessages(),
    "chat": OpenAIChat(),
    "responses": OpenAIResponses(),
    "gemini": Gemini(),
    "bedrock": BedrockConverse(),
}
CALLS = (
    Call("read", {"path": "a b.py", "deep": {"x": [1, None, "é"]}}, cuts=(0, 3, 4, 20)),
    Call("read", {"path": "c"}, cuts=()),
    Call("ls", {}),
)
STEP = Step("I look.", CALLS)
WITH_USAGE = {"stream_options": {"include_usage": True}}

Read = tuple[list[ToolCall], Stream]


def raw(name: str, step: Step, at: int = 0) -> list[JSON]:
    """The events of a step, for chat with the usage behind the end."""
    return chunks(SDKS[name].wire, step, at, **WITH_USAGE)


def read(name: str, events: Iterable[object], messages: Sequence[Any] = ()) -> Read:
    """The calls of a whole stream, and the assembler that read it."""
    stream = PROVIDERS[name].stream(messages)
    calls = [call for event in events for call in stream.feed(event)]
    stream.close()
    return calls, stream


def whole(name: str, step: Step, at: int = 0) -> JSON:
    """The complete answer that says what the stream of this step does."""
    return SDKS[name].wire.complete(step, at, {"model": "model"})


def essence(calls: Iterable[ToolCall]) -> list[tuple[str, str, Any]]:
    """Id, name and arguments, be these text or an object."""
    return [(call.id, call.name, parsed(call.arguments)) for call in calls]


def parsed(arguments: Mapping[str, Any] | str) -> Any:
    """Arguments as what they say."""
    return json.loads(arguments or "{}") if isinstance(arguments, str) else arguments


def completes(name: str, events: Sequence[object]) -> list[int]:
    """The numbers of the events by which a call is complete."""
    stream = PROVIDERS[name].stream()
    return [number for number, event in enumerate(events) if stream.feed(event)]


def history(name: str, message: Any, results: Iterable[ToolResult]) -> list[Any]:
    """A conversation with this message of the model and its answers at the end."""
    reply = PROVIDERS[name].reply(results)
    told = [message, reply] if isinstance(message, Mapping) else [*message]
    if isinstance(message, Mapping) and isinstance(reply, list):
        told = [message, *reply]
    elif isinstance(reply, list):
        told += reply
    return [SDKS[name].ask, *told]


def request(name: str, messages: list[Any]) -> JSON:
    """A request with this history as it is on the wire."""
    if name == "gemini":
        return {"model": "model", "contents": messages}
    if name == "bedrock":
        return {"model": "model", **bedrock_request(messages)}
    make = {"anthropic": messages_request, "chat": chat_request, "responses": responses_request}
    return make[name](messages)


def accepted(name: str, step: Step, messages: list[Any]) -> bool:
    """Whether the provider takes this history, whose one message of the model the step says.

    It raises for a history that it does not take.
    """
    said, at = SDKS[name].wire.next_step([step, Step("Done.")], request(name, messages))
    return (Step("Done."), 1) == (said, at)


@asynccontextmanager
async def opened(name: str, url: str, messages: list[Any]) -> AsyncIterator[Any]:
    """The stream of the provider's own SDK, asynchronous where that has one."""
    SDKS[name].refusal()  # skips where it is not installed
    if name == "bedrock":
        with closing(bedrock_client(url)) as client:
            answer = client.converse_stream(**bedrock_request(messages))
            with closing(answer["stream"]) as events:
                yield events
    elif name == "gemini":
        async with _gemini(url) as client:
            events = await client.models.generate_content_stream(**gemini_request(messages))
            async with aclosing(events):
                yield events
    else:
        make = _anthropic if name == "anthropic" else _openai
        async with make(url) as client, await _asked(name, client, messages) as events:
            yield events


async def _asked(name: str, client: Any, messages: list[Any]) -> Any:
    if name == "anthropic":
        return await client.messages.create(**messages_request(messages), stream=True)
    if name == "chat":
        asked = {**chat_request(messages), **WITH_USAGE}
        return await client.chat.completions.create(**asked, stream=True)
    return await client.responses.create(**responses_request(messages), stream=True)


def _anthropic(url: str) -> Any:
    sdk = import_module("anthropic")
    http = sdk.DefaultAsyncHttpxClient(verify=False)
    return sdk.AsyncAnthropic(base_url=url, api_key="any", max_retries=0, http_client=http)


def _openai(url: str) -> Any:
    sdk = import_module("openai")
    http = sdk.DefaultAsyncHttpxClient(verify=False)
    return sdk.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=http)


@asynccontextmanager
async def _gemini(url: str) -> AsyncIterator[Any]:
    unverified = {"verify": False}
    options = {"base_url": url, "client_args": unverified, "async_client_args": unverified}
    genai = import_module("google.genai")
    with genai.Client(api_key="any", http_options=options) as client:
        async with client.aio as asynchronous:
            yield asynchronous


def numbered(events: Sequence[object]) -> Iterator[tuple[int, object]]:
    """The events with their numbers, without those that an SDK keeps to itself."""
    return (
        (number, event)
        for number, event in enumerate(events)
        if not (isinstance(event, dict) and event.get("type") == "ping")
    )
