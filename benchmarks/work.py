"""What a benchmark runs: turns of tool calls, what each touches and how long it takes. Pure.

A tool's kind says what its arguments claim, so that every peer can declare it in its own way. A
path stands for itself and for all that is below it; the empty path is everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A tool: which of its arguments name what it reads and writes, or its session."""

    parameters: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    session: str | None = None
    """Calls with the same value of this parameter keep their order."""
    about: str = ""


KINDS: Mapping[str, Kind] = {
    "fetch": Kind(parameters=("url",), about="touches nothing that another call touches"),
    "read": Kind(parameters=("path",), reads=("path",), about="reads one file"),
    "grep": Kind(parameters=("folder",), reads=("folder",), about="reads all below a folder"),
    "edit": Kind(parameters=("path",), writes=("path",), about="reads and writes one file"),
    "format": Kind(parameters=("folder",), writes=("folder",), about="writes all below a folder"),
    "move": Kind(parameters=("source", "target"), writes=("source", "target"), about="two files"),
    "copy": Kind(parameters=("source", "target"), reads=("source",), writes=("target",)),
    "shell": Kind(parameters=("session",), session="session", about="a stateful shell"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One call. Times are in seconds; `arrives` counts from the start of its turn."""

    tool: str
    arguments: Mapping[str, str]
    seconds: float
    tags: frozenset[str] = frozenset()
    arrives: float = 0.0

    @property
    def reads(self) -> tuple[str, ...]:
        """The paths that it reads."""
        return tuple(self.arguments[name] for name in KINDS[self.tool].reads)

    @property
    def writes(self) -> tuple[str, ...]:
        """The paths that it writes."""
        return tuple(self.arguments[name] for name in KINDS[self.tool].writes)

    @property
    def session(self) -> str | None:
        """The session whose calls keep their order."""
        parameter = KINDS[self.tool].session
        return None if parameter is None else self.arguments[parameter]


def overlap(one: str, other: str) -> bool:
    """Whether two paths have a file in common."""
    return one == other or is_below(one, other) or is_below(other, one)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is inside a folder."""
    return not folder or path.startswith(f"{folder}/")


def conflict(one: Work, other: Work) -> bool:
    """Whether two calls may not run side by side."""
    if one.session is not None and one.session == other.session:
        return True
    pairs = [(w, p) for w in one.writes for p in (*other.reads, *other.writes)]
    pairs += [(w, p) for w in other.writes for p in one.reads]
    return any(overlap(first, second) for first, second in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Turns that start together on one table; nearly always one. Limits count over all of them."""

    name: str
    about: str
    turns: tuple[tuple[Work, ...], ...]
    limit: int | None = None
    """How many calls may run at once."""
    per_tool: Mapping[str, int] = field(default_factory=dict)
    per_tag: Mapping[str, int] = field(default_factory=dict)

    @property
    def streamed(self) -> bool:
        """Whether calls arrive one by one while the model writes."""
        return any(work.arrives for turn in self.turns for work in turn)

    def job(self, turn: int, position: int) -> str:
        """What names a call to the recording; also its result."""
        return f"{turn}.{position}"

    def work(self, job: str) -> Work:
        """The call that a job names."""
        turn, position = map(int, job.split("."))
        return self.turns[turn][position]
