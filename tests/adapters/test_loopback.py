"""The loopback server refuses what the providers refuse; else the loops would prove nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.providers import Call, Server, Step, serve

Messages = list[dict[str, Any]]
ASK = {"role": "user", "content": "Go."}
TOOL = {"name": "ls", "input_schema": {"type": "object"}}
FUNCTION = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
SCRIPT = [
    Step("I look.", (Call("ls", {"path": "."}), Call("ls", {"path": "src"}, id="mine"))),
    Step("Done."),
]


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(SCRIPT) as running:
        yield running


def ask_anthropic(server: Server, messages: Any, tools: Any = (TOOL,)) -> anthropic.types.Message:
    with anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client:
        return client.messages.create(
            model="claude-sonnet-5-5", max_tokens=99, messages=messages, tools=tools
        )


def ask_openai(server: Server, messages: Any) -> openai.types.chat.ChatCompletion:
    url = f"{server.url}/v1"
    tools: Any = [FUNCTION]
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        return client.chat.completions.create(model="gpt-6-sol", messages=messages, tools=tools)


def use(call_id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "ls", "input": {}}


def answer(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "x"}


def says(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def replies(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def calls(*ids: str) -> dict[str, Any]:
    function = {"name": "ls", "arguments": "{}"}
    made = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def returns(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "x"}


def test_anthropic_plays_the_script(server: Server) -> None:
    """The step played is the conversation's next one, each time it is asked for."""
    asked: Messages = [ASK]
    first, again = (ask_anthropic(server, asked) for _ in range(2))
    assert first == again
    assert ["toolu_0_0", "mine"] == [b.id for b in first.content if b.type == "tool_use"]
    reply = replies(answer("toolu_0_0"), answer("mine"))
    last = ask_anthropic(server, [*asked, {"role": "assistant", "content": first.content}, reply])
    assert [("text", "Done.")] == [(b.type, getattr(b, "text", None)) for b in last.content]
    assert [1, 1, 3] == [len(json.loads(body)["messages"]) for body in server.requests]


def test_openai_plays_the_script(server: Server) -> None:
    """The step played is the conversation's next one, each time it is asked for."""
    first, again = (ask_openai(server, [ASK]).choices[0].message for _ in range(2))
    assert first == again
    assert ["call_0_0", "mine"] == [call.id for call in first.tool_calls or ()]
    last = ask_openai(server, [ASK, first, returns("mine"), returns("call_0_0")])
    assert "Done." == last.choices[0].message.content


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([says(use("a"))], "roles must alternate, the first being user"),
        ([ASK, ASK], "roles must alternate"),
        ([ASK, says()], "all messages must have non-empty content"),
        ([ASK, says(use("a"))], "messages.1: `tool_use` ids were found without `tool_result`"),
        ([ASK, says(use("a"), use("b")), replies(answer("a"))], "immediately after: b."),
        (
            [ASK, says(use("a")), replies(answer("a"), answer("b"))],
            "messages.2.content.1: unexpected `tool_use_id` found in `tool_result` blocks: b",
        ),
        (
            [ASK, says(use("a")), replies(answer("a"), answer("a"))],
            "messages.2.content.1: each tool_use must have a single result",
        ),
        (
            [ASK, says(use("a")), replies({"type": "text", "text": "x"}, answer("a"))],
            "messages.2.content.1: `tool_result` blocks must come before",
        ),
        ([ASK, says(use("a"), use("a"))], "`tool_use` ids must be unique"),
        (
            [ASK, says(use("a")), replies(answer("a")), says(use("a")), replies(answer("a"))],
            "messages.3.content.0: `tool_use` ids must be unique",
        ),
        ([ASK, says(use(""))], "tool_use.id: String should match pattern"),
        ([ASK, says({**use("a"), "input": "{}"})], "tool_use.input: Input should be a dictionary"),
        ([ASK, *[says({"type": "text", "text": "x"}), ASK] * 2], "the script has 2 steps"),
    ],
    ids=[
        "assistant-first", "twice-user", "no-content", "no-reply", "one-unanswered", "unknown-id",
        "answered-twice", "text-first", "repeated-id", "repeated-later", "empty-id", "raw-input",
        "too-long",
    ],
)  # fmt: skip
def test_anthropic_refuses(server: Server, messages: Messages, fault: str) -> None:
    """A history that does not pair is a 400 in the provider's form."""
    with pytest.raises(anthropic.BadRequestError) as raised:
        ask_anthropic(server, messages)
    body: Any = raised.value.body
    assert ("error", "invalid_request_error") == (body["type"], body["error"]["type"])
    assert fault in body["error"]["message"]


@pytest.mark.parametrize(
    ("tools", "fault"),
    [([TOOL, TOOL], "Tool names must be unique"), ([], "must define tools")],
    ids=["two-of-one-name", "none"],
)
def test_anthropic_refuses_tools(server: Server, tools: Messages, fault: str) -> None:
    """Tools are checked too."""
    with pytest.raises(anthropic.BadRequestError, match=fault):
        ask_anthropic(server, [ASK, says(use("a")), replies(answer("a"))], tools)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([ASK, calls("a")], "did not have response messages: a"),
        ([ASK, calls("a", "b"), returns("b"), ASK], "did not have response messages: a"),
        ([ASK, returns("a")], "must be a response to a preceding message with 'tool_calls'"),
        ([ASK, calls("a"), returns("a"), ASK, returns("a")], "must be a response to a preceding"),
        ([ASK, calls("a"), returns("b")], "not found in 'tool_calls' of previous message"),
        ([ASK, calls("a", "b"), returns("a"), returns("a")], "or answered twice"),
        ([ASK, calls("a", "a")], "ids must be unique and not empty"),
        ([ASK, calls("")], "ids must be unique and not empty"),
        ([ASK, calls()], "empty array"),
    ],
    ids=[
        "no-reply", "one-unanswered", "no-call", "too-late", "unknown-id", "answered-twice",
        "repeated-id", "empty-id", "no-calls",
    ],
)  # fmt: skip
def test_openai_refuses(server: Server, messages: Messages, fault: str) -> None:
    """A history that does not pair is a 400 in the provider's form."""
    with pytest.raises(openai.BadRequestError) as raised:
        ask_openai(server, messages)
    body: Any = raised.value.body
    assert "invalid_request_error" == body["type"]
    assert fault in body["message"]
