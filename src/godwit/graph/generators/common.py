"""Shared by generators: checked arguments, edges drawn by hashes, and edges or rows made into a graph.

Every random decision is a hash of (seed, edge, step), so a graph depends on its arguments alone:
not on the number of threads, the machine, or the version of NumPy. Arithmetic is of integers, or of
floats by operations that IEEE 754 rounds one way only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dtypes import Array, as_float, as_integer, id_dtype_for
from godwit.errors import InputError, shown
from godwit.graph.build import arcs_to_rows
from godwit.graph.csr import Graph
from godwit.graph.hashing import check_weight_range, seed_word
from godwit.graph.rows import estimate_bytes, require_memory, thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import Kernel, kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

WeightRange = tuple[float, float]
"""(low, high) of random weights, as of :meth:`Graph.with_random_weights`."""

POLL_STEPS = 16_384
"""Edges or vertices between two looks at the abort word."""


def as_probability(value: Any, name: str) -> float:
    """Return the value as a float in [0, 1]; InputError if it is none."""
    try:
        number = as_float(value, name)
    except InputError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InputError(f"{name} must be a probability in [0, 1], got {shown(value)}")
    return number


def as_weight_range(weights: Any) -> WeightRange | None:
    """Return the bounds of random weights, checked; None stays None."""
    if weights is None:
        return None
    try:
        low, high = weights
    except (TypeError, ValueError):
        raise InputError(f"weights must be (low, high) or None, got {shown(weights)}") from None
    return check_weight_range(low, high)


def weighted(graph: Graph, weights: WeightRange | None, seed: int) -> Graph:
    """Return the graph with random weights, unless ``weights`` is None."""
    return graph if weights is None else graph.with_random_weights(*weights, seed)


def edge_arrays(n: int, edges: int, what: str, *, both_directions: bool = True) -> Array:
    """Return (2, edges) ids, to be filled with the endpoints of edges for :func:`graph_of_edges`.

    :raises GraphTooLargeError: if they, or the graph that they become, will not fit
    """
    dtype = id_dtype_for(n)
    arcs = 2 * edges if both_directions else edges
    require_memory(
        estimate_bytes(n, arcs, dtype.itemsize) + 8 * arcs + 2 * edges * dtype.itemsize, what
    )
    return np.empty((2, edges), dtype)


def graph_of_edges(
    n: int, endpoints: Array, *, both_directions: bool = True, simple: bool = True
) -> Graph:
    """Return the graph of edges in any order.

    :param simple: leave out self-loops, and all but one of parallel edges
    """
    sources, targets = endpoints
    rows = arcs_to_rows(
        sources,
        targets,
        None,
        n,
        endpoints.dtype,
        both_directions=both_directions,
        drop_loops=simple,
        merge=simple,
    )
    return Graph.trusted(*rows, directed=not both_directions)


@dataclass(frozen=True)
class Drawing:
    """The checked arguments of :func:`draw_graph`."""

    edge: Callable[[Any, Any, Any], Any]
    settings: tuple[Any, ...]
    vertices: int
    edges: int
    what: str
    seed: int
    weights: WeightRange | None
    both_directions: bool
    simple: bool

    def draw(self, endpoints: Array, first: int = 0) -> None:
        """Draw edges from number ``first`` on into an array of shape (2, edges)."""
        draw = _draw_edges.bind(draw_edge=self.edge)
        threads = thread_count_for(endpoints.shape[1])
        run_team(draw, seed_word(self.seed), self.settings, first, *endpoints, threads=threads)


_drawings: ContextVar[list[Drawing] | None] = ContextVar("drawings", default=None)


@contextmanager
def collected_drawings() -> Iterator[list[Drawing]]:
    """Collect what :func:`draw_graph` is to draw in the block, instead of drawing it.

    Graphs that are drawn by it have no vertices then.
    """
    drawings: list[Drawing] = []
    token = _drawings.set(drawings)
    try:
        yield drawings
    finally:
        _drawings.reset(token)


def draw_graph(
    edge: Callable[[Any, Any, Any], Any],
    settings: tuple[Any, ...],
    n: int,
    edges: int,
    what: str,
    seed: Any,
    weights: Any,
    *,
    both_directions: bool = True,
    simple: bool = True,
) -> Graph:
    """Return the graph of edges that are drawn independently of each other, in parallel.

    :param edge: compiled ``edge(i, seed, settings)``, which returns source and target of edge i
    :param what: the graph in words, for messages
    :param seed: any integer
    :param weights: (low, high) of random weights, or None
    :raises GraphTooLargeError: if the graph will not fit
    """
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    drawing = Drawing(edge, settings, n, edges, what, seed, weights, both_directions, simple)
    collected = _drawings.get()
    if collected is not None:
        collected.append(drawing)
        return Graph.from_edges([], [])
    endpoints = edge_arrays(n, edges, what, both_directions=both_directions)
    drawing.draw(endpoints)
    graph = graph_of_edges(n, endpoints, both_directions=both_directions, simple=simple)
    return weighted(graph, weights, seed)


def draw_edge(i: Any, seed: Any, settings: Any) -> Any:
    """Stand for a generator's function, which is bound in its place."""
    raise NotImplementedError


@kernel
def _draw_edges(
    rank: int,
    size: int,
    control: Any,
    seed: Any,
    settings: Any,
    first: int,
    sources: Any,
    targets: Any,
) -> None:
    """Draw this thread's edges."""
    begin, end = block_range(rank, size, sources.size)
    for i in range(begin, end):
        if i % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        source, target = draw_edge(first + i, seed, settings)
        sources[i] = source
        targets[i] = target


def graph_of_rows(rows: Kernel, settings: tuple[Any, ...], n: int, what: str) -> Graph:
    """Return the undirected graph whose rows a kernel first counts, then writes.

    :param rows: ``rows(rank, size, control, *settings, fill, offsets, targets)``: where ``fill`` is
        False it writes the number of neighbours of v to ``offsets[v + 1]``, else the neighbours to
        ``targets``, ascending, from ``offsets[v]``
    :param what: the graph in words, for messages
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
