"""The commands that look and do not search: ``info``, ``partition``, ``devices``."""

from __future__ import annotations

from time import perf_counter
from typing import Annotated

import typer

from godwit.cli import inputs, options
from godwit.cli.progress import Display
from godwit.errors import InputError

INFO_EPILOG = """Examples:

  godwit info USA-road-d.NY.gr.xz

  godwit info rmat:20 --json | jq .degree
"""
PARTITION_EPILOG = """Examples:

  godwit partition roads.gr --parts 4

  godwit partition roads.gr --parts 4 --method metis --output owners.npy

  godwit sssp roads.gr --source 1 --devices 4 --partition owners.npy
"""
DEVICES_EPILOG = """Examples:

  godwit devices

  godwit devices --json
"""


def info(
    graph: options.GraphOption,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    format: options.FormatOption = None,
    id_base: options.IdBaseOption = None,
    directed: options.DirectedOption = None,
) -> None:
    """What a graph is: size, weights, degrees, memory."""
    from godwit.cli import facts
    from godwit.cli.report import Report, print_info, print_json

    display = Display(quiet=quiet)
    begin = perf_counter()
    loaded = inputs.load_graph(graph, display, format=format, id_base=id_base, directed=directed)
    read_s = perf_counter() - begin
    with display.waiting("counting"):
        found = {
            "command": "info",
            **facts.graph_facts(loaded, graph),
            **facts.degree_facts(loaded),
            "seconds": {"read": read_s},
        }
    if json:
        print_json(found)
    elif not quiet:
        print_info(Report(), found)


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
    format: options.FormatOption = None,
    id_base: options.IdBaseOption = None,
    directed: options.DirectedOption = None,
) -> None:
    """Divide a graph, and show what the division costs: cut arcs, borders, balance."""
    from godwit.cli import facts
    from godwit.cli.outputs import Column, Output
    from godwit.cli.report import Report, print_json, print_partition
    from godwit.graph.partition import partition as divide

    if parts < 1:
        raise InputError(f"parts must be at least 1, got {parts}")
    destination = Output(output, graph)
    if json and destination.on_stdout:
        raise InputError("--json and --output - both want stdout; give --output a file")
    wanted = inputs.parse_partition(method)
    inputs.check_method(wanted)
    display = Display(quiet=quiet)
    begin = perf_counter()
    loaded = inputs.load_graph(graph, display, format=format, id_base=id_base, directed=directed)
    seconds = {"read": perf_counter() - begin}
    with display.waiting("partitioning"):
        begin = perf_counter()
        division = divide(loaded, parts, wanted, seed=seed)
        seconds["partition"] = perf_counter() - begin
        begin = perf_counter()
        measured = facts.partition_facts(division)
        seconds["measure"] = perf_counter() - begin
    destination.write([Column("part", division.owner)], loaded.id_base)
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


def devices(json: options.JsonOption = False) -> None:
    """The devices of this machine, as --devices takes them."""
    from godwit.backends.registry import all_devices
    from godwit.cli import facts
    from godwit.cli.report import Report, print_devices, print_json

    found = facts.device_facts(all_devices())
    if json:
        print_json({"command": "devices", "devices": found})
    else:
        print_devices(Report(), found)
