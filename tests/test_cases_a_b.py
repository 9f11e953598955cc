"""Lost updates, and order inside one turn: what happens to real files."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dispatch import (
    Dispatcher,
    FailureKind,
    Status,
    Tool,
    ToolCall,
    ToolError,
    TurnResult,
    tool,
    write,
)
from dispatch.testing import run_in_virtual_time
from tests.timeline import SCHEDULES, Timeline, calls, dispatched, gathered


def edit_tool(root: Path) -> Tool:
    """Read, let the siblings in, write all: the tool that loses updates."""

    @tool(writes="file:{path}")
    async def edit(path: str, old: str, new: str) -> str:
        text = (root / path).read_text()
        if old not in text:
            raise ToolError(f"{old!r} is not in {path}")
        await asyncio.sleep(1)
        (root / path).write_text(text.replace(old, new, 1))
        return f"{old} is {new}"

    return edit


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_six_edits_of_one_file_are_all_in_it(tmp_path: Path, schedule: str) -> None:
    """A1: six edits of one file in one turn: six texts in it, six results in call order."""
    before, after = "".join(f"old{n}\n" for n in range(6)), "".join(f"new{n}\n" for n in range(6))
    turn = calls(*(("edit", {"path": "f", "old": f"old{n}", "new": f"new{n}"}) for n in range(6)))
    edit = edit_tool(tmp_path)

    (tmp_path / "f").write_text(before)
    gathered([edit], turn)
    assert 1 == (tmp_path / "f").read_text().count("new"), "side by side, five are lost"

    (tmp_path / "f").write_text(before)
    result = dispatched([edit], turn, schedule=schedule, root=tmp_path)
    assert after == (tmp_path / "f").read_text()
    assert [f"old{n} is new{n}" for n in range(6)] == [each.value for each in result]
    assert [f"c{n}" for n in range(6)] == [each.call.id for each in result]


def test_a_file_is_never_a_mixture_of_two_writes(tmp_path: Path) -> None:
    """A2: writers that pause between truncating and writing leave what one of them wrote."""

    @tool(writes="file:{path}")
    async def replace(path: str, text: str) -> None:
        with (tmp_path / path).open("w") as file:
            for half in (text[: len(text) // 2], text[len(text) // 2 :]):
                await asyncio.sleep(1)
                file.write(half)
                file.flush()

    long, short = "long " * 40, "short"
    turn = calls(
        ("replace", {"path": "f", "text": long}), ("replace", {"path": "f", "text": short})
    )
    gathered([replace], turn)
    assert (tmp_path / "f").read_text() not in (long, short), "side by side, it is a mixture"
    dispatched([replace], turn, root=tmp_path)
    assert short == (tmp_path / "f").read_text()


def test_the_later_edit_sees_what_the_earlier_one_wrote(tmp_path: Path) -> None:
    """A3: even if both edits could meet between read and write, the second reads the first's."""
    seen: dict[str, str] = {}

    @tool(writes="file:{path}")
    async def add(path: str, letter: str) -> None:
        seen[letter] = (tmp_path / path).read_text()
        for _ in range(100):  # a sibling that may run has read by then
            await asyncio.sleep(0)
        (tmp_path / path).write_text(seen[letter] + letter)

    turn = calls(("add", {"path": "f", "letter": "A"}), ("add", {"path": "f", "letter": "B"}))
    (tmp_path / "f").write_text("")
    gathered([add], turn)
    assert {"A": "", "B": ""} == seen

    (tmp_path / "f").write_text("")
    dispatched([add], turn, root=tmp_path)
    assert {"A": "", "B": "A"} == seen
    assert "AB" == (tmp_path / "f").read_text()


@pytest.mark.parametrize("duplicates", ["run", "coalesce", "reject"])
def test_what_becomes_of_two_edits_of_one_file_is_an_explicit_choice(
    tmp_path: Path, duplicates: str
) -> None:
    """A4: different edits are serialised whatever the choice; of two equal ones the second runs,
    joins the first, or is refused as its duplicate; another file is never affected."""
    files = {name: tmp_path / name for name in "fg"}
    for file in files.values():
        file.write_text("aa bb")
    edit = ("edit", {"path": "f", "old": "a", "new": "x"})
    other, elsewhere = ({"path": path, "old": "b", "new": "y"} for path in "fg")
    turn = calls(edit, edit, ("edit", elsewhere), ("edit", other))

    async def main() -> TurnResult:
        tools = [edit_tool(tmp_path)]
        return await Dispatcher(tools, root=tmp_path, duplicates=duplicates).run(turn)

    result = run_in_virtual_time(main())
    second = FailureKind.DUPLICATE if duplicates == "reject" else None
    assert [None, second, None, None] == [r.failure and r.failure.kind for r in result]
    expected = "xx yb" if duplicates == "run" else "xa yb"
    assert [expected, "aa yb"] == [file.read_text() for file in files.values()]


@pytest.mark.parametrize(
    ("duplicates", "expected"), [("run", "xxx=xx"), ("coalesce", "x=x"), ("reject", "x=x")]
)
def test_copies_of_one_call_leave_what_the_host_chose(
    tmp_path: Path, duplicates: str, expected: str
) -> None:
    """A10: three equal appends, another write, two more: each window of copies runs once, or each
    copy does; every id is answered."""

    @tool(writes="file:{path}")
    async def append(path: str, text: str) -> None:
        with (tmp_path / path).open("a") as file:
            await asyncio.sleep(1)
            file.write(text)

    x, other = ("append", {"path": "f", "text": "x"}), ("append", {"path": "f", "text": "="})

    async def main() -> TurnResult:
        dispatcher = Dispatcher([append], root=tmp_path, duplicates=duplicates)
        return await dispatcher.run(calls(x, x, x, other, x, x))

    result = run_in_virtual_time(main())
    assert expected == (tmp_path / "f").read_text()
    assert [f"c{n}" for n in range(6)] == [each.call.id for each in result]


def test_two_substitutions_from_worker_threads_are_both_there(tmp_path: Path) -> None:
    """A5: `def` tools in threads of their own, replacing line 50 and line 75: both are replaced."""
    lines = [f"line {n}\n" for n in range(1, 101)]
    meeting = threading.Barrier(2)

    @tool(writes="file:{path}")
    def replace(path: str, number: int) -> None:
        text = (tmp_path / path).read_text()
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(0.2)  # lets a sibling read the same text, if one may run
        (tmp_path / path).write_text(text.replace(f"line {number}\n", f"row {number}\n"))

    (tmp_path / "f").write_text("".join(lines))
    turn = calls(*(("replace", {"path": "f", "number": number}) for number in (50, 75)))
    result = Dispatcher([replace], root=tmp_path).run_sync(turn)
    result.raise_for_failures()
    lines[49], lines[74] = "row 50\n", "row 75\n"
    assert "".join(lines) == (tmp_path / "f").read_text()
    assert meeting.broken, "the two never met between reading and writing"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("tool_tags", "call_tags"),
    [({"auto-approved"}, set()), (set(), {"auto-approved"}), ({"auto-approved"}, {"trusted"})],
    ids=["tool", "call", "both"],
)
def test_a_permission_does_not_let_two_edits_of_one_file_overlap(
    tmp_path: Path, tool_tags: set[str], call_tags: set[str], schedule: str
) -> None:
    """A6: what may overlap depends on the file alone, not on what somebody has approved."""
    timeline = Timeline()

    @tool(writes="file:{path}", tags=tool_tags)
    async def edit(path: str, name: str) -> None:
        with timeline.span(name):
            await asyncio.sleep(1)

    turn = [
        ToolCall("1", "edit", {"path": "f", "name": "f"}, tags=frozenset(call_tags)),
        ToolCall("2", "edit", {"path": "f", "name": "f again"}, tags=frozenset(call_tags)),
        ToolCall("3", "edit", {"path": "g", "name": "g"}, tags=frozenset(call_tags)),
    ]
    dispatched([edit], turn, schedule=schedule, root=tmp_path)
    assert (0.0, 1.0) == timeline.spans["f"]
    assert (1.0, 2.0) == timeline.spans["f again"]
    assert (schedule != "serial") == timeline.overlap("f", "g")


def touched_by(given: Mapping[str, Any]) -> list[Any]:
    command = str(given["command"])
    return [write("git", "repo")] if command.startswith("git") else []


def test_commands_are_told_apart_by_what_they_do_not_by_their_tool(tmp_path: Path) -> None:
    """A9: `git add` and `git commit` take the index lock in order, `date` need not wait."""
    lock = tmp_path / "index.lock"
    timeline = Timeline()

    @tool(resource_keys=touched_by)
    async def shell(command: str) -> str:
        with timeline.span(command):
            if command.startswith("git"):
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL))  # as git itself takes it
            await asyncio.sleep(1)
            if command.startswith("git"):
                lock.unlink()
        return command

    turn = calls(
        *(("shell", {"command": command}) for command in ("git add", "git commit", "date"))
    )
    outcomes = gathered([shell], turn)
    assert [str, FileExistsError, str] == [type(each) for each in outcomes]

    timeline.spans.clear()
    result = dispatched([shell], turn)
    assert [Status.OK] * 3 == [each.status for each in result]
    assert {"git add": (0, 1), "date": (0, 1), "git commit": (1, 2)} == timeline.spans


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_read_behind_a_write_returns_what_was_written(tmp_path: Path, schedule: str) -> None:
    """B1: a file that is made and read in one turn is there when it is read."""

    @tool(writes="file:{path}")
    async def write_file(path: str, text: str) -> None:
        await asyncio.sleep(1)
        (tmp_path / path).write_text(text)

    @tool(reads="file:{path}")
    async def read_file(path: str) -> str:
        return (tmp_path / path).read_text()

    turn = calls(("write_file", {"path": "f", "text": "x"}), ("read_file", {"path": "f"}))
    assert FileNotFoundError is type(gathered([write_file, read_file], turn)[1])
    (tmp_path / "f").unlink()
    assert (
        "x" == dispatched([write_file, read_file], turn, schedule=schedule, root=tmp_path)[1].value
    )


def test_a_tool_that_reads_anothers_output_waits_for_it(tmp_path: Path) -> None:
    """B3: a query saved to a file and the program that reads it are in order by that file alone;
    a call that has to do with neither still overlaps."""
    timeline = Timeline()

    @tool(writes="file:{out}")
    async def sql_to_csv(query: str, out: str) -> None:
        with timeline.span("sql"), (tmp_path / out).open("w", newline="") as file:
            await asyncio.sleep(1)
            with contextlib.closing(sqlite3.connect(":memory:")) as database:
                csv.writer(file).writerows(database.execute(query))

    @tool(reads="file:{source}")
    async def total(source: str) -> int:
        with timeline.span("total"), (tmp_path / source).open(newline="") as file:
            return sum(int(row[0]) for row in csv.reader(file))

    @tool(safe_parallel=True)
    async def search(query: str) -> str:
        with timeline.span("search"):
            await asyncio.sleep(1)
        return query

    turn = calls(
        ("sql_to_csv", {"query": "SELECT 20 UNION SELECT 22", "out": "out.csv"}),
        ("total", {"source": "./data/../out.csv"}),
        ("search", {"query": "the answer"}),
    )
    (tmp_path / "data").mkdir()
    tools = [sql_to_csv, total, search]
    assert 0 == gathered(tools, turn)[1], "side by side, it adds up an empty file"
    timeline.spans.clear()
    assert [None, 42, "the answer"] == [
        each.value for each in dispatched(tools, turn, root=tmp_path)
    ]
    assert timeline.overlap("sql", "search")


@pytest.mark.parametrize("hint", [None, False, True], ids=["no hint", "wait=false", "wait=true"])
def test_what_a_model_says_about_waiting_takes_no_order_away(
    tmp_path: Path, hint: bool | None
) -> None:
    """B5: the host's declaration decides; a model that says `wait: false` loses nothing."""

    @tool(writes="file:{path}")
    async def add(path: str, letter: str, wait: bool | None = None) -> None:
        text = (tmp_path / path).read_text()
        await asyncio.sleep(1)
        (tmp_path / path).write_text(text + letter)

    (tmp_path / "f").write_text("")
    given = {} if hint is None else {"wait": hint}
    turn = calls(*(("add", {"path": "f", "letter": letter, **given}) for letter in "abc"))
    dispatched([add], turn, root=tmp_path)
    assert "abc" == (tmp_path / "f").read_text()


def test_a_hint_that_the_host_did_not_declare_is_refused(tmp_path: Path) -> None:
    """B5: a model cannot talk its way past the order with an argument of its own."""
    (tmp_path / "f").write_text("one")

    async def main() -> None:
        async with Dispatcher([edit_tool(tmp_path)], root=tmp_path) as dispatcher:
            given = {"path": "f", "old": "one", "new": "two"}
            result = await dispatcher.run(
                calls(("edit", given), ("edit", {**given, "safe_parallel": True}))
            )
        assert result[0].ok
        assert result[1].failure is not None
        assert FailureKind.INVALID_ARGUMENTS == result[1].failure.kind
        assert "safe_parallel" in result[1].content()

    run_in_virtual_time(main())
    assert "two" == (tmp_path / "f").read_text()
