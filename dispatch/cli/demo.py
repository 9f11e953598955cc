"""`dispatch demo`: a recorded agent loop, played on a real project twice.

The turns run on one fresh copy as the schedule allows, and on a second one call by call. The
demo succeeds if both copies end with the same contents and the project's own tests pass there.
Invariants: no sleeps stand in for work; the folders are gone at the end, also after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from dispatch import Dispatcher, TurnResult
from dispatch.call import ToolCall
from dispatch.cli.demo_report import Report
from dispatch.cli.exits import NOT_SATISFIED, SATISFIED
from dispatch.cli.progress import TurnProgress, turn_progress
from dispatch.cli.signals import Interrupts
from dispatch.cli.toolsource import load_tools
from dispatch.cli.turnfile import calls_of, read_messages
from dispatch.core.schedules import Schedule
from dispatch.errors import InputError
from dispatch.events import Event
from dispatch.runtime.process import run_process


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """What the model said, and the calls it made."""

    text: str
    calls: Sequence[ToolCall]


@dataclass(frozen=True, slots=True)
class Played:
    """One turn that was run, and the seconds from its first call to its last result."""

    turn: TurnResult
    seconds: float


def play(out: TextIO, *, keep: bool, schedule: Schedule, max_concurrent: int | None) -> int:
    """Play the demo, tell of it on `out`, and return the exit code."""
    source = _demo_folder()
    turns = [_recorded(message) for message in read_messages(source / "turns.json")]
    report = Report(schedule, sum(bool(turn.calls) for turn in turns), out)
    with Interrupts() as interrupts, _workspace(keep=keep) as folder, _this_interpreter_first():
        done = interrupts.run(_play(source, turns, folder, report, schedule, max_concurrent))
        if keep:
            report.kept(folder)
    if interrupts.seen:
        raise KeyboardInterrupt
    return SATISFIED if done else NOT_SATISFIED


async def _play(
    source: Path,
    turns: Sequence[RecordedTurn],
    folder: Path,
    report: Report,
    schedule: Schedule,
    max_concurrent: int | None,
) -> bool:
    together, one_by_one = folder / schedule.value, folder / "one-by-one"
    report.begins(together)
    first = await _round(source, turns, together, schedule, max_concurrent, report)
    report.begins_again(one_by_one)
    second = await _round(source, turns, one_by_one, Schedule.SERIAL, 1, None)
    report.times([p.seconds for p in first], [p.seconds for p in second])
    report.conflicts([p.turn for p in first])
    same = report.contents(_contents(together), _contents(one_by_one))
    tests = await run_process([sys.executable, "-B", "-m", "unittest", "-q"], cwd=together)
    return report.tests(tests.returncode, tests.output) and same


async def _round(
    source: Path,
    turns: Sequence[RecordedTurn],
    folder: Path,
    schedule: Schedule,
    max_concurrent: int | None,
    report: Report | None,
) -> list[Played]:
    """All turns on a fresh copy of the project, told to `report` if there is one."""
    shutil.copytree(source / "project", folder, ignore=shutil.ignore_patterns("__pycache__"))
    shown: list[TurnProgress] = []

    def sink(event: Event) -> None:
        shown[-1](event)

    played = []
    tools = load_tools(f"{source / 'tools.py'}:demo_tools", folder)
    async with Dispatcher(
        tools, root=folder, schedule=schedule, max_concurrent=max_concurrent, sinks=(sink,)
    ) as dispatcher:
        for number, turn in enumerate(turns, 1):
            if report is not None:
                report.turn_begins(number, turn.text, turn.calls, dispatcher.plan(turn.calls))
            with turn_progress(turn.calls, quiet=report is None) as progress:
                shown.append(progress)
                began = time.perf_counter()
                result = await dispatcher.run(turn.calls)
                seconds = time.perf_counter() - began
            played.append(Played(result, seconds))
            if report is not None:
                report.turn_ended(result, seconds)
    return played


def _recorded(message: Any) -> RecordedTurn:
    return RecordedTurn(_said(message), calls_of(message))


def _said(message: Any) -> str:
    """The model's own words, in either provider's form."""
    if "choices" in message:
        message = message["choices"][0]["message"]
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return " ".join(block["text"] for block in content if block.get("type") == "text")


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _demo_folder() -> Path:
    """Where the demo's data are: inside an installed package, or in the repository."""
    here = Path(__file__).resolve().parent
    for folder in (here / "_demo", here.parents[1] / "examples" / "demo"):
        if (folder / "turns.json").is_file():
            return folder
    raise InputError("the demo's files were not installed; run it from a clone of the repository")


@contextlib.contextmanager
def _workspace(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dispatch-demo-")).resolve()
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _this_interpreter_first() -> Iterator[None]:
    """`python3` in the recorded shell commands is the interpreter that runs the demo."""
    before = dict(os.environ)
    path = os.pathsep.join([str(Path(sys.executable).parent), before.get("PATH", os.defpath)])
    os.environ.update(PATH=path, PYTHONDONTWRITEBYTECODE="1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
