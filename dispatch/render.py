"""Turning any value into text that a model can read, without ever failing."""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections import deque
from collections.abc import Iterator, Set
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from dispatch.media import Image

_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+>")
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
        if isinstance(value, Image):
            return value.described
        if isinstance(value, Iterator):
            return _unread(value)
        return to_json(
            _in_order(value), fallback=_named, serialize_unknown=True, bytes_mode="base64"
        ).decode()
    except (Exception, CancelledError):  # noqa: BLE001 - whatever it raises, there is a text
        return encodable(_named(value))


def _in_order(value: Any) -> Any:
    """The value with its sets as sorted lists, since their order changes from run to run."""
    try:
        return _sorted(value)
    except RecursionError:  # it contains itself, which `to_json` can show
        return value


def _sorted(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(map(_sorted, value), key=lambda item: (render(item), type(item).__name__))
    if isinstance(value, dict):
        return {_key(key): _sorted(item) for key, item in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_sorted(item) for item in value]
    if isinstance(value, Image):
        return value.described
    if isinstance(value, Iterator):
        return _unread(value)
    if isinstance(value, BaseModel):
        return _sorted_model(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _sorted(getattr(value, field.name)) for field in fields(value)}
    return value


def _sorted_model(model: BaseModel) -> Any:
    """A model without sets says best itself what it looks like."""
    try:
        dumped = model.model_dump(by_alias=True, warnings=False)
    except TypeError:  # it has a set of models, which would be one of dictionaries
        return {name: _sorted(value) for name, value in model}
    return _sorted(dumped) if _has_set(dumped) else model


def _key(key: Any) -> Any:
    return render(key) if isinstance(key, frozenset) else key


def _unread(iterator: object) -> str:
    return f"<{type(iterator).__name__}, whose items cannot be shown; return a list>"


def _has_set(value: object) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_set, value))
    return _has_set([*value.values()]) if isinstance(value, dict) else isinstance(value, Set)


def _named(value: object) -> str:
    """The text of what JSON has no word for, without its address, which changes from run to run."""
    return _ADDRESS.sub(">", safe_str(value))


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
