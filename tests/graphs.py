"""Small graphs for every test: a zoo of named ones, and a hypothesis strategy for the rest.

``@each_graph`` runs a test once per graph of the zoo, with its ``name``; ``named_graph(name)`` is
the graph; ``graphs()`` draws any other; ``arcs_of(graph)`` gives a graph back as plain tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from godwit.dtypes import WEIGHT_DTYPES as _WEIGHT_DTYPES
from godwit.dtypes import Array
from godwit.graph import build, rows
from godwit.graph.csr import Graph

# The first call of a kernel may compile it: no deadline for single examples.
settings.register_profile("godwit", deadline=None)
settings.load_profile("godwit")

WEIGHT_DTYPES = tuple(dtype.name for dtype in _WEIGHT_DTYPES)


def _random(
    n: int, k: int, *, directed: bool, weight_dtype: str | None = None, zeros: bool = False
) -> Graph:
    generator = np.random.default_rng(n * 1000 + k)
    sources, targets = generator.integers(0, n, (2, k))
    weights = None
    if weight_dtype is not None:
        weights = generator.integers(0 if zeros else 1, 4 if zeros else 65, k).astype(weight_dtype)
    return Graph.from_edges(sources, targets, weights, vertex_count=n, directed=directed)


def _path(n: int, *, directed: bool = False) -> Graph:
    return Graph.from_edges(np.arange(n - 1), np.arange(1, n), directed=directed)


def _grid(rows: int, columns: int) -> Graph:
    ids = np.arange(rows * columns).reshape(rows, columns)
    sources = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    targets = np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()])
    weights = (sources * 7 + targets * 13) % 64 + 1
    return Graph.from_edges(sources, targets, weights.astype(np.int32), directed=False)


def _few(*weights: int) -> Array:
    """Of one type, but for the graphs that are there for another: each is compiled for itself."""
    return np.array(weights, np.int32)


_MAKERS: dict[str, Callable[[], Graph]] = {
    "empty": lambda: Graph.from_edges([], []),
    "one vertex": lambda: Graph.from_edges([], [], vertex_count=1),
    "one self-loop": lambda: Graph.from_edges([0], [0], _few(3)),
    "isolated vertices": lambda: Graph.from_edges([], [], vertex_count=7),
    "isolated vertices, weighted": lambda: Graph.from_edges([], [], np.empty(0), vertex_count=5),
    "one arc": lambda: Graph.from_edges([1], [0], _few(2)),
    "one edge, isolated ends": lambda: Graph.from_edges([2], [4], vertex_count=7, directed=False),
    "path": lambda: _path(300),
    "directed path": lambda: _path(200, directed=True),
    "cycle": lambda: Graph.from_edges(
        np.arange(50), (np.arange(50) + 1) % 50, np.tile(_few(*range(5)), 10)
    ),
    "star": lambda: Graph.from_edges(np.zeros(499, int), np.arange(1, 500), directed=False),
    "star from its last vertex": lambda: Graph.from_edges(
        np.full(400, 400), np.arange(400), (np.arange(400) % 9).astype(np.int32)
    ),
    "complete": lambda: Graph.from_edges(*np.triu_indices(24, 1), directed=False),
    "two components": lambda: Graph.from_edges(
        [0, 1, 2, 4, 5, 6],
        [1, 2, 0, 5, 6, 7],
        _few(1, 2, 3, 4, 5, 6),
        vertex_count=9,
        directed=False,
    ),
    "parallel arcs and self-loops": lambda: Graph.from_edges(
        [0, 0, 0, 1, 1, 2, 2, 3, 3], [1, 1, 0, 2, 2, 2, 0, 3, 1], _few(5, 2, 0, 1, 1, 7, 9, 1, 2)
    ),
    "parallel edges and self-loops": lambda: Graph.from_edges(
        [0, 1, 0, 1, 2, 2], [1, 0, 0, 2, 1, 2], [4.5, 2.5, 1.0, 0.5, 0.25, 0.0], directed=False
    ),
    "zero weights": lambda: _random(60, 240, directed=True, weight_dtype="int32", zeros=True),
    "all weights zero": lambda: _random(40, 160, directed=False).with_weights(
        np.zeros(_random(40, 160, directed=False).arc_count, np.int64)
    ),
    "grid": lambda: _grid(12, 17),
    "random directed": lambda: _random(200, 700, directed=True, weight_dtype="int32"),
    "random undirected": lambda: _random(150, 400, directed=False, weight_dtype="float64"),
    "random sparse": lambda: _random(300, 200, directed=True, weight_dtype="uint32"),
    "random float32": lambda: _random(120, 500, directed=True, weight_dtype="float32"),
    "64-bit ids": lambda: Graph.from_edges(
        [0, 3, 1, 2], [3, 1, 2, 0], [4, 3, 2, 1], id_dtype=np.int64
    ),
}

ZOO = tuple(_MAKERS)
"""The names of the graphs in the zoo."""

each_graph = pytest.mark.parametrize("name", ZOO)


@cache
def named_graph(name: str) -> Graph:
    """The graph of the zoo that has this name; made once."""
    return _MAKERS[name]()


@st.composite
def arc_lists(
    draw: Any, *, max_vertices: int = 24, max_arcs: int = 80
) -> tuple[int, list[int], list[int]]:
    """A number of vertices, and the sources and targets of arcs between them."""
    n = draw(st.integers(0, max_vertices))
    if n == 0:
        return 0, [], []
    # Half of the graphs send all arcs through few vertices: hubs, parallel arcs, isolated vertices.
    ids = st.integers(0, n - 1 if draw(st.booleans()) else min(n - 1, 3))
    pairs = draw(st.lists(st.tuples(ids, st.integers(0, n - 1)), max_size=max_arcs))
    if draw(st.booleans()):
        pairs = [(t, s) for s, t in pairs]
    return n, [s for s, _ in pairs], [t for _, t in pairs]


def weights_for(count: int, dtype: str, *, low: int = 0, high: int = 20) -> st.SearchStrategy[Any]:
    """Arrays of weights, small so that ties and zeros are common; quarters for floats."""
    scale = 4 if dtype.startswith("float") else 1
    return st.lists(st.integers(low, high), min_size=count, max_size=count).map(
        lambda values: (np.array(values, np.int64) / scale).astype(dtype)
    )


@st.composite
def graphs(
    draw: Any,
    *,
    max_vertices: int = 24,
    max_arcs: int = 80,
    weighted: bool | None = None,
    directed: bool | None = None,
    min_vertices: int = 0,
) -> Graph:
    """Any small graph: directed or not, weighted (zeros included) or not, with everything odd.

    :param weighted: True or False to have only such; None for both
    :param directed: likewise
    :param min_vertices: 0 or 1
    """
    n, sources, targets = draw(arc_lists(max_vertices=max_vertices, max_arcs=max_arcs))
    n = max(n, min_vertices)
    if weighted is None:
        weighted = draw(st.booleans())
    if directed is None:
        directed = draw(st.booleans())
    weights = None
    if weighted:
        weights = draw(weights_for(len(sources), draw(st.sampled_from(WEIGHT_DTYPES))))
    return Graph.from_edges(sources, targets, weights, vertex_count=n, directed=directed)


LENGTHS: dict[str, Any] = {
    "small": lambda rng, m: rng.integers(1, 9, m).astype(np.int32),
    "zeros": lambda rng, m: rng.integers(0, 3, m).astype(np.int32),
    "wide": lambda rng, m: (2.0 ** rng.integers(0, 40, m)).astype(np.int64),
    "overflowing": lambda rng, m: rng.integers(2**30, 2**31 - 2, m).astype(np.int32),
    "single": lambda rng, m: rng.random(m).astype(np.float32),
    "double": lambda rng, m: np.exp(4 * rng.standard_normal(m)),
    "rounding": lambda rng, m: rng.choice([1e-300, 1.0, 1e16, 0.0, np.inf], m),
}
"""Weights of searches by lengths, by kind: functions of a generator and a number of arcs."""


def with_weights_of(graph: Graph, kind: str, seed: int) -> Graph:
    """Return a graph with weights of a kind; those of an undirected one are equal in both directions."""
    weights = LENGTHS[kind](np.random.default_rng(seed), graph.arc_count)
    if not graph.directed:
        tails = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
        first = {}
        for arc, (u, v) in enumerate(zip(tails.tolist(), graph.targets.tolist(), strict=True)):
            weights[arc] = weights[first.setdefault((min(u, v), max(u, v)), arc)]
    return graph.with_weights(weights)


def arcs_of(graph: Graph) -> list[tuple[Any, ...]]:
    """The arcs of a graph as (source, target) or (source, target, weight), in its order."""
    sources = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets)).tolist()
    columns = [sources, graph.targets.tolist()]
    if graph.weights is not None:
        columns.append(graph.weights.tolist())
    return list(zip(*columns, strict=True))


@contextmanager
def forced_threads(count: int, arcs_per_bucket: int = 8) -> Iterator[None]:
    """Within the block even tiny graphs are built by ``count`` threads, from tiny buckets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GODWIT_THREADS", str(count))
        patch.setattr(rows, "SMALL_ARCS", 0)
        patch.setattr(build, "_ARCS_PER_BUCKET", arcs_per_bucket)
        yield
