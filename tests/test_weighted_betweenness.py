"""Betweenness by weights against NetworkX and exact fractions: paths, order, buckets, sizes, errors."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms.betweenness import cpu as brandes
from godwit.algorithms.betweenness import path_counts
from godwit.algorithms.betweenness.cpu import sum_dependencies
from godwit.algorithms.betweenness.path_counts import clear_search, weighted_search
from godwit.algorithms.distances import single_source
from godwit.algorithms.paths import buckets as ring
from godwit.cli.application import app
from godwit.errors import GraphTooLargeError, InputError, RunTimeoutError, ValueOverflowError
from godwit.graph.csr import Graph
from graphs import WEIGHT_DTYPES, ZOO, arcs_of, forced_threads, graphs, named_graph
from references import CLOSE, assert_networkx_agrees

each_ring = pytest.mark.parametrize("buckets", [4, 8, 64, 1024])
"""Heaps alone, both, buckets alone: see :func:`_ring`."""


def _ring(patch: pytest.MonkeyPatch, buckets: int) -> None:
    """Set the size of the ring of betweenness; that of distances has words of 64 bits, and stays."""
    assert single_source.BUCKETS % 64 == 0  # imported before
    for module in (path_counts, ring):
        patch.setattr(module, "BUCKETS", buckets)


def _positive(graph: Graph) -> Graph:
    """Weights without zeros; random ones where there are none."""
    if not graph.is_weighted:
        return graph.with_random_weights(1, 4, seed=1)
    weights = graph.weights
    assert weights is not None
    return graph.with_weights(np.where(weights == 0, weights.dtype.type(2), weights))


def _sums(graph: Graph, sources: Any, **options: Any) -> Any:
    asked = {"endpoints": False, "edges": True, "weighted": True, **options}
    return sum_dependencies(graph, np.array(sources), **asked)


def _check(graph: Graph, k: int | None, normalized: bool, endpoints: bool) -> None:
    """Equal to NetworkX's for vertices and arcs."""
    graph = _positive(graph).merge_parallel_arcs()
    found = gw.betweenness_centrality(
        graph, samples=k, seed=3, normalized=normalized, endpoints=endpoints, edges=True,
        weighted=True, devices="cpu",
    )  # fmt: skip
    other = nx.DiGraph() if graph.directed else nx.Graph()
    other.add_nodes_from(range(graph.vertex_count))
    other.add_weighted_edges_from(arcs_of(graph))
    assert_networkx_agrees(
        found, other, endpoints=endpoints, k=k, seed=3, normalized=normalized, weight="weight"
    )


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_as_networkx(name: str, normalized: bool) -> None:
    graph = named_graph(name)
    _check(graph, None, normalized, endpoints=normalized)
    if graph.vertex_count:
        _check(graph, max(1, graph.vertex_count // 3), normalized, endpoints=not normalized)


@given(graphs(weighted=True), st.booleans(), st.booleans(), st.data())
@each_ring
def test_any_graph_as_networkx(
    buckets: int, graph: Graph, normalized: bool, endpoints: bool, data: st.DataObject
) -> None:
    """Lengths are small integers and quarters, so that many are equal, and sums exact."""
    with pytest.MonkeyPatch.context() as patch:
        _ring(patch, buckets)
        _check(graph, None, normalized, endpoints)
        if graph.vertex_count:
            _check(graph, data.draw(st.integers(1, graph.vertex_count)), normalized, endpoints)


@pytest.mark.parametrize("spec", ["road:40x40,weights=1..300", "rmat:10,weights=1..64"])
def test_larger_graphs_as_igraph(spec: str) -> None:
    igraph = pytest.importorskip("igraph")
    graph = gw.generate(spec)
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    once = tails < graph.targets
    assert graph.weights is not None
    other = igraph.Graph(graph.vertex_count, np.stack([tails[once], graph.targets[once]], 1))
    asked: dict[str, Any] = {"directed": False, "weights": graph.weights[once].tolist()}
    found = gw.betweenness_centrality(graph, normalized=False, weighted=True, edges=True)
    np.testing.assert_allclose(found.centrality, other.betweenness(**asked), rtol=1e-8)
    edges = found.edge_centrality[once]
    np.testing.assert_allclose(edges, other.edge_betweenness(**asked), rtol=1e-8)


def _paths_from(
    arcs: list[tuple[int, int, Fraction]], n: int, source: int
) -> tuple[list[Any], list[int]]:
    """Distances (infinity where not reached) and numbers of shortest paths, parallel arcs counted each."""
    distance: list[Any] = [math.inf] * n
    distance[source] = Fraction(0)
    for _ in range(n):
        for u, v, w in arcs:
            distance[v] = min(distance[v], distance[u] + w)
    count = [0] * n
    count[source] = 1
    for v in sorted(range(n), key=lambda v: distance[v]):
        for u, head, w in arcs:
            if head == v != source and distance[u] + w == distance[v] < math.inf:
                count[v] += count[u]
    return distance, count


def _exact(graph: Graph, sources: list[int]) -> tuple[list[Fraction], list[Fraction]]:
    """Sums over pairs (s, t), s a source, of the parts of the paths through each vertex and arc."""
    n = graph.vertex_count
    arcs = [(u, v, Fraction(w)) for u, v, w in arcs_of(graph)]
    found = [_paths_from(arcs, n, s) for s in range(n)]
    vertices, by_arc = [Fraction(0)] * n, [Fraction(0)] * len(arcs)
    for s in sources:
        distance, count = found[s]
        for t in range(n):
            if distance[t] == math.inf:
                continue
            for v in range(n):
                onward, further = found[v]
                if v not in (s, t) and distance[v] + onward[t] == distance[t]:
                    vertices[v] += Fraction(count[v] * further[t], count[t])
            for a, (u, v, w) in enumerate(arcs):
                onward, further = found[v]
                if distance[u] + w + onward[t] == distance[t]:
                    by_arc[a] += Fraction(count[u] * further[t], count[t])
    return vertices, by_arc


@given(graphs(max_vertices=8, max_arcs=24, weighted=True, min_vertices=1), st.data())
@pytest.mark.parametrize("wide", [False, True])
def test_parallel_arcs_are_paths_of_their_own(
    wide: bool, graph: Graph, data: st.DataObject
) -> None:
    """Exactly, and with both kinds of counts."""
    graph = _positive(graph)
    assert graph.weights is not None
    kind = np.int32 if graph.weights.dtype.kind in "iu" else np.float64  # to compile less
    graph = graph.with_weights(graph.weights.astype(kind))
    sources = sorted(data.draw(st.sets(st.integers(0, graph.vertex_count - 1), min_size=1)))
    with pytest.MonkeyPatch.context() as patch:
        if wide:
            run = brandes._run
            patch.setattr(brandes, "_run", lambda *a: run(*a) if a[6] else None)
        found = _sums(graph, sources)
    vertices, arcs = _exact(graph, sources)
    np.testing.assert_allclose(found.vertices, [float(x) for x in vertices], **CLOSE)
    np.testing.assert_allclose(found.arcs, [float(x) for x in arcs], **CLOSE)


def test_edges_of_parallel_and_unsorted_rows() -> None:
    """Both arcs of an edge have one value; parallel edges are told apart by weight."""
    # Of the edges between 0 and 1, that of weight 2 stands first in one row and last in the other.
    graph = Graph(
        [0, 3, 6, 8, 9], [2, 1, 1, 0, 3, 0, 0, 2, 1], [5, 2, 3, 3, 1, 2, 5, 4, 1], directed=False
    )
    found = gw.betweenness_centrality(graph, edges=True, normalized=False, weighted=True)
    # Pairs 0-1, 0-3, 1-3, 0-2, 1-2 and 2-3 go by 2, 2 and 1, 1, 5, 5 and 2, 5 and 2 and 1.
    assert found.edge_centrality.tolist() == [3, 4, 0, 0, 3, 4, 3, 0, 3]
    sorted_rows = Graph(
        [0, 3, 6, 7, 8], [1, 1, 2, 0, 0, 3, 0, 1], [2, 3, 5, 3, 2, 1, 5, 1], directed=False
    )
    found = gw.betweenness_centrality(sorted_rows, edges=True, normalized=False, weighted=True)
    assert found.edge_centrality.tolist() == [4, 0, 3, 0, 4, 3, 3, 3]


@pytest.mark.parametrize("name", ["rmat:9,seed=2", "road:30x30,seed=2", "star:300"])
@each_ring
def test_equal_weights_count_arcs(buckets: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _ring(monkeypatch, buckets)
    graph = gw.generate(name)
    sources = list(range(0, graph.vertex_count, 7))
    wanted = sum_dependencies(graph, np.array(sources), endpoints=True, edges=True)
    for weight in (np.int32(7), np.float64(0.1), np.float32(3e-30), np.int64(2**40)):
        same = graph.with_weights(np.full(graph.arc_count, weight))
        found = _sums(same, sources, endpoints=True)
        if weight != 0.1:  # of which different sums are rounded differently
            np.testing.assert_allclose(found.vertices, wanted.vertices, **CLOSE)
            np.testing.assert_allclose(found.arcs, wanted.arcs, **CLOSE)
        assert found.vertices_visited == wanted.vertices_visited
        assert found.arcs_examined == wanted.arcs_examined


@pytest.mark.parametrize("dtype", WEIGHT_DTYPES)
@pytest.mark.parametrize("spec", ["rmat:11,seed=2,weights=1..9", "road:40x40,weights=1..500"])
def test_bits_depend_neither_on_threads_nor_on_dtypes(
    spec: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brandes, "_ALONE_WORK", 0)
    graph = gw.generate(spec)
    sources = np.arange(0, graph.vertex_count, max(1, graph.vertex_count // 53))
    one = _sums(graph, sources, endpoints=True, threads=1)
    assert graph.weights is not None
    same = graph.with_weights(graph.weights.astype(dtype))
    for threads in (2, 5):
        other = _sums(same, sources, endpoints=True, threads=threads)
        np.testing.assert_array_equal(one.vertices, other.vertices)
        np.testing.assert_array_equal(one.arcs, other.arcs)
        assert one.vertices_visited == other.vertices_visited
        assert one.arcs_examined == other.arcs_examined


@each_ring
def test_widths_of_buckets(buckets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of any sizes: what a ring has no room for is in heaps. Distances are SSSP's."""
    _ring(monkeypatch, buckets)
    graph = gw.generators.watts_strogatz(300, seed=3)
    generator = np.random.default_rng(1)
    tails = np.repeat(np.arange(300), graph.out_degree())
    edges = np.minimum(tails, graph.targets) * 300 + np.maximum(tails, graph.targets)
    for low, high in ((0, 1), (0, 40), (-1070, -1000), (900, 1010), (-20, 0)):
        draws = np.ldexp(
            generator.random(300 * 300) + 0.5, generator.integers(low, high, 300 * 300)
        )
        weighted = graph.with_weights(draws[edges])
        found = _sums(weighted, [5])
        distance = gw.sssp(weighted, 5, devices="cpu").distance
        # Which are on the path to some other vertex; all lengths differ.
        before = np.unique(gw.sssp(weighted, 5, devices="cpu").predecessor)
        assert np.isfinite(distance).all()
        on_paths = np.flatnonzero(found.vertices)
        np.testing.assert_array_equal(on_paths, np.setdiff1d(before, [-1, 5]))


@each_ring
def test_a_bucket_is_worked_on_before_those_behind_it(
    buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an arc to the end of a path that is shorter by 1: its bucket may be any of the ring."""
    _ring(monkeypatch, buckets)
    for quarters in (1, 2, 3, 4, 6, 12, 24):
        largest = quarters * buckets // 4 + 1
        end = largest - 1
        tails, heads = np.append(np.arange(end), 0), np.append(np.arange(1, end + 1), end)
        graph = Graph.from_edges(tails, heads, np.append(np.ones(end, int), largest))
        found = _sums(graph, [0])
        assert found.vertices.tolist() == [0, *range(end - 1, 0, -1), 0][: end + 1]


def test_scaled_weights_give_the_same_bits() -> None:
    """From the smallest numbers there are, which float64 still adds up exactly."""
    graph = gw.generate("road:20x20,seed=1,weights=1..500")
    assert graph.weights is not None
    wanted = _sums(graph, range(0, 400, 9))
    for exponent in (-1074, -1040, -1000, 900):
        found = _sums(
            graph.with_weights(np.ldexp(graph.weights.astype(float), exponent)), range(0, 400, 9)
        )
        np.testing.assert_array_equal(found.vertices, wanted.vertices)
        np.testing.assert_array_equal(found.arcs, wanted.arcs)


def test_a_search_that_was_given_up_leaves_nothing() -> None:
    """Another thread's that found too many paths ends it anywhere."""
    search = weighted_search(gw.generators.path(9).with_random_weights(1, 9))
    search.distances[2:5] = 7
    search.heads[3:9] = 1
    clear_search(search)
    assert (search.distances == search.far).all()
    assert (search.heads == -1).all()


def test_many_paths_and_small_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """2^1200 paths of weighted arcs, beside sources that reach next to nothing."""
    monkeypatch.setattr(brandes, "_ALONE_WORK", 0)
    diamonds = 1200
    joints = np.arange(diamonds) * 3
    tails = np.concatenate([joints, joints, joints + 1, joints + 2])
    heads = np.concatenate([joints + 1, joints + 2, joints + 3, joints + 3])
    weights = np.repeat([2, 3, 2, 1], diamonds)
    end = 3 * diamonds
    tails, heads = np.append(tails, end + 1), np.append(heads, end + 2)
    graph = Graph.from_edges(tails, heads, np.append(weights, 9), directed=False)
    sources = [0, end + 1, end, end + 2, 0]
    one = _sums(graph, sources, threads=1)
    inner = joints[1:]
    np.testing.assert_allclose(one.vertices[inner], 2 * (end - inner) + inner, rtol=1e-9)
    np.testing.assert_array_equal(one.vertices[joints + 1], one.vertices[joints + 2])
    assert one.vertices[end + 1 :].tolist() == [0, 0]
    four = _sums(graph, sources, threads=4)
    np.testing.assert_array_equal(one.vertices, four.vertices)
    np.testing.assert_array_equal(one.arcs, four.arcs)


class TestWeights:
    def graph(self, weights: Any, **options: Any) -> Graph:
        """A triangle 0, 1, 2."""
        return Graph.from_edges([0, 1, 0], [1, 2, 2], weights, **options)

    @pytest.mark.parametrize(
        ("weights", "words"),
        [
            ([1, 0, 1], r"above 0.*from 1 to 2 has weight 0: .*weighted=False"),
            ([1.0, 0.5, 0.0], r"above 0.*from 0 to 2 has weight 0.0"),
            ([1, -2, 1], r"not negative; the arc from 1 to 2 has weight -2"),
            ([1, np.nan, 1], r"not negative; the arc from 1 to 2 has weight nan"),
            ([1, 2, np.inf], r"finite; the arc from 0 to 2 has weight inf"),
            ([1, 2, 2**62], r"up to 4611686018427387904 on 3 vertices could overflow.*as float64"),
            ([1, 2, 1e308], r"up to 1e\+308 on 3 vertices could overflow.*divide them"),
        ],
    )
    def test_that_are_refused(
        self, weights: list[Any], words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def started(*arguments: Any, **more: Any) -> None:
            raise AssertionError("it was started")

        monkeypatch.setattr("godwit.algorithms.betweenness.sum_dependencies", started)
        with pytest.raises((InputError, ValueOverflowError), match=words):
            gw.betweenness_centrality(self.graph(weights), weighted=True)

    def test_of_arcs_called_by_ids(self) -> None:
        graph = self.graph([1, 0, 1], ids=["Bonn", "Ulm", "Jena"])
        with pytest.raises(InputError, match="the arc from Ulm to Jena"):
            gw.betweenness_centrality(graph, weighted=True)

    @pytest.mark.parametrize("threads", [1, 3])
    def test_that_a_sum_loses(self, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """The order by distance would say nothing of who comes before whom."""
        monkeypatch.setattr(brandes, "_ALONE_WORK", 0)
        graph = self.graph([1e18, 1.0, 2e18])
        with pytest.raises(InputError, match=r"arc from 1 to 2 has weight 1, which float64 loses"):
            _sums(graph, [0, 1, 2] * 20, threads=threads)
        parallel = Graph.from_edges([0, 1, 1], [1, 2, 2], [1e18, 3e18, 1.0])
        with pytest.raises(InputError, match="arc from 1 to 2 has weight 1, which"):
            _sums(parallel, [0])
        # Elsewhere it is of no harm: from 1 itself, on no shortest path, on a self-loop.
        assert _sums(graph, [1, 2]).vertices_visited == 3
        longer = Graph.from_edges([0, 1, 0, 1], [1, 2, 2, 1], [1e18, 1.0, 1.0, 1.0])
        found = _sums(longer, [0])
        assert found.vertices.tolist() == [0, 0, 0]
        assert found.arcs.tolist() == [1, 1, 0, 0]

    def test_large_integers_are_exact(self) -> None:
        """Two ways that differ by 1 in 2^61."""
        weights = [2**60, 2**60 + 1, 2**60, 2**60]
        graph = Graph.from_edges([0, 0, 1, 2], [1, 2, 3, 3], weights)
        assert _sums(graph, [0]).vertices.tolist() == [0, 1, 0, 0]
        assert _sums(graph.with_weights(np.array(weights, float)), [0]).vertices.tolist() == [
            0, 0.5, 0.5, 0,
        ]  # fmt: skip

    def test_integers_that_float64_rounds_to_a_power_of_two(self) -> None:
        """A bucket must be no wider than the smallest weight itself, or heads join the tails' bucket."""
        small, large, ways = 2**54 - 1, 3 * 2**54 - 4, 40
        first = np.arange(1, ways + 1)
        tails = np.concatenate([np.zeros(ways, int), first])
        graph = Graph.from_edges(
            tails, np.concatenate([first, first + ways]), np.repeat([large, small], ways)
        )
        lengths, scale = np.array([large, large + small]), weighted_search(graph).scale
        nearer, farther = (lengths * scale).astype(int)
        assert nearer < farther
        assert _sums(graph, [0]).vertices.tolist() == [0] + ways * [1] + ways * [0]

    def test_count_unless_told_otherwise(self) -> None:
        graph = self.graph([1, 1, 9])
        plain = gw.betweenness_centrality(graph, normalized=False, weighted=False)
        assert plain.centrality.tolist() == [0, 0, 0]
        for weighted in (True, None):
            found = gw.betweenness_centrality(graph, normalized=False, weighted=weighted)
            assert found.centrality.tolist() == [0, 1, 0]
            assert found.statistics.devices == ("cpu",)
        bare = graph.without_weights()
        assert gw.betweenness_centrality(bare, weighted=None).centrality.tolist() == [0, 0, 0]
        with pytest.raises(InputError, match="needs a graph with weights"):
            gw.betweenness_centrality(bare, weighted=True)


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for highest in (9, 10**6):  # with a stack, and with a heap
        graph = gw.generators.path(10_000).with_random_weights(1, highest)
        search = weighted_search(graph)
        assert search.ordered == (highest > 9)
        arrays = [array for array in search if isinstance(array, np.ndarray) and array.ndim]
        held = sum(array.nbytes for array in arrays) - search.weights.nbytes - search.lost.nbytes
        assert path_counts.search_bytes(graph) == held
    with forced_threads(8):
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", "3000000")
        assert brandes._affordable_threads(graph, False, False, None) > 2
        assert brandes._affordable_threads(graph, False, True, None) == 2
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "1000000")
    with pytest.raises(GraphTooLargeError, match="betweenness"):
        gw.betweenness_centrality(graph, samples=1, weighted=True)


def test_timeout_and_progress() -> None:
    graph = gw.generators.road(200, 200, seed=1, weights=(1, 100))
    with pytest.raises(RunTimeoutError):
        gw.betweenness_centrality(graph, timeout_s=0.05, weighted=True)
    begun: list[int] = []
    gw.betweenness_centrality(graph, samples=100, progress=begun.append, weighted=True)
    assert begun == sorted(begun)
    assert all(0 <= count <= 100 for count in begun)


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "triangle.csv"
    file.write_text("source,target,weight\nUlm,Bonn,1\nBonn,Jena,1\nUlm,Jena,9\n")

    def run(*options: str, status: int = 0) -> str:
        line = ["betweenness", str(file), "--unnormalized", "--undirected", *options]
        result = CliRunner().invoke(app, line)
        assert result.exit_code == status, result.output
        return result.output

    found = json.loads(run("--json"))
    assert found["weighted"] is True
    assert found["top"][0] == {"vertex": "Bonn", "centrality": 1.0}
    assert json.loads(run("--json", "--ignore-weights"))["top"][0]["centrality"] == 0
    assert "by weights" in run()
    assert "by weights" not in run("--ignore-weights")
    file.write_text("source,target\nUlm,Bonn\n")
    assert json.loads(run("--json"))["weighted"] is False
