"""Runs the tool calls of one model turn: as much at once as is safe, one result per call, in order.

`Dispatcher` is the entry; `tool` declares what a function touches. See the documentation for the
rest. Importing this package loads no HTTP client, no command line and no framework.
"""

from dispatch.call import Failure, FailureKind, Phase, Status, ToolCall, ToolResult
from dispatch.claims import Claim, commute, read, write
from dispatch.concurrency import ToolConcurrency
from dispatch.core.plan import Plan
from dispatch.core.policy import AllOrNothing, BestEffort, Quorum
from dispatch.core.rates import Rate
from dispatch.core.schedules import Schedule
from dispatch.core.stats import DispatcherStats, TurnStats
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
from dispatch.events import CallEvent, TurnEvent
from dispatch.media import Image
from dispatch.refs import Ref
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.context import CallContext
from dispatch.runtime.dispatcher import Dispatcher, plan
from dispatch.runtime.gates import Allow, Change, Deny, Gate, GateContext
from dispatch.runtime.limits import Limits
from dispatch.runtime.process import ProcessResult
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.result import TurnResult
from dispatch.runtime.turn import Turn
from dispatch.tool import Tool, Toolbox, tool

__all__ = [
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
