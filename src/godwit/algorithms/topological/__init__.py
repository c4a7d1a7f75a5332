"""Topological generations of a directed graph without cycles.

Generation 0 are the vertices without arcs in; a vertex of generation k has a predecessor in generation
k - 1, and none in later ones. So all arcs lead to later generations, and the number of a vertex is the
length of the longest path that ends there. Method: A. B. Kahn, Topological sorting of large networks,
Communications of the ACM 5 (1962), generation by generation: vertices lose an arc in for every predecessor
that is numbered. Numbers do not depend on the order of arcs, so they are the same on all devices. Vertices
on a cycle, and those behind one, keep an arc in.

On a GPU that is a kernel (topological.cuh) which goes through narrow generations without meetings of all
blocks, and on several without room on the first a step program. Deep graphs of few arcs are sooner done by
one thread of the CPU, which visits each arc once, and takes over where no devices were named.
"""

from __future__ import annotations

import numpy as np

from godwit.algorithms.checks import arc_blocks
from godwit.algorithms.strong_components import check_directed
from godwit.algorithms.strong_components.cpu import finish_components
from godwit.algorithms.topological.cpu import number_generations
from godwit.algorithms.topological.result import GenerationsResult
from godwit.dtypes import Array
from godwit.errors import CycleError
from godwit.frontier.operators import advance, assign, compute, filter, repeat
from godwit.frontier.program import StepProgram
from godwit.graph.csr import Graph
from godwit.graph.facts import in_offsets
from godwit.placement import PlacedGraph, names_devices
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import OF_STEPS, GpuOptions, check_options
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.first_gpu import run_on_first_gpu_with_room
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import (
    GraphArgument,
    SearchTime,
    add_placement,
    devices_for_one_query,
    on_gpus_or_cores,
    on_gpus_unless_slow,
)
from godwit.worker.solve import make_poll

_TIME_ON_A_CORE = SearchTime(vertex_ns=6.0, arc_ns=8.0)  # benchmarks/topological.py

PROGRAM = StepProgram(
    "topological generations",
    fields={"left": "int64", "generation": ("int32", -1)},  # arcs in from vertices without number
    numbers={"now": ("int64", -1)},
    steps=[
        filter(lambda left: left == 0, of="all"),
        repeat(
            [
                assign("now", lambda now: now + 1),
                compute("generation", lambda now: now),
                advance("left", lambda: -1, "add"),
                filter(lambda left: left == 0),
            ],
            until=lambda size: size == 0,
        ),
    ],
)


@public
def topological_generations(
    graph: GraphArgument,
    *,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> GenerationsResult:
    """Number the vertices of a directed graph without cycles so that all arcs lead to larger numbers.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3])
    >>> gw.topological_generations(graph).generation.tolist()
    [0, 1, 2, 3]

    The number of a vertex is the length of the longest path that ends at it: 0 for vertices without arcs
    in. Vertices of one generation have no arcs between them. Source: A. B. Kahn, Topological sorting of
    large networks, Communications of the ACM 5 (1962). One thread of the CPU visits each arc once. A GPU
    processes a generation at a time; one thread of the CPU takes over graphs of many generations and few
    arcs, unless devices were named (``.statistics.devices``).

    :param graph: a directed graph, or one placed on devices by :func:`place`
    :param devices: as for :func:`pagerank`; of several GPUs the first computes if it has room for the graph
    :param results: where ``.generation`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of vertices that have a number so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.generation`` (n) int32, ``.count``, ``.sizes`` (count), ``.order`` (n), ``.to_dict()``
    :raises CycleError: the graph has a cycle; names the first vertex that is on one
    :raises InputError: the graph is undirected, or another wrong argument
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: it does not fit
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    check_directed(plain, "topological_generations")
    with recorded(trace, "topological_generations"):
        generation, statistics = _number(graph, devices, options)
        if len(generation) and generation.min() < 0:
            vertex = _first_on_cycle(plain, generation < 0)
            raise CycleError(plain.ids.of(np.array([vertex]))[0], "topological_generations")
    return GenerationsResult(plain, generation, statistics, options.location)


@public
def is_directed_acyclic_graph(
    graph: GraphArgument,
    *,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> bool:
    """Return True if the graph is directed and has no cycle; a self-loop is one.

    >>> import godwit as gw
    >>> gw.is_directed_acyclic_graph(gw.Graph.from_edges([0, 1], [1, 2]))
    True

    Found as by :func:`topological_generations`, with its parameters other than ``results``.

    :raises InputError: an argument is wrong
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: it does not fit
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress)
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if isinstance(plain, Graph) and not plain.directed:
        return False
    check_directed(plain, "is_directed_acyclic_graph")
    with recorded(trace, "is_directed_acyclic_graph"):
        generation, _ = _number(graph, devices, options)
    return bool((generation >= 0).all())


def _number(
    graph: GraphArgument, devices: DevicesArgument, options: SolverOptions
) -> tuple[Array, RunStatistics]:
    """Return the generation of each vertex, -1 on and behind cycles, on the host; and statistics."""
    if isinstance(graph, Graph):
        devices = devices_for_one_query(graph, devices, options, _TIME_ON_A_CORE, scales=False)
    with on_gpus_or_cores(graph, devices, "topological_generations") as (plain, _, placed):
        if placed is None or plain.vertex_count == 0:
            return _on_a_core(plain, options)
        if not isinstance(graph, PlacedGraph):
            placed.names_devices = names_devices(devices)
        generation, statistics = on_gpus_unless_slow(
            placed, "topological_generations", options, _number_placed, _TIME_ON_A_CORE
        )
        add_placement(statistics, placed, graph)
        return generation, statistics


def _number_placed(placed: PlacedGraph, options: SolverOptions) -> tuple[Array, RunStatistics]:
    """Return the same as :func:`_number` for a graph that is placed."""
    devices = placed.context.devices
    if devices[0].kind == "cpu":
        return _on_a_core(placed.graph, options)
    from godwit.algorithms.topological.cuda import generations_on_gpu

    check_options(devices, options.gpu, "topological generations", OF_STEPS)
    placed.check_all_duplicated("topological generations are numbered")
    statistics = RunStatistics(tuple(device.name for device in devices), "generation by generation")
    poll = make_poll(options, placed.graph.vertex_count)
    outcome = run_on_first_gpu_with_room(
        placed, statistics, lambda whole: generations_on_gpu(whole, options.gpu, poll)
    )
    if outcome is not None:
        return outcome.values, statistics
    left = np.diff(in_offsets(placed.graph))
    result = PROGRAM.run(
        placed, fields={"left": left}, timeout_s=options.timeout_s, progress=options.progress,
        gpu=options.gpu,
    )  # fmt: skip
    return result.fields["generation"], result.statistics


def _on_a_core(graph: Graph, options: SolverOptions) -> tuple[Array, RunStatistics]:
    """Return the same as :func:`_number`, by one thread."""
    statistics = RunStatistics(("cpu",), "one thread")
    with statistics.phase("run"):
        generation, order = number_generations(graph, poll=make_poll(options))
    statistics.processed_items[0] = len(order)
    return generation, statistics


def _first_on_cycle(graph: Graph, is_left: Array) -> int:
    """Return the smallest vertex that is on a cycle.

    :param is_left: (n) False for vertices that are on none
    """
    label = finish_components(graph, np.flatnonzero(~is_left))
    size = np.bincount(label[is_left], minlength=graph.vertex_count)
    on_cycle = is_left & (size[label] > 1)
    for tails, arcs in arc_blocks(graph):
        on_cycle[tails[tails == graph.targets[arcs]]] = True
    return int(np.argmax(on_cycle))
