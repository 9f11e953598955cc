"""`dispatch plan`: the reasons of every wait, in four forms, without running anything."""

import json
from pathlib import Path

import pytest

from tests.cli.command import dispatch, turn_file

TURN = (
    ("edit_file", {"path": "a.py", "old": "1", "new": "2"}),
    ("read_file", {"path": "b.py"}),
    ("edit_file", {"path": "a.py", "old": "2", "new": "3"}),
    ("grep", {"pattern": "x", "path": "."}),
    ("shell", {"command": "touch ran"}),
)


def test_the_text_gives_the_reason_of_every_wait_and_runs_nothing(tmp_path: Path) -> None:
    """Each call that waits says for which call and which claims overlap; nothing is touched."""
    done = dispatch("plan", turn_file(tmp_path, *TURN), "--root", tmp_path)
    assert 0 == done.returncode, done.stderr
    lines = done.stdout.splitlines()
    second = lines.index(next(line for line in lines if "#2 edit_file" in line))
    assert "waits for #0 edit_file" in lines[second + 1]
    assert "WRITE of file a.py overlaps WRITE of file a.py" in lines[second + 1]
    assert "READ of file . overlaps WRITE of file a.py" in done.stdout
    assert (["turn.json"], "") == ([path.name for path in tmp_path.iterdir()], done.stderr)


def test_tools_that_run_alone_because_undeclared_are_named(tmp_path: Path) -> None:
    """A tool that declares nothing is named, so that its owner can declare it."""
    (tmp_path / "own.py").write_text(
        "async def mystery() -> str:\n    return ''\n\nTOOLS = [mystery]\n"
    )
    file = turn_file(tmp_path, ("mystery", {}), ("mystery", {}))
    done = dispatch("plan", file, "--root", tmp_path, "--tools", tmp_path / "own.py:TOOLS")
    assert "because undeclared: mystery" in done.stdout


def test_json_has_the_plan_as_data(tmp_path: Path) -> None:
    """`--json` is one object: groups and clusters of positions, claims and waits of each call."""
    done = dispatch("plan", turn_file(tmp_path, *TURN), "--root", tmp_path, "--json")
    plan = json.loads(done.stdout)
    assert [[0, 1], [2], [3], [4]] == plan["groups"]
    assert ["READ of file b.py"] == [c for c in plan["calls"][1]["claims"] if " file " in c]
    assert [0] == [wait["position"] for wait in plan["calls"][2]["waits_for"]]


@pytest.mark.parametrize(
    ("form", "first"), [("--mermaid", "flowchart"), ("--dot", "digraph plan {")]
)
def test_graphs_have_a_node_per_call_and_an_edge_per_wait(
    tmp_path: Path, form: str, first: str
) -> None:
    """Both graph forms name every call and say why the second edit waits for the first."""
    done = dispatch("plan", turn_file(tmp_path, *TURN), "--root", tmp_path, form)
    assert done.stdout.startswith(first)
    assert all(f"#{position} {name}" in done.stdout for position, (name, _) in enumerate(TURN))
    assert "WRITE of file a.py overlaps WRITE of file a.py" in done.stdout


def test_the_schedule_is_part_of_the_plan(tmp_path: Path) -> None:
    """A serial plan chains calls that have no conflict, as dashed edges of the graph."""
    file = turn_file(tmp_path, *[("read_file", {"path": "a"})] * 3)
    plans = [
        dispatch("plan", file, "--root", tmp_path, "--dot", "--schedule", schedule).stdout
        for schedule in ("dataflow", "serial")
    ]
    assert [0, 2] == [plan.count("style=dashed") for plan in plans]


def test_an_unknown_tool_is_in_the_plan_as_refused(tmp_path: Path) -> None:
    """What would be refused is said before it is run (F4)."""
    file = turn_file(tmp_path, ("read_fil", {"path": "a"}), ("read_file", {"path": 1}))
    done = dispatch("plan", file, "--root", tmp_path)
    assert (0, True) == (done.returncode, "Did you mean 'read_file'?" in done.stdout), done.stderr
    assert "invalid arguments: path" in done.stdout


@pytest.mark.parametrize("form", [(), ("--json",), ("--mermaid",), ("--dot",)])
def test_an_empty_turn_has_a_plan(tmp_path: Path, form: tuple[str, ...]) -> None:
    """No calls is no error."""
    done = dispatch("plan", turn_file(tmp_path), "--root", tmp_path, *form)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout


def test_the_same_turn_gives_the_same_plan(tmp_path: Path) -> None:
    """A plan is a function of its turn: byte-identical twice (D7)."""
    file = turn_file(tmp_path, *TURN * 20)
    plans = [dispatch("plan", file, "--root", tmp_path, "--json").stdout for _ in range(2)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("form", [(), ("--json",), ("--mermaid",), ("--dot",)])
def test_a_plan_cannot_steer_a_terminal(tmp_path: Path, form: tuple[str, ...]) -> None:
    """Control characters of any kind, also those beyond ASCII, are spelled out in every form."""
    file = turn_file(tmp_path, ("read_file", {"path": "\x9b2J\u202e\x1b"}), ("\x9b\u202e", {}))
    done = dispatch("plan", file, "--root", tmp_path, *form)
    assert 0 == done.returncode, done.stderr
    assert [] == [steering for steering in "\x1b\x9b\u202e" if steering in done.stdout]
    if form == ("--json",):
        assert "\x9b\u202e" == json.loads(done.stdout)["calls"][1]["name"]
