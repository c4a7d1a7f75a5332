"""Generated graphs have the promised shape, and depend on their arguments alone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from scipy.spatial import Delaunay, cKDTree

import component_graphs
from godwit.errors import GodwitError, GraphTooLargeError, InputError
from godwit.graph import generators
from godwit.graph.csr import Graph
from godwit.graph.generators import (
    barabasi_albert,
    binary_tree,
    caterpillar,
    complete,
    delaunay,
    grid,
    path,
    random_geometric,
    rmat,
    road,
    star,
    triangulation,
    uniform,
    watts_strogatz,
)
from godwit.graph.generators.common import draw_graph
from godwit.graph.generators.geometric import Points, sorted_points
from godwit.graph.generators.random import _rmat_edge
from godwit.graph.generators.spec import GENERATORS, generate, is_spec, parse_spec
from graphs import arcs_of, forced_threads

# One graph of every generator, with the beginning of its SHA-256: see `digest`.
FROZEN: dict[str, str] = {
    "rmat:10": "aa766e669e1a6821",
    "rmat:8,parameters=gtgraph,simple=false,symmetrize=false": "276491e6aa42f14d",
    "uniform:300,edges=900,weights=1..64": "0f432c5707c12ce7",
    "watts-strogatz:200,rewire=0.3": "b8e0eda8245fe78e",
    "barabasi-albert:400": "89e7bc7c70ee86b8",
    "grid:9x12": "e38d697f2008c470",
    "road:50x40": "c12b962610ba6c9b",
    "random-geometric:500,weights=0.0..1.0": "0df7ba06586f83f6",
    "delaunay:300": "06ae4f3e00afafbe",
    "path:40,weights=0..3": "6bfa65c347496a5e",
    "star:30": "843919b0a5b659b4",
    "complete:20": "e33bfed488e8f243",
    "binary-tree:50": "da92b43cf43e1d48",
    "caterpillar:20x2,copies=2": "c0204cd2af1cddec",
}


def digest(graph: Graph) -> str:
    parts = [graph.offsets, graph.targets.astype(np.int64)]
    if graph.weights is not None:
        parts.append(graph.weights)
    return sha256(b"".join(part.tobytes() for part in parts)).hexdigest()[:16]


def assert_simple(graph: Graph) -> None:
    """No self-loops, no parallel arcs, rows sorted; both directions if undirected."""
    arcs = [arc[:2] for arc in arcs_of(graph)]
    assert arcs == sorted(set(arcs))
    assert all(source != target for source, target in arcs)
    Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)


def assert_equal(one: Graph, other: Graph) -> None:
    assert arcs_of(one) == arcs_of(other)


def assert_like_networkx(graph: Graph, expected: Any) -> None:
    """The graph is NetworkX's, whose vertices are numbered in the order of their labels."""
    number = {label: v for v, label in enumerate(sorted(expected.nodes))}
    assert graph.vertex_count == len(number)
    assert_simple(graph)
    pairs = {(number[u], number[v]) for u, v in expected.edges}
    assert set(arcs_of(graph)) == pairs | {(v, u) for u, v in pairs}


def component_count(graph: Graph) -> int:
    return int(connected_components(graph.to_scipy(merge="min"))[0])


class TestAll:
    def test_every_generator_is_here(self) -> None:
        assert {spec.partition(":")[0] for spec in FROZEN} == set(GENERATORS)

    @pytest.mark.parametrize("spec", FROZEN)
    def test_are_the_same_for_ever(self, spec: str) -> None:
        """Others measure on these graphs: a change of the recipe must be a decision."""
        assert digest(generate(spec)) == FROZEN[spec]

    @pytest.mark.parametrize("threads", [2, 3])
    @pytest.mark.parametrize("spec", FROZEN)
    def test_do_not_depend_on_threads(self, spec: str, threads: int) -> None:
        with forced_threads(threads):
            assert digest(generate(spec)) == FROZEN[spec]

    @pytest.mark.parametrize("spec", [spec for spec in FROZEN if "simple=false" not in spec])
    def test_are_simple(self, spec: str) -> None:
        graph = generate(spec)
        assert_simple(graph)
        assert graph.directed == ("symmetrize=false" in spec)

    @pytest.mark.parametrize(
        "spec",
        [
            "rmat:7", "uniform:80,edges=300", "watts-strogatz:90", "barabasi-albert:60",
            "road:20", "random-geometric:200", "delaunay:60",
        ],
    )  # fmt: skip
    def test_seed_decides(self, spec: str) -> None:
        one, again, other = (generate(f"{spec},seed={seed}") for seed in (-1, -1, 1))
        assert_equal(one, again)
        assert arcs_of(one) != arcs_of(other)

    @pytest.mark.parametrize("name", GENERATORS)
    @given(size=st.integers(-2, 12), seed=st.integers())
    def test_make_a_small_graph_or_an_error_of_ours(self, name: str, size: int, seed: int) -> None:
        make = getattr(generators, GENERATORS[name].function)
        try:
            graph = make(size, seed=seed, weights=(1, 9))
        except InputError as error:
            message = str(error)
        else:
            assert_simple(graph)
            assert graph.weights is not None
            assert graph.targets.dtype == np.int32
            return
        assert re.search(rf"(got|is) {size}\b", message)

    @pytest.mark.parametrize(
        "spec",
        [
            "rmat:30,edge_factor=64", "rmat:40", "road:1000000", "grid:2000000000",
            "path:1099511627776", "star:200000000000000", "complete:1000000",
            "binary-tree:99999999999", "caterpillar:1000000x1000000", "random-geometric:1000000000000",
            "random-geometric:1000000,radius=0.5", "delaunay:2000000000",
            "uniform:1000000000", "uniform:1000000,edges=100000000000",
            "watts-strogatz:1000000000000",
            "barabasi-albert:1000000000000", "path:1000000,copies=1000000000000",
        ],
    )  # fmt: skip
    def test_what_does_not_fit_is_refused_at_once(
        self, spec: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(2**34))
        with pytest.raises(GraphTooLargeError, match="GiB"):
            generate(spec)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: rmat(-1), "scale must not be negative, got -1"),
            (lambda: rmat(41), "scale must be at most 40, got 41"),
            (lambda: rmat(2.5), "got 2.5"),  # type: ignore[arg-type]
            (lambda: rmat("x"), "got 'x'"),  # type: ignore[arg-type]
            (lambda: rmat(4, -1), "edge_factor must not be negative"),
            (lambda: rmat(4, parameters=(0.9, 0.1, 0.1)), r"at most 1, got \(0.9, 0.1, 0.1\)"),
            (lambda: rmat(4, parameters=(-0.1, 0.5, 0.5)), "probabilities"),
            (lambda: rmat(4, parameters=(float("nan"), 0, 0)), "probabilities"),
            (lambda: rmat(4, parameters=(0.5, 0.5)), "probabilities"),  # type: ignore[arg-type]
            (lambda: rmat(4, parameters="kronecker"), "graph500 or gtgraph.*got 'kronecker'"),
            (lambda: rmat(4, weights=(5, 1)), "low <= high.*got 5 and 1"),
            (lambda: rmat(4, weights=(1.0, 1.0)), "low < high.*got 1.0 and 1.0"),
            (lambda: rmat(4, weights=7), r"\(low, high\) or None, got 7"),  # type: ignore[arg-type]
            (lambda: road(0), "rows must be"),
            (lambda: road(3, -3), "columns must be"),
            (lambda: road(3, keep=1.5), r"in \[0, 1\], got 1.5"),
            (lambda: road(3, keep=float("nan")), "got nan"),
            (lambda: path(-1), "n must not be negative, got -1"),
            (lambda: caterpillar(2, -1), "legs must not be negative, got -1"),
            (lambda: uniform(4, 7), "edges must be at most 6, got 7"),
            (lambda: uniform(4, -1), "edges must not be negative, got -1"),
            (lambda: watts_strogatz(10, 5), "even number below n, which is 10, got 5"),
            (lambda: watts_strogatz(10, 10), "even number below n, which is 10, got 10"),
            (lambda: watts_strogatz(10, 2, 1.1), r"rewire must be .* \[0, 1\], got 1.1"),
            (lambda: barabasi_albert(4, 4), "attach must be less than n, which is 4, got 4"),
            (lambda: barabasi_albert(4, 0), "attach must be at least 1, got 0"),
            (lambda: random_geometric(9, 0), "radius must be positive, got 0"),
            (lambda: random_geometric(9, float("nan")), "radius must be positive, got nan"),
        ],
    )
    def test_nonsense_is_refused(self, make: Callable[[], Graph], message: str) -> None:
        with pytest.raises(InputError, match=message):
            make()


class TestRmat:
    @pytest.mark.parametrize("scale", [0, 1, 2, 5, 10])
    @pytest.mark.parametrize("symmetrize", [True, False])
    def test_is_simple(self, scale: int, symmetrize: bool) -> None:
        graph = rmat(scale, 8, seed=3, symmetrize=symmetrize)
        assert graph.vertex_count == 2**scale
        assert graph.arc_count <= 2 * 8 * 2**scale
        assert graph.directed != symmetrize
        assert_simple(graph)

    def test_unless_it_is_not_to_be(self) -> None:
        drawn = rmat(6, 20, symmetrize=False, simple=False)
        assert drawn.arc_count == 20 * 64
        assert_equal(drawn.remove_self_loops().merge_parallel_arcs(), rmat(6, 20, symmetrize=False))
        both = rmat(6, 20, simple=False)
        assert both.edge_count == 20 * 64
        assert_equal(both.remove_self_loops().merge_parallel_arcs(), rmat(6, 20))

    def test_parameters_have_names(self) -> None:
        assert_equal(rmat(7), rmat(7, parameters=(0.57, 0.19, 0.19)))
        assert_equal(rmat(7, parameters="gtgraph"), rmat(7, parameters=(0.45, 0.15, 0.15)))
        assert arcs_of(rmat(7)) != arcs_of(rmat(7, parameters="gtgraph"))

    def test_draws_each_quadrant_as_often_as_asked(self) -> None:
        """With one level of recursion the quadrants are the pairs of two vertices."""
        edges = 200_000
        probabilities = np.array([0.4, 0.3, 0.2, 0.1])
        thresholds = [round(t * 2**21) for t in np.cumsum(probabilities)[:3]]
        graph = draw_graph(
            _rmat_edge, (1, *thresholds), 2, edges, "", 1, None, both_directions=False, simple=False
        )
        sources = np.repeat(np.arange(2), graph.out_degree())
        drawn = np.bincount(2 * sources + graph.targets, minlength=4) / edges
        if drawn[3] > drawn[0]:  # the two vertices have exchanged names
            drawn = drawn[::-1]
        np.testing.assert_allclose(drawn, probabilities, atol=0.005)

    def test_of_one_quadrant(self) -> None:
        # Every edge is the same self-loop, or leads from the first vertex to the last.
        assert rmat(6, 50, parameters=(1, 0, 0)).arc_count == 0
        assert rmat(5, 40, parameters=(0, 1, 0), symmetrize=False).arc_count == 1

    def test_degrees_are_skewed_and_labels_are_not(self) -> None:
        graph = rmat(14, 16, seed=2)
        degree = np.sort(graph.out_degree())[::-1]
        assert degree[0] > 40 * degree.mean()
        assert 0.2 < (degree == 0).mean() < 0.4
        # Renamed at random, hubs lie anywhere: halves of the ids have about equal numbers of arcs.
        halves = graph.out_degree().reshape(2, -1).sum(axis=1)
        assert abs(halves[0] - halves[1]) < 0.1 * graph.arc_count
        even = rmat(12, 8, parameters=(0.25, 0.25, 0.25))
        assert even.out_degree().max() < 5 * even.out_degree().mean()
        assert even.arc_count == pytest.approx(2 * 8 * 2**12, rel=0.02)


class TestGrids:
    @pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 9), (9, 1), (4, 7)])
    def test_grid(self, rows: int, columns: int) -> None:
        assert_like_networkx(grid(rows, columns), nx.grid_2d_graph(rows, columns))
        assert road(rows, columns, keep=0.0).arc_count == 0

    def test_percolated_grid(self) -> None:
        graph = road(100)
        assert graph.vertex_count == 10_000
        assert graph.edge_count == pytest.approx(0.6 * 2 * 100 * 99, rel=0.03)
        assert set(arcs_of(graph)) < set(arcs_of(grid(100)))
        _, labels = connected_components(graph.to_scipy(merge="min"))
        assert np.bincount(labels).max() > 0.85 * graph.vertex_count


class TestClassic:
    @pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7, 50])
    def test_are_those_of_networkx(self, n: int) -> None:
        assert_like_networkx(path(n), nx.path_graph(n))
        assert_like_networkx(star(n), nx.star_graph(n - 1) if n else nx.null_graph())
        assert_like_networkx(complete(n), nx.complete_graph(n))
        assert_like_networkx(binary_tree(n), nx.full_rary_tree(2, n) if n else nx.null_graph())

    @pytest.mark.parametrize(("spine", "legs"), [(0, 2**40), (1, 0), (1, 3), (5, 0), (6, 2)])
    def test_caterpillar(self, spine: int, legs: int) -> None:
        expected = nx.path_graph(spine)
        for v in range(spine):
            for leg in range(legs):
                expected.add_edge(v, spine + v * legs + leg)
        assert_like_networkx(caterpillar(spine, legs), expected)


class TestRandom:
    @given(n=st.integers(0, 30), data=st.data())
    def test_uniform_has_exactly_so_many_edges(self, n: int, data: st.DataObject) -> None:
        edges = data.draw(st.integers(0, n * (n - 1) // 2))
        graph = uniform(n, edges, seed=data.draw(st.integers()))
        assert graph.vertex_count == n
        assert graph.edge_count == edges
        assert_simple(graph)

    def test_uniform_takes_16_edges_a_vertex_or_all(self) -> None:
        assert uniform(1000).edge_count == 16_000
        assert_equal(uniform(12), complete(12))

    def test_uniform_is_uniform(self) -> None:
        counts = np.zeros((12, 12))
        for seed in range(600):
            graph = uniform(12, 22, seed=seed)
            counts += graph.to_scipy().toarray()
        drawn = counts[np.triu_indices(12, 1)]
        # Binomial of 600 trials at 1/3: standard deviation 11.5.
        assert drawn.mean() == 200
        assert abs(drawn - 200).max() < 4.5 * 11.5
        assert drawn.std() < 1.4 * 11.5
        degree = uniform(20_000, 160_000).out_degree()
        assert degree.var() == pytest.approx(16, rel=0.1)  # Poisson
        assert degree.max() < 45

    def test_small_world(self) -> None:
        ring = watts_strogatz(40, 6, 0)
        assert_like_networkx(ring, nx.watts_strogatz_graph(40, 6, 0))
        assert watts_strogatz(7, 0).arc_count == 0
        assert_equal(watts_strogatz(7, 6, 0), complete(7))
        ring, graph, random = (watts_strogatz(5000, 6, p) for p in (0, 0.1, 1))
        kept = len(set(arcs_of(ring)) & set(arcs_of(graph))) / ring.arc_count
        assert kept == pytest.approx(0.9, abs=0.02)
        assert graph.edge_count is not None
        assert 14_990 <= graph.edge_count <= 15_000
        assert graph.out_degree().min() >= 3  # one end of each edge stays
        assert len(set(arcs_of(ring)) & set(arcs_of(random))) < 0.01 * ring.arc_count

    @given(attach=st.integers(1, 6), more=st.integers(1, 20), seed=st.integers())
    def test_every_new_vertex_attaches(self, attach: int, more: int, seed: int) -> None:
        graph = barabasi_albert(attach + more, attach, seed=seed)
        assert_simple(graph)
        assert component_count(graph) == 1
        earlier = [0] * graph.vertex_count
        for source, target in arcs_of(graph):
            earlier[source] += target < source
        assert all(count == 1 for count in earlier[1 : attach + 1])
        assert all(1 <= count <= attach for count in earlier[attach + 1 :])

    def test_of_one_attachment_is_a_tree(self) -> None:
        graph = barabasi_albert(3000, 1)
        assert graph.edge_count == 2999
        assert component_count(graph) == 1

    def test_degrees_are_scale_free(self) -> None:
        """P(degree >= k) is m (m + 1) / (k (k + 1)), as k**-2 for large k."""
        n, attach = 40_000, 4
        graph = barabasi_albert(n, attach)
        assert graph.edge_count is not None
        assert attach * (n - attach) * 0.99 < graph.edge_count <= attach * (n - attach)
        degree = graph.out_degree()
        for k in (8, 16, 40):
            expected = attach * (attach + 1) / (k * (k + 1))
            assert (degree >= k).mean() == pytest.approx(expected, rel=0.1)
        assert degree.max() > 200


class TestGeometric:
    @pytest.mark.parametrize("radius", [None, 1e-9, 0.01, 0.2, 0.5, 1.0, 1 / 3, 2.0])
    @pytest.mark.parametrize("n", [0, 1, 2, 300])
    def test_joins_what_is_near(self, n: int, radius: float | None) -> None:
        graph = random_geometric(n, radius, seed=5)
        assert_simple(graph)
        assert graph.vertex_count == n
        if radius is None:
            radius = 0.55 * np.sqrt(np.log(max(n, 2)) / max(n, 2))
        side = max(1, int(min((1 - 1e-9) / radius, np.sqrt(n))))
        points = sorted_points(n, side, 5)
        pairs = cKDTree(np.column_stack([points.x, points.y])).query_pairs(radius)
        assert {(s, t) for s, t in arcs_of(graph) if s < t} == pairs

    def test_points_are_spread_evenly_and_numbered_by_place(self) -> None:
        points = sorted_points(40_000, 20, 3)
        assert points.cells[0] == 0
        assert points.cells[-1] == 40_000
        counts = np.diff(points.cells)
        assert counts.var() == pytest.approx(100, rel=0.25)  # Poisson
        for cell in (0, 7, 399):
            inside = slice(points.cells[cell], points.cells[cell + 1])
            assert (np.floor(points.y[inside] * 20) == cell // 20).all()
            assert (np.floor(points.x[inside] * 20) == cell % 20).all()
        graph = random_geometric(40_000)
        sources = np.repeat(np.arange(40_000), graph.out_degree())
        assert abs(sources - graph.targets).mean() < 0.02 * graph.vertex_count

    def test_default_radius_almost_connects(self) -> None:
        graph = random_geometric(2**14)
        assert graph.largest_component().vertex_count > 0.999 * 2**14
        assert graph.out_degree().mean() == pytest.approx(0.95 * np.log(2**14), rel=0.1)

    @pytest.mark.parametrize("n", [0, 1, 2, 3])
    def test_delaunay_of_few_points_is_complete(self, n: int) -> None:
        assert_equal(delaunay(n), complete(n))

    @pytest.mark.parametrize("n", [4, 5, 30, 2000])
    def test_delaunay_is_that_of_scipy(self, n: int) -> None:
        points = sorted_points(n, int(np.sqrt(n // 2)), 9)
        starts, neighbours = Delaunay(
            np.column_stack([points.x, points.y])
        ).vertex_neighbor_vertices
        graph = delaunay(n, seed=9)
        np.testing.assert_array_equal(graph.offsets, starts)
        expected = np.concatenate([np.sort(row) for row in np.split(neighbours, starts[1:-1])])
        np.testing.assert_array_equal(graph.targets, expected)
        assert nx.check_planarity(nx.Graph(arcs_of(graph)))[0]

    @pytest.mark.parametrize("margin", [None, 1])
    @pytest.mark.parametrize(("n", "tile"), [(1000, 100), (5000, 300), (5000, 4000), (70, 4)])
    def test_delaunay_by_pieces_is_that_of_all(
        self, n: int, tile: int, margin: int | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where margins are too small at first, they grow."""
        whole = delaunay(n, seed=3)
        sizes: list[int] = []
        triangulate = triangulation._triangulate

        def counted(points: Points, done: Any, piece: Any) -> Any:
            sizes.append(sum(last - first for first, last in piece.spans))
            return triangulate(points, done, piece)

        monkeypatch.setattr(triangulation, "_triangulate", counted)
        monkeypatch.setattr(triangulation, "TILE_POINTS", tile)
        monkeypatch.setattr(triangulation, "SMALLEST", tile)
        if margin is not None:
            monkeypatch.setattr(triangulation, "_margin_cells", lambda *_: margin)
        assert_equal(delaunay(n, seed=3), whole)
        assert len(sizes) > 1
        if margin is not None and tile == 300:
            assert min(sizes) < 2.5 * tile
            assert len(sizes) > 1 + 17  # those that had to come again

    def test_delaunay_by_pieces_of_points_that_crowd(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Most are in a corner, the others far between: no circle is as small as margins suppose."""
        random = np.random.default_rng(5)
        x, y = random.random((2, 3000)) ** 2.5
        side = 30
        cell = np.floor(y * side).astype(int) * side + np.floor(x * side).astype(int)
        order = np.argsort(cell, kind="stable")
        cells = np.searchsorted(cell[order], np.arange(side * side + 1))
        points = Points(x[order], y[order], cells, side)
        monkeypatch.setattr("godwit.graph.generators.geometric.sorted_points", lambda *_: points)
        whole = delaunay(3000)
        monkeypatch.setattr(triangulation, "TILE_POINTS", 150)
        monkeypatch.setattr(triangulation, "SMALLEST", 150)
        assert_equal(delaunay(3000), whole)

    def test_delaunay_loses_no_point_that_another_covers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        points = sorted_points(30, 3, 0)
        doubled = Points(np.repeat(points.x, 2), np.repeat(points.y, 2), points.cells, 3)
        monkeypatch.setattr("godwit.graph.generators.geometric.sorted_points", lambda *_: doubled)
        graph = delaunay(60)
        assert_simple(graph)
        assert component_count(graph) == 1
        pairs = set(arcs_of(graph))
        assert all((v, v + 1) in pairs for v in range(0, 60, 2))


class TestOfBenchmarks:
    """Graphs of benchmarks/component_graphs.py."""

    @pytest.mark.parametrize(
        ("spec", "start"),
        [
            ("bubbles:70,spacing=16", "e3ffb8c26d250f86"),
            ("cliques:300,largest=12", "3d58ab0ee742f79e"),
            ("streets:30", "718feff4ef5f0bf5"),
            ("stencil:7,points=27", "849d0e58305d7a8d"),
            ("stencil:6,copies=1", "2459342c1501f988"),
            ("rmat:10", FROZEN["rmat:10"]),
        ],
    )
    def test_are_the_same_for_ever(self, spec: str, start: str) -> None:
        graph = component_graphs.generate(spec)
        assert digest(graph) == start
        assert_simple(graph)
        assert graph.ids.kind == "consecutive"


class TestSpecs:
    @pytest.mark.parametrize(
        ("spec", "make"),
        [
            ("rmat:6", lambda: rmat(6)),
            ("rmat:6,parameters=0.3/0.3/0.3", lambda: rmat(6, parameters=(0.3, 0.3, 0.3))),
            ("rmat:6,simple=false,symmetrize=false",
             lambda: rmat(6, simple=False, symmetrize=False)),
            ("road:4x9,keep=0.7,seed=1", lambda: road(4, 9, keep=0.7, seed=1)),
            ("watts-strogatz:50,neighbours=4,rewire=0.5", lambda: watts_strogatz(50, 4, 0.5)),
            ("barabasi-albert:50,attach=2", lambda: barabasi_albert(50, 2)),
            ("uniform:50,edges=70", lambda: uniform(50, 70)),
            ("random-geometric:50,radius=2e-1", lambda: random_geometric(50, 0.2)),
            ("binary-tree:6,weights=-4..64", lambda: binary_tree(6, weights=(-4, 64))),
            ("caterpillar:6", lambda: caterpillar(6, 1)),
            ("caterpillar:6x3,weights=0.5..1", lambda: caterpillar(6, 3, weights=(0.5, 1))),
            ("complete:4,copies=3,weights=1..9",
             lambda: complete(4, weights=(1, 9)).replicate(3)),
        ],
    )  # fmt: skip
    def test_call_the_functions(self, spec: str, make: Callable[[], Graph]) -> None:
        made, expected = generate(spec), make()
        assert_equal(made, expected)
        assert made.directed == expected.directed
        assert made.is_weighted == expected.is_weighted

    @pytest.mark.parametrize(
        "spec",
        [
            "rmat:", "rmat:x", "rmat:5x5", "rmat:5,simple=no", "rmat:5,parameters=", "rmat:5,seed",
            "rmat:5,parameters=0.1/x", "grid:2x", "grid:2x3x4", "path:5,copies=1.5",
            "path:5,weights=1..2..3", "path:5,weights=1..nan", "path:5,weights=", "path:5,n=3",
        ],
    )  # fmt: skip
    def test_refuse_what_they_do_not_understand(self, spec: str) -> None:
        name = spec.partition(":")[0]
        with pytest.raises(InputError, match=f"cannot understand .* expected {name}:"):
            parse_spec(spec)

    @given(st.text(alphabet="rmat:path10x=.,/-eds", max_size=20))
    def test_never_fail_in_another_way(self, text: str) -> None:
        for spec in (text, f"path:{text}", f"rmat:1,{text}"):
            try:
                parse_spec(spec)
            except GodwitError:
                continue
            assert is_spec(spec)

    def test_values_are_judged_by_the_functions(self) -> None:
        for spec, message in [
            ("rmat:4,parameters=other", "graph500 or gtgraph"),
            ("path:5,weights=2..1", "low <= high"),
            ("path:5,copies=0", "count must be at least 1, got 0"),
        ]:
            make = parse_spec(spec)
            with pytest.raises(InputError, match=message):
                make()

    def test_unknown_names_are_told_the_known(self) -> None:
        assert not is_spec("rmap:4")
        assert not is_spec("./rmat:4")
        for spec in ("rmap:4", "rmat", 7):
            with pytest.raises(InputError, match=r"NAME is one of rmat, .*caterpillar; got"):
                parse_spec(spec)  # type: ignore[arg-type]

    def test_usage_is_what_is_understood(self) -> None:
        usage = GENERATORS["road"].usage
        assert usage == ("road:ROWSxCOLUMNS[,keep=0.6][,seed=0][,weights=LOW..HIGH][,copies=1]")
        reference = (Path(__file__).parent.parent / "docs" / "reference.md").read_text()
        for generator in GENERATORS.values():
            assert f"`{generator.function}(" in reference
            assert f"`{generator.name}:{generator.size}`" in reference
            assert callable(getattr(generators, generator.function))
            assert generator.help
        assert set(dir(generators)) == {g.function for g in GENERATORS.values()}

    def test_can_be_listed_without_numpy(self) -> None:
        program = (
            "import sys; from godwit.graph.generators.spec import GENERATORS;"
            "from godwit.cli import application;"
            "print(sorted({'numba', 'numpy', 'scipy'} & set(sys.modules)))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"
