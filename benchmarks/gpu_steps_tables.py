"""The tables of gpu_steps.py, in aligned Markdown, and its plots; from what was measured.

    python benchmarks/gpu_steps_tables.py steps.json [--plot FOLDER]

Floors are bytes that must move over 4.0 TB/s, the memory bandwidth that an H200 reaches, times the GPUs:

- BFS: 4 a vertex to fill depths, 4 a reached vertex for its depth, 4 for an arc of each vertex that has any
  (no search can do with less than one), and bits of all vertices, which every GPU clears twice (two
  bitmaps) and receives once and whose owner reads them once;
- PageRank, an iteration: ids of the arcs; for each vertex with arcs 8 of offset and twice its rank;
- betweenness, a source: ids of the arcs reached, forth and back; for each vertex reached 2 x 8 of offset,
  4 of depth, 8 of paths, 8 of dependency.

Random reads that caches may serve, and links between GPUs, are not in them. A search costs at least its
supersteps, too: their number times what one takes that does hardly anything (section overhead, where
measured).

GTEPS is Graph500's: undirected edges of the component reached over the time of the search (without
parallel edges, which are merged here and Graph500 counts).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from gpu_ablation_tables import pivot, table
from gpu_steps_plans import SUPERSTEPS, device_names

Row = dict[str, Any]

BYTES_A_MS = 4.0e9
TARGETS = {
    ("overhead", "path", "1"): ("4", "2"),
    ("overhead", "path", "4"): ("8", "5"),
    ("bfs", "rmat22", "1"): ("0.8", "0.25"),
    ("bfs", "rmat24", "1"): ("1.9", "0.6"),
    ("bfs", "rmat24", "4"): ("1.4", "0.3"),
    ("bfs", "rmat26", "1"): ("7", "-"),
    ("bfs", "rmat26", "4"): ("1/2 of 1 GPU", "2.5"),
    ("pagerank", "rmat24", "1"): ("3.5", "2.4"),
    ("pagerank", "rmat24", "4"): ("1.2", "0.7"),
    ("pagerank", "road4900", "1"): ("0.4", "0.2"),
    ("pagerank", "road4900", "4"): ("0.2", "0.06"),
    ("betweenness", "rmat24", "1"): ("60", "15"),
    ("betweenness", "rmat24", "4"): ("30", "6"),
}
"""What must be reached, and the goal."""

CUGRAPH = {
    ("bfs", "rmat22", "1"): "1.23", ("bfs", "rmat22", "2"): "8.2", ("bfs", "rmat22", "4"): "9.1",
    ("bfs", "rmat24", "1"): "1.98", ("bfs", "rmat24", "2"): "9.3", ("bfs", "rmat24", "4"): "10.2",
    ("bfs", "road4900", "1"): "1,085", ("bfs", "road4900", "4"): "6,037",
    ("pagerank", "rmat22", "1"): "1.07", ("pagerank", "rmat22", "2"): "0.99",
    ("pagerank", "rmat22", "4"): "0.78",
    ("pagerank", "rmat24", "1"): "3.90", ("pagerank", "rmat24", "2"): "2.53",
    ("pagerank", "rmat24", "4"): "1.87",
    ("pagerank", "road4900", "1"): "0.61", ("pagerank", "road4900", "4"): "1.44",
    ("betweenness", "rmat22", "1"): "34 (NaN)", ("betweenness", "rmat24", "1"): "140 (NaN)",
}  # fmt: skip
"""Milliseconds of cuGraph 26.10, from the peers' page of the project's design: BFS direction-optimizing
where graphs are R-MAT, on one GPU its C++ algorithm alone; an iteration of PageRank; one source."""


def device_count(row: Row) -> int:
    return len(set(device_names(row["devices"])))


def bfs_floor_ms(row: Row) -> float:
    n, count = row["vertices"], device_count(row)
    owned = 4 * n + 4 * row["reached"] + 4 * row["with_arcs"] + n / 8
    everywhere = 3 * n / 8
    return float(owned / count + everywhere) / BYTES_A_MS


def _id_bytes(row: Row) -> int:
    return 8 if row.get("position_dtype") == "int64" else 4


def pagerank_floor_ms(row: Row) -> float:
    rank_bytes = 4 if row["dtype"] == "float32" else 8
    moved = _id_bytes(row) * row["arcs"] + (8 + 2 * rank_bytes) * row["with_arcs"]
    return float(moved / device_count(row)) / BYTES_A_MS


def betweenness_floor_ms(row: Row) -> float:
    moved = 2 * _id_bytes(row) * 2 * row["edges_reached"] + (2 * 8 + 4 + 8 + 8) * row["reached"]
    return float(row["sources"] * moved / device_count(row)) / BYTES_A_MS


def unit_ms(row: Row) -> float:
    """Of an iteration, where there are some; else of the query."""
    return float(row["kernel_ms"]) / (row["iterations"] or 1)


def rate(row: Row) -> float:
    """Billions a second: of edges of the component in a search, of arcs in an iteration."""
    work = row["edges_reached"] if row["algorithm"] == "bfs" else row["arcs"]
    return float(work) / unit_ms(row) / 1e6


def _key(row: Row) -> tuple[str, str, str]:
    section = "overhead" if row["section"] == "overhead" else row["algorithm"]
    return section, row["graph"], row["devices"]


def _against(row: Row) -> list[str]:
    """What must be, the goal, and cuGraph."""
    return [*TARGETS.get(_key(row), ("-", "-")), CUGRAPH.get(_key(row), "-")]


def _ms(value: float) -> str:
    return f"{value:,.3f}" if value < 10 else f"{value:,.1f}"


def _spread(row: Row) -> str:
    per = row["iterations"] or 1
    return " to ".join(_ms(value / per) for value in row["quartiles_ms"])


def _lines(
    rows: Sequence[Row], names: Callable[[Row], list[str]], cells: Callable[[Row], list[str]],
    width: int,
) -> list[list[str]]:  # fmt: skip
    """A line a row; a note where nothing was measured."""
    lines = []
    for row in rows:
        start = names(row)
        rest = [row["note"]] if "note" in row else cells(row)
        lines.append([*start, *rest, *["-"] * (width - len(start) - len(rest))])
    return lines


def overhead_us(row: Row) -> float:
    return 1e3 * float(row["kernel_ms"]) / max(1, int(row["rounds"]))


def overhead(rows: Sequence[Row], every: Sequence[Row]) -> str:
    header = ["", "GPUs", "µs a level", "must", "goal", "supersteps a level", "µs a superstep"]

    def cells(row: Row) -> list[str]:
        levels = max(1, row["levels"] or row["depth"])
        each = 1e3 * row["kernel_ms"] / levels
        return [f"{each:.2f}", *_against(row)[:2], f"{row['rounds'] / levels:.2f}",
                f"{overhead_us(row):.2f}"]  # fmt: skip

    lines = _lines(rows, lambda row: [row["name"], row["devices"]], cells, len(header))
    return table("A level that processes one vertex", header, lines)


def bfs(rows: Sequence[Row], every: Sequence[Row]) -> str:
    least_us = {
        row["devices"]: overhead_us(row)
        for row in every
        if row["section"] == "overhead" and row["name"] == "nothing sent" and "note" not in row
    }
    header = ["graph", "GPUs", "must", "goal", "cuGraph", "ms", "quartiles", "GTEPS", "floor",
              "levels", "supersteps", "these, at least", "rest", "query"]  # fmt: skip

    def cells(row: Row) -> list[str]:
        floor = bfs_floor_ms(row)
        least = row["rounds"] * least_us.get(row["devices"], float("nan")) / 1e3
        return [*_against(row), _ms(row["kernel_ms"]), _spread(row), f"{rate(row):.1f}",
                _ms(floor), f"{row['levels'] or row['depth']:,}", f"{row['rounds']:,}", _ms(least),
                _ms(row["kernel_ms"] - floor - least), _ms(row["query_ms"])]  # fmt: skip

    lines = _lines(rows, lambda row: [row["graph"], row["devices"]], cells, len(header))
    return table("BFS in supersteps: kernel ms", header, lines)


def auto(rows: Sequence[Row], every: Sequence[Row]) -> str:
    by_query: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        by_query.setdefault((row["graph"], row["devices"]), {})[row["name"]] = row
    header = ["graph", "GPUs", "asynchronous", SUPERSTEPS, "auto", "auto took", "auto / better",
              "query, auto / better"]  # fmt: skip
    lines = []
    for (graph, devices), found in by_query.items():
        there = {name: row for name, row in found.items() if "note" not in row}
        shown = [
            _ms(there[name]["kernel_ms"]) if name in there else found.get(name, {}).get("note", "-")
            for name in ("asynchronous", SUPERSTEPS, "auto")
        ]
        ratios = [_ratio(there, what) for what in ("kernel_ms", "query_ms")]
        took = there["auto"]["solver"] if "auto" in there else "-"
        lines.append([graph, devices, *shown, took, *ratios])
    return table("Which solver auto takes: kernel ms", header, lines)


def _ratio(there: dict[str, Row], what: str) -> str:
    others = [row[what] for name, row in there.items() if name != "auto"]
    return f"{there['auto'][what] / min(others):.2f}" if "auto" in there and others else "-"


def pagerank(rows: Sequence[Row], every: Sequence[Row]) -> str:
    header = ["graph", "ranks", "GPUs", "must", "goal", "cuGraph", "ms", "quartiles", "floor",
              "G arcs/s", "query"]  # fmt: skip

    def cells(row: Row) -> list[str]:
        return [*_against(row), _ms(unit_ms(row)), _spread(row), _ms(pagerank_floor_ms(row)),
                f"{rate(row):.1f}", f"{_ms(row['query_ms'])} of {row['iterations']}"]  # fmt: skip

    lines = _lines(
        rows, lambda row: [row["graph"], row["dtype"], row["devices"]], cells, len(header)
    )
    return table("PageRank: kernel ms an iteration", header, lines)


def betweenness(rows: Sequence[Row], every: Sequence[Row]) -> str:
    header = ["graph", "sources", "GPUs", "must", "goal", "cuGraph", "ms", "quartiles", "floor",
              "ms a source", "query"]  # fmt: skip

    def cells(row: Row) -> list[str]:
        return [*_against(row), _ms(row["kernel_ms"]), _spread(row),
                _ms(betweenness_floor_ms(row)), _ms(row["kernel_ms"] / row["sources"]),
                _ms(row["query_ms"])]  # fmt: skip

    lines = _lines(
        rows, lambda row: [row["graph"], str(row["sources"]), row["devices"]], cells, len(header)
    )
    return table("Betweenness: kernel ms", header, lines)


def scaling(rows: Sequence[Row], every: Sequence[Row]) -> str:
    header = ["", "", "GPUs", "graph", "ms", "G edges/s or arcs/s", "over 1 GPU", "a GPU keeps"]
    alone = {
        (row["name"], row["algorithm"]): rate(row)
        for row in rows
        if "note" not in row and row["devices"] in ("1", "cpu")
    }

    def cells(row: Row) -> list[str]:
        found = [_ms(unit_ms(row)), f"{rate(row):.1f}"]
        if (row["name"], row["algorithm"]) in alone:
            over = rate(row) / alone[row["name"], row["algorithm"]]
            found += [f"{over:.2f}", f"{100 * over / device_count(row):.0f} %"]
        return found

    def names(row: Row) -> list[str]:
        return [row["name"], row["algorithm"], row["devices"], row["graph"]]

    return table("Scaling: kernel ms, of PageRank an iteration", header,
                 _lines(rows, names, cells, len(header)))  # fmt: skip


def ids(rows: Sequence[Row], every: Sequence[Row]) -> str:
    index = {
        "graph": lambda row: row["graph"],
        "": lambda row: row["algorithm"],
        "GPUs": lambda row: row["devices"],
    }
    return pivot("Ids of 32 and 64 bits: kernel ms (positions in kernels)", rows, index,
                 lambda row: f"{_ms(unit_ms(row))} ({row.get('position_dtype', '-')})")  # fmt: skip


def wide(rows: Sequence[Row], every: Sequence[Row]) -> str:
    header = ["graph", "arcs", "", "GPUs", "ms", "G edges/s or arcs/s", "query"]

    def names(row: Row) -> list[str]:
        return [row["graph"], f"{row.get('arcs', 0):,}", row["algorithm"], row["devices"]]

    def cells(row: Row) -> list[str]:
        return [_ms(unit_ms(row)), f"{rate(row):.1f}", _ms(row["query_ms"])]

    lines = _lines(rows, names, cells, len(header))
    return table("Arcs beyond 2^32: kernel ms, of PageRank an iteration", header, lines)


TABLES: dict[str, Callable[[Sequence[Row], Sequence[Row]], str]] = {
    "overhead": overhead,
    "bfs": bfs,
    "auto": auto,
    "pagerank": pagerank,
    "betweenness": betweenness,
    "scaling": scaling,
    "ids": ids,
    "wide": wide,
}


def show(rows: Sequence[Row], plot: str | None) -> None:
    """Print the tables of the sections that are there; draw if there is a folder to draw into."""
    for section in dict.fromkeys(row["section"] for row in rows):
        some = [row for row in rows if row["section"] == section]
        print(f"\n{TABLES[section](some, rows)}", flush=True)
    if plot:
        from gpu_steps_plots import draw

        try:
            for path in draw(rows, plot):
                print(f"\nwrote {path}")
        except ImportError as error:
            print(f"\nno plots: {error}; gpu_steps_tables.py draws them later, elsewhere")


def main() -> None:
    """Tables of a file that gpu_steps.py wrote."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("json", help="file that gpu_steps.py wrote")
    parser.add_argument("--plot", help="folder for plots of the scaling, as SVG (Matplotlib)")
    arguments = parser.parse_args()
    with open(arguments.json) as file:
        show(json.load(file)["rows"], arguments.plot)


if __name__ == "__main__":
    main()
