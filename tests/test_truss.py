"""Truss numbers: equal to NetworkX's trusses, by definition, over devices and threads; and k-trusses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms.triangles import rows
from godwit.algorithms.truss import cpu
from godwit.cli.application import app
from godwit.errors import InputError, VerificationError
from godwit.graph.csr import Graph
from graphs import each_graph, forced_threads, graphs, named_graph

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def truss_by_networkx(graph: Graph) -> dict[tuple[int, int], int]:
    """Return the truss number of each edge of the simple graph, from NetworkX's k-trusses."""
    simple = nx.Graph()
    simple.add_nodes_from(range(graph.vertex_count))
    tails = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    simple.add_edges_from(zip(tails.tolist(), graph.targets.tolist(), strict=True))
    simple.remove_edges_from(list(nx.selfloop_edges(simple)))
    numbers = {(min(edge), max(edge)): 2 for edge in simple.edges}
    k = 3
    while simple.number_of_edges():
        simple = nx.k_truss(simple, k, backend="networkx")
        numbers.update({(min(edge), max(edge)): k for edge in simple.edges})
        k += 1
    return numbers


def check(graph: Graph, **arguments: Any) -> gw.TrussResult:
    result = gw.truss_number(graph, **arguments)
    positions = zip(result.sources.tolist(), result.targets.tolist(), strict=True)
    found = dict(zip(positions, result.truss.tolist(), strict=True))
    assert found == truss_by_networkx(graph)
    assert list(found) == sorted(found)
    gw.verify_truss_number(graph, result)
    return result


@each_graph
def test_truss_numbers_are_networkx(name: str) -> None:
    check(named_graph(name), devices="cpu")


@settings(max_examples=60)
@given(graph=graphs(), threads=st.integers(1, 3))
def test_random_graphs(graph: Graph, threads: int) -> None:
    with forced_threads(threads):
        check(graph, devices="cpu")


@pytest.mark.parametrize("hubs", [0, 3, 4096])
def test_rows_by_degree(hubs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges between the first positions are in a table, and the others are searched for."""
    monkeypatch.setattr(rows, "_OWN_STEPS", 0)
    monkeypatch.setattr(cpu, "_HUBS", hubs)
    for seed in range(6):
        for threads in (1, 3):
            with forced_threads(threads):
                check(gw.generators.rmat(5, 5, seed=seed).symmetrize(), devices="cpu")


def test_threads_and_tables_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of more edges than threads claim, hold or hit at once."""
    graph = gw.generators.rmat(10, 16, seed=1).symmetrize()
    found = []
    for hubs in (0, 20, 4096):
        monkeypatch.setattr(cpu, "_HUBS", hubs)
        for threads in (1, 2, 5):
            with forced_threads(threads):
                found.append(gw.truss_number(graph, devices="cpu"))
    gw.verify_truss_number(graph, found[0])
    for other in found[1:]:
        np.testing.assert_array_equal(other.truss, found[0].truss)
        assert other.statistics.rounds == found[0].statistics.rounds


def test_a_dense_core_with_leaves() -> None:
    clique = nx.complete_graph(12)
    clique.add_edges_from((node, 20 + node) for node in range(12))
    graph = gw.Graph.from_networkx(clique)
    result = check(graph, devices="cpu")
    assert result.largest == 12
    inner = gw.k_truss(graph)
    assert sorted(inner.ids) == list(range(12))
    assert inner.arc_count == 12 * 11


@settings(max_examples=40)
@given(graph=graphs(), k=st.integers(0, 6))
def test_a_truss_is_the_subgraph_of_its_arcs(graph: Graph, k: int) -> None:
    result = gw.truss_number(graph, devices="cpu")
    truss = gw.k_truss(graph, k, truss=result)
    numbers = dict(zip(result.edges(), result.truss.tolist(), strict=True))
    tails = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    ids = graph.ids.of(np.arange(graph.vertex_count))
    wanted = []
    for arc, (tail, head) in enumerate(zip(tails, graph.targets, strict=True)):
        edge = (ids[min(tail, head)], ids[max(tail, head)])
        if tail != head and numbers[edge] >= k:
            weight = None if graph.weights is None else graph.weights[arc].item()
            wanted.append((ids[tail], ids[head], weight))
    kept_tails = np.repeat(np.arange(truss.vertex_count), np.diff(truss.offsets))
    weights = [None] * truss.arc_count if truss.weights is None else truss.weights.tolist()
    kept = truss.ids.of(np.arange(truss.vertex_count))
    found = [
        (kept[tail], kept[head], weight)
        for tail, head, weight in zip(kept_tails, truss.targets, weights, strict=True)
    ]
    assert found == wanted
    assert set(kept) == {end for arc in wanted for end in arc[:2]}


def test_results_as_tables() -> None:
    graph = gw.Graph.from_edges(
        [0, 0, 1, 2], [1, 2, 2, 3], directed=False, ids=["Ulm", "Bonn", "Jena", "Trier"]
    )
    result = gw.truss_number(graph)
    assert result.highest(1) == [("Ulm", "Bonn", 3)]
    assert result.to_dict()["Jena", "Trier"] == 2
    table = result.to_arrow().to_pydict()
    assert table["source"] == ["Ulm", "Ulm", "Bonn", "Jena"]
    assert table["truss"] == [3, 3, 3, 2]
    assert gw.k_truss(graph, 3).ids.of(np.arange(3)) == ["Ulm", "Bonn", "Jena"]
    assert gw.k_truss(graph, 4).vertex_count == 0


def test_graphs_without_edges() -> None:
    for graph in (gw.Graph.from_edges([], [], vertex_count=3), gw.Graph.from_edges([1], [1])):
        result = gw.truss_number(graph)
        assert result.truss.shape == (0,)
        assert result.largest == 0
        gw.verify_truss_number(graph, result)
        assert gw.k_truss(graph).vertex_count == 0


def test_wrong_arguments() -> None:
    graph = gw.generators.complete(4)
    with pytest.raises(InputError, match="one for each edge"):
        gw.k_truss(graph, 3, truss=np.ones(5, np.int32))
    with pytest.raises(InputError, match="k must not be negative"):
        gw.k_truss(graph, -1)


@settings(max_examples=40)
@given(graph=graphs(), data=st.data())
def test_the_verifier_finds_a_wrong_number(graph: Graph, data: st.DataObject) -> None:
    result = gw.truss_number(graph, devices="cpu")
    if len(result.truss) == 0:
        return
    wrong = result.truss.copy()
    edge = data.draw(st.integers(0, len(wrong) - 1))
    wrong[edge] += data.draw(st.sampled_from([-1, 1, 2]))
    with pytest.raises(VerificationError, match=r"edge .* has truss number"):
        gw.verify_truss_number(graph, wrong)


@pytest.mark.parametrize(
    "name",
    [pytest.param("rome-roads", marks=pytest.mark.thorough), "as-caida20071105", "PGPgiantcompo"],
)
def test_real_graphs_are_verified(name: str) -> None:
    files = sorted(DATA.glob(f"{name}.*"))
    if not files:
        pytest.skip(f"the real graphs are not here: {name}")
    graph = gw.read(files[0])
    result = gw.truss_number(graph, devices="cpu")
    gw.verify_truss_number(graph, result)
    reference = gw.k_truss(graph, truss=result)
    simple = nx.Graph(graph.to_networkx())
    simple.remove_edges_from(list(nx.selfloop_edges(simple)))
    expected = nx.k_truss(simple, result.largest, backend="networkx")
    assert sorted(reference.ids) == sorted(expected)
    assert len(nx.k_truss(simple, result.largest + 1, backend="networkx")) == 0


def test_the_command(tmp_path: Path) -> None:
    output = tmp_path / "truss.npy"
    line = ["truss", "rmat:8", "--verify", "--json", "--output", str(output)]
    run = CliRunner().invoke(app, line)
    assert run.exit_code == 0, run.output
    facts = json.loads(run.stdout)
    result = gw.truss_number(gw.generate("rmat:8"))
    assert facts["largest_truss"] == result.largest == facts["top"][0]["truss"]
    assert facts["verified"]
    np.testing.assert_array_equal(np.load(output)["truss"], result.truss)
