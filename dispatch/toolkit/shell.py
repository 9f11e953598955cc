"""`shell`: commands that share a working directory and an environment, one after the other.

Owns a private directory (mode 0700, outside the root, removed with the object and at exit) with
the exported variables of the last command. Invariants: the state changes as a whole, after the
process has ended by itself; a command that is cancelled, killed or replaced by `exec` leaves the
state of before. A command is passed as an argument, never put into the wrapper's text.

A shell starts in the root but is no sandbox: its commands can reach whatever the user can.
Variables, functions, aliases and options that are not exported end with their command, as do
background processes. A command that sets its own EXIT trap and calls `exit` keeps no state.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import signal
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from dispatch.claims import write
from dispatch.errors import ToolError
from dispatch.runtime.context import CallContext
from dispatch.runtime.process import ProcessResult
from dispatch.runtime.process_tree import MARK
from dispatch.tool import Tool
from dispatch.toolkit.paths import Folder

OUTPUT_LIMIT = 64 * 1024
"""Bytes of a command's output that the model sees, half from the start and half from the end."""

COMMAND_LIMIT = 100_000
"""Bytes; Linux takes 128 KiB as one argument."""

SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SHELLS_OWN = frozenset(
    {"PWD", "OLDPWD", "SHLVL", "_", "PPID", "UID", "EUID", "SHELLOPTS", "BASHOPTS"}
)
EXPORTED_MARK = re.compile(rb"^(?:declare -x|export) (%b\w+)=.*\n" % MARK.encode(), re.MULTILINE)
"""The variable by which the processes of one command are found; the next command has its own."""
_sessions = itertools.count(1)

# Works in `sh` as in `bash`, and whatever options the command sets: no variables, new files only.
# `pwd` comes last: its line is complete only if all of the state was written. All is one line:
# the shell's messages then count the lines of the command, and bash, which reads a script line by
# line and is confused after a syntax error in `eval`, has nothing left to read.
WRAPPER = (
    "__dispatch_save() {{"
    ' command export -p >{environment} && command pwd >{directory}; return "$1"; }};'
    """ trap '{{ __dispatch_save "$?"; }} 2>/dev/null' EXIT;"""
    " . {state} 2>/dev/null; {go_home};"
    ' __dispatch_command=$1; shift; eval "$__dispatch_command";'
    ' {{ __dispatch_save "$?"; }} 2>/dev/null'
)


class Shell:
    """One shell session; `tool` is what a dispatcher takes.

    Args:
        root: Where it starts.
        env: The whole environment it starts with; None copies this process's.
        name: The tool's name, for a second shell in one toolbox.
        timeout: Seconds from submission to result of a call; None is the dispatcher's.

    The tool runs alone against every other call that claims anything, because nobody can tell
    what a command touches. The state is removed when the last reference to the tool is gone.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | Folder,
        *,
        env: Mapping[str, str] | None = None,
        name: str = "shell",
        timeout: float | None = None,
    ) -> None:
        folder = root if isinstance(root, Folder) else Folder(root)
        self._root = self._directory = str(folder.root)
        self._program = shutil.which("bash") or "/bin/sh"
        self._private = Path(tempfile.mkdtemp(prefix="dispatch-shell-"))
        self._close = weakref.finalize(self, shutil.rmtree, self._private, ignore_errors=True)
        self._state = self._private / "environment"
        self._runs = itertools.count(1)
        given = os.environ if env is None else env
        self._state.write_bytes(os.fsencode(_as_exports(given)))
        self._marks = {name.encode() for name in given if name.startswith(MARK)}
        self._unnameable = {n: v for n, v in given.items() if not SHELL_NAME.fullmatch(n)}
        self.tool = Tool(
            name,
            self._run,
            resource_keys=lambda _: [write()],
            session=f"{name}-{next(_sessions)}",
            timeout=timeout,
        )

    def close(self) -> None:
        """Remove the state; the tool cannot be used any more. May be called again."""
        self._close()

    async def _run(self, command: str, ctx: CallContext) -> str:
        """Run a shell command.

        The working directory and exported variables last from one call to the next; background
        processes end with their call. There is no terminal and nothing to read on stdin.
        """
        self._check(command)
        note = self._go_home_if_lost()
        run = next(self._runs)
        environment, directory = self._private / f"environment-{run}", self._private / f"pwd-{run}"
        try:
            result = await ctx.run_process(
                [
                    self._program,
                    "-c",
                    self._wrapper(environment, directory, note),
                    "shell",
                    command,
                ],
                cwd=self._directory,
                env={**self._unnameable, "PWD": self._directory},
                output_limit=OUTPUT_LIMIT,
            )
            if result.returncode >= 0:
                self._adopt(environment, directory)
        finally:
            environment.unlink(missing_ok=True)
            directory.unlink(missing_ok=True)
        return _outcome(result, note)

    def _check(self, command: str) -> None:
        if not self._close.alive:
            raise ToolError("this shell has been closed")
        if "\0" in command:
            raise ToolError("the command has a null byte, which no command can have")
        if len(command.encode("utf-8", "replace")) > COMMAND_LIMIT:
            raise ToolError(
                f"the command is above {COMMAND_LIMIT:,} bytes; put it into a file and run that"
            )

    def _go_home_if_lost(self) -> str:
        if Path(self._directory).is_dir():
            return ""
        lost, self._directory = self._directory, self._root
        return f"[the working directory {lost} is gone; this ran in {self._root}]\n"

    def _wrapper(self, environment: Path, directory: Path, note: str) -> str:
        return WRAPPER.format(
            environment=shlex.quote(str(environment)),
            directory=shlex.quote(str(directory)),
            state=shlex.quote(str(self._state)),
            go_home=f"cd -- {shlex.quote(self._root)}" if note else ":",
        )

    def _adopt(self, environment: Path, directory: Path) -> None:
        try:
            line = os.fsdecode(directory.read_bytes())
        except FileNotFoundError:
            return
        if line.endswith("\n"):
            exports = environment.read_bytes()
            environment.write_bytes(EXPORTED_MARK.sub(self._kept, exports))
            environment.replace(self._state)
            self._directory = line[:-1]

    def _kept(self, mark: re.Match[bytes]) -> bytes:
        return mark[0] if mark[1] in self._marks else b""


def _as_exports(env: Mapping[str, str]) -> str:
    return "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in env.items()
        if SHELL_NAME.fullmatch(name) and name not in SHELLS_OWN
    )


def _outcome(result: ProcessResult, note: str) -> str:
    code = result.returncode
    if code == 0:
        return note + result.output
    how = f"exit status {code}" if code > 0 else f"killed by {signal.Signals(-code).name}"
    raise ToolError(f"{how}\n{note}{result.output}".rstrip(), details={"returncode": code})
