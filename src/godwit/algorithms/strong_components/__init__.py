"""Strongly connected components, and the graph of them.

A component is named by its smallest vertex, so results are the same on all devices. On the CPU (cpu.py) one
thread searches depth-first, or all threads find the largest component first; on a GPU (cuda.py) the
largest component is found by two searches, and the others by least ids that propagate. There the work is
bounded: a graph that needs more goes to the CPU's depth-first search. Of an undirected graph strong and
connected components are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from godwit.algorithms.components import connected_components
from godwit.algorithms.components.result import ComponentsResult
from godwit.algorithms.strong_components.cpu import finish_components, strong_components
from godwit.dtypes import Array, frozen
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph
from godwit.graph.rows import require_memory
from godwit.placement import PlacedGraph
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions, check_strong_components
from godwit.runtime.registry import DevicesArgument
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.first_gpu import run_on_first_gpu
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import SolverOptions, query_options
from godwit.worker.query import DeviceQuery, GraphArgument
from godwit.worker.solve import make_poll


@public
def strongly_connected_components(
    graph: GraphArgument,
    *,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> ComponentsResult:
    """Find the strongly connected component of every vertex: those that it reaches, and that reach it.

    >>> import godwit as gw
    >>> graph = gw.Graph.from_edges([0, 1, 2, 2], [1, 2, 1, 3])
    >>> gw.strongly_connected_components(graph).label.tolist()
    [0, 1, 1, 3]

    A component is named by its smallest vertex, on all devices. ``.method`` says how it was found:

    - ``"depth-first"``, by one thread (D. J. Pearce, Information Processing Letters 116, 2016);
    - ``"forward-backward"``, by all threads, in large and shallow graphs that are placed or whose
      ``graph.reverse`` has been made (L. Fleischer, B. Hendrickson, A. Pinar, IPDPS 2000), and then
      depth-first;
    - ``"least ids"``, by a GPU: forward-backward and trimming (G. M. Slota, S. Rajamanickam, K. Madduri,
      IPDPS 2014), then least ids that propagate (ECL-SCC: G. Alabandi, W. Sands, G. Biros, M. Burtscher, SC
      2023). If that takes too many steps, as in long cycles, a thread of the CPU does it, and the method
      is ``"depth-first"``.

    Of an undirected graph it is :func:`connected_components`.

    :param graph: a graph, or one placed on devices by :func:`place`
    :param devices: as for :func:`pagerank`. Of several GPUs the first one runs alone, and must have room
        for the whole graph: ``.statistics.devices`` names it
    :param results: where ``.label`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph and compiling are not counted
    :param progress: as for :func:`bfs`: the number of vertices that are done so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.label`` (n), ``.count``, ``.sizes`` and ``.names`` (count), ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, or several devices of the CPU
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: the graph does not fit on the GPU, or the labels in memory
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    if not isinstance(plain, Graph):
        raise not_a_graph(plain)
    if not plain.directed:
        return connected_components(
            graph, devices=devices, results=results, timeout_s=timeout_s, progress=progress,
            trace=trace, gpu=gpu,
        )  # fmt: skip
    with (
        recorded(trace, "strongly_connected_components"),
        DeviceQuery(
            graph, devices, "strongly_connected_components", "depth-first", options,
            what="strongly connected components", takes=(),
        ) as query,
    ):  # fmt: skip
        device, placed, statistics = query.device, query.placed, query.statistics
        check_strong_components([device], options.gpu)
        if placed is not None and plain.vertex_count:
            label = _label_on_gpu(placed, statistics, options)
        else:
            with statistics.phase("run"):
                label, statistics.solver = strong_components(
                    plain, reverses=isinstance(graph, PlacedGraph), threads=device.threads,
                    poll=make_poll(options),
                )  # fmt: skip
        return ComponentsResult(
            plain, label, statistics, method=statistics.solver, location=options.location
        )


def _label_on_gpu(placed: PlacedGraph, statistics: RunStatistics, options: SolverOptions) -> Any:
    """Return labels by one GPU, or by the CPU where a GPU takes too many steps."""
    from godwit.algorithms.strong_components.cuda import strong_components_on_gpu

    plain = placed.graph
    if options.location.gpu is None:
        require_memory(
            plain.vertex_count * plain.id_dtype.itemsize,
            f"a search for the strong components of {plain.vertex_count:,} vertices",
        )
    poll = make_poll(options)
    outcome = run_on_first_gpu(
        placed,
        statistics,
        lambda whole: strong_components_on_gpu(whole, options.gpu, options.location, poll),
    )
    statistics.solver = "least ids"
    if outcome.values is not None:
        return outcome.values
    statistics.solver = "depth-first"
    with statistics.phase("run"):
        return finish_components(plain, None, poll=poll)


@dataclass(frozen=True, eq=False)
class Condensation:
    """The graph of the strong components of a graph: :func:`condensation`.

    :ivar graph: directed and without cycles; vertex c is component c, and there is one arc between two
        components if there are any between their vertices
    :ivar component: (n) the number of each vertex' component
    :ivar components: the components; component c is named ``components.names[c]``, its smallest vertex, and
        has ``components.sizes[c]`` vertices
    """

    graph: Graph
    component: Array
    components: ComponentsResult

    @property
    def names(self) -> Array:
        """Position of the first vertex of each component, ascending, shape (count)."""
        return self.components.names

    @cached_property
    def members(self) -> list[list[Any]]:
        """The vertices of each component, by id, in the order of components and of vertices."""
        if not len(self.component):
            return []
        order = np.argsort(self.component, kind="stable")
        ends = np.cumsum(self.components.sizes)[:-1]
        return [self.components.ids.of(part) for part in np.split(order, ends)]

    def __repr__(self) -> str:
        return f"Condensation({self.components.count} component(s), {self.graph.arc_count} arc(s))"


@public
def condensation(
    graph: GraphArgument,
    *,
    devices: DevicesArgument = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> Condensation:
    """Return the graph of the strong components of a directed graph.

    >>> import godwit as gw
    >>> condensed = gw.condensation(gw.Graph.from_edges([0, 1, 2, 2, 1], [1, 2, 1, 3, 3]))
    >>> condensed.component.tolist(), condensed.graph.vertex_count, condensed.graph.arc_count
    ([0, 1, 1, 2], 3, 2)

    It has a vertex for every component, in the order of their smallest vertices, and an arc from one to
    another if an arc of the graph leads from a vertex of the one to a vertex of the other; no weights, no
    self-loops, no parallel arcs, and no cycles. The components are found on the devices, and their graph is
    made by the CPU.

    Parameters as for :func:`strongly_connected_components`; ``results`` is left out, since the graph of
    the components is on the host.

    :returns: ``.graph``, ``.component`` (n), ``.names`` and ``.members`` (count), ``.components``
    :raises InputError: the graph is undirected, or an argument is wrong
    :raises DeviceError: a device is not there
    :raises GraphTooLargeError: it does not fit
    :raises RunTimeoutError: out of time
    """
    plain = graph.graph if isinstance(graph, PlacedGraph) else graph
    check_directed(plain, "condensation")
    components = strongly_connected_components(
        graph, devices=devices, timeout_s=timeout_s, progress=progress, trace=trace, gpu=gpu
    )
    return condense(plain, components)


def condense(graph: Graph, components: ComponentsResult) -> Condensation:
    """Return the graph of components."""
    dtype = graph.id_dtype
    number = np.empty(graph.vertex_count, dtype)
    number[components.names] = np.arange(components.count, dtype=dtype)
    component = frozen(number[components.label])
    require_memory(3 * graph.targets.nbytes, f"the condensation of {graph.arc_count:,} arcs")
    tails = np.repeat(component, np.diff(graph.offsets))
    heads = component[graph.targets]
    between = tails != heads
    condensed = Graph.from_edges(
        tails[between], heads[between], vertex_count=components.count, id_dtype=dtype
    )
    return Condensation(condensed.merge_parallel_arcs(), component, components)


def check_directed(graph: Any, what: str) -> None:
    """Raise InputError if this is no graph, or an undirected one."""
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)
    if not graph.directed:
        raise InputError(f"{what} is of directed graphs, and this graph is undirected")
