"""OpenAI's Responses API: `function_call` and `custom_tool_call` items in, their outputs out.

The history is a flat list of items. A custom tool's call has free text, which becomes the argument
`input`. Tools that the provider runs itself are items of other types, and skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dispatch.adapters.answers import Answer, encoded
from dispatch.adapters.budget import Budget
from dispatch.adapters.history import fields_of
from dispatch.adapters.names import Found, broken_off, is_whole, wire_ids
from dispatch.adapters.provider import DEFAULT_BUDGET, Provider
from dispatch.adapters.repair import Items
from dispatch.adapters.streams import InOrder, Stream
from dispatch.adapters.wire import Tools, check_custom, field, items, plain, text, toolbox_of
from dispatch.call import ToolCall
from dispatch.errors import InputError
from dispatch.render import render

if TYPE_CHECKING:
    from openai.types.responses import (
        CustomToolParam,
        FunctionToolParam,
        ResponseInputItemParam,
    )

    from dispatch.tool import Tool

Json = dict[str, Any]
INPUT_OF = {"function_call": "arguments", "custom_tool_call": "input"}
OUTPUT_OF = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


class OpenAIResponses(Provider["list[ResponseInputItemParam]", "list[ResponseInputItemParam]"]):
    """Reads and answers responses of OpenAI's Responses API.

    Takes a response or its list of output items. `message` and `reply` are lists of items: extend
    the history (the next request's `input`) by both.

    Args:
        custom: Names of tools to declare as custom tools: they take one argument, `input`, which
            the model writes as free text and not as JSON.
        budget: See `Budget`.
    """

    def __init__(
        self, *, custom: Collection[str] = (), budget: Budget | None = DEFAULT_BUDGET
    ) -> None:
        super().__init__(budget=budget)
        self._custom = frozenset(custom)

    def message(
        self, message: object, messages: Sequence[Any] = ()
    ) -> list[ResponseInputItemParam]:
        """Make the items to append before the reply. See `Provider.message`."""
        ids = iter(wire_ids(self.calls(message, messages)))
        copies: list[Any] = []
        for item in _output(message):
            copy: Any = plain(item)
            copies.append(_with_call_id(copy, next(ids)) if _kind(item) in INPUT_OF else copy)
        return copies

    def tools(self, toolbox: Tools) -> list[FunctionToolParam | CustomToolParam]:
        """Make the tool definitions for a request, in the toolbox's order.

        Takes a toolbox, a dispatcher, or a list of tools. Raises `InputError` for a custom tool
        that takes anything but `input`.
        """
        return [
            _custom(tool) if tool.name in self._custom else _function(tool)
            for tool in toolbox_of(toolbox).values()
        ]

    def stream(self, messages: Sequence[Any] = ()) -> ResponsesStream:
        """A reader for the events of `create(stream=True)`. See `Stream`."""
        return ResponsesStream(HISTORY.ids(messages))

    @property
    def _form(self) -> Items:
        return HISTORY

    def _found(self, message: object) -> list[Found]:
        return [
            broken_off(call) if field(item, "status") == "incomplete" else call
            for place, item in enumerate(_output(message))
            if (call := _call_of(item, f"output[{place}]")) is not None
        ]

    def _reply(self, told: Sequence[Answer]) -> list[ResponseInputItemParam]:
        return [self._result(answer) for answer in told]

    def _result(self, answer: Answer) -> Any:
        kind = "custom_tool_call" if answer.custom else "function_call"
        return {"type": OUTPUT_OF[kind], "call_id": answer.id, "output": _shown(answer)}


class ResponsesStream(Stream):
    """One response of OpenAI's streams.

    A call is complete at its `response.output_item.done`, and at the latest with the response. It
    is known by its `call_id`: a proxy may announce it as one item and finish it as another.
    """

    def __init__(self, taken: Set[str] = frozenset()) -> None:
        super().__init__(taken)
        self._slots: list[_Slot] = []
        self._open: dict[object, _Slot] = {}
        """Those that were announced and are not done, by the place that the output has for them."""
        self._order = InOrder[_Slot]()

    @property
    def message(self) -> list[Any]:
        """The items by now, calls once they came out, with the ids that these got."""
        told = [slot for slot in self._slots if slot.found is None or slot.call_id is not None]
        return [
            slot.item if slot.call_id is None else _with_call_id(slot.item, slot.call_id)
            for slot in told
            if slot.item is not None
        ]

    def _feed(self, event: object) -> list[ToolCall]:
        kind, place = str(field(event, "type")), field(event, "output_index")
        if kind == "response.output_item.added":
            if place not in self._open:
                self._open[place] = self._slot(field(event, "item"))
        elif kind == "response.output_item.done":
            return self._done(place, field(event, "item"))
        elif kind in ("response.completed", "response.incomplete"):
            return self._end(field(field(event, "response"), "output") or ())
        return []

    def _error(self, event: object) -> object:
        if field(event, "type") == "response.failed":
            return field(field(event, "response"), "error") or "no reason given"
        return super()._error(event)

    def _slot(self, item: object) -> _Slot:
        """The next item begins."""
        slot = _Slot(field(item, "call_id"))
        self._slots.append(slot)
        if _kind(item) in INPUT_OF:
            self._order.begin(slot)
        return slot

    def _done(self, place: object, item: object) -> list[ToolCall]:
        call_id = field(item, "call_id")
        if call_id and any(slot.found == _call(item, "item") for slot in self._slots):
            return []  # once more
        announced = (at for at, slot in self._open.items() if call_id and slot.given == call_id)
        at = place if place in self._open else next(announced, None)
        return self._finish(at, item)

    def _finish(self, place: object, item: object) -> list[ToolCall]:
        slot = self._open.pop(place) if place in self._open else self._slot(item)
        slot.item = plain(item)
        if _kind(item) not in INPUT_OF:
            return []
        slot.found = _call(item, "item")
        slot.cut_off = field(item, "status") == "incomplete" and not is_whole(slot.found)
        return [call for next_one in self._order.finish(slot) for call in self._out(next_one)]

    def _end(self, output: Sequence[Any]) -> list[ToolCall]:
        """The response as a whole, all of which may have been told before, or nothing."""
        self._complete = True
        told = Counter(_identity(slot.item) for slot in self._slots if slot.item is not None)
        calls: list[ToolCall] = []
        for place, item in enumerate(output):
            if told[_identity(item)]:
                told[_identity(item)] -= 1
            else:
                calls += self._finish(place, item)
        self._open.clear()
        return [*calls, *(call for slot in self._order.rest() for call in self._out(slot))]

    def _out(self, slot: _Slot) -> list[ToolCall]:
        if slot.found is None:
            return []
        slot.call_id, calls = self._named(replace(slot.found, cut_off=slot.cut_off))
        return calls


@dataclass(slots=True, eq=False)
class _Slot:
    """An item of the output, as it is once it is done."""

    given: object
    """The `call_id` that it was announced with."""
    item: Any = None
    found: Found | None = None
    cut_off: bool = False
    call_id: str | None = None
    """The id that the call got as it came out."""


def _identity(item: Any) -> tuple[str, object]:
    return _kind(item), field(item, "call_id" if _kind(item) in INPUT_OF else "id")


def _with_call_id(item: Any, call_id: str) -> Json:
    """A call for the history, which takes its arguments only as text."""
    said = INPUT_OF[_kind(item)]
    written = item[said] if isinstance(item[said], str) else render(item[said])
    return {**item, "call_id": call_id, said: written}


def _output(message: object) -> Sequence[Any]:
    if isinstance(message, list | tuple):
        return items(message, "output", "a list of items")
    if field(message, "choices") is not None:
        raise InputError("response.choices is Chat Completions' form: read it with OpenAIChat")
    return items(field(message, "output"), "response.output", "a list of items")


def _kind(item: object) -> str:
    return str(field(item, "type"))


def _call_of(item: object, where: str) -> Found | None:
    """The call that an item is, if it is one of ours; another API's call is none to skip."""
    kind = _kind(item)
    if kind in INPUT_OF:
        return _call(item, where)
    if kind in ("tool_use", "function", "custom") or field(item, "tool_calls"):
        raise InputError(f"{where} is no item of a response: read it with its own API's adapter")
    return None


def _call(item: object, where: str) -> Found:
    kind = _kind(item)
    return Found(
        field(item, "call_id"),
        text(item, "name", where),
        field(item, INPUT_OF[kind]),
        custom=kind == "custom_tool_call",
    )


def _shown(answer: Answer) -> Any:
    if not answer.images:
        return answer.text
    return [
        {"type": "input_text", "text": piece}
        if isinstance(piece, str)
        else {
            "type": "input_image",
            "image_url": f"data:{piece.media_type};base64,{encoded(piece)}",
            "detail": "auto",
        }
        for piece in answer.pieces
    ]


def _function(tool: Tool) -> FunctionToolParam:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": {"type": "object", **tool.input_schema},
        "strict": False,
    }


def _custom(tool: Tool) -> CustomToolParam:
    check_custom(tool)
    return {"type": "custom", "name": tool.name, "description": tool.description}


def _calls_in(item: object) -> list[Found]:
    return [_call(item, "item")] if _kind(item) in INPUT_OF else []


def _answered_in(item: object) -> str | None:
    return str(field(item, "call_id") or "") if _kind(item) in OUTPUT_OF.values() else None


HISTORY = Items(
    calls=_calls_in,
    key=_answered_in,
    with_ids=lambda item, ids: {**fields_of(item), "call_id": ids[0]},
    with_id=lambda item, call_id: {**fields_of(item), "call_id": call_id},
    adjacent=False,
)
