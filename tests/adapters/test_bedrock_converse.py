from __future__ import annotations

import copy
from functools import cache
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from dispatch import ToolCall
from dispatch.adapters import BedrockConverse
from dispatch.errors import InputError

from .samples import ADVICE, PNG, all_succeeded, bare, failed, objects, read_file, succeeded

PROVIDER = BedrockConverse()
MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"reasoningContent": {"reasoningText": {"text": "Two files.", "signature": "s"}}},
        {"text": "I read both."},
        {"toolUse": {"toolUseId": "t_1", "name": "read_file", "input": {"path": "a.py"}}},
        {
            "toolUse": {
                "toolUseId": "s_1",
                "name": "web",
                "input": {},
                "type": "server_tool_use",
            }
        },
        {"toolUse": {"toolUseId": "t_2", "name": "read_file", "input": {"path": "b.py"}}},
    ],
}
BODY: dict[str, Any] = {
    "output": {"message": MESSAGE},
    "stopReason": "tool_use",
    "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
}
CALLS = [
    ToolCall("t_1", "read_file", {"path": "a.py"}),
    ToolCall("t_2", "read_file", {"path": "b.py"}),
]


@cache
def converse() -> Any:
    """What the service says of the input of `converse`."""
    session = botocore.session.Session()
    return session.get_service_model("bedrock-runtime").operation_model("Converse").input_shape


def accept(*messages: Any, tools: Any = None) -> None:
    """Fail unless the SDK takes a request with these messages."""
    request = {"modelId": "m", "messages": list(messages)}
    if tools is not None:
        request["toolConfig"] = tools
    assert not ParamValidator().validate(request, converse()).generate_report()


@pytest.mark.parametrize(
    "message",
    [BODY, MESSAGE, objects(BODY), objects(MESSAGE)],
    ids=["body", "message", "attributes", "attributes-message"],
)
def test_every_form_of_a_message_gives_the_same_calls(message: object) -> None:
    """Dictionaries and plain objects are read alike; what the provider runs itself is skipped."""
    assert CALLS == PROVIDER.calls(message)


@pytest.mark.parametrize("content", [[], [{"text": "Done."}]], ids=["no-blocks", "text"])
def test_a_message_without_calls(content: object) -> None:
    """Text alone is no call and no error."""
    assert [] == PROVIDER.calls({"role": "assistant", "content": content})


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (None, "message must be an assistant message, not missing"),
        ({}, "message must be an assistant message, not an object without a role"),
        ({"output": {}}, "message must be an assistant message, not missing"),
        (
            {"role": "user", "content": []},
            "message must be an assistant message, not of role 'user'",
        ),
        (
            {"role": "assistant", "content": "Done."},
            "message.content must be a list of blocks, not the text 'Done.'",
        ),
        (
            {"role": "assistant", "content": ["Done."]},
            "message.content[0] must be an object, not the text 'Done.'",
        ),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls"}]},
            "message.content has blocks with a type, which is not the form of Converse: read"
            " messages of InvokeModel with the adapter of the model's own API",
        ),
        (
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "input": {}}}]},
            "message.content[0].toolUse.name must be text, not missing",
        ),
    ],
    ids=["none", "empty", "no-message", "user", "text", "block-text", "anthropic", "no-name"],
)
def test_what_is_no_message_is_refused(message: object, error: str) -> None:
    """A message of another form raises one sentence that says where and what."""
    with pytest.raises(InputError) as raised:
        PROVIDER.calls(message)
    assert error == str(raised.value)


@pytest.mark.parametrize(
    ("given", "expected", "kept"),
    [(None, "", {}), ([1], "[1]", {}), ('{"x": 1}', '{"x": 1}', {"x": 1})],
    ids=["missing", "list", "text"],
)
def test_an_input_that_is_no_object_harms_no_sibling(
    given: object, expected: object, kept: object
) -> None:
    """Bad arguments stay in their call, and the history has an object, as the API asks for."""
    use = {"toolUse": {"toolUseId": "t_0", "name": "ls", "input": given}}
    message = {"role": "assistant", "content": [use, MESSAGE["content"][2]]}
    assert [expected, CALLS[0].arguments] == [call.arguments for call in PROVIDER.calls(message)]
    content = PROVIDER.message(message)["content"]
    assert [kept, CALLS[0].arguments] == [block["toolUse"]["input"] for block in content]


@pytest.mark.parametrize("reason", ["max_tokens", "malformed_tool_use", "guardrail_intervened"])
def test_a_call_that_the_limit_broke_off_is_not_complete(reason: str) -> None:
    """The last call may have lost arguments, so it never runs; those before it are whole."""
    first, last = PROVIDER.calls(BODY | {"stopReason": reason})
    assert CALLS[0] == first
    assert '{"path":"b.py"}…[cut off]' == last.arguments


def test_reply() -> None:
    """One block per call, in intent order, which says whether it succeeded."""
    assert {
        "role": "user",
        "content": [
            {
                "toolResult": {
                    "toolUseId": "t_1",
                    "content": [{"text": '{"lines":3}'}],
                    "status": "success",
                }
            },
            {
                "toolResult": {
                    "toolUseId": "t_2",
                    "content": [{"text": f"[error] no such file\n{ADVICE}"}],
                    "status": "error",
                }
            },
        ],
    } == PROVIDER.reply([succeeded(CALLS[0], 0, {"lines": 3}), failed(CALLS[1], 1)])


def test_images_are_blocks_of_the_result() -> None:
    """An image is shown, in its place among the texts."""
    reply = PROVIDER.reply([succeeded(CALLS[0], 0, ["Before", PNG])])
    assert [
        {"text": "Before"},
        {"image": {"format": "png", "source": {"bytes": PNG.data}}},
    ] == reply["content"][0]["toolResult"]["content"]
    accept(reply)


def test_the_sdk_takes_reply_message_and_tools() -> None:
    """What the adapter makes validates against the service's own model, which knows all fields."""
    reply = PROVIDER.reply([succeeded(CALLS[0], 0, ""), failed(CALLS[1], 1)])
    for message in (MESSAGE, BODY):
        accept(PROVIDER.message(message), reply, tools=PROVIDER.tools([read_file, bare]))
    with pytest.raises(AssertionError, match="Unknown parameter in messages"):
        accept({**reply, "extra": 1})


def test_tools() -> None:
    """A definition has name, description and schema, which always says that it is an object."""
    bare_schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert {
        "tools": [
            {
                "toolSpec": {
                    "name": "read_file",
                    "description": "Read a text file.",
                    "inputSchema": {"json": read_file.input_schema},
                }
            },
            {"toolSpec": {"name": "bare", "inputSchema": {"json": bare_schema}}},
        ]
    } == PROVIDER.tools([read_file, bare])


def _blank() -> dict[str, Any]:
    message = copy.deepcopy(MESSAGE)
    message["content"][2]["toolUse"]["toolUseId"] = ""
    del message["content"][4]["toolUse"]["toolUseId"]
    return message


@pytest.mark.parametrize(
    "message",
    [_blank(), {"output": {"message": _blank()}}, objects(_blank())],
    ids=["message", "body", "attributes"],
)
def test_message_carries_the_ids_that_the_reply_answers(message: object) -> None:
    """E6: the history pairs, and reading it back gives the same calls."""
    calls = PROVIDER.calls(message)
    kept = PROVIDER.message(message)
    uses = [block["toolUse"] for block in kept["content"] if "toolUse" in block]
    ids = [use["toolUseId"] for use in uses if "type" not in use]
    answers = PROVIDER.reply(all_succeeded(calls))["content"]
    assert ids == [block["toolResult"]["toolUseId"] for block in answers]
    assert 2 == len(set(ids))
    assert calls == PROVIDER.calls(kept)
    assert MESSAGE["content"][:2] == kept["content"][:2]
    assert "s_1" == uses[1]["toolUseId"]


def test_message_leaves_the_original_alone() -> None:
    """The message given is copied, never changed."""
    message = _blank()
    PROVIDER.message(message)
    assert _blank() == message
