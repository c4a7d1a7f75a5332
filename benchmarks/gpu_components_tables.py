"""The tables of gpu_components.py, in aligned Markdown, and its plots; from what was measured.

    python benchmarks/gpu_components_tables.py components1.json [components2.json ...] [--plot FOLDER]

Speed-up is the time on one device over that on n; efficiency is that over n where the graph is the same
(strong), and the quotient itself where it is n times as large (weak): figures 6.1 to 6.3 of the thesis.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpu_ablation_tables import table as any_table
from gpu_components_plans import (
    AFFOREST,
    AUTO,
    COPIES,
    DIRECT,
    HOOK,
    REM,
    TREE,
    device_names,
    kind_of,
)

Row = dict[str, Any]
Groups = dict[tuple[str, ...], list[Row]]


def device_count(row: Row) -> int:
    return len(device_names(row["devices"]))


def grouped(rows: Iterable[Row], *keys: str) -> Groups:
    """Rows that agree in these, in the order in which they were asked for."""
    groups: Groups = {}
    for row in rows:
        groups.setdefault(tuple(str(row[key]) for key in keys), []).append(row)
    return groups


def measured(rows: Iterable[Row]) -> list[Row]:
    """Those that have a time."""
    return [row for row in rows if "note" not in row]


def best(rows: Iterable[Row], name: str) -> Row | None:
    """The fastest of a name."""
    there = [row for row in measured(rows) if row["name"] == name]
    return min(there, key=lambda row: row["kernel_ms"], default=None)


def ms(row: Row | None) -> str:
    if row is None:
        return "-"
    value = row["kernel_ms"]
    return f"{value:,.3f}" if value < 10 else f"{value:,.1f}"


def quotient(above: Row | None, below: Row | None) -> float | None:
    """Of times; None where one is missing."""
    return None if above is None or below is None else above["kernel_ms"] / below["kernel_ms"]


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def _notes(rows: Iterable[Row]) -> str:
    return "; ".join(dict.fromkeys(row["note"] for row in rows if "note" in row))


def table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The last column, of notes, only where there are some."""
    if not any(line[-1] for line in lines):
        header, lines = header[:-1], [line[:-1] for line in lines]
    return any_table(title, header, lines)


def graphs(rows: Sequence[Row]) -> str:
    """What was measured, beside what he measured."""
    header = ["graph", "kind", "like", "vertices", "arcs", "components"]
    known = {row["graph"]: row for row in rows if "vertices" in row}
    lines = [
        [name, row["kind"], kind_of(name)[0].his, f"{row['vertices']:,}", f"{row['arcs']:,}",
         f"{row['components']:,}"]
        for name, row in known.items()
    ]  # fmt: skip
    return any_table("Graphs", header, lines)


def _by_name(title: str, rows: Sequence[Row], index: Sequence[str], suffix: str) -> str:
    """A column a name; beside each time, how it stands to the fastest of its line."""
    names = list(dict.fromkeys(row["name"] for row in sorted(rows, key=lambda row: row["name"])))
    lines = []
    for key, group in grouped(rows, *index).items():
        there = measured(group)
        least = min((row["kernel_ms"] for row in there), default=0.0)
        cells = []
        for name in names:
            row = best(group, name)
            share = "" if row is None else f" ({100 * least / row['kernel_ms']:.0f} %)"
            cells.append(ms(row) + share)
        lines.append([*key, *cells, _notes(group)])
    return table(title, [*index, *(f"{name}{suffix}" for name in names), "notes"], lines)


def rounds(rows: Sequence[Row]) -> str:
    """Figures 6.4 to 6.6."""
    title = "Rounds without atomics (of Afforest: neighbours): kernel ms (speed, of the best)"
    return _by_name(title, rows, ["graph", "method", "devices"], "")


def compress(rows: Sequence[Row]) -> str:
    """Figures 6.7 to 6.9."""
    title = "Trees compressed after a round: kernel ms (speed, of the best)"
    return _by_name(title, rows, ["graph", "method", "rounds", "devices"], "")


def runtime(rows: Sequence[Row]) -> str:
    """Figures 6.10 to 6.39: hooks and Rem's algorithm, each with the rounds that suit it."""
    header = ["graph", "devices", "hook", "its rounds", "Rem", "its rounds", "hook / Rem",
              "his hook / Rem, 1 GPU", "Afforest", "auto", "notes"]  # fmt: skip
    lines = []
    for (graph, devices), group in grouped(rows, "graph", "devices").items():
        hook, rem = best(group, HOOK), best(group, REM)
        his = kind_of(graph)[0].hook_over_rem
        lines.append([
            graph, devices, ms(hook), "-" if hook is None else str(hook["rounds"]), ms(rem),
            "-" if rem is None else str(rem["rounds"]), _times(quotient(hook, rem)),
            f"{his:.2f}" if his and kind_of(graph)[1] == 1 else "-",
            ms(best(group, AFFOREST)), ms(best(group, AUTO)), _notes(group),
        ])  # fmt: skip
    return table("Hooks against Rem's algorithm: kernel ms", header, lines)


def strong(rows: Sequence[Row]) -> str:
    """Figures 6.40 and 6.43."""
    header = ["graph", "method", "devices", "ms", "speed-up", "efficiency", "notes"]
    lines = []
    for (graph, name), group in grouped(rows, "graph", "name").items():
        alone = next((row for row in measured(group) if device_count(row) == 1), None)
        for row in group:
            here = None if "note" in row else row
            over = quotient(alone, here)
            share = None if over is None else over / device_count(row)
            lines.append([graph, name, row["devices"], ms(here), _times(over), _percent(share),
                          _notes([row])])  # fmt: skip
    return table("Strong scaling: kernel ms", header, lines)


def weak(rows: Sequence[Row]) -> str:
    """Figures 6.41 and 6.42: by each method's own time on one device, and by that of Rem's algorithm."""
    header = ["devices", "graph", "method", "rounds", "ms", "efficiency", "by Rem's on 1", "notes"]
    alone = {row["name"]: row for row in measured(rows) if device_count(row) == 1}
    lines = []
    for row in rows:
        here = None if "note" in row else row
        lines.append([
            row["devices"], row["graph"], row["name"],
            "-" if row["rounds"] is None else str(row["rounds"]), ms(here),
            _percent(quotient(alone.get(row["name"]), here)),
            _percent(quotient(alone.get("rem"), here)), _notes([row]),
        ])  # fmt: skip
    return table("Weak scaling: kernel ms", header, lines)


def expanded(rows: Sequence[Row]) -> str:
    """Figures 6.44 to 6.47, and what copies add on one device."""
    header = ["graph", "devices", "arcs, millions", "hook", "Rem", "hook / Rem", "auto",
              "Rem: ps an arc", "Rem: speed-up", "Rem: efficiency", "notes"]  # fmt: skip
    lines = []
    alone: dict[str, Row | None] = {}
    for (graph, devices), group in grouped(rows, "graph", "devices").items():
        hook, rem = best(group, HOOK), best(group, REM)
        count = device_count(group[0])
        if count == 1:
            alone[graph] = rem
        over = quotient(alone.get(graph), rem)
        per_arc = "-" if rem is None else f"{1e9 * rem['kernel_ms'] / max(1, rem['arcs']):,.0f}"
        lines.append([
            graph, devices, f"{group[0].get('arcs', 0) / 1e6:,.1f}", ms(hook), ms(rem),
            _times(quotient(hook, rem)), ms(best(group, AUTO)), per_arc, _times(over),
            _percent(None if over is None else over / count), _notes(group),
        ])  # fmt: skip
    copied = ", ".join(f"{name} x {count}" for name, count in COPIES.items())
    return table(f"Expanded graphs ({copied}): kernel ms", header, lines)


def merge(rows: Sequence[Row]) -> str:
    """How devices come to one result: what it takes, and what room."""
    header = ["graph", "method", "devices", "direct", "tree", "auto", "auto / better",
              "MB a device, direct", "tree", "notes"]  # fmt: skip
    lines = []
    for (graph, method, devices), group in grouped(rows, "graph", "method", "devices").items():
        direct, tree, auto = (best(group, name) for name in (DIRECT, TREE, AUTO))
        there = [row for row in (direct, tree) if row is not None]
        better = min(there, key=lambda row: row["kernel_ms"], default=None)
        lines.append([graph, method, devices, ms(direct), ms(tree), ms(auto),
                      _times(quotient(auto, better)), _megabytes(direct), _megabytes(tree),
                      _notes(group)])  # fmt: skip
    return table("How devices come to one result: kernel ms", header, lines)


def _megabytes(row: Row | None) -> str:
    known = row is not None and row["own_bytes"] is not None
    return f"{row['own_bytes'] / 1e6:,.1f}" if known and row is not None else "-"


def streamed(rows: Sequence[Row]) -> str:
    """As he has measured it: time from the first edge on the host to the labels there."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    header = ["graph", "method", "devices", *names, "G edges/s",
              "speed-up", "his hook / Rem, 1 GPU", "hook / Rem", "notes"]  # fmt: skip
    alone: dict[tuple[str, str], Row] = {}
    fastest: dict[tuple[str, ...], Row | None] = {}
    lines = []
    for key, group in grouped(rows, "graph", "devices", "method").items():
        graph, devices, method = key
        quickest = min(measured(group), key=lambda row: row["kernel_ms"], default=None)
        fastest[key] = quickest
        if quickest is not None and device_count(quickest) == 1:
            alone[graph, method] = quickest
        per_s = (
            "-" if quickest is None else f"{quickest['edges'] / quickest['kernel_ms'] / 1e6:.2f}"
        )
        against = quotient(fastest.get((graph, devices, HOOK)), quickest) if method == REM else None
        his = kind_of(graph)[0].hook_over_rem if method == REM else 0.0
        lines.append([
            graph, method, devices, *(ms(best(group, name)) for name in names), per_s,
            _times(quotient(alone.get((graph, method)), quickest)), f"{his:.2f}" if his else "-",
            _times(against), _notes(group),
        ])  # fmt: skip
    return table(
        "Edges that stream from the host, after so many rounds: ms of the run", header, lines
    )


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "rounds": rounds,
    "compress": compress,
    "runtime": runtime,
    "strong": strong,
    "weak": weak,
    "expanded": expanded,
    "merge": merge,
    "streamed": streamed,
}


def show(rows: Sequence[Row], plot: str | None) -> None:
    """Print the tables of the sections that are there; draw if there is a folder to draw into."""
    print(f"\n{graphs(rows)}", flush=True)
    for section in dict.fromkeys(row["section"] for row in rows):
        print(
            f"\n{TABLES[section]([row for row in rows if row['section'] == section])}", flush=True
        )
    if plot:
        from gpu_components_plots import draw

        try:
            for path in draw(rows, plot):
                print(f"\nwrote {path}")
        except ImportError as error:
            print(f"\nno plots: {error}; gpu_components_tables.py draws them later, elsewhere")


def joined(documents: Sequence[Row]) -> list[Row]:
    """The rows of several files, of which each may have measured some devices of a section only.

    A graph's lines stand together, those of fewer devices first.
    """
    rows = [row for document in documents for row in document["rows"]]
    sections = {name: place for place, name in enumerate(TABLES)}
    order: dict[str, int] = {}
    for row in rows:
        order.setdefault(row["graph"], len(order))
    return sorted(
        rows, key=lambda row: (sections[row["section"]], order[row["graph"]], device_count(row))
    )


def main() -> None:
    """Tables of files that gpu_components.py wrote."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("json", nargs="+", help="files that gpu_components.py wrote")
    parser.add_argument("--plot", help="folder for plots, as SVG (Matplotlib)")
    arguments = parser.parse_args()
    documents = []
    for path in arguments.json:
        with open(path) as file:
            documents.append(json.load(file))
    show(joined(documents), arguments.plot)


if __name__ == "__main__":
    main()
