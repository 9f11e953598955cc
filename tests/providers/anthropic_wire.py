"""Anthropic's Messages API: what it refuses, and what its answers and streams look like."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.providers import framing
from tests.providers.script import (
    JSON,
    Pause,
    RefusedError,
    Step,
    allow,
    arguments_said,
    fragments,
    ids_of,
    in_turns,
    pause_at,
    position,
    present,
    required,
    step_at,
    text_of,
    text_said,
)

PATH = "/v1/messages"
CONTENT_TYPE = framing.SSE
END = b""
ID = re.compile(r"[a-zA-Z0-9_-]+")
ID_QUIRKS = ("empty_ids", "no_ids", "repeated_ids")
RESULT_BLOCKS = {"text", "image", "document", "search_result"}


def route(path: str) -> JSON | None:
    """Nothing that the request does not say itself."""
    return {} if path.partition("?")[0] == PATH else None  # `?beta=true` changes nothing


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


def next_step(script: Sequence[Step], request: JSON) -> tuple[Step, int]:
    """Check the request; the step to play, and its place in the script."""
    check(request)
    at = position(request["messages"])
    return step_at(script, at), at


def answer(script: Sequence[Step], request: JSON) -> JSON:
    """The next message of the script. Raises `RefusedError` as the API would answer 400."""
    return complete(*next_step(script, request), request)


def complete(step: Step, at: int, request: JSON) -> JSON:
    """The whole message. Of a call that is cut off it has no argument."""
    allow(step, "a message", "cut_off", *ID_QUIRKS)
    text = text_said(step)
    content: list[JSON] = [{"type": "text", "text": text}] if text else []
    ids = ids_of(step, "toolu", at)
    for index, call in enumerate(step.calls):
        is_cut = "cut_off" in step.quirks and index == len(step.calls) - 1
        content.append(_tool_use(ids[index], call.name, {} if is_cut else call.arguments))
    return {
        **_message(at, request),
        "content": content,
        "stop_reason": _stop_reason(step),
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def stream(step: Step, at: int, request: JSON) -> Iterator[JSON | Pause]:
    """The events of the message; a ping stands where the API tends to send the first."""
    allow(step, "a stream of messages", "cut_off", "interleaved", "object_arguments", *ID_QUIRKS)
    yield {"type": "message_start", "message": _message(at, request)}
    text = text_said(step)
    if text:
        yield from _block(0, {"type": "text", "text": ""}, "text", fragments(text))
    else:
        yield {"type": "ping"}
    yield from in_turns(step, _calls(step, at, first=1 if text else 0))
    yield from pause_at(step.pause)
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _stop_reason(step), "stop_sequence": None},
        "usage": {"output_tokens": 1},
    }
    yield {"type": "message_stop"}


def frame(event: JSON) -> bytes:
    """A server-sent event under the name of its type."""
    return framing.sse(event, event["type"])


def _calls(step: Step, at: int, first: int) -> Iterator[list[JSON | Pause]]:
    ids = ids_of(step, "toolu", at)
    texts = arguments_said(step)
    for place, call in enumerate(step.calls):
        whole = "object_arguments" in step.quirks
        start = _tool_use(ids[place], call.name, json.loads(texts[place]) if whole else {})
        parts = [] if whole else ["", *fragments(texts[place], call.cuts)]
        yield [*pause_at(call.pause), *_block(first + place, start, "partial_json", parts)]


def _block(index: int, start: JSON, kind: str, parts: Sequence[str]) -> Iterator[JSON]:
    yield {"type": "content_block_start", "index": index, "content_block": start}
    if kind == "text":
        yield {"type": "ping"}
    delta = {"text": "text_delta", "partial_json": "input_json_delta"}[kind]
    for part in parts:
        yield {
            "type": "content_block_delta",
            "index": index,
            "delta": {"type": delta, kind: part},
        }
    yield {"type": "content_block_stop", "index": index}


def _tool_use(call_id: str | None, name: str, arguments: Any) -> JSON:
    return {"type": "tool_use", **present(id=call_id), "name": name, "input": arguments}


def _message(at: int, request: JSON) -> JSON:
    return {
        "id": f"msg_{at}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 0},
    }


def _stop_reason(step: Step) -> str:
    if "cut_off" in step.quirks:
        return "max_tokens"
    return "tool_use" if step.calls else "end_turn"


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
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    misplaced = "tool_result" if message["role"] == "assistant" else "tool_use"
    for place, block in enumerate(blocks):
        if block["type"] == misplaced:
            raise RefusedError(
                f"{where}.content.{place}: `{misplaced}` blocks can not be in `{message['role']}`"
                " messages"
            )
        if block["type"] == "text" and not block["text"]:
            raise RefusedError(f"{where}: text content blocks must be non-empty")
    return blocks


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
        _check_content(block, f"{where}.tool_result")
        answered.append(used)
    if missing := [used for used in waiting if used not in answered]:
        raise RefusedError(_unanswered(missing, index - 1))


def _check_content(result: JSON, where: str) -> None:
    content = result.get("content", "")
    if isinstance(content, str):
        return
    kinds = {block["type"] for block in content}
    if kinds - RESULT_BLOCKS:
        raise RefusedError(f"{where}.content: Input should be one of {sorted(RESULT_BLOCKS)}")
    if result.get("is_error") and kinds - {"text"}:
        raise RefusedError(f"{where}: all content must be type `text` if `is_error` is true")
    for block in content:
        if block["type"] == "text" and not text_of([block], where):
            raise RefusedError(f"{where}: text content blocks must be non-empty")
        if block["type"] == "image" and not block["source"]["type"]:
            raise RefusedError(f"{where}.content: image.source.type: Field required")


def _unanswered(missing: Sequence[str], index: int) -> str:
    return (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately"
        f" after: {', '.join(missing)}."
    )
