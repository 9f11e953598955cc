"""Which charts there are for these results. Pure, so that the page needs nothing that draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.standings import Results
from benchmarks.targets import ONE

Points = list[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart: what it shows, and what of the results it needs."""

    about: str
    needs: Callable[[Results], Any]


def series(results: Results) -> dict[str, Points]:
    """What is known over time of the adaptive limit: pairs of seconds and a number, by name."""
    return {
        name: points
        for name, points in (results.get("adaptive") or {}).items()
        if isinstance(points, list) and points and isinstance(points[0], list)
    }


def _cost(name: str) -> Callable[[Results], Any]:
    return lambda results: (results.get("costs") or {}).get(name)


PICTURES: Mapping[str, Picture] = {
    "ratios": Picture(
        about="Makespan against the lower bound, by peer and workload",
        needs=lambda results: results.get("makespans"),
    ),
    "calls": Picture(about="What a call costs that does nothing", needs=_cost(ONE)),
    "plans": Picture(
        about="What planning costs a call, by the size of the turn", needs=_cost("plan")
    ),
    "adaptive": Picture(about="The adaptive limit and the hidden capacity", needs=series),
}


def pictures(results: Results) -> dict[str, Picture]:
    """Those that can be drawn."""
    return {name: one for name, one in PICTURES.items() if one.needs(results)}
