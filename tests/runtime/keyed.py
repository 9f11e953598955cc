"""Tools that write one key for some seconds and can be undone, and calls of tools by name."""

import asyncio
from collections.abc import Callable
from typing import Any

from dispatch import (
    AllOrNothing,
    CallContext,
    Dispatcher,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    TurnResult,
    tool,
)
from dispatch.testing import run_in_virtual_time


@tool(writes="key:{key}")
async def edit(key: str, seconds: float = 0.0) -> str:
    """Hold the key for so long."""
    await asyncio.sleep(seconds)
    return f"edited {key}"


def call(name: str, /, timeout: float | None = None, **arguments: object) -> ToolCall:
    """A call whose id is the tool's name."""
    return ToolCall(name, name, arguments, timeout=timeout)


@tool(safe_parallel=True)
async def ask(seconds: float = 1.0, fails: bool = False) -> str:
    await asyncio.sleep(seconds)
    if fails:
        raise ToolError("no answer")
    return f"answer after {seconds:g} s"


def asked(
    seconds: float,
    *,
    name: str = "",
    fails: bool = False,
    tags: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    timeout: float | None = None,
) -> ToolCall:
    arguments = {"seconds": seconds, "fails": fails}
    return ToolCall(name, "ask", arguments, tags=frozenset(tags), after=after, timeout=timeout)


class Diary:
    """Steps that can be undone, and what they did: "+a" is a step done, "-a" one undone."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tools(self) -> list[Tool]:
        """`step` claims a key, `free` claims nothing; both take their name, time and fate."""
        return [
            Tool("step", self._step, writes="key:{key}"),
            Tool("free", self._step, safe_parallel=True),
        ]

    @property
    def undone(self) -> list[str]:
        """What was undone, in order."""
        return [line for line in self.lines if line[0] == "-"]

    @property
    def newest_first(self) -> list[str]:
        """In which order all that was done must be undone."""
        return [f"-{line[1:]}" for line in reversed(self.lines) if line[0] == "+"]

    async def undo(self, name: str, seconds: float = 0.0) -> None:
        """The compensation of a step; what it does is done at its end."""
        await asyncio.sleep(seconds)
        self.lines.append(f"-{name}")

    async def _step(
        self, ctx: CallContext, key: str, seconds: float = 1.0, fate: str = "ok", undo: float = 0.0
    ) -> str:
        name = ctx.call.id
        ctx.on_rollback(self.undo, name, undo)
        self.lines.append(f"+{name}")
        await asyncio.sleep(seconds)
        if fate == "fails":
            raise ToolError(f"{name} fails")
        return f"done {name}"


def step(
    name: str,
    key: str = "",
    *,
    of: str = "step",
    tags: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    timeout: float | None = None,
    **arguments: object,
) -> ToolCall:
    """A call of a diary's tool, by default on the key of its own name."""
    arguments["key"] = key or name
    return ToolCall(name, of, arguments, after=after, tags=frozenset(tags), timeout=timeout)


def told(results: Any) -> list[tuple[str, float]]:
    """How each call ended, and when."""
    return [(str(result.status), result.finished_at) for result in results]


def texts(turn: TurnResult) -> list[str]:
    """What the model reads."""
    return [result.content() for result in turn]


def left_over(*dispatchers: Dispatcher) -> tuple[int, int, int]:
    """Tickets held and waiting, and slots taken: all 0 when nothing was left behind."""
    tables = {id(d.resources): d.resources.statistics() for d in dispatchers}.values()
    held, waiting = sum(t.held for t in tables), sum(t.waiting for t in tables)
    return held, waiting, sum(d.limits.running for d in dispatchers)


async def cancelled(task: "asyncio.Task[TurnResult]", reason: str = "") -> TurnResult:
    """Cancel the task that runs a turn; the turn as its exception carries it."""
    task.cancel(reason)
    try:
        await task
    except asyncio.CancelledError as error:
        turn: TurnResult = error.turn  # type: ignore[attr-defined]
        return turn
    raise AssertionError("the task was not cancelled")


def statuses(results: "TurnResult | list[ToolResult]") -> list[str]:
    """How each call ended."""
    return [str(result.status) for result in results]


@tool(safe_parallel=True)
async def parent(ctx: CallContext, keys: list[str], seconds: float = 1.0) -> list[str]:
    """Edit these keys in a nested turn."""
    turn = await ctx.run([call("edit", key=key, seconds=seconds) for key in keys])
    return [str(result.status) for result in turn]


@tool(safe_parallel=True)
async def fail(seconds: float = 1.0) -> None:
    await asyncio.sleep(seconds)
    raise ToolError("cannot be done")


def undoing(*functions: Callable[..., Any], claims: str = "key:own") -> Tool:
    """A tool `act` that gives these compensations in this order."""

    async def act(ctx: CallContext) -> str:
        for function in functions:
            ctx.on_rollback(function)
        return "acted"

    return Tool("act", act, writes=claims)


def rolled_back(*functions: Callable[..., Any], timeout: float = 10.0) -> TurnResult:
    """One call that succeeds and gives these compensations, and one that fails at 1 s."""
    policy = AllOrNothing(rollback_timeout=timeout)
    dispatcher = Dispatcher([undoing(*functions), fail], policy=policy, grace=0.5)
    turn = run_in_virtual_time(dispatcher.run([call("act"), call("fail")]))
    assert (0, 0, 0) == left_over(dispatcher)
    return turn
