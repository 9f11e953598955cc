"""Histories that were broken, and what must become of them, for all providers alike."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai import types
from openai.types.chat import ChatCompletion

from dispatch import CancelToken, Dispatcher, ToolResult, commute, tool, write
from dispatch.adapters import AnthropicMessages, Gemini, OpenAIChat
from dispatch.errors import InputError
from dispatch.testing import run_in_virtual_time
from tests.providers import Call
from tests.providers.clients import SDKS

from .histories import Message, answered, called, pairs, said, texts, written
from .samples import (
    PROVIDERS,
    accept,
    all_succeeded,
    body,
    every_provider,
    listed,
    succeeded,
    turns,
)

LOST = (
    "[unknown] the result of this call was lost: it may or may not have run. Check that before you"
    " call it again."
)
LEFT_OUT = "[Earlier messages were left out.]"
WHOLE = [
    said("Go."),
    called("a", "B", text="Both."),
    answered("a", "B"),
    called("C"),
    answered("C", text="And?"),
    ("assistant", [("text", "Done.")]),
    said("More."),
    called("d", "E"),
    answered("E", "d"),
]


def mended(name: str, conversation: list[Message]) -> list[Any]:
    """The repaired history, which the strictest provider takes; the given one has not changed."""
    history = written(name, conversation)
    before = copy.deepcopy(history)
    repaired = PROVIDERS[name].close_open_calls(history)
    assert before == history
    accept(name, repaired)
    assert repaired == PROVIDERS[name].close_open_calls(repaired)
    return repaired


def was(*ids: str) -> list[tuple[str, str]]:
    """Calls with their results, or with none if marked by a minus."""
    return [(f"do_{i[1:]}", LOST) if i[0] == "-" else (f"do_{i}", f"was_{i}") for i in ids]


@every_provider
def test_a_history_in_order_comes_back_as_it_is(name: str) -> None:
    """D3: nothing is touched, and nothing copied; results may stand in any order of their batch."""
    last = answered("d", "E") if name == "gemini" else WHOLE[-1]
    history = written(name, [*WHOLE[:-1], last])
    repaired = PROVIDERS[name].close_open_calls(history)
    assert repaired == history
    assert [] == [at for at, each in enumerate(history) if repaired[at] is not each]
    assert repaired is not history


CASES: dict[str, tuple[list[Message], list[tuple[str, str]]]] = {
    "D4: an orphan far back": (
        [said("Go."), called("a"), ("assistant", [("text", "On.")]), said("Yes."), *WHOLE[3:5]],
        was("-a", "C"),
    ),
    "D4: an orphan beside results": (
        [said("Go."), called("a", "B", "c"), answered("B"), *WHOLE[3:5]],
        was("-a", "B", "-c", "C"),
    ),
    "D11: results whose calls were left out": (
        [said("In short: two calls."), answered("a", "B"), *WHOLE[3:5]],
        was("C"),
    ),
    "D11: a batch cut in the middle": ([answered("B", text="Well?"), *WHOLE[3:5]], was("C")),
    "D11: nothing before the results": ([answered("a", "B"), *WHOLE[3:5]], was("C")),
    "D11: calls whose results were left out": (
        [said("Go."), called("a", "B"), *WHOLE[3:5]],
        was("-a", "-B", "C"),
    ),
    "D5: other events in between": (
        [
            said("Go."), called("a", "B"), said("I say!"), answered("B"),
            ("assistant", [("text", "Hm.")]), answered("a"), called("C"), answered("C"),
        ],
        was("a", "B", "C"),
    ),
    "D5: two batches open at once": (
        [said("Go."), called("a"), called("B"), answered("a"), answered("B")],
        was("a", "B"),
    ),
    "D5: text before the results": (
        [said("Go."), called("a"), ("user", [("text", "Wait."), ("result", "a", "was_a")])],
        was("a"),
    ),
    "a crash at the end": ([said("Go."), called("a", "B")], was("-a", "-B")),
    "a crash between results": ([said("Go."), called("a", "B"), answered("a")], was("a", "-B")),
    "D9: a result told twice": (
        [said("Go."), called("a"), answered("a", "a"), called("B"), answered("B", "a")],
        was("a", "B"),
    ),
    "a result of nobody": ([said("Go."), called("a"), answered("a", "x")], was("a")),
    "nothing but results": ([answered("a", text="Go.")], []),
    "nothing": ([], []),
}  # fmt: skip


@every_provider
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_call_is_answered_once_where_it_must_be(
    name: str, case: tuple[list[Message], list[tuple[str, str]]]
) -> None:
    """D4, D5, D11: the history is taken again, real results are kept, and all that was said."""
    conversation, expected = case
    if not conversation:
        assert [] == PROVIDERS[name].close_open_calls([])
        return
    repaired = mended(name, conversation)
    assert expected == pairs(repaired)
    words = [entry[1] for _, entries in conversation for entry in entries if entry[0] == "text"]
    assert words == [text for text in texts(repaired) if text != LEFT_OUT]


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "gemini"])
def test_what_is_left_does_not_begin_with_the_assistant(name: str) -> None:
    """D11: providers want the user to begin, who then says that something was left out."""
    repaired = mended(name, [answered("a"), called("B"), answered("B")])
    assert [LEFT_OUT] == texts(repaired)
    assert "user" == repaired[0]["role"]


@every_provider
def test_ids_that_come_again_are_told_apart(name: str) -> None:
    """E6: calls of several turns, and of one, may have one id; each has its own result after."""
    again = ("user", [("result", "A", "was_A"), ("result", "A", "other")])
    conversation = [said("Go."), called("A"), answered("A"), called("A", "A"), again]
    repaired = mended(name, conversation)
    assert [("do_A", "was_A"), ("do_A", "was_A"), ("do_A", "other")] == pairs(repaired)


def test_responses_of_gemini_stand_in_the_order_of_their_calls() -> None:
    """They match by place and name, so neither a gap nor another order may stay."""
    for results in (answered("c", "a", "b"), answered("c", "b")):
        repaired = mended("gemini", [said("Go."), called("a", "b", "c"), results])
        names = [part["functionResponse"]["name"] for part in repaired[-1]["parts"]]
        assert ["do_a", "do_b", "do_c"] == names


def test_a_response_of_gemini_gets_the_id_of_its_call() -> None:
    """A framework that forgot ids, or made some up, is no reason to lose what it ran."""
    call = {"functionCall": {"name": "f", "args": {}, "id": "a"}}
    response = {"name": "f", "response": {"output": "1"}}
    for asked, told in ((call, response), ({"functionCall": {"name": "f"}}, response)):
        ask, say = SDKS["gemini"].ask, {"role": "user", "parts": [{"functionResponse": told}]}
        history = [ask, {"role": "model", "parts": [asked]}, say]
        repaired = Gemini().close_open_calls(history)
        accept("gemini", repaired)
        (part,) = repaired[-1]["parts"]
        assert asked["functionCall"].get("id") == part["functionResponse"].get("id")
        assert "1" == part["functionResponse"]["response"]["output"]


RAW: dict[str, list[Any]] = {
    "anthropic": ["content"],
    "chat": ["choices", 0, "message"],
    "responses": ["output"],
    "gemini": ["candidates", 0, "content"],
    "bedrock": ["output", "message"],
}
"""Where a provider's answer has what goes into the history."""


@every_provider
def test_a_raw_history_with_blank_ids_pairs(name: str) -> None:
    """E6: whoever kept the provider's blank ids and answered the made-up ones loses nothing."""
    provider = PROVIDERS[name]
    answer = body(name, Call("f", {"x": 1}), Call("f", {"x": 2}), quirk="no_ids")
    calls = provider.calls(answer)
    reply = provider.reply([succeeded(call, at, f"r{at}") for at, call in enumerate(calls)])
    raw = answer
    for step in RAW[name]:
        raw = raw[step]
    raw = {"role": "assistant", "content": raw} if name == "anthropic" else raw
    repaired = provider.close_open_calls([SDKS[name].ask, *listed(raw), *listed(reply)])
    accept(name, repaired)
    assert ["r0", "r1"] == [value for _, value in pairs(repaired)]


def test_sdk_objects_in_a_history_stay_what_they_are() -> None:
    """People append what the SDK gave them: it is read alike, and copied only to change an id."""
    said = AnthropicMessage.model_validate(body("anthropic", Call("f", {}), text="Hm."))
    history = [SDKS["anthropic"].ask, {"role": "assistant", "content": said.content}]
    repaired = AnthropicMessages().close_open_calls(history)
    assert repaired[1] is history[1]
    assert "toolu_0_0" == repaired[2]["content"][0]["tool_use_id"]

    message: Any = ChatCompletion.model_validate(body("chat", Call("f", {}))).choices[0].message
    again: list[Any] = OpenAIChat().close_open_calls([message, message])
    assert again[0] is message
    ids = [again[0].tool_calls[0].id, again[2]["tool_calls"][0]["id"]]
    assert ids == [again[1]["tool_call_id"], again[3]["tool_call_id"]]
    assert ids[0] != ids[1]

    parts = [types.Part(function_call=types.FunctionCall(name="f", args={}))]
    content = types.Content(role="model", parts=parts)
    closed = Gemini().close_open_calls([content])
    assert closed[0] is content
    assert "f" == closed[1]["parts"][0]["functionResponse"]["name"]


@every_provider
@pytest.mark.parametrize("given", [None, "text", {"role": "user"}, 7], ids=repr)
def test_what_is_no_history_is_refused(name: str, given: Any) -> None:
    """A single message is no list of them."""
    with pytest.raises(InputError, match="messages must be a list of messages, not"):
        PROVIDERS[name].close_open_calls(given)


@tool(resource_keys=lambda _: [commute("append", "log")])
async def wait(seconds: float) -> str:
    """Take so many seconds."""
    await asyncio.sleep(seconds)
    return f"{seconds:g} s"


@tool(resource_keys=lambda _: [write("log")])
async def alone(seconds: float) -> None:
    """Stand behind all others."""
    await asyncio.sleep(seconds)


ASKED = (
    Call("wait", {"seconds": 1}, id="a"),
    Call("wait", {"seconds": 99}, id="b"),
    Call("wait", {"seconds": 50}, id="c"),
    Call("alone", {"seconds": 1}, id="d"),
)


@every_provider
def test_what_is_known_of_an_open_call_is_told(name: str) -> None:
    """D12: cancelled, timed out, never started: each is told as what it was, and a result too."""
    provider = PROVIDERS[name]
    answer = body(name, *ASKED)

    async def main() -> tuple[tuple[ToolResult, ...], tuple[ToolResult, ...]]:
        token = CancelToken()
        calls = provider.calls(answer)
        calls[2] = replace(calls[2], timeout=2)
        async with Dispatcher([wait, alone]) as dispatcher, dispatcher.turn(token=token) as turn:
            for call in calls:
                turn.submit(call)
            await asyncio.sleep(1.5)
            early = turn.snapshot()
            await asyncio.sleep(1.5)
            token.cancel("the user has left")
            return early, (await turn.finish()).results

    early, late = run_in_virtual_time(main())
    history = [SDKS[name].ask, *listed(provider.message(answer))]
    values = [value for _, value in pairs(_taken(name, provider.close_open_calls(history, late)))]
    assert "1 s" == values[0]
    assert values[1].startswith("[cancelled] stopped while running: the user has left\nIt may have")
    assert values[2].startswith("[timed_out] timed out after 2 s while running\nIt may have done")
    assert values[3].startswith("[cancelled] never started: the user has left\nNothing was done")
    crashed = [value for _, value in pairs(_taken(name, provider.close_open_calls(history, early)))]
    assert ["1 s", LOST, LOST, LOST] == crashed


def _taken(name: str, history: list[Any]) -> list[Any]:
    accept(name, history)
    return history


@every_provider
@pytest.mark.parametrize("quirk", ["", "no_ids"], ids=["repeated", "no-ids"])
def test_a_result_of_an_equal_call_of_another_turn_is_not_taken(name: str, quirk: str) -> None:
    """D12: what ran in the turn before says nothing of what is asked once more and was lost."""
    provider = PROVIDERS[name]
    answer = body(name, Call("f", {}, id="same"), quirk=quirk)
    before = turns(name, answer)
    first, second = provider.calls(answer), provider.calls(answer, before)
    history = [*before, *listed(provider.message(answer, before))]
    only_first = provider.close_open_calls(history, all_succeeded(first))
    assert ["fine", LOST] == [value for _, value in pairs(only_first)]
    both = provider.close_open_calls(
        history, [*all_succeeded(first), succeeded(second[0], 0, "second")]
    )
    assert ["fine", "second"] == [value for _, value in pairs(both)]
