"""How each provider's own SDK asks the server, so that one test can run with all of them.

Every SDK is imported when it is used, since some take a second. Nothing is retried, no client
outlives its use, and none reads the machine's certificates, which takes longer than all else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest

from tests.providers import (
    anthropic_wire,
    bedrock_wire,
    gemini_wire,
    openai_wire,
    responses_wire,
)
from tests.providers.script import JSON, Step
from tests.providers.server import serve
from tests.providers.wire import Wire

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


@dataclass(frozen=True, slots=True)
class SDK:
    """A provider's SDK, asked with a history in the provider's form.

    `complete` and `events` take the server's url and a history, and give what the SDK understood
    as dictionaries. `refusal` and `broken` name the errors for a 400 and for a stream that ends in
    the middle. `ask` begins a history.
    """

    wire: Wire
    complete: Callable[[str, Any], JSON]
    events: Callable[[str, Any], Generator[JSON, None, None]]
    refusal: Callable[[], type[Exception]]
    broken: Callable[[], type[Exception]]
    ask: JSON


def _of(module: str, name: str) -> Callable[[], type[Exception]]:
    """An exception that is looked up when it is wanted."""

    def found() -> type[Exception]:
        kind: type[Exception] = getattr(import_module(module), name)
        return kind

    return found


def anthropic_client(url: str) -> Any:
    """A client of Anthropic's SDK."""
    sdk = import_module("anthropic")
    http = sdk.DefaultHttpxClient(verify=False)
    return sdk.Anthropic(base_url=url, api_key="any", max_retries=0, http_client=http)


def openai_client(url: str) -> Any:
    """A client of OpenAI's SDK."""
    sdk = import_module("openai")
    http = sdk.DefaultHttpxClient(verify=False)
    return sdk.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=http)


def gemini_client(url: str) -> Any:
    """A client of Google's SDK."""
    genai = import_module("google.genai")
    unverified = {"verify": False}
    options = {"base_url": url, "client_args": unverified, "async_client_args": unverified}
    return genai.Client(api_key="any", http_options=options)


def bedrock_client(url: str) -> Any:
    """A client of Amazon's SDK."""
    config = import_module("botocore.config").Config
    return import_module("boto3").client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=config(retries={"total_max_attempts": 1}),
    )


def messages_request(history: Sequence[JSON]) -> JSON:
    """A request to Anthropic's Messages."""
    tools = [{"name": "ls", "input_schema": SCHEMA}]
    return {"model": "model", "max_tokens": 99, "messages": history, "tools": tools}


def chat_request(history: Sequence[JSON]) -> JSON:
    """A request to OpenAI's Chat Completions."""
    tools = [{"type": "function", "function": {"name": "ls", "parameters": SCHEMA}}]
    return {"model": "model", "messages": history, "tools": tools}


def responses_request(history: Sequence[JSON]) -> JSON:
    """A request to OpenAI's Responses."""
    tools = [
        {"type": "function", "name": "ls", "parameters": SCHEMA, "strict": False},
        {"type": "custom", "name": "patch"},
    ]
    return {"model": "model", "input": history, "tools": tools}


def gemini_request(history: Sequence[JSON]) -> JSON:
    """A request to Gemini."""
    declared = [{"name": "ls", "parameters_json_schema": SCHEMA}]
    config = {"tools": [{"function_declarations": declared}]}
    return {"model": "model", "contents": history, "config": config}


def bedrock_request(history: Sequence[JSON]) -> JSON:
    """A request to Bedrock Converse."""
    spec = {"name": "ls", "inputSchema": {"json": SCHEMA}}
    tools = {"tools": [{"toolSpec": spec}]}
    return {"modelId": "model", "messages": history, "toolConfig": tools}


def _messages_complete(url: str, history: Sequence[JSON]) -> JSON:
    with anthropic_client(url) as client:
        message: JSON = client.messages.create(**messages_request(history)).to_dict()
    return message


def _messages_events(url: str, history: Sequence[JSON]) -> Generator[JSON, None, None]:
    with (
        anthropic_client(url) as client,
        client.messages.create(**messages_request(history), stream=True) as stream,
    ):
        for event in stream:
            yield event.to_dict()


def _chat_complete(url: str, history: Sequence[JSON]) -> JSON:
    with openai_client(url) as client:
        completion: JSON = client.chat.completions.create(**chat_request(history)).to_dict()
    return completion


def _chat_events(url: str, history: Sequence[JSON]) -> Generator[JSON, None, None]:
    with (
        openai_client(url) as client,
        client.chat.completions.create(**chat_request(history), stream=True) as stream,
    ):
        for chunk in stream:
            yield chunk.to_dict(warnings=False)


def _responses_complete(url: str, history: Sequence[JSON]) -> JSON:
    with openai_client(url) as client:
        response: JSON = client.responses.create(**responses_request(history)).to_dict()
    return response


def _responses_events(url: str, history: Sequence[JSON]) -> Generator[JSON, None, None]:
    with (
        openai_client(url) as client,
        client.responses.create(**responses_request(history), stream=True) as stream,
    ):
        for event in stream:
            yield event.to_dict(warnings=False)


def _gemini_plain(response: Any) -> JSON:
    fields: JSON = response.model_dump(mode="json", by_alias=True, exclude_none=True)
    del fields["sdkHttpResponse"]
    return fields


def _gemini_complete(url: str, history: Sequence[JSON]) -> JSON:
    with gemini_client(url) as client:
        return _gemini_plain(client.models.generate_content(**gemini_request(history)))


def _gemini_events(url: str, history: Sequence[JSON]) -> Generator[JSON, None, None]:
    with gemini_client(url) as client:
        for response in client.models.generate_content_stream(**gemini_request(history)):
            yield _gemini_plain(response)


def _bedrock_complete(url: str, history: Sequence[JSON]) -> JSON:
    client = bedrock_client(url)
    try:
        response: JSON = client.converse(**bedrock_request(history))
    finally:
        client.close()
    del response["ResponseMetadata"]
    return response


def _bedrock_events(url: str, history: Sequence[JSON]) -> Generator[JSON, None, None]:
    client = bedrock_client(url)
    try:
        stream = client.converse_stream(**bedrock_request(history))["stream"]
        try:
            yield from stream
        finally:
            stream.close()
    finally:
        client.close()


_ASK = {"role": "user", "content": "Go."}

SDKS = {
    "anthropic": SDK(
        anthropic_wire,
        _messages_complete,
        _messages_events,
        _of("anthropic", "BadRequestError"),
        _of("httpx2", "RemoteProtocolError"),
        _ASK,
    ),
    "chat": SDK(
        openai_wire,
        _chat_complete,
        _chat_events,
        _of("openai", "BadRequestError"),
        _of("openai", "APIConnectionError"),
        _ASK,
    ),
    "responses": SDK(
        responses_wire,
        _responses_complete,
        _responses_events,
        _of("openai", "BadRequestError"),
        _of("openai", "APIConnectionError"),
        _ASK,
    ),
    "gemini": SDK(
        gemini_wire,
        _gemini_complete,
        _gemini_events,
        _of("google.genai.errors", "ClientError"),
        _of("httpx2", "RemoteProtocolError"),
        {"role": "user", "parts": [{"text": "Go."}]},
    ),
    "bedrock": SDK(
        bedrock_wire,
        _bedrock_complete,
        _bedrock_events,
        _of("botocore.exceptions", "ClientError"),
        _of("urllib3.exceptions", "ProtocolError"),
        {"role": "user", "content": [{"text": "Go."}]},
    ),
}
"""All wires by name, in the order in which they are tested."""


def answered(name: str, script: Sequence[Step], history: Sequence[Any]) -> JSON:
    """What the SDK of this name understands of the whole answer to a history."""
    sdk = SDKS[name]
    sdk.refusal()  # skips where it is not installed
    with serve(script) as server:
        return sdk.complete(server.url, history)


def refused(name: str, script: Sequence[Step], history: Sequence[Any]) -> tuple[int, str]:
    """The status and the text of the SDK's own error, the same for a whole answer and a stream."""
    sdk = SDKS[name]
    with serve(script) as server:
        with pytest.raises(sdk.refusal()) as whole:
            sdk.complete(server.url, history)
        with pytest.raises(sdk.refusal()) as streamed:
            list(sdk.events(server.url, history))
    assert _told(whole.value) == _told(streamed.value)
    return _told(whole.value)


def _told(error: Any) -> tuple[int, str]:
    """An error's status and text, wherever the SDK keeps them."""
    if hasattr(error, "response") and isinstance(error.response, dict):
        told = error.response
        return told["ResponseMetadata"]["HTTPStatusCode"], told["Error"]["Message"]
    return getattr(error, "status_code", None) or error.code, str(error.message)
