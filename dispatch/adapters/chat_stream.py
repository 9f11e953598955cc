"""The streams of OpenAI's Chat Completions API and its imitators.

Owns which piece belongs to which call: servers that leave out or repeat ids, put all on one index,
or send snapshots for fragments are told apart by what their pieces say.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from dispatch.adapters.streams import Draft, Stream
from dispatch.adapters.wire import field, plain
from dispatch.call import ToolCall
from dispatch.errors import InputError
from dispatch.render import render

Json = dict[str, Any]
LEGACY = (
    "is the legacy form, which is not read; send the functions as `tools`, so that the model"
    " answers with tool_calls"
)


class ChatStream(Stream):
    """One message of Chat Completions' streams.

    No chunk says that a call is complete, so all are when the message is: at its `finish_reason`.
    Pieces of one call are found by its id, or else by its index; an index that has another id, or
    whose call is whole and told anew, begins another call.
    """

    def __init__(self, taken: Set[str] = frozenset()) -> None:
        super().__init__(taken)
        self._drafts: list[Draft] = []
        self._by_index: dict[object, Draft] = {}
        self._by_id: dict[tuple[object, object], Draft] = {}
        self._said: Json = {}
        self._written: list[Json] = []

    @property
    def message(self) -> Json:
        """The assistant's message by now, its calls once they are complete."""
        message: Json = {"role": "assistant", "content": None}
        message |= {name: said for name, said in self._said.items() if said}
        if self._written:
            message["tool_calls"] = list(self._written)
        return message

    def _feed(self, event: object) -> list[ToolCall]:
        for choice in field(event, "choices") or ():
            if field(choice, "index"):
                continue  # another answer
            delta = field(choice, "delta")
            if delta is not None:
                self._say(plain(delta))
            for piece in field(delta, "tool_calls") or ():
                self._take(piece)
            if reason := field(choice, "finish_reason"):
                return self._end(cut_off=reason not in WHOLE)
        return []

    def _say(self, delta: Json) -> None:
        """Join texts and lists: what is said, and what servers think and want back."""
        if delta.get("function_call") is not None:
            raise InputError(f"delta.function_call {LEGACY}")
        for name, piece in delta.items():
            if name not in ("role", "tool_calls") and isinstance(piece, str | list):
                self._said[name] = _joined(self._said.get(name), piece)

    def _take(self, piece: object) -> None:
        function = field(piece, "function") or field(piece, "custom")
        index, call_id, name = field(piece, "index"), field(piece, "id"), field(function, "name")
        arguments = field(function, "arguments")
        if arguments is None:
            arguments = field(function, "input")
        draft = self._by_id.get((index, call_id)) if call_id else self._by_index.get(index)
        if draft is None and not (name or call_id) and self._drafts:
            draft = self._drafts[-1]  # it says neither which call it is of, nor a name
        if draft is None or (name and not _goes_on(draft, name, call_id, arguments)):
            draft = self._begin(Draft(call_id, name or "", custom=bool(field(piece, "custom"))))
        self._by_index[index] = self._by_id[index, call_id] = draft
        draft.name = draft.name or name or ""
        draft.add(plain(arguments), named=bool(call_id or name))
        draft.more |= {name: said for name, said in plain(piece).items() if name not in _OF_CALLS}

    def _begin(self, draft: Draft) -> Draft:
        self._drafts.append(draft)
        self._complete = False
        return draft

    def _end(self, *, cut_off: bool) -> list[ToolCall]:
        self._complete = True
        calls: list[ToolCall] = []
        for draft in self._drafts[len(self._written) :]:
            call_id, new = self._named(draft.found(cut_off=cut_off))
            self._written.append({**draft.more, **_written(draft, call_id)})
            calls += new
        return calls


WHOLE = frozenset({"stop", "tool_calls"})
"""Why a message finishes that was not broken off."""
_OF_CALLS = frozenset({"index", "id", "type", "function", "custom"})


def _goes_on(draft: Draft, name: str, call_id: object, arguments: object) -> bool:
    """Whether a piece that has a name is of the call that its id or index has."""
    if draft.name not in ("", name):
        return False
    is_more = not draft.is_whole or draft.continues(arguments)
    return is_more or (bool(call_id) and not arguments)


def _joined(said: Any, piece: Any) -> Any:
    """What was said by now and the next piece of it, each a text or a list."""
    if not said or type(said) is type(piece):
        return piece if not said else said + piece
    both = [
        one if isinstance(one, list) else [{"type": "text", "text": one}] for one in (said, piece)
    ]
    return [part for parts in both for part in parts]


def _written(draft: Draft, call_id: str) -> Json:
    if draft.custom:
        return {
            "id": call_id,
            "type": "custom",
            "custom": {"name": draft.name, "input": draft.arguments},
        }
    function = {"name": draft.name, "arguments": json_text(draft.arguments)}
    return {"id": call_id, "type": "function", "function": function}


def json_text(arguments: Any) -> str:
    """Arguments as the text that the API takes back, where a server has sent an object."""
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else render(arguments)
