"""Futures that several parties may be done with: whoever comes second changes nothing."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


def resolve(future: asyncio.Future[T], value: T) -> None:
    """Set the future, unless it is done: cancelled, or set before."""
    if not future.done():
        future.set_result(value)


def fail(future: asyncio.Future[T], error: Exception) -> None:
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
