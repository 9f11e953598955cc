"""The standard streams of a command: stdout is for its results, stderr for everything else.

Invariants: what is written to a stream of ours never raises, whatever became of its other end, so
that progress and complaints cannot cost results; results are written to a copy of stdout that
nobody else knows, so that neither a print nor a child process of a tool gets between them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, TextIO, cast

STDIN, STDOUT, STDERR = 0, 1, 2


class UnbreakableStream:
    """A stream that drops what cannot be written; `failure` is the first reason."""

    def __init__(
        self, stream: TextIO | BinaryIO, failed: Callable[[Exception], None] | None = None
    ) -> None:
        self._stream: Any = stream
        self._failed = failed or self._keep
        self.failure: Exception | None = None

    @property
    def buffer(self) -> UnbreakableStream:
        """The bytes below the text, as unbreakable."""
        return UnbreakableStream(self._stream.buffer, self._failed)

    def write(self, text: str | bytes) -> int:
        """Write `text` if that is possible."""
        try:
            return int(self._stream.write(text))
        except (OSError, ValueError) as error:  # a ValueError: somebody closed it
            self._failed(error)
            self._drop_rest()
            return len(text)
        except KeyboardInterrupt:  # nobody reads, and somebody lost the patience
            self._drop_rest()
            raise

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of `lines`."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is buffered, or drop it."""
        try:
            self._stream.flush()
        except (OSError, ValueError) as error:
            self._failed(error)
            self._drop_rest()
        except KeyboardInterrupt:
            self._drop_rest()
            raise

    def close(self) -> None:
        """Flush only: the stream is the command's, whatever a tool does with it."""
        self.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _keep(self, failure: Exception) -> None:
        self.failure = self.failure or failure

    def _drop_rest(self) -> None:
        """Send the rest nowhere, or the interpreter stumbles over it when it shuts down."""
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            self._stream.flush()


@contextlib.contextmanager
def standard_streams() -> Iterator[UnbreakableStream]:
    """Make `sys.stdout` the results' stream and `sys.stderr` unbreakable; yield the former."""
    _open_what_is_closed()
    before = sys.stdout, sys.stderr
    err = UnbreakableStream(_prepared(sys.stderr, STDERR))
    with _results(_prepared(sys.stdout, STDOUT)) as out:
        sys.stdout, sys.stderr = cast("TextIO", out), cast("TextIO", err)
        try:
            yield out
        finally:
            out.flush()
            err.flush()
            sys.stdout, sys.stderr = before


@contextlib.contextmanager
def _results(stream: TextIO) -> Iterator[UnbreakableStream]:
    """A stream to where `stream` leads, while file descriptor 1 itself leads to stderr."""
    rest = UnbreakableStream(stream)
    if _number(stream) != STDOUT:  # replaced by whoever called us in this process
        yield rest
        return
    rest.flush()
    copy = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    with open(copy, "w", encoding=stream.encoding, errors="backslashreplace") as file:  # noqa: PTH123 - a descriptor
        out = UnbreakableStream(file)
        try:
            yield out
        finally:
            out.flush()
            rest.flush()  # what was printed behind our back, before 1 is stdout again
            os.dup2(copy, STDOUT)


def _open_what_is_closed() -> None:
    """Let no file that is opened later get the number of a standard stream."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(number, True)
    os.close(number)


def _prepared(stream: TextIO | None, number: int) -> TextIO:
    """`stream`, able to show whatever a model wrote; where it was closed, one that drops all."""
    if stream is None:
        return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _number(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
