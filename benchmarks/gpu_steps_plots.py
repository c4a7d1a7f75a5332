"""Plots of the scaling that gpu_steps.py measured, as SVG: the same file for the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_steps_tables import device_count, rate, unit_ms

Row = dict[str, Any]
Curve = dict[int, float]

NAMES = {"bfs": "BFS", "pagerank": "PageRank, an iteration"}
KINDS = ("strong", "weak in vertices", "weak in edges")


def curves(rows: Sequence[Row], kind: str, value: Any) -> dict[str, Curve]:
    """By algorithm: a value over the number of GPUs. Endpoints that share a GPU are left out."""
    found: dict[str, Curve] = {}
    for row in rows:
        is_one = row["section"] == "scaling" and row["name"] == kind and "note" not in row
        if is_one and "+" not in row["devices"]:
            found.setdefault(row["algorithm"], {})[device_count(row)] = value(row)
    return found


def draw(rows: Sequence[Row], folder: str) -> list[Path]:
    """Strong scaling as time, weak as rate over that of one GPU.

    :returns: the files written: none where no scaling was measured
    """
    import matplotlib
    from matplotlib.figure import Figure

    paths: list[Path] = []
    style = {"svg.hashsalt": "godwit", "svg.fonttype": "none"}
    with matplotlib.rc_context(style):
        for name, kinds, value in (
            ("scaling-strong", KINDS[:1], unit_ms),
            ("scaling-weak", KINDS[1:], rate),
        ):
            panels = [(kind, curves(rows, kind, value)) for kind in kinds]
            panels = [(kind, found) for kind, found in panels if found]
            if not panels:
                continue
            figure = Figure(figsize=(4.8 * len(panels), 3.8), layout="constrained")
            for place, (kind, found) in enumerate(panels):
                axes = figure.add_subplot(1, len(panels), place + 1)
                _draw_panel(axes, kind, found)
            path = Path(folder) / f"{name}.svg"
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, format="svg", metadata={"Date": None})
            paths.append(path)
    return paths


def _draw_panel(axes: Any, kind: str, found: dict[str, Curve]) -> None:
    is_strong = kind == "strong"
    counts = sorted({count for curve in found.values() for count in curve})
    for number, (algorithm, curve) in enumerate(found.items()):
        places = sorted(curve)
        one = curve.get(1)
        if not is_strong and one is None:
            continue
        values = [curve[count] if is_strong else curve[count] / (one or 1) for count in places]
        axes.plot(places, values, marker="o", color=f"C{number}", label=NAMES[algorithm])
        if is_strong and one is not None:
            ideal = [one / count for count in counts]
            axes.plot(counts, ideal, linestyle=":", color=f"C{number}", linewidth=1)
    if not is_strong:
        axes.plot(counts, counts, linestyle=":", color="gray", linewidth=1, label="as many times")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=10 if is_strong else 2)
    axes.set_xticks(counts, [str(count) for count in counts])
    if not is_strong:
        axes.set_yticks(counts)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("GPUs")
    axes.set_ylabel("ms (dotted: ideal)" if is_strong else "rate over that of 1 GPU")
    axes.set_title("Strong scaling, rmat24" if is_strong else kind.capitalize())
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
