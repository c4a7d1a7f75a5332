"""Verifier of betweenness: Brandes' algorithm from the sources, one after the other, in plain loops.

A centrality is a sum of non-negative terms, one per source. If there are few enough sources, all terms are
computed again and the sums compared. Else the terms of some sources, drawn at random, are: every centrality
must be at least their sum, and 0 where arcs do not both lead to the vertex and on from it. That is
necessary, not sufficient.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from godwit.algorithms.betweenness import check_scale, choose_sources, rescale
from godwit.algorithms.betweenness.result import BetweennessResult
from godwit.algorithms.checks import arc_blocks, check_finite, check_graph, checked_array, fail
from godwit.algorithms.paths.weights import uses_weights
from godwit.dtypes import Array, as_count, as_flag
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import Sources
from godwit.runtime.cpu.compile import kernel

RELATIVE_SLACK = 1e-9
"""Relative difference allowed between two centralities: sums in another order."""

_SECONDS_OF_WORK = 1 << 27
"""Vertices and arcs that a serial search can visit in some seconds."""

_RESCALED_AT = 2.0**512
"""Numbers of paths are floats divided by a power of this, so that they do not overflow."""


def verify_betweenness_centrality(
    graph: Graph,
    centrality: Array | BetweennessResult,
    edge_centrality: Array | None = None,
    *,
    sources: Sources | None = None,
    normalized: bool = True,
    scale: str = "all",
    endpoints: bool = False,
    weighted: bool | None = False,
    samples: int | None = None,
    seed: int = 0,
) -> None:
    """Check betweenness by searching again, serially, from all sources or from some of them.

    If there are at most ``samples`` sources, every value is computed again, and must be equal up to 1e-9.
    If there are more, some are drawn, and every value must be at least what these contribute to it: an
    error that makes values too large is then found only at vertices that no path can lead through.

    :param centrality: (n), as of :func:`godwit.betweenness_centrality`; or a result, whose values of
        vertices and, if it has some, of edges are checked, from its sources
    :param edge_centrality: (m), as of :func:`godwit.betweenness_centrality`; None if there is none to check
    :param sources: sources of the result (its ``.sources``); None: all vertices
    :param normalized: as of the result, like ``scale``, ``endpoints`` and ``weighted``
    :param samples: largest number of sources to search from; None: as many as take some seconds, which are
        all in graphs of some thousand vertices and arcs
    :param seed: of the draw
    :raises VerificationError: naming the vertex, or the arc, and the values
    :raises InputError: an argument is wrong
    """
    check_graph(graph)
    n, m = graph.vertex_count, graph.arc_count
    if isinstance(centrality, BetweennessResult):
        if edge_centrality is not None or sources is not None:
            raise InputError("a result has sources and centralities: give no others beside it")
        edge_centrality = centrality.edge_centrality if centrality.has_edges else None
        sources = centrality.sources if len(centrality.sources) < n else None
        centrality = centrality.centrality
    centrality = checked_array(centrality, n, "centrality", "f")
    if edge_centrality is not None:
        edge_centrality = checked_array(edge_centrality, m, "edge_centrality", "f")
    chosen = choose_sources(graph, sources, None, as_count(seed, "seed"))
    weighted = uses_weights(graph, weighted)
    normalized = as_flag(normalized, "normalized")
    endpoints = as_flag(endpoints, "endpoints")
    scale = check_scale(scale)
    if samples is None:
        samples = searches_in_seconds(graph)
    searched = chosen
    if as_count(samples, "samples", 1) < len(chosen):
        drawn = random.Random(seed).sample(range(len(chosen)), samples)
        searched = chosen[np.sort(drawn)]
    is_whole = len(searched) == len(chosen)
    check_finite(graph, centrality, "centrality")
    sums, arc_sums = _sums(graph, searched, endpoints, edge_centrality is not None, weighted)
    if arc_sums is not None and not graph.directed:
        arc_sums = _sums_of_edges(graph, arc_sums, weighted)
    if scale == "all":
        rescale(graph, chosen, sums, arc_sums, normalized, endpoints)
    wrong = _differ(centrality, sums, is_whole)
    if not is_whole and not endpoints:
        wrong |= (centrality > 0) & ~_can_be_inner(graph)
    if wrong.any():
        v = int(np.argmax(wrong))
        fail(
            f"the centrality of vertex {shown(graph.ids[v])} is {centrality[v]}, and "
            f"{_wanted(sums[v], is_whole)}"
        )
    if edge_centrality is None or arc_sums is None:
        return
    wrong = _differ(edge_centrality, arc_sums, is_whole) | ~(edge_centrality >= 0)
    if wrong.any():
        arc = int(np.argmax(wrong))
        tail = int(np.searchsorted(graph.offsets, arc, side="right")) - 1
        head = int(graph.targets[arc])
        fail(
            f"the centrality of the arc {shown(graph.ids[tail])} -> {shown(graph.ids[head])} is "
            f"{edge_centrality[arc]}, and {_wanted(arc_sums[arc], is_whole)}"
        )


def searches_in_seconds(graph: Graph) -> int:
    """Return from how many sources a serial search takes some seconds; at least 1."""
    return max(1, _SECONDS_OF_WORK // (graph.vertex_count + graph.arc_count + 1))


def _wanted(value: float, is_whole: bool) -> str:
    return f"must be {value}" if is_whole else f"at least {value} comes from the sources drawn"


def _differ(given: Array, expected: Array, is_whole: bool) -> Array:
    slack = RELATIVE_SLACK * np.maximum(np.abs(given), expected)
    wrong: Array = given < expected - slack
    if is_whole:
        wrong |= given > expected + slack
    return wrong


def _can_be_inner(graph: Graph) -> Array:
    """Return, for each vertex, whether arcs from and to other vertices exist."""
    entered = np.zeros(graph.vertex_count, np.bool_)
    left = np.zeros_like(entered)
    for tails, arcs in arc_blocks(graph):
        heads = graph.targets[arcs]
        others = heads != tails
        entered[heads[others]] = True
        left[tails[others]] = True
    return entered & left


def _sums(
    graph: Graph, sources: Array, endpoints: bool, edges: bool, weighted: bool
) -> tuple[Array, Array | None]:
    """Return the sums of dependencies, unscaled, of vertices and of arcs."""
    n, m = graph.vertex_count, graph.arc_count
    lengths: Any = np.ones(1, np.int64)
    if weighted and graph.weights is not None:
        lengths = graph.weights.astype(np.int64 if graph.weights.dtype.kind in "iu" else np.float64)
        if len(lengths) and not lengths.min() > 0:
            raise InputError("betweenness by weights needs weights above 0")
    distance = np.empty(n, lengths.dtype)
    is_reached = np.empty(n, np.bool_)
    order = np.empty(n, np.int64)
    keys = np.empty(m + 1 if weighted else 0, lengths.dtype)
    vertices = np.empty(len(keys), np.int64)
    paths, dependency = np.empty(n), np.empty(n)
    divisions = np.empty(n, np.int64)
    sums, arc_sums = np.zeros(n), np.zeros(m if edges else 0)
    for source in sources.tolist():
        is_reached[:] = False
        if weighted:
            count = _search_by_weights(
                graph.offsets, graph.targets, lengths, source, distance, is_reached, order, keys,
                vertices,
            )  # fmt: skip
        else:
            count = _search(graph.offsets, graph.targets, source, distance, is_reached, order)
        paths[:], divisions[:], dependency[:] = 0, 0, 0
        _add_dependencies(
            graph.offsets, graph.targets, lengths, weighted, distance, order, count, paths, divisions,
            dependency, endpoints, sums, arc_sums,
        )  # fmt: skip
    return sums, arc_sums if edges else None


def _sums_of_edges(graph: Graph, arcs: Array, weighted: bool) -> Array:
    """Return for both arcs of every edge the sum of the two; parallel arcs of one length are alike."""
    tails = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    keys = [graph.weights] if weighted and graph.weights is not None else []
    forth = np.lexsort((*keys, graph.targets, tails))
    back = np.lexsort((*keys, tails, graph.targets))
    edges = np.empty_like(arcs)
    edges[forth] = arcs[forth] + arcs[back]
    return edges


@kernel
def _search(
    offsets: Any, targets: Any, source: int, distance: Any, is_reached: Any, order: Any
) -> int:
    """Breadth-first search; return how many vertices are reached, which stand first in ``order``."""
    distance[source] = 0
    is_reached[source] = True
    order[0] = source
    begin, end = 0, 1
    while begin < end:
        tail = order[begin]
        begin += 1
        for arc in range(offsets[tail], offsets[tail + 1]):
            head = targets[arc]
            if not is_reached[head]:
                is_reached[head] = True
                distance[head] = distance[tail] + 1
                order[end] = head
                end += 1
    return end


@kernel
def _search_by_weights(
    offsets: Any, targets: Any, lengths: Any, source: int, distance: Any, is_reached: Any,
    order: Any, keys: Any, vertices: Any,
) -> int:  # fmt: skip
    """Dijkstra's algorithm with a binary heap of (key, vertex); as :func:`_search`.

    Outdated entries of the heap are skipped.
    """
    distance[source] = 0
    is_reached[source] = True
    keys[0], vertices[0] = distance[source], source
    size, count = 1, 0
    while size > 0:
        key, tail = keys[0], vertices[0]
        size -= 1
        last_key, last = keys[size], vertices[size]
        hole = 0
        while 2 * hole + 1 < size:
            child = 2 * hole + 1
            if child + 1 < size and keys[child + 1] < keys[child]:
                child += 1
            if keys[child] >= last_key:
                break
            keys[hole], vertices[hole] = keys[child], vertices[child]
            hole = child
        keys[hole], vertices[hole] = last_key, last
        if key != distance[tail]:
            continue
        order[count] = tail
        count += 1
        for arc in range(offsets[tail], offsets[tail + 1]):
            head = targets[arc]
            length = key + lengths[arc]
            if is_reached[head] and distance[head] <= length:
                continue
            is_reached[head] = True
            distance[head] = length
            hole = size
            size += 1
            while hole > 0 and keys[(hole - 1) // 2] > length:
                above = (hole - 1) // 2
                keys[hole], vertices[hole] = keys[above], vertices[above]
                hole = above
            keys[hole], vertices[hole] = length, head
    return count


def _is_on_a_shortest_path(
    tail: Any, head: Any, arc: Any, distance: Any, lengths: Any, weighted: bool
) -> Any:
    """Return whether an arc is as long as the distance between its ends, which differ."""
    length = lengths[arc if weighted else 0]
    return head != tail and distance[tail] + length == distance[head]


@kernel
def _add_dependencies(
    offsets: Any, targets: Any, lengths: Any, weighted: bool, distance: Any, order: Any, count: int,
    paths: Any, divisions: Any, dependency: Any, endpoints: bool, sums: Any, arc_sums: Any,
) -> None:  # fmt: skip
    """Count the shortest paths to each vertex in the order of the search; go back with dependencies.

    Lengths are positive.
    """
    source = order[0]
    paths[source] = 1.0
    for index in range(count):
        tail = order[index]
        for arc in range(offsets[tail], offsets[tail + 1]):
            head = targets[arc]
            if not _is_on_a_shortest_path(tail, head, arc, distance, lengths, weighted):
                continue
            more = divisions[tail] - divisions[head]
            if more > 0:  # the previous count is of a lower order
                paths[head] = paths[head] / _RESCALED_AT if more == 1 else 0.0
                divisions[head] = divisions[tail]
                more = 0
            if more == 0:
                paths[head] += paths[tail]
            elif more == -1:
                paths[head] += paths[tail] / _RESCALED_AT
            if paths[head] >= _RESCALED_AT:
                paths[head] /= _RESCALED_AT
                divisions[head] += 1
    for index in range(count - 1, -1, -1):
        tail = order[index]
        total = 0.0
        for arc in range(offsets[tail], offsets[tail + 1]):
            head = targets[arc]
            if not _is_on_a_shortest_path(tail, head, arc, distance, lengths, weighted):
                continue
            less = divisions[head] - divisions[tail]
            share = paths[tail] / paths[head]
            if less == 1:
                share /= _RESCALED_AT
            elif less > 1:
                share = 0.0
            through = share * (1.0 + dependency[head])
            total += through
            if arc_sums.size > 0:
                arc_sums[arc] += through
        dependency[tail] = total
        if tail == source:
            if endpoints:
                sums[tail] += count - 1
        elif endpoints:
            sums[tail] += total + 1.0
        else:
            sums[tail] += total
