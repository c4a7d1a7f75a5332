"""R-MAT: each edge falls into a quadrant of the adjacency matrix, then into one of that, and so on.

Source: Chakrabarti, Zhan, Faloutsos: R-MAT: a recursive model for graph mining (SDM 2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.dtypes import as_count, as_flag, as_float, as_integer
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.generators.common import (
    POLL_STEPS,
    WeightRange,
    as_weight_range,
    edge_arrays,
    graph_of_edges,
    weighted,
)
from godwit.graph.hashing import mix, scramble, seed_word
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.atomics import load_acquire
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import ABORT, block_range, run_team

_PARAMETERS = {"graph500": (0.57, 0.19, 0.19), "gtgraph": (0.45, 0.15, 0.15)}
_MAXIMAL_SCALE = 40

# One hash decides three levels of the recursion, by 21 bits each.
_LEVEL_BITS = 21
_LEVELS_PER_WORD = 3
_LEVEL_SHIFT = np.uint64(_LEVEL_BITS)
_LEVEL_MASK = np.uint64(2**_LEVEL_BITS - 1)

_DRAWS = np.uint64(0x52D4A7)  # keeps the seeds of the draws and of the relabelling apart


@kernel
def _draw_rmat(
    rank: int,
    size: int,
    control: Any,
    scale: int,
    seed: Any,
    a: int,
    ab: int,
    abc: int,
    sources: Any,
    targets: Any,
) -> None:
    """Draw edges: each level picks a quadrant, by thresholds in units of 2**-21."""
    begin, end = block_range(rank, size, sources.size)
    start = mix(seed ^ _DRAWS)
    labels = mix(seed)
    bits = np.uint64(scale)
    for i in range(begin, end):
        if i % POLL_STEPS == 0 and load_acquire(control, ABORT) != 0:
            return
        key = mix(start ^ np.uint64(i))
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
        sources[i] = scramble(np.uint64(source), bits, labels)
        targets[i] = scramble(np.uint64(target), bits, labels)


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
    """A recursive-matrix graph: few vertices with very many neighbours, many with few.

    ``edge_factor * 2**scale`` edges are drawn, vertices are renamed at random, and self-loops and
    repeated edges are left out. Source: Chakrabarti, Zhan, Faloutsos: R-MAT: a recursive model for
    graph mining (SDM 2004).

    :param scale: the graph has ``2**scale`` vertices, 0 <= scale <= 40
    :param edge_factor: edges drawn per vertex; GTgraph's default is 10
    :param parameters: probabilities (a, b, c) of the upper left, upper right and lower left
        quadrant, resolved to 2**-21, of which the lower right one gets what is left of 1; or
        ``"graph500"`` for (0.57, 0.19, 0.19), ``"gtgraph"`` for (0.45, 0.15, 0.15)
    :param symmetrize: False gives the arcs as they were drawn, in a directed graph
    :param simple: False keeps self-loops and repeated edges
    :param weights: (low, high) as of :meth:`Graph.with_random_weights`
    :raises GraphTooLargeError: before anything is allocated
    """
    drawing = RmatDrawing.checked(scale, edge_factor, parameters, symmetrize, simple, seed, weights)
    ends = edge_arrays(
        drawing.vertices, drawing.edges, drawing.what, both_directions=drawing.symmetrize
    )
    run_team(
        _draw_rmat,
        drawing.scale,
        seed_word(drawing.seed),
        *drawing.thresholds,
        *ends,
        threads=thread_count_for(drawing.edges),
    )
    graph = graph_of_edges(
        drawing.vertices, ends, both_directions=drawing.symmetrize, simple=drawing.simple
    )
    return weighted(graph, drawing.weights, drawing.seed)


@dataclass(frozen=True)
class RmatDrawing:
    """The checked arguments of :func:`rmat`, for whatever draws the edges.

    :param edges: how many are drawn
    :param thresholds: of a, a + b and a + b + c, in units of 2**-21
    :param what: the graph in words
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
        """Of the graph."""
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
        """InputError, naming it, if one of the arguments is wrong."""
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
    """The probabilities of three quadrants, given or by name."""
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
