"""Arguments and options that commands share: their names and their help."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import typer

_READING = "How the graph is read"
_DEVICES = "Where it runs"
_RESULT = "What comes out"
_TUNING = "Tuning"

GraphOption = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A file (- for standard input), a generated graph such as rmat:20 or road:1000x1000, or a "
        "named data set such as dataset:USA-road-d.NY.",
        show_default=False,
    ),
]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="N|NAMES",
        help="GPUs: cuda is all of them, cuda:1 or cuda:0,cuda:1 some, 2 the first two. CPU: cpu is all "
        "cores as one device, cpu:0,cpu:1 are virtual devices of a thread each; where there is no "
        "GPU, so are numbers (1 is cpu). By default the first GPU, or all GPUs where the graph is "
        "large and wide; else all cores. See godwit devices.",
        rich_help_panel=_DEVICES,
    ),
]
PartitionOption = Annotated[
    str | None,
    typer.Option(
        "--partition",
        metavar="METHOD|FILE",
        help="contiguous (the default), random, biased-random, metis, or a .npy file with the "
        "index of the device that owns each vertex.",
        rich_help_panel=_DEVICES,
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed", help="Seed of partitioners that draw at random.", rich_help_panel=_DEVICES
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="Give up when the run takes longer; reading and partitioning do not count.",
        rich_help_panel=_DEVICES,
    ),
]
TraceOption = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Write a timeline of the run (phases, kernels, copies, threads), such as run.json: open it at "
        "ui.perfetto.dev or chrome://tracing. It is written also if the run fails or is interrupted.",
        rich_help_panel=_RESULT,
        show_default=False,
    ),
]
ExecutionOption = Annotated[
    str | None,
    typer.Option(
        "--execution",
        metavar="KIND",
        help="asynchronous, or bulk-synchronous: in supersteps, at the end of which all devices meet. By "
        "default auto, what is best.",
        rich_help_panel=_DEVICES,
        show_default=False,
    ),
]
DeltaOption = Annotated[
    float | None,
    typer.Option(
        "--delta",
        help="Width of a priority bucket; chosen from weights and degrees by default.",
        rich_help_panel=_TUNING,
    ),
]
WindowOption = Annotated[
    int | None,
    typer.Option(
        "--window",
        help="Buckets that a device may run ahead of the others.",
        rich_help_panel=_TUNING,
    ),
]
RingItemsOption = Annotated[
    int | None,
    typer.Option("--ring-items", help="Slots of each mailbox.", rich_help_panel=_TUNING),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="One JSON object on stdout instead of tables.", rich_help_panel=_RESULT
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="No progress and no tables; errors only.", rich_help_panel=_RESULT
    ),
]
SourceOption = Annotated[
    list[str],
    typer.Option(
        "--source",
        "-s",
        metavar="ID",
        help="Where to begin, as the file numbers its vertices, or max-degree for the vertex with "
        "most arcs. Given several times: distances from the nearest.",
        show_default=False,
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="ID",
        help="Stop when the distance of this vertex is known, and show the path; vertices farther "
        "away come out as not reached.",
    ),
]
CutoffOption = Annotated[
    str | None,
    typer.Option(
        "--cutoff",
        metavar="DISTANCE",
        help="Vertices farther away come out as not reached.",
    ),
]
VerifyOption = Annotated[
    bool,
    typer.Option(
        "--verify",
        help="Check the result by rules that do not depend on how it was computed, serially; exit status 2 "
        "where one is broken.",
    ),
]
PathsOutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the distances: .npy (an array in the order of the vertices), .csv or .parquet "
        "(columns vertex and distance), or - for CSV on stdout.",
        rich_help_panel=_RESULT,
        show_default=False,
    ),
]
PredecessorsOption = Annotated[
    bool,
    typer.Option(
        "--predecessors",
        help="Write the vertex before each on a shortest path, too.",
        rich_help_panel=_RESULT,
    ),
]
OwnersOutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the part of each vertex: .npy (fit for --partition), .csv or .parquet, or - "
        "for CSV on stdout.",
        rich_help_panel=_RESULT,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Reading:
    """How a graph is read: the options of every command that reads one."""

    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="The file's format, where the content does not tell it; godwit convert --help names "
            "them all.",
            rich_help_panel=_READING,
        ),
    ] = None
    id_base: Annotated[
        int | None,
        typer.Option(
            "--id-base",
            help="What the file calls its first vertex, where it counts them; by default 1 for DIMACS, "
            "Matrix Market and METIS. For edge lists and tables it includes --no-relabel.",
            rich_help_panel=_READING,
        ),
    ] = None
    directed: Annotated[
        bool | None,
        typer.Option(
            "--directed/--undirected",
            help="By default as the file has it. --undirected makes an edge of every arc, and one "
            "edge of all arcs between two vertices, with the least of their weights.",
            rich_help_panel=_READING,
            show_default=False,
        ),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="SOURCE,TARGET[,WEIGHT]",
            help="Of a table (CSV, Parquet): the columns that hold the arcs.",
            rich_help_panel=_READING,
        ),
    ] = None
    relabel: Annotated[
        bool | None,
        typer.Option(
            "--relabel/--no-relabel",
            help="Of edge lists and tables: whether the vertices are the ids that occur (the default), or "
            "all numbers up to the largest. Results name the ids of the file either way.",
            rich_help_panel=_READING,
            show_default=False,
        ),
    ] = None
    weight_dtype: Annotated[
        str | None,
        typer.Option(
            "--weight-dtype",
            help="What the weights in a Galois or GAP file are: int32, uint32, int64, float32 or "
            "float64.",
            rich_help_panel=_READING,
        ),
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """What was given, as :func:`godwit.read` takes it."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.columns is not None:
            given["columns"] = [name.strip() for name in self.columns.split(",")]
        return given


def reads_graph(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of :class:`Reading` in the place of its parameter ``reading``."""
    hints = get_type_hints(command, include_extras=True)
    options = get_type_hints(Reading, include_extras=True)
    parameters = [
        parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
        if name != "reading"
    ]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint)
        for name, hint in options.items()
        if name in Reading.__dataclass_fields__
    ]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        reading = Reading(**{name: given.pop(name) for name in Reading.__dataclass_fields__})
        command(**given, reading=reading)

    changed: Any = with_options
    changed.__signature__ = inspect.Signature(parameters)
    changed.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options
