"""Which tool call this code runs in: a context variable, carried into worker threads too."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from dispatch.errors import NotSupported


@dataclass(slots=True)
class CallScope:
    """One running call; `alive` until its tool has really ended."""

    tool: str
    turn_id: str
    position: int
    owner: int
    alive: bool = True


PARENT: ContextVar[CallScope | None] = ContextVar("dispatch_parent_call", default=None)
"""The call whose tool this code belongs to. Tasks that outlive their call see it not alive."""


def refuse_inside_tool(what: str) -> None:
    """Raise `NotSupported` if a tool that is still running does this: it would be nested."""
    parent = PARENT.get()
    if parent is not None and parent.alive:
        raise NotSupported(
            f"{what} inside the tool {parent.tool!r} is not supported in this version;"
            " do it outside of tools, or return and let the model ask for the next call"
        )
