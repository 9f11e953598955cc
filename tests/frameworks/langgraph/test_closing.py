"""`close_open_calls` alone, without a model."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from dispatch import InputError
from dispatch.adapters.history import LOST
from dispatch.adapters.langgraph import close_open_calls
from tests.frameworks.langgraph.graphs import answers, asks


def test_known_results_are_told() -> None:
    """The last of the known results of an id answers its call; the messages given stay."""
    given = [SystemMessage("be kind"), HumanMessage("go"), asks(("quick", {"x": 1}), ("hang", {}))]
    known = [ToolMessage(text, tool_call_id="c1") for text in ("first", "last")]
    assert [("c0", "error", LOST), ("c1", "success", "last")] == answers(
        close_open_calls(given, known)
    )
    assert 3 == len(given)


def test_calls_that_could_not_be_read_have_not_run() -> None:
    """F1: a call with broken arguments is answered, and the answer says that nothing was done."""
    broken = AIMessage(
        "", invalid_tool_calls=[{"name": "quick", "args": "{", "id": "c0", "error": ""}]
    )
    ((call_id, status, content),) = answers(close_open_calls([HumanMessage("go"), broken]))
    assert ("c0", "error") == (call_id, status)
    assert "nothing was done" in content


def test_repeated_ids_are_told_apart_in_the_content_too() -> None:
    """E6: calls of one id get an id each, and so do the blocks that say the same once more."""
    blocks: list[Any] = [{"type": "tool_use", "id": "x", "name": "a", "input": {}} for _ in "ab"]
    calls = [{"name": name, "args": {}, "id": "x"} for name in "ab"]
    results = [ToolMessage(name, tool_call_id="x") for name in "ab"]
    message = AIMessage(content=blocks, tool_calls=calls)
    _, mended, *told = close_open_calls([HumanMessage("go"), message, *results])
    assert isinstance(mended, AIMessage)
    ids = [one["id"] for one in mended.tool_calls]
    assert 2 == len(set(ids))
    assert ids == [one["id"] for one in mended.content if isinstance(one, dict)]
    assert [(ids[0], "a"), (ids[1], "b")] == [(one, text) for one, _, text in answers(told)]


def test_what_is_no_list_is_refused() -> None:
    """A state in place of its messages is an error that says so."""
    with pytest.raises(InputError, match="must be a list of messages"):
        close_open_calls("messages")
