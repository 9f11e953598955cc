"""Tools that append to a file, replace it and read it, and what was done to it; calls of them."""

import asyncio
from typing import Any

from dispatch import Dispatcher, Tool, ToolCall, ToolError, TurnResult, tool
from dispatch.testing import run_in_virtual_time
from tests.runtime.stage import run


class Ledger:
    """A tool that appends a text to a file, and one that replaces it; what was done to each."""

    def __init__(self) -> None:
        self.done: list[str] = []

    @property
    def tools(self) -> list[Tool]:
        """`append`, `replace` and `read`."""

        @tool(writes="key:{file}")
        async def append(file: str, text: str, fails: bool = False) -> int:
            self.done.append(f"{file}+{text}")
            await asyncio.sleep(1)
            if fails:
                raise ToolError("disk full")
            return len(self.done)

        @tool(writes="key:{file}")
        async def replace(file: str) -> None:
            self.done.append(f"{file}=")
            await asyncio.sleep(1)

        @tool(reads="key:{file}")
        async def read(file: str) -> None:
            self.done.append(f"{file}?")

        return [append, replace, read]

    def run(self, turn: list[ToolCall], way: str = "whole", **options: Any) -> TurnResult:
        """The turn, in virtual time."""

        async def main() -> TurnResult:
            return await run(Dispatcher(self.tools, **options), turn, way)

        return run_in_virtual_time(main())


def append(call_id: str, file: str = "f", text: str = "x", **keywords: Any) -> ToolCall:
    """A call that appends."""
    given = {"file": file, "text": text, **keywords.pop("given", {})}
    return ToolCall(call_id, "append", given, **keywords)


THREE = [append("1"), append("2"), append("3")]
