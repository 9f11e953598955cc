"""How a command ends: its exit code, and one line on stderr for whatever went wrong.

Owns the exit codes. Invariant: whatever a user can cause ends in one line on stderr, never in a
traceback.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import TextIO

from dispatch.cli.streams import UnbreakableStream
from dispatch.cli.wording import one_line
from dispatch.errors import DeclarationError, InputError

SATISFIED = 0
NOT_SATISFIED = 1
BAD_INPUT = 2
INTERRUPTED = 130


def guarded(command: Callable[[TextIO], int]) -> int:
    """Run `command` and return its exit code, with what may go wrong said in one line.

    It is given the stream for its results. What else is printed, by tools above all, goes to
    stderr from the very start.
    """
    out = sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return command(out)
    except (InputError, DeclarationError) as error:
        complain(str(error))
        return BAD_INPUT
    except OSError as error:  # a full disk, no place for temporary files, no descriptors left
        complain(str(error))
        return NOT_SATISFIED
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED


def complain(text: str) -> None:
    """Say `text` on stderr, on one line."""
    print(f"dispatch: {one_line(text)}", file=sys.stderr, flush=True)


def write_out(lines: Iterable[str], out: TextIO) -> None:
    """Print the lines on the stream for results."""
    for line in lines:
        print(line, file=out)
    out.flush()


def code_after_output(code: int, out: UnbreakableStream) -> int:
    """The exit code once all was written; a reader who has left (`| head`) is no failure."""
    out.flush()
    failure = out.failure
    if failure is None or isinstance(failure, BrokenPipeError):
        return code
    complain(f"cannot write the output: {getattr(failure, 'strerror', None) or failure}")
    return code or NOT_SATISFIED
