"""What `make test-frameworks` takes for a failure."""

import subprocess
from pathlib import Path

import pytest

from tests.frameworks import __main__ as runner
from tests.frameworks.__main__ import Framework, main

HERE = Framework("here", "pytest")


def report(folder: Path, tests: int, skipped: int, failures: int) -> None:
    """What pytest writes."""
    counts = f'tests="{tests}" skipped="{skipped}" failures="{failures}" errors="0"'
    (folder / "here").mkdir()
    (folder / "here" / "report.xml").write_text(f"<testsuites><testsuite {counts}/></testsuites>")


@pytest.mark.parametrize(
    ("counts", "status", "line"),
    [
        ((3, 0, 0), 0, "here 9.1 passed=3 skipped=0"),
        ((3, 1, 0), 1, "here 9.1 passed=2 skipped=1"),
        ((3, 0, 1), 1, "here 9.1 passed=2 skipped=0"),
        ((0, 0, 0), 1, "here 9.1 passed=0 skipped=0"),
    ],
    ids=["passed", "skipped", "failed", "none"],
)
def test_only_what_passed_whole_is_good(
    counts: tuple[int, int, int],
    status: int,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A skipped test, a failed one, or none at all is a failure; the line says what was seen."""

    def done(*command: str | Path) -> subprocess.CompletedProcess[str]:
        if "-n" in command:
            report(tmp_path, *counts)
        return subprocess.CompletedProcess(command, 0, stdout="9.1")

    monkeypatch.setattr(runner, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(runner, "_done", done)
    assert status == runner.test(HERE, None)
    assert line == capsys.readouterr().out.splitlines()[-1]


def test_what_cannot_be_installed_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An absent framework fails, with what the installer said."""

    def done(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, stdout="no matching distribution")

    monkeypatch.setattr(runner, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(runner, "_done", done)
    monkeypatch.setattr(Framework, "folder", tmp_path)
    (tmp_path / "constraints.txt").write_text("")
    assert 1 == runner.test(HERE, runner.make(HERE))
    assert "no matching distribution" in capsys.readouterr().out


def test_an_unknown_name_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt framework is no success."""
    assert 2 == main(["langraph"])
    assert "there are: langgraph, pydantic_ai" in capsys.readouterr().out
