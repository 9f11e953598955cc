"""The whole campaign: every part, dealt out to a few processes, and what came of it.

The totals do not depend on how many processes there are. An interrupt ends all of them at once.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from types import FrameType
from typing import TextIO, TypeVar

from tests.exhaustive.explore import Exploration, Explored, Violation
from tests.exhaustive.parts import Part, parts
from tests.exhaustive.setups import Setup

T = TypeVar("T")
R = TypeVar("R")
LARGEST = 4
EVERY = 2.0
"""Seconds between two words about the progress."""


@dataclass(slots=True)
class Totals:
    """Counts of one part, or of all."""

    turns: int = 0
    shapes: int = 0
    states: int = 0
    events: int = 0
    found: list[tuple[Setup, Violation]] = field(default_factory=list)

    def add(self, setup: Setup, explored: Explored) -> None:
        """Count one setup in."""
        self.shapes += 1
        self.states += explored.states
        self.events += explored.events
        if explored.violation is not None:
            self.found.append((setup, explored.violation))

    def __str__(self) -> str:
        return (
            f"turns={self.turns} shapes={self.shapes} states={self.states}"
            f" events={self.events} violations={len(self.found)}"
        )


def explore(setup: Setup) -> Explored:
    """Everything one setup can do; what the workers run."""
    return Exploration(setup).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one line per part and the totals; 1 if any rule was broken, with the shortest trace."""
    asked = _asked(arguments)
    chosen = [part for part in parts(asked.calls) if asked.part in (None, part.name)]
    if not chosen:
        _say(f"no part {asked.part!r}", to=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _interrupt)
    total = Totals()
    try:
        with multiprocessing.get_context("spawn").Pool(asked.jobs, _ignore_interrupts) as pool:
            for part, counts in _explored(chosen, pool):
                _say(f"{part.name}: {counts}")
                total.turns += counts.turns
                total.shapes += counts.shapes
                total.states += counts.states
                total.events += counts.events
                total.found += counts.found
    except AssertionError as error:  # while the shapes were found out
        _say(f"{error}\nturns=0 states=0 violations=1")
        return 1
    except KeyboardInterrupt:
        _say("interrupted", to=sys.stderr)
        return 130
    if total.found:
        _tell(*min(total.found, key=lambda found: len(found[1].trace)))
    _say(f"turns={total.turns} states={total.states} violations={len(total.found)}")
    return int(bool(total.found))


def _explored(chosen: Sequence[Part], pool: Pool) -> Iterator[tuple[Part, Totals]]:
    """The counts of each part, in order; the setups of all parts are dealt out as workers ask."""
    laid_out = [
        (part, *found)
        for part, found in zip(
            chosen, _awaited(pool, _lay_out, [part.name for part in chosen]), strict=True
        )
    ]
    results = _awaited(pool, explore, [setup for _, setups, _ in laid_out for setup in setups])
    for part, setups, turns in laid_out:
        counts = Totals(turns=turns)
        for setup in setups:
            counts.add(setup, next(results))
        yield part, counts


def _awaited(pool: Pool, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """The results in order, with a word on stderr every few seconds."""
    results = pool.imap(work, items)
    began = said = time.monotonic()
    for number in range(len(items)):
        while True:
            if time.monotonic() - said >= EVERY:
                said = time.monotonic()
                _say(f"{number}/{len(items)} after {said - began:.0f} s", to=sys.stderr)
            with contextlib.suppress(multiprocessing.TimeoutError):
                yield results.next(timeout=EVERY / 2)
                break


def _say(line: str, to: TextIO | None = None) -> None:
    stream = to or sys.stdout
    stream.write(f"{line}\n")
    stream.flush()


def _lay_out(name: str) -> tuple[list[Setup], int]:
    return next(part for part in parts(LARGEST) if part.name == name).setups()


def _asked(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.exhaustive", description="Explores every interleaving."
    )
    parser.add_argument("--calls", type=int, default=LARGEST, help="calls of the largest turn (4)")
    parser.add_argument("--part", help="only the part with this name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args(arguments)


def _tell(setup: Setup, violation: Violation) -> None:
    """Print what was explored, the shortest way to the fault, and the fault."""
    for number, turn in enumerate(setup.turns):
        _say(f"turn {number}: {turn}")
    for kind, number in violation.trace:
        _say(f"  {kind} {number}")
    for fault in violation.faults:
        _say(f"  -> {fault[:2000]}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _ignore_interrupts() -> None:
    """Of a worker: an interrupt is the first process's to handle; it takes its workers along."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
