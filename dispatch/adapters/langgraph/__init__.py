"""LangGraph and LangChain: their tools, run as turns of a dispatcher.

`DispatchToolNode` stands where a graph has a `ToolNode`, `DispatchMiddleware` goes into
`create_agent`, `close_open_calls` puts a history in order. The second needs langchain, the others
langgraph alone; none is imported before it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dispatch.adapters.langgraph.histories import close_open_calls
    from dispatch.adapters.langgraph.middleware import DispatchMiddleware
    from dispatch.adapters.langgraph.node import DispatchToolNode

__all__ = ["DispatchMiddleware", "DispatchToolNode", "close_open_calls"]

_MODULES = {
    "DispatchMiddleware": "middleware",
    "DispatchToolNode": "node",
    "close_open_calls": "histories",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
