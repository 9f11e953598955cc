"""What the model says in a test: steps, chosen by how far the conversation in the request has come.

Nothing is counted on the side, so any number of loops can play one script at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]


class RefusedError(Exception):
    """The provider answers 400 with this text."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the model. `arguments` as text is sent as it is, where the format allows."""

    name: str
    arguments: Mapping[str, Any] | str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One assistant message: text, calls or both."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def position(messages: Sequence[JSON]) -> int:
    """How many assistant messages the conversation has."""
    return sum(message["role"] == "assistant" for message in messages)


def step_at(script: Sequence[Step], position: int) -> Step:
    """The step to play; a conversation longer than the script is a mistake of the test."""
    if position >= len(script):
        raise RefusedError(f"the script has {len(script)} steps, the conversation is longer")
    return script[position]


def id_of(call: Call, prefix: str, position: int, index: int) -> str:
    """The call's own id, or one that is unique in the conversation."""
    return f"{prefix}_{position}_{index}" if call.id is None else call.id


def required(request: JSON, *names: str) -> None:
    """Refuse a request that lacks one of these fields."""
    for name in names:
        if not request.get(name):
            raise RefusedError(f"{name}: Field required")


def text_of(content: object, where: str) -> str:
    """The text of content that is text, or a list of text blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(block.get("type") == "text" for block in content):
        return "".join(block["text"] for block in content)
    raise RefusedError(f"{where}: Input should be text or a list of text blocks")
