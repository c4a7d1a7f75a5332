"""The command ``partition``."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

from godwit.cli.facts import Facts, graph_facts, partition_facts
from godwit.cli.inputs import check_method, load_graph, parse_partition
from godwit.cli.options import (
    GraphArgument,
    Option,
    OutputOption,
    ReadingOptions,
    ReportOptions,
    with_options,
)
from godwit.cli.progress import Display
from godwit.cli.report import (
    Report,
    graph_line,
    integer,
    outcome_rows,
    partition_line,
    present,
    seconds_line,
)
from godwit.errors import InputError

EXAMPLES = """
godwit partition roads.gr --parts 4
godwit partition roads.gr --parts 2 --method metis --output owners.npy
godwit sssp roads.gr --source 1 --devices cpu:0,cpu:1 --partition owners.npy
"""


@with_options
def partition(
    graph: GraphArgument,
    options: ReportOptions,
    reading: ReadingOptions,
    parts: Annotated[int, Option("-k")],
    method: Annotated[str | None, Option("--method --partition", "METHOD|FILE")] = None,
    seed: int = 0,
    output: OutputOption = None,
) -> None:
    """Divide a graph, and show the cost of the division: cut arcs, borders, balance.

    :param parts: Number of parts.
    :param method: contiguous (the default), random, biased-random, metis, or a .npy file with the part of
        each vertex.
    :param seed: Seed of the partitioners random and biased-random.
    """
    from godwit.cli.outputs import Output
    from godwit.graph.interchange.tables import Column
    from godwit.graph.partition import partition as divide

    if parts < 1:
        raise InputError(f"parts must be at least 1, got {parts}")
    file = Output(output, graph, json=options.json)
    given = parse_partition(method)
    check_method(given)
    display = Display(quiet=options.quiet)
    times = [perf_counter()]
    loaded = load_graph(graph, display, reading)
    times.append(perf_counter())
    with display.waiting("partitioning"):
        division = divide(loaded, parts, given, seed=seed)
        times.append(perf_counter())
        cost = partition_facts(division)
        times.append(perf_counter())
    file.write([Column("part", division.owner)], loaded.ids.in_file)
    facts = {
        "command": "partition",
        "graph": graph_facts(loaded, graph),
        "partition": cost,
        "output": output,
        "seconds": {
            phase: end - begin
            for phase, begin, end in zip(
                ("read", "partition", "measure"), times, times[1:], strict=False
            )
        },
    }
    present(facts, options, lambda report: _show(report, facts), file)


def _show(report: Report, facts: Facts) -> None:
    graph, division = facts["graph"], facts["partition"]
    report.facts(
        [
            ("graph", f"{graph['name']}: {graph_line(graph)}"),
            ("partition", partition_line(division)),
            ("seconds", seconds_line(facts["seconds"])),
            *outcome_rows(facts),
        ]
    )
    names = [f"part {i}" for i in range(division["parts"])]
    columns = [names, *(division[f"{name}_per_part"] for name in ("vertices", "arcs"))]
    report.table(
        ["part", "vertices", "arcs", "share of arcs", "halo vertices"],
        [
            [
                name,
                integer(vertices),
                integer(arcs),
                f"{arcs / max(1, graph['arcs']):.1%}",
                integer(sum(border)),
            ]
            for name, vertices, arcs, border in zip(*columns, division["border"], strict=True)
        ],
        title="Parts",
    )
    if len(names) > 1:
        title = "Border: vertices of one part that another's arcs reach"
        report.matrix(title, names, division["border"])
