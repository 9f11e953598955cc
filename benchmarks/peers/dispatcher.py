"""This project: one `Dispatcher` for all turns of a workload, kept from run to run.

The tools declare what their kind says; files are relative to a folder that is not there, where a
path covers all that is below it. Turns that come call by call are submitted call by call. As in a
program that runs for long, the dispatcher knows from earlier runs (the warm-up is one) how long
each tool takes; the first turn of all goes by the number of calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import gettempdir

from benchmarks.recording import Answers, Recording
from benchmarks.work import KINDS, Kind, Workload
from dispatch import Dispatcher, Limits, Tool, ToolCall, ToolResult


class Dispatch:
    """Runs each turn as a turn of one dispatcher, under one of its schedules."""

    distribution = "tool-dispatch"

    def __init__(self, schedule: str = "dataflow") -> None:
        self.name = "dispatch" if schedule == "dataflow" else f"dispatch, {schedule}"
        self._schedule = schedule

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Groups and clusters are known only when a message is complete."""
        waits = self._schedule in ("groups", "clusters")
        return ("arrivals",) if waits and workload.streamed else ()

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Make the dispatcher and the calls."""
        workload = recording.workload
        turns = [_calls(workload, turn) for turn in range(len(workload.turns))]
        dispatcher = _kept(workload, self._schedule, recording)

        async def run_turn(turn: int) -> list[str | None]:
            if workload.streamed:
                return await _stream(dispatcher, recording, turn, turns[turn])
            await recording.message(turn)
            return [_text(result) for result in await dispatcher.run(turns[turn])]

        async def run() -> Answers:
            recording.start()
            if len(turns) == 1:
                return [await run_turn(0)]
            return await asyncio.gather(*map(run_turn, range(len(turns))))

        yield run


_DISPATCHERS: dict[tuple[str, str], tuple[Dispatcher, list[Recording]]] = {}
"""By workload and schedule: the dispatcher, and the recording of the run that goes on."""


def _kept(workload: Workload, schedule: str, recording: Recording) -> Dispatcher:
    key = (repr(workload), schedule)
    if key not in _DISPATCHERS:
        running = [recording]
        tools = [_tool(running, name, kind) for name, kind in KINDS.items()]
        root = Path(gettempdir()) / "a folder that is not there"
        limits = _limits(workload)
        dispatcher = Dispatcher(tools, root=root, limits=limits, schedule=schedule)
        _DISPATCHERS[key] = dispatcher, running
    dispatcher, running = _DISPATCHERS[key]
    running[0] = recording
    return dispatcher


async def _stream(
    dispatcher: Dispatcher, recording: Recording, index: int, calls: Sequence[ToolCall]
) -> list[str | None]:
    async with dispatcher.turn() as turn:
        async for position in recording.arrivals(index):
            turn.submit(calls[position])
        return [_text(result) for result in await turn.finish()]


def _tool(running: Sequence[Recording], name: str, kind: Kind) -> Tool:
    """A tool that declares what its kind claims; beside that it is told its job."""

    async def perform(job: str, **arguments: str) -> str:
        return await running[0].perform(job)

    session = kind.session
    touches_no_file = not (kind.reads or kind.writes)
    names = (*kind.parameters, "job")
    return Tool(
        name,
        perform,
        description=kind.about or name,
        input_schema={
            "type": "object",
            "properties": {each: {"type": "string"} for each in names},
            "required": list(names),
            "additionalProperties": False,
        },
        reads=[f"file:{{{each}}}" for each in kind.reads],
        writes=[f"file:{{{each}}}" for each in kind.writes],
        safe_parallel=touches_no_file and session is None,
        resource_keys=(lambda arguments: []) if touches_no_file and session else None,
        session=None if session is None else lambda arguments: arguments[session],
    )


def _calls(workload: Workload, turn: int) -> list[ToolCall]:
    jobs = [workload.job(turn, position) for position in range(len(workload.turns[turn]))]
    return [
        ToolCall(job, work.tool, {**work.arguments, "job": job}, tags=work.tags)
        for job, work in zip(jobs, workload.turns[turn], strict=True)
    ]


def _limits(workload: Workload) -> Limits:
    """Those of the workload; without one for all calls, as many as there are."""
    total = workload.limit or sum(map(len, workload.turns))
    return Limits(total=total, per_tool=workload.per_tool, per_tag=workload.per_tag)


def _text(result: ToolResult) -> str | None:
    return result.content() if result.ok else None
