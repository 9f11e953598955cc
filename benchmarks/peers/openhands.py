"""OpenHands: its executor of parallel tool calls, which takes the resources that each call names.

The resources are locks, taken in the order of their names by calls that have already started: two
calls with one in common do not overlap, but nothing keeps their order, readers shut each other out,
and a folder has no bond with what is below it. A limit is the number of threads, waiting calls
included; a limit of one call of a tool is told as a resource. The turns have their locks in common.
No model takes part: what is timed is the check of each call's arguments, the executor with a runner
that does what the agent's own does, and the messages that the model would get.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else importing asks the network
os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")

from openhands.sdk import Action, Observation, ToolDefinition
from openhands.sdk.agent.parallel_executor import ParallelToolExecutor
from openhands.sdk.conversation import ResourceLockManager
from openhands.sdk.event import ActionEvent, Event, ObservationEvent
from openhands.sdk.llm import MessageToolCall, content_to_str
from openhands.sdk.tool import DeclaredResources, ToolExecutor
from pydantic import create_model

from benchmarks.peers.declaring import calls, missing
from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload


class OpenHands:
    """Runs each turn as one batch of an executor of its own."""

    name = "OpenHands"
    distribution = "openhands-sdk"

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Order, readers, subtrees, limits of a tag or above one for a tool, arrivals."""
        without = ("order", "readers", "subtrees", "limits", "arrivals")
        above_one = any(limit > 1 for limit in workload.per_tool.values())
        shared = workload.limit is not None and len(workload.turns) > 1
        limits = bool(workload.per_tag) or above_one or shared
        return missing(workload, without, limits=limits)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Give the tools their recording and write the model's messages."""
        workload = recording.workload
        tools = {name: tool.create(recording)[0] for name, tool in TOOLS.items()}
        locks = ResourceLockManager()
        executors = [
            ParallelToolExecutor(workload.limit or len(works), locks) for works in workload.turns
        ]
        messages = [_calls(workload, index) for index in range(len(executors))]

        def runner(event: ActionEvent) -> list[Event]:
            return [_observed(tools[event.tool_name], event)]

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            actions = [_action(tools[call.name], call) for call in messages[index]]
            results = await executors[index].aexecute_batch(actions, runner, tools)
            return ["".join(content_to_str(event.to_llm_message().content)) for (event,) in results]

        async def run() -> Answers:
            recording.start()
            return await asyncio.gather(*(turn(index) for index in range(len(executors))))

        yield run


class _Result(Observation):  # type: ignore[misc]
    """The job that was done."""


class _Perform(ToolExecutor):  # type: ignore[misc]
    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def __call__(self, action: Any, conversation: object = None) -> _Result:
        result: _Result = _Result.from_text(self.recording.perform_sync(action.job))
        return result


class _Tool(ToolDefinition):  # type: ignore[misc]
    """A tool whose calls lock what they read and write, and their session."""

    @classmethod
    def create(cls, recording: Recording) -> list[_Tool]:
        """The tool for one run."""
        return [
            cls(
                description=KINDS[cls.name].about or cls.name,
                action_type=ACTIONS[cls.name],
                observation_type=_Result,
                executor=_Perform(recording),
            )
        ]

    def declared_resources(self, action: Any) -> DeclaredResources:
        """All that may not be in use by another call; nothing is shared."""
        kind = KINDS[self.name]
        keys = [f"file:{getattr(action, name)}" for name in (*kind.reads, *kind.writes)]
        if kind.session:
            keys.append(f"terminal:{getattr(action, kind.session)}")
        if self.executor.recording.workload.per_tool.get(self.name) == 1:
            keys.append(f"tool:{self.name}")
        return DeclaredResources(keys=tuple(keys), declared=True)


def _action_type(name: str, kind: Kind) -> Any:
    fields: dict[str, Any] = dict.fromkeys((*kind.parameters, "job"), (str, ...))
    return create_model(f"{name.title()}Action", __base__=Action, **fields)


ACTIONS = {name: _action_type(name, kind) for name, kind in KINDS.items()}
TOOLS: dict[str, Any] = {
    name: type(f"{name.title()}Tool", (_Tool,), {"name": name}) for name in KINDS
}


def _action(tool: Any, call: Any) -> Any:
    return ActionEvent(
        thought=[],
        action=tool.action_from_arguments(json.loads(call.arguments)),
        tool_name=tool.name,
        tool_call_id=call.id,
        tool_call=call,
        llm_response_id="response",
    )


def _observed(tool: Any, event: Any) -> Any:
    return ObservationEvent(
        observation=tool(event.action),
        action_id=event.id,
        tool_name=tool.name,
        tool_call_id=event.tool_call_id,
    )


def _calls(workload: Workload, turn: int) -> list[Any]:
    return [
        MessageToolCall(id=job, name=tool, arguments=json.dumps(arguments), origin="completion")
        for job, tool, arguments in calls(workload, turn)
    ]
