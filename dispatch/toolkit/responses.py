"""What the model is shown of an HTTP response.

Pure. Invariants: no more is unpacked or kept than is shown, however small the packed body was;
what is no text is named and not shown; whatever was left out is said; a status of 400 and above
is marked as a failure. All of it is a stranger's text.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Mapping

from dispatch.render import one_line

SNIFFED = 8192
HEADER_LIMIT = 500
"""Characters of one header that are shown."""

SHOWN_HEADERS = (
    *("content-type", "content-length", "content-encoding", "location", "last-modified", "etag"),
    *("retry-after", "allow", "link"),
)
CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]+)", re.IGNORECASE)
CHARSETS = ("utf", "iso", "ascii", "cp", "koi8", "shift", "euc", "gb", "big5")
"""How the names of the charsets begin that are used. Others can take quadratic time to decode."""

PACKED = frozenset({"gzip", "x-gzip", "deflate"})


class Body:
    """The beginning of a body, unpacked, as it comes in."""

    def __init__(self, limit: int, encoding: str) -> None:
        self._limit = limit
        self._data = bytearray()
        encoding = encoding.strip().lower()
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in PACKED else None
        self._is_readable = self._unpacker is not None or encoding in ("", "identity")
        self.is_full = not self._is_readable
        """Whether more of it would not be shown."""

    def take(self, chunk: bytes) -> None:
        """Take what came in, as much of it as can be shown."""
        room = self._limit + 1 - len(self._data)  # one more, to know that there is more
        try:
            self._data += self._unpacker.decompress(chunk, room) if self._unpacker else chunk[:room]
        except zlib.error:
            self._is_readable = False
        self.is_full = not self._is_readable or len(self._data) > self._limit

    def text(self, content_type: str) -> str:
        """Return it for people, with a note on what is missing."""
        if not self._is_readable:
            return "[the body is packed in a way that cannot be shown]"
        is_cut = len(self._data) > self._limit
        data = bytes(self._data[: self._limit])
        charset = _charset(content_type)
        if b"\0" in data[:SNIFFED] and not charset.startswith(("utf-16", "utf-32")):
            return f"[{'more than ' * is_cut}{len(data):,} bytes that are no text are not shown]"
        text = codecs.getincrementaldecoder(charset)("replace").decode(data, final=not is_cut)
        note = f"\n[only the first {self._limit:,} bytes are shown; ask for more with max_bytes]"
        return text + note * is_cut


def report(status: int, headers: Mapping[str, str], body: str, *, moved_to: str | None) -> str:
    """Return status, selected headers and body; `moved_to` is where redirects led, if anywhere."""
    lines = [_status_line(status)]
    if moved_to is not None:
        lines.append(f"redirected to {moved_to}")
    lines += [
        f"{name}: {one_line(headers[name], HEADER_LIMIT)}"
        for name in SHOWN_HEADERS
        if name in headers
    ]
    return "\n".join([*lines, "", body] if body else lines)


def _status_line(status: int) -> str:
    from http import HTTPStatus  # a package that whoever never fetches need not load

    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    return f"HTTP {status}{phrase}" + " [the request failed]" * (status >= 400)


def _charset(content_type: str) -> str:
    found = CHARSET.search(content_type)
    try:
        name = codecs.lookup(found[1]).name if found else "utf-8"
    except LookupError:
        return "utf-8"
    return name if name.startswith(CHARSETS) else "utf-8"
