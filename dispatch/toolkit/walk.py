"""Finding and opening the files of a folder one after the other, however deep it is.

Knows nothing of what is looked for. Invariants: the order is that of the paths' parts; no link is
followed; at most `OPEN_LIMIT` folders are open at a time, and nothing recurses; what is there but
cannot be opened is counted, never silently passed by. What is gone or has become a link
meanwhile is passed by like what was never there.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dispatch.errors import ToolError
from dispatch.render import preview
from dispatch.toolkit.content import open_in
from dispatch.toolkit.paths import DIRECTORY, PATH_LIMIT, Folder

OPEN_LIMIT = 16
"""Folders; one further up is opened again, from the root, when the walk comes back to it."""

SHOWN = 3
SKIPPED_FOLDERS = frozenset({".git"})
ABSENT = frozenset({errno.ENOENT, errno.ELOOP, errno.ENOTDIR})


@dataclass(slots=True)
class _Level:
    """A folder on the way down: its path below the top, and what is still to do in it."""

    below: str
    descriptor: int
    pending: list[tuple[str, bool]]

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(slots=True)
class Walk:
    """One walk over the regular files at or below `top`, a resolved path of the folder.

    `picks` is asked for a file's path below the top, and `enters` for a folder's, which ends in a
    slash; `check` is called before every entry and may raise to stop the walk.
    """

    folder: Folder
    top: Path
    picks: Callable[[str], bool]
    check: Callable[[], object]
    enters: Callable[[str], bool] = lambda _: True
    _levels: list[_Level] = field(default_factory=list)
    _missed: dict[str, list[str]] = field(default_factory=lambda: {"folders": [], "files": []})

    def files(self) -> Iterator[tuple[str, BinaryIO]]:
        """Open the files with their paths for people. Raises `OSError` for the top only."""
        if not os.path.isdir(self.top):  # noqa: PTH112 - never raises, unlike pathlib's
            yield from self._single()
            return
        with contextlib.closing(self._picked()) as picked:
            for level, name in picked:
                below = level.below + name
                try:
                    file = open_in(level.descriptor, name)
                except OSError as error:
                    self._miss("files", below, error)
                    continue
                if file is not None:
                    with file:
                        yield self._shown(below), file

    def paths(self) -> Generator[str]:
        """Tell the paths for people and open none. Raises `OSError` if the top is no folder."""
        with contextlib.closing(self._picked()) as picked:
            for level, name in picked:
                yield self._shown(level.below + name)

    def notes(self) -> list[str]:
        """Say what could not be opened, for the model."""
        return [
            f"[{len(missed):,} {kind} could not be opened and were not searched:"
            f" {', '.join([*map(preview, missed[:SHOWN]), *['…'] * (len(missed) > SHOWN)])}]"
            for kind, missed in self._missed.items()
            if missed
        ]

    def _single(self) -> Iterator[tuple[str, BinaryIO]]:
        self.check()
        with self.folder.directory(self.top.parent) as directory:
            file = open_in(directory, self.top.name)
        shown = self.folder.shown(self.top)
        if file is None:
            raise ToolError(f"{preview(shown)} is not a regular file, so it cannot be searched")
        with file:
            if self.picks(self.top.name):
                yield shown, file

    def _picked(self) -> Generator[tuple[_Level, str]]:
        """Walk to the files, each in a folder that is open until the next is asked for."""
        try:
            self._levels.append(_listed("", self._opened("")))
            while self._levels:
                self.check()
                level = self._levels[-1]
                if (name := self._next(level)) is not None:
                    yield level, name
        finally:
            for level in self._levels:
                level.close()

    def _next(self, level: _Level) -> str | None:
        """Do the next thing in a folder, which may be to leave it; return a file that is picked."""
        if not level.pending:
            level.close()
            self._levels.pop()
            return None
        if level.descriptor < 0 and not self._reopen(level):
            return None
        name, is_folder = level.pending.pop()
        below = level.below + name
        if not is_folder:
            return name if self.picks(below) else None
        if self.enters(below + "/"):
            try:
                self._enter(level, name, below + "/")
            except OSError as error:
                self._miss("folders", below, error)
        return None

    def _enter(self, level: _Level, name: str, below: str) -> None:
        if len(os.fsencode(self.top)) + len(os.fsencode(below)) >= PATH_LIMIT:
            raise OSError(errno.ENAMETOOLONG, "the path is too long")
        self._levels.append(_listed(below, os.open(name, DIRECTORY, dir_fd=level.descriptor)))
        if len(self._levels) > OPEN_LIMIT:
            self._levels[-OPEN_LIMIT - 1].close()

    def _reopen(self, level: _Level) -> bool:
        try:
            level.descriptor = self._opened(level.below)
        except OSError as error:
            level.pending.clear()
            self._miss("folders", level.below.rstrip("/"), error)
            return False
        return True

    def _shown(self, below: str) -> str:
        return below if self.top == self.folder.root else f"{self.folder.shown(self.top)}/{below}"

    def _opened(self, below: str) -> int:
        with self.folder.directory(self.top / below) as directory:
            return os.dup(directory)

    def _miss(self, kind: str, below: str, error: OSError) -> None:
        if error.errno not in ABSENT:
            self._missed[kind].append(self.folder.shown(self.top / below))


def _listed(below: str, descriptor: int) -> _Level:
    """Take over an open folder and list what is in it, last name first."""
    try:
        with os.scandir(descriptor) as entries:
            found = [
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in entries
                if entry.is_file(follow_symlinks=False)
                or (entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED_FOLDERS)
            ]
    except BaseException:
        os.close(descriptor)
        raise
    return _Level(below, descriptor, sorted(found, reverse=True))
