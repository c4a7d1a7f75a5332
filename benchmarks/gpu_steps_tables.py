"""The tables of gpu_steps.py, in aligned Markdown, and its plots; from what was measured.

    python benchmarks/gpu_steps_tables.py steps1.json [steps2.json ...] [--plot FOLDER]

Floors, targets and the figures of other systems: gpu_steps_floors.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from gpu_ablation_tables import pivot, table
from gpu_steps_floors import (
    CUGRAPH,
    TARGETS,
    betweenness_floor_ms,
    bfs_floor_ms,
    device_count,
    pagerank_floor_ms,
    peers,
    rate,
    unit_ms,
)
from gpu_steps_plans import DIRECT, RANKS_TO, SUPERSTEPS, TREE

Row = dict[str, Any]


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
    return table("Which engine auto takes: kernel ms", header, lines)


def _ratio(there: dict[str, Row], what: str) -> str:
    others = [row[what] for name, row in there.items() if name != "auto"]
    return f"{there['auto'][what] / min(others):.2f}" if "auto" in there and others else "-"


def pagerank(rows: Sequence[Row], every: Sequence[Row]) -> str:
    header = ["graph", "ranks", "GPUs", "must", "goal", "cuGraph", "ms", "quartiles", "floor",
              "G arcs/s", "query"]  # fmt: skip

    def cells(row: Row) -> list[str]:
        return [*_against(row), _ms(unit_ms(row)), _spread(row), _ms(pagerank_floor_ms(row)),
                f"{rate(row):.1f}", f"{_ms(row['query_ms'])} of {row['iterations']}"]  # fmt: skip

    each = [row for row in rows if row["algorithm"] not in RANKS_TO]
    lines = _lines(
        each, lambda row: [row["graph"], row["dtype"], row["devices"]], cells, len(header)
    )
    found = table("PageRank: kernel ms an iteration", header, lines)
    whole = [row for row in rows if row["algorithm"] in RANKS_TO]
    return f"{found}\n\n{_whole_ranks(whole)}" if whole else found


def _whole_ranks(rows: Sequence[Row]) -> str:
    header = ["graph", "", "GPUs", "iterations", "ms", "quartiles", "query"]

    def cells(row: Row) -> list[str]:
        spread = " to ".join(_ms(value) for value in row["quartiles_ms"])
        return [str(row["iterations"]), _ms(row["kernel_ms"]), spread, _ms(row["query_ms"])]

    lines = _lines(
        rows, lambda row: [row["graph"], row["name"], row["devices"]], cells, len(header)
    )
    return table("PageRank until it has converged, float32: kernel ms", header, lines)


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
    header = ["graph", "arcs", "", "GPUs", "ms", "G edges/s or arcs/s", "query", "checked"]

    def names(row: Row) -> list[str]:
        return [row["graph"], f"{row.get('arcs', 0):,}", row["algorithm"], row["devices"]]

    def cells(row: Row) -> list[str]:
        return [_ms(unit_ms(row)), f"{rate(row):.1f}", _ms(row["query_ms"]),
                "no" if row["unchecked"] else "yes"]  # fmt: skip

    lines = _lines(rows, names, cells, len(header))
    return table("Arcs beyond 2^32: kernel ms, of PageRank an iteration", header, lines)


def memory(rows: Sequence[Row], every: Sequence[Row]) -> str:
    """Queues of BFS by pushing, by what they begin with; all that keeps a step program's frontiers."""
    header = ["graph", "", "GPUs", "policy", "bytes of frontiers", "of the graph", "growths",
              "first ms", "ms", "quartiles"]  # fmt: skip

    def names(row: Row) -> list[str]:
        return [row["graph"], row["algorithm"], row["devices"], row["name"]]

    def cells(row: Row) -> list[str]:
        nbytes = row["frontier_bytes"]
        return [f"{nbytes:,}", f"{100 * nbytes / row['graph_bytes']:.2f} %", str(row["growths"]),
                _ms(row["first_ms"]), _ms(row["kernel_ms"]), _spread(row)]  # fmt: skip

    return table("Memory of frontiers: kernel ms", header, _lines(rows, names, cells, len(header)))


def programs(rows: Sequence[Row], every: Sequence[Row]) -> str:
    header = ["graph", "program", "GPUs", "ms", "quartiles", "Groute", "Gunrock", "cuGraph",
              "supersteps", "arcs, millions", "query", "checked"]  # fmt: skip

    def cells(row: Row) -> list[str]:
        return [_ms(row["kernel_ms"]), _spread(row), *peers(row), f"{row['rounds']:,}",
                f"{row['looked'] / 1e6:,.1f}", _ms(row["query_ms"]),
                "no" if row["unchecked"] else "yes"]  # fmt: skip

    lines = _lines(
        rows, lambda row: [row["graph"], row["algorithm"], row["devices"]], cells, len(header)
    )
    return table("Programs: kernel ms", header, lines)


def _by_option(title: str, rows: Sequence[Row]) -> str:
    index = {
        "graph": lambda row: row["graph"],
        "": lambda row: row["algorithm"],
        "GPUs": lambda row: row["devices"],
    }
    return pivot(title, rows, index, lambda row: _ms(unit_ms(row)))


def schedules(rows: Sequence[Row], every: Sequence[Row]) -> str:
    return _by_option("How rows are shared out: kernel ms", rows)


def communication(rows: Sequence[Row], every: Sequence[Row]) -> str:
    found = _by_option("Selective or broadcast: kernel ms, of PageRank an iteration", rows)
    ranks = [row for row in rows if row.get("carried_bytes")]
    index = {"graph": lambda row: row["graph"], "GPUs": lambda row: row["devices"]}
    sizes = pivot(
        "Room for ranks: MB a GPU", ranks, index, lambda row: f"{row['carried_bytes'] / 1e6:,.1f}"
    )
    return f"{found}\n\n{sizes}" if ranks else found


def components(rows: Sequence[Row], every: Sequence[Row]) -> str:
    header = ["graph", "method", "GPUs", "ms", "quartiles", "Groute", "Gunrock", "cuGraph",
              "supersteps", "arcs, millions", "query"]  # fmt: skip

    def cells(row: Row) -> list[str]:
        return [_ms(row["kernel_ms"]), _spread(row), *peers(row | {"algorithm": "components"}),
                f"{row['rounds']:,}", f"{row['looked'] / 1e6:,.1f}", _ms(row["query_ms"])]  # fmt: skip

    lines = _lines(
        rows, lambda row: [row["graph"], row["algorithm"], row["devices"]], cells, len(header)
    )
    found = table("Connected components: kernel ms", header, lines)
    merged = merges(rows)
    return f"{found}\n\n{merged}" if merged else found


def merges(rows: Sequence[Row]) -> str:
    """How several GPUs come together, and what the choice costs beside the better one; empty for one."""
    times = {
        (row["graph"], row["devices"], row["algorithm"]): row["kernel_ms"]
        for row in rows
        if "kernel_ms" in row
    }
    lines = []
    for (graph, devices, method), auto in times.items():
        direct, tree = (times.get((graph, devices, method + merge)) for merge in (DIRECT, TREE))
        if direct is not None and tree is not None:
            over = f"{auto / min(direct, tree):.2f}"
            lines.append([graph, devices, method, _ms(direct), _ms(tree), _ms(auto), over])
    header = ["graph", "GPUs", "method", "direct", "tree", "auto", "auto / better"]
    return table("Components on several GPUs, by merge: kernel ms", header, lines) if lines else ""


TABLES: dict[str, Callable[[Sequence[Row], Sequence[Row]], str]] = {
    "overhead": overhead,
    "bfs": bfs,
    "auto": auto,
    "pagerank": pagerank,
    "betweenness": betweenness,
    "scaling": scaling,
    "ids": ids,
    "wide": wide,
    "memory": memory,
    "programs": programs,
    "schedules": schedules,
    "communication": communication,
    "components": components,
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
    """Tables of files that gpu_steps.py wrote."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("json", nargs="+", help="files that gpu_steps.py wrote")
    parser.add_argument("--plot", help="folder for a plot of the scaling, as SVG (Matplotlib)")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for path in arguments.json:
        with open(path) as file:
            rows += json.load(file)["rows"]
    show(rows, arguments.plot)


if __name__ == "__main__":
    main()
