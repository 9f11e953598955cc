from __future__ import annotations

import copy
from typing import Any

import pytest
from openai.types.responses import Response, ResponseInputItemParam, ToolParam

from dispatch import ToolCall
from dispatch.adapters import OpenAIResponses
from dispatch.errors import InputError

from .samples import (
    ADVICE,
    PNG,
    all_succeeded,
    as_validated,
    bare,
    failed,
    objects,
    patch,
    read_file,
    succeeded,
)

PROVIDER = OpenAIResponses()
OUTPUT: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "I read both.", "annotations": []}],
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "read_file",
        "arguments": '{"path": "a.py"}',
        "status": "completed",
    },
    {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_2",
        "name": "patch",
        "input": "*** Begin",
    },
]
BODY: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-6-sol",
    "status": "completed",
    "output": OUTPUT,
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
CALLS = [
    ToolCall("call_1", "read_file", '{"path": "a.py"}'),
    ToolCall("call_2", "patch", {"input": "*** Begin"}),
]
SDK = Response.model_validate(BODY)


@pytest.mark.parametrize(
    "message",
    [BODY, OUTPUT, tuple(OUTPUT), SDK, SDK.output, objects(BODY), [OUTPUT[0], *SDK.output[1:]]],
    ids=["body", "output", "tuple", "sdk", "sdk-output", "attributes", "mixed"],
)
def test_every_form_of_a_response_gives_the_same_calls(message: object) -> None:
    """Dictionaries, SDK objects and plain objects are read alike; other items are skipped."""
    assert CALLS == PROVIDER.calls(message)


@pytest.mark.parametrize(
    "message",
    [[], OUTPUT[:2], {"output": []}, [{"type": "web_search_call", "id": "ws_1"}]],
    ids=["no-items", "message", "empty", "of-the-provider"],
)
def test_a_response_without_calls(message: object) -> None:
    """Text, reasoning and what the provider ran itself are no calls and no errors."""
    assert [] == PROVIDER.calls(message)


@pytest.mark.parametrize(
    ("given", "expected", "kept"),
    [
        ({"x": 1}, {"x": 1}, '{"x":1}'),
        ("", "", ""),
        ('{"x": ', '{"x": ', '{"x": '),
        ([1], "[1]", "[1]"),
    ],
    ids=["object", "empty", "half", "list"],
)
def test_arguments_of_other_servers(given: object, expected: object, kept: str) -> None:
    """An object is understood; what is none stays in its call. The history always has text."""
    items = [{**OUTPUT[2], "arguments": given}, OUTPUT[3]]
    assert [expected, CALLS[1].arguments] == [call.arguments for call in PROVIDER.calls(items)]
    message: list[Any] = PROVIDER.message(items)
    assert [kept, "*** Begin"] == [message[0]["arguments"], message[1]["input"]]


def test_what_is_incomplete_is_not_run() -> None:
    """Text of a custom tool cannot show that it is not whole, so the item's status does."""
    broken = [
        {**OUTPUT[2], "arguments": '{"path": "a', "status": "incomplete"},
        {**OUTPUT[3], "status": "incomplete"},
        {**OUTPUT[2], "call_id": "call_3", "status": "incomplete"},
    ]
    assert ['{"path": "a…[cut off]', "*** Begin…[cut off]", '{"path": "a.py"}'] == [
        call.arguments for call in PROVIDER.calls(broken)
    ]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (None, "response.output must be a list of items, not missing"),
        ("hello", "response.output must be a list of items, not missing"),
        ({"output": {}}, "response.output must be a list of items, not an object"),
        (
            {"choices": [{}]},
            "response.choices is Chat Completions' form: read it with OpenAIChat",
        ),
        (["hello"], "output[0] must be an object, not the text 'hello'"),
        (
            [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}],
            "output[0] is no item of a response: read it with its own API's adapter",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a"}]}],
            "output[0] is no item of a response: read it with its own API's adapter",
        ),
        (
            [OUTPUT[0], {"type": "function_call", "call_id": "a", "arguments": "{}"}],
            "output[1].name must be text, not missing",
        ),
    ],
    ids=["none", "text", "object", "chat", "item-text", "anthropic", "chat-message", "no-name"],
)
def test_what_is_no_response_is_refused(message: object, error: str) -> None:
    """A message of another form raises one sentence that says where and what."""
    with pytest.raises(InputError) as raised:
        PROVIDER.calls(message)
    assert error == str(raised.value)


def test_reply() -> None:
    """One item per call, of its own kind, in intent order; a failure says so in its text."""
    assert [
        {"type": "function_call_output", "call_id": "call_1", "output": '{"lines":3}'},
        {
            "type": "custom_tool_call_output",
            "call_id": "call_2",
            "output": f"[error] no such file\n{ADVICE}",
        },
    ] == PROVIDER.reply(
        [
            succeeded(call, index, {"lines": 3}) if index == 0 else failed(call, index)
            for index, call in enumerate(PROVIDER.calls(BODY))
        ]
    )


def test_images_are_parts_of_the_output() -> None:
    """An image is shown, in its place among the texts."""
    reply: list[Any] = PROVIDER.reply([succeeded(CALLS[0], 0, ["Before", PNG])])
    assert [
        {"type": "input_text", "text": "Before"},
        {
            "type": "input_image",
            "image_url": "data:image/png;base64,iVBORw0KGgogYW5kIHRoZSBwaXhlbHM=",
            "detail": "auto",
        },
    ] == reply[0]["output"]
    assert reply == as_validated(list[ResponseInputItemParam], reply)


def test_the_sdk_takes_reply_message_and_tools() -> None:
    """What the adapter makes validates against the SDK's own types, every field of it."""
    calls = PROVIDER.calls(SDK)
    results = [succeeded(calls[0], 0), failed(calls[1], 1)]
    for items in (PROVIDER.reply(results), PROVIDER.message(SDK), PROVIDER.message(BODY)):
        assert items == as_validated(list[ResponseInputItemParam], items)
    for definition in OpenAIResponses(custom=["patch"]).tools([read_file, bare, patch]):
        assert definition == as_validated(ToolParam, definition)


def test_tools() -> None:
    """A definition has name, description and schema; a custom tool has no schema."""
    assert [
        {
            "type": "function",
            "name": "read_file",
            "description": "Read a text file.",
            "parameters": read_file.input_schema,
            "strict": False,
        },
        {
            "type": "function",
            "name": "bare",
            "description": "",
            "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
            "strict": False,
        },
        {"type": "custom", "name": "patch", "description": "Apply a patch."},
    ] == OpenAIResponses(custom=["patch"]).tools([read_file, bare, patch])
    with pytest.raises(InputError, match="'bare' cannot be a custom tool: it must take one arg"):
        OpenAIResponses(custom=["bare"]).tools([bare])


def _blank() -> list[dict[str, Any]]:
    items = copy.deepcopy(OUTPUT)
    items[2]["call_id"] = ""
    items[3]["call_id"] = None
    return items


@pytest.mark.parametrize(
    "message",
    [_blank(), {"output": _blank()}, Response.construct(output=_blank()), objects(_blank())],
    ids=["output", "body", "sdk", "attributes"],
)
def test_message_carries_the_ids_that_the_reply_answers(message: object) -> None:
    """E6: the history pairs, and reading it back gives the same calls; all else is as it came."""
    calls = PROVIDER.calls(message)
    kept: list[Any] = PROVIDER.message(message)
    reply: list[Any] = PROVIDER.reply(all_succeeded(calls))
    ids = [item["call_id"] for item in kept if "call_id" in item]
    assert ids == [item["call_id"] for item in reply]
    assert 2 == len(set(ids))
    assert calls == PROVIDER.calls(kept)
    assert OUTPUT[:2] == kept[:2]
    assert ["fc_1", "ctc_1"] == [item["id"] for item in kept[2:]]


def test_message_leaves_the_original_alone() -> None:
    """The response given is copied, never changed."""
    items = _blank()
    PROVIDER.message(items)
    assert _blank() == items
