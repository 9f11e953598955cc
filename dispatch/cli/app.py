"""The commands of `dispatch` and their options. What they do is in the modules beside."""

from __future__ import annotations

import errno
import stat
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, TextIO

import typer

from dispatch.cli.exits import INTERRUPTED, NOT_SATISFIED, complain, guarded, write_out
from dispatch.cli.toolsource import DEFAULT, load_tools
from dispatch.cli.turnfile import read_turn, shown_name
from dispatch.core.schedules import Schedule
from dispatch.errors import InputError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[str, typer.Argument(metavar="FILE", help="A turn file, or - for standard input.")]
Root = Annotated[str, typer.Option(metavar="DIR", help="The folder that the tools work in.")]
Tools = Annotated[str, typer.Option(metavar="MODULE:NAME", help="Your own tools instead.")]
Number = Annotated[int | None, typer.Option(min=1, help="Which message of a recorded loop.")]
Order = Annotated[Schedule, typer.Option(help="How the calls are ordered.")]
Width = Annotated[int | None, typer.Option(min=1, help="Calls that run at once at most.")]


@app.callback(invoke_without_command=True)
def _root(
    shows_version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Run the tool calls of one model turn side by side where that is safe."""
    if shows_version:
        write_out([f"dispatch {_version()}"], sys.stdout)
        raise typer.Exit


@app.command()
def plan(
    file: File,
    root: Root = ".",
    tools: Tools = DEFAULT,
    turn: Number = None,
    schedule: Order = Schedule.DATAFLOW,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    as_mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid graph.")] = False,
    as_dot: Annotated[bool, typer.Option("--dot", help="As a Graphviz graph.")] = False,
) -> None:
    """Show what would run at once and what would wait for what, and run nothing."""

    def command(out: TextIO) -> int:
        from dispatch.cli.planning import show_plan

        forms = {"json": as_json, "mermaid": as_mermaid, "dot": as_dot}
        chosen = [name for name, wanted in forms.items() if wanted]
        if len(chosen) > 1:
            raise InputError(f"choose one of --{' and --'.join(chosen)}")
        folder = _folder(root)
        calls = read_turn(file, turn)
        form = chosen[0] if chosen else "text"
        return show_plan(calls, load_tools(tools, folder), folder, schedule, form, out)

    raise typer.Exit(guarded(command))


@app.command()
def run(
    file: File,
    root: Annotated[str, typer.Option(metavar="DIR", help="The folder that the tools work in.")],
    tools: Tools = DEFAULT,
    turn: Number = None,
    schedule: Order = Schedule.DATAFLOW,
    max_concurrent: Width = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds for the whole turn; none by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Results as JSON.")] = False,
    require_ok: Annotated[
        bool, typer.Option("--require-ok", help="Exit 1 if any call did not succeed.")
    ] = False,
) -> None:
    """Run a turn's calls in a folder: results on stdout, progress on stderr.

    Exit code: 0 satisfied, 1 not satisfied, 2 bad input, 130 interrupted.
    """

    def command(out: TextIO) -> int:
        from dispatch.cli.running import RunOptions, run_turn

        if timeout is not None and not timeout > 0:
            raise InputError(f"--timeout must be above 0 seconds, not {timeout}")
        folder = _folder(root)
        options = RunOptions(
            root=folder,
            schedule=schedule,
            max_concurrent=max_concurrent,
            timeout=timeout,
            as_json=as_json,
            require_ok=require_ok,
        )
        return run_turn(read_turn(file, turn), load_tools(tools, folder), options, out)

    raise typer.Exit(guarded(command))


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the two folders.")] = False,
    schedule: Order = Schedule.DATAFLOW,
    max_concurrent: Width = None,
) -> None:
    """Play a recorded agent loop on a small project, side by side and one by one."""

    def command(out: TextIO) -> int:
        from dispatch.cli.demo import play

        return play(out, keep=keep, schedule=schedule, max_concurrent=max_concurrent)

    raise typer.Exit(guarded(command))


def run_app(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        app(arguments, prog_name="dispatch")
    except SystemExit as ended:
        return _exit_code(ended)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _exit_code(ended: SystemExit) -> int:
    """What the interpreter would make of it: a tool may have raised it."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    complain(str(ended.code))
    return NOT_SATISFIED


def _folder(name: str) -> Path:
    """The folder with its whole path. Raises `InputError`."""
    if not name:
        raise InputError("--root: '' is no folder; write . for the current one")
    shown = shown_name(name)
    try:
        path = Path(name).resolve(strict=True)
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        raise InputError(f"--root: {shown}: {_why_no_folder(error)}") from None
    except (ValueError, RuntimeError):  # a null character, a ring of links
        raise InputError(f"--root: {shown}: no such folder") from None
    if not is_folder:
        raise InputError(f"--root: {shown}: is not a folder")
    return path


def _why_no_folder(error: OSError) -> str:
    reasons = {
        errno.ENOENT: "no such folder",
        errno.ENOTDIR: "no such folder",
        errno.ELOOP: "no such folder",
        errno.EACCES: "may not be entered (permission denied)",
    }
    known = reasons.get(error.errno or 0)
    return known or f"cannot be used ({error.strerror or error})"


def _version() -> str:
    try:
        return version("tool-dispatch")
    except PackageNotFoundError:
        return "(not installed)"
