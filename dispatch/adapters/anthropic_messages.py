"""Anthropic's Messages API: `tool_use` blocks in, one user message of `tool_result` blocks out.

Tools that the provider runs itself (`server_tool_use` and the like) are none of ours and skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dispatch.adapters.answers import Answer, encoded
from dispatch.adapters.block_streams import Block, BlockStream
from dispatch.adapters.history import fields_of
from dispatch.adapters.names import Found, wire_ids
from dispatch.adapters.provider import Provider
from dispatch.adapters.repair import Blocks
from dispatch.adapters.streams import Draft, input_of
from dispatch.adapters.wire import Tools, assistant, field, items, plain, text, toolbox_of
from dispatch.call import ToolCall
from dispatch.errors import InputError

if TYPE_CHECKING:
    from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam

    from dispatch.tool import Tool

OPENAI_TYPES = frozenset({"function", "function_call", "custom", "custom_tool_call", "output_text"})


class AnthropicMessages(Provider["MessageParam", "MessageParam"]):
    """Reads and answers messages of Anthropic's Messages API.

    A message (which is also the whole response body) may be given as its list of content blocks.
    """

    def message(self, message: object, messages: Sequence[Any] = ()) -> MessageParam:
        """Make the assistant message to append before the reply. See `Provider.message`."""
        ids = iter(wire_ids(self.calls(message, messages)))
        content = plain(message if isinstance(message, list | tuple) else field(message, "content"))
        if isinstance(content, list):
            content = [
                {**block, "id": next(ids), "input": input_of(block.get("input"))}
                if block["type"] == "tool_use"
                else block
                for block in content
            ]
        return {"role": "assistant", "content": content}

    def tools(self, toolbox: Tools) -> list[ToolParam]:
        """Make the tool definitions for a request, in the toolbox's order.

        Takes a toolbox, a dispatcher, or a list of tools.
        """
        return [_definition(tool) for tool in toolbox_of(toolbox).values()]

    def stream(self, messages: Sequence[Any] = ()) -> AnthropicStream:
        """A reader for the events of one streamed message. See `Stream`.

        Takes those of `messages.create(stream=True)` and of `messages.stream()`.
        """
        return AnthropicStream(HISTORY.ids(messages))

    @property
    def _form(self) -> Blocks:
        return HISTORY

    def _found(self, message: object) -> list[Found]:
        where = "content" if isinstance(message, list | tuple) else "message.content"
        blocks, found = _blocks(message, where), []
        for i, block in enumerate(blocks):
            if _kind(block, f"{where}[{i}]") == "tool_use":
                name = text(block, "name", f"{where}[{i}]")
                is_last = i == len(blocks) - 1
                cut_off = is_last and field(message, "stop_reason") not in (None, *_WHOLE)
                found.append(
                    Found(field(block, "id"), name, field(block, "input"), cut_off=cut_off)
                )
        return found

    def _reply(self, told: Sequence[Answer]) -> MessageParam:
        return {"role": "user", "content": [_result(answer) for answer in told]}

    def _result(self, answer: Answer) -> ToolResultBlockParam:
        return _result(answer)


class AnthropicStream(BlockStream):
    """One message of Anthropic's streams. A call is complete at its `content_block_stop`."""

    @property
    def message(self) -> MessageParam:
        """The assistant's message by now."""
        content: list[Any] = self._content()
        return {"role": "assistant", "content": content}

    def _feed(self, event: object) -> list[ToolCall]:
        kind, index = field(event, "type"), field(event, "index")
        if kind == "content_block_start":
            block = plain(field(event, "content_block"))
            return self._start(index, block, _draft(block))
        if kind == "content_block_delta":
            self._delta(index, field(event, "delta"))
        elif kind == "content_block_stop":
            return self._stop(index)
        elif kind == "message_delta" and (reason := field(field(event, "delta"), "stop_reason")):
            return self._end(cut_off=reason not in _WHOLE)
        elif kind == "message_stop":
            return self._end(cut_off=False)
        return []

    def _delta(self, index: object, delta: object) -> None:
        kind = field(delta, "type")
        if kind == "citations_delta":
            started = self._at(index).started
            cited = plain(field(delta, "citation"))
            started["citations"] = [*(started.get("citations") or ()), cited]
        elif kind in _WRITES:
            block, name = self._at(index), _WRITES[kind]
            if block.draft is not None:
                block.draft.add(field(delta, name))
            else:
                block.write(name, field(delta, name))

    def _written(self, block: Block) -> dict[str, Any]:
        """Blocks of blank text are left out: the API does not take them back."""
        if block.draft is not None:
            return {**block.started, "id": block.id, "input": block.input}
        written = {**block.started, **block.texts}
        if (of_server := written.pop("partial_json", None)) is not None:
            written["input"] = input_of(of_server)
        is_blank = written["type"] == "text" and not str(written.get("text") or "").strip()
        return {} if is_blank else written


def _draft(block: Any) -> Draft | None:
    """A call of ours, whose arguments mostly come later."""
    if block["type"] != "tool_use":
        return None
    draft = Draft(block.get("id"), text(block, "name", "content_block"))
    draft.add(block.get("input") or "")
    return draft


_WHOLE = frozenset({"tool_use", "end_turn", "stop_sequence", "pause_turn"})
"""Why a message stops that was not broken off."""
_WRITES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""Which field of its block each kind of delta continues."""


def _blocks(message: object, where: str) -> Sequence[Any]:
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


def _result(answer: Answer) -> ToolResultBlockParam:
    block: ToolResultBlockParam = {
        "type": "tool_result",
        "tool_use_id": answer.id,
        "content": _content(answer),
    }
    if not answer.ok:
        block["is_error"] = True
    return block


def _content(answer: Answer) -> Any:
    if not (answer.ok and answer.images):  # an error may have text alone
        return answer.text
    return [
        {"type": "text", "text": piece}
        if isinstance(piece, str)
        else {
            "type": "image",
            "source": {"type": "base64", "media_type": piece.media_type, "data": encoded(piece)},
        }
        for piece in answer.pieces
    ]


def _definition(tool: Tool) -> ToolParam:
    definition: ToolParam = {
        "name": tool.name,
        "input_schema": {"type": "object", **tool.input_schema},
    }
    if tool.description:
        definition["description"] = tool.description
    return definition


def _call_in(block: object) -> Found | None:
    if field(block, "type") != "tool_use":
        return None
    return Found(field(block, "id"), str(field(block, "name")), field(block, "input"))


def _answered_in(block: object) -> str | None:
    if field(block, "type") != "tool_result":
        return None
    return str(field(block, "tool_use_id") or "")


def _with_id(block: Any, call_id: str | None) -> Any:
    name = "id" if field(block, "type") == "tool_use" else "tool_use_id"
    return block if field(block, name) == call_id else {**fields_of(block), name: call_id}


HISTORY = Blocks(
    content="content",
    assistant="assistant",
    call=_call_in,
    key=_answered_in,
    said=lambda words: {"type": "text", "text": words},
    with_id=_with_id,
)
