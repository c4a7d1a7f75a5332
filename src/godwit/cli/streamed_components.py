"""The command ``components`` for files of edges that stream by, however large they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli.inputs import file_of
from godwit.cli.progress import Display
from godwit.errors import InputError
from godwit.graph.generators.spec import is_spec

if TYPE_CHECKING:
    from godwit.algorithms.components.result import ComponentsResult
    from godwit.cli.scores import Scores

_PANEL = "Edges that stream"
_SHOWN = 10

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_BYTES = r"(?P<number>\d{1,18}(\.\d{1,9})?)(?P<unit>[KMGT]?)(?P<binary>i?)B?"
_BINARY_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

StreamOption = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Edges go to the devices in packets, so that the file may be larger than all memory: a list "
        "of edges (SNAP, .mtx, .gr, CSV, …, compressed or not; ids are integers), a .godwit file, a .npy "
        "array of shape (m, 2), or bare pairs (--edge-dtype). The last two say it by themselves.",
        rich_help_panel=_PANEL,
    ),
]
EdgeDtypeOption = Annotated[
    str | None,
    typer.Option(
        "--edge-dtype",
        metavar="DTYPE",
        help="The file holds bare pairs of such ids: int32, uint32, int64, uint64 or smaller ones.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
VerticesOption = Annotated[
    int | None,
    typer.Option(
        "--vertices",
        metavar="COUNT",
        help="Of a .npy file and of bare pairs: how many there are; ids are below it. By default one more "
        "than the largest, for which the file is gone through twice.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="BYTES",
        help="Use no more on each device, such as 1.5GB.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
HostMemoryOption = Annotated[
    str | None,
    typer.Option(
        "--host-memory",
        metavar="BYTES",
        help="Use no more for buffers on the host, such as 4GB.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Streaming:
    """What was said of edges that stream."""

    stream: bool
    edge_dtype: str | None
    vertices: int | None
    memory: str | None
    host_memory: str | None

    def is_meant(self, graph: str) -> bool:
        """Whether the file is to be streamed; InputError if it is not, and something was said of that."""
        if self.edge_dtype is not None or graph.endswith(".npy"):
            return True
        if self.stream:
            from godwit.io.datasets import is_dataset

            if is_spec(graph) or is_dataset(graph):
                raise InputError(f"--stream takes a file; leave it out for {graph}")
            return True
        for name in ("vertices", "memory", "host_memory"):
            if getattr(self, name) is not None:
                raise InputError(
                    f"--{name.replace('_', '-')} is for edges that stream: --stream, a .npy file, or bare "
                    "pairs (--edge-dtype)"
                )
        return False

    @property
    def given(self) -> dict[str, Any]:
        """As the Python function takes it."""
        return {
            "edge_dtype": self.edge_dtype,
            "vertex_count": self.vertices,
            "memory_bytes": parse_bytes(self.memory, "--memory"),
            "host_bytes": parse_bytes(self.host_memory, "--host-memory"),
        }


def parse_bytes(text: str | None, name: str) -> int | None:
    """``"1.5GB"``, ``"512MiB"`` or ``"1000000"`` as a number of bytes, rounded down."""
    if text is None:
        return None
    match = re.fullmatch(_BYTES, text.strip(), re.IGNORECASE | re.ASCII)
    if match is None or (not match["unit"] and (match["binary"] or "." in match["number"])):
        raise InputError(f"{name} must be a number of bytes such as 1.5GB or 512MiB, got {text!r}")
    units = _BINARY_UNITS if match["binary"] else _UNITS
    return int(Fraction(match["number"]) * units[match["unit"].upper()])


def answer_stream(
    scores: Scores, path: str, streaming: Streaming, asked: dict[str, Any],
    *, top: int | None, output: str | None, json: bool, quiet: bool, trace: str | None, verify: bool,
) -> ComponentsResult:  # fmt: skip
    """Run, verify, write and print; the result."""
    import godwit as gw
    from godwit.cli.facts import verification_facts
    from godwit.cli.outputs import Output
    from godwit.cli.report import integer, number, print_json
    from godwit.cli.scores import print_scores, verify_scores
    from godwit.dtypes import as_count
    from godwit.trace import recorded

    shown = _SHOWN if top is None else as_count(top, "top")
    destination = Output(output, path, json=json, trace=trace)
    display = Display(quiet=quiet)
    with recorded(trace, f"godwit {scores.command}", input_path=path):
        begin = perf_counter()
        with display.steps("linking edges") as show:
            progress = None if show is None else lambda done: show(int(done), done.total)
            result = gw.connected_components_of_edges(
                file_of(path), progress=progress, **asked, **streaming.given
            )
        seconds = perf_counter() - begin
        verification = verify_scores(scores, result, display) if verify else None
        if destination.target is not None:
            with display.waiting("writing"), result.statistics.phase("write"):
                scores.write(destination, result)
    statistics = result.statistics.to_dict()
    edges = int(result.statistics.processed_items.sum())
    if result.graph is not None and not result.graph.directed:  # each is two arcs
        edges = result.graph.edge_count or 0
    found = {
        "command": scores.command,
        "graph": {"name": path, "vertices": len(result.label), "edges": edges},
        **scores.facts(result),
        "edges_per_s": edges / seconds if seconds else None,
        "top": scores.highest(result, shown),
        **verification_facts(verification),
        "output": destination.target,
        "statistics": statistics,
    }
    if json:
        print_json(found)
    elif not quiet:
        size = f"{integer(found['graph']['vertices'])} vertices, {integer(edges)} edges"
        rate = f" ({number(found['edges_per_s'] or 0.0)} edges/s)"
        print_scores(scores, found, destination, size, rate, highest=top is not None)
    return result
