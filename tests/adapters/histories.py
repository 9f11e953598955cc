"""Conversations that no provider owns, written and read in the form of each.

A message is a role and its entries: `("text", words)`, `("call", id)`, `("result", id, value)`. The
call with the id `a` is one of the tool `do_a`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Entry = tuple[str, ...]
Message = tuple[str, Sequence[Entry]]


def said(*words: str) -> Message:
    """A message of the user."""
    return "user", [("text", each) for each in words]


def called(*ids: str, text: str = "") -> Message:
    """A message of the assistant."""
    return "assistant", [*([("text", text)] if text else []), *(("call", each) for each in ids)]


def answered(*ids: str, text: str = "") -> Message:
    """A message with the result `was_a` for the call `a`."""
    results = [("result", each, f"was_{each}") for each in ids]
    return "user", [*results, *([("text", text)] if text else [])]


def written(name: str, conversation: Sequence[Message]) -> list[Any]:
    """The history in the form of this provider."""
    if name in _BLOCKS:
        return [_message(name, *message) for message in conversation if message[1]]
    write = _chat if name == "chat" else _responses
    return [item for message in conversation for item in write(*message)]


def _message(name: str, role: str, entries: Sequence[Entry]) -> Any:
    if name == "gemini":
        role = "model" if role == "assistant" else role
        return {"role": role, "parts": [_BLOCKS[name](*entry) for entry in entries]}
    return {"role": role, "content": [_BLOCKS[name](*entry) for entry in entries]}


def _anthropic(kind: str, said: str, value: str = "") -> Any:
    return {
        "text": {"type": "text", "text": said},
        "call": {"type": "tool_use", "id": said, "name": f"do_{said}", "input": {}},
        "result": {"type": "tool_result", "tool_use_id": said, "content": value},
    }[kind]


def _bedrock(kind: str, said: str, value: str = "") -> Any:
    result = {"toolUseId": said, "content": [{"text": value}], "status": "success"}
    return {
        "text": {"text": said},
        "call": {"toolUse": {"toolUseId": said, "name": f"do_{said}", "input": {}}},
        "result": {"toolResult": result},
    }[kind]


def _gemini(kind: str, said: str, value: str = "") -> Any:
    """Only calls in capital letters have ids."""
    with_id = {"id": said} if said.isupper() else {}
    named = {"name": f"do_{said}", **with_id}
    return {
        "text": {"text": said},
        "call": {"functionCall": {**named, "args": {}}},
        "result": {"functionResponse": {**named, "response": {"output": value}}},
    }[kind]


_BLOCKS = {"anthropic": _anthropic, "bedrock": _bedrock, "gemini": _gemini}


def _chat(role: str, entries: Sequence[Entry]) -> Iterator[Any]:
    texts = [entry[1] for entry in entries if entry[0] == "text"]
    calls = [entry[1] for entry in entries if entry[0] == "call"]
    if calls:
        functions = [{"name": f"do_{each}", "arguments": "{}"} for each in calls]
        yield {
            "role": role,
            "content": " ".join(texts) or None,
            "tool_calls": [
                {"id": each, "type": "function", "function": function}
                for each, function in zip(calls, functions, strict=True)
            ],
        }
        return
    for kind, words, *value in entries:
        if kind == "text":
            yield {"role": role, "content": words}
        else:
            yield {"role": "tool", "tool_call_id": words, "content": value[0]}


def _responses(role: str, entries: Sequence[Entry]) -> Iterator[Any]:
    for kind, words, *value in entries:
        if kind == "text":
            yield {"role": role, "content": words}
        elif kind == "call":
            named = {"call_id": words, "name": f"do_{words}"}
            yield {"type": "function_call", **named, "arguments": "{}"}
        else:
            yield {"type": "function_call_output", "call_id": words, "output": value[0]}


def read(history: Sequence[Any]) -> Iterator[tuple[str, Any, str]]:
    """Kind, id and words of all that any provider's history has, one after the other."""
    for message in history:
        content = message.get("content") or message.get("parts") or ()
        if message.get("role") == "tool":
            yield "result", message["tool_call_id"], message["content"]
        elif isinstance(content, str):
            yield "text", None, content
        else:
            for block in content:
                yield _read(block)
        for call in message.get("tool_calls", ()):
            yield "call", call["id"], call["function"]["name"]
        if message.get("type") == "function_call":
            yield "call", message["call_id"], message["name"]
        elif message.get("type") == "function_call_output":
            yield "result", message["call_id"], message["output"]


def _read(block: Any) -> tuple[str, Any, str]:
    if block.get("type") == "tool_use":
        return "call", block["id"], block["name"]
    if block.get("type") == "tool_result":
        return "result", block["tool_use_id"], block["content"]
    if use := block.get("toolUse") or block.get("functionCall"):
        return "call", use.get("toolUseId", use.get("id")), use["name"]
    if result := block.get("toolResult"):
        return "result", result["toolUseId"], result["content"][0]["text"]
    if response := block.get("functionResponse"):
        told: str = next(iter(response["response"].values()))
        return "result", response.get("id"), told
    return "text", None, block["text"]


def texts(history: Sequence[Any]) -> list[str]:
    """What was said beside calls and results."""
    return [words for kind, _, words in read(history) if kind == "text"]


def pairs(history: Sequence[Any]) -> list[tuple[str, str]]:
    """The tool of each call and its result, in the order of the calls. All must be answered."""
    asked: list[tuple[Any, str]] = []
    told: dict[int, str] = {}
    for kind, call_id, words in read(history):
        if kind == "call":
            asked.append((call_id, words))
        elif kind == "result":
            waiting = (at for at, one in enumerate(asked) if at not in told and one[0] == call_id)
            told[next(waiting)] = words
    return [(tool, told[at]) for at, (_, tool) in enumerate(asked)]
