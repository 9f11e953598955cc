import asyncio
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dispatch.errors import ToolError, UsageError
from dispatch.runtime.cancel import CancelToken
from dispatch.runtime.process import ProcessResult, _live, run_process
from dispatch.runtime.process_tree import MARK

HELD_PIPE = 30.0
"""Longer than any test may take: what a background process would hold the pipe for."""


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


others: set[str] = set()
"""Children that were there before the test, such as the one that `multiprocessing` keeps."""


def children() -> list[str]:
    """The test's child processes that have not been reaped, zombies included."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())], capture_output=True, text=True
    )
    lines = [line for line in listed.stdout.splitlines() if not line.endswith(" ps")]
    return [line for line in lines if line not in others]


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """A call that was cancelled twice has returned before its process was reaped, by a thread."""
    others.clear()
    others.update(children())
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("dispatch-process-"):
            thread.join(10)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.005)


async def cancelled_when(condition: Callable[[], bool], script: str, **options: object) -> float:
    """Cancel the script once the condition holds; the seconds that stopping it took."""
    running = asyncio.create_task(run_process(sh(script), **options))  # type: ignore[arg-type]
    await until(condition)
    before = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return time.monotonic() - before


async def test_output_is_both_streams_in_the_order_written() -> None:
    """Standard output and error come interleaved as written, with the exit status."""
    result = await run_process(sh("echo one; echo two >&2; echo three; exit 3"))
    assert ProcessResult(3, "one\ntwo\nthree\n", False) == result


async def test_a_killed_process_has_a_negative_returncode() -> None:
    """A leader that a signal killed reports minus the signal's number."""
    assert -signal.SIGKILL == (await run_process(sh("kill -9 $$"))).returncode


async def test_stdin_is_empty_unless_given() -> None:
    """A program that reads finds the end of its input at once."""
    assert "" == (await run_process(["cat"])).output


@pytest.mark.parametrize("size", [0, 5, 1_000_000], ids=["empty", "short", "above the pipe"])
async def test_stdin_is_what_was_given(size: int) -> None:
    """All given input arrives, however much it is, and then its end."""
    result = await run_process(["wc", "-c"], stdin=b"x" * size)
    assert str(size) == result.output.strip()


async def test_a_program_that_never_reads_its_input_does_not_block() -> None:
    """Input that nobody reads is no reason to wait."""
    result = await run_process(["echo", "done"], stdin=b"x" * 1_000_000)
    assert "done\n" == result.output


async def test_folder_and_environment_are_the_given_ones(tmp_path: Path) -> None:
    """Nothing of this process's environment leaks in; a mark is added, to find descendants by."""
    result = await run_process(["/usr/bin/env"], cwd=tmp_path, env={"ONLY": "this"})
    given, mark = result.output.splitlines()
    assert ("ONLY=this", MARK) == (given, mark[: len(MARK)])
    assert f"{tmp_path}\n" == (await run_process(["pwd"], cwd=tmp_path)).output


async def test_bytes_that_are_not_utf8_are_replaced() -> None:
    """Output is text whatever the program writes."""
    assert "a\ufffdb" == (await run_process(sh(r"printf 'a\377b'"))).output


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["no-such-program"], "no program named 'no-such-program' was found"),
        (["./nothing"], "no program named './nothing' was found"),
        (["/etc/passwd"], "'/etc/passwd' cannot be started: Permission denied"),
        (["a\0b"], "cannot be started: embedded null byte"),
        (["echo", "x" * 4_000_000], "'echo' cannot be started: Argument list too long"),
    ],
    ids=["missing", "missing path", "not executable", "null byte", "too long"],
)
async def test_a_program_that_cannot_be_started_is_named(argv: list[str], expected: str) -> None:
    """The failure says which program and why, and leaves no descriptor open."""
    before = open_files()
    with pytest.raises(ToolError) as caught:
        await run_process(argv)
    assert expected in str(caught.value)
    assert before == open_files()


async def test_a_missing_folder_is_not_taken_for_a_missing_program(tmp_path: Path) -> None:
    """A working directory that does not exist is what the failure names."""
    with pytest.raises(ToolError, match=r"'echo' cannot be started in '.*gone'"):
        await run_process(["echo"], cwd=tmp_path / "gone")


@pytest.mark.parametrize("argv", ["ls -l", []], ids=["a string", "nothing"])
async def test_argv_is_a_list(argv: list[str]) -> None:
    """A command line as one string, or none, is the programmer's mistake."""
    with pytest.raises(UsageError, match="argv must be a list"):
        await run_process(argv)


async def test_a_flood_is_cut_in_the_middle() -> None:
    """Above the limit the head and the tail stay, and the count of what was left out is exact."""
    script = "printf start; head -c 1000000 /dev/zero | tr '\\0' x; printf end"
    result = await run_process(sh(script), output_limit=1000)
    head, marker, tail = result.output.split("\n")
    assert ("start" + "x" * 495, "x" * 497 + "end") == (head, tail)
    assert "[999,008 bytes left out here]" == marker
    assert result.truncated


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (10, "0123456789"),
        (9, "01234\n[1 bytes left out here]\n6789"),
        (1, "0\n[9 bytes left out here]\n"),
        (0, "\n[10 bytes left out here]\n"),
    ],
)
async def test_the_limit_is_exact(limit: int, expected: str) -> None:
    """Output as long as the limit is whole; one byte more is cut."""
    assert expected == (await run_process(["printf", "0123456789"], output_limit=limit)).output


async def test_a_cut_does_not_split_characters() -> None:
    """Characters of several bytes at the cut are left out whole."""
    result = await run_process(["printf", "é" * 10], output_limit=10)
    assert f"éé\n[{20 - 8} bytes left out here]\néé" == result.output


async def test_output_comes_while_the_program_runs(tmp_path: Path) -> None:
    """What was written so far can be seen before the end; the program waits for that here."""
    seen: list[str] = []

    def note(text: str) -> None:
        seen.append(text)
        (tmp_path / "go").touch()

    script = "printf é; while [ ! -e go ]; do sleep 0.01; done; printf end"
    await run_process(sh(script), cwd=tmp_path, on_output=note)
    assert ["é", "end"] == seen


async def test_a_character_written_in_two_parts_is_one(tmp_path: Path) -> None:
    """A chunk that ends inside a character is completed by the next one."""
    seen: list[str] = []
    script = r"printf 'a\303'; touch half; while [ ! -e go ]; do sleep 0.01; done; printf '\251'"
    running = asyncio.create_task(run_process(sh(script), cwd=tmp_path, on_output=seen.append))
    await until(lambda: seen == ["a"])
    (tmp_path / "go").touch()
    await running
    assert ["a", "é"] == seen


async def test_a_background_process_neither_delays_nor_survives() -> None:
    """The call ends with its leader, though a child of it still holds the pipe; the child dies."""
    before = time.monotonic()
    result = await run_process(sh(f"sleep {HELD_PIPE} & echo $!"))
    assert time.monotonic() - before < HELD_PIPE / 6
    await until(lambda: not is_running(int(result.output)))


async def test_a_silent_background_process_does_not_survive_either() -> None:
    """A child that gave up the pipe is killed as well."""
    result = await run_process(sh(f"sleep {HELD_PIPE} >/dev/null 2>&1 & echo $!"))
    assert not is_running(int(result.output))


async def test_output_of_a_child_that_is_just_finishing_is_not_lost() -> None:
    """Children of a leader that has exited may write for a moment longer."""
    result = await run_process(sh("(sleep 0.02; echo late) & echo early"))
    assert "early\nlate\n" == result.output


async def test_cancelling_kills_the_whole_group(tmp_path: Path) -> None:
    """A grandchild in the same session dies with the leader; nothing is left unreaped or open."""
    files = open_files()
    ready = tmp_path / "pid"
    script = f"sh -c 'sleep {HELD_PIPE} & echo $! >tmp; mv tmp pid; wait' & wait"
    await cancelled_when(ready.exists, script, cwd=tmp_path)
    assert not is_running(int(ready.read_text()))
    assert [] == children()
    assert files == open_files()


async def test_cancelling_asks_first(tmp_path: Path) -> None:
    """SIGTERM comes before SIGKILL, and what the program says on its way out is still seen."""
    seen: list[str] = []
    script = "trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.01; done"
    await cancelled_when(lambda: bool(seen), script, on_output=seen.append, grace=10)
    assert ("up\n", "bye") == (seen[0], seen[-1].split()[-1])


async def test_a_program_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    """The wait for a program that ignores SIGTERM is the grace and no more."""
    ready = tmp_path / "ready"
    script = "trap '' TERM; touch ready; while :; do sleep 0.01; done"
    took = await cancelled_when(ready.exists, script, cwd=tmp_path, grace=0.2)
    assert 0.2 <= took < 2
    assert [] == children()


@pytest.mark.parametrize("thread", [False, True], ids=["same thread", "other thread"])
async def test_a_token_stops_the_group_at_once(tmp_path: Path, thread: bool) -> None:
    """A cancelled token asks the group to stop without waiting for the task's cancel; the call
    is then cancelled with the token's reason, although the program ended by itself."""
    token = CancelToken()
    script = "trap 'exit 0' TERM; touch ready; while :; do sleep 0.01; done"
    running = asyncio.create_task(
        run_process(sh(script), cwd=tmp_path, grace=HELD_PIPE, on_cancel=token.on_cancel)
    )
    await until((tmp_path / "ready").exists)
    if thread:
        await asyncio.to_thread(token.cancel, "enough")
    else:
        token.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await running
    assert [] == children()


async def test_a_token_and_a_cancel_share_one_grace(tmp_path: Path) -> None:
    """A program that ignores the token's request is killed one grace after it, not two, though
    the task was cancelled meanwhile."""
    token = CancelToken()
    script = "trap '' TERM; touch ready; while :; do sleep 0.01; done"
    running = asyncio.create_task(
        run_process(sh(script), cwd=tmp_path, grace=1, on_cancel=token.on_cancel)
    )
    await until((tmp_path / "ready").exists)
    before = time.monotonic()
    token.cancel("enough")
    await asyncio.wait({running}, timeout=0.7)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert 1 <= time.monotonic() - before < 1.6


async def test_a_token_that_was_cancelled_before_stops_the_program_too() -> None:
    """A token cancelled before the start is seen as well."""
    token = CancelToken()
    token.cancel("too late")
    with pytest.raises(asyncio.CancelledError, match="too late"):
        await run_process(["sleep", str(HELD_PIPE)], on_cancel=token.on_cancel)


async def test_a_second_cancel_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    """Cancelled again while it waits for the program to stop, the call kills it at once."""
    ready = tmp_path / "ready"
    script = "trap 'touch asked' TERM; touch ready; while :; do sleep 0.01; done"
    running = asyncio.create_task(run_process(sh(script), cwd=tmp_path, grace=HELD_PIPE))
    await until(ready.exists)
    running.cancel()
    await until((tmp_path / "asked").exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: children() == [])


async def test_a_cancel_that_comes_with_the_start_leaves_nothing() -> None:
    """Cancelled in the very step that started it, a process is gone all the same."""
    files = open_files()
    for _ in range(5):
        running = asyncio.create_task(run_process(["sleep", str(HELD_PIPE)]))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert [] == children()
    assert files == open_files()


async def test_many_at_once_leave_nothing() -> None:
    """Forty processes side by side each get their own output; no child or descriptor is left."""
    files = open_files()
    results = await asyncio.gather(*(run_process(["echo", str(n)]) for n in range(40)))
    assert [f"{n}\n" for n in range(40)] == [result.output for result in results]
    assert [] == children()
    assert files == open_files()


def test_it_works_on_a_loop_in_another_thread() -> None:
    """Nothing depends on the main thread or on its loop."""
    results: list[ProcessResult] = []
    thread = threading.Thread(
        target=lambda: results.append(asyncio.run(run_process(["echo", "there"])))
    )
    thread.start()
    thread.join()
    assert [ProcessResult(0, "there\n", False)] == results


def test_a_loop_that_dies_takes_its_process_along() -> None:
    """A call whose loop was closed under it kills its process when it is collected."""
    loop = asyncio.new_event_loop()
    started: list[str] = []
    call = run_process(sh(f"echo $$; exec sleep {HELD_PIPE}"), on_output=started.append)

    async def drive() -> None:
        task = asyncio.ensure_future(call)
        await until(lambda: bool(started))
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    loop.run_until_complete(drive())
    loop.close()
    call.close()
    gc.collect()
    deadline = time.monotonic() + 10
    while is_running(int(started[0])) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not is_running(int(started[0]))


INTERRUPTED = """
import asyncio, sys
from dispatch.runtime.process import run_process

kept = sys.modules["kept"] = []

def interrupt():
    raise KeyboardInterrupt

def started(text):
    print(text, flush=True)
    loop = asyncio.get_running_loop()
    loop.call_later(0, interrupt)
    loop.call_later(0.2, interrupt)

async def main():
    script = "trap '' TERM; echo $$; while :; do sleep 0.05; done"
    kept.append(run_process(["sh", "-c", script], grace=60, on_output=started))
    await kept[0]

asyncio.run(main())
"""


def test_a_loop_that_is_interrupted_twice_leaves_no_process() -> None:
    """A group that the loop could not end any more is killed when the interpreter ends."""
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert "KeyboardInterrupt" in ended.stderr
    survived = is_running(int(ended.stdout))
    if survived:
        os.killpg(int(ended.stdout), signal.SIGKILL)
    assert not survived


def test_a_forked_child_kills_nothing_of_its_parent() -> None:
    """A fork that ends by itself leaves the running processes of its parent alone."""
    code = (
        "import asyncio, atexit, os, sys\n"
        "from dispatch.runtime.process import run_process\n"
        "def fork(text):\n"
        "    if not (pid := os.fork()):\n"
        "        atexit._run_exitfuncs()\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
        "    open(sys.argv[1], 'w').close()\n"
        "script = 'echo up; while [ ! -e $0 ]; do sleep 0.01; done; exit 7'\n"
        "argv = ['sh', '-c', script, sys.argv[1]]\n"
        "print(asyncio.run(run_process(argv, on_output=fork)).returncode)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        argv = [sys.executable, "-c", code, f"{folder}/go"]
        ended = subprocess.run(argv, capture_output=True, text=True)
    assert "7" == ended.stdout.strip(), ended.stderr


@pytest.mark.parametrize("script", ["exit 0", "kill -9 $$", "sleep 0.01 & exit 1"])
async def test_a_group_that_ended_is_not_remembered(script: str) -> None:
    """Nothing of a call is left in what the end of the interpreter would kill."""
    await run_process(sh(script))
    await cancelled_when(lambda: bool(_live), f"sleep {HELD_PIPE}")
    assert {} == _live
