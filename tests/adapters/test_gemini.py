from __future__ import annotations

import copy
from typing import Any

import pytest
from google.genai import types

from dispatch import ToolCall
from dispatch.adapters import Gemini
from dispatch.errors import InputError

from .samples import ADVICE, PNG, all_succeeded, bare, failed, objects, read_file, succeeded

PROVIDER = Gemini()
CONTENT: dict[str, Any] = {
    "role": "model",
    "parts": [
        {"text": "Two files.", "thought": True},
        {"text": "I read both."},
        {
            "functionCall": {"name": "read_file", "args": {"path": "a.py"}},
            "thoughtSignature": "-_8=",
        },
        {"functionCall": {"name": "read_file", "args": {"path": "b.py", "start": 3}, "id": "x"}},
        {"functionCall": {"name": "ls"}},
    ],
}
BODY: dict[str, Any] = {
    "candidates": [{"content": CONTENT, "finishReason": "STOP", "index": 0}],
    "modelVersion": "gemini-4-pro",
}
SDK = types.GenerateContentResponse.model_validate(BODY)
FOUND = [
    ("read_file", {"path": "a.py"}),
    ("read_file", {"path": "b.py", "start": 3}),
    ("ls", {}),
]
CALLS = PROVIDER.calls(BODY)
assert SDK.candidates
SDK_CONTENT = SDK.candidates[0].content
assert SDK_CONTENT
SNAKE = {
    "role": "model",
    "parts": [part.model_dump(exclude_none=True) for part in SDK_CONTENT.parts or ()],
}


@pytest.mark.parametrize(
    "message",
    [
        BODY, BODY["candidates"][0], CONTENT, SDK, SDK.candidates[0], SDK_CONTENT, SNAKE,
        {"role": "model", "parts": SDK_CONTENT.parts}, objects(BODY),
    ],
    ids=[
        "body", "candidate", "content", "sdk", "sdk-candidate", "sdk-content", "sdk-dictionary",
        "mixed", "attributes",
    ],
)  # fmt: skip
def test_every_form_of_a_content_gives_the_same_calls(message: object) -> None:
    """Dictionaries, SDK objects and plain objects are read alike; ids are made where none are."""
    calls = PROVIDER.calls(message)
    assert FOUND == [(call.name, call.arguments) for call in calls]
    assert CALLS == calls
    assert "x" == calls[1].id
    assert 3 == len({call.id for call in calls})


@pytest.mark.parametrize(
    "message",
    [
        {"role": "model", "parts": [{"text": "Done."}]},
        {"role": "model"},
        {"candidates": [{"finishReason": "SAFETY"}]},
        types.Candidate(finish_reason=types.FinishReason.SAFETY),
        types.Candidate(content=types.Content(), finish_reason=types.FinishReason.SAFETY),
    ],
    ids=["text", "no-parts", "blocked", "sdk", "sdk-empty"],
)
def test_a_content_without_calls(message: object) -> None:
    """Text alone is no call and no error, and neither is a candidate that says nothing."""
    assert [] == PROVIDER.calls(message)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (None, "content must be one of the model, with parts, not missing"),
        (
            {"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL"}]},
            "response.candidates[0]: the model wrote a call that Gemini could not read, and nothing"
            " else; ask again",
        ),
        ("hello", "content must be one of the model, with parts, not the text 'hello'"),
        ({}, "content must be one of the model, with parts, not an object"),
        (CONTENT["parts"], "content must be one of the model, with parts, not a list of 5"),
        (
            {"role": "user", "parts": []},
            "content must be one of the model, with parts, not of role 'user'",
        ),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "x"}]},
            "content must be one of the model, with parts, not of role 'assistant'",
        ),
        (
            {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"},
            "content must be one of the model, with parts, not an object",
        ),
        (
            {"candidates": []},
            "response.candidates has 0 candidates; pass the one to answer",
        ),
        (
            types.GenerateContentResponse.model_validate(
                {"promptFeedback": {"blockReason": "SAFETY"}}
            ),
            "response.candidates has 0 candidates; pass the one to answer",
        ),
        (
            {"candidates": [{"content": CONTENT}] * 2},
            "response.candidates has 2 candidates; pass the one to answer",
        ),
        (
            {"role": "model", "parts": {"text": "x"}},
            "content.parts must be a list of parts, not an object",
        ),
        (
            {"role": "model", "parts": [{"functionCall": {"args": {}}}]},
            "parts[0].functionCall.name must be text, not missing",
        ),
    ],
    ids=[
        "none", "malformed", "text", "empty", "parts", "user", "anthropic", "openai",
        "no-candidates", "blocked-prompt", "two-candidates", "parts-object", "no-name",
    ],
)  # fmt: skip
def test_what_is_no_content_is_refused(message: object, error: str) -> None:
    """A message of another form raises one sentence that says where and what."""
    with pytest.raises(InputError) as raised:
        PROVIDER.calls(message)
    assert error == str(raised.value)


def test_reply() -> None:
    """One response per call, in its order, under its name, and with an id only if it had one."""
    results = [succeeded(CALLS[0], 0, {"lines": 3}), failed(CALLS[1], 1), succeeded(CALLS[2], 2)]
    error = f"[error] no such file\n{ADVICE}"
    assert {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "read_file", "response": {"output": '{"lines":3}'}}},
            {"functionResponse": {"name": "read_file", "id": "x", "response": {"error": error}}},
            {"functionResponse": {"name": "ls", "response": {"output": "fine"}}},
        ],
    } == PROVIDER.reply(results)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("a", ["a", "a"]), ("", [None, None]), (None, [None, None])],
    ids=["repeated", "empty", "missing"],
)
def test_the_reply_mirrors_the_ids_of_the_content(given: str | None, expected: object) -> None:
    """E6: responses match calls by their order, so ids go back as they came, if they are any."""
    call = {"name": "ls", "args": {}} | ({} if given is None else {"id": given})
    message = {"role": "model", "parts": [{"functionCall": call}] * 2}
    calls = PROVIDER.calls(message)
    assert 2 == len({one.id for one in calls})
    for content in (PROVIDER.message(message), PROVIDER.reply(all_succeeded(calls))):
        said = [next(iter(part.values())) for part in content["parts"]]
        assert expected == [one.get("id") for one in said]


def test_images_are_parts_of_the_response() -> None:
    """An image is shown with the response, whose text says what it is."""
    (part,) = PROVIDER.reply([succeeded(CALLS[2], 0, ["Before", PNG])])["parts"]
    data = "iVBORw0KGgogYW5kIHRoZSBwaXhlbHM="
    assert {
        "name": "ls",
        "response": {"output": "Before\n[image/png, 23 bytes]"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}],
    } == part["functionResponse"]
    shown = types.Part.model_validate(part).function_response
    assert shown is not None
    assert shown.parts
    assert shown.parts[0].inline_data
    assert PNG.data == shown.parts[0].inline_data.data


def test_the_sdk_takes_reply_message_and_tools() -> None:
    """What the adapter makes validates against the SDK's own types, which know every field."""
    results = [succeeded(CALLS[0], 0, PNG), failed(CALLS[1], 1), succeeded(CALLS[2], 2)]
    for content in (PROVIDER.reply(results), PROVIDER.message(SDK), PROVIDER.message(SNAKE)):
        validated = types.Content.model_validate(content)
        assert content["role"] == validated.role
        assert len(content["parts"]) == len(validated.parts or ())
    for tools in PROVIDER.tools([read_file, bare]):
        assert 2 == len(types.Tool.model_validate(tools).function_declarations or ())


@pytest.mark.parametrize("message", [BODY, SDK, SNAKE], ids=["body", "sdk", "sdk-dictionary"])
def test_message_gives_the_model_back_what_it_said(message: object) -> None:
    """Thoughts and signatures stay on their parts, unchanged, whatever they were read from."""
    content = types.Content.model_validate(PROVIDER.message(message))
    assert types.Content.model_validate(CONTENT) == content
    assert content.parts
    assert b"\xfb\xff" == content.parts[2].thought_signature


def test_tools() -> None:
    """A declaration has name, description and schema, which always says that it is an object."""
    assert [
        {
            "functionDeclarations": [
                {
                    "name": "read_file",
                    "description": "Read a text file.",
                    "parametersJsonSchema": read_file.input_schema,
                },
                {
                    "name": "bare",
                    "parametersJsonSchema": {
                        "type": "object",
                        "properties": {"x": {"type": "integer"}},
                    },
                },
            ]
        }
    ] == PROVIDER.tools([read_file, bare])


def test_message_leaves_the_original_alone() -> None:
    """The content given is copied, never changed."""
    before = copy.deepcopy(CONTENT)
    PROVIDER.message(CONTENT)["parts"][2]["functionCall"]["args"]["path"] = "changed"
    assert before == CONTENT


def test_arguments_that_are_no_object_stay_in_their_call() -> None:
    """What is no object is left for validation to refuse, and harms no sibling."""
    part = {"functionCall": {"name": "ls", "args": '{"path": '}}
    first, second = PROVIDER.calls({"parts": [part, CONTENT["parts"][4]]})
    assert ('{"path": ', {}) == (first.arguments, second.arguments)
    assert (
        ToolCall("x", "ls", "[1]")
        == PROVIDER.calls({"parts": [{"functionCall": {"name": "ls", "args": [1], "id": "x"}}]})[0]
    )


def test_several_calls_in_one_are_answered_under_its_name() -> None:
    """F5: the response names what the model called, not what was made of it."""
    uses = [{"recipient_name": "functions.ls", "parameters": {}}] * 2
    call = {"name": "multi_tool_use.parallel", "args": {"tool_uses": uses}}
    calls = PROVIDER.calls({"parts": [{"functionCall": call}]})
    (part,) = PROVIDER.reply(all_succeeded(calls))["parts"]
    told = {"name": call["name"], "response": {"output": "ls:\nfine\nls:\nfine"}}
    assert told == part["functionResponse"]
