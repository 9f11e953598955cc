"""The tools of one folder, called as the dispatcher calls them but one at a time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatch.call import ToolCall
from dispatch.errors import ToolError
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.tool import Tool
from dispatch.toolkit import coding_tools


class Interruption(CancelToken):
    """A token that lets something happen at the moment a tool looks at it."""

    __slots__ = ("_happen",)

    def __init__(self, happen: Callable[[], object]) -> None:
        super().__init__()
        self._happen = happen

    def check(self) -> None:
        self._happen()


def context_of(name: str, token: CancelToken | None = None) -> CallContext:
    return CallContext(ToolCall("1", name, {}), token or CancelToken(), 0.5, lambda _: None)


class Bench:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.token: CancelToken = CancelToken()
        self.tools: dict[str, Tool] = {tool.name: tool for tool in coding_tools(root)}

    def context(self, name: str = "tool") -> CallContext:
        return context_of(name, self.token)

    def use(self, name: str, **arguments: Any) -> str:
        text = self.tools[name](**arguments, ctx=self.context(name))
        assert isinstance(text, str)
        return text

    def refusal(self, name: str, **arguments: Any) -> str:
        with pytest.raises(ToolError) as caught:
            self.use(name, **arguments)
        return str(caught.value)

    async def shell(self, command: str) -> str:
        text = await self.tools["shell"](command=command, ctx=self.context("shell"))
        assert isinstance(text, str)
        return text

    async def shell_refusal(self, command: str) -> str:
        with pytest.raises(ToolError) as caught:
            await self.shell(command)
        return str(caught.value)

    def names(self) -> list[str]:
        """Every path below the root, sorted."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*"))
