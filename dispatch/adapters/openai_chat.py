"""OpenAI's Chat Completions API and its imitators: `tool_calls` in, `tool` messages out.

Arguments stay the raw JSON text that the model wrote; servers that send an object are understood.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dispatch.adapters.wire import (
    Tools,
    assistant,
    described,
    field,
    in_order,
    items,
    named_calls,
    plain,
    text,
    toolbox_of,
)
from dispatch.call import ToolCall, ToolResult
from dispatch.errors import InputError

if TYPE_CHECKING:
    from openai.types.chat import (
        ChatCompletionAssistantMessageParam,
        ChatCompletionFunctionToolParam,
        ChatCompletionToolMessageParam,
    )
    from openai.types.shared_params import FunctionDefinition

    from dispatch.tool import Tool


class OpenAIChat:
    """Reads and answers messages of OpenAI's Chat Completions API."""

    def calls(self, message: object) -> list[ToolCall]:
        """Read the calls of an assistant message, in intent order.

        Takes the message, a choice, or the whole response of one choice, as dictionaries or SDK
        objects. Blank ids are replaced; arguments are not looked at. Raises `InputError` for
        anything else, for the legacy `function_call`, and for calls of custom tools.
        """
        message, where = _message(message)
        _refuse_other_forms(message, where)
        given = field(message, "tool_calls")
        if given is None:
            return []
        where = f"{where}.tool_calls"
        found = items(given, where, "a list of tool calls")
        return named_calls([_call(call, f"{where}[{i}]") for i, call in enumerate(found)])

    def message(self, message: object) -> ChatCompletionAssistantMessageParam:
        """Make the assistant message to append before the reply, each call with the id it got.

        Takes what `calls` takes. Only a message with blank ids needs this: the provider matches
        the results of `reply` by the ids that it finds in the history.
        """
        calls = self.calls(message)
        copy: ChatCompletionAssistantMessageParam = plain(_message(message)[0])
        for call, given in zip(calls, copy.get("tool_calls") or (), strict=True):
            given["id"] = call.id
        return copy

    def reply(self, turn: Iterable[ToolResult]) -> list[ChatCompletionToolMessageParam]:
        """Make one `tool` message per call, in intent order; extend the messages by them.

        Takes a `TurnResult` or any results. Equal results give equal messages, byte for byte.
        """
        return [
            {"role": "tool", "tool_call_id": result.call.id, "content": result.content()}
            for result in in_order(turn)
        ]

    def tools(self, toolbox: Tools) -> list[ChatCompletionFunctionToolParam]:
        """Make the tool definitions for a request, in the toolbox's order.

        Takes a toolbox, a dispatcher, or a list of tools.
        """
        return [_definition(tool) for tool in toolbox_of(toolbox).values()]


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
        raise InputError(
            f"{where}.function_call is the legacy form, which is not read; send the functions as"
            " `tools`, so that the model answers with tool_calls"
        )
    content = field(message, "content")
    if isinstance(content, list | tuple) and any(field(b, "type") == "tool_use" for b in content):
        raise InputError(
            f"{where}.content has tool_use blocks, Anthropic's form: read it with AnthropicMessages"
        )


def _call(call: object, where: str) -> tuple[object, str, object]:
    kind = field(call, "type")
    if kind not in (None, "function"):
        shown = repr(kind) if isinstance(kind, str) else described(kind)
        raise InputError(f"{where}.type must be 'function', not {shown}: only such tools can run")
    function, where = field(call, "function"), f"{where}.function"
    if function is None:
        raise InputError(f"{where} is missing")
    return field(call, "id"), text(function, "name", where), field(function, "arguments")


def _definition(tool: Tool) -> ChatCompletionFunctionToolParam:
    function: FunctionDefinition = {
        "name": tool.name,
        "parameters": {"type": "object", **tool.input_schema},
    }
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}
