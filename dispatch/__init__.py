"""Runs the tool calls of one model turn: as much at once as is safe, one result per call, in order.

`Dispatcher` is the entry; `tool` declares what a function touches. See the documentation for the
rest. Importing this package loads no HTTP client, no command line and no framework, and of its own
what tools are declared with; what runs them is loaded when the first name of it is used.
"""

import typing

from dispatch.call import Failure, FailureKind, Phase, Status, ToolCall, ToolResult
from dispatch.claims import Claim, commute, read, write
from dispatch.concurrency import ToolConcurrency
from dispatch.errors import (
    CallFailed,
    Deadlock,
    DeclarationError,
    DispatcherClosed,
    DispatchError,
    InputError,
    StreamBroken,
    ToolError,
    TurnClosed,
    UsageError,
)
from dispatch.media import Image
from dispatch.refs import Ref
from dispatch.tool import Tool, Toolbox, tool

if typing.TYPE_CHECKING:
    from dispatch.core.adaptive import AdaptiveLimit
    from dispatch.core.plan import Plan
    from dispatch.core.policy import AllOrNothing, BestEffort, Quorum
    from dispatch.core.rates import Rate
    from dispatch.core.schedules import Schedule
    from dispatch.core.stats import DispatcherStats, TurnStats
    from dispatch.events import CallEvent, TurnEvent
    from dispatch.runtime.cancel import CancelToken
    from dispatch.runtime.context import CallContext
    from dispatch.runtime.dispatcher import Dispatcher, plan
    from dispatch.runtime.gates import Allow, Change, Deny, Gate, GateContext
    from dispatch.runtime.limits import Limits
    from dispatch.runtime.process import ProcessResult
    from dispatch.runtime.resources import ResourceTable
    from dispatch.runtime.result import TurnResult
    from dispatch.runtime.turn import Turn

__all__ = [
    "AdaptiveLimit",
    "AllOrNothing",
    "Allow",
    "BestEffort",
    "CallContext",
    "CallEvent",
    "CallFailed",
    "CancelToken",
    "Change",
    "Claim",
    "Deadlock",
    "DeclarationError",
    "Deny",
    "DispatchError",
    "Dispatcher",
    "DispatcherClosed",
    "DispatcherStats",
    "Failure",
    "FailureKind",
    "Gate",
    "GateContext",
    "Image",
    "InputError",
    "Limits",
    "Phase",
    "Plan",
    "ProcessResult",
    "Quorum",
    "Rate",
    "Ref",
    "ResourceTable",
    "Schedule",
    "Status",
    "StreamBroken",
    "Tool",
    "ToolCall",
    "ToolConcurrency",
    "ToolError",
    "ToolResult",
    "Toolbox",
    "Turn",
    "TurnClosed",
    "TurnEvent",
    "TurnResult",
    "TurnStats",
    "UsageError",
    "commute",
    "plan",
    "read",
    "tool",
    "write",
]

_ON_DEMAND = {
    "AdaptiveLimit": "dispatch.core.adaptive",
    "Plan": "dispatch.core.plan",
    "AllOrNothing": "dispatch.core.policy",
    "BestEffort": "dispatch.core.policy",
    "Quorum": "dispatch.core.policy",
    "Rate": "dispatch.core.rates",
    "Schedule": "dispatch.core.schedules",
    "DispatcherStats": "dispatch.core.stats",
    "TurnStats": "dispatch.core.stats",
    "CallEvent": "dispatch.events",
    "TurnEvent": "dispatch.events",
    "CancelToken": "dispatch.runtime.cancel",
    "CallContext": "dispatch.runtime.context",
    "Dispatcher": "dispatch.runtime.dispatcher",
    "plan": "dispatch.runtime.dispatcher",
    "Allow": "dispatch.runtime.gates",
    "Change": "dispatch.runtime.gates",
    "Deny": "dispatch.runtime.gates",
    "Gate": "dispatch.runtime.gates",
    "GateContext": "dispatch.runtime.gates",
    "Limits": "dispatch.runtime.limits",
    "ProcessResult": "dispatch.runtime.process",
    "ResourceTable": "dispatch.runtime.resources",
    "TurnResult": "dispatch.runtime.result",
    "Turn": "dispatch.runtime.turn",
}
"""Where the other names are."""

if not typing.TYPE_CHECKING:  # it would hide from a type checker which names there are

    def __getattr__(name):
        from importlib import import_module

        if name not in _ON_DEMAND:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_ON_DEMAND[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
