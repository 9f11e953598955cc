"""OpenAI's Chat Completions API and its imitators: `tool_calls` in, `tool` messages out.

Arguments stay the raw JSON text that the model wrote; servers that send an object are understood. A
custom tool's call has free text instead, which becomes the argument `input`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from dispatch.adapters.answers import Answer, encoded
from dispatch.adapters.budget import Budget
from dispatch.adapters.chat_stream import LEGACY, WHOLE, ChatStream, json_text
from dispatch.adapters.history import fields_of
from dispatch.adapters.names import Found, broken_off, wire_ids
from dispatch.adapters.provider import DEFAULT_BUDGET, Provider
from dispatch.adapters.repair import Items
from dispatch.adapters.wire import (
    Tools,
    assistant,
    check_custom,
    described,
    field,
    items,
    plain,
    text,
    toolbox_of,
)
from dispatch.errors import InputError

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionCustomToolParam,
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageParam,
        ChatCompletionToolUnionParam,
    )
    from openai.types.shared_params import FunctionDefinition

    from dispatch.tool import Tool

Json = dict[str, Any]


class OpenAIChat(
    Provider["ChatCompletionAssistantMessageParam", "list[ChatCompletionMessageParam]"]
):
    """Reads and answers messages of OpenAI's Chat Completions API.

    A message may also be given as its choice, or as a whole response of one choice. The legacy
    `function_call` is refused. `reply` is a list: extend the history by it. Images, which `tool`
    messages cannot hold, stand in a message of the user behind them.

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
    ) -> ChatCompletionAssistantMessageParam:
        """Make the assistant message to append before the reply. See `Provider.message`."""
        ids = wire_ids(self.calls(message, messages))
        copy: Any = plain(_message(message)[0])
        for call_id, given in zip(ids, copy.get("tool_calls") or (), strict=True):
            given["id"], given["type"] = call_id, given.get("type") or "function"
            function = field(given, "function")
            if function is not None and not isinstance(field(function, "arguments"), str):
                function["arguments"] = json_text(field(function, "arguments"))
        said: ChatCompletionAssistantMessageParam = copy
        return said

    def tools(self, toolbox: Tools) -> list[ChatCompletionToolUnionParam]:
        """Make the tool definitions for a request, in the toolbox's order.

        Takes a toolbox, a dispatcher, or a list of tools. Raises `InputError` for a custom tool
        that takes anything but `input`.
        """
        return [
            _custom(tool) if tool.name in self._custom else _definition(tool)
            for tool in toolbox_of(toolbox).values()
        ]

    def stream(self, messages: Sequence[Any] = ()) -> ChatStream:
        """A reader for the chunks of `create(stream=True)`. See `Stream`."""
        return ChatStream(HISTORY.ids(messages))

    @property
    def _form(self) -> Items:
        return HISTORY

    def _found(self, message: object) -> list[Found]:
        reason = _finish_reason(message)
        message, where = _message(message)
        _refuse_other_forms(message, where)
        given = field(message, "tool_calls")
        if given is None:
            return []
        where = f"{where}.tool_calls"
        given = items(given, where, "a list of tool calls")
        found = [_call(call, f"{where}[{i}]") for i, call in enumerate(given)]
        return found if reason in (None, *WHOLE) else [broken_off(call) for call in found]

    def _reply(self, told: Sequence[Answer]) -> list[ChatCompletionMessageParam]:
        replies: list[ChatCompletionMessageParam] = [self._result(answer) for answer in told]
        shown = [part for answer in told if answer.images for part in _shown(answer)]
        if shown:
            replies.append({"role": "user", "content": shown})
        return replies

    def _result(self, answer: Answer) -> Any:
        return {"role": "tool", "tool_call_id": answer.id, "content": answer.text}


def _finish_reason(given: object) -> object:
    """Why the message of a response or a choice is over; None if that is not said."""
    choices = field(given, "choices")
    choice = choices[0] if isinstance(choices, list | tuple) and choices else given
    return field(choice, "finish_reason")


def _message(given: object) -> tuple[object, str]:
    """Find the assistant message in a response, a choice or itself, and where it was found."""
    where = "message"
    if (choices := field(given, "choices")) is not None:
        found = items(choices, "response.choices", "a list of choices")
        if len(found) != 1:
            raise InputError(
                f"response.choices has {len(found)} choices; pass the message of the one to answer"
            )
        given, where = found[0], "response.choices[0].message"
        if field(given, "message") is None:
            raise InputError(f"{where} is missing; pieces of a stream are no complete message")
    if (inner := field(given, "message")) is not None:
        given = inner
    return assistant(given, where), where


def _refuse_other_forms(message: object, where: str) -> None:
    if field(message, "function_call") is not None:
        raise InputError(f"{where}.function_call {LEGACY}")
    content = field(message, "content")
    if isinstance(content, list | tuple) and any(field(b, "type") == "tool_use" for b in content):
        raise InputError(
            f"{where}.content has tool_use blocks, Anthropic's form: read it with AnthropicMessages"
        )


def _call(call: object, where: str) -> Found:
    kind = field(call, "type")
    if kind == "custom":
        custom = field(call, "custom")
        name = text(custom, "name", f"{where}.custom")
        return Found(field(call, "id"), name, field(custom, "input"), custom=True)
    if kind not in (None, "function"):
        shown = repr(kind) if isinstance(kind, str) else described(kind)
        raise InputError(f"{where}.type must be 'function' or 'custom', not {shown}")
    function, where = field(call, "function"), f"{where}.function"
    if function is None:
        raise InputError(f"{where} is missing")
    return Found(field(call, "id"), text(function, "name", where), field(function, "arguments"))


def _shown(answer: Answer) -> list[Any]:
    """The images of one answer, and before them whose they are."""
    url = [f"data:{image.media_type};base64,{encoded(image)}" for image in answer.images]
    return [
        {"type": "text", "text": f"Images of the tool call {answer.id}:"},
        *({"type": "image_url", "image_url": {"url": one}} for one in url),
    ]


def _custom(tool: Tool) -> ChatCompletionCustomToolParam:
    check_custom(tool)
    return {"type": "custom", "custom": {"name": tool.name, "description": tool.description}}


def _definition(tool: Tool) -> ChatCompletionFunctionToolParam:
    function: FunctionDefinition = {
        "name": tool.name,
        "parameters": {"type": "object", **tool.input_schema},
    }
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _calls_in(message: object) -> list[Found]:
    if field(message, "role") != "assistant":
        return []
    return [_call(call, "tool_calls") for call in field(message, "tool_calls") or ()]


def _answered_in(message: object) -> str | None:
    if field(message, "role") != "tool":
        return None
    return str(field(message, "tool_call_id") or "")


def _with_ids(message: Any, ids: Sequence[str]) -> Json:
    copy = fields_of(message)
    calls = [fields_of(call) for call in copy["tool_calls"]]
    copy["tool_calls"] = [{**call, "id": call_id} for call, call_id in zip(calls, ids, strict=True)]
    return copy


HISTORY = Items(
    calls=_calls_in,
    key=_answered_in,
    with_ids=_with_ids,
    with_id=lambda message, call_id: {**fields_of(message), "tool_call_id": call_id},
    adjacent=True,
)
