"""Peers that do what a benchmark has to survive."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from benchmarks.recording import Answers, Recording
from benchmarks.work import Workload


class Hostile:
    """Runs one call, in its own way."""

    distribution = None

    def __init__(self, *, way: str) -> None:
        self.name = way

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        return ("manners",)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        async def run() -> Answers:
            recording.start()
            await getattr(self, f"_{self.name}")()
            return [[await recording.perform("0.0")]]

        yield run

    async def _works(self) -> None:
        sys.stdout.write("and talks")

    async def _raises(self) -> None:
        raise RuntimeError("no\nmore of this")

    async def _hangs(self) -> None:
        await asyncio.Event().wait()

    async def _blocks(self) -> None:
        time.sleep(60)

    async def _dies(self) -> None:
        os._exit(3)

    async def _leaks(self) -> None:
        self._task = asyncio.create_task(asyncio.Event().wait())
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
