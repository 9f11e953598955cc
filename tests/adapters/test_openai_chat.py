from __future__ import annotations

import copy
from typing import Any

import pytest
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionMessage,
    ChatCompletionMessageParam,
    ChatCompletionMessageToolCallUnionParam,
    ChatCompletionToolUnionParam,
)

from dispatch import ToolCall
from dispatch.adapters import OpenAIChat
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

PROVIDER = OpenAIChat()
RAW = '{"path": "b.py", "start": '
MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": "I read both.",
    "refusal": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "read_file", "arguments": '{"path": "a.py"}'},
        },
        {"id": "call_2", "type": "function", "function": {"name": "read_file", "arguments": RAW}},
    ],
}
CHOICE = {"index": 0, "message": MESSAGE, "finish_reason": "tool_calls", "logprobs": None}
BODY: dict[str, Any] = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-6-sol",
    "choices": [CHOICE],
}
CALLS = [
    ToolCall("call_1", "read_file", '{"path": "a.py"}'),
    ToolCall("call_2", "read_file", RAW),
]
SDK = ChatCompletion.model_validate(BODY)


@pytest.mark.parametrize(
    "message",
    [
        BODY, CHOICE, MESSAGE, SDK, SDK.choices[0], SDK.choices[0].message,
        objects(BODY), objects(MESSAGE),
    ],
    ids=[
        "body", "choice", "message", "sdk", "sdk-choice", "sdk-message",
        "attributes", "attributes-message",
    ],
)  # fmt: skip
def test_every_form_of_a_message_gives_the_same_calls(message: object) -> None:
    """Dictionaries, SDK objects and plain objects are read alike; arguments stay raw."""
    assert CALLS == PROVIDER.calls(message)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Done."},
        {"role": "assistant", "content": "Done.", "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": "Done.", "function_call": None},
        ChatCompletionMessage(role="assistant", content="Done."),
    ],
    ids=["text", "null", "empty", "refusal", "function-call-null", "sdk"],
)
def test_a_message_without_calls(message: object) -> None:
    """Text alone is no call and no error."""
    assert [] == PROVIDER.calls(message)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"x": 1}, {"x": 1}), ("", ""), (None, ""), ([1], "[1]")],
    ids=["object", "empty", "missing", "list"],
)
def test_arguments_of_other_servers(given: object, expected: object) -> None:
    """An object is understood; what is none stays in its call, for the turn to answer."""
    call = {"id": "a", "function": {"name": "ls", "arguments": given}}
    calls = PROVIDER.calls({"role": "assistant", "tool_calls": [call, MESSAGE["tool_calls"][0]]})
    assert [("ls", expected), ("read_file", CALLS[0].arguments)] == [
        (call.name, call.arguments) for call in calls
    ]
    kept = PROVIDER.message({"role": "assistant", "tool_calls": [call]})["tool_calls"]
    assert kept == as_validated(list[ChatCompletionMessageToolCallUnionParam], kept)


def _with(call: object) -> dict[str, object]:
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (None, "message must be an assistant message, not missing"),
        ([MESSAGE], "message must be an assistant message, not a list of 1"),
        (
            {"role": "tool", "content": "x"},
            "message must be an assistant message, not of role 'tool'",
        ),
        (
            {"choices": [CHOICE, CHOICE]},
            "response.choices has 2 choices; pass the message of the one to answer",
        ),
        (
            {"choices": []},
            "response.choices has 0 choices; pass the message of the one to answer",
        ),
        ({"choices": CHOICE}, "response.choices must be a list of choices, not an object"),
        (
            {"choices": [{"index": 0, "delta": {"role": "assistant"}}]},
            "response.choices[0].message is missing; pieces of a stream are no complete message",
        ),
        (
            {"choices": [{"message": {"role": "user"}}]},
            "response.choices[0].message must be an assistant message, not of role 'user'",
        ),
        (
            {"role": "assistant", "function_call": {"name": "ls", "arguments": "{}"}},
            "message.function_call is the legacy form, which is not read; send the functions as"
            " `tools`, so that the model answers with tool_calls",
        ),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls"}]},
            "message.content has tool_use blocks, Anthropic's form: read it with AnthropicMessages",
        ),
        (
            {"role": "assistant", "tool_calls": {"id": "a"}},
            "message.tool_calls must be a list of tool calls, not an object",
        ),
        (
            _with({"id": "a", "type": "mcp", "mcp": {"name": "sql"}}),
            "message.tool_calls[0].type must be 'function' or 'custom', not 'mcp'",
        ),
        (
            _with({"id": "a", "type": "custom"}),
            "message.tool_calls[0].custom.name must be text, not missing",
        ),
        (_with({"id": "a", "type": "function"}), "message.tool_calls[0].function is missing"),
        (_with("ls"), "message.tool_calls[0] must be an object, not the text 'ls'"),
        (
            _with({"id": "a", "function": {"arguments": "{}"}}),
            "message.tool_calls[0].function.name must be text, not missing",
        ),
    ],
    ids=[
        "none", "list", "tool", "two-choices", "no-choices", "choices-object", "chunk",
        "choice-of-user", "legacy", "anthropic", "calls-object", "other-type", "custom",
        "no-function", "call-text", "no-name",
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(message: object, error: str) -> None:
    """A message of another form raises one sentence that says where and what."""
    with pytest.raises(InputError) as raised:
        PROVIDER.calls(message)
    assert error == str(raised.value)


def test_reply() -> None:
    """One message per call, in intent order; a failure says so in its text."""
    assert [
        {"role": "tool", "tool_call_id": "call_1", "content": '{"lines":3}'},
        {"role": "tool", "tool_call_id": "call_2", "content": f"[error] no such file\n{ADVICE}"},
    ] == PROVIDER.reply([succeeded(CALLS[0], 0, {"lines": 3}), failed(CALLS[1], 1)])


def test_images_stand_behind_the_results() -> None:
    """A tool message has no room for an image: the user shows it, and says whose it is."""
    told, fine, shown = PROVIDER.reply([succeeded(CALLS[0], 0, PNG), succeeded(CALLS[1], 1)])
    assert ("[image/png, 23 bytes]", "fine") == (told["content"], fine["content"])
    url = "data:image/png;base64,iVBORw0KGgogYW5kIHRoZSBwaXhlbHM="
    assert {
        "role": "user",
        "content": [
            {"type": "text", "text": "Images of the tool call call_1:"},
            {"type": "image_url", "image_url": {"url": url}},
        ],
    } == shown
    assert shown == as_validated(ChatCompletionMessageParam, shown)


def test_a_custom_tool_has_text_for_arguments() -> None:
    """Its text becomes the argument `input`, and it is answered as any other call is."""
    custom = {"name": "patch", "input": "*** Begin"}
    message = _with({"id": "a", "type": "custom", "custom": custom})
    calls = PROVIDER.calls(message)
    assert [ToolCall("a", "patch", {"input": "*** Begin"})] == calls
    assert message == PROVIDER.message(message)
    assert message == as_validated(ChatCompletionMessageParam, message)
    (answer,) = PROVIDER.reply(all_succeeded(calls))
    assert {"role": "tool", "tool_call_id": "a", "content": "fine"} == answer


def test_a_custom_tool_is_declared_by_name() -> None:
    """It must take one argument, `input`; the others are functions."""
    provider = OpenAIChat(custom=["patch"])
    function, custom = provider.tools([read_file, patch])
    assert "function" == function["type"]
    assert {
        "type": "custom",
        "custom": {"name": "patch", "description": "Apply a patch."},
    } == custom
    assert custom == as_validated(ChatCompletionToolUnionParam, custom)
    with pytest.raises(InputError, match="'read_file' cannot be a custom tool: it must take one"):
        OpenAIChat(custom=["read_file"]).tools([read_file])


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_call_that_the_limit_broke_off_is_not_complete(reason: str) -> None:
    """Text of a custom tool cannot show that it is not whole, so the reason to finish does."""
    custom = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Be"}}
    message = {**MESSAGE, "tool_calls": [*MESSAGE["tool_calls"], custom]}
    choice = {"message": message, "finish_reason": reason}
    for given in (choice, {"choices": [choice]}, objects(choice)):
        assert [CALLS[0].arguments, f"{RAW}…[cut off]", "*** Be…[cut off]"] == [
            call.arguments for call in PROVIDER.calls(given)
        ]
    assert {"input": "*** Be"} == PROVIDER.calls(message)[-1].arguments


def test_the_sdk_takes_reply_message_and_tools() -> None:
    """What the adapter makes validates against the SDK's own types, every field of it."""
    results = [succeeded(CALLS[0], 0), failed(CALLS[1], 1)]
    for message in (*PROVIDER.reply(results), PROVIDER.message(SDK), PROVIDER.message(BODY)):
        assert message == as_validated(ChatCompletionMessageParam, message)
    for definition in PROVIDER.tools([read_file, bare]):
        assert definition == as_validated(ChatCompletionToolUnionParam, definition)


def test_tools() -> None:
    """A definition has name, description and schema, which always says that it is an object."""
    assert [
        {
            "type": "function",
            "function": {
                "name": "read_file",
                "description": "Read a text file.",
                "parameters": read_file.input_schema,
            },
        },
        {
            "type": "function",
            "function": {
                "name": "bare",
                "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}},
            },
        },
    ] == PROVIDER.tools([read_file, bare])


def _blank() -> dict[str, Any]:
    message = copy.deepcopy(MESSAGE)
    message["tool_calls"][0]["id"] = ""
    message["tool_calls"][1] = {**message["tool_calls"][0], "id": None}
    return message


@pytest.mark.parametrize(
    "message",
    [
        _blank(),
        {"choices": [{"message": _blank()}]},
        ChatCompletionMessage.construct(**_blank()),
        objects(_blank()),
    ],
    ids=["message", "body", "sdk", "attributes"],
)
def test_message_carries_the_ids_that_the_reply_answers(message: object) -> None:
    """E6: the history pairs, and reading it back gives the same calls."""
    calls = PROVIDER.calls(message)
    kept = PROVIDER.message(message)
    ids = [call["id"] for call in kept["tool_calls"]]
    reply: list[Any] = PROVIDER.reply(all_succeeded(calls))
    assert ids == [answer["tool_call_id"] for answer in reply]
    assert 2 == len(set(ids))
    assert calls == PROVIDER.calls(kept)
    assert "I read both." == kept["content"]


def test_message_leaves_the_original_alone() -> None:
    """The message given is copied, never changed."""
    message = _blank()
    PROVIDER.message(message)
    assert _blank() == message
