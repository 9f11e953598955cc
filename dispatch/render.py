"""Turning any value into text that a model can read, without ever failing."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

EMPTY = "(no output)"
PREVIEW = 200


def render(value: Any) -> str:
    """Text of `value`: strings as they are, everything else as JSON, at worst its type's name."""
    if isinstance(value, str):
        return value or EMPTY
    if value is None:
        return EMPTY
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "replace") or EMPTY
    try:
        return to_json(value, serialize_unknown=True, bytes_mode="base64").decode()
    except Exception:  # noqa: BLE001 - whatever a foreign object raises, the model gets a text
        return safe_str(value)


def safe_str(value: object) -> str:
    """`str(value)`, or the name of its type if that raises."""
    try:
        return str(value) or type(value).__name__
    except Exception:  # noqa: BLE001 - a failing __str__ must not harm the turn
        return f"<{type(value).__name__} whose text cannot be shown>"


def preview(text: str, limit: int = PREVIEW) -> str:
    """At most `limit` characters of `text`, quoted, with a note of how much was left out."""
    if len(text) <= limit:
        return repr(text)
    return f"{text[:limit]!r}… ({len(text):,} characters in all)"
