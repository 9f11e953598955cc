"""The tables and the page say all that the results say, and nothing else."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.options import RESULTS
from benchmarks.page import PAGE, page
from benchmarks.pictures import pictures
from benchmarks.report import WIDTH, report
from benchmarks.standings import standing
from benchmarks.targets import targets

NONE = {"overlaps": 0, "reordered": 0, "over_limit": 0, "lost": 0}


def found(ratio: float | None, **more: Any) -> dict[str, Any]:
    """What a peer made of a workload whose bound is half a second."""
    return {
        "makespan": None if ratio is None else ratio / 2,
        "ratio": ratio,
        "violations": NONE | more.pop("violations", {}),
        "leaked": {"tasks": 0, "threads": 0},
        "lacks": [],
        "failed": None,
        **more,
    }


def results() -> dict[str, Any]:
    """A small set with something of everything."""
    chains = {
        "dispatch": found(1.02),
        "gather": found(0.51, violations={"overlaps": 1234, "lost": 7}, lacks=["order"]),
        "a_peer|too": found(None, failed="RuntimeError: no\\more of *this*"),
    }
    stream = {
        "dispatch": found(1.2, leaked={"tasks": 3, "threads": 0}),
        "gather": found(2.5),
        "a_peer|too": found(12.5, violations={"reordered": 55, "over_limit": 66}),
    }
    return {
        "machine": {"date": "2026-11-30", "Python": "CPython 3.12.1"},
        "versions": {"tool-dispatch": "0.1.0", "toollane": None},
        "makespans": {
            "chains": {"about": "of edits", "lower_bound": 0.5, "peers": chains},
            "stream": {
                "about": "arrives",
                "lower_bound": 0.5,
                "limited": True,
                "whole_message": 1.2,
                "peers": stream,
            },
        },
        "loops": {
            "makespans": {"chains": {"default": 1.02, "uvloop": 1.01}},
            "failed": {"eager tasks": "not before Python 3.12"},
        },
        "costs": {
            "one no-op call": {"dispatch safe_parallel": 51.25, "toollane": 995.0},
            "1,000 no-op calls": {"dispatch safe_parallel": 45.0, "gather with a semaphore": 9.0},
            "loops": {"uvloop": {"one no-op call": {"dispatch safe_parallel": 41.5}}},
            "plan": {
                "friendly": {"10000": 2.0, "100000": 2.5},
                "hostile": {"10000": 1.0, "100000": 2.75},
            },
            "plan by the turn's machine": {"friendly": {"10000": 33.25}},
            "memory": {"bytes per pending call": 4321},
            "profile": {
                "one no-op call": {"who waits": {"share": 0.375, "functions": 72.4}},
                "1,000 no-op calls": {"who waits": {"share": 0.5, "functions": 33.5}},
            },
            "broke the rules": {"one no-op call": ["toollane"]},
            "failed": {"1,000 no-op calls": {"gather": "MemoryError: none left"}},
            "import": {"milliseconds": 203.0, "dependencies": 187.0, "beyond": 16.0},
        },
        "functions": {"turns": 730, "states that differ": {"dispatch": 0, "gather": 68}},
        "adaptive": {
            "429s": 17,
            "throughput / best fixed limit": 0.97,
            "limit": [[0.0, 1], [1.0, 2]],
        },
    }


def plain(text: str) -> str:
    """Markdown without what only protects its signs, and without the spaces of columns."""
    return re.sub(r" +", " ", text.replace("\\", ""))


RENDERED = {"screen": report, "page": page}


@pytest.mark.parametrize("render", RENDERED.values(), ids=RENDERED)
@pytest.mark.parametrize(
    "told",
    [
        *("dispatch", "gather", "a_peer|too", "chains", "of edits", "stream", "arrives"),
        *("1.02", "0.51*", "12.5*", "failed", "RuntimeError: nomore of *this*", "order"),
        *("1241", "121"),  # violations by workload
        *("1234", "7", "55", "66"),  # and by kind
        *(
            "not before Python 3.12",
            "41.5",
            "51.2",
            "995*",
            "MemoryError: none left",
            "33.2",
            "45.0",
            "9.00",
        ),
        "MemoryError: none left",
        *("2.75", "4,321", "203", "187", "730", "68", "17", "CPython 3.12.1", "2026-11-30"),
        *("one no-op call: functions", "38%", "72.4", "passes 34 functions", "“stream”"),
        *("tool-dispatch", "toollane", "not installed", "met", "not met"),
    ],
)
def test_everything_is_told(render: Any, told: str) -> None:
    """Every peer, violation, failure, cost and version is on the screen and on the page."""
    assert told in plain(render(results())).replace(" is not installed", " not installed")


@pytest.mark.parametrize("render", RENDERED.values(), ids=RENDERED)
def test_every_target_is_told_with_its_verdict(render: Any) -> None:
    """A target stands there with whether it is met, or that this is not known."""
    for given in (results(), {}):
        for target in targets(given):
            line = next(
                line
                for line in render(given).splitlines()
                if line.lstrip("| ").startswith(target.what)
            )
            assert target.verdict == line.rstrip("| ").split("  ")[-1].split("| ")[-1]


def test_targets_are_judged_by_what_was_measured() -> None:
    """Each target is met, not met, or not measured."""
    verdicts = [
        (target.found and round(target.found, 2), target.is_met) for target in targets(results())
    ]
    expected = [
        (1.11, False),  # mean
        (1.2, False),  # worst
        (0.5, True),  # streamed
        (5.0, False),  # against gather
        (51.25, True),  # one call
        (2.75, True),  # plan
        (2.75, False),  # linear
        (16.0, True),  # import
        (0.97, True),  # adaptive
        (0, True),  # violations
        (3, False),  # left behind
        (0, True),  # failed
        (0, True),  # states
    ]
    assert expected == verdicts
    assert {None} == {target.is_met for target in targets({})}


def test_a_failed_workload_has_no_part_in_the_mean() -> None:
    """The mean is over what a peer ran; what it did not run stands beside it."""
    peer = standing("a_peer|too", results()["makespans"])
    assert (1, 12.5, 12.5) == (peer.ran, peer.mean and round(peer.mean, 6), peer.worst)
    assert ["chains"] == list(peer.failed)


def test_the_screen_is_wide_enough() -> None:
    """No line is wider than 120 columns, also with many workloads and long reasons."""
    many = results()
    one = many["makespans"]["chains"]
    one["peers"]["a_peer|too"]["failed"] = "Error: " + "long " * 60
    many["makespans"] = {f"a workload with a name {number}": one for number in range(15)}
    assert WIDTH >= max(map(len, report(many).splitlines()))


def test_the_page_shows_the_charts_that_there_are() -> None:
    """A chart is on the page if the results have what it draws."""
    shown = re.findall(r"\(performance/(\w+)\.png\)", page(results()))
    assert ["ratios", "calls", "plans", "adaptive"] == shown == list(pictures(results()))
    assert {} == pictures({})


def test_the_page_is_made_from_the_results() -> None:
    """The committed page is what the committed results give, with the charts that it shows."""
    assert RESULTS.exists() == PAGE.exists()
    for file in [RESULTS] if RESULTS.exists() else []:
        kept = json.loads(file.read_text(encoding="utf-8"))
        assert PAGE.read_text(encoding="utf-8") == page(kept)
        charts = {f"{name}.png" for name in pictures(kept)}
        assert charts == {path.name for path in Path(PAGE.parent, "performance").iterdir()}
