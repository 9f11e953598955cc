from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import dispatch.adapters
from dispatch import ToolCall, ToolResult
from dispatch.adapters import AnthropicMessages, OpenAIChat
from dispatch.adapters.wire import Tools, named_calls, toolbox_of
from dispatch.tool import Toolbox

from .samples import bare, read_file, succeeded


@pytest.mark.parametrize(
    ("name", "other"),
    [("AnthropicMessages", "openai_chat"), ("OpenAIChat", "anthropic_messages")],
    ids=["anthropic", "openai"],
)
def test_an_adapter_loads_neither_another_adapter_nor_an_sdk(name: str, other: str) -> None:
    """What is loaded is what was asked for."""
    code = (
        "import sys, dispatch.adapters\n"
        "first = set(sys.modules)\n"
        f"from dispatch.adapters import {name}\n"
        f"unwanted = {{'anthropic', 'openai', 'httpx', 'httpx2', 'dispatch.adapters.{other}'}}\n"
        "print(sorted(m for m in first if m.startswith('dispatch.adapters.')))\n"
        "print(sorted(unwanted & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n[]\n" == done.stdout


def test_the_package_lists_its_adapters() -> None:
    """Every public name resolves; any other is an AttributeError that names it."""
    assert ["AnthropicMessages", "OpenAIChat"] == dir(dispatch.adapters)
    assert [AnthropicMessages, OpenAIChat] == [
        getattr(dispatch.adapters, name) for name in dispatch.adapters.__all__
    ]
    with pytest.raises(AttributeError, match="'Nothing'"):
        getattr(dispatch.adapters, "Nothing")  # noqa: B009 - as a typo would


BLANK = ["", None, "  ", 7, ["a"]]


@pytest.mark.parametrize("blank", BLANK, ids=repr)
def test_blank_ids_are_replaced(blank: object) -> None:
    """E6: equal calls without ids get unique ids, the same when the message is read again."""
    found = [(blank, "ls", {"path": "."}), (blank, "ls", {"path": "."})]
    first, again = (
        [call.id for call in named_calls(found)],
        [call.id for call in named_calls(found)],
    )
    assert 2 == len(set(first))
    assert all(call_id.startswith("call_") for call_id in first)
    assert first == again


def test_an_id_does_not_depend_on_the_order_of_keys() -> None:
    """E6: a history that was stored and loaded with sorted keys gives the same ids."""
    one, other = (
        named_calls([("", "f", arguments)])[0].id
        for arguments in ({"a": 1, "b": {"c": 1, "d": 2}}, {"b": {"d": 2, "c": 1}, "a": 1})
    )
    assert one == other


def test_a_made_up_id_is_no_real_one() -> None:
    """E6: an id that the provider gave elsewhere in the message is not made up again."""
    (made_up,) = named_calls([("", "f", {})])
    blank, real = named_calls([("", "f", {}), (made_up.id, "g", {})])
    assert made_up.id == real.id
    assert real.id != blank.id


def test_repeated_ids_stay() -> None:
    """Results are matched by position, so repeated ids are nothing to repair."""
    assert ["a", "a"] == [call.id for call in named_calls([("a", "f", {}), ("a", "g", {})])]


def test_an_id_is_made_of_whatever_the_arguments_are() -> None:
    """Arguments that JSON cannot express cost no call its id."""
    cycle: dict[object, object] = {1: "x", "1": "y"}
    cycle["self"] = cycle
    calls = named_calls([("", "f", cycle), ("", "f", cycle)])
    assert 2 == len({call.id for call in calls})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"x": 1}, {"x": 1}),
        ('{"x": ', '{"x": '),
        (None, ""),
        ([1, 2], "[1,2]"),
        (7, "7"),
        (True, "true"),
    ],
    ids=["object", "text", "missing", "list", "number", "boolean"],
)
def test_arguments_of_any_form_reach_the_turn(given: object, expected: object) -> None:
    """Arguments that are no object are left for validation to refuse, call by call."""
    assert [ToolCall("a", "f", expected)] == named_calls([("a", "f", given)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tools",
    [
        Toolbox([read_file, bare]),
        SimpleNamespace(toolbox=Toolbox([read_file, bare])),
        [read_file, bare],
    ],
    ids=["toolbox", "dispatcher", "list"],
)
def test_tools_come_in_three_forms(tools: Tools) -> None:
    """A toolbox, whatever carries one, and a list of tools are the same to an adapter."""
    assert ["read_file", "bare"] == list(toolbox_of(tools))


every_provider = pytest.mark.parametrize(
    "provider", [AnthropicMessages(), OpenAIChat()], ids=["anthropic", "openai"]
)


@every_provider
def test_results_that_ended_out_of_order_are_put_in_order(provider: Any) -> None:
    """D6: the reply is in intent order, whatever the order in which the calls ended."""
    first, second = (
        succeeded(ToolCall(name, "f", {}), index, name) for index, name in enumerate("ab")
    )
    assert provider.reply([first, second]) == provider.reply([second, first])


@every_provider
def test_a_reply_depends_on_the_results_alone(provider: Any) -> None:
    """D7: times, attempts and waits leave no trace in what the model reads."""
    call = ToolCall("a", "f", {})
    quick = succeeded(call, 0)
    slow = ToolResult(
        call=call, index=0, status=quick.status, value="fine", attempts=3,
        queued_at=5.0, started_at=6.0, finished_at=9.0, waits={"lock": 1.0},
    )  # fmt: skip
    assert provider.reply([quick]) == provider.reply([slow])


@every_provider
def test_a_reply_can_always_be_encoded(provider: Any) -> None:
    """A half surrogate in one result does not break the request that carries them all."""
    reply = provider.reply([succeeded(ToolCall("a", "f", {}), 0, "bad \udc80 byte")])
    sent = json.dumps(reply, ensure_ascii=False).encode()
    assert rb"bad \\udc80 byte" in sent
