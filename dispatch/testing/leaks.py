"""What a piece of code must not leave behind: tasks, threads, processes, descriptors, claims."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from dispatch.runtime.limits import Limits
from dispatch.runtime.resources import ResourceTable
from dispatch.runtime.threads import is_idle_worker

WITHIN = 1.0
STEP = 0.002


class assert_no_leaks:  # noqa: N801 - used like a function
    """Assert that what the body began is over soon after it: `async with`, or `with` outside loops.

    Args:
        tables: Tables in which no ticket may hold or wait afterwards.
        limits: Limits of which no slot may be taken afterwards.
        within: Real seconds that it may take to end.

    Looks at the tasks of the running loop, threads (idle workers aside, and those of the loop's
    default executor, which stay), child processes (zombies too) and open file descriptors; the last
    two where `/proc` tells of them. What was there before does not count. Raises `AssertionError`
    that lists what is left, also where the body raised, with that as its cause; what must end the
    program (`KeyboardInterrupt`) goes on with a note instead.
    """

    def __init__(
        self, *tables: ResourceTable, limits: Limits | None = None, within: float = WITHIN
    ) -> None:
        self._tables = tables
        self._limits = limits
        self._within = within
        self._before: set[object] = set()

    def __enter__(self) -> Self:
        self._before = set(_things())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        deadline = time.monotonic() + self._within
        while self._left() and time.monotonic() < deadline:
            time.sleep(STEP)
        self._complain(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        deadline = time.monotonic() + self._within
        await asyncio.sleep(0)
        while self._left() and time.monotonic() < deadline:
            time.sleep(STEP)  # noqa: ASYNC251 - real time, also where the loop's is virtual
            await asyncio.sleep(STEP)
        self._complain(error)

    def _complain(self, error: BaseException | None) -> None:
        left = self._left()
        if left:
            told = "\n".join(f"- {one}" for one in left)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                error.add_note(f"left behind:\n{told}")
                return
            raise AssertionError(f"left behind:\n{told}") from error

    def _left(self) -> list[str]:
        left = [name for thing, name in _things().items() if thing not in self._before]
        for table in self._tables:
            counts = table.statistics()
            if counts.held or counts.waiting:
                left.append(f"claims: {counts.held} held, {counts.waiting} waited for")
        if self._limits is not None and (self._limits.running or self._limits.waiting):
            left.append(f"slots: {self._limits.running} taken, {self._limits.waiting} waited for")
        return left


def _things() -> dict[object, str]:
    """What there is now, by identity, with a name for each."""
    found: dict[object, str] = {}
    for task in _tasks():
        found[task] = f"task {task.get_name()}: {task.get_coro()}"
    for thread in threading.enumerate():
        if not is_idle_worker(thread) and not thread.name.startswith("asyncio_"):
            found[thread] = f"thread {thread.name}"
    found.update((("process", pid), f"process {pid}: {what}") for pid, what in _children())
    found.update((("file", number, to), f"descriptor {number}: {to}") for number, to in _files())
    return found


def _tasks() -> set[asyncio.Task[object]]:
    try:
        return asyncio.all_tasks() - {asyncio.current_task()}
    except RuntimeError:  # no loop runs here
        return set()


def _children() -> Iterator[tuple[int, str]]:
    own = str(os.getpid()).encode()
    for number in _listed("/proc"):
        try:
            with open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123 - a path costs more
                name, _, rest = file.read().rpartition(b")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = rest.split()[:2]
        if parent == own:
            zombie = ", a zombie" if state == b"Z" else ""
            yield number, name.partition(b"(")[2].decode(errors="replace") + zombie


def _files() -> Iterator[tuple[int, str]]:
    for number in _listed("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # else it was the one of the listing itself
            yield number, os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115


def _listed(folder: str) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]  # noqa: PTH208
    except FileNotFoundError:  # no Linux
        return []
