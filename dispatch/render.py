"""Turning any value into text that a model can read, without ever failing."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from typing import Any

from pydantic_core import to_json

EMPTY = "(no output)"
PREVIEW = 200


def render(value: Any) -> str:
    """Text of `value`: strings as they are, everything else as JSON, at worst its type's name.

    An iterator is named and not read: reading it would use it up, and it may have no end.
    """
    if value is None:
        return EMPTY
    try:
        if isinstance(value, str):
            return encodable(str.__str__(value)) or EMPTY
        if isinstance(value, bytes | bytearray):
            return bytes(value).decode("utf-8", "replace") or EMPTY
        if isinstance(value, Iterator):
            return f"<{type(value).__name__}, whose items cannot be shown; return a list>"
        return to_json(value, serialize_unknown=True, bytes_mode="base64").decode()
    except (Exception, CancelledError):  # noqa: BLE001 - whatever it raises, there is a text
        return encodable(safe_str(value))


def encodable(text: str) -> str:
    """The text with lone surrogates (as in odd file names) escaped, so that UTF-8 can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def safe_str(value: object) -> str:
    """`str(value)`, or the name of its type if that raises."""
    try:
        return str(value) or type(value).__name__
    except (Exception, CancelledError):  # noqa: BLE001 - a failing __str__ must not harm the turn
        return f"<{type(value).__name__} whose text cannot be shown>"


def one_line(text: str, limit: int = PREVIEW) -> str:
    """At most `limit` characters of `text`, with whatever is no printable character escaped."""
    shown = text if len(text) <= limit else f"{text[:limit]}…"
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown)


def preview(text: str, limit: int = PREVIEW) -> str:
    """At most `limit` characters of `text`, quoted, with a note of how much was left out."""
    if len(text) <= limit:
        return repr(text)
    return f"{text[:limit]!r}… ({len(text):,} characters in all)"
