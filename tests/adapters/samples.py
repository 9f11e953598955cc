"""Results and tools that the tests of all adapters share."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter

from dispatch import Failure, FailureKind, Image, Status, Tool, ToolCall, ToolResult, tool
from dispatch.adapters import (
    AnthropicMessages,
    BedrockConverse,
    Gemini,
    OpenAIChat,
    OpenAIResponses,
)
from dispatch.adapters.provider import Provider
from tests.providers import Call, Step
from tests.providers.clients import SDKS

PROVIDERS: dict[str, Provider[Any, Any]] = {
    "anthropic": AnthropicMessages(),
    "chat": OpenAIChat(),
    "responses": OpenAIResponses(),
    "gemini": Gemini(),
    "bedrock": BedrockConverse(),
}
"""By the names that `SDKS` has for them."""
every_provider = pytest.mark.parametrize("name", PROVIDERS)
ADVICE = "Do not repeat the same call; mend what it says, or do it another way."
PNG = Image(b"\x89PNG\r\n\x1a\n and the pixels")


def body(name: str, *calls: Call, at: int = 0, text: str = "", quirk: str = "") -> Any:
    """The whole answer of a provider with these calls, as its API writes it."""
    return SDKS[name].wire.complete(Step(text, calls, quirk=quirk), at, {"model": "m"})


def turns(name: str, *steps: Any, provider: Provider[Any, Any] | None = None) -> list[Any]:
    """The history of a conversation: what was asked, each answer, and the reply to its calls."""
    provider = provider or PROVIDERS[name]
    history = [SDKS[name].ask]
    for step in steps:
        calls = provider.calls(step, history)
        history += listed(provider.message(step, history))
        if calls:
            history += listed(provider.reply(all_succeeded(calls)))
    return history


def accept(name: str, history: list[Any]) -> None:
    """Fail with `RefusedError` if the provider's API refuses a request with this history."""
    request = {"model": "m", "max_tokens": 9, "messages": history}
    if name in ("responses", "gemini"):
        request["input" if name == "responses" else "contents"] = request.pop("messages")
    if name == "anthropic":
        request["tools"] = PROVIDERS[name].tools([bare])
    if name == "bedrock":
        request["toolConfig"] = PROVIDERS[name].tools([bare])
    SDKS[name].wire.check(request)


def listed(message: Any) -> list[Any]:
    """A message, or several, as a list."""
    return list(message) if isinstance(message, list) else [message]


def succeeded(call: ToolCall, index: int, value: object = "fine") -> ToolResult:
    return ToolResult(call=call, index=index, status=Status.OK, value=value)


def failed(call: ToolCall, index: int, message: str = "no such file") -> ToolResult:
    failure = Failure(kind=FailureKind.TOOL_ERROR, message=message)
    return ToolResult(call=call, index=index, status=Status.ERROR, failure=failure)


def all_succeeded(calls: Iterable[ToolCall]) -> list[ToolResult]:
    return [succeeded(call, index) for index, call in enumerate(calls)]


def as_validated(kind: Any, value: object) -> object:
    """`value` as the SDK's type `kind` lets it through: without any field it does not know."""
    adapter = TypeAdapter[Any](kind)  # kept until all is read: its iterators need it alive
    return _listed(adapter.validate_python(value))


def _listed(value: Any) -> Any:
    """Pydantic checks an `Iterable` field only as it is read."""
    if isinstance(value, dict):
        return {name: _listed(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_listed(item) for item in value]
    return value


def objects(value: Any) -> Any:
    """The same data as plain objects with attributes; arguments stay dictionaries."""
    if isinstance(value, list):
        return [objects(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: value[name] for name in ("input", "arguments", "args") if name in value}
    return SimpleNamespace(**{name: objects(item) for name, item in value.items()} | kept)


@tool(reads="file:{path}")
async def read_file(path: str, start: int | None = None) -> str:
    """Read a text file."""
    return f"{path} from {start}"


@tool(safe_parallel=True)
async def patch(input: str) -> str:  # noqa: A002 - the name that custom tools have for it
    """Apply a patch."""
    return input


async def _anything(**arguments: object) -> str:
    return str(arguments)


bare = Tool("bare", _anything, input_schema={"properties": {"x": {"type": "integer"}}})
"""A tool without a description, whose hand-written schema does not say that it is an object."""
