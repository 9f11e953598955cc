"""Anthropic's Messages API: `tool_use` blocks in, one user message of `tool_result` blocks out.

Tools that the provider runs itself (`server_tool_use` and the like) are none of ours and skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dispatch.adapters.wire import (
    Tools,
    assistant,
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
    from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam

    from dispatch.tool import Tool

OPENAI_TYPES = frozenset({"function", "function_call", "custom", "custom_tool_call", "output_text"})


class AnthropicMessages:
    """Reads and answers messages of Anthropic's Messages API."""

    def calls(self, message: object) -> list[ToolCall]:
        """Read the calls of an assistant message, in intent order.

        Takes the message (which is also the whole response body) or its list of content blocks,
        as dictionaries or SDK objects. Blank ids are replaced; arguments are not looked at.
        Raises `InputError` for anything else.
        """
        where = "content" if isinstance(message, list | tuple) else "message.content"
        found = [
            (field(block, "id"), text(block, "name", f"{where}[{i}]"), field(block, "input"))
            for i, block in enumerate(_blocks(message, where))
            if _kind(block, f"{where}[{i}]") == "tool_use"
        ]
        return named_calls(found)

    def message(self, message: object) -> MessageParam:
        """Make the assistant message to append before the reply, each call with the id it got.

        Takes what `calls` takes. Only a message with blank ids needs this: the provider matches
        the results of `reply` by the ids that it finds in the history.
        """
        ids = iter([call.id for call in self.calls(message)])
        content = plain(message if isinstance(message, list | tuple) else field(message, "content"))
        if isinstance(content, list):
            content = [
                {**block, "id": next(ids)} if block["type"] == "tool_use" else block
                for block in content
            ]
        return {"role": "assistant", "content": content}

    def reply(self, turn: Iterable[ToolResult]) -> MessageParam:
        """Make the one user message that answers the calls, in intent order; append it.

        Takes a `TurnResult` or any results. Equal results give an equal message, byte for byte.
        """
        return {"role": "user", "content": [_block(result) for result in in_order(turn)]}

    def tools(self, toolbox: Tools) -> list[ToolParam]:
        """Make the tool definitions for a request, in the toolbox's order.

        Takes a toolbox, a dispatcher, or a list of tools.
        """
        return [_definition(tool) for tool in toolbox_of(toolbox).values()]


def _blocks(message: object, where: str) -> Iterable[object]:
    if isinstance(message, list | tuple):
        return items(message, where, "a list of blocks")
    content = field(assistant(message, "message"), "content")
    if field(message, "tool_calls"):
        raise InputError("message.tool_calls is OpenAI's form: read this message with OpenAIChat")
    return () if isinstance(content, str) else items(content, where, "text or a list of blocks")


def _kind(block: object, where: str) -> str:
    """The block's type. Kinds that are not known are somebody's own, but never a call of ours."""
    kind = text(block, "type", where)
    if kind in OPENAI_TYPES:
        raise InputError(f"{where}.type is {kind!r}, OpenAI's form, not a block of Anthropic's")
    return kind


def _block(result: ToolResult) -> ToolResultBlockParam:
    block: ToolResultBlockParam = {
        "type": "tool_result",
        "tool_use_id": result.call.id,
        "content": result.content(),
    }
    if not result.ok:
        block["is_error"] = True
    return block


def _definition(tool: Tool) -> ToolParam:
    definition: ToolParam = {
        "name": tool.name,
        "input_schema": {"type": "object", **tool.input_schema},
    }
    if tool.description:
        definition["description"] = tool.description
    return definition
