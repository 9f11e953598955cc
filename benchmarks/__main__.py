"""`python -m benchmarks`: measure, show the table, keep the results, and write the page.

Runs in the environment that `python -m benchmarks.environment` makes; `make bench` does both. A
section is a module with `measure(options)`, plain or `async`, that gives a dictionary for JSON.
Exit status: 0, 1 if a section failed, 2 for options that are wrong, 130 when interrupted.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.options import PAGE, Options, parse
from benchmarks.page import PAGE as PAGE_FILE
from benchmarks.page import page
from benchmarks.progress import say
from benchmarks.report import report
from benchmarks.roster import versions

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    """Do what the arguments ask for; the status to exit with."""
    options = parse(arguments)
    known = earlier(options.json)
    if known is None:
        say(f"{options.json} holds no results; name another file with --json, or delete it")
        return 2
    measured = [name for name in options.sections if name != PAGE]
    results, failed = (known, False) if not measured else measure(measured, options, known)
    if measured:
        if options.json is None:
            say("these are part of the results and are not kept; --json FILE keeps them")
        print(report(results))
    if PAGE in options.sections and not write_page(results):
        return 1
    return int(failed)


def earlier(path: Path | None) -> dict[str, Any] | None:
    """The results that are kept there, none if there is no such file; None if it holds others."""
    if path is None or not path.exists():
        return {}
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return results if isinstance(results, dict) else None


def measure(
    names: list[str], options: Options, known: Mapping[str, Any]
) -> tuple[dict[str, Any], bool]:
    """The results with these sections measured anew, and whether one of them failed.

    Sections that were measured before are kept if they are of this machine and these versions. The
    results are written after each section, so that an interrupt costs no more than one.
    """
    now = {"machine": machine(options), "versions": versions()}
    is_same = comparable(now) == comparable(known)
    if known and not is_same:
        say("the earlier results are of another machine or other versions and are left out")
    results = {**(known if is_same else {}), **now}
    results["sections"] = dict(results.get("sections") or {})
    failed = False
    what = f"{datetime.now(UTC):%Y-%m-%d}, {commit()}"  # now: what is written below makes it dirty
    for name in names:
        for part in (results, results["sections"]):
            part.pop(name, None)
        try:
            results[name] = measured(name, options)
            results["sections"][name] = what
        except Exception as fault:  # noqa: BLE001 - the other sections are worth having
            say(f"{name} failed: {type(fault).__name__}: {fault}")
            failed = True
        if options.json is not None:
            keep(results, options.json)
    return results, failed


def commit() -> str:
    """Which state of the project is measured, as git names it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "an unknown commit"
    return f"commit {done.stdout.strip()}"


def measured(name: str, options: Options) -> dict[str, Any]:
    """One section."""
    found = importlib.import_module(f"benchmarks.{name}").measure(options)
    if inspect.isawaitable(found):
        found = asyncio.run(awaited(found))
    return dict(found)


async def awaited(found: Any) -> Any:
    """What comes of it; `asyncio.run` takes nothing but coroutines."""
    return await found


def machine(options: Options) -> dict[str, Any]:
    """On what is measured, and when."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "rounds": options.rounds,
    }


def comparable(results: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What must be equal for numbers to stand beside each other."""
    where = {name: each for name, each in results.get("machine", {}).items() if name != "date"}
    return where, results.get("versions", {})


def keep(results: Mapping[str, Any], path: Path) -> None:
    """Write the results, whole or not at all."""
    text = json.dumps(results, indent=1, ensure_ascii=False, default=str)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(f"{text}\n", encoding="utf-8")
    fresh.replace(path)


def write_page(results: Mapping[str, Any]) -> bool:
    """Write the page and its charts; whether that was possible."""
    if not results:
        say("there are no results to make the page of; measure first: make bench")
        return False
    try:
        from benchmarks.charts import draw
    except ImportError as missing:
        say(f"the page is not written, for its charts cannot be drawn: {missing}")
        return False
    for path in draw(results):
        say(f"wrote {path.name}, {path.stat().st_size / 1000:.0f} kB")
    PAGE_FILE.write_text(page(results), encoding="utf-8")
    say(f"wrote {PAGE_FILE.name}")
    return True


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("\ninterrupted; the sections before it are kept")
        sys.exit(130)
