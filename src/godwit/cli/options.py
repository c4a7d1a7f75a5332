"""Options that commands share, and the meaning of what is written behind them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from godwit.errors import InputError

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
        help="Format of the file, where its content does not tell: dimacs, matrix-market, edge-list.",
        rich_help_panel=_READING,
    ),
]
IdBaseOption = Annotated[
    int | None,
    typer.Option(
        "--id-base",
        help="What the file calls its first vertex (by default 1 for DIMACS and Matrix Market, 0 for "
        "edge lists).",
        rich_help_panel=_READING,
    ),
]
DirectedOption = Annotated[
    bool | None,
    typer.Option(
        "--directed/--undirected",
        help="As the file has it by default. --undirected makes an edge of every arc, and one edge of "
        "arcs between the same two vertices, with the least of their weights.",
        rich_help_panel=_READING,
        show_default=False,
    ),
]
DevicesOption = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="N|NAMES",
        help="A number (1 is all cores as one device, more are virtual devices of a thread each) or "
        "names: cpu, or cpu:0,cpu:1. See godwit devices.",
        rich_help_panel=_DEVICES,
    ),
]
PartitionOption = Annotated[
    str | None,
    typer.Option(
        "--partition",
        metavar="METHOD|FILE",
        help="contiguous (the default), random, biased-random, metis, or a .npy file with the index of "
        "the device that owns each vertex.",
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
        help="Where to begin, as the file numbers its vertices, or max-degree for the vertex with most "
        "arcs. Given several times: distances from the nearest.",
        show_default=False,
    ),
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="ID",
        help="Stop when the distance of this vertex is known, and show the path; vertices farther away "
        "come out as not reached.",
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
        help="Write the part of each vertex: .npy (fit for --partition), .csv or .parquet, or - for CSV "
        "on stdout.",
        rich_help_panel=_RESULT,
        show_default=False,
    ),
]


def parse_devices(text: str | None) -> int | str | list[str] | None:
    """``"4"``, ``"cpu"`` or ``"cpu:0,cpu:1"`` as the Python functions take them."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise InputError(
            f"--devices must be a number or names such as cpu or cpu:0,cpu:1, got {text!r}"
        )
    return names[0] if len(names) == 1 else names


def parse_partition(text: str | None) -> Any:
    """The name of a method as it is, or the owners that a .npy file holds."""
    if text is None or not text.endswith(".npy"):
        return text
    return load_owners(Path(text))


def load_owners(path: Path) -> Any:
    """The array in a .npy file."""
    import numpy as np

    from godwit.errors import FileError, FormatError

    try:
        with path.open("rb") as file:
            return np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        raise FormatError(path, f"not an array of owners in NumPy's format: {error}") from error
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error


def parse_distance(text: str | None, name: str) -> int | float | None:
    """A distance, exact where it is an integer; None where there is no limit."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise InputError(f"{name} must be a number, got {text!r}")
    return None if value == math.inf else value
