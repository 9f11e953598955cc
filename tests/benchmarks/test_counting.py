"""The counts of the hot paths: exact, and sharp enough to notice one call more."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.check import LESS, MORE, fallen, risen, table, unrecorded
from benchmarks.counting import PATHS
from benchmarks.shapes import DEPTH, SHAPES, planned

ROOT = Path(__file__).resolve().parents[2]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
ONE = "a turn of one call"
SHORT = (ONE, "a turn of one call that reads a file", "plan of 1,000 calls, one file")
SLOWER = """
_as_it_is = Dispatcher.run


def _slower(self, calls, **options):
    return _as_it_is(self, calls, **options)


Dispatcher.run = _slower
"""


def check(folder: Path, *arguments: str, seed: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the check in this folder, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.check", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )


def counts(folder: Path) -> dict[str, dict[str, int]]:
    """What is recorded there for this Python."""
    recorded = json.loads((folder / "benchmarks" / "counts.json").read_text())
    return dict(recorded[VERSION])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its benchmark in a folder of their own, with nothing recorded."""
    for name in ("dispatch", "benchmarks"):
        ignored = shutil.ignore_patterns("__pycache__", "*.json")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    return tmp_path


def test_counts_are_the_same_in_every_run(copy: Path) -> None:
    """Neither the process nor the order of hashes nor what was counted before matters."""
    assert 0 == check(copy, "--record", *SHORT, seed=1).returncode
    first = counts(copy)
    assert 0 == check(copy, "--record", *reversed(SHORT), seed=2).returncode
    assert set(SHORT) == set(first)
    assert first == counts(copy)


def test_one_call_more_is_counted(copy: Path) -> None:
    """A function around a hot one adds exactly its own call and its instructions."""
    check(copy, "--record", ONE)
    before = counts(copy)[ONE]
    with (copy / "dispatch" / "runtime" / "dispatcher.py").open("a") as dispatcher:
        dispatcher.write(SLOWER)
    check(copy, "--record", ONE)
    after = counts(copy)[ONE]
    assert before["calls"] + 1 == after["calls"]
    assert before["instructions"] < after["instructions"]
    assert before["tasks"] == after["tasks"]


def test_a_check_fails_when_the_package_does_more(copy: Path) -> None:
    """It names the path and how to record; what is not slower passes."""
    check(copy, "--record", ONE)
    assert 0 == check(copy, ONE).returncode
    with (copy / "dispatch" / "runtime" / "dispatcher.py").open("a") as dispatcher:
        dispatcher.write(
            SLOWER.replace("    return", "    for _ in range(500):\n        len(())\n    return")
        )
    slower = check(copy, ONE)
    assert 1 == slower.returncode
    assert f"{ONE}: calls went up" in slower.stdout
    assert "python -m benchmarks.check --record" in slower.stdout


def test_nothing_recorded_is_no_success(copy: Path) -> None:
    """On a Python without records the check fails, and says how to make them."""
    unknown = check(copy, ONE)
    assert 1 == unknown.returncode
    assert f"nothing is recorded for Python {VERSION}" in unknown.stdout


def test_a_count_may_rise_by_the_tolerance_only() -> None:
    """Up to 2 % more passes, above that it does not; less is told once it is much less."""
    then = {"path": {"calls": 1_000, "tasks": 0}}
    most = round(1_000 * (1 + MORE))
    assert [] == list(risen(then, {"path": {"calls": most, "tasks": 0}}))
    assert 1 == len(list(risen(then, {"path": {"calls": most + 1, "tasks": 0}})))
    assert 1 == len(list(risen(then, {"path": {"calls": 1_000, "tasks": 1}})))
    least = round(1_000 * (1 - LESS))
    assert [] == list(fallen(then, {"path": {"calls": least, "tasks": 0}}))
    assert 1 == len(list(fallen(then, {"path": {"calls": least - 1, "tasks": 0}})))


def test_a_new_path_must_be_recorded() -> None:
    """What is counted but not recorded guards nothing, so it is told."""
    now = {"old": {"calls": 1}, "new": {"calls": 1}}
    assert 1 == len(list(unrecorded({"old": {"calls": 1}}, now)))
    assert "new" in "\n".join(table({"old": {"calls": 1}}, now))


def test_every_path_is_recorded_for_the_pythons_that_are_supported() -> None:
    """The records are of the paths that there are, no more and no fewer."""
    recorded = json.loads((ROOT / "benchmarks" / "counts.json").read_text())
    assert ["3.11", "3.12", "3.13"] == list(recorded)
    assert {version: set(PATHS) for version in recorded} == {
        version: set(paths) for version, paths in recorded.items()
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_the_graph_of_any_shape_has_few_edges(shape: str) -> None:
    """No more edges a call than a key has segments, so that what a call costs can be constant."""
    graph = planned(SHAPES[shape](2_000))
    assert sum(map(len, graph.index.predecessors)) <= (DEPTH + 1) * 2_000
