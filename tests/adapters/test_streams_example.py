"""The example that measures a streamed turn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dispatch.testing import run_in_virtual_time

EXAMPLE = Path(__file__).parents[2] / "examples" / "streamed.py"
PRINTED = """\
once it is whole   3.30 s, 6 of 6 edits kept, in order: True
while it writes    2.00 s, 6 of 6 edits kept, in order: True
streamed / whole   0.61
the replies are equal, byte for byte: True
"""


def test_a_streamed_turn_takes_two_thirds_of_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Under a limit and with conflicts, a turn whose calls run while the model writes takes at most
    0.65 of the time of one that waits for the whole message, keeps every edit in order, and gives
    the same reply."""
    spec = importlib.util.spec_from_file_location("example_streamed", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    ratio = run_in_virtual_time(example.main())
    assert ratio <= 0.65
    assert capsys.readouterr().out == PRINTED
