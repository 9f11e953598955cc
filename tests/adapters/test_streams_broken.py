"""Streams that break, or are cancelled, while their calls run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from anyio import wait_all_tasks_blocked

from dispatch import CallContext, Dispatcher, Status, StreamBroken, TurnResult, tool
from dispatch.testing import assert_no_leaks
from tests.adapters.streaming import PROVIDERS, STEP, completes, history, opened, raw
from tests.providers import Call, Pause, Step, serve
from tests.providers.clients import SDKS

every_provider = pytest.mark.parametrize("name", PROVIDERS)


@every_provider
async def test_a_stream_that_breaks_is_retried_without_running_twice(name: str) -> None:
    """What ran before the SDK's own exception is answered from its `turn`; the history that comes
    of the second attempt is valid."""
    ran: list[str] = []

    @tool(writes="file:{path}")
    async def edit(path: str) -> str:
        ran.append(path)
        return f"edited {path}"

    calls = (Call("edit", {"path": "a"}), Call("edit", {"path": "b"}))
    events = raw(name, Step("I edit.", calls))
    breaks = completes(name, events)[0] + 1
    provider = PROVIDERS[name]
    with serve([Step("I edit.", calls, breaks_after=breaks), Step("Done.")]) as server:
        async with Dispatcher([edit]) as dispatcher:
            with pytest.raises(SDKS[name].broken()) as broken:
                async with opened(name, server.url, [SDKS[name].ask]) as arriving:
                    await provider.stream().run(dispatcher, arriving)
            earlier: TurnResult = broken.value.turn  # type: ignore[attr-defined]
            stream = provider.stream()
            async with opened(name, server.url, [SDKS[name].ask]) as arriving:
                turn = await stream.run(dispatcher, arriving, resume=earlier)
            messages = history(name, stream.message, turn)
            async with opened(name, server.url, messages) as arriving:
                last = await provider.stream().run(dispatcher, arriving)
    assert [] == list(last)
    told = ["edited a", "edited b"]
    assert (told if name == "chat" else told[:1]) == [result.value for result in earlier]
    assert ["a", "b"] == ran
    assert told == [result.value for result in turn]


async def test_what_is_still_queued_when_the_stream_breaks_never_starts() -> None:
    """The running call finishes and is kept; the one that waits for its slot is told to be
    untouched, and runs in the next attempt alone."""
    broken = asyncio.Event()
    ran: list[str] = []

    @tool(safe_parallel=True)
    async def work(path: str) -> str:
        ran.append(path)
        await broken.wait()
        return path

    step = Step("", (Call("work", {"path": "a"}), Call("work", {"path": "b"})))
    events = raw("anthropic", step)

    async def breaking() -> AsyncIterator[Any]:
        for event in events[: completes("anthropic", events)[1] + 1]:
            yield event
        await wait_all_tasks_blocked()
        broken.set()
        raise ConnectionError("reset by peer")

    async with Dispatcher([work], max_concurrent=1) as dispatcher:
        with pytest.raises(ConnectionError) as caught:
            await PROVIDERS["anthropic"].stream().run(dispatcher, breaking())
        earlier: TurnResult = caught.value.turn  # type: ignore[attr-defined]
        assert ["a"] == ran
        assert [Status.OK, Status.CANCELLED] == [result.status for result in earlier]
        failure = earlier[1].failure
        assert failure is not None
        assert "the model's stream broke" in failure.message
        turn = await PROVIDERS["anthropic"].stream().run(dispatcher, iter(events), resume=earlier)
    assert ["a", "b"] == ran
    assert ["a", "b"] == [result.value for result in turn]


@every_provider
async def test_a_quiet_end_is_a_broken_stream_with_its_turn(name: str) -> None:
    """A stream that ends without the event of its end raises, and says what ran by then."""

    @tool(safe_parallel=True, name="read")
    async def read_(path: str, deep: object = None) -> str:
        return path

    events = raw(name, STEP)
    last = completes(name, events)[0]
    until = last if name == "chat" else last + 1
    async with Dispatcher([read_]) as dispatcher:
        with pytest.raises(StreamBroken, match="before the message was complete") as broken:
            await PROVIDERS[name].stream().run(dispatcher, events[:until])
    turn: TurnResult = broken.value.turn  # type: ignore[attr-defined]
    assert ([] if name == "chat" else ["a b.py"]) == [result.value for result in turn]


async def test_an_event_without_its_form_breaks_the_stream_with_its_turn() -> None:
    """The error of the event carries what ran before it."""

    @tool(safe_parallel=True, name="read")
    async def read_(path: str, deep: object = None) -> str:
        return path

    events = raw("anthropic", STEP)
    bad = {"type": "content_block_start", "index": 9, "content_block": {"type": "tool_use"}}
    arriving = [*events[: completes("anthropic", events)[0] + 1], bad, *events]
    async with Dispatcher([read_]) as dispatcher:
        with pytest.raises(ValueError, match="name must be text") as error:
            await PROVIDERS["anthropic"].stream().run(dispatcher, arriving)
    turn: TurnResult = error.value.turn  # type: ignore[attr-defined]
    assert ["a b.py"] == [result.value for result in turn]


@every_provider
async def test_cancelling_while_the_stream_is_read_leaves_nothing(name: str) -> None:
    """The running tool is stopped, the cancel carries the turn, and no task or thread is left once
    the SDK's stream and the server are closed."""
    stopped: list[str] = []
    working = asyncio.Event()
    step = Step(STEP.text, STEP.calls[:1], pauses={-1: Pause(patience=60)})

    @tool(safe_parallel=True, name="read")
    async def read_(path: str, ctx: CallContext, deep: object = None) -> str:
        working.set()
        await ctx.token.wait()
        stopped.append(path)
        ctx.token.check()
        return path

    async with assert_no_leaks(within=5.0):
        with serve([step]) as server:
            async with (
                Dispatcher([read_]) as dispatcher,
                opened(name, server.url, [SDKS[name].ask]) as arriving,
            ):
                run = PROVIDERS[name].stream().run(dispatcher, arriving)
                running = asyncio.create_task(run)
                await working.wait()
                running.cancel()
                with pytest.raises(asyncio.CancelledError) as cancelled:
                    await running
    turn: TurnResult = cancelled.value.turn  # type: ignore[attr-defined]
    assert ["a b.py"] == stopped
    assert [Status.CANCELLED] == [result.status for result in turn]
