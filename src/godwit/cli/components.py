"""The commands ``components``, also of edges that stream from files, and ``strong-components``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from godwit.cli.facts import Facts
from godwit.cli.inputs import file_of
from godwit.cli.options import GraphArgument, Option, ReadingOptions, RunOptions, with_options
from godwit.cli.progress import Display
from godwit.cli.query import ScoreOptions, ScoreQuery
from godwit.cli.report import Report, integer, number
from godwit.config import launched_processes
from godwit.errors import InputError
from godwit.graph.generators.spec import is_spec

if TYPE_CHECKING:
    from godwit.algorithms.components.result import ComponentsResult
    from godwit.cli.outputs import Output
    from godwit.distributed.graph import DistributedGraph

EXAMPLES = """
godwit components web.mtx.gz --top 20
godwit components follows.csv --columns user,friend --output components.parquet
godwit components rmat:24 --devices cuda --json | jq .components
godwit components edges.npy --devices cuda --memory 8GB --host-memory 4GB -o labels.npy
godwit components twitter.txt.gz --stream --devices cuda -o labels.parquet
godwit components follows.csv --stream --columns user,friend --devices cuda
godwit components roads.gr --method rem --output - | cut -d, -f2 | sort | uniq -c
"""
STRONG_EXAMPLES = """
godwit strong-components web.mtx.gz --top 20
godwit strong-components follows.csv --columns user,friend --output components.parquet
godwit strong-components web.godwit --devices cuda --json | jq .components
godwit strong-components calls.txt --verify
"""
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_BINARY_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_BYTES = r"(?P<number>\d{1,18}(\.\d{1,9})?)(?P<unit>[KMGT]?)(?P<binary>i?)B?"


@dataclass(frozen=True)
class _StreamOptions:
    """Options of edges that stream.

    :param stream: Send edges to the devices in packets, so that the file may be larger than all memory: a
        list of edges (SNAP, .mtx, .gr, CSV, …, compressed or not; ids are integers), a .godwit file, a .npy
        array of shape (m, 2), or bare pairs (--edge-dtype). The last two imply --stream.
    :param edge_dtype: The file holds bare pairs of ids of this type: int32, uint32, int64, uint64 or
        smaller.
    :param vertices: Number of vertices of a .npy file or of bare pairs; ids are smaller. By default one
        more than the largest id, which takes a pass over the file of its own.
    :param memory: Maximum on each device, such as 1.5GB.
    :param host_memory: Maximum for buffers on the host, such as 4GB.
    """

    panel: ClassVar[str] = "Edges that stream"

    stream: bool = False
    edge_dtype: Annotated[str | None, Option(metavar="DTYPE")] = None
    vertices: Annotated[int | None, Option(metavar="COUNT")] = None
    memory: Annotated[str | None, Option(metavar="BYTES")] = None
    host_memory: Annotated[str | None, Option(metavar="BYTES")] = None

    def stream_from(self, graph: str) -> bool:
        """Return True if the file is to be streamed.

        :raises InputError: it is not, and there are options that need it
        """
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

    def arguments(self, reading: ReadingOptions) -> dict[str, Any]:
        """Return the arguments of the Python function.

        :raises InputError: ``reading`` has other options than ``--columns``, which edges have no use for
        """
        names = [name for name in reading.names if name != "--columns"]
        if names:
            them, are = ("them", "are") if len(names) > 1 else ("it", "is")
            instead = ", or leave out --stream, to read the graph first" if self.stream else ""
            raise InputError(
                f"{' and '.join(names)} {are} not for edges that stream, of which only the ends count: "
                f"leave {them} out{instead}"
            )
        return {
            "edge_dtype": self.edge_dtype,
            "vertex_count": self.vertices,
            "memory_bytes": parse_bytes(self.memory, "--memory"),
            "host_bytes": parse_bytes(self.host_memory, "--host-memory"),
            "columns": reading.arguments.get("columns"),
        }


def parse_bytes(text: str | None, name: str) -> int | None:
    """Return ``"1.5GB"``, ``"512MiB"`` or ``"1000000"`` as a number of bytes, rounded down."""
    if text is None:
        return None
    match = re.fullmatch(_BYTES, text.strip(), re.IGNORECASE | re.ASCII)
    if match is None or (not match["unit"] and (match["binary"] or "." in match["number"])):
        raise InputError(f"{name} must be a number of bytes such as 1.5GB or 512MiB, got {text!r}")
    units = _BINARY_UNITS if match["binary"] else _UNITS
    return int(Fraction(match["number"]) * units[match["unit"].upper()])


@dataclass
class _ComponentsQuery(ScoreQuery):
    title = "The largest components"

    def verify(self, result: ComponentsResult) -> str:
        return self.verify_labels(self.graph, result)

    def verify_labels(self, edges: Any, result: ComponentsResult, **reading: Any) -> str:
        """Check the labels by a graph or a file of edges."""
        from godwit.algorithms.components.verify import verify_connected_components

        verify_connected_components(edges, result.label, **reading)
        return "labels are the smallest vertices of components"

    def write(self, output: Output, result: ComponentsResult) -> None:
        output.write(result.columns, result.ids.in_file)

    def highest(self, result: ComponentsResult, count: int) -> list[Facts]:
        ids = result.ids
        return [
            {"component": ids.in_file[ids.position(name)], "vertices": size}
            for name, size in result.largest(count)
        ]

    def details(self, result: ComponentsResult) -> Facts:
        return {
            "method": result.method,
            "components": result.count,
            "largest_component": int(result.sizes.max(initial=0)),
            "single_vertices": int((result.sizes == 1).sum()),
        }

    def summary(self, facts: Facts) -> tuple[str, str]:
        return "components", (
            f"{integer(facts['components'])}, the largest of {integer(facts['largest_component'])} "
            f"vertices, {integer(facts['single_vertices'])} of one vertex ({facts['method']})"
        )


@dataclass
class _StreamQuery(_ComponentsQuery):
    """Components of edges that are not read as a graph."""

    def run(self, display: Display) -> ComponentsResult:
        import godwit as gw

        begin = perf_counter()
        with display.bar("linking edges") as progress:
            result = gw.connected_components_of_edges(
                file_of(self.input), progress=progress, **self.arguments
            )
        self._run_s = perf_counter() - begin
        return result

    def verify(self, result: ComponentsResult) -> str:
        """Check by one more pass over the edges."""
        if result.graph is not None:
            return self.verify_labels(result.graph, result)
        reading = {name: self.arguments[name] for name in ("edge_dtype", "columns")}
        return self.verify_labels(file_of(self.input), result, **reading)

    def facts(self, result: ComponentsResult, outcome: Facts) -> Facts:
        edges = int(result.statistics.processed_items.sum())
        if result.graph is not None and not result.graph.directed:  # each is two arcs
            edges = result.graph.edge_count or 0
        return {
            "graph": {"name": self.input, "vertices": len(result.label), "edges": edges},
            **self.details(result),
            "edges_per_s": edges / self._run_s if self._run_s else None,
            "top": self.top(result),
            **outcome,
            "statistics": result.statistics.to_dict(),
        }

    def show(self, report: Report, facts: Facts) -> None:
        graph = facts["graph"]
        size = f"{integer(graph['vertices'])} vertices, {integer(graph['edges'])} edges"
        rate = f" ({number(facts['edges_per_s'] or 0.0)} edges/s)"
        self.show_scores(report, facts, size, rate)


def _on_processes(
    graph: str, options: ScoreOptions, reading: ReadingOptions, timeout_s: float | None,
    given: dict[str, Any], devices: str | None, arguments: dict[str, Any],
) -> None:  # fmt: skip
    """Find components on the processes that ``mpiexec`` has started.

    :param given: options that one process alone takes; None if not given
    :param arguments: those that GPUs take; None if not given
    """
    from godwit.cli.processes import (
        ProcessesQuery,
        components_rows,
        describe_components,
        uses_gpus,
    )

    arguments = {name: value for name, value in arguments.items() if value is not None}
    if not uses_gpus(devices):
        given |= {f"--{name}": value for name, value in arguments.items()}
        arguments = {}

    def call(graph: DistributedGraph, progress: Any) -> Any:
        import godwit as gw

        return gw.connected_components(graph, timeout_s=timeout_s, progress=progress, **arguments)

    ProcessesQuery(
        "components",
        graph,
        options,
        reading,
        call,
        describe_components,
        components_rows,
        given,
        devices=devices,
    ).answer()


@with_options
def components(
    graph: GraphArgument,
    options: ScoreOptions,
    run: RunOptions,
    streaming: _StreamOptions,
    reading: ReadingOptions,
    method: str = "auto",
    rounds: int | None = None,
    merge: str = "auto",
) -> None:
    """Connected components: sets of vertices that arcs lead between, whatever their direction.

    A component is named by its smallest vertex. All methods give the same result.

    Files of edges (.npy of shape (m, 2), or bare pairs; with --stream, lists of edges in text, and .godwit
    files as well) stream to the devices in packets and may be larger than all memory.

    Files: .npy holds the smallest vertex of every vertex' component, in the order of the vertices and
    counted from 0; .csv and .parquet have columns vertex and component, numbered as in the file of the
    graph.

    :param method: afforest, rem, hook or label-propagation; auto: rem where vertices have few arcs, else
        afforest.
    :param rounds: Neighbours of every vertex that are linked first (afforest), or rounds of hooking without
        atomics (rem, hook).
    :param merge: How the results of several GPUs are merged: tree, direct or auto.
    """
    name = "connected_components"
    if launched_processes() > 1:
        given = {"--top": options.top, "--stream": streaming.stream_from(graph) or None}
        chosen = {
            "method": None if method == "auto" else method, "rounds": rounds,
            "merge": None if merge == "auto" else merge,
        }  # fmt: skip
        _on_processes(graph, options, reading, run.timeout_s, given, run.devices, chosen)
        return
    arguments = {"method": method, "rounds": rounds, "merge": merge, **run.arguments}
    if streaming.stream_from(graph):
        if options.verify and graph == "-":
            raise InputError(
                "--verify goes through the edges once more, which standard input does not allow: give "
                "a file"
            )
        if arguments.pop("merge") != "auto":
            raise InputError("--merge is for graphs; here, edges stream")
        arguments |= streaming.arguments(reading)
        query: _ComponentsQuery = _StreamQuery(
            "components", graph, options, reading, arguments, name
        )
    else:
        query = _ComponentsQuery("components", graph, options, reading, arguments, name)
        query.check_early(**({"devices": "cpu"} if method == "label-propagation" else {}))
    query.answer()


@dataclass
class _StrongQuery(_ComponentsQuery):
    """Strongly connected components."""

    def verify(self, result: ComponentsResult) -> str:
        from godwit.algorithms.strong_components.verify import verify_strongly_connected_components

        if not self.graph.directed:
            return super().verify(result)
        verify_strongly_connected_components(self.graph, result.label)
        return "labels are the smallest vertices of strong components"


@with_options
def strong_components(
    graph: GraphArgument, options: ScoreOptions, run: RunOptions, reading: ReadingOptions
) -> None:
    """Strongly connected components: sets of vertices that reach each other.

    A component is named by its smallest vertex. Those of an undirected graph are its connected components.

    Files: .npy holds the smallest vertex of every vertex' component, in the order of the vertices and
    counted from 0; .csv and .parquet have columns vertex and component, numbered as in the file of the
    graph.
    """
    query = _StrongQuery(
        "strong-components", graph, options, reading, run.arguments, "strongly_connected_components"
    )
    query.check_early()
    query.answer()
