"""The command ``info``."""

from __future__ import annotations

import math
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from godwit.cli.facts import Facts, graph_facts
from godwit.cli.inputs import load_graph
from godwit.cli.options import (
    RESULT,
    GraphArgument,
    Option,
    ReadingOptions,
    ReportOptions,
    with_options,
)
from godwit.cli.progress import Display
from godwit.cli.report import Report, integer, number, present
from godwit.config import readable_bytes

if TYPE_CHECKING:
    from godwit.graph.csr import Graph

EXAMPLES = """
godwit info USA-road-d.NY.gr.xz
godwit info rmat:20 --plot degrees.pdf
godwit info follows.csv --columns user,friend
godwit info dataset:USA-road-d.NY --json | jq .diameter
"""
_BAR_WIDTH = 50
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@with_options
def info(
    graph: GraphArgument,
    options: ReportOptions,
    reading: ReadingOptions,
    histogram: Annotated[bool, Option(panel=RESULT)] = False,
    plot: Annotated[str | None, Option(metavar="FILE", panel=RESULT)] = None,
    verbose: Annotated[bool, Option("-v", panel=RESULT)] = False,
) -> None:
    """Show size, weights, degrees, components, diameter and memory of a graph.

    :param histogram: Print the number of vertices of each degree, as bars of text.
    :param plot: Draw the number of vertices of each degree: a picture as the ending says, .pdf, .png or
        .svg.
    :param verbose: Show the memory that several devices need, too.
    """
    from godwit.plots import check_plot, save_plot

    check_plot(plot, graph)
    display = Display(quiet=options.quiet)
    begin = perf_counter()
    loaded = load_graph(graph, display, reading)
    read_s = perf_counter() - begin
    with display.waiting("counting"):
        facts = {"command": "info", **graph_facts(loaded, graph), **_degree_facts(loaded)}
        facts["histogram"] = _histogram(loaded)
        if verbose or options.json:
            facts["memory"] = _memory(loaded)
    with display.waiting("searching"):
        facts |= _structure_facts(loaded)
    if plot is not None:
        with display.waiting("plotting"):
            save_plot(loaded.plot_degrees(), plot)
    facts["seconds"] = {"read": read_s, "examine": perf_counter() - begin - read_s}

    def show(report: Report) -> None:
        _print_facts(report, facts)
        if verbose:
            _print_memory(report, facts)
        if histogram:
            _print_histogram(report, facts["histogram"])

    present(facts, options, show)


def _degree_facts(graph: Graph) -> Facts:
    """Return edges, degrees, self-loops and memory; reads all arcs."""
    degrees = graph.degree_statistics()
    return {
        "edges": graph.edge_count,
        "self_loops": degrees.self_loops,
        "isolated_vertices": degrees.isolated,
        "sinks": degrees.sinks,
        "degree": {name: getattr(degrees, name) for name in ("min", "mean", "median", "max")},
        "max_degree_vertex": (
            graph.ids.in_file[graph.ids.position(graph.highest_degree_vertex())]
            if graph.vertex_count
            else None
        ),
        "memory_bytes": graph.nbytes,
    }


def _structure_facts(graph: Graph) -> Facts:
    """Return components, and bounds of the largest component's diameter, by a few searches."""
    import numpy as np

    from godwit.algorithms.diameter import diameter_bounds
    from godwit.graph.union_find import weak_components

    if graph.vertex_count == 0:
        return {"components": 0, "largest_component": 0, "diameter": None}
    sizes = np.bincount(weak_components(graph.rows, graph.directed))
    bounds = diameter_bounds(graph)
    return {
        "components": int(np.count_nonzero(sizes)),
        "largest_component": int(sizes.max()),
        "diameter": {"lower": bounds.lower, "upper": bounds.upper},
    }


def _histogram(graph: Graph) -> list[Facts]:
    """Return the number of vertices in each class of out-degrees: 0, 1, 2-3, 4-7, …"""
    import numpy as np

    _, classes = np.frexp(graph.out_degree().astype(np.float64))  # exact: degrees are below 2**53
    return [
        {"from": 0 if c == 0 else 1 << (c - 1), "to": (1 << c) - 1, "vertices": int(count)}
        for c, count in enumerate(np.bincount(classes))
    ]


def _memory(graph: Graph) -> list[Facts]:
    """Return the largest part of contiguous partitions, for several device counts.

    Its memory is that of its rows, and of a value for each vertex that it owns or sends to.
    """
    import numpy as np

    from godwit.graph.partition import partition
    from godwit.graph.rows import estimate_bytes

    weight_bytes = 0 if graph.weights is None else graph.weights.itemsize
    parts = []
    for count in (1, 2, 4, 8):
        if count > max(1, graph.vertex_count):
            break
        division = partition(graph, count)
        halo = division.border.sum(axis=1)
        rows = zip(division.vertices_per_part, division.arcs_per_part, halo, strict=True)
        part_bytes = [
            estimate_bytes(int(owned), int(arcs), graph.targets.itemsize, weight_bytes)
            + 8 * int(owned + remote)
            for owned, arcs, remote in rows
        ]
        largest = int(np.argmax(part_bytes))
        parts.append(
            {
                "devices": count,
                "vertices": int(division.vertices_per_part[largest]),
                "arcs": int(division.arcs_per_part[largest]),
                "halo_vertices": int(halo[largest]),
                "bytes": part_bytes[largest],
            }
        )
    return parts


def _print_facts(report: Report, facts: Facts) -> None:
    degree = facts["degree"]
    weights = "none"
    if facts["weights"] is not None:
        weights = facts["weights"]
        if facts["min_weight"] is not None:
            weights += f", {number(facts['min_weight'])} to {number(facts['max_weight'])}"
    vertex = facts["max_degree_vertex"]
    memory = f"{readable_bytes(facts['memory_bytes'])} ({facts['target_dtype']} targets)"
    report.facts(
        [
            ("graph", facts["name"]),
            ("vertices", _vertices(facts)),
            ("arcs", integer(facts["arcs"])),
            *([] if facts["edges"] is None else [("edges", integer(facts["edges"]))]),
            ("directed", "yes" if facts["directed"] else "no (each edge is two arcs)"),
            ("weights", weights),
            (
                "out-degree",
                f"min {integer(degree['min'])}, mean {degree['mean']:,.2f}, "
                f"median {number(degree['median'])}, max {integer(degree['max'])}"
                f"{'' if vertex is None else f' (vertex {vertex})'}",
            ),
            ("no arcs out", f"{integer(facts['sinks'])} vertices"),
            ("isolated", f"{integer(facts['isolated_vertices'])} vertices"),
            ("self-loops", integer(facts["self_loops"])),
            ("components", _components(facts)),
            ("diameter", _diameter(facts["diameter"])),
            ("memory", memory),
            ("loaded in", f"{facts['seconds']['read']:.3f} s"),
        ]
    )


def _print_memory(report: Report, facts: Facts) -> None:
    counts = ("devices", "vertices", "arcs", "halo_vertices")
    report.table(
        ["devices", "vertices", "arcs", "halo vertices", "memory"],
        [
            [*(integer(part[name]) for name in counts), readable_bytes(part["bytes"])]
            for part in facts["memory"]
        ],
        title="Largest part of a contiguous partition, with one value of 8 bytes a vertex",
        text_columns=0,
    )


def _print_histogram(report: Report, histogram: list[Facts]) -> None:
    """Draw logarithmic bars for classes of degrees, as most vertices are in few classes."""
    largest = max((math.log2(1 + bar["vertices"]) for bar in histogram), default=0)
    rows = []
    for bar in histogram:
        degrees = integer(bar["from"])
        if bar["to"] > bar["from"]:
            degrees += f" to {integer(bar['to'])}"
        eighths = round(8 * _BAR_WIDTH * math.log2(1 + bar["vertices"]) / (largest or 1))
        blocks = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        rows.append([blocks, degrees, integer(bar["vertices"])])
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
    interval = integer(lower) if lower == upper else f"{integer(lower)} to {integer(upper)}"
    return f"{interval} edges (of the largest component, directions ignored)"


def _vertices(facts: Facts) -> str:
    count = integer(facts["vertices"])
    if facts["vertices"] == 0:
        return count
    kind = "" if facts["ids"] == "consecutive" else f"{facts['ids']} "
    return f"{count}, {kind}ids {facts['first_id']} to {facts['last_id']}"
