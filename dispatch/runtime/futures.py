"""Futures that several parties may be done with: whoever comes second changes nothing."""

from __future__ import annotations

import asyncio
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
