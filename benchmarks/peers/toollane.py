"""toollane: consecutive calls that are safe run together, every other call runs alone.

Its one word is whether a call is safe, so it is told that reads are, and that calls which write,
belong to a session or stand under a limit of one are not. It keeps their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from toollane import LaneResult, ToolCall, ToolLane

from benchmarks.peers.declaring import jobs_by_turn, missing
from benchmarks.recording import Answers, Recording, limited
from benchmarks.work import Workload


class Toollane:
    """Runs each turn through one `ToolLane`."""

    name = "toollane"
    distribution = "toollane"

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """Keys, limits other than one, and everything between turns or before the last call."""
        limits = any(limit > 1 for _, limit in limited(workload))
        return missing(workload, ("keys", "limits", "turns", "arrivals"), limits=limits)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Callable[[], Awaitable[Answers]]]:
        """Make the calls; a call is a name and something to await."""
        workload = recording.workload
        alone = _alone(workload)
        lane = ToolLane(is_safe=lambda call: call.id not in alone)
        turns = [
            [
                ToolCall(job, workload.work(job).tool, partial(recording.perform, job))
                for job in jobs
            ]
            for jobs in jobs_by_turn(workload)
        ]

        async def turn(index: int) -> list[str | None]:
            await recording.message(index)
            return [_text(result) async for result in lane.run(turns[index])]

        async def run() -> Answers:
            recording.start()
            return await asyncio.gather(*(turn(index) for index in range(len(turns))))

        yield run


def _alone(workload: Workload) -> frozenset[str]:
    works = {job: workload.work(job) for jobs in jobs_by_turn(workload) for job in jobs}
    changing = {job for job, work in works.items() if work.writes or work.session is not None}
    return frozenset(changing.union(*(jobs for jobs, limit in limited(workload) if limit == 1)))


def _text(result: LaneResult) -> str | None:
    return str(result.value) if result.status == "fulfilled" else None
