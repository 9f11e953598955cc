"""Reading turn files: every form is detected, every bad file is one line of where and what."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dispatch.call import ToolCall
from dispatch.cli.turnfile import LARGEST, calls_of, read_messages, read_turn
from dispatch.errors import InputError

CALL = {"id": "a", "name": "grep", "arguments": {"pattern": "x"}}
EXPECTED = [ToolCall("a", "grep", {"pattern": "x"})]
TOOL_USE = {"type": "tool_use", "id": "a", "name": "grep", "input": {"pattern": "x"}}
TOOL_CALL = {"id": "a", "type": "function", "function": {"name": "grep", "arguments": "{}"}}
ANTHROPIC = {"type": "message", "role": "assistant", "content": [TOOL_USE]}
OPENAI = {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param([CALL], EXPECTED, id="calls"),
        pytest.param(ANTHROPIC, EXPECTED, id="anthropic-message"),
        pytest.param([{"type": "text", "text": "Hm."}, TOOL_USE], EXPECTED, id="anthropic-blocks"),
        pytest.param(OPENAI, [ToolCall("a", "grep", "{}")], id="openai-message"),
        pytest.param([TOOL_CALL], [ToolCall("a", "grep", "{}")], id="openai-tool-calls"),
        pytest.param(
            {"choices": [{"message": OPENAI}]}, [ToolCall("a", "grep", "{}")], id="openai-response"
        ),
        pytest.param({"role": "assistant", "content": "Done."}, [], id="text-only"),
        pytest.param([], [], id="no-calls"),
        pytest.param([ANTHROPIC], EXPECTED, id="loop-of-one"),
    ],
)
def test_every_form_of_a_turn_is_detected(tmp_path: Path, data: Any, expected: object) -> None:
    """A list of calls, both providers' messages, and the parts of these give the same calls."""
    file = tmp_path / "turn.json"
    file.write_text(json.dumps(data))
    assert expected == read_turn(str(file))


def test_ids_are_optional_and_arguments_stay_as_written() -> None:
    """Missing, null and empty ids are filled by position; JSON text in arguments stays text."""
    calls = calls_of(
        [
            {"name": "a", "arguments": "{bad"},
            {"id": None, "name": "b", "arguments": {}},
            {"id": "", "name": "c", "arguments": {}},
        ]
    )
    assert [("call_1", "{bad"), ("call_2", {}), ("call_3", {})] == [
        (call.id, call.arguments) for call in calls
    ]


def test_one_message_of_a_recorded_loop_is_chosen_by_number(tmp_path: Path) -> None:
    """`number` counts messages from 1, whatever their forms are."""
    file = tmp_path / "loop.json"
    file.write_text(json.dumps([ANTHROPIC, {"choices": [{"message": OPENAI}]}]))
    assert [EXPECTED, [ToolCall("a", "grep", "{}")]] == [read_turn(str(file), n) for n in (1, 2)]


BAD_FILES = [
    pytest.param(b"", "is empty; a turn file is JSON", id="empty"),
    pytest.param(b" \n\t", "is empty", id="blank"),
    pytest.param(b'[\n {"name": }\n]', ":2:11: not valid JSON: Expecting value", id="bad-json"),
    pytest.param(b'[{"name": "a"', ":1:14: not valid JSON", id="cut-off"),
    pytest.param(b"\x00\x01\x02binary", ":1:1: not valid JSON", id="control-characters"),
    pytest.param(b"\x7fELF\xf0\x00\xff", ":1:5: not UTF-8 text (byte 0xf0)", id="binary"),
    pytest.param(b'[\n"caf\xe9"]', ":2:5: not UTF-8 text (byte 0xe9)", id="latin-1"),
    pytest.param('["a"]'.encode("utf-16"), ":1:1: not UTF-8 text (byte 0xff)", id="utf-16"),
    pytest.param(b"[" * 200_000, "is nested too deeply", id="deep"),
    pytest.param(b'[{"a":' * 100_000, "is nested too deeply", id="deep-objects"),
    pytest.param(b"[NaN]", "NaN is no JSON number", id="nan"),
    pytest.param(b"[" + b"9" * 5000 + b"]", "not valid JSON: Exceeds the limit", id="digits"),
    pytest.param(b"null", "holds null; a turn file is a list of calls", id="null"),
    pytest.param(b'"text"', "holds text", id="text"),
    pytest.param(b"7", "holds a number", id="number"),
    pytest.param(b"{}", "holds an object that is no message", id="object"),
    pytest.param(b'{"name": "a", "arguments": {}}', "holds one call; put it in a list", id="bare"),
    pytest.param(b'{"type": "error", "error": {}}', "holds an error of the API", id="api-error"),
    pytest.param(b'{"output": []}', "Responses API, which is not read yet", id="responses-api"),
    pytest.param(
        b'[{"type":"function_call","call_id":"c","name":"a","arguments":"{}"}]',
        "holds items of OpenAI's Responses API (type 'function_call')",
        id="responses-items",
    ),
    pytest.param(
        b'[{"type":"reasoning","summary":[]},{"type":"function_call","name":"a"}]',
        "holds items of OpenAI's Responses API (type 'reasoning')",
        id="responses-reasoning-first",
    ),
    pytest.param(
        b'[{"type":"message","role":"assistant","content":[]},{"type":"web_search_call"}]',
        "holds items of OpenAI's Responses API (type 'web_search_call')",
        id="responses-message-first",
    ),
    pytest.param(
        b'[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}]',
        "message.content[0].type is 'output_text', OpenAI's form",
        id="responses-text",
    ),
    pytest.param(
        b'{"type":"function_call","name":"a","arguments":"{}"}',
        "holds items of OpenAI's Responses API",
        id="responses-item",
    ),
    pytest.param(
        b'[{"type":"text","text":""},{"type":"call","name":"a"}]',
        "item 2: type 'call' is neither a call nor a content block",
        id="unknown-items",
    ),
    pytest.param(b"[7]", "call 1: must be an object, not a number", id="call-number"),
    pytest.param(
        b'[{"name":"a","arguments":{}},{"arguments":{}}]',
        "call 2: 'name' is missing",
        id="name-missing",
    ),
    pytest.param(
        b'[{"tool":"a","arguments":{}}]',
        "call 1: 'name' is missing (there is 'tool')",
        id="name-called-tool",
    ),
    pytest.param(b'[{"name":"a"}]', "call 1: 'arguments' is missing; write {}", id="no-arguments"),
    pytest.param(
        b'[{"name":"a","input":{}}]', "'arguments' is missing (there is 'input')", id="input"
    ),
    pytest.param(
        b'[{"name":1,"arguments":{}}]', "call 1: 'name' must be text, not a number", id="name-type"
    ),
    pytest.param(
        b'[{"name":"a","arguments":[1]}]',
        "call 1: 'arguments' must be an object or JSON text, not a list",
        id="arguments-type",
    ),
    pytest.param(
        b'[{"name":"a","arguments":{},"id":5}]',
        "call 1: 'id' must be text, not a number",
        id="id-type",
    ),
    pytest.param(
        b'[{"name":"a","arguments":{},"after":["b"]}]',
        "call 1: 'after' is no field of a call",
        id="unknown-field",
    ),
    pytest.param(
        b'{"role":"user","content":"hi"}', "must be an assistant message", id="user-message"
    ),
    pytest.param(
        b'{"role":"assistant","content":[{"type":"tool_use"}]}',
        "message.content[0].name must be text, not missing",
        id="anthropic-nameless",
    ),
    pytest.param(
        b'{"role":"assistant","tool_calls":[{"type":"function"}]}',
        "message.tool_calls[0].function is missing",
        id="openai-without-function",
    ),
    pytest.param(
        b'[{"role":"assistant","content":""},{"role":"assistant","content":""}]',
        "records 2 messages; choose one with --turn N",
        id="loop",
    ),
]


@pytest.mark.parametrize(("content", "expected"), BAD_FILES)
def test_a_bad_file_is_one_line_that_says_where_and_what(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    """Whatever a file holds, it is calls or an `InputError` of one short line with its name."""
    file = tmp_path / "turn.json"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_turn(str(file))
    text = str(caught.value)
    assert (True, True, 1) == (text.startswith(str(file)), expected in text, len(text.splitlines()))
    assert len(text) < len(str(file)) + 300


def test_blocks_of_kinds_not_known_here_are_skipped_beside_a_call(tmp_path: Path) -> None:
    """A provider's new kind of block is no error where the calls of the turn are found."""
    file = tmp_path / "turn.json"
    file.write_text(json.dumps([{"type": "news"}, TOOL_USE]))
    assert EXPECTED == read_turn(str(file))


def test_one_message_is_not_called_messages(tmp_path: Path) -> None:
    """Errors count in grammatical English."""
    file = tmp_path / "loop.json"
    file.write_text(json.dumps([ANTHROPIC]))
    with pytest.raises(InputError, match="records 1 message; there is no turn 2"):
        read_turn(str(file), 2)


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_number_outside_the_loop_is_refused(tmp_path: Path, number: int) -> None:
    """A turn that the file does not record is an error that says how many there are."""
    file = tmp_path / "loop.json"
    file.write_text(json.dumps([ANTHROPIC, ANTHROPIC]))
    with pytest.raises(InputError, match=f"records 2 messages; there is no turn {number}"):
        read_turn(str(file), number)


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    """Missing files, directories and names that no file can have each say what they are."""
    for name, expected in [
        (str(tmp_path / "none.json"), "no such file"),
        (str(tmp_path), "is a directory"),
        ("nul\0name", r"'nul\x00name': no such file"),
        (str(tmp_path / "two\nlines"), r"two\nlines': no such file"),
        ("", "'': no such file"),
        (str(tmp_path / ("n" * 300)), "cannot be read (File name too long)"),
    ]:
        with pytest.raises(InputError) as caught:
            read_turn(name)
        assert expected in str(caught.value)
        assert 1 == len(str(caught.value).splitlines())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    """A file that may not be read is told apart from one that is missing."""
    file = tmp_path / "turn.json"
    file.touch(mode=0)
    with pytest.raises(InputError, match="permission denied"):
        read_turn(str(file))


def test_a_file_without_end_is_refused_and_not_read_to_the_end() -> None:
    """A device that never ends costs no more than the largest turn file."""
    with pytest.raises(InputError, match=f"larger than {LARGEST // 1024**2} MB"):
        read_turn("/dev/zero")


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` is standard input, and errors in it say so."""
    for content, expected in [(json.dumps([CALL]), EXPECTED), ("{", None)]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        if expected is not None:
            assert expected == read_turn("-")
        else:
            with pytest.raises(InputError, match=r"^<stdin>:1:2: not valid JSON"):
                read_turn("-")


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    """Editors that write a UTF-8 byte-order mark do no harm."""
    file = tmp_path / "turn.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps([CALL]).encode())
    assert EXPECTED == read_turn(str(file))


def test_the_messages_of_a_loop_are_a_list_of_messages(tmp_path: Path) -> None:
    """`read_messages` refuses what is no recorded loop."""
    file = tmp_path / "loop.json"
    file.write_text(json.dumps([CALL]))
    with pytest.raises(InputError, match="must be a list of assistant messages"):
        read_messages(file)
