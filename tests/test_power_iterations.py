"""Eigenvector centrality, Katz centrality and HITS against NetworkX and SciPy."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms.pagerank import in_arcs
from godwit.cli.application import app
from godwit.errors import ConvergenceError, InputError, RunTimeoutError, VerificationError
from godwit.graph.csr import Graph
from graphs import each_graph, graphs, named_graph

Array = np.ndarray[Any, np.dtype[Any]]

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tolerance": 0}, "tolerance must be positive"),
    ({"max_iterations": 0}, "max_iterations must be"),
    ({"weighted": True}, "needs a graph with weights"),
    ({"start": [1.0]}, "start must be a mapping"),
    ({"start": {9: 1.0}}, r"must be in \[0, 4\)"),
    ({"start": [1, 2, np.nan, 4]}, "start must be finite, got nan for vertex 2"),
    ({"devices": ["cpu:0", "cpu:1"]}, "runs on one device of the CPU"),
    ({"timeout_s": -1}, "timeout_s must be positive"),
]


def matrix_of(graph: Graph, weighted: bool) -> Array:
    """Return the dense adjacency matrix; parallel arcs add up."""
    n = graph.vertex_count
    matrix = np.zeros((n, n))
    values = graph.weights if weighted and graph.weights is not None else np.ones(graph.arc_count)
    np.add.at(matrix, (np.repeat(np.arange(n), graph.out_degree()), graph.targets), values)
    return matrix


def networkx_graph(graph: Graph, weighted: bool) -> Any:
    """Return the NetworkX graph of the adjacency matrix, whose parallel arcs are merged."""
    return nx.from_numpy_array(matrix_of(graph, weighted), create_using=nx.DiGraph)


def in_order(values: dict[int, float]) -> Array:
    return np.array([values[vertex] for vertex in range(len(values))])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give small graphs many blocks of rows, and several threads."""
    monkeypatch.setattr(in_arcs, "_ALONE_WORK", 0)
    monkeypatch.setattr(in_arcs, "_BLOCK_WORK", 8)


@given(graph=graphs(min_vertices=1), weighted=st.booleans())
def test_eigenvector_centrality_is_networkx(graph: Graph, weighted: bool) -> None:
    weighted = weighted and graph.is_weighted
    settings = {"tol": 1e-7, "max_iter": 300}
    try:
        expected = nx.eigenvector_centrality(
            networkx_graph(graph, weighted), weight="weight", **settings
        )
    except nx.PowerIterationFailedConvergence:
        with pytest.raises(ConvergenceError, match="after 300 iteration"):
            gw.eigenvector_centrality(
                graph, tolerance=0.9e-7, max_iterations=300, weighted=weighted, devices="cpu"
            )
        return
    result = gw.eigenvector_centrality(
        graph, tolerance=1.1e-7, max_iterations=301, weighted=weighted, devices="cpu"
    )
    np.testing.assert_allclose(result.centrality, in_order(expected), atol=1e-6 * len(expected))
    assert result.residual < 1.1e-7
    gw.verify_eigenvector_centrality(graph, result.centrality, tolerance=3e-7, weighted=weighted)


@given(graph=graphs(min_vertices=1), weighted=st.booleans(), normalized=st.booleans())
def test_katz_centrality_solves_its_equation(
    graph: Graph, weighted: bool, normalized: bool
) -> None:
    weighted = weighted and graph.is_weighted
    matrix = matrix_of(graph, weighted)
    alpha = 0.5 / max(1.0, matrix.sum(axis=0).max())
    beta = np.arange(graph.vertex_count) + 1.0
    exact = np.linalg.solve(np.eye(len(matrix)) - alpha * matrix.T, beta)
    result = gw.katz_centrality(
        graph, alpha=alpha, beta=beta, tolerance=1e-12, normalized=normalized, weighted=weighted,
        devices="cpu",
    )  # fmt: skip
    expected = exact / np.linalg.norm(exact) if normalized else exact
    np.testing.assert_allclose(result.centrality, expected, rtol=1e-9)
    gw.verify_katz_centrality(
        graph, result.centrality, alpha=alpha, beta=beta, tolerance=1e-9, normalized=normalized,
        weighted=weighted,
    )  # fmt: skip


@each_graph
def test_katz_centrality_is_networkx(name: str) -> None:
    graph = named_graph(name)
    expected = nx.katz_centrality(networkx_graph(graph, True), alpha=0.001, weight="weight")
    result = gw.katz_centrality(graph, alpha=0.001, devices="cpu")
    np.testing.assert_allclose(result.centrality, in_order(expected), rtol=1e-13)


@given(graph=graphs(min_vertices=2), weighted=st.booleans())
def test_hits_are_the_leading_singular_vectors(graph: Graph, weighted: bool) -> None:
    weighted = weighted and graph.is_weighted
    left, values, right = np.linalg.svd(matrix_of(graph, weighted))
    assume(values[1] < 0.8 * values[0])  # they are unique, and iterations converge fast
    result = gw.hits(graph, tolerance=1e-14, weighted=weighted, devices="cpu")
    np.testing.assert_allclose(result.hubs, left[:, 0] / left[:, 0].sum(), atol=1e-9)
    np.testing.assert_allclose(result.authorities, right[0] / right[0].sum(), atol=1e-9)
    unit = gw.hits(graph, tolerance=1e-14, weighted=weighted, normalized=False, devices="cpu")
    np.testing.assert_allclose(unit.authorities, np.abs(right[0]), atol=1e-9)
    np.testing.assert_allclose(unit.hubs, values[0] * np.abs(left[:, 0]), rtol=1e-9, atol=1e-7)
    for found, normalized in ((result, True), (unit, False)):
        gw.verify_hits(
            graph, found.hubs, found.authorities, normalized=normalized, weighted=weighted
        )


def test_hits_is_networkx() -> None:
    graph = gw.generators.rmat(8, 4, seed=3, symmetrize=False, simple=True)
    hubs, authorities = nx.hits(graph.to_networkx(), tol=1e-12)
    result = gw.hits(graph, tolerance=1e-14, devices="cpu")
    np.testing.assert_allclose(result.hubs, in_order(hubs), atol=1e-10)
    np.testing.assert_allclose(result.authorities, in_order(authorities), atol=1e-10)


@pytest.mark.usefixtures("small_blocks")
@given(graph=graphs(min_vertices=1))
def test_results_do_not_depend_on_threads(graph: Graph) -> None:
    for run in (
        lambda devices: gw.eigenvector_centrality(graph, tolerance=1e-4, devices=devices).centrality,
        lambda devices: gw.katz_centrality(graph, alpha=1e-3, devices=devices).centrality,
        lambda devices: np.stack(
            [gw.hits(graph, tolerance=1e-4, devices=devices).hubs,
             gw.hits(graph, tolerance=1e-4, devices=devices).authorities]
        ),
    ):  # fmt: skip
        try:
            alone = run("cpu:0")
        except ConvergenceError:
            continue
        assert np.array_equal(run("cpu"), alone)


@each_graph
def test_each_iteration_is_by_definition(name: str) -> None:
    graph = named_graph(name)
    n = graph.vertex_count
    matrix = matrix_of(graph, True)
    x = start = np.arange(n) + 1.0
    for iterations in (1, 2, 3):
        before, x = x, 0.1 * (matrix.T @ x) + 1
        change = np.abs(x - before).mean() if n else 0.0
        settings = {"start": start, "tolerance": 1e-300, "max_iterations": iterations}
        if change == 0:
            assert gw.katz_centrality(graph, devices="cpu", **settings).residual == 0
            break
        with pytest.raises(ConvergenceError) as caught:
            gw.katz_centrality(graph, devices="cpu", **settings)
        assert caught.value.iterations == iterations
        assert caught.value.residual == pytest.approx(change, rel=1e-12)


def test_vertices_are_by_id() -> None:
    names = ["Bonn", "Ulm", "Jena"]
    graph = Graph.from_edges([0, 1, 2], [1, 2, 1], ids=names)
    katz = gw.katz_centrality(graph, beta={"Ulm": 2.0}, normalized=False, devices="cpu")
    assert list(katz.to_dict()) == names
    assert katz.to_dict()["Bonn"] == 0
    assert katz.highest(1) == [("Ulm", katz.centrality.max())]
    series = pd.Series([2.0], index=["Ulm"])
    again = gw.katz_centrality(graph, beta=series, normalized=False, devices="cpu")
    assert np.array_equal(katz.centrality, again.centrality)
    assert katz.to_arrow().column("vertex").to_pylist() == names
    assert katz.to_frame()["centrality"].tolist() == katz.centrality.tolist()
    scores = gw.hits(graph, devices="cpu")
    assert scores.highest_authorities(1) == [("Ulm", scores.authorities.max())]
    assert scores.hubs_to_dict()["Bonn"] == scores.hubs[0]
    assert scores.to_frame().columns.tolist() == ["vertex", "hub", "authority"]
    found = gw.eigenvector_centrality(graph, start={"Jena": 1}, tolerance=1e-3, devices="cpu")
    assert {vertex for vertex, _ in found.highest(2)} == {"Ulm", "Jena"}


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1.0, 1e200, 1e304])
@pytest.mark.parametrize("name", ["grid", "random directed"])
def test_large_and_small_weights_do_not_overflow(name: str, scale: float) -> None:
    graph = named_graph(name)
    weights = np.minimum(graph.weights / 64, 1.0)
    scaled = graph.with_weights(weights * scale)
    expected = gw.hits(graph.with_weights(weights), tolerance=1e-13, devices="cpu")
    result = gw.hits(scaled, tolerance=1e-13, devices="cpu")
    np.testing.assert_allclose(result.hubs, expected.hubs, atol=1e-9)
    np.testing.assert_allclose(result.authorities, expected.authorities, atol=1e-9)
    found = gw.eigenvector_centrality(scaled, tolerance=1e-3, devices="cpu")
    assert np.linalg.norm(found.centrality) == pytest.approx(1)


def test_negative_weights() -> None:
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0], [1.0, -2.0, 3.0, 0.5])
    matrix = matrix_of(graph, True)
    exact = np.linalg.solve(np.eye(4) - 0.1 * matrix.T, np.ones(4))
    result = gw.katz_centrality(graph, normalized=False, tolerance=1e-14, devices="cpu")
    np.testing.assert_allclose(result.centrality, exact, rtol=1e-12)


def test_graphs_without_vertices_or_arcs() -> None:
    empty, isolated = named_graph("empty"), named_graph("isolated vertices")
    assert gw.eigenvector_centrality(empty).centrality.shape == (0,)
    assert gw.katz_centrality(empty, beta={}).to_dict() == {}
    assert gw.hits(empty).hubs_to_dict() == {}
    np.testing.assert_allclose(gw.eigenvector_centrality(isolated).centrality, 1 / np.sqrt(7))
    np.testing.assert_allclose(gw.katz_centrality(isolated).centrality, 1 / np.sqrt(7))
    assert not gw.hits(isolated).hubs.any()
    assert not gw.hits(isolated).authorities.any()


def test_too_large_alpha_is_an_error_that_pickles() -> None:
    graph = gw.generators.complete(30)
    with pytest.raises(ConvergenceError, match=r"^Katz centrality has not converged") as caught:
        gw.katz_centrality(graph, devices="cpu")
    assert not np.isfinite(caught.value.residual)
    assert 0 < caught.value.iterations < 1000
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.iterations, str(copy)) == (caught.value.iterations, str(caught.value))


@pytest.mark.parametrize("function", [gw.eigenvector_centrality, gw.katz_centrality, gw.hits])
@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=[str(wrong) for wrong, _ in WRONG])
def test_wrong_arguments(function: Any, wrong: dict[str, Any], message: str) -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3])
    with pytest.raises(InputError, match=message):
        function(graph, **({"devices": "cpu"} | wrong))


def test_more_wrong_arguments() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], [1.0, np.inf])
    for function in (gw.eigenvector_centrality, gw.katz_centrality, gw.hits):
        with pytest.raises(InputError, match=r"the arc from 1 to 2 has weight inf"):
            function(graph, devices="cpu")
        assert function(graph, weighted=False, tolerance=1e-2, devices="cpu").iterations > 0
    for function in (gw.eigenvector_centrality, gw.hits):
        with pytest.raises(InputError, match="start must not be 0 everywhere"):
            function(graph.without_weights(), start=[0, 0, 0], devices="cpu")
    huge = Graph.from_edges([0, 0, 1], [1, 2, 2], [1e308, 1e308, 1.0])
    with pytest.raises(InputError, match=r"up to 1e\+308 could overflow; divide them by 1e\+308"):
        gw.hits(huge, devices="cpu")
    for wrong in ({"alpha": np.nan}, {"beta": np.inf}, {"beta": "x"}, {"alpha": None}):
        with pytest.raises(InputError):
            gw.katz_centrality(graph.without_weights(), devices="cpu", **wrong)


def test_runs_end_by_time_and_tell_progress() -> None:
    graph = gw.generators.path(20_000)
    with pytest.raises(RunTimeoutError):
        gw.hits(graph, tolerance=1e-300, max_iterations=10**9, timeout_s=0.3, devices="cpu")
    seen: list[int] = []
    with pytest.raises(ConvergenceError):
        gw.eigenvector_centrality(
            graph, tolerance=1e-300, max_iterations=3000, progress=seen.append, devices="cpu"
        )
    assert seen == sorted(seen)
    assert all(count % 20_000 == 0 for count in seen)


def test_verifiers_find_wrong_values() -> None:
    graph = named_graph("random undirected")
    values = gw.eigenvector_centrality(graph, devices="cpu").centrality
    with pytest.raises(VerificationError, match="L2 norm"):
        gw.verify_eigenvector_centrality(graph, 2 * values)
    with pytest.raises(VerificationError, match="one more iteration"):
        gw.verify_eigenvector_centrality(graph, np.roll(values, 1))
    katz = gw.katz_centrality(graph, alpha=0.001, devices="cpu").centrality
    gw.verify_katz_centrality(graph, katz, alpha=0.001)
    with pytest.raises(VerificationError, match="one more iteration"):
        gw.verify_katz_centrality(graph, katz, alpha=0.002)
    scores = gw.hits(graph, devices="cpu")
    gw.verify_hits(graph, scores.hubs, scores.authorities)
    for hubs, authorities in (
        (np.roll(scores.hubs, 1), scores.authorities),
        (scores.hubs, np.roll(scores.authorities, 1)),
        (2 * scores.hubs, scores.authorities),
    ):
        with pytest.raises(VerificationError):
            gw.verify_hits(graph, hubs, authorities)


class TestCommands:
    def run(self, *words: str) -> Any:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return result

    def facts(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json", "--quiet", "--verify").stdout)

    def test_katz(self, tmp_path: Path) -> None:
        file = tmp_path / "few.csv"
        file.write_text("a,b\nBonn,Ulm\nUlm,Jena\nJena,Ulm\n")
        facts = self.facts("katz", str(file), "--columns", "a,b", "--top", "1", "--unnormalized")
        graph = gw.read(file, columns=["a", "b"])
        expected = gw.katz_centrality(graph, normalized=False, devices="cpu")
        assert facts["top"] == [{"vertex": "Ulm", "centrality": expected.to_dict()["Ulm"]}]
        assert facts["verified"]
        assert facts["iterations"] == expected.iterations

    def test_eigenvector_writes_files(self, tmp_path: Path) -> None:
        for name in ("c.npy", "c.csv", "c.parquet"):
            self.run("eigenvector", "grid:5x6", "--output", str(tmp_path / name), "--verify")
        expected = gw.eigenvector_centrality(gw.generators.grid(5, 6)).centrality
        assert np.array_equal(np.load(tmp_path / "c.npy"), expected)
        assert np.array_equal(pd.read_csv(tmp_path / "c.csv")["centrality"], expected)

    def test_hits(self, tmp_path: Path) -> None:
        scores = gw.hits(gw.generators.rmat(6, 4, seed=1, symmetrize=False))
        words = ("hits", "rmat:6,edge_factor=4,seed=1,symmetrize=false", "--top", "2")
        by_authority = self.facts(*words)
        assert [tuple(row.values()) for row in by_authority["top"]] == scores.highest_authorities(2)
        by_hub = self.facts(*words, "--by", "hub", "--output", str(tmp_path / "s.npy"))
        assert [tuple(row.values()) for row in by_hub["top"]] == scores.highest_hubs(2)
        assert np.array_equal(np.load(tmp_path / "s.npy")["authority"], scores.authorities)

    @pytest.mark.parametrize(
        ("words", "status", "message"),
        [
            ("katz complete:30", 3, "has not converged"),
            ("hits grid:5x5 --max-iterations 2", 3, "after 2 iteration(s): the last changed"),
            ("hits grid:5x5 --by x", 2, "--by must be authority or hub"),
            ("katz grid:5x5 --alpha nan", 2, "alpha must be finite"),
            ("eigenvector grid:5x5 --tolerance 0", 2, "tolerance must be positive"),
        ],
    )
    def test_failures(self, words: str, status: int, message: str) -> None:
        result = CliRunner().invoke(app, words.split())
        assert result.exit_code == status
        assert message in " ".join(result.output.split())
