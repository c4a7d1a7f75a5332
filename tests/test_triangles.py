"""Triangles and clustering: NetworkX's numbers, on any devices and for any threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms.triangles import rows, verify
from godwit.cli.application import app
from godwit.dtypes import Array
from godwit.errors import InputError, RunTimeoutError, VerificationError
from godwit.graph.csr import Graph
from graphs import forced_threads, graphs
from references import CLOSE


@pytest.fixture(params=["own order", "order by degree"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let graphs keep their order, however many steps that makes, or never."""
    steps = 0 if request.param == "order by degree" else 1 << 40
    monkeypatch.setattr(rows, "_OWN_STEPS", steps)


def simple_networkx(graph: Graph, *, directed: bool) -> Any:
    """Return NetworkX's graph without weights: one edge for any number of arcs."""
    made: Any = nx.DiGraph() if directed else nx.Graph()
    made.add_nodes_from(range(graph.vertex_count))
    sources, targets, _ = graph.with_ids(0).to_edges()
    made.add_edges_from(zip(sources.tolist(), targets.tolist(), strict=True))
    return made


def in_order(values: dict[int, float]) -> list[float]:
    """Return the values of vertices 0 to n - 1."""
    return [values[v] for v in range(len(values))]


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("threads", [1, 3])
@given(graph=graphs())
def test_any_graph(threads: int, graph: Graph) -> None:
    undirected = simple_networkx(graph, directed=False)
    with forced_threads(threads):
        found = gw.triangles(graph, devices="cpu")
        coefficients = gw.clustering(graph, weighted=False, devices="cpu")
        share = gw.transitivity(graph, devices="cpu")
        average = gw.average_clustering(graph, weighted=False, devices="cpu")
        positive = gw.average_clustering(graph, weighted=False, count_zeros=False, devices="cpu")
    assert found.triangles.tolist() == in_order(nx.triangles(undirected))
    assert found.total == sum(found.triangles.tolist()) // 3
    assert share == nx.transitivity(undirected)
    expected = nx.clustering(simple_networkx(graph, directed=graph.directed))
    assert coefficients.clustering.tolist() == in_order(expected)
    above = [value for value in expected.values() if value > 0]
    np.testing.assert_allclose(average, np.mean(in_order(expected)) if expected else 0, **CLOSE)
    np.testing.assert_allclose(positive, np.mean(above) if above else 0, **CLOSE)
    assert verify.verify_triangles(graph, found) == graph.vertex_count
    assert verify.verify_clustering(graph, coefficients, weighted=False) == graph.vertex_count


@pytest.mark.usefixtures("order")
@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11), st.integers(-3, 60)), max_size=70),
    st.booleans(),
)
def test_weights(n: int, edges: list[tuple[int, int, int]], directed: bool) -> None:
    made: Any = nx.DiGraph() if directed else nx.Graph()
    made.add_nodes_from(range(n))
    made.add_weighted_edges_from((u % n, v % n, weight / 4) for u, v, weight in edges)
    graph = Graph.from_networkx(made)
    largest = max((weight for *_, weight in made.edges(data="weight")), default=1)
    if largest <= 0:
        with pytest.raises(InputError, match="largest, which must be positive"):
            gw.clustering(graph, weighted=True, devices="cpu")
        return
    found = gw.clustering(graph, devices="cpu")
    weight = "weight" if graph.is_weighted else None
    np.testing.assert_allclose(
        found.clustering, in_order(nx.clustering(made, weight=weight)), **CLOSE
    )
    verify.verify_clustering(graph, found)


def zoo() -> dict[str, Graph]:
    """Graphs with rows for blocks and for warps, many triangles, and none."""
    both = np.concatenate([np.zeros(700, int), np.arange(1, 701)])
    return {
        "rmat": gw.generators.rmat(9, 8, weights=(1, 64), seed=2),
        "road": gw.generators.road(12, 17, weights=(1, 9), seed=4),
        "wheel": Graph.from_edges(both, np.roll(both, 700) % 701, np.arange(1400) % 7 + 1),
        "complete": gw.generators.complete(70),
        "directed": Graph.from_edges(*np.random.default_rng(3).integers(0, 300, (2, 4000))),
        "communities": gw.generators.watts_strogatz(500, seed=1).with_random_weights(
            0.5, 9.0, seed=1
        ),
        "two vertices": Graph.from_edges([0], [1], vertex_count=3),
    }


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("name", zoo())
def test_threads_agree(name: str) -> None:
    graph = zoo()[name]
    found = gw.triangles(graph, devices="cpu")
    with forced_threads(4):
        again = gw.triangles(gw.Graph(*graph.rows, directed=graph.directed), devices="cpu")
    np.testing.assert_array_equal(found.triangles, again.triangles)
    assert found.triangles.dtype == np.int64
    verify.verify_triangles(graph, found)
    if graph.is_weighted and graph.directed:
        graph = graph.merge_parallel_arcs()
    verify.verify_clustering(graph, gw.clustering(graph, devices="cpu"))


def test_known_numbers() -> None:
    n = 200
    complete = gw.triangles(gw.generators.complete(n), devices="cpu")
    assert complete.total == n * (n - 1) * (n - 2) // 6
    assert set(complete.triangles.tolist()) == {(n - 1) * (n - 2) // 2}
    assert gw.transitivity(gw.generators.complete(n), devices="cpu") == 1
    assert gw.triangles(gw.generators.star(1000), devices="cpu").total == 0
    assert gw.clustering(gw.generators.star(1000), devices="cpu").average == 0


def test_names_and_tables() -> None:
    ids = ["Ulm", "Bonn", "Jena"]
    graph = Graph.from_edges([0, 0, 1], [1, 2, 2], directed=False, ids=ids)
    found = gw.triangles(graph, devices="cpu")
    assert found.to_dict() == {"Ulm": 1, "Bonn": 1, "Jena": 1}
    assert found.to_arrow().column_names == ["vertex", "triangles"]
    assert repr(found) == "TrianglesResult(3 vertices, 1 triangle(s))"
    coefficients = gw.clustering(graph, devices="cpu")
    assert coefficients.highest(1) == [("Ulm", 1.0)]
    assert repr(coefficients) == "ClusteringResult(3 vertices, average 1)"


def test_refusals() -> None:
    triangle = Graph.from_edges([0, 1, 2], [1, 2, 0], [1.0, 2.0, np.inf])
    with pytest.raises(InputError, match="weights that are finite"):
        gw.clustering(triangle, devices="cpu")
    parallel = Graph.from_edges([0, 0, 1], [1, 1, 2], [1, 2, 3])
    with pytest.raises(InputError, match=r"0 -> 1 has several; add them up by merge_parallel_arcs"):
        gw.clustering(parallel, devices="cpu")
    with pytest.raises(InputError, match="needs a graph with weights"):
        gw.clustering(gw.generators.path(3), weighted=True, devices="cpu")
    with pytest.raises(InputError, match="one device of the CPU"):
        gw.triangles(triangle, devices=["cpu:0", "cpu:1"])


def test_runs_end_by_their_time() -> None:
    graph = gw.generators.complete(1500)
    with pytest.raises(RunTimeoutError):
        gw.triangles(graph, devices="cpu:0", timeout_s=1e-3)
    seen: list[Any] = []
    gw.triangles(graph, devices="cpu:0", progress=seen.append)
    assert all(0 <= count <= count.total == 1500 for count in seen)


@pytest.mark.parametrize("change", [1, 10**6])
def test_verifiers_find_errors(change: int) -> None:
    graph = gw.generators.rmat(7, 4, seed=5)
    found = gw.triangles(graph, devices="cpu")
    wrong = found.triangles.copy()
    wrong[11] += change
    with pytest.raises(VerificationError, match="not 3 times that"):
        gw.verify_triangles(graph, wrong, total=found.total)
    with pytest.raises(VerificationError, match="vertex 11"):
        gw.verify_triangles(graph, wrong)
    coefficients = gw.clustering(graph, devices="cpu").clustering.copy()
    coefficients[11] += 1e-6 * change
    with pytest.raises(VerificationError, match="vertex 11"):
        gw.verify_clustering(graph, coefficients, weighted=False)


@pytest.mark.parametrize(
    "name", ["PGPgiantcompo", pytest.param("email-Enron", marks=pytest.mark.thorough)]
)
def test_real_graphs(name: str, data_folder: Path) -> None:
    graph = gw.read(data_folder / f"{name}.mtx.xz").without_weights()
    plain = graph.symmetrize().merge_parallel_arcs().remove_self_loops()
    adjacency = plain.with_weights(np.ones(plain.arc_count, np.int64)).to_scipy()
    expected: Array = np.asarray(adjacency.multiply(adjacency @ adjacency).sum(axis=1)).ravel() // 2
    found = gw.triangles(graph, devices="cpu")
    np.testing.assert_array_equal(found.triangles, expected)
    degree = plain.out_degree()
    pairs = int((degree * (degree - 1)).sum())
    assert gw.transitivity(graph, devices="cpu") == 6 * found.total / pairs


@pytest.mark.parametrize(
    ("command", "function", "entry"),
    [("triangles", gw.triangles, "triangles"), ("clustering", gw.clustering, "average")],
)
def test_commands(command: str, function: Callable[..., Any], entry: str, tmp_path: Path) -> None:
    graph = gw.generators.rmat(6, 4, weights=(1, 9), seed=1).merge_parallel_arcs()
    gw.write(graph, tmp_path / "graph.wel")
    output = tmp_path / "values.npy"
    arguments = [
        command, str(tmp_path / "graph.wel"), "--verify", "--json", "--top", "3", "-o", str(output),
        "--devices", "cpu",
    ]  # fmt: skip
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    facts = json.loads(ran.stdout)
    result = function(gw.read(tmp_path / "graph.wel"), devices="cpu")
    np.testing.assert_array_equal(np.load(output), result._scores)
    assert facts[entry] == (result.total if command == "triangles" else result.average)
    assert facts["verified"]
    assert len(facts["top"]) == 3
    text = CliRunner().invoke(app, [command, "complete:5", "--devices", "cpu"]).output
    assert ("triangles" if command == "triangles" else "average") in text
