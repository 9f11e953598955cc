"""Amazon Bedrock's Converse API: what it refuses, and what its answers and streams look like."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

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
    text_said,
)

PATH = re.compile(r"/model/([^/]+)/(converse|converse-stream)")
CONTENT_TYPE = framing.AWS
END = b""
ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The API lets `.` and `:` through too; models behind it do not."""
USAGE = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}


def route(path: str) -> JSON | None:
    """The model, and whether the answer is to be a stream."""
    match = PATH.fullmatch(path)
    return match and {"model": unquote(match[1]), "stream": match[2] == "converse-stream"}


def authorised(headers: Mapping[str, str]) -> bool:
    """Whether the request is signed, or carries a key."""
    return (headers.get("authorization") or "").startswith(("AWS4-HMAC-SHA256 ", "Bearer "))


def error(status: int, message: str) -> JSON:
    """An error body of this API."""
    kind = "UnrecognizedClientException" if status == 401 else "ValidationException"
    return {"__type": kind, "message": message}


def next_step(script: Sequence[Step], request: JSON) -> tuple[Step, int]:
    """Check the request; the step to play, and its place in the script."""
    check(request)
    at = position(request["messages"])
    return step_at(script, at), at


def answer(script: Sequence[Step], request: JSON) -> JSON:
    """The next answer of the script. Raises `RefusedError` as the API would answer 400."""
    return complete(*next_step(script, request), request)


def complete(step: Step, at: int, request: JSON) -> JSON:
    """The whole answer. Of a call that is cut off it has no argument."""
    allow(step, "an answer", "cut_off", "empty_ids", "no_ids", "repeated_ids")
    text = text_said(step)
    content: list[JSON] = [{"text": text}] if text else []
    ids = ids_of(step, "tooluse", at)
    for index, call in enumerate(step.calls):
        is_cut = "cut_off" in step.quirks and index == len(step.calls) - 1
        use = _named(ids[index], call.name) | {"input": {} if is_cut else call.arguments}
        content.append({"toolUse": use})
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": _stop_reason(step),
        "usage": USAGE,
        "metrics": {"latencyMs": 1},
    }


def stream(step: Step, at: int, request: JSON) -> Iterator[JSON | Pause]:
    """The events of the answer, each under its name. A block of text is not announced."""
    allow(step, "a stream", "cut_off", "interleaved", "empty_ids", "no_ids", "repeated_ids")
    yield {"messageStart": {"role": "assistant"}}
    text = text_said(step)
    if text:
        yield from _block(0, [{"text": piece} for piece in fragments(text)])
    yield from in_turns(step, _calls(step, at, first=1 if text else 0))
    yield from pause_at(step.pause)
    yield {"messageStop": {"stopReason": _stop_reason(step)}}
    yield {"metadata": {"usage": USAGE, "metrics": {"latencyMs": 1}}}


def frame(event: JSON) -> bytes:
    """A message of an AWS event stream, under the event's name."""
    ((kind, data),) = event.items()
    return framing.aws_event(kind, data)


def _calls(step: Step, at: int, first: int) -> Iterator[list[JSON | Pause]]:
    ids, texts = ids_of(step, "tooluse", at), arguments_said(step)
    for place, call in enumerate(step.calls):
        begun = {
            "start": {"toolUse": _named(ids[place], call.name)},
            "contentBlockIndex": first + place,
        }
        parts = [{"toolUse": {"input": part}} for part in fragments(texts[place], call.cuts)]
        yield [
            *pause_at(call.pause),
            {"contentBlockStart": begun},
            *_block(first + place, parts),
        ]


def _block(index: int, deltas: Sequence[JSON]) -> Iterator[JSON]:
    for delta in deltas:
        yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": index}}
    yield {"contentBlockStop": {"contentBlockIndex": index}}


def _named(call_id: str | None, name: str) -> JSON:
    return {**present(toolUseId=call_id), "name": name}


def _stop_reason(step: Step) -> str:
    if "cut_off" in step.quirks:
        return "max_tokens"
    return "tool_use" if step.calls else "end_turn"


def check(request: JSON) -> None:
    """Refuse what the API refuses."""
    required(request, "model", "messages")
    _check_tools((request.get("toolConfig") or {}).get("tools"))
    waiting: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(request["messages"]):
        where = f"messages.{index}.content"
        _check_role(message["role"], index)
        blocks = _blocks(message, where)
        uses = [block["toolUse"] for block in blocks if "toolUse" in block]
        results = [block["toolResult"] for block in blocks if "toolResult" in block]
        if (uses or results) and not request.get("toolConfig"):
            raise RefusedError(
                "The toolConfig field must be defined when using toolUse and toolResult content"
                " blocks."
            )
        if message["role"] == "user":
            _check_results(blocks, [result["toolUseId"] for result in results], waiting, where)
        waiting = [use["toolUseId"] for use in uses]
        _check_unique(waiting, seen, where)
    if waiting:
        raise RefusedError(_unanswered(waiting, len(request["messages"])))


def _check_tools(tools: Sequence[JSON] | None) -> None:
    if tools is not None and not tools:
        raise RefusedError("toolConfig.tools: Array must have a minimum of 1 item.")
    specs = [tool["toolSpec"] for tool in tools or () if "toolSpec" in tool]
    for place, spec in enumerate(specs):
        if spec["inputSchema"]["json"].get("type") != "object":
            raise RefusedError(
                f"The value at toolConfig.tools.{place}.toolSpec.inputSchema.json.type must be one"
                " of the following: object."
            )
        if [each["name"] for each in specs].count(spec["name"]) > 1:
            raise RefusedError(f"The tool {spec['name']} is already defined.")


def _check_role(role: str, index: int) -> None:
    if index == 0 and role != "user":
        raise RefusedError("A conversation must start with a user message.")
    if role != ("user", "assistant")[index % 2]:
        raise RefusedError(f"messages.{index}: roles must alternate between user and assistant.")


def _blocks(message: JSON, where: str) -> list[JSON]:
    blocks: list[JSON] = message["content"]
    if not blocks:
        raise RefusedError(f"The content field in the Message object at {where} is empty.")
    misplaced = "toolResult" if message["role"] == "assistant" else "toolUse"
    for place, block in enumerate(blocks):
        if misplaced in block:
            raise RefusedError(
                f"The {misplaced} block at {where}.{place} is not for role {message['role']}."
            )
        if not block.get("text", "text").strip():
            raise RefusedError(
                f"The text field in the ContentBlock object at {where}.{place} is blank."
            )
        if "toolUse" in block:
            _check_use(block["toolUse"], f"{where}.{place}.toolUse")
        if "toolResult" in block:
            _check_content(block["toolResult"], f"{where}.{place}.toolResult")
    return blocks


def _check_use(use: JSON, where: str) -> None:
    if not ID.fullmatch(use["toolUseId"]):
        raise RefusedError(
            f"The value at {where}.toolUseId must satisfy the regular expression {ID.pattern}."
        )
    if not isinstance(use["input"], dict):
        raise RefusedError(
            f"The format of the value at {where}.input is invalid. Provide a json object for the"
            " field and try again."
        )


def _check_content(result: JSON, where: str) -> None:
    content: Any = result["content"]
    if not content and result.get("status") == "error":
        raise RefusedError(
            f"The content field at {where} cannot be empty when status value is error."
        )
    for block in content:
        if not block.get("text", "text").strip():
            raise RefusedError(f"The text field at {where} is blank.")


def _check_unique(uses: Sequence[str], seen: set[str], where: str) -> None:
    for use in uses:
        if use in seen:
            raise RefusedError(f"The toolUse blocks at {where} contain duplicate Ids: {use}")
        seen.add(use)


def _check_results(
    blocks: Sequence[JSON], answered: Sequence[str], waiting: Sequence[str], where: str
) -> None:
    if repeated := {each for each in answered if answered.count(each) > 1}:
        raise RefusedError(
            f"The toolResult blocks at {where} contain duplicate Ids: {', '.join(sorted(repeated))}"
        )
    if missing := [use for use in waiting if use not in answered]:
        raise RefusedError(
            f"Expected toolResult blocks at {where} for the following Ids: {', '.join(missing)}"
        )
    if len(answered) > len(waiting):
        raise RefusedError(
            f"The number of toolResult blocks at {where} exceeds the number of toolUse blocks of"
            " previous turn."
        )
    if any("toolResult" not in block for block in blocks[: len(answered)]):
        raise RefusedError(f"The toolResult blocks at {where} must come before other content.")


def _unanswered(missing: Sequence[str], index: int) -> str:
    return (
        f"Expected toolResult blocks at messages.{index}.content for the following Ids:"
        f" {', '.join(missing)}"
    )
