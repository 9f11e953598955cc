"""What a tool says about what it touches, and the checks that it can be meant.

Owns the claims that follow from a declaration alone: the base of a tool that names no keys, and
what is added for its own name and its peers. Everything is checked when the tool is declared.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dispatch.claims import PEER, SELF, TOOL, WRITE, Claim, combine, read, write
from dispatch.errors import DeclarationError

ResourceKeys = Callable[[Mapping[str, Any]], Iterable[Claim | tuple[str, ...]]]
Session = str | Callable[[Mapping[str, Any]], str]
Cost = float | Callable[[Mapping[str, Any]], float]
EXCLUSIVE = write()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConcurrency:
    """What a tool touches, and so what it may run beside.

    A tool that declares nothing runs alone. `safe_parallel` touches nothing that anybody else
    does; `resource_keys(arguments)` returns claims or keys, and `reads` / `writes` say the common
    case as templates (`"file:{path}"`); `read_only` alone reads everything. Added to that:
    `session` (a name, or a function of the arguments) keeps a session's calls in order, and the
    tools in `serializes_with` never overlap this one.
    """

    safe_parallel: bool = False
    resource_keys: ResourceKeys | None = None
    reads: str | Iterable[str] = ()
    writes: str | Iterable[str] = ()
    read_only: bool = False
    serializes_with: Iterable[str] = ()
    session: Session | None = None

    @property
    def declares_keys(self) -> bool:
        """Whether the base claims come from `resource_keys`, `reads` or `writes`."""
        return self.resource_keys is not None or bool(self.reads) or bool(self.writes)

    @property
    def only_reads(self) -> bool:
        """Whether no call changes anything, whatever its arguments are."""
        changes = self.resource_keys is not None or bool(self.writes)
        return (self.read_only or bool(self.reads)) and not changes

    @property
    def undeclared(self) -> bool:
        """Whether the tool says nothing about what it touches, and so runs alone."""
        return not (self.safe_parallel or self.read_only or self.declares_keys)


def base_claims(concurrency: ToolConcurrency) -> tuple[Claim, ...]:
    """What a tool claims that names no keys: nothing, a read of everything, or everything."""
    if concurrency.safe_parallel:
        return ()
    return (read() if concurrency.read_only else EXCLUSIVE,)


def added_claims(name: str, concurrency: ToolConcurrency) -> tuple[Claim, ...]:
    """What every call of the tool claims for its own name and for its peers."""
    peers = [
        Claim((TOOL, peer), WRITE if peer == name else PEER) for peer in concurrency.serializes_with
    ]
    own = [] if concurrency.safe_parallel else [Claim((TOOL, name), SELF)]
    return combine([*peers, *own])


def names_of(tool: str, what: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """One or several names as a tuple. Raises `DeclarationError` for anything else."""
    if not isinstance(given, Iterable):
        raise DeclarationError(f"tool {tool!r}: {what} takes names, not {given!r}")
    values = (given,) if isinstance(given, str) else tuple(given)
    for value in values:
        if not isinstance(value, str) or not value:
            raise DeclarationError(f"tool {tool!r}: {what} takes names, not {value!r}")
    return values


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    call = None if inspect.isclass(handler) else getattr(handler, "__call__", None)  # noqa: B004 - the method is inspected, not asked for
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def check_handler(name: str, handler: Callable[..., Any]) -> None:
    """Raise `DeclarationError` for what can be no tool."""
    if not callable(handler):
        raise DeclarationError(f"tool {name!r}: the handler must be a function, not {handler!r}")
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise DeclarationError(
            f"tool {name!r}: a generator cannot be a tool; return the whole value, and tell"
            " progress through a CallContext parameter"
        )


def check_timeout(tool: str, timeout: float | None) -> None:
    """Raise `DeclarationError` unless this is a number of seconds above 0, or None."""
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (number and timeout > 0):
        raise DeclarationError(f"tool {tool!r}: timeout must be above 0 seconds, not {timeout!r}")


def checked_cost(tool: str, cost: object) -> float:
    """The cost if it is a finite number of at least 0. Raises `DeclarationError`."""
    number = isinstance(cost, int | float) and not isinstance(cost, bool)
    if not number or not 0 <= cost < math.inf:  # type: ignore[operator]
        raise DeclarationError(f"tool {tool!r}: cost must be a number of at least 0, not {cost!r}")
    return float(cost)  # type: ignore[arg-type]


def check_concurrency(tool: str, concurrency: ToolConcurrency) -> None:
    """Raise `DeclarationError` for declarations that contradict each other or cannot be used."""
    for what in ("resource_keys", "reads", "writes", "session"):
        if concurrency.safe_parallel and getattr(concurrency, what):
            raise DeclarationError(
                f"tool {tool!r}: safe_parallel says it touches nothing, {what} says it does;"
                " keep one of the two"
            )
    if concurrency.read_only and concurrency.writes:
        raise DeclarationError(f"tool {tool!r}: read_only and writes= contradict each other")
    keys, session = concurrency.resource_keys, concurrency.session
    if keys is not None and (not callable(keys) or is_async(keys)):
        raise DeclarationError(
            f"tool {tool!r}: resource_keys must be a plain function of the arguments, not {keys!r}"
        )
    if session is not None and not _names_session(session):
        raise DeclarationError(
            f"tool {tool!r}: session must be a name, or a plain function of the arguments that"
            f" returns one, not {session!r}"
        )


def _names_session(session: Session) -> bool:
    if isinstance(session, str):
        return bool(session)
    return callable(session) and not is_async(session)
