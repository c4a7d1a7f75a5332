"""The commands ``convert`` and ``generate``, which write a graph to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from godwit.cli.facts import Facts, graph_facts
from godwit.cli.inputs import load_graph
from godwit.cli.options import (
    RESULT,
    Argument,
    GraphArgument,
    Option,
    ReadingOptions,
    ReportOptions,
    with_options,
)
from godwit.cli.progress import Display
from godwit.cli.report import graph_line, present
from godwit.config import readable_bytes
from godwit.errors import InputError
from godwit.graph.generators.spec import GENERATORS, is_spec, weight_range
from godwit.io.format_names import format_line

if TYPE_CHECKING:
    from godwit.graph.csr import Graph

CONVERT_EXAMPLES = """
godwit convert USA-road-d.NY.gr.xz roads.godwit
godwit convert follows.csv follows.parquet --columns user,friend
godwit convert web.mtx.gz web.graph --undirected --drop weights
godwit convert web.mtx.gz web.gr --weights 1..64
godwit convert messages.csv friends.csv --columns from,to --undirected --merge sum
godwit convert dataset:soc-LiveJournal1 lj.sg
"""
FORMATS_HELP = (
    f"Formats: {format_line()}. Files named .gz, .bz2, .xz or .zst are compressed. A .godwit file opens in "
    "milliseconds, whatever its size."
)
GENERATE_EXAMPLES = """
godwit generate rmat:20 rmat20.godwit
godwit generate road:1000x1000,keep=0.7,weights=1..64 roads.gr.gz
godwit generate rmat:24 rmat24.godwit --device cuda:0
"""
GENERATORS_HELP = "\n\n".join(
    [
        "Generators:",
        *(f"  {generator.own_usage}\n  {generator.help}" for generator in GENERATORS.values()),
        "Each also takes seed=, weights=LOW..HIGH (integers, or floats as in 0.0..1.0) and copies=.",
    ]
)
_DROPPABLE = ("weights", "ids")
_MERGES = ("sum", "min", "max", "first")

_OutputArgument = Annotated[
    Path, Argument("OUTPUT", "The file to write; its ending determines the format.")
]
_ToOption = Annotated[
    str | None,
    Option("", "FORMAT", "The format to write, if the ending does not determine it.", RESULT),
]


@with_options
def convert(
    graph: GraphArgument,
    output: _OutputArgument,
    options: ReportOptions,
    reading: ReadingOptions,
    to: _ToOption = None,
    drop: Annotated[list[str] | None, Option(metavar="WHAT", panel=RESULT)] = None,
    weights: Annotated[str | None, Option(metavar="LOW..HIGH", panel=RESULT)] = None,
    merge: Annotated[str | None, Option(metavar="HOW", panel=RESULT)] = None,
) -> None:
    """Write a graph in another format. What the format cannot hold is refused, not lost.

    :param drop: weights or ids, which not every format can hold; may be given twice.
    :param weights: Random weights instead of the graph's, equal in both directions of an edge: integers as
        in 1..64, both included, or floats as in 0.0..1.0.
    :param merge: Make one arc, or edge, of parallel ones; its weight is the sum of theirs (without weights,
        their number), or the min, the max or the first.
    """
    for name in drop or []:
        if name not in _DROPPABLE:
            raise InputError(f"--drop must be {' or '.join(_DROPPABLE)}, got {name!r}")
    if merge is not None and merge not in _MERGES:
        raise InputError(f"--merge must be one of {', '.join(_MERGES)}, got {merge!r}")
    bounds = None if weights is None else weight_range(weights)
    if weights is not None and bounds is None:
        raise InputError(f"--weights must be LOW..HIGH, as in 1..64, got {weights!r}")
    weighted = True if bounds is not None or merge == "sum" else None
    if "weights" in (drop or []):
        weighted = False

    def load(display: Display) -> Graph:
        loaded = load_graph(graph, display, reading, merge=merge)
        if bounds is not None:
            loaded = loaded.with_random_weights(*bounds)
        if "weights" in (drop or []):
            loaded = loaded.without_weights()
        return loaded.with_ids(0) if "ids" in (drop or []) else loaded

    _write("convert", graph, output, to, weighted, options, load)


@with_options
def generate(
    spec: Annotated[str, Argument("SPEC")],
    output: _OutputArgument,
    options: ReportOptions,
    to: _ToOption = None,
    device: Annotated[str | None, Option(metavar="NAME")] = None,
) -> None:
    """Generate a graph, and write it to a file. The same arguments always make the same graph.

    :param spec: NAME:SIZE[,KEY=VALUE...]; see below.
    :param device: The device that generates, such as cuda:0, for rmat, road and grid; the CPU by default.
        The graph is the same on all devices.
    """
    if not is_spec(spec):
        raise InputError(
            f"{spec!r} is no generator: use NAME:SIZE with a NAME of {', '.join(GENERATORS)}"
        )
    weighted = ",weights=" in spec

    def load(display: Display) -> Graph:
        return load_graph(spec, display, ReadingOptions(), device)

    _write("generate", spec, output, to, weighted, options, load)


def _write(
    command: str,
    name: str,
    output: Path,
    to: str | None,
    weighted: bool | None,
    options: ReportOptions,
    load: Callable[[Display], Graph],
) -> None:
    """Load a graph, write it and report.

    What is known to fail does so before the graph is loaded.

    :param name: GRAPH or SPEC
    :param weighted: True or False if it is known whether the graph will have weights
    """
    from godwit.files import check_writable
    from godwit.io.graph_files import check_ending, writable_format, write

    if str(output) == "-":
        raise InputError(
            "OUTPUT must be the name of a file, got '-': graphs are not written to stdout"
        )
    written_format = writable_format(output, to)
    check_writable(output, name)
    if weighted is not None:
        check_ending(output, weighted=weighted)
    display = Display(quiet=options.quiet)
    begin = perf_counter()
    graph = load(display)
    read = perf_counter()
    with display.waiting(f"writing {output.name}"):
        write(graph, output, format=to)
    facts: Facts = {
        "command": command,
        "graph": graph_facts(graph, name),
        "output": str(output),
        "format": written_format.name,
        "bytes": output.stat().st_size,
        "seconds": {"read": read - begin, "write": perf_counter() - read},
    }
    size = f"{facts['format']}, {readable_bytes(facts['bytes'])}"
    seconds = ", ".join(f"{phase} {phase_s:.3f}" for phase, phase_s in facts["seconds"].items())
    rows = [
        ("graph", f"{name}: {graph_line(facts['graph'])}"),
        ("written", f"{facts['output']}: {size}"),
        ("seconds", seconds),
    ]
    present(facts, options, lambda report: report.facts(rows))
