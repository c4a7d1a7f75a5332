"""Strong components, their graph, and topological generations, against NetworkX.

Without a GPU the kernels run on emulated ones.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from itertools import chain, pairwise
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
from godwit.algorithms.strong_components import cuda
from godwit.algorithms.strong_components.cpu import strong_components
from godwit.cli.application import app
from godwit.dtypes import Array
from godwit.errors import CycleError, InputError, RunTimeoutError, VerificationError
from godwit.graph.csr import Graph
from godwit.runtime import polling
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import names_of
from graphs import ZOO, each_graph, graphs, named_graph


def as_networkx(graph: Graph) -> Any:
    """Both directions of an undirected edge are edges of their own."""
    sources = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
    other = nx.MultiDiGraph()
    other.add_nodes_from(range(graph.vertex_count))
    other.add_edges_from(zip(sources.tolist(), graph.targets.tolist(), strict=True))
    return other


def expected_labels(graph: Graph) -> Array:
    label = np.empty(graph.vertex_count, graph.targets.dtype)
    for component in nx.strongly_connected_components(as_networkx(graph)):
        label[list(component)] = min(component)
    return label


def cycle(n: int, seed: int | None = None) -> Graph:
    """All vertices in a cycle: in ascending order, or in a random one."""
    order = np.arange(n) if seed is None else np.random.default_rng(seed).permutation(n)
    return Graph.from_edges(order, np.roll(order, -1))


def chain_of_cycles(count: int, length: int = 3) -> Graph:
    """Small components in a row, each with an arc to the next."""
    begin = length * np.arange(count)[:, np.newaxis]
    places = np.arange(length)
    sources, targets = begin + places, begin + (places + 1) % length
    tails, heads = begin[:-1, 0], begin[1:, 0]
    return Graph.from_edges(
        np.append(sources.ravel(), tails), np.append(targets.ravel(), heads),
        vertex_count=count * length,
    )  # fmt: skip


def hubs() -> Graph:
    """Rows of more than 256 arcs, in and out, to what is and what is not in the largest component."""
    leaves = np.arange(2, 902)
    return Graph.from_edges(
        np.concatenate([np.zeros(900, int), leaves[:700], np.ones(900, int), [2, 902]]),
        np.concatenate([leaves, np.zeros(700, int), leaves, [902, 903]]),
        vertex_count=905,
    )


HARD = {
    "cycle": cycle(100),
    "cycle in random order": cycle(100, seed=1),
    "chain of cycles": chain_of_cycles(20),
    "long rows": hubs(),
    "web": gw.generators.rmat(7, 3, seed=2, symmetrize=False),
}


@each_graph
@pytest.mark.parametrize("method", ["depth-first", "forward-backward"])
def test_components_on_the_cpu(name: str, method: Any) -> None:
    graph = named_graph(name)
    label, _ = strong_components(graph, method=method)
    np.testing.assert_array_equal(label, expected_labels(graph))
    assert label.dtype == graph.targets.dtype


@given(graphs(directed=True), st.sampled_from(["depth-first", "forward-backward"]))
def test_components_of_any_graph(graph: Graph, method: Any) -> None:
    label, _ = strong_components(graph, method=method)
    np.testing.assert_array_equal(label, expected_labels(graph))


@pytest.mark.parametrize(
    ("graph", "count"),
    [(cycle(300_000, 3), 1), (Graph.from_edges(np.arange(299_999), np.arange(1, 300_000)), 300_000),
     (chain_of_cycles(100_000), 100_000)],
    ids=["cycle", "path", "tiny components"],
)  # fmt: skip
def test_deep_graphs_on_the_cpu(graph: Graph, count: int) -> None:
    for method in ("depth-first", "forward-backward"):
        label, _ = strong_components(graph, method=method)
        gw.verify_strongly_connected_components(graph, label)
        assert len(np.unique(label)) == count


def test_result() -> None:
    graph = Graph.from_edges(
        [0, 1, 2, 2], [1, 2, 1, 3], ids=["Ulm", "Bonn", "Jena", "Köln"], vertex_count=4
    )
    result = gw.strongly_connected_components(graph, devices="cpu")
    assert result.label.tolist() == [0, 1, 1, 3]
    assert result.count == 3
    assert result.largest(1) == [("Bonn", 2)]
    assert result.method == result.statistics.solver == "depth-first"
    with gw.place(graph, "cpu") as placed:
        assert gw.strongly_connected_components(placed).to_dict()["Jena"] == "Bonn"


def test_all_threads_search_where_in_arcs_are_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("godwit.algorithms.strong_components.cpu.SEARCHED_ARCS", 10)
    graph = gw.generators.rmat(7, 3, seed=2, symmetrize=False)
    assert gw.strongly_connected_components(graph, devices="cpu").method == "depth-first"
    with gw.place(graph, "cpu") as placed:
        result = gw.strongly_connected_components(placed)
    assert result.method == "forward-backward"
    np.testing.assert_array_equal(result.label, expected_labels(graph))


def test_strong_components_of_undirected_graphs_are_connected_ones() -> None:
    graph = named_graph("two components")
    result = gw.strongly_connected_components(graph, devices="cpu")
    expected = gw.connected_components(graph, devices="cpu")
    np.testing.assert_array_equal(result.label, expected.label)


def test_time_out() -> None:
    with pytest.raises(RunTimeoutError):
        gw.strongly_connected_components(cycle(600_000, 3), devices="cpu", timeout_s=1e-9)


class TestEmulated:
    @pytest.fixture(autouse=True, params=[1, 3])
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    def check(self, graph: Graph, devices: list[str], **options: Any) -> Any:
        result = gw.strongly_connected_components(graph, devices=devices, **options)
        np.testing.assert_array_equal(result.label, expected_labels(graph))
        assert result.label.dtype == graph.targets.dtype
        return result.statistics

    def test_zoo(self, devices: list[str]) -> None:
        for name in ZOO:
            graph = named_graph(name)
            if graph.directed and (len(devices) == 1 or name == "random directed"):
                self.check(graph, devices)

    @pytest.mark.parametrize("name", HARD)
    def test_hard_graphs(self, name: str, devices: list[str]) -> None:
        statistics = self.check(HARD[name], devices)
        assert statistics.devices == ("cuda:0",)
        assert statistics.solver == "least ids"
        assert statistics.processed_items.tolist() == [HARD[name].vertex_count]

    def test_slices_and_plans(self, devices: list[str]) -> None:
        graph = HARD["web"]
        self.check(graph, devices, gpu=GpuOptions(slice_s=0))
        with gw.place(graph, devices) as placed:
            for _ in range(2):
                result = gw.strongly_connected_components(placed)
                np.testing.assert_array_equal(result.label, expected_labels(graph))

    def test_long_runs_end_on_the_cpu(
        self, devices: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cuda, "MOST_STEPS", 20)
        assert self.check(cycle(200, 5), devices).solver == "depth-first"
        monkeypatch.setattr(cuda, "MOST_STEPS", 1000)
        monkeypatch.setattr(cuda, "MOST_PASSES", 1)
        assert self.check(chain_of_cycles(30), devices).solver == "depth-first"
        leaves = np.arange(5, 5005)  # 1 <-> 0 -> leaves -> 2 -> 3 <-> 4
        graph = Graph.from_edges(
            np.concatenate([np.zeros(5000, int), leaves, [0, 1, 2, 3, 4]]),
            np.concatenate([leaves, np.full(5000, 2), [1, 0, 3, 4, 3]]),
        )
        monkeypatch.setattr(cuda, "MOST_PASSES", 256)
        assert self.check(graph, devices).solver == "least ids"
        monkeypatch.setattr(cuda, "MOST_SLOW", -graph.arc_count)
        assert self.check(graph, devices).solver == "depth-first"

    @pytest.mark.parametrize(
        "name", ["random directed", "directed path", "grid", "star", "64-bit ids", "one vertex"]
    )
    def test_generations(self, devices: list[str], name: str) -> None:
        graph = acyclic(named_graph(name))
        expected = gw.topological_generations(graph, devices="cpu").generation
        for gpu in (None, ExperimentOptions(slice_s=0, blocks=2)):
            result = gw.topological_generations(graph, devices=devices, gpu=gpu)
            np.testing.assert_array_equal(result.generation, expected)
            assert result.statistics.devices == ("cuda:0",)

    def test_generations_without_room_on_the_first(
        self, devices: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(StepPlacement, "has_room_for_copy", lambda _: False)
        graph = acyclic(named_graph("random directed"))
        expected = gw.topological_generations(graph, devices="cpu").generation
        result = gw.topological_generations(graph, devices=devices)
        np.testing.assert_array_equal(result.generation, expected)
        assert (result.statistics.solver == "step program") == (len(devices) > 1)


def test_generations_of_long_rows_and_of_wide_and_narrow_generations() -> None:
    """Each of 200 vertices reaches the same 300, the last of which begins a path to a hub."""
    path = np.arange(499, 899)
    sources = [np.repeat(np.arange(200), 300), path, np.full(2000, 899)]
    targets = [np.tile(np.arange(200, 500), 200), path + 1, np.arange(900, 2900)]
    graph = Graph.from_edges(np.concatenate(sources), np.concatenate(targets))
    with emulated_gpus(1, seed=3, checks=True):
        result = gw.topological_generations(graph, devices="cuda")
    expected = np.full(2900, 402, np.int32)
    expected[:200], expected[200:500], expected[500:900] = 0, 1, np.arange(2, 402)
    np.testing.assert_array_equal(result.generation, expected)


def test_a_core_takes_over_generations_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GODWIT_DEVICES", raising=False)
    monkeypatch.setattr(polling, "_FIRST_LOOK_S", 0.0)
    graph = Graph.from_edges(np.arange(4999), np.arange(1, 5000))
    with emulated_gpus(1):
        with gw.place(graph) as placed:
            for _ in range(2):
                result = gw.topological_generations(placed)
                assert result.generation.tolist() == list(range(5000))
                assert result.statistics.solver == "one thread"
            assert placed.slow == {"topological_generations"}
        with gw.place(graph, "cuda:0") as placed:
            assert gw.topological_generations(placed).statistics.devices == ("cuda:0",)


@given(graphs(directed=True))
@settings(max_examples=15)
def test_generations_on_and_behind_cycles(graph: Graph) -> None:
    expected = gw.is_directed_acyclic_graph(graph, devices="cpu")
    with emulated_gpus(1):
        assert gw.is_directed_acyclic_graph(graph, devices="cuda") == expected


def test_options_that_mean_nothing_are_refused() -> None:
    graph = named_graph("random directed")
    with emulated_gpus(1):
        for gpu in (GpuOptions(communication="broadcast"), GpuOptions(schedule="warp"),
                    ExperimentOptions(hops=2)):  # fmt: skip
            with pytest.raises(InputError):
                gw.strongly_connected_components(graph, devices="cuda", gpu=gpu)


@pytest.mark.parametrize("seed", range(8))
def test_random_schedules_without_races(seed: int) -> None:
    generator = np.random.default_rng(seed)
    n, arcs = int(generator.integers(2, 70)), int(generator.integers(1, 150))
    graph = Graph.from_edges(*generator.integers(0, n, (2, arcs)), vertex_count=n)
    with emulated_gpus(1, seed=seed, checks=True):
        result = gw.strongly_connected_components(graph, devices="cuda")
    np.testing.assert_array_equal(result.label, expected_labels(graph))


# The verifier.


@given(graphs(directed=True, min_vertices=2), st.data())
def test_wrong_labels_are_refused(graph: Graph, data: Any) -> None:
    label = expected_labels(graph)
    gw.verify_strongly_connected_components(graph, label)
    v = data.draw(st.integers(0, graph.vertex_count - 1))
    wrong = label.copy()
    wrong[v] = data.draw(st.integers(-1, graph.vertex_count).filter(lambda to: to != label[v]))
    with pytest.raises(VerificationError):
        gw.verify_strongly_connected_components(graph, wrong)


def test_components_that_are_too_fine_or_too_coarse_are_refused() -> None:
    graph = chain_of_cycles(2)
    for label in ([0, 1, 2, 3, 3, 3], [0] * 6, [0, 0, 0, 3, 4, 5]):
        with pytest.raises(VerificationError):
            gw.verify_strongly_connected_components(graph, np.array(label))


# The graph of components.


@given(graphs(directed=True))
def test_condensation(graph: Graph) -> None:
    other = as_networkx(graph)
    condensed = gw.condensation(graph, devices="cpu")
    assert sorted(map(sorted, condensed.members)) == sorted(
        map(sorted, nx.strongly_connected_components(other))
    )
    assert [members[0] for members in condensed.members] == condensed.names.tolist()
    expected = {
        (condensed.component[u], condensed.component[v]) for u, v in other.edges()
        if condensed.component[u] != condensed.component[v]
    }  # fmt: skip
    sources, targets, weights = condensed.graph.to_edges()
    assert weights is None
    assert sorted(zip(sources, targets, strict=True)) == sorted(expected)
    assert gw.is_directed_acyclic_graph(condensed.graph, devices="cpu")


def test_condensation_of_undirected_graphs_is_refused() -> None:
    with pytest.raises(InputError, match="this graph is undirected"):
        gw.condensation(named_graph("path"))


# Topological generations.


def acyclic(graph: Graph) -> Graph:
    """The graph with all arcs turned to the larger vertex, without self-loops."""
    sources, targets, _ = graph.to_edges()
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    return Graph.from_edges(
        low[low != high], high[low != high], vertex_count=graph.vertex_count
    ).relabel(np.random.default_rng(4).permutation(graph.vertex_count))


@given(graphs(directed=True))
def test_generations(graph: Graph) -> None:
    graph = acyclic(graph)
    result = gw.topological_generations(graph, devices="cpu")
    assert result.members == [
        sorted(generation) for generation in nx.topological_generations(as_networkx(graph))
    ]
    assert result.sizes.tolist() == list(map(len, result.members))
    assert result.order.tolist() == list(chain.from_iterable(result.members))
    gw.verify_topological_generations(graph, result)
    assert gw.is_directed_acyclic_graph(graph, devices="cpu")


@given(graphs(directed=True))
def test_a_cycle_is_named(graph: Graph) -> None:
    other = as_networkx(graph)
    on_cycle = [
        v for component in nx.strongly_connected_components(other) for v in component
        if len(component) > 1 or other.has_edge(v, v)
    ]  # fmt: skip
    assert gw.is_directed_acyclic_graph(graph, devices="cpu") == (not on_cycle)
    if on_cycle:
        with pytest.raises(CycleError) as caught:
            gw.topological_generations(graph, devices="cpu")
        assert caught.value.vertex == min(on_cycle)
        assert pickle.loads(pickle.dumps(caught.value)).vertex == min(on_cycle)


def test_wrong_generations_are_refused() -> None:
    graph = Graph.from_edges([0, 0, 1], [1, 2, 2])
    gw.verify_topological_generations(graph, np.array([0, 1, 2]))
    for wrong in ([0, 1, 1], [0, 2, 3], [1, 2, 3], [0, 1, 3], [-1, 0, 1]):
        with pytest.raises(VerificationError):
            gw.verify_topological_generations(graph, np.array(wrong))


def test_undirected_graphs_have_no_generations() -> None:
    with pytest.raises(InputError, match="this graph is undirected"):
        gw.topological_generations(named_graph("path"))
    assert not gw.is_directed_acyclic_graph(named_graph("path"))


# Commands.


def _run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--devices", "cpu", "--json", "--verify"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_commands(tmp_path: Path) -> None:
    file, out = tmp_path / "graph.mtx", tmp_path / "out.npy"
    gw.write(chain_of_cycles(4), file)
    facts = _run("strong-components", str(file), "-o", str(out))
    assert facts["components"] == 4
    assert facts["verified"]
    assert np.load(out).tolist() == np.repeat(3 * np.arange(4), 3).tolist()
    gw.write(Graph.from_edges([0, 1], [1, 2]), file)
    facts = _run("topological-generations", str(file), "-o", str(out))
    assert facts["generations"] == 3
    assert np.load(out).tolist() == [0, 1, 2]
    gw.write(cycle(4), file)
    result = CliRunner().invoke(app, ["topological-generations", str(file), "--devices", "cpu"])
    assert result.exit_code == 2
    assert "vertex 1 is on a cycle" in result.output, "vertices are numbered as in the file"


# NetworkX's order.


@settings(max_examples=50)
@given(graphs(directed=True))
def test_order_of_networkx(graph: Graph) -> None:
    import godwit.networkx as backend

    other = nx.DiGraph(as_networkx(graph))
    arrays = backend.from_networkx(other)
    assert list(backend.strongly_connected_components(arrays)) == list(
        nx.strongly_connected_components(other)
    )
    ours, theirs = backend.condensation(arrays), nx.condensation(other)
    assert ours.graph == theirs.graph
    assert list(ours.nodes(data=True)) == list(theirs.nodes(data=True))
    assert list(ours.edges) == list(theirs.edges)
    ordered = nx.DiGraph((u, v) for u, v in other.edges if u < v)
    assert list(backend.topological_generations(backend.from_networkx(ordered))) == list(
        nx.topological_generations(ordered)
    )


def test_generations_of_a_graph_that_changes() -> None:
    import godwit.networkx as backend

    changes: list[Any] = [
        lambda g: g.add_edge(4, 1),
        lambda g: g.remove_node(4),
        lambda g: g.remove_node(2),
    ]
    for change in changes:
        outcomes = []
        for module in (nx, backend):
            graph = nx.DiGraph(pairwise([1, 2, 3, 4]))
            converted: Any = graph if module is nx else backend.from_networkx(graph)
            found = module.topological_generations(converted)
            assert next(found) == [1]
            change(graph)
            with pytest.raises((RuntimeError, nx.NetworkXUnfeasible)) as caught:
                list(found)
            outcomes.append(caught.type)
        assert outcomes[0] is outcomes[1]


def test_acyclicity_reports_progress_and_records_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "run.json"
    graph = gw.Graph.from_edges(np.arange(99), np.arange(1, 100))
    assert gw.is_directed_acyclic_graph(graph, devices="cpu", progress=lambda _: None, trace=trace)
    assert "is_directed_acyclic_graph" in trace.read_text()
