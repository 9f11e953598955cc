"""Streams of servers that imitate a provider, with every habit that they have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dispatch import Dispatcher, InputError, tool
from tests.adapters.samples import all_succeeded
from tests.adapters.streaming import (
    CALLS,
    PROVIDERS,
    STEP,
    accepted,
    essence,
    history,
    opened,
    parsed,
    raw,
    read,
    whole,
)
from tests.providers import Call, Step, serve
from tests.providers.clients import SDKS
from tests.providers.script import JSON

ID_QUIRKS = ["empty_ids", "no_ids", "repeated_ids"]
QUIRKS = {
    "anthropic": [
        "interleaved", "object_arguments", *ID_QUIRKS, "interleaved+no_ids",
        "interleaved+repeated_ids",
    ],
    "chat": [
        "interleaved", "object_arguments", "index0", "cumulative", *ID_QUIRKS,
        "interleaved+no_ids", "interleaved+repeated_ids",
        "index0+empty_ids", "index0+no_ids", "index0+repeated_ids",
        "index0+object_arguments", "index0+object_arguments+no_ids",
        "index0+object_arguments+repeated_ids",
        "cumulative+empty_ids", "cumulative+no_ids", "cumulative+repeated_ids",
        "cumulative+object_arguments", "cumulative+object_arguments+no_ids",
    ],
    "responses": [
        "interleaved", "object_arguments", "announced_twice", *ID_QUIRKS,
        "interleaved+no_ids", "interleaved+repeated_ids", "announced_twice+no_ids",
        "announced_twice+repeated_ids", "announced_twice+interleaved",
    ],
    "gemini": ID_QUIRKS,
    "bedrock": ["interleaved", *ID_QUIRKS, "interleaved+no_ids", "interleaved+repeated_ids"],
}  # fmt: skip
SAID_AT_ONCE = {"empty_ids", "no_ids", "repeated_ids"}
WITH_QUIRKS = [
    pytest.param(name, quirk, id=f"{name}-{quirk}") for name in QUIRKS for quirk in QUIRKS[name]
]
UNCUT = tuple(replace(call, cuts=None) for call in CALLS)


def expected(name: str, step: Step) -> list[tuple[str, str, Any]]:
    """What the complete message says, in which a call has no other habits than of ids."""
    at_once = replace(step, quirk="+".join(sorted(step.quirks & SAID_AT_ONCE)))
    return essence(PROVIDERS[name].calls(whole(name, at_once)))


@pytest.mark.parametrize(("name", "quirk"), WITH_QUIRKS)
@pytest.mark.parametrize("calls", [CALLS, UNCUT], ids=["cut", "uncut"])
def test_a_habit_changes_no_call(name: str, quirk: str, calls: tuple[Call, ...]) -> None:
    """Ids, order and arguments are those of the complete message, and the provider takes the
    message and its answers."""
    step = Step("I look.", calls, quirk=quirk)
    found, stream = read(name, raw(name, step))
    assert expected(name, step) == essence(found)
    assert accepted(name, step, history(name, stream.message, all_succeeded(found)))


@pytest.mark.parametrize(("name", "quirk"), WITH_QUIRKS)
async def test_a_habit_gets_through_the_sdk(name: str, quirk: str) -> None:
    """The same with the SDK's own objects, and the tools run."""
    step = Step("I look.", UNCUT, quirk=quirk)

    @tool(safe_parallel=True, name="read")
    async def read_(path: str, deep: object = None) -> str:
        return path

    @tool(safe_parallel=True)
    async def ls() -> str:
        return "nothing"

    with serve([step, Step("Done.")]) as server:
        async with (
            Dispatcher([read_, ls]) as dispatcher,
            opened(name, server.url, [SDKS[name].ask]) as events,
        ):
            stream = PROVIDERS[name].stream()
            turn = await stream.run(dispatcher, events)
        said = SDKS[name].complete(server.url, history(name, stream.message, turn))
    assert ["a b.py", "c", "nothing"] == [result.value for result in turn]
    assert expected(name, step) == essence(result.call for result in turn)
    assert "Done." in str(said)


def chunk(*pieces: JSON, finish: str | None = None) -> JSON:
    """One chunk of Chat Completions with these pieces of calls."""
    return {"choices": [{"index": 0, "delta": {"tool_calls": pieces}, "finish_reason": finish}]}


def piece(index: int | None, arguments: Any, name: str | None = None, **more: object) -> JSON:
    return {"index": index, "function": {"name": name, "arguments": arguments}, **more}


END = chunk(finish="tool_calls")
X, Y = '{"x": 1}', '{"y": 2}'
CHAT = {
    "an id that comes before the name": (
        [chunk({"index": 0, "id": "a"}), chunk(piece(0, "", "f")), chunk(piece(0, X))],
        [("a", "f", {"x": 1})],
    ),
    "each fragment named": (
        [chunk(piece(0, part, "f", id="a")) for part in ('{"x"', ": ", "1}")],
        [("a", "f", {"x": 1})],
    ),
    "each fragment named, the last one empty": (
        [chunk(piece(0, part, "f", id="a")) for part in ("", X, "")],
        [("a", "f", {"x": 1})],
    ),
    "fragments that begin alike": (
        [chunk(piece(0, part, "f", id="a")) for part in ('{"x":', '{"x":1}}')],
        [("a", "f", {"x": {"x": 1}})],
    ),
    "fragments without an index": (
        [
            chunk(piece(None, "", "f", id="a")),
            chunk(piece(None, X)),
            chunk(piece(None, "", "g", id="b")),
            chunk(piece(None, Y)),
        ],
        [("a", "f", {"x": 1}), ("b", "g", {"y": 2})],
    ),
    "a fragment with an index that nothing began": (
        [chunk(piece(1, "", "f", id="a")), chunk(piece(0, X))],
        [("a", "f", {"x": 1})],
    ),
    "growing objects": (
        [chunk(piece(0, one, "f", id="a")) for one in ({}, {"x": 1}, {"x": 1, "y": 2})],
        [("a", "f", {"x": 1, "y": 2})],
    ),
    "pieces and end in one chunk": (
        [chunk(piece(0, X, "f", id="a"), piece(1, Y, "f", id="b"), finish="tool_calls")],
        [("a", "f", {"x": 1}), ("b", "f", {"y": 2})],
    ),
    "each call with an end of its own": (
        [
            chunk(piece(0, X, "f", id="a"), finish="tool_calls"),
            chunk(piece(0, Y, "f", id="b"), finish="tool_calls"),
        ],
        [("a", "f", {"x": 1}), ("b", "f", {"y": 2})],
    ),
    "one id with two tools": (
        [chunk(piece(0, X, "f", id="a")), chunk(piece(0, Y, "g", id="a"))],
        [("a", "f", {"x": 1}), (None, "g", {"y": 2})],
    ),
}


@pytest.mark.parametrize(("chunks", "calls"), CHAT.values(), ids=CHAT)
def test_pieces_of_chat_go_to_their_calls(
    chunks: list[JSON], calls: list[tuple[str | None, str, Any]]
) -> None:
    """However a server tells which piece is of which call, that is understood."""
    found, _ = read("chat", [*chunks, END])
    ids = [call.id if said[0] is None else said[0] for said, call in zip(calls, found, strict=True)]
    assert [(call_id, *said[1:]) for call_id, said in zip(ids, calls, strict=True)] == essence(
        found
    )
    assert len(found) == len({call.id for call in found})


def test_what_comes_after_the_end_is_not_lost() -> None:
    """A call that begins after the message was said to be complete needs an end of its own."""
    stream = PROVIDERS["chat"].stream()
    assert ["a"] == [
        call.id for call in stream.feed(chunk(piece(0, X, "f", id="a"), finish="stop"))
    ]
    assert [] == stream.feed(chunk(piece(0, Y, "f", id="b")))
    with pytest.raises(InputError, match="before the message was complete"):
        stream.close()
    assert ["b"] == [call.id for call in stream.feed(END)]
    stream.close()


def test_objects_glued_together_are_refused_and_not_dropped() -> None:
    """E3: two objects in one call's text stay there, so that no tool takes the first alone."""
    found, _ = read("chat", [chunk(piece(0, X, "f", id="a")), chunk(piece(0, Y)), END])
    assert [X + Y] == [call.arguments for call in found]


RESPONSE = "response.output_item"


def item(item_id: str, call_id: str, arguments: Any, status: str = "completed") -> JSON:
    return {
        "type": "function_call", "id": item_id, "call_id": call_id, "name": "f",
        "arguments": arguments, "status": status,
    }  # fmt: skip


def added(place: int | None, one: JSON) -> JSON:
    opened = {**one, "arguments": "", "status": "in_progress"}
    return {"type": f"{RESPONSE}.added", "output_index": place, "item": opened}


def done(place: int | None, one: JSON) -> JSON:
    return {"type": f"{RESPONSE}.done", "output_index": place, "item": one}


def completed(*output: JSON) -> JSON:
    return {"type": "response.completed", "response": {"output": output}}


A, B = item("fc_a", "c", X), item("fc_b", "c", X)
RESPONSES = {
    "confirmed at another place": ([added(0, A), done(1, B), completed(B)], [X]),
    "announced at two places": ([added(0, A), added(1, B), done(1, B), completed(B)], [X]),
    "done twice": ([added(0, A), done(0, A), done(1, B), completed(B)], [X]),
    "done twice, and twice in the response": ([done(0, A), done(1, B), completed(A, B)], [X, X]),
    "announced, and never done": ([added(0, A), completed()], []),
    "told by the response alone": ([added(0, A), completed(A)], [X]),
    "without places": ([added(None, A), done(None, A), completed()], [X]),
    "an empty response at the end": ([added(0, A), done(0, A), completed()], [X]),
    "told again with other arguments": (
        [done(0, A), completed(item("fc_a", "c", '{ "x": 1 }'))],
        [X],
    ),
}


@pytest.mark.parametrize(("events", "arguments"), RESPONSES.values(), ids=RESPONSES)
def test_a_response_tells_each_call_once(events: list[JSON], arguments: list[str]) -> None:
    """E8: whatever items tell of a call, it runs once, with what was told when it was done."""
    found, stream = read("responses", events)
    assert arguments == [call.arguments for call in found]
    assert [call.id for call in found] == [one["call_id"] for one in stream.message]
    if found:
        assert "c" == found[0].id


def test_a_call_confirmed_at_another_place_comes_at_once() -> None:
    """E8: it waits neither for the place where it was announced nor for the end."""
    stream = PROVIDERS["responses"].stream()
    stream.feed(added(0, A))
    assert [X] == [call.arguments for call in stream.feed(done(1, B))]


def test_repeated_ids_that_end_in_another_order_keep_theirs() -> None:
    """The id that a call got is the one that its item has in the history."""
    first, second = item("fc_a", "c", X), item("fc_b", "c", Y)
    events = [added(0, first), added(1, second), done(1, second), done(0, first), completed()]
    found, stream = read("responses", events)
    assert [X, Y] == [call.arguments for call in found]
    assert [(call.id, call.arguments) for call in found] == [
        (one["call_id"], one["arguments"]) for one in stream.message
    ]


def test_blocks_of_one_index_are_several() -> None:
    """E1: a server that gives every block the index 0 says as many calls as it starts."""
    events = raw("anthropic", STEP)
    found, stream = read("anthropic", [{**e, "index": 0} if "index" in e else e for e in events])
    assert essence(read("anthropic", events)[0]) == essence(found)
    assert read("anthropic", events)[1].message == stream.message


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "chat"])
def test_a_call_without_a_word_of_arguments_has_none(name: str) -> None:
    """Where nothing is written of the arguments, they are those of an empty object."""
    step = Step("I look.", (Call("ls", "", cuts=()), Call("ls", "", cuts=())))
    found, stream = read(name, raw(name, step))
    assert [{}, {}] == [parsed(call.arguments) for call in found]
    assert accepted(name, step, history(name, stream.message, all_succeeded(found)))
