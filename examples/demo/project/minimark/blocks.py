"""A page cut into blocks: headings, code, lists, quotes, paragraphs."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

HEADING = re.compile(r"(#+)\s+(.*?)\s*#*$")
ITEM = re.compile(r"[-*]\s+(.*)$")


@dataclass(frozen=True)
class Block:
    """One block. `kind` is heading, code, bullets, quote or paragraph."""

    kind: str
    lines: tuple[str, ...]
    level: int = 0


def blocks(text: str) -> list[Block]:
    """The blocks of a page in order."""
    return list(_blocks(text.splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.startswith("```"):
            end = _end_of_code(lines, at + 1)
            yield Block("code", tuple(line.strip() for line in lines[at + 1 : end]))
            at = end + 1
        elif heading := HEADING.match(line):
            yield Block("heading", (heading[2],), level=len(heading[1]))
            at += 1
        else:
            kind = _kind(line)
            end = at + 1
            while end < len(lines) and lines[end].strip() and _kind(lines[end]) == kind:
                end += 1
            yield Block(kind, tuple(_stripped(kind, line) for line in lines[at:end]))
            at = end


def _end_of_code(lines: list[str], start: int) -> int:
    for at in range(start, len(lines)):
        if lines[at].startswith("```"):
            return at
    return start


def _kind(line: str) -> str:
    if line.startswith("```"):
        return "code"
    if HEADING.match(line):
        return "heading"
    if ITEM.match(line):
        return "bullets"
    return "quote" if line.startswith(">") else "paragraph"


def _stripped(kind: str, line: str) -> str:
    if kind == "bullets":
        item = ITEM.match(line)
        return item[1] if item else line
    return line.removeprefix(">").strip() if kind == "quote" else line.strip()
