"""The tools of a folder in whole turns, through the dispatcher."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dispatch import Dispatcher, Status, ToolCall
from dispatch.toolkit import coding_tools

SCHEDULES = ["dataflow", "groups", "clusters", "serial"]


def turn(*calls: tuple[str, dict[str, Any]]) -> list[ToolCall]:
    return [ToolCall(f"c{n}", name, arguments) for n, (name, arguments) in enumerate(calls)]


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "edit_file", {"path": path, "old": old, "new": new}


def shell(command: str) -> tuple[str, dict[str, Any]]:
    return "shell", {"command": command}


async def values(root: Path, calls: Sequence[ToolCall], schedule: str = "dataflow") -> list[str]:
    async with Dispatcher(coding_tools(root), root=root) as dispatcher:
        result = await dispatcher.run(calls, schedule=schedule)
    assert [Status.OK] * len(calls) == [each.status for each in result], [
        each.content() for each in result
    ]
    return [each.content() for each in result]


async def test_a_shell_sees_the_edit_before_it_and_not_the_one_after(tmp_path: Path) -> None:
    """An edit, a command and an edit of one file keep their order, a hundred times in a row."""
    file = tmp_path / "a.py"
    calls = turn(edit("a.py", "first", "middle"), shell("cat a.py"), edit("a.py", "middle", "last"))
    seen: list[str] = []
    async with Dispatcher(coding_tools(tmp_path), root=tmp_path) as dispatcher:
        for _ in range(100):
            file.write_text("first\n")
            result = await dispatcher.run(calls)
            seen.append(result[1].content())
            assert "last\n" == file.read_text()
    assert ["middle\n"] * 100 == seen


@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_a_cd_does_not_reach_the_sibling_before_it(tmp_path: Path, schedule: str) -> None:
    """C1: `cd` in one command and `pwd` in another are in order: the sibling before it runs
    where the shell stood, the one after it where the shell went."""
    (tmp_path / "x").mkdir()
    calls = turn(shell("pwd"), shell("cd x && ls"), shell("pwd"))
    assert [f"{tmp_path}\n", "(no output)", f"{tmp_path}/x\n"] == await values(
        tmp_path, calls, schedule
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_a_build_runs_where_the_shell_stood(tmp_path: Path, schedule: str) -> None:
    """C2: `build` and `cd B && build` build A's project and then B's, never B's twice."""
    for place, name in ((tmp_path, "A"), (tmp_path / "B", "B")):
        place.mkdir(exist_ok=True)
        (place / "build").write_text(f"#!/bin/sh\necho built {name} >>{tmp_path}/log\n")
        (place / "build").chmod(0o755)
    await values(tmp_path, turn(shell("./build"), shell("cd B && ./build")), schedule)
    assert "built A\nbuilt B\n" == (tmp_path / "log").read_text()


@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_six_edits_of_one_file_are_all_on_the_disk(tmp_path: Path, schedule: str) -> None:
    """A1, A3, A5: every one of six edits in one message is in the file."""
    (tmp_path / "a").write_text("".join(f"line {n}\n" for n in range(6)))
    calls = turn(*(edit("a", f"line {n}\n", f"row {n}\n") for n in range(6)))
    await values(tmp_path, calls, schedule)
    assert "".join(f"row {n}\n" for n in range(6)) == (tmp_path / "a").read_text()


@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_a_read_after_a_write_sees_it(tmp_path: Path, schedule: str) -> None:
    """B1: a file written and read in one message is there when it is read; so for a search of the
    folder it is in."""
    calls = turn(
        ("write_file", {"path": "src/a.py", "content": "one\n"}),
        ("read_file", {"path": "src/a.py"}),
        ("grep", {"pattern": "one", "path": "src"}),
        edit("src/a.py", "one", "two"),
        ("grep", {"pattern": "two"}),
    )
    found = await values(tmp_path, calls, schedule)
    assert ["one\n", "src/a.py:1:one", "src/a.py:1:two"] == [found[1], found[2], found[4]]


async def test_git_add_and_commit_do_not_meet(tmp_path: Path) -> None:
    """A9: two commands that need one lock are never run at the same time."""
    name = "-c user.name=a -c user.email=a@example.org"
    calls = turn(
        shell("git init -q && seq 2000 | while read n; do echo $n >$n; done"),
        shell("git add -A"),
        shell(f"git {name} commit -q -m all"),
        shell("git status --porcelain"),
    )
    assert "(no output)" == (await values(tmp_path, calls))[3]


async def test_the_tools_are_right_whatever_the_dispatchers_root_is(tmp_path: Path) -> None:
    """A dispatcher that has another root orders the calls all the same."""
    root = tmp_path / "deep" / "root"
    root.mkdir(parents=True)
    calls = turn(
        ("write_file", {"path": "a", "content": "one\n"}),
        ("read_file", {"path": str(root / "a")}),
        ("read_file", {"path": "./x/../a"}),
    )
    async with Dispatcher(coding_tools(root), root=tmp_path) as dispatcher:
        assert ((0,), (1, 2)) == dispatcher.plan(calls).groups
        assert ["one\n", "one\n"] == [each.content() for each in await dispatcher.run(calls)][1:]


async def test_a_refused_path_harms_no_sibling(tmp_path: Path) -> None:
    """A path that leaves the root, or is none, is that call's error; nothing had to run alone."""
    (tmp_path / "a").write_text("a")
    paths = ["a", "../x", "a\0b", "n" * 300, "a"]
    calls = turn(*(("read_file", {"path": path}) for path in paths))
    async with Dispatcher(coding_tools(tmp_path), root=tmp_path) as dispatcher:
        result = await dispatcher.run(calls)
    statuses = [each.status for each in result]
    assert [Status.OK, Status.ERROR, Status.ERROR, Status.ERROR, Status.OK] == statuses
    assert () == result.warnings
    assert 1 == len(result.plan.groups)


async def test_a_grep_without_a_match_is_no_failure(tmp_path: Path) -> None:
    """G1: finding nothing is an answer."""
    calls = turn(("grep", {"pattern": "nothing"}))
    assert ["no match for 'nothing' in '.'"] == await values(tmp_path, calls)
