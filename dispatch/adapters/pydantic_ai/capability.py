"""The capability: all tools of an agent through one dispatcher, in the model's order exactly.

pydantic-ai validates every call of a batch before it starts the first. By its hooks the capability
sees which of them will run, and which start and then end without reaching their tool (denied,
deferred, skipped by a hook): no call waits for one that never comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Unpack

from pydantic_ai import ModelRequest, RunContext, ToolCallPart, ToolDefinition
from pydantic_ai.capabilities import (
    AbstractCapability,
    CapabilityOrdering,
    RawToolArgs,
    ValidatedToolArgs,
    WrapToolExecuteHandler,
    WrapToolValidateHandler,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset

from dispatch.adapters.hosted import HostOptions
from dispatch.adapters.pydantic_ai.histories import close_open_calls
from dispatch.adapters.pydantic_ai.order import FromHooks
from dispatch.adapters.pydantic_ai.toolset import DispatchToolset, Shared
from dispatch.concurrency import ToolConcurrency
from dispatch.runtime.dispatcher import Dispatcher


@dataclass(init=False)
class DispatchCapability(AbstractCapability[AgentDepsT]):
    """Runs all tools of an agent through one dispatcher, output tools aside.

    Takes what `DispatchToolset` takes, and needs no toolset. The hooks of other capabilities run
    before a call takes its place, without locks or slots; one that holds up a call longer than
    `patience` lets later calls of the turn pass. What a tool raises is shown to their
    `on_tool_execute_error` hooks first. What is sent to the model has one result for each call
    (`close_open_calls`), whatever became of the history; the run's own history stays as it is.
    """

    id: str | None = "dispatch"
    shared: Shared = field(kw_only=True)
    order: FromHooks = field(kw_only=True, compare=False)

    def __init__(
        self,
        *,
        descriptors: Mapping[str, ToolConcurrency] | None = None,
        undeclared: Literal["exclusive", "parallel"] = "exclusive",
        trust_annotations: bool = False,
        tool_errors: Literal["report", "raise"] = "report",
        patience: float = 0.05,
        **options: Unpack[HostOptions],
    ) -> None:
        self.shared = Shared(
            descriptors=descriptors,
            undeclared=undeclared,
            trust_annotations=trust_annotations,
            tool_errors=tool_errors,
            patience=patience,
            options=options,
        )
        self.order = FromHooks(self.shared.turns, self.shared.tool_errors)

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher behind it: its statistics, limits and resources."""
        return self.shared.turns.dispatcher

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """None: it cannot be written in a specification file."""
        return None

    def get_ordering(self) -> CapabilityOrdering:
        """Outermost, so that it sees what becomes of a call in the hooks of all others."""
        return CapabilityOrdering(position="outermost")

    def get_wrapper_toolset(
        self, toolset: AbstractToolset[AgentDepsT]
    ) -> AbstractToolset[AgentDepsT]:
        """Wrap the agent's tools."""
        return DispatchToolset(toolset, shared=self.shared, order=self.order)

    async def prepare_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Mend what is sent, after all history processors have had it."""
        messages = request_context.messages
        if messages and isinstance(messages[-1], ModelRequest):  # else a response that goes on
            request_context.messages = close_open_calls(messages)
        return request_context

    async def wrap_tool_validate(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        handler: WrapToolValidateHandler,
    ) -> ValidatedToolArgs:
        """Expect the call, unless it is refused, deferred, or not run here."""
        valid = await handler(args)
        if tool_def.kind == "function" or ctx.tool_call_approved:
            self.order.expect(ctx, call.tool_call_id)
        return valid

    async def wrap_tool_execute(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Expect it no more once it has ended, wherever that was."""
        try:
            return await handler(args)
        finally:
            self.order.over(ctx)

    async def on_tool_execute_error(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        error: Exception,
    ) -> Any:
        """Tell the model of a failure that no other capability dealt with."""
        raise self.order.reported(ctx, error)
