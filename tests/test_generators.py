"""Generated graphs have the promised shape, and depend on their arguments alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.generators import _draw_rmat, path, rmat, road
from godwit.graph.hashing import seed_word
from godwit.parallel.team import run_team
from graphs import arcs_of, forced_threads

RMAT_10 = (21028, 488669)
ROAD_50_40 = (4642, 222501)


def assert_simple(graph: Graph) -> None:
    """No self-loops, no parallel arcs, rows sorted; both directions if undirected."""
    arcs = [arc[:2] for arc in arcs_of(graph)]
    assert arcs == sorted(set(arcs))
    assert all(source != target for source, target in arcs)
    Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)


def assert_equal(one: Graph, other: Graph) -> None:
    assert arcs_of(one) == arcs_of(other)


@pytest.mark.parametrize("scale", [0, 1, 2, 5, 10])
@pytest.mark.parametrize("symmetrize", [True, False])
def test_rmat_is_simple(scale: int, symmetrize: bool) -> None:
    graph = rmat(scale, 8, seed=3, symmetrize=symmetrize)
    assert graph.vertex_count == 2**scale
    assert graph.arc_count <= 2 * 8 * 2**scale
    assert graph.directed != symmetrize
    assert_simple(graph)


@pytest.mark.parametrize("threads", [2, 3])
def test_generators_do_not_depend_on_threads(threads: int) -> None:
    def make() -> list[Graph]:
        return [
            rmat(9, 6, seed=7, weights=(1, 64)),
            rmat(8, 6, seed=7, symmetrize=False),
            road(23, 17, seed=5, weights=(1, 9)),
            path(40, weights=(0, 3)),
        ]

    alone = make()
    with forced_threads(threads):
        for one, other in zip(make(), alone, strict=True):
            assert_equal(one, other)


def test_seed_decides() -> None:
    assert_equal(rmat(7, 4, seed=-1), rmat(7, 4, seed=-1))
    assert arcs_of(rmat(7, 4, seed=0)) != arcs_of(rmat(7, 4, seed=1))
    assert arcs_of(road(20, seed=0)) != arcs_of(road(20, seed=1))


def test_results_are_the_same_for_ever() -> None:
    """Others measure on these graphs: a change of the recipe must be a decision."""
    graph = rmat(10, 16)
    assert (graph.arc_count, int(graph.targets[:1000].sum())) == RMAT_10
    grid = road(50, 40)
    assert (grid.arc_count, int(grid.targets[:1000].sum())) == ROAD_50_40


def test_rmat_draws_each_quadrant_as_often_as_asked() -> None:
    """With one level of recursion the quadrants are the pairs of two vertices."""
    edges = 200_000
    sources, targets = np.empty((2, edges), np.int32)
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    thresholds = [round(t * 2**21) for t in np.cumsum(probabilities)[:3]]
    run_team(_draw_rmat, 1, seed_word(1), *thresholds, sources, targets, threads=1)
    drawn = np.bincount(2 * sources + targets, minlength=4) / edges
    if drawn[3] > drawn[0]:  # the two vertices have exchanged names
        drawn = drawn[::-1]
    np.testing.assert_allclose(drawn, probabilities, atol=0.005)


def test_rmat_of_one_quadrant() -> None:
    assert rmat(6, 50, a=1, b=0, c=0).arc_count == 0  # every edge is the same self-loop
    one_way = rmat(5, 40, a=0, b=1, c=0, symmetrize=False)
    assert one_way.arc_count == 1  # from the first vertex to the last, whatever they are called


def test_rmat_degrees_are_skewed_and_labels_are_not() -> None:
    graph = rmat(14, 16, seed=2)
    degree = np.sort(graph.out_degree())[::-1]
    assert degree[0] > 40 * degree.mean()
    assert 0.2 < (degree == 0).mean() < 0.4
    # Renamed at random, hubs lie anywhere: halves of the ids have about equal numbers of arcs.
    halves = graph.out_degree().reshape(2, -1).sum(axis=1)
    assert abs(halves[0] - halves[1]) < 0.1 * graph.arc_count
    uniform = rmat(12, 8, a=0.25, b=0.25, c=0.25)
    assert uniform.out_degree().max() < 5 * uniform.out_degree().mean()
    assert uniform.arc_count == pytest.approx(2 * 8 * 2**12, rel=0.02)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 9), (9, 1), (4, 7)])
def test_full_grid(rows: int, columns: int) -> None:
    graph = road(rows, columns, keep=1.0)
    assert graph.edge_count == rows * (columns - 1) + columns * (rows - 1)
    assert_simple(graph)
    for source, target in arcs_of(graph):
        (r, c), (s, d) = divmod(source, columns), divmod(target, columns)
        assert abs(r - s) + abs(c - d) == 1
    assert road(rows, columns, keep=0.0).arc_count == 0


def test_percolated_grid() -> None:
    graph = road(100)
    assert graph.vertex_count == 10_000
    assert graph.edge_count == pytest.approx(0.6 * 2 * 100 * 99, rel=0.03)
    assert_simple(graph)
    assert set(arcs_of(graph)) < set(arcs_of(road(100, keep=1.0)))
    _, labels = connected_components(graph.to_scipy())
    assert np.bincount(labels).max() > 0.85 * graph.vertex_count


@pytest.mark.parametrize("n", [0, 1, 2, 3, 50])
def test_path(n: int) -> None:
    graph = path(n, weights=(2, 5))
    assert graph.vertex_count == n
    assert [arc[:2] for arc in arcs_of(graph)] == sorted(
        pair for v in range(n - 1) for pair in ((v, v + 1), (v + 1, v))
    )
    assert all(2 <= arc[2] <= 5 for arc in arcs_of(graph))
    Graph(graph.offsets, graph.targets, graph.weights, directed=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rmat(-1), "scale must not be negative, got -1"),
        (lambda: rmat(41), "scale must be at most 40, got 41"),
        (lambda: rmat(2.5), "got 2.5"),  # type: ignore[arg-type]
        (lambda: rmat("x"), "got 'x'"),  # type: ignore[arg-type]
        (lambda: rmat(4, -1), "edge_factor must not be negative"),
        (lambda: rmat(4, a=0.9), "sum of at most 1, got 0.9, 0.19 and 0.19"),
        (lambda: rmat(4, a=-0.1), "probabilities"),
        (lambda: rmat(4, a=float("nan")), "probabilities"),
        (lambda: rmat(4, weights=(5, 1)), "low <= high, got 5 and 1"),
        (lambda: rmat(4, weights=7), r"\(low, high\) or None, got 7"),  # type: ignore[arg-type]
        (lambda: road(0), "rows must be"),
        (lambda: road(3, -3), "columns must be"),
        (lambda: road(3, keep=1.5), r"in \[0, 1\], got 1.5"),
        (lambda: road(3, keep=float("nan")), "got nan"),
        (lambda: path(-1), "n must not be negative, got -1"),
    ],
)
def test_nonsense_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    "make", [lambda: rmat(30, 64), lambda: rmat(40), lambda: road(10**6), lambda: path(2**40)]
)
def test_what_does_not_fit_is_refused_at_once(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(2**34))
    with pytest.raises(GraphTooLargeError, match="GiB"):
        make()
