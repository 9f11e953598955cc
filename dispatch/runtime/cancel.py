"""Cancellation that a tool can see: a token with a reason, children and callbacks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

Callback = Callable[[str], object]


class CancelToken:
    """Tells whoever holds it that the work is no longer wanted, and why. Usable from any thread.

    Cancelling is final and reaches children at once. A token never interrupts anything by itself:
    a tool looks at `cancelled`, calls `check()` or awaits `wait()`. The idea is .NET's
    CancellationToken and Go's context.
    """

    __slots__ = ("_callbacks", "_lock", "_reason")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._callbacks: dict[int, Callback] = {}

    @property
    def cancelled(self) -> bool:
        """Whether the work is no longer wanted."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """Why it was cancelled; None as long as it was not."""
        return self._reason

    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel it; the first reason stays. Callbacks run in the calling thread, in order."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            callback(reason)

    def check(self) -> None:
        """Raise `asyncio.CancelledError` with the reason if it was cancelled."""
        if self._reason is not None:
            raise asyncio.CancelledError(self._reason)

    def on_cancel(self, callback: Callback) -> Callable[[], None]:
        """Call back with the reason on cancel (at once if it was); returns what takes it off."""
        key = id(callback)
        with self._lock:
            reason = self._reason
            if reason is None:
                while key in self._callbacks:
                    key += 1
                self._callbacks[key] = callback
        if reason is not None:
            callback(reason)
        return lambda: self._forget(key)

    def child(self) -> CancelToken:
        """A token that is cancelled with this one, and alone without touching this one."""
        token = CancelToken()
        self.on_cancel(token.cancel)
        return token

    async def wait(self) -> str:
        """Return the reason once it is cancelled. Cancelling the waiting task leaves no trace."""
        loop = asyncio.get_running_loop()
        cancelled: asyncio.Future[str] = loop.create_future()

        def wake(reason: str) -> None:
            loop.call_soon_threadsafe(_resolve, cancelled, reason)

        forget = self.on_cancel(wake)
        try:
            return await cancelled
        finally:
            forget()

    def _forget(self, key: int) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


def _resolve(future: asyncio.Future[str], reason: str) -> None:
    if not future.done():
        future.set_result(reason)
