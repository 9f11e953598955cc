"""Tells the person who waits that it goes on; on stderr, so that the table stays clean."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 2.0
"""Seconds between two dots. No thread prints them: it would run beside what is measured."""


@contextmanager
def progress(doing: str) -> Iterator[Callable[[], None]]:
    """Print what is being done and how long it took; what it gives is called at every step."""
    began = last = time.monotonic()

    def told() -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            say(".", end="")

    say(f"{doing} ", end="")
    try:
        yield told
    finally:
        say(f" {time.monotonic() - began:.0f} s")


def say(text: str, *, end: str = "\n") -> None:
    """Print it at once, between the dots."""
    print(text, end=end, file=sys.stderr, flush=True)
