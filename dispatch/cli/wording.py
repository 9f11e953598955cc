"""Calls and results in words: one line each, safe for a terminal, the same on every run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dispatch.call import ToolCall

SHORT = 60


def shown_call(call: ToolCall, width: int = 72) -> str:
    """`edit_file src/a.py old='x = 1' …` in at most `width` columns: the first value by itself."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else _parsed(call.arguments)
    if isinstance(arguments, Mapping):
        words = [
            _shown(value) if position == 0 else f"{one_line(key)}={_shown(value)}"
            for position, (key, value) in enumerate(arguments.items())
        ]
    else:
        words = [one_line(arguments)]
    return cut(" ".join([one_line(call.name) or "''", *words]), width)


def one_line(text: str) -> str:
    """`text` on one line: runs of blank space are one space, control characters are spelled out."""
    return visible(" ".join(text.split()))


def visible(text: str) -> str:
    """`text` with control characters spelled out, so that it cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c in "\n\t" or c.isprintable() or c == "\u00a0" else repr(c)[1:-1] for c in text
    )


def cut(text: str, width: int) -> str:
    """At most `width` characters of `text`, with `…` where some were left out."""
    return text if len(text) <= width else text[: width - 1] + "…"


def count(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _parsed(text: str) -> Mapping[str, Any] | str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _shown(value: object) -> str:
    if not isinstance(value, str):
        return cut(one_line(_json(value)), SHORT)
    short = cut(one_line(value[: SHORT * 4]), SHORT)
    return short if short == value and value and " " not in value else repr(short)


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return type(value).__name__
