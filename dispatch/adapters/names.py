"""Calls as a provider's message has them, each with an id that no other call of the history has.

An id that is missing, blank or repeated is replaced by one made from the call's place, name and
arguments: the same each time the message is read, whole or as a stream. Blank ids, and messages of
different turns with equal ids, need the history (`messages`) for that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json

from dispatch.call import ToolCall
from dispatch.render import render, safe_str

PARALLEL = "multi_tool_use.parallel"
"""A tool that does not exist, by which some models of OpenAI ask for several at once."""
CUT = "…[cut off]"
"""Stands behind arguments that the provider broke off, so that they never pass for whole ones."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What the message of a call said that its answer needs.

    `id` answers it on the wire, alone or together with the other calls that have it. `given` is the
    id in the message, None if that is missing or blank; `custom` whether its arguments are text.
    """

    id: str
    given: str | None
    custom: bool = False
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A call as it was found in a message. `arguments` are the raw text, an object, or odd.

    `key` is what its result may name in place of its id. `cut_off`: the provider broke off.
    """

    id: object
    name: str
    arguments: object
    custom: bool = False
    key: str | None = None
    cut_off: bool = False


class Names:
    """Gives the calls of one message their ids, one after the other.

    `taken` are the ids of other messages.
    """

    def __init__(self, taken: Set[str] = frozenset()) -> None:
        self._taken = set(taken)
        self._count = 0

    def calls(self, found: Found) -> list[ToolCall]:
        """The call; or the several that one call of `multi_tool_use.parallel` stands for."""
        arguments = _arguments(found.arguments)
        given = found.id if isinstance(found.id, str) and found.id.strip() else None
        call_id = self._id(given, found.name, arguments)
        if found.cut_off:
            text = arguments if isinstance(arguments, str) else render(arguments)
            arguments = f"{text}{CUT}"
        elif found.custom and isinstance(arguments, str):
            arguments = {"input": arguments}
        several = _unwrapped(arguments) if found.name == PARALLEL else None
        if several is not None:
            wire = Wire(call_id, given, is_part=True)
            return [
                ToolCall(f"{call_id}.{number}", name, inner, wire=wire)
                for number, (name, inner) in enumerate(several)
            ]
        return [ToolCall(call_id, found.name, arguments, wire=Wire(call_id, given, found.custom))]

    def _id(self, given: str | None, name: str, arguments: Mapping[str, Any] | str) -> str:
        position, self._count = self._count, self._count + 1
        if given is not None and given not in self._taken:
            self._taken.add(given)
            return given
        content, attempt = _content(position, name, arguments), 0
        while (made := _made(content, attempt)) in self._taken:
            attempt += 1
        self._taken.add(made)
        return made


def named(found: Iterable[Found], taken: Set[str] = frozenset()) -> list[ToolCall]:
    """The calls of a whole message, in intent order."""
    names = Names(taken)
    return [call for one in found for call in names.calls(one)]


def broken_off(found: Found) -> Found:
    """The call as one that the provider broke off, unless its arguments are whole all the same."""
    return found if is_whole(found) else replace(found, cut_off=True)


def is_whole(found: Found) -> bool:
    """Whether its arguments are a JSON object; of free text nobody can tell."""
    if found.custom or not isinstance(found.arguments, str):
        return not found.custom and isinstance(found.arguments, Mapping)
    try:
        return isinstance(from_json(found.arguments), dict)
    except ValueError:
        return False


def is_cut_off(call: ToolCall) -> bool:
    """Whether the provider broke off in its arguments."""
    return isinstance(call.arguments, str) and call.arguments.endswith(CUT)


def wire_of(call: ToolCall) -> Wire:
    """What its message said; for a call that no adapter has read, what its id tells."""
    return call.wire if isinstance(call.wire, Wire) else Wire(call.id, call.id)


def wire_ids(calls: Iterable[ToolCall]) -> list[str]:
    """The ids on the wire, each once: the parts of one call share theirs."""
    return list(dict.fromkeys(wire_of(call).id for call in calls))


def _made(content: str, attempt: int) -> str:
    encoded = f"{attempt}:{content}".encode(errors="backslashreplace")
    return f"call_{hashlib.sha256(encoded).hexdigest()[:24]}"


def _content(position: int, name: str, arguments: Mapping[str, Any] | str) -> str:
    """Equal for equal calls, be their arguments text or an object."""
    try:
        plain = from_json(arguments) if isinstance(arguments, str) else arguments
        return json.dumps([position, name, plain], sort_keys=True, default=safe_str)
    except (TypeError, ValueError, RecursionError):  # nothing that JSON could have carried
        return f"{position} {name}"


def _arguments(given: object) -> Mapping[str, Any] | str:
    """Objects and raw text as they are; anything else as JSON text, for validation to refuse."""
    if isinstance(given, Mapping | str):
        return given
    return "" if given is None else render(given)


def _unwrapped(
    arguments: Mapping[str, Any] | str,
) -> list[tuple[str, Mapping[str, Any] | str]] | None:
    """Name and arguments of each call in it; None if it is not of that form."""
    try:
        uses = (from_json(arguments) if isinstance(arguments, str) else arguments)["tool_uses"]
        return [
            (str(use["recipient_name"]).removeprefix("functions."), _arguments(use["parameters"]))
            for use in uses
        ] or None
    except (ValueError, TypeError, KeyError):
        return None
