"""What pydantic-ai's tools say about themselves, as a declaration.

Owns which mark goes before which: a `ToolConcurrency` in the tool's metadata under "dispatch", then
`sequential`, then the annotations of an MCP server, and those only if the host trusts them; and
what of a call's arguments a declaration sees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypedDict

from pydantic import BaseModel
from pydantic_ai import ToolDefinition

from dispatch.claims import Claim
from dispatch.concurrency import EXCLUSIVE, ToolConcurrency
from dispatch.errors import DeclarationError

METADATA_KEY = "dispatch"


class Marks(TypedDict):
    """What a tool says of itself, as `HostedTools.see` takes it."""

    declared: ToolConcurrency
    idempotent: bool


def marks_of(tool: ToolDefinition, *, trust_annotations: bool) -> Marks:
    """The marks of a tool. Raises `DeclarationError` for metadata that is no declaration."""
    metadata = tool.metadata or {}
    hints = _hints(metadata) if trust_annotations else {}
    declared = metadata.get(METADATA_KEY)
    if declared is None:
        declared = ALONE if tool.sequential else _hinted(hints)
    if not isinstance(declared, ToolConcurrency):
        raise DeclarationError(
            f"tool {tool.name!r}: metadata[{METADATA_KEY!r}] must be a ToolConcurrency, not"
            f" {declared!r}"
        )
    return {"declared": declared, "idempotent": hints.get("idempotentHint") is True}


def shown(arguments: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    """The arguments, and the fields of one that is the tool's only parameter.

    Of such a tool pydantic-ai shows the model's fields to the language model, under `names`.
    """
    if len(arguments) != 1 or not set(names).isdisjoint(arguments):
        return arguments
    (value,) = arguments.values()
    if isinstance(value, BaseModel):
        return {**_fields(value), **arguments}
    if is_dataclass(value):
        return {**{one.name: getattr(value, one.name) for one in fields(value)}, **arguments}
    return {**value, **arguments} if isinstance(value, Mapping) else arguments


def _fields(value: BaseModel) -> dict[str, Any]:
    aliases = {name: field.alias or name for name, field in type(value).model_fields.items()}
    return {alias: getattr(value, name) for name, alias in aliases.items()}


def _everything(arguments: Mapping[str, Any]) -> Iterable[Claim]:
    return (EXCLUSIVE,)


ALONE = ToolConcurrency(resource_keys=_everything)
"""Says that it runs alone, unlike a tool that says nothing."""


def _hinted(hints: Mapping[str, Any]) -> ToolConcurrency:
    return ToolConcurrency(read_only=hints.get("readOnlyHint") is True)


def _hints(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The annotations of an MCP tool, by the names that the protocol has for them."""
    hints = metadata.get("annotations")
    return hints if isinstance(hints, Mapping) else {}
