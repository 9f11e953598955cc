"""The results as plain text, at most 120 columns wide."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.standings import Results
from benchmarks.tables import Table, tables

WIDTH = 120
GAP = "  "
NUMBER = re.compile(r"([≤≥] )?[\d,.]+\*?( (of \d+|µs|ms|x))?|-|·|failed|")


def report(results: Results) -> str:
    """All tables but the long ones."""
    shown = [text(table) for table in tables(results) if not table.is_detail]
    return "\n\n".join(["\n".join(about(results)), *shown])


def about(results: Results) -> Iterator[str]:
    """On what, and with which versions, it was measured."""
    machine = ", ".join(f"{name} {value}" for name, value in (results.get("machine") or {}).items())
    yield from textwrap.wrap(machine, WIDTH)
    versions = (results.get("versions") or {}).items()
    named = ", ".join(f"{name} {value or 'not installed'}" for name, value in versions)
    yield from textwrap.wrap(named, WIDTH)


def text(table: Table) -> str:
    """A table in aligned columns, in several parts if it has too many of them."""
    lines = [table.title, "-" * len(table.title)]
    for number, part in enumerate(parts(table)):
        lines += [""] if number else []
        lines += _rows(part)
    for note in table.notes:
        lines += textwrap.wrap(note, WIDTH)
    return "\n".join(lines)


def parts(table: Table) -> list[Table]:
    """The table, or its halves, each with the first column, until all of them fit."""
    widths = _widths(table)
    if len(widths) < 3 or sum(widths) + len(GAP) * (len(widths) - 1) <= WIDTH:
        return [table]
    half = len(widths) // 2 + 1
    rows = (table.header, *table.rows)
    left, right = [row[:half] for row in rows], [(row[0], *row[half:]) for row in rows]
    return [
        part
        for header, *rest in (left, right)
        for part in parts(replace(table, header=header, rows=rest))
    ]


def _rows(table: Table) -> Iterator[str]:
    widths = _widths(table)
    for row in (table.header, *table.rows):
        if any(row):
            yield from _lines(row, widths, table)


def _widths(table: Table) -> list[int]:
    """What the columns take; texts in the last one are wrapped to what is left."""
    columns = zip(table.header, *table.rows, strict=True)
    *widths, last = [max(map(len, column)) for column in columns]
    left = WIDTH - sum(widths) - len(GAP) * len(widths)
    is_text = not is_number(table, len(widths))
    return [*widths, min(last, max(20, left)) if is_text else last]


def _lines(row: Sequence[str], widths: Sequence[int], table: Table) -> Iterator[str]:
    """The lines of a row: more than one only where the last column is wrapped."""
    wrapped = textwrap.wrap(row[-1], widths[-1]) or [""]
    cells = [*row[:-1], wrapped[0]]
    yield GAP.join(
        f"{cell:>{width}}" if is_number(table, column) else f"{cell:<{width}}"
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()
    indent = " " * (sum(widths[:-1]) + len(GAP) * (len(widths) - 1))
    yield from (indent + line for line in wrapped[1:])


def is_number(table: Table, column: int) -> bool:
    """Whether a column is to be aligned to the right: it has figures, or nothing, in every row."""
    return all(NUMBER.fullmatch(row[column]) for row in table.rows)
