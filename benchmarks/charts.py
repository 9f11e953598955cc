"""The results as charts. The same results give the same files, whatever machine draws them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log10
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from benchmarks.pictures import pictures, series
from benchmarks.standings import Results, standings
from benchmarks.tables import cost, ratio
from benchmarks.targets import MANY, ONE, PEER

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "performance"
COLORS = 64
OURS, OTHERS = "#1f77b4", "#b0b0b0"


def draw(results: Results, folder: Path = FOLDER) -> list[Path]:
    """Draw all charts that there are results for; where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    with mpl.rc_context({**mpl.rcParamsDefault, "font.size": 8, "figure.dpi": 110}):
        for name in pictures(results):
            path = folder / f"{name}.png"
            save(CHARTS[name](results), path)
            drawn.append(path)
    return drawn


def save(figure: Figure, path: Path) -> None:
    """Write it small: few colours, and nothing that says who wrote it."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture.quantize(COLORS).save(path, optimize=True)


def ratios(results: Results) -> Figure:
    """A square for each peer and workload, the darker the further from the bound."""
    workloads = results["makespans"]
    peers = [one.peer for one in standings(results)]
    figure = Figure(
        figsize=(2.2 + 0.52 * len(workloads), 1.7 + 0.26 * len(peers)), layout="constrained"
    )
    axes = figure.add_subplot()
    for column, each in enumerate(workloads.values()):
        for row, peer in enumerate(peers):
            if peer in each["peers"]:
                _square(axes, column, row, each["peers"][peer])
    axes.set_xlim(-0.5, len(workloads) - 0.5)
    axes.set_ylim(len(peers) - 0.5, -0.5)
    axes.set_xticks(range(len(workloads)), workloads, rotation=40, ha="right")
    axes.set_yticks(range(len(peers)), peers)
    axes.set_title("makespan / lower bound; grey and hatched: broke the rules", fontsize=9)
    return figure


def _square(axes: Axes, column: int, row: int, found: Mapping[str, Any]) -> None:
    value = found["ratio"]
    is_valid = value is not None and not any(found["violations"].values())
    far = min(1.0, max(0.0, log10(value))) if is_valid else 0.0
    square = Rectangle((column - 0.5, row - 0.5), 1, 1, linewidth=0)
    square.set_facecolor(mpl.colormaps["YlOrRd"](0.75 * far) if is_valid else "#ececec")
    if not is_valid and value is not None:
        square.set(hatch="////", edgecolor="#c4c4c4")
    axes.add_patch(square)
    shown = "failed" if found["failed"] else ratio(value)
    axes.text(column, row, shown, ha="center", va="center", fontsize=7)


def calls(results: Results) -> Figure:
    """What a call costs that does nothing, one alone and one of a thousand."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    measured = [(name, results["costs"].get(name) or {}) for name in (ONE, MANY)]
    for place, (name, ways) in enumerate(measured, 1):
        axes = figure.add_subplot(1, 2, place)
        known = {way: found for way, found in ways.items() if found is not None}
        order = sorted(known, key=lambda way: (-known[way], way))
        costs = [known[way] for way in order]
        colors = [OURS if way.startswith(PEER) else OTHERS for way in order]
        bars = axes.barh(order, costs, color=colors)
        shown = [cost(results["costs"], name, way) for way in order]
        axes.bar_label(bars, shown, padding=2)
        axes.set_xscale("log")
        axes.margins(x=0.2)
        axes.set_title(f"{name}: µs a call", fontsize=9)
    return figure


def plans(results: Results) -> Figure:
    """What planning costs a call over the size of the turn; level is linear."""
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    for shape, sizes in results["costs"]["plan"].items():
        by_size = sorted((int(size), cost) for size, cost in sizes.items())
        axes.plot(*zip(*by_size, strict=True), marker="o", markersize=3, label=shape)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("calls in the turn")
    axes.set_ylabel("µs a call")
    axes.set_title("planning", fontsize=9)
    axes.legend()
    return figure


def adaptive(results: Results) -> Figure:
    """The limit, and the capacity that it cannot see."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for name, points in series(results).items():
        axes.step(*zip(*points, strict=True), where="post", label=name)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_title("the adaptive limit and the server's hidden capacity", fontsize=9)
    axes.legend()
    return figure


CHARTS: Mapping[str, Callable[[Results], Figure]] = {
    "ratios": ratios,
    "calls": calls,
    "plans": plans,
    "adaptive": adaptive,
}
