"""A host's tools as a toolbox: known by name and marks, run by the means of the host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Literal

from dispatch.claims import Claim
from dispatch.concurrency import ToolConcurrency
from dispatch.errors import DeclarationError
from dispatch.runtime.options import checked_choice
from dispatch.tool import Tool, Toolbox

Invoke = Callable[[dict[str, Any]], Any]
"""Runs one call with these arguments: `async def`, or a plain function for a sync tool."""

INVOKE: ContextVar[Invoke] = ContextVar("dispatch_hosted_invoke")
"""What runs the call that is being submitted, or that this code runs in."""

SHOWN: ContextVar[Tool | None] = ContextVar("dispatch_hosted_shown", default=None)
"""The tool of the call that is being submitted, which another host may know differently by now."""

UNKNOWN = ToolConcurrency()
ANYTHING: Mapping[str, Any] = {"type": "object"}


Shown = Callable[[Mapping[str, Any], Collection[str]], Mapping[str, Any]]
"""What the claims of a call are made of: of its arguments, and the names in its schema."""


def as_given(arguments: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """The arguments themselves."""
    return arguments


class HostedTools(Toolbox):
    """The tools of a host, as it brings them; more may come, and a tool may change its marks.

    Args:
        descriptors: `ToolConcurrency` by tool name, in place of what a tool's marks say. A name
            that no tool has yet is kept for one that may come.
        undeclared: Whether tools that say nothing run alone, or may run beside everything.
        shown: What templates and `resource_keys` see of a call's arguments.
    """

    def __init__(
        self,
        *,
        descriptors: Mapping[str, ToolConcurrency] | None = None,
        undeclared: Literal["exclusive", "parallel"] = "exclusive",
        shown: Shown = as_given,
    ) -> None:
        super().__init__()
        if not isinstance(descriptors or {}, Mapping):
            raise DeclarationError(
                f"descriptors: write {{tool name: ToolConcurrency(…)}}, not {descriptors!r}"
            )
        for name, descriptor in (descriptors or {}).items():
            if not isinstance(descriptor, ToolConcurrency):
                raise DeclarationError(
                    f"descriptors: {name!r} needs a ToolConcurrency, not {descriptor!r}"
                )
        self._descriptors = dict(descriptors or {})
        self._undeclared = checked_choice("undeclared", undeclared, ("exclusive", "parallel"))
        self._seen: dict[str, tuple[tuple[object, ...], Tool]] = {}
        self._alone: set[str] = set()
        self._shown = shown
        self._unclear: dict[str, str] = {}
        self._told_unclear: set[str] = set()

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
    ) -> Tool:
        """Add a tool, or change it if it says something else than before; return it.

        `schema` is the JSON schema of its arguments: `reads` and `writes` may use their names.
        Nothing is validated by it; that is the host's part. A `sync` tool's calls bring plain
        functions, which run in the dispatcher's own threads. Raises `DeclarationError` for marks
        that cannot be right.
        """
        names = tuple(schema.get("properties", ()))
        marks = (declared, names, sync, idempotent, frozenset(tags), timeout)
        seen, known = self._seen.get(name, (None, None))
        if known is not None and seen == marks:
            return known
        tool: Tool = _HostTool(
            name,
            _in_thread if sync else _on_loop,
            self._shown,
            self._unclear,
            input_schema={**ANYTHING, "properties": {argument: {} for argument in names}},
            description="",
            idempotent=idempotent,
            tags=tags,
            timeout=timeout,
        ).described(self._descriptors.get(name, declared))
        tool = Toolbox([tool]).described(None, undeclared=self._undeclared)[name]
        self._tools[name] = tool
        self._seen[name] = marks, tool
        return tool

    def __getitem__(self, name: str) -> Tool:
        shown = SHOWN.get()
        return shown if shown is not None and shown.name == name else super().__getitem__(name)

    def check_described(self, names: Iterable[str]) -> None:
        """Raise `DeclarationError` for a descriptor of another name, where no other tool comes."""
        there = list(names)
        for name in self._descriptors:
            if name not in there:
                known = ", ".join(there) or "none"
                raise DeclarationError(f"descriptors: {name!r} is no tool; there are: {known}")

    def tell_alone(self, names: Iterable[str]) -> list[str]:
        """Those of the names whose tools run alone for want of a declaration; each told once."""
        new = [
            name
            for name in dict.fromkeys(names)
            if name in self._tools and name not in self._alone and self._runs_alone(name)
        ]
        self._alone.update(new)
        return new

    def tell_unclear(self, names: Iterable[str]) -> dict[str, str]:
        """Those of the names of which a call ran alone for a reason, with it; each told once."""
        new = [one for one in names if one in self._unclear and one not in self._told_unclear]
        self._told_unclear.update(new)
        return {name: self._unclear[name] for name in new}

    def _runs_alone(self, name: str) -> bool:
        return self._tools[name].concurrency.undeclared


class _HostTool(Tool):
    """A tool that notes why the claims of a call could not be told."""

    def __init__(
        self,
        name: str,
        handler: Callable[..., Any],
        shown: Shown,
        unclear: dict[str, str],
        **declared: Any,
    ) -> None:
        self._shown = shown
        self._unclear = unclear
        super().__init__(name, handler, **declared)

    def claims(self, arguments: Mapping[str, Any]) -> tuple[tuple[Claim, ...], str | None]:
        """What the call touches. See `Tool.claims`."""
        shown = self._shown(arguments, self.arguments.schema["properties"])
        claims, warning = super().claims(shown)
        if warning is not None:
            self._unclear[self.name] = warning
        return claims, warning


async def _on_loop(**arguments: Any) -> Any:
    result = INVOKE.get()(arguments)
    return await result if isinstance(result, Awaitable) else result


def _in_thread(**arguments: Any) -> Any:
    return INVOKE.get()(arguments)
