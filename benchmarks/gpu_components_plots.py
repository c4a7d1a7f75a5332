"""Plots of what gpu_components.py measured, as SVG: the same file for the same figures.

*components-rounds.svg*: how fast hooks and Rem's algorithm are after so many rounds without atomics, in
percent of their best, a line a graph (the thesis' figures 6.4 and 6.5). *components-methods.svg*: the time
of each method at its best on one device, over that of Rem's algorithm. *components-scaling.svg*: speed-up
and weak efficiency. Devices that share a GPU are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_components_plans import AFFOREST, AUTO, HOOK, REM
from gpu_components_tables import best, device_count, grouped, measured, ms

Row = dict[str, Any]

STYLE: Any = {"svg.hashsalt": "godwit", "svg.fonttype": "none", "font.size": 9}
PANEL_INCHES = (3.8, 3.2)
METHOD_NAMES = {HOOK: "hook", REM: "Rem", AFFOREST: "Afforest", AUTO: "auto"}
MARKS = "os^Dv*P"


def of_section(rows: Sequence[Row], section: str) -> list[Row]:
    """What was measured there on devices of which none is named twice."""
    return [
        row for row in measured(rows) if row["section"] == section and "+" not in row["devices"]
    ]


def draw(rows: Sequence[Row], folder: str) -> list[Path]:
    """Draw what there is.

    :returns: the files written
    """
    import matplotlib

    written = []
    with matplotlib.rc_context(STYLE):
        for name, make in (
            ("rounds", draw_rounds),
            ("methods", draw_methods),
            ("scaling", draw_scaling),
        ):
            figure = make(rows)
            if figure is not None:
                path = Path(folder) / f"components-{name}.svg"
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, format="svg", metadata={"Date": None})
                written.append(path)
    return written


def _panels(count: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * count, height), layout="constrained")
    return figure, figure.subplots(1, count, squeeze=False)[0]


def _legend(figure: Any, axes: Any) -> None:
    """Beside the panels, for all of them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)


def draw_rounds(rows: Sequence[Row]) -> Any:
    """Percent of the best, by rounds."""
    found = of_section(rows, "rounds")
    methods = [one for one in (HOOK, REM) if any(row["method"] == one for row in found)]
    if not methods:
        return None
    figure, every = _panels(len(methods))
    names = list(dict.fromkeys(row["graph"] for row in found))
    for axes, method in zip(every, methods, strict=True):
        some = [row for row in found if row["method"] == method]
        for (graph,), group in grouped(some, "graph").items():
            least = min(row["kernel_ms"] for row in group)
            curve = sorted((row["rounds"], 100 * least / row["kernel_ms"]) for row in group)
            number = names.index(graph)
            axes.plot(*zip(*curve, strict=True), marker=MARKS[number % len(MARKS)], markersize=4,
                      color=f"C{number}", label=graph)  # fmt: skip
        axes.set_title(METHOD_NAMES[method], fontsize="medium")
        axes.set_xlabel("rounds without atomics")
        axes.set_xticks(sorted({row["rounds"] for row in some}))
        axes.set_ylim(0, 105)
        axes.grid(alpha=0.25)
    every[0].set_ylabel("speed, % of the best")
    _legend(figure, every[0])
    return figure


def draw_methods(rows: Sequence[Row]) -> Any:
    """Bars: time over that of Rem's algorithm, on one device."""
    found = [row for row in of_section(rows, "runtime") if device_count(row) == 1]
    groups = {
        graph: group for (graph,), group in grouped(found, "graph").items() if best(group, REM)
    }
    if not groups:
        return None
    figure, (axes,) = _panels(1)
    figure.set_size_inches(PANEL_INCHES[0] * 1.9, PANEL_INCHES[1])
    others = [method for method in METHOD_NAMES if method != REM]
    width = 0.8 / len(others)
    for number, method in enumerate(others):
        bars = [
            (place + (number - (len(others) - 1) / 2) * width, row["kernel_ms"] / rem["kernel_ms"])
            for place, group in enumerate(groups.values())
            if (row := best(group, method)) and (rem := best(group, REM))
        ]
        heights = [height - 1 for _, height in bars]
        axes.bar([x for x, _ in bars], heights, width, bottom=1, color=f"C{number}",
                 label=METHOD_NAMES[method])  # fmt: skip
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("time over that of Rem's algorithm")
    names = [f"{graph}\n{ms(best(group, REM))} ms" for graph, group in groups.items()]
    axes.set_xticks(range(len(groups)), names, fontsize="small")
    axes.grid(axis="y", alpha=0.25)
    axes.set_title("One device, each method at its best; below, Rem's algorithm", fontsize="medium")
    _legend(figure, axes)
    return figure


def draw_scaling(rows: Sequence[Row]) -> Any:
    """Speed-up by what auto takes and by Rem's algorithm, and weak efficiency."""
    found = of_section(rows, "strong")
    panels = [
        (f"Speed-up, {METHOD_NAMES[name]}", curves)
        for name in (REM, AUTO)
        if (curves := speed_ups([row for row in found if row["name"] == name]))
    ]
    loose = efficiencies(of_section(rows, "weak"))
    if not panels and not loose:
        return None
    figure, every = _panels(len(panels) + bool(loose))
    for axes, (title, curves) in zip(every, panels, strict=False):
        counts = sorted({count for curve in curves.values() for count in curve})
        axes.plot(counts, counts, linestyle=":", color="gray", linewidth=1, label="ideal")
        _draw_curves(axes, title, curves, counts)
    if loose:
        counts = sorted({count for curve in loose.values() for count in curve})
        _draw_curves(every[-1], "Weak scaling: efficiency, %", loose, counts)
        every[-1].set_ylim(0, max(105.0, every[-1].get_ylim()[1]))
        every[-1].legend(frameon=False)
    if panels:
        every[0].legend(frameon=False, fontsize="small")
    return figure


def _draw_curves(
    axes: Any, title: str, curves: dict[str, dict[int, float]], counts: list[int]
) -> None:
    for number, (name, curve) in enumerate(curves.items()):
        axes.plot(sorted(curve), [curve[count] for count in sorted(curve)],
                  marker=MARKS[number % len(MARKS)], markersize=4, color=f"C{number}",
                  label=METHOD_NAMES.get(name, name))  # fmt: skip
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("GPUs")
    axes.set_xticks(counts)
    axes.grid(alpha=0.25)


def speed_ups(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """By graph and number of devices: the time on one over that on so many; where there are several."""
    found = {}
    for (graph,), group in grouped(rows, "graph").items():
        times = {device_count(row): row["kernel_ms"] for row in group}
        if 1 in times and len(times) > 1:
            found[graph] = {count: times[1] / time for count, time in times.items()}
    return found


def efficiencies(rows: Sequence[Row]) -> dict[str, dict[int, float]]:
    """By method and number of devices, in percent: of as many copies as devices."""
    found = {}
    for (name,), group in grouped(rows, "name").items():
        times = {device_count(row): row["kernel_ms"] for row in group}
        if 1 in times and len(times) > 1:
            found[name] = {count: 100 * times[1] / time for count, time in times.items()}
    return found
