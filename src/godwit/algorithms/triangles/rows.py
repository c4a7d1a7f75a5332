"""The simple undirected graph whose triangles count, and its rows ordered by degree.

Triangles are those of the simple graph: an edge wherever there is an arc in either direction between two
different vertices, however many there are. For clustering by weights or directions each edge has a *value*,
and a triangle counts the product of its three values: by weights, the cube root of weight / largest weight;
of a directed graph, the sum of that over the edge's one or two directions (each 1 without weights).

Rows are those of *positions* (:mod:`godwit.graph.partition.positions`), which number vertices by descending
degree. The *lower* neighbours of a vertex, those of lower position, come first, in ascending order: an
orientation of each edge towards the higher degree, where no vertex has more than about sqrt(2 m) lower
neighbours. The others, its *upper* neighbours, follow. On CPUs a graph keeps its own order, and rows are
not copied, if that makes few steps already (as GAP's ``tc`` does: S. Beamer, K. Asanović, D. Patterson, The
GAP benchmark suite, 2015); GPUs always take the order by degree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.facts import is_symmetric, parallel_arcs
from godwit.graph.partition.positions import Positions, number_vertices
from godwit.graph.rows import estimate_bytes, require_memory, row_range, thread_count_for
from godwit.graph.transform import simple_rows, sorted_rows
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team

_OWN_STEPS = 16
"""Steps for each arc that take less time than making rows by degree."""

# Unsigned index: spares the test that Numba makes for Python's a[-1].
_at: Any = np.uint64


@dataclass(frozen=True, eq=False)
class DegreeRows:
    """Rows of a simple undirected graph by position.

    :param position: (n) ids: the position of each vertex; None: its own number
    :param offsets: (n + 1) int64: first arc of each position's row
    :param splits: (n) int64: end of the lower neighbours in each row, and first of the upper ones
    :param targets: (m) ids: positions of neighbours; the lower ones of a row ascend
    :param values: (m) float64 values of edges in the order of targets; empty if all count 1
    """

    position: Array | None
    offsets: Array
    splits: Array
    targets: Array
    values: Array


def simple_graph(graph: Graph) -> Graph:
    """Return the simple undirected graph without weights: made once, and the graph itself if it is one."""
    made: Graph = graph.cached("simple graph", lambda: _make_simple(graph))
    return made


def _make_simple(graph: Graph) -> Graph:
    plain = graph.without_weights() if graph.is_weighted else graph
    if not is_symmetric(plain):
        plain = plain.symmetrize()
    made = plain._with_rows(simple_rows(plain.rows), like=simple_rows)
    made.cached("sorted rows", lambda: True)
    return made


def valued_graph(graph: Graph, *, weighted: bool) -> Graph:
    """Return the simple undirected graph whose weights are the values of edges, float64; made once.

    Undirected graphs without weights need none.

    :param weighted: values depend on weights, which are finite
    :raises InputError: several weights belong to one arc, or none is positive
    """
    made: Graph = graph.cached(("valued graph", weighted), lambda: _make_valued(graph, weighted))
    return made


def _make_valued(graph: Graph, weighted: bool) -> Graph:
    if weighted:
        repeated = parallel_arcs(graph.remove_self_loops().rows)
        if repeated is not None:
            source, target = graph.ids.of(np.array(repeated))
            raise InputError(
                f"clustering by weights needs one weight for each edge, and {source!r} -> {target!r} has "
                "several; add them up by merge_parallel_arcs('sum'), or ignore them with weighted=False "
                "(command line: --undirected keeps the least, --ignore-weights none)"
            )
        assert graph.weights is not None
        largest = float(graph.weights.max(initial=0))
        if largest <= 0 and graph.arc_count:
            raise InputError(
                f"clustering divides weights by the largest, which must be positive, got {largest:g}; "
                "weighted=False ignores weights (command line: --ignore-weights)"
            )
        relative = graph.weights.astype(np.float64) / (largest or 1.0)
        valued = graph.with_weights(np.cbrt(relative))
    else:
        plain = graph.without_weights() if graph.is_weighted else graph
        plain = plain.merge_parallel_arcs()
        valued = plain.with_weights(np.ones(plain.arc_count))
    # Both directions of a directed graph's edge come together; an undirected graph remains as it is.
    return valued.remove_self_loops().symmetrize("sum")


def degree_rows(graph: Graph) -> DegreeRows:
    """Return the rows of a simple undirected graph by position; made once. Weights become values.

    :raises GraphTooLargeError: they do not fit into memory
    """

    made: DegreeRows = graph.cached("rows by degree", lambda: _make_rows(graph))
    return made


def _make_rows(graph: Graph) -> DegreeRows:
    if not graph.has_sorted_rows:  # of vertices as they are
        graph = Graph.trusted(*sorted_rows(graph.rows), directed=False)
    n = graph.vertex_count
    splits = np.empty(n, np.int64)
    threads = thread_count_for(graph.arc_count)
    steps = run_team(_find_splits, graph.offsets, graph.targets, splits, threads=threads)
    if sum(steps) <= _OWN_STEPS * graph.arc_count:
        values = frozen(np.empty(0)) if graph.weights is None else graph.weights
        return DegreeRows(None, graph.offsets, frozen(splits), graph.targets, values)
    return rows_in_order(graph, number_vertices(graph, 1, id_dtype=graph.id_dtype))


def rows_in_order(graph: Graph, numbering: Positions) -> DegreeRows:
    """Return the rows of a simple undirected graph by known positions of one part: made anew.

    :raises GraphTooLargeError: they do not fit into memory
    """
    n = graph.vertex_count
    weights = frozen(np.empty(0)) if graph.weights is None else graph.weights
    ids = numbering.position.dtype.itemsize
    require_memory(
        estimate_bytes(2 * n, graph.arc_count, ids, 8 * (len(weights) > 0)),
        "a copy of the rows by degree",
    )
    vertices = numbering.vertices(0)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(np.diff(graph.offsets)[vertices], out=offsets[1:])
    splits = np.empty(n, np.int64)
    targets = np.empty(graph.arc_count, numbering.position.dtype)
    values = np.empty(len(weights))
    threads = thread_count_for(graph.arc_count)
    run_team(
        _place_rows, graph.offsets, graph.targets, weights, numbering.position, vertices,
        frozen(offsets), splits, targets, values, threads=threads,
    )  # fmt: skip
    return DegreeRows(numbering.position, offsets, frozen(splits), frozen(targets), frozen(values))


@kernel
def _find_splits(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, splits: Any
) -> Any:
    """Find the first upper neighbour of each vertex in sorted rows; count the pairs of lower ones."""
    first, end = row_range(rank, size, offsets)
    steps = 0
    for v in range(first, end):
        low = offsets[_at(v)]
        high = offsets[_at(v + 1)]
        begin = low
        while low < high:
            middle = (low + high) >> 1
            if targets[_at(middle)] < v:
                low = middle + 1
            else:
                high = middle
        splits[_at(v)] = low
        steps += (low - begin) * (low - begin - 1) // 2
    return steps


@kernel
def _place_rows(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, weights: Any, position: Any,
    vertices: Any, new_offsets: Any, splits: Any, new_targets: Any, new_values: Any,
) -> None:  # fmt: skip
    """Write rows by position: lower neighbours from the front, upper ones from the back."""
    first, end = row_range(rank, size, new_offsets)
    weighted = weights.size > 0
    for p in range(first, end):
        v = np.int64(vertices[_at(p)])
        low = new_offsets[_at(p)]
        high = new_offsets[_at(p + 1)]
        for arc in range(offsets[_at(v)], offsets[_at(v + 1)]):
            q = position[_at(targets[_at(arc)])]
            if q < p:
                to = low
                low += 1
            else:
                high -= 1
                to = high
            new_targets[_at(to)] = q
            if weighted:
                new_values[_at(to)] = weights[_at(arc)]
        splits[_at(p)] = low
        sort_range(new_targets, new_values, new_offsets[_at(p)], low, weighted)


def sort_range(keys: Any, values: Any, begin: Any, end: Any, weighted: bool) -> None:
    """Sort a range of keys, and if weighted values with them (Shell's sort). For compiled code."""
    length = end - begin
    gap = 1
    while 9 * gap // 4 < length:
        gap = 9 * gap // 4 + 1
    while gap > 0:
        for at in range(begin + gap, end):
            key = keys[_at(at)]
            to = at
            if keys[_at(to - gap)] <= key:
                continue
            if weighted:
                value = values[_at(to)]
            while to - gap >= begin and keys[_at(to - gap)] > key:
                keys[_at(to)] = keys[_at(to - gap)]
                if weighted:
                    values[_at(to)] = values[_at(to - gap)]
                to -= gap
            keys[_at(to)] = key
            if weighted:
                values[_at(to)] = value
        gap = gap * 4 // 9
