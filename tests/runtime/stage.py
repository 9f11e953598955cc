"""Three tools that tell what ran when, calls of them, and turns of those in virtual time."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from dispatch import (
    Allow,
    CallContext,
    Dispatcher,
    FailureKind,
    GateContext,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    TurnResult,
)
from dispatch.runtime.gates import Decision
from dispatch.runtime.middleware import Handler
from dispatch.testing import run_in_virtual_time

WAYS = ("whole", "streamed")


def clock() -> float:
    """Seconds on the running loop's clock."""
    return asyncio.get_running_loop().time()


class Stage:
    """`change` writes a key, `look` reads one, `free` touches nothing; spans by their `mark`."""

    def __init__(self) -> None:
        self.spans: dict[str, tuple[float, float]] = {}
        self.marks: list[str] = []
        """In the order in which they began."""
        self.running: list[str] = []
        self.peak = 0

    @property
    def tools(self) -> list[Tool]:
        """The three tools."""
        return [
            Tool("change", self._play, writes="key:{key}"),
            Tool("look", self._play, reads="key:{key}"),
            Tool("free", self._play, safe_parallel=True, description="Touch nothing."),
        ]

    def began(self, mark: str) -> float:
        """When it began."""
        return self.spans[mark][0]

    async def _play(
        self,
        mark: str,
        key: str = "",
        seconds: float = 1.0,
        fails: bool = False,
        value: Any = None,
    ) -> Any:
        began = clock()
        self.marks.append(mark)
        self.running.append(mark)
        self.peak = max(self.peak, len(self.running))
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running.remove(mark)
            self.spans[mark] = (began, clock())
        if fails:
            raise ToolError(f"{mark} failed")
        return mark if value is None else value


def call(
    mark: str,
    name: str = "free",
    *,
    call_id: str | None = None,
    after: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
    timeout: float | None = None,
    **arguments: object,
) -> ToolCall:
    """A call whose id is its mark, unless another is given."""
    given = {"mark": mark, **arguments}
    return ToolCall(call_id or mark, name, given, after, frozenset(tags), timeout)


async def run(dispatcher: Dispatcher, calls: Iterable[ToolCall], way: str = "whole") -> TurnResult:
    """One turn, submitted whole or call by call with the loop running in between."""
    if way == "whole":
        return await dispatcher.run(calls)
    async with dispatcher.turn() as turn:
        for one in calls:
            turn.submit(one)
            await asyncio.sleep(0)
        return await turn.finish()


def played(
    stage: Stage, calls: Iterable[ToolCall], *, way: str = "whole", **options: Any
) -> TurnResult:
    """The turn, by a dispatcher of its own with these options, in virtual time."""

    async def main() -> TurnResult:
        async with Dispatcher(stage.tools, **options) as dispatcher:
            return await run(dispatcher, calls, way)

    return run_in_virtual_time(main())


def row(count: int, **keywords: Any) -> list[ToolCall]:
    """So many calls of `free`, marked 0, 1, 2, …"""
    return [call(str(n), **keywords) for n in range(count)]


def begins(stage: Stage) -> list[float]:
    """When each call of a `row` began, in its order."""
    return [stage.began(str(n)) for n in range(len(stage.spans))]


def kinds(results: Iterable[ToolResult]) -> list[FailureKind | None]:
    """What kind of failure each call had, None for a success."""
    return [None if result.failure is None else result.failure.kind for result in results]


def causes(results: Iterable[ToolResult]) -> list[int | None]:
    """Which call led to each failure."""
    return [None if result.failure is None else result.failure.cause for result in results]


def at(seconds: float, function: Callable[..., object], *args: object) -> None:
    """Call it at this moment of the running loop's clock."""
    asyncio.get_running_loop().call_at(seconds, function, *args)


class Desk:
    """A gate that answers by call id after some seconds; who was asked, and when."""

    def __init__(self, seconds: float = 1.0, **answers: Decision) -> None:
        self.seconds = seconds
        self.answers = answers
        self.asked: dict[str, float] = {}
        self.stopped: list[str] = []

    async def __call__(self, call: ToolCall, context: GateContext) -> Decision:
        self.asked[call.id] = clock()
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.stopped.append(call.id)
            raise
        return self.answers.get(call.id, Allow())


class Layer:
    """The shape of a middleware; passes everything on."""

    def __init__(self, following: Handler) -> None:
        self.following = following

    async def __call__(self, call: ToolCall, context: CallContext) -> Any:
        return await self.following(call, context)
