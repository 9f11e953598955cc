"""One run of a workload in virtual time: a peer costs nothing but what it makes calls wait."""

import asyncio
from typing import NamedTuple

from benchmarks.peers import Peer
from benchmarks.recording import Recording, Violations, violations
from benchmarks.work import Workload
from dispatch.testing import run_in_virtual_time

CLOSE = 1e-6
"""Seconds by which a loop's timers may be off in a run of 200 calls."""


class Measured(NamedTuple):
    """Seconds until the last call ended, and what went wrong."""

    makespan: float
    violations: Violations


def measured(peer: Peer, workload: Workload) -> Measured:
    """Run the workload once."""

    async def run() -> Measured:
        recording = Recording(workload, clock=asyncio.get_running_loop().time)
        async with peer.ready(recording) as run_turns:
            answers = await run_turns()
        makespan = max(ended for _, ended in recording.intervals.values())
        return Measured(makespan, violations(workload, recording, answers))

    return run_in_virtual_time(run())
