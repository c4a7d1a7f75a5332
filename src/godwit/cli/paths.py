"""The commands ``bfs`` and ``sssp``: one body, since they ask and answer the same."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import typer

from godwit.cli import inputs, options
from godwit.cli.progress import Display
from godwit.errors import InputError

if TYPE_CHECKING:
    from godwit.algorithms.paths.result import PathResult
    from godwit.graph.csr import Graph
    from godwit.placement import PlacedGraph
    from godwit.worker.options import WorkerOptions

_COUNTED = (
    "MTEPS are millions of arcs that leave reached vertices, per second of the phases run and "
    "kernel: each arc counts once, however often it was relaxed; reading, partitioning and placing do "
    "not count.\n\n"
    "Files: .npy holds the distances in the order of the vertices; one that was not reached has "
    "the largest value of the dtype, or infinity. With --predecessors its records have two fields, "
    "distance and predecessor; there, vertices count from 0, and -1 is none. In .csv and .parquet "
    "vertices are numbered as in the file of the graph, and what was not reached is empty or null."
)

BFS_HELP = f"Breadth-first search: distances in arcs from a vertex.\n\n{_COUNTED}"
SSSP_HELP = (
    "Shortest paths: least sums of weights from a vertex.\n\n"
    "Weights must not be negative; without weights each arc counts 1.\n\n"
    f"{_COUNTED}"
)
BFS_EPILOG = """Examples:

  godwit bfs web.mtx.gz --source 1 --output distances.parquet

  godwit bfs rmat:20,edge_factor=8 --source max-degree --verify

  godwit bfs rmat:20 -s max-degree --devices cuda:0,cuda:1 --execution bulk-synchronous

  godwit bfs soc.mtx --undirected -s 1 -s 17 --cutoff 3 --output - | sort -t, -k2n | head
"""
SSSP_EPILOG = """Examples:

  godwit sssp USA-road-d.NY.gr.xz --source 1 --output distances.npy

  godwit sssp roads.gr --source 1 --target 9000

  godwit sssp road:1000x1000,weights=1..64 -s max-degree --devices cuda --partition metis

  godwit sssp road:1000x1000,weights=1..64 -s max-degree --devices cpu:0,cpu:1 --verify

  godwit sssp rmat:20,weights=1..64 -s max-degree --devices 2 --execution bulk-synchronous

  godwit sssp roads.gr --source 1 --trace run.json     (open it at ui.perfetto.dev)

  godwit sssp roads.gr --source 1 --json | jq .mteps
"""


@dataclass(frozen=True)
class _Query:
    """What was asked, taken apart and checked as far as it can be without the graph."""

    algorithm: str
    sources: list[str]
    target: str | None
    cutoff: int | float | None
    verify: bool
    predecessors: bool
    seed: int
    devices: Any
    partition: Any
    timeout_s: float | None
    execution: str
    worker: WorkerOptions


@options.reads_graph
def paths(
    context: typer.Context,
    graph: options.GraphOption,
    source: options.SourceOption,
    target: options.TargetOption = None,
    cutoff: options.CutoffOption = None,
    verify: options.VerifyOption = False,
    output: options.PathsOutputOption = None,
    predecessors: options.PredecessorsOption = False,
    json: options.JsonOption = False,
    quiet: options.QuietOption = False,
    devices: options.DevicesOption = None,
    partition: options.PartitionOption = None,
    seed: options.SeedOption = 0,
    execution: options.ExecutionOption = None,
    timeout: options.TimeoutOption = None,
    trace: options.TraceOption = None,
    delta: options.DeltaOption = None,
    window: options.WindowOption = None,
    ring_items: options.RingItemsOption = None,
    *,
    reading: options.Reading,
) -> None:
    """Distances from a vertex."""
    from godwit.cli.outputs import Output
    from godwit.cli.report import Report, print_json, print_paths
    from godwit.trace import recorded, seconds_since
    from godwit.worker.options import WorkerOptions

    query = _Query(
        algorithm=str(context.command.name),
        sources=source,
        target=target,
        cutoff=inputs.parse_distance(cutoff, "cutoff"),
        verify=verify,
        predecessors=predecessors,
        seed=seed,
        devices=inputs.parse_devices(devices),
        partition=inputs.parse_partition(partition),
        timeout_s=timeout,
        execution="auto" if execution is None else execution,
        worker=WorkerOptions(delta, 1 if window is None else window, ring_items),
    )
    destination = Output(output, graph, json=json, trace=trace)
    _check_early(query)
    display = Display(quiet=quiet)
    with recorded(trace, f"godwit {query.algorithm}", input_path=graph):
        begin = perf_counter()
        loaded = inputs.load_graph(graph, display, reading)
        read_s = seconds_since(begin, "read")
        facts = _run(query, loaded, graph, read_s, destination, display)
    if json:
        print_json(facts)
    elif not quiet:
        print_paths(Report(on_stderr=destination.on_stdout), facts)


def _check_early(query: _Query) -> None:
    """Fail before a large file is read, where that is possible."""
    from godwit.algorithms.paths.result import check_cutoff
    from godwit.runtime.registry import resolve_devices
    from godwit.worker.options import query_options

    if query.timeout_s is not None and not query.timeout_s > 0:
        raise InputError(f"timeout must be a positive number of seconds, got {query.timeout_s:g}")
    check_cutoff(query.cutoff)
    resolve_devices(query.devices)
    query_options(execution=query.execution, timeout_s=query.timeout_s)
    inputs.check_method(query.partition)


def _run(
    query: _Query, graph: Graph, name: str, read_s: float, destination: Any, display: Display
) -> dict[str, Any]:
    from godwit.algorithms.paths.result import path_columns
    from godwit.cli import facts
    from godwit.worker.place import place

    sources = [inputs.parse_vertex(text, graph, "source") for text in query.sources]
    target = None if query.target is None else inputs.parse_vertex(query.target, graph, "target")
    with display.waiting("partitioning"):
        placed = place(graph, query.devices, query.partition, seed=query.seed)
    with placed:
        result = _search(query, placed, sources, target, display)
        if query.verify:
            with display.waiting("verifying"), result.statistics.phase("verify"):
                _verify(query, result, target)
        if destination.target is not None:
            with display.waiting("writing"):
                columns = path_columns(result, predecessors=query.predecessors)
                with result.statistics.phase("write"):
                    destination.write(columns, graph.ids.in_file)
        found = facts.result_facts(result)
        if target is not None:
            found["target"] = facts.target_facts(result, target)
        statistics = result.statistics.to_dict()
        statistics["seconds"] = {"read": read_s, **placed.seconds, **statistics["seconds"]}
        return {
            "command": query.algorithm,
            "graph": facts.graph_facts(graph, name),
            **found,
            **facts.verification_facts(
                "every distance and predecessor is right" if query.verify else None
            ),
            "output": destination.target,
            "partition": facts.partition_facts(placed.partition),
            "statistics": statistics,
        }


def _search(
    query: _Query, placed: PlacedGraph, sources: list[Any], target: Any, display: Display
) -> PathResult:
    import godwit as gw

    algorithm = {"bfs": gw.bfs, "sssp": gw.sssp}[query.algorithm]
    with display.items(f"running {query.algorithm}") as progress:
        result: PathResult = algorithm(
            placed,
            sources,
            target=target,
            cutoff=query.cutoff,
            progress=progress,
            execution=query.execution,
            timeout_s=query.timeout_s,
            worker=query.worker,
        )
        if query.predecessors or query.verify:
            _ = result.predecessor
    return result


def _verify(query: _Query, result: PathResult, target: Any) -> None:
    """What lies beyond the target is beyond a cutoff, too."""
    from godwit.algorithms.paths.verify import verify_bfs, verify_sssp

    cutoff = query.cutoff
    ids = result.graph.ids
    if target is not None:
        to_target = result.distance[ids.position(target)].item()
        if to_target != result.unreached:
            cutoff = to_target if cutoff is None else min(cutoff, to_target)
    check = {"bfs": verify_bfs, "sssp": verify_sssp}[query.algorithm]
    sources = result.sources
    check(result.graph, sources, result.distance, result.predecessor, cutoff=cutoff)
