"""What a LangChain tool already says about itself, and the arguments that its claims are made of.

A `ToolConcurrency` under `dispatch` in a tool's `metadata` or `extras` was put there by the host's
own code, so it counts. Anything else there may come from a server (MCP annotations end up in
`metadata`), and counts only if the host says that it trusts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel, ValidationError

from dispatch.adapters.hosted import HostedTools
from dispatch.claims import write
from dispatch.concurrency import ToolConcurrency

OWN = "dispatch"
ANYTHING = ToolConcurrency(resource_keys=lambda arguments: [write()])
"""For a name that no tool has: a wrapper may bring one that does whatever it likes."""
READ_ONLY = ("read_only", "readOnlyHint")
IDEMPOTENT = ("idempotent", "idempotentHint")


def see(tools: HostedTools, tool: BaseTool, *, sync: bool, trusted: bool) -> None:
    """Make the tool known to the dispatcher. `sync` if its calls may run in a thread."""
    notes = {**(tool.extras or {}), **(tool.metadata or {})}
    own = notes.get(OWN)
    declared = own if isinstance(own, ToolConcurrency) else ToolConcurrency()
    if trusted and declared.undeclared and _says(notes, READ_ONLY):
        declared = ToolConcurrency(read_only=True)
    tools.see(
        tool.name,
        declared,
        schema={"properties": {name: {} for name in _argument_names(tool)}},
        sync=sync,
        idempotent=trusted and _says(notes, IDEMPOTENT),
        tags=tool.tags or (),
    )


def has_coroutine(tool: BaseTool) -> bool:
    """Whether the tool has code for the event loop."""
    if hasattr(tool, "coroutine"):
        return tool.coroutine is not None
    return type(tool)._arun is not BaseTool._arun  # the method that a subclass is told to write


def has_function(tool: BaseTool) -> bool:
    """Whether the tool has code for a thread."""
    return tool.func is not None if hasattr(tool, "func") else True


def arguments(tool: BaseTool | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the model's arguments are once validated, defaults included; as given if they are wrong.

    Then the tool itself refuses them. What the host injects is no part of it.
    """
    schema = None if tool is None else tool.tool_call_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return given
    try:
        valid = schema.model_validate(dict(given))
    except ValidationError:
        return given
    return {name: getattr(valid, name) for name in type(valid).model_fields}


def _says(notes: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    annotations = notes.get("annotations")
    places = [notes, annotations] if isinstance(annotations, Mapping) else [notes]
    return any(place.get(name) is True for place in places for name in names)


def _argument_names(tool: BaseTool) -> list[str]:
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return list(schema.get("properties", ()))
    return list(getattr(schema, "model_fields", ()))
