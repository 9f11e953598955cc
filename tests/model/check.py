"""Runs the model of the table machine (`table.pml`) through spin, and its seeded faults.

Prints one line `spin: states=… errors=… faults=…/…`, a line per error before it, and exits
with 1 on an error, on a search cut short, and when spin misses a fault; with 2 when spin or
gcc is missing and cannot be installed (Debian's packages, by root or through sudo).

The searches: keys d and d/x overlap always, so that `d` alone stands for both of them; `OPEN`
bounds the nested calls in the table at once, where the whole search would take too long.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("table.pml")
TOOLS = ("spin", "gcc")
DEPTH = 2_000_000
MEGABYTES = 4_000

SEARCHES = (
    "ROOTS=3 NESTED=1 KEYS=3",
    "ROOTS=2 NESTED=2 KEYS=3",
    "ROOTS=3 NESTED=2 KEYS=1",
    "ROOTS=3 NESTED=2 KEYS=3 OPEN=2",
    "ROOTS=4 NESTED=1 KEYS=1",
)
FAULTS = {  # and the property that each breaks first
    "ROOTS=3 NESTED=1 KEYS=2 FAULT_SKIP_PREFIX": "apart",
    "ROOTS=2 NESTED=2 KEYS=2 FAULT_COVERED": "apart",
    "ROOTS=3 NESTED=1 KEYS=2 FAULT_BARGE": "first_come",
    "ROOTS=3 NESTED=2 KEYS=3 OPEN=3 FAULT_LATEST_FIRST": "first_come",
    "ROOTS=3 NESTED=1 KEYS=2 FAULT_NO_PASSING": "waits_rightly",
    "ROOTS=3 NESTED=1 KEYS=3 FAULT_STALE_PASSING": "waits_rightly",
    "ROOTS=3 NESTED=1 KEYS=3 FAULT_DIRECT_ONLY": "waits_rightly",
    "ROOTS=3 NESTED=1 KEYS=3 FAULT_WAITERS_COUNT": "all_hold",
    "ROOTS=3 NESTED=1 KEYS=2 FAULT_WRONG_VICTIM": "last_comer",
    "ROOTS=3 NESTED=1 KEYS=3 FAULT_ONE_BLOCKER": "all_can_end",
    "ROOTS=3 NESTED=1 KEYS=2 FAULT_NO_DEADLOCK_SEARCH": "all_can_end",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What spin's verifier said: states seen, and what is wrong (empty: nothing)."""

    states: int
    wrong: str


def search(options: str, *, optimize: str) -> Search:
    """Build the verifier for one set of bounds and run it to its end or first error."""
    defines = [f"-D{option}" for option in options.split()]
    build = ["gcc", optimize, "-w", "-DSAFETY", "-DNOREDUCE", "-DNOBOUNDCHECK"]
    with tempfile.TemporaryDirectory() as directory:
        try:
            run(["spin", *defines, "-a", str(MODEL)], directory)
            run([*build, f"-DMEMLIM={MEGABYTES}", "-o", "pan", "pan.c"], directory)
            return read(run(["./pan", f"-m{DEPTH}"], directory))
        except RuntimeError as error:
            return Search(states=0, wrong=str(error))


def run(command: list[str], directory: str) -> str:
    """Return what the command printed; raise with it if the command failed."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    if done.returncode or "Error:" in printed:
        raise RuntimeError(f"{' '.join(command)} failed:\n{printed}")
    return printed


def read(printed: str) -> Search:
    """Understand the verifier's report; one that is not whole counts as wrong."""
    states = re.search(r"(\d+) states, stored", printed)
    errors = re.search(r"errors: (\d+)", printed)
    broken = re.search(r"pan:\d+: (?:assertion violated )?(.*?) \(at depth", printed)
    short = re.search(r"max search depth too small|out of memory|Search not completed", printed)
    wrong = ""
    if broken:
        wrong = broken[1]
    elif short or not states or not errors or errors[1] != "0":
        wrong = short[0] if short else "no report"
    return Search(states=int(states[1]) if states else 0, wrong=wrong)


def install() -> None:
    """Install what is missing of spin and gcc; exit with 2 if that cannot be done."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    if not missing:
        return
    try:
        for action in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends"]):
            packages = missing if "install" in action else []
            run([*root, "apt-get", *action, *packages], "/")
    except (OSError, RuntimeError) as error:
        say(f"{' and '.join(missing)} missing, and apt-get could not install: {error}")
        sys.exit(2)


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Check the model, then that each seeded fault is seen; the exit status."""
    install()
    states = errors = seen = 0
    for options in SEARCHES:
        found = search(options, optimize="-O2")
        states += found.states
        if found.wrong:
            errors += 1
            say(f"{options}: {found.wrong}")
    for options, expected in FAULTS.items():
        found = search(options, optimize="-O0")
        seen += found.wrong == expected
        if found.wrong != expected:
            say(f"{options}: expected {expected}, found {found.wrong or 'nothing'}")
    say(f"spin: states={states} errors={errors} faults={seen}/{len(FAULTS)}")
    return int(errors > 0 or seen < len(FAULTS))


if __name__ == "__main__":
    sys.exit(main())
