"""Colourings of vertices: greedy by descending degree (:mod:`godwit.algorithms.greedy`)."""

from __future__ import annotations

from godwit.algorithms.coloring.result import ColoringResult
from godwit.algorithms.greedy import run_greedy
from godwit.algorithms.greedy.order import Kind, as_seed
from godwit.progress import ProgressArgument
from godwit.public import public
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import DevicesArgument
from godwit.trace import TraceArgument, recorded
from godwit.worker.options import query_options
from godwit.worker.query import GraphArgument


@public
def greedy_color(
    graph: GraphArgument,
    *,
    seed: int = 0,
    devices: DevicesArgument = None,
    results: str = "host",
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    trace: TraceArgument = None,
    gpu: GpuOptions | None = None,
) -> ColoringResult:
    """Colour vertices so that neighbours have different colours: numbers from 0, few of them.

    >>> import godwit as gw
    >>> gw.greedy_color(gw.generators.star(4)).color.tolist()
    [0, 1, 1, 1]

    It is the colouring of the serial greedy algorithm: vertices are taken by descending degree (Welsh and
    Powell, 1967), and among equal degrees by a hash of the vertex and the seed, and each gets the least
    colour that no neighbour has yet (in parallel: Jones and Plassmann, "A parallel graph coloring
    heuristic", 1993). So it is the same on all devices. Directions, weights and self-loops do not matter;
    the degree of a vertex counts all its arcs.

    :param seed: from 0; each gives another order among vertices of equal degree
    :param devices: as for :func:`core_number`
    :param results: where ``.color`` lives, as for :func:`bfs`
    :param timeout_s: seconds after which to give up; placing the graph, ordering its vertices and compiling
        are not counted
    :param progress: as for :func:`bfs`: the number of vertices coloured so far
    :param trace: as for :func:`bfs`
    :param gpu: how kernels are run
    :returns: ``.color`` (n, int32), ``.count``, ``.sizes``, ``.to_dict()``, ``.statistics``
    :raises InputError: a wrong argument, or several devices of the CPU
    :raises DeviceError: a device does not exist
    :raises GraphTooLargeError: the graph or the arrays of the run do not fit
    :raises RunTimeoutError: out of time
    """
    options = query_options(gpu=gpu, timeout_s=timeout_s, progress=progress, results=results)
    seed = as_seed(seed)
    with recorded(trace, "colouring"):
        plain, values, statistics = run_greedy(
            graph, Kind.COLOR, seed, devices, options, "greedy_color"
        )
    return ColoringResult(plain, values, statistics, options.location)
