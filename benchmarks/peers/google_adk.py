"""Google ADK: its `Runner`, in memory, with an `LlmAgent` whose model is scripted.

All calls of a message start at once; nothing can be said about them. Tools run only inside the
agent's loop, so what is timed is a run of the agent: the answer of the model that holds the calls,
and the tools. They say that their results need no summary, so that the model is not asked again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload

GO = types.Content(role="user", parts=[types.Part(text="Go on.")])
USAGE = types.GenerateContentResponseUsageMetadata(  # without it every run logs a warning
    prompt_token_count=1, candidates_token_count=1
)


class GoogleADK:
    """Runs each turn as one run of an agent of its own, in a session of its own."""

    name = "Google ADK"
    distribution = "google-adk"
    recording: Recording
    """The run at hand; the tools outlive it."""

    def __init__(self) -> None:
        self._tools = {
            name: FunctionTool(_function(self, name, kind)) for name, kind in KINDS.items()
        }

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Order, limits, everything between turns or before the last call."""
        missing = {
            "order": any(work.writes or work.session for turn in workload.turns for work in turn),
            "limits": bool(workload.limit or workload.per_tool or workload.per_tag),
            "turns": len(workload.turns) > 1,
            "arrivals": workload.streamed,
        }
        return tuple(word for word, is_missing in missing.items() if is_missing)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Make a model, an agent, a runner and a session for each turn."""
        self.recording = recording
        used = dict.fromkeys(work.tool for works in recording.workload.turns for work in works)
        tools = [self._tools[name] for name in used]
        turns = range(len(recording.workload.turns))
        models = [_Script(model="script", message=_message(recording.workload, at)) for at in turns]
        runners = [
            InMemoryRunner(LlmAgent(name="agent", model=model, tools=tools), app_name="benchmark")
            for model in models
        ]
        sessions = [
            await runner.session_service.create_session(app_name="benchmark", user_id="user")
            for runner in runners
        ]

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            events = runners[index].run_async(
                user_id="user", session_id=sessions[index].id, new_message=GO
            )
            return [
                result.response.get("result")
                async for event in events
                for result in event.get_function_responses()
            ]

        async def run() -> Answers:
            recording.start()
            return await asyncio.gather(*(turn(index) for index in turns))

        yield run
        for runner in runners:
            await runner.close()


class _Script(BaseLlm):  # type: ignore[misc]
    """Answers with the calls."""

    message: types.Content

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        """The one answer."""
        yield LlmResponse(content=self.message, usage_metadata=USAGE)


def _function(peer: GoogleADK, name: str, kind: Kind) -> Callable[..., Awaitable[str]]:
    async def perform(tool_context: ToolContext, **arguments: str) -> str:
        tool_context.actions.skip_summarization = True
        return await peer.recording.perform(arguments["job"])

    parameters = {**dict.fromkeys((*kind.parameters, "job"), str), "tool_context": ToolContext}
    perform.__name__ = name
    perform.__doc__ = kind.about or name
    perform.__annotations__ = {**parameters, "return": str}
    perform.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
            for each, annotation in parameters.items()
        ]
    )
    return perform


def _message(workload: Workload, turn: int) -> types.Content:
    calls: list[Any] = [
        types.FunctionCall(
            id=workload.job(turn, position),
            name=work.tool,
            args={**work.arguments, "job": workload.job(turn, position)},
        )
        for position, work in enumerate(workload.turns[turn])
    ]
    return types.Content(role="model", parts=[types.Part(function_call=call) for call in calls])
