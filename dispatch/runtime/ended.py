"""The final results of one turn as its calls end, for readers of all and whoever waits for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from dispatch.call import ToolResult
from dispatch.runtime.futures import Signal, resolve


class Ended:
    """Results in the order in which they became final, each told once. On the turn's loop."""

    def __init__(self) -> None:
        self._results: dict[int, ToolResult] = {}
        self._told: list[ToolResult] = []
        self._waiting: dict[int, asyncio.Future[ToolResult]] = {}
        self._news = Signal()
        self._complete = False

    def add(self, result: ToolResult) -> None:
        """Tell it to everybody, unless that was done before."""
        if result.index in self._results:
            return
        self._results[result.index] = result
        self._told.append(result)
        self._news.set()
        if result.index in self._waiting:
            resolve(self._waiting.pop(result.index), result)

    def complete(self, results: Iterable[ToolResult]) -> None:
        """Tell what is left of these; no more will come."""
        for result in results:
            if result.index not in self._results:
                self.add(result)
        self._complete = True
        self._news.set()

    async def each(self) -> AsyncIterator[ToolResult]:
        """Yield every result, from the first one on, until no more will come."""
        seen = 0
        while True:
            if seen < len(self._told):
                seen += 1
                yield self._told[seen - 1]
            elif self._complete:
                return
            else:
                await self._news.wait()

    async def of(self, position: int) -> ToolResult:
        """Wait for one result. Cancelling it changes nothing for anybody else."""
        if position in self._results:
            return self._results[position]
        if position not in self._waiting:
            self._waiting[position] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._waiting[position])
