"""Replacing one exact passage of a text: pure.

Invariant: the passage occurs exactly once or nothing is changed, and everything outside of it,
line endings and the end of the last line included, stays as it was.
"""

from __future__ import annotations

import difflib
import re

from dispatch.errors import ToolError
from dispatch.render import preview

COUNTED = 100
COMPARED_LINES = 200
COMPARED_CHARACTERS = 80


def edited(text: str, old: str, new: str, path: str) -> tuple[str, int]:
    """Return the text with `old` replaced by `new`, and the number of the line it begins on.

    In a text whose lines end in CRLF, both may be written with plain newlines. Raises `ToolError`
    with what to do if `old` does not occur exactly once, or if nothing would change.
    """
    if not old:
        raise ToolError("old is empty; give the text to replace, or use write_file for a new file")
    if old == new:
        raise ToolError("old and new are the same, so there is nothing to change")
    old, new = _in_style_of(text, old, new)
    places = _places(text, old)
    if not places:
        raise ToolError(f"old does not occur in {preview(path)}{_hint(text, old)}")
    lines = [text.count("\n", 0, place) + 1 for place in places[:6]]
    if len(places) > 1:
        count = f"more than {COUNTED}" if len(places) > COUNTED else str(len(places))
        shown = ", ".join(map(str, lines[:5])) + (", …" if len(lines) > len(lines[:5]) else "")
        raise ToolError(
            f"old occurs {count} times in {preview(path)} (lines {shown});"
            " add lines around it until it is unique"
        )
    start = places[0]
    return text[:start] + new + text[start + len(old) :], lines[0]


def _in_style_of(text: str, old: str, new: str) -> tuple[str, str]:
    if "\r\n" not in text:
        return old, new
    is_mixed = re.search(r"(?<!\r)\n", text) is not None
    if is_mixed and old in text:
        return old, new
    return _with_crlf(old), _with_crlf(new)


def _with_crlf(text: str) -> str:
    return re.sub(r"(?<!\r)\n", "\r\n", text)


def _places(text: str, old: str) -> list[int]:
    """Find where `old` begins, overlaps included; stops at one more than `COUNTED`."""
    places: list[int] = []
    place = text.find(old)
    while place >= 0 and len(places) <= COUNTED:
        places.append(place)
        place = text.find(old, place + 1)
    return places


def _hint(text: str, old: str) -> str:
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    if wanted and (place := _line_like(text, wanted)) is not None:
        number = text.count("\n", 0, place) + 1
        line = text[place:].partition("\n")[0]
        return f"; line {number} begins like it, so spaces or later lines differ: {preview(line)}"
    # Comparing takes the product of the lengths, so only the first lines are, and not all of them.
    lines = text.split("\n", COMPARED_LINES)[:COMPARED_LINES] if wanted else []
    stripped = [line.strip()[:COMPARED_CHARACTERS] for line in lines]
    for close in difflib.get_close_matches(wanted[:COMPARED_CHARACTERS], stripped, 1, 0.75):
        number = stripped.index(close) + 1
        return f"; the closest line is {number}: {preview(lines[number - 1])}"
    return "; read the file again and copy the text exactly"


def _line_like(text: str, wanted: str) -> int | None:
    """Find where a line begins that is `wanted` but for spaces around it."""
    for place in _places(text, wanted):
        start = text.rfind("\n", 0, place) + 1
        end = text.find("\n", place)
        if text[start : end if end >= 0 else None].strip() == wanted:
            return start
    return None
