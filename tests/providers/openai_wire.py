"""OpenAI's Chat Completions API, without streaming: what it refuses, and how it answers."""

from __future__ import annotations

import json
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

PATH = "/v1/chat/completions"
ROLES = {"developer", "system", "user", "assistant", "tool"}


def authorised(headers: Mapping[str, str]) -> bool:
    """Whether the request carries a key."""
    return (headers.get("authorization") or "").startswith("Bearer ")


def error(status: int, message: str) -> JSON:
    """An error body of this API."""
    return {
        "error": {
            "message": message,
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key" if status == 401 else None,
        }
    }


def answer(script: Sequence[Step], request: JSON) -> JSON:
    """The next completion of the script. Raises `RefusedError` as the API would answer 400."""
    check(request)
    at = position(request["messages"])
    step = step_at(script, at)
    message: JSON = {"role": "assistant", "content": step.text or None, "refusal": None}
    if step.calls:
        message["tool_calls"] = [
            {
                "id": id_of(call, "call", at, index),
                "type": "function",
                "function": {"name": call.name, "arguments": _text(call.arguments)},
            }
            for index, call in enumerate(step.calls)
        ]
    finish = "tool_calls" if step.calls else "stop"
    return {
        "id": f"chatcmpl-{at}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _text(arguments: Mapping[str, object] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def check(request: JSON) -> None:
    """Refuse what the API refuses."""
    required(request, "model", "messages")
    for tool in request.get("tools", ()):
        if tool.get("type") != "function" or not tool["function"].get("name"):
            raise RefusedError("Missing required parameter: 'tools[].function.name'.")
    waiting: list[str] = []
    answerable = False
    for index, message in enumerate(request["messages"]):
        role, where = message["role"], f"messages.[{index}]"
        if role not in ROLES:
            raise RefusedError(f"{where}.role: unknown role {role!r}")
        if role == "tool":
            _check_answer(message, waiting, answerable, where)
            continue
        if waiting:
            raise RefusedError(_unanswered(waiting))
        answerable = False
        if role == "assistant":
            waiting = _call_ids(message, where)
            answerable = bool(waiting)
    if waiting:
        raise RefusedError(_unanswered(waiting))


def _call_ids(message: JSON, where: str) -> list[str]:
    calls = message.get("tool_calls")
    if calls is None:
        if not message.get("content"):
            raise RefusedError(f"{where}: an assistant message needs content or tool_calls")
        return []
    if not calls:
        raise RefusedError(f"Invalid '{where}.tool_calls': empty array.")
    ids = [call["id"] for call in calls]
    if len(set(ids)) != len(ids) or not all(ids):
        raise RefusedError(f"Invalid '{where}.tool_calls': ids must be unique and not empty.")
    for call in calls:
        if not isinstance(call["function"]["arguments"], str):
            raise RefusedError(f"Invalid type for '{where}.tool_calls[].function.arguments'.")
    return ids


def _check_answer(message: JSON, waiting: list[str], answerable: bool, where: str) -> None:
    if not answerable:
        raise RefusedError(
            "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
        )
    if message["tool_call_id"] not in waiting:
        raise RefusedError(
            f"Invalid parameter: 'tool_call_id' of {where} not found in 'tool_calls' of previous"
            " message, or answered twice."
        )
    text_of(message["content"], f"{where}.content")
    waiting.remove(message["tool_call_id"])


def _unanswered(missing: Sequence[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to"
        " each 'tool_call_id'. The following tool_call_ids did not have response messages:"
        f" {', '.join(missing)}"
    )
