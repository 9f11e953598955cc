"""OpenAI's Chat Completions API: what it refuses, and what its answers and streams look like."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from tests.providers import framing
from tests.providers.script import (
    JSON,
    Call,
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

PATH = "/v1/chat/completions"
CONTENT_TYPE = framing.SSE
END = b"data: [DONE]\n\n"
ROLES = {"developer", "system", "user", "assistant", "tool"}
QUIRKS = ("cut_off", "object_arguments", "empty_ids", "no_ids", "repeated_ids")
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def route(path: str) -> JSON | None:
    """Nothing that the request does not say itself."""
    return {} if path == PATH else None


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


def next_step(script: Sequence[Step], request: JSON) -> tuple[Step, int]:
    """Check the request; the step to play, and its place in the script."""
    check(request)
    at = position(request["messages"])
    return step_at(script, at), at


def answer(script: Sequence[Step], request: JSON) -> JSON:
    """The next completion of the script. Raises `RefusedError` as the API would answer 400."""
    return complete(*next_step(script, request), request)


def complete(step: Step, at: int, request: JSON) -> JSON:
    """The whole completion."""
    allow(step, "a completion", *QUIRKS)
    message: JSON = {"role": "assistant", "content": text_said(step) or None, "refusal": None}
    if step.calls:
        ids, arguments = ids_of(step, "call", at), _arguments(step)
        message["tool_calls"] = [
            _tool_call(call, ids[index], arguments[index]) for index, call in enumerate(step.calls)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(step)}
    return {
        "id": f"chatcmpl-{at}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request["model"],
        "choices": [choice],
        "usage": USAGE,
    }


def stream(step: Step, at: int, request: JSON) -> Iterator[JSON | Pause]:
    """The chunks of the completion."""
    allow(step, "a stream of completions", *QUIRKS, "index0", "interleaved", "cumulative")
    if any(call.custom for call in step.calls):
        raise RefusedError("a stream of completions has no calls of custom tools")
    envelope = {
        "id": f"chatcmpl-{at}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": request["model"],
    }
    for delta in _deltas(step, at):
        yield delta if isinstance(delta, Pause) else {**envelope, "choices": [_choice(delta)]}
    yield {**envelope, "choices": [_choice({}, _finish(step))]}
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**envelope, "choices": [], "usage": USAGE}


def frame(event: JSON) -> bytes:
    """A server-sent event without a name."""
    return framing.sse(event)


def _choice(delta: JSON, finish: str | None = None) -> JSON:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _deltas(step: Step, at: int) -> Iterator[JSON | Pause]:
    text = text_said(step)
    yield {"role": "assistant", "content": "" if text else None, "refusal": None}
    for part in fragments(text) if text else ():
        yield {"content": part}
    write = _snapshots if "cumulative" in step.quirks else _fragments
    for piece in in_turns(step, write(step, at)):
        yield piece if isinstance(piece, Pause) else {"tool_calls": piece["now"]}
    yield from pause_at(step.pause)


def _fragments(step: Step, at: int) -> Iterator[list[JSON | Pause]]:
    """Write each call as its beginning and the fragments of its arguments, or all at once."""
    ids, arguments = ids_of(step, "call", at), _arguments(step)
    for place, call in enumerate(step.calls):
        said = arguments[place]
        index = 0 if "index0" in step.quirks else place
        whole = "index0" in step.quirks or not isinstance(said, str)
        begun = {"index": index, **_tool_call(call, ids[place], said if whole else "")}
        parts = [] if whole else fragments(said, call.cuts)
        rest = [{"index": index, "function": {"arguments": part}} for part in parts]
        yield [*pause_at(call.pause), *({"now": [piece]} for piece in (begun, *rest))]


def _snapshots(step: Step, at: int) -> Iterator[list[JSON | Pause]]:
    """Write all calls so far each time; arguments grow only where the call says how it is cut."""
    ids, arguments = ids_of(step, "call", at), _arguments(step)
    before: list[JSON] = []
    for place, call in enumerate(step.calls):
        said = arguments[place]
        grows = call.cuts is not None and isinstance(said, str)
        states = list(accumulate(fragments(said, call.cuts))) if grows else [said]
        now = [{"index": place, **_tool_call(call, ids[place], state)} for state in states]
        yield [*pause_at(call.pause), *({"now": [*before, one]} for one in now)]
        before.append(now[-1])


def _tool_call(call: Call, call_id: str | None, arguments: Any) -> JSON:
    named = present(id=call_id)
    if call.custom:
        return {**named, "type": "custom", "custom": {"name": call.name, "input": arguments}}
    function = {"name": call.name, "arguments": arguments}
    return {**named, "type": "function", "function": function}


def _arguments(step: Step) -> list[Any]:
    """The arguments as text; as objects where they can be, with that quirk."""
    texts = arguments_said(step)
    return [json.loads(text) for text in texts] if "object_arguments" in step.quirks else texts


def _finish(step: Step) -> str:
    if "cut_off" in step.quirks:
        return "length"
    return "tool_calls" if step.calls else "stop"


def check(request: JSON) -> None:
    """Refuse what the API refuses."""
    required(request, "model", "messages")
    for tool in request.get("tools", ()):
        kind = tool.get("type")
        if kind not in ("function", "custom") or not tool[kind].get("name"):
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
        kind, said = call["type"], {"function": "arguments", "custom": "input"}
        if not isinstance(call[kind][said[kind]], str):
            raise RefusedError(f"Invalid type for '{where}.tool_calls[].{kind}.{said[kind]}'.")
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
