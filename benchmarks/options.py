"""What a person may ask of the benchmark, checked before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks.roster import ROSTER, Entry, option
from benchmarks.work import Workload
from benchmarks.workloads import WORKLOADS

RESULTS = Path(__file__).resolve().parent / "results.json"
SECTIONS = ("makespans", "loops", "costs", "functions", "adaptive")
PAGE = "page"
"""Not measured: the charts and the page of the documentation, made from the results."""
ROUNDS = 5
Named = TypeVar("Named", Entry, Workload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure, and how often."""

    sections: tuple[str, ...] = (*SECTIONS, PAGE)
    rounds: int = ROUNDS
    """How often everything is run; the round before them, which warms up, does not count."""
    quick: bool = False
    """One round, and less of everything: to see that it works."""
    peers: tuple[Entry, ...] = ROSTER
    workloads: tuple[Workload, ...] = WORKLOADS
    json: Path | None = RESULTS
    """Where the results are kept; None if they are only shown."""


def parse(arguments: Sequence[str]) -> Options:
    """The options of these arguments. Exits with 2 and a sentence if one is wrong."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        return _options(given)
    except ValueError as wrong:
        parser.error(str(wrong))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="How close to the best possible a turn finishes, and what it costs.",
        allow_abbrev=False,
    )
    sections = ", ".join((*SECTIONS, PAGE))
    parser.add_argument("sections", nargs="*", help=f"{sections}; all if none is named")
    parser.add_argument("--rounds", type=int, default=None, help=f"how often; {ROUNDS} if not said")
    parser.add_argument("--peers", help="only these, with commas between them")
    parser.add_argument("--workloads", help="only these, with commas between them")
    parser.add_argument("--quick", action="store_true", help="one round and less of everything")
    parser.add_argument("--json", type=Path, help="where to keep the results")
    return parser


def _options(given: argparse.Namespace) -> Options:
    part = bool(given.quick or given.peers or given.workloads)
    workloads = WORKLOADS[::4] if given.quick else WORKLOADS
    if given.workloads is not None:
        workloads = _chosen("workload", given.workloads, WORKLOADS)
    peers = ROSTER
    if given.peers is not None:
        peers = _chosen("peer", given.peers, ROSTER)
    return Options(
        sections=_sections(given.sections, page=not part and given.json is None),
        rounds=_rounds(given.rounds, quick=given.quick),
        quick=given.quick,
        peers=peers,
        workloads=workloads,
        json=_json(given.json) or (None if part else RESULTS),
    )


def _sections(names: Sequence[str], *, page: bool) -> tuple[str, ...]:
    """Those named, in the order in which they run. The page is made of part of the results only
    if someone asks for it."""
    known = (*SECTIONS, PAGE)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no section {', '.join(unknown)}; there are: {', '.join(known)}")
    if names:
        return tuple(name for name in known if name in names)
    return known if page else SECTIONS


def _rounds(rounds: int | None, *, quick: bool) -> int:
    if rounds is not None and rounds < 1:
        raise ValueError(f"--rounds is {rounds}, but it takes at least 1 round")
    if rounds is not None and quick:
        raise ValueError("--quick is one round; say either --quick or --rounds")
    return rounds or (1 if quick else ROUNDS)


def _json(path: Path | None) -> Path | None:
    if path is not None and not path.resolve().parent.is_dir():
        raise ValueError(f"--json is {path}, but there is no folder {path.parent}")
    if path is not None and path.is_dir():
        raise ValueError(f"--json is {path}, which is a folder; name a file in it")
    return path


def _chosen(what: str, text: str, known: Sequence[Named]) -> tuple[Named, ...]:
    """Those that are named, in their own order; "a name" can be written a-name."""
    by_option = {option(one.name): one for one in known}
    wanted = [option(name) for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in by_option]
    if unknown or not wanted:
        wrong = f"there is no {what} {', '.join(unknown)}" if unknown else f"no {what} is named"
        raise ValueError(f"{wrong}; there are: {', '.join(by_option)}")
    return tuple(one for name, one in by_option.items() if name in wanted)
