"""A plot of the scaling that gpu_steps.py measured, as SVG: the same file for the same figures.

A panel for each kind of scaling, all with the same axes: the rate on so many GPUs over that on one. Where
as many GPUs are as many times as fast, points lie on the dotted line; beside them stands the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_steps_floors import device_count, rate, unit_ms

Row = dict[str, Any]
Curve = dict[int, Row]
"""A row for each number of GPUs."""

NAMES = {"bfs": "BFS", "pagerank": "PageRank, an iteration"}
KINDS = ("strong", "weak in vertices", "weak in edges")
STYLE = {"svg.hashsalt": "godwit", "svg.fonttype": "none", "font.size": 9}
PANEL_INCHES = (3.5, 3.4)


def curves(rows: Sequence[Row], kind: str) -> dict[str, Curve]:
    """By algorithm, where there is something to compare. Endpoints that share a GPU are left out."""
    found: dict[str, Curve] = {}
    for row in rows:
        is_one = row["section"] == "scaling" and row["name"] == kind and "note" not in row
        if is_one and "+" not in row["devices"] and row["devices"] != "cpu":
            found.setdefault(row["algorithm"], {})[device_count(row)] = row
    return {name: curve for name, curve in found.items() if 1 in curve and len(curve) > 1}


def draw(rows: Sequence[Row], folder: str) -> list[Path]:
    """Draw what there is.

    :returns: the files written: none where no scaling was measured
    """
    import matplotlib
    from matplotlib.figure import Figure

    panels = [(kind, found) for kind in KINDS if (found := curves(rows, kind))]
    if not panels:
        return []
    counts = sorted({count for _, found in panels for curve in found.values() for count in curve})
    path = Path(folder) / "scaling.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        width, height = PANEL_INCHES
        figure = Figure(figsize=(width * len(panels), height), layout="constrained")
        every = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (kind, found) in zip(every, panels, strict=True):
            _draw_panel(axes, kind, found, counts)
        every[0].set_ylabel("rate over that of 1 GPU")
        every[0].legend(loc="upper left", frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return [path]


def _draw_panel(axes: Any, kind: str, found: dict[str, Curve], counts: list[int]) -> None:
    axes.plot(
        counts, counts, linestyle=":", color="gray", linewidth=1, label="as many times as fast"
    )
    for number, (algorithm, curve) in enumerate(found.items()):
        places = sorted(curve)
        values = [rate(curve[count]) / rate(curve[1]) for count in places]
        axes.plot(
            places, values, marker="o", markersize=4, color=f"C{number}", label=NAMES[algorithm]
        )
    for count in counts:
        _write_times(axes, found, count)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_yticks([0.5, *counts])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlim(counts[0] / 1.3, counts[-1] * 1.3)
    axes.set_ylim(0.4, counts[-1] * 1.5)
    axes.set_xlabel("GPUs")
    longest = max(found.values(), key=len)
    graphs = dict.fromkeys(longest[count]["graph"] for count in sorted(longest))
    name, _, what = kind.partition(" ")
    axes.set_title(f"{name.capitalize()} scaling {what}\n{', '.join(graphs)}", fontsize="medium")
    axes.grid(alpha=0.25)


def _write_times(axes: Any, found: dict[str, Curve], count: int) -> None:
    """Times on so many GPUs: the fastest above its point, the others below; on one GPU, all below."""
    there = [name for name in found if count in found[name]]
    there.sort(key=lambda name: -rate(found[name][count]) / rate(found[name][1]))
    for rank, name in enumerate(there):
        row, is_above = found[name][count], rank == 0 and count > 1 and len(there) > 1
        axes.annotate(
            f"{unit_ms(row):.3g} ms",
            (count, rate(row) / rate(found[name][1])),
            (0, 6 if is_above else -14 - 10 * rank * (count == 1)),
            textcoords="offset points",
            ha="center",
            color=f"C{list(found).index(name)}",
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )
