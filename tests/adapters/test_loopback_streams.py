"""The streams of the loopback server, as the providers' own SDKs read them."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import anthropic
import pytest

from tests.providers import Call, Pause, Step, chunks, serve
from tests.providers.clients import (
    SDK,
    SDKS,
    anthropic_client,
    chat_request,
    messages_request,
    openai_client,
    responses_request,
)
from tests.providers.script import JSON

CALLS = (
    Call("ls", {"path": "a b"}, id="one", cuts=(0, 3, 4), signature=b"sign"),
    Call("ls", {}, id="two"),
)
STEP = Step("I look.", CALLS)
ENDS = (
    "'stop_reason': 'tool_use'",
    "'finish_reason': 'tool_calls'",
    "response.completed",
    "finishReason",
    "messageStop",
)
STEP_IDS = ["both", "text", "call"]
ID_QUIRKS = ["empty_ids", "no_ids", "repeated_ids"]
QUIRKS = {
    "anthropic": ["cut_off", "interleaved", "object_arguments", *ID_QUIRKS],
    "chat": [
        "cut_off", "interleaved", "object_arguments", "index0", "cumulative", "index0+empty_ids",
        *ID_QUIRKS,
    ],
    "responses": ["cut_off", "interleaved", "object_arguments", "announced_twice", *ID_QUIRKS],
    "gemini": ["cut_off", *ID_QUIRKS],
    "bedrock": ["cut_off", "interleaved", *ID_QUIRKS],
}  # fmt: skip
TOOLS = responses_request([])["tools"]  # which a response repeats
ONLY_STREAMED = ["announced_twice", "cumulative", "index0", "interleaved"]


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> SDK:
    found = SDKS[request.param]
    found.refusal()  # skips where it is not installed
    return found


def of_each(quirks: dict[str, list[str]]) -> list[Any]:
    return [pytest.param(name, each, id=f"{name}-{each}") for name in SDKS for each in quirks[name]]


def expected(sdk: SDK, step: Step, first: int | None = None) -> list[JSON]:
    """The first events of a step, or all, without those that an SDK keeps to itself."""
    events = chunks(sdk.wire, step, tools=TOOLS)[:first]
    return [event for event in events if event.get("type") != "ping"]


def until_broken(sdk: SDK, url: str) -> list[JSON]:
    """The events of a stream that has to break."""
    read: list[JSON] = []
    with pytest.raises(sdk.broken()):
        read.extend(sdk.events(url, [sdk.ask]))
    return read


@pytest.mark.parametrize("step", [STEP, Step("Done."), Step(calls=CALLS[1:])], ids=STEP_IDS)
def test_sdk_reads_what_is_streamed(sdk: SDK, step: Step) -> None:
    """What an SDK makes of each event is what `chunks` says that was sent."""
    with serve([step]) as server:
        assert expected(sdk, step) == list(sdk.events(server.url, [sdk.ask]))


@pytest.mark.parametrize(("name", "quirk"), of_each(QUIRKS))
def test_sdk_reads_quirks(name: str, quirk: str) -> None:
    """The habits of imitators get through the SDK as they are."""
    sdk, step = SDKS[name], Step("I look.", CALLS, quirk=quirk)
    sdk.refusal()
    with serve([step]) as server:
        assert expected(sdk, step) == list(sdk.events(server.url, [sdk.ask]))


def test_sdk_reads_what_is_complete(sdk: SDK) -> None:
    """What an SDK makes of a whole answer is what the wire says that was sent."""
    with serve([STEP]) as server:
        complete = sdk.complete(server.url, [sdk.ask])
    assert sdk.wire.complete(STEP, 0, {"model": "model", "tools": TOOLS}) == complete


def test_anthropic_sdk_puts_the_stream_together() -> None:
    """The message that the SDK accumulates from the stream is the one that it gets at once."""
    request = messages_request([SDKS["anthropic"].ask])
    with serve([STEP]) as server, anthropic_client(server.url) as client:
        with client.messages.stream(**request) as stream:
            streamed = stream.get_final_message()
        complete = client.messages.create(**request)
    assert essence(complete.content) == essence(streamed.content)
    assert ["tool_use", "tool_use"] == [complete.stop_reason, streamed.stop_reason]


def test_openai_sdk_puts_the_streams_together() -> None:
    """The answers that the SDK accumulates from both streams are the ones that it gets at once."""
    ask = [SDKS["chat"].ask]
    with serve([STEP]) as server, openai_client(server.url) as client:
        complete = client.chat.completions.create(**chat_request(ask))
        with client.chat.completions.stream(**chat_request(ask)) as stream:
            streamed = stream.get_final_completion()
        whole = client.responses.create(**responses_request(ask))
        with client.responses.stream(**responses_request(ask)) as stream:
            response = stream.get_final_response()
    said, again = (each.choices[0].message for each in (complete, streamed))
    assert said.content == again.content
    assert essence(said.tool_calls) == essence(again.tool_calls)
    assert essence(whole.output) == essence(response.output)


def essence(parts: list[Any]) -> list[Any]:
    """What was said and called, without what an SDK adds as it accumulates."""
    names = ("type", "id", "call_id", "name", "input", "arguments", "text")
    return [
        (
            [getattr(part, name, None) for name in names],
            *[getattr(getattr(part, "function", None), name, None) for name in names],
            *essence(getattr(part, "content", [])),
        )
        for part in parts
    ]


def test_usage_is_streamed_to_whom_asks() -> None:
    """With `include_usage` there is one more chunk, which has no choice."""
    with serve([STEP]) as server, openai_client(server.url) as client:
        request = {**chat_request([SDKS["chat"].ask]), "stream_options": {"include_usage": True}}
        *before, last = client.chat.completions.create(**request, stream=True)
    assert ["tool_calls", []] == [before[-1].choices[0].finish_reason, last.choices]
    assert 2 == last.usage.total_tokens


def test_a_pause_holds_the_stream(sdk: SDK) -> None:
    """All that stands before a pause has come, and nothing behind it, until it is released."""
    for number in (0, 2, -1):
        pause = Pause(patience=0.05)
        with serve([Step("I look.", CALLS, pauses={number: pause})]) as server:
            read = until_broken(sdk, server.url)
        assert expected(sdk, STEP, number) == read
        assert pause.reached.is_set()


def test_a_pause_before_a_call_holds_it(sdk: SDK) -> None:
    """All before the second call is written, nothing of it is."""
    second = Call("ls", {}, id="two", pause=Pause(patience=0.05))
    with serve([Step("I look.", (CALLS[0], second))]) as server:
        read = until_broken(sdk, server.url)
    assert before(expected(sdk, STEP), "'two'") == read


def test_a_pause_before_the_end_holds_it(sdk: SDK) -> None:
    """All calls are written, and the message is not said to be complete."""
    step = Step("I look.", CALLS, pause=Pause(patience=0.05))
    with serve([step]) as server:
        read = until_broken(sdk, server.url)
    assert before(expected(sdk, STEP), *ENDS) == read


def before(events: list[JSON], *texts: str) -> list[JSON]:
    """The events before the first that has one of the texts."""
    found = [place for place, event in enumerate(events) if any(t in str(event) for t in texts)]
    return events[: found[0]]


def test_a_reader_releases_the_pause_it_waits_for(sdk: SDK) -> None:
    """What is read before a pause can be what releases it: it came while the rest was unwritten."""
    pause = Pause()
    second = Call("ls", {}, id="two", pause=pause)
    step = Step("I look.", (CALLS[0], second))
    read: list[JSON] = []
    with serve([step]) as server:
        for event in sdk.events(server.url, [sdk.ask]):
            read.append(event)
            if "one" in str(event):
                pause.release()
    assert expected(sdk, STEP) == read


async def test_a_tool_runs_while_the_stream_is_held() -> None:
    """A task that a reader starts at a complete call runs before the next one is written."""
    pause = Pause()
    done: list[str] = []

    async def tool() -> None:
        done.append("tool")
        pause.release()

    step = Step("I look.", (CALLS[0], Call("ls", {}, pause=pause)))
    request: Any = messages_request([SDKS["anthropic"].ask])
    http = anthropic.DefaultAsyncHttpxClient(verify=False)
    with serve([step]) as server:
        async with (
            anthropic.AsyncAnthropic(base_url=server.url, api_key="any", http_client=http) as sdk,
            await sdk.messages.create(**request, stream=True) as stream,
            asyncio.TaskGroup() as tasks,
        ):
            async for event in stream:
                if event.type == "content_block_stop":
                    done.append(f"block {event.index}")
                    if event.index == 1:
                        tasks.create_task(tool())
    assert ["block 0", "block 1", "tool", "block 2"] == done


@pytest.mark.parametrize("count", [0, 3, None], ids=["at-once", "in-the-middle", "at-the-end"])
def test_a_stream_breaks_once(sdk: SDK, count: int | None) -> None:
    """The connection is closed after so many events, even after all of them; the next request
    gets the whole stream."""
    breaks_after = len(chunks(sdk.wire, STEP)) if count is None else count
    with serve([Step("I look.", CALLS, breaks_after=breaks_after)]) as server:
        broken = until_broken(sdk, server.url)
        whole = list(sdk.events(server.url, [sdk.ask]))
    assert expected(sdk, STEP, count) == broken
    assert expected(sdk, STEP) == whole


def test_a_refusal_of_a_stream_is_the_sdks_own(sdk: SDK) -> None:
    """A history that is longer than the script is a 400 before the stream begins."""
    with serve([]) as server, pytest.raises(sdk.refusal(), match="the script has 0 steps"):
        list(sdk.events(server.url, [sdk.ask]))


@pytest.mark.parametrize(("name", "quirk"), of_each(dict.fromkeys(SDKS, ONLY_STREAMED)))
def test_a_whole_answer_has_no_quirk_of_streams(name: str, quirk: str) -> None:
    """A step that the format cannot say is refused, whole and, but for its own, streamed."""
    sdk = SDKS[name]
    refusal = sdk.refusal()
    with serve([Step("I look.", CALLS, quirk=quirk)]) as server:
        with pytest.raises(refusal, match=f"has no quirk {quirk}"):
            sdk.complete(server.url, [sdk.ask])
        if quirk not in QUIRKS[name]:
            with pytest.raises(refusal, match=f"has no quirk {quirk}"):
                list(sdk.events(server.url, [sdk.ask]))


def test_an_unknown_quirk_is_a_mistake_of_the_test() -> None:
    """A misspelt quirk is not silently no quirk."""
    with pytest.raises(ValueError, match=r"unknown quirk {'index1'}; there are ann"):
        Step(quirk="index0+index1")


@pytest.mark.parametrize(
    ("name", "path", "begins", "ends"),
    [
        ("anthropic", "/v1/messages", b"event: message_start\ndata: {", b'"message_stop"}\n\n'),
        ("chat", "/v1/chat/completions", b'data: {"id"', b"\n\ndata: [DONE]\n\n"),
        ("responses", "/v1/responses", b"event: response.created\ndata: {", b"}\n\n"),
    ],
    ids=["anthropic", "chat", "responses"],
)
def test_events_are_framed(name: str, path: str, begins: bytes, ends: bytes) -> None:
    """Events have the names, and the stream the end, that clients without an SDK go by."""
    headers = {"authorization": "Bearer any", "anthropic-version": "2023-06-01"}
    ask = [SDKS[name].ask]
    request = {**messages_request(ask), "input": ask, "stream": True, "tools": []}
    with serve([STEP]) as server, closing(HTTPConnection(server.url[7:])) as connection:
        connection.request("POST", path, json.dumps(request), headers)
        response = connection.getresponse()
        body = response.read()
    assert "text/event-stream" == response.headers["content-type"]
    assert (begins, ends) == (body[: len(begins)], body[-len(ends) :])


def test_nothing_is_left_of_a_server(sdk: SDK) -> None:
    """A server that is closed while it writes and while it waits has no thread and no reader."""
    before = set(threading.enumerate())
    pause = Pause(patience=60)
    with serve([Step("I look.", CALLS, pause=pause)]) as server:
        first = sdk.events(server.url, [sdk.ask])
        second = sdk.events(server.url, [sdk.ask])
        assert next(first) == next(second)
        assert pause.reached.wait(10)
        assert set(threading.enumerate()) - before
        second.close()
    assert set() == set(threading.enumerate()) - before  # those of earlier tests may end meanwhile
    with pytest.raises(sdk.broken()):
        list(first)
