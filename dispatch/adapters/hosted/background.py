"""One event loop in a daemon thread, for hosts whose own code is synchronous.

A host may call from a thread without a loop, or from one whose loop it blocks anyway (a notebook).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from dispatch.runtime.nesting import current, wait_in_thread

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def in_background(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it on a loop in another thread, with this thread's context variables, and wait for it.

    Inside a `def` tool that is the loop of the tool's turn; inside an `async def` tool, whose loop
    it would block for ever, it raises `UsageError`. What interrupts the waiting thread, as Ctrl-C
    does, cancels the coroutine, waits until that has settled, and is raised then.
    """
    scope = current()
    if scope is not None and scope.loop is not None:
        return wait_in_thread(coroutine, scope.loop)
    waiting: Future[tuple[T | None, BaseException | None]] = Future()
    loop = _running_loop()
    tasks: list[asyncio.Task[None]] = []

    def start() -> None:
        tasks.append(loop.create_task(_told(coroutine, waiting)))
        tasks[0].add_done_callback(lambda task: never_ran() if not waiting.done() else None)

    def stop() -> None:
        if tasks:
            tasks[0].cancel()
        else:  # interrupted before it was handed over
            never_ran()

    def never_ran() -> None:
        coroutine.close()
        waiting.set_result((None, None))

    try:
        loop.call_soon_threadsafe(start)
        result, error = waiting.result()
    except BaseException:
        loop.call_soon_threadsafe(stop)
        waiting.result()
        raise
    if error is not None:
        raise error
    return result  # type: ignore[return-value]  # there is no error, so there is a result


async def _told(
    coroutine: Coroutine[Any, Any, T], waiting: Future[tuple[T | None, BaseException | None]]
) -> None:
    """Hand over what came of it; nothing that it raises may end the loop."""
    try:
        result = await coroutine
    except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
        waiting.set_result((None, error))
    else:
        waiting.set_result((result, None))


def _running_loop() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="dispatch-loop", daemon=True).start()
        return _loop
