"""What of a result a reply says: texts and images, never nothing, and what failed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dispatch import Failure, FailureKind, Image, Status, ToolCall, ToolResult
from dispatch.adapters import Budget
from dispatch.adapters.answers import answers
from dispatch.adapters.names import Found, named
from tests.providers import Call

from .samples import (
    ADVICE,
    PNG,
    PROVIDERS,
    accept,
    body,
    every_provider,
    failed,
    listed,
    succeeded,
    turns,
)

CALL = ToolCall("a", "f", {})
BITMAP = Image(b"BM rest", "image/bmp")


def pieces(value: object) -> Any:
    """What is said of this value without any limit."""
    (answer,) = answers([succeeded(CALL, 0, value)], None)
    return answer.pieces


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("tea", ["tea"]),
        ({"on": datetime.date(2026, 5, 1)}, ['{"on":"2026-05-01"}']),
        (PNG, [PNG]),
        ([PNG, PNG], [PNG, PNG]),
        (("a", {"b": 1}, PNG, None, ""), ["a", '{"b":1}', PNG, "(no output)", "(no output)"]),
        ({"photo": PNG}, ['{"photo":"[image/png, 23 bytes]"}']),
        ([[PNG]], ['[["[image/png, 23 bytes]"]]']),
        (BITMAP, ["[image/bmp, 7 bytes]"]),
        ([PNG, BITMAP], [PNG, "[image/bmp, 7 bytes]"]),
        ([], ["[]"]),
        (" \n", ['" \\n"']),
        (["\t", PNG], ['"\\t"', PNG]),
    ],
    ids=[
        "text", "date", "image", "images", "texts-and-image", "image-inside", "image-deep-inside",
        "other-type", "both-types", "empty-list", "blank", "blank-and-image",
    ],
)  # fmt: skip
def test_what_a_value_becomes(value: object, expected: object) -> None:
    """Texts as they are, images of the known types as images, all else as JSON; never blank."""
    assert expected == pieces(value)


VALUES = [
    None, "", " ", "\n\n", b"", [], {}, set(), "\ud800", "\x00", float("nan"), 10**5_000, PNG,
    [PNG], ["", PNG], BITMAP, object(), (letter for letter in "abc"), ValueError(), {"x": {1}},
]  # fmt: skip


@every_provider
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_whatever_a_tool_returned_the_provider_takes(name: str, value: object) -> None:
    """No reply is empty or blank anywhere, and each can be sent."""
    said = body(name, Call("f", {}, id="a"))
    reply = PROVIDERS[name].reply(
        [succeeded(call, 0, value) for call in PROVIDERS[name].calls(said)]
    )
    history = turns(name, said)[:2] + listed(reply)
    accept(name, history)
    sent = json.dumps(history, ensure_ascii=False, default=lambda data: data.hex())
    assert sent.encode()
    assert [] == [text for text in _texts(reply) if not text.strip()]


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for item in node.values() if isinstance(node, dict) else node:
            yield from _texts(item)


def test_a_failure_says_what_happened_and_what_to_do() -> None:
    """The status, the reason, what there was of output, and one sentence of advice."""
    failure = Failure(kind=FailureKind.TIMEOUT, message="timed out after 1 s while running")
    result = ToolResult(
        call=CALL, index=0, status=Status.TIMED_OUT, failure=failure, partial="line 1", value=PNG
    )
    (answer,) = answers([result], None)
    assert [
        "[timed_out] timed out after 1 s while running\nOutput before it stopped:\nline 1\n"
        "It may have done its work, or a part of it: check that before you call it again."
    ] == answer.pieces
    assert not answer.ok


def test_a_failure_is_short() -> None:
    """Neither an endless reason nor an endless output is told in full."""
    failure = Failure(kind=FailureKind.TOOL_ERROR, message="m" * 1_000_000)
    result = ToolResult(
        call=CALL, index=0, status=Status.ERROR, failure=failure, partial="p" * 1_000_000
    )
    (answer,) = answers([result], Budget(per_result=2_000))
    assert 1_900 < len(answer.text.encode()) <= 2_000
    assert answer.text.startswith("[error] mmm")
    assert answer.text.endswith(ADVICE)


def several(*names: str) -> list[ToolCall]:
    uses = [{"recipient_name": name, "parameters": {}} for name in names]
    return named([Found("p", "multi_tool_use.parallel", {"tool_uses": uses}), Found("q", "f", {})])


def test_results_under_one_id_are_folded() -> None:
    """F5: each stands behind its tool's name, images in their place; one failure marks them all."""
    first, second, alone = several("f", "g")
    folded, other = answers(
        [succeeded(first, 0, ["see", PNG]), failed(second, 1), succeeded(alone, 2, "x")], None
    )
    assert ["f:", "see", PNG, "g:", f"[error] no such file\n{ADVICE}"] == folded.pieces
    assert ("p", False, "q", True) == (folded.id, folded.ok, other.id, other.ok)
    assert "f:\nsee\n[image/png, 23 bytes]\ng:\n[error] no such file\n" + ADVICE == folded.text


def test_results_under_one_id_are_folded_wherever_they_come() -> None:
    """F5: results of other calls between those of one are no reason to answer it twice."""
    first, second, alone = several("f", "g")
    folded, other = answers(
        [succeeded(first, 0, 1), succeeded(alone, 1, 2), succeeded(second, 2, 3)], None
    )
    assert (["f:", "1", "g:", "3"], ["2"]) == (folded.pieces, other.pieces)
