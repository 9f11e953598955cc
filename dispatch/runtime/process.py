"""One subprocess per call: its own process group, its output bounded, nothing of it left behind.

Owns starting, reading, ending and reaping. Knows nothing of calls or tools. POSIX only.
Invariants: when `run_process` has returned or raised, no process of the group is alive, the
leader is reaped and the pipe is closed; if the loop dies before that, the group is killed at the
end of the interpreter at the latest. The leader is reaped only *after* its group was killed:
as long as it is a zombie its id cannot be used again, so the signal cannot hit a stranger.
A process that left the group (`setsid`, a job under `set -m`) is followed by `process_tree`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dispatch.errors import ToolError, UsageError
from dispatch.render import preview
from dispatch.runtime.output import CHUNK, Output
from dispatch.runtime.process_tree import ProcessTree

OUTPUT_LIMIT = 256 * 1024
GRACE = 0.5
DRAIN = 0.1
"""Seconds that output may still come once the leader has exited, and again once all is killed."""

_live: dict[int, ProcessTree] = {}
"""What has not ended with all that descends from it.

The id of a group that was not killed yet is its own, for nobody has reaped its leader.
"""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a process ended. `returncode` is minus the signal's number if one killed it.

    `output` is stdout and stderr as they were written; if it was `truncated`, its middle is
    replaced by a line that says how many bytes were left out. `survivors` are the processes that it
    left behind and that could not be killed, by number and name.
    """

    returncode: int
    output: str
    truncated: bool
    survivors: tuple[str, ...] = ()


async def run_process(
    argv: Sequence[str],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    output_limit: int = OUTPUT_LIMIT,
    grace: float = GRACE,
    on_output: Callable[[str], None] | None = None,
    on_cancel: Callable[[Callable[[str], object]], Callable[[], None]] | None = None,
) -> ProcessResult:
    """Run a program to its end and return what it wrote, whatever its exit status.

    Args:
        argv: The program and its arguments; no shell is involved.
        cwd: Where it runs; None is this process's directory.
        env: Its whole environment; None is this process's.
        stdin: What it can read; None is nothing at all.
        output_limit: Bytes of output that are kept, half from the start and half from the end.
        grace: Seconds between SIGTERM and SIGKILL when the call is cancelled.
        on_output: Gets the text as it comes, all of it, on the loop's thread; must not raise.
        on_cancel: `CancelToken.on_cancel`: the token then stops the group like a cancel does, at
            once rather than when the task is cancelled a grace later.

    Background processes do not outlive the call: the group is killed when its leader has exited,
    and with psutil (the extra `processes`) also what has left the group, as far as the mark in its
    environment tells. Cancelling terminates them all, kills them after the grace, and raises once
    all are gone; a cancel while it does so kills at once. Raises `ToolError` if the program cannot
    be started.
    """
    child = _start(argv, cwd, env, stdin, grace, Output(output_limit, on_output))
    forget = on_cancel(child.stop_soon) if on_cancel is not None else lambda: None
    try:
        await child.finish()
    except asyncio.CancelledError:
        await child.terminate()
        raise
    finally:
        forget()
        child.close()
        child.complain()
    if child.stopped is not None:
        raise asyncio.CancelledError(child.stopped)
    output, truncated = child.output.text()
    return ProcessResult(child.process.returncode, output, truncated, child.tree.survivors)


def _start(
    argv: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    stdin: bytes | None,
    grace: float,
    output: Output,
) -> _Child:
    if isinstance(argv, str) or not argv:
        raise UsageError(f"argv must be a list such as ['ls', '-l'], not {argv!r}")
    source, sink = os.pipe()
    tree = ProcessTree()
    try:
        with _input(stdin) as given:
            process = subprocess.Popen(  # noqa: S603 - running programs is what this is for
                list(argv),
                cwd=cwd,
                env=tree.environment(env),
                stdin=given,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
    except BaseException as error:
        os.close(source)
        if isinstance(error, OSError | ValueError | ImportError):
            raise ToolError(_not_started(argv[0], cwd, error)) from error
        raise
    finally:
        os.close(sink)
    return _Child(process, source, grace, output, tree)


@contextlib.contextmanager
def _input(stdin: bytes | None) -> Iterator[int]:
    # A file rather than a pipe: nobody has to feed it, and a child that never reads blocks nobody.
    if stdin is None:
        yield subprocess.DEVNULL
        return
    import tempfile  # only here: it brings half a dozen modules along

    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        yield file.fileno()


def _not_started(program: str, cwd: str | os.PathLike[str] | None, error: Exception) -> str:
    name = preview(program)
    if not isinstance(error, OSError):
        return f"{name} cannot be started: {error}"
    if cwd is not None and error.filename == cwd:
        return f"{name} cannot be started in {os.fspath(cwd)!r}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return f"no program named {name} was found; check the spelling, or whether it is installed"
    return f"{name} cannot be started: {error.strerror}"


class _Child:
    """A started process with the reader of its pipe and the thread that waits for it.

    The thread is our own because it works on every loop in every thread, and because nobody
    else must reap the leader.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        source: int,
        grace: float,
        output: Output,
        tree: ProcessTree,
    ) -> None:
        _live[process.pid] = tree
        self.process = process
        self.output = output
        self.tree = tree
        self.stopped: str | None = None
        self._source = source
        self._grace = grace
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._exited = self._loop.create_future()
        self._reaped = self._loop.create_future()
        self._eof = self._loop.create_future()
        self._killed = threading.Event()
        self._killing = threading.Lock()
        self._terminating: threading.Thread | None = None
        os.set_blocking(source, False)
        self._loop.add_reader(source, self._read)
        name = f"dispatch-process-{process.pid}"
        try:
            threading.Thread(target=self._wait, name=name, daemon=True).start()
        except RuntimeError as error:
            self.close()
            process.wait()
            raise ToolError(f"the process cannot be watched: {error}", retryable=True) from error

    async def finish(self) -> None:
        """Wait for the leader, give its output a moment, and end what is left of the group."""
        await asyncio.wait({self._exited})
        await asyncio.wait({self._eof}, timeout=DRAIN if self._timer is None else self._left())
        await self._end()

    async def terminate(self) -> None:
        """Ask the group to stop, wait at most the grace for all that hold the pipe, then kill."""
        self._stop("cancelled")
        if not self._killed.is_set():
            await asyncio.wait({self._exited, self._eof}, timeout=self._left())
        await self._end()

    def stop_soon(self, reason: str) -> None:
        """Ask the group to stop, and kill it after the grace. Usable from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._stop, reason)

    def close(self) -> None:
        """Kill and let go, without waiting; the thread reaps. Does nothing after the end."""
        self._kill()
        if self._timer is not None:
            self._timer.cancel()
        if self._source >= 0:
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                self._loop.remove_reader(self._source)
            os.close(self._source)
            self._source = -1

    def complain(self) -> None:
        """Say what could not be ended."""
        if self.tree.survivors:
            self.output.say(f"could not be killed: {', '.join(self.tree.survivors)}")

    def _stop(self, reason: str) -> None:
        # Once killed the group may be reaped too, and its id a stranger's.
        if self._timer is None and not self._killed.is_set():
            self.stopped = reason
            self._timer = self._loop.call_later(self._grace, self._kill)
            self._terminating = threading.Thread(target=self._terminate, daemon=True)
            try:
                self._terminating.start()
            except RuntimeError:  # no more threads: the loop waits for it
                self._terminating = None
                self._terminate()

    def _terminate(self) -> None:
        """Ask all to stop; in a thread, since it takes a while to look at all processes."""
        pid = self.process.pid
        self.tree.look(pid)
        with self._killing:
            if not self._killed.is_set():
                _signal_group(pid, signal.SIGTERM)
        self.tree.signal(signal.SIGTERM, but=pid)

    def _left(self) -> float:
        return 0 if self._timer is None else max(0, self._timer.when() - self._loop.time())

    async def _end(self) -> None:
        self._kill()
        await asyncio.wait({self._reaped})
        await asyncio.wait({self._eof}, timeout=DRAIN)

    def _kill(self) -> None:
        with self._killing:
            if not self._killed.is_set():
                _signal_group(self.process.pid, signal.SIGKILL)
                self.tree.group_is_killed = True
                self._killed.set()

    def _read(self) -> None:
        try:
            data = os.read(self._source, CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._source)
            self._eof.set_result(None)
        self.output.add(data, final=not data)

    def _wait(self) -> None:
        pid = self.process.pid
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):  # the host ignores SIGCHLD
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        else:  # a system that can only wait by reaping
            self.process.wait()
        self._tell(self._exited)
        self._killed.wait()
        self.process.wait()
        _await_group(pid)
        try:
            self.tree.end()
            if self._terminating is not None:
                self._terminating.join()
        finally:
            _live.pop(pid, None)
            self._tell(self._reaped)

    def _tell(self, future: asyncio.Future[None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(future.set_result, None)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _kill_live() -> None:
    for group, tree in list(_live.items()):
        if not tree.group_is_killed:
            _signal_group(group, signal.SIGKILL)
        tree.end()


atexit.register(_kill_live)
os.register_at_fork(after_in_child=_live.clear)  # they are the parent's, not ours to kill


def _await_group(group: int) -> None:
    """Give the killed members a moment to be really gone."""
    deadline = time.monotonic() + DRAIN
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.002)
