"""Closeness, harmonic centrality and eccentricity against NetworkX, in every way to search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms.distances import cpu
from godwit.algorithms.distances.cpu import CpuSearches
from godwit.algorithms.distances.query import DistanceSums
from godwit.algorithms.distances.sums import SumQuery, sum_distances
from godwit.algorithms.distances.verify import verify_sums
from godwit.cli.application import app
from godwit.errors import InputError, RunTimeoutError, ValueOverflowError, VerificationError
from godwit.graph.csr import Graph
from graphs import each_graph, graphs, named_graph
from references import CLOSE
from search_ways import WAYS, searching

each_way = pytest.mark.parametrize("way", WAYS)


def _check(found: Any, expected: dict[Any, float]) -> None:
    assert found.vertices == sorted(expected)
    values = [expected[vertex] for vertex in found.vertices]
    np.testing.assert_allclose(list(found.to_dict().values()), values, **CLOSE)


def _eccentricities(graph: Any, weight: str | None) -> dict[Any, float]:
    """NetworkX's, and infinity where it raises an exception."""
    lengths = nx.all_pairs_dijkstra_path_length(graph, weight=weight)
    return {v: max(row.values()) if len(row) == len(graph) else np.inf for v, row in lengths}


def _check_all(graph: Graph, vertices: list[int] | None, sources: list[int] | None) -> None:
    """All functions, of all or of some vertices, are NetworkX's."""
    other = graph.to_networkx()
    for weighted in {False, graph.is_weighted}:
        weight = "weight" if weighted else None
        asked = list(other) if vertices is None else vertices
        for wf_improved in (False, True):
            closeness = nx.closeness_centrality(other, distance=weight, wf_improved=wf_improved)
            found = gw.closeness_centrality(
                graph, vertices, weighted=weighted, wf_improved=wf_improved, devices="cpu"
            )
            _check(found, {vertex: closeness[vertex] for vertex in asked})
        harmonic = nx.harmonic_centrality(other, nbunch=asked, distance=weight, sources=sources)
        found = gw.harmonic_centrality(
            graph, vertices, sources=sources, weighted=weighted, devices="cpu"
        )
        _check(found, harmonic)
        farthest = _eccentricities(other, weight)
        found = gw.eccentricity(graph, vertices, weighted=weighted, devices="cpu")
        _check(found, {vertex: farthest[vertex] for vertex in asked})


@each_way
@each_graph
def test_the_zoo_as_networkx(name: str, way: str) -> None:
    graph = named_graph(name)
    few = list(range(0, graph.vertex_count, 50))
    with searching(way):
        _check_all(graph, None, None)
        _check_all(graph, few, few[::2])


@each_way
@given(graphs(), st.data())
def test_any_graph_as_networkx(way: str, graph: Graph, data: st.DataObject) -> None:
    some = st.none() | st.sets(st.integers(0, max(0, graph.vertex_count - 1))).map(sorted)
    vertices, sources = (data.draw(some) for _ in range(2)) if graph.vertex_count else (None, None)
    with searching(way):
        _check_all(graph, vertices, sources)


def _sums(graph: Graph, *, some: bool, weighted: bool = False) -> DistanceSums:
    vertices = np.arange(0, graph.vertex_count, 40) if some else None
    return sum_distances(SumQuery(graph, vertices, None, weighted, outward=True), CpuSearches())


@pytest.mark.parametrize("spec", ["rmat:10,seed=2", "road:40x40,seed=2", "caterpillar:500x3"])
def test_sums_are_bitwise_the_same_in_every_way(spec: str) -> None:
    graph = gw.generate(spec)
    with searching("in bits"):
        known = _sums(graph, some=False)
    for way in WAYS:
        for some in (False, True):
            with searching(way):
                found = _sums(graph, some=some)
            step = 40 if some else 1
            for name in ("count", "total", "largest", "reciprocal"):
                np.testing.assert_array_equal(getattr(found, name), getattr(known, name)[::step])


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_sums_do_not_depend_on_threads(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gw.generators.road(40, 40, seed=1)
    weights = gw.generators.road(40, 40, seed=1).with_random_weights(1.0, 9.0, seed=1).weights
    graph = graph.with_weights((weights * 10).astype(dtype))
    monkeypatch.setattr(cpu, "_ALONE_WORK", 0)
    known = None
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("GODWIT_THREADS", threads)
        found = gw.harmonic_centrality(graph).centrality
        known = found if known is None else known
        np.testing.assert_array_equal(found, known)


def test_totals_beyond_64_bits() -> None:
    """Ten vertices at distances up to 2^62: their sum is rounded once."""
    lengths = [2**62 - 1 - 3**k for k in range(10)]
    graph = Graph.from_edges(np.zeros(10, int), np.arange(1, 11), lengths)
    found = gw.closeness_centrality(graph.reverse, wf_improved=False)
    assert found.to_dict()[0] == 10 / sum(lengths)
    assert gw.eccentricity(graph, 0).to_dict() == {0: float(max(lengths))}
    with pytest.raises(ValueOverflowError):
        gw.eccentricity(Graph.from_edges([0, 1], [1, 2], [2**62, 2**62]), 0)


def test_reciprocals_are_exact() -> None:
    """Of a path: harmonic numbers, to the last bit of a float64 or the one before."""
    from fractions import Fraction

    n = 2000
    found = gw.harmonic_centrality(gw.generators.path(n)).centrality
    exact = [Fraction(0)]
    for d in range(1, n):
        exact.append(exact[-1] + Fraction(1, d))
    wanted = [float(exact[v] + exact[n - 1 - v]) for v in range(n)]
    np.testing.assert_allclose(found, wanted, rtol=3e-16)


def test_results() -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], ids=["a", "b", "c", "d"], directed=False)
    found = gw.closeness_centrality(graph)
    assert [vertex for vertex, _ in found.highest(2)] == ["b", "c"]
    assert found.to_arrow().column_names == ["vertex", "centrality"]
    assert found.statistics.processed_items.tolist() == [16]
    assert "4 vertices" in repr(found)
    some = gw.eccentricity(graph, ["d", "b", "d"])
    assert some.vertices == ["b", "d"]
    assert some.eccentricity.tolist() == [2, 3]
    assert some.highest(1) == [("d", 3)]
    assert some.to_frame().to_numpy().tolist() == [["b", 2], ["d", 3]]
    assert gw.harmonic_centrality(graph, "b", sources=["b", "d"]).to_dict() == {"b": 0.5}
    assert gw.harmonic_centrality(graph, []).to_dict() == {}
    assert gw.harmonic_centrality(graph, sources=[]).centrality.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "function", [gw.closeness_centrality, gw.harmonic_centrality, gw.eccentricity]
)
def test_graphs_that_are_placed_empty_or_single(function: Any) -> None:
    graph = gw.generators.watts_strogatz(200, seed=1)
    with gw.place(graph, "cpu") as placed:
        assert function(placed).to_dict() == function(graph).to_dict()
    assert function(Graph.from_edges([], [])).to_dict() == {}
    assert function(Graph.from_edges([], [], vertex_count=1)).to_dict() == {0: 0}


@pytest.mark.parametrize(
    "function", [gw.closeness_centrality, gw.harmonic_centrality, gw.eccentricity]
)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"vertices": [0, 5]}, r"in \[0, 5\), got 5"),
        ({"vertices": [[1], [2, 3]]}, "vertices must be a vertex or a list"),
        ({"weighted": True}, "needs a graph with weights"),
        ({"devices": ["cpu:0", "cpu:1"]}, "runs on one device of the CPU"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"results": "gpu"}, "results"),
    ],
)
def test_wrong_arguments(function: Any, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        function(gw.generators.path(5), **arguments)


def test_other_wrong_arguments() -> None:
    path = gw.generators.path(5)
    with pytest.raises(InputError, match="wf_improved"):
        gw.closeness_centrality(path, wf_improved=1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="sources"):
        gw.harmonic_centrality(path, sources=[7])
    with pytest.raises(InputError, match="not negative"):
        gw.closeness_centrality(path.with_weights(np.full(path.arc_count, -1)))


def test_timeout_and_progress() -> None:
    with pytest.raises(RunTimeoutError):
        gw.closeness_centrality(gw.generators.rmat(16, 8, seed=1), timeout_s=0.03)
    graph = gw.generators.rmat(13, 8, seed=1)
    begun: list[Any] = []
    gw.eccentricity(graph, progress=begun.append)
    assert begun == sorted(begun)
    assert all(0 <= count <= graph.vertex_count == count.total for count in begun)


def test_a_wrong_value_is_found() -> None:
    found = gw.eccentricity(gw.generators.path(5))
    found.eccentricity[2] = 3
    with pytest.raises(VerificationError, match=r"the eccentricity of vertex 2 is 2.0, got 3.0"):
        verify_sums(found, lambda distance: float(distance.max()), weighted=False, outward=True)


class TestCommands:
    def run(self, *arguments: object, status: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == status, result.output
        return result

    @pytest.mark.parametrize(
        ("command", "function", "name"),
        [
            ("closeness", gw.closeness_centrality, "centrality"),
            ("harmonic", gw.harmonic_centrality, "centrality"),
            ("eccentricity", gw.eccentricity, "eccentricity"),
        ],
    )
    def test_answer_as_the_functions(
        self, command: str, function: Any, name: str, tmp_path: Path
    ) -> None:
        file, spec = tmp_path / "values.npy", "road:12x12,weights=1..9,seed=3"
        graph = gw.generate(spec).largest_component()
        gw.write(graph, tmp_path / "graph.godwit")
        given = tmp_path / "graph.godwit"
        out = self.run(command, given, "-o", file, "--json", "--verify").stdout
        expected = function(graph)
        np.testing.assert_array_equal(np.load(file), list(expected.to_dict().values()))
        top = json.loads(out)["top"]
        assert [tuple(row.values()) for row in top] == expected.highest(10)
        assert top[0][name] == max(expected.to_dict().values())
        some = self.run(
            command, given, "-v", 142, "-v", 4, "--ignore-weights", "-o", "-", "--verify"
        )
        values = function(graph, [4, 142], weighted=False).to_dict()
        rows = [line.split(",") for line in some.stdout.split()]
        assert rows[0] == ["vertex", name]
        assert {int(vertex): float(value) for vertex, value in rows[1:]} == values
        assert "by weights" in self.run(command, given).stdout

    def test_unconnected_graphs_verify(self) -> None:
        for command in ("closeness", "harmonic", "eccentricity"):
            self.run(command, "rmat:7,seed=1", "--verify", "--json")
