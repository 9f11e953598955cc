"""`python -m benchmarks.check`: whether the hot paths do more than was recorded of them.

Counts, no times, so it says the same on every machine. Exit 1 if a count went up by more than 2 %;
`--record` writes down what is counted now, for the Python that runs it. Names of paths as arguments
choose some. What is counted, and how, is in `benchmarks.counting`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as File

from benchmarks.counting import FEW, PATHS, Counts, counted

RECORDED = File(__file__).with_name("counts.json")
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
MORE = 0.02
LESS = 0.05
RECORD = "python -m benchmarks.check --record"
Table = Mapping[str, Counts]
"""By path: its counts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Count and compare, or record; the status to exit with."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write down what is counted now")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these; all by default")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.paths if name not in PATHS]
    if unknown:
        parser.error(f"no path is named {unknown[0]!r}; there are: {'; '.join(PATHS)}")
    now = {name: counted(PATHS[name]) for name in options.paths or PATHS}
    if options.record:
        record(now, whole=not options.paths)
        print(f"recorded {len(now)} paths for Python {VERSION} in {RECORDED.name}")
        return 0
    then = recorded(VERSION)
    print("\n".join(table(then, now)))
    if not then:
        print(f"\nnothing is recorded for Python {VERSION}; record it: {RECORD}")
        return 1
    broken = [*risen(then, now), *unrecorded(then, now)]
    print("".join(f"\n{sentence}" for sentence in [*broken, *fallen(then, now)]))
    print(f"{'more than' if broken else 'no more than'} was recorded for Python {VERSION}")
    return 1 if broken else 0


def recorded(version: str) -> dict[str, Counts]:
    """What was recorded for this minor version of Python; nothing if nothing was."""
    versions: dict[str, dict[str, Counts]] = (
        json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    )
    return versions.get(version, {})


def record(now: Table, *, whole: bool) -> None:
    """Write these counts down: in place of all of this version, or of these paths only."""
    versions = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    kept = {} if whole else versions.get(VERSION, {})
    versions[VERSION] = {**kept, **now}
    in_order = dict(sorted(versions.items(), key=lambda item: int(item[0].partition(".")[2])))
    RECORDED.write_text(json.dumps(in_order, indent=2) + "\n")


def risen(then: Table, now: Table) -> Iterator[str]:
    """A sentence for each count that went up."""
    for name, what, before, after in _changes(then, now):
        if after > before * (1 + MORE):
            yield (
                f"{name}: {what} went up from {before:,} to {after:,} ({_change(before, after)})."
                f" Take out what added them; or if it is worth that, record it: {RECORD}"
            )


def fallen(then: Table, now: Table) -> Iterator[str]:
    """A sentence for each count that went down by so much that the record guards it no more."""
    for name, what, before, after in _changes(then, now):
        if after < before * (1 - LESS):
            yield (
                f"{name}: {what} went down from {before:,} to {after:,}"
                f" ({_change(before, after)}); record it, so that it stays there: {RECORD}"
            )


def unrecorded(then: Table, now: Table) -> Iterator[str]:
    """A sentence for each path that was never recorded."""
    for name in now:
        if name not in then:
            yield f"{name}: nothing is recorded; record it: {RECORD}"


def table(then: Table, now: Table) -> Iterator[str]:
    """A line a path: each count, and by how much it differs from the record."""
    wide = max(map(len, now))
    kinds = list(next(iter(now.values())))
    yield "  ".join([" " * wide, *(f"{kind:>20}" for kind in kinds)])
    for name, counts in now.items():
        before = then.get(name, {})
        cells = (f"{counts[kind]:,} {_change(before.get(kind), counts[kind])}" for kind in kinds)
        yield "  ".join([f"{name:{wide}}", *(f"{cell.rstrip():>20}" for cell in cells)])
    yield f"instructions are those of a turn of {FEW} such calls at most"


def _changes(then: Table, now: Table) -> Iterator[tuple[str, str, int, int]]:
    for name, counts in now.items():
        for what, after in counts.items():
            before = then.get(name, {}).get(what)
            if before is not None:
                yield name, what, before, after


def _change(before: int | None, after: int) -> str:
    if before is None or before == after:
        return ""
    return f"{100 * (after - before) / before:+.1f} %" if before else "was 0"


if __name__ == "__main__":
    sys.exit(main())
