"""Regular expressions and globs of a model, compiled so that none can hold the interpreter up.

The expressions are those of Rust's `regex`, which pydantic brings along: look-around and
back-references do not exist, and a match takes the number of states times the length of the text,
however the pattern is nested. The engine holds the interpreter's lock for all of that, so both
factors are bounded. Invariants: whatever is compiled here has at most `PATTERN_LIMIT` characters
and `WEIGHT_LIMIT` weight; whoever matches gives at most `TEXT_LIMIT` bytes of a file at a time.
Then one call takes the lock for some tenths of a second at worst, and well below a millisecond
for a usual pattern. The limits were found by trying the worst patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pydantic_core import SchemaError, SchemaValidator, core_schema

from dispatch.errors import ToolError
from dispatch.render import preview

PATTERN_LIMIT = 1000
"""Characters of a pattern or glob."""

WEIGHT_LIMIT = 1500
"""About the number of characters a pattern would have with its repetitions written out."""

TEXT_LIMIT = 4096
"""Bytes of a file that one match may look at."""

Matches = Callable[[str], bool]
COUNT = re.compile(r"\{\s*+([0-9]*+)\s*+,?\s*+([0-9]*+)\s*+\}")
VERBOSE = re.compile(r"\(\?[A-Za-z-]*x[A-Za-z-]*[:)]")
GLOB_TOKEN = re.compile(r"\*\*/|\*\*|\[[!^]?\]?[^\]]*\]|.", re.DOTALL)
GLOB_PARTS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def line_patterns(pattern: str, ignore_case: bool) -> tuple[Matches, Matches]:
    """Return what matches one line, and what rules out several lines at once.

    The second takes lines joined by newlines; where it is false, no line matches. Raises
    `ToolError`.
    """
    _check_size(pattern)
    flags = "i" if ignore_case else ""
    matches = _compiled(pattern, flags, f"the pattern {preview(pattern)} is no regular expression")
    # Not so where the pattern can tell a line from a text.
    if any(mark in pattern for mark in ("(?", r"\A", r"\z")):
        return matches, lambda _: True
    return matches, _compiled(pattern, flags + "m", "")


def glob_pattern(glob: str) -> Matches:
    """Return what matches a name or path that the glob takes. Raises `ToolError`."""
    if len(glob) > PATTERN_LIMIT:
        raise ToolError(
            f"the glob has {len(glob):,} characters; at most {PATTERN_LIMIT:,} can be used"
        )
    return _compiled(_from_glob(glob), "s", f"the glob {preview(glob)} cannot be used")


def _check_size(pattern: str) -> None:
    if len(pattern) > PATTERN_LIMIT:
        raise ToolError(
            f"the pattern has {len(pattern):,} characters; at most {PATTERN_LIMIT:,} can be"
            " searched for, so search for a part of it"
        )
    if VERBOSE.search(pattern):
        raise ToolError(
            f"the pattern {preview(pattern)} sets the flag x, which is not supported; write it"
            " without spaces and comments"
        )
    weight = _weight(pattern)
    if weight > WEIGHT_LIMIT:
        raise ToolError(
            f"the pattern {preview(pattern)} repeats too much: written out it is about"
            f" {weight:,} long, and {WEIGHT_LIMIT:,} is the limit; use smaller counts, or * and +"
        )


def _weight(pattern: str) -> int:
    # Never too small: a count after what may be a group or another repetition multiplies all.
    length, factor = len(pattern), 1
    for found in COUNT.finditer(pattern):
        count = max(1, *(int(number or 0) for number in found.groups()))
        if pattern[found.start() - 1 : found.start()] in tuple(")}*+?"):
            factor *= count
        else:
            length += count
    return length * factor


def _compiled(expression: str, flags: str, fault: str) -> Matches:
    flagged = f"(?{flags}){expression}" if flags else expression
    schema = core_schema.str_schema(pattern=flagged, regex_engine="rust-regex")
    try:
        return SchemaValidator(schema).isinstance_python
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].rpartition("SchemaError: ")[2]
        advice = "a backslash makes a special character literal"
        if fault.startswith("the glob"):
            advice = "in brackets a special character is literal, such as [{]"
        raise ToolError(f"{fault}: {reason}; {advice}") from None


def _from_glob(glob: str) -> str:
    parts: list[str] = []
    depth = 0
    for piece in GLOB_TOKEN.findall(glob.removeprefix("./")):
        if piece in GLOB_PARTS:
            parts.append(GLOB_PARTS[piece])
        elif piece == "{":
            depth += 1
            parts.append("(?:")
        elif piece in ",}" and depth:
            depth -= piece == "}"
            parts.append("|" if piece == "," else ")")
        else:
            parts.append(_class(piece) if len(piece) > 1 else re.escape(piece))
    return f"^(?:{''.join(parts)})$"


def _class(token: str) -> str:
    negated = token[1] in "!^"
    body = re.sub(r"([\[\]\\&~^])", r"\\\1", token[2 if negated else 1 : -1])
    return f"[{'^' if negated else ''}{body}]"
