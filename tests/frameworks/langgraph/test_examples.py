"""The examples print what the documentation says of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"
SECONDS = re.compile(r"took \d+\.\d\d s")


def printed(name: str) -> list[str]:
    """What an example prints, without the seconds."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"langgraph_{name}.py"],
        capture_output=True,
        text=True,
        check=True,
        cwd=EXAMPLES,
    )
    return [line.partition("; it took")[0] for line in done.stdout.splitlines()]


ALL = (
    "answered: call0 success, call1 success, call2 success, call3 error, call4 success,"
    " call5 success, call6 success, call7 success, all"
)
ENDED = "answered: the run ended with RuntimeError('2 tests failed')"


def test_plain_loses_an_edit_and_leaves_a_tool_behind() -> None:
    """A2, G5: by itself LangGraph loses an edit, and a tool goes on after the run has failed."""
    lost = "a.txt:    'one TWO', an edit is lost"
    assert [
        "ToolNode, errors handled",
        ALL,
        lost,
        "tools that went on after the run: []",
        "ToolNode as it is by default",
        ENDED,
        lost,
        "tools that went on after the run: ['slow']",
    ] == printed("plain")


def test_dispatch_keeps_both_edits_and_leaves_nothing_behind() -> None:
    """A2, G5: the same loop with `DispatchToolNode` has both edits and ends what it began."""
    both = "a.txt:    'ONE TWO', both edits"
    assert [
        "DispatchToolNode, errors handled",
        ALL,
        both,
        "tools that went on after the run: []",
        "DispatchToolNode as it is by default",
        ENDED,
        both,
        "tools that went on after the run: []",
    ] == printed("dispatch")


def test_the_page_shows_what_the_examples_print() -> None:
    """The blocks of the page are the examples' output, seconds aside."""
    page = SECONDS.sub("took N s", (ROOT / "docs" / "langgraph.md").read_text(encoding="utf-8"))
    blocks = page.split("```text\n")[1:]
    shown = [block.partition("```")[0].splitlines() for block in blocks[:2]]
    for name, lines in zip(("plain", "dispatch"), shown, strict=True):
        whole = " ".join(line.partition("; it took")[0].strip() for line in lines)
        assert " ".join(printed(name)) == whole
