"""Streams put together again, event by event, are what the complete message says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch import ToolCall
from tests.adapters.samples import all_succeeded
from tests.adapters.streaming import (
    CALLS,
    PROVIDERS,
    STEP,
    accepted,
    completes,
    essence,
    history,
    opened,
    raw,
    read,
    request,
    whole,
)
from tests.providers import Call, Step, serve
from tests.providers.clients import SDKS

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
every_provider = pytest.mark.parametrize("name", PROVIDERS)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Messages with any calls, whose arguments are cut anywhere."""
    said = draw(st.sampled_from(["", "I look.", "é\n"]))
    calls = []
    for _ in range(draw(st.integers(0 if said else 1, 4))):
        arguments = draw(st.dictionaries(st.text(), json_values, max_size=3))
        cuts = draw(st.lists(st.integers(0, 30), max_size=6).map(sorted))
        calls.append(Call(draw(st.sampled_from(["a", "b"])), arguments, cuts=tuple(cuts)))
    return Step(said, tuple(calls))


def without_nothing(message: Any) -> Any:
    """A message without the fields that are null, which a stream does not tell."""
    if isinstance(message, list):
        return [without_nothing(item) for item in message]
    return {name: value for name, value in message.items() if value not in (None, "")}


@every_provider
@settings(max_examples=60)
@given(step=steps())
def test_a_stream_says_what_the_complete_message_says(name: str, step: Step) -> None:
    """However a stream is cut, its calls, their ids and arguments, and the message are those of
    the complete message, in its order and once each."""
    calls, stream = read(name, raw(name, step))
    complete = whole(name, step)
    assert essence(PROVIDERS[name].calls(complete)) == essence(calls)
    assert without_nothing(PROVIDERS[name].message(complete)) == without_nothing(stream.message)


@pytest.mark.parametrize("name", ["anthropic", "chat", "responses", "bedrock"])
@settings(max_examples=60)
@given(step=steps())
def test_fragments_of_several_calls_may_take_turns(name: str, step: Step) -> None:
    """E2: interleaved fragments, only the first of each call with its id, go to their calls."""
    calls, _ = read(name, raw(name, replace(step, quirk="interleaved")))
    assert essence(PROVIDERS[name].calls(whole(name, step))) == essence(calls)


@every_provider
async def test_the_sdks_stream_says_what_its_complete_message_says(name: str) -> None:
    """The SDK's own objects give the calls that its complete message gives, and the provider takes
    the message and the answers back."""
    provider = PROVIDERS[name]
    with serve([STEP, Step("Done.")]) as server:
        async with opened(name, server.url, [SDKS[name].ask]) as events:
            stream = provider.stream()
            calls: list[ToolCall] = []
            if hasattr(events, "__aiter__"):
                async for event in events:
                    calls += stream.feed(event)
            else:
                for event in events:
                    calls += stream.feed(event)
        stream.close()
        told = history(name, stream.message, all_succeeded(calls))
        after = SDKS[name].complete(server.url, told)
    assert essence(provider.calls(whole(name, STEP))) == essence(calls)
    assert "Done." in str(after)


@every_provider
def test_the_message_and_the_reply_are_a_valid_history(name: str) -> None:
    """The strict server takes the message of the stream and its answers in the next request."""
    calls, stream = read(name, raw(name, STEP))
    assert accepted(name, STEP, history(name, stream.message, all_succeeded(calls)))


@every_provider
def test_equal_calls_are_several(name: str) -> None:
    """Two calls of equal name and arguments come out as two."""
    step = Step(calls=(CALLS[1], CALLS[1]))
    calls, stream = read(name, raw(name, step))
    assert ["read", "read"] == [call.name for call in calls]
    assert 2 == len({call.id for call in calls})
    assert accepted(name, step, history(name, stream.message, all_succeeded(calls)))


@every_provider
def test_ids_are_told_apart_from_those_of_the_history(name: str) -> None:
    """A stream that repeats ids of an earlier message gives its calls others, always the same."""
    ids = tuple(replace(call, id="again") for call in CALLS[:1])
    step = Step("I look.", ids)
    first, before = read(name, raw(name, step))
    messages = history(name, before.message, all_succeeded(first))
    again, stream = read(name, raw(name, step), messages)
    assert [first[0].id] != [again[0].id]
    assert [again[0].id] == [call.id for call in read(name, raw(name, step), messages)[0]]
    both = [*messages, *history(name, stream.message, all_succeeded(again))[1:]]
    said, at = SDKS[name].wire.next_step([step, step, STEP], request(name, both))
    assert (STEP, 2) == (said, at)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("anthropic", "content_block_stop"),
        ("chat", "'finish_reason': 'tool_calls'"),
        ("responses", "output_item.done"),
        ("gemini", "functionCall"),
        ("bedrock", "contentBlockStop"),
    ],
)
def test_a_call_is_complete_when_the_provider_says_so(name: str, at: str) -> None:
    """Every call comes out by the event that ends it, and not by the beginning of the next."""
    events = raw(name, Step("", CALLS))
    numbers = completes(name, events)
    assert (1 if name == "chat" else 3) == len(numbers)
    assert all(at in str(events[number]) for number in numbers)
