from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import dispatch.adapters
from dispatch import Dispatcher, Tool, ToolCall, tool
from dispatch.adapters import Budget, OpenAIChat
from dispatch.adapters.names import Found, named
from dispatch.adapters.wire import Tools, toolbox_of
from dispatch.testing import run_in_virtual_time
from dispatch.tool import Toolbox

from .samples import ADVICE, PROVIDERS, bare, read_file

MODULES = {
    "AnthropicMessages": "anthropic_messages",
    "BedrockConverse": "bedrock_converse",
    "Gemini": "gemini",
    "OpenAIChat": "openai_chat",
    "OpenAIResponses": "openai_responses",
}


@pytest.mark.parametrize("name", MODULES)
def test_an_adapter_loads_neither_another_adapter_nor_an_sdk(name: str) -> None:
    """What is loaded is what was asked for."""
    sdks = ["anthropic", "openai", "google", "boto3", "botocore", "httpx", "httpx2"]
    others = [f"dispatch.adapters.{module}" for cls, module in MODULES.items() if cls != name]
    code = (
        "import sys, dispatch.adapters\n"
        "first = set(sys.modules)\n"
        f"from dispatch.adapters import {name}\n"
        "print(sorted(m for m in first if m.startswith('dispatch.adapters.')))\n"
        f"print(sorted(set({sdks + others}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n[]\n" == done.stdout


def test_the_package_lists_its_adapters() -> None:
    """Every public name resolves; any other is an AttributeError that names it."""
    assert sorted([*MODULES, "Budget"]) == dir(dispatch.adapters)
    found = {name: getattr(dispatch.adapters, name) for name in dispatch.adapters.__all__}
    assert {type(provider) for provider in PROVIDERS.values()} | {Budget} == set(found.values())
    assert [*found] == [cls.__name__ for cls in found.values()]
    with pytest.raises(AttributeError, match="'Nothing'"):
        getattr(dispatch.adapters, "Nothing")  # noqa: B009 - as a typo would


def ids(*found: Found, taken: frozenset[str] = frozenset()) -> list[str]:
    return [call.id for call in named(found, taken)]


@pytest.mark.parametrize("blank", ["", None, "  ", 7, ["a"]], ids=repr)
def test_blank_ids_are_replaced(blank: object) -> None:
    """E6: equal calls without ids get unique ids, the same when the message is read again."""
    found = [Found(blank, "ls", {"path": "."})] * 2
    first = ids(*found)
    assert 2 == len(set(first))
    assert all(call_id.startswith("call_") for call_id in first)
    assert first == ids(*found)


def test_an_id_does_not_depend_on_how_the_arguments_are_written() -> None:
    """E6: text or object, stored and loaded with sorted keys or not, it is the same call."""
    written: list[object] = [
        {"a": 1, "b": {"c": 1.5, "d": 2}},
        {"b": {"d": 2, "c": 1.5}, "a": 1},
        '{"b": {"d": 2, "c": 1.5}, "a": 1}',
        ' {"a":1, "b":{"c":1.5,"d":2}}',
    ]
    assert 1 == len({ids(Found("", "f", arguments))[0] for arguments in written})


def test_an_id_depends_on_all_that_tells_calls_apart() -> None:
    """E6: another name, other arguments or another place in the message is another call."""
    calls = [Found("", "f", {}), Found("", "g", {}), Found("", "f", {"x": 1})]
    alone = [ids(call)[0] for call in calls]
    assert 6 == len({*alone, *ids(Found("first", "f", {}), *calls)[1:]})


def test_repeated_ids_are_told_apart() -> None:
    """E6: an id that the message or the history before it has is replaced, always by the same."""
    twice = [Found("a", "f", {"x": 1}), Found("a", "f", {"x": 2})]
    first, second = ids(*twice)
    assert "a" == first
    assert {"a", first, second} == {"a", second}
    assert [first, second] == ids(*twice)
    later = ids(*twice, taken=frozenset({"a", second}))
    assert 4 == len({first, second, *later})
    assert later == ids(*twice, taken=frozenset({second, "a"}))


def test_a_made_up_id_is_nobody_elses() -> None:
    """E6: neither one of the history, nor one that the provider gives to a later call."""
    (made_up,) = ids(Found("", "f", {}))
    assert [made_up] != ids(Found("", "f", {}), taken=frozenset({made_up}))
    assert 2 == len(set(ids(Found("", "f", {}), Found(made_up, "g", {}))))


def test_an_id_is_made_of_whatever_the_arguments_and_the_name_are() -> None:
    """What JSON cannot express costs no call its id."""
    cycle: dict[object, object] = {1: "x", "1": "y"}
    cycle["self"] = cycle
    odd: list[object] = [cycle, {"x": float("nan")}, '{"x": ', '"\ud800"', "[" * 100_000, "\ud800"]
    found = [Found("", name, arguments) for name in ("f", "\ud800") for arguments in odd]
    assert len(found) == len(set(ids(*found)))


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
    assert [ToolCall("a", "f", expected)] == named([Found("a", "f", given)])  # type: ignore[arg-type]


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


PROVIDER = OpenAIChat()


def message(*calls: tuple[str, object]) -> dict[str, Any]:
    """A message with these names and arguments, each call with an id of its own."""
    return {
        "role": "assistant",
        "tool_calls": [
            {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": given}}
            for place, (name, given) in enumerate(calls)
        ],
    }


@tool(safe_parallel=True)
async def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@tool(safe_parallel=True)
async def fails(number: int) -> int:
    """Nothing."""
    raise ValueError(f"not {number}")


def answered(said: dict[str, Any], *more: Tool) -> list[Any]:
    """The reply to a message after its calls have run."""

    async def main() -> list[Any]:
        async with Dispatcher([double, fails, *more]) as dispatcher:
            return PROVIDER.reply(await dispatcher.run(PROVIDER.calls(said)))

    return run_in_virtual_time(main())


def use(name: str, number: object) -> dict[str, Any]:
    return {"recipient_name": name, "parameters": {"number": number}}


@pytest.mark.parametrize("as_text", [True, False], ids=["text", "object"])
def test_a_call_of_several_is_unwrapped_and_answered_once(as_text: bool) -> None:
    """F5: all that multi_tool_use.parallel names run, and their answers stand under its one id."""
    several: object = {"tool_uses": [use("functions.double", 1), use("double", 2)]}
    several = json.dumps(several) if as_text else several
    said = message(("multi_tool_use.parallel", several), ("double", '{"number": 3}'))
    calls = PROVIDER.calls(said)
    assert ["double"] * 3 == [call.name for call in calls]
    assert ["c0.0", "c0.1", "c1"] == [call.id for call in calls]
    assert [("c0", "double:\n2\ndouble:\n4"), ("c1", "6")] == [
        (answer["tool_call_id"], answer["content"]) for answer in answered(said)
    ]
    assert ["c0", "c1"] == [call["id"] for call in _calls(PROVIDER.message(said))]


def test_one_failure_among_several_does_not_hide_the_others() -> None:
    """F5: the folded answer has each result, the good and the bad ones."""
    several = {"tool_uses": [use("fails", 1), use("double", "x"), use("double", 2)]}
    (answer,) = answered(message(("multi_tool_use.parallel", several)))
    assert answer["content"].startswith(f"fails:\n[error] ValueError: not 1\n{ADVICE}\ndouble:\n[e")
    assert answer["content"].endswith("double:\n4")


MALFORMED: dict[str, object] = {
    "no JSON": '{"tool_uses": [',
    "no object": "[1]",
    "nothing": "",
    "no uses": {},
    "empty uses": {"tool_uses": []},
    "uses of text": {"tool_uses": "double"},
    "an object of uses": {"tool_uses": {"double": {"number": 1}}},
    "no name": {"tool_uses": [use("double", 1), {"parameters": {}}]},
    "no parameters": {"tool_uses": [use("double", 1), {"recipient_name": "double"}]},
}


@pytest.mark.parametrize("given", MALFORMED.values(), ids=MALFORMED.keys())
def test_several_that_cannot_be_read_are_an_error(given: object) -> None:
    """F5: nothing of it runs, the model learns which tools there are, and siblings run."""
    bad, fine = answered(message(("multi_tool_use.parallel", given), ("double", '{"number": 3}')))
    assert ("c0", "c1", "6") == (bad["tool_call_id"], fine["tool_call_id"], fine["content"])
    told = bad["content"]
    assert [] == [t for t in ("multi_tool_use.parallel", "double", "fails") if t not in told], told


@pytest.mark.parametrize("parameters", [None, [1], 7, "[1]"], ids=repr)
def test_parameters_of_one_that_are_no_object_stay_in_it(parameters: object) -> None:
    """F5: bad arguments of one of several harm only that one."""
    bad = {"recipient_name": "double", "parameters": parameters}
    said = message(("multi_tool_use.parallel", {"tool_uses": [bad, use("double", 2)]}))
    assert isinstance(PROVIDER.calls(said)[0].arguments, str)
    (answer,) = answered(said)
    assert answer["content"].startswith("double:\n[error] ")
    assert answer["content"].endswith("double:\n4")


@pytest.mark.parametrize(
    "given",
    ['{"number": 1}{"number": 2}{"number": 3}', '{"number": 1}\n{"number": 2}', '{"number": 1}]'],
    ids=["three", "lines", "bracket"],
)
def test_objects_back_to_back_are_refused(given: str) -> None:
    """E3: no object is taken for the whole; the model is told, and siblings run."""
    (call,) = PROVIDER.calls(message(("double", given)))
    assert given == call.arguments
    bad, fine = answered(message(("double", given), ("double", '{"number": 3}')))
    assert "6" == fine["content"]
    assert bad["content"].startswith("[error] ")
    assert "not valid JSON" in bad["content"]
    assert "Nothing was done" in bad["content"]


def test_what_was_cut_off_never_runs() -> None:
    """Arguments that the provider broke off are told as that, in a few words."""
    said = message(("double", '{"number": 1'))
    (answer,) = answered({"message": said, "finish_reason": "length"})
    assert "the message was cut off before this call was complete" in answer["content"]
    assert "Nothing was done" in answer["content"]

    (call,) = PROVIDER.calls({"message": said, "finish_reason": "length"})
    assert '{"number": 1…[cut off]' == call.arguments


def _calls(said: Any) -> list[Any]:
    return list(said["tool_calls"])
