from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types import Message, MessageParam, ToolParam

from dispatch import ToolCall
from dispatch.adapters import AnthropicMessages
from dispatch.errors import InputError

from .samples import (
    ADVICE,
    PNG,
    all_succeeded,
    as_validated,
    bare,
    failed,
    objects,
    read_file,
    succeeded,
)

PROVIDER = AnthropicMessages()
BODY: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [
        {"type": "thinking", "thinking": "Two files.", "signature": "s"},
        {"type": "text", "text": "I read both."},
        {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.py"}},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"q": "x"}},
        {
            "type": "tool_use",
            "id": "toolu_2",
            "name": "read_file",
            "input": {"path": "b.py", "start": 3},
        },
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
CALLS = [
    ToolCall("toolu_1", "read_file", {"path": "a.py"}),
    ToolCall("toolu_2", "read_file", {"path": "b.py", "start": 3}),
]
SDK = Message.model_validate(BODY)


@pytest.mark.parametrize(
    "message",
    [
        BODY,
        {"role": "assistant", "content": BODY["content"]},
        BODY["content"],
        SDK,
        SDK.content,
        {"role": "assistant", "content": SDK.content},
        objects(BODY),
    ],
    ids=["body", "message", "blocks", "sdk", "sdk-blocks", "mixed", "attributes"],
)
def test_every_form_of_a_message_gives_the_same_calls(message: object) -> None:
    """Dictionaries, SDK objects and plain objects are read alike; other blocks are skipped."""
    assert CALLS == PROVIDER.calls(message)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": []},
        [],
        [{"type": "text", "text": "Done."}],
    ],
    ids=["text", "empty", "no-blocks", "text-block"],
)
def test_a_message_without_calls(message: object) -> None:
    """Text alone is no call and no error."""
    assert [] == PROVIDER.calls(message)


@pytest.mark.parametrize("kind", ["function", "function_call", "custom_tool_call", "output_text"])
def test_parts_of_another_providers_message_are_refused(kind: str) -> None:
    """What is a call elsewhere is not skipped like a block that is none of ours."""
    block = {"type": kind, "name": "search", "arguments": "{}", "function": {"name": "search"}}
    for message in ([block], {"role": "assistant", "content": [block]}):
        with pytest.raises(InputError, match=rf"content\[0\]\.type is '{kind}', OpenAI's form"):
            PROVIDER.calls(message)


def test_calls_of_one_name_stay_apart() -> None:
    """E4: two calls of one tool are two calls, also under one id, which only the first keeps."""
    use = {"type": "tool_use", "id": "t", "name": "search"}
    first, second = PROVIDER.calls([{**use, "input": {"q": "X"}}, {**use, "input": {"q": "Y"}}])
    assert ("t", {"q": "X"}, {"q": "Y"}) == (first.id, first.arguments, second.arguments)
    assert "t" != second.id


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (None, "message must be an assistant message, not missing"),
        ("hello", "message must be an assistant message, not the text 'hello'"),
        (7, "message must be an assistant message, not a number"),
        ({}, "message must be an assistant message, not an object without a role"),
        (
            {"role": "user", "content": "hello"},
            "message must be an assistant message, not of role 'user'",
        ),
        (
            {"role": "assistant"},
            "message.content must be text or a list of blocks, not missing",
        ),
        (
            {"role": "assistant", "content": {"type": "text"}},
            "message.content must be text or a list of blocks, not an object",
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [{}]},
            "message.tool_calls is OpenAI's form: read this message with OpenAIChat",
        ),
        (
            {"role": "assistant", "content": "I read.", "tool_calls": [{}]},
            "message.tool_calls is OpenAI's form: read this message with OpenAIChat",
        ),
        (
            {"role": "assistant", "content": ["hello"]},
            "message.content[0] must be an object, not the text 'hello'",
        ),
        (
            [{"type": "text", "text": "x"}, {"role": "assistant", "content": []}],
            "content[1].type must be text, not missing",
        ),
        (
            [{"type": "tool_use", "id": "a", "input": {}}],
            "content[0].name must be text, not missing",
        ),
        (
            [{"type": "tool_use", "id": "a", "name": ["ls"], "input": {}}],
            "content[0].name must be text, not a list of 1",
        ),
    ],
    ids=[
        "none", "text", "number", "empty", "user", "no-content", "content-object", "openai",
        "openai-with-text", "block-text", "block-of-no-type", "no-name", "name-list",
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(message: object, error: str) -> None:
    """A message of another form raises one sentence that says where and what."""
    with pytest.raises(InputError) as raised:
        PROVIDER.calls(message)
    assert error == str(raised.value)


@pytest.mark.parametrize(
    ("given", "expected", "kept"),
    [
        (None, "", {}),
        ([1], "[1]", {}),
        ('{"x": 1', '{"x": 1', {}),
        ('{"x": 1}', '{"x": 1}', {"x": 1}),
    ],
    ids=["missing", "list", "half-text", "text"],
)
def test_an_input_that_is_no_object_harms_no_sibling(
    given: object, expected: str, kept: object
) -> None:
    """Bad arguments stay in their call, and the history has an object, as the API asks for."""
    content = [{"type": "tool_use", "id": "a", "name": "ls", "input": given}, BODY["content"][2]]
    assert [ToolCall("a", "ls", expected), CALLS[0]] == PROVIDER.calls(content)
    assert [kept, CALLS[0].arguments] == [
        block["input"] for block in _blocks(PROVIDER.message(content))
    ]


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_a_call_that_the_limit_broke_off_is_not_complete(reason: str) -> None:
    """The last call may have lost arguments, so it never runs; those before it are whole."""
    for message in (BODY | {"stop_reason": reason}, objects(BODY | {"stop_reason": reason})):
        first, last = PROVIDER.calls(message)
        assert CALLS[0] == first
        assert '{"path":"b.py","start":3}…[cut off]' == last.arguments
    said = {**BODY, "content": [*BODY["content"], {"type": "text", "text": "And th"}]}
    assert CALLS == PROVIDER.calls(said | {"stop_reason": reason})


def test_reply() -> None:
    """One block per call, in intent order; only what failed is marked as an error."""
    reply = PROVIDER.reply([succeeded(CALLS[0], 0, {"lines": 3}), failed(CALLS[1], 1)])
    assert {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": '{"lines":3}'},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": f"[error] no such file\n{ADVICE}",
                "is_error": True,
            },
        ],
    } == reply


def test_images_are_blocks_of_the_result() -> None:
    """An image is shown, in its place among the texts; an error can only tell of it."""
    source = {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgogYW5kIHRoZSBwaXhlbHM=",
    }
    reply = PROVIDER.reply([succeeded(CALLS[0], 0, ["Before", PNG, {"after": 1}])])
    assert [
        {"type": "text", "text": "Before"},
        {"type": "image", "source": source},
        {"type": "text", "text": '{"after":1}'},
    ] == _blocks(reply)[0]["content"]
    assert reply == as_validated(MessageParam, reply)
    uses = [{"recipient_name": "functions.f", "parameters": {}}] * 2
    several = {"type": "tool_use", "id": "a", "name": "multi_tool_use.parallel"}
    shown, broken = PROVIDER.calls([{**several, "input": {"tool_uses": uses}}])
    (folded,) = _blocks(PROVIDER.reply([succeeded(shown, 0, PNG), failed(broken, 1)]))
    assert f"f:\n[image/png, 23 bytes]\nf:\n[error] no such file\n{ADVICE}" == folded["content"]
    assert folded["is_error"]


def test_repeated_ids_are_answered_one_by_one() -> None:
    """Two calls of one id have two results."""
    twice = [succeeded(CALLS[0], 0, "x"), succeeded(CALLS[0], 1, "y")]
    assert ["x", "y"] == [block["content"] for block in _blocks(PROVIDER.reply(twice))]


def test_the_sdk_takes_reply_message_and_tools() -> None:
    """What the adapter makes validates against the SDK's own types, every field of it."""
    results = [succeeded(CALLS[0], 0), failed(CALLS[1], 1)]
    for message in (PROVIDER.reply(results), PROVIDER.message(SDK), PROVIDER.message(BODY)):
        assert message == as_validated(MessageParam, message)
    for definition in PROVIDER.tools([read_file, bare]):
        assert definition == as_validated(ToolParam, definition)


def test_tools() -> None:
    """A definition has name, description and schema, which always says that it is an object."""
    assert [
        {
            "name": "read_file",
            "description": "Read a text file.",
            "input_schema": read_file.input_schema,
        },
        {
            "name": "bare",
            "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}},
        },
    ] == PROVIDER.tools([read_file, bare])


BLANK = [
    {"type": "text", "text": "Twice."},
    {"type": "tool_use", "id": "", "name": "ls", "input": {}},
    {"type": "tool_use", "id": None, "name": "ls", "input": {}},
]


@pytest.mark.parametrize(
    "message",
    [
        BLANK,
        {"role": "assistant", "content": BLANK},
        Message.construct(role="assistant", content=BLANK),
        SimpleNamespace(role="assistant", content=objects(BLANK)),
    ],
    ids=["blocks", "message", "sdk", "attributes"],
)
def test_message_carries_the_ids_that_the_reply_answers(message: object) -> None:
    """E6: the history pairs, and reading it back gives the same calls."""
    calls = PROVIDER.calls(message)
    kept = PROVIDER.message(message)
    uses = [block["id"] for block in _blocks(kept) if block["type"] == "tool_use"]
    answers = [block["tool_use_id"] for block in _blocks(PROVIDER.reply(all_succeeded(calls)))]
    assert uses == answers
    assert 2 == len(set(uses))
    assert calls == PROVIDER.calls(kept)
    assert {"type": "text", "text": "Twice."} == _blocks(kept)[0]


def test_message_leaves_the_original_alone() -> None:
    """The message given is copied, never changed."""
    before = json.dumps(BLANK)
    PROVIDER.message(BLANK)
    assert before == json.dumps(BLANK)


def test_message_keeps_text() -> None:
    """A message of text alone stays one."""
    said: MessageParam = {"role": "assistant", "content": "Done."}
    assert said == PROVIDER.message(said)


def _blocks(message: MessageParam) -> list[Any]:
    return list(message["content"])
