"""Endings that must not leak: a fatal error, a failure among siblings, Ctrl-C in the host."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dispatch import (
    AllOrNothing,
    BestEffort,
    CallContext,
    CallFailed,
    Dispatcher,
    Quorum,
    Tool,
    ToolError,
    TurnResult,
    tool,
)
from dispatch.core.policy import Policy
from dispatch.testing import assert_no_leaks, run_in_virtual_time
from tests.cli.command import PLAIN, eventually, is_running
from tests.runtime.keyed import statuses
from tests.runtime.stage import clock
from tests.runtime.test_process import sh, until
from tests.timeline import calls

SLACK = 5.0
"""Seconds that a loaded machine may take beyond what the contract says."""
GRACE = 0.3


class Aborted(Exception):
    """What a host raises."""


def interrupting(error: type[BaseException]) -> Tool:
    async def fatal() -> None:
        await asyncio.sleep(1)
        raise error

    return Tool("fatal", fatal, safe_parallel=True)


class Disk:
    """Writes after 5 s, and takes a while to clean up; a call of it may be nested in another."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.cleaned: list[float] = []

    def tools(self) -> list[Tool]:
        async def patch(key: str) -> None:
            try:
                await asyncio.sleep(5)
                self.written.append(key)
            finally:
                await asyncio.sleep(0.2)
                self.cleaned.append(clock())

        @tool(safe_parallel=True)
        async def agent(ctx: CallContext) -> None:
            await ctx.run(calls(("patch", {"key": "b"}), ("patch", {"key": "b"})))

        return [Tool("patch", patch, writes="key:{key}"), agent]


ENDINGS = {
    "interrupt": KeyboardInterrupt,
    "exit": SystemExit,
    "host": Aborted,
    "policy": None,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_written_after_a_fatal_ending(ending: str) -> None:
    """G5: [raise fatal, sleep 5 then write], the writer running, queued or nested: whoever ends
    the run, siblings are cancelled and awaited before it is over, and no write comes later."""
    disk, error = Disk(), ENDINGS[ending]
    in_tool = error if error is not None and error is not Aborted else ToolError
    policy: Policy = AllOrNothing() if ending == "policy" else BestEffort()
    dispatcher = Dispatcher([interrupting(in_tool), *disk.tools()], policy=policy)
    turn_calls = [("patch", {"key": "a"}), ("patch", {"key": "a"}), ("agent", {}), ("fatal", {})]

    async def main() -> None:
        before = asyncio.all_tasks()
        with pytest.raises(error) if error is not None else contextlib.nullcontext():
            async with dispatcher.turn() as turn:
                for call in calls(*turn_calls):
                    turn.submit(call)
                if ending == "host":
                    await asyncio.sleep(1)
                    raise Aborted
        assert 1.2 == clock()
        assert ([1.2, 1.2], []) == (disk.cleaned, disk.written)
        assert before == asyncio.all_tasks()
        assert 4 == len(turn.snapshot())
        await asyncio.sleep(100)

    run_in_virtual_time(main())
    assert [] == disk.written


async def fail_at_the_first_failure(dispatcher: Dispatcher) -> None:
    async with dispatcher.turn() as turn:
        for call in calls(("command", {}), ("patch", {}), ("queued", {}), ("fails", {})):
            turn.submit(call)
        async for result in turn.events():
            result.unwrap()


@pytest.mark.parametrize("way", ["interrupt", "host"])
async def test_no_category_goes_on_changing_the_disk_after_the_failure(
    tmp_path: Path, way: str
) -> None:
    """G6: a shell command and a patching thread, each of its own group, while a function call
    fails: both have stopped when that is raised, and the patch that was queued never starts."""
    out, patched, stopped = tmp_path / "out", tmp_path / "patched", threading.Event()

    @tool(safe_parallel=True, tags={"function"})
    async def fails() -> None:
        await until(lambda: out.exists() and patched.exists())
        raise KeyboardInterrupt if way == "interrupt" else LookupError

    @tool(writes="key:repo", tags={"shell"})
    async def command(ctx: CallContext) -> None:
        await ctx.run_process(sh("sh -c 'while :; do echo $$ >> out; done' & wait"), cwd=tmp_path)

    @tool(safe_parallel=True, tags={"patch"})
    def patch(ctx: CallContext) -> None:
        while not ctx.token.cancelled:
            patched.write_text(str(time.monotonic()))
        stopped.set()

    @tool(writes="key:repo", tags={"patch"})
    async def queued() -> None:
        (tmp_path / "queued").touch()

    tags = ("function", "shell", "patch")
    dispatcher = Dispatcher(
        [fails, command, patch, queued], grace=GRACE, policies={tag: BestEffort() for tag in tags}
    )
    async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits, within=SLACK):
        with pytest.raises((KeyboardInterrupt, CallFailed)):
            await fail_at_the_first_failure(dispatcher)
        pid = int(out.read_text().split()[0])
        assert (False, True) == (is_running(pid), stopped.is_set())
        assert not (tmp_path / "queued").exists()
        await dispatcher.aclose()


@pytest.mark.parametrize("schedule", ["dataflow", "groups", "clusters"])
@pytest.mark.parametrize("policy", [AllOrNothing(), Quorum(2)], ids=["all-or-nothing", "quorum"])
def test_failing_fast_really_cancels(policy: Policy, schedule: str) -> None:
    """G8: the second call raises at t = 0 while the first would sleep 10 s: the turn is over at
    once, and the first call itself has seen its cancel."""
    seen: list[float] = []

    @tool(safe_parallel=True)
    async def sleeps() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append(clock())
            raise

    @tool(safe_parallel=True)
    async def fails() -> None:
        raise ToolError("at once")

    async def main() -> tuple[TurnResult, float]:
        dispatcher = Dispatcher([sleeps, fails], policy=policy, schedule=schedule)
        return await dispatcher.run(calls(("sleeps", {}), ("fails", {}))), clock()

    turn, when = run_in_virtual_time(main())
    assert (["cancelled", "error"], False) == (statuses(turn), turn.satisfied)
    assert ([0.0], 0.0) == (seen, when)


async def test_a_failed_connect_closes_the_connect_beside_it(tmp_path: Path) -> None:
    """G9: connect(A), slow, and connect(B), which fails: A is cancelled, awaited and closed, and
    no process of either server is left."""
    ready, closed = tmp_path / "ready", []

    @tool(safe_parallel=True)
    async def connect(server: str, ctx: CallContext) -> None:
        try:
            done = await ctx.run_process(sh(server), cwd=tmp_path)
            raise ToolError(f"the server ended with {done.returncode}")
        finally:
            closed.append(server)

    slow = "sleep 600 & echo $$ $! > new; mv new ready; wait"
    fails = "while [ ! -e ready ]; do sleep 0.01; done; exit 3"
    dispatcher = Dispatcher([connect], policy=AllOrNothing(), grace=GRACE)
    async with assert_no_leaks(dispatcher.resources, limits=dispatcher.limits, within=SLACK):
        turn = await dispatcher.run(
            calls(("connect", {"server": slow}), ("connect", {"server": fails}))
        )
        pids = [int(pid) for pid in ready.read_text().split()]
        assert [False, False] == [is_running(pid) for pid in pids]
    assert (["cancelled", "error"], [fails, slow]) == (statuses(turn), closed)
    assert "the server ended with 3" in turn[1].content()


HOST = """
import asyncio, json, sys, threading
from dispatch import CallContext, Dispatcher, ToolCall, tool

how, *names = sys.argv[1:]
release, ended, seen, turns = threading.Event(), threading.Event(), [], []

@tool(safe_parallel=True)
async def quick() -> str:
    return "done"

@tool(safe_parallel=True)
def block() -> str:
    print("up", flush=True)
    release.wait(30)
    ended.set()
    return "late"

@tool(safe_parallel=True)
async def tree(ctx: CallContext) -> None:
    script = "trap '' TERM; sleep 600 & echo $$ $! > new; mv new pids; wait; wait"
    await ctx.run_process(["sh", "-c", script])

@tool(safe_parallel=True)
async def interrupt() -> None:
    await asyncio.sleep(0.1)
    raise KeyboardInterrupt

@tool(safe_parallel=True)
async def exit() -> None:
    await asyncio.sleep(0.1)
    raise SystemExit(7)

@tool(safe_parallel=True)
async def sibling() -> None:
    try:
        await asyncio.sleep(30)
    finally:
        await asyncio.sleep(0.05)
        print("sibling over", flush=True)

def sink(event):
    if getattr(event, "state", "") in ("ended", "late"):
        seen.append([event.index, event.state, event.status])

def say(turn):
    print(json.dumps([[r.status, r.content(), r.value] for r in turn]), flush=True)

async def main():
    try:
        await dispatcher.run(calls)
    except asyncio.CancelledError as error:
        turns.append(error.turn)
        say(error.turn)
        if how == "stays":  # the host has more to do, and so sees the thread end
            release.set()
            await asyncio.to_thread(ended.wait, 10)
            while len(seen) < len(calls) + 1:
                await asyncio.sleep(0.01)
            say(error.turn)
        raise

tools = [quick, block, tree, interrupt, exit, sibling]
dispatcher = Dispatcher(tools, grace=0.5, sinks=[sink])
calls = [ToolCall(name, name, {}) for name in names]
try:
    dispatcher.run_sync(calls) if how == "sync" else asyncio.run(main())
except KeyboardInterrupt as error:
    if how == "sync":
        say(error.turn)
    raise
finally:
    print(json.dumps(seen), flush=True)
"""


def host(folder: Path, how: str, *names: str) -> "subprocess.Popen[str]":
    """A program that runs these calls with `asyncio.run` or `run_sync`, where Ctrl-C reaches it."""
    return subprocess.Popen(
        [sys.executable, "-c", HOST, how, *names],
        cwd=folder,
        env=PLAIN,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.parametrize("siblings", [0, 2])
@pytest.mark.parametrize("how", ["run", "sync"])
@pytest.mark.parametrize(("name", "code"), [("interrupt", -signal.SIGINT), ("exit", 7)])
def test_a_program_ends_as_the_tool_says(
    tmp_path: Path, name: str, code: int, how: str, siblings: int
) -> None:
    """H8: a whole program: its exit code is the one of the exception, which is shown at most once,
    and the siblings were over before it ended."""
    command = host(tmp_path, how, *["sibling"] * siblings, name)
    out, err = command.communicate(timeout=15)
    assert code == command.returncode, err
    assert siblings == out.count("sibling over")
    shown = 1 if name == "interrupt" else 0
    assert shown == err.splitlines().count("KeyboardInterrupt"), err


@pytest.mark.parametrize(
    ("how", "times"), [("run", 1), ("sync", 1), ("stays", 1), ("run", 2), ("sync", 2)]
)
def test_ctrl_c_returns_control_while_a_thread_and_a_tree_are_busy(
    tmp_path: Path, how: str, times: int
) -> None:
    """H9: a thread that blocks for 30 s and a process tree that ignores SIGTERM: SIGINT gives
    control back within two graces, the thread is abandoned and the tree is gone; the program ends
    with KeyboardInterrupt, and a late result of the thread changes nothing."""
    command = host(tmp_path, how, "quick", "block", "tree")
    try:
        assert command.stdout is not None
        assert "up\n" == command.stdout.readline()
        assert eventually((tmp_path / "pids").exists)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        before = time.monotonic()
        for _ in range(times):
            command.send_signal(signal.SIGINT)
            time.sleep(0.1)  # a finger on the key, not a wait for anything
        out, err = command.communicate(timeout=15)
    finally:
        command.kill()
    assert time.monotonic() - before < 2 * 0.5 + SLACK
    assert -signal.SIGINT == command.returncode, err
    assert "KeyboardInterrupt" == err.splitlines()[-1]
    assert [False, False] == [is_running(pid) for pid in pids]
    *told, seen = [json.loads(line) for line in out.splitlines()]
    ended = {index: status for index, state, status in seen if state == "ended"}
    assert {0: "ok", 1: "unknown", 2: "cancelled"} == ended
    if times == 1:  # a second one may hit the very line that tells
        assert {"run": 1, "sync": 1, "stays": 2}[how] == len(told)
    for results in told:
        assert ["ok", "unknown", "cancelled"] == [status for status, _, _ in results]
        assert ["done", None, None] == [value for _, _, value in results]
        assert "it may still be running" in results[1][1]
    assert (how == "stays") == ([1, "late", None] in seen)
