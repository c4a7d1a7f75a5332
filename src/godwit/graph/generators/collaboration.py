"""Overlapping cliques: who has worked together, as in networks of co-authors.

Encoding: clique k is a hash of (seed, k); the first of its members, a hash of that, stands at a
random place of a ring of all vertices, and the others at distances from it of which each power of
two is equally likely. Cliques so overlap near by, and some reach far.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_integer, frozen
from godwit.graph.csr import Graph
from godwit.graph.generators.common import (
    POLL_STEPS,
    WeightRange,
    as_weight_range,
    edge_arrays,
    graph_of_edges,
    weighted,
)
from godwit.graph.hashing import below, mix, seed_word, unit
from godwit.graph.rows import require_memory, thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_MOST_VERTICES = 2**40
_LARGEST_CLIQUE = 2**16
_ONE = np.uint64(1)
_SIZES = np.uint64(0x51235)  # keeps the draws of sizes and of members apart


def _clique_size(word: Any, shares: Any) -> Any:
    """A size of which ``shares[s - 2]`` is the probability of being s or less."""
    draw = unit(mix(word ^ _SIZES))
    low = 0
    high = shares.size - 1
    while low < high:
        middle = (low + high) >> 1
        if shares[middle] <= draw:
            low = middle + 1
        else:
            high = middle
    return low + 2


@kernel
def _count_pairs(rank: int, size: int, control: Any, seed: Any, shares: Any, pairs: Any) -> None:
    """The number of pairs in clique k: ``pairs[k + 1]``."""
    begin, end = block_range(rank, size, pairs.size - 1)
    start = mix(seed)
    for k in range(begin, end):
        if k % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        count = _clique_size(mix(start ^ np.uint64(k)), shares)
        pairs[k + 1] = count * (count - 1) // 2


@kernel
def _draw_cliques(
    rank: int,
    size: int,
    control: Any,
    n: int,
    bits: int,
    seed: Any,
    shares: Any,
    starts: Any,
    members: Any,
    sources: Any,
    targets: Any,
) -> None:
    """The pairs of clique k, from ``starts[k]``; ``members[rank]`` has room for the largest."""
    begin, end = block_range(rank, size, starts.size - 1)
    start = mix(seed)
    mine = members[rank]
    for k in range(begin, end):
        if load_acquire(control, ABORT) != 0:
            return
        word = mix(start ^ np.uint64(k))
        first = below(word, n)
        mine[0] = first
        to = starts[k]
        for j in range(1, _clique_size(word, shares)):
            draw = mix(word + np.uint64(j))
            magnitude = _ONE << np.uint64(below(draw, bits))
            place = mix(draw)
            distance = np.int64(magnitude | (place >> _ONE) & (magnitude - _ONE))
            mine[j] = (first + (distance if place & _ONE == 0 else n - distance % n)) % n
            for i in range(j):
                sources[to] = mine[i]
                targets[to] = mine[j]
                to += 1


def cliques(
    n: int,
    count: int | None = None,
    *,
    largest: int = 64,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """Overlapping cliques of skewed sizes, like networks of co-authors and of papers that share one.

    Undirected and simple; clustered as the coPapers graphs of the DIMACS-10 collection are, with
    degrees of all sizes. Sizes s, from 2 on, are drawn in proportion to s**-2; a member drawn twice
    counts once.

    :param count: of cliques; n / 2 by default, which with ``largest=64`` makes the mean degree 47
        less what overlaps
    :param largest: size of a clique, from 2 to 65,536
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything large is allocated
    """
    n = as_count(n, "n", 0, _MOST_VERTICES)
    count = n // 2 if count is None else as_count(count, "count", 0, _MOST_VERTICES)
    largest = as_count(largest, "largest", 2, _LARGEST_CLIQUE)
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    if n == 0:
        count = 0
    what = f"a graph of {n:,} vertices and {count:,} cliques"
    require_memory(8 * (count + 1), what)
    sizes = np.arange(2.0, largest + 1)
    shares = np.cumsum(1 / (sizes * sizes))
    shares = frozen(shares / shares[-1])
    threads = thread_count_for(count)
    starts = np.zeros(count + 1, np.int64)
    run_team(_count_pairs, seed_word(seed), shares, starts, threads=threads)
    np.cumsum(starts, out=starts)
    pairs = int(starts[-1])
    ends = edge_arrays(n, pairs, f"{what}, of {pairs:,} pairs,")
    members = np.empty((threads, largest), np.int64)
    bits = max(n.bit_length() - 1, 1)
    settings = (n, bits, seed_word(seed), shares, frozen(starts))
    run_team(_draw_cliques, *settings, members, *ends, threads=threads)
    return weighted(graph_of_edges(n, ends), weights, seed)
