"""`grep`: lines of text files below a folder that match a regular expression.

Owns how a file is cut for matching and the bounds on what is shown. Invariants: the order of the
matches is the order of the paths' parts, then of the lines; no match looks at more than
`TEXT_LIMIT` bytes, and the token is looked at before each; links are not followed, so nothing
outside the folder is read; whatever was not searched is said.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from dispatch.claims import read
from dispatch.errors import ToolError
from dispatch.render import preview
from dispatch.runtime.context import CallContext
from dispatch.tool import Tool, tool
from dispatch.toolkit.content import SNIFFED
from dispatch.toolkit.paths import Folder
from dispatch.toolkit.patterns import TEXT_LIMIT, glob_pattern, line_patterns
from dispatch.toolkit.walk import Walk

MATCH_LIMIT = 200
LINE_LIMIT = 300
FILE_LIMIT = 8 * 1024 * 1024


def grep_tool(root: str | os.PathLike[str] | Folder) -> Tool:
    """Return `grep` over one folder that it cannot leave."""
    folder = root if isinstance(root, Folder) else Folder(root)

    @tool(
        resource_keys=lambda arguments: [read("file", folder.key_path(arguments["path"]))],
        idempotent=True,
    )
    def grep(
        pattern: str,
        ctx: CallContext,
        path: str = ".",
        glob: str | None = None,
        ignore_case: bool = False,
    ) -> str:
        """Search text files for a regular expression, line by line.

        `path` is a file or a folder. `glob` picks files by name (`*.py`) or, with a slash, by
        their path below `path` (`src/**/*.{ts,tsx}`). Look-around and back-references are not
        supported. Binary files, links and `.git` are skipped.
        """
        search = _Search(pattern, glob, ignore_case, ctx.token.check)
        walk = Walk(folder, folder.resolve(path), search.picks, ctx.token.check)
        try:
            for shown, file in walk.files():
                if search.is_full(shown, file):
                    break
        except OSError as error:
            raise ToolError(f"cannot search {preview(path)}: {error.strerror}") from error
        return "\n".join(search.report(path) + walk.notes())

    return grep


class _Search:
    """What is looked for, and what was found so far."""

    def __init__(
        self, pattern: str, glob: str | None, ignore_case: bool, check: Callable[[], object]
    ) -> None:
        self._pattern = pattern
        self._matches, self._may_match = line_patterns(pattern, ignore_case)
        self._by_path = glob is not None and "/" in glob
        self._glob = None if glob is None else glob_pattern(glob)
        self._check = check
        self._found: list[str] = []
        self._is_full = False
        self._large = self._long = 0

    def picks(self, below: str) -> bool:
        """Tell whether the glob takes the file at this path below the searched one."""
        name = below if self._by_path else below.rpartition("/")[2]
        return self._glob is None or self._glob(name)

    def is_full(self, shown: str, file: BinaryIO) -> bool:
        """Take the matches of one file; return whether no more can be shown."""
        first = 1
        for text, size in _pieces(self._data(file)):
            self._check()
            lines = text.removesuffix("\n").split("\n")
            self._long += size > 0
            if self._may_match(text):
                self._take(shown, first, lines, size)
            if self._is_full:
                return True
            first += len(lines)
        return False

    def report(self, path: str) -> list[str]:
        """Return all that was found, for the model, and what was not looked at."""
        report = self._found or [f"no match for {preview(self._pattern)} in {preview(path)}"]
        if self._is_full:
            report.append(f"[more than {MATCH_LIMIT} matches; narrow the search]")
        if self._large:
            report.append(f"[{self._large} files above {FILE_LIMIT:,} bytes were not searched]")
        if self._long:
            report.append(
                f"[{self._long:,} lines are longer than {TEXT_LIMIT:,} bytes; only their beginning"
                " was searched]"
            )
        return report

    def _take(self, shown: str, first: int, lines: list[str], size: int) -> None:
        for number, line in enumerate(lines, first):
            if self._matches(line) and not (size and self._is_by_cut(line)):
                if len(self._found) == MATCH_LIMIT:
                    self._is_full = True
                    return
                self._found.append(f"{shown}:{number}:{_cut(line, size)}")

    def _is_by_cut(self, line: str) -> bool:
        # What needs the end of the line, such as `;$`, does not find it where the line was cut.
        return not self._matches(line + "\n")

    def _data(self, file: BinaryIO) -> bytes:
        data = file.read(FILE_LIMIT + 1)
        if b"\0" in data[:SNIFFED]:
            return b""
        if len(data) > FILE_LIMIT:
            self._large += 1
            return b""
        return data


def _pieces(data: bytes) -> Iterator[tuple[str, int]]:
    """Cut a file into whole lines, as many as may be matched at once.

    A longer line comes alone: its beginning, with its length in bytes instead of 0.
    """
    start = 0
    while start < len(data):
        end = len(data)
        if end - start > TEXT_LIMIT:
            end = data.rfind(b"\n", start, start + TEXT_LIMIT + 1) + 1
        size = 0
        piece = data[start:end]
        if not end:
            end = data.find(b"\n", start) + 1 or len(data)
            size = end - start - data.endswith(b"\n", start, end)
            piece = _whole_characters(data[start : start + TEXT_LIMIT])
        yield piece.decode("utf-8", "replace").replace("\r\n", "\n"), size
        start = end


def _whole_characters(data: bytes) -> bytes:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return data[: len(data) - len(decoder.getstate()[0])]


def _cut(line: str, size: int) -> str:
    if size:
        return f"{line[:LINE_LIMIT]}… ({size:,} bytes)"
    if len(line) <= LINE_LIMIT:
        return line
    return f"{line[:LINE_LIMIT]}… ({len(line):,} characters)"
