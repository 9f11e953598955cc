"""The wrapper around a toolset: each of its calls runs as one call of a dispatcher's turn.

pydantic-ai starts a task for every call of a model's message and waits for all of them; here each
call takes its place in the turn before its tool runs. What the tool returned, and what it said to
pydantic-ai by raising (`ModelRetry`, `CallDeferred`, …), reaches pydantic-ai unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Unpack

from pydantic_ai import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunContext,
    ToolFailed,
    UserError,
)
from pydantic_ai.exceptions import (
    RunCancelled,
    SkipToolExecution,
    ToolFailedError,
    ToolRetryError,
    UsageLimitExceeded,
)
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from dispatch.adapters.hosted import HostedTools, HostedTurns, HostOptions
from dispatch.adapters.pydantic_ai.marks import marks_of, shown
from dispatch.adapters.pydantic_ai.order import FromMessages, Order, turn_of
from dispatch.adapters.pydantic_ai.threads import TrackedThreads
from dispatch.call import ToolCall
from dispatch.concurrency import ToolConcurrency
from dispatch.errors import UsageError
from dispatch.runtime.dispatcher import Dispatcher
from dispatch.runtime.options import checked_choice
from dispatch.tool import Tool

SIGNALS = (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunCancelled,
    SkipToolExecution,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UsageLimitExceeded,
    UserError,
)
"""What a tool says to pydantic-ai by raising it, rather than that it failed."""


class Shared:
    """What all copies of a wrapper share: pydantic-ai makes new ones for every run and step."""

    def __init__(
        self,
        *,
        descriptors: Mapping[str, ToolConcurrency] | None,
        undeclared: Literal["exclusive", "parallel"],
        trust_annotations: bool,
        tool_errors: Literal["report", "raise"],
        patience: float,
        options: HostOptions,
    ) -> None:
        self.trust_annotations = trust_annotations
        self.tool_errors = checked_choice("tool_errors", tool_errors, ("report", "raise"))
        options["middleware"] = (*options.get("middleware", ()), TrackedThreads())
        self.tools = HostedTools(descriptors=descriptors, undeclared=undeclared, shown=shown)
        self.turns = HostedTurns(self.tools, patience=patience, **options)
        self.order = FromMessages(self.turns, self.tool_errors)

    def see(self, tool: ToolsetTool[Any], name: str) -> Tool:
        """Know a tool by its marks. Raises `DeclarationError` for marks that cannot be right."""
        marks = marks_of(tool.tool_def, trust_annotations=self.trust_annotations)
        return self.tools.see(
            name,
            marks["declared"],
            schema=tool.tool_def.parameters_json_schema,
            idempotent=marks["idempotent"],
        )


@dataclass(init=False)
class DispatchToolset(WrapperToolset[AgentDepsT]):
    """Runs the calls of the wrapped toolset through a dispatcher: as much at once as is safe.

    Args:
        wrapped: The toolset; wrap it last, around prefixes and other wrappers.
        descriptors: `ToolConcurrency` by tool name, in place of what the tools' marks say.
        undeclared: Whether tools that declare nothing run alone, or may run beside everything.
        trust_annotations: Whether an MCP server's word is taken that a tool only reads or may be
            repeated. Without it such a tool is undeclared.
        tool_errors: What an exception becomes that a tool raises and that pydantic-ai knows no
            answer to: a failed result, which the model sees ("report"), or the end of the run, as
            without this wrapper ("raise").
        patience: Seconds that a call waits for an earlier one of its turn that does not come.
        options: The keywords of `Dispatcher`. A schedule or policy that needs the whole turn at
            once raises `UsageError`.

    Usable by several agents, runs, threads and event loops at once, which then share its limits and
    resources. Cancelling a run stops its calls, and waits for them at most two graces.
    """

    shared: Shared
    order: Order

    def __init__(
        self,
        wrapped: AbstractToolset[AgentDepsT],
        *,
        descriptors: Mapping[str, ToolConcurrency] | None = None,
        undeclared: Literal["exclusive", "parallel"] = "exclusive",
        trust_annotations: bool = False,
        tool_errors: Literal["report", "raise"] = "report",
        patience: float = 0.05,
        shared: Shared | None = None,
        order: Order | None = None,
        **options: Unpack[HostOptions],
    ) -> None:
        if not isinstance(wrapped, AbstractToolset):
            raise TypeError(f"wrap a toolset, as FunctionToolset([…]), not {wrapped!r}")
        self.wrapped = wrapped
        self.shared = shared or Shared(
            descriptors=descriptors,
            undeclared=undeclared,
            trust_annotations=trust_annotations,
            tool_errors=tool_errors,
            patience=patience,
            options=options,
        )
        self.order = order or self.shared.order

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher behind it: its statistics, limits and resources."""
        return self.shared.turns.dispatcher

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """The wrapped toolset's tools. Raises `DeclarationError` for marks that cannot be right."""
        tools = await super().get_tools(ctx)
        for name, tool in tools.items():
            self.shared.see(tool, name)
        return tools

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> Any:
        """Run the call in its turn, and return or raise what the tool did.

        What dispatch decides (a time limit, a cancel, a skip, a gate's denial, …) raises
        `ToolFailed` with the text for the model, which takes nothing from the tool's retries.
        """
        said: list[Exception] = []

        async def invoke(arguments: dict[str, Any]) -> Any:
            said.clear()
            try:
                return await self.wrapped.call_tool(name, arguments, ctx, tool)
            except SIGNALS as signal:
                said.append(signal)
                raise

        known = self.shared.see(tool, name)
        call = ToolCall(ctx.tool_call_id or "", name, tool_args)
        before = self.order.before(ctx)
        try:
            result = await self.shared.turns.run(
                turn_of(ctx), call, invoke, before=before, tool=known
            )
        except UsageError as error:  # nested too deep, closed, or in a call that was given up
            raise ToolFailed(str(error)) from error
        finally:
            self.order.over(ctx)
        if result.ok:
            return result.value
        raised = said[0] if said else result.exception
        raise raised if isinstance(raised, SIGNALS) else self.order.failed(ctx, result)
