"""What each quirk of a stream looks like, as an assembler without an SDK is fed with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.providers import (
    Call,
    Step,
    anthropic_wire,
    bedrock_wire,
    chunks,
    gemini_wire,
    openai_wire,
    responses_wire,
)
from tests.providers.script import JSON
from tests.providers.wire import Wire

A = Call("search", {"x": 1}, id="a", cuts=(5,))
B = Call("search", {"y": 2}, id="b", cuts=(5,))


def deltas(step: Step) -> list[list[tuple[int, str | None, Any]]]:
    """The (index, id, arguments) of the calls in each chunk of a stream of completions."""
    return [
        [
            (call["index"], call.get("id"), call["function"]["arguments"])
            for call in chunk["choices"][0]["delta"]["tool_calls"]
        ]
        for chunk in chunks(openai_wire, step)
        if "tool_calls" in chunk["choices"][0]["delta"]
    ]


def of_type(events: list[JSON], *kinds: str) -> list[JSON]:
    return [event for event in events if event["type"] in kinds]


def test_plain_calls_of_chat() -> None:
    """Without a quirk a call's first chunk has its id, and the others only its index."""
    first = [[(0, "a", "")], [(0, None, '{"x":')], [(0, None, " 1}")]]
    second = [[(1, "b", "")], [(1, None, '{"y":')], [(1, None, " 2}")]]
    assert first + second == deltas(Step(calls=(A, B)))


@pytest.mark.parametrize(
    ("wire", "name", "expected"),
    [
        (anthropic_wire, "partial_json", ["", '{"x":', " 1}"]),
        (openai_wire, "arguments", ["", '{"x":', " 1}"]),
        (responses_wire, "delta", ['{"x":', " 1}"]),
        (bedrock_wire, "input", ['{"x":', " 1}"]),
    ],
    ids=["anthropic", "chat", "responses", "bedrock"],
)
def test_arguments_are_cut_where_the_script_says(
    wire: Wire, name: str, expected: list[str]
) -> None:
    """The fragments of a call's arguments are those that the script asks for."""
    assert expected == texts_in(chunks(wire, Step(calls=(A,)))[1:-1], name)[: len(expected)]


def test_index0() -> None:
    """E1: all calls have index 0, each has its id and all its arguments."""
    expected = [[(0, "a", '{"x": 1}')], [(0, "b", '{"y": 2}')]]
    assert expected == deltas(Step(calls=(A, B), quirk="index0"))


def test_index0_with_empty_ids() -> None:
    """Quirks can be joined."""
    expected = [[(0, "", '{"x": 1}')], [(0, "", '{"y": 2}')]]
    assert expected == deltas(Step(calls=(A, B), quirk="index0+empty_ids"))


def test_interleaved() -> None:
    """E2: fragments of two calls take turns, and only the first of each has an id."""
    assert [
        [(0, "a", "")],
        [(1, "b", "")],
        [(0, None, '{"x":')],
        [(1, None, '{"y":')],
        [(0, None, " 1}")],
        [(1, None, " 2}")],
    ] == deltas(Step(calls=(A, B), quirk="interleaved"))


def test_cumulative() -> None:
    """E5: each chunk has all calls so far; a call that is cut grows."""
    c = Call("search", {"z": 3}, id="c")
    assert [
        [(0, "a", '{"x":')],
        [(0, "a", '{"x": 1}')],
        [(0, "a", '{"x": 1}'), (1, "c", '{"z": 3}')],
    ] == deltas(Step(calls=(A, c), quirk="cumulative"))


@pytest.mark.parametrize(
    ("quirk", "ids"), [("empty_ids", "",), ("no_ids", None), ("repeated_ids", "a")]
)  # fmt: skip
@pytest.mark.parametrize(
    "wire",
    [anthropic_wire, openai_wire, responses_wire, gemini_wire, bedrock_wire],
    ids=["anthropic", "chat", "responses", "gemini", "bedrock"],
)
def test_ids(wire: Wire, quirk: str, ids: str | None) -> None:
    """E6: ids are empty, missing or the same, streamed as well as at once."""
    step = Step(calls=(A, B), quirk=quirk)
    whole = wire.complete(step, 0, {"model": "m"})
    begun = [call for event in chunks(wire, step) for call in calls_in(event)]
    assert [ids, ids] == [id_in(call) for call in calls_in(whole)]
    assert {ids} == {id_in(call) for call in begun}


def calls_in(node: Any) -> list[JSON]:
    """The named calls anywhere in an event or an answer."""
    if isinstance(node, list):
        return [call for item in node for call in calls_in(item)]
    if not isinstance(node, dict):
        return []
    if "name" in node.get("function", node):
        return [node]
    return [call for item in node.values() for call in calls_in(item)]


def id_in(call: JSON) -> str | None:
    """A call's id, whatever the format calls it; an item's own id is none."""
    if call.get("type") == "function_call":
        return call.get("call_id")
    return call.get("toolUseId", call.get("id"))


def test_object_arguments() -> None:
    """Arguments are an object, streamed in one piece, and at once."""
    step = Step(calls=(A,), quirk="object_arguments")
    assert [[(0, "a", {"x": 1})]] == deltas(step)
    message = openai_wire.complete(step, 0, {"model": "m"})["choices"][0]["message"]
    assert {"x": 1} == message["tool_calls"][0]["function"]["arguments"]
    start, stop = of_type(
        chunks(anthropic_wire, step),
        "content_block_start", "content_block_delta", "content_block_stop",
    )  # fmt: skip
    assert ({"x": 1}, "content_block_stop") == (start["content_block"]["input"], stop["type"])


def test_announced_twice() -> None:
    """E8: announced under one item id without arguments, done under another, with one call id."""
    events = chunks(responses_wire, Step(calls=(A,), quirk="announced_twice"))
    added, done = (
        event["item"]
        for event in of_type(events, "response.output_item.added", "response.output_item.done")
    )
    assert ("a", "a") == (added["call_id"], done["call_id"])
    assert ("", '{"x": 1}') == (added["arguments"], done["arguments"])
    assert added["id"] != done["id"]
    assert [done] == events[-1]["response"]["output"]
    assert not any("arguments" in event["type"] for event in events)


@pytest.mark.parametrize(
    ("wire", "said", "reason"),
    [
        (anthropic_wire, "partial_json", "'stop_reason': 'max_tokens'"),
        (openai_wire, "arguments", "'finish_reason': 'length'"),
        (responses_wire, "delta", "{'reason': 'max_output_tokens'}"),
        (bedrock_wire, "input", "'stopReason': 'max_tokens'"),
    ],
    ids=["anthropic", "chat", "responses", "bedrock"],
)
def test_cut_off(wire: Wire, said: str, reason: str) -> None:
    """The last call's arguments end in the middle, the first's do not, and the stream says why."""
    step = Step(calls=(Call("search", {"x": 1}), Call("search", {"y": 22})), quirk="cut_off")
    events = chunks(wire, step)
    assert '{"x": 1}{"y"' == "".join(texts_in(events, said))
    assert reason in str(events[-2:])
    assert reason in str(wire.complete(step, 0, {"model": "m"}))


def texts_in(node: Any, name: str) -> list[str]:
    """All texts under this name, in order."""
    if isinstance(node, list):
        return [text for item in node for text in texts_in(item, name)]
    if not isinstance(node, dict) or "response" in node:
        return []
    own = [node[name]] if isinstance(node.get(name), str) else []
    return own + [text for item in node.values() for text in texts_in(item, name)]


def test_cut_off_item_of_responses() -> None:
    """A call that is cut off is incomplete as an item, and its arguments are never done."""
    step = Step(calls=(Call("search", {"x": 1}), Call("search", {"y": 2})), quirk="cut_off")
    events = chunks(responses_wire, step)
    done = of_type(events, "response.output_item.done")
    assert ["completed", "incomplete"] == [event["item"]["status"] for event in done]
    assert 1 == len(of_type(events, "response.function_call_arguments.done"))
    assert "response.incomplete" == events[-1]["type"]


def test_cut_off_call_of_gemini_never_comes() -> None:
    """Gemini writes calls whole or not at all."""
    events = chunks(gemini_wire, Step(calls=(A, B), quirk="cut_off"))
    assert ["a"] == [call["id"] for call in calls_in(events)]
    assert "MAX_TOKENS" == events[-1]["candidates"][0]["finishReason"]


def test_cut_off_text() -> None:
    """Without calls it is the text that ends in the middle."""
    step = Step("abcdefgh", quirk="cut_off")
    events = of_type(chunks(anthropic_wire, step), "content_block_delta")
    assert "abcd" == "".join(event["delta"]["text"] for event in events)


def test_custom_tools_of_responses() -> None:
    """A call of a custom tool is written as text, under names of its own."""
    call = Call("patch", "*** new", id="a", custom=True)
    events = chunks(responses_wire, Step(calls=(call,)))
    kinds = ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done")
    deltas, done = (of_type(events, kind) for kind in kinds)
    assert "*** new" == "".join(event["delta"] for event in deltas) == done[0]["input"]
    assert "custom_tool_call" == events[-1]["response"]["output"][0]["type"]


def test_numbers_of_responses() -> None:
    """The events of a response are numbered without a gap."""
    events = chunks(responses_wire, Step("Hello.", (A, B)))
    assert list(range(len(events))) == [event["sequence_number"] for event in events]


def test_signatures_of_gemini() -> None:
    """A signature stands on the part of its call, beside the call."""
    call = Call("ls", {}, signature=b"\xff\xfe")
    (part,) = [
        part
        for event in chunks(gemini_wire, Step(calls=(call,)))
        for part in event["candidates"][0]["content"]["parts"]
        if "functionCall" in part
    ]
    assert {"functionCall": {"name": "ls", "args": {}}, "thoughtSignature": "//4="} == part
