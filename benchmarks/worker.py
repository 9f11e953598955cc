"""What a peer's process does: it runs the workloads that it is sent, each on a loop of its own.

What a run leaves on its loop is waited for, then cancelled and counted, like the threads that
stay. Nothing that a peer prints or logs is shown.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

from benchmarks.peers import Peer
from benchmarks.recording import Recording, Violations, violations, worst_of
from benchmarks.roster import Entry, NotInstalled
from benchmarks.work import Workload

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 60.0
"""Seconds that a run may take."""
SETTLE = 1.0
"""Seconds that what is left after a run has to end by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run, and how often in one go: very short work is measured many times."""

    workload: Workload
    repeats: int = 1
    timeout: float = TIMEOUT
    """Seconds that it may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: how long it took and what went wrong."""

    seconds: float | None = None
    violations: Violations = field(default_factory=Violations)
    failed: str | None = None
    tasks: int = 0
    """Tasks that it left on the loop."""
    threads: int = 0
    """Threads that it left."""
    lacks: tuple[str, ...] = ()
    """What of this workload the peer has no word for."""


def eager_loop() -> asyncio.AbstractEventLoop:
    """A loop on which a task runs at once until it waits for the first time."""
    factory = getattr(asyncio, "eager_task_factory", None)
    if factory is None:
        raise NotInstalled("eager tasks need Python 3.12")
    loop = asyncio.new_event_loop()
    loop.set_task_factory(factory)
    return loop


def uvloop_loop() -> asyncio.AbstractEventLoop:
    """The loop of the package uvloop."""
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "default": asyncio.new_event_loop,
    "eager tasks": eager_loop,
    "uvloop": uvloop_loop,
}


def serve(connection: Connection, entry: Entry, loop: str) -> None:
    """Run what comes, until the line is closed or someone interrupts."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        connection.send(one_run(entry, loop, None))  # imports the package
        while True:
            connection.send(one_run(entry, loop, connection.recv()))
    except (EOFError, OSError, KeyboardInterrupt):
        os._exit(0)  # at once, whatever threads the peer has left


def one_run(entry: Entry, loop: str, job: Job | None) -> Run:
    """A run of the peer, whatever it raises; without a job it is only made."""
    others = set(threading.enumerate())
    try:
        peer = entry.peer()
        if job is None:
            return Run()
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            run = runner.run(raced(peer, job))
        return replace(run, threads=count_threads(set(threading.enumerate()) - others))
    except (Exception, asyncio.CancelledError, SystemExit) as fault:  # noqa: BLE001 - any package
        return Run(failed=reason(fault))


async def raced(peer: Peer, job: Job) -> Run:
    """A run and what it leaves."""
    recording = Recording(job.workload)
    timeout = asyncio.timeout(job.timeout)
    try:
        async with timeout:
            seconds, worst = await timed(peer, recording, job.repeats)
        run = Run(seconds=seconds, violations=worst)
    except Exception as fault:  # noqa: BLE001 - a package may fail in any way
        hangs = f"hangs: no end after {job.timeout:g} s"
        run = Run(failed=hangs if timeout.expired() else reason(fault))
    return replace(run, tasks=await count_tasks(), lacks=peer.lacks(job.workload))


async def timed(peer: Peer, recording: Recording, repeats: int) -> tuple[float, Violations]:
    """The median of the seconds, and the most of each kind that went wrong."""
    seconds, seen = [], []
    async with peer.ready(recording) as run:
        gc.collect()
        for _ in range(repeats):
            began = time.perf_counter()
            answers = await run()
            seconds.append(time.perf_counter() - began)
            seen.append(violations(recording.workload, recording, answers))
    return median(seconds), worst_of(seen)


async def count_tasks() -> int:
    """How many tasks do not end by themselves; when it returns there are none but the caller."""
    own = asyncio.current_task()
    if others := asyncio.all_tasks() - {own}:
        await asyncio.wait(others, timeout=SETTLE)
    left = asyncio.all_tasks() - {own}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=SETTLE)
    return len(left)


def count_threads(threads: Collection[threading.Thread]) -> int:
    """How many of these do not end by themselves."""
    until = time.monotonic() + SETTLE
    for thread in threads:
        if not isinstance(thread, threading._DummyThread):  # which nobody can wait for
            thread.join(max(0.0, until - time.monotonic()))
    return sum(thread.is_alive() for thread in threads)


def reason(fault: BaseException) -> str:
    """What was raised, in one line that tells nothing of this machine."""
    if isinstance(fault, NotInstalled):
        return str(fault)
    first = next(iter(str(fault).strip().splitlines()), "")
    for path in (sys.prefix, sys.base_prefix, str(ROOT), str(Path.home())):
        first = first.replace(path, "…")
    return f"{type(fault).__name__}: {first}"[:200].rstrip(": ")
