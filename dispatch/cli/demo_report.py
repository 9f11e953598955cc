"""What the demo says: each turn's plan and results, then both times and the checks.

Fits in 100 columns, with colours on a terminal and as plain text elsewhere.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dispatch import Plan, TurnResult
from dispatch.call import ToolCall, ToolResult
from dispatch.cli.wording import count, cut, one_line, shown_call, visible
from dispatch.core.schedules import Schedule

WIDTH = 100
CALL_WIDTH = 48
STYLES = {"ok": "green", "error": "yellow", "skipped": "yellow"}


class Report:
    """Prints the demo's progress to `out`."""

    def __init__(self, schedule: Schedule, turns: int, out: TextIO) -> None:
        self._schedule = schedule
        self._turns = turns
        self._console = Console(file=out, highlight=False, soft_wrap=True)
        self._width = min(WIDTH, self._console.width) if self._console.is_terminal else WIDTH

    def begins(self, folder: Path) -> None:
        """Say what is going to be played, and where."""
        self._say("A recorded agent repairs a small Markdown library, in real files.", "bold")
        self._say_whole(
            f"{count(self._turns, 'turn')}, schedule {self._schedule}, in {folder}", "dim"
        )

    def turn_begins(self, number: int, said: str, calls: Sequence[ToolCall], plan: Plan) -> None:
        """Show what the model said, and the plan of its calls in a few lines."""
        self._say("")
        if not calls:
            self._say(f"The agent ends: {said}", "bold")
            return
        self._say(f"Turn {number} of {self._turns}  {said}", "bold")
        groups = " → ".join(_ranges(group) for group in plan.groups)
        counts = f"{count(len(calls), 'call')}, {count(len(plan.clusters), 'cluster')}"
        self._say(f"plan: {counts}, {count(len(plan.groups), 'group')}: {groups}", "cyan")
        if plan.undeclared:
            self._say(f"alone, because undeclared: {', '.join(plan.undeclared)}", "cyan")

    def turn_ended(self, turn: TurnResult, seconds: float) -> None:
        """Show every result in the order the model asked, and what the turn cost."""
        if not turn.results:
            return
        for result in turn.results:
            self._result(result)
        stats = turn.stats
        self._say(
            f"{seconds:.2f} s, in which the calls ran for {stats.run_time:.2f} s in all;"
            f" {stats.conflicting} conflicting, {stats.conflict_serialized} waited for another",
            "cyan",
        )

    def begins_again(self, folder: Path) -> None:
        """Say that the same turns are now run one call at a time."""
        self._say("")
        self._say("The same turns again, one call at a time, on a fresh copy.", "bold")
        self._say_whole(f"schedule serial, in {folder}", "dim")

    def times(self, together: Sequence[float], one_by_one: Sequence[float]) -> None:
        """Both times of each turn and of all, side by side."""
        table = Table(box=None, padding=(0, 3, 0, 0))
        for heading in ("", str(self._schedule), "one by one", "times faster"):
            table.add_column(heading, justify="left" if not heading else "right")
        pairs = [*zip(together, one_by_one, strict=True)]
        for number, (fast, slow) in enumerate(pairs[: self._turns], 1):
            table.add_row(f"turn {number}", *_compared(fast, slow))
        table.add_row("all turns", *_compared(sum(together), sum(one_by_one)), style="bold")
        self._say("")
        self._console.print(table)

    def conflicts(self, turns: Sequence[TurnResult]) -> None:
        """How much ran at once, and how many calls had to keep an order."""
        stats = [turn.stats for turn in turns]
        makespan = sum(stat.makespan for stat in stats)
        factor = sum(stat.run_time for stat in stats) / makespan if makespan else 0.0
        self._say("")
        self._say(f"parallelism factor     {factor:.2f} (sum of run times / time taken)")
        self._say(f"calls                  {sum(stat.calls for stat in stats)}")
        self._say(f"conflicting            {sum(stat.conflicting for stat in stats)}")
        self._say(f"conflict-serialized    {sum(stat.conflict_serialized for stat in stats)}")

    def contents(self, first: Mapping[str, bytes], second: Mapping[str, bytes]) -> bool:
        """Whether both folders have the same files with the same bytes; says where they differ."""
        names = sorted(first.keys() | second.keys())
        different = [name for name in names if first.get(name) != second.get(name)]
        if different:
            self._say(f"FAILED: the folders differ in {', '.join(different)}", "bold red")
        else:
            self._say(f"ok: both folders end with the same {count(len(names), 'file')}", "green")
        return not different

    def tests(self, returncode: int, output: str) -> bool:
        """Whether the project's own tests passed."""
        lines = output.strip().splitlines()
        ran = next((line for line in lines if line.startswith("Ran ")), "ran nothing")
        if returncode == 0:
            self._say(f"ok: the project's own tests pass ({ran.partition(' in ')[0]})", "green")
        else:
            self._say("FAILED: the project's own tests:", "bold red")
            self._say(output.strip())
        return returncode == 0

    def kept(self, folder: Path) -> None:
        """Say where the folders are."""
        self._say_whole(f"kept: {folder}")

    def _result(self, result: ToolResult) -> None:
        status = str(result.status)
        seconds = "" if result.started_at is None else f"{_ran(result):.2f} s"
        call = shown_call(result.call, CALL_WIDTH)
        line = Text(f"{f'#{result.index}':>4}  ")
        line.append(f"{status:<7}", STYLES.get(status, "red"))
        line.append(f"{call:<{CALL_WIDTH}}{seconds:>8}  ")
        told = "" if result.failure else _first_line(result)
        line.append(cut(told, max(0, self._width - len(line))), "dim")
        self._console.print(line, soft_wrap=True)
        if result.failure:
            told = result.failure.message.strip().partition("\n")[0]
            self._say(one_line(told[:400]), "yellow", indent=13, lines=2)

    def _say_whole(self, text: str, style: str = "") -> None:
        """Print `text` on one line however long it is: it ends in a path that people copy."""
        self._console.print(Text(visible(text), style), soft_wrap=True)

    def _say(self, text: str, style: str = "", *, indent: int = 0, lines: int = 0) -> None:
        """Print `text` wrapped at the width, at most `lines` lines of it if that is not 0."""
        wrapped = [
            piece
            for line in text.split("\n")
            for piece in textwrap.wrap(
                line,
                self._width,
                initial_indent=" " * indent,
                subsequent_indent=" " * indent or "      ",
                max_lines=lines or None,
                placeholder=" …",
                break_on_hyphens=False,
            )
            or [""]
        ]
        for piece in wrapped:
            self._console.print(Text(piece, style), soft_wrap=True)


def _first_line(result: ToolResult) -> str:
    lines = result.content().strip().splitlines()
    more = f" (+{count(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
    return one_line(lines[0] if lines else "") + more


def _ran(result: ToolResult) -> float:
    return 0.0 if result.started_at is None else result.finished_at - result.started_at


def _compared(fast: float, slow: float) -> tuple[str, str, str]:
    return f"{fast:.2f} s", f"{slow:.2f} s", f"{slow / fast:.1f}" if fast else ""


def _ranges(positions: Sequence[int]) -> str:
    """`#0-2 #4 #6-8` for the positions 0 1 2 4 6 7 8."""
    spans: list[list[int]] = []
    for position in positions:
        if spans and position == spans[-1][1] + 1:
            spans[-1][1] = position
        else:
            spans.append([position, position])
    return " ".join(f"#{a}-{b}" if a < b else f"#{a}" for a, b in spans)
