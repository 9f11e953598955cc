"""`list_directory` and `glob`: what is in a folder, without reading any of it.

Owns what the model is told of names. Invariants: the order is that of names, and for `glob` that
of the paths' parts; what is shown, kept in memory and walked through is bounded, and whatever was
left out is said; the token is looked at before every entry; a link is shown and never followed.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass

from dispatch.claims import read
from dispatch.errors import ToolError
from dispatch.render import one_line, preview
from dispatch.runtime.context import CallContext
from dispatch.tool import Tool, tool
from dispatch.toolkit.paths import PATH_LIMIT, Folder
from dispatch.toolkit.patterns import glob_pattern
from dispatch.toolkit.walk import Walk

ENTRY_LIMIT = 1000
"""Entries that one `list_directory` shows."""

PATH_COUNT_LIMIT = 1000
"""Paths that one `glob` shows."""

VISIT_LIMIT = 200_000
"""Files and folders that one `glob` looks at."""

WILDCARD = re.compile(r"[*?\[{]")
KINDS = {stat.S_IFLNK: "link", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}


def list_directory_tool(root: str | os.PathLike[str] | Folder) -> Tool:
    """Return `list_directory` over one folder that it cannot leave."""
    folder = root if isinstance(root, Folder) else Folder(root)

    @tool(
        resource_keys=lambda arguments: [read("file", folder.key_path(arguments["path"]))],
        idempotent=True,
    )
    def list_directory(ctx: CallContext, path: str = ".", after: str = "") -> str:
        """List one folder, hidden entries included, sorted by name.

        Folders end in `/`; files have their size in bytes; links are not followed. `after` goes
        on behind that name in a folder with too many entries for one list.
        """
        listing = _listing(folder, path, after, ctx.token.check)
        return "\n".join(listing.report(path))

    return list_directory


def glob_tool(root: str | os.PathLike[str] | Folder) -> Tool:
    """Return `glob` over one folder that it cannot leave."""
    folder = root if isinstance(root, Folder) else Folder(root)

    @tool(
        resource_keys=lambda arguments: [read("file", folder.key_path(arguments["path"]))],
        idempotent=True,
    )
    def glob(pattern: str, ctx: CallContext, path: str = ".") -> str:
        """Find files by their path below `path`, such as `src/**/*.{ts,tsx}`; sorted.

        `*` stays within one folder and `**` does not: `*.py` is in `path` itself, `**/*.py`
        anywhere below. Links and `.git` are skipped.
        """
        search = _Glob(pattern)
        walk = Walk(folder, folder.resolve(path), search.picks, ctx.token.check, search.enters)
        try:
            search.take(walk)
        except OSError as error:
            raise _refusal(folder, path, error) from error
        return "\n".join(search.report(path) + walk.notes())

    return glob


@dataclass(slots=True)
class _Listing:
    """The first entries of a folder behind a name, for people, and how many more there are."""

    lines: list[str]
    last: str
    after: str
    more: int

    def report(self, path: str) -> list[str]:
        if not self.lines:
            behind = f" behind {preview(self.after)}" if self.after else ""
            return [f"no entries in {preview(path)}{behind}"]
        if not self.more:
            return self.lines
        return [*self.lines, f"[{self.more:,} more entries; go on with after={self.last!r}]"]


def _listing(folder: Folder, path: str, after: str, check: Callable[[], object]) -> _Listing:
    count = 0

    def counted(entry: os.DirEntry[str]) -> bool:
        nonlocal count
        check()
        count += entry.name > after
        return entry.name > after

    real = folder.resolve(path)
    try:
        with folder.directory(real) as directory, os.scandir(directory) as entries:
            # Keeps no more than it shows, however many entries there are.
            kept = heapq.nsmallest(ENTRY_LIMIT, filter(counted, entries), key=lambda e: e.name)
            lines = [line for entry in kept if (line := _line(entry))]
    except OSError as error:
        raise _refusal(folder, path, error) from error
    return _Listing(lines, kept[-1].name if kept else "", after, count - len(kept))


def _line(entry: os.DirEntry[str]) -> str | None:
    """Return an entry for people; None for one that is gone meanwhile."""
    name = one_line(entry.name, PATH_LIMIT)
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError:
        return f"{name} (unknown)"
    if stat.S_ISDIR(found.st_mode):
        return f"{name}/"
    if stat.S_ISREG(found.st_mode):
        return f"{name} ({found.st_size:,} bytes)"
    return f"{name} ({KINDS.get(stat.S_IFMT(found.st_mode), 'device')})"


class _Glob:
    """What is looked for, and what was found so far."""

    def __init__(self, pattern: str) -> None:
        pattern = pattern.removeprefix("./")
        if not pattern or pattern.startswith("/") or ".." in pattern.split("/"):
            raise ToolError(
                f"the pattern {preview(pattern)} must name paths below `path`, such as '**/*.py';"
                " it can be neither empty nor absolute, and has no '..'"
            )
        self._pattern = pattern
        self._matches = glob_pattern(pattern)
        wildcard = WILDCARD.search(pattern)
        literal = pattern[: wildcard.start()] if wildcard else pattern
        self._inside = literal[: literal.rfind("/") + 1]
        self._found: list[str] = []
        self._visited = 0
        self._is_cut = False

    def picks(self, below: str) -> bool:
        """Tell whether the pattern takes the file at this path below the searched folder."""
        self._visited += 1
        return self._matches(below)

    def enters(self, below: str) -> bool:
        """Tell whether a file can match in the folder at this path, which ends in a slash."""
        self._visited += 1
        if self._visited >= VISIT_LIMIT:
            return False
        return below.startswith(self._inside) or self._inside.startswith(below)

    def take(self, walk: Walk) -> None:
        """Take the paths of one walk, as many as can be shown."""
        with contextlib.closing(walk.paths()) as paths:
            for shown in paths:
                self._is_cut = len(self._found) == PATH_COUNT_LIMIT
                if self._is_cut:
                    return
                self._found.append(one_line(shown, PATH_LIMIT))

    def report(self, path: str) -> list[str]:
        """Return all that was found, for the model, and what was not looked at."""
        report = self._found or [f"no file matches {preview(self._pattern)} in {preview(path)}"]
        if not self._found and "/" not in self._pattern:
            report.append("[this looked in the folder itself only; begin with **/ for all below]")
        if self._is_cut:
            report.append(f"[more than {PATH_COUNT_LIMIT:,} files; narrow the pattern or path]")
        if self._visited >= VISIT_LIMIT:
            report.append(
                f"[stopped after {VISIT_LIMIT:,} files and folders; narrow the pattern or path to"
                " see the rest]"
            )
        return report


def _refusal(folder: Folder, path: str, error: OSError) -> ToolError:
    """Say what the system refused in the model's terms: its path, and none of ours."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if os.path.lexists(folder.resolve(path)):
            return ToolError(f"{preview(path)} is a file, not a folder")
        return ToolError(f"no folder {preview(path)}; list the one above to see what is there")
    return ToolError(f"cannot list {preview(path)}: {error.strerror}")
