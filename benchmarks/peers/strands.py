"""Strands: its `Agent` with its executor for concurrent tools, or the one for sequential tools.

The choice of the executor is all that can be said. The agent's history ends in the model's message,
so that a run begins with the tools, and a hook ends the turn before the results are sent: no model
is asked, and what is timed is one cycle of the agent's loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from strands import Agent, tool
from strands.hooks import AfterToolsEvent
from strands.models import Model
from strands.tools.executors import ConcurrentToolExecutor, SequentialToolExecutor

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
        limits = workload.limit or workload.per_tool or workload.per_tag
        missing = {
            "keys" if self.sequential else "order": any(
                work.writes or work.session for turn in workload.turns for work in turn
            ),
            "limits": bool(limits) and not self.sequential,
            "turns": len(workload.turns) > 1,
            "arrivals": workload.streamed,
        }
        return tuple(word for word, is_missing in missing.items() if is_missing)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Make an agent for each turn, its history ending in the calls."""
        self.recording = recording
        used = dict.fromkeys(work.tool for works in recording.workload.turns for work in works)
        executor = SequentialToolExecutor if self.sequential else ConcurrentToolExecutor
        turns = range(len(recording.workload.turns))
        messages = [_messages(recording.workload, index) for index in turns]
        agents = [
            Agent(
                model=_NoModel(),
                tools=[self._tools[name] for name in used],
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

    names = (*kind.parameters, "job")
    perform.__name__ = name
    perform.__doc__ = kind.about or name
    perform.__annotations__ = {**dict.fromkeys(names, str), "return": str}
    perform.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, annotation=str) for each in names]
    )
    return perform


def _messages(workload: Workload, turn: int) -> list[dict[str, Any]]:
    calls = [
        {
            "toolUse": {
                "toolUseId": workload.job(turn, position),
                "name": work.tool,
                "input": {**work.arguments, "job": workload.job(turn, position)},
            }
        }
        for position, work in enumerate(workload.turns[turn])
    ]
    return [
        {"role": "user", "content": [{"text": "Go on."}]},
        {"role": "assistant", "content": calls},
    ]


class _NoModel(Model):  # type: ignore[misc]
    """Stands where an agent needs a model; it is never asked."""

    def update_config(self, **_: Any) -> None:
        """Nothing to set."""

    def get_config(self) -> dict[str, Any]:
        """Nothing to read."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Never asked."""
        raise NotImplementedError

    def stream(self, *_: Any, **__: Any) -> Any:
        """Never asked."""
        raise NotImplementedError
