"""News for one event loop, from any thread, handled one piece at a time and never nested.

Owns the crossing of threads and the promise that no handler runs inside another: what is posted
while something is being handled waits its turn, so no chain of events recurses, however long.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from dispatch.errors import UsageError
from dispatch.runtime.fault import report


class Inbox:
    """Belongs to the loop it was made on.

    `step` is called whenever there is no news left; it carries out what the news led to and says
    whether there was anything. What a handler or a step raises goes to `failed`, and the rest goes
    on: one fault never costs what else there is to do.
    """

    def __init__(self, step: Callable[[], bool], failed: Callable[[BaseException], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._news: deque[tuple[Callable[..., None], tuple[object, ...]]] = deque()
        self._step = step
        self._failed = failed
        self._pumping = False
        self._variables = copy_context()

    def check_thread(self) -> None:
        """Raise `UsageError` anywhere but on the thread of this loop."""
        if threading.get_ident() != self._thread:
            raise UsageError(
                "a turn belongs to the loop it was entered on; from another thread write"
                " loop.call_soon_threadsafe(turn.submit, call)"
            )

    def post(self, handle: Callable[..., None], *news: object) -> bool:
        """Have this handled soon, from any thread; False if the loop is gone."""
        try:
            if threading.get_ident() != self._thread:
                self.loop.call_soon_threadsafe(self.take, handle, *news)
            elif self._pumping:
                self._news.append((handle, news))
            elif self.loop.is_closed():
                return False
            else:
                self._news.append((handle, news))
                self.loop.call_soon(self.pump)
        except RuntimeError:  # the loop was closed in another thread
            return False
        return True

    def take(self, handle: Callable[..., None], *news: object) -> None:
        """Have this handled now, on the loop; or next, if something is being handled."""
        self._news.append((handle, news))
        if not self._pumping:
            self.pump()

    def take_last(self, handle: Callable[..., None], *news: object) -> None:
        """The same as the last thing that a task does, whose context variables nobody sees."""
        self._news.append((handle, news))
        if not self._pumping:
            self._variables.run(self.pump)

    def hand(self, handle: Callable[..., None], *news: object) -> bool:
        """Have this handled now if this is the loop's thread, else soon; False if it is gone."""
        if threading.get_ident() != self._thread or self.loop.is_closed():
            return self.post(handle, *news)
        self.take(handle, *news)
        return True

    def pump(self) -> None:
        """Handle news and take steps until there is nothing left to do now.

        Nothing on a loop that is closed: what is thrown away with it may tell of its end from
        anywhere, also from inside the collector.
        """
        if self._pumping or self.loop.is_closed():
            return
        self._pumping = True
        news, step, over = self._news, self._step, False
        try:
            while not over:
                try:
                    while not over:
                        if news:
                            handle, told = news.popleft()
                            handle(*told)
                        else:
                            over = not step()
                except BaseException as error:  # noqa: BLE001 - told, and kept where it must come out
                    self._failed(error)
        finally:
            self._pumping = False

    def retire(self) -> None:
        """Nothing will lead to anything any more: keep nothing of whoever carried it out."""
        self._step, self._failed = bool, _ignored


def _ignored(error: BaseException) -> None:
    report("news for a turn that is gone raised", error)
