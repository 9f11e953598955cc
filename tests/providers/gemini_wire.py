"""Google's Gemini API: what it refuses, and what its answers and streams look like.

A call comes whole, in one part. It has an id only where the script gives it one.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.providers import framing
from tests.providers.script import (
    JSON,
    Pause,
    RefusedError,
    Step,
    allow,
    fragments,
    pause_at,
    position,
    present,
    required,
    step_at,
    text_said,
)

PATH = re.compile(r"/v1(?:beta)?/models/([^/:?]+):(generateContent|streamGenerateContent\?alt=sse)")
CONTENT_TYPE = framing.SSE
END = b""
DATA = {"text", "inlineData", "fileData", "functionCall", "functionResponse"}


def route(path: str) -> JSON | None:
    """The model, and whether the answer is to be a stream."""
    match = PATH.fullmatch(path)
    return match and {"model": match[1], "stream": match[2].startswith("stream")}


def authorised(headers: Mapping[str, str]) -> bool:
    """Whether the request carries a key."""
    return bool(headers.get("x-goog-api-key"))


def error(status: int, message: str) -> JSON:
    """An error body of this API."""
    kind = "UNAUTHENTICATED" if status == 401 else "INVALID_ARGUMENT"
    return {"error": {"code": status, "message": message, "status": kind}}


def next_step(script: Sequence[Step], request: JSON) -> tuple[Step, int]:
    """Check the request; the step to play, and its place in the script."""
    check(request)
    spoken = [content for content in request["contents"] if content["role"] == "model"]
    for step, content in zip(script, spoken, strict=False):
        _check_signatures(step, content)
    at = position(request["contents"], "model")
    return step_at(script, at), at


def answer(script: Sequence[Step], request: JSON) -> JSON:
    """The next answer of the script. Raises `RefusedError` as the API would answer 400."""
    return complete(*next_step(script, request), request)


def complete(step: Step, at: int, request: JSON) -> JSON:
    """The whole answer."""
    allow(step, "an answer", "cut_off", "empty_ids", "no_ids", "repeated_ids")
    text = text_said(step)
    parts = [{"text": text}] if text else []
    return _response(at, request, [*parts, *_call_parts(step)], _finish(step))


def stream(step: Step, at: int, request: JSON) -> Iterator[JSON | Pause]:
    """Answers that have a part each; the last says why it is the last, and has an empty text."""
    allow(step, "a stream of answers", "cut_off", "empty_ids", "no_ids", "repeated_ids")
    text = text_said(step)
    for piece in fragments(text) if text else ():
        yield _response(at, request, [{"text": piece}])
    for call, part in zip(step.calls, _call_parts(step), strict=False):
        yield from pause_at(call.pause)
        yield _response(at, request, [part])
    yield from pause_at(step.pause)
    yield _response(at, request, [{"text": ""}], _finish(step))


def frame(event: JSON) -> bytes:
    """A server-sent event without a name."""
    return framing.sse(event)


def _call_parts(step: Step) -> list[JSON]:
    """The parts of the calls. One that is cut off never comes."""
    calls = step.calls[:-1] if "cut_off" in step.quirks else step.calls
    return [
        {
            "functionCall": {**present(id=call_id), "name": call.name, "args": call.arguments},
            **present(thoughtSignature=call.signature and b64encode(call.signature).decode()),
        }
        for call, call_id in zip(calls, _ids(step), strict=False)
    ]


def _ids(step: Step) -> list[str | None]:
    if "empty_ids" in step.quirks:
        return [""] * len(step.calls)
    if "repeated_ids" in step.quirks:
        return [step.calls[0].id or "call"] * len(step.calls)
    return [None if "no_ids" in step.quirks else call.id for call in step.calls]


def _finish(step: Step) -> str:
    return "MAX_TOKENS" if "cut_off" in step.quirks else "STOP"


def _response(at: int, request: JSON, parts: list[JSON], finish: str | None = None) -> JSON:
    content = {"role": "model", "parts": parts} if parts else {"role": "model"}
    return {
        "candidates": [{"content": content, "index": 0, **present(finishReason=finish)}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": request["model"],
        "responseId": f"response_{at}",
    }


def check(request: JSON) -> None:
    """Refuse what the API refuses."""
    required(request, "model", "contents")
    _check_tools(request.get("tools") or ())
    waiting: list[JSON] = []
    before = ""
    for index, content in enumerate(request["contents"]):
        role, where = content["role"], f"contents[{index}]"
        if role not in ("user", "model"):
            raise RefusedError("Please use a valid role: user, model.")
        parts = _parts(content, where)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        _check_place(role, before, calls, answers)
        _check_answers(parts, waiting, answers)
        waiting, before = calls, role
    if waiting:
        raise RefusedError(_UNEQUAL)


_UNEQUAL = (
    "Please ensure that the number of function response parts is equal to the number of function"
    " call parts of the function call turn."
)


def _check_tools(tools: Sequence[JSON]) -> None:
    declared = [each["name"] for tool in tools for each in tool.get("functionDeclarations", ())]
    for name in declared:
        if declared.count(name) > 1:
            raise RefusedError(f"Duplicate function declaration found: {name}")


def _parts(content: JSON, where: str) -> list[JSON]:
    parts: list[JSON] = content.get("parts") or []
    if not parts:
        raise RefusedError(
            f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty."
        )
    for place, part in enumerate(parts):
        if len(DATA & part.keys()) != 1:
            raise RefusedError(
                f"* GenerateContentRequest.{where}.parts[{place}].data: required oneof field 'data'"
                " must have one initialized field"
            )
    return parts


def _check_place(role: str, before: str, calls: Sequence[JSON], answers: Sequence[JSON]) -> None:
    if (calls and role == "user") or (answers and role == "model"):
        raise RefusedError(f"Function parts of the other side in a content of role {role}.")
    if calls and before != "user":
        raise RefusedError(
            "Please ensure that function call turn comes immediately after a user turn or after a"
            " function response turn."
        )
    for call in calls:
        if not call.get("name") or not isinstance(call.get("args", {}), dict):
            raise RefusedError("A function call needs a name, and its args are an object.")


def _check_answers(parts: Sequence[JSON], waiting: Sequence[JSON], answers: Sequence[JSON]) -> None:
    """As many answers as calls, in their order, with their names and, where there are, ids."""
    if answers and not waiting:
        raise RefusedError(
            "Please ensure that function response turn comes immediately after a function call"
            " turn."
        )
    if len(answers) != len(waiting):
        raise RefusedError(_UNEQUAL)
    if any("functionResponse" not in part for part in parts[: len(answers)]):
        raise RefusedError("Function response parts must come before other parts.")
    for call, given in zip(waiting, answers, strict=True):
        if (given.get("name"), given.get("id")) != (call["name"], call.get("id")):
            raise RefusedError(
                f"The function response of {given.get('name')!r} (id {given.get('id')!r}) stands"
                f" where {call['name']!r} (id {call.get('id')!r}) was called."
            )
        if not isinstance(given.get("response"), dict):
            raise RefusedError("A function response needs a response, which is an object.")


def _check_signatures(step: Step, content: JSON) -> None:
    """What the calls of a step were signed with is there again, unchanged, on the same calls."""
    parts: list[Any] = [part for part in content["parts"] if "functionCall" in part]
    for place, (call, part) in enumerate(zip(step.calls, parts, strict=False)):
        if call.signature is None:
            continue
        given = part.get("thoughtSignature")
        if given is None:
            raise RefusedError(
                "Function call is missing a thought_signature in functionCall parts. Additional"
                f" data, function call `default_api:{call.name}`, position {place + 1}."
            )
        if urlsafe_b64decode(given.replace("+", "-").replace("/", "_")) != call.signature:
            raise RefusedError("Thought signature is not valid.")
