"""Tools and what they declare: from validated arguments to claims.

Owns the rules of base and added claims. Does no I/O: the file keys it makes are not yet
resolved. Invariant: whatever a descriptor does, `Tool.claims` returns claims that are safe.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, overload

from dispatch.arguments import from_schema, from_signature
from dispatch.claims import SESSION, Claim, checked, combine, write
from dispatch.concurrency import (
    EXCLUSIVE,
    Cost,
    ResourceKeys,
    Session,
    ToolConcurrency,
    added_claims,
    base_claims,
    check_concurrency,
    check_handler,
    check_timeout,
    checked_cost,
    is_async,
    names_of,
)
from dispatch.errors import DeclarationError
from dispatch.render import preview, safe_str
from dispatch.templates import Template

LISTED_TOOLS = 100


class Tool:
    """A named handler with its argument schema and its concurrency descriptor.

    Args:
        name: How the model calls it.
        handler: `async def`, or `def` (which then runs in a worker thread, never on the loop).
        input_schema: A hand-written JSON schema; None derives it from the signature.
        description: What the model is told; None takes the handler's docstring.
        idempotent: Whether running it twice has the effect of running it once.
        tags: Labels whose limits every call of this tool counts against.
        timeout: Default seconds from submission to result; None means no limit of its own.
        cost: What a call takes from rates: a number, or a function of the validated arguments.
        reversible: False if nothing can undo a call, so that an all-or-nothing group refuses it.

    The other arguments are those of `ToolConcurrency`. Raises `DeclarationError` for a handler
    or a descriptor that cannot be right. Calling the tool calls its handler, unscheduled.
    """

    def __init__(
        self,
        name: str,
        handler: Callable[..., Any],
        *,
        input_schema: Mapping[str, Any] | None = None,
        description: str | None = None,
        safe_parallel: bool = False,
        resource_keys: ResourceKeys | None = None,
        reads: str | Iterable[str] = (),
        writes: str | Iterable[str] = (),
        read_only: bool = False,
        serializes_with: Iterable[str] = (),
        session: Session | None = None,
        idempotent: bool = False,
        tags: Iterable[str] = (),
        timeout: float | None = None,
        cost: Cost = 1.0,
        reversible: bool | None = None,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"a tool needs a name, not {name!r}")
        check_handler(name, handler)
        check_timeout(name, timeout)
        if not callable(cost):
            checked_cost(name, cost)
        self.name = name
        self.handler = handler
        self.description = (inspect.getdoc(handler) or "") if description is None else description
        self.concurrency = ToolConcurrency(
            safe_parallel=safe_parallel,
            resource_keys=resource_keys,
            reads=names_of(name, "reads", reads),
            writes=names_of(name, "writes", writes),
            read_only=read_only,
            serializes_with=names_of(name, "serializes_with", serializes_with),
            session=session,
        )
        self.idempotent = idempotent
        self.tags = frozenset(names_of(name, "tags", tags))
        self.timeout = timeout
        self.reversible = reversible
        self._cost = cost
        self.is_async = is_async(handler)
        self.arguments = (
            from_signature(handler, name)
            if input_schema is None
            else from_schema(input_schema, handler, name)
        )
        self._declare()

    def _declare(self) -> None:
        """Work out what follows from the descriptor; raises `DeclarationError`."""
        name = self.name
        self._templates = [
            Template(text, mode, tool=name, schema=self.arguments.schema)
            for mode, texts in (
                ("read", self.concurrency.reads),
                ("write", self.concurrency.writes),
            )
            for text in texts
        ]
        check_concurrency(name, self.concurrency)
        self.added = added_claims(name, self.concurrency)
        self.fixed = self._fixed_claims()
        """The claims of every call, where they do not depend on arguments; no file keys."""

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, for the model."""
        return self.arguments.schema

    def claims(self, arguments: Mapping[str, Any]) -> tuple[tuple[Claim, ...], str | None]:
        """What a call with these validated arguments touches, and a warning if it was guessed.

        A descriptor that raises or returns rubbish makes the call exclusive. File keys are not
        resolved yet. Pure as long as the descriptor is.
        """
        if self.fixed is not None:
            return self.fixed, None
        shown = MappingProxyType(dict(arguments))
        try:
            return combine([*self._declared(shown), *self._session(shown), *self.added]), None
        except (Exception, CancelledError) as error:  # noqa: BLE001 - foreign code: fail closed
            reason = f"{type(error).__name__}: {preview(safe_str(error))}"
            warning = f"{self.name}: its claims could not be told ({reason}), so it ran alone"
            return combine([EXCLUSIVE, *self.added]), warning

    def cost(self, arguments: Mapping[str, Any]) -> float:
        """What a call with these validated arguments takes from its rates.

        Raises whatever the function given as `cost` raises, and `DeclarationError` for no number.
        """
        if not callable(self._cost):
            return self._cost
        return checked_cost(self.name, self._cost(MappingProxyType(dict(arguments))))

    def described(self, concurrency: ToolConcurrency) -> Tool:
        """The same tool with another descriptor. Raises `DeclarationError` as the constructor."""
        other = copy.copy(self)
        other.concurrency = replace(
            concurrency,
            reads=names_of(self.name, "reads", concurrency.reads),
            writes=names_of(self.name, "writes", concurrency.writes),
            serializes_with=names_of(self.name, "serializes_with", concurrency.serializes_with),
        )
        other._declare()
        return other

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the handler itself, without validation, claims or limits."""
        return self.handler(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def _declared(self, arguments: Mapping[str, Any]) -> list[Claim]:
        concurrency = self.concurrency
        claims = [claim for template in self._templates for claim in template.claims(arguments)]
        if concurrency.resource_keys is not None:
            claims += checked(concurrency.resource_keys(arguments))
        elif not self._templates:
            claims += base_claims(concurrency)
        return claims

    def _session(self, arguments: Mapping[str, Any]) -> tuple[Claim, ...]:
        session = self.concurrency.session
        if session is None:
            return ()
        name = session(arguments) if callable(session) else session
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"session must be a name, not {name!r}")
        return (write(SESSION, name),)

    def _fixed_claims(self) -> tuple[Claim, ...] | None:
        if self.concurrency.declares_keys or self.concurrency.session is not None:
            return None
        return combine([*base_claims(self.concurrency), *self.added])


class Toolbox(Mapping[str, Tool]):
    """The tools of one dispatcher by name, in the order given. Immutable.

    Plain functions are taken as tools that declare nothing. Raises `DeclarationError` for two
    tools of one name, and for a `safe_parallel` tool that another names in `serializes_with`.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for given in tools:
            item = given if isinstance(given, Tool) else tool(given)
            if item.name in self._tools:
                raise DeclarationError(f"two tools are named {item.name!r}; rename one of them")
            self._tools[item.name] = item
        for item in self._tools.values():
            for peer in item.concurrency.serializes_with:
                if peer in self._tools and self._tools[peer].concurrency.safe_parallel:
                    raise DeclarationError(
                        f"tool {item.name!r} serializes with {peer!r}, which is safe_parallel;"
                        f" take safe_parallel off {peer!r}"
                    )

    def described(
        self, descriptors: Mapping[str, ToolConcurrency] | None, *, undeclared: str = "exclusive"
    ) -> Toolbox:
        """The toolbox with these descriptors in place of the tools' own.

        With `undeclared="parallel"`, tools that declare nothing claim nothing. Raises
        `DeclarationError` for a tool that is not here, or a descriptor that does not fit it.
        """
        unknown = [name for name in descriptors or {} if name not in self._tools]
        if unknown:
            raise DeclarationError(f"descriptors: {self.unknown(unknown[0])}")
        if not descriptors and undeclared == "exclusive":
            return self
        tools = []
        for tool in self._tools.values():
            chosen = (descriptors or {}).get(tool.name)
            if chosen is None and undeclared == "parallel" and tool.concurrency.undeclared:
                chosen = replace(tool.concurrency, resource_keys=_nothing)
            tools.append(tool if chosen is None else tool.described(chosen))
        return Toolbox(tools)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def unknown(self, name: str) -> str:
        """What to tell a model that asked for a tool that is not here."""
        import difflib  # only here: hardly any model asks for a tool that is not there

        close = difflib.get_close_matches(name[:200], self._tools, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        names = ", ".join(itertools.islice(self._tools, LISTED_TOOLS)) or "none"
        if len(self) > LISTED_TOOLS:
            names += f" and {len(self) - LISTED_TOOLS} more"
        return f"no tool is named {preview(name)}.{hint} Available: {names}."


def _nothing(arguments: Mapping[str, Any]) -> tuple[Claim, ...]:
    """What an undeclared tool touches, if the host says that it may run beside everything."""
    return ()


@overload
def tool(handler: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    reads: str | Iterable[str] = (),
    writes: str | Iterable[str] = (),
    resource_keys: ResourceKeys | None = None,
    safe_parallel: bool = False,
    read_only: bool = False,
    serializes_with: Iterable[str] = (),
    session: Session | None = None,
    idempotent: bool = False,
    tags: Iterable[str] = (),
    timeout: float | None = None,
    cost: Cost = 1.0,
    reversible: bool | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    handler: Callable[..., Any] | None = None, /, *, name: str | None = None, **declared: Any
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function a tool: `@tool`, or `@tool(reads="file:{path}", …)`.

    Takes the keywords of `Tool`; the name is the function's unless given.
    """

    def decorate(function: Callable[..., Any]) -> Tool:
        return Tool(name or str(getattr(function, "__name__", "")), function, **declared)

    return decorate if handler is None else decorate(handler)
