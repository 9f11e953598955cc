"""Which two calls of a turn may run at the same time, and which not: one table, four schedules."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from dispatch import Status, Tool, ToolCall, read, tool, write
from tests.timeline import SCHEDULES, Timeline, dispatched, gathered

SIDE_BY_SIDE = frozenset({"dataflow", "groups", "clusters"})
NEVER: frozenset[str] = frozenset()


def toolset(timeline: Timeline) -> list[Tool]:
    async def work(name: str) -> str:
        with timeline.span(name):
            await asyncio.sleep(1)
        return name

    @tool(reads="file:{path}")
    async def read_file(name: str, path: str) -> str:
        return await work(name)

    @tool(writes="file:{path}")
    async def edit_file(name: str, path: str) -> str:
        return await work(name)

    @tool(writes="file:{path}")
    async def write_file(name: str, path: str) -> str:
        return await work(name)

    @tool(reads="file:{folder}")
    async def grep(name: str, folder: str) -> str:
        return await work(name)

    @tool(safe_parallel=True)
    async def fetch(name: str, url: str) -> str:
        return await work(name)

    @tool(resource_keys=lambda given: [], session=lambda given: str(given["session"]))
    async def shell(name: str, session: str, command: str) -> str:
        return await work(name)

    @tool(resource_keys=lambda given: [read("db", given["table"], given["row"])])
    async def read_row(name: str, table: str, row: int) -> str:
        return await work(name)

    @tool(resource_keys=lambda given: [write("db", given["table"], given["row"])])
    async def write_row(name: str, table: str, row: int) -> str:
        return await work(name)

    @tool(resource_keys=lambda given: [("db", given["table"])])
    async def truncate(name: str, table: str) -> str:
        return await work(name)

    @tool
    async def undeclared(name: str) -> str:
        return await work(name)

    return [
        *(read_file, edit_file, write_file, grep, fetch, shell),
        *(read_row, write_row, truncate, undeclared),
    ]


Arguments = dict[str, str | int]


@dataclass(frozen=True)
class Pair:
    """Two calls of one turn, in this order, and the schedules in which they overlap."""

    title: str
    first: tuple[str, Arguments]
    second: tuple[str, Arguments]
    overlap_in: frozenset[str]


def file(path: str) -> Arguments:
    return {"path": path}


def row(number: int) -> Arguments:
    return {"table": "orders", "row": number}


def shell(session: str, command: str) -> tuple[str, Arguments]:
    return "shell", {"session": session, "command": command}


FETCH_A: tuple[str, Arguments] = ("fetch", {"url": "http://a.example"})
FETCH_B: tuple[str, Arguments] = ("fetch", {"url": "http://b.example"})
GREP: tuple[str, Arguments] = ("grep", {"folder": "src"})

PAIRS = [
    # may
    Pair("read a, read b", ("read_file", file("a")), ("read_file", file("b")), SIDE_BY_SIDE),
    Pair("read a, read a", ("read_file", file("a")), ("read_file", file("a")), SIDE_BY_SIDE),
    Pair("grep, fetch", GREP, FETCH_A, SIDE_BY_SIDE),
    Pair("fetch, fetch", FETCH_A, FETCH_B, SIDE_BY_SIDE),
    Pair("row read, row read", ("read_row", row(1)), ("read_row", row(1)), SIDE_BY_SIDE),
    # may, though a lock per tool, per kind or per session would not let them
    Pair("edit a, edit b", ("edit_file", file("a")), ("edit_file", file("b")), SIDE_BY_SIDE),
    Pair("row write, next row", ("write_row", row(1)), ("read_row", row(2)), SIDE_BY_SIDE),
    Pair("cd, ls elsewhere", shell("a", "cd x"), shell("b", "ls"), SIDE_BY_SIDE),
    Pair("grep, edit outside", GREP, ("edit_file", file("docs/a")), SIDE_BY_SIDE),
    Pair("undeclared, fetch", ("undeclared", {}), FETCH_A, SIDE_BY_SIDE),
    # must not
    Pair("edit a, edit a", ("edit_file", file("a")), ("edit_file", file("a")), NEVER),
    Pair("cd, ls", shell("a", "cd x"), shell("a", "ls"), NEVER),
    Pair("write a, read a", ("write_file", file("a")), ("read_file", file("a")), NEVER),
    Pair("row write, row read", ("write_row", row(1)), ("read_row", row(1)), NEVER),
    # must not, though the names differ or nothing is named
    Pair("read a, write a", ("read_file", file("a")), ("write_file", file("a")), NEVER),
    Pair("edit a, edit ./x/../a", ("edit_file", file("a")), ("edit_file", file("x/../a")), NEVER),
    Pair("edit inside, grep", ("edit_file", file("src/a")), GREP, NEVER),
    Pair("row read, truncate", ("read_row", row(1)), ("truncate", {"table": "orders"}), NEVER),
    Pair("read a, undeclared", ("read_file", file("a")), ("undeclared", {}), NEVER),
    Pair("undeclared, undeclared", ("undeclared", {}), ("undeclared", {}), NEVER),
]


def turn(pair: Pair) -> list[ToolCall]:
    (first, some), (second, others) = pair.first, pair.second
    return [
        ToolCall("c0", first, {"name": "first", **some}),
        ToolCall("c1", second, {"name": "second", **others}),
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.title)
def test_two_calls_overlap_exactly_when_they_may(pair: Pair, schedule: str, tmp_path: Path) -> None:
    """Calls that share nothing run at the same time, others in intent order; serial never."""
    timeline = Timeline()
    result = dispatched(toolset(timeline), turn(pair), schedule=schedule, root=tmp_path)
    assert [Status.OK, Status.OK] == [each.status for each in result]
    second_began = 0.0 if schedule in pair.overlap_in else 1.0
    assert {"first": (0.0, 1.0), "second": (second_began, second_began + 1)} == timeline.spans
    assert (schedule in pair.overlap_in) == timeline.overlap("first", "second")
    assert list(timeline.spans.values()) == [
        (each.started_at, each.finished_at) for each in result
    ], "the recorded intervals are what the results say"


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.title)
def test_without_the_dispatcher_every_pair_overlaps(pair: Pair) -> None:
    """The tools themselves keep nobody out: what the table says is the dispatcher's doing."""
    timeline = Timeline()
    gathered(toolset(timeline), turn(pair))
    assert timeline.overlap("first", "second")


@pytest.mark.parametrize(
    ("schedule", "began"),
    [
        ("dataflow", {"long": 0, "both": 0, "on b": 1, "on c": 1, "apart": 0}),
        ("groups", {"long": 0, "both": 0, "on b": 3, "on c": 3, "apart": 0}),
        ("clusters", {"long": 0, "both": 0, "on b": 1, "on c": 2, "apart": 0}),
        ("serial", {"long": 0, "both": 3, "on b": 4, "on c": 5, "apart": 6}),
    ],
)
def test_a_schedule_adds_its_own_waits_and_no_others(
    schedule: str, began: dict[str, float], tmp_path: Path
) -> None:
    """A barrier after each group, a chain in each cluster, or one chain; else only conflicts."""
    timeline = Timeline()

    @tool(writes="file:{paths}")
    async def edit_files(name: str, paths: list[str], seconds: float = 1) -> None:
        with timeline.span(name):
            await asyncio.sleep(seconds)

    turn = [
        ToolCall("0", "edit_files", {"name": "long", "paths": ["a"], "seconds": 3}),
        ToolCall("1", "edit_files", {"name": "both", "paths": ["b", "c"]}),
        ToolCall("2", "edit_files", {"name": "on b", "paths": ["b"]}),
        ToolCall("3", "edit_files", {"name": "on c", "paths": ["c"]}),
        ToolCall("4", "edit_files", {"name": "apart", "paths": ["d"]}),
    ]
    dispatched([edit_files], turn, schedule=schedule, root=tmp_path)
    assert began == {name: span[0] for name, span in timeline.spans.items()}
