"""Core numbers, k-cores and k-shells against NetworkX and a naive definition, on CPUs."""

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
from godwit.algorithms.core import cpu
from godwit.cli.application import app
from godwit.errors import InputError, RunTimeoutError, ValueOverflowError, VerificationError
from godwit.graph.csr import Graph
from graphs import arcs_of, each_graph, graphs, named_graph

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def naive_core_numbers(graph: Graph) -> list[int]:
    """Remove vertices of fewer than k neighbours until there are none, for each k."""
    n = graph.vertex_count
    arcs = [(tail, head) for tail, head, *_ in arcs_of(graph) if tail != head]
    core = [0] * n
    left, k = set(range(n)), 0
    while left:
        k += 1
        while True:
            degree = dict.fromkeys(left, 0)
            for tail, head in arcs:
                if tail in left and head in left:
                    degree[tail] += 1
                    degree[head] += graph.directed
            low = {v for v in left if degree[v] < k}
            if not low:
                break
            left -= low
        for v in left:
            core[v] = k
    return core


@given(graph=graphs(), threads=st.integers(1, 3))
def test_core_numbers_are_those_of_the_definition(graph: Graph, threads: int) -> None:
    result = gw.core_number(graph, devices="cpu")
    assert result.core.tolist() == naive_core_numbers(graph)
    assert result.core.dtype == np.int32
    assert result.degeneracy == max(result.core, default=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "thread_count", lambda graph, threads: threads)
        patch.setattr(cpu, "_ALONE_ARCS", 0)
        core, _ = cpu.core_numbers_on_cores(graph, threads, None)
    np.testing.assert_array_equal(core, result.core)
    gw.verify_core_number(graph, result)


@each_graph
def test_named_graphs_are_networkxs(name: str) -> None:
    graph = named_graph(name).without_weights().remove_self_loops().merge_parallel_arcs()
    expected = nx.core_number(graph.to_networkx())
    assert gw.core_number(graph).to_dict() == expected


@pytest.mark.parametrize("budget", [None, 1 << 6])
@pytest.mark.parametrize("directed", [False, True])
def test_results_do_not_depend_on_threads(
    directed: bool, budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = gw.generators.rmat(10, 16, seed=1, symmetrize=not directed)
    expected, _ = cpu.core_numbers_on_cores(graph, 1, None)
    gw.verify_core_number(graph, expected)
    peel = cpu._PEEL[directed]
    if budget is not None:
        monkeypatch.setitem(cpu._PEEL, directed, peel.bind(_BUDGET=budget, _LOCAL=4, _CHUNK=2))
    monkeypatch.setattr(cpu, "thread_count", lambda graph, threads: threads)
    monkeypatch.setattr(cpu, "_ALONE_ARCS", 0)
    for threads in (1, 2, 4):
        core, _ = cpu.core_numbers_on_cores(graph, threads, None)
        np.testing.assert_array_equal(core, expected)


def test_a_clique_with_a_tail() -> None:
    tails, heads = np.triu_indices(50, 1)
    graph = Graph.from_edges([*tails, 0, 50], [*heads, 50, 51], directed=False)
    result = gw.core_number(graph)
    assert result.core.tolist() == [49] * 50 + [1, 1]
    assert result.highest(1) == [(0, 49)]
    assert gw.k_core(graph).vertex_count == 50
    assert list(gw.k_shell(graph, 1).ids) == [50, 51]
    assert gw.k_core(graph, 50).vertex_count == 0


@given(graph=graphs(), k=st.none() | st.integers(0, 3), known=st.booleans())
def test_cores_and_shells_are_networkxs(graph: Graph, k: int | None, known: bool) -> None:
    graph = graph.remove_self_loops().merge_parallel_arcs()
    reference = graph.to_networkx()
    core = gw.core_number(graph) if known else None
    for ours, theirs in ((gw.k_core, nx.k_core), (gw.k_shell, nx.k_shell)):
        part = ours(graph, k, core=core)
        if graph.vertex_count:
            expected = theirs(reference, k)
            assert sorted(part.ids) == sorted(expected)
            assert part.to_networkx().number_of_edges() == expected.number_of_edges()


def test_graphs_without_vertices() -> None:
    graph = Graph.from_edges([], [])
    result = gw.core_number(graph)
    assert (result.core.tolist(), result.degeneracy, result.to_dict()) == ([], 0, {})
    assert gw.k_core(graph).vertex_count == gw.k_shell(graph).vertex_count == 0
    gw.verify_core_number(graph, result)


@pytest.mark.parametrize("name", ["email-Enron", "as-caida20071105", "rome-roads", "dblp-2010"])
def test_real_graphs(name: str) -> None:
    files = sorted(DATA.glob(f"{name}.*"))
    if not files:
        pytest.skip(f"{name} is not there")
    graph = gw.read(files[0]).without_weights()
    result = gw.core_number(graph, devices="cpu")
    gw.verify_core_number(graph, result)


def test_verifier_names_the_wrong_vertex() -> None:
    graph = Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], directed=False)
    core = gw.core_number(graph).core
    for vertex in range(4):
        for change in (1, -1):
            wrong = core.copy()
            wrong[vertex] += change
            with pytest.raises(VerificationError, match="has core number"):
                gw.verify_core_number(graph, wrong)
    with pytest.raises(
        VerificationError, match="vertex 0 has core number 1, but it is in the 2-core"
    ):
        gw.verify_core_number(graph, np.ones(4, np.int64))
    with pytest.raises(VerificationError, match="negative"):
        gw.verify_core_number(graph, core - 3)


def test_wrong_arguments() -> None:
    graph = gw.generators.path(4)
    with pytest.raises(InputError, match="core must be"):
        gw.k_core(graph, core=np.zeros(3, np.int32))
    with pytest.raises(InputError, match="k"):
        gw.k_shell(graph, -1)
    with pytest.raises(InputError, match="one device of the CPU"):
        gw.core_number(graph, devices=["cpu:0", "cpu:1"])


def test_degrees_that_int32_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    from godwit.algorithms import core

    graph = gw.generators.star(20)
    monkeypatch.setattr(core, "_LARGEST_DEGREE", 10)
    with pytest.raises(ValueOverflowError, match="vertex 0 has 19 arcs"):
        gw.core_number(graph)


def test_time_limit() -> None:
    with pytest.raises(RunTimeoutError):
        gw.core_number(gw.generators.path(4_000_000), devices="cpu", timeout_s=1e-9)


def test_command(tmp_path: Path) -> None:
    output = tmp_path / "core.npy"
    run: Any = CliRunner().invoke(app, ["core", "rmat:8", "--verify", "--json", "-o", str(output)])
    assert run.exit_code == 0, run.output
    facts = json.loads(run.stdout)
    result = gw.core_number(gw.generate("rmat:8"))
    assert facts["degeneracy"] == result.degeneracy == facts["top"][0]["core"]
    assert facts["verified"]
    np.testing.assert_array_equal(np.load(output), result.core)
