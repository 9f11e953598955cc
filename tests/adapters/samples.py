"""Results and tools that the tests of all adapters share."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from pydantic import TypeAdapter

from dispatch import Failure, FailureKind, Status, Tool, ToolCall, ToolResult, tool


def succeeded(call: ToolCall, index: int, value: object = "fine") -> ToolResult:
    return ToolResult(call=call, index=index, status=Status.OK, value=value)


def failed(call: ToolCall, index: int, message: str = "no such file") -> ToolResult:
    failure = Failure(kind=FailureKind.TOOL_ERROR, message=message)
    return ToolResult(call=call, index=index, status=Status.ERROR, failure=failure)


def all_succeeded(calls: Iterable[ToolCall]) -> list[ToolResult]:
    return [succeeded(call, index) for index, call in enumerate(calls)]


def as_validated(kind: Any, value: object) -> object:
    """`value` as the SDK's type `kind` lets it through: without any field it does not know."""
    adapter = TypeAdapter[Any](kind)  # kept until all is read: its iterators need it alive
    return _listed(adapter.validate_python(value))


def _listed(value: Any) -> Any:
    """Pydantic checks an `Iterable` field only as it is read."""
    if isinstance(value, dict):
        return {name: _listed(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_listed(item) for item in value]
    return value


def objects(value: Any) -> Any:
    """The same data as plain objects with attributes; arguments stay dictionaries."""
    if isinstance(value, list):
        return [objects(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {name: value[name] for name in ("input", "arguments") if name in value}
    return SimpleNamespace(**{name: objects(item) for name, item in value.items()} | kept)


@tool(reads="file:{path}")
async def read_file(path: str, start: int | None = None) -> str:
    """Read a text file."""
    return f"{path} from {start}"


async def _anything(**arguments: object) -> str:
    return str(arguments)


bare = Tool("bare", _anything, input_schema={"properties": {"x": {"type": "integer"}}})
"""A tool without a description, whose hand-written schema does not say that it is an object."""
