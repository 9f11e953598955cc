"""openai-agents: the runner starts all calls of a message at once, up to its own limit.

`max_function_tool_concurrency` counts within one run; nothing says which calls may not overlap.
A run starts with a model, so one is scripted: its one answer is the message with all calls. The
agent stops on the first tool: all calls run, and no second answer is asked for. Tracing is off.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    ToolExecutionConfig,
    Usage,
)
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall
from pydantic import create_model

from benchmarks.peers.declaring import calls, missing, never_asked, used
from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload


class OpenAIAgents:
    """Runs each turn as one run of one agent."""

    name = "openai-agents"
    distribution = "openai-agents"

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Order, limits of a tool or a tag, everything between turns or before the last call."""
        limits = bool(workload.per_tool or workload.per_tag)
        return missing(workload, ("order", "limits", "turns", "arrivals"), limits=limits)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Script a model for each turn; an agent with the same tools is made once."""
        workload = recording.workload
        agent = _agent(frozenset(used(workload)))
        configs = [_config(workload, turn) for turn in range(len(workload.turns))]

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            result = await Runner.run(agent, "go", context=recording, run_config=configs[index])
            return [
                str(item["output"])
                for item in result.to_input_list()
                if item.get("type") == "function_call_output"
            ]

        async def run() -> Answers:
            recording.start()
            return await asyncio.gather(*(turn(index) for index in range(len(configs))))

        yield run


@cache
def _agent(names: frozenset[str]) -> Agent[Recording]:
    return Agent(
        name="benchmark",
        tools=[_tool(name, KINDS[name]) for name in sorted(names)],
        tool_use_behavior="stop_on_first_tool",
    )


class _Scripted(Model):  # type: ignore[misc] # unknown where the package is not installed
    """Answers with one message, whatever is asked."""

    def __init__(self, response: ModelResponse) -> None:
        self._response = response

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        return self._response

    stream_response = never_asked


def _config(workload: Workload, turn: int) -> RunConfig:
    return RunConfig(
        model=_Scripted(ModelResponse(_message(workload, turn), Usage(), None)),
        tool_execution=ToolExecutionConfig(max_function_tool_concurrency=workload.limit),
        tracing_disabled=True,
    )


def _message(workload: Workload, turn: int) -> list[Any]:
    return [
        ResponseFunctionToolCall(
            type="function_call", call_id=job, name=tool, arguments=json.dumps(arguments)
        )
        for job, tool, arguments in calls(workload, turn)
    ]


def _tool(name: str, kind: Kind) -> FunctionTool:
    fields: dict[str, Any] = dict.fromkeys((*kind.parameters, "job"), str)
    arguments = create_model(name, **fields)

    async def perform(context: ToolContext[Recording], text: str) -> str:
        parsed: Any = arguments.model_validate_json(text)
        recording: Recording = context.context
        return await recording.perform(parsed.job)

    return FunctionTool(
        name=name,
        description=kind.about or name,
        params_json_schema=arguments.model_json_schema(),
        on_invoke_tool=perform,
    )
