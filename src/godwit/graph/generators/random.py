"""Random graphs: R-MAT, uniform, small-world, preferential attachment. Each edge is drawn on its own.

Where a classical model asks which edges exist already, an edge is drawn without looking, and edges that
repeat another are left out: 2 of 5 million edges of a small world, 270 of 5 million of a scale-free graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_flag, as_float, as_integer
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.generators.common import (
    WeightRange,
    as_probability,
    as_weight_range,
    draw_graph,
)
from godwit.graph.hashing import below, mix, scramble, unit
from godwit.public import public

_MOST_VERTICES = 2**40
_UNIFORM_EDGES_PER_VERTEX = 16
_ONE = np.uint64(1)

_PARAMETERS = {"graph500": (0.57, 0.19, 0.19), "gtgraph": (0.45, 0.15, 0.15)}
_MAXIMAL_SCALE = 40

# One hash decides three levels of R-MAT's recursion, by 21 bits each.
_LEVEL_BITS = 21
_LEVELS_PER_WORD = 3
_LEVEL_SHIFT = np.uint64(_LEVEL_BITS)
_LEVEL_MASK = np.uint64(2**_LEVEL_BITS - 1)

_DRAWS = np.uint64(0x52D4A7)  # keeps the seeds of R-MAT's draws and of its relabelling apart


def _rmat_edge(i: Any, seed: Any, settings: Any) -> Any:
    """Draw an edge: each level picks a quadrant, by thresholds in units of 2**-21."""
    scale, a, ab, abc = settings
    key = mix(mix(seed ^ _DRAWS) ^ np.uint64(i))
    source = np.int64(0)
    target = np.int64(0)
    word = key
    for level in range(scale):
        if level % _LEVELS_PER_WORD == 0:
            word = mix(key + np.uint64(level))
        draw = np.int64(word & _LEVEL_MASK)
        word >>= _LEVEL_SHIFT
        down = draw >= ab
        right = ((draw >= a) ^ down) | (draw >= abc)
        source = source << 1 | np.int64(down)
        target = target << 1 | np.int64(right)
    labels = mix(seed)
    bits = np.uint64(scale)
    return scramble(np.uint64(source), bits, labels), scramble(np.uint64(target), bits, labels)


@public
def rmat(
    scale: int,
    edge_factor: int = 16,
    *,
    parameters: str | tuple[float, float, float] = "graph500",
    symmetrize: bool = True,
    simple: bool = True,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """Return a recursive-matrix graph: few vertices with very many neighbours, many with few.

    ``edge_factor * 2**scale`` edges are drawn, vertices are renumbered at random, and self-loops and
    repeated edges are left out. Each edge falls into a quadrant of the adjacency matrix, then into a
    quadrant of that quadrant, and so on. Source: Chakrabarti, Zhan, Faloutsos: R-MAT: a recursive model for
    graph mining (SDM 2004).

    :param scale: the graph has ``2**scale`` vertices, 0 <= scale <= 40
    :param edge_factor: edges drawn per vertex; GTgraph's default is 10
    :param parameters: probabilities (a, b, c) of the upper left, upper right and lower left
        quadrant, resolved to 2**-21; the lower right quadrant has the rest of 1. Or
        ``"graph500"`` for (0.57, 0.19, 0.19), ``"gtgraph"`` for (0.45, 0.15, 0.15)
    :param symmetrize: False makes a directed graph of the arcs that were drawn
    :param simple: False keeps self-loops and repeated edges
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    drawing = RmatDrawing.checked(scale, edge_factor, parameters, symmetrize, simple, seed, weights)
    return draw_graph(
        _rmat_edge,
        (drawing.scale, *drawing.thresholds),
        drawing.vertices,
        drawing.edges,
        drawing.what,
        drawing.seed,
        drawing.weights,
        both_directions=drawing.symmetrize,
        simple=drawing.simple,
    )


@dataclass(frozen=True)
class RmatDrawing:
    """The checked arguments of :func:`rmat`, for CPUs and GPUs.

    :param edges: number of edges that are drawn
    :param thresholds: a, a + b and a + b + c in units of 2**-21
    :param what: the graph in words, for messages
    """

    scale: int
    edges: int
    thresholds: tuple[int, int, int]
    symmetrize: bool
    simple: bool
    seed: int
    weights: WeightRange | None
    what: str

    @property
    def vertices(self) -> int:
        """Number of vertices."""
        return 1 << self.scale

    @classmethod
    def checked(
        cls,
        scale: Any,
        edge_factor: Any,
        parameters: Any,
        symmetrize: Any,
        simple: Any,
        seed: Any,
        weights: Any,
    ) -> RmatDrawing:
        """Check the arguments; raise InputError naming the first wrong one."""
        scale = as_count(scale, "scale", 0, _MAXIMAL_SCALE)
        edge_factor = as_count(edge_factor, "edge_factor", 0, 2**20)
        a, b, c = _quadrants(parameters)
        first, second, third = (round(t * 2**_LEVEL_BITS) for t in (a, a + b, a + b + c))
        return cls(
            scale=scale,
            edges=edge_factor << scale,
            thresholds=(first, second, third),
            symmetrize=as_flag(symmetrize, "symmetrize"),
            simple=as_flag(simple, "simple"),
            seed=as_integer(seed, "seed"),
            weights=as_weight_range(weights),
            what=f"an R-MAT graph of scale {scale} and edge factor {edge_factor}",
        )


def _quadrants(parameters: Any) -> tuple[float, float, float]:
    """Return the probabilities of three quadrants, given or by name."""
    if isinstance(parameters, str) and parameters in _PARAMETERS:
        return _PARAMETERS[parameters]
    try:
        a, b, c = (as_float(value, "") for value in parameters)
    except (InputError, TypeError, ValueError):
        a = b = c = -1.0
    # Up to rounding: 0.1 + 0.2 + 0.7 is more than 1.
    if not (min(a, b, c) >= 0 and a + b + c <= 1 + 1e-9):
        raise InputError(
            f"parameters must be {' or '.join(_PARAMETERS)}, or three probabilities (a, b, c) "
            f"with a sum of at most 1, got {shown(parameters)}"
        )
    return a, b, c


def _uniform_edge(i: Any, seed: Any, settings: Any) -> Any:
    """Return the pair that a random permutation of all pairs has at position i.

    The permutation is one of 2**bits numbers; a number that is no pair is permuted again until it
    is one, which keeps it a permutation. Pair ``v * (v - 1) / 2 + u`` is {u, v}, u < v.
    """
    pairs, bits = settings
    start = mix(seed)
    pair = scramble(np.uint64(i), bits, start)
    while pair >= pairs:
        pair = scramble(pair, bits, start)
    index = np.int64(pair)
    v = np.int64((1.0 + math.sqrt(1.0 + 8.0 * index)) / 2.0)
    while v * (v - 1) // 2 > index:  # the root is of a rounded number
        v -= 1
    while (v + 1) * v // 2 <= index:
        v += 1
    return v, index - v * (v - 1) // 2


@public
def uniform(
    n: int, edges: int | None = None, *, seed: int = 0, weights: WeightRange | None = None
) -> Graph:
    """Return a random graph with exactly ``edges`` edges, all pairs of vertices being equally likely.

    Undirected and simple: G(n, m) of Erdős and Rényi.

    :param n: at most 2**31
    :param edges: at most n (n - 1) / 2; by default 16 n, as in the GAP benchmark, or all pairs
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    n = as_count(n, "n", 0, 2**31)
    pairs = n * (n - 1) // 2
    if edges is None:
        edges = min(_UNIFORM_EDGES_PER_VERTEX * n, pairs)
    edges = as_count(edges, "edges", 0, pairs)
    what = f"a random graph of {n:,} vertices and {edges:,} edges"
    settings = (np.uint64(pairs), np.uint64(max(pairs - 1, 0).bit_length()))
    return draw_graph(_uniform_edge, settings, n, edges, what, seed, weights)


def _small_world_edge(i: Any, seed: Any, settings: Any) -> Any:
    """Join v to v + j + 1 on the ring, for edge ``v * reach + j``, or to any other vertex."""
    n, reach, rewire = settings
    v = i // reach
    word = mix(mix(seed) ^ np.uint64(i))
    if unit(word) < rewire:
        target = below(mix(word ^ _ONE), n - 1)
        target += np.int64(target >= v)
    else:
        target = (v + i % reach + 1) % n
    return v, target


@public
def watts_strogatz(
    n: int,
    neighbours: int = 6,
    rewire: float = 0.1,
    *,
    seed: int = 0,
    weights: WeightRange | None = None,
) -> Graph:
    """Return a small world: a ring of vertices that are joined to their neighbours, with some shortcuts.

    Undirected. Each edge keeps one endpoint; with probability ``rewire``, the other is replaced by any
    other vertex. An edge that then repeats another is left out. Source: Watts, Strogatz: Collective
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
    reach = neighbours // 2
    edges = n * reach
    what = f"a small world of {n:,} vertices and {edges:,} edges"
    settings = (n, max(reach, 1), rewire)
    return draw_graph(_small_world_edge, settings, n, edges, what, seed, weights)


def _attachment(i: Any, seed: Any, settings: Any) -> Any:
    """Draw an edge of vertex v, whose edges are ``attach * (v - attach)`` and on; the first are a star.

    The target is one of the endpoints of the edges of earlier vertices, where endpoint 2 e is the source of
    edge e, and 2 e + 1 its target. If a target is drawn, it is found by drawing for its edge in the same
    way, so that no edge waits for another. Half of the endpoints are sources: two draws on average.
    """
    (attach,) = settings
    start = mix(seed)
    edge = np.int64(i)
    source = edge // attach + attach if edge >= attach else edge + 1
    target = np.int64(0)
    while edge >= attach:
        endpoint = below(mix(start ^ np.uint64(edge)), 2 * (edge - edge % attach))
        edge = endpoint >> 1
        if endpoint & 1 == 0:
            target = edge // attach + attach if edge >= attach else edge + 1
            break
    return source, target


@public
def barabasi_albert(
    n: int, attach: int = 4, *, seed: int = 0, weights: WeightRange | None = None
) -> Graph:
    """Return a scale-free graph: new vertices attach to vertices of high degree with high probability.

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
    edges = attach * (n - attach)
    what = f"a scale-free graph of {n:,} vertices and {edges:,} edges"
    return draw_graph(_attachment, (attach,), n, edges, what, seed, weights)
