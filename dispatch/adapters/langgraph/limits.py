"""Calls of a message that the model's limit broke off.

LangChain makes whole arguments of what was written by then, so that half a file would pass for the
whole one. Which call it was is not said; the last one of the message is the only one it can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

_REASONS = frozenset(
    {"max_tokens", "length", "content_filter", "model_context_window_exceeded", "refusal"}
)
_TEXT = (
    "[error] the message ended at the model's limit, so the arguments of this call may be cut"
    " off.\n"
    "Nothing was done. Ask for less in one call, and call it again."
)


def cut_off(message: AIMessage | None) -> str | None:
    """The id of the call whose arguments may be cut off; None if there is none."""
    if message is None or not message.tool_calls or message.invalid_tool_calls:
        return None  # LangChain sets an unreadable call apart, as long as it sees that it is one
    told: Mapping[str, Any] = message.response_metadata
    reasons = {str(told.get(name)).lower() for name in ("stop_reason", "finish_reason")}
    if not reasons & _REASONS and told.get("status") != "incomplete":
        return None
    return message.tool_calls[-1]["id"] or ""


def refusal(asked: Any) -> ToolMessage:
    """What answers such a call."""
    call_id = asked["id"] or ""
    return ToolMessage(_TEXT, name=asked["name"], tool_call_id=call_id, status="error")
