"""Arguments and options that commands share: their names and their help."""

from __future__ import annotations

from typing import Annotated

import typer

_READING = "How the graph is read"
_DEVICES = "Where it runs"
_RESULT = "What comes out"
_TUNING = "Tuning"

GraphOption = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A file, or a generated graph such as rmat:20, road:1000x1000 or path:1000.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="Where the content does not tell it: dimacs, matrix-market, edge-list.",
        rich_help_panel=_READING,
    ),
]
IdBaseOption = Annotated[
    int | None,
    typer.Option(
        "--id-base",
        help="What the file calls its first vertex; by default 1 for DIMACS and Matrix Market, 0 "
        "for edge lists.",
        rich_help_panel=_READING,
    ),
]
DirectedOption = Annotated[
    bool | None,
    typer.Option(
        "--directed/--undirected",
        help="By default as the file has it. --undirected makes an edge of every arc, and one edge "
        "of all arcs between two vertices, with the least of their weights.",
        rich_help_panel=_READING,
        show_default=False,
    ),
]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="N|NAMES",
        help="A number (1 is all cores as one device, more are virtual devices of a thread each), "
        "or names: cpu, or cpu:0,cpu:1. See godwit devices.",
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
    typer.Option("--verify", help="Check the result by Graph500's rules, arc by arc."),
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
