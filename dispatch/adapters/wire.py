"""What all adapters share: reading foreign messages, and finding the tools to tell of.

A node is a mapping or an object with attributes (an SDK's model), read alike; a field that is
null and a field that is missing are the same. Invariants: whatever is wrong with the *form* of a
message raises `InputError` saying where and what; whatever is wrong with the *arguments* of a call
stays in that call, for the turn to answer, so that it never harms a sibling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from dispatch.errors import InputError
from dispatch.render import preview
from dispatch.tool import Tool, Toolbox


@runtime_checkable
class HasToolbox(Protocol):
    """Whatever carries its tools as `.toolbox`, such as a `Dispatcher`."""

    @property
    def toolbox(self) -> Toolbox:
        """The tools by name."""
        ...


Tools = Toolbox | HasToolbox | Iterable[Tool | Callable[..., Any]]

_NAMES = {bool: "a boolean", int: "a number", float: "a number", type(None): "missing"}


def field(node: object, name: str) -> Any:
    """Read the field `name` of a mapping or an object; None where there is none."""
    return node.get(name) if isinstance(node, Mapping) else getattr(node, name, None)


def text(node: object, name: str, where: str) -> str:
    """Read the field `name` of the node at `where`, which must be text."""
    value = field(node, name)
    if not isinstance(value, str):
        raise InputError(f"{where}.{name} must be text, not {described(value)}")
    return value


def items(value: object, where: str, what: str) -> Sequence[Any]:
    """`value`, which must be a list of objects, called `what`."""
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} must be {what}, not {described(value)}")
    for index, item in enumerate(value):
        if _has_no_fields(item):
            raise InputError(f"{where}[{index}] must be an object, not {described(item)}")
    return value


def assistant(message: object, where: str) -> object:
    """`message`, which must be a message of the assistant."""
    role = field(message, "role")
    if role == "assistant":
        return message
    got = described(message) + ("" if _has_no_fields(message) else " without a role")
    if isinstance(role, str):
        got = f"of role {preview(role, 40)}"
    raise InputError(f"{where} must be an assistant message, not {got}")


def _has_no_fields(value: object) -> bool:
    return value is None or isinstance(value, str | bytes | int | float | list | tuple)


def described(value: object) -> str:
    """Describe in a few words a value that is not what it should be."""
    if isinstance(value, str):
        return f"the text {preview(value, 40)}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return "an object"
    return _NAMES.get(type(value), f"of type {type(value).__name__}")


def plain(node: Any) -> Any:
    """Copy a foreign message, whatever it is made of, into dictionaries and lists."""
    if isinstance(node, BaseModel):
        return node.model_dump(mode="json", exclude_unset=True, warnings=False)
    if isinstance(node, list | tuple):
        return [plain(item) for item in node]
    fields = node if isinstance(node, Mapping) else getattr(node, "__dict__", None)
    return node if fields is None else {name: plain(value) for name, value in fields.items()}


def check_custom(tool: Tool) -> None:
    """Refuse a tool that cannot be a custom tool of OpenAI's, whose arguments are free text."""
    if set(tool.input_schema.get("properties", ())) != {"input"}:
        raise InputError(
            f"tool {tool.name!r} cannot be a custom tool: it must take one argument, 'input', which"
            " is the text that the model writes"
        )


def toolbox_of(tools: Tools) -> Toolbox:
    """Find the toolbox that was given or is carried, or make it of the tools given."""
    if isinstance(tools, HasToolbox):
        tools = tools.toolbox
    return tools if isinstance(tools, Toolbox) else Toolbox(tools)
