"""The exceptions of this package, grouped by whose fault they are.

    DispatchError
    ├── DeclarationError      the programmer's: a tool, claim or toolbox is declared wrong
    ├── UsageError            the host's: the right thing called at the wrong time
    │   ├── TurnClosed        a call was submitted after `close()`
    │   └── DispatcherClosed  a turn was started after `aclose()`
    ├── InputError            foreign data: a message or turn file that cannot be read
    │   └── StreamBroken      a model's stream ended before its message did
    ├── Deadlock              a hold waits in a cycle, and is the one that fails
    ├── AttemptTimedOut       one attempt of a call took longer than it may
    ├── ToolError             raised *by* a tool: the text is what the model reads
    └── CallFailed            raised *to* the host by `unwrap()` and `raise_for_failures()`

A tool's failure is a value (`ToolResult.failure`), never an exception, until the host asks
for one. Cancellation is never wrapped in any of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatch.call import ToolResult


class DispatchError(Exception):
    """Base of every exception that this package raises on its own account."""


class DeclarationError(DispatchError, ValueError):
    """A tool, claim or toolbox is declared wrong; the message says what would be right."""


class UsageError(DispatchError, RuntimeError):
    """The right thing was called at the wrong time or in the wrong place."""


class TurnClosed(UsageError):
    """A call was submitted to a turn whose admission has ended."""


class DispatcherClosed(UsageError):
    """A turn was started on a dispatcher that has been closed."""


class InputError(DispatchError, ValueError):
    """Foreign data (a provider's message, a turn file) that cannot be read as tool calls."""


class StreamBroken(InputError):
    """A model's stream ended before its message was complete; its `turn` is what ran by then."""


class Deadlock(DispatchError):
    """A `table.hold` and others wait for each other, and the hold came last; names the others."""


class AttemptTimedOut(DispatchError):
    """One attempt of a call took longer than it may; the call may be tried again."""


class ToolError(DispatchError):
    """Raise it inside a tool to fail the call with exactly this text for the model.

    Args:
        message: What the model reads.
        retryable: Whether asking again unchanged may succeed.
        details: Structured facts for the host (`Failure.details`); never shown to the model.
    """

    retryable = False
    details: Mapping[str, object] = MappingProxyType({})

    def __init__(
        self,
        message: str = "",
        *,
        retryable: bool = False,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.details = dict(details or {})


class CallFailed(DispatchError):
    """A call did not succeed and the host asked for its value. Carries the whole `result`."""

    def __init__(self, result: ToolResult) -> None:
        message = result.failure.message if result.failure else str(result.status)
        super().__init__(f"{result.call.name} (call {result.index}): {message}")
        self.result = result
