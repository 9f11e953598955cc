"""What a LangChain tool already says about itself, and the arguments that its claims are made of.

A `ToolConcurrency` under `dispatch` in a tool's `metadata` or `extras` was put there by the host's
own code, so it counts. Anything else there may come from a server (MCP annotations end up in
`metadata`), and counts only if the host says that it trusts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any, TypeGuard

from langchain_core.tools import BaseTool
from pydantic import BaseModel, create_model

from dispatch.adapters.hosted import HostedTools
from dispatch.adapters.langgraph.outputs import Asked
from dispatch.claims import write
from dispatch.concurrency import ToolConcurrency
from dispatch.tool import Tool

OWN = "dispatch"
ANYTHING = ToolConcurrency(resource_keys=lambda arguments: [write()])
"""For a name that no tool has: a wrapper may bring one that does whatever it likes."""
READ_ONLY = ("read_only", "readOnlyHint")
IDEMPOTENT = ("idempotent", "idempotentHint")
KEPT = 1024
"""Schemas of tools that are remembered."""


def see(tools: HostedTools, tool: BaseTool, *, sync: bool, trusted: bool) -> Tool:
    """Make the tool known to the dispatcher. `sync` if its calls may run in a thread."""
    notes = {**(tool.extras or {}), **(tool.metadata or {})}
    own = notes.get(OWN)
    declared = own if isinstance(own, ToolConcurrency) else ToolConcurrency()
    if trusted and declared.undeclared and _says(notes, READ_ONLY):
        declared = ToolConcurrency(read_only=True)
    return tools.see(
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


def arguments(tool: BaseTool | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the model's arguments are once validated, defaults included; as given if they are wrong.

    Then the tool itself refuses them. What the host injects is no part of it, and whatever becomes
    of what is returned, the arguments in the model's message stay as they are.
    """
    own = deepcopy(dict(given))
    model = None if tool is None else _model(tool)
    if model is None:
        return own
    shown, whole = model
    try:
        valid = whole.model_validate(deepcopy(own))
    except Exception:  # noqa: BLE001 - from a validator of the tool's own, too: it will raise again
        return own
    return {**{name: getattr(valid, name) for name in shown}, **(valid.model_extra or {})}


def with_arguments(asked: Asked, tool: BaseTool | None, given: Mapping[str, Any]) -> Any:
    """The call that was asked for, with the arguments that a gate or a middleware changed.

    What nobody changed stays as the model wrote it.
    """
    before = arguments(tool, asked["args"])
    if given == before:
        return dict(asked)
    model = None if tool is None else _model(tool)
    names = {} if model is None else {name: _written(model[1], name) for name in model[0]}
    same = [name for name in before if name in given and before[name] == given[name]]
    replaced = [key for name in before if name not in same for key in (name, names.get(name, name))]
    kept = {key: value for key, value in asked["args"].items() if key not in replaced}
    new = {names.get(name, name): given[name] for name in given if name not in same}
    return {**asked, "args": {**kept, **new}}


def _written(model: type[BaseModel], name: str) -> str:
    """The name under which the model's validation takes the field."""
    alias = model.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else name


def _model(tool: BaseTool) -> tuple[Iterable[str], type[BaseModel]] | None:
    """The names of what the model writes, and what validates that as the tool itself does.

    The schema that LangChain shows to the model has neither the validators nor the aliases of the
    tool's own; the tool's own wants what the host injects.
    """
    shown, whole = tool.tool_call_schema, tool.args_schema
    if not _is_model(shown):
        return None
    names = shown.model_fields
    if not _is_model(whole):
        return names, shown
    return names, _without(whole, frozenset(whole.model_fields) - set(names))


def _is_model(schema: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(schema, type) and issubclass(schema, BaseModel)


@lru_cache(maxsize=KEPT)
def _without(model: type[BaseModel], injected: frozenset[str]) -> type[BaseModel]:
    """The model, for which what is injected may be missing."""
    if not injected:
        return model
    optional: dict[str, Any] = dict.fromkeys(injected, (Any, None))
    return create_model(model.__name__, __base__=model, **optional)


def _says(notes: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    annotations = notes.get("annotations")
    places = [notes, annotations] if isinstance(annotations, Mapping) else [notes]
    return any(place.get(name) is True for place in places for name in names)


def _argument_names(tool: BaseTool) -> list[str]:
    schema = tool.tool_call_schema
    if isinstance(schema, dict):
        return list(schema.get("properties", ()))
    return list(getattr(schema, "model_fields", ()))
