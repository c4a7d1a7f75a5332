"""The commands that write graphs: ``convert`` and ``generate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import typer

from godwit.cli import inputs, options
from godwit.cli.progress import Display
from godwit.errors import InputError
from godwit.graph.generators.spec import GENERATORS, is_spec, weight_range
from godwit.io.format_names import format_line

if TYPE_CHECKING:
    from godwit.graph.csr import Graph

CONVERT_EPILOG = f"""Examples:

  godwit convert USA-road-d.NY.gr.xz roads.godwit

  godwit convert follows.csv follows.parquet --columns user,friend

  godwit convert web.mtx.gz web.graph --undirected --drop weights

  godwit convert web.mtx.gz web.gr --weights 1..64

  godwit convert dataset:soc-LiveJournal1 lj.sg

Formats: {format_line()}. Names that end in .gz, .bz2, .xz or .zst are compressed. A .godwit file opens in
milliseconds, whatever its size.
"""
_GENERATORS = "\n\n".join(f"  {one.own_usage}\n  {one.help}" for one in GENERATORS.values())
GENERATE_EPILOG = f"""Examples:

  godwit generate rmat:20 rmat20.godwit

  godwit generate road:1000x1000,keep=0.7,weights=1..64 roads.gr.gz

  godwit generate rmat:24 rmat24.godwit --device cuda:0

Generators:

{_GENERATORS}

Each also takes seed=, weights=LOW..HIGH (integers, or floats as in 0.0..1.0) and copies=.
"""
_RESULT = "What comes out"
_DROPPABLE = ("weights", "ids")

OutputArgument = Annotated[
    Path,
    typer.Argument(
        metavar="OUTPUT", help="The file to write; its ending says the format.", show_default=False
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="FORMAT",
        help="The format to write, where the ending does not say it.",
        rich_help_panel=_RESULT,
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="WHAT",
        help="weights or ids, which a format may have no room for; may be given twice.",
        rich_help_panel=_RESULT,
        show_default=False,
    ),
]


@options.reads_graph
def convert(
    graph: options.GraphOption,
    output: OutputArgument,
    to: ToOption = None,
    drop: DropOption = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            metavar="LOW..HIGH",
            help="Random weights in the place of the graph's, equal in both directions of an edge: "
            "integers as in 1..64, both included, or floats as in 0.0..1.0.",
            rich_help_panel=_RESULT,
        ),
    ] = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    *,
    reading: options.Reading,
) -> None:
    """Write a graph in another format. What that has no room for is refused, not lost."""
    for what in drop or []:
        if what not in _DROPPABLE:
            raise InputError(f"--drop must be {' or '.join(_DROPPABLE)}, got {what!r}")
    bounds = None if weights is None else weight_range(weights)
    if weights is not None and bounds is None:
        raise InputError(f"--weights must be LOW..HIGH, as in 1..64, got {weights!r}")

    def changed(loaded: Graph) -> Graph:
        if bounds is not None:
            loaded = loaded.with_random_weights(*bounds)
        return _dropped(loaded, drop or [])

    weighted = True if bounds is not None else False if "weights" in (drop or []) else None
    _write("convert", graph, output, to, weighted, changed, json, quiet, reading)


def generate(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC", help="NAME:SIZE[,KEY=VALUE...]; see below.", show_default=False
        ),
    ],
    output: OutputArgument,
    to: ToOption = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="NAME",
            help="Where it is made, such as cuda:0, which has rmat, road and grid; the CPU by default. "
            "The same graph, wherever it is made.",
        ),
    ] = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Make a graph, and write it to a file. The same arguments always make the same graph."""
    if not is_spec(spec):
        raise InputError(
            f"{spec!r} is no generator: use NAME:SIZE with a NAME of {', '.join(GENERATORS)}"
        )
    weighted = ",weights=" in spec
    _write("generate", spec, output, to, weighted, None, json, quiet, options.Reading(), device)


def _write(
    command: str,
    text: str,
    output: Path,
    to: str | None,
    weighted: bool | None,
    change: Callable[[Graph], Graph] | None,
    json: bool,
    quiet: bool,
    reading: options.Reading,
    device: str | None = None,
) -> None:
    """Read, change and write; what is sure to fail does so before a graph is read.

    :param weighted: whether what is written has weights, if that is known
    :param device: where a generated graph is made
    """
    from godwit.cli import facts
    from godwit.cli.report import Report, print_json, print_written
    from godwit.files import check_writable
    from godwit.io.graph_files import check_ending, writable_format, write

    chosen = writable_format(output, to)
    check_writable(output, text)
    if weighted is not None:
        check_ending(output, weighted=weighted)
    display = Display(quiet=quiet)
    begin = perf_counter()
    graph = inputs.load_graph(text, display, reading, device)
    if change is not None:
        graph = change(graph)
    seconds = {"read": perf_counter() - begin}
    with display.waiting(f"writing {output.name}"):
        begin = perf_counter()
        write(graph, output, format=to)
        seconds["write"] = perf_counter() - begin
    found = {
        "command": command,
        "graph": facts.graph_facts(graph, text),
        "output": str(output),
        "format": chosen.name,
        "bytes": output.stat().st_size,
        "seconds": seconds,
    }
    if json:
        print_json(found)
    elif not quiet:
        print_written(Report(), found)


def _dropped(graph: Graph, drop: list[str]) -> Graph:
    if "weights" in drop:
        graph = graph.without_weights()
    return graph.with_ids(0) if "ids" in drop else graph
