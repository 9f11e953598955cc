"""The processes that descend from one, also those that left its group and its session.

Needs psutil (the extra `processes`); without it nothing is found here, and only the group is ended.
A descendant is known by its ancestors, as long as those live, and by a mark in its environment,
which it keeps wherever it moves; the idea is that of Jenkins' ProcessTreeKiller. Not found is one
that has cleared its environment and lost its parent before it was looked for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

MARK = "DISPATCH_PROCESS_"
PATIENCE = 0.25
"""Seconds in which killed processes are waited for."""
STEP = 0.002


@cache
def has_psutil() -> bool:
    """Whether processes can be looked at."""
    try:
        import psutil  # noqa: F401 - now: later there may be no descriptor left to load it with
    except ImportError:
        return False
    return True


@dataclass(slots=True, eq=False, repr=False)
class Seen:
    """A process with its parent's number and its marks, as it was found."""

    process: psutil.Process
    parent: int
    marks: frozenset[str]

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended; the number alone may be another one's by now."""
        import psutil

        try:
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        except (psutil.Error, OSError):
            return False

    def send(self, number: signal.Signals, *, but: int = 0) -> None:
        """Signal it, unless it has ended or is in the group `but`."""
        import psutil

        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(self.process.pid) != but:
                self.process.send_signal(number)

    def __str__(self) -> str:
        import psutil

        with contextlib.suppress(psutil.Error, OSError):
            return f"{self.process.pid} ({self.process.name()})"
        return str(self.process.pid)


class Census:
    """Who is there. Looking at all processes takes a while, so those who ask at once share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = 0
        self._last: tuple[Seen, ...] = ()

    def take(self) -> tuple[Seen, ...]:
        """All processes there are; the look at them begins after this call."""
        wanted = self._begun + 1
        with self._lock:
            if self._begun < wanted:
                self._begun += 1
                self._last = tuple(_everybody())
            return self._last

    def forked(self) -> None:
        """In a child process: nobody else is in here any more."""
        self._lock = threading.Lock()


_census = Census()
os.register_at_fork(after_in_child=_census.forked)


class ProcessTree:
    """The descendants of one process that was started with `environment`.

    Usable from any thread. `survivors` are those that could not be killed, by number and name.
    """

    def __init__(self) -> None:
        self.survivors: tuple[str, ...] = ()
        self.group_is_killed = False
        self._mark = f"{MARK}{os.urandom(8).hex()}"
        self._seen: dict[psutil.Process, Seen] = {}

    def environment(self, given: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """`given` (None is this process's) with the mark, if anybody will look for it."""
        if not has_psutil():
            return given
        return {**(os.environ if given is None else given), self._mark: "1"}

    def look(self, leader: int = 0) -> None:
        """Remember all descendants: those with the mark, and those below one that is alive.

        The leader counts as alive where it is given.
        """
        everybody = _census.take()
        below = {one.process.pid for one in self._alive()} | ({leader} - {0})
        while found := [one for one in everybody if self._is_new(one, below)]:
            below.update(one.process.pid for one in found)
            self._seen.update((one.process, one) for one in found)

    def _is_new(self, one: Seen, below: set[int]) -> bool:
        return one.process not in self._seen and (self._mark in one.marks or one.parent in below)

    def signal(self, number: signal.Signals, *, but: int = 0) -> None:
        """Signal all descendants that were seen, except those in the group `but`."""
        for one in self._alive():
            one.send(number, but=but)

    def end(self) -> None:
        """Kill all that is left, and wait until it is gone, at most `PATIENCE`."""
        deadline = time.monotonic() + PATIENCE
        pause = STEP
        known = -1
        while known != len(self._seen) or self._alive():
            known = len(self._seen)
            self.look()
            self.signal(signal.SIGSTOP)  # what stands still starts nothing new meanwhile
            self.signal(signal.SIGKILL)
            if time.monotonic() > deadline:
                break
            if self._alive():
                time.sleep(pause)
                pause *= 2
        self.survivors = tuple(map(str, self._alive()))

    def _alive(self) -> list[Seen]:
        return [one for one in list(self._seen.values()) if one.is_alive]


def _everybody() -> Iterator[Seen]:
    """All processes that may be looked at."""
    if not has_psutil():
        return
    import psutil

    try:
        everybody = list(psutil.process_iter())
    except OSError:  # no descriptor is free: what is known already must do
        return
    for process in everybody:
        with contextlib.suppress(psutil.Error, OSError):
            yield Seen(process, process.ppid(), _marks(process))


def _marks(process: psutil.Process) -> frozenset[str]:
    """Its marks; of one whose environment is nobody's business, none."""
    import psutil

    try:
        return frozenset(name for name in process.environ() if name.startswith(MARK))
    except (psutil.Error, OSError):
        return frozenset()
