"""Agno: the `arun` of an `Agent` whose model is scripted.

All calls of a message start at once; nothing can be said about them. Tools run only inside the
agent's loop, so what is timed is a run of the agent: the answer of the model that holds the calls,
and the tools. They stop the run, so that the model is not asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.tools import Function

from benchmarks.peers.declaring import missing, never_asked, openai_calls, signed, used
from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload


class Agno:
    """Runs each turn as one run of an agent of its own."""

    name = "Agno"
    distribution = "agno"
    recording: Recording
    """The run at hand; the tools outlive it."""

    def __init__(self) -> None:
        self._tools = {name: _tool(self, name, kind) for name, kind in KINDS.items()}

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Order, limits, everything between turns or before the last call."""
        return missing(workload, ("order", "limits", "turns", "arrivals"))

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Make a model and an agent for each turn."""
        self.recording = recording
        tools = [self._tools[name] for name in used(recording.workload)]
        turns = range(len(recording.workload.turns))
        models = [_Script(openai_calls(recording.workload, index)) for index in turns]
        agents = [Agent(model=model, tools=tools, telemetry=False) for model in models]

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            reply = await agents[index].arun("Go on.")
            return [message.content for message in reply.messages if message.role == "tool"]

        async def run() -> Answers:
            recording.start()
            return await asyncio.gather(*(turn(index) for index in turns))

        yield run


class _Script(Model):  # type: ignore[misc]
    """Answers with the calls."""

    def __init__(self, calls: list[dict[str, Any]]) -> None:
        super().__init__(id="script")
        self.calls = calls

    async def ainvoke(self, *_: Any, **__: Any) -> ModelResponse:
        """The one answer."""
        return ModelResponse(role="assistant", tool_calls=self.calls)

    invoke = invoke_stream = ainvoke_stream = never_asked
    _parse_provider_response = _parse_provider_response_delta = never_asked


def _tool(peer: Agno, name: str, kind: Kind) -> Function:
    function = Function.from_callable(_function(peer, name, kind))
    function.stop_after_tool_call = True
    return function


def _function(peer: Agno, name: str, kind: Kind) -> Callable[..., Awaitable[str]]:
    async def perform(**arguments: str) -> str:
        return await peer.recording.perform(arguments["job"])

    return signed(perform, name, kind)
