"""Checked queries of similarity, and the measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from godwit.arrays import computed_in_place, gpu_array, host_array, lies_on_gpu
from godwit.dtypes import Array, frozen
from godwit.errors import DeviceError, InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds, positions_as
from godwit.graph.interchange.tables import pairs_of_table

PairsArgument = Any
"""Pairs of vertices by id: an array of shape (k, 2), a table of two columns, or an iterable of pairs; None
for all with neighbours in common."""


class Measure(IntEnum):
    """Rule that turns the sum over common neighbours into a score: ``Measure`` of similarity.cuh."""

    JACCARD, OVERLAP, SORENSEN, SUM_OF_TERMS = range(4)


@dataclass(frozen=True)
class Similarity:
    """A kind of similarity.

    :param name: as in messages and tables
    :param measure: how the sum of terms of common neighbours becomes a score
    :param term: returns the term of vertices of some degrees, float64; None: 1 each
    """

    name: str
    measure: Measure
    term: Callable[[Array], Array] | None = None

    def terms(self, graph: Graph) -> Array:
        """Return the terms of all vertices of a simple graph, made once; empty if each is 1."""
        if self.term is None:
            return _NO_TERMS
        term = self.term
        found: Array = graph.cached(
            ("terms", self.name), lambda: frozen(term(graph.out_degree().astype(np.float64)))
        )
        return found


_NO_TERMS = frozen(np.empty(0))


def positions_of_pairs(pairs: PairsArgument, ids: VertexIds, dtype: np.dtype[Any]) -> Array:
    """Return the positions of pairs of vertices: (k, 2), contiguous.

    :raises InputError: they are no pairs, or a vertex is not in the graph
    """
    if isinstance(pairs, np.ndarray) or lies_on_gpu(pairs):
        array = host_array(pairs)
        if array.shape == (0,):
            return np.empty((0, 2), dtype)
        if array.ndim != 2 or array.shape[1] != 2:
            raise _no_pairs(pairs)
        return positions_as(dtype, ids, array.reshape(-1), "pairs").reshape(-1, 2)
    sides = pairs_of_table(pairs)
    if sides is not None:
        return np.stack([positions_as(dtype, ids, side, "pairs") for side in sides], axis=1)
    try:
        rows = [None if isinstance(pair, str | bytes) else tuple(pair) for pair in pairs]
    except TypeError:
        raise _no_pairs(pairs) from None
    if not all(row is not None and len(row) == 2 for row in rows):
        raise _no_pairs(pairs)
    sides = ([row[0] for row in rows if row], [row[1] for row in rows if row])
    return np.stack([positions_as(dtype, ids, side, "pairs") for side in sides], axis=1)


def positions_on_gpu(pairs: PairsArgument, ids: VertexIds, dtype: np.dtype[Any]) -> Any:
    """Return the positions of pairs on a GPU as CuPy's array (k, 2), where they lie.

    None: they lie on the host, they are no positions, or :func:`positions_of_pairs` says what is wrong.
    """
    if ids.own or not lies_on_gpu(pairs):
        return None
    try:
        array = gpu_array(pairs)
    except DeviceError:  # without CuPy the library of the array copies it to the host
        return None
    if array.ndim != 2 or array.shape[1] != 2 or len(array) == 0 or array.dtype.kind not in "iu":
        return None

    def checked(given: Any) -> Any:
        # Converting these to numbers waits for all work on the array that came before.
        if int(given.min()) < 0 or int(given.max()) >= len(ids):
            return None
        positions = given.astype(dtype, order="C", copy=False)
        int(positions[-1, -1])
        return positions

    return computed_in_place(array, checked)


def _no_pairs(given: Any) -> InputError:
    return InputError(
        "pairs must be an array of shape (k, 2), a table of two columns, or pairs of vertices such as "
        f"[(u, v), (u, w)], got {shown(given)}"
    )
