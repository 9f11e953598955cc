"""Messages that a limit broke off: what was cut never runs, and all else does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dispatch import Dispatcher, FailureKind, Status, TurnResult, tool
from dispatch.adapters.names import CUT
from tests.adapters.samples import all_succeeded
from tests.adapters.streaming import (
    PROVIDERS,
    accepted,
    completes,
    essence,
    history,
    raw,
    read,
    whole,
)
from tests.providers import Call, Step
from tests.providers.script import JSON

FIRST = Call("save", {"text": "whole"})
CUTS = {
    "in the middle": Call("save", {"text": "abc"}),
    "nothing was written": Call("save", "{"),
    "nothing but blanks": Call("save", "  "),
    "no argument is needed": Call("anything", "{"),
}
with_arguments = [name for name in PROVIDERS if name != "gemini"]


async def ran(name: str, events: list[JSON]) -> tuple[TurnResult, list[str], Any]:
    """The turn of a stream, what its tools took, and the message."""
    taken: list[str] = []

    @tool(safe_parallel=True)
    async def save(text: str = "default") -> str:
        taken.append(text)
        return text

    @tool(safe_parallel=True)
    async def anything() -> str:
        taken.append("anything")
        return "done"

    @tool(safe_parallel=True)
    async def patch(input: str) -> str:  # noqa: A002 - its name on the wire
        taken.append(input)
        return input

    async with Dispatcher([save, anything, patch]) as dispatcher:
        stream = PROVIDERS[name].stream()
        return await stream.run(dispatcher, events), taken, stream.message


@pytest.mark.parametrize("name", with_arguments)
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
async def test_a_cut_off_call_never_runs(name: str, cut: Call) -> None:
    """The last call fails, also where nothing had been written of its arguments yet; its sibling
    runs, and the provider takes the message and the answers."""
    step = Step("I look.", (FIRST, cut), quirk="cut_off")
    turn, taken, message = await ran(name, raw(name, step))
    assert ["whole"] == taken
    assert [Status.OK, Status.ERROR] == [result.status for result in turn]
    failure = turn[1].failure
    assert failure is not None
    assert FailureKind.INVALID_ARGUMENTS == failure.kind
    assert "cut off before this call was complete" in str(PROVIDERS[name].reply(turn))
    assert accepted(name, step, history(name, message, turn))


@pytest.mark.parametrize("name", with_arguments)
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_cut_off_arguments_never_pass_for_whole_ones(name: str, cut: Call) -> None:
    """They end with a mark that no JSON has, and so does the one who reads the call see it."""
    calls, _ = read(name, raw(name, Step("I look.", (FIRST, cut), quirk="cut_off")))
    assert str(calls[1].arguments).endswith(CUT)


@pytest.mark.parametrize("name", with_arguments)
def test_a_call_that_was_whole_before_the_limit_stands(name: str) -> None:
    """Where the limit came right behind whole arguments, the call is one."""
    events = raw(name, Step("I look.", (FIRST,)))
    cut = raw(name, Step("I look.", (FIRST,), quirk="cut_off"))
    if name == "responses":
        cut[-2]["item"]["arguments"] = events[-2]["item"]["arguments"]
        cut[-1]["response"]["output"] = events[-1]["response"]["output"]
        broken = [*events[:-2], *cut[-2:]]
    else:
        ends = {"anthropic": 2, "chat": 2, "bedrock": 2}[name]
        broken = [*events[:-ends], *cut[-ends:]]
    calls, _ = read(name, broken)
    assert [{"text": "whole"}] == [arguments for _, _, arguments in essence(calls)]


def test_a_call_of_gemini_that_was_cut_off_never_comes() -> None:
    """The calls before it stand, and the message that has them alone is a valid history."""
    step = Step("I look.", (FIRST, Call("ls", {})), quirk="cut_off")
    calls, stream = read("gemini", raw("gemini", step))
    assert ["save"] == [call.name for call in calls]
    assert essence(PROVIDERS["gemini"].calls(whole("gemini", step))) == essence(calls)
    assert accepted("gemini", step, history("gemini", stream.message, all_succeeded(calls)))


async def test_free_text_of_a_custom_tool_that_was_cut_off_never_runs() -> None:
    """Any text could be a whole one, so the item's status alone tells; its siblings run."""
    patches = tuple(Call("patch", text, custom=True) for text in ("*** a", "*** begin ***"))
    step = Step("I look.", patches, quirk="cut_off")
    turn, taken, message = await ran("responses", raw("responses", step))
    assert ["*** a"] == taken
    assert [Status.OK, Status.ERROR] == [result.status for result in turn]
    assert accepted("responses", step, history("responses", message, turn))


def chat_custom(finish: str) -> list[JSON]:
    """A stream of one custom call, as a server could send it, whose text could be arguments."""
    pieces = [
        {"index": 0, "id": "c", "type": "custom", "custom": {"name": "patch", "input": '{"a"'}},
        {"index": 0, "custom": {"input": ": 1}"}},
    ]
    chunks: list[JSON] = [{"choices": [{"delta": {"tool_calls": [piece]}}]} for piece in pieces]
    return [*chunks, {"choices": [{"delta": {}, "finish_reason": finish}]}]


@pytest.mark.parametrize(
    ("finish", "expected"), [("tool_calls", ['{"a": 1}']), ("length", []), ("content_filter", [])]
)
async def test_a_custom_call_of_chat_runs_if_the_message_is_whole(
    finish: str, expected: list[str]
) -> None:
    """Its pieces are joined, and run only if nothing was broken off."""
    _, taken, message = await ran("chat", chat_custom(finish))
    assert expected == taken
    assert '{"a": 1}' == message["tool_calls"][0]["custom"]["input"]


@pytest.mark.parametrize(
    ("name", "events"),
    [
        (
            "anthropic",
            [
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {
                        "type": "tool_use",
                        "id": "t",
                        "name": "anything",
                        "input": {},
                    },
                },
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": "refusal"}},
                {"type": "message_stop"},
            ],
        ),
        (
            "bedrock",
            [
                {
                    "contentBlockStart": {
                        "start": {"toolUse": {"toolUseId": "t", "name": "anything"}},
                        "contentBlockIndex": 0,
                    }
                },
                {"contentBlockStop": {"contentBlockIndex": 0}},
                {"messageStop": {"stopReason": "guardrail_intervened"}},
            ],
        ),
    ],
    ids=["anthropic", "bedrock"],
)
async def test_a_reason_that_is_not_known_counts_as_cut_off(name: str, events: list[JSON]) -> None:
    """A call of which nothing was written runs only if the message ended as whole ones do."""
    turn, taken, _ = await ran(name, events)
    assert [] == taken
    assert 1 == len(turn)


@pytest.mark.parametrize("name", ["anthropic", "bedrock"])
def test_a_call_without_arguments_is_complete_once_the_message_goes_on(name: str) -> None:
    """Its block alone does not tell whether it was broken off; the next event does."""
    events = raw(name, Step("", (Call("ls", "", cuts=()), Call("ls", {"path": "b"}))))
    words = {"anthropic": "content_block_stop", "bedrock": "contentBlockStop"}
    stops = [number for number, event in enumerate(events) if words[name] in str(event)]
    assert [stops[0] + 1, stops[1]] == completes(name, events)


@pytest.mark.parametrize("name", PROVIDERS)
def test_text_that_was_cut_off_is_a_message(name: str) -> None:
    """Without calls a message that ran into a limit is complete, and says what it said."""
    step = Step("I will look.", quirk="cut_off")
    calls, stream = read(name, raw(name, step))
    assert [] == calls
    assert "I will" in str(stream.message)
    assert "I will look" not in str(stream.message)


def test_interleaved_calls_of_chat_that_a_limit_broke_off_never_run() -> None:
    """Of two that were being written, neither is whole, and neither passes for it."""
    events = raw("chat", Step("", (FIRST, Call("anything", "{")), quirk="interleaved"))
    begun = [event for event in events if "'id': 'call_" in str(event)]
    end = raw("chat", replace(Step("", (FIRST,)), quirk="cut_off"))[-2:]
    calls, _ = read("chat", [*begun, *end])
    assert [CUT, CUT] == [call.arguments for call in calls]


def test_fragments_that_look_like_snapshots_are_no_whole_arguments() -> None:
    """A fragment that repeats the one before it and is an object is not taken for all of it."""
    pieces: list[JSON] = [
        {"index": 0, "id": "c", "function": {"name": "save", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": '{"a":{}}'}},
    ]
    chunks: list[JSON] = [{"choices": [{"delta": {"tool_calls": [piece]}}]} for piece in pieces]
    calls, _ = read("chat", [*chunks, {"choices": [{"finish_reason": "length"}]}])
    assert ['{"a":{"a":{}}' + CUT] == [call.arguments for call in calls]
