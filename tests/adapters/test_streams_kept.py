"""What a stream says beside its calls, and the history must bring back."""

from __future__ import annotations

from typing import Any

from tests.adapters.samples import all_succeeded
from tests.adapters.streaming import (
    CALLS,
    accepted,
    essence,
    history,
    opened,
    raw,
    read,
)
from tests.providers import Call, Step, serve
from tests.providers.clients import SDKS, anthropic_client, messages_request

SIGNED = Step("I look.", (Call("ls", {}, signature=b"\xff\xfe>?"), Call("ls", {"path": "b"})))


def test_anthropic_keeps_thoughts_and_what_the_server_did() -> None:
    """Thinking comes back with its signature, text with its citations, and a tool of the server
    with its input, which is no call of ours."""
    events = [
        started(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, {"type": "thinking_delta", "thinking": "Hm"}),
        delta(0, {"type": "thinking_delta", "thinking": "m."}),
        delta(0, {"type": "signature_delta", "signature": "c2ln"}),
        stopped(0),
        started(1, {"type": "redacted_thinking", "data": "secret"}),
        stopped(1),
        started(2, {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
        delta(2, {"type": "input_json_delta", "partial_json": '{"query"'}),
        delta(2, {"type": "input_json_delta", "partial_json": ': "x"}'}),
        stopped(2),
        started(3, {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}),
        stopped(3),
        started(4, {"type": "text", "text": "", "citations": None}),
        delta(4, {"type": "citations_delta", "citation": {"title": "T"}}),
        delta(4, {"type": "text_delta", "text": "so"}),
        stopped(4),
        started(5, {"type": "text", "text": ""}),
        delta(5, {"type": "text_delta", "text": "\n\n"}),
        stopped(5),
        started(
            6,
            {
                "type": "tool_use",
                "id": "t",
                "name": "ls",
                "input": {},
                "caller": {"type": "direct"},
            },
        ),
        stopped(6),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    calls, stream = read("anthropic", events)
    assert [("t", "ls", {})] == essence(calls)
    assert [
        {"type": "thinking", "thinking": "Hmm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "text", "text": "so", "citations": [{"title": "T"}]},
        {"type": "tool_use", "id": "t", "name": "ls", "input": {}, "caller": {"type": "direct"}},
    ] == stream.message["content"]


def started(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, piece: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": piece}


def stopped(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def test_gemini_keeps_what_signs_a_call() -> None:
    """The thought signature goes back on the part that it came on, and only there."""
    calls, stream = read("gemini", raw("gemini", SIGNED))
    signed = [part.get("thoughtSignature") for part in stream.message["parts"]]
    assert [None, "//4+Pw==", None] == signed
    assert accepted("gemini", SIGNED, history("gemini", stream.message, all_succeeded(calls)))


async def test_gemini_keeps_the_signature_that_the_sdk_has_as_bytes() -> None:
    """The server takes the signature back that went through the SDK's objects."""
    with serve([SIGNED, Step("Done.")]) as server:
        async with opened("gemini", server.url, [SDKS["gemini"].ask]) as events:
            chunks = [event async for event in events]
        calls, stream = read("gemini", chunks)
        told = history("gemini", stream.message, all_succeeded(calls))
        assert "Done." in str(SDKS["gemini"].complete(server.url, told))


def test_gemini_keeps_thoughts_and_signed_text_apart() -> None:
    """Pieces of plain text become one part; thoughts and signed text stay the parts they are."""
    parts: list[dict[str, Any]] = [
        {"text": "Hm", "thought": True},
        {"text": "I "},
        {"text": "look."},
        {"text": "", "thoughtSignature": "c2ln"},
        {"executableCode": {"code": "1"}},
        {"text": ""},
    ]
    events = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    _, stream = read("gemini", [*events, {"candidates": [{"finishReason": "STOP"}]}])
    assert [parts[0], {"text": "I look."}, *parts[3:5]] == stream.message["parts"]


def test_a_message_that_was_read_does_not_change() -> None:
    """What `message` gave stays as it was while the stream goes on."""
    stream = read("gemini", raw("gemini", Step("I look.")))[1]
    early = stream.message
    stream.feed({"candidates": [{"content": {"parts": [{"text": " More."}]}}]})
    assert ["I look."] == [part["text"] for part in early["parts"]]


def test_bedrock_keeps_reasoning() -> None:
    """Reasoning comes back with its signature, in its place; blank text and what the provider ran
    itself is left out."""
    deltas: list[tuple[int, dict[str, Any]]] = [
        (0, {"reasoningContent": {"text": "Hm"}}),
        (0, {"reasoningContent": {"text": "m."}}),
        (0, {"reasoningContent": {"signature": "sign"}}),
        (1, {"reasoningContent": {"redactedContent": b"secret"}}),
        (2, {"text": "\n"}),
        (2, {"text": "\n"}),
        (3, {"toolUse": {"input": "{}"}}),
        (4, {"toolResult": [{"text": "found"}]}),
        (5, {"text": "So."}),
        (6, {"toolUse": {"input": "{}"}}),
    ]
    starts = {
        3: {"toolUse": {"toolUseId": "s", "name": "search", "type": "server_tool_use"}},
        4: {"toolResult": {"toolUseId": "s", "type": "server_tool_result"}},
        6: {"toolUse": {"toolUseId": "t", "name": "ls"}},
    }
    events: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}]
    for index in range(7):
        at = {"contentBlockIndex": index}
        if index in starts:
            events.append({"contentBlockStart": {"start": starts[index], **at}})
        events += [
            {"contentBlockDelta": {"delta": piece, **at}} for of, piece in deltas if of == index
        ]
        events.append({"contentBlockStop": at})
    calls, stream = read("bedrock", [*events, {"messageStop": {"stopReason": "tool_use"}}])
    assert [("t", "ls", {})] == essence(calls)
    assert [
        {"reasoningContent": {"reasoningText": {"text": "Hmm.", "signature": "sign"}}},
        {"reasoningContent": {"redactedContent": b"secret"}},
        {"text": "So."},
        {"toolUse": {"toolUseId": "t", "name": "ls", "input": {}}},
    ] == stream.message["content"]


def test_responses_keep_reasoning_before_its_call() -> None:
    """Items of every kind come back as they were done, in the order of the output."""
    reasoning = {"type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "secret"}
    call = {"type": "function_call", "id": "fc_0", "call_id": "c", "name": "ls", "arguments": "{}"}
    opened_call = {**call, "arguments": "", "status": "in_progress"}
    done = {**call, "status": "completed"}
    event = "response.output_item"
    events = [
        {"type": f"{event}.added", "output_index": 0, "item": {**reasoning, "summary": []}},
        {"type": f"{event}.added", "output_index": 1, "item": opened_call},
        {"type": f"{event}.done", "output_index": 1, "item": done},
        {"type": f"{event}.done", "output_index": 0, "item": reasoning},
        {"type": "response.completed", "response": {"output": [reasoning, done]}},
    ]
    calls, stream = read("responses", events)
    assert [("c", "ls", {})] == essence(calls)
    assert [reasoning, done] == stream.message


def test_responses_are_known_by_their_end_alone() -> None:
    """A response of which only the last event came says all that it holds."""
    step = Step("I look.", CALLS)
    last = raw("responses", step)[-1]
    calls, stream = read("responses", [last])
    assert essence(read("responses", raw("responses", step))[0]) == essence(calls)
    assert read("responses", raw("responses", step))[1].message == stream.message


def chat(*deltas: dict[str, Any], finish: str = "tool_calls") -> list[dict[str, Any]]:
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": one}]} for one in deltas]
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]


def test_chat_keeps_what_compatible_servers_want_back() -> None:
    """Reasoning, in text or in parts, and a signature on a call go back as they came."""
    call = {"index": 0, "id": "c", "function": {"name": "ls", "arguments": ""}}
    _, stream = read(
        "chat",
        chat(
            {"role": "assistant", "content": None, "reasoning_content": "Hm"},
            {"role": "assistant", "reasoning_content": "m.", "reasoning_details": [{"a": 1}]},
            {"reasoning_details": [{"b": 2}], "refusal": None, "content": "So."},
            {"tool_calls": [{**call, "extra_content": {"google": {"thought_signature": "s"}}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        ),
    )
    assert {
        "role": "assistant",
        "content": "So.",
        "reasoning_content": "Hmm.",
        "reasoning_details": [{"a": 1}, {"b": 2}],
        "tool_calls": [
            {
                "id": "c",
                "type": "function",
                "function": {"name": "ls", "arguments": "{}"},
                "extra_content": {"google": {"thought_signature": "s"}},
            }
        ],
    } == stream.message


def test_chat_joins_content_in_parts() -> None:
    """Servers that send content as a list of parts, now and then, are understood."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    _, stream = read("chat", chat({"content": [thinking]}, {"content": "So."}, finish="stop"))
    assert [thinking, {"type": "text", "text": "So."}] == stream.message["content"]
    _, refused = read("chat", chat({"refusal": "I "}, {"refusal": "cannot."}, finish="stop"))
    assert {"role": "assistant", "content": None, "refusal": "I cannot."} == refused.message


def test_the_helper_of_anthropics_sdk_may_be_fed() -> None:
    """`messages.stream()` adds events of its own, which say nothing twice."""
    step = Step("I look.", CALLS)
    ask = SDKS["anthropic"].ask
    with (
        serve([step]) as server,
        anthropic_client(server.url) as client,
        client.messages.stream(**messages_request([ask])) as events,
    ):
        calls, stream = read("anthropic", events)
    again, expected = read("anthropic", raw("anthropic", step))
    assert essence(again) == essence(calls)
    assert expected.message == stream.message
