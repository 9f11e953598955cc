"""What the wires of OpenAI and Anthropic refuse beyond `test_loopback`, and what they take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.providers import Call, Step, serve
from tests.providers.clients import SDKS, answered, openai_client, refused, responses_request
from tests.providers.script import JSON

SCRIPT = [Step(calls=(Call("ls", {}), Call("ls", {}))), Step("Done.")]
ASK = {"role": "user", "content": "Go."}
LONG = "x" * 65


def call(call_id: str, **more: Any) -> JSON:
    return {"type": "function_call", "call_id": call_id, "name": "ls", "arguments": "{}", **more}


def output(call_id: str, said: Any = "x") -> JSON:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def custom(call_id: str) -> JSON:
    return {"type": "custom_tool_call", "call_id": call_id, "name": "patch", "input": "x"}


def custom_output(call_id: str) -> JSON:
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": "x"}


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([call("a")], "No tool output found for function call a."),
        ([call("a"), call("b"), output("a")], "No tool output found for function call b."),
        ([custom("a")], "No tool output found for custom tool call a."),
        ([output("a")], "No tool call found for function call output with call_id a."),
        ([output("a"), call("a")], "No tool call found for function call output with call_id a."),
        ([custom_output("a")], "No tool call found for custom tool call output with call_id a."),
        ([call("a"), custom_output("a")], "No tool call found for custom tool call output"),
        ([custom("a"), output("a")], "No tool call found for function call output"),
        ([call("a"), output("a"), output("a")], "Duplicate tool output found for call_id a."),
        ([call("a"), call("a"), output("a")], "Duplicate 'input[2].call_id': 'a'."),
        ([call("a"), output("a"), call("a")], "Duplicate 'input[3].call_id': 'a'."),
        ([call("")], "Invalid 'input[1].call_id': empty string."),
        ([call(LONG), output(LONG)], "Invalid 'input[1].call_id': string too long."),
        ([call("a", id="call_1"), output("a")], "Expected an ID that begins with 'fc'."),
        ([call("a", arguments={}), output("a")], "Invalid type for 'input[1].arguments'"),
        ([call("a"), output("a", {"x": 1})], "Invalid type for 'input[2].output'"),
        ([call("a"), output("a", [{"type": "text", "text": "x"}])], "'input[2].output[].type'"),
        ([{"type": "tool_result"}], "Invalid value: 'tool_result' of 'input[1].type'"),
    ],
    ids=[
        "no-output", "one-unanswered", "custom-unanswered", "no-call", "output-first",
        "no-custom-call", "other-kind", "other-kind-custom", "answered-twice", "repeated-id",
        "repeated-later", "empty-id", "long-id", "id-of-item", "object-arguments", "object-output",
        "parts-of-chat", "unknown-item",
    ],
)  # fmt: skip
def test_responses_refuse(items: list[Any], fault: str) -> None:
    """Items that do not pair are a 400 in the provider's form."""
    status, text = refused("responses", SCRIPT, [ASK, *items])
    assert (400, True) == (status, fault in text), text


def test_responses_refuse_tools_of_chat() -> None:
    """The tools of Chat Completions have their name in another place."""
    tools: Any = [{"type": "function", "function": {"name": "ls"}}]
    with (
        serve(SCRIPT) as server,
        openai_client(server.url) as client,
        pytest.raises(SDKS["responses"].refusal(), match=r"'tools\[0\].name'"),
    ):
        client.responses.create(model="model", input="Go.", tools=tools)


def test_responses_take_what_they_gave() -> None:
    """The items of a response go back into the input, the outputs in any order behind them."""
    first = answered("responses", SCRIPT, [ASK])["output"]
    answers = [output(item["call_id"]) for item in reversed(first)]
    last = answered("responses", SCRIPT, [ASK, *first, *answers])
    assert "Done." == last["output"][0]["content"][0]["text"]


def test_responses_go_on_from_one_that_is_stored() -> None:
    """With `previous_response_id` only the outputs are sent, and they are as strictly paired."""
    with serve(SCRIPT) as server, openai_client(server.url) as client:
        first = client.responses.create(**responses_request([ASK]))
        answers = [output(item.call_id) for item in first.output]
        more = {"previous_response_id": first.id}
        last = client.responses.create(**responses_request(answers), **more)
        refusal = SDKS["responses"].refusal()
        with pytest.raises(refusal, match="No tool output found for function call call_0_1"):
            client.responses.create(**responses_request(answers[:1]), **more)
        with pytest.raises(refusal, match="Previous response with id 'resp_9' not found"):
            client.responses.create(**responses_request(answers), previous_response_id="resp_9")
    assert "Done." == last.output_text


def says(*blocks: Any) -> JSON:
    return {"role": "assistant", "content": list(blocks)}


def replies(*blocks: Any) -> JSON:
    return {"role": "user", "content": list(blocks)}


PNG = "iVBORw0KGgo="
IMAGES = {
    "anthropic": [
        ASK,
        says({"type": "tool_use", "id": "a", "name": "ls", "input": {}}),
        replies({"type": "tool_result", "tool_use_id": "a", "content": [
            {"type": "text", "text": "x"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        ]}),
    ],
    "responses": [
        ASK,
        call("a"),
        output("a", [
            {"type": "input_text", "text": "x"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        ]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_results_can_have_images(name: str) -> None:
    """A result may hold an image in the provider's own form."""
    assert "Done." in json.dumps(answered(name, SCRIPT, IMAGES[name]))


@pytest.mark.parametrize(
    ("blocks", "fault"),
    [
        ({"content": [{"type": "text", "text": ""}]}, "text content blocks must be non-empty"),
        ({"content": [{"type": "json", "json": {}}]}, "Input should be one of"),
        (
            {"is_error": True, "content": [{"type": "image", "source": {"type": "url"}}]},
            "all content must be type `text` if `is_error` is true",
        ),
    ],
    ids=["empty", "unknown", "image-of-error"],
)
def test_anthropic_refuses_content(blocks: JSON, fault: str) -> None:
    """What a result is made of is checked too."""
    answer = {"type": "tool_result", "tool_use_id": "a", **blocks}
    told = says({"type": "tool_use", "id": "a", "name": "ls", "input": {}})
    status, text = refused("anthropic", SCRIPT, [ASK, told, replies(answer)])
    assert (400, True) == (status, fault in text), text


def test_anthropic_refuses_calls_of_the_user() -> None:
    """Calls and results each have their side."""
    wrong = replies({"type": "tool_use", "id": "a", "name": "ls", "input": {}})
    status, text = refused("anthropic", SCRIPT, [wrong])
    assert (400, True) == (status, "`tool_use` blocks can not be in `user` messages" in text)


def test_chat_takes_custom_tools() -> None:
    """A call of a custom tool has its input in another place, and is answered alike."""
    script = [Step(calls=(Call("patch", "*** new", custom=True),)), Step("Done.")]
    tools: Any = [{"type": "custom", "custom": {"name": "patch"}}]
    with serve(script) as server, openai_client(server.url) as client:
        create = client.chat.completions.create
        message = create(model="model", messages=[ASK], tools=tools).choices[0].message
        assert ["*** new"] == [each.custom.input for each in message.tool_calls]
        reply = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "x"}
        last = create(model="model", messages=[ASK, message, reply], tools=tools)
        with pytest.raises(SDKS["chat"].refusal(), match="no calls of custom tools"):
            create(model="model", messages=[ASK], tools=tools, stream=True)
    assert "Done." == last.choices[0].message.content


@pytest.mark.parametrize("name", SDKS)
def test_a_request_needs_a_key(name: str) -> None:
    """Without a key there is a 401, in the provider's form, and the request does not count."""
    wire = SDKS[name].wire
    paths = {
        "anthropic": "/v1/messages",
        "chat": "/v1/chat/completions",
        "responses": "/v1/responses",
        "gemini": "/v1beta/models/m:generateContent",
        "bedrock": "/model/m/converse",
    }
    with serve(SCRIPT) as server:
        assert (401, wire.error(401, "no key in the request")) == server.answer(
            paths[name], {"anthropic-version": "1"}, b"{}"
        )
        assert [] == server.requests
