"""What OpenAI's Responses API refuses: items that do not pair, or have the wrong form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.providers.script import JSON, RefusedError, required

SAID = {"function_call": "arguments", "custom_tool_call": "input"}
ANSWERED = {f"{kind}_output": kind for kind in SAID}
SPOKEN = {"function_call": "function call", "custom_tool_call": "custom tool call"}
PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "message": "msg", "reasoning": "rs"}
OUTPUT_PARTS = {"input_text", "input_image", "input_file"}
LONGEST_ID = 64


def check(request: JSON, stored: Sequence[JSON]) -> int:
    """Refuse what the API refuses; how many responses the input holds.

    `stored` are items of earlier responses, which stand before the input without being in it. What
    the model said in one go is one response: its items follow each other.
    """
    required(request, "model", "input")
    _check_tools(request.get("tools") or ())
    given = request["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    _check_pairs([*stored, *items], len(stored))
    spoken = [_is_spoken(item) for item in items]
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))


def _is_spoken(item: JSON) -> bool:
    kind = item.get("type", "message")
    return kind in SAID or kind == "reasoning" or item.get("role") == "assistant"


def _check_tools(tools: Iterable[JSON]) -> None:
    for index, tool in enumerate(tools):
        if tool["type"] in ("function", "custom") and not tool.get("name"):
            raise RefusedError(f"Missing required parameter: 'tools[{index}].name'.")


def _check_pairs(items: Sequence[JSON], first: int) -> None:
    """Each call has one answer of its own kind, behind it; each answer has a call."""
    calls: dict[str, str] = {}
    waiting: dict[str, str] = {}
    for index, item in enumerate(items):
        kind, where = item.get("type", "message"), f"input[{index - first}]"
        if kind in SAID:
            call_id = _call_id(item, where)
            if call_id in calls:
                raise RefusedError(f"Duplicate '{where}.call_id': '{call_id}'.")
            _check_call(item, kind, where)
            calls[call_id] = waiting[call_id] = kind
        elif kind in ANSWERED:
            call_id = _call_id(item, where)
            if calls.get(call_id) != ANSWERED[kind]:
                raise RefusedError(
                    f"No tool call found for {SPOKEN[ANSWERED[kind]]} output with call_id"
                    f" {call_id}."
                )
            if waiting.pop(call_id, None) is None:
                raise RefusedError(f"Duplicate tool output found for call_id {call_id}.")
            _check_output(item["output"], where)
        elif kind not in ("message", "reasoning"):
            raise RefusedError(f"Invalid value: '{kind}' of '{where}.type'.")
        _check_item_id(item, kind, where)
    for call_id, kind in waiting.items():
        raise RefusedError(f"No tool output found for {SPOKEN[kind]} {call_id}.")


def _call_id(item: JSON, where: str) -> str:
    call_id = item.get("call_id")
    if not isinstance(call_id, str):
        raise RefusedError(f"Missing required parameter: '{where}.call_id'.")
    if not call_id:
        raise RefusedError(f"Invalid '{where}.call_id': empty string.")
    if len(call_id) > LONGEST_ID:
        raise RefusedError(f"Invalid '{where}.call_id': string too long.")
    return call_id


def _check_call(item: JSON, kind: str, where: str) -> None:
    if not isinstance(item[SAID[kind]], str):
        raise RefusedError(f"Invalid type for '{where}.{SAID[kind]}': expected a string.")
    if not item["name"]:
        raise RefusedError(f"Invalid '{where}.name': empty string.")


def _check_item_id(item: JSON, kind: str, where: str) -> None:
    """The id of an item, which it need not have, is not the one of its call."""
    prefix, given = PREFIXES.get(kind), item.get("id")
    if prefix and given is not None and not given.startswith(prefix):
        raise RefusedError(
            f"Invalid '{where}.id': '{given}'. Expected an ID that begins with '{prefix}'."
        )


def _check_output(output: object, where: str) -> None:
    if isinstance(output, str):
        return
    if not isinstance(output, list) or not output:
        raise RefusedError(f"Invalid type for '{where}.output': expected a string or an array.")
    if kinds := {part["type"] for part in output} - OUTPUT_PARTS:
        raise RefusedError(f"Invalid value: '{kinds.pop()}' of '{where}.output[].type'.")
