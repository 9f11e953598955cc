"""What ran when, told by the tools themselves; and a turn run with and without the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dispatch import Dispatcher, Tool, ToolCall, TurnResult
from dispatch.testing import run_in_virtual_time

SCHEDULES = ("dataflow", "groups", "clusters", "serial")


class Timeline:
    """When each thing began and ended, in seconds on the running loop's clock."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[float, float]] = {}

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record the body as `name`, which must not have been recorded before."""
        assert name not in self.spans
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            yield
        finally:
            self.spans[name] = (began, clock())

    def overlap(self, first: str, second: str) -> bool:
        """Whether there was a time at which both were running."""
        (began, ended), (other_began, other_ended) = self.spans[first], self.spans[second]
        return began < other_ended and other_began < ended


def calls(*given: tuple[str, Mapping[str, Any] | str]) -> list[ToolCall]:
    """Calls with the ids c0, c1, … in this order."""
    return [ToolCall(f"c{n}", name, arguments) for n, (name, arguments) in enumerate(given)]


def dispatched(
    tools: Iterable[Tool],
    turn: Sequence[ToolCall],
    *,
    schedule: str = "dataflow",
    root: Path | None = None,
    max_concurrent: int | None = None,
) -> TurnResult:
    """The turn as the dispatcher runs it, in virtual time."""

    async def main() -> TurnResult:
        async with Dispatcher(tools, root=root, max_concurrent=max_concurrent) as dispatcher:
            return await dispatcher.run(turn, schedule=schedule)

    return run_in_virtual_time(main())


def gathered(tools: Iterable[Tool], turn: Sequence[ToolCall]) -> list[Any]:
    """The turn as a plain loop runs it: all handlers at once, whatever they touch."""
    handlers = {tool.name: tool.handler for tool in tools}

    async def call(one: ToolCall) -> object:
        assert isinstance(one.arguments, Mapping)
        return await handlers[one.name](**one.arguments)

    async def main() -> list[Any]:
        return await asyncio.gather(*(call(one) for one in turn), return_exceptions=True)

    return run_in_virtual_time(main())
