"""Graphs of the textbook: paths, stars, complete graphs, binary trees, caterpillars.

A tree is given by the parents of its vertices; vertex 0 has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array, as_count, as_integer, id_dtype_for
from godwit.graph.csr import Graph
from godwit.graph.generators.common import (
    WeightRange,
    as_weight_range,
    edge_arrays,
    graph_of_edges,
    weighted,
)
from godwit.graph.rows import estimate_bytes, require_memory
from godwit.public import public

_MOST_VERTICES = 2**48


@public
def path(n: int, *, seed: int = 0, weights: WeightRange | None = None) -> Graph:
    """Return the undirected path 0 - 1 - ... - (n - 1).

    :param seed: the seed of the weights
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, _MOST_VERTICES)
    return _tree(n, f"a path of {n:,} vertices", lambda child: child - 1, seed, weights)


@public
def star(n: int, *, seed: int = 0, weights: WeightRange | None = None) -> Graph:
    """Return the star of vertex 0 with an edge to each of the n - 1 others.

    :param seed: the seed of the weights
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, _MOST_VERTICES)
    return _tree(n, f"a star of {n:,} vertices", np.zeros_like, seed, weights)


@public
def binary_tree(n: int, *, seed: int = 0, weights: WeightRange | None = None) -> Graph:
    """Return the undirected binary tree of n vertices filled level by level: v has 2 v + 1 and 2 v + 2.

    :param seed: the seed of the weights
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, _MOST_VERTICES)
    return _tree(
        n, f"a binary tree of {n:,} vertices", lambda child: (child - 1) >> 1, seed, weights
    )


@public
def caterpillar(
    spine: int, legs: int = 1, *, seed: int = 0, weights: WeightRange | None = None
) -> Graph:
    """Return a path of ``spine`` vertices, each joined to ``legs`` further vertices of degree 1.

    Undirected. The path is 0 - 1 - ... - (spine - 1); the legs of vertex v are numbered from
    ``spine + v * legs`` on.

    :param seed: the seed of the weights
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    spine = as_count(spine, "spine", 0, _MOST_VERTICES)
    legs = as_count(legs, "legs", 0, _MOST_VERTICES)

    def parent(child: Array) -> Array:
        return np.where(child < spine, child - 1, (child - spine) // max(min(legs, n), 1))

    n = spine * (legs + 1)
    what = f"a caterpillar of {spine:,} vertices with {legs:,} legs each"
    return _tree(n, what, parent, seed, weights)


def _tree(n: int, what: str, parent: Any, seed: Any, weights: Any) -> Graph:
    """Return the undirected tree of n vertices; ``parent`` maps an array of vertices to their parents."""
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    endpoints = edge_arrays(n, max(n - 1, 0), what)
    endpoints[0] = np.arange(1, max(n, 1), dtype=endpoints.dtype)
    endpoints[1] = parent(endpoints[0])
    return weighted(graph_of_edges(n, endpoints), weights, seed)


@public
def complete(n: int, *, seed: int = 0, weights: WeightRange | None = None) -> Graph:
    """Return the undirected graph with an edge between any two of n vertices.

    :param seed: the seed of the weights
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, _MOST_VERTICES)
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    dtype = id_dtype_for(n)
    degree = max(n - 1, 0)
    # One byte more for each arc: the mask of arcs to greater vertices.
    require_memory(
        estimate_bytes(n, n * degree, dtype.itemsize + 1), f"a complete graph of {n:,} vertices"
    )
    others = np.arange(degree, dtype=dtype)
    targets = np.empty((n, degree), dtype)
    np.add(others, others >= np.arange(n, dtype=dtype)[:, None], out=targets)
    graph = Graph.trusted(np.arange(n + 1) * degree, targets.ravel(), directed=False)
    return weighted(graph, weights, seed)
