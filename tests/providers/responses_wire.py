"""OpenAI's Responses API: what its answers and streams look like; `responses_input` refuses.

A step is one response: a message, if the step has text, then its calls. The id of a response is its
place in the script, so `previous_response_id` works without anything being stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.providers import framing, responses_input
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
    present,
    step_at,
    text_said,
)

PATH = "/v1/responses"
CONTENT_TYPE = framing.SSE
END = b""
QUIRKS = ("cut_off", "object_arguments", "empty_ids", "no_ids", "repeated_ids")
KINDS = {
    False: ("function_call", "fc", "arguments", "response.function_call_arguments"),
    True: ("custom_tool_call", "ctc", "input", "response.custom_tool_call_input"),
}
"""By whether a call is custom: its type, what its item ids begin with, the name of what was said,
and what the events about that are called."""


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
            "param": None if status == 401 else "input",
            "code": "invalid_api_key" if status == 401 else None,
        }
    }


def check(request: JSON) -> None:
    """Refuse what the API refuses; of a stored response it knows nothing here."""
    responses_input.check(request, ())


def next_step(script: Sequence[Step], request: JSON) -> tuple[Step, int]:
    """Check the request; the step to play, and its place in the script."""
    before, first = _stored(script, request.get("previous_response_id"))
    at = first + responses_input.check(request, before)
    return step_at(script, at), at


def answer(script: Sequence[Step], request: JSON) -> JSON:
    """The next response of the script. Raises `RefusedError` as the API would answer 400."""
    return complete(*next_step(script, request), request)


def complete(step: Step, at: int, request: JSON) -> JSON:
    """The whole response."""
    allow(step, "a response", *QUIRKS)
    return _response(step, at, request, _output(step, at))


def stream(step: Step, at: int, request: JSON) -> Iterator[JSON | Pause]:
    """The events of the response, each with its number."""
    allow(step, "a stream of a response", *QUIRKS, "interleaved", "announced_twice")
    number = 0
    for piece in _events(step, at, request):
        if isinstance(piece, Pause):
            yield piece
        else:
            yield {**piece, "sequence_number": number}
            number += 1


def frame(event: JSON) -> bytes:
    """A server-sent event under the name of its type."""
    return framing.sse(event, event["type"])


def _stored(script: Sequence[Step], response_id: str | None) -> tuple[Sequence[JSON], int]:
    """The calls of an earlier response, and the place in the script behind it."""
    if response_id is None:
        return (), 0
    places = [place for place in range(len(script)) if response_id == f"resp_{place}"]
    if not places:
        raise RefusedError(f"Previous response with id '{response_id}' not found.")
    return _output(script[places[0]], places[0]), places[0] + 1


def _events(step: Step, at: int, request: JSON) -> Iterator[JSON | Pause]:
    begun = _response(step, at, request, None)
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output = _output(step, at)
    calls = output[1:] if text_said(step) else output
    first = len(output) - len(calls)
    if first:
        yield from _message_events(output[0])
    yield from in_turns(
        step, (_call_events(step, place, first, item) for place, item in enumerate(calls))
    )
    yield from pause_at(step.pause)
    kind = "response.incomplete" if "cut_off" in step.quirks else "response.completed"
    yield {"type": kind, "response": _response(step, at, request, output)}


def _message_events(item: JSON) -> Iterator[JSON]:
    opened = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": opened}
    part = item["content"][0]
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
    for piece in fragments(part["text"]):
        yield {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
    yield {
        "type": "response.output_text.done",
        **place,
        "text": part["text"],
        "logprobs": [],
    }
    yield {"type": "response.content_part.done", **place, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}


def _call_events(step: Step, place: int, first: int, item: JSON) -> Iterator[JSON | Pause]:
    """Announce a call, write what it says, and confirm it.

    A call that is cut off is never said to be done but as an item, which is incomplete.
    """
    call = step.calls[place]
    _, _, said, about = KINDS[call.custom]
    yield from pause_at(call.pause)
    twice = "announced_twice" in step.quirks
    index = {"output_index": first + place}
    opened = {**item, said: "", "status": "in_progress"}
    announced = {**opened, "id": f"{item['id']}_first"} if twice else opened
    yield {"type": "response.output_item.added", **index, "item": announced}
    if not twice and isinstance(item[said], str):
        about_it = {"item_id": item["id"], **index}
        for part in fragments(item[said], call.cuts):
            yield {"type": f"{about}.delta", **about_it, "delta": part}
        if item["status"] == "completed":
            yield {"type": f"{about}.done", **about_it, said: item[said]}
    yield {"type": "response.output_item.done", **index, "item": item}


def _output(step: Step, at: int) -> list[JSON]:
    """The items of the step, as they are once the response has ended."""
    ids, texts = ids_of(step, "call", at), arguments_said(step)
    items = [
        _call_item(step, at, place, ids[place], texts[place]) for place in range(len(step.calls))
    ]
    text = text_said(step)
    return [_message_item(step, at, text), *items] if text else items


def _message_item(step: Step, at: int, text: str) -> JSON:
    is_cut = "cut_off" in step.quirks and not step.calls
    return {
        "type": "message",
        "id": f"msg_{at}",
        "role": "assistant",
        "status": "incomplete" if is_cut else "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _call_item(step: Step, at: int, place: int, call_id: str | None, text: str) -> JSON:
    call = step.calls[place]
    kind, prefix, said, _ = KINDS[call.custom]
    is_object = "object_arguments" in step.quirks and not call.custom
    is_cut = "cut_off" in step.quirks and place == len(step.calls) - 1
    return {
        "type": kind,
        "id": f"{prefix}_{at}_{place}",
        **present(call_id=call_id),
        "name": call.name,
        said: json.loads(text) if is_object else text,
        "status": "incomplete" if is_cut else "completed",
    }


def _response(step: Step, at: int, request: JSON, output: list[JSON] | None) -> JSON:
    """The response as it is before its first item (`output` is None) or once it has ended."""
    usage: Any = {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    }
    is_cut = "cut_off" in step.quirks and output is not None
    ended = "incomplete" if is_cut else "completed"
    return {
        "id": f"resp_{at}",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "in_progress" if output is None else ended,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "instructions": request.get("instructions"),
        "metadata": {},
        "model": request["model"],
        "output": output or [],
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "previous_response_id": request.get("previous_response_id"),
        "temperature": 1.0,
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools", []),
        "top_p": 1.0,
        "usage": None if output is None else usage,
    }
