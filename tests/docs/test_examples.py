"""The examples with the two SDKs, run as programs: what they print, seconds aside."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SECONDS = re.compile(r"in \d+\.\d\d s")
SHARED = ("eight_calls", "model_server")

PLAIN = """\
gather: ConnectionError: the mirror is down
answered: 0 of 8 calls, in N s
ran on behind the loop: search slow
the next request: {refusal} ...
notes.txt: alpha BETA: an edit is lost

gather, errors caught: done
  {id}_0 alpha is ALPHA now
  {id}_1 beta is BETA now
  {id}_2 found slow
  {id}_3 found one
  {id}_4 error: ConnectionError('the mirror is down')
  {id}_5 found two
  {id}_6 alpha beta
  {id}_7 found three
answered: 8 of 8 calls, in N s
ran on behind the loop: nothing
the next request: done
notes.txt: alpha BETA: an edit is lost
"""
DISPATCHED = """\
dispatch: done
  {id}_0 alpha is ALPHA now
  {id}_1 beta is BETA now
  {id}_2 found slow
  {id}_3 found one
  {id}_4 [error] ConnectionError: the mirror is down Do not repeat the same ...
  {id}_5 found two
  {id}_6 ALPHA BETA
  {id}_7 found three
answered: 8 of 8 calls, in N s
ran on behind the loop: nothing
the next request: done
notes.txt: ALPHA BETA
"""
ANTHROPIC = {
    "id": "toolu",
    "refusal": "400 `tool_use` ids were found without `tool_result` blocks immediately",
}
OPENAI = {
    "id": "call",
    "refusal": "400 The following tool_call_ids did not have response messages: call_0,",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anthropic_plain", PLAIN.format_map(ANTHROPIC)),
        ("anthropic_dispatch", DISPATCHED.format_map(ANTHROPIC)),
        ("openai_plain", PLAIN.format_map(OPENAI)),
        ("openai_dispatch", DISPATCHED.format_map(OPENAI)),
    ],
)
def test_what_the_example_prints(
    name: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A2, G4: eight calls of one turn, two of them edits of one file, with and without dispatch."""
    monkeypatch.syspath_prepend(EXAMPLES)
    try:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    finally:
        for module in SHARED:
            sys.modules.pop(module, None)
    assert expected == SECONDS.sub("in N s", capsys.readouterr().out)


@pytest.mark.parametrize("printed", [PLAIN, DISPATCHED], ids=["plain", "dispatch"])
def test_the_page_shows_what_the_example_prints(printed: str) -> None:
    """The blocks of the page are the examples' output."""
    page = (ROOT / "docs" / "anthropic.md").read_text(encoding="utf-8")
    block = f"```text\n{printed.format_map(ANTHROPIC)}```\n"
    assert block in SECONDS.sub("in N s", page)
