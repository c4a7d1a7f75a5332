"""Common functions of verifiers: checks of arguments, arcs in blocks, and the error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from godwit.dtypes import Array, as_array
from godwit.errors import InputError, VerificationError, shown
from godwit.graph.csr import Graph
from godwit.graph.foreign import not_a_graph

BLOCK_ARCS = 1 << 20
"""Arcs of a block, so that memory stays near that of a few arrays of n."""


def check_graph(graph: Any) -> None:
    """Raise InputError for an object that is no graph."""
    if not isinstance(graph, Graph):
        raise not_a_graph(graph)


_KINDS = {
    "b": "truth values",
    "f": "floating-point numbers",
    "i": "signed integers",
    "if": "signed integers or floating-point numbers",
    "iu": "integers",
}
"""Names of the contents of arrays, by the kinds of their dtypes (``dtype.kind``)."""


def checked_array(values: Any, count: int, name: str, kinds: str) -> Array:
    """Return the values as an array of shape (count).

    :param kinds: the letters of NumPy's ``dtype.kind`` that are allowed: a key of ``_KINDS``
    :raises InputError: shape or dtype is wrong
    """
    array = as_array(values, name)
    if array.shape != (count,):
        raise InputError(f"{name} must have shape ({count},), got {array.shape}")
    if array.dtype.kind not in kinds:
        raise InputError(f"{name} must be {_KINDS[kinds]}, got {array.dtype}")
    return array


def arc_blocks(graph: Graph) -> Iterator[tuple[Array, slice]]:
    """Yield the tails of a block of arcs, and its range of ``graph.targets``; blocks are whole rows."""
    offsets = graph.offsets
    n = graph.vertex_count
    begin = 0
    while begin < n:
        end = int(np.searchsorted(offsets, offsets[begin] + BLOCK_ARCS, side="right")) - 1
        end = min(max(end, begin + 1), n)
        tails = np.repeat(np.arange(begin, end), np.diff(offsets[begin : end + 1]))
        yield tails, slice(int(offsets[begin]), int(offsets[end]))
        begin = end


def check_finite(graph: Graph, values: Array, what: str) -> None:
    """Raise VerificationError for the first vertex whose value is negative, infinite or NaN."""
    wrong = ~(values >= 0) | (values == np.inf)
    if (v := first_true(wrong)) is not None:
        fail(f"the {what} of vertex {shown(graph.ids[v])} is {values[v]}")


def check_named_by_members(label: Array, name: Callable[[int], str]) -> None:
    """Raise VerificationError unless labels are vertices that are no larger, and have their own label.

    :param label: (n) int64
    :param name: returns the id of a vertex as messages show it
    """
    if (v := first_true((label < 0) | (label > np.arange(len(label))))) is not None:
        fail(
            f"vertex {name(v)} has label {label[v]}, which is not the smallest vertex of its component"
        )
    if (v := first_true(label[label] != label)) is not None:
        first = int(label[v])
        fail(
            f"vertex {name(v)} has label {first}, but vertex {name(first)} has label {label[first]}"
        )


def first_true(mask: Array) -> int | None:
    """Return the index of the first True."""
    return int(np.argmax(mask)) if mask.any() else None


def tree_root(parent: Any, vertex: int) -> int:
    """Return the root of a vertex's tree, and halve the path to it; for compiled code."""
    while parent[vertex] != vertex:
        parent[vertex] = parent[parent[vertex]]
        vertex = parent[vertex]
    return vertex


def fail(message: str) -> NoReturn:
    """Raise VerificationError."""
    raise VerificationError(message)
