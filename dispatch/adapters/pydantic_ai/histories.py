"""Repairing pydantic-ai's histories: every call is answered once, and nothing that was not called.

pydantic-ai answers calls that have no result by itself, and drops results whose call is gone. It
leaves results that stand too late, second results of one call, and ids that come again: providers
refuse all three. Where it drops a cut history's first results, a response is left in front, which
Anthropic refuses. The repair is that of the other adapters; here is what the messages look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic_ai import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import SYNTHESIZED_TOOL_RETURN_METADATA_KEY as MADE

from dispatch.adapters.answers import Answer
from dispatch.adapters.history import LOST, Asked, Known
from dispatch.adapters.names import Found
from dispatch.adapters.provider import DEFAULT_BUDGET
from dispatch.adapters.repair import LEFT_OUT, Blocks
from dispatch.call import ToolResult
from dispatch.errors import InputError


def close_open_calls(
    messages: Sequence[ModelMessage], known: Iterable[ToolResult] = ()
) -> list[ModelMessage]:
    """The history with exactly one result for each call, in the request behind it.

    A call without a result is answered by the one of `known` with its id, which tells what became
    of it; else by a result that says that its own was lost. Results without a call are dropped,
    those at the wrong place put in the right one, repeated ids told apart. Where a response would
    stand first, or nothing is left of the last request, a prompt says that something was left out.
    A history that is in order comes back with the same messages, so that repairing it again changes
    nothing. `messages` is not changed. Raises `InputError` for anything but pydantic-ai's messages.

    `DispatchCapability` does it before each request of a model. Without it, it can be a history
    processor: `ProcessHistory(close_open_calls)`.
    """
    if not isinstance(messages, list | tuple):
        raise InputError(f"messages must be a list of ModelMessage, not {messages!r}")
    for index, message in enumerate(messages):
        if not isinstance(message, ModelRequest | ModelResponse):
            raise InputError(f"messages[{index}] must be a ModelMessage, not {message!r}")
    if _is_in_order(messages):
        return list(messages)
    responses = [one for one in messages if isinstance(one, ModelResponse)]
    asked_at = {call.tool_call_id: one.timestamp for one in responses for call in one.tool_calls}
    results = Known(known, DEFAULT_BUDGET)

    def made(asked: Asked) -> ToolReturnPart:
        when = next(asked_at[key] for key in asked.keys if key in asked_at)
        return _result(results.answer(asked), when)

    def said(text: str) -> UserPromptPart:
        return UserPromptPart(text, timestamp=_begin(messages))

    form = Blocks("parts", "assistant", _call, _key, said, _with_id)
    first = [ModelRequest([said(LEFT_OUT)])] if isinstance(messages[0], ModelResponse) else []
    mended = form.repair([_fields(one) for one in (*first, *messages)], made)
    last = messages[-1]
    if isinstance(last, ModelRequest) and (not mended or mended[-1]["role"] == "assistant"):
        mended.append({**_fields(last), "parts": [said(LEFT_OUT)]})
    return [_message(one) for one in mended]


def _is_in_order(messages: Sequence[ModelMessage]) -> bool:
    """Whether a request is first, and each answers the response before it, and nothing else."""
    if messages and isinstance(messages[0], ModelResponse):
        return False
    due: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ModelRequest):
            keys = [key for part in message.parts if (key := _key(part)) is not None]
            if sorted(keys) != sorted(due):
                return False
            due = []
            continue
        if due:
            return False
        due = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
        if not all(one.strip() for one in due) or len(seen.union(due)) < len(seen) + len(due):
            return False
        seen.update(due)
    return not due


def _result(answer: Answer, when: datetime) -> ToolReturnPart:
    """What answers a call that has no result. A lost one is marked as pydantic-ai marks its own."""
    is_lost = answer.pieces == [LOST]
    return ToolReturnPart(
        answer.call.name,
        answer.text,
        answer.id,
        metadata={MADE: True} if is_lost else None,
        timestamp=when,
        outcome="success" if answer.ok else "interrupted" if is_lost else "failed",
    )


def _begin(messages: Sequence[ModelMessage]) -> datetime:
    """The first time in the history: what is made has none of its own, so as to be the same."""
    for message in messages:
        if isinstance(message, ModelResponse):
            return message.timestamp
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                return part.timestamp
    return datetime.fromtimestamp(0, UTC)


def _fields(message: ModelMessage) -> dict[str, Any]:
    role = "assistant" if isinstance(message, ModelResponse) else "user"
    return {"role": role, "parts": list(message.parts), "message": message}


def _message(fields: Mapping[str, Any]) -> ModelMessage:
    """The message itself where nothing of it changed; one that the repair made has none."""
    message, parts = fields.get("message"), fields["parts"]
    if message is None:
        return ModelRequest(parts)
    if isinstance(message, ModelResponse):
        return message if parts == list(message.parts) else replace(message, parts=parts)
    assert isinstance(message, ModelRequest)  # noqa: S101 - there are only the two
    return message if parts == list(message.parts) else replace(message, parts=parts)


def _call(part: object) -> Found | None:
    if not isinstance(part, ToolCallPart):
        return None
    return Found(part.tool_call_id, part.tool_name, part.args or {})


def _key(part: object) -> str | None:
    """The id that a result answers. What is asked of the whole message anew answers no call."""
    is_retry = getattr(part, "part_kind", None) == "retry-prompt"
    if isinstance(part, ToolReturnPart) or (is_retry and getattr(part, "tool_name", None)):
        return str(getattr(part, "tool_call_id", ""))
    return None


def _with_id(part: Any, call_id: str | None) -> Any:
    return part if part.tool_call_id == call_id else replace(part, tool_call_id=call_id)
