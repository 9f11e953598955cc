"""`python -m tests.mutants`: put one fault after the other into a copy, and see the tests fail.

The copy has the package and the tests; nothing of the checkout changes. A fault is killed when a
test fails or hangs; one that no test notices, or with which the tests cannot be loaded, survives,
and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("dispatch", "tests", "pyproject.toml")
TESTS = ("tests/core", "tests/runtime/test_turn.py", "tests/runtime/test_guarantees.py")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider")
TIMEOUT = 300
"""Seconds for one fault: a fault may make the tests hang, which counts as noticed."""


def copied(folder: Path) -> None:
    """The checkout as far as the tests need it."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)


def put(fault: Fault, folder: Path) -> None:
    """Put the fault into the copy. Raises `SystemExit` if its line is not there exactly once."""
    path = folder / "dispatch" / fault.file
    text = path.read_text()
    if text.count(fault.line) != 1:
        raise SystemExit(
            f"{fault.name!r}: its line is in dispatch/{fault.file} {text.count(fault.line)} times,"
            " not once; bring tests/mutants/faults.py up to date"
        )
    path.write_text(text.replace(fault.line, fault.fault))


def failing(folder: Path) -> str:
    """The first test that fails in the copy, or nothing."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "DISPATCH_STEPS": "500"}
    try:
        run = subprocess.run(
            [*PYTEST, *TESTS],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "the tests hang"
    failed = [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    return failed[0].split(" - ")[0] if failed else ""


def tried(fault: Fault | None) -> str:
    """The test that notices the fault; without a fault none must fail."""
    with tempfile.TemporaryDirectory(prefix="dispatch-mutant-") as name:
        folder = Path(name)
        copied(folder)
        if fault is not None:
            put(fault, folder)
        return failing(folder)


def main() -> int:
    """Try all faults, or those whose name holds the given text."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="faults with this in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if options.only in fault.name]
    with ThreadPoolExecutor(options.jobs) as pool:
        whole = pool.submit(tried, None)
        outcomes = list(zip(faults, pool.map(tried, faults), strict=True))
    if whole.result():
        print(f"without any fault, {whole.result()} fails already")
        return 1
    for fault, noticed in outcomes:
        print(f"{'killed  ' if noticed else 'SURVIVED'} {fault.name}: {noticed}", flush=True)
    killed = sum(bool(noticed) for _, noticed in outcomes)
    print(f"killed {killed}/{len(faults)}")
    return 0 if killed == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
