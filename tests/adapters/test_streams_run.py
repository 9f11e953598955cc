"""Calls that run while the model still writes, with every provider's own SDK."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from anyio import wait_all_tasks_blocked

from dispatch import CallContext, Dispatcher, FailureKind, ToolCall, tool
from dispatch.testing import run_in_virtual_time
from tests.adapters.streaming import PROVIDERS, STEP, completes, numbered, opened, raw
from tests.providers import Call, Pause, Step, serve
from tests.providers.clients import SDKS, chat_request, openai_client

every_provider = pytest.mark.parametrize("name", PROVIDERS)


class Counted:
    """A stream of which it is known how many events were read."""

    def __init__(self, events: Any, wanted: int) -> None:
        self._events = events
        self._wanted = wanted
        self._loop = asyncio.get_running_loop()
        self.reached = asyncio.Event()

    def _one(self) -> None:
        self._wanted -= 1
        if self._wanted == 0:
            self._loop.call_soon_threadsafe(self.reached.set)

    async def _asynchronous(self) -> AsyncIterator[Any]:
        async for event in self._events:
            yield event
            self._one()

    def _synchronous(self) -> Iterator[Any]:
        for event in self._events:
            yield event
            self._one()

    @property
    def events(self) -> Any:
        """The same events, asynchronous if they were."""
        is_async = hasattr(self._events, "__aiter__")
        return self._asynchronous() if is_async else self._synchronous()


@every_provider
async def test_a_call_starts_at_its_own_end_while_the_rest_is_unwritten(name: str) -> None:
    """It has not started before the event that completes it, though all of it is there, and the
    tool itself lets the server write what comes after."""
    events = raw(name, STEP)
    at = completes(name, events)[0]
    before, after = Pause(), Pause()
    started: list[str] = []

    @tool(safe_parallel=True, name="read")
    async def read_(path: str, deep: object = None) -> str:
        started.append(path)
        after.release()
        return path

    @tool(safe_parallel=True)
    async def ls() -> str:
        return ""

    step = Step(STEP.text, STEP.calls, pauses={at: before, at + 1: after})
    visible = sum(number < at for number, _ in numbered(events))
    with serve([step]) as server:
        async with (
            Dispatcher([read_, ls]) as dispatcher,
            opened(name, server.url, [SDKS[name].ask]) as arriving,
        ):
            counted = Counted(arriving, visible)
            running = asyncio.create_task(PROVIDERS[name].stream().run(dispatcher, counted.events))
            await counted.reached.wait()
            await wait_all_tasks_blocked()
            assert [] == started
            before.release()
            turn = await running
    assert after.reached.is_set()
    assert ["a b.py", "c"] == started
    assert [result.ok for result in turn] == [True, True, True]


@every_provider
async def test_conflicting_calls_of_a_stream_run_in_order_within_limits(name: str) -> None:
    """Edits of one file run one after the other as written, and never more than two at once."""
    order: list[str] = []
    now = peak = 0

    @tool(writes="file:{path}")
    async def edit(path: str, text: str) -> str:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        order.append(f"{path} {text} begins")
        await asyncio.sleep(0.01)
        order.append(f"{path} {text} ends")
        now -= 1
        return text

    edits = [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2"), ("a", "3")]
    step = Step("I edit.", tuple(Call("edit", {"path": p, "text": t}) for p, t in edits))
    with serve([step]) as server:
        async with (
            Dispatcher([edit], max_concurrent=2) as dispatcher,
            opened(name, server.url, [SDKS[name].ask]) as arriving,
        ):
            turn = await PROVIDERS[name].stream().run(dispatcher, arriving)
    assert [text for _, text in edits] == [result.value for result in turn]
    assert 2 == peak
    for path in "abc":
        texts = [text for one, text in edits if one == path]
        assert [f"{path} {text} {what}" for text in texts for what in ("begins", "ends")] == [
            line for line in order if line.startswith(path)
        ]


async def test_a_plain_iterator_is_read_beside_the_loop() -> None:
    """The loop that lets a synchronous stream go on is not blocked by who reads it."""
    pause = Pause()
    step = Step(STEP.text, STEP.calls[2:], pause=pause)

    @tool(safe_parallel=True)
    async def ls() -> str:
        return "listed"

    with serve([step]) as server, openai_client(server.url) as client:
        asked = client.chat.completions.create(**chat_request([SDKS["chat"].ask]), stream=True)
        with asked as arriving:
            async with Dispatcher([ls]) as dispatcher:
                run = asyncio.create_task(PROVIDERS["chat"].stream().run(dispatcher, arriving))
                assert await asyncio.to_thread(pause.reached.wait, 10)
                pause.release()
                turn = await run
    assert ["listed"] == [result.value for result in turn]


async def test_many_plain_iterators_are_read_at_once() -> None:
    """Each has a thread of its own, so that no number of streams waits for another's model."""
    count = 64
    barrier = threading.Barrier(count, timeout=10)

    def events() -> Iterator[Any]:
        barrier.wait()
        yield from raw("anthropic", Step("I look."))

    async with Dispatcher([]) as dispatcher:
        streams = [PROVIDERS["anthropic"].stream() for _ in range(count)]
        turns = await asyncio.gather(*(stream.run(dispatcher, events()) for stream in streams))
    assert [()] * count == [tuple(turn) for turn in turns]


def test_virtual_time_waits_for_a_plain_iterator() -> None:
    """Reading in a thread counts as work: no timer fires before the model had its say."""
    gate = threading.Event()

    def events() -> Iterator[Any]:
        gate.wait(10)
        yield from raw("anthropic", Step("I look."))

    async def main() -> float:
        loop = asyncio.get_running_loop()
        threading.Timer(0.05, gate.set).start()
        async with Dispatcher([]) as dispatcher, asyncio.timeout(3600):
            await PROVIDERS["anthropic"].stream().run(dispatcher, events())
        return loop.time()

    assert 60 > run_in_virtual_time(main())


async def test_a_turn_that_is_stopped_while_the_model_writes_ends() -> None:
    """Calls that come after the turn's time-out are answered by it; the message is complete."""

    @tool(safe_parallel=True)
    async def wait(path: str, ctx: CallContext) -> str:
        await ctx.token.wait()
        stopped.set()
        ctx.token.check()
        return path

    step = Step("", (Call("wait", {"path": "a"}), Call("wait", {"path": "b"})))
    events = raw("anthropic", step)
    first = completes("anthropic", events)[0] + 1
    stopped = asyncio.Event()

    async def slow() -> AsyncIterator[Any]:
        for event in events[:first]:
            yield event
        await stopped.wait()
        for event in events[first:]:
            yield event

    async with Dispatcher([wait]) as dispatcher:
        turn = await PROVIDERS["anthropic"].stream().run(dispatcher, slow(), timeout=0.05)
    assert [FailureKind.TIMEOUT] * 2 == [result.failure and result.failure.kind for result in turn]
    assert ["toolu_0_0", "toolu_0_1"] == [result.call.id for result in turn]


async def test_a_stream_may_be_fed_to_a_turn_by_hand() -> None:
    """`feed` and `submit` are all that `run` is made of."""

    @tool(safe_parallel=True)
    async def ls(path: str = ".") -> str:
        return path

    step = Step("", (Call("ls", {"path": "a"}), Call("ls", {})))
    stream = PROVIDERS["anthropic"].stream()
    submitted: list[ToolCall] = []
    async with Dispatcher([ls]) as dispatcher, dispatcher.turn() as turn:
        for event in raw("anthropic", step):
            for call in stream.feed(event):
                submitted.append(call)
                turn.submit(call)
        stream.close()
        result = await turn.finish()
    assert ["a", "."] == [one.value for one in result]
    assert submitted == [one.call for one in result]
