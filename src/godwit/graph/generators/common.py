"""What generators share: numbers out of hashes, checked arguments, edges or rows into a graph.

Every random decision is a hash of (seed, edge, step), so a graph depends on its arguments alone:
not on the number of threads, the machine, or the version of NumPy. Arithmetic is of integers, or of
floats by operations that IEEE 754 rounds one way only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array, as_float, id_dtype_for
from godwit.errors import InputError, shown
from godwit.graph.build import arcs_to_rows
from godwit.graph.csr import Graph
from godwit.graph.hashing import check_weight_range
from godwit.graph.rows import estimate_bytes, require_memory, thread_count_for
from godwit.runtime.cpu.compile import Kernel
from godwit.runtime.cpu.team import run_team

WeightRange = tuple[float, float]
"""(low, high) of random weights, as of :meth:`Graph.with_random_weights`."""

POLL_STEPS = 16_384
"""Edges or vertices between two looks at the abort word."""


def as_probability(value: Any, name: str) -> float:
    """The value as a float in [0, 1]; InputError if it is none."""
    try:
        number = as_float(value, name)
    except InputError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InputError(f"{name} must be a probability in [0, 1], got {shown(value)}")
    return number


def as_weight_range(weights: Any) -> WeightRange | None:
    """The bounds of random weights, checked before anything is made; None stays None."""
    if weights is None:
        return None
    try:
        low, high = weights
    except (TypeError, ValueError):
        raise InputError(f"weights must be (low, high) or None, got {shown(weights)}") from None
    return check_weight_range(low, high)


def weighted(graph: Graph, weights: WeightRange | None, seed: int) -> Graph:
    """The graph with random weights, if any were asked for."""
    return graph if weights is None else graph.with_random_weights(*weights, seed)


def edge_arrays(n: int, edges: int, what: str, *, both_directions: bool = True) -> Array:
    """(2, edges) ids, to be filled with the ends of edges and given to :func:`graph_of_edges`.

    :raises GraphTooLargeError: if they, or the graph that they become, will not fit
    """
    dtype = id_dtype_for(n)
    arcs = 2 * edges if both_directions else edges
    require_memory(
        estimate_bytes(n, arcs, dtype.itemsize) + 8 * arcs + 2 * edges * dtype.itemsize, what
    )
    return np.empty((2, edges), dtype)


def graph_of_edges(
    n: int, ends: Array, *, both_directions: bool = True, simple: bool = True
) -> Graph:
    """The graph of edges in any order.

    :param simple: leave out self-loops, and all but one of parallel edges
    """
    sources, targets = ends
    offsets, row_targets, _ = arcs_to_rows(
        sources,
        targets,
        None,
        n,
        ends.dtype,
        both_directions=both_directions,
        drop_loops=simple,
        merge=simple,
    )
    return Graph.trusted(offsets, row_targets, directed=not both_directions)


def graph_of_rows(rows: Kernel, settings: tuple[Any, ...], n: int, what: str) -> Graph:
    """The undirected graph whose rows a kernel first counts, then writes.

    :param rows: ``rows(rank, size, control, *settings, fill, offsets, targets)``: where ``fill`` is
        False it writes the number of neighbours of v to ``offsets[v + 1]``, else the neighbours to
        ``targets``, ascending, from ``offsets[v]``
    :raises GraphTooLargeError: if the graph will not fit
    """
    dtype = id_dtype_for(n)
    require_memory(estimate_bytes(n, 0), what)
    threads = thread_count_for(n)
    offsets = np.zeros(n + 1, np.int64)
    run_team(rows, *settings, False, offsets, np.empty(0, dtype), threads=threads)
    np.cumsum(offsets, out=offsets)
    arcs = int(offsets[-1])
    require_memory(estimate_bytes(0, arcs, dtype.itemsize), what)
    targets = np.empty(arcs, dtype)
    run_team(rows, *settings, True, offsets, targets, threads=threads)
    return Graph.trusted(offsets, targets, directed=False)
