"""Checked queries of similarity, and the measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from godwit.dtypes import Array, frozen
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds

PairsArgument = Any
"""Pairs of vertices by id: an array of shape (k, 2), or an iterable of pairs; None for all with neighbours
in common."""


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
    try:
        several = pairs if isinstance(pairs, np.ndarray) else list(pairs)
        count = len(several)
        if isinstance(several, np.ndarray):
            is_right = several.ndim == 2 and several.shape[1] == 2
            left, right = (several[:, 0], several[:, 1]) if is_right else ([], [])
        else:
            rows = [tuple(pair) for pair in several if not isinstance(pair, str | bytes)]
            is_right = len(rows) == count and all(len(row) == 2 for row in rows)
            left, right = ([row[side] for row in rows] if is_right else [] for side in (0, 1))
    except TypeError:
        is_right = False
    if not is_right and not (isinstance(pairs, np.ndarray) and pairs.shape == (0,)):
        raise InputError(
            f"pairs must be an array of shape (k, 2), or pairs of vertices, got {shown(pairs)}"
        )
    found = np.empty((count, 2), dtype)
    if count:
        found[:, 0] = ids.positions(left, "pairs")
        found[:, 1] = ids.positions(right, "pairs")
    return found
