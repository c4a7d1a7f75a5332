"""Betweenness against NetworkX and against exact fractions: definition, scales, order, overflow, errors."""

from __future__ import annotations

import json
import re
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
from godwit.algorithms import betweenness
from godwit.algorithms.betweenness import cpu as brandes
from godwit.algorithms.betweenness.cpu import sum_dependencies
from godwit.cli.application import app
from godwit.errors import GraphTooLargeError, InputError, RunTimeoutError
from godwit.graph.csr import Graph
from graphs import ZOO, arcs_of, forced_threads, graphs, named_graph
from references import CLOSE, assert_networkx_agrees


def _simple(graph: Graph) -> Graph:
    return graph.without_weights().merge_parallel_arcs().remove_self_loops()


def _networkx(graph: Graph) -> Any:
    made = nx.DiGraph() if graph.directed else nx.Graph()
    made.add_nodes_from(range(graph.vertex_count))
    made.add_edges_from((u, v) for u, v, *_ in arcs_of(graph))
    return made


def _check(graph: Graph, k: int | None, seed: int, normalized: bool, endpoints: bool) -> None:
    """Equal to NetworkX's for vertices and arcs."""
    graph = _simple(graph)
    found = gw.betweenness_centrality(
        graph, samples=k, seed=seed, normalized=normalized, endpoints=endpoints, edges=True,
        devices="cpu",
    )  # fmt: skip
    other = _networkx(graph)
    assert_networkx_agrees(found, other, endpoints=endpoints, k=k, seed=seed, normalized=normalized)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_as_networkx(name: str, normalized: bool) -> None:
    graph = named_graph(name)
    _check(graph, None, 0, normalized, endpoints=normalized)
    if graph.vertex_count:
        _check(graph, max(1, graph.vertex_count // 3), 1, normalized, endpoints=not normalized)


@given(graphs(weighted=False), st.booleans(), st.booleans(), st.data())
def test_any_graph_as_networkx(
    graph: Graph, normalized: bool, endpoints: bool, data: st.DataObject
) -> None:
    _check(graph, None, 0, normalized, endpoints)
    if graph.vertex_count:
        k = data.draw(st.integers(1, graph.vertex_count))
        _check(graph, k, data.draw(st.integers(0, 5)), normalized, endpoints)


def _paths_from(rows: list[list[int]], source: int) -> tuple[dict[int, int], dict[int, int]]:
    """Distances and exact numbers of shortest paths, parallel arcs counted each."""
    distance, count, level = {source: 0}, {source: 1}, [source]
    while level:
        reached: dict[int, int] = {}
        for v in level:
            for u in rows[v]:
                if u not in distance:
                    reached[u] = reached.get(u, 0) + count[v]
        count |= reached
        distance |= dict.fromkeys(reached, distance[level[0]] + 1)
        level = list(reached)
    return distance, count


def _exact(graph: Graph, sources: list[int]) -> tuple[list[Fraction], list[Fraction]]:
    """Sums over pairs (s, t), s a source, of the parts of the paths through each vertex and arc."""
    n = graph.vertex_count
    arcs = [(u, v) for u, v, *_ in arcs_of(graph)]
    rows: list[list[int]] = [[] for _ in range(n)]
    for u, v in arcs:
        rows[u].append(v)
    from_all = [_paths_from(rows, s) for s in range(n)]
    vertices, by_arc = [Fraction(0)] * n, [Fraction(0)] * len(arcs)
    for s in sources:
        distance, count = from_all[s]
        for t in distance:
            for v in distance:
                onward, further = from_all[v]
                if v not in (s, t) and t in onward and distance[v] + onward[t] == distance[t]:
                    vertices[v] += Fraction(count[v] * further[t], count[t])
            for a, (u, v) in enumerate(arcs):
                onward, further = from_all[v]
                if u in distance and t in onward and distance[u] + 1 + onward[t] == distance[t]:
                    by_arc[a] += Fraction(count[u] * further[t], count[t])
    return vertices, by_arc


@given(graphs(max_vertices=10, max_arcs=30, weighted=False, min_vertices=1), st.data())
@pytest.mark.parametrize("wide", [False, True])
def test_parallel_arcs_are_paths_of_their_own(
    wide: bool, graph: Graph, data: st.DataObject
) -> None:
    """Exactly, and with both kinds of counts."""
    vertex = st.integers(0, graph.vertex_count - 1)
    sources = sorted(data.draw(st.sets(vertex, min_size=1)))
    with pytest.MonkeyPatch.context() as patch:
        if wide:
            run = brandes._run
            patch.setattr(brandes, "_run", lambda *a: run(*a) if a[5] else None)
        found = sum_dependencies(graph, np.array(sources), endpoints=False, edges=True)
    vertices, arcs = _exact(graph, sources)
    np.testing.assert_allclose(found.vertices, [float(x) for x in vertices], **CLOSE)
    np.testing.assert_allclose(found.arcs, [float(x) for x in arcs], **CLOSE)


def test_edges_of_parallel_and_unsorted_rows() -> None:
    """Both arcs of an edge have one value, wherever they lie in their rows."""
    graph = Graph([0, 3, 6, 8, 9], [2, 1, 1, 0, 3, 0, 0, 2, 1], directed=False)
    found = gw.betweenness_centrality(graph, edges=True, sources=[0, 3], normalized=False)
    _, exact = _exact(graph, [0, 3])
    share = {(u, v): float(x) for (u, v, *_), x in zip(arcs_of(graph), exact, strict=True)}
    # Scaled by n / (2 k), which is 1 here.
    wanted = [share[u, v] + share[v, u] if u != v else 0 for u, v, *_ in arcs_of(graph)]
    np.testing.assert_allclose(found.edge_centrality, wanted, **CLOSE)


def _random(directed: bool) -> Graph:
    ends = np.random.default_rng(4).integers(0, 30, (2, 70))
    return Graph.from_edges(*ends, vertex_count=30, directed=directed)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("endpoints", [False, True])
def test_plain_sums_are_those_of_brandes(directed: bool, endpoints: bool) -> None:
    graph = _random(directed)
    sources = [3, 7, 8, 20]
    vertices, arcs = _exact(graph, sources)
    found = gw.betweenness_centrality(
        graph, sources=sources, scale="sum", endpoints=endpoints, edges=True, devices="cpu"
    )
    if not endpoints:
        np.testing.assert_allclose(found.centrality, [float(x) for x in vertices], **CLOSE)
    if directed:
        np.testing.assert_allclose(found.edge_centrality, [float(x) for x in arcs], **CLOSE)
    gw.verify_betweenness_centrality(
        graph, found.centrality, found.edge_centrality, sources=sources, scale="sum",
        endpoints=endpoints,
    )  # fmt: skip


@pytest.mark.parametrize("directed", [False, True])
def test_plain_sums_as_networkx_subset(directed: bool) -> None:
    graph = _simple(_random(directed))
    other, sources = _networkx(graph), [3, 7, 8, 20]
    found = gw.betweenness_centrality(
        graph, sources=sources, scale="sum", edges=True, devices="cpu"
    )
    halves = 1 if directed else 2  # NetworkX counts undirected pairs once
    expected = nx.betweenness_centrality_subset(other, sources, list(other), normalized=False)
    for vertex, value in found.to_dict().items():
        assert value == pytest.approx(halves * expected[vertex])
    of_edges = nx.edge_betweenness_centrality_subset(other, sources, list(other))
    for edge, value in found.edges_to_dict().items():
        at = edge if edge in of_edges else edge[::-1]
        assert value == pytest.approx(halves * of_edges[at])


def _chain(diamonds: int, *, copies: int, tail: bool) -> Graph:
    """Diamonds in a row, ``copies`` parallel ways through each; perhaps a plain path beside them."""
    sources, targets, at = [], [], 0
    for _ in range(diamonds):
        middle = np.arange(at + 1, at + 1 + copies)
        sources += [at] * copies + middle.tolist()
        targets += [*middle.tolist(), *[at + copies + 1] * copies]
        at += copies + 1
    n = at + 1
    if tail:  # of the same length, and joined at the end
        path = [0, *range(n, n + 2 * diamonds), at]
        sources += path[:-1]
        targets += path[1:]
    return Graph.from_edges(sources, targets, directed=False)


@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize("edges", [False, True])
def test_more_paths_than_a_double_holds(tail: bool, edges: bool) -> None:
    """2^1200 paths through a chain of diamonds; half of them through either side of the last."""
    diamonds = 1200
    graph = _chain(diamonds, copies=2, tail=tail)
    end = 3 * diamonds
    sources = np.array([0, end])
    found = sum_dependencies(graph, sources, endpoints=False, edges=edges)
    assert np.isfinite(found.vertices).all()
    if not tail:
        joints = np.arange(diamonds + 1) * 3
        behind = end - joints[1:-1]  # vertices behind a joint, seen from 0; the rest from the end
        np.testing.assert_allclose(found.vertices[joints[1:-1]], behind + joints[1:-1], rtol=1e-9)
        sides = joints[:-1] + 1
        wanted = (end - joints[:-1] - 2) / 2 + (joints[:-1] + 1) / 2
        np.testing.assert_allclose(found.vertices[sides], wanted, rtol=1e-9)
        np.testing.assert_array_equal(found.vertices[sides], found.vertices[sides + 1])
    else:
        # The plain path has one way against 2^1200, yet all to its own vertices.
        own = found.vertices[end + 1 :]
        assert len(own) == 2 * diamonds
        assert own.min() >= 1
        assert own.max() < 2 * len(own)
    if edges:
        assert found.arcs is not None
        assert np.isfinite(found.arcs).all()
        # Of every source all paths to all others start with an arc of its own.
        for s in (0, end):
            row = found.arcs[graph.offsets[s] : graph.offsets[s + 1]]
            assert row.sum() == pytest.approx(graph.vertex_count - 1)


def test_wide_counts_equal_exact_ones() -> None:
    """Counts that differ by many powers of 2^256 meet in one vertex; Python's integers know better."""
    graph = _chain(300, copies=11, tail=True)  # 11^300 > 2^1000
    sources = [0, 12, 1800, graph.vertex_count - 1]
    found = sum_dependencies(graph, np.array(sources), endpoints=False, edges=False)
    wanted = np.zeros(graph.vertex_count)
    rows = [
        graph.targets[graph.offsets[v] : graph.offsets[v + 1]].tolist()
        for v in range(graph.vertex_count)
    ]
    for s in sources:
        distance, count = _paths_from(rows, s)
        dependency = dict.fromkeys(distance, 0.0)
        for v in sorted(distance, key=lambda v: -distance[v]):
            for u in rows[v]:
                if distance[u] == distance[v] + 1:
                    dependency[v] += float(Fraction(count[v], count[u])) * (1 + dependency[u])
            if v != s:
                wanted[v] += dependency[v]
    np.testing.assert_allclose(found.vertices, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("spec", ["rmat:12,seed=2", "road:60x60,seed=2", "star:20000"])
def test_bitwise_the_same_for_any_number_of_threads(spec: str, edges: bool) -> None:
    graph = gw.generate(spec)
    sources = np.arange(0, graph.vertex_count, max(1, graph.vertex_count // 97))
    one = sum_dependencies(graph, sources, endpoints=True, edges=edges, threads=1)
    for threads in (2, 3, 7):
        other = sum_dependencies(graph, sources, endpoints=True, edges=edges, threads=threads)
        np.testing.assert_array_equal(one.vertices, other.vertices)
        if edges:
            np.testing.assert_array_equal(one.arcs, other.arcs)
        assert one.vertices_visited == other.vertices_visited
        assert one.arcs_examined == other.arcs_examined


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_small_searches_among_large_ones(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources that reach little take all blocks at once, others block after block."""
    monkeypatch.setattr(brandes, "_ALONE_WORK", 0)
    large = gw.generators.watts_strogatz(40_000, seed=3)
    offsets = np.concatenate([large.offsets, large.offsets[-1] + np.arange(1, 3)])
    small = np.array([40_001, 40_000])
    graph = Graph(offsets, np.concatenate([large.targets, small]), directed=False)
    sources = np.array([0, 40_000, 40_001, 777, 40_000, 39_999])
    found = sum_dependencies(graph, sources, endpoints=True, edges=False, threads=threads)
    assert found.vertices[40_000] == 3
    assert found.vertices[40_001] == 3
    alone = sum_dependencies(large, sources[[0, 3, 5]], endpoints=True, edges=False, threads=1)
    np.testing.assert_array_equal(found.vertices[:40_000], alone.vertices)


def test_overflow_ends_the_others_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brandes, "_ALONE_WORK", 0)
    graph = _chain(1000, copies=3, tail=True)
    sources = np.arange(0, graph.vertex_count, 100)
    one = sum_dependencies(graph, sources, endpoints=False, edges=True, threads=1)
    four = sum_dependencies(graph, sources, endpoints=False, edges=True, threads=4)
    np.testing.assert_array_equal(one.vertices, four.vertices)
    np.testing.assert_array_equal(one.arcs, four.arcs)
    assert np.isfinite(one.vertices).all()


def test_results() -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], ids=["a", "b", "c", "d"])
    found = gw.betweenness_centrality(graph, normalized=False)
    assert found.to_dict() == {"a": 0.0, "b": 2.0, "c": 2.0, "d": 0.0}
    table = found.to_arrow()
    assert table.column_names == ["vertex", "centrality"]
    assert table["vertex"].to_pylist() == ["a", "b", "c", "d"]
    assert found.to_frame()["centrality"].tolist() == [0, 2, 2, 0]
    assert [vertex for vertex, _ in found.highest(3)] == ["b", "c", "a"]
    assert found.sources == ["a", "b", "c", "d"]
    assert found.statistics.solver == "brandes"
    assert found.statistics.processed_items.tolist() == [4 + 3 + 2 + 1]
    assert found.statistics.arcs_relaxed.tolist() == [3 + 2 + 1]
    assert "4 vertices" in repr(found)
    with pytest.raises(InputError, match="edges=True"):
        _ = found.edge_centrality
    assert gw.betweenness_centrality(graph, sources=["b", "b"]).sources == ["b"]


@pytest.mark.parametrize("directed", [True, False])
def test_edges_by_their_ids_as_networkx(directed: bool) -> None:
    pairs = [("Ulm", "Bonn"), ("Bonn", "Jena"), ("Jena", "Ulm"), ("Jena", "Kiel"), ("Kiel", "Kiel")]
    known = (nx.DiGraph if directed else nx.Graph)(pairs)
    found = gw.betweenness_centrality(gw.Graph.from_networkx(known), edges=True)
    by_ids = found.edges_to_dict()
    assert len(by_ids) == len(pairs)
    for edge, value in nx.edge_betweenness_centrality(known).items():
        mine = by_ids[edge] if directed or edge in by_ids else by_ids[edge[::-1]]
        assert mine == pytest.approx(value)
    table = found.edges_to_frame()
    assert table.columns.tolist() == ["source", "target", "centrality"]
    assert table["centrality"].tolist() == list(by_ids.values())
    empty = gw.betweenness_centrality(Graph.from_edges([], [], vertex_count=2), edges=True)
    assert empty.edges_to_arrow().column_names == ["source", "target", "centrality"]
    assert empty.edges_to_dict() == {}
    with pytest.raises(InputError, match="edges=True"):
        gw.betweenness_centrality(gw.generators.path(3)).edges_to_arrow()


def test_one_source_is_no_nan() -> None:
    found = gw.betweenness_centrality(gw.generators.path(5), sources=2)
    assert found.centrality[2] == 0
    assert np.isfinite(found.centrality).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"samples": 6}, "number of vertices, 5, got 6"),
        ({"samples": 0}, "at least 1, got 0"),
        ({"samples": 2.5}, "samples"),
        ({"samples": 2, "seed": "x"}, "seed"),
        ({"samples": 5, "seed": -1}, "seed must not be negative, got -1"),
        ({"seed": "x"}, "seed must be an integer, got 'x'"),
        ({"sources": [1], "seed": -1}, "seed must not be negative, got -1"),
        ({"sources": [0, 5]}, r"in \[0, 5\), got 5"),
        ({"sources": -1}, "got -1"),
        ({"sources": []}, "non-empty"),
        ({"sources": [[1], [2, 3]]}, "non-empty list of vertices"),
        ({"sources": [1], "samples": 1}, "not both"),
        ({"weighted": True}, "needs a graph with weights"),
        ({"weighted": "no"}, "weighted"),
        ({"normalized": 1}, "normalized"),
        ({"scale": "none"}, "scale must be 'all' or 'sum', got 'none'"),
        ({"scale": None}, "scale must be"),
        ({"endpoints": None}, "endpoints"),
        ({"edges": "yes"}, "edges"),
        ({"devices": ["cpu:0", "cpu:1"]}, "betweenness runs on one device of the CPU, or on GPUs"),
        ({"results": "gpu"}, "results"),
        ({"timeout_s": 0}, "timeout_s"),
    ],
)
def test_wrong_arguments(
    arguments: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*arguments: Any, **more: Any) -> None:
        raise AssertionError("it was started")

    monkeypatch.setattr(betweenness, "sum_dependencies", started)
    with pytest.raises(InputError, match=words):
        gw.betweenness_centrality(gw.generators.path(5), **arguments)


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gw.generators.path(50_000)
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "100000")
    with pytest.raises(GraphTooLargeError, match="betweenness"):
        gw.betweenness_centrality(graph, samples=1)


def test_fewer_threads_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gw.generators.path(10_000)
    with forced_threads(8):
        assert brandes._affordable_threads(graph, False, False, None) == 8
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", "1200000")
        assert 1 < brandes._affordable_threads(graph, False, False, None) < 8


def test_timeout_and_progress() -> None:
    graph = gw.generators.road(200, 200, seed=1)
    with pytest.raises(RunTimeoutError):
        gw.betweenness_centrality(graph, timeout_s=0.05)
    begun: list[int] = []
    gw.betweenness_centrality(graph, samples=200, progress=begun.append)
    assert begun == sorted(begun)
    assert all(0 <= count <= 200 for count in begun)


class TestCommand:
    def run(self, *arguments: object, status: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == status, result.output
        return result

    def test_answers_as_the_function(self, tmp_path: Path) -> None:
        file = tmp_path / "centrality.npy"
        spec = "watts-strogatz:200,seed=4"
        out = self.run("betweenness", spec, "-k", 20, "--seed", 7, "-o", file, "--json").stdout
        expected = gw.betweenness_centrality(gw.generate(spec), samples=20, seed=7)
        np.testing.assert_array_equal(np.load(file), expected.centrality)
        found = json.loads(out)
        assert found["sources"] == 20
        assert [tuple(row.values()) for row in found["top"]] == expected.highest(10)
        shown = self.run("betweenness", "star:9", "--unnormalized", "--top", 1).stdout
        assert "The highest centralities" in shown
        assert "28" in shown
        both = self.run("betweenness", "star:9", "--top", 1, "-o", file).stdout
        assert "The highest centralities" in both

    def test_sources_as_the_file_names_them(self, tmp_path: Path) -> None:
        file = tmp_path / "path.csv"
        file.write_text("source,target\nUlm,Bonn\nBonn,Jena\nJena,Kiel\n")
        out = self.run(
            "betweenness", file, "-s", "Ulm", "-s", "Bonn", "--unnormalized", "--json"
        ).stdout
        graph = Graph.from_edges([0, 1, 2], [1, 2, 3])
        expected = gw.betweenness_centrality(graph, sources=[0, 1], normalized=False)
        found = {row["vertex"]: row["centrality"] for row in json.loads(out)["top"]}
        names = ["Ulm", "Bonn", "Jena", "Kiel"]
        assert found == dict(zip(names, expected.centrality.tolist(), strict=True))

    def test_edges_once_each_as_the_file_names_them(self, tmp_path: Path) -> None:
        file = tmp_path / "path.csv"
        file.write_text("source,target\nUlm,Bonn\nBonn,Jena\nJena,Kiel\n")
        line = ["betweenness", file, "--undirected", "--edges", "--unnormalized"]
        found = json.loads(self.run(*line, "--json", "--top", 2).stdout)
        assert found["edges"] is True
        assert found["top"] == [
            {"source": "Bonn", "target": "Jena", "centrality": 4.0},
            {"source": "Bonn", "target": "Ulm", "centrality": 3.0},
        ]
        shown = self.run(*line).stdout
        assert re.search(r"source +target +centrality\n", shown)
        assert re.search(r"Jena +Kiel +3\n", shown)
        assert self.run(*line, "-o", "-").stdout == (
            'source,target,centrality\n"Bonn","Jena",4\n"Bonn","Ulm",3\n"Jena","Kiel",3\n'
        )

    @pytest.mark.parametrize("options", [(), ("--undirected",)])
    def test_files_of_edges(self, options: tuple[str, ...], tmp_path: Path) -> None:
        import pyarrow.parquet

        edges = tmp_path / "graph.csv"
        edges.write_text("source,target\n1,2\n2,3\n3,1\n3,4\n4,9\n2,4\n")
        graph = gw.read(edges)
        graph = graph.symmetrize() if options else graph
        result = gw.betweenness_centrality(graph, edges=True)
        line = ["betweenness", edges, *options, "--edges"]
        array, table = tmp_path / "arcs.npy", tmp_path / "edges.parquet"
        self.run(*line, "-o", array)
        np.testing.assert_array_equal(np.load(array), result.edge_centrality)
        self.run(*line, "-o", table)
        tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
        wanted = {
            (graph.ids[u], graph.ids[v]): value
            for u, v, value in zip(tails, graph.targets, result.edge_centrality, strict=True)
            if graph.directed or u <= v
        }
        found = pyarrow.parquet.read_table(table)
        assert found.column_names == ["source", "target", "centrality"]
        assert len(found) == 6
        rows = [tuple(row.values()) for row in found.to_pylist()]
        assert {(u, v): value for u, v, value in rows} == wanted

    def test_a_loop_is_an_edge(self, tmp_path: Path) -> None:
        file = tmp_path / "loop.csv"
        file.write_text("source,target\n0,1\n1,1\n")
        line = ["betweenness", file, "--undirected", "--edges", "--unnormalized", "--json"]
        top = json.loads(self.run(*line).stdout)["top"]
        assert [tuple(row.values()) for row in top] == [(0, 1, 1.0), (1, 1, 0.0)]

    @pytest.mark.parametrize("count", [0, 1])
    def test_no_edges(self, count: int, tmp_path: Path) -> None:
        graph, file = tmp_path / "graph.mtx", tmp_path / "edges.csv"
        head = "%%MatrixMarket matrix coordinate pattern general"
        graph.write_text(f"{head}\n{count} {count} 0\n")
        out = self.run("betweenness", graph, "--edges", "-o", file, "--json").stdout
        assert json.loads(out)["top"] == []
        assert file.read_text() == "source,target,centrality\n"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("--edges", "--endpoints"), "leave out --edges"),
            (("-k", 3, "-s", 1), "not both"),
            (("-k", 0), "samples"),
            (("-k", 10), "number of vertices, 9, got 10"),
            (("-s", 9), "source"),
            (("--devices", "cpu:0,cpu:0"), "one device"),
            (("--top", -1), "top"),
        ],
    )
    def test_wrong_arguments(self, arguments: tuple[object, ...], words: str) -> None:
        assert words in self.run("betweenness", "star:9", *arguments, status=2).stderr
