"""Loops that are closed in the middle of a turn: what they leave goes to whoever comes next."""

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest

from dispatch import (
    AllOrNothing,
    CallContext,
    Dispatcher,
    Limits,
    ResourceTable,
    Status,
    ToolCall,
    tool,
)
from tests.runtime.keyed import left_over

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]
OnLoop = Callable[[Coroutine[Any, Any, Any]], Any]


@tool(writes="key:x")
async def quick() -> None:
    """Write what the others write."""


@tool(writes="key:y")
async def inner() -> None:
    """Write something else."""


@tool(writes="key:y")
async def lasts() -> None:
    """The same, for ever."""
    await asyncio.Future()


@tool(safe_parallel=True)
async def waits() -> None:
    """Never end."""
    await asyncio.Future()


@tool(safe_parallel=True)
async def works() -> str:
    """End at once."""
    return "worked"


def call(name: str, timeout: float | None = None) -> ToolCall:
    return ToolCall(name, name, {}, timeout=timeout)


def strand(dispatcher: Dispatcher, *names: str, until: Callable[[], bool] = lambda: True) -> None:
    """Let a turn with these calls begin, and close its loop once that has come."""

    async def begin() -> None:
        turn = dispatcher.turn()
        turn.open()
        for name in names:
            turn.submit(call(name))
        turn.close()
        await asyncio.sleep(0.01)
        while not until():  # noqa: ASYNC110 - what it waits for comes from threads
            await asyncio.sleep(0.001)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()


@pytest.fixture
def living() -> Iterator[OnLoop]:
    """Runs a coroutine on a loop in another thread, which goes on until the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def all_is_free(dispatcher: Dispatcher, living: OnLoop) -> None:
    """The next turns find nothing held, on a loop that lives on."""
    turn = living(dispatcher.run([call("quick", 5.0), call("inner", 5.0)]))
    assert [Status.OK, Status.OK] == [result.status for result in turn]
    assert (0, 0, 0) == left_over(dispatcher)


@pytest.mark.parametrize("nests", ["a hold", "a turn"])
def test_what_is_passed_to_a_turn_of_a_closed_loop_is_found(nests: str, living: OnLoop) -> None:
    """A thread of an all-or-nothing turn ends after its loop, and leaves its turn a claim."""
    inside, go, done = (threading.Event() for _ in range(3))
    table, limits = ResourceTable(), Limits(8)

    async def nested() -> None:
        if nests == "a hold":
            async with table.hold(("key", "y")):
                inside.set()
                await asyncio.to_thread(go.wait, 10)
            return
        async with others.turn() as turn:
            turn.submit(call("inner"))
            inside.set()
            await asyncio.to_thread(go.wait, 10)

    @tool(writes="key:x")
    def outer() -> None:
        try:
            living(nested())
        finally:
            done.set()

    others = Dispatcher([quick, inner], resources=table, limits=limits)
    dispatcher = Dispatcher([outer], resources=table, limits=limits, policy=AllOrNothing())
    strand(dispatcher, "outer", until=inside.is_set)
    living(others.run([]))  # looks while the thread still runs
    go.set()
    assert done.wait(10)
    all_is_free(others, living)


def test_what_a_thread_returned_dies_with_the_loop_that_awaits_it(living: OnLoop) -> None:
    """The thread is over, so nobody but the loop could have given the claims back."""

    async def for_ever() -> None:
        await asyncio.Future()

    @tool(writes="key:x")
    def outer() -> Awaitable[None]:
        return for_ever()

    dispatcher = Dispatcher([outer, quick, inner], limits=Limits(1))
    strand(dispatcher, "outer")
    all_is_free(dispatcher, living)


def test_a_call_that_waits_gets_the_slot_of_a_closed_loop(living: OnLoop) -> None:
    """Released by a turn that has no calls itself, it goes to one that waits since before."""
    limits = Limits(1)
    dispatcher = Dispatcher([waits, works], limits=limits)
    loop = asyncio.new_event_loop()
    stranded = dispatcher.turn()

    async def begin() -> None:
        stranded.open()
        stranded.submit(call("waits"))
        await asyncio.sleep(0.01)

    loop.run_until_complete(begin())
    waiting = threading.Thread(target=lambda: results.append(dispatcher.run_sync([call("works")])))
    results: list[Any] = []
    waiting.start()
    while not limits.waiting:
        time.sleep(0.001)
    loop.close()
    living(dispatcher.run([]))
    waiting.join(10)
    assert [["worked"]] == [[result.value for result in turn] for turn in results]


def test_whoever_comes_second_does_not_rely_on_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first turn has found the slot of a closed loop, but has not given it back yet."""
    limits = Limits(1)
    dispatcher = Dispatcher([waits, works], limits=limits)
    strand(dispatcher, "waits")
    found, go = threading.Event(), threading.Event()
    give_back = limits.give_back

    def slowly(request: int) -> None:
        if threading.current_thread() is first:
            found.set()
            assert go.wait(10)
        give_back(request)

    monkeypatch.setattr(limits, "give_back", slowly)
    first = threading.Thread(target=dispatcher.run_sync, args=([],))
    first.start()
    assert found.wait(10)
    assert "worked" == dispatcher.run_sync([call("works", 5.0)])[0].value
    go.set()
    first.join()


def test_a_tool_that_closes_the_loop_of_a_turn_in_it_settles(living: OnLoop) -> None:
    """It returns; what is nested in it will never end, and holds it up no more."""

    @tool(writes="key:x")
    def outer() -> str:
        strand(dispatcher, "lasts")
        return "left"

    dispatcher = Dispatcher([outer, lasts, quick, inner])
    assert "left" == living(dispatcher.run([call("outer", 5.0)]))[0].value
    all_is_free(dispatcher, living)


def test_a_thread_that_waits_for_a_closed_loop_is_told(living: OnLoop) -> None:
    """`ctx.run_sync` raises in the tool, which can clean up; then its claims are free."""
    inside, told = threading.Event(), threading.Event()

    @tool(writes="key:x")
    def outer(ctx: CallContext) -> None:
        try:
            ctx.run_sync([call("signals")])
        finally:
            told.set()

    @tool(writes="key:y")
    async def signals() -> None:
        inside.set()
        await asyncio.Future()

    dispatcher = Dispatcher([outer, signals, quick, inner])
    strand(dispatcher, "outer", until=inside.is_set)
    assert told.wait(10)
    all_is_free(dispatcher, living)


def test_no_loop_is_kept_that_nothing_waits_on() -> None:
    """A host that forgets to close its loops does not find them all in its limits and its table."""
    dispatcher = Dispatcher([quick, works])
    loops = []
    for name in ("quick", "works"):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(dispatcher.run([call(name)]))
        loops.append(weakref.ref(loop))
    del loop
    gc.collect()
    assert [None, None] == [loop() for loop in loops]


@pytest.mark.parametrize("name", ["lasts", "waits"])
def test_a_turn_on_a_loop_that_is_closed_later_holds_nobody_up(name: str, living: OnLoop) -> None:
    """A thread that a tool left behind runs a turn nested in it; the tool returned long ago."""
    inside, stop = threading.Event(), threading.Event()
    left: list[threading.Thread] = []

    def until() -> bool:
        inside.set()
        return stop.is_set()

    @tool(writes="key:x")
    def outer() -> None:
        run = partial(copy_context().run, partial(strand, dispatcher, name, until=until))
        left.append(threading.Thread(target=run))
        left[0].start()
        assert inside.wait(10)

    dispatcher = Dispatcher([outer, lasts, waits, quick, inner])
    assert Status.OK is living(dispatcher.run([call("outer", 5.0)]))[0].status
    stop.set()
    left[0].join()
    all_is_free(dispatcher, living)


def test_a_compensation_that_never_ends_dies_with_its_loop(living: OnLoop) -> None:
    """Its thread returned something to await, which was given up; then the loop is closed."""

    async def for_ever() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)

    @tool(writes="key:x")
    async def edit(ctx: CallContext) -> None:
        ctx.on_rollback(lambda: for_ever())

    @tool(writes="key:y")
    async def fails() -> None:
        raise ValueError("undo it")

    table = ResourceTable()
    dispatcher = Dispatcher([edit, fails], resources=table, grace=0.05)
    policy = AllOrNothing(rollback_timeout=0.05)
    loop = asyncio.new_event_loop()
    calls = [call("edit"), ToolCall("", "fails", {}, after=("edit",))]
    turn = loop.run_until_complete(dispatcher.run(calls, policy=policy))
    assert (Status.UNKNOWN, 1) == (turn[0].status, table.statistics().held)
    loop.close()
    all_is_free(Dispatcher([quick, inner], resources=table), living)
