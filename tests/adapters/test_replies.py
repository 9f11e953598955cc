"""What every provider's adapter promises alike, each with its own SDK where a wire is needed."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dispatch import Dispatcher, Tool, ToolCall, ToolError, ToolResult, tool
from dispatch.testing import run_in_virtual_time
from tests.providers import Call, Step, chunks, serve
from tests.providers import clients as sdks
from tests.providers.clients import SDKS

from .samples import (
    PNG,
    PROVIDERS,
    accept,
    all_succeeded,
    body,
    every_provider,
    listed,
    read_file,
    succeeded,
    turns,
)

CALLS = tuple(
    Call(kind, {"number": number}, id=f"{kind}_{number}")
    for number, kind in enumerate(["words", "crowd", "fails", "shared", "words", "shared"])
)


def toolbox(pause: Callable[[], float]) -> list[Tool]:
    """Tools that take as long as `pause` says, and answer the same whenever they are called."""
    ready: list[int] = []

    @tool(safe_parallel=True)
    async def words(number: int) -> str:
        await asyncio.sleep(pause())
        return f"word {number}"

    @tool(safe_parallel=True)
    async def crowd(number: int) -> dict[str, object]:
        await asyncio.sleep(pause())
        return {"set": {"c", "a", "b"}, "object": object(), "number": number}

    @tool(safe_parallel=True)
    async def fails(number: int) -> None:
        await asyncio.sleep(pause())
        raise ToolError(f"no number {number}")

    @tool(writes="file:shared")
    async def shared(number: int) -> list[int]:
        await asyncio.sleep(pause())
        ready.append(number)
        return ready

    return [words, crowd, fails, shared]


@every_provider
def test_a_turn_has_the_same_reply_under_any_timing(name: str) -> None:
    """D6, D7: ten turns whose calls take other times and end in other orders, one reply."""
    provider = PROVIDERS[name]
    calls = provider.calls(body(name, *CALLS))

    def run(seed: int) -> tuple[bytes, tuple[str, ...]]:
        chance = random.Random(seed)
        ended: list[str] = []

        async def main() -> bytes:
            tools = toolbox(lambda: chance.uniform(0, 9))
            async with Dispatcher(tools) as dispatcher, dispatcher.turn() as turn:
                for call in calls:
                    turn.submit(call)
                turn.close()
                ended.extend([result.call.id async for result in turn.events()])
                return json.dumps(provider.reply(await turn.finish())).encode()

        return run_in_virtual_time(main()), tuple(ended)

    replies, orders = zip(*map(run, range(10)), strict=True)
    assert 1 == len(set(replies))
    assert 5 < len(set(orders)), "the timings differ"
    assert b"word 0" in replies[0]


SHOW = """
import json
from tests.adapters.samples import PROVIDERS, all_succeeded, body, succeeded
from tests.providers import Call
value = {"a": {"x", "y", "z"}, "b": [frozenset({"p", "q", ("r", 1)}), object(), print, len]}
for name, provider in PROVIDERS.items():
    said = body(name, Call("f", {"x": 1, "y": [2]}), Call("f", {}), quirk="empty_ids")
    calls = provider.calls(said)
    print(json.dumps(provider.message(said)))
    print(json.dumps(provider.reply([succeeded(call, at, value) for at, call in enumerate(calls)])))
"""


def test_a_reply_is_the_same_in_every_process() -> None:
    """D7: neither the order of sets nor the address of an object shows."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SHOW],
            env={"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        for seed in "12"
    ]
    first, second = (process.communicate()[0] for process in processes)
    assert first == second
    assert 2 * len(PROVIDERS) == first.count(b"\n")


@every_provider
def test_results_that_ended_out_of_order_are_put_in_order(name: str) -> None:
    """D6: the reply is in intent order, whatever the order in which the calls ended."""
    results = [succeeded(ToolCall(each, "f", {}), index, each) for index, each in enumerate("abc")]
    assert PROVIDERS[name].reply(results) == PROVIDERS[name].reply(reversed(results))


@every_provider
def test_a_second_result_of_a_call_is_dropped(name: str) -> None:
    """D9: two results for one call are told once."""
    first, second = (succeeded(ToolCall("a", "f", {}), 0, each) for each in "xy")
    assert PROVIDERS[name].reply([first]) == PROVIDERS[name].reply([first, second])


@every_provider
def test_a_reply_depends_on_the_results_alone(name: str) -> None:
    """D7: times, attempts and waits leave no trace in what the model reads."""
    call = ToolCall("a", "f", {})
    quick = succeeded(call, 0)
    slow = ToolResult(
        call=call, index=0, status=quick.status, value="fine", attempts=3,
        queued_at=5.0, started_at=6.0, finished_at=9.0, waits={"lock": 1.0},
    )  # fmt: skip
    assert PROVIDERS[name].reply([quick]) == PROVIDERS[name].reply([slow])


@every_provider
def test_a_reply_can_always_be_encoded(name: str) -> None:
    """A half surrogate in one result does not break the request that carries them all."""
    reply = PROVIDERS[name].reply([succeeded(ToolCall("a", "f", {}), 0, "bad \udc80 byte")])
    sent = json.dumps(reply, ensure_ascii=False).encode()
    assert rb"bad \\udc80 byte" in sent


@every_provider
@pytest.mark.parametrize("quirk", ["", "empty_ids", "no_ids", "repeated_ids"])
def test_a_stream_and_a_whole_message_give_the_same(name: str, quirk: str) -> None:
    """E6: ids, names, arguments and the message for the history are the same either way."""
    provider, wire = PROVIDERS[name], SDKS[name].wire
    last = {"path": "b"} if quirk == "repeated_ids" else {}  # else it would be told twice
    calls = (Call("ls", {"path": "a", "all": [True]}), Call("ls", {}), Call("ls", last, id="x"))
    step = Step("I look.", calls, quirk=quirk)
    stream = provider.stream()
    streamed = [call for chunk in chunks(wire, step) for call in stream.feed(chunk)]
    whole = body(name, *calls, text="I look.", quirk=quirk)
    read = provider.calls(whole)
    assert [(call.id, call.name) for call in read] == [(call.id, call.name) for call in streamed]
    assert [_plain(call) for call in read] == [_plain(call) for call in streamed]
    assert provider.calls(provider.message(whole)) == provider.calls(stream.message)
    assert 3 == len({call.id for call in read})


def _plain(call: ToolCall) -> Any:
    return json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments


@every_provider
@pytest.mark.parametrize("quirk", ["", "empty_ids", "no_ids", "repeated_ids"])
def test_ids_are_unique_over_turns_and_stable_on_replay(name: str, quirk: str) -> None:
    """E6: equal calls of later turns get other ids, the same whenever the history is read."""
    provider = PROVIDERS[name]
    said = [body(name, Call("ls", {}, id="a"), Call("ls", {}, id="b"), quirk=quirk)] * 3
    history = turns(name, *said)
    accept(name, history)
    assert json.dumps(history) == json.dumps(turns(name, *said))
    before: list[Any] = [SDKS[name].ask]
    found: list[str] = []
    for one in said:
        calls = provider.calls(one, before)
        assert [call.id for call in calls] == [call.id for call in provider.calls(one, before)]
        found += [call.id for call in calls]
        before += listed(provider.message(one, before))
        before += listed(provider.reply(all_succeeded(calls)))
    assert 6 == len(set(found))
    assert history == before


def ask_anthropic(url: str, history: list[Any], tools: Any) -> Any:
    with sdks.anthropic_client(url) as client:
        return client.messages.create(**sdks.messages_request(history) | {"tools": tools})


def ask_chat(url: str, history: list[Any], tools: Any) -> Any:
    with sdks.openai_client(url) as client:
        return client.chat.completions.create(**sdks.chat_request(history) | {"tools": tools})


def ask_responses(url: str, history: list[Any], tools: Any) -> Any:
    with sdks.openai_client(url) as client:
        return client.responses.create(**sdks.responses_request(history) | {"tools": tools})


def ask_gemini(url: str, history: list[Any], tools: Any) -> Any:
    with sdks.gemini_client(url) as client:
        config = {"tools": tools, "automatic_function_calling": {"disable": True}}
        return client.models.generate_content(model="m", contents=history, config=config)


def ask_bedrock(url: str, history: list[Any], tools: Any) -> Any:
    with closing(sdks.bedrock_client(url)) as client:
        return client.converse(modelId="m", messages=history, toolConfig=tools)


ASK = {
    "anthropic": ask_anthropic,
    "chat": ask_chat,
    "responses": ask_responses,
    "gemini": ask_gemini,
    "bedrock": ask_bedrock,
}
QUIRKS = {name: ["", "empty_ids", "no_ids", "repeated_ids"] for name in ASK}
QUIRKS["chat"] += ["object_arguments"]
QUIRKS["responses"] += ["object_arguments"]


@tool(safe_parallel=True)
async def photo(place: str) -> Any:
    """Take a photo of the place."""
    return ["As you see:", PNG]


@pytest.mark.parametrize(
    ("name", "quirk"),
    [(name, quirk) for name, quirks in QUIRKS.items() for quirk in quirks],
    ids=str,
)
async def test_a_conversation_of_two_turns_through_the_sdk(name: str, quirk: str) -> None:
    """What the SDK gives is read, and what is made of it passes the SDK and the strict API."""
    provider = PROVIDERS[name]
    reading = (
        Call("read_file", {"path": "a.py"}, id="r1", signature=b"\xfb\xffsigned"),
        Call("read_file", {"path": "b.py", "start": 3}, id="r2"),
        Call("unheard_of", {}, id="r3"),
    )
    looking = (Call("photo", {"place": "here"}, id="p1", signature=b"again"),) * 2
    looking = (looking[0], Call("read_file", {}, id="p2"))
    script = [
        Step("I read.", reading, quirk=quirk),
        Step("", looking, quirk=quirk),
        Step("Done."),
    ]
    history = [SDKS[name].ask]
    statuses: list[str] = []
    with serve(script) as server:
        async with Dispatcher([read_file, photo]) as dispatcher:
            tools = provider.tools(dispatcher)
            while True:
                answer = await asyncio.to_thread(ASK[name], server.url, history, tools)
                calls = provider.calls(answer, history)
                message = provider.message(answer, history)
                history += listed(message)
                if not calls:
                    break
                turn = await dispatcher.run(calls)
                statuses += [result.status for result in turn]
                history += listed(provider.reply(turn))
    assert ["ok", "ok", "error", "ok", "error"] == statuses
    assert 3 == len(server.requests)
    assert "Done." in repr(history[-1])
    assert history == provider.close_open_calls(history), "it is in order"
