"""Whatever a model writes: each call has its clear error or its normal result, siblings theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from dispatch import Dispatcher, FailureKind, Status, Tool, ToolCall, TurnResult, tool
from dispatch.testing import run_in_virtual_time
from dispatch.toolkit import coding_tools
from tests.timeline import SCHEDULES, calls, dispatched

MB = 1_000_000
BOUND = 2_000
"""Characters that an error may cost the model's context, whatever the model wrote."""


def raises_cancelled(value: int) -> int:
    raise asyncio.CancelledError


def toolset() -> list[Tool]:
    @tool(safe_parallel=True)
    async def search(query: str, limit: int = 10, filters: dict[str, Any] | None = None) -> str:
        return f"about {query[:20]}"

    @tool(safe_parallel=True)
    async def picky(value: Annotated[int, AfterValidator(raises_cancelled)]) -> str:
        return str(value)

    @tool(safe_parallel=True)
    async def now() -> str:
        return "noon"

    @tool(reads="file:{path}")
    async def stat(path: str) -> str:
        return path

    return [search, picky, now, stat]


def between_siblings(bad: ToolCall, tools: list[Tool], root: Path | None = None) -> TurnResult:
    """Run the call between two good ones, which must come out as if it were not there."""
    good = ToolCall("good", "search", {"query": "tea"})
    result = dispatched(tools, [good, bad, good], root=root)
    assert ["about tea", "about tea"] == [result[0].value, result[2].value]
    assert bad is result[1].call
    return result


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


UNKNOWN, INVALID = FailureKind.UNKNOWN_TOOL, FailureKind.INVALID_ARGUMENTS
ALL_NAMES = "Available: search, picky, now, stat."
DEEP = "[" * 10_000 + "]" * 10_000

REFUSED: dict[str, tuple[Any, Any, FailureKind, list[str]]] = {
    # unknown tools
    "F4 a misspelt name": ("serch", {}, UNKNOWN, ["'serch'", "Did you mean 'search'?", ALL_NAMES]),
    "F4 no such tool": ("teleport", {}, UNKNOWN, ["'teleport'", ALL_NAMES]),
    "empty name": ("", {}, UNKNOWN, ["''", ALL_NAMES]),
    "name of 1 MB": ("search" * 200_000, {}, UNKNOWN, ["1,200,000 characters", ALL_NAMES]),
    "name with half a character": ("sea\ud800rch", {}, UNKNOWN, ["Did you mean 'search'?"]),
    "name is a number": (5, {}, UNKNOWN, ["'5'", ALL_NAMES]),
    "name is missing": (None, {}, UNKNOWN, ["'None'", ALL_NAMES]),
    # texts that are no JSON
    "F1 malformed": ("search", "{bad", INVALID, ["not valid JSON", "column 2", "'{bad'"]),
    "cut off": ("search", '{"query": "te', INVALID, ["not valid JSON", "EOF"]),
    "F3 5 MB of garbage": ("search", "x" * 5 * MB, INVALID, ["not valid JSON", "5,000,000"]),
    "two objects": ("search", '{"query": "a"}{"query": "b"}', INVALID, ["trailing characters"]),
    "no text at all": ("search", "", INVALID, ["not valid JSON", "''"]),
    "10,000 deep text": ("search", DEEP, INVALID, ["recursion limit", "20,000 characters"]),
    "10,000 deep member": (
        "search",
        f'{{"query": "a", "filters": {DEEP}}}',
        INVALID,
        ["recursion limit"],
    ),
    "half a character in JSON": ("search", '{"query": "\\ud800"}', INVALID, ["not valid JSON"]),
    "half a character in text": ("search", '{"query": "\ud800"}', INVALID, ["\\ud800"]),
    # JSON that is no object
    "F3 null": ("search", "null", INVALID, ["must be a JSON object, not null"]),
    "F3 array": ("search", "[1]", INVALID, ["must be a JSON object, not an array"]),
    "F3 number": ("search", "3", INVALID, ["must be a JSON object, not a number"]),
    "string": ("search", '"query"', INVALID, ["must be a JSON object, not a string"]),
    "boolean": ("search", "true", INVALID, ["must be a JSON object, not a boolean"]),
    "5 MB array": ("search", f"[{'1,' * 2 * MB}1]", INVALID, ["not an array"]),
    "5 MB string": ("search", f'"{"x" * 5 * MB}"', INVALID, ["not a string"]),
    "None": ("search", None, INVALID, ["must be a JSON object, not NoneType"]),
    "a list": ("search", ["query"], INVALID, ["must be a JSON object, not list"]),
    "bytes": ("search", b"{}", INVALID, ["must be a JSON object, not bytes"]),
    # objects of the wrong shape
    "wrong type": ("search", {"query": 7}, INVALID, ["query: ", "valid string", "got '7'"]),
    "wrong type in text": ("search", '{"query": 7}', INVALID, ["query: ", "valid string"]),
    "missing": ("search", {}, INVALID, ["query: Field required"]),
    "not declared": ("search", {"query": "a", "q": 1}, INVALID, ["q: Extra inputs"]),
    "several": ("search", {"limit": "x"}, INVALID, ["query: Field required; limit: ", "'x'"]),
    "5 MB value": ("search", {"query": "a", "limit": "x" * 5 * MB}, INVALID, ["5,000,000"]),
    "1 MB key": ("search", {"query": "a", "k" * MB: 1}, INVALID, ["kkk", "Extra inputs"]),
    "10,000 keys": (
        "search",
        {f"k{n}": n for n in range(10_000)},
        INVALID,
        ["query: Field required", "and 9996 more"],
    ),
    "key is a number": ("search", {"query": "a", 1: 2}, INVALID, ["Keys should be strings"]),
    "not a number": ("search", '{"query": "a", "limit": NaN}', INVALID, ["limit: ", "finite"]),
    "number of 10,000 digits": ("search", f'{{"limit": {"9" * 10_000}}}', INVALID, ["number"]),
    "validator that cancels": ("picky", {"value": 1}, INVALID, ["could not be checked"]),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_run_is_refused_in_a_bounded_text(
    case: tuple[Any, Any, FailureKind, list[str]],
) -> None:
    """F1, F3, F4: an error that says what was wrong and what would be right, and no more than a
    preview of what was written; the tool has not run, the siblings have."""
    name, arguments, kind, told = case
    refused = between_siblings(ToolCall("bad", name, arguments), toolset())[1]
    assert Status.ERROR is refused.status
    assert refused.failure is not None
    assert kind is refused.failure.kind
    assert (None, 0) == (refused.started_at, refused.attempts)
    text = refused.content()
    assert [] == [part for part in told if part not in text], text
    assert BOUND > len(text)
    assert text.encode(), "it can be sent"


ACCEPTED: dict[str, tuple[str, Any, str]] = {
    "JSON text": ("search", ' {"query": "tea"}\n', "about tea"),
    "no arguments where none are taken": ("now", "", "noon"),
    "10,000 deep object": ("search", {"query": "a", "filters": {"x": nested(10_000)}}, "about a"),
    "5 MB that are wanted": ("search", {"query": "x" * 5 * MB}, "about " + "x" * 20),
    "one key twice": ("search", '{"query": "a", "query": "b"}', "about b"),
    "half a character": ("search", {"query": "\ud800"}, "about \\ud800"),
    "an odd path": ("stat", {"path": "\u202e \n?*"}, "\u202e \n?*"),
}


@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_is_merely_odd_is_run(case: tuple[str, Any, str]) -> None:
    """Arguments that are valid reach the tool, however large, deep or strange they are."""
    name, arguments, text = case
    odd = between_siblings(ToolCall("odd", name, arguments), toolset())[1]
    assert text == odd.content()
    assert odd.content().encode(), "it can be sent"


NO_PATHS = {
    "NUL": "a\0b",
    "half a character": "a\ud800b",
    "200 KB of folders": "a/" * 100_000,
    "5 MB of folders": "../" * 1_700_000,
}


@pytest.mark.parametrize("path", NO_PATHS.values(), ids=NO_PATHS.keys())
def test_a_path_that_names_no_file_makes_the_call_exclusive(path: str, tmp_path: Path) -> None:
    """What file it means cannot be told, so the call runs alone and the turn says so."""
    result = between_siblings(ToolCall("bad", "stat", {"path": path}), toolset(), tmp_path)
    assert result[1].ok, "what to make of such a path is the tool's affair"
    (warning,) = result.warnings
    assert warning.startswith("stat: its claims could not be told (")
    assert BOUND > len(warning)


@pytest.mark.parametrize(
    "path",
    ["../secret", "/etc/passwd", "link/secret", "x/../../secret", "a\0b", "a\ud800", "a/" * 99_999],
    ids=["above", "absolute", "by a link", "by way of x", "NUL", "half a character", "long"],
)
async def test_a_path_outside_of_the_root_is_that_calls_error(path: str, tmp_path: Path) -> None:
    """The tools of the toolkit refuse it, with a short text, and the files inside are read."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    (root / "a").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    inside = ("read_file", {"path": "a"})
    async with Dispatcher(coding_tools(root), root=root) as dispatcher:
        result = await dispatcher.run(
            calls(
                inside,
                ("read_file", {"path": path}),
                ("write_file", {"path": path, "content": "x"}),
                inside,
            )
        )
    statuses = [Status.OK, Status.ERROR, Status.ERROR, Status.OK]
    assert statuses == [each.status for each in result], [each.content() for each in result]
    assert "outside" == (tmp_path / "secret").read_text()
    assert all(each.content().encode() and len(each.content()) < BOUND for each in result)


@pytest.mark.parametrize("ids", [["", "", ""], ["a", "a", "a"], [None, None, None], ["", "a", ""]])
def test_ids_that_are_no_use_still_leave_one_result_per_call(ids: list[Any]) -> None:
    """E6: empty, missing and repeated ids: results are matched by position, ids stay as given."""
    turn = [ToolCall(one, "search", {"query": f"q{n}"}) for n, one in enumerate(ids)]
    result = dispatched(toolset(), turn)
    assert [f"about q{n}" for n in range(3)] == [each.value for each in result]
    assert ids == [each.call.id for each in result]
    assert [0, 1, 2] == [each.index for each in result]
    assert "#1 search" in result.plan.to_text()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_turn_without_calls_is_over_at_once(schedule: str) -> None:
    """Zero calls: no results, nothing unsatisfied, and every measure and picture can be made."""
    result = dispatched(toolset(), [], schedule=schedule)
    assert (0, (), True, None) == (len(result), result.results, result.satisfied, result.reason)
    assert (0, 0.0, 0, 0.0) == (
        result.stats.calls,
        result.stats.makespan,
        result.stats.peak,
        result.stats.lower_bound,
    )
    assert ((), (), ()) == (result.plan.groups, result.plan.clusters, result.plan.edges)
    plan = result.plan
    assert all([plan.to_text(), plan.to_json(), plan.to_mermaid(), plan.to_dot()])
    result.raise_for_failures()


@pytest.mark.parametrize("schedule", ["dataflow", "groups"])
def test_ten_thousand_calls_have_ten_thousand_results(schedule: str) -> None:
    """10,000 calls of every sort at once: each has its own result, in the order of the calls."""
    counts = dict.fromkeys(range(10), 0)

    @tool(resource_keys=lambda given: [("counter", str(given["counter"]))])
    async def count(counter: int) -> int:
        before = counts[counter]
        await asyncio.sleep(0)
        counts[counter] = before + 1
        return counts[counter]

    kinds: list[Callable[[int], tuple[str, Any]]] = [
        lambda n: ("count", {"counter": n // 4 % 10}),
        lambda n: ("search", f'{{"query": "{n}"}}'),
        lambda n: ("serch", {}),
        lambda n: ("search", "{"),
    ]
    turn = calls(*(kinds[n % 4](n) for n in range(10_000)))
    result = dispatched([*toolset(), count], turn, schedule=schedule)
    assert [f"c{n}" for n in range(10_000)] == [each.call.id for each in result]
    assert [n // 40 + 1 for n in range(0, 10_000, 4)] == [each.value for each in result[::4]]
    assert [f"about {n}" for n in range(1, 10_000, 4)] == [each.value for each in result[1::4]]
    assert {UNKNOWN} == {each.failure and each.failure.kind for each in result[2::4]}
    assert {INVALID} == {each.failure and each.failure.kind for each in result[3::4]}


HOST_ERRORS = {
    "no call": ({"name": "now"}, TypeError, "ToolCall objects, not dict"),
    "no time": (ToolCall("1", "now", {}, timeout=0), ValueError, "above 0 seconds, not 0"),
    "no time at all": (
        ToolCall("1", "now", {}, timeout=float("nan")),
        ValueError,
        "above 0 seconds, not nan",
    ),
}


@pytest.mark.parametrize("case", HOST_ERRORS.values(), ids=HOST_ERRORS.keys())
def test_what_the_host_did_wrong_is_raised_before_anything_runs(
    case: tuple[Any, type[Exception], str],
) -> None:
    """A model cannot make these mistakes, so they are exceptions, and no call has run."""
    bad, error, text = case
    ran: list[str] = []

    @tool(safe_parallel=True)
    async def now() -> None:
        ran.append("now")

    async def main() -> None:
        with pytest.raises(error, match=text.replace("[", r"\[")):
            await Dispatcher([now]).run([ToolCall("0", "now", {}), bad])
        await asyncio.sleep(1)

    run_in_virtual_time(main())
    assert [] == ran
