"""A turn whose loop was closed is thrown away: the collector may do that at any moment."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator

import pytest

from dispatch import Dispatcher, Limits, ResourceTable, ToolCall, tool

PENDING = "ignore:.*:pytest.PytestUnraisableExceptionWarning"


@tool(writes="key:disk")
async def slow() -> None:
    """Never end."""
    await asyncio.Future()


@tool(writes="key:disk")
async def cleans_up() -> None:
    """Fail in what it does when it is thrown away."""
    try:
        await asyncio.Future()
    finally:
        raise ValueError("there is no loop any more")


@pytest.fixture(autouse=True)
def collected_when_asked_to() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def strand(dispatcher: Dispatcher, *names: str) -> None:
    """Let a turn begin on a loop that is closed in the middle of it, and forget both."""

    async def begin() -> None:
        turn = dispatcher.turn()
        turn.open()
        for name in names:
            turn.submit(ToolCall(name, name, {}))
        await asyncio.sleep(0.001)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()


@pytest.mark.filterwarnings(PENDING)
@pytest.mark.parametrize("name", ["slow", "cleans_up"])
def test_nothing_more_of_it_starts(name: str) -> None:
    """A call that waited for one that is thrown away never runs, on no thread."""
    ran: list[str] = []

    @tool(writes="key:disk")
    def second() -> None:
        ran.append(threading.current_thread().name)

    strand(Dispatcher([slow, cleans_up, second]), name, "second")
    gc.collect()
    time.sleep(0.05)  # for a thread that must not be there
    assert [] == ran


@pytest.mark.filterwarnings(PENDING)
@pytest.mark.parametrize("name", ["slow", "cleans_up"])
def test_it_takes_no_lock(name: str) -> None:
    """Whoever holds a lock of the table or the limits may be who collects it."""
    table, limits = ResourceTable(), Limits(4)
    strand(Dispatcher([slow, cleans_up], resources=table, limits=limits), name)
    Dispatcher([], resources=table, limits=limits).run_sync(
        []
    )  # what comes next takes out what is dead

    def collect() -> None:
        with table._lock, limits._lock:
            gc.collect()

    holder = threading.Thread(target=collect, daemon=True)
    holder.start()
    holder.join(5)
    assert not holder.is_alive()
