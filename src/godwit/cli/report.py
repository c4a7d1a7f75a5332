"""Tables for people, made of the facts that ``--json`` prints.

Every table is as wide as its contents: numbers are never cut short, and a terminal that is too
narrow wraps the lines.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from godwit.cli.facts import Facts
from godwit.config import readable_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from godwit.runtime.cuda.devices import Topology

_UNBOUNDED_WIDTH = 10_000
_LARGEST_MATRIX = 16
_SHOWN_STEPS = 8


def print_json(facts: Facts) -> None:
    """One JSON object on stdout, and nothing else."""
    # As a whole, before anything is written: half an object is worse than none.
    text = json.dumps(facts, allow_nan=False, indent=2)
    sys.stdout.write(f"{text}\n")


class Report:
    """Tables on stdout, or on stderr where the result itself goes to stdout."""

    def __init__(self, *, on_stderr: bool = False) -> None:
        from rich.console import Console

        self._console: Console = Console(
            stderr=on_stderr, width=_UNBOUNDED_WIDTH, markup=False, highlight=False, emoji=False
        )
        self._printed = False

    def facts(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names and what they stand for."""
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(no_wrap=True)
        for name, value in rows:
            grid.add_row(name, _visible(value))
        self._print(grid)

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        title: str = "",
        total: Sequence[str] | None = None,
        text_columns: int = 1,
    ) -> None:
        """A table, whose first columns are text and the others numbers."""
        from rich import box
        from rich.table import Table

        table = Table(
            box=box.SIMPLE_HEAD, show_footer=total is not None, header_style="bold", pad_edge=False
        )
        for i, name in enumerate(header):
            table.add_column(
                name,
                justify="left" if i < text_columns else "right",
                no_wrap=True,
                footer=total[i] if total is not None else "",
            )
        for row in rows:
            table.add_row(*map(_visible, row))
        self._print(table, title)

    def _print(self, table: Table, title: str = "") -> None:
        """Print, below an empty line unless this is the first."""
        console = self._console
        with console.capture() as capture:
            if title:
                console.print(title, style="bold")
            console.print(table)
        # Without the padding of the last column, and without the empty line above the header.
        lines = [stripped for line in capture.get().splitlines() if (stripped := line.rstrip())]
        text = "\n" * self._printed + "\n".join(lines) + "\n"
        encoding = console.encoding
        # Not printed by rich: it would exit in its own way where a pipe is closed.
        console.file.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._printed = True


def integer(value: Any) -> str:
    """1,234,567"""
    return f"{int(value):,}"


def number(value: Any) -> str:
    """Integers in full; others with as many digits as tell them apart, up to six."""
    if value is None:
        return "none"
    return integer(value) if isinstance(value, int) else f"{value:,.6g}"


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def graph_line(graph: Facts) -> str:
    """A graph in a line."""
    if graph["weights"] is None:
        weights = "no weights"
    elif graph["min_weight"] is None:
        weights = f"{graph['weights']} weights"
    else:
        span = f"{number(graph['min_weight'])} to {number(graph['max_weight'])}"
        weights = f"{graph['weights']} weights {span}"
    kind = "directed" if graph["directed"] else "undirected"
    return (
        f"{integer(graph['vertices'])} vertices, {integer(graph['arcs'])} arcs, {kind}, {weights}"
    )


def partition_line(division: Facts) -> str:
    """A partition in a line."""
    note = f" ({division['note']})" if division["note"] else ""
    return (
        f"{division['method']}: {integer(division['cut_arcs'])} cut arcs "
        f"({division['cut_fraction']:.2%}), {integer(division['border_vertices'])} border "
        f"vertices, balance {division['balance']:.3f}{note}"
    )


def print_paths(report: Report, facts: Facts) -> None:
    """The tables of bfs and sssp."""
    report.facts(_paths_rows(facts))
    statistics = facts["statistics"]
    _print_seconds(report, statistics["seconds"])
    _print_work(report, statistics)
    if len(statistics["devices"]) > 1:
        print_matrix(
            report, _sent_title(statistics), statistics["devices"], statistics["sent_items"]
        )
    if facts["output"] is None:
        for which in ("nearest", "farthest"):
            rows = [[str(row["vertex"]), number(row["distance"])] for row in facts[which]]
            if rows:
                report.table(
                    ["vertex", "distance"], rows, title=f"The {which} vertices", text_columns=0
                )


def _sent_title(statistics: Facts) -> str:
    if statistics["sent_bytes"] is None:
        return "Items sent per link"
    whole = readable_bytes(sum(map(sum, statistics["sent_bytes"])))
    return f"Items sent per link, of {statistics['item_bytes']} bytes: {whole} in all"


def _paths_rows(facts: Facts) -> list[tuple[str, str]]:
    graph, statistics = facts["graph"], facts["statistics"]
    sources = [str(source) for source in facts["sources"]]
    farthest = ""
    if facts["largest_distance"] is not None:
        farthest = f", the farthest at distance {number(facts['largest_distance'])}"
    settings = [statistics["solver"]]
    for name in ("delta", "window", "hops", "levels"):
        if statistics[name] is not None:
            settings.append(f"{name} {number(statistics[name])}")
    rate = "0" if facts["mteps"] is None else f"{facts['mteps']:,.4g}"
    rows = [
        ("graph", f"{graph['name']}: {graph_line(graph)}"),
        ("source", _shortened(sources, ", ")),
        ("devices", f"{_shortened(statistics['devices'], ', ')} ({', '.join(settings)})"),
        ("partition", partition_line(facts["partition"])),
        ("reached", f"{integer(facts['reached_vertices'])} vertices{farthest}"),
        (
            "rate",
            f"{rate} MTEPS: {integer(facts['traversed_arcs'])} arcs leave the "
            f"reached vertices, run in {statistics['run_s']:.4f} s",
        ),
    ]
    if (target := facts.get("target")) is not None:
        rows.append(("target", _target_line(target)))
    if facts["verified"]:
        rows.append(("verified", facts["verification"]))
    if facts["output"] is not None:
        rows.append(("output", facts["output"]))
    return rows


def _target_line(target: Facts) -> str:
    if target["distance"] is None:
        return f"{target['vertex']} was not reached"
    path = [str(vertex) for vertex in target["path"]]
    return (
        f"{target['vertex']} at distance {number(target['distance'])}, "
        f"{integer(len(path) - 1)} arcs: {_shortened(path, ' > ')}"
    )


def _shortened(words: Sequence[str], separator: str) -> str:
    if len(words) > _SHOWN_STEPS:
        words = [*words[: _SHOWN_STEPS - 2], "...", words[-1]]
    return separator.join(words)


def _print_seconds(report: Report, seconds: dict[str, float]) -> None:
    whole = sum(seconds.values())
    rows = [
        [phase, f"{taken:,.4f}", f"{taken / whole:.1%}" if whole > 0 else ""]
        for phase, taken in seconds.items()
    ]
    report.table(
        ["phase", "seconds", "share"],
        rows,
        title="Time by phase",
        total=["total", f"{whole:,.4f}", ""],
    )


def _print_work(report: Report, statistics: Facts) -> None:
    names = {
        "processed_items": "processed",
        "useless_items": "useless",
        "arcs_relaxed": "arcs relaxed",
        "filtered_items": "filtered",
        "received_items": "received",
        "threshold_changes": "threshold changes",
    }
    several = len(statistics["devices"]) > 1
    if not several:
        del names["received_items"]  # from whom?
    header = ["device", *names.values()]
    rows = [
        [device, *(integer(statistics[name][i]) for name in names)]
        for i, device in enumerate(statistics["devices"])
    ]
    total = ["total", *(integer(sum(statistics[name])) for name in names)] if several else None
    if statistics["busy_share"] is not None:
        header.append("busy")
        for row, share in zip(rows, statistics["busy_share"], strict=True):
            row.append(f"{share:.1%}")
        if total is not None:
            total.append("")
    report.table(header, rows, title="Work-items", total=total)


def print_matrix(
    report: Report, title: str, names: Sequence[str], matrix: Sequence[Sequence[int]]
) -> None:
    """A number for each pair; the sums only, where there are too many pairs to look at."""
    out = [sum(row) for row in matrix]
    into = [sum(column) for column in zip(*matrix, strict=True)]
    if len(names) > _LARGEST_MATRIX:
        rows = [[name, integer(out[i]), integer(into[i])] for i, name in enumerate(names)]
        header = ["", "to others", "from others"]
        report.table(
            header,
            rows,
            title=f"{title} (--json has every pair)",
            total=["total", integer(sum(out)), integer(sum(into))],
        )
        return
    rows = [
        [name, *("-" if i == j else integer(v) for j, v in enumerate(matrix[i])), integer(out[i])]
        for i, name in enumerate(names)
    ]
    total = ["total", *map(integer, into), integer(sum(out))]
    report.table(["from \\ to", *names, "total"], rows, title=title, total=total)


def print_info(report: Report, facts: Facts) -> None:
    """The table of info."""
    degree = facts["degree"]
    edges = [] if facts["edges"] is None else [("edges", integer(facts["edges"]))]
    weights = "none"
    if facts["weights"] is not None:
        weights = facts["weights"]
        if facts["min_weight"] is not None:
            weights += f", {number(facts['min_weight'])} to {number(facts['max_weight'])}"
    at = ""
    if facts["max_degree_vertex"] is not None:
        at = f" (vertex {facts['max_degree_vertex']})"
    report.facts(
        [
            ("graph", facts["name"]),
            ("vertices", _vertices(facts)),
            ("arcs", integer(facts["arcs"])),
            *edges,
            ("directed", "yes" if facts["directed"] else "no (each edge is two arcs)"),
            ("weights", weights),
            (
                "out-degree",
                f"min {integer(degree['min'])}, mean {degree['mean']:,.2f}, "
                f"median {number(degree['median'])}, max {integer(degree['max'])}{at}",
            ),
            ("no arcs out", f"{integer(facts['sinks'])} vertices"),
            ("isolated", f"{integer(facts['isolated_vertices'])} vertices"),
            ("self-loops", integer(facts["self_loops"])),
            ("components", _components(facts)),
            ("diameter", _diameter(facts["diameter"])),
            (
                "memory",
                f"{readable_bytes(facts['memory_bytes'])} ({facts['target_dtype']} targets)",
            ),
            ("loaded in", f"{facts['seconds']['read']:.3f} s"),
        ]
    )
    rows = [
        [
            integer(one["devices"]),
            *(integer(one[name]) for name in ("vertices", "arcs", "halo_vertices")),
            readable_bytes(one["bytes"]),
        ]
        for one in facts["memory"]
    ]
    report.table(
        ["devices", "vertices", "arcs", "halo vertices", "memory"],
        rows,
        title="Largest part of a contiguous partition, with one value of 8 bytes a vertex",
        text_columns=0,
    )


_BAR_WIDTH = 50
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def print_histogram(report: Report, histogram: list[Facts]) -> None:
    """Bars for classes of degrees; logarithmic, as most vertices are in few of them."""
    largest = max((math.log2(1 + one["vertices"]) for one in histogram), default=0)
    rows = []
    for one in histogram:
        degrees = integer(one["from"])
        if one["to"] > one["from"]:
            degrees += f" to {integer(one['to'])}"
        filled = round(8 * _BAR_WIDTH * math.log2(1 + one["vertices"]) / (largest or 1))
        bar = "█" * (filled // 8) + _EIGHTHS[filled % 8].strip()
        rows.append([bar, degrees, integer(one["vertices"])])
    report.table(["(logarithmic)", "out-degree", "vertices"], rows, title="Degrees")


def _components(facts: Facts) -> str:
    if facts["vertices"] == 0:
        return "0"
    share = facts["largest_component"] / facts["vertices"]
    return (
        f"{integer(facts['components'])} weak, the largest of "
        f"{integer(facts['largest_component'])} vertices ({share:.1%})"
    )


def _diameter(bounds: Facts | None) -> str:
    if bounds is None:
        return "none"
    lower, upper = bounds["lower"], bounds["upper"]
    known = integer(lower) if lower == upper else f"{integer(lower)} to {integer(upper)}"
    return f"{known} edges (of the largest component, directions ignored)"


def _vertices(facts: Facts) -> str:
    count = integer(facts["vertices"])
    if facts["vertices"] == 0:
        return count
    kind = "" if facts["ids"] == "consecutive" else f"{facts['ids']} "
    return f"{count}, {kind}ids {facts['first_id']} to {facts['last_id']}"


def print_written(report: Report, facts: Facts) -> None:
    """The table of convert and generate."""
    seconds = facts["seconds"]
    report.facts(
        [
            ("graph", f"{facts['graph']['name']}: {graph_line(facts['graph'])}"),
            ("written", f"{facts['output']}: {facts['format']}, {readable_bytes(facts['bytes'])}"),
            ("seconds", ", ".join(f"{phase} {taken:.3f}" for phase, taken in seconds.items())),
        ]
    )


def print_partition(report: Report, facts: Facts) -> None:
    """The tables of partition."""
    division = facts["partition"]
    rows = [
        ("graph", f"{facts['graph']['name']}: {graph_line(facts['graph'])}"),
        ("partition", partition_line(division)),
        (
            "seconds",
            ", ".join(f"{phase} {taken:.4f}" for phase, taken in facts["seconds"].items()),
        ),
    ]
    if facts["output"] is not None:
        rows.append(("output", facts["output"]))
    report.facts(rows)
    arcs = max(1, facts["graph"]["arcs"])
    names = [f"part {i}" for i in range(division["parts"])]
    per_part = zip(
        names, division["vertices_per_part"], division["arcs_per_part"], division["border"],
        strict=True,
    )  # fmt: skip
    report.table(
        ["part", "vertices", "arcs", "share of arcs", "halo vertices"],
        [
            [name, integer(vertices), integer(count), f"{count / arcs:.1%}", integer(sum(border))]
            for name, vertices, count, border in per_part
        ],
        title="Parts",
    )
    if len(names) > 1:
        print_matrix(
            report, "Border: vertices of one part that another's arcs reach", names,
            division["border"],
        )  # fmt: skip


def _shown_devices(devices: list[Facts]) -> list[Facts]:
    """One row for all virtual devices of the CPU, where they are many: they are alike."""
    virtual = [device for device in devices if device["name"].startswith("cpu:")]
    if len(virtual) <= _FEW_ALIKE:
        return devices
    names = f"{virtual[0]['name']} … {virtual[-1]['name']}"
    return [device for device in devices if device not in virtual] + [virtual[0] | {"name": names}]


_FEW_ALIKE = 4


def print_devices(report: Report, devices: list[Facts]) -> None:
    """The table of devices."""
    rows = [
        [
            device["name"],
            device["kind"],
            device["description"],
            integer(device["threads"]),
            readable_bytes(device["memory_bytes"]),
        ]
        for device in _shown_devices(devices)
    ]
    header = ["device", "kind", "what it is", "threads", "free memory"]
    report.table(header, rows, text_columns=3)


_LINKS = {"same": "-", "nvlink": "NVLink", "pcie": "PCIe"}


def print_topology(report: Report, topology: Topology) -> None:
    """Print the PCI address of each GPU, and its route to the others."""
    gpus = range(len(topology))
    rows = [
        [gpu.device, gpu.pci_bus_id, *(_route(topology, i, j) for j in gpus)]
        for i, gpu in enumerate(topology.gpus)
    ]
    header = ["from \\ to", "PCI address", *(gpu.device for gpu in topology.gpus)]
    report.table(header, rows, title="How GPUs reach each other", text_columns=len(header))


def _route(topology: Topology, i: int, j: int) -> str:
    route = topology.route(i, j)
    if route.kind == "direct":
        link = topology.links[i][j]
        no_atomics = link != "same" and not topology.native_atomics[i][j]
        return _LINKS[link] + (", no atomics" if no_atomics else "")
    return "host" if route.via is None else f"via {topology.gpus[route.via].device}"
