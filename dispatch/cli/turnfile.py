"""Turn files: a model's tool calls as JSON, in any of the forms they are found in.

A list of calls, an assistant message or whole response of the Anthropic or the OpenAI API, the
blocks or tool calls out of one, or a list of such messages (a recorded loop). Invariant:
whatever the file holds, the outcome is calls or an `InputError` of one line that says where and
what. Arguments are not looked at: what is wrong with them is for the turn to answer.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from dispatch.adapters import AnthropicMessages, OpenAIChat
from dispatch.call import ToolCall
from dispatch.cli.wording import count
from dispatch.errors import InputError
from dispatch.render import preview

LARGEST = 64 * 1024 * 1024
CALL_FIELDS = ("id", "name", "arguments")
RESPONSES_TYPES = frozenset(
    {"function_call", "function_call_output", "reasoning", "item_reference"}
)
CONTENT_TYPES = frozenset({"text", "image", "document", "search_result", "container_upload"})
FORMS = "a list of calls, or an assistant message of the Anthropic or the OpenAI API"


def read_turn(source: str, number: int | None = None) -> list[ToolCall]:
    """The calls in the file `source` (`-` is standard input).

    `number` picks a message, counted from 1, out of a file that records several. Raises
    `InputError` with the file's name in front.
    """
    label = shown_name(source)
    data = load_json(_read(source, label), label)
    try:
        return calls_of(_chosen(data, number))
    except InputError as error:
        raise InputError(f"{label}: {_one_line(str(error))}") from None


def read_messages(path: Path) -> list[Any]:
    """The messages of a file that records a loop. Raises `InputError` like `read_turn`."""
    label = shown_name(str(path))
    data = load_json(_read(str(path), label), label)
    if not isinstance(data, list) or not _are_messages(data):
        raise InputError(f"{label}: must be a list of assistant messages")
    return data


def shown_name(source: str) -> str:
    """The file's name for people, on one line whatever it contains."""
    if source == "-":
        return "<stdin>"
    return source if source.isprintable() and source else repr(source)


def load_json(content: bytes, label: str) -> Any:
    """The JSON in `content`; `label` stands before the position in an error."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _position(content, error.start)
        byte = content[error.start]
        raise InputError(
            f"{label}:{line}:{column}: not UTF-8 text (byte 0x{byte:02x}); save it as UTF-8"
        ) from None
    if not text.strip():
        raise InputError(f"{label}: is empty; a turn file is JSON: {FORMS}")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"{label}:{error.lineno}:{error.colno}"
        raise InputError(f"{where}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{label}: is nested too deeply to be a turn") from None
    except ValueError as error:  # a constant that JSON lacks, or a number of too many digits
        raise InputError(f"{label}: not valid JSON: {_one_line(str(error))}") from None


def calls_of(data: Any) -> list[ToolCall]:
    """The calls in parsed JSON of any form. Raises `InputError` saying what is wrong where."""
    if isinstance(data, list):
        return _reader_of_list(data)(data)
    if not isinstance(data, dict):
        raise InputError(f"holds {_kind(data)}; a turn file is {FORMS}")
    return _reader_of_object(data)(data)


def _reader_of_list(data: list[Any]) -> Callable[[Any], list[ToolCall]]:
    _refuse_responses_items(data)
    first = data[0] if data else None
    if isinstance(first, dict) and "type" in first and "name" not in first and "function" in first:
        return lambda calls: OpenAIChat().calls({"role": "assistant", "tool_calls": calls})
    if isinstance(first, dict) and "type" in first:
        _refuse_unknown_items(data)
        return AnthropicMessages().calls
    return _plain_calls


def _refuse_responses_items(data: Sequence[Any]) -> None:
    for item in data:
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(kind, str) and (kind in RESPONSES_TYPES or kind.endswith("_call")):
            raise InputError(
                f"holds items of OpenAI's Responses API (type {preview(kind, 40)}),"
                " which is not read yet"
            )


def _refuse_unknown_items(data: Sequence[Any]) -> None:
    """Unless something shows that these are content blocks, refuse rather than find no calls."""
    kinds = [item.get("type") if isinstance(item, dict) else None for item in data]
    if "tool_use" in kinds:
        return  # the provider may have kinds of blocks that are not known here
    for position, kind in enumerate(kinds, 1):
        if isinstance(kind, str) and not _is_content(kind):
            raise InputError(
                f"item {position}: type {preview(kind, 40)} is neither a call nor a content block"
            )


def _is_content(kind: str) -> bool:
    return kind in CONTENT_TYPES or kind.endswith(("thinking", "tool_use", "tool_result"))


def _reader_of_object(data: dict[str, Any]) -> Callable[[Any], list[ToolCall]]:
    _refuse_responses_items([data])
    if data.get("type") == "error" or "error" in data:
        raise InputError("holds an error of the API, not an assistant message")
    if "output" in data and "content" not in data:
        raise InputError("holds a response of OpenAI's Responses API, which is not read yet")
    if "choices" in data or "tool_calls" in data or "function_call" in data:
        return OpenAIChat().calls
    if "role" in data or "content" in data:
        return AnthropicMessages().calls
    if "name" in data:
        raise InputError("holds one call; put it in a list: [{…}]")
    raise InputError(f"holds an object that is no message; a turn file is {FORMS}")


def _plain_calls(data: list[Any]) -> list[ToolCall]:
    return [_plain_call(item, position) for position, item in enumerate(data, 1)]


def _plain_call(item: Any, position: int) -> ToolCall:
    where = f"call {position}"
    if not isinstance(item, dict):
        raise InputError(f"{where}: must be an object, not {_kind(item)}")
    for field in ("name", "arguments"):
        if field not in item:
            raise InputError(f"{where}: {field!r} is missing{_meant(item)}")
    for field in item:
        if field not in CALL_FIELDS:
            fields = ", ".join(CALL_FIELDS)
            raise InputError(
                f"{where}: {preview(field, 40)} is no field of a call; it has {fields}"
            )
    name, arguments, given = item["name"], item["arguments"], item.get("id")
    if not isinstance(name, str):
        raise InputError(f"{where}: 'name' must be text, not {_kind(name)}")
    if not isinstance(arguments, dict | str):
        raise InputError(
            f"{where}: 'arguments' must be an object or JSON text, not {_kind(arguments)}"
        )
    if given is not None and not isinstance(given, str):
        raise InputError(f"{where}: 'id' must be text, not {_kind(given)}")
    return ToolCall(given or f"call_{position}", name, arguments)


def _meant(item: Mapping[str, Any]) -> str:
    others = [field for field in item if field not in CALL_FIELDS]
    if others:
        return f" (there is {preview(others[0], 40)})"
    return "; write {} for none" if "name" in item else ""


def _chosen(data: Any, number: int | None) -> Any:
    if isinstance(data, list):
        _refuse_responses_items(data)
    if isinstance(data, list) and _are_messages(data):
        if number is None and len(data) > 1:
            raise InputError(f"records {count(len(data), 'message')}; choose one with --turn N")
        index = 1 if number is None else number
        if not 1 <= index <= len(data):
            raise InputError(f"records {count(len(data), 'message')}; there is no turn {index}")
        return data[index - 1]
    if number not in (None, 1):
        raise InputError(f"holds one turn; there is no turn {number}")
    return data


def _are_messages(data: Sequence[Any]) -> bool:
    first = data[0] if data else None
    return isinstance(first, dict) and ("role" in first or "choices" in first)


def _read(source: str, label: str) -> bytes:
    try:
        if source == "-":
            content = sys.stdin.buffer.read(LARGEST + 1) if sys.stdin else b""
        else:
            with _opened(source) as file:
                content = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{label}: {_reason(error)}") from None
    except ValueError:  # a name with a null character in it
        raise InputError(f"{label}: no such file") from None
    if len(content) > LARGEST:
        raise InputError(f"{label}: is larger than {LARGEST // 1024**2} MB, too large for a turn")
    return content


def _opened(source: str) -> BinaryIO:
    path = Path(source)
    if not source:
        raise FileNotFoundError(errno.ENOENT, "no such file")
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    return path.open("rb")


def _reason(error: OSError) -> str:
    reasons = {
        errno.ENOENT: "no such file",
        errno.EISDIR: "is a directory; a turn file was expected",
        errno.EACCES: "may not be read (permission denied)",
    }
    known = reasons.get(error.errno or 0)
    return known or f"cannot be read ({_one_line(error.strerror or str(error))})"


def _position(content: bytes, offset: int) -> tuple[int, int]:
    line_start = content.rfind(b"\n", 0, offset) + 1
    return content.count(b"\n", 0, offset) + 1, offset - line_start + 1


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _kind(value: Any) -> str:
    kinds = {type(None): "null", bool: "a boolean", str: "text", list: "a list", dict: "an object"}
    return kinds.get(type(value), "a number")
