"""`read_file`, `write_file`, `edit_file`: the files of one folder, as tools.

Owns what the model is told. Every claim is an absolute path, so the tools are right whatever the
dispatcher's root is. All are plain `def`: they do blocking I/O and run in worker threads.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

from dispatch.claims import Claim, read, write
from dispatch.errors import ToolError
from dispatch.render import preview
from dispatch.runtime.context import CallContext
from dispatch.tool import Tool, tool
from dispatch.toolkit.content import opened, replace
from dispatch.toolkit.edits import edited
from dispatch.toolkit.paths import Folder

READ_LIMIT = 256 * 1024
"""Bytes of a file that one `read_file` shows."""

EDIT_LIMIT = 16 * 1024 * 1024
"""Bytes of a file that `edit_file` takes."""

CHECKED = 1024 * 1024
"""Bytes that are read before the token is looked at again."""


def file_tools(root: str | os.PathLike[str] | Folder) -> list[Tool]:
    """Return `read_file`, `write_file` and `edit_file` over one folder that they cannot leave."""
    folder = root if isinstance(root, Folder) else Folder(root)
    reads = _claiming(folder, read)
    writes = _claiming(folder, write)

    @tool(resource_keys=reads, idempotent=True)
    def read_file(
        path: str, ctx: CallContext, start: int | None = None, end: int | None = None
    ) -> str:
        """Read a text file. `start` and `end` are line numbers: from 1, both included."""
        first, last = _checked_lines(start, end)
        with opened(folder, path) as file:
            return _lines(file, path, first, last, ctx.token.check)

    @tool(resource_keys=writes, idempotent=True)
    def write_file(path: str, content: str, ctx: CallContext) -> str:
        """Write a whole text file; replaces what was there and makes missing folders."""
        data = _encoded(content, "content")
        created = replace(folder, path, data, check=ctx.token.check)
        return f"{'created' if created else 'replaced'} {path} ({len(data):,} bytes)"

    @tool(resource_keys=writes)
    def edit_file(path: str, old: str, new: str, ctx: CallContext) -> str:
        """Replace one passage of a text file. `old` must be exact and occur exactly once."""
        with opened(folder, path) as file:
            seen = os.fstat(file.fileno())
            if seen.st_size > EDIT_LIMIT:
                raise ToolError(f"{preview(path)} is above {EDIT_LIMIT:,} bytes, too large to edit")
            text = _decoded(file.read(EDIT_LIMIT), path)
        text, line = edited(text, old, new, path)
        replace(folder, path, _encoded(text, "new"), check=ctx.token.check, seen=seen)
        return f"edited {path} at line {line}"

    return [read_file, write_file, edit_file]


def _claiming(
    folder: Folder, mode: Callable[..., Claim]
) -> Callable[[Mapping[str, Any]], Iterable[Claim]]:
    return lambda arguments: [mode("file", folder.key_path(arguments["path"]))]


def _checked_lines(start: int | None, end: int | None) -> tuple[int, int | None]:
    first = 1 if start is None else start
    if first < 1 or (end is not None and end < first):
        raise ToolError(
            f"start={start} and end={end} name no lines: lines count from 1, and end is not"
            " before start"
        )
    return first, end


def _lines(
    file: BinaryIO, path: str, first: int, last: int | None, check: Callable[[], object]
) -> str:
    """Return the lines as they are, or as many as the limit allows with a note on how to go on."""
    kept = bytearray()
    line = 1
    unchecked = 0
    # A piece is a line, or a part of one that is longer than the limit: memory stays bounded.
    for piece in iter(lambda: file.readline(READ_LIMIT), b""):
        unchecked += len(piece)
        if unchecked > CHECKED:
            check()
            unchecked = 0
        if line >= first:
            if len(kept) + len(piece) > READ_LIMIT:
                return _cut(bytes(kept), line)
            kept += piece
        line += piece.endswith(b"\n")
        if last is not None and line > last:
            break
    if not kept and first > 1:
        raise ToolError(f"{preview(path)} ends before line {first}; leave start out to see it")
    return _shown(bytes(kept))


def _cut(kept: bytes, line: int) -> str:
    if kept.endswith(b"\n"):
        return f"{_shown(kept)}[the lines before {line} are shown; read on with start={line}]"
    whole = codecs.getincrementaldecoder("utf-8")("replace").decode(kept)
    return f"{whole}\n[line {line} is longer than {READ_LIMIT:,} bytes; the rest is left out]"


def _shown(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        note = "[some bytes are not UTF-8 and are shown as \ufffd]"
        return f"{data.decode('utf-8', 'replace')}\n{note}"


def _decoded(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{preview(path)} is not UTF-8 (byte {error.start} is 0x{data[error.start]:02x}),"
            " so an edit could damage it"
        ) from error


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(
            f"{what} has half a character (a lone surrogate), which no file can hold"
        ) from error
