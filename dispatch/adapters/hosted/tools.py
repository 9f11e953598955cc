"""A host's tools as a toolbox: known by name and marks, run by the means of the host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Literal

from dispatch.concurrency import ToolConcurrency
from dispatch.errors import DeclarationError
from dispatch.runtime.options import checked_choice
from dispatch.tool import Tool, Toolbox

Invoke = Callable[[dict[str, Any]], Any]
"""Runs one call with these arguments: `async def`, or a plain function for a sync tool."""

INVOKE: ContextVar[Invoke] = ContextVar("dispatch_hosted_invoke")
"""What runs the call that is being submitted, or that this code runs in."""

UNKNOWN = ToolConcurrency()
ANYTHING: Mapping[str, Any] = {"type": "object"}


class HostedTools(Toolbox):
    """The tools of a host, as it brings them; more may come, and a tool may change its marks.

    Args:
        descriptors: `ToolConcurrency` by tool name, in place of what a tool's marks say. A name
            that no tool has yet is kept for one that may come.
        undeclared: Whether tools that say nothing run alone, or may run beside everything.
    """

    def __init__(
        self,
        *,
        descriptors: Mapping[str, ToolConcurrency] | None = None,
        undeclared: Literal["exclusive", "parallel"] = "exclusive",
    ) -> None:
        super().__init__()
        for name, descriptor in (descriptors or {}).items():
            if not isinstance(descriptor, ToolConcurrency):
                raise DeclarationError(
                    f"descriptors: {name!r} needs a ToolConcurrency, not {descriptor!r}"
                )
        self._descriptors = dict(descriptors or {})
        self._undeclared = checked_choice("undeclared", undeclared, ("exclusive", "parallel"))
        self._seen: dict[str, tuple[object, ...]] = {}
        self._alone: set[str] = set()

    def see(
        self,
        name: str,
        declared: ToolConcurrency = UNKNOWN,
        *,
        schema: Mapping[str, Any] = ANYTHING,
        sync: bool = False,
        idempotent: bool = False,
        tags: Iterable[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Add a tool, or change it if it says something else than before.

        `schema` is the JSON schema of its arguments: `reads` and `writes` may use their names.
        Nothing is validated by it; that is the host's part. A `sync` tool's calls bring plain
        functions, which run in the dispatcher's own threads. Raises `DeclarationError` for marks
        that cannot be right.
        """
        names = tuple(schema.get("properties", ()))
        marks = (declared, names, sync, idempotent, frozenset(tags), timeout)
        if self._seen.get(name) == marks:
            return
        tool = Tool(
            name,
            _in_thread if sync else _on_loop,
            input_schema={**ANYTHING, "properties": {argument: {} for argument in names}},
            description="",
            idempotent=idempotent,
            tags=tags,
            timeout=timeout,
        ).described(self._descriptors.get(name, declared))
        self._tools[name] = Toolbox([tool]).described(None, undeclared=self._undeclared)[name]
        self._seen[name] = marks

    def tell_alone(self, names: Iterable[str]) -> list[str]:
        """Those of the names whose tools run alone for want of a declaration; each told once."""
        new = [
            name
            for name in dict.fromkeys(names)
            if name in self._tools and name not in self._alone and self._runs_alone(name)
        ]
        self._alone.update(new)
        return new

    def _runs_alone(self, name: str) -> bool:
        return self._tools[name].concurrency.undeclared


async def _on_loop(**arguments: Any) -> Any:
    result = INVOKE.get()(arguments)
    return await result if isinstance(result, Awaitable) else result


def _in_thread(**arguments: Any) -> Any:
    return INVOKE.get()(arguments)
