"""Minimum and maximum spanning forests: as a serial Kruskal and NetworkX, on all devices."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.spanning_forest import cpu
from godwit.cli.application import app
from godwit.dtypes import Array
from godwit.errors import InputError, RunTimeoutError, VerificationError
from godwit.graph import generators
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions
from graphs import each_graph, forced_threads, graphs, named_graph

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def kruskal(graph: Graph, maximum: bool = False, weighted: bool = True) -> list[int]:
    """The arcs of the unique forest, ascending."""
    sources = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    weights = np.zeros(graph.arc_count) if graph.weights is None or not weighted else graph.weights
    arcs = np.flatnonzero(sources < graph.targets)
    ranks = np.unique(weights, return_inverse=True)[1].reshape(-1)
    order = np.lexsort((arcs, (-ranks if maximum else ranks)[arcs]))
    trees = nx.utils.UnionFind(range(graph.vertex_count))
    chosen = []
    for arc in arcs[order].tolist():
        u, v = int(sources[arc]), int(graph.targets[arc])
        if trees[u] != trees[v]:
            trees.union(u, v)
            chosen.append(arc)
    return sorted(chosen)


def check(graph: Graph, devices: Any = "cpu", **options: Any) -> gw.SpanningForestResult:
    graph = graph.symmetrize(merge=None) if graph.directed else graph
    for maximum in (False, True):
        result = gw.minimum_spanning_forest(graph, maximum, devices=devices, **options)
        assert result.arcs.tolist() == kruskal(graph, maximum)
        assert result.count == gw.connected_components(graph, devices="cpu").count
        gw.verify_minimum_spanning_forest(graph, result)
    return result


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within a test nearly all graphs have a pivot, and their lists are sorted by two threads."""
    monkeypatch.setattr(cpu, "LIGHT_EDGES", 0.4)
    with forced_threads(2):
        yield


@each_graph
def test_as_kruskal(name: str) -> None:
    check(named_graph(name))


@pytest.mark.usefixtures("small_parts")
@settings(max_examples=40)
@given(graph=graphs())
def test_any_graph_is_as_kruskal(graph: Graph) -> None:
    check(graph)


_EXTREMES: dict[str, list[float]] = {
    "float64": [0.0, -0.0, 1e308, -1e308, 5e-324, -5e-324, np.inf, -np.inf, 1.5, -1.5],
    "float32": [0.0, -0.0, 1e38, -1e38, 1e-45, -1e-45, np.inf, -np.inf, 1.5, -1.5],
    "int32": [-(2**31), 2**31 - 1, 0, 1, -1],
    "int64": [-(2**63), 2**63 - 1, 0, 1, -1, 2**32, -(2**32)],
    "uint32": [0, 2**32 - 1, 2**31, 1],
}


def graph_of_extremes(dtype: str) -> Graph:
    generator = np.random.default_rng(3)
    sources, targets = generator.integers(0, 60, (2, 400))
    weights = np.array(_EXTREMES[dtype], dtype)
    return Graph.from_edges(sources, targets, generator.choice(weights, 400), directed=False)


@pytest.mark.parametrize("dtype", _EXTREMES)
def test_weights_of_any_spread(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for light in (0.4, 100):
        monkeypatch.setattr(cpu, "LIGHT_EDGES", light)
        with forced_threads(2):
            check(graph_of_extremes(dtype))


@pytest.mark.parametrize("dtype", _EXTREMES)
@pytest.mark.parametrize("light", [0.4, 100])
def test_ties_in_simple_graphs_multigraphs_and_unsorted_rows(
    dtype: str, light: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "LIGHT_EDGES", light)
    generator = np.random.default_rng(4)
    sources, targets = generator.integers(5, 55, (2, 300))  # some vertices have no edges
    sources[:40], targets[:40] = 9, np.arange(9, 49)  # and one has many, and a self-loop
    weights = generator.choice(np.array(_EXTREMES[dtype][:3], dtype), 300)
    multigraph = Graph.from_edges(sources, targets, weights, directed=False, vertex_count=60)
    rows = np.repeat(np.arange(60), np.diff(multigraph.offsets))
    order = np.lexsort((generator.random(len(rows)), rows))
    assert multigraph.weights is not None
    shuffled = multigraph.targets[order], multigraph.weights[order]
    unsorted = Graph(multigraph.offsets, *shuffled, directed=False)
    for graph in (multigraph.merge_parallel_arcs("min"), multigraph, unsorted):
        for threads in (1, 2, 3):
            with forced_threads(threads):
                check(graph)


@pytest.mark.parametrize("weighted", [True, False])
def test_threads_do_not_matter(weighted: bool) -> None:
    """A graph large enough for several, whose rows and words of marks are shared out unevenly."""
    graph = generators.rmat(13, 8, seed=5).symmetrize().with_random_weights(1, 5)
    arcs = []
    for threads in (1, 2, 5):
        with forced_threads(threads):
            result = gw.minimum_spanning_forest(graph, devices="cpu", weighted=weighted)
        arcs.append(result.arcs)
        rows = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
        np.testing.assert_array_equal(result.sources, rows[result.arcs])
    assert all(np.array_equal(arcs[0], others) for others in arcs)
    assert arcs[0].tolist() == kruskal(graph, weighted=weighted)


def test_zeros_of_either_sign_are_equal() -> None:
    graph = Graph.from_edges([0, 1, 0], [1, 2, 2], [0.0, -0.0, 0.0], directed=False)
    assert gw.minimum_spanning_forest(graph).edges() == [(0, 1), (0, 2)]


def test_totals_of_integers_are_exact() -> None:
    big = 2**63 - 1
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [big, big, -5], directed=False)
    assert gw.minimum_spanning_forest(graph).total_weight == 2 * big - 5
    assert gw.minimum_spanning_forest(graph, weighted=False).total_weight == 3


@pytest.mark.filterwarnings("error")
def test_total_of_large_floats_is_infinite() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], [1.7e308, 1.7e308], directed=False)
    assert gw.minimum_spanning_forest(graph).total_weight == math.inf


@settings(max_examples=20)
@given(graph=graphs(directed=False, weighted=True), maximum=st.booleans())
def test_weight_is_that_of_networkx(graph: Graph, maximum: bool) -> None:
    function = nx.maximum_spanning_edges if maximum else nx.minimum_spanning_edges
    expected = sum(data["weight"] for *_, data in function(graph.to_networkx()))
    assert gw.minimum_spanning_forest(graph, maximum).total_weight == pytest.approx(expected)


def test_forest_keeps_ids_and_attributes() -> None:
    plain = nx.Graph()
    plain.add_edge("a", "b", weight=3, colour="red")
    plain.add_edge("b", "c", weight=1, colour="blue")
    plain.add_edge("a", "c", weight=2, colour="green")
    forest = gw.minimum_spanning_forest(Graph.from_networkx(plain)).forest
    assert not forest.directed
    assert sorted(forest.to_networkx().edges(data=True)) == [
        ("a", "c", {"weight": 2, "colour": "green"}),
        ("b", "c", {"weight": 1, "colour": "blue"}),
    ]
    table = gw.minimum_spanning_forest(Graph.from_networkx(plain)).to_frame()
    assert table["weight"].sum() == 3


@pytest.mark.parametrize("name", ["USA-road-d.NY.gr.xz", "wave.mtx.xz", "PGPgiantcompo.mtx.xz"])
def test_real_graphs(name: str) -> None:
    if not (DATA / name).exists():
        pytest.skip("no data")
    from scipy.sparse.csgraph import minimum_spanning_tree

    graph = gw.read(DATA / name).symmetrize()
    if not graph.is_weighted:
        graph = graph.with_random_weights(1, 64)
    result = gw.minimum_spanning_forest(graph, devices="cpu")
    expected = minimum_spanning_tree(graph.to_scipy(merge="min").astype(np.float64))
    assert result.total_weight == expected.sum()
    gw.verify_minimum_spanning_forest(graph, result)


def networkx_graph(seed: int, *, weighted: bool = True) -> Any:
    """A graph whose order of nodes and edges is not that of their names, with ties and self-loops."""
    generator = np.random.default_rng(seed)
    graph = nx.Graph(name="of a test")
    nodes = generator.permutation(80).tolist()
    graph.add_nodes_from((f"n{node}", {"colour": node}) for node in nodes)
    for u, v in generator.integers(0, 70, (240, 2)).tolist():
        attributes = {"weight": int(generator.integers(-3, 4))} if weighted and u % 7 else {}
        graph.add_edge(f"n{u}", f"n{v}", **attributes, label=u * v)
    return graph


@pytest.mark.filterwarnings("ignore:Note. conversions to backend graphs")
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("which", ["minimum", "maximum"])
def test_networkx(which: str, weighted: bool) -> None:
    graph = networkx_graph(int(weighted), weighted=weighted)
    edges = getattr(nx, f"{which}_spanning_edges")
    choices: list[dict[str, Any]] = [{}, {"data": False}, {"weight": "label"}, {"weight": None}]
    for options in choices:
        expected = list(edges(graph, **options))
        assert list(edges(graph, **options, backend="godwit")) == expected
    tree = getattr(nx, f"{which}_spanning_tree")
    expected_tree, found = tree(graph), tree(graph, backend="godwit")
    assert list(found.nodes(data=True)) == list(expected_tree.nodes(data=True))
    assert list(found.edges(data=True)) == list(expected_tree.edges(data=True))
    assert found.graph == graph.graph
    for node, attributes in found.nodes(data=True):  # its own, not the graph's
        assert attributes is not graph.nodes[node]


def test_networkx_runs_what_is_not_taken() -> None:
    graph = networkx_graph(1)
    wrong = graph.copy()
    wrong.add_edge("n1", "n2", weight=float("nan"))
    with nx.config(backend_priority={"algos": ["godwit"]}):
        assert list(nx.minimum_spanning_edges(graph, algorithm="prim"))
        assert list(nx.minimum_spanning_edges(nx.MultiGraph(graph)))
        with pytest.raises(ValueError, match="NaN found"):
            list(nx.minimum_spanning_edges(wrong))
        with pytest.raises(nx.NetworkXNotImplemented):
            nx.minimum_spanning_tree(nx.DiGraph(graph))


class TestCommand:
    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["spanning-forest", *arguments])

    def test_json_and_files(self, tmp_path: Path) -> None:
        roads = tmp_path / "roads.csv"
        roads.write_text("from,to,km\nUlm,Bonn,5\nBonn,Jena,3\nJena,Ulm,4\nBonn,Ulm,9\n")
        target = tmp_path / "forest.csv"
        reading = ["--columns", "from,to,km", "--undirected"]
        found = self.run(str(roads), *reading, "--json", "--verify", "-o", str(target))
        assert found.exit_code == 0, found.output
        facts = json.loads(found.stdout)
        assert (facts["edges"], facts["trees"], facts["total_weight"]) == (2, 1, 7)
        assert facts["verified"]
        lines = sorted(target.read_text().splitlines()[1:])
        assert lines == ['"Bonn","Jena",3', '"Jena","Ulm",4']
        found = self.run(str(roads), *reading, "--maximum", "-o", str(tmp_path / "forest.npy"))
        assert "2 edges, 1 tree, total weight 9" in found.stdout
        assert np.load(tmp_path / "forest.npy").shape == (2, 2)

    def test_directed_graphs_are_refused(self, tmp_path: Path) -> None:
        arcs = tmp_path / "arcs.txt"
        arcs.write_text("1 2\n2 3\n")
        found = self.run(str(arcs))
        assert found.exit_code == 2
        assert "--undirected" in str(found.output)


class TestArguments:
    def test_directed_graphs_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"directed: graph\.symmetrize\(\)"):
            gw.minimum_spanning_forest(Graph.from_edges([0], [1]))

    def test_nan_is_refused(self) -> None:
        graph = Graph.from_edges([0, 1], [1, 2], [1.0, np.nan], directed=False)
        with pytest.raises(InputError, match="the arc from 1 to 2 has weight nan"):
            gw.minimum_spanning_forest(graph)
        assert gw.minimum_spanning_forest(graph, weighted=False).edge_count == 2

    def test_several_cpus_are_refused(self) -> None:
        with pytest.raises(InputError, match="one device of the CPU"):
            gw.minimum_spanning_forest(named_graph("path"), devices=["cpu:0", "cpu:1"])

    def test_timeouts_and_progress(self) -> None:
        graph = generators.rmat(14, 16, seed=1).symmetrize()
        with pytest.raises(RunTimeoutError):
            gw.minimum_spanning_forest(graph, devices="cpu", timeout_s=1e-9)
        seen: list[int] = []
        gw.minimum_spanning_forest(graph, devices="cpu", progress=seen.append)
        assert seen == sorted(seen)


class TestVerifier:
    graph = Graph.from_edges([0, 1, 0, 3], [1, 2, 2, 4], [1, 2, 3, 4], directed=False)

    def arcs(self, *edges: tuple[int, int]) -> Array:
        sources = np.repeat(np.arange(5), np.diff(self.graph.offsets)).tolist()
        pairs = list(zip(sources, self.graph.targets.tolist(), strict=True))
        return np.array([pairs.index(edge) for edge in edges])

    def test_right(self) -> None:
        gw.verify_minimum_spanning_forest(self.graph, self.arcs((0, 1), (2, 1), (3, 4)))
        gw.verify_minimum_spanning_forest(self.graph, self.arcs((0, 2), (1, 2), (3, 4)), True)

    @pytest.mark.parametrize(
        ("edges", "message"),
        [
            ([(0, 1), (1, 2), (0, 2), (3, 4)], "between 0 and 2 of weight 3 closes a cycle"),
            ([(0, 1), (1, 0), (1, 2), (3, 4)], "closes a cycle"),
            ([(0, 1), (1, 2)], "between 3 and 4 of weight 4 joins trees"),
            ([(0, 1), (0, 2), (3, 4)], "between 1 and 2 of weight 2 joins trees"),
        ],
    )
    def test_wrong(self, edges: list[tuple[int, int]], message: str) -> None:
        with pytest.raises(VerificationError, match=message):
            gw.verify_minimum_spanning_forest(self.graph, self.arcs(*edges))

    def test_no_arc(self) -> None:
        with pytest.raises(VerificationError, match="arc 99 of 8 arcs"):
            gw.verify_minimum_spanning_forest(self.graph, np.array([99]))


class TestEmulated:
    """The kernels of GPUs, on emulated ones."""

    @each_graph
    def test_as_kruskal(self, name: str) -> None:
        with emulated_gpus(1):
            check(named_graph(name), "cuda")

    @pytest.mark.parametrize("dtype", _EXTREMES)
    def test_weights_of_any_spread(self, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for light in (0.4, 100):
            monkeypatch.setattr(cpu, "LIGHT_EDGES", light)
            with emulated_gpus(1, seed=2):
                check(graph_of_extremes(dtype), "cuda")

    @pytest.mark.parametrize("dtype", [np.int32, np.float64, np.uint32])
    def test_rows_of_all_lengths(self, dtype: Any) -> None:
        generator = np.random.default_rng(5)
        lengths = [700, 257, 90, 33, 32, 9, 4, 1]
        sources = np.repeat(generator.permutation(900)[: len(lengths)], lengths)
        targets = generator.integers(0, 900, len(sources))
        sources = np.append(sources, np.repeat([3, 899], 40))  # 80 parallel edges
        targets = np.append(targets, np.repeat([899, 3], 40))
        weights = generator.integers(0, 30, len(sources)).astype(dtype)
        with emulated_gpus(1, seed=1, checks=True):
            graph = Graph.from_edges(sources, targets, weights, directed=False)
            check(graph, "cuda")
            rows = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
            order = np.lexsort((-graph.targets, rows))  # rows that are not sorted
            assert graph.weights is not None
            unsorted = graph.targets[order], graph.weights[order]
            check(Graph(graph.offsets, *unsorted, directed=False), "cuda")

    @pytest.mark.parametrize("dtype", [np.int32, np.float64])
    def test_chains_longer_than_the_jumps_of_a_superstep(self, dtype: Any) -> None:
        """Each vertex of a path, or each pair of one, chooses the next: parents are a chain of all."""
        for lightest in (0, 1):
            weights = np.arange(600, 0, -1)
            weights[::2] *= 1 if lightest == 0 else -1
            for ordered in (weights, weights[::-1]):
                vertices = np.arange(601)
                path = Graph.from_edges(
                    vertices[:-1], vertices[1:], ordered.astype(dtype), directed=False
                )
                with emulated_gpus(1, seed=4):
                    check(path, "cuda")

    def test_first_of_several(self, small_parts: None) -> None:
        graph = generators.rmat(7, 6, seed=2).symmetrize().with_random_weights(1, 9)
        with emulated_gpus(2), gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
            for _ in range(2):
                result = gw.minimum_spanning_forest(placed)
                assert result.statistics.devices == ("cuda:0",)
                assert result.arcs.tolist() == kruskal(graph)

    def test_lists_grow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from godwit.algorithms.spanning_forest import cuda

        monkeypatch.setattr(cpu, "LIGHT_EDGES", 0.5)
        monkeypatch.setattr(cuda, "_ROOM", 0.01)
        monkeypatch.setattr(cuda, "_LEAST_PLACES", 1)
        graph = generators.rmat(7, 6, seed=2).symmetrize().with_random_weights(1, 9)
        with emulated_gpus(1), gw.place(graph, "cuda") as placed:
            for maximum in (False, True, False):
                result = gw.minimum_spanning_forest(placed, maximum)
                assert result.arcs.tolist() == kruskal(graph, maximum)

    def test_accesses_are_ordered(self, small_parts: None) -> None:
        graph = generators.rmat(6, 6, seed=3).symmetrize().with_random_weights(1, 9)
        for weighted in (graph, graph.with_weights(graph.weights.astype(np.float64))):  # type: ignore[union-attr]
            with emulated_gpus(1, seed=5, checks=True):
                check(weighted, "cuda", gpu=ExperimentOptions(slice_s=0))
