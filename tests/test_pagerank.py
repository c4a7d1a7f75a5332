"""PageRank against NetworkX, against the definition written out, and against Graphalytics."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms import pagerank
from godwit.algorithms.pagerank import cpu as power_iteration
from godwit.algorithms.pagerank import in_arcs as module
from godwit.algorithms.pagerank import push as pagerank_push
from godwit.algorithms.pagerank.settings import RankSettings
from godwit.cli.application import app
from godwit.errors import DeviceError, InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.graph.facts import is_symmetric
from graphs import arcs_of, each_graph, graphs, named_graph

ENDLESS = {"damping": 1 - 1e-12, "tolerance": 1e-300, "max_iterations": 10**12}
"""Settings by which a long path does not converge in a lifetime."""


def by_networkx(graph: Graph, **settings: Any) -> np.ndarray[Any, Any]:
    found = nx.pagerank(graph.to_networkx(), max_iter=1000, tol=1e-13, **settings)
    return np.array([found[graph.ids[v]] for v in range(graph.vertex_count)])


def steps_of_walks(graph: Graph, teleport: Any, weighted: bool) -> np.ndarray[Any, Any]:
    """(n, n) with which chance a walk goes from where to where, if it does not begin anew."""
    n = graph.vertex_count
    matrix = np.zeros((n, n))
    for u, v, *weight in arcs_of(graph):
        matrix[u, v] += weight[0] if weighted and weight else 1
    leaving = matrix.sum(axis=1)
    matrix[leaving == 0] = teleport
    matrix[leaving > 0] /= leaving[leaving > 0, None]
    return matrix


def by_definition(
    graph: Graph, iterations: int, damping: float, teleport: Any, weighted: bool
) -> np.ndarray[Any, Any]:
    """So many steps of a matrix of all pairs, from ranks that are alike."""
    n = graph.vertex_count
    matrix = steps_of_walks(graph, teleport, weighted)
    rank = np.full(n, 1 / n)
    for _ in range(iterations):
        rank = (1 - damping) * teleport + damping * rank @ matrix
    return rank


PUSH: dict[str, Any] = {"execution": "asynchronous"}
PLACES: dict[str, tuple[Any, str | None]] = {
    "all cores": ("cpu", None),
    "one": ("cpu:0", None),
    "two in ranges": (["cpu:0", "cpu:1"], "contiguous"),
    "three at random": (["cpu:0", "cpu:1", "cpu:0"], "random"),
}
each_place = pytest.mark.parametrize("place", PLACES)


def exact_ranks(
    graph: Graph, damping: float, teleport: Any, weighted: bool
) -> np.ndarray[Any, Any]:
    """What iterations come to."""
    matrix = steps_of_walks(graph, teleport, weighted)
    solved: np.ndarray[Any, Any] = np.linalg.solve(
        np.eye(len(matrix)) - damping * matrix.T, (1 - damping) * teleport
    )
    return solved


def check_push(
    graph: Graph, found: gw.PageRankResult, exact: Any, *, damping: float = 0.85, **settings: Any
) -> None:
    """Ranks are within what the residual says, and it says no less than another iteration finds."""
    assert found.converged
    assert found.iterations is None
    rank = found.rank.astype(np.float64)
    assert np.abs(rank - exact).sum() <= found.residual / (1 - damping) + 1e-14
    assert rank.sum() == pytest.approx(1, abs=4 * float(np.finfo(found.rank.dtype).eps))
    one_more = gw.pagerank(
        graph, damping, initial=rank, max_iterations=1, accelerated=False, devices="cpu", **settings
    )
    assert one_more.residual <= found.residual + 1e-14


LAYOUTS = ("as given", "by length", "by degree")


def lay_out(patch: pytest.MonkeyPatch, layout: str) -> None:
    """Until the patch is undone, rows of in-arcs stand in that order, of whatever graph."""
    patch.setattr(module, "_SHORT_ROW", 1_000 if layout == "by length" else 0)
    patch.setattr(module, "gains_by_degree", lambda rows: layout == "by degree")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the test small graphs have many blocks, and are not left to one thread."""
    monkeypatch.setattr(module, "_ALONE_WORK", 0)
    monkeypatch.setattr(module, "_BLOCK_WORK", 8)


class TestRanks:
    @each_graph
    @pytest.mark.parametrize("weighted", [None, False])
    def test_as_networkx(self, name: str, weighted: bool | None) -> None:
        graph = named_graph(name)
        result = gw.pagerank(graph, tolerance=1e-12, max_iterations=1000, weighted=weighted)
        expected = by_networkx(graph, weight="weight" if weighted is None else None)
        assert result.converged
        assert result.residual < 1e-12
        np.testing.assert_allclose(result.rank, expected, rtol=1e-8, atol=1e-11)
        if graph.vertex_count:
            assert result.rank.sum() == pytest.approx(1, abs=1e-12)

    @each_graph
    def test_float32(self, name: str) -> None:
        graph = named_graph(name)
        exact = gw.pagerank(graph, tolerance=1e-12, max_iterations=1000).rank
        result = gw.pagerank(graph, dtype="float32", tolerance=1e-5)
        assert result.converged
        assert result.rank.dtype == np.float32
        # How far the fixed point can be when a step is shorter than the tolerance.
        assert np.abs(result.rank - exact).sum() <= 1e-5 * 0.85 / 0.15 + 1e-6

    @given(
        graph=graphs(min_vertices=1),
        iterations=st.integers(1, 8),
        damping=st.sampled_from([0.0, 0.5, 0.85, 0.99]),
        seed=st.integers(0, 9),
        weighted=st.booleans(),
    )
    def test_every_iteration_is_by_definition(
        self, graph: Graph, iterations: int, damping: float, seed: int, weighted: bool
    ) -> None:
        weights = np.random.default_rng(seed).integers(0, 4, graph.vertex_count)
        weights[seed % graph.vertex_count] = 3
        result = gw.pagerank(
            graph,
            damping,
            tolerance=1e-300,
            max_iterations=iterations,
            personalization=weights,
            weighted=None if weighted else False,
            accelerated=False,
        )
        assert result.iterations == iterations or result.residual == 0
        teleport = weights / weights.sum()
        steps = [
            by_definition(graph, count, damping, teleport, weighted)
            for count in (result.iterations - 1, result.iterations)
        ]
        np.testing.assert_allclose(result.rank, steps[1], rtol=1e-9, atol=1e-15)
        assert result.residual == pytest.approx(np.abs(steps[1] - steps[0]).sum(), abs=1e-12)

    @given(graph=graphs(min_vertices=2), data=st.data())
    def test_personalization_as_networkx(self, graph: Graph, data: st.DataObject) -> None:
        chosen = st.dictionaries(
            st.integers(0, graph.vertex_count - 1), st.integers(1, 9), min_size=1
        )
        personalization, initial = data.draw(chosen), data.draw(chosen)
        result = gw.pagerank(
            graph,
            personalization=personalization,
            initial=initial,
            tolerance=1e-12,
            max_iterations=1000,
        )
        expected = by_networkx(graph, personalization=personalization)
        np.testing.assert_allclose(result.rank, expected, rtol=1e-8, atol=1e-11)

    def test_a_better_start_is_sooner_done(self) -> None:
        graph = gw.generators.rmat(9, 8, seed=1)
        cold = gw.pagerank(graph, tolerance=1e-10, max_iterations=1000)
        warm = gw.pagerank(graph, tolerance=1e-10, initial=cold.rank)
        assert warm.iterations <= 2 < cold.iterations
        np.testing.assert_allclose(warm.rank, cold.rank, rtol=1e-7)

    @pytest.mark.parametrize(
        "shares",
        [
            pd.Series([1.0, 2.0, 0.0, 5.0]),
            pd.Series({3: 1.0, 0: 2.0, 2: 0.0, 1: 5.0}),
            pd.Series({3: 1, 1: 2}),
            pd.Series({3: 1.5, 1: 2.5}, dtype="Float64"),
            pd.Series({3: 1.0, 1: 2.0, 0: 4.0, 2: 3.0}).astype(object),
            pd.Series([2.0, 1.0, 3.0, 4.0], index=pd.Index([1, 0, 3, 2], dtype=object)),
            pd.Series([2.0, 1.0, 3.0, 4.0], index=np.array([1, 0, 3, 2], np.uint64)),
        ],
    )
    def test_a_series_is_a_mapping(self, shares: Any) -> None:
        graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 1])
        alike = dict(shares.items())
        for name, how in (("personalization", {}), ("personalization", PUSH), ("initial", {})):
            found = gw.pagerank(graph, 0.5, devices="cpu:0", **how, **{name: shares})
            expected = gw.pagerank(graph, 0.5, devices="cpu:0", **how, **{name: alike})
            assert np.array_equal(found.rank, expected.rank)

    def test_without_damping_ranks_are_the_personalization(self) -> None:
        result = gw.pagerank(named_graph("random directed"), 0, personalization={3: 1, 5: 3})
        assert result.converged
        assert {v: result.rank[v] for v in np.flatnonzero(result.rank)} == {3: 0.25, 5: 0.75}

    @pytest.mark.parametrize("scale", [1e-320, 1e-30, 1e30, 1e300])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_the_scale_of_weights_does_not_matter(self, scale: float, dtype: str) -> None:
        weights = np.array([1000.0, 3000.0, 2000.0, 1000.0])
        arcs = [0, 0, 1, 2], [1, 2, 0, 0]
        expected = gw.pagerank(Graph.from_edges(*arcs, weights)).rank
        found = gw.pagerank(Graph.from_edges(*arcs, weights * scale), dtype=dtype).rank
        np.testing.assert_allclose(found, expected, rtol=1e-3 if scale < 1e-300 else 1e-5)

    def test_not_converging_is_a_result(self) -> None:
        result = gw.pagerank(gw.generators.path(50), max_iterations=3)
        assert not result.converged
        assert result.iterations == 3
        assert result.residual > 1e-6
        assert result.rank.sum() == pytest.approx(1, abs=1e-12)
        assert "not converged after 3" in repr(result)


class TestTeams:
    @pytest.mark.usefixtures("small_blocks")
    @each_graph
    @pytest.mark.parametrize("accelerated", [None, False])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_the_same_bits_from_any_number_of_threads(
        self, name: str, dtype: str, accelerated: bool | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings = {"dtype": dtype, "accelerated": accelerated, "max_iterations": 30}
        found = []
        for threads in (1, 2, 3, 5):
            monkeypatch.setenv("GODWIT_THREADS", str(threads))
            graph = named_graph(name).with_ids(0)  # nothing of it has been prepared
            result = gw.pagerank(graph, **settings)
            found.append((result.rank.tobytes(), result.iterations, result.residual))
        assert len(set(found)) == 1

    @pytest.mark.usefixtures("small_blocks")
    @given(graph=graphs(min_vertices=1))
    def test_blocks_cover_every_vertex_once(self, graph: Graph) -> None:
        blocks = module.in_arcs_of(graph.with_ids(0), np.float64, weighted=False).blocks
        assert blocks[0] == 0
        assert blocks[-1] == graph.vertex_count
        assert (np.diff(blocks) >= 0).all()

    @pytest.mark.usefixtures("small_blocks")
    @each_graph
    @pytest.mark.parametrize("accelerated", [None, False])
    def test_the_layout_does_not_matter(
        self, name: str, accelerated: bool | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings: dict[str, Any] = {"accelerated": accelerated, "max_iterations": 9}
        found = []
        # Sums over other blocks may decide a tie otherwise: whether to accelerate already.
        for layout in LAYOUTS if accelerated is False else LAYOUTS[:2]:
            lay_out(monkeypatch, layout)
            graph = named_graph(name).with_ids(0)
            found.append(gw.pagerank(graph, tolerance=1e-300, **settings))
        for other in found[1:]:
            np.testing.assert_allclose(found[0].rank, other.rank, rtol=1e-12)
            assert found[0].residual == pytest.approx(other.residual, rel=1e-9, abs=1e-14)

    @pytest.mark.usefixtures("small_blocks")
    @given(graph=graphs(min_vertices=1, max_arcs=120))
    @pytest.mark.parametrize("layout", ["by length", "by degree"])
    def test_rows_laid_out_anew_are_the_same_rows(self, layout: str, graph: Graph) -> None:
        with pytest.MonkeyPatch.context() as patch:
            lay_out(patch, layout)
            arcs = module.in_arcs_of(graph.with_ids(0), np.float64, weighted=False)
        reverse = graph.reverse
        lengths = np.diff(arcs.offsets)
        if layout == "by degree":
            assert sorted(arcs.order) == list(range(graph.vertex_count))
            assert (np.diff(graph.out_degree()[arcs.order]) >= 0).all()
        for block, (first, last) in enumerate(pairwise(arcs.blocks)):
            assert arcs.sections[block, -1] == last
            if layout == "by length":
                assert sorted(arcs.order[first:last]) == list(range(first, last))
                assert (np.diff(np.minimum(lengths[first:last], module._LENGTHS - 1)) >= 0).all()
            elif not is_symmetric(graph):
                assert (arcs.sections[block, :-1] == first).all()
                continue
            for length in range(module.FEW_ARCS + 1):
                end = first + np.count_nonzero(lengths[first:last] <= length)
                assert arcs.sections[block, length] == end
        shares = lengths if is_symmetric(graph) else arcs.divisors
        for row, v in enumerate(arcs.order):
            new = arcs.order[arcs.sources[arcs.offsets[row] : arcs.offsets[row + 1]]]
            old = reverse.targets[reverse.offsets[v] : reverse.offsets[v + 1]]
            np.testing.assert_array_equal(new, old)
            assert shares[row] == graph.out_degree()[v]

    @pytest.mark.usefixtures("small_blocks")
    def test_rows_are_sorted_by_degree_where_hubs_are_scattered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In an R-MAT graph; not where all have the same degree, nor where neighbours stand together."""
        monkeypatch.setattr(module, "_NEAR_VERTICES", 256)
        for spec, wanted in (("rmat:12", True), ("uniform:4000", False), ("road:60x60", False)):
            graph = gw.generate(spec)
            order = module.in_arcs_of(graph, np.float64, weighted=False).order
            heat = graph.out_degree()[order]
            assert (len(order) > 0 and bool((np.diff(heat) >= 0).all())) == wanted

    def test_blocks_are_of_about_the_same_work(self) -> None:
        graph = gw.generators.rmat(14, 8, seed=2)
        blocks = module.in_arcs_of(graph, np.float64, weighted=False).blocks
        work = np.diff(graph.offsets[blocks] + blocks)
        total, largest = int(work.sum()), int(graph.out_degree().max()) + 1
        assert len(work) > 4
        assert work.max() <= total / len(work) + largest

    @pytest.mark.usefixtures("small_blocks")
    def test_time_runs_out(self) -> None:
        with pytest.raises(RunTimeoutError, match=r"within 0\.1 s"):
            gw.pagerank(gw.generators.path(1000), **ENDLESS, timeout_s=0.1)

    @pytest.mark.usefixtures("small_blocks")
    def test_progress_grows_and_may_interrupt(self) -> None:
        seen: list[int] = []

        def watch(updated: int) -> None:
            seen.append(updated)
            if len(seen) == 5:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            gw.pagerank(gw.generators.path(1000), **ENDLESS, progress=watch)
        assert seen == sorted(seen)
        assert seen[-1] > 0
        assert all(updated % 1000 == 0 for updated in seen)


class TestPush:
    """Residual push: ``execution="asynchronous"``."""

    @each_graph
    @each_place
    def test_as_networkx(self, name: str, place: str) -> None:
        graph = named_graph(name)
        n = graph.vertex_count
        with gw.place(graph, *PLACES[place]) as placed:
            for weighted in (None, False):
                found = gw.pagerank(placed, tolerance=1e-10, weighted=weighted, **PUSH)
                assert found.converged
                assert found.graph is graph
                expected = by_networkx(graph, weight="weight" if weighted is None else None)
                # NetworkX leaves off where an iteration changes ranks by n * tol.
                assert np.abs(found.rank - expected).sum() <= (1e-10 + n * 1e-13) / 0.15

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @given(
        data=st.data(),
        graph=graphs(min_vertices=1),
        damping=st.sampled_from([0.0, 0.5, 0.85, 0.99]),
        tolerance=st.sampled_from([1e-2, 1e-5, 1e-6]),
        weighted=st.sampled_from([None, False]),
    )
    def test_ranks_are_within_the_tolerance(
        self, dtype: str, data: st.DataObject, graph: Graph, damping: float, tolerance: float,
        weighted: bool | None,
    ) -> None:  # fmt: skip
        n = graph.vertex_count
        shares = data.draw(st.dictionaries(st.integers(0, n - 1), st.integers(1, 9)))
        teleport = np.array([shares.get(v, 0 if shares else 1) for v in range(n)], float)
        teleport /= teleport.sum()
        settings: dict[str, Any] = {"personalization": shares or None, "weighted": weighted}
        found = gw.pagerank(
            graph,
            damping,
            tolerance=tolerance,
            dtype=dtype,
            devices=data.draw(st.sampled_from(["cpu", "cpu:0", 2, 3])),
            **settings,
            **PUSH,
        )
        assert found.rank.dtype == dtype
        assert found.residual < tolerance
        exact = exact_ranks(graph, damping, teleport, weighted is None)
        check_push(graph, found, exact, damping=damping, **settings)

    def test_all_that_is_promised_where_most_rank_is_dropped(self) -> None:
        """Ranks before scaling sum to little more than 1 - damping."""
        graph = Graph.from_edges([*range(20), 0], [*range(1, 20), 0, 21], vertex_count=100)
        shares = np.where(np.arange(100) < 20, 1e-3, 1.0)
        for tolerance in (0.5, 1e-3, 1e-9):
            found = gw.pagerank(graph, personalization=shares, tolerance=tolerance, **PUSH)
            exact = exact_ranks(graph, 0.85, shares / shares.sum(), False)
            check_push(graph, found, exact, personalization=shares)

    def test_what_nothing_reaches_is_not_looked_at(self) -> None:
        graph = gw.generators.path(10_000)
        found = gw.pagerank(graph, personalization={5000: 1}, devices="cpu:0", **PUSH)
        assert found.converged
        assert 100 < found.statistics.arcs_relaxed.sum() < graph.arc_count / 2
        assert np.count_nonzero(found.rank) < 500

    @pytest.mark.parametrize("scale", [1e-320, 1e-30, 1e30, 1e300])
    def test_the_scale_of_weights_does_not_matter(self, scale: float) -> None:
        weights = np.array([1000.0, 3000.0, 2000.0, 1000.0])
        arcs = [0, 0, 1, 2], [1, 2, 0, 0]
        expected = gw.pagerank(Graph.from_edges(*arcs, weights)).rank
        found = gw.pagerank(Graph.from_edges(*arcs, weights * scale), **PUSH).rank
        np.testing.assert_allclose(found, expected, rtol=1e-3 if scale < 1e-300 else 1e-5)

    def test_portions_of_weights_are_placed_once(self) -> None:
        graph = named_graph("random directed")
        with gw.place(graph, 2, "random") as placed:
            portions = pagerank_push.push_rows(
                graph, RankSettings(0.85, 1.0, np.dtype(float), True, None)
            ).graph
            inner = placed.reweighted(portions)
            assert placed.reweighted(portions) is inner
            np.testing.assert_array_equal(inner.partition.owner, placed.partition.owner)
            for _ in range(2):
                assert gw.pagerank(placed, **PUSH).converged
            with pytest.raises(InputError, match="placed already"):
                gw.pagerank(placed, devices=2, **PUSH)
        for closed in (placed, inner):
            with pytest.raises(gw.errors.ClosedContextError):
                gw.pagerank(closed, **PUSH)

    def test_roundings_are_never_below_the_tolerance(self) -> None:
        graph = gw.generators.rmat(9, 8, seed=1)
        found = gw.pagerank(graph, dtype="float32", tolerance=1e-8, **PUSH)
        assert not found.converged
        assert 1e-8 < found.residual < 1e-6
        assert "not converged, residual" in repr(found)
        exact = gw.pagerank(graph, tolerance=1e-12, max_iterations=1000).rank
        assert np.abs(found.rank - exact).sum() <= found.residual / 0.15

    def test_time_runs_out(self) -> None:
        graph = Graph.from_edges([0, 1], [1, 0])
        with pytest.raises(RunTimeoutError, match=r"within 0\.3 s"):
            gw.pagerank(graph, 1 - 1e-12, tolerance=1e-300, timeout_s=0.3, **PUSH)

    def test_statistics(self) -> None:
        graph = named_graph("random directed")
        found = gw.pagerank(graph, devices=["cpu:0", "cpu:1"], **PUSH)
        statistics = found.statistics
        assert statistics.devices == ("cpu:0", "cpu:1")
        assert statistics.solver == "bulk-synchronous"
        assert (statistics.arcs_relaxed > 0).all()
        assert {"partition", "place", "run", "gather"} <= set(statistics.seconds)
        json.dumps(statistics.to_dict())

    @pytest.mark.parametrize("execution", ["auto", "bulk-synchronous"])
    def test_otherwise_ranks_are_pulled(self, execution: str) -> None:
        graph = named_graph("random directed")
        found = gw.pagerank(graph, execution=execution)
        assert found.statistics.solver == "pull"
        np.testing.assert_array_equal(found.rank, gw.pagerank(graph).rank)


class TestResult:
    def test_by_ids_and_as_tables(self) -> None:
        graph = Graph.from_edges([0, 1, 2], [1, 2, 1], ids=["Ulm", "Bonn", "Jena"])
        result = gw.pagerank(graph)
        assert result.to_dict() == dict(zip(["Ulm", "Bonn", "Jena"], result.rank, strict=True))
        table = result.to_arrow()
        assert table.column_names == ["vertex", "rank"]
        assert table["vertex"].to_pylist() == ["Ulm", "Bonn", "Jena"]
        np.testing.assert_array_equal(table["rank"], result.rank)
        assert result.to_frame()["rank"].tolist() == result.rank.tolist()
        assert result.highest(2) == result.highest(10)[:2]
        assert [vertex for vertex, _ in result.highest(10)] == ["Bonn", "Jena", "Ulm"]

    def test_statistics(self) -> None:
        graph = gw.generators.rmat(8)
        result = gw.pagerank(graph)
        statistics = result.statistics
        assert statistics.devices == ("cpu",)
        assert statistics.arcs_relaxed == [result.iterations * graph.arc_count]
        assert statistics.rounds == [result.iterations]
        assert set(statistics.seconds) == {"place", "run"}
        json.dumps(statistics.to_dict())

    def test_no_vertices(self) -> None:
        result = gw.pagerank(named_graph("empty"), personalization={}, initial=[])
        assert result.converged
        assert result.rank.shape == (0,)
        assert result.to_dict() == {}

    def test_of_placed_graphs(self) -> None:
        graph = named_graph("random directed")
        with gw.place(graph, "cpu") as placed:
            np.testing.assert_array_equal(gw.pagerank(placed).rank, gw.pagerank(graph).rank)
            with pytest.raises(InputError, match="placed already"):
                gw.pagerank(placed, devices="cpu")
        with pytest.raises(gw.errors.ClosedContextError):
            gw.pagerank(placed)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "damping of 1": ({"damping": 1}, r"damping must be in \[0, 1\), got 1"),
    "negative damping": ({"damping": -0.1}, r"damping must be in \[0, 1\), got -0.1"),
    "damping that is NaN": ({"damping": float("nan")}, "got nan"),
    "damping that is a text": ({"damping": "0.85"}, "damping must be a number, got '0.85'"),
    "tolerance of 0": ({"tolerance": 0}, "tolerance must be positive, got 0"),
    "tolerance that is NaN": ({"tolerance": float("nan")}, "tolerance must be positive, got nan"),
    "no iterations": ({"max_iterations": 0}, "max_iterations must be at least 1, got 0"),
    "half an iteration": ({"max_iterations": 1.5}, "max_iterations must be an integer, got 1.5"),
    "integers": ({"dtype": "int64"}, "dtype must be float32 or float64, got 'int64'"),
    "no dtype": ({"dtype": None}, "dtype must be float32 or float64, got None"),
    "unknown dtype": ({"dtype": "real"}, "dtype must be float32 or float64, got 'real'"),
    "nowhere to begin": ({"personalization": [0, 0, 0]}, "sums to 0 over 3 vertices"),
    "nowhere at all": ({"personalization": {}}, "sums to 0 over 3 vertices"),
    "negative": ({"personalization": [1, -2, 3]}, "got -2 for vertex 1"),
    "infinite": ({"personalization": {2: float("inf")}}, "got inf for vertex 2"),
    "NaN": ({"initial": {2: float("nan")}}, "initial must be finite .* got nan for vertex 2"),
    "unknown vertex": ({"personalization": {3: 1}}, r"must be in \[0, 3\), got 3"),
    "no vertex": ({"initial": {"a": 1}}, "a vertex of initial must be an integer, got 'a'"),
    "no name": ({"personalization": {"Ulm": 1}}, "the graph has no ids of its own"),
    "labels": ({"initial": pd.Series({2: 1, "a": 1, 0: 1})}, "integer, got 'a'"),
    "label that is no vertex": (
        {"initial": pd.Series({0: 1, 3: 1})},
        r"must be in \[0, 3\), got 3",
    ),
    "two of a label": (
        {"personalization": pd.Series([1, 2, 3], index=[0, 2, 2])},
        "labels of personalization must be distinct, and 2 occurs twice",
    ),
    "no weight": ({"initial": {1: "a"}}, "initial of vertex 1 must be a number, got 'a'"),
    "short": ({"personalization": [1, 2]}, r"3 numbers.*an array of int64, shape \(2,\)"),
    "two dimensions": ({"initial": np.ones((3, 1))}, r"an array of float64, shape \(3, 1\)"),
    "texts": ({"initial": ["a", "b", "c"]}, "an array of <U1"),
    "accelerated what": ({"accelerated": 1}, "accelerated must be True or False, got 1"),
    "arcs with directions": ({"accelerated": True}, "accelerated=True needs an undirected graph"),
    "weighted what": ({"weighted": "yes"}, "weighted must be True or False, got 'yes'"),
    "several devices": ({"devices": ["cpu:0", "cpu:1"]}, "runs on one device of the CPU.*'cpu'"),
    "unknown device": ({"devices": "tpu"}, "there is no device 'tpu'"),
    "results elsewhere": ({"results": "disk"}, "results must be 'host'"),
    "no time": ({"timeout_s": 0}, "timeout_s must be positive, got 0"),
}


class TestBadInput:
    @pytest.mark.parametrize("what", WRONG)
    def test_is_refused_before_anything_starts(
        self, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for part in (module, power_iteration):
            monkeypatch.setattr(part, "run_team", None)
        settings, message = WRONG[what]
        graph = Graph.from_edges([0, 1], [1, 2], [1, 2])
        with pytest.raises(DeviceError if what == "unknown device" else InputError, match=message):
            gw.pagerank(graph, **settings)

    @pytest.mark.parametrize("what", WRONG)
    def test_push_refuses_it_too(self, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
        settings, message = WRONG[what]
        settings = {"devices": ["cpu:0", "cpu:1"], **settings, **PUSH}
        for part, name in ((pagerank, "placed_for_query"), (pagerank_push, "run_team")):
            monkeypatch.setattr(part, name, None)
        graph = Graph.from_edges([0, 1], [1, 2])
        if what in ("several devices", "unknown device"):
            return  # they may be several; and which there are is found out when placing
        if {"max_iterations", "initial", "accelerated"} & set(settings):
            message = "is of iterations, and execution='asynchronous' has none"
        with pytest.raises(InputError, match=message):
            gw.pagerank(graph, **settings)

    @pytest.mark.parametrize("make", [dict, pd.Series])
    def test_mappings_are_by_id(self, make: Any) -> None:
        graph = Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
        found = gw.pagerank(graph, personalization=make({"Ulm": 1.0})).rank
        expected = gw.pagerank(graph.with_ids(0), personalization={1: 1.0}).rank
        assert found.tolist() == expected.tolist()
        with pytest.raises(InputError, match=r"'Atlantis' is not in the graph, which has .*'Bonn'"):
            gw.pagerank(graph, initial=make({"Atlantis": 1.0}))
        with pytest.raises(InputError, match=r"'Ulm' is not in .* ids of its own, 1 to 3"):
            gw.pagerank(graph.with_ids(1), personalization=make({"Ulm": 1.0}))

    def test_unknown_execution(self) -> None:
        with pytest.raises(InputError, match=r"execution must be 'auto', .* got 'push'"):
            gw.pagerank(gw.generators.path(3), execution="push")

    @pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
    def test_of_weights_names_the_arc(self, weight: float) -> None:
        graph = Graph.from_edges([0, 1, 1], [1, 2, 0], [1.0, 2.0, weight])
        with pytest.raises(InputError, match=f"arc from 1 to 0 has weight {weight}"):
            gw.pagerank(graph)
        with pytest.raises(InputError, match=f"arc from 1 to 0 has weight {weight}"):
            gw.pagerank(graph, **PUSH)
        assert gw.pagerank(graph, weighted=False).converged

    def test_of_weights_whose_sums_overflow(self) -> None:
        with pytest.raises(InputError, match=r"sums of 2 weights up to 1e\+308 could overflow"):
            gw.pagerank(Graph.from_edges([0, 0], [1, 2], [1e308, 1e308]))

    def test_weights_that_are_not_there(self) -> None:
        with pytest.raises(InputError, match="weighted=True needs a graph with weights"):
            gw.pagerank(gw.generators.path(3), weighted=True)

    def test_no_graph(self) -> None:
        for execution in ("auto", "asynchronous"):
            with pytest.raises(InputError, match=r"expected a godwit\.Graph, got a list"):
                gw.pagerank([[0, 1]], execution=execution)  # type: ignore[arg-type]


class TestGraphalytics:
    @pytest.mark.parametrize(
        ("name", "directed"),
        [("pr/dir", True), ("pr/undir", False), ("example/example-directed", True),
         ("example/example-undirected", False)],
    )  # fmt: skip
    def test_expected_ranks(self, data_folder: Path, name: str, directed: bool) -> None:
        folder = data_folder / "expected" / "graphalytics-validation"
        example = name.startswith("example")
        graph = gw.read(folder / f"{name}-input", directed=None if directed else False)
        iterations = 2 if example else self.iterations_of(folder, directed)
        result = gw.pagerank(
            graph,
            tolerance=1e-300,
            max_iterations=iterations,
            weighted=False,
            accelerated=False,
        )
        lines = (folder / f"{name}-{'PR' if example else 'output'}").read_text().split()
        expected = {int(id): float(rank) for id, rank in zip(lines[::2], lines[1::2], strict=True)}
        found = result.to_dict()
        assert {id: found[id] for id in expected} == pytest.approx(expected, rel=1e-4)

    @staticmethod
    def iterations_of(folder: Path, directed: bool) -> int:
        kind = "directed" if directed else "undirected"
        text = (folder / "properties" / f"test-pr-{kind}.properties").read_text()
        return next(
            int(line.partition("=")[2]) for line in text.splitlines() if "num-iterations" in line
        )


class TestCommand:
    def run(self, *arguments: object, status: int = 0) -> Any:
        result = CliRunner().invoke(app, ["pagerank", *map(str, arguments)])
        assert result.exit_code == status, result.output
        return result

    def test_shows_the_highest(self) -> None:
        text = self.run("star:9", "--top", 1).stdout
        rank = gw.pagerank(gw.generators.star(9)).rank[0]
        assert "converged after" in text
        assert f"{rank:.6g}" in text

    @pytest.mark.parametrize("options", [(), ("--quiet",), ("--json",)], ids=str)
    def test_what_has_not_converged_is_there_and_the_status_says_so(
        self, options: tuple[str, ...], tmp_path: Path
    ) -> None:
        output = tmp_path / "ranks.npy"
        result = self.run("star:9", "--max-iterations", 1, "-o", output, *options, status=3)
        expected = gw.pagerank(gw.generators.star(9), max_iterations=1)
        np.testing.assert_array_equal(np.load(output), expected.rank)
        assert result.stderr.startswith("godwit: not converged after 1 iterations: ")
        assert result.stderr.count("\n") == 1
        if "--json" in options:
            assert json.loads(result.stdout)["converged"] is False
        else:
            assert ("NOT converged" in result.stdout) == (not options)

    def test_top_is_shown_beside_a_file_where_it_is_asked_for(self, tmp_path: Path) -> None:
        output = tmp_path / "ranks.npy"
        assert "The highest ranks" not in self.run("star:9", "-o", output).stdout
        assert "The highest ranks" in self.run("star:9", "-o", output, "--top", 2).stdout
        both = self.run("star:9", "-o", "-", "--top", 2)
        assert both.stdout.startswith("vertex,rank\n")
        assert "The highest ranks" in both.stderr

    @pytest.mark.parametrize("form", ["npy", "csv", "parquet"])
    def test_writes_them_all(self, form: str, tmp_path: Path) -> None:
        output = tmp_path / f"ranks.{form}"
        options = ("--damping", 0.5, "--tolerance", 1e-9, "--ignore-weights")
        text = self.run("road:9x9,weights=1..9", *options, "-o", output).stdout
        assert str(output) in text
        graph = gw.generate("road:9x9,weights=1..9")
        expected = gw.pagerank(graph, 0.5, tolerance=1e-9, weighted=False).rank
        if form == "npy":
            np.testing.assert_array_equal(np.load(output), expected)
        elif form == "csv":
            rows = np.loadtxt(output, delimiter=",", skiprows=1)
            np.testing.assert_allclose(rows[:, 1], expected, rtol=1e-12)
        else:
            import pyarrow.parquet

            np.testing.assert_array_equal(pyarrow.parquet.read_table(output)["rank"], expected)

    def test_plain_iterations(self) -> None:
        facts = [
            json.loads(self.run("path:300", "--json", *options).stdout)
            for options in ((), ("--plain",))
        ]
        expected = [
            gw.pagerank(gw.generators.path(300), accelerated=accelerated).iterations
            for accelerated in (None, False)
        ]
        assert [found["iterations"] for found in facts] == expected
        assert expected[0] < expected[1]

    def test_an_infinite_tolerance_is_json_too(self) -> None:
        facts = json.loads(self.run("rmat:7,seed=4", "--json", "--tolerance", "inf").stdout)
        assert facts["tolerance"] is None
        assert facts["iterations"] == 1
        assert "tolerance none" in self.run("rmat:7,seed=4", "--tolerance", "inf").stdout

    def test_devices_do_not_multiply_the_work(self) -> None:
        graph = gw.generators.rmat(12)
        alone, shared = (
            gw.pagerank(graph, devices=devices, **PUSH).statistics.arcs_relaxed.sum()
            for devices in ("cpu:0", ["cpu:0", "cpu:1", "cpu:2"])
        )
        assert shared < 3 * alone

    def test_residual_push(self) -> None:
        options = ("--execution", "asynchronous", "--devices", "cpu:0,cpu:1")
        facts = json.loads(self.run("rmat:7,seed=4", *options, "--json").stdout)
        assert facts["iterations"] is None
        assert facts["converged"] is True
        assert facts["statistics"]["solver"] == "bulk-synchronous"
        expected = gw.pagerank(gw.generate("rmat:7,seed=4"))
        assert facts["top"][0]["rank"] == pytest.approx(expected.rank.max(), abs=1e-5)
        tight = (*options, "--dtype", "float32", "--tolerance", 1e-9)
        failed = self.run("rmat:7,seed=4", *tight, status=3)
        assert failed.stderr.startswith("godwit: not converged: one more iteration would change")
        assert "NOT converged: one more iteration" in failed.stdout

    def test_json(self) -> None:
        facts = json.loads(self.run("rmat:7,seed=4", "--json", "--top", 3).stdout)
        result = gw.pagerank(gw.generate("rmat:7,seed=4"))
        assert facts["iterations"] == result.iterations
        assert facts["converged"] is True
        assert [tuple(row.values()) for row in facts["top"]] == result.highest(3)

    @pytest.mark.parametrize(
        ("options", "message"),
        [(("--damping", 1), "damping must be in"), (("--tolerance", 0), "tolerance must be"),
         (("--max-iterations", 0), "max_iterations must be at least 1, got 0"),
         (("--top", -1), "top must not be negative"), (("--dtype", "int8"), "dtype must be"),
         (("--devices", "cpu:0,cpu:1"), "one device of the CPU"),
         (("--execution", "asynchronous", "--max-iterations", 9), "max_iterations is of iterations"),
         (("--json", "--output", "-"), "both want stdout")],
    )  # fmt: skip
    def test_bad_input_is_found_before_the_file(self, options: Any, message: str) -> None:
        result = self.run("absent.mtx", *options, status=2)
        assert message in result.stderr
