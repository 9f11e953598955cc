"""E: streamed calls of models and of servers that imitate them, through the SDKs; and H6."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from dispatch import CallContext, Dispatcher, FailureKind, TurnResult, tool
from tests.adapters.streaming import PROVIDERS, completes, history, opened, raw
from tests.providers import Call, Step, serve
from tests.providers.clients import SDKS
from tests.providers.script import JSON

A = Call("search", {"x": 1}, id="a", cuts=(5,))
B = Call("search", {"y": 2}, id="b", cuts=(5,))
C = Call("search", {"x": 3, "y": 4}, id="c", cuts=(5,))


class Searched:
    """A tool that tells what it was called with."""

    def __init__(self) -> None:
        self.arguments: list[tuple[int, int]] = []

        @tool
        async def search(x: int = 0, y: int = 0) -> str:
            self.arguments.append((x, y))
            return f"{x} {y}"

        self.tool = search


async def said(name: str, step: Step) -> tuple[TurnResult, list[tuple[int, int]], Any]:
    """The turn that the SDK's stream of this step became, what its tool was called with, and what
    the provider says to the history that holds both."""
    searched = Searched()
    with serve([step, Step("Done.")]) as server:
        async with (
            Dispatcher([searched.tool]) as dispatcher,
            opened(name, server.url, [SDKS[name].ask]) as events,
        ):
            stream = PROVIDERS[name].stream()
            turn = await stream.run(dispatcher, events)
        after = SDKS[name].complete(server.url, history(name, stream.message, turn))
    return turn, searched.arguments, after


async def fed(name: str, events: Iterable[JSON]) -> tuple[TurnResult, list[tuple[int, int]]]:
    """The turn that these raw events became, and what its tool was called with."""
    searched = Searched()
    async with Dispatcher([searched.tool]) as dispatcher:
        turn = await PROVIDERS[name].stream().run(dispatcher, events)
    return turn, searched.arguments


@pytest.mark.parametrize(
    ("name", "quirk"),
    [("chat", "index0"), ("chat", "index0+empty_ids"), ("chat", "interleaved")]
    + [(name, "interleaved") for name in ("anthropic", "responses", "bedrock")],
)
async def test_calls_that_share_an_index_or_take_turns_are_several(name: str, quirk: str) -> None:
    """E1: two calls with their own names and arguments, whatever their fragments share."""
    turn, searched, after = await said(name, Step(calls=(A, B), quirk=quirk))
    assert [(1, 0), (0, 2)] == searched
    assert ["1 0", "0 2"] == [result.value for result in turn]
    assert "Done." in str(after)


async def test_a_new_id_on_an_index_starts_a_new_call() -> None:
    """E1: (i0, id a), (i0, id b) with all arguments each are the calls a and b."""
    turn, searched = await fed("chat", raw("chat", Step(calls=(A, B), quirk="index0")))
    assert ["a", "b"] == [result.call.id for result in turn]
    assert [(1, 0), (0, 2)] == searched


async def test_fragments_without_an_id_go_to_their_index() -> None:
    """E2: (i0, a, '{"x":'), (i1, b, '{"y":'), (i0, '1}'), (i1, '2}') are a={x: 1}, b={y: 2}."""
    deltas: list[JSON] = [
        {"index": 0, "id": "a", "function": {"name": "search", "arguments": '{"x":'}},
        {"index": 1, "id": "b", "function": {"name": "search", "arguments": '{"y":'}},
        {"index": 0, "function": {"arguments": "1}"}},
        {"index": 1, "function": {"arguments": "2}"}},
    ]
    chunks: list[JSON] = [{"choices": [{"delta": {"tool_calls": [delta]}}]} for delta in deltas]
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    turn, searched = await fed("chat", [*chunks, end])
    assert ["a", "b"] == [result.call.id for result in turn]
    assert [(1, 0), (0, 2)] == searched


@pytest.mark.parametrize("name", ["anthropic", "chat", "responses", "bedrock"])
async def test_glued_objects_are_refused_and_none_is_dropped(name: str) -> None:
    """E3: '{..}{..}{..}' as one call's arguments is that call's error; no tool runs the first of
    them, and the sibling does run."""
    glued = Call("search", '{"x": 1}{"x": 2}{"x": 3}')
    turn, searched, _ = await said(name, Step(calls=(glued, B)))
    assert [(0, 2)] == searched
    assert [False, True] == [result.ok for result in turn]
    failure = turn[0].failure
    assert failure is not None
    assert FailureKind.INVALID_ARGUMENTS == failure.kind


@pytest.mark.parametrize(
    "quirk", ["cumulative", "cumulative+no_ids", "cumulative+object_arguments"]
)
@pytest.mark.parametrize("cuts", [None, (5,)], ids=["whole", "growing"])
async def test_cumulative_calls_run_once_each(quirk: str, cuts: tuple[int, ...] | None) -> None:
    """E5: a stream of [a], [a, b], [a, b, c] is a, b and c once each, with ids that differ."""
    calls = tuple(Call("search", one.arguments, id=one.id, cuts=cuts) for one in (A, B, C))
    turn, searched, after = await said("chat", Step(calls=calls, quirk=quirk))
    assert [(1, 0), (0, 2), (3, 4)] == searched
    assert 3 == len({result.call.id for result in turn})
    assert "Done." in str(after)


async def test_a_call_confirmed_under_another_item_runs_once() -> None:
    """E8: added(item 1, call c, {}), done(item 2, call c, {real}) runs once, with the real ones."""
    turn, searched, after = await said("responses", Step(calls=(C, A), quirk="announced_twice"))
    assert [(3, 4), (1, 0)] == searched
    assert ["c", "a"] == [result.call.id for result in turn]
    assert "Done." in str(after)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_what_was_done_when_the_user_interrupted_is_not_done_again(name: str) -> None:
    """H6: two writes are done and a third runs as the stream is interrupted; asked again with the
    turn that the cancel carries, the two are answered from it and run no more."""
    ran: list[str] = []
    third = asyncio.Event()

    @tool(writes="file:{path}")
    async def write(path: str, ctx: CallContext) -> str:
        ran.append(path)
        if path == "c" and not third.is_set():
            third.set()
            await ctx.token.wait()
            ctx.token.check()
        return f"wrote {path}"

    events = raw(name, Step("I write.", tuple(Call("write", {"path": p}) for p in "abc")))
    until = completes(name, events)[-1] + 1

    async def endless() -> AsyncIterator[JSON]:
        for event in events[:until]:
            yield event
        await asyncio.Event().wait()

    async with Dispatcher([write], max_concurrent=1) as dispatcher:
        running = asyncio.create_task(PROVIDERS[name].stream().run(dispatcher, endless()))
        await third.wait()
        running.cancel("ctrl-c")
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await running
        earlier: TurnResult = cancelled.value.turn  # type: ignore[attr-defined]
        turn = await PROVIDERS[name].stream().run(dispatcher, events, resume=earlier)
    assert [True, True, False] == [result.ok for result in earlier]
    assert ["a", "b", "c", "c"] == ran
    assert ["wrote a", "wrote b", "wrote c"] == [result.value for result in turn]
