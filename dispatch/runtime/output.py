"""What a process writes: all of it to a listener, its head and its tail kept in bounded memory."""

from __future__ import annotations

import codecs
from collections.abc import Callable

CHUNK = 64 * 1024


class Output:
    """What was written so far: the head and the tail of it, in bounded memory."""

    def __init__(self, limit: int, listener: Callable[[str], None] | None) -> None:
        self._tail_limit = max(0, limit) // 2
        self._head_limit = max(0, limit) - self._tail_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._listener = listener
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes, *, final: bool = False) -> None:
        """Take what was written; `final` if nothing follows."""
        self._total += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self._tail_limit + CHUNK:
            self._trim()
        if self._listener is not None and (text := self._decoder.decode(data, final)):
            self._listener(text)

    def say(self, line: str) -> None:
        """Tell the listener something that the process did not write."""
        if self._listener is not None:
            self._listener(f"\n[{line}]\n")

    def text(self) -> tuple[str, bool]:
        """Return the text, and whether something was left out of it."""
        self._trim()
        if self._total == len(self._head) + len(self._tail):
            return (self._head + self._tail).decode("utf-8", "replace"), False
        head, tail = _whole_characters(self._head, self._tail)
        left_out = self._total - len(head) - len(tail)
        shown = [part.decode("utf-8", "replace") for part in (head, tail)]
        return f"\n[{left_out:,} bytes left out here]\n".join(shown), True

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_limit)]


def _whole_characters(head: bytearray, tail: bytearray) -> tuple[bytes, bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(head)
    cut = len(decoder.getstate()[0])
    start = 0
    while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
        start += 1
    return bytes(head[: len(head) - cut]), bytes(tail[start:])
