"""The two examples, run as programs: what they print, seconds aside."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PLAIN = """\
the run ended with ConnectionError: the mirror is down
  0 edit    success  alpha is ALPHA now
  1 edit    success  beta is BETA now
  3 search  success  found one
  5 search  success  found two
  6 read    success  alpha beta
  7 search  success  found three
answered: 6 of 8 calls, in N s
notes.txt: alpha BETA: an edit is lost
"""
DISPATCHED = """\
the model's last words: done
  0 edit    success  alpha is ALPHA now
  1 edit    success  beta is BETA now
  2 search  success  found slow
  3 search  success  found one
  4 publish failed   [error] ConnectionError: the mirror is down
  5 search  success  found two
  6 read    success  ALPHA BETA
  7 search  success  found three
answered: 8 of 8 calls, in N s
notes.txt: ALPHA BETA
"""


def printed(name: str) -> str:
    """What an example prints, without its seconds."""
    done = subprocess.run(
        [sys.executable, f"examples/{name}"],
        cwd=ROOT,
        timeout=18,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return re.sub(r"in \d+\.\d\d s", "in N s", done.stdout)


def test_without_dispatch() -> None:
    """pydantic-ai alone: the failing call ends the run, and one of two edits is lost."""
    assert PLAIN == printed("pydantic_ai_plain.py")


def test_with_dispatch() -> None:
    """The same agent with dispatch: eight answers in order, and both edits are in the file."""
    assert DISPATCHED == printed("pydantic_ai_dispatch.py")


@pytest.mark.parametrize("shown", [PLAIN, DISPATCHED], ids=["plain", "dispatch"])
def test_the_page_shows_what_the_example_prints(shown: str) -> None:
    """The blocks of the page are the examples' output."""
    page = (ROOT / "docs" / "pydantic-ai.md").read_text(encoding="utf-8")
    assert f"```text\n{shown}```\n" in re.sub(r"in \d+\.\d\d s", "in N s", page)


def test_nothing_of_it_is_loaded_unasked() -> None:
    """Neither `dispatch` nor `dispatch.adapters` loads pydantic-ai."""
    program = (
        "import sys, dispatch, dispatch.adapters, dispatch.adapters.hosted;"
        "print(sorted(name for name in sys.modules if 'pydantic_ai' in name))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"[]" == done.stdout.strip()
