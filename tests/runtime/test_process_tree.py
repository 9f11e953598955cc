"""What leaves the group of its process is ended with it all the same."""

import asyncio
import contextlib
import errno
import os
import re
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from dispatch import CallContext, Dispatcher, Status, ToolCall, tool
from dispatch.runtime import process_tree
from dispatch.runtime.process import run_process
from dispatch.runtime.process_tree import ProcessTree, Seen
from dispatch.testing import assert_no_leaks
from tests.runtime.test_process import HELD_PIPE, cancelled_when, is_running, sh, until

DEEP = f"""
import os, signal, subprocess, sys, time
depth, stubborn, apart = int(sys.argv[1]), sys.argv[2] == "stubborn", sys.argv[3] == "apart"
if stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if depth:
    again = [sys.executable, __file__, str(depth - 1), *sys.argv[2:]]
    subprocess.Popen(again, start_new_session=apart)
with open(f"pid{{depth}}.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"pid{{depth}}.new", f"pid{{depth}}")
time.sleep({HELD_PIPE})
"""
"""A process with a child with a child with a child; each writes its number and sleeps."""


WAIT = "while [ ! -e pid ]; do sleep 0.01; done; cat pid"


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    file = tmp_path / "deep.py"
    file.write_text(DEEP)
    return file


def numbers(folder: Path) -> list[int]:
    return [int(file.read_text()) for file in sorted(folder.glob("pid?"))]


@pytest.mark.parametrize("apart", ["apart", "together"])
@pytest.mark.parametrize("manners", ["polite", "stubborn"])
async def test_a_tree_is_gone_whatever_it_does(deep: Path, manners: str, apart: str) -> None:
    """Three deep, each in a session of its own or not, SIGTERM ignored or not: none is left."""
    folder = deep.parent
    script = f"exec {sys.executable} {deep} 3 {manners} {apart}"
    async with assert_no_leaks():
        took = await cancelled_when(
            lambda: len(numbers(folder)) == 4, script, cwd=folder, grace=0.2
        )
    assert [False] * 4 == [is_running(pid) for pid in numbers(folder)]
    assert took < 0.2 + process_tree.PATIENCE + 2


@pytest.mark.parametrize(
    "script",
    [
        "setsid sleep 30 & echo $!",
        f"setsid sh -c 'echo $$ >tmp; mv tmp pid; exec sleep 30' & {WAIT}",
        f"setsid sh -c 'setsid sleep 30 & echo $! >tmp; mv tmp pid' & {WAIT}",
    ],
)
async def test_what_left_the_session_does_not_outlive_a_call_that_ends(
    script: str, tmp_path: Path
) -> None:
    """J3: not even a daemon whose parents are gone; and the call does not wait for it."""
    before = time.monotonic()
    result = await run_process(sh(script), cwd=tmp_path)
    assert time.monotonic() - before < 10
    assert not is_running(int(result.output))
    assert () == result.survivors


async def test_one_that_cleared_its_environment_is_found_while_its_parents_live(
    tmp_path: Path,
) -> None:
    """The mark is gone, the ancestors are not: a cancel looks at both before it sends anything."""
    script = "env -i setsid sh -c 'echo $$ > tmp; mv tmp pid; exec sleep 30' & wait"
    ready = tmp_path / "pid"
    await cancelled_when(ready.exists, script, cwd=tmp_path)
    assert not is_running(int(ready.read_text()))


@pytest.fixture
def no_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "has_psutil", lambda: False)


@pytest.mark.usefixtures("no_psutil")
async def test_without_psutil_it_is_the_group_and_nothing_is_marked() -> None:
    """The environment is the given one; a child in the group dies, one in another session lives."""
    result = await run_process(
        sh(f"sleep 30 & echo $!; setsid sleep 30 & echo $!; env | grep -c {process_tree.MARK}")
    )
    inside, outside, marks = map(int, result.output.split())
    assert 0 == marks
    assert not is_running(inside)
    os.kill(outside, signal.SIGKILL)
    await until(lambda: not is_running(outside))


async def test_what_cannot_be_killed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number and name stand in the result, and in what a stopped call had produced."""
    monkeypatch.setattr(Seen, "send", lambda *_, **__: None)
    result = await run_process(sh("setsid sleep 30 & echo $!"))
    assert (f"{int(result.output)} (sleep)",) == result.survivors

    @tool
    async def leave(ctx: CallContext) -> None:
        await ctx.run_process(sh("setsid sleep 30 & echo left; sleep 30"))

    call = ToolCall("", "leave", {}, timeout=0.5)
    turn = await Dispatcher([leave], grace=1.0).run([call])
    assert Status.TIMED_OUT is turn[0].status
    (left,) = re.findall(r"could not be killed: (\d+) \(sleep\)", turn[0].content())
    for pid in (int(result.output), int(left)):
        os.kill(pid, signal.SIGKILL)


async def test_what_one_that_was_seen_starts_later_is_found_without_its_mark(
    tmp_path: Path,
) -> None:
    """It ignores SIGTERM, has no mark, and has a child after everybody was looked at."""
    late = "trap 'setsid sleep 30 & echo $! > tmp2; mv tmp2 late' TERM"
    inner = f"{late}; echo $$ > tmp; mv tmp pid; while :; do sleep 0.01; done"
    script = 'env -i PATH=$PATH setsid sh -c "$0" & wait'
    argv = ["/bin/sh", "-c", script, inner]
    running = asyncio.create_task(run_process(argv, cwd=tmp_path, grace=1.0))
    await until((tmp_path / "pid").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    pids = [int((tmp_path / name).read_text()) for name in ("pid", "late")]
    assert [False, False] == [is_running(pid) for pid in pids]


async def test_a_stranger_with_the_same_name_is_left_alone() -> None:
    """Only marked processes and descendants are signalled."""
    stranger = await asyncio.create_subprocess_exec("sleep", "30")
    try:
        await run_process(sh("sleep 0.01"))
        tree = ProcessTree()
        tree.end()
        assert is_running(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


@pytest.mark.timeout(120)
async def test_rounds_of_spawning_and_cancelling_leave_nothing() -> None:
    """200 calls whose processes have children in other sessions, each cancelled at once or soon."""

    @tool(safe_parallel=True)
    async def spawn(ctx: CallContext, apart: bool) -> None:
        away = "setsid " if apart else ""
        env = {**os.environ, "ROUNDS": str(os.getpid())}
        await ctx.run_process(sh(f"{away}sleep 30 & sleep 30"), env=env)

    dispatcher = Dispatcher([spawn], grace=2.0, max_concurrent=10)
    async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits, within=5.0):
        for number in range(20):
            calls = [ToolCall(f"{n}", "spawn", {"apart": n % 2 == 0}) for n in range(10)]
            turn = await dispatcher.run(calls, timeout=0.02 + 0.01 * number)
            late = [result.content() for result in turn if result.status is not Status.TIMED_OUT]
            assert [] == late
        await dispatcher.aclose()
    assert [] == of_these_rounds()


def of_these_rounds() -> list[psutil.Process]:
    """Processes that a call of these rounds has started, in whatever session."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("ROUNDS") == str(os.getpid()):
                found.append(process)
    return found


CHAIN = """
import os, time
if not os.fork():
    end = time.monotonic() + 6
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
        os.setsid()
        time.sleep(0.001)
"""


async def test_a_chain_of_short_lived_daemons_is_ended_or_told(tmp_path: Path) -> None:
    """Each starts the next one in a session of its own and is gone: no look finds the same."""
    file = tmp_path / "chain.py"
    file.write_text(CHAIN)
    env = {**os.environ, "ROUNDS": str(os.getpid())}
    result = await run_process([sys.executable, str(file)], env=env)
    assert bool(result.survivors) == bool(of_these_rounds())


async def test_a_system_that_cannot_be_looked_at_keeps_no_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No descriptor is free at the end of a process: its call ends all the same."""

    def broken() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(psutil, "process_iter", broken)
    result = await asyncio.wait_for(run_process(sh("echo up")), 10)
    assert "up\n" == result.output


async def test_a_process_whose_environment_is_hidden_is_known_by_its_parent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As that of an agent for keys: a cancel ends it though it left the session."""

    def denied(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "environ", denied)
    script = "setsid sh -c 'echo $$ > tmp; mv tmp pid; exec sleep 30' & wait"
    ready = tmp_path / "pid"
    await cancelled_when(ready.exists, script, cwd=tmp_path)
    assert not is_running(int(ready.read_text()))
