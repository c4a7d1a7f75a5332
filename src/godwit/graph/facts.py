"""Facts about rows: degrees, parallel arcs, and whether every arc has its reverse."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.build import SMALL_ARCS, row_sources
from godwit.graph.hashing import mix
from godwit.graph.rows import Rows, bits_of, row_range, thread_count_for
from godwit.graph.transform import sorted_rows
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import barrier, block_range, run_team

if TYPE_CHECKING:
    from godwit.graph.csr import Graph

_SAMPLED_ARCS = 256
_HUB_FACTOR = 16
_SEARCHED_ARCS = 4096
"""Longest row in which the reverse of a sampled arc is searched for."""


@dataclass(frozen=True)
class DegreeStatistics:
    """Out-degrees of a graph; of an undirected one, the number of neighbours.

    ``isolated`` counts the vertices with no arc at all, in or out; ``sinks`` those with no arc out;
    ``self_loops`` counts arcs from a vertex to itself. All zero for a graph without vertices.
    """

    min: int
    max: int
    mean: float
    median: float
    isolated: int
    sinks: int
    self_loops: int


@kernel
def _mark_targets(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, reached: Any
) -> int:
    """Set ``reached`` of every target; return the number of self-loops in this thread's rows."""
    begin, end = row_range(rank, size, offsets)
    loops = 0
    for v in range(begin, end):
        for i in range(offsets[v], offsets[v + 1]):
            target = targets[i]
            reached[target] = 1
            if target == v:
                loops += 1
    return loops


def degree_statistics(rows: Rows) -> DegreeStatistics:
    """Return the statistics of all out-degrees."""
    if rows.vertex_count == 0:
        return DegreeStatistics(0, 0, 0.0, 0.0, 0, 0, 0)
    degree = np.diff(rows.offsets)
    reached = np.zeros(rows.vertex_count, np.uint8)
    if rows.arc_count <= SMALL_ARCS:  # without compiled code
        reached[rows.targets] = 1
        sources = row_sources(rows.offsets, rows.targets.dtype)
        loops = [np.count_nonzero(rows.targets == sources)]
    else:
        # Two threads that set the same entry write the same value, so plain stores suffice.
        threads = thread_count_for(rows.arc_count)
        loops = run_team(_mark_targets, rows.offsets, rows.targets, reached, threads=threads)
    no_arc_out = degree == 0
    return DegreeStatistics(
        min=int(degree.min()),
        max=int(degree.max()),
        mean=float(degree.mean()),
        median=float(np.median(degree)),
        isolated=int(np.count_nonzero(no_arc_out & (reached == 0))),
        sinks=int(np.count_nonzero(no_arc_out)),
        self_loops=int(sum(loops)),
    )


def parallel_arcs(rows: Rows) -> tuple[int, int] | None:
    """Return source and target of some parallel arcs; None if there are none."""
    if rows.arc_count < 2:
        return None
    offsets, targets, _ = sorted_rows(rows)
    repeated = targets[1:] == targets[:-1]
    ends = offsets[1:-1]
    ends = ends[(ends > 0) & (ends < rows.arc_count)]
    repeated[ends - 1] = False  # the last arc of a row and the first of the next
    index = int(np.argmax(repeated))
    if not repeated[index]:
        return None
    source = int(np.searchsorted(offsets, index, side="right")) - 1
    return source, int(targets[index])


def _mix_again(word: Any) -> Any:
    """Return another random word for a random one."""
    word = (word ^ (word >> np.uint64(29))) * np.uint64(0xD6E8FEB86659FD93)
    return word ^ (word >> np.uint64(32))


@kernel
def _direction_sums(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, payload: Any, seed: Any,
    sums: Any,
) -> None:  # fmt: skip
    """Sum x(u) y(v) w, x(u) z(v) w and, in the other columns, x(v) y(u) w, x(v) z(u) w over own arcs.

    The arc u -> v has w = 1, or a hash of its weight; x, y and z are hashes of vertices.
    """
    begin, end = row_range(rank, size, offsets)
    weighted = payload.size > 0
    out_y, out_z, in_y, in_z = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    for v in range(begin, end):
        sum_x, sum_y, sum_z = np.uint64(0), np.uint64(0), np.uint64(0)
        for i in range(offsets[v], offsets[v + 1]):
            x = mix(seed ^ np.uint64(targets[i]))
            y = _mix_again(x)
            z = _mix_again(y)
            if weighted:
                w = mix(seed + np.uint64(payload[i]))
                x, y, z = x * w, y * w, z * w
            sum_x += x
            sum_y += y
            sum_z += z
        x = mix(seed ^ np.uint64(v))
        y = _mix_again(x)
        out_y += x * sum_y
        out_z += x * sum_z
        in_y += y * sum_x
        in_z += _mix_again(y) * sum_x
    sums[rank, 0], sums[rank, 1], sums[rank, 2], sums[rank, 3] = out_y, out_z, in_y, in_z


def direction_hashes(rows: Rows) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return a hash of all arcs with their weights, whatever their order, and one of all reversed arcs.

    Freivalds' check: for random vectors x and y and the adjacency matrix A, x A y is y A x if A is
    symmetric, and else with probability about 2**-60; two vectors y make that 2**-120. Each process draws
    vectors of its own, so no graph can be made that is mistaken for a symmetric one.
    """
    threads = thread_count_for(rows.arc_count)
    sums = np.zeros((threads, 4), np.uint64)
    given = (frozen(rows.offsets), frozen(rows.targets), bits_of(rows.weights))
    run_team(_direction_sums, *given, process_seed(), sums, threads=threads)
    out_y, out_z, in_y, in_z = sums.sum(axis=0).tolist()
    return (out_y, out_z), (in_y, in_z)


@cache
def process_seed() -> np.uint64:
    """Return a random word that is the same in the whole process."""
    return np.uint64(secrets.randbits(64))


def is_symmetric(graph: Graph, *, weighted: bool = False) -> bool:
    """Return True if every arc has its reverse, whatever ``graph.directed`` says.

    Engines take the rows of such a graph for in-rows, too. Whether a query means edges or arcs is for
    ``graph.directed`` to say. A sample of arcs settles it for most directed graphs, in a millisecond;
    others take one pass, some 2 ns an arc: a single search does without (:func:`is_known_symmetric`).

    :param weighted: of equal weight, too, if there are weights
    """
    if not graph.directed:
        return True
    weighted = weighted and graph.is_weighted
    symmetric: bool = graph.cached(
        ("symmetric", weighted), lambda: _find_symmetric(graph, weighted)
    )
    return symmetric


def has_hubs(graph: Graph) -> bool:
    """Return True if a vertex has many times as many arcs as the mean."""
    return hub_share(graph) > 0


def hub_share(graph: Graph) -> float:
    """Return the share of the arcs that leave vertices with many times as many arcs as the mean.

    Found once a graph.
    """

    def find() -> float:
        degree, arcs = graph.out_degree(), graph.arc_count
        least = _HUB_FACTOR * arcs / max(1, graph.vertex_count)
        return float(degree[degree >= least].sum()) / arcs if arcs else 0.0

    found: float = graph.cached("hub share", find)
    return found


def is_known_symmetric(graph: Graph, *, weighted: bool = False) -> bool:
    """Return True if the graph is undirected, or :func:`is_symmetric` has found it symmetric before."""
    weighted = weighted and graph.is_weighted
    return not graph.directed or graph._cache.get(("symmetric", weighted)) is True


def in_arcs(graph: Graph, *, weighted: bool = False) -> Graph:
    """Return a graph whose rows are the in-arcs: the graph itself if it is symmetric, else its reverse.

    :param weighted: its weights are read, too
    """
    return graph if is_symmetric(graph, weighted=weighted) else graph.reverse


def in_arcs_at_hand(graph: Graph, *, weighted: bool = False) -> Graph | None:
    """Return what :func:`in_arcs` does, or None if finding it would take longer than a search."""
    if is_known_symmetric(graph, weighted=weighted):
        return graph
    if "reverse" in graph._cache:
        return graph.reverse
    return None if graph._original is None else graph._original()


def in_offsets(graph: Graph) -> Array:
    """Return (n + 1) int64: the offsets of the rows of in-arcs; counted once, without making rows."""
    known = graph if is_symmetric(graph) else in_arcs_at_hand(graph)
    if known is not None:
        return known.offsets
    offsets: Array = graph.cached("in-offsets", lambda: _find_in_offsets(graph))
    return offsets


def _find_in_offsets(graph: Graph) -> Array:
    stored = graph.stored
    if not isinstance(stored, Rows) and stored.is_free():
        with suppress(GraphTooLargeError):  # the GPU has no room for the counts
            return stored.in_offsets()
    return _count_in_offsets(stored.on_host())


def _count_in_offsets(rows: Rows) -> Array:
    # The threads' counters take no more memory than the arcs.
    n = rows.vertex_count
    threads = max(1, min(thread_count_for(rows.arc_count), rows.arc_count // max(1, n)))
    offsets = np.zeros(n + 1, np.int64)
    counts = np.empty((threads, n), np.uint32 if rows.arc_count < 2**32 else np.uint64)
    run_team(_count_targets, rows.targets, counts, offsets, threads=threads)
    return frozen(np.cumsum(offsets, out=offsets))


@kernel
def _count_targets(
    rank: int, size: int, control: Any, targets: Any, counts: Any, offsets: Any
) -> None:
    """Count the arcs to v in ``offsets[v + 1]``; ``counts`` (size, n) has the counts of each thread."""
    mine = counts[rank]
    mine[:] = 0
    begin, end = block_range(rank, size, targets.size)
    for i in range(begin, end):
        mine[targets[i]] += 1
    if not barrier(control, size):
        return
    begin, end = block_range(rank, size, offsets.size - 1)
    for v in range(begin, end):
        total = np.int64(0)
        for other in range(size):
            total += np.int64(counts[other, v])
        offsets[v + 1] = total


def _find_symmetric(graph: Graph, weighted: bool) -> bool:
    if weighted and not is_symmetric(graph):
        return False
    stored = graph.stored
    if not isinstance(stored, Rows) and stored.is_free():
        forward, backward = stored.direction_hashes(int(process_seed()), weighted=weighted)
        return forward == backward
    rows = stored.on_host() if weighted else stored.on_host().without_weights()
    if not weighted and _sample_is_one_way(rows):
        return False
    forward, backward = direction_hashes(rows)
    return forward == backward


def _sample_is_one_way(rows: Rows) -> bool:
    """Return True if an arc of a sample has no reverse; long rows are not searched."""
    offsets, targets, _ = rows
    arcs = np.linspace(0, rows.arc_count - 1, min(_SAMPLED_ARCS, rows.arc_count)).astype(np.int64)
    sources = np.searchsorted(offsets, arcs, side="right") - 1
    for source, target in zip(sources.tolist(), targets[arcs].tolist(), strict=True):
        row = targets[offsets[target] : offsets[target + 1]]
        if len(row) <= _SEARCHED_ARCS and not (row == source).any():
            return True
    return False


def check_symmetric(rows: Rows) -> None:
    """Raise InputError, naming an arc, unless the reversed arcs are the same arcs.

    One pass, no memory (:func:`direction_hashes`).
    """
    forward_hash, backward_hash = direction_hashes(rows)
    if forward_hash == backward_hash:
        return
    offsets, targets, weights = rows
    sources = row_sources(offsets, targets.dtype)
    bits = bits_of(weights) if weights is not None else np.zeros(len(targets), np.int32)
    forward = np.lexsort((bits, targets, sources))
    backward = np.lexsort((bits, sources, targets))
    differs = (
        (sources[forward] != targets[backward])
        | (targets[forward] != sources[backward])
        | (bits[forward] != bits[backward])
    )
    arc = int(forward[np.argmax(differs)])
    weight, merge = "", ""
    if weights is not None:
        weight = f" of weight {weights[arc]}"
        merge = ', which keeps the least of their weights, or symmetrize("sum")'
    raise InputError(
        f"an undirected graph stores every edge in both directions, but the arcs between "
        f"{sources[arc]} and {targets[arc]}{weight} differ; use directed=True, then symmetrize(){merge}"
    )
