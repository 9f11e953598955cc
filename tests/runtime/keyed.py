"""A tool that writes one key for some seconds, and calls of tools by name and arguments."""

import asyncio

from dispatch import ToolCall, tool


@tool(writes="key:{key}")
async def edit(key: str, seconds: float = 0.0) -> str:
    """Hold the key for so long."""
    await asyncio.sleep(seconds)
    return f"edited {key}"


def call(name: str, timeout: float | None = None, **arguments: object) -> ToolCall:
    """A call whose id is the tool's name."""
    return ToolCall(name, name, arguments, timeout=timeout)
