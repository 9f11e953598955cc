"""pydantic-ai: all calls of a message start at once, but a `sequential` tool runs alone.

One variant declares nothing. The other declares every tool that writes, has a session or a limit
of one as `sequential`: what the model asked before it ends first, what it asked after it waits.
Other limits count runs of an agent, not calls. A run resumes at the model's message and is over
with the request that would bring its results to the model, so no model takes part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from pydantic import create_model
from pydantic_ai import Agent, ModelRequestNode, RunContext, Tool
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.test import TestModel

from benchmarks.peers.declaring import calls, missing, used
from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload


class PydanticAI:
    """Runs each turn as one run of one agent."""

    distribution = "pydantic-ai-slim"

    def __init__(self, *, sequential: bool = False) -> None:
        self.name = "pydantic-ai sequential" if sequential else "pydantic-ai"
        self.sequential = sequential

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Order or at least keys, limits, and all between turns or before the last call."""
        order = "keys" if self.sequential else "order"
        limits = {workload.limit, *workload.per_tool.values()} - {None}
        too_hard = bool(workload.per_tag or limits - ({1} if self.sequential else set()))
        return missing(workload, (order, "limits", "turns", "arrivals"), limits=too_hard)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Make the histories that end with the model's message; an agent is made once."""
        workload = recording.workload
        names = frozenset(used(workload))
        alone = frozenset(name for name in names if self.sequential and _is_alone(workload, name))
        agent = _agent(names, alone)
        histories = [_history(workload, turn) for turn in range(len(workload.turns))]

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            async with agent.iter(message_history=histories[index], deps=recording) as nodes:
                async for node in nodes:
                    if isinstance(node, ModelRequestNode):
                        return _answers(node.request)
            return []

        async def run() -> Answers:
            recording.start()
            return await asyncio.gather(*(turn(index) for index in range(len(histories))))

        yield run


@cache
def _agent(names: frozenset[str], alone: frozenset[str]) -> Agent[Recording]:
    tools = [_tool(name, KINDS[name], sequential=name in alone) for name in sorted(names)]
    return Agent(TestModel(), deps_type=Recording, tools=tools)


def _is_alone(workload: Workload, name: str) -> bool:
    kind, limits = KINDS[name], (workload.limit, workload.per_tool.get(name))
    return bool(kind.writes) or kind.session is not None or 1 in limits


def _tool(name: str, kind: Kind, *, sequential: bool) -> Tool[Recording]:
    async def perform(context: RunContext[Recording], arguments: Any) -> str:
        recording: Recording = context.deps
        return await recording.perform(arguments.job)

    fields: dict[str, Any] = dict.fromkeys((*kind.parameters, "job"), str)
    perform.__annotations__["arguments"] = create_model(name, **fields)
    return Tool(perform, name=name, description=kind.about or name, sequential=sequential)


def _history(workload: Workload, turn: int) -> list[ModelMessage]:
    parts = [
        ToolCallPart(tool_name=tool, args=arguments, tool_call_id=job)
        for job, tool, arguments in calls(workload, turn)
    ]
    return [ModelRequest.user_text_prompt("go"), ModelResponse(parts=parts)]


def _answers(request: ModelRequest) -> list[str | None]:
    return [
        part.model_response_str() if isinstance(part, ToolReturnPart) else None
        for part in request.parts
    ]
