"""Rows from rows: reversed, symmetrized, relabelled, replicated, without some of the arcs.

Each is one parallel pass over the rows, or goes through ``build`` where arcs must be sorted again. A
function that would change nothing returns the rows that it was given. Results do not depend on the
number of threads.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from godwit.dtypes import Array, as_integers, frozen, id_dtype_for
from godwit.errors import InputError, ValueOverflowError, shown
from godwit.graph.build import arcs_to_rows, row_sources
from godwit.graph.rows import (
    Rows,
    estimate_bytes,
    require_memory,
    row_range,
    thread_count_for,
)
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team

Merge = Literal["min", "max", "sum", "first"]

_MERGE_CODES = {"first": 0, "min": 1, "max": 2, "sum": 3}
_MINIMUM, _MAXIMUM, _SUM = 1, 2, 3
_KEEP_PARALLEL = -1


def reversed_rows(rows: Rows) -> Rows:
    """Return the rows of the reversed arcs; parallel arcs keep their order."""
    dtype = rows.targets.dtype
    sources = row_sources(rows.offsets, dtype)
    return arcs_to_rows(
        rows.targets, sources, rows.weights, rows.vertex_count, dtype, sources_ascend=True
    )


def symmetrized(rows: Rows, merge: Merge | None) -> Rows:
    """Return the rows of both directions of all arcs; see :meth:`Graph.symmetrize`."""
    dtype = rows.targets.dtype
    result = arcs_to_rows(
        row_sources(rows.offsets, dtype),
        rows.targets,
        rows.weights,
        rows.vertex_count,
        dtype,
        both_directions=True,
        merge=merge is not None and rows.weights is None,
    )
    # Both directions of an edge list its arcs in the same order, so that even sums of floats agree.
    return result if merge is None or rows.weights is None else merged(result, merge)


def checked_permutation(permutation: Any, count: int) -> Array:
    """Return a permutation of 0 to ``count - 1`` as integers; InputError for anything else."""
    numbers = as_integers(permutation, "permutation")
    if len(numbers) != count:
        raise InputError(f"permutation must have {count} entries, got {len(numbers)}")
    inside = (numbers >= 0) & (numbers < count)
    if not inside.all():
        v = int(np.argmin(inside))
        raise InputError(f"permutation[{v}] must be in [0, {count}), got {numbers[v]}")
    occurs = np.zeros(count, np.bool_)
    occurs[numbers] = True
    if not occurs.all():
        raise InputError(
            f"permutation must contain each of 0 .. {count - 1}: {occurs.argmin()} is absent"
        )
    return numbers


def relabelled(rows: Rows, new_ids: Array) -> Rows:
    """Return the sorted rows of the graph in which vertex v is called ``new_ids[v]``."""
    dtype = rows.targets.dtype
    new_ids = new_ids.astype(dtype, copy=False)
    sources = row_sources(rows.offsets, dtype)
    return arcs_to_rows(
        new_ids[sources], new_ids[rows.targets], rows.weights, rows.vertex_count, dtype
    )


@kernel
def _is_sorted(rank: int, size: int, control: Any, offsets: Any, targets: Any) -> bool:
    """Return True if the targets of each of this thread's rows ascend."""
    begin, end = row_range(rank, size, offsets)
    for v in range(begin, end):
        for i in range(offsets[v] + 1, offsets[v + 1]):
            if targets[i - 1] > targets[i]:
                return False
    return True


def has_sorted_rows(rows: Rows) -> bool:
    """Return True if the targets of every row ascend (parallel arcs allowed)."""
    threads = thread_count_for(rows.arc_count)
    return all(run_team(_is_sorted, rows.offsets, rows.targets, threads=threads))


def sorted_rows(rows: Rows) -> Rows:
    """Return the rows with the targets of each in ascending order."""
    if has_sorted_rows(rows):
        return rows
    dtype = rows.targets.dtype
    sources = row_sources(rows.offsets, dtype)
    return arcs_to_rows(sources, rows.targets, rows.weights, rows.vertex_count, dtype)


def without_self_loops(rows: Rows) -> Rows:
    """Return the rows without arcs from a vertex to itself."""
    return _filtered(rows, False, _KEEP_PARALLEL)


def simple_rows(rows: Rows) -> Rows:
    """Return sorted rows with neither self-loops nor parallel arcs, of which the first remains."""
    return _filtered(sorted_rows(rows), False, _MERGE_CODES["first"])


def merged(rows: Rows, how: Merge, name: str = "how") -> Rows:
    """Return sorted rows without parallel arcs; see :meth:`Graph.merge_parallel_arcs`.

    :param name: the name of the argument ``how`` in messages
    """
    code = merge_code(how, name)
    return _filtered(sorted_rows(rows), True, code)


def merge_code(how: Any, name: str = "how") -> int:
    """Return the number of a :data:`Merge`; InputError for anything else."""
    if not (isinstance(how, str) and how in _MERGE_CODES):
        raise InputError(f"{name} must be one of {', '.join(_MERGE_CODES)}, got {shown(how)}")
    return _MERGE_CODES[how]


def _filtered(rows: Rows, loops: bool, merge: int) -> Rows:
    """Return the rows without self-loops, unless ``loops``, and with parallel arcs merged."""
    threads = thread_count_for(rows.arc_count)
    offsets = np.zeros(rows.vertex_count + 1, np.int64)
    run_team(_count_kept, rows.offsets, rows.targets, loops, merge, offsets, threads=threads)
    np.cumsum(offsets, out=offsets)
    kept = int(offsets[-1])
    if kept == rows.arc_count:
        return rows
    weights = rows.weights
    require_memory(estimate_bytes(0, kept, rows.arc_bytes), "a copy of the graph")
    targets = np.empty(kept, rows.targets.dtype)
    given_weights = frozen(np.empty(0, np.int32)) if weights is None else weights
    new_weights = np.empty(0 if weights is None else kept, given_weights.dtype)
    if new_weights.dtype.kind == "f":
        limits: tuple[Any, ...] = (np.float64(0), np.float64(-np.inf), np.float64(np.inf))
    else:
        bounds = np.iinfo(new_weights.dtype)
        limits = (np.int64(0), np.int64(bounds.min), np.int64(bounds.max))
    given = (rows.offsets, rows.targets, given_weights, loops, merge, *limits)
    overflows = run_team(_copy_kept, *given, offsets, targets, new_weights, threads=threads)
    arc = max(overflows)
    if arc >= 0:
        source = int(np.searchsorted(rows.offsets, arc, side="right")) - 1
        raise ValueOverflowError(
            f"the weights of the arcs {source} -> {rows.targets[arc]} add up to more than "
            f"{new_weights.dtype} holds; convert them to int64 or float64 first"
        )
    return Rows(offsets, targets, None if weights is None else new_weights)


@kernel
def _count_kept(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, loops: bool, merge: int,
    counts: Any,
) -> None:  # fmt: skip
    """Write the number of arcs that row v keeps to ``counts[v + 1]``; ``merge < 0`` keeps parallel arcs."""
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
    rank: int, size: int, control: Any, offsets: Any, targets: Any, weights: Any, loops: bool,
    merge: int, zero: Any, lowest: Any, highest: Any, new_offsets: Any, new_targets: Any,
    new_weights: Any,
) -> Any:  # fmt: skip
    """Copy the arcs that each row keeps; return an arc whose sum overflows, or -1.

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


def replicated(rows: Rows, count: int) -> Rows:
    """Return the rows of ``count`` disjoint copies of a graph; see :meth:`Graph.replicate`."""
    n, m = rows.vertex_count, rows.arc_count
    dtype = max(rows.targets.dtype, id_dtype_for(n * count), key=lambda dtype: dtype.itemsize)
    weight_bytes = rows.arc_bytes - rows.targets.itemsize
    require_memory(
        estimate_bytes(n * count, m * count, dtype.itemsize, weight_bytes),
        f"a graph of {shown(count)} copies",
    )
    copies = np.arange(count, dtype=np.int64)[:, None]
    offsets = np.zeros(n * count + 1, np.int64)
    np.add(rows.offsets[1:], copies * m, out=offsets[1:].reshape(count, n))
    targets = np.empty((count, m), dtype)
    np.add(rows.targets, (copies * n).astype(dtype), out=targets)
    weights = None if rows.weights is None else np.tile(rows.weights, count)
    return Rows(offsets, targets.reshape(-1), weights)
