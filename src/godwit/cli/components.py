"""The command ``components``: which vertices hang together, and the largest such sets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.scores import Scores, TopOption, answer, check_early
from godwit.cli.streamed_components import (
    EdgeDtypeOption,
    HostMemoryOption,
    MemoryOption,
    Streaming,
    StreamOption,
    VerticesOption,
    answer_stream,
)
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.components.result import ComponentsResult
    from godwit.graph.csr import Graph

COMPONENTS_HELP = (
    "Connected components: sets of vertices that arcs lead between, whatever their direction.\n\n"
    "A component is called by its smallest vertex. All methods give the same result.\n\n"
    "Files of edges (.npy of shape (m, 2), or bare pairs; with --stream, lists of edges in text, and "
    ".godwit files, too) stream to the devices in packets and may be larger than all memory.\n\n"
    "Files: .npy holds the smallest vertex of every vertex' component, in the order of the vertices and "
    "counted from 0; in .csv and .parquet vertices are numbered as in the file of the graph."
)
COMPONENTS_EPILOG = """Examples:

  godwit components web.mtx.gz --top 20

  godwit components follows.csv --columns user,friend --output components.parquet

  godwit components rmat:24 --devices cuda --json | jq .components

  godwit components edges.npy --devices cuda --memory 8GB --host-memory 4GB -o labels.npy

  godwit components twitter.txt.gz --stream --devices cuda -o labels.parquet

  godwit components follows.csv --stream --columns user,friend --devices cuda

  godwit components roads.gr --method rem --output - | cut -d, -f2 | sort | uniq -c
"""

MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        help="afforest, rem, hook or label-propagation; auto: rem where vertices have few arcs, else "
        "afforest.",
    ),
]
RoundsOption = Annotated[
    int | None,
    typer.Option(
        "--rounds",
        help="Neighbours of every vertex that are linked first (afforest), or rounds of hooking without "
        "atomics (rem, hook).",
        show_default=False,
    ),
]
MergeOption = Annotated[
    str,
    typer.Option("--merge", help="How several GPUs come to one result: tree, direct or auto."),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the components: .npy (an array in the order of the vertices), .csv or .parquet "
        "(columns vertex and component), or - for CSV on stdout.",
        rich_help_panel="What comes out",
        show_default=False,
    ),
]


@options.reads_graph
def components(
    graph: options.GraphOption,
    method: MethodOption = "auto",
    rounds: RoundsOption = None,
    merge: MergeOption = "auto",
    top: TopOption = None,
    output: OutputOption = None,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    devices: options.DevicesOption = None,
    timeout: options.TimeoutOption = None,
    trace: options.TraceOption = None,
    verify: options.VerifyOption = False,
    stream: StreamOption = False,
    edge_dtype: EdgeDtypeOption = None,
    vertices: VerticesOption = None,
    memory: MemoryOption = None,
    host_memory: HostMemoryOption = None,
    *,
    reading: options.Reading,
) -> None:
    """Connected components."""
    import godwit as gw
    from godwit.algorithms.components.result import component_columns
    from godwit.graph.csr import Graph

    asked: dict[str, Any] = {
        "method": method,
        "rounds": rounds,
        "merge": merge,
        "devices": inputs.parse_devices(devices),
        "timeout_s": timeout,
    }
    streaming = Streaming(stream, edge_dtype, vertices, memory, host_memory)
    kind = Scores(
        command="components",
        run=partial(_find, asked),
        write=lambda output, result: output.write(component_columns(result), result.ids.in_file),
        highest=_largest,
        facts=_facts,
        line=_line,
        title="The largest components",
        verify=_verify,
    )
    said: dict[str, Any] = {
        "top": top, "output": output, "json": json, "quiet": quiet, "trace": trace, "verify": verify,
    }  # fmt: skip
    if streaming.is_meant(graph):
        columns = _streamed_columns(reading, streaming)
        if verify and graph == "-":
            raise InputError(
                "--verify goes through the edges once more, which standard input has not: give a file"
            )
        if asked.pop("merge") != "auto":
            raise InputError("--merge is for graphs; here, edges stream")
        kind = replace(kind, verify=partial(_verify_stream, graph, edge_dtype, columns))
        answer_stream(kind, graph, streaming, {**asked, "columns": columns}, **said)
        return
    # As far as possible by the components of no vertices, which several devices could not share.
    early = check_early(asked, top)
    if method == "label-propagation":
        early = {**early, "devices": "cpu"}
    gw.connected_components(Graph.from_edges([], []), **early)
    answer(kind, graph, reading, **said)


def _streamed_columns(reading: options.Reading, streaming: Streaming) -> list[str] | None:
    """``--columns``; InputError about all else that says how a graph is read: edges are of no graph."""
    negated = {"directed": "--undirected", "relabel": "--no-relabel"}
    names = [
        negated[name] if value is False else f"--{name.replace('_', '-')}"
        for name, value in reading.given.items()
        if name != "columns"
    ]
    if names:
        it, is_ = ("them", "are") if len(names) > 1 else ("it", "is")
        instead = ", or leave out --stream, to read the graph first" if streaming.stream else ""
        raise InputError(
            f"{' and '.join(names)} {is_} not for edges that stream, of which only the ends count: leave "
            f"{it} out{instead}"
        )
    return reading.given.get("columns")


def _find(asked: dict[str, Any], loaded: Graph, progress: Any) -> ComponentsResult:
    import godwit as gw

    return gw.connected_components(loaded, progress=progress, **asked)


_RIGHT = "labels are the smallest vertices of components"


def _verify(result: ComponentsResult) -> str:
    from godwit.algorithms.components.verify import verify_connected_components

    assert result.graph is not None
    verify_connected_components(result.graph, result.label)
    return _RIGHT


def _verify_stream(
    path: str, edge_dtype: str | None, columns: list[str] | None, result: ComponentsResult
) -> str:
    """By one more pass over the edges."""
    from godwit.algorithms.components.verify import verify_connected_components
    from godwit.cli.inputs import file_of

    edges = file_of(path) if result.graph is None else result.graph
    verify_connected_components(edges, result.label, edge_dtype=edge_dtype, columns=columns)
    return _RIGHT


def _largest(result: ComponentsResult, count: int) -> list[dict[str, Any]]:
    """The largest components, and how many vertices they have."""
    ids = result.ids
    named = ids.in_file
    return [
        {"component": named[ids.position(name)], "vertices": result.size(name)}
        for name in result.largest(count)
    ]


def _facts(result: ComponentsResult) -> dict[str, Any]:
    return {
        "method": result.method,
        "components": result.count,
        "largest_component": int(result.sizes.max(initial=0)),
        "single_vertices": int((result.sizes == 1).sum()),
    }


def _line(facts: dict[str, Any]) -> tuple[str, str]:
    from godwit.cli.report import integer

    said = (
        f"{integer(facts['components'])}, the largest of {integer(facts['largest_component'])} "
        f"vertices, {integer(facts['single_vertices'])} of one vertex ({facts['method']})"
    )
    return "components", said
