"""Anthropic's Messages API, without streaming: what it refuses, and what its answers look like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.providers.script import (
    JSON,
    RefusedError,
    Step,
    id_of,
    position,
    required,
    step_at,
    text_of,
)

PATH = "/v1/messages"
ID = re.compile(r"[a-zA-Z0-9_-]+")


def authorised(headers: Mapping[str, str]) -> bool:
    """Whether the request carries a key, in either of the two headers, and the API's version."""
    key = headers.get("x-api-key") or headers.get("authorization")
    return bool(key and headers.get("anthropic-version"))


def error(status: int, message: str) -> JSON:
    """An error body of this API."""
    kind = "authentication_error" if status == 401 else "invalid_request_error"
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_loopback",
    }


def answer(script: Sequence[Step], request: JSON) -> JSON:
    """The next message of the script. Raises `RefusedError` as the API would answer 400."""
    check(request)
    at = position(request["messages"])
    step = step_at(script, at)
    content: list[JSON] = [{"type": "text", "text": step.text}] if step.text else []
    content += [
        {
            "type": "tool_use",
            "id": id_of(call, "toolu", at, index),
            "name": call.name,
            "input": call.arguments,
        }
        for index, call in enumerate(step.calls)
    ]
    return {
        "id": f"msg_{at}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": content,
        "stop_reason": "tool_use" if step.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def check(request: JSON) -> None:
    """Refuse what the API refuses."""
    required(request, "model", "max_tokens", "messages")
    messages = request["messages"]
    tools = [tool["name"] for tool in request.get("tools", ())]
    if len(set(tools)) != len(tools):
        raise RefusedError("tools: Tool names must be unique.")
    for tool in request.get("tools", ()):
        if tool["input_schema"].get("type") != "object":
            raise RefusedError(f"tools.{tool['name']}.input_schema.type: Field required")
    waiting: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if message["role"] != ("user", "assistant")[index % 2]:
            raise RefusedError(f"messages.{index}: roles must alternate, the first being user")
        blocks = _blocks(message, f"messages.{index}")
        if message["role"] == "user":
            _check_results(blocks, waiting, index)
        waiting = _uses(blocks, index, seen) if message["role"] == "assistant" else []
        if waiting and not tools:
            raise RefusedError("Requests which include `tool_use` blocks must define tools")
    if waiting:
        raise RefusedError(_unanswered(waiting, len(messages) - 1))


def _blocks(message: JSON, where: str) -> list[JSON]:
    content = message["content"]
    if not content:
        raise RefusedError(f"{where}: all messages must have non-empty content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _uses(blocks: Sequence[JSON], index: int, seen: set[str]) -> list[str]:
    uses = []
    for place, block in enumerate(blocks):
        if block["type"] != "tool_use":
            continue
        if not ID.fullmatch(block["id"]):
            raise RefusedError(
                f"messages.{index}.content.{place}.tool_use.id: String should match pattern"
                f" '^{ID.pattern}$'"
            )
        if not isinstance(block["input"], dict):
            raise RefusedError(
                f"messages.{index}.content.{place}.tool_use.input: Input should be a dictionary"
            )
        if block["id"] in seen:
            raise RefusedError(f"messages.{index}.content.{place}: `tool_use` ids must be unique")
        seen.add(block["id"])
        uses.append(block["id"])
    return uses


def _check_results(blocks: Sequence[JSON], waiting: Sequence[str], index: int) -> None:
    answered: list[str] = []
    for place, block in enumerate(blocks):
        if block["type"] != "tool_result":
            continue
        where = f"messages.{index}.content.{place}"
        used = block["tool_use_id"]
        if used not in waiting:
            raise RefusedError(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {used}"
            )
        if used in answered:
            raise RefusedError(
                f"{where}: each tool_use must have a single result. Found more: {used}"
            )
        if place != len(answered):
            raise RefusedError(f"{where}: `tool_result` blocks must come before other content")
        text_of(block.get("content", ""), f"{where}.content")
        answered.append(used)
    if missing := [used for used in waiting if used not in answered]:
        raise RefusedError(_unanswered(missing, index - 1))


def _unanswered(missing: Sequence[str], index: int) -> str:
    return (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately"
        f" after: {', '.join(missing)}."
    )
