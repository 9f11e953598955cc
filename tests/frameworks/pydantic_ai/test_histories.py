"""Histories that were broken: what pydantic-ai makes of them on the wire, and what dispatch does.

The server refuses what the providers refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, TypeGuard

import pytest
from pydantic_ai import (
    Agent,
    FunctionToolset,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponsePart, NativeToolCallPart, NativeToolReturnPart
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.test import TestModel

from dispatch import Dispatcher, InputError, ToolCall, tool
from dispatch.adapters.pydantic_ai import DispatchCapability, close_open_calls
from tests.frameworks.pydantic_ai.agents import answers
from tests.frameworks.pydantic_ai.test_wire import model_of
from tests.providers import Call, Step, serve

PROVIDERS = ("anthropic", "openai")
LOST = (
    "[unknown] the result of this call was lost: it may or may not have run."
    " Check that before you call it again."
)
LEFT_OUT = "[Earlier messages were left out.]"


def user(text: str) -> ModelRequest:
    """A prompt."""
    return ModelRequest([UserPromptPart(text)])


def said(text: str) -> ModelResponse:
    """A message of a model that a provider served, as pydantic-ai marks those."""
    return ModelResponse([TextPart(text)], provider_name="p", provider_response_id=text)


def asked(*ids: str) -> ModelResponse:
    """A message with these calls."""
    calls = [ToolCallPart("act", {"n": 0}, one) for one in ids]
    return ModelResponse(calls, provider_name="p", provider_response_id="-".join(ids))


def told(*ids: str) -> ModelRequest:
    """The results of these."""
    return ModelRequest([ToolReturnPart("act", f"was {one}", one) for one in ids])


FIRST, LAST = user("a"), said("z")
TEN: list[ModelMessage] = [message for n in range(5) for message in (said(f"s{n}"), user(f"u{n}"))]
CUT: list[ModelMessage] = [told("x", "y"), LAST]
MENDED_BY_HOST: dict[str, list[ModelMessage]] = {
    "an open call ten messages back": [FIRST, asked("x", "y"), told("x"), *TEN, LAST],
    "a batch without any result": [FIRST, asked("x", "y"), *TEN, LAST],
    "a prompt before the results": [FIRST, asked("x", "y"), user("b"), told("x", "y"), LAST],
    "a result without its call": [FIRST, told("gone"), LAST],
    "a call without its result": [FIRST, asked("x", "y"), told("y"), LAST],
    "a result before its call": [FIRST, told("x"), asked("x"), LAST],
    "broken off in the batch": [FIRST, asked("x", "y"), told("x")],
}
REFUSED: dict[str, list[ModelMessage]] = {
    "two batches interleaved": [FIRST, asked("x"), asked("y"), told("y"), told("x"), LAST],
    "a batch in another": [FIRST, asked("x"), asked("y"), told("y"), said("m"), told("x"), LAST],
    "text between results": [FIRST, asked("x", "y"), told("x"), said("m"), told("y"), LAST],
    "two results of one call": [FIRST, asked("x"), told("x"), told("x"), LAST],
    "a late second result": [FIRST, asked("x"), told("x"), said("m"), FIRST, told("x"), LAST],
}
ONLY_ANTHROPIC: dict[str, list[ModelMessage]] = {
    "ids that come again": [FIRST, asked("x"), told("x"), asked("x"), told("x"), LAST],
    "results at the cut": CUT,
}
BROKEN: dict[str, list[ModelMessage]] = {**MENDED_BY_HOST, **REFUSED, **ONLY_ANTHROPIC}


async def goes_on(
    provider: str, history: Sequence[ModelMessage], *capabilities: Any
) -> tuple[str, list[bytes]]:
    """Run an agent on with this history; its answer, or that it was refused, and what was sent."""
    with serve([Step("done")] * 12) as server:
        async with model_of(provider, server.url) as model:
            agent = Agent(model, toolsets=[FunctionToolset([act])], capabilities=capabilities)
            try:
                output = (await agent.run("go on", message_history=history)).output
            except ModelHTTPError as error:
                output = f"{error.status_code}"
            return output, server.requests


async def act(n: int) -> str:
    """Do it."""
    return f"did {n}"


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_the_host_does_by_itself(provider: str, name: str) -> None:
    """D4, D11: it mends lost calls and stray results anywhere; D5, D9: but not what is misplaced.

    A provider refuses results that stand too late or come twice, and Anthropic also an id that
    comes again, and a history that begins with the model.
    """
    refused = name in REFUSED or (provider == "anthropic" and name in ONLY_ANTHROPIC)
    output, _ = await goes_on(provider, BROKEN[name])
    assert ("400" if refused else "done") == output


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("mended", [DispatchCapability, lambda: ProcessHistory(close_open_calls)])
async def test_every_history_is_taken(provider: str, name: str, mended: Any) -> None:
    """D4, D5, D9, D11: with the capability, or the processor, the provider takes all of them."""
    output, _ = await goes_on(provider, BROKEN[name], mended())
    assert "done" == output


@pytest.mark.parametrize("name", BROKEN)
def test_every_call_has_one_result_in_the_request_behind_it(name: str) -> None:
    """D4, D5, D9, D11: so it is, told twice is told once, and real results are kept and not moved.

    The given messages are not changed.
    """
    before = deepcopy(BROKEN[name])
    mended = close_open_calls(BROKEN[name])
    assert before == BROKEN[name]
    assert isinstance(mended[0], ModelRequest)
    for index, message in enumerate(mended):
        behind = [each for each in mended[index + 1 : index + 2] if isinstance(each, ModelRequest)]
        if isinstance(message, ModelResponse):
            ids = sorted(call.tool_call_id for call in message.tool_calls)
            assert ids == sorted(call_id for call_id, _, _ in answers(behind))
    for call_id, outcome, content in answers(mended):
        wanted = f"was {call_id}" if outcome == "success" else LOST
        assert content == wanted or name == "ids that come again"
    again = close_open_calls(mended)
    assert mended == again
    assert all(one is other for one, other in zip(mended, again, strict=True))


def test_a_lost_result_is_told_so() -> None:
    """D11, D12: a call whose result the compaction cut away is told as lost, and not as cancelled.

    pydantic-ai's own mark says that the result was made.
    """
    mended = close_open_calls([FIRST, asked("x", "y"), told("y"), LAST])
    assert [("y", "success", "was y"), ("x", "interrupted", LOST)] == answers(mended)
    made = [part for part in mended[2].parts if isinstance(part, ToolReturnPart)][1]
    assert {"pydantic_ai_synthesized_tool_return": True} == made.metadata
    assert mended == close_open_calls([FIRST, mended[1], told_like(mended[2]), LAST])


def told_like(message: ModelMessage) -> ModelRequest:
    """The message with its real results alone."""
    assert isinstance(message, ModelRequest)
    return replace(message, parts=message.parts[:1])


def test_results_at_a_cut_go_and_the_cut_is_told() -> None:
    """D11: results whose calls were summarised away are dropped; a prompt stands in their place."""
    mended = close_open_calls(CUT)
    assert [LEFT_OUT] == [part.content for part in mended[0].parts if is_prompt(part)]
    assert LAST is mended[1]
    assert 2 == len(mended)
    assert mended == close_open_calls(CUT)


def test_a_last_request_of_which_nothing_is_left() -> None:
    """D11: the history still ends with a request, which says so, and keeps what else it had."""
    last = replace(told("x"), run_id="r")
    (alone,) = close_open_calls([last])
    assert [LEFT_OUT] == [part.content for part in alone.parts if is_prompt(part)]
    mended = close_open_calls([FIRST, LAST, last])
    assert [FIRST, LAST] == mended[:2]
    assert [LEFT_OUT] == [part.content for part in mended[2].parts if is_prompt(part)]
    assert "r" == mended[2].run_id
    assert mended == close_open_calls(mended)


def is_prompt(part: object) -> TypeGuard[UserPromptPart]:
    """Whether the user said it."""
    return isinstance(part, UserPromptPart)


def test_ids_that_come_again_are_told_apart() -> None:
    """E6: each result stays with its call, under an id of its own, the same one each time."""
    history = BROKEN["ids that come again"]
    mended = close_open_calls(history)
    (first, _, was), (second, _, was_too) = answers(mended)
    assert ("x", "was x", "was x") == (first, was, was_too)
    assert first != second
    assert mended == close_open_calls(history)


async def test_known_results_are_told() -> None:
    """D2, D12: what is known of a call is told instead: its result, or why it has none."""

    @tool(safe_parallel=True)
    async def act(n: int) -> str:
        if n:
            raise LookupError("no match")
        return "found"

    async with Dispatcher([act]) as dispatcher:
        known = await dispatcher.run(
            [ToolCall("x", "act", {"n": 0}), ToolCall("y", "act", {"n": 1})]
        )
    mended = answers(close_open_calls([FIRST, asked("x", "y", "z"), LAST], known))
    assert ("x", "success", "found") == mended[0]
    assert ("y", "failed") == mended[1][:2]
    assert mended[1][2].startswith("[error] LookupError: no match")
    assert ("z", "interrupted", LOST) == mended[2]


def test_what_is_in_order_is_not_touched() -> None:
    """Parts between results, native calls and open ends in order: the same messages come back."""
    prompt = UserPromptPart("meanwhile")
    one, two = told("x", "y").parts
    native: list[ModelResponsePart] = [
        NativeToolCallPart("web_search", {}, "n", provider_name="p"),
        NativeToolReturnPart("web_search", "found", "n", provider_name="p"),
    ]
    response = replace(LAST, parts=[*native, TextPart("z")])
    history: list[ModelMessage] = [
        FIRST,
        asked("x", "y"),
        ModelRequest([one, prompt, two]),
        response,
        FIRST,
    ]
    mended = close_open_calls(history)
    assert len(history) == len(mended)
    assert all(one is other for one, other in zip(history, mended, strict=True))
    assert [] == close_open_calls([])


@pytest.mark.parametrize("wrong", ["text", [{"role": "user"}], None])
def test_other_things_are_refused(wrong: Any) -> None:
    """What is no list of pydantic-ai's messages is an InputError that says so."""
    with pytest.raises(InputError, match="ModelMessage"):
        close_open_calls(wrong)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_request_for_a_history_in_order_is_the_hosts(provider: str) -> None:
    """The capability changes no byte of what pydantic-ai sends when nothing is broken."""
    history: list[ModelMessage] = [FIRST, asked("x", "y"), told("x", "y"), LAST]
    _, alone = await goes_on(provider, history)
    _, mended = await goes_on(provider, history, DispatchCapability())
    assert alone == mended


def summarised(messages: list[ModelMessage]) -> list[ModelMessage]:
    """A processor that keeps the last request alone."""
    return messages if len(messages) < 3 else [user("a"), said("I did much"), messages[-1]]


def halved(messages: list[ModelMessage]) -> list[ModelMessage]:
    """A processor that loses a result."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    kept = replace(last, parts=last.parts[1:])
    return messages if len(messages) < 3 else [*messages[:-1], kept]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("processor", [summarised, halved])
async def test_a_compaction_during_the_run(provider: str, processor: Any) -> None:
    """D11: a processor that cuts inside the batch of this very run does not break it."""
    turn = Step("", (Call("act", {"n": 0}), Call("act", {"n": 1})))
    with serve([turn, Step("done")]) as server:
        async with model_of(provider, server.url) as model:
            dispatching = DispatchCapability[Any](undeclared="parallel")
            capabilities = [dispatching, ProcessHistory[Any](processor)]
            agent = Agent(model, tools=[act], capabilities=capabilities)
            assert "done" == (await agent.run("go")).output
        body = server.requests[-1].decode()
    assert (LEFT_OUT if processor is summarised else LOST) in body


async def test_a_response_that_goes_on_is_left_alone() -> None:
    """A history that ends with a response to be continued is sent as it is, open calls and all."""
    history: list[ModelMessage] = [FIRST, replace(asked("x"), state="suspended")]
    context = ModelRequestContext(
        model=TestModel(),
        messages=history,
        model_settings=None,
        model_request_parameters=ModelRequestParameters(),
    )
    run: Any = None
    sent = await DispatchCapability[Any]().prepare_model_request(run, context)
    assert history is sent.messages
