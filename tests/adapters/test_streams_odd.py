"""What real streams do besides: noise, errors, several answers, events without their form."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch import InputError, StreamBroken
from tests.adapters.samples import all_succeeded
from tests.adapters.streaming import (
    CALLS,
    PROVIDERS,
    STEP,
    accepted,
    essence,
    history,
    raw,
    read,
)
from tests.providers import Step
from tests.providers.script import JSON

every_provider = pytest.mark.parametrize("name", PROVIDERS)

NOISE: dict[str, list[JSON]] = {
    "anthropic": [
        {"type": "ping"},
        {"type": "tomorrows_event", "index": 1},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "tomorrows_delta"}},
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {}},
        {},
    ],
    "chat": [
        {"choices": [], "usage": {"total_tokens": 2}},
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        {"choices": None},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"delta": {"content": None, "tool_calls": None, "audio": {"id": "a"}}}]},
        {"choices": [{"index": 0, "delta": {"content": "", "tool_calls": []}}]},
        {"object": "tomorrows.chunk"},
    ],
    "responses": [
        {"type": "keepalive", "sequence_number": 7},
        {"type": "response.queued", "response": {"output": []}},
        {"type": "response.tomorrows_call.searching", "output_index": 9, "item_id": "x"},
        {"type": "response.function_call_arguments.delta", "output_index": 9, "delta": "{"},
        {},
    ],
    "gemini": [
        {"usageMetadata": {"totalTokenCount": 2}},
        {"candidates": []},
        {"candidates": [{"index": 0}]},
        {"candidates": [{"content": {}}]},
        {"candidates": [{"content": {"role": "model", "parts": None}}]},
        {"candidates": [{"content": {"parts": [{"text": ""}, {}]}}], "promptFeedback": {}},
    ],
    "bedrock": [
        {"metadata": {"usage": {"totalTokens": 2}, "metrics": {"latencyMs": 1}}},
        {"tomorrowsEvent": {"contentBlockIndex": 0}},
        {"messageStart": {}},
        {},
    ],
}


@every_provider
def test_noise_changes_nothing(name: str) -> None:
    """Events that say nothing, and those that are not known, may stand between any two others."""
    events = raw(name, STEP)
    noisy = [events[0], *(one for event in events[1:] for one in (*NOISE[name], event))]
    calls, stream = read(name, [*noisy, *NOISE[name]])
    quiet, expected = read(name, events)
    assert essence(quiet) == essence(calls)
    assert expected.message == stream.message


ERRORS: dict[str, list[tuple[JSON, str]]] = {
    "anthropic": [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}, "Busy"),
    ],
    "chat": [
        ({"error": {"message": "Busy", "code": 502}, "choices": []}, "Busy"),
    ],
    "responses": [
        ({"type": "error", "code": "server_error", "message": "Busy"}, "Busy"),
        ({"type": "response.failed", "response": {"error": {"message": "Busy"}}}, "Busy"),
        ({"type": "response.failed", "response": {}}, "no reason given"),
    ],
    "gemini": [
        ({"error": {"code": 503, "status": "UNAVAILABLE", "message": "Busy"}}, "Busy"),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "the prompt was blocked: SAFETY"),
        (
            {"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL"}]},
            "could not read",
        ),
    ],
    "bedrock": [
        ({"throttlingException": {"message": "Busy"}}, "Busy"),
        ({"modelStreamErrorException": {"message": "Busy"}}, "Busy"),
    ],
}


@pytest.mark.parametrize(
    ("name", "event", "text"),
    [(name, *error) for name, errors in ERRORS.items() for error in errors],
)
def test_an_error_in_the_stream_is_what_broke_it(name: str, event: JSON, text: str) -> None:
    """The provider's own words are in it, and the stream counts as broken."""
    stream = PROVIDERS[name].stream()
    for before in raw(name, STEP)[:3]:
        stream.feed(before)
    with pytest.raises(StreamBroken, match=f"^the provider broke the stream off: .*{text}"):
        stream.feed(event)
    with pytest.raises(StreamBroken, match="ended before the message was complete"):
        stream.close()


@every_provider
def test_a_stream_that_just_ends_is_broken(name: str) -> None:
    """Without the event that ends the message it is not complete, wherever it stops."""
    events = raw(name, STEP)
    is_end = [_is_complete(name, events[: number + 1]) for number in range(len(events))]
    assert not any(is_end[: is_end.index(True)])
    assert all(is_end[is_end.index(True) :])
    assert is_end.index(True) >= len(events) - 2


def _is_complete(name: str, events: list[JSON]) -> bool:
    try:
        read(name, events)
    except StreamBroken:
        return False
    return True


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (None, "must be an object, not missing"),
        ("data: {}", "must be an object, not the text 'data: {}'"),
        (b"data: {}", "must be an object, not of type bytes"),
        (("tuple", 1), "must be an object, not a list of 2"),
    ],
    ids=["none", "text", "bytes", "tuple"],
)
@every_provider
def test_what_is_no_event_is_refused(name: str, event: object, text: str) -> None:
    """Raw lines of the wire, and names of fields, are no events; the error says what came."""
    with pytest.raises(InputError, match=f"^an event of a stream {text}"):
        PROVIDERS[name].stream().feed(event)


PIECE = {"name": "ls", "willContinue": True}
BAD: dict[str, list[tuple[JSON, str]]] = {
    "anthropic": [
        (
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}},
            r"^content_block\.name must be text, not missing",
        ),
        (
            {"type": "content_block_start", "index": 0, "content_block": None},
            r"^an event has not the form it should \(.*\): .*content_block_start",
        ),
        (
            {
                "type": "content_block_delta",
                "index": 5,
                "delta": {"type": "input_json_delta", "partial_json": "{"},
            },
            "^a piece came of block 5, which has not started",
        ),
    ],
    "chat": [
        ({"choices": 5}, r"^an event has not the form it should"),
        ({"choices": [{"delta": {"tool_calls": 5}}]}, r"^an event has not the form it should"),
        (
            {"choices": [{"delta": {"function_call": {"name": "ls"}}}]},
            r"^delta\.function_call is the legacy form",
        ),
    ],
    "responses": [
        (
            {"type": "response.output_item.done", "item": {"type": "function_call"}},
            r"^item\.name must be text, not missing",
        ),
        (
            {"type": "response.completed", "response": {"output": 5}},
            r"^an event has not the form it should",
        ),
    ],
    "gemini": [
        (
            {"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]},
            r"^parts\.functionCall\.name must be text, not missing",
        ),
        ({"candidates": [{"content": {"parts": 5}}]}, r"^an event has not the form it should"),
        (
            {"candidates": [{"content": {"parts": [{"functionCall": PIECE}]}}]},
            r"^parts\.functionCall comes in pieces, which are not read; ask without stream",
        ),
    ],
    "bedrock": [
        (
            {"contentBlockStart": {"start": {"toolUse": {}}, "contentBlockIndex": 0}},
            r"^toolUse\.name must be text, not missing",
        ),
        (
            {"contentBlockDelta": {"delta": {"toolUse": {"input": "{"}}, "contentBlockIndex": 3}},
            "^a piece came of block 3, which has not started",
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "event", "text"), [(name, *bad) for name, events in BAD.items() for bad in events]
)
def test_an_event_without_its_form_is_a_clear_error(name: str, event: JSON, text: str) -> None:
    """What is wrong, and with what, stands in an `InputError`; never a `KeyError` of ours."""
    with pytest.raises(InputError, match=text):
        PROVIDERS[name].stream().feed(event)


ODD_VALUES: list[Any] = [None, 0, 3, "", "x", [], [1], {}, {"a": 1}, True, 1.5]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every field and item in a tree, as its container and its key."""
    keys = list(node) if isinstance(node, dict) else range(len(node))
    inner = [(node, key) for key in keys]
    nested = [node[key] for key in keys if isinstance(node[key], dict | list)]
    return [*inner, *(place for one in nested for place in places(one))]


@every_provider
@settings(max_examples=300)
@given(data=st.data())
def test_no_stream_brings_anything_but_an_input_error(name: str, data: st.DataObject) -> None:
    """Events that are damaged, lost, repeated or in another order are read or refused."""
    quirks = ["", "interleaved", "cut_off"] if name != "gemini" else ["", "cut_off"]
    events: list[JSON] = copy.deepcopy(
        raw(name, Step("I look.", CALLS, quirk=data.draw(st.sampled_from(quirks))))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.integers(0, len(events) - 1))
        how = data.draw(st.sampled_from(["damage", "lose", "repeat", "move"]))
        if how == "damage" and events[number]:
            container, key = data.draw(st.sampled_from(places(events[number])))
            container[key] = data.draw(st.sampled_from(ODD_VALUES))
        elif how == "lose" and len(events) > 1:
            del events[number]
        elif how == "repeat":
            events.insert(data.draw(st.integers(0, len(events))), copy.deepcopy(events[number]))
        elif how == "move":
            events.insert(data.draw(st.integers(0, len(events) - 1)), events.pop(number))
    stream = PROVIDERS[name].stream()
    for event in events:
        try:
            stream.feed(event)
            assert stream.message is not None
        except InputError:
            return
    try:
        stream.close()
    except StreamBroken:
        return


@every_provider
def test_text_may_follow_calls(name: str) -> None:
    """What is said behind the calls is in the message, and no call comes twice."""
    calls, stream = read(name, list(text_behind(name)))
    assert ["read", "read", "ls"] == [call.name for call in calls]
    assert "and so on" in str(stream.message)
    assert accepted(name, STEP, history(name, stream.message, all_succeeded(calls)))


def text_behind(name: str) -> list[JSON]:
    """The events of `STEP` with a text after the last call."""
    events = raw(name, STEP)
    said: list[JSON]
    if name == "anthropic":
        block = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}
        delta = {"type": "text_delta", "text": "and so on"}
        said = [
            block,
            {"type": "content_block_delta", "delta": delta},
            {"type": "content_block_stop"},
        ]
        said, behind = [{**event, "index": 9} for event in said], 2
    elif name == "chat":
        said, behind = [{"choices": [{"index": 0, "delta": {"content": " and so on"}}]}], 2
    elif name == "responses":
        part = {"type": "output_text", "text": "and so on", "annotations": []}
        item = {"type": "message", "id": "msg_9", "role": "assistant", "content": [part]}
        said = [{"type": "response.output_item.done", "output_index": 9, "item": item}]
        behind = 1
    elif name == "gemini":
        said, behind = [{"candidates": [{"content": {"parts": [{"text": "and so on"}]}}]}], 1
    else:
        piece = {"delta": {"text": "and so on"}, "contentBlockIndex": 9}
        said = [{"contentBlockDelta": piece}, {"contentBlockStop": {"contentBlockIndex": 9}}]
        behind = 2
    return [*events[:-behind], *said, *events[-behind:]]


@pytest.mark.parametrize(("name", "field"), [("chat", "choices"), ("gemini", "candidates")])
def test_of_several_answers_the_first_is_read(name: str, field: str) -> None:
    """Answers with another index that come in between, and end before, are somebody else's."""
    events = raw(name, STEP)
    other = [
        {**event, field: [{**one, "index": 1} for one in event[field]]}
        for event in raw(name, Step("Another.", CALLS[:1]))
        if event.get(field)
    ]
    calls, stream = read(name, [*events[:2], *other, *events[2:]])
    expected, alone = read(name, events)
    assert essence(expected) == essence(calls)
    assert alone.message == stream.message
    with pytest.raises(StreamBroken):
        read(name, other)
