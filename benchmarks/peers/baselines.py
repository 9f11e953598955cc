"""What people write without a package: six ways, from a loop to a graph of calls.

Each is a function that prepares a run of all turns. None but the last begins a turn before its
message is complete. Limits are semaphores, taken in one order by everyone: those of tools and tags
first, the one for all calls last, so that who waits for a tool holds no place of the others. Locks
are taken before any of them. Who waits for whom is worked out beforehand, so what that costs is not
measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from benchmarks.peers.declaring import jobs_by_turn, missing
from benchmarks.recording import Answers, Recording, limited
from benchmarks.work import Work, Workload, conflict

Run = Callable[[], Awaitable[Answers]]
Perform = Callable[[str], Awaitable[str]]
"""Runs a job and gives back its answer."""
Locks = dict[str, list[AbstractAsyncContextManager[object]]]
"""By job: what it must hold while it runs, in the order in which it is taken."""


@dataclass(kw_only=True)
class Baseline:
    """A peer without a package."""

    name: str
    make: Callable[[Recording], Run]
    without: frozenset[str]
    """What its code has nothing for."""
    distribution: str | None = None

    def lacks(self, workload: Workload) -> tuple[str, ...]:
        """What of this workload it has nothing for."""
        return missing(workload, self.without)

    @asynccontextmanager
    async def ready(self, recording: Recording) -> AsyncIterator[Run]:
        """Make locks and waves."""
        run_turns = self.make(recording)

        async def run() -> Answers:
            recording.start()
            return await run_turns()

        yield run


def serial_loop(recording: Recording) -> Run:
    """One call after the other, one turn after the other."""
    turns = jobs_by_turn(recording.workload)

    async def run() -> Answers:
        answers = []
        for turn, jobs in enumerate(turns):
            await recording.message(turn)
            answers.append([await recording.perform(job) for job in jobs])
        return answers

    return run


def gather(recording: Recording) -> Run:
    """Everything at once."""
    return _gathered(recording, recording.perform)


def gather_with_semaphores(recording: Recording) -> Run:
    """Everything at once, as far as the limits allow."""
    return _gathered(recording, _holding(_semaphores(recording.workload), recording.perform))


def gather_with_locks(recording: Recording) -> Run:
    """Everything at once, but one call at a time for each path and each session."""
    perform = _holding(_semaphores(recording.workload), recording.perform)
    return _gathered(recording, _holding(_locks(recording.workload), perform))


def waves(recording: Recording) -> Run:
    """The generations of each turn's conflict graph, one after the other."""
    perform = _holding(_semaphores(recording.workload), recording.perform)
    turns = jobs_by_turn(recording.workload)
    planned = [generations(works) for works in recording.workload.turns]

    async def run_turn(turn: int) -> list[str]:
        answers: dict[str, str] = {}
        for wave in planned[turn]:
            jobs = [turns[turn][position] for position in wave]
            answers |= zip(jobs, await asyncio.gather(*map(perform, jobs)), strict=True)
        return [answers[job] for job in turns[turn]]

    return _side_by_side(recording, run_turn)


def generations(works: Sequence[Work]) -> list[list[int]]:
    """The positions of the calls that wait for nobody, of those that wait for them, and so on."""
    levels: list[int] = []
    for before in conflicts(works):
        levels.append(max((levels[other] for other in before), default=-1) + 1)
    found: list[list[int]] = [[] for _ in range(max(levels, default=-1) + 1)]
    for position, level in enumerate(levels):
        found[level].append(position)
    return found


def dataflow(recording: Recording) -> Run:
    """Each call as it arrives, once the calls of its turn that it conflicts with have ended."""
    perform = _holding(_semaphores(recording.workload), recording.perform)
    turns = jobs_by_turn(recording.workload)
    waits = [conflicts(works) for works in recording.workload.turns]

    async def after(before: Sequence[asyncio.Task[str]], job: str) -> str:
        if before:
            await asyncio.wait(before)
        return await perform(job)

    async def run_turn(turn: int) -> list[str]:
        tasks: list[asyncio.Task[str]] = []
        async for position in recording.arrivals(turn):
            before = [tasks[other] for other in waits[turn][position]]
            tasks.append(asyncio.create_task(after(before, turns[turn][position])))
        return await asyncio.gather(*tasks)

    async def run() -> Answers:
        return await asyncio.gather(*map(run_turn, range(len(turns))))

    return run


def conflicts(works: Sequence[Work]) -> list[list[int]]:
    """By position: the positions of the calls before it that it conflicts with."""
    return [
        [other for other in range(position) if conflict(works[other], work)]
        for position, work in enumerate(works)
    ]


def _gathered(recording: Recording, perform: Perform) -> Run:
    turns = jobs_by_turn(recording.workload)

    async def run_turn(turn: int) -> list[str]:
        return await asyncio.gather(*map(perform, turns[turn]))

    return _side_by_side(recording, run_turn)


def _side_by_side(recording: Recording, run_turn: Callable[[int], Awaitable[list[str]]]) -> Run:
    """All turns at once, each when its message is complete."""
    turns = range(len(recording.workload.turns))

    async def run_when_complete(turn: int) -> list[str]:
        await recording.message(turn)
        return await run_turn(turn)

    async def run() -> Answers:
        if len(turns) == 1:
            return [await run_when_complete(0)]
        return await asyncio.gather(*map(run_when_complete, turns))

    return run


def _holding(locks: Locks, perform: Perform) -> Perform:
    """Perform a job once all that it must hold is held."""

    async def take(job: str, taken: int) -> str:
        needed = locks[job]
        if taken == len(needed):
            return await perform(job)
        async with needed[taken]:
            return await take(job, taken + 1)

    return lambda job: take(job, 0)


def _semaphores(workload: Workload) -> Locks:
    semaphores: Locks = {job: [] for jobs in jobs_by_turn(workload) for job in jobs}
    for jobs, limit in reversed(limited(workload)):  # the one for all calls comes first there
        semaphore = asyncio.Semaphore(limit)
        for job in jobs:
            semaphores[job].append(semaphore)
    return semaphores


def _locks(workload: Workload) -> Locks:
    """A lock for each path and session, taken in sorted order so that nobody waits in a circle."""
    locks: dict[str, asyncio.Lock] = {}
    needed: Locks = {}
    for jobs in jobs_by_turn(workload):
        for job in jobs:
            keys = sorted(_keys(workload.work(job)))
            needed[job] = [locks.setdefault(key, asyncio.Lock()) for key in keys]
    return needed


def _keys(work: Work) -> Iterable[str]:
    paths = {f"file {path}" for path in (*work.reads, *work.writes)}
    return paths if work.session is None else paths | {f"session {work.session}"}


BASELINES = (
    Baseline(name="serial loop", make=serial_loop, without=frozenset({"keys", "arrivals"})),
    Baseline(
        name="gather", make=gather, without=frozenset({"order", "limits", "turns", "arrivals"})
    ),
    Baseline(
        name="gather, semaphore",
        make=gather_with_semaphores,
        without=frozenset({"order", "turns", "arrivals"}),
    ),
    Baseline(
        name="gather, lock per key",
        make=gather_with_locks,
        without=frozenset({"readers", "several keys", "subtrees", "arrivals"}),
    ),
    Baseline(name="waves", make=waves, without=frozenset({"turns", "arrivals"})),
    Baseline(name="dataflow by hand", make=dataflow, without=frozenset({"turns"})),
)
