"""Ctrl-C, once and often: the results are printed, and no process is left."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from dispatch.cli import signals
from dispatch.cli.signals import Interrupts
from tests.cli.command import eventually, is_running, start, turn_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_at_once_with_what_was_done(
    tmp_path: Path, root: Path, number: signal.Signals
) -> None:
    """One Ctrl-C: processes gone, results so far printed in order, exit 130, within seconds."""
    script = "echo $$ > pid; sleep 600 & echo $! > child; wait"
    file = turn_file(
        tmp_path,
        ("write_file", {"path": "done.txt", "content": "kept"}),
        ("shell", {"command": script}),
        ("read_file", {"path": "done.txt"}),
    )
    command = start("run", file, "--root", root, "--json")
    try:
        child = root / "child"
        assert eventually(lambda: child.exists() and child.read_text().strip() != "")
        pids = [int((root / name).read_text()) for name in ("pid", "child")]
        began = time.monotonic()
        command.send_signal(number)
        out, err = command.communicate(timeout=10)
        took = time.monotonic() - began
    finally:
        command.kill()
    document = json.loads(out)
    assert 130 == command.returncode, err
    assert [False, False] == [is_running(pid) for pid in pids]
    assert (True, False) == (document["interrupted"], b"Traceback" in err)
    assert ["ok", "cancelled", "cancelled"] == [r["status"] for r in document["results"]]
    assert took < 4.0


@pytest.mark.parametrize("times", [2, 3, 40])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_pressing_ctrl_c_again_changes_nothing(
    tmp_path: Path, root: Path, times: int, number: signal.Signals
) -> None:
    """Results are printed and the tree is gone, also if a shell ignores being terminated."""
    script = "trap '' TERM INT; sleep 600 & echo $! > child; echo $$ > pid; wait; wait"
    file = turn_file(
        tmp_path,
        ("write_file", {"path": "done.txt", "content": "kept"}),
        ("shell", {"command": script}),
    )
    command = start("run", file, "--root", root, "--json")
    try:
        pid = root / "pid"
        assert eventually(lambda: pid.exists() and pid.read_text().strip() != "")
        pids = [int((root / name).read_text()) for name in ("pid", "child")]
        for _ in range(times):
            command.send_signal(number)
            time.sleep(0.05)  # a finger on the key, not a wait for anything
        out, err = command.communicate(timeout=10)
    finally:
        command.kill()
    assert 130 == command.returncode, err
    assert [False, False] == [is_running(pid) for pid in pids]
    assert ["ok", "cancelled"] == [r["status"] for r in json.loads(out)["results"]]
    assert b"Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_until_the_very_end_change_nothing(
    tmp_path: Path, root: Path, number: signal.Signals
) -> None:
    """One signal after the other until the process is gone: all that was done, nothing left."""
    script = "echo $$ > pid; sleep 600"
    file = turn_file(tmp_path, ("list_directory", {}), ("shell", {"command": script}))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = start("run", file, "--root", root, "--json", env={"TMPDIR": str(temporary)})
    try:
        assert eventually(lambda: (root / "pid").exists())
        while command.poll() is None:
            command.send_signal(number)
            time.sleep(0.001)  # a signal that is still pending would swallow the next one
        out, err = command.communicate(timeout=10)
    finally:
        command.kill()
    assert (130, False) == (command.returncode, b"Traceback" in err), err
    assert ["ok", "cancelled"] == [r["status"] for r in json.loads(out)["results"]]
    assert [] == list(temporary.iterdir())


def test_a_signal_while_results_are_printed_loses_none(tmp_path: Path, root: Path) -> None:
    """A reader who is slow and a Ctrl-C at that time: all results come, and the code is 130."""
    (root / "big.txt").write_text("word " * 20_000 + "\n")
    file = turn_file(tmp_path, *[("read_file", {"path": "big.txt"})] * 20)
    command = start("run", file, "--root", root, "--json", stderr=subprocess.DEVNULL)
    try:
        assert command.stdout is not None
        first = command.stdout.read(1)  # the pipe is full from now on
        for _ in range(3):
            command.send_signal(signal.SIGINT)
            time.sleep(0.05)  # lets each one arrive by itself
        out = first + command.stdout.read()
        assert 130 == command.wait(timeout=10)
    finally:
        command.kill()
        command.communicate()
    assert 20 == len(json.loads(out)["results"])


def test_a_reader_who_never_reads_can_be_left(tmp_path: Path, root: Path) -> None:
    """Where the output hangs for good, a signal after the patience ends the command."""
    (root / "big.txt").write_text("word " * 20_000 + "\n")
    file = turn_file(tmp_path, *[("read_file", {"path": "big.txt"})] * 20)
    command = start("run", file, "--root", root)
    try:
        assert command.stdout is not None
        command.stdout.read(1)
        time.sleep(signals.PATIENCE + 0.2)  # the patience is the command's own time
        command.send_signal(signal.SIGINT)
        assert 130 == command.wait(timeout=10)
    finally:
        command.kill()
        command.communicate()


def test_the_handlers_are_restored_and_what_is_ignored_stays_so() -> None:
    """Afterwards every signal means what it meant before; an ignored one is never taken."""
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    was = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            assert 7 == interrupts.run(_seven())
            assert signal.SIG_IGN == signal.getsignal(signal.SIGHUP)
            assert before[signal.SIGINT] != signal.getsignal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        assert interrupts.seen
    finally:
        signal.signal(signal.SIGHUP, was)
    assert before == {number: signal.getsignal(number) for number in signals.SIGNALS}


async def _seven() -> int:
    return 7


def test_a_thread_that_never_ends_can_be_left_once_all_is_printed(tmp_path: Path) -> None:
    """A tool's own thread holds the process up; a signal then ends it with its exit code."""
    (tmp_path / "own.py").write_text(
        "import threading\n\n"
        "async def start() -> str:\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "    return 'started'\n\n"
        "tools = [start]\n"
    )
    file = turn_file(tmp_path, ("start", {}))
    command = start("run", file, "--root", tmp_path, "--tools", tmp_path / "own.py:tools")
    try:
        assert command.stderr is not None
        assert any(b"1 call (1 ok)" in line for line in command.stderr)

        def is_left() -> bool:
            command.send_signal(signal.SIGINT)
            return command.poll() is not None

        assert eventually(is_left)
        out, err = command.communicate(timeout=10)
    finally:
        command.kill()
    assert (True, b"Traceback" in err) == (b"started" in out, False), err
    assert command.returncode in (0, 130)  # 130 if it was still telling of the turn
