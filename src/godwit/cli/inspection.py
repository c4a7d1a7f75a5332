"""The commands that look and do not search: ``info``, ``partition``, ``devices``."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.progress import Display
from godwit.errors import InputError

INFO_EPILOG = """Examples:

  godwit info USA-road-d.NY.gr.xz

  godwit info rmat:20 --plot

  godwit info follows.csv --columns user,friend

  godwit info dataset:USA-road-d.NY --json | jq .diameter
"""
PARTITION_EPILOG = """Examples:

  godwit partition roads.gr --parts 4

  godwit partition roads.gr --parts 2 --method metis --output owners.npy

  godwit sssp roads.gr --source 1 --devices cpu:0,cpu:1 --partition owners.npy
"""
DEVICES_EPILOG = """Examples:

  godwit devices

  godwit devices --json | jq .topology.routes
"""


@options.reads_graph
def info(
    graph: options.GraphOption,
    plot: Annotated[
        bool,
        typer.Option(
            "--plot",
            help="Draw how many vertices have which degree.",
            rich_help_panel="What comes out",
        ),
    ] = False,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    *,
    reading: options.Reading,
) -> None:
    """What a graph is: size, weights, degrees, components, diameter, memory."""
    from godwit.cli import facts
    from godwit.cli.report import Report, print_histogram, print_info, print_json

    display = Display(quiet=quiet)
    begin = perf_counter()
    loaded = inputs.load_graph(graph, display, reading)
    read_s = perf_counter() - begin
    with display.waiting("counting"):
        found = {
            "command": "info",
            **facts.graph_facts(loaded, graph),
            **facts.degree_facts(loaded),
        }
        found["histogram"] = facts.histogram_facts(loaded)
        found["memory"] = facts.memory_facts(loaded)
    with display.waiting("searching"):
        found |= facts.structure_facts(loaded)
    found["seconds"] = {"read": read_s, "examine": perf_counter() - begin - read_s}
    if json:
        print_json(found)
    elif not quiet:
        report = Report()
        print_info(report, found)
        if plot:
            print_histogram(report, found["histogram"])


@options.reads_graph
def partition(
    graph: options.GraphOption,
    parts: Annotated[
        int, typer.Option("--parts", "-k", help="How many parts.", show_default=False)
    ],
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            "--partition",
            metavar="METHOD|FILE",
            help="contiguous (the default), random, biased-random, metis, or a .npy file with the "
            "part of each vertex.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Seed of partitioners that draw at random.")
    ] = 0,
    output: options.OwnersOutputOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    *,
    reading: options.Reading,
) -> None:
    """Divide a graph, and show what the division costs: cut arcs, borders, balance."""
    from godwit.cli import facts
    from godwit.cli.outputs import Output
    from godwit.cli.report import Report, print_json, print_partition
    from godwit.graph.interchange.tables import Column
    from godwit.graph.partition import partition as divide

    if parts < 1:
        raise InputError(f"parts must be at least 1, got {parts}")
    destination = Output(output, graph, json=json)
    wanted = inputs.parse_partition(method)
    inputs.check_method(wanted)
    display = Display(quiet=quiet)
    begin = perf_counter()
    loaded = inputs.load_graph(graph, display, reading)
    seconds = {"read": perf_counter() - begin}
    with display.waiting("partitioning"):
        begin = perf_counter()
        division = divide(loaded, parts, wanted, seed=seed)
        seconds["partition"] = perf_counter() - begin
        begin = perf_counter()
        measured = facts.partition_facts(division)
        seconds["measure"] = perf_counter() - begin
    destination.write([Column("part", division.owner)], loaded.ids.in_file)
    found = {
        "command": "partition",
        "graph": facts.graph_facts(loaded, graph),
        "partition": measured,
        "output": output,
        "seconds": seconds,
    }
    if json:
        print_json(found)
    elif not quiet:
        print_partition(Report(on_stderr=destination.on_stdout), found)


def devices(json: options.JsonOption = False, quiet: options.QuietOption = False) -> None:
    """The devices of this machine, as --devices takes them, and what joins GPUs."""
    from godwit.cli import facts
    from godwit.cli.report import Report, print_devices, print_json, print_topology
    from godwit.cli.unlisted_gpus import why_unlisted
    from godwit.runtime.cuda import driver
    from godwit.runtime.cuda.devices import topology
    from godwit.runtime.registry import all_devices

    gpus = range(driver.device_count())
    links = topology(gpus) if gpus else None
    listed = all_devices()
    found: dict[str, Any] = {
        "command": "devices",
        "devices": facts.device_facts(listed),
        "unlisted": why_unlisted(listed),
        "topology": None if links is None else links.to_dict(),
    }
    if json:
        print_json(found)
        return
    if quiet:
        return
    report = Report()
    print_devices(report, found["devices"])
    if found["unlisted"] is not None:
        report.facts([("not listed", found["unlisted"])])
    if links is not None and len(links) > 1:
        print_topology(report, links)
