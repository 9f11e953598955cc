"""Strands: its `Agent` with its executor for concurrent tools, or the one for sequential tools.

The choice of the executor is all that can be said. The agent's history ends in the model's message,
so that a run begins with the tools, and a hook ends the turn before the results are sent: no model
is asked, and what is timed is one cycle of the agent's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from strands import Agent, tool
from strands.hooks import AfterToolsEvent
from strands.models import Model
from strands.tools.executors import ConcurrentToolExecutor, SequentialToolExecutor

from benchmarks.peers.declaring import calls, missing, never_asked, signed, used
from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload


class Strands:
    """Runs each turn as one run of an agent of its own."""

    distribution = "strands-agents"
    recording: Recording
    """The run at hand; the tools outlive it."""

    def __init__(self, *, sequential: bool = False) -> None:
        self.name = "Strands sequential" if sequential else "Strands"
        self.sequential = sequential
        self._tools = {name: tool(_function(self, name, kind)) for name, kind in KINDS.items()}

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Order or keys, limits, everything between turns or before the last call."""
        without = ("keys",) if self.sequential else ("order", "limits")
        return missing(workload, (*without, "turns", "arrivals"))

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Make an agent for each turn, its history ending in the calls."""
        self.recording = recording
        executor = SequentialToolExecutor if self.sequential else ConcurrentToolExecutor
        turns = range(len(recording.workload.turns))
        messages = [_messages(recording.workload, index) for index in turns]
        agents = [
            Agent(
                model=_NoModel(),
                tools=[self._tools[name] for name in used(recording.workload)],
                tool_executor=executor(),
                callback_handler=None,
            )
            for _ in turns
        ]
        ends = [_End() for _ in agents]
        for agent, end in zip(agents, ends, strict=True):
            agent.add_hook(end, AfterToolsEvent)

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            agents[index].messages = list(messages[index])
            await agents[index].invoke_async()
            return ends[index].answers

        async def run() -> Answers:
            recording.start()
            return await asyncio.gather(*(turn(index) for index in turns))

        yield run


class _End:
    """Keeps what would be sent to the model, and ends the turn there."""

    def __init__(self) -> None:
        self.answers: list[str | None] = []

    def __call__(self, event: AfterToolsEvent) -> None:
        results = [block["toolResult"]["content"] for block in event.message["content"]]
        self.answers = ["".join(part["text"] for part in result) for result in results]
        event.end_turn = True


def _function(peer: Strands, name: str, kind: Kind) -> Callable[..., Awaitable[str]]:
    async def perform(**arguments: str) -> str:
        return await peer.recording.perform(arguments["job"])

    return signed(perform, name, kind)


def _messages(workload: Workload, turn: int) -> list[dict[str, Any]]:
    message = [
        {"toolUse": {"toolUseId": job, "name": tool, "input": arguments}}
        for job, tool, arguments in calls(workload, turn)
    ]
    return [
        {"role": "user", "content": [{"text": "Go on."}]},
        {"role": "assistant", "content": message},
    ]


class _NoModel(Model):  # type: ignore[misc]
    """Stands where an agent needs a model; it is never asked."""

    def update_config(self, **_: Any) -> None:
        """Nothing to set."""

    def get_config(self) -> dict[str, Any]:
        """Nothing to read."""
        return {}

    structured_output = stream = never_asked
