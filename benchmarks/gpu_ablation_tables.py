"""The tables of gpu_ablation.py, in aligned Markdown, as they stand in benchmarks/RESULTS.md.

python benchmarks/gpu_ablation_tables.py ablation.json            # again, from what was measured
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Cell = Callable[[Row], str]


def table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Aligned Markdown: names to the left, numbers to the right."""
    numeric = [
        bool(lines) and all(_is_number(line[i]) for line in lines) for i in range(len(header))
    ]
    widths = [max(3, *(len(line[i]) for line in (header, *lines))) for i in range(len(header))]

    def aligned(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return f"| {' | '.join(padded)} |"

    rule = [
        "-" * (width - 1) + (":" if right else "-")
        for width, right in zip(widths, numeric, strict=True)
    ]
    body = [aligned(header), f"| {' | '.join(rule)} |", *map(aligned, lines)]
    return "\n".join([f"### {title}", "", *body])


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell == "-"


def pivot(title: str, rows: Sequence[Row], index: dict[str, Cell], cell: Cell) -> str:
    """A column for each name that the section gives its settings."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        key = tuple(show(row) for show in index.values())
        lines.setdefault(key, {})[row["name"]] = row.get("note") or cell(row)
    body = [[*key, *(cells.get(name, "-") for name in names)] for key, cells in lines.items()]
    return table(title, [*index, *names], body)


QUERY: dict[str, Cell] = {
    "graph": lambda row: row["graph"],
    "": lambda row: row["algorithm"].upper(),
    "GPUs": lambda row: row["devices"],
}


def _ms(row: Row) -> str:
    return f"{row['kernel_ms']:,.2f}"


def _millions(count: float) -> str:
    return f"{count / 1e6:,.2f}"


def options(rows: Sequence[Row]) -> str:
    """Groute's table 4: milliseconds, and how many times faster than the first column."""
    slowest: dict[tuple[str, ...], float] = {}

    def cell(row: Row) -> str:
        query = tuple(show(row) for show in QUERY.values())
        slowest.setdefault(query, row["kernel_ms"] if row["name"] == rows[0]["name"] else 0.0)
        times = slowest[query] / row["kernel_ms"]
        return f"{_ms(row)} ({times:,.2f}x)" if times else _ms(row)

    return pivot("Options of the asynchronous engine: kernel ms", rows, QUERY, cell)


def work(rows: Sequence[Row]) -> str:
    """Items processed, and of these useless ones."""

    def cell(row: Row) -> str:
        useless, processed = _millions(row["useless"]), _millions(row["processed"])
        return f"{processed} ({useless}), {_ms(row)} ms"

    index = {**QUERY, "partition": lambda row: row["partition"]}
    title = "Work with and without priority: million items (of these useless), kernel ms"
    return pivot(title, rows, index, cell)


def partitioners(rows: Sequence[Row]) -> str:
    """What a partition costs, and what it is worth."""
    header = [*QUERY, "partition", "ms", "quartiles", "cut", "border", "balance", "sent", "rounds",
              "to divide, s"]  # fmt: skip
    lines = []
    for row in rows:
        name = [*(show(row) for show in QUERY.values()), row["name"]]
        if "note" in row:
            lines.append([*name, row["note"], *["-"] * (len(header) - len(name) - 1)])
            continue
        quarter, three = row["quartiles_ms"]
        lines.append(
            [
                *name,
                _ms(row),
                f"{quarter:.2f} to {three:.2f}",
                f"{row['cut_fraction']:.4f}",
                f"{row['border_vertices']:,}",
                f"{row['balance']:.2f}",
                f"{row['sent']:,}",
                f"{row['rounds']:,}",
                f"{row['place_s']['partition']:.2f}",
            ]
        )
    return table("Partitioners", header, lines)


def latency(rows: Sequence[Row]) -> str:
    """Time over what is added to every meeting."""
    return pivot("Latency added to every meeting: kernel ms (rounds)", rows, QUERY,
                 lambda row: f"{_ms(row)} ({row['rounds']:,})")  # fmt: skip


def volume(rows: Sequence[Row]) -> str:
    """Time over how often every item is sent."""
    return pivot("Every item sent several times: kernel ms (MB sent)", rows, QUERY,
                 lambda row: f"{_ms(row)} ({row['sent_bytes'] / 1e6:,.1f})")  # fmt: skip


def _us_a_round(row: Row) -> float:
    return 1e3 * float(row["kernel_ms"] / max(1, row["rounds"]))


def rounds(rows: Sequence[Row]) -> str:
    """What a round costs in which one vertex with one new neighbour is processed."""
    known = [row for row in rows if "note" not in row]
    return pivot("A round that processes one vertex: µs (rounds)", known, {"GPUs": QUERY["GPUs"]},
                 lambda row: f"{_us_a_round(row):.2f} ({row['rounds']:,})")  # fmt: skip


def breakdown(rows: Sequence[Row]) -> str:
    """Milliseconds of a query by phase; of the kernel, how much rounds cost at least."""
    least_us = {
        row["devices"]: _us_a_round(row)
        for row in rows
        if row["graph"] == "path" and row["partition"] == "contiguous" and "note" not in row
    }
    rows = [row for row in rows if row["graph"] != "path" and "note" not in row]
    phases = list(dict.fromkeys(name for row in rows for name in row["phases_ms"]))
    header = [*QUERY, "query", *phases, "rest", "busy", "rounds", "ms of these, at least"]
    lines = []
    for row in rows:
        spent = row["phases_ms"]
        rest = row["query_ms"] - sum(spent.values())
        least = row["rounds"] * least_us.get(row["devices"], float("nan")) / 1e3
        lines.append(
            [
                *(show(row) for show in QUERY.values()),
                f"{row['query_ms']:.1f}",
                *(f"{spent.get(name, 0.0):.2f}" for name in phases),
                f"{max(0.0, rest):.2f}",
                ", ".join(f"{100 * share:.0f} %" for share in row["busy"]),
                f"{row['rounds']:,}",
                f"{least:.2f} ({100 * least / row['kernel_ms']:.0f} %)",
            ]
        )
    return table("Time of a query by phase: ms", header, lines)


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "options": options,
    "work": work,
    "partitioners": partitioners,
    "latency": latency,
    "volume": volume,
    "rounds": rounds,
    "breakdown": breakdown,
}


def main() -> None:
    """Print the tables of a file that gpu_ablation.py wrote."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        rows = json.load(file)["rows"]
    for section in dict.fromkeys(row["section"] for row in rows):
        print(TABLES[section]([row for row in rows if row["section"] == section]), end="\n\n")


if __name__ == "__main__":
    main()
