"""When each call of a workload really ran, and what that says about whoever ran it.

Tools call `perform` or `perform_sync` with their job; nothing else of a workload has a clock. The
violations are counted from the intervals alone, never from what a peer says of itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, fields

from benchmarks.work import Work, Workload, conflict

Answers = Sequence[Sequence[str | None]]
"""By turn: the text of each result in the order the model gets them; None where one is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violations:
    """How often a run did what may not happen."""

    overlaps: int = 0
    """Pairs of conflicting calls that ran at the same time."""
    reordered: int = 0
    """Pairs of conflicting calls of one turn that ran in the wrong order."""
    over_limit: int = 0
    """Calls that started although a limit of theirs was used up."""
    lost: int = 0
    """Results that are missing, are another call's, or stand in the wrong place."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.overlaps + self.reordered + self.over_limit + self.lost


class Recording:
    """One run of one workload. Its clock starts with the first `start`."""

    def __init__(
        self, workload: Workload, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.workload = workload
        self._clock = clock
        self.intervals: dict[str, tuple[float, float]] = {}
        self._seconds = {
            workload.job(turn, position): work.seconds
            for turn, works in enumerate(workload.turns)
            for position, work in enumerate(works)
        }
        self._began = 0.0

    def start(self) -> None:
        """The turn begins now."""
        self._began = self._clock()

    def now(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    async def perform(self, job: str) -> str:
        """Be busy on the event loop for as long as the job takes; returns the job."""
        began = self.now()
        seconds = self._seconds[job]
        if seconds:
            await asyncio.sleep(seconds)
        self.intervals[job] = (began, self.now())
        return job

    def perform_sync(self, job: str) -> str:
        """The same in a thread, for peers whose tools are plain functions."""
        began = self.now()
        seconds = self._seconds[job]
        if seconds:
            time.sleep(seconds)
        self.intervals[job] = (began, self.now())
        return job

    async def arrivals(self, turn: int) -> AsyncIterator[int]:
        """Yield the positions of a turn's calls as the model would write them."""
        for position, work in enumerate(self.workload.turns[turn]):
            wait = work.arrives - self.now()
            if wait > 0:
                await asyncio.sleep(wait)
            yield position

    async def message(self, turn: int) -> None:
        """Wait until the model has written the whole turn."""
        last = max(work.arrives for work in self.workload.turns[turn])
        await asyncio.sleep(max(0.0, last - self.now()))


def worst_of(several: Collection[Violations]) -> Violations:
    """The most of each kind in any of them."""
    kinds = [field.name for field in fields(Violations)]
    return Violations(**{kind: max(getattr(each, kind) for each in several) for kind in kinds})


def violations(workload: Workload, recording: Recording, answers: Answers) -> Violations:
    """What went wrong in a run."""
    overlaps, reordered = _against_conflicts(workload, recording)
    return Violations(
        overlaps=overlaps,
        reordered=reordered,
        over_limit=_over_limits(workload, recording),
        lost=_lost(workload, answers),
    )


def _against_conflicts(workload: Workload, recording: Recording) -> tuple[int, int]:
    ran = sorted(
        (item for item in recording.intervals.items() if _claims(workload.work(item[0]))),
        key=lambda item: _place(item[0]),
    )
    overlaps = reordered = 0
    for index, (job, (began, ended)) in enumerate(ran):
        for other, (other_began, other_ended) in ran[index + 1 :]:
            if not conflict(workload.work(job), workload.work(other)):
                continue
            if other_began < ended and began < other_ended:
                overlaps += 1
            elif other_began < began and _place(job)[0] == _place(other)[0]:
                reordered += 1
    return overlaps, reordered


def _claims(work: Work) -> bool:
    """Whether it can conflict at all: calls that claim nothing are not compared with others."""
    return bool(work.reads or work.writes or work.session is not None)


def _over_limits(workload: Workload, recording: Recording) -> int:
    over = 0
    for jobs, limit in limited(workload):
        ran = [recording.intervals[job] for job in jobs if job in recording.intervals]
        moments = [(ended, -1) for _, ended in ran] + [(began, 1) for began, _ in ran]
        running = 0
        for _, change in sorted(moments):  # at one moment the end comes first
            running += change
            over += change > 0 and running > limit
    return over


def limited(workload: Workload) -> list[tuple[list[str], int]]:
    """Each limit, with the jobs that count against it."""
    jobs = {
        workload.job(turn, position): work
        for turn, works in enumerate(workload.turns)
        for position, work in enumerate(works)
    }
    limits = [] if workload.limit is None else [(list(jobs), workload.limit)]
    limits += [
        ([job for job, work in jobs.items() if work.tool == tool], limit)
        for tool, limit in workload.per_tool.items()
    ]
    limits += [
        ([job for job, work in jobs.items() if tag in work.tags], limit)
        for tag, limit in workload.per_tag.items()
    ]
    return limits


def _lost(workload: Workload, answers: Answers) -> int:
    lost = 0
    for turn, works in enumerate(workload.turns):
        given = list(answers[turn]) if turn < len(answers) else []
        wanted = [workload.job(turn, position) for position in range(len(works))]
        given += [None] * (len(wanted) - len(given))
        lost += sum(one != other for one, other in zip(wanted, given, strict=False))
        lost += max(0, len(given) - len(wanted))
    return lost


def _place(job: str) -> tuple[int, int]:
    turn, position = job.split(".")
    return int(turn), int(position)
