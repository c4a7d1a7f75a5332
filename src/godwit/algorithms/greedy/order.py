"""The order of greedy passes: by degree, then by a hash of vertex and seed, then by position."""

from __future__ import annotations

from enum import Enum

import numpy as np

from godwit.dtypes import Array, as_count
from godwit.graph.csr import Graph
from godwit.graph.facts import in_offsets
from godwit.graph.hashing import mix
from godwit.graph.rows import require_memory

_ORDER_BYTES = 48  # a vertex, for degrees, hashes and two orders
_DIGIT = 16  # bits that NumPy sorts by radix


class Kind(Enum):
    """Kind of decision that a greedy pass makes for each vertex."""

    SET = "independent set"
    """1 if no neighbour before the vertex has 1, else 0; small degrees come first: sets are large"""
    COLOR = "colouring"
    """the least number that no neighbour before the vertex has; large degrees come first"""


def as_seed(value: object) -> int:
    """Return a seed: an integer from 0 to 2**63 - 1; InputError for anything else."""
    return as_count(value, "seed", 0, 2**63 - 1)


def degrees(graph: Graph) -> Array:
    """Return the number of arcs at each vertex, int64 (n); of a directed graph, out and in."""
    degree = np.diff(graph.offsets)
    return degree + np.diff(in_offsets(graph)) if graph.directed else degree


def vertex_order(graph: Graph, kind: Kind, seed: int) -> Array:
    """Return the vertices in the order in which they are decided, int64 (n)."""
    require_memory(
        _ORDER_BYTES * graph.vertex_count, f"an order of {graph.vertex_count:,} vertices"
    )
    degree = degrees(graph)
    largest = int(degree.max(initial=0))
    if kind is Kind.COLOR:
        degree = largest - degree
    with np.errstate(over="ignore"):
        start = mix(np.array([seed], np.uint64))
        hashes = mix(start + np.arange(graph.vertex_count, dtype=np.uint64))
    order = np.argsort((hashes >> np.uint64(64 - _DIGIT)).astype(np.uint16), kind="stable")
    for shift in range(0, max(1, largest.bit_length()), _DIGIT):
        digit = (degree >> shift & ((1 << _DIGIT) - 1)).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order


def ranks_of(order: Array) -> Array:
    """Return the place of each vertex in an order, int64 (n)."""
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks
