"""Random graphs: uniform, small-world, preferential attachment. Each edge is found on its own.

Where a classical model asks what edges there are already, an edge is drawn without looking, and
those that turn out to repeat another are left out: 2 of 5 million edges of a small world, 270 of 5
million of a scale-free graph.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_integer
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.generators.common import (
    POLL_STEPS,
    WeightRange,
    as_probability,
    as_weight_range,
    edge_arrays,
    graph_of_edges,
    weighted,
)
from godwit.graph.hashing import below, mix, scramble, seed_word, unit
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_MOST_VERTICES = 2**40
_UNIFORM_EDGES_PER_VERTEX = 16
_ONE = np.uint64(1)


@kernel
def _draw_uniform(
    rank: int,
    size: int,
    control: Any,
    pairs: Any,
    bits: Any,
    seed: Any,
    sources: Any,
    targets: Any,
) -> None:
    """Edge i is the pair that a random permutation of all pairs puts at place i.

    The permutation is one of 2**bits numbers; a number that is no pair is permuted again until it
    is one, which keeps it a permutation. Pair ``v * (v - 1) / 2 + u`` is {u, v}, u < v.
    """
    begin, end = block_range(rank, size, sources.size)
    start = mix(seed)
    for i in range(begin, end):
        if i % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        pair = scramble(np.uint64(i), bits, start)
        while pair >= pairs:
            pair = scramble(pair, bits, start)
        index = np.int64(pair)
        v = np.int64((1.0 + math.sqrt(1.0 + 8.0 * index)) / 2.0)
        while v * (v - 1) // 2 > index:  # the root is of a rounded number
            v -= 1
        while (v + 1) * v // 2 <= index:
            v += 1
        sources[i] = v
        targets[i] = index - v * (v - 1) // 2


def uniform(
    n: int, edges: int | None = None, *, seed: int = 0, weights: WeightRange | None = None
) -> Graph:
    """A random graph with exactly so many edges, all pairs of vertices being equally likely.

    Undirected and simple: G(n, m) of Erdős and Rényi.

    :param n: at most 2**31
    :param edges: at most n (n - 1) / 2; by default 16 n, as in the GAP benchmark, or all there are
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, 2**31)
    pairs = n * (n - 1) // 2
    if edges is None:
        edges = min(_UNIFORM_EDGES_PER_VERTEX * n, pairs)
    edges = as_count(edges, "edges", 0, pairs)
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    ends = edge_arrays(n, edges, f"a random graph of {n:,} vertices and {edges:,} edges")
    settings = (np.uint64(pairs), np.uint64(max(pairs - 1, 0).bit_length()), seed_word(seed))
    run_team(_draw_uniform, *settings, *ends, threads=thread_count_for(edges))
    return weighted(graph_of_edges(n, ends), weights, seed)


@kernel
def _draw_small_world(
    rank: int,
    size: int,
    control: Any,
    n: int,
    reach: int,
    rewire: float,
    seed: Any,
    sources: Any,
    targets: Any,
) -> None:
    """Edge ``v * reach + j`` leads from v to v + j + 1 round the ring, or to any other vertex."""
    begin, end = block_range(rank, size, sources.size)
    start = mix(seed)
    for i in range(begin, end):
        if i % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        v = i // reach
        word = mix(start ^ np.uint64(i))
        if unit(word) < rewire:
            target = below(mix(word ^ _ONE), n - 1)
            target += np.int64(target >= v)
        else:
            target = (v + i % reach + 1) % n
        sources[i] = v
        targets[i] = target


def watts_strogatz(
    n: int,
    neighbours: int = 6,
    rewire: float = 0.1,
    *,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """A small world: a ring whose vertices know their neighbours, and some shortcuts.

    Undirected. Of each edge, one end stays and the other goes, with probability ``rewire``, to any
    other vertex; an edge that then repeats another is left out. Source: Watts, Strogatz: Collective
    dynamics of 'small-world' networks (Nature 393, 1998).

    :param neighbours: on the ring, half on either side: an even number below n
    :param rewire: in [0, 1]
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, _MOST_VERTICES)
    neighbours = as_count(neighbours, "neighbours")
    if neighbours % 2 or neighbours >= max(n, 1):
        raise InputError(
            f"neighbours must be an even number below n, which is {n}, got {shown(neighbours)}"
        )
    rewire = as_probability(rewire, "rewire")
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    reach = neighbours // 2
    edges = n * reach
    ends = edge_arrays(n, edges, f"a small world of {n:,} vertices and {edges:,} edges")
    settings = (n, max(reach, 1), rewire, seed_word(seed))
    run_team(_draw_small_world, *settings, *ends, threads=thread_count_for(edges))
    return weighted(graph_of_edges(n, ends), weights, seed)


def _draw_end(edge: Any, attach: Any, start: Any) -> Any:
    """One of the ends of the edges of earlier vertices: end 2 e is the source of edge e, 2 e + 1
    its target."""
    return below(mix(start ^ np.uint64(edge)), 2 * (edge - edge % attach))


@kernel
def _draw_attachments(
    rank: int, size: int, control: Any, attach: int, seed: Any, sources: Any, targets: Any
) -> None:
    """Edges ``attach * (v - attach)`` and on are those of vertex v; the first ones are a star.

    The target of an edge is one of the ends before it. If that is itself a target, its edge is asked
    what it has drawn, which is a hash, so that no edge waits for another. Half of the ends are
    sources: two questions do on average.
    """
    begin, end = block_range(rank, size, sources.size)
    start = mix(seed)
    for i in range(begin, end):
        if i % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        sources[i] = i // attach + attach if i >= attach else i + 1
        edge = np.int64(i)
        target = np.int64(0)
        while edge >= attach:
            place = _draw_end(edge, attach, start)
            edge = place >> 1
            if place & 1 == 0:
                target = edge // attach + attach if edge >= attach else edge + 1
                break
        targets[i] = target


def barabasi_albert(
    n: int, attach: int = 4, *, seed: int = 0, weights: WeightRange | None = None
) -> Graph:
    """A scale-free graph: new vertices attach to those that many are attached to already.

    Undirected. Vertices 0 to ``attach`` are a star round 0; each later one draws ``attach`` edges to
    earlier ones, with probabilities in proportion to their degrees before it came. An edge that is
    drawn twice is left out. Sources: Barabási, Albert: Emergence of scaling in random networks
    (Science 286, 1999); Sanders, Schulz: Scalable generation of scale-free graphs (IPL 116, 2016).

    :param n: more than ``attach``
    :param attach: at least 1
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, _MOST_VERTICES)
    attach = as_count(attach, "attach", 1)
    if attach >= n:
        raise InputError(f"attach must be less than n, which is {n}, got {shown(attach)}")
    seed = as_integer(seed, "seed")
    weights = as_weight_range(weights)
    edges = attach * (n - attach)
    ends = edge_arrays(n, edges, f"a scale-free graph of {n:,} vertices and {edges:,} edges")
    run_team(_draw_attachments, attach, seed_word(seed), *ends, threads=thread_count_for(edges))
    return weighted(graph_of_edges(n, ends), weights, seed)
