"""Accelerated PageRank: fewer iterations, and ranks within the bound of plain ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.algorithms.pagerank import in_arcs
from godwit.graph.csr import Graph
from graphs import graphs, named_graph
from test_pagerank import LAYOUTS, by_definition, lay_out


class TestAcceleration:
    """Undirected graphs take fewer iterations, and their ranks are no farther from the limit."""

    @pytest.mark.parametrize(
        ("spec", "least_gain"),
        [("path:3000", 2.4), ("grid:60x60", 1.5), ("road:80x80,seed=3", 2.4), ("star:200", 2.4),
         ("delaunay:900", 1.2), ("rmat:9,seed=1", 1), ("uniform:3000,seed=1", 1)],
    )  # fmt: skip
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("start", [None, {5: 1.0}])
    def test_takes_fewer_iterations(
        self, spec: str, least_gain: float, weighted: bool, start: dict[int, float] | None
    ) -> None:
        graph = gw.generate(spec)
        if weighted:
            graph = graph.with_random_weights(0, 9, seed=2)
        settings: dict[str, Any] = {"personalization": start, "initial": start}
        settings["max_iterations"] = 1000
        exact = gw.pagerank(graph, tolerance=1e-13, accelerated=False, **settings)
        plain = gw.pagerank(graph, accelerated=False, **settings)
        result = gw.pagerank(graph, **settings)
        assert exact.converged
        assert result.converged
        assert result.iterations * least_gain <= plain.iterations
        if (
            result.iterations < plain.iterations
        ):  # accelerated ones leave errors that plain ones do not
            assert result.residual < 1e-6 * 0.85 / 1.85
        assert np.abs(result.rank - exact.rank).sum() <= 1e-6 * 0.85 / 0.15

    @given(
        graph=graphs(min_vertices=1, directed=False),
        damping=st.sampled_from([0.0, 1e-9, 0.5, 0.85, 0.99]),
        tolerance=st.sampled_from([1e-2, 1e-4, 1e-6, 1e-11]),
        seed=st.integers(0, 9),
        layout=st.sampled_from(LAYOUTS),
    )
    def test_errors_are_within_the_bound_of_plain_iterations(
        self, graph: Graph, damping: float, tolerance: float, seed: int, layout: str
    ) -> None:
        generator = np.random.default_rng(seed)
        settings: dict[str, Any] = {"max_iterations": 10_000}
        for name in ("personalization", "initial"):
            settings[name] = generator.integers(0, 3, graph.vertex_count)
            settings[name][seed % graph.vertex_count] = 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(in_arcs, "_ALONE_WORK", 0)
            patch.setattr(in_arcs, "_BLOCK_WORK", 8)
            lay_out(patch, layout)
            graph = graph.with_ids(0)
            exact = gw.pagerank(graph, damping, tolerance=1e-14, accelerated=False, **settings)
            plain = gw.pagerank(graph, damping, tolerance=tolerance, accelerated=False, **settings)
            result = gw.pagerank(graph, damping, tolerance=tolerance, **settings)
        assert result.converged
        assert (result.rank >= 0).all()
        assert result.rank.sum() == pytest.approx(1, abs=1e-12)
        error = np.abs(result.rank - exact.rank).sum()
        assert error <= tolerance * damping / (1 - damping) + 1e-12
        assert result.iterations <= 2 * plain.iterations + 9  # it seldom takes more at all

    @pytest.mark.parametrize("spec", ["road:15x15,seed=3", "grid:60x60", "rmat:7,seed=2"])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_near_roundings_it_ends(self, spec: str, dtype: str) -> None:
        """Once changes are below the tolerance, though roundings keep them from what ends acceleration."""
        graph = gw.generate(spec)
        exact = gw.pagerank(graph, tolerance=1e-15, max_iterations=300, accelerated=False)
        floor = 1e-8 if dtype == "float32" else 1e-17
        ends = set()
        for tolerance in np.geomspace(floor, 100 * floor, 30):
            settings: dict[str, Any] = {"tolerance": tolerance, "dtype": dtype}
            result = gw.pagerank(graph, **settings, max_iterations=300)
            assert result.converged == (result.iterations < 300)
            assert result.converged == (result.residual < tolerance)
            assert np.abs(result.rank - exact.rank).sum() < 2e-6 * floor / 1e-8
            ends.add(result.converged)
        assert ends == {False, True}

    def test_without_it_every_iteration_is_counted(self) -> None:
        graph = gw.generators.path(500)
        plain = gw.pagerank(graph, accelerated=False)
        again = gw.pagerank(graph, accelerated=False, tolerance=1e-300, max_iterations=40)
        assert plain.iterations > 2 * gw.pagerank(graph).iterations
        expected = by_definition(graph, 40, 0.85, np.full(500, 1 / 500), weighted=False)
        np.testing.assert_allclose(again.rank, expected, rtol=1e-12)

    def test_of_directed_graphs_iterations_are_plain(self) -> None:
        graph = named_graph("random directed")
        results = [gw.pagerank(graph, accelerated=accelerated) for accelerated in (None, False)]
        assert len({(one.rank.tobytes(), one.iterations) for one in results}) == 1

    @pytest.mark.parametrize("spec", ["path:90", "star:30", "road:20x20,seed=3", "delaunay:200"])
    @pytest.mark.parametrize("iterations", [7, 8, 1000])
    def test_the_residual_is_what_a_plain_iteration_changes(
        self, spec: str, iterations: int
    ) -> None:
        graph = gw.generate(spec)
        start = np.random.default_rng(1).random(graph.vertex_count)
        result = gw.pagerank(graph, initial=start, max_iterations=iterations)
        again = gw.pagerank(graph, initial=result.rank, max_iterations=1, accelerated=False)
        assert result.iterations < gw.pagerank(graph, initial=start, accelerated=False).iterations
        assert again.residual == pytest.approx(result.residual, rel=1e-6)

    def test_no_rank_is_negative(self) -> None:
        """Far from the source, where a tolerance this large leaves less than the errors."""
        start = {0: 1.0}
        result = gw.pagerank(
            gw.generators.grid(60), 0.99, tolerance=0.01, personalization=start, initial=start
        )
        assert result.converged
        assert result.rank.min() == 0
        assert result.rank.sum() == pytest.approx(1, abs=1e-12)
