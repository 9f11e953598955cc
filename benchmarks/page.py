"""The documentation's page about performance, made from the results alone.

The same results give the same text, so that a test can tell whether the page is theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pictures import pictures
from benchmarks.report import is_number
from benchmarks.standings import Results
from benchmarks.tables import Table, tables
from benchmarks.targets import PEER, targets

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"

TITLE = f"""\
# Performance

How close to the best possible a turn finishes, what `{PEER}` itself costs, and what others do with
the same work. All of this page is written by

```sh
make bench
```

which makes an environment with all peers first, and measures them side by side. Only ratios carry
over to another machine; the microseconds do not."""

HOW = """\
## How it is measured

- A *workload* is a list of calls with durations, the files and sessions that they touch, limits,
  and the moments at which they arrive. Nobody can finish it before its *lower bound*:
  the longest chain of conflicts, the work over each limit, the arrivals. It cannot always be
  reached.
- Every peer runs the same calls through its own public interface, with the best declaration that
  it offers. What it has no word for is named. Only the run is timed: tools and messages are ready.
- *Violations* are counted from when each call really ran and from the results that came back:
  conflicting calls that overlap or run in the wrong order, calls that run though a limit is used
  up, results that are missing or not in their place. Ratios of peers that broke the rules are
  marked, because they did not do the same work; that is how a ratio can be below 1.
- Every peer has a process of its own, so that what its package sets up does not slow the others.
  Runs are interleaved: each round runs every peer once, one after the other, each round with
  another one first. A round before the first warms up. Times are medians, violations the worst of
  the rounds.
- What lasts from turn to turn lasts here too, as far as a peer allows it: agents and graphs that
  can be run again are, and `dispatch` keeps its dispatcher, which learns in the round that warms up
  how long each tool takes. The order that this leads to matters only where slots are few.
- Most frameworks can also be told to run one call after the other, which breaks no rule: that is
  the row of the serial loop, and as slow.
- Each run has a fresh event loop. What is left on it is waited for, then cancelled and counted.
- A peer that raises, or takes more than a minute, has failed on that workload; the rest goes on."""


def page(results: Results) -> str:
    """The whole text."""
    return "\n\n".join(_parts(results)) + "\n"


def _parts(results: Results) -> Iterator[str]:
    yield TITLE
    yield _reached(results)
    for table in tables(results):
        yield f"## {table.title}"
        yield markdown(table)
        yield from map(_escaped, table.notes)
    if shown := pictures(results):
        yield "## Charts"
        yield from (f"![{one.about}](performance/{name}.png)" for name, one in shown.items())
    yield HOW
    yield "## On what"
    yield "\n".join(_on_what(results))


def _reached(results: Results) -> str:
    """How many targets are met, in a sentence."""
    verdicts = Counter(target.verdict for target in targets(results))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    return f"Of the {verdicts.total()} targets: {counts}."


def _on_what(results: Results) -> Iterator[str]:
    for name, value in (results.get("machine") or {}).items():
        yield f"- {name}: {value}"
    for name, when in (results.get("sections") or {}).items():
        yield f"- measured, {name}: {when}"
    for name, version in (results.get("versions") or {}).items():
        yield f"- `{name}` {version or 'is not installed'}"


def markdown(table: Table) -> str:
    """A table in Markdown, figures to the right."""
    sides = ["---:" if is_number(table, column) else "---" for column in range(len(table.header))]
    rows = [table.header, tuple(sides), *(tuple(map(_escaped, row)) for row in table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _escaped(text: str) -> str:
    """A text that means itself in Markdown."""
    return "".join(f"\\{sign}" if sign in "\\*_|<`[" else sign for sign in text)
