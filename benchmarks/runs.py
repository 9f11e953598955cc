"""Runs peers against each other on the same work, so that none spoils another's run.

Every peer has a process of its own, because what a package sets up when it is imported (handlers
of logs, wrapped threads, a large heap) would slow the others. Runs are interleaved and never side
by side: each round runs every peer once, each round with another one first. A peer that fails is
not run again on that workload; one that hangs loses its process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from statistics import median
from types import TracebackType

from benchmarks.recording import Violations, worst_of
from benchmarks.roster import Entry
from benchmarks.work import Workload
from benchmarks.worker import SETTLE, Job, Run, serve

IMPORTS = 180.0
"""Seconds in which a peer's package must have been imported."""
PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """Someone who runs workloads: a peer, on which event loop, and what it is given to run."""

    name: str
    entry: Entry
    loop: str = "default"
    change: Callable[[Workload], Workload] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """All rounds of an entrant on a workload: the median of the times, the worst of the rest."""

    seconds: float | None
    violations: Violations
    failed: str | None
    tasks: int
    threads: int
    lacks: tuple[str, ...]


class Contest:
    """The entrants, each in a process that starts with its first run and ends with the contest."""

    def __init__(self, entrants: Sequence[Entrant]) -> None:
        self.entrants = entrants
        self._workers = {entrant.name: Worker(entrant) for entrant in entrants}

    def __enter__(self) -> Contest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self._workers.values():
            worker.stop()
        for worker in self._workers.values():
            worker.join()

    def compete(
        self,
        entrants: Sequence[Entrant],
        job: Job,
        rounds: int,
        *,
        told: Callable[[], None] = lambda: None,
    ) -> dict[str, Outcome]:
        """What these make of a job, by name; a round before the first warms up.

        `told` is called after every run.
        """
        runs: dict[str, list[Run]] = {entrant.name: [] for entrant in entrants}
        for number in range(-1, rounds):
            for entrant in rotated(entrants, number):
                known = runs[entrant.name]
                if known and known[-1].failed:
                    continue
                run = self._workers[entrant.name].run(job)
                if number >= 0 or run.failed:
                    known.append(run)
                told()
        return {name: outcome(each) for name, each in runs.items()}


def rotated(entrants: Sequence[Entrant], number: int) -> Sequence[Entrant]:
    """All of them, each round with another one first."""
    first = number % len(entrants) if entrants else 0
    return [*entrants[first:], *entrants[:first]]


def outcome(runs: Sequence[Run]) -> Outcome:
    """What several runs come to."""
    failed = next((run.failed for run in runs if run.failed), None)
    seconds = [run.seconds for run in runs if run.seconds is not None]
    return Outcome(
        seconds=None if failed or not seconds else median(seconds),
        violations=worst_of([run.violations for run in runs]),
        failed=failed,
        tasks=max(run.tasks for run in runs),
        threads=max(run.threads for run in runs),
        lacks=runs[-1].lacks,
    )


class Worker:
    """An entrant's process; a new one when the old one had to be killed."""

    def __init__(self, entrant: Entrant) -> None:
        self._entrant = entrant
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._imported = False
        self._never = ""
        """Why it is not even begun again."""

    def run(self, job: Job) -> Run:
        """What came of it; takes little longer than the time-out, whatever the peer does."""
        if self._never:
            return Run(failed=self._never)
        if self._entrant.change is not None:
            job = replace(job, workload=self._entrant.change(job.workload))
        try:
            connection = self._connected()
            connection.send(job)
            return self._answer(connection, job.timeout + 4 * SETTLE)
        except TimeoutError as fault:
            if not self._imported:
                self._never = f"hangs when it is imported: {fault}"
            self._kill()
            return Run(failed=self._never or f"hangs: {fault}")
        except (EOFError, OSError):
            self._kill()
            return Run(failed="its process ended")

    def _connected(self) -> Connection:
        """Its process's end of the line. Raises `TimeoutError` if that takes too long."""
        if self._connection is None:
            self._connection, theirs = PROCESSES.Pipe()
            arguments = (theirs, self._entrant.entry, self._entrant.loop)
            resource_tracker.ensure_running()  # else it is started below, and lets signals through
            self._process = PROCESSES.Process(target=serve, args=arguments)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self._process.start()  # it lets the signal through once it can end without a word
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            theirs.close()
            self._answer(self._connection, IMPORTS)
            self._imported = True
        return self._connection

    def _answer(self, connection: Connection, seconds: float) -> Run:
        if not connection.poll(seconds):
            raise TimeoutError(f"nothing was heard of it for {seconds:g} s")
        run = connection.recv()
        assert isinstance(run, Run)
        return run

    def stop(self) -> None:
        """Ask the process to end, as someone at the keyboard would."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None and self._process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGINT)

    def join(self) -> None:
        """Wait until it has ended; it does not take long."""
        if self._process is not None:
            self._process.join(SETTLE)
            self._kill()

    def _kill(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._connection = None
