"""`reads="file:{path}"`: claims said as text, in Python and in configuration files.

A template is `kind:segment/segment`. Each `{name}` is an argument; its value fills one segment
and is never split, but for the kind `file`, whose segments are one path. A list fills the
template once per item. The template is parsed and checked once, when the tool is declared.
"""

from __future__ import annotations

import math
import os
import posixpath
import string
from collections.abc import Mapping
from enum import Enum
from itertools import product
from typing import Any

from dispatch.claims import FILE, MAX_CLAIMS, Claim
from dispatch.errors import DeclarationError

Part = tuple[str, str | None]
"""Literal text, then the name of the argument that follows it (None at the end)."""


class Template:
    """One parsed template: `claims(arguments)` gives what it claims for a call."""

    def __init__(self, text: str, mode: str, *, tool: str, schema: Mapping[str, Any]) -> None:
        self.text = text
        self.mode = mode
        kind, colon, rest = text.partition(":")
        if not kind or not colon or not rest or "{" in kind:
            raise DeclarationError(
                f"tool {tool!r}: {text!r} is no template; write kind:name, as in 'file:{{path}}'"
            )
        self.kind = kind
        self.absolute = rest.startswith("/")
        self.segments = [_parts(segment, text, tool) for segment in rest.split("/")]
        self.names = sorted({name for parts in self.segments for _, name in parts if name})
        self._check_names(tool, schema)

    def claims(self, arguments: Mapping[str, Any]) -> list[Claim]:
        """The claims for these arguments; raises for a value that names no resource."""
        if len(self.names) == 1 and type(value := arguments[self.names[0]]) is str:
            return [
                Claim((self.kind, *key), self.mode) for key in self._keys({self.names[0]: value})
            ]
        values = [_texts(name, arguments[name]) for name in self.names]
        if math.prod(map(len, values)) > MAX_CLAIMS:
            raise DeclarationError(f"{self.text!r} gives more than {MAX_CLAIMS:,} claims")
        return [
            Claim((self.kind, *key), self.mode)
            for chosen in product(*values)
            for key in self._keys(dict(zip(self.names, chosen, strict=True)))
        ]

    def _keys(self, values: Mapping[str, str]) -> list[tuple[str, ...]]:
        filled = self._filled(values)
        if self.kind != FILE:
            return [tuple(filled)]
        if len(filled) == 1:
            return [(filled[0],)]
        # A tool may write f"{dir}/{name}" or join(dir, name); with an empty or an absolute part
        # these are two files, so both are claimed.
        written = "/".join(filled)
        joined = posixpath.join("/" if self.absolute else "", *filled)
        return [(path,) for path in dict.fromkeys((written, joined))]

    def _filled(self, values: Mapping[str, str]) -> list[str]:
        return [
            "".join(literal + (values[name] if name else "") for literal, name in parts)
            for parts in self.segments
        ]

    def _check_names(self, tool: str, schema: Mapping[str, Any]) -> None:
        known = schema.get("properties", {})
        for name in self.names:
            if name not in known:
                takes = ", ".join(known) or "none"
                raise DeclarationError(
                    f"tool {tool!r}: {self.text!r} uses {name!r}, which is no argument of it;"
                    f" its arguments are: {takes}"
                )


def _parts(segment: str, text: str, tool: str) -> list[Part]:
    try:
        parsed = list(string.Formatter().parse(segment))
    except ValueError as error:
        raise DeclarationError(f"tool {tool!r}: {text!r} is no template: {error}") from None
    for _, name, spec, conversion in parsed:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise DeclarationError(
                f"tool {tool!r}: {text!r}: only plain argument names can stand in braces"
            )
    return [(literal, name) for literal, name, _, _ in parsed]


def _texts(name: str, value: object) -> list[str]:
    if isinstance(value, list | tuple | set | frozenset):
        return sorted(_text(name, item) for item in value)
    return [_text(name, value)]


def _text(name: str, value: object) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise DeclarationError(f"argument {name!r} is {type(value).__name__}, which names no resource")
