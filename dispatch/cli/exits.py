"""How a command ends: its exit code, and output that a closed pipe does not turn into noise.

Owns the exit codes. Invariant: whatever a user can cause ends in one line on stderr, never in a
traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable

from dispatch.errors import DeclarationError, InputError

SATISFIED = 0
NOT_SATISFIED = 1
BAD_INPUT = 2
INTERRUPTED = 130


class OutputError(Exception):
    """Stdout cannot be written, for another reason than a reader who left."""


def guarded(command: Callable[[], int]) -> int:
    """Run `command` and return its exit code, with what may go wrong said in one line."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # whatever a model wrote can be shown
    try:
        return command()
    except (InputError, DeclarationError) as error:
        complain(str(error))
        return BAD_INPUT
    except OutputError as error:
        complain(f"cannot write the output: {error}")
        return NOT_SATISFIED
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED


def complain(text: str) -> None:
    """Say `text` on stderr, on one line."""
    try:
        print(f"dispatch: {' '.join(text.split())}", file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def write_out(lines: Iterable[str]) -> None:
    """Print the lines on stdout; a reader who has left (`| head`) ends the output silently."""
    try:
        for line in lines:
            print(line)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise OutputError(error.strerror or str(error)) from None


def _discard(stream: object) -> None:
    """Send what is still buffered nowhere, or the interpreter complains when it shuts down."""
    fileno = getattr(stream, "fileno", None)
    if fileno is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, fileno())
        os.close(nowhere)
