"""Facts about rows: degrees, parallel arcs, and whether every arc has its reverse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dtypes import frozen
from godwit.errors import InputError
from godwit.graph.build import row_sources
from godwit.graph.hashing import mix
from godwit.graph.rows import Rows, bits_of, row_range, thread_count_for
from godwit.graph.transform import sorted_rows
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team


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
    # Two threads that set the same entry write the same value, so plain stores suffice.
    reached = np.zeros(rows.vertex_count, np.uint8)
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


@kernel
def _direction_hashes(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, payload: Any, sums: Any
) -> None:
    """Sum hash(u, v, weight) and hash(v, u, weight) over this thread's arcs."""
    begin, end = row_range(rank, size, offsets)
    weighted = payload.size > 0
    forward = np.uint64(0)
    backward = np.uint64(0)
    for v in range(begin, end):
        source = np.uint64(v)
        for i in range(offsets[v], offsets[v + 1]):
            target = np.uint64(targets[i])
            weight = np.uint64(payload[i]) if weighted else np.uint64(0)
            forward += mix(mix(mix(weight) ^ source) ^ target)
            backward += mix(mix(mix(weight) ^ target) ^ source)
    sums[rank, 0] = forward
    sums[rank, 1] = backward


def direction_hashes(rows: Rows) -> tuple[int, int]:
    """Return a hash of all arcs with their weights, whatever their order, and one of all reversed arcs."""
    threads = thread_count_for(rows.arc_count)
    sums = np.zeros((threads, 2), np.uint64)
    given = (frozen(rows.offsets), frozen(rows.targets), bits_of(rows.weights))
    run_team(_direction_hashes, *given, sums, threads=threads)
    forward, backward = sums.sum(axis=0).tolist()
    return forward, backward


def check_symmetric(rows: Rows) -> None:
    """Raise InputError, naming an arc, unless the reversed arcs are the same arcs.

    The two sums of hashes are equal if the multisets of arcs are, and only with probability about
    2**-64 otherwise: one pass, no memory.
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
    weight = "" if weights is None else f" of weight {weights[arc]}"
    raise InputError(
        f"an undirected graph stores every edge in both directions, but the arcs between "
        f"{sources[arc]} and {targets[arc]}{weight} differ; use directed=True, then symmetrize()"
    )
