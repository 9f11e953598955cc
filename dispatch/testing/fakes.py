"""Tools that behave badly, each in one way: to see what a harness makes of them.

Each is a `Tool` that declares no claims unless it is told to; the keywords are those of `Tool`.
What they began is over once `release` was called, or at the end of the loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from dispatch.errors import ToolError
from dispatch.tool import Tool

SCHEMA = {"type": "object", "properties": {}}


def hanging(name: str = "hang", **declared: Any) -> Tool:
    """A tool that never returns, and stops when it is cancelled."""

    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    return _tool(name, hang, declared)


def refusing(name: str = "refuse", *, release: asyncio.Event, **declared: Any) -> Tool:
    """A tool that swallows every cancellation, and returns only once `release` is set."""

    async def refuse() -> str:
        swallowed = 0
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                swallowed += 1
        return f"went on after {swallowed} cancels"

    return _tool(name, refuse, declared)


def stuck(name: str = "stuck", *, release: threading.Event, **declared: Any) -> Tool:
    """A `def` tool: its thread cannot be stopped, and returns only once `release` is set."""

    def wait() -> str:
        release.wait()
        return "late"

    return _tool(name, wait, declared)


def leaking(name: str = "leak", *, started: list[asyncio.Task[Any]], **declared: Any) -> Tool:
    """A tool that starts a task and returns without it; the task is put into `started`."""

    async def leak() -> str:
        started.append(asyncio.create_task(asyncio.sleep(3600)))
        return "returned"

    return _tool(name, leak, declared)


def failing_at(
    number: int,
    name: str = "fail",
    *,
    error: Callable[[], BaseException] = lambda: ToolError("this call was to fail"),
    **declared: Any,
) -> Tool:
    """A tool whose `number`-th call, counted from 1 as they start, raises; others return theirs."""
    started = 0

    async def fail() -> int:
        nonlocal started
        started += 1
        if started == number:
            raise error()
        return started

    return _tool(name, fail, declared)


def _tool(name: str, handler: Callable[..., Any], declared: dict[str, Any]) -> Tool:
    if not {"reads", "writes", "resource_keys", "session", "read_only"} & declared.keys():
        declared = {"safe_parallel": True, **declared}
    return Tool(name, handler, input_schema=SCHEMA, **declared)
