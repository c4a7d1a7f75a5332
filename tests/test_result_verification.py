"""Verifiers of ranks, components, centralities and filtered arrays find what is wrong, and only that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
import graphs as zoo
from godwit.algorithms import checks
from godwit.cli.application import app
from godwit.errors import InputError, VerificationError
from godwit.graph.csr import Graph
from graphs import named_graph

PATH = gw.generators.path(5)
LIMIT = 2**63 - 1


def networkx_ranks(graph: Graph, damping: float) -> np.ndarray[Any, Any]:
    other = nx.MultiDiGraph()
    other.add_nodes_from(range(graph.vertex_count))
    for tail, head, *weight in zoo.arcs_of(graph):
        other.add_edge(tail, head, weight=float(weight[0]) if weight else 1.0)
    ranks = nx.pagerank(other, alpha=damping, tol=1e-13, max_iter=1000)
    return np.array([ranks[v] for v in range(graph.vertex_count)])


@given(graph=zoo.graphs(min_vertices=1), damping=st.sampled_from([0.0, 0.5, 0.85]))
def test_ranks_of_networkx_pass_and_moved_ranks_fail(graph: Graph, damping: float) -> None:
    rank = networkx_ranks(graph, damping)
    gw.verify_pagerank(graph, rank, damping, tolerance=1e-10)
    gw.verify_pagerank(graph, rank.astype(np.float32), damping, tolerance=0)
    with pytest.raises(VerificationError, match="the ranks sum to"):
        gw.verify_pagerank(graph, rank * 1.1, damping)
    if graph.vertex_count > 1:
        moved = rank.copy()
        moved[0] -= rank[0] / 2
        moved[-1] += rank[0] / 2
        with pytest.raises(VerificationError, match="one more step changes the ranks by"):
            gw.verify_pagerank(graph, moved, damping)


def test_the_definition_of_ranks_counts() -> None:
    graph = Graph.from_edges([0, 0, 1, 2], [1, 2, 0, 0], [5, 1, 1, 1])
    found = gw.pagerank(graph, 0.9, personalization={1: 1.0}, max_iterations=500)
    gw.verify_pagerank(graph, found.rank, 0.9, personalization={1: 2.0})
    for damping, asked in ((0.8, {1: 1.0}), (0.9, None)):
        with pytest.raises(VerificationError, match="that of vertex"):
            gw.verify_pagerank(graph, found.rank, damping, personalization=asked)
    with pytest.raises(VerificationError):
        gw.verify_pagerank(graph, found.rank, 0.9, personalization={1: 1.0}, weighted=False)
    with pytest.raises(VerificationError, match="the rank of vertex 1 is -1"):
        gw.verify_pagerank(graph, np.array([1.0, -1.0, 1.0]))
    with pytest.raises(VerificationError, match="the rank of vertex 0 is nan"):
        gw.verify_pagerank(graph, np.full(3, np.nan))
    with pytest.raises(InputError, match="tolerance must not be negative"):
        gw.verify_pagerank(graph, found.rank, tolerance=-1.0)


@given(st.data())
def test_any_other_label_is_noticed(data: Any) -> None:
    graph = data.draw(zoo.graphs(min_vertices=1))
    right = np.array(networkx_labels(graph))
    gw.verify_connected_components(graph, right)
    v = data.draw(st.integers(0, graph.vertex_count - 1))
    label = right.copy()
    label[v] = data.draw(st.integers(-1, graph.vertex_count).filter(lambda name: name != right[v]))
    with pytest.raises(VerificationError):
        gw.verify_connected_components(graph, label)


def networkx_labels(graph: Graph) -> list[int]:
    other = nx.Graph([arc[:2] for arc in zoo.arcs_of(graph)])
    other.add_nodes_from(range(graph.vertex_count))
    smallest = {v: min(part) for part in nx.connected_components(other) for v in part}
    return [smallest[v] for v in range(graph.vertex_count)]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ([0, 0, 0, 3, 3], "the arc 2 -> 3 leads from label 0 to label 3"),
        ([1, 1, 1, 1, 1], "vertex 0 has label 1, which is not the smallest"),
        ([0, 0, 1, 1, 1], "vertex 2 has label 1, but vertex 1 has label 0"),
    ],
)
def test_each_rule_of_components(label: list[int], message: str) -> None:
    gw.verify_connected_components(PATH, np.zeros(5, int))
    with pytest.raises(VerificationError, match=message):
        gw.verify_connected_components(PATH, np.array(label))


def test_components_of_edges_that_stream(tmp_path: Path) -> None:
    edges = np.array([[0, 2], [2, 4], [3, 1]])
    label = np.array([0, 1, 0, 1, 0])
    path, text = tmp_path / "edges.npy", tmp_path / "edges.el"
    np.save(path, edges)
    text.write_text("0 2\n2 4\n3 1\n")
    bare = tmp_path / "bare"
    edges.astype(np.int32).tofile(bare)
    for given_edges, dtype in ((edges, None), (str(path), None), (text, None), (bare, "int32")):
        gw.verify_connected_components(given_edges, label, edge_dtype=dtype)
        with pytest.raises(VerificationError, match="no arcs connect it with vertex 0"):
            gw.verify_connected_components(given_edges, np.zeros(5, int), edge_dtype=dtype)
    gw.verify_connected_components(iter([edges[:1], edges[1:]]), label)
    with pytest.raises(InputError, match="has an end that is none of 4 vertices"):
        gw.verify_connected_components(edges, label[:4])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("endpoints", [False, True])
@pytest.mark.parametrize(
    "name", ["grid", "random directed", "parallel edges and self-loops", "star"]
)
def test_betweenness_passes_and_any_other_fails(name: str, endpoints: bool, weighted: bool) -> None:
    graph = named_graph(name)
    if weighted and not (graph.is_weighted and graph.weights.min() > 0):  # type: ignore[union-attr]
        tails = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
        graph = graph.with_weights(1.0 + (tails + graph.targets) % 3)
    for sources in (None, [2, 0, 1]):
        asked: dict[str, Any] = {"endpoints": endpoints, "weighted": weighted, "sources": sources}
        found = gw.betweenness_centrality(graph, edges=True, devices="cpu", **asked)
        for samples in (None, 1):
            gw.verify_betweenness_centrality(
                graph, found.centrality, found.edge_centrality, samples=samples, **asked
            )
        wrong = found.centrality.copy()
        v = int(wrong.argmax())
        wrong[v] *= 0.999
        with pytest.raises(VerificationError, match=f"the centrality of vertex {v} is"):
            gw.verify_betweenness_centrality(graph, wrong, **asked)
        arcs = found.edge_centrality.copy()
        arcs[arcs.argmax()] *= 1.001
        with pytest.raises(VerificationError, match="the centrality of the arc"):
            gw.verify_betweenness_centrality(graph, found.centrality, arcs, **asked)


def test_sampled_betweenness_finds_what_is_too_small_or_impossible() -> None:
    graph = gw.generators.star(50)
    found = gw.betweenness_centrality(graph).centrality
    gw.verify_betweenness_centrality(graph, found, samples=3)
    with pytest.raises(
        VerificationError, match=r"the centrality of vertex 0 is 0\.0, and at least"
    ):
        gw.verify_betweenness_centrality(graph, np.zeros(50), samples=3)
    directed = Graph.from_edges([0, 1], [1, 2])
    with pytest.raises(VerificationError, match="the centrality of vertex 2 is"):
        gw.verify_betweenness_centrality(directed, np.array([0, 0.5, 0.1]), samples=1)


def test_more_paths_than_floats_can_count() -> None:
    # 1,100 diamonds one behind the other: 2**1100 shortest paths.
    first = 3 * np.arange(1100)
    sources = np.concatenate([first, first, first + 1, first + 2])
    targets = np.concatenate([first + 1, first + 2, first + 3, first + 3])
    graph = Graph.from_edges(sources, targets)
    found = gw.betweenness_centrality(graph, sources=[0, 5], devices="cpu", normalized=False)
    gw.verify_betweenness_centrality(graph, found.centrality, sources=[0, 5], normalized=False)


def test_distances_up_to_the_limit_of_64_bits_are_exact() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], [LIMIT - 2, 1])
    gw.verify_sssp(graph, 0, np.array([0, LIMIT - 2, LIMIT - 1]))
    for wrong in (LIMIT - 2, LIMIT):
        with pytest.raises(VerificationError, match="vertex 2"):
            gw.verify_sssp(graph, 0, np.array([0, LIMIT - 2, wrong]))
    gw.verify_sssp(graph, 0, np.array([0, LIMIT - 2, LIMIT]), cutoff=LIMIT - 2)
    with pytest.raises(VerificationError, match="vertex 2 was not reached"):
        gw.verify_sssp(graph, 0, np.array([0, LIMIT - 2, LIMIT]), cutoff=LIMIT - 1)
    heavy = Graph.from_edges([0, 1], [1, 2], [2**62, 2**62])
    with pytest.raises(
        VerificationError, match=r"vertex 2 was not reached, but .* at 9223372036854775808"
    ):
        gw.verify_sssp(heavy, 0, np.array([0, 2**62, LIMIT]))
    with pytest.raises(VerificationError, match="vertex 2 is at distance -9223372036854775808"):
        gw.verify_sssp(heavy, 0, np.array([0, 2**62, -(2**63)]))


VALUES = {
    "float64": np.array([0.5, -0.0, np.nan, np.inf, 2.0, 0.25, 5e-324]),
    "int64": np.array([LIMIT, -LIMIT - 1, 0, 7, 7, 3]),
    "uint64": np.array([2**64 - 1, 2**63, 0, 5], np.uint64),
    "bool": np.array([True, False, True]),
}


@pytest.mark.parametrize("dtype", VALUES)
def test_any_other_items_are_noticed(dtype: str) -> None:
    array = VALUES[dtype]
    kept = array[array > 0]
    gw.verify_filter(array, lambda x: x > 0, kept)
    gw.verify_filter(array, lambda x: x > 0, kept[::-1], ordered=False)
    for wrong in (kept[1:], kept[:-1], np.append(kept, kept[:1]), array):
        for ordered in (True, False):
            with pytest.raises(VerificationError):
                gw.verify_filter(array, lambda x: x > 0, wrong, ordered=ordered)
    if len(np.unique(kept)) > 1:
        with pytest.raises(VerificationError, match="position 0 of what was kept is"):
            gw.verify_filter(array, lambda x: x > 0, kept[::-1])


def test_numbers_that_differ_between_python_and_compiled_code_may_be_kept_or_not() -> None:
    array = np.array([2**62, 3])
    for kept in (array, array[1:]):  # 2 ** 63 wraps around to a negative number
        gw.verify_filter(array, lambda x: x + x > 0, kept)
        gw.verify_filter(array, lambda x: x + x > 0, kept, ordered=False)
    with pytest.raises(VerificationError, match="item 1, 3, satisfies the predicate"):
        gw.verify_filter(array, lambda x: x + x > 0, array[:1])
    zeros = np.array([0, 1])
    gw.verify_filter(zeros, lambda x: 1 / x > 0, zeros)
    gw.verify_filter(zeros, lambda x: 1 / x > 0, zeros[1:])


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "BLOCK_ARCS", 3)
    graph = named_graph("random directed")
    gw.verify_pagerank(graph, gw.pagerank(graph, tolerance=1e-10).rank)
    gw.verify_connected_components(graph, gw.connected_components(graph).label)


@pytest.mark.parametrize(
    ("arguments", "verification"),
    [
        (["pagerank", "{graph}"], "one more iteration changes the ranks by at most 1e-06 in sum"),
        (["pagerank", "{graph}", "--tolerance", "inf"], "one more iteration changes the ranks by"),
        (["pagerank", "{graph}", "--execution", "asynchronous"], "one more iteration changes"),
        (["betweenness", "{graph}"], "every centrality is right"),
        (["betweenness", "{graph}", "--edges", "--source", "1"], "every centrality is right"),
        (["components", "{graph}"], "labels are the smallest vertices of components"),
        (["components", "{graph}", "--stream"], "labels are the smallest vertices of components"),
        (["bfs", "{graph}", "--source", "1"], "every distance and predecessor is right"),
        (["filter", "{values}", "x > 2"], "exactly the items that satisfy the predicate were kept"),
    ],
)  # fmt: skip
def test_every_command_verifies(tmp_path: Path, arguments: list[str], verification: str) -> None:
    graph, values = tmp_path / "graph.el", tmp_path / "values.npy"
    graph.write_text("0 1\n1 2\n2 0\n3 4\n")
    np.save(values, np.arange(5.0))
    given_arguments = [text.format(graph=graph, values=values) for text in arguments]
    result = CliRunner().invoke(app, [*given_arguments, "--verify", "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["verified"] is True
    assert facts["verification"].startswith(verification)
    seconds = facts["seconds"] if "seconds" in facts else facts["statistics"]["seconds"]
    assert "verify" in seconds
    shown = CliRunner().invoke(app, [*given_arguments, "--verify"])
    assert verification in shown.stdout


@pytest.mark.parametrize(
    ("command", "name", "wrong"),
    [
        (["pagerank"], "pagerank", lambda result: np.full(4, 0.25)),
        (["components"], "connected_components", lambda result: np.array([0, 0, 2, 2])),
        (["betweenness"], "betweenness_centrality", lambda result: np.zeros(4)),
    ],
)
def test_a_command_that_computes_something_else_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], name: str, wrong: Any
) -> None:
    path = tmp_path / "path.el"
    path.write_text("0 1\n1 2\n2 3\n")
    right = getattr(gw, name)

    def planted(*given_arguments: Any, **named: Any) -> Any:
        result = right(*given_arguments, **named)
        if result.graph.vertex_count:
            attribute = "label" if name == "connected_components" else "_placed"
            result.__dict__[attribute] = wrong(result)
        return result

    monkeypatch.setattr(gw, name, planted)
    result = CliRunner().invoke(app, [*command, str(path), "--verify"])
    assert result.exit_code == 2
    assert "vertex" in result.stderr or "arc" in result.stderr
    assert result.stderr.count("\n") == 1


def test_standard_input_streams_by_only_once() -> None:
    result = CliRunner().invoke(app, ["components", "-", "--stream", "--verify"], input="0 1\n")
    assert result.exit_code == 2
    assert "--verify goes through the edges once more" in result.stderr


def test_what_wraps_around_is_right_as_numpy_has_it() -> None:
    array = np.arange(10)
    wraps = lambda x: x * 2**62 < 0  # noqa: E731
    kept = gw.filter(array, wraps, "cpu")
    assert kept.tolist() == [2, 3, 6, 7]
    gw.verify_filter(array, wraps, kept)
    with pytest.raises(VerificationError):
        gw.verify_filter(array, wraps, np.append(kept, 8))


def test_a_self_loop_that_a_sum_loses_is_on_no_shortest_path() -> None:
    graph = gw.Graph.from_edges([0, 0, 2, 2], [1, 2, 2, 2], [5e-324, 2**-52, 5e-324, 2**-52])
    result = gw.betweenness_centrality(graph, weighted=True, endpoints=True, normalized=False)
    assert result.centrality.tolist() == [2.0, 1.0, 1.0]
    gw.verify_betweenness_centrality(
        graph, result.centrality, weighted=True, endpoints=True, normalized=False
    )


_OF_RESULTS: dict[str, tuple[Any, Any, str]] = {
    "bfs": (lambda graph: gw.bfs(graph, 10), gw.verify_bfs, "distance"),
    "sssp": (lambda graph: gw.sssp(graph, 10), gw.verify_sssp, "distance"),
    "sssp by arcs": (lambda graph: gw.sssp(graph, 10, weighted=False), gw.verify_sssp, "distance"),
    "pagerank": (gw.pagerank, gw.verify_pagerank, "rank"),
    "components": (gw.connected_components, gw.verify_connected_components, "label"),
    "core": (gw.core_number, gw.verify_core_number, "core"),
    "truss": (gw.truss_number, gw.verify_truss_number, "truss"),
    "colouring": (gw.greedy_color, gw.verify_greedy_color, "color"),
    "betweenness": (
        lambda graph: gw.betweenness_centrality(
            graph, sources=[10, 12], weighted=False, edges=True
        ),
        gw.verify_betweenness_centrality,
        "centrality",
    ),
    "katz": (
        lambda graph: gw.katz_centrality(graph, alpha=1e-3, weighted=False),
        lambda graph, result: gw.verify_katz_centrality(graph, result, alpha=1e-3, weighted=False),
        "centrality",
    ),
    "triangles": (gw.triangles, gw.verify_triangles, "triangles"),
    "hits": (
        lambda graph: gw.hits(graph, weighted=False),
        lambda graph, result: gw.verify_hits(graph, result, weighted=False),
        "authorities",
    ),
}


@pytest.mark.parametrize("name", _OF_RESULTS)
def test_results_are_verified_as_their_arrays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, verify, attribute = _OF_RESULTS[name]
    graph = gw.generators.rmat(5, 4, seed=2, weights=(1, 9)).with_ids(range(10, 42))
    result = compute(graph)
    verify(graph, result)
    wrong = np.array(getattr(result, attribute)) + 1
    monkeypatch.setattr(type(result), attribute, property(lambda self: wrong))
    with pytest.raises(VerificationError):
        verify(graph, result)


def test_results_have_their_arrays() -> None:
    for verify, arguments in (
        (gw.verify_bfs, (gw.bfs(PATH, 0), np.arange(5))),
        (gw.verify_sssp, (0,)),
        (gw.verify_hits, (gw.hits(PATH), np.full(5, 0.2))),
        (gw.verify_hits, (np.full(5, 0.2),)),
        (gw.verify_betweenness_centrality, (gw.betweenness_centrality(PATH), np.zeros(8))),
    ):
        with pytest.raises(InputError, match=r"give no others|got neither"):
            verify(PATH, *arguments)


def test_messages_name_vertices_by_id() -> None:
    table = pa.table({"from": ["Ulm", "Bonn"], "to": ["Jena", "Ulm"]})
    graph = Graph.from_table(table, "from", "to", directed=True)
    assert graph.ids.of(np.arange(3)) == ["Bonn", "Jena", "Ulm"]
    distance = gw.bfs(graph, "Bonn").distance.copy()
    distance[2] = 2
    rank = gw.pagerank(graph).rank.copy()
    rank[1] += 0.1
    edges = Graph.from_table(table, "from", "to", directed=False)
    other = gw.jaccard(graph.reverse, [["Bonn", "Jena"]])
    other._scores = other._scores / 2
    for verify, name in (
        (lambda: gw.verify_bfs(graph, "Bonn", distance), "the arc 'Bonn' -> 'Ulm'"),
        (lambda: gw.verify_pagerank(graph, rank / rank.sum(), tolerance=1e-9), "vertex 'Jena'"),
        (lambda: gw.verify_connected_components(graph, [0, 1, 0]), "the arc 'Ulm' -> 'Jena'"),
        (lambda: gw.verify_strongly_connected_components(graph, [0, 0, 2]), "vertex 'Bonn'"),
        (lambda: gw.verify_topological_generations(graph, [0, 1, 1]), "the arc 'Ulm' -> 'Jena'"),
        (lambda: gw.verify_betweenness_centrality(graph, [0.0, 0.0, 9.0]), "vertex 'Ulm'"),
        (lambda: gw.verify_betweenness_centrality(graph, [0.0, -1.0, 0.0]), "vertex 'Jena'"),
        (lambda: gw.verify_communities(graph, [0, 3, 0]), "vertex 'Jena'"),
        (lambda: gw.verify_communities(graph, [0, 0, 1]), "vertices 'Bonn' and 'Jena'"),
        (lambda: gw.verify_communities(graph, [1, 0, 2]), "the first are 'Jena' and 'Bonn'"),
        (lambda: gw.verify_triangles(graph, [0, 0, -1]), "vertex 'Ulm'"),
        (lambda: gw.verify_triangles(graph, [0, 1, 0]), "vertex 'Jena'"),
        (lambda: gw.verify_clustering(graph, [0.0, 0.0, 0.5]), "vertex 'Ulm'"),
        (lambda: gw.verify_random_walks(graph, np.array([[0, 1]])), "from 'Bonn' to 'Jena'"),
        (lambda: gw.verify_random_walks(graph, np.array([[2, -1]])), "ends at vertex 'Ulm'"),
        (lambda: gw.verify_similarity(graph, other), "'Bonn' and 'Jena'"),
        (lambda: gw.verify_minimum_spanning_forest(edges, [0]), "between 'Jena' and 'Ulm'"),
    ):
        with pytest.raises(VerificationError, match=name):
            verify()
