"""Cancellation that a tool can see: a token with a reason, children and callbacks."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

from dispatch.runtime.fault import report
from dispatch.runtime.futures import resolve

Callback = Callable[[str], object]


class CancelToken:
    """Tells whoever holds it that the work is no longer wanted, and why. Usable from any thread.

    Cancelling is final and reaches children at once. A token never interrupts anything by itself:
    a tool looks at `cancelled`, calls `check()` or awaits `wait()`. The idea is .NET's
    CancellationToken and Go's context.
    """

    __slots__ = ("_callbacks", "_forget_parent", "_lock", "_numbers", "_parent", "_reason")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may cancel while this thread holds it
        self._reason: str | None = None
        self._callbacks: dict[int, Callback] = {}
        self._numbers = itertools.count()
        self._parent: CancelToken | None = None
        self._forget_parent: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether the work is no longer wanted."""
        return self.reason is not None

    @property
    def reason(self) -> str | None:
        """Why it was cancelled; None as long as it was not."""
        if self._reason is None and self._parent is not None:
            return self._parent.reason
        return self._reason

    def cancel(self, reason: str = "cancelled") -> None:
        """Cancel it; the first reason stays.

        Callbacks run in the calling thread, in order; one that raises is logged and keeps nobody
        else from being told.
        """
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            try:
                callback(reason)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - foreign code
                report("a callback of a cancel token raised", error)

    def check(self) -> None:
        """Raise `asyncio.CancelledError` with the reason if it was cancelled."""
        reason = self.reason
        if reason is not None:
            raise asyncio.CancelledError(reason)

    def on_cancel(self, callback: Callback) -> Callable[[], None]:
        """Call back with the reason on cancel (at once if it was); returns what takes it off."""
        with self._lock:
            reason = self.reason
            number = next(self._numbers)
            if reason is None:
                self._callbacks[number] = callback
                if self._parent is not None and self._forget_parent is None:
                    self._forget_parent = self._parent.on_cancel(self.cancel)
        if reason is not None:
            callback(reason)
        return lambda: self._forget(number)

    def child(self) -> CancelToken:
        """A token that is cancelled with this one, and alone without touching this one."""
        token = CancelToken()
        token._parent = self  # the parent knows of it only while it has callbacks
        return token

    async def wait(self) -> str:
        """Return the reason once it is cancelled. Cancelling the waiting task leaves no trace."""
        loop = asyncio.get_running_loop()
        cancelled: asyncio.Future[str] = loop.create_future()

        def wake(reason: str) -> None:
            loop.call_soon_threadsafe(resolve, cancelled, reason)

        forget = self.on_cancel(wake)
        try:
            return await cancelled
        finally:
            forget()

    def _forget(self, number: int) -> None:
        with self._lock:
            self._callbacks.pop(number, None)
            if self._callbacks or self._forget_parent is None:
                return
            forget, self._forget_parent = self._forget_parent, None
        forget()
