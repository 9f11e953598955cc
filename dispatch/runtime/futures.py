"""Futures that several parties may be done with: whoever comes second changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TypeVar

T = TypeVar("T")


class Signal:
    """Wakes everybody who waits for it, each time it is set; costs nothing while nobody does."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def wait(self) -> None:
        """Wait until it is set the next time. Cancelling it changes nothing for anybody else."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = None
        try:
            await waiting
        finally:
            self._waiting.pop(waiting, None)

    def set(self) -> None:
        """Wake whoever waits now."""
        if self._waiting:
            for waiting in self._waiting:
                resolve(waiting, None)
            self._waiting = {}


class Latch:
    """Something that happens once, on one loop, and is waited for on any."""

    __slots__ = ("_happened", "_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._happened = False
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until it has happened. Cancelling it changes nothing for anybody else."""
        happens = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._happened:
                return
            self._waiting.append(happens)
        await happens

    def set(self, here: asyncio.AbstractEventLoop) -> None:
        """It has happened, on this loop."""
        with self._lock:
            self._happened = True
            waiting, self._waiting = self._waiting, []
        for happens in waiting:
            loop = happens.get_loop()
            if loop is here:
                resolve(happens, None)
            else:
                with contextlib.suppress(RuntimeError):  # the loop of whoever waits is closed
                    loop.call_soon_threadsafe(resolve, happens, None)


def resolve(future: asyncio.Future[T], value: T) -> None:
    """Set the future, unless it is done: cancelled, or set before."""
    if not future.done():
        future.set_result(value)


def fail(future: asyncio.Future[T], error: BaseException) -> None:
    """Let the future raise this, unless it is done."""
    if not future.done():
        future.set_exception(error)


async def uncancelled(future: asyncio.Future[T]) -> T:
    """Wait for the future, whoever cancels meanwhile; the last cancellation is raised then."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return future.result()
