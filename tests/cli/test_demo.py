"""`dispatch demo` from end to end, as `make demo` ends in it."""

import re
import signal
import time
from pathlib import Path

import pytest

from dispatch.cli.turnfile import read_messages
from tests.cli.command import dispatch, eventually, start

DEMO = Path(__file__).parents[2] / "examples" / "demo"


@pytest.mark.timeout(120)
def test_the_demo_repairs_its_project_both_ways_alike(tmp_path: Path) -> None:
    """Exit 0, both folders alike and green, every kind of call shown, 100 columns, no leftovers."""
    done = dispatch("demo", env={"TMPDIR": str(tmp_path)})
    assert 0 == done.returncode, done.stdout + done.stderr
    assert "ok: both folders end with the same" in done.stdout
    assert "ok: the project's own tests pass (Ran " in done.stdout
    for expected in (
        "no tool is named 'serch'",
        "Did you mean 'run_tests'?",
        "the arguments are not valid JSON",
        "old does not occur in",
        "parallelism factor",
        "conflict-serialized",
        "one by one",
    ):
        assert expected in done.stdout
    long = [line for line in done.stdout.splitlines() if len(line) > 100]
    assert [] == [line for line in long if str(tmp_path) not in line]
    assert [] == list(tmp_path.iterdir())


@pytest.mark.timeout(120)
def test_the_demo_can_keep_its_folders_and_use_any_schedule(tmp_path: Path) -> None:
    """`--keep` leaves both copies and says where; `groups` ends with the same contents."""
    deep = tmp_path / "-".join(["a long name"] * 9)
    deep.mkdir()
    done = dispatch("demo", "--keep", "--schedule", "groups", env={"TMPDIR": str(deep)})
    assert 0 == done.returncode, done.stdout + done.stderr
    kept = re.search(r"^kept: (.*)$", done.stdout, re.MULTILINE)
    assert kept is not None
    folders = [Path(kept[1]) / name for name in ("groups", "one-by-one")]
    assert [f"in {folder}" in done.stdout for folder in folders] == [True, True]
    assert [True, True] == [(folder / "site" / "index.html").is_file() for folder in folders]
    assert "NotImplementedError" not in (folders[0] / "minimark" / "toc.py").read_text()


@pytest.mark.parametrize("times", [1, 2, 20])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_no_folder_behind(tmp_path: Path, number: signal.Signals, times: int) -> None:
    """However often interrupted, a demo removes its folders and exits 130, without a trace."""
    command = start("demo", env={"TMPDIR": str(tmp_path)}, cwd=tmp_path)
    try:
        assert eventually(lambda: any(tmp_path.glob("dispatch-demo-*/dataflow/minimark")))
        for _ in range(times):
            command.send_signal(number)
            time.sleep(0.05)  # a finger on the key, not a wait for anything
        _, err = command.communicate(timeout=10)
    finally:
        command.kill()
    assert (130, []) == (command.returncode, list(tmp_path.iterdir())), err
    assert b"Traceback" not in err


def test_the_recording_has_what_it_promises() -> None:
    """At least five turns; edits of one file in one turn; a shell call with `cd`; both APIs."""
    messages = read_messages(DEMO / "turns.json")
    blocks = [
        [block for block in message.get("content", []) if block["type"] == "tool_use"]
        for message in messages
    ]
    edits = [[b["input"]["path"] for b in turn if b["name"] == "edit_file"] for turn in blocks]
    commands = [b["input"]["command"] for turn in blocks for b in turn if b["name"] == "shell"]
    assert len(messages) >= 6
    assert any(len(set(paths)) > 1 and len(set(paths)) < len(paths) for paths in edits)
    assert any("cd " in command for command in commands)
    assert 1 == sum("choices" in message for message in messages)


def test_the_recording_does_not_wait_for_nothing() -> None:
    """No sleeps stand in for work, in the recording or in the project."""
    files = [*DEMO.rglob("*.py"), DEMO / "turns.json"]
    assert [] == [file for file in files if "sleep" in file.read_text(encoding="utf-8")]
