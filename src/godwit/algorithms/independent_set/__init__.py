"""Maximal independent sets: greedy by ascending degree (:mod:`godwit.algorithms.greedy`)."""

from __future__ import annotations

from godwit.algorithms.greedy import run_greedy
from godwit.algorithms.greedy.order import Kind, as_seed
from godwit.algorithms.independent_set.result import IndependentSetResult
from godwit.arrays import computed_in_place
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import query_options
from godwit.worker.query import GraphArgument


@public
def maximal_independent_set(
    graph: GraphArgument,
    *,
    seed: int = 0,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> IndependentSetResult:
    """Find a maximal independent set: no two members are neighbours, and no vertex can be added.

    >>> import godwit as gw
    >>> gw.maximal_independent_set(gw.generators.star(4)).vertices
    [1, 2, 3]

    It is the set of the serial greedy algorithm: vertices are taken by ascending degree, and among equal
    degrees by a hash of the vertex and the seed, and each becomes a member unless a neighbour is one
    (Luby, 1986; by degree as in Burtscher et al., "A high-quality and fast maximal independent set
    implementation for GPUs", 2018). So it is the same on all devices, and mostly larger than a set in
    random order. Directions, weights and self-loops do not matter; the degree of a vertex counts all its
    arcs.

    :param seed: from 0; each gives another order among vertices of equal degree
    :param devices: as for :func:`core_number`
    :param results: where ``.member`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph, ordering its vertices and compiling
        are not counted
    :param progress: as for :func:`bfs`: the number of vertices decided so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.member`` (n, bool), ``.size``, ``.vertices``, ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, or several devices of the CPU
    :raises DeviceError: a device does not exist
    :raises GraphTooLargeError: the graph or the arrays of the run do not fit
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    seed = as_seed(seed)
    with recorded(trace, "independent set"):
        plain, values, statistics = run_greedy(
            graph, Kind.SET, seed, devices, options, "maximal_independent_set"
        )
    return IndependentSetResult(
        plain, computed_in_place(values, lambda them: them == 1), statistics, options.location
    )
