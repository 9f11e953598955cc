"""`grep`: lines of text files below a folder that match a regular expression.

Owns the walk and the bounds on what is shown. The expressions are those of Rust's `regex`, which
pydantic brings along: they match in linear time, so no pattern, however it is nested, can hold
the interpreter's lock for long; look-around and back-references do not exist there. Invariants:
the order of the matches is the order of the paths' parts, then of the lines; links are not
followed, so nothing outside the folder is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic_core import SchemaError, SchemaValidator, core_schema

from dispatch.claims import read
from dispatch.errors import ToolError
from dispatch.render import preview
from dispatch.runtime.context import CallContext
from dispatch.tool import Tool, tool
from dispatch.toolkit.content import SNIFFED, open_in
from dispatch.toolkit.paths import DIRECTORY, Folder

MATCH_LIMIT = 200
LINE_LIMIT = 300
FILE_LIMIT = 8 * 1024 * 1024
SKIPPED_FOLDERS = frozenset({".git"})

Matches = Callable[[str], bool]
GLOB_TOKEN = re.compile(r"\*\*/|\*\*|\[[!^]?\]?[^\]]*\]|.", re.DOTALL)
GLOB_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


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
        search = _Search(pattern, glob, ignore_case)
        real = folder.resolve(path)
        try:
            for shown, file in _files(folder, real, search.picks):
                ctx.token.check()
                if search.is_full(shown, file):
                    break
        except OSError as error:
            raise ToolError(f"cannot search {preview(path)}: {error.strerror}") from error
        return search.report(path)

    return grep


class _Search:
    """What is looked for, and what was found so far."""

    def __init__(self, pattern: str, glob: str | None, ignore_case: bool) -> None:
        flags = "i" if ignore_case else ""
        self._pattern = pattern
        self._matches = _compiled(pattern, flags, "pattern")
        # One match over a whole text rules out most files at once. Not so where the pattern can
        # tell a line from a text.
        plain = not any(mark in pattern for mark in ("(?", r"\A", r"\z"))
        self._may_match = _compiled(pattern, flags + "m", "pattern") if plain else lambda _: True
        self._by_path = glob is not None and "/" in glob
        self._glob = None if glob is None else _compiled(_from_glob(glob), "s", "glob")
        self._found: list[str] = []
        self._notes: list[str] = []
        self._large = 0

    def picks(self, below: str) -> bool:
        """Tell whether the glob takes the file at this path below the searched one."""
        name = below if self._by_path else below.rpartition("/")[2]
        return self._glob is None or self._glob(name)

    def is_full(self, shown: str, file: BinaryIO) -> bool:
        """Take the matches of one file; return whether no more can be shown."""
        text = self._text(file)
        if text is None or not self._may_match(text):
            return False
        for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
            if text and self._matches(line):
                if len(self._found) == MATCH_LIMIT:
                    self._notes.append(f"[more than {MATCH_LIMIT} matches; narrow the search]")
                    return True
                self._found.append(f"{shown}:{number}:{_cut(line)}")
        return False

    def report(self, path: str) -> str:
        """Return all that was found, for the model."""
        if self._large:
            self._notes.append(
                f"[{self._large} files above {FILE_LIMIT:,} bytes were not searched]"
            )
        found = self._found or [f"no match for {preview(self._pattern)} in {preview(path)}"]
        return "\n".join(found + self._notes)

    def _text(self, file: BinaryIO) -> str | None:
        data = file.read(FILE_LIMIT + 1)
        if b"\0" in data[:SNIFFED]:
            return None
        if len(data) > FILE_LIMIT:
            self._large += 1
            return None
        return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _files(
    folder: Folder, real: Path, picks: Callable[[str], bool]
) -> Iterator[tuple[str, BinaryIO]]:
    """Open the regular files at or below `real` that can be read, one after the other."""
    if os.path.isdir(real):  # noqa: PTH112 - never raises, unlike pathlib's
        prefix = "" if real == folder.root else folder.shown(real) + "/"
        with folder.directory(real) as directory:
            for below, file in _walk(directory, "", picks):
                yield prefix + below, file
        return
    with folder.directory(real.parent) as directory:
        single = open_in(directory, real.name) if picks(real.name) else None
        if single is not None:
            with single:
                yield folder.shown(real), single


def _walk(
    directory: int, prefix: str, picks: Callable[[str], bool]
) -> Iterator[tuple[str, BinaryIO]]:
    with os.scandir(directory) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        below = prefix + entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in SKIPPED_FOLDERS:
                    yield from _walk_into(directory, entry.name, below, picks)
            elif entry.is_file(follow_symlinks=False) and picks(below):
                file = open_in(directory, entry.name)
                if file is not None:
                    with file:
                        yield below, file
        except OSError:
            continue  # gone meanwhile, or not ours to read: like a file that does not match


def _walk_into(
    directory: int, name: str, below: str, picks: Callable[[str], bool]
) -> Iterator[tuple[str, BinaryIO]]:
    inner = os.open(name, DIRECTORY, dir_fd=directory)
    try:
        yield from _walk(inner, below + "/", picks)
    finally:
        os.close(inner)


def _compiled(pattern: str, flags: str, what: str) -> Matches:
    expression = f"(?{flags}){pattern}" if flags else pattern
    schema = core_schema.str_schema(pattern=expression, regex_engine="rust-regex")
    try:
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].rpartition("SchemaError: ")[2]
        raise ToolError(
            f"the {what} {preview(pattern)} is no regular expression: {reason};"
            " a backslash makes a special character literal"
        ) from None


def _from_glob(glob: str) -> str:
    parts: list[str] = []
    depth = 0
    for piece in GLOB_TOKEN.findall(glob.removeprefix("./")):
        if piece in GLOB_PARTS:
            parts.append(GLOB_PARTS[piece])
        elif piece == "{":
            depth += 1
            parts.append("(?:")
        elif piece in ",}" and depth:
            depth -= piece == "}"
            parts.append("|" if piece == "," else ")")
        else:
            parts.append(_class(piece) if len(piece) > 1 else re.escape(piece))
    return f"^(?:{''.join(parts)})$"


def _class(token: str) -> str:
    negated = token[1] in "!^"
    body = re.sub(r"([\[\]\\&~^])", r"\\\1", token[2 if negated else 1 : -1])
    return f"[{'^' if negated else ''}{body}]"


def _cut(line: str) -> str:
    if len(line) <= LINE_LIMIT:
        return line
    return f"{line[:LINE_LIMIT]}… ({len(line):,} characters)"
