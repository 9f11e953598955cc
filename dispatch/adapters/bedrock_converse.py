"""Amazon Bedrock's Converse API: `toolUse` blocks in, one user message of `toolResult` blocks out.

Tools that the provider runs itself carry a `type` and are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dispatch.adapters.answers import Answer
from dispatch.adapters.block_streams import Block, BlockStream
from dispatch.adapters.history import fields_of
from dispatch.adapters.names import Found, wire_ids
from dispatch.adapters.provider import Provider
from dispatch.adapters.repair import Blocks
from dispatch.adapters.streams import Draft, input_of
from dispatch.adapters.wire import Tools, assistant, field, items, plain, text, toolbox_of
from dispatch.call import ToolCall
from dispatch.errors import InputError
from dispatch.tool import Tool

Json = dict[str, Any]


class BedrockConverse(Provider[Json, Json]):
    """Reads and answers messages of Bedrock's Converse API.

    A message may also be given as the whole response.
    """

    def message(self, message: object, messages: Sequence[Any] = ()) -> Json:
        """Make the assistant message to append before the reply. See `Provider.message`."""
        ids = iter(wire_ids(self.calls(message, messages)))
        content = [
            block if _call_in(block) is None else _for_history(block, next(ids))
            for block in plain(_blocks(message))
        ]
        return {"role": "assistant", "content": content}

    def tools(self, toolbox: Tools) -> Json:
        """Make the `toolConfig` of a request, in the toolbox's order.

        Takes a toolbox, a dispatcher, or a list of tools.
        """
        return {"tools": [{"toolSpec": _definition(t)} for t in toolbox_of(toolbox).values()]}

    def stream(self, messages: Sequence[Any] = ()) -> BedrockStream:
        """A reader for the events of `converse_stream(…)["stream"]`. See `Stream`."""
        return BedrockStream(HISTORY.ids(messages))

    @property
    def _form(self) -> Blocks:
        return HISTORY

    def _found(self, message: object) -> list[Found]:
        blocks, found = _blocks(message), []
        for place, block in enumerate(blocks):
            if (call := _call_in(block)) is not None:
                text(field(block, "toolUse"), "name", f"message.content[{place}].toolUse")
                is_last = place == len(blocks) - 1
                cut_off = is_last and field(message, "stopReason") not in (None, *_WHOLE)
                found.append(replace(call, cut_off=cut_off))
        return found

    def _reply(self, told: Sequence[Answer]) -> Json:
        return {"role": "user", "content": [_result(answer) for answer in told]}

    def _result(self, answer: Answer) -> Json:
        return _result(answer)


class BedrockStream(BlockStream):
    """One message of Bedrock's streams. A call is complete at its `contentBlockStop`."""

    @property
    def message(self) -> Json:
        """The assistant's message by now."""
        return {"role": "assistant", "content": self._content()}

    def _feed(self, event: object) -> list[ToolCall]:
        if start := field(event, "contentBlockStart"):
            use = field(field(start, "start"), "toolUse")
            return self._start(field(start, "contentBlockIndex"), {}, _draft(use))
        if delta := field(event, "contentBlockDelta"):
            return self._delta(field(delta, "contentBlockIndex"), field(delta, "delta"))
        if stop := field(event, "contentBlockStop"):
            return self._stop(field(stop, "contentBlockIndex"))
        if end := field(event, "messageStop"):
            return self._end(cut_off=field(end, "stopReason") not in _WHOLE)
        return []

    def _delta(self, index: object, delta: object) -> list[ToolCall]:
        use, reasoning = field(delta, "toolUse"), field(delta, "reasoningContent")
        if use is not None:
            if (draft := self._at(index).draft) is not None:  # else the provider runs it itself
                draft.add(field(use, "input"))
            return []
        calls = [] if index in self._open else self._start(index, {})  # text is not announced
        block = self._at(index)
        if redacted := field(reasoning, "redactedContent"):
            block.started = {"reasoningContent": {"redactedContent": redacted}}
        for name in ("text", "signature"):
            if piece := field(delta if reasoning is None else reasoning, name):
                block.write(name if reasoning is None else f"reasoning {name}", piece)
        return calls

    def _written(self, block: Block) -> Json:
        """Blocks of blank text are left out: the API does not take them back."""
        if block.draft is not None:
            use = {"toolUseId": block.id, "name": block.draft.name, "input": block.input}
            return {"toolUse": use}
        if block.texts.get("text", "").strip():
            return {"text": block.texts["text"]}
        reasoning = {
            name: block.texts[f"reasoning {name}"]
            for name in ("text", "signature")
            if f"reasoning {name}" in block.texts
        }
        return {"reasoningContent": {"reasoningText": reasoning}} if reasoning else block.started

    def _error(self, event: object) -> object:
        named = event.items() if isinstance(event, Mapping) else ()
        return next((told for name, told in named if str(name).endswith("Exception")), None)


def _draft(use: object) -> Draft | None:
    """A call of ours, whose arguments come later."""
    if use is None or field(use, "type"):
        return None
    return Draft(field(use, "toolUseId"), text(use, "name", "toolUse"))


_WHOLE = frozenset({"tool_use", "end_turn", "stop_sequence"})
"""Why a message stops that was not broken off."""


def _blocks(message: object) -> Sequence[Any]:
    """The blocks of a message, which may be in a response."""
    if (output := field(message, "output")) is not None:
        message = field(output, "message")
    content = field(assistant(message, "message"), "content")
    blocks = items(content, "message.content", "a list of blocks")
    if any(isinstance(field(block, "type"), str) for block in blocks):
        raise InputError(
            "message.content has blocks with a type, which is not the form of Converse: read"
            " messages of InvokeModel with the adapter of the model's own API"
        )
    return blocks


def _result(answer: Answer) -> Json:
    return {
        "toolResult": {
            "toolUseId": answer.id,
            "content": [
                {"text": piece}
                if isinstance(piece, str)
                else {
                    "image": {
                        "format": piece.media_type.rpartition("/")[2],
                        "source": {"bytes": piece.data},
                    }
                }
                for piece in answer.pieces
            ],
            "status": "success" if answer.ok else "error",
        }
    }


def _definition(tool: Tool) -> Json:
    definition: Json = {
        "name": tool.name,
        "inputSchema": {"json": {"type": "object", **tool.input_schema}},
    }
    if tool.description:
        definition["description"] = tool.description
    return definition


def _call_in(block: object) -> Found | None:
    use = field(block, "toolUse")
    if use is None or field(use, "type"):
        return None
    return Found(field(use, "toolUseId"), str(field(use, "name")), field(use, "input"))


def _answered_in(block: object) -> str | None:
    result = field(block, "toolResult")
    if result is None or field(result, "type"):
        return None
    return str(field(result, "toolUseId") or "")


def _for_history(block: Any, call_id: str) -> Json:
    use = block["toolUse"]
    return {"toolUse": {**use, "toolUseId": call_id, "input": input_of(use.get("input"))}}


def _with_id(block: Any, call_id: str | None) -> Any:
    name = "toolUse" if field(block, "toolUse") is not None else "toolResult"
    if field(field(block, name), "toolUseId") == call_id:
        return block
    return {name: {**fields_of(field(block, name)), "toolUseId": call_id}}


HISTORY = Blocks(
    content="content",
    assistant="assistant",
    call=_call_in,
    key=_answered_in,
    said=lambda words: {"text": words},
    with_id=_with_id,
)
