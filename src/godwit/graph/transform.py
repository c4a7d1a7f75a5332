"""Graphs from graphs: reversed, symmetrized, relabelled, replicated, without some of the arcs.

Each is one parallel pass over the rows, or goes through ``build`` where arcs must be sorted anew.
Results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array, as_count, as_integers, frozen, id_dtype_for
from godwit.errors import InputError, ValueOverflowError, shown
from godwit.graph.build import arcs_to_rows
from godwit.graph.csr import Graph, Merge, estimate_bytes, require_memory
from godwit.graph.hashing import mix
from godwit.graph.rows import arc_sources, bits_of, row_range, thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_MERGE_CODES = {"first": 0, "min": 1, "max": 2, "sum": 3}
_MINIMUM, _MAXIMUM, _SUM = 1, 2, 3


def reversed_graph(graph: Graph) -> Graph:
    """The graph with every arc turned round; parallel arcs keep their order."""
    offsets, targets, weights = arcs_to_rows(
        graph.targets,
        arc_sources(graph.offsets, graph.arc_count, graph.targets.dtype),
        graph.weights,
        graph.vertex_count,
        graph.targets.dtype,
        sources_ascend=True,
    )
    return Graph.trusted(offsets, targets, weights, directed=True, ids=graph.ids)


def symmetrized(graph: Graph, merge: Merge | None) -> Graph:
    """See :meth:`Graph.symmetrize`."""
    if merge is not None:
        _merge_code(merge)
    if not graph.directed:
        return graph
    offsets, targets, weights = arcs_to_rows(
        arc_sources(graph.offsets, graph.arc_count, graph.targets.dtype),
        graph.targets,
        graph.weights,
        graph.vertex_count,
        graph.targets.dtype,
        both_directions=True,
        merge=merge is not None and not graph.is_weighted,
    )
    result = Graph.trusted(offsets, targets, weights, directed=False, ids=graph.ids)
    # Both directions of an edge list its arcs in the same order, so that even sums of floats agree.
    return result if merge is None or weights is None else merged(result, merge)


def relabelled(graph: Graph, permutation: Any) -> Graph:
    """See :meth:`Graph.relabel`."""
    new_ids = as_integers(permutation, "permutation")
    n = graph.vertex_count
    if len(new_ids) != n:
        raise InputError(f"permutation must have {n} entries, got {len(new_ids)}")
    seen = np.zeros(n, np.bool_)
    inside = (new_ids >= 0) & (new_ids < n)
    if not inside.all():
        v = int(np.argmin(inside))
        raise InputError(f"permutation[{v}] must be in [0, {n}), got {new_ids[v]}")
    seen[new_ids] = True
    if not seen.all():
        raise InputError(
            f"permutation must contain each of 0 .. {n - 1}: {seen.argmin()} is absent"
        )
    new_ids = new_ids.astype(graph.targets.dtype, copy=False)
    sources = arc_sources(graph.offsets, graph.arc_count, graph.targets.dtype)
    offsets, targets, weights = arcs_to_rows(
        new_ids[sources], new_ids[graph.targets], graph.weights, n, graph.targets.dtype
    )
    ids = graph.ids
    if ids.own:  # they stay with their vertices
        before = np.empty(n, np.int64)
        before[new_ids] = np.arange(n)
        ids = ids.take(before)
    return Graph.trusted(offsets, targets, weights, directed=graph.directed, ids=ids)


@kernel
def _is_sorted(rank: int, size: int, control: Any, offsets: Any, targets: Any) -> bool:
    """Whether the targets of each of this thread's rows ascend."""
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        for i in range(offsets[v] + 1, offsets[v + 1]):
            if targets[i - 1] > targets[i]:
                return False
    return True


def has_sorted_rows(graph: Graph) -> bool:
    """Whether the targets of every row ascend (parallel arcs allowed)."""

    def compute() -> bool:
        threads = thread_count_for(graph.arc_count)
        return all(run_team(_is_sorted, graph.offsets, graph.targets, threads=threads))

    return bool(graph.cached("sorted rows", compute))


def with_sorted_rows(graph: Graph) -> Graph:
    """The same graph with the targets of every row in ascending order; itself where they are."""
    if has_sorted_rows(graph):
        return graph
    offsets, targets, weights = arcs_to_rows(
        arc_sources(graph.offsets, graph.arc_count, graph.targets.dtype),
        graph.targets,
        graph.weights,
        graph.vertex_count,
        graph.targets.dtype,
    )
    return Graph.trusted(offsets, targets, weights, directed=graph.directed, ids=graph.ids)


@kernel
def _count_kept(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    loops: bool,
    merge: int,
    counts: Any,
) -> None:
    """Arcs that will remain of each row: ``counts[v + 1]``; ``merge < 0`` keeps parallel ones."""
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        count = 0
        for i in range(offsets[v], offsets[v + 1]):
            repeated = merge >= 0 and i > offsets[v] and targets[i] == targets[i - 1]
            if not repeated and (loops or targets[i] != v):
                count += 1
        counts[v + 1] = count


@kernel
def _copy_kept(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    weights: Any,
    loops: bool,
    merge: int,
    zero: Any,
    lowest: Any,
    highest: Any,
    new_offsets: Any,
    new_targets: Any,
    new_weights: Any,
) -> Any:
    """Copy what remains of each row; an arc whose sum does not fit, or -1.

    ``zero`` has the type that sums are computed in; ``lowest`` and ``highest`` bound them.
    """
    begin, end = row_range(rank, size, offsets)
    weighted = weights.size > 0
    failed = np.int64(-1)
    for v in range(begin, end):
        to = new_offsets[v] - 1
        total = zero
        for i in range(offsets[v], offsets[v + 1]):
            if not loops and targets[i] == v:
                continue
            if merge >= 0 and i > offsets[v] and targets[i] == targets[i - 1]:
                if weighted:
                    weight = weights[i]
                    if merge == _SUM:
                        if weight > 0:
                            if total > highest - weight:
                                failed = np.int64(i)
                        elif total < lowest - weight:
                            failed = np.int64(i)
                        total += weight
                        new_weights[to] = total
                    elif (merge == _MINIMUM and weight < new_weights[to]) or (
                        merge == _MAXIMUM and weight > new_weights[to]
                    ):
                        new_weights[to] = weight
                continue
            to += 1
            new_targets[to] = targets[i]
            if weighted:
                new_weights[to] = weights[i]
                total = zero + weights[i]
    return failed


def without_self_loops(graph: Graph) -> Graph:
    """See :meth:`Graph.remove_self_loops`."""
    return _filtered(graph, False, -1)


def parallel_arcs(graph: Graph) -> tuple[int, int] | None:
    """The ends of parallel arcs; None if the graph has none."""
    ends: tuple[int, int] | None = graph.cached("parallel arcs", lambda: _first_parallel(graph))
    return ends


def _first_parallel(graph: Graph) -> tuple[int, int] | None:
    if graph.arc_count < 2:
        return None
    ordered = with_sorted_rows(graph)
    repeated = ordered.targets[1:] == ordered.targets[:-1]
    ends = ordered.offsets[1:-1]
    ends = ends[(ends > 0) & (ends < graph.arc_count)]
    repeated[ends - 1] = False  # the last arc of a row and the first of the next
    index = int(np.argmax(repeated))
    if not repeated[index]:
        return None
    source = int(np.searchsorted(ordered.offsets, index, side="right")) - 1
    return source, int(ordered.targets[index])


def merged(graph: Graph, how: Merge, name: str = "how") -> Graph:
    """See :meth:`Graph.merge_parallel_arcs`."""
    code = _merge_code(how, name)
    return _filtered(with_sorted_rows(graph), True, code)


def _merge_code(how: Any, name: str = "how") -> int:
    if not (isinstance(how, str) and how in _MERGE_CODES):
        raise InputError(f"{name} must be one of {', '.join(_MERGE_CODES)}, got {shown(how)}")
    return _MERGE_CODES[how]


def _filtered(graph: Graph, loops: bool, merge: int) -> Graph:
    m = graph.arc_count
    threads = thread_count_for(m)
    offsets = np.zeros(graph.vertex_count + 1, np.int64)
    run_team(_count_kept, graph.offsets, graph.targets, loops, merge, offsets, threads=threads)
    np.cumsum(offsets, out=offsets)
    kept = int(offsets[-1])
    if kept == m:
        return graph
    weights = graph.weights
    weight_bytes = 0 if weights is None else weights.itemsize
    require_memory(
        estimate_bytes(0, kept, graph.targets.itemsize, weight_bytes), "a copy of the graph"
    )
    targets = np.empty(kept, graph.targets.dtype)
    new_weights = np.empty(
        0 if weights is None else kept, np.int32 if weights is None else weights.dtype
    )
    if new_weights.dtype.kind == "f":
        limits: tuple[Any, ...] = (np.float64(0), np.float64(-np.inf), np.float64(np.inf))
    else:
        bounds = np.iinfo(new_weights.dtype)
        limits = (np.int64(0), np.int64(bounds.min), np.int64(bounds.max))
    failed = run_team(
        _copy_kept,
        graph.offsets,
        graph.targets,
        frozen(np.empty(0, np.int32)) if weights is None else weights,
        loops,
        merge,
        *limits,
        offsets,
        targets,
        new_weights,
        threads=threads,
    )
    if max(failed) >= 0:
        arc = max(failed)
        source = int(np.searchsorted(graph.offsets, arc, side="right")) - 1
        raise ValueOverflowError(
            f"the weights of the arcs {source} -> {graph.targets[arc]} add up to more than "
            f"{new_weights.dtype} holds; convert them to int64 or float64 first"
        )
    return Graph.trusted(
        offsets,
        targets,
        None if weights is None else new_weights,
        directed=graph.directed,
        ids=graph.ids,
    )


@kernel
def _copy_rows(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    payload: Any,
    new_offsets: Any,
    new_targets: Any,
    new_payload: Any,
) -> None:
    """Write copy after copy: rows, then arcs, each thread equal parts of both."""
    n = offsets.size - 1
    m = targets.size
    begin, end = block_range(rank, size, new_offsets.size - 1)
    for row in range(begin, end):
        new_offsets[row + 1] = row // n * m + offsets[row % n + 1]
    weighted = payload.size > 0
    begin, end = block_range(rank, size, new_targets.size)
    to = begin
    while to < end:
        if load_acquire(control, ABORT) != 0:
            return
        copy = to // m
        stop = min(end, (copy + 1) * m)
        for i in range(to, stop):
            new_targets[i] = targets[i - copy * m] + copy * n
        if weighted:
            for i in range(to, stop):
                new_payload[i] = payload[i - copy * m]
        to = stop


def replicated(graph: Graph, count: Any) -> Graph:
    """See :meth:`Graph.replicate`."""
    count = as_count(count, "count", 1)
    if count == 1:
        return graph
    if not graph.ids.is_range:
        raise InputError(
            f"{shown(count)} copies cannot share {graph.ids.described}; "
            "call with_ids(0) first to go without"
        )
    n, m = graph.vertex_count * count, graph.arc_count * count
    dtype = max(graph.targets.dtype, id_dtype_for(n), key=lambda dtype: dtype.itemsize)
    weights = graph.weights
    weight_bytes = 0 if weights is None else weights.itemsize
    require_memory(
        estimate_bytes(n, m, dtype.itemsize, weight_bytes), f"a graph of {shown(count)} copies"
    )
    offsets = np.zeros(n + 1, np.int64)
    targets = np.empty(m, dtype)
    payload = bits_of(weights)
    new_payload = np.empty(0 if weights is None else m, payload.dtype)
    run_team(
        _copy_rows,
        graph.offsets,
        graph.targets,
        payload,
        offsets,
        targets,
        new_payload,
        threads=thread_count_for(m),
    )
    new_weights = None if weights is None else new_payload.view(weights.dtype)
    return Graph.trusted(
        offsets, targets, new_weights, directed=graph.directed, ids=graph.ids.extended(n)
    )


@kernel
def _direction_hashes(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, payload: Any, sums: Any
) -> None:
    """The sums of hash(u, v, weight) and of hash(v, u, weight) over this thread's arcs."""
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


def direction_hashes(offsets: Array, targets: Array, weights: Array | None) -> tuple[int, int]:
    """Two hashes of all arcs with their weights, whatever their order: as they are, and turned round."""
    threads = thread_count_for(len(targets))
    sums = np.zeros((threads, 2), np.uint64)
    run_team(
        _direction_hashes, frozen(offsets), frozen(targets), bits_of(weights), sums, threads=threads
    )
    forward, backward = sums.sum(axis=0).tolist()
    return forward, backward


def check_symmetric(offsets: Array, targets: Array, weights: Array | None) -> None:
    """Check that the arcs turned round are the same arcs: InputError naming one that is missing.

    The two sums of hashes are equal if the multisets of arcs are, and only with probability about
    2**-64 otherwise: one pass, no memory.
    """
    forward_hash, backward_hash = direction_hashes(offsets, targets, weights)
    if forward_hash == backward_hash:
        return
    sources = arc_sources(offsets, len(targets), targets.dtype)
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
