"""Google ADK: its `Runner`, in memory, with an `LlmAgent` whose model is scripted.

All calls of a message start at once; nothing can be said about them. Tools run only inside the
agent's loop, so what is timed is a run of the agent: the answer of the model that holds the calls,
and the tools. They say that their results need no summary, so that the model is not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

from benchmarks.peers.declaring import calls, missing, signed, used
from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload

GO = types.Content(role="user", parts=[types.Part(text="Go on.")])
USAGE = types.GenerateContentResponseUsageMetadata(  # without it every run logs a warning
    prompt_token_count=1, candidates_token_count=1
)
RUNS = 100
"""How often the work may be run: a session that had been used would be copied, longer each time."""


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
        return missing(workload, ("order", "limits", "turns", "arrivals"))

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Make a model, an agent and a runner for each turn, and a session for each run of it."""
        self.recording = recording
        tools = [self._tools[name] for name in used(recording.workload)]
        turns = range(len(recording.workload.turns))
        models = [_Script(model="script", message=_message(recording.workload, at)) for at in turns]
        runners = [
            InMemoryRunner(LlmAgent(name="agent", model=model, tools=tools), app_name="benchmark")
            for model in models
        ]
        sessions = [
            [
                await runner.session_service.create_session(app_name="benchmark", user_id="user")
                for _ in range(RUNS)
            ]
            for runner in runners
        ]

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            events = runners[index].run_async(
                user_id="user", session_id=sessions[index].pop().id, new_message=GO
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

    return signed(perform, name, kind, tool_context=ToolContext)


def _message(workload: Workload, turn: int) -> types.Content:
    parts = [
        types.Part(function_call=types.FunctionCall(id=job, name=tool, args=arguments))
        for job, tool, arguments in calls(workload, turn)
    ]
    return types.Content(role="model", parts=parts)
