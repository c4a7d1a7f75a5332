"""The two plots of docs/performance.md, drawn from the tables of that page.

python benchmarks/performance_plots.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
STYLE = {
    "svg.hashsalt": "godwit",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLOURS = {
    "Godwit": "#d62728", "cuGraph": "#76b900", "Gunrock": "#1f77b4", "Groute": "#7f7f7f",
    "SciPy": "#1f77b4", "networkit": "#2ca02c", "igraph": "#9467bd", "GAP": "#ff7f0e",
}  # fmt: skip


def table_of(heading: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the first table below a heading of the page."""
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = section[section.index("\n|") + 1 :].split("\n\n")[0]
    lines = re.findall(r"^\|(.*)\|$", table, re.M)
    header, _, *rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    return header, rows


def draw(heading: str, path: Path, label: str, reference: float | None = None) -> None:
    """Draw a dot for each number of a table, a line for each of its rows, on a logarithmic axis."""
    import matplotlib
    from matplotlib.figure import Figure

    header, rows = table_of(heading)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 0.6 + 0.27 * len(rows)), layout="constrained")
        axes: Any = figure.subplots()
        for column in range(2, len(header)):
            numbers = [(place, row[column]) for place, row in enumerate(rows) if row[column]]
            axes.plot(
                [float(number) for _, number in numbers],
                [place for place, _ in numbers],
                "D" if header[column] == "Godwit" else "o",
                color=COLOURS[header[column]],
                label=header[column],
                zorder=3 if header[column] == "Godwit" else 2,
            )
        if reference is not None:
            axes.axvline(reference, color=COLOURS["Godwit"], linestyle="--", linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:,g}"))
        axes.set_yticks(range(len(rows)), [f"{row[0].split(',')[0]}, {row[1]}" for row in rows])
        axes.invert_yaxis()
        axes.grid(axis="y", color="0.9")
        axes.grid(axis="x", color="0.95")
        axes.set_axisbelow(True)
        axes.set_xlabel(label)
        figure.legend(loc="outside upper center", ncols=len(header), frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> None:
    """Draw both plots."""
    draw(
        "Beside other libraries for GPUs",
        DOCS / "images" / "performance-gpu.svg",
        "milliseconds on one GPU (further left is faster)",
    )
    draw(
        "Beside other libraries for CPUs",
        DOCS / "images" / "performance-cpu.svg",
        "time over that of Godwit (dashed line), on two cores",
        reference=1.0,
    )


if __name__ == "__main__":
    main()
