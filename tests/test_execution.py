"""Asynchronously or in supersteps: equal results over devices and partitions, and what tells them apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

import godwit as gw
from godwit.errors import InputError, RunTimeoutError, ValueOverflowError
from godwit.runtime.cuda import driver
from godwit.runtime.gpu_options import ExperimentOptions
from graphs import ZOO, each_graph, graphs, named_graph
from programs import WALKS
from references import as_list, breadth_first, dijkstra
from test_vertex_program import example

EXECUTIONS = ("auto", "asynchronous", "bulk-synchronous")
DEVICES: list[Any] = ["cpu", "cpu:0", ["cpu:0", "cpu:1"], 3]
PARTITIONS = ("contiguous", "random")
STEPS: dict[str, Any] = {"execution": "bulk-synchronous"}

each_devices = pytest.mark.parametrize("devices", DEVICES, ids=str)
each_execution = pytest.mark.parametrize("execution", EXECUTIONS)


def widest(graph: gw.Graph, source: int) -> list[float]:
    """Widths of widest paths: Dijkstra's algorithm, slowly, with another order."""
    weights = np.ones(graph.arc_count) if graph.weights is None else graph.weights
    width = [0.0] * graph.vertex_count
    width[source] = np.inf
    left = set(range(graph.vertex_count))
    while left:
        vertex = max(left, key=lambda v: width[v])
        left.remove(vertex)
        for arc in range(graph.offsets[vertex], graph.offsets[vertex + 1]):
            target = int(graph.targets[arc])
            width[target] = max(width[target], min(width[vertex], float(weights[arc])))
    return width


def divided(devices: Any) -> bool:
    return isinstance(devices, list) or (isinstance(devices, int) and devices > 1)


@pytest.mark.thorough
@given(data=st.data(), graph=graphs(min_vertices=1))
@settings(max_examples=120)
def test_paths_and_widths_of_any_graph(data: st.DataObject, graph: gw.Graph) -> None:
    if graph.weights is not None:  # one type, since each is compiled for every engine
        graph = graph.with_weights(graph.weights.astype(np.int32))
    devices = data.draw(st.sampled_from(DEVICES))
    source = data.draw(st.integers(0, graph.vertex_count - 1))
    asked: dict[str, Any] = {
        "devices": devices,
        "execution": data.draw(st.sampled_from(EXECUTIONS)),
        "worker": (
            rooms := gw.WorkerOptions(
                ring_items=data.draw(st.sampled_from([1, 2, 64])),
                capacity_items=data.draw(st.sampled_from([None, 1])),
            )
        ),
    }
    if divided(devices):
        asked["partition"] = data.draw(st.sampled_from(PARTITIONS))
    levels = gw.bfs(graph, source, **asked)
    assert as_list(levels.distance, levels.unreached) == breadth_first(graph, [source])
    asked["worker"] = replace(rooms, delta=data.draw(st.sampled_from([None, 0.5, 3.0, 1e9])))
    paths = gw.sssp(graph, source, **asked)
    assert as_list(paths.distance, paths.unreached) == dijkstra(graph, [source])
    found = example("widest_path").widest_path(graph, source, **asked)
    assert found.tolist() == widest(graph, source)


@each_graph
@each_devices
def test_both_executions_give_the_same_paths(name: str, devices: Any) -> None:
    graph = named_graph(name)
    if graph.vertex_count == 0:
        pytest.skip("no vertex to start from")
    for source in {0, graph.vertex_count // 2, graph.vertex_count - 1}:
        for query in (gw.bfs, gw.sssp):
            wanted = query(graph, source, devices=devices, execution="asynchronous")
            found = query(graph, source, devices=devices, **STEPS)
            assert np.array_equal(found.distance, wanted.distance)
            assert np.array_equal(found.predecessor, wanted.predecessor)


@each_devices
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("name", ["grid", "complete", "random undirected"])
def test_residual_pagerank_in_supersteps(name: str, partition: str, devices: Any) -> None:
    graph = named_graph(name).without_weights().merge_parallel_arcs().remove_self_loops()
    graph = graph.largest_component()
    options: dict[str, Any] = {"partition": partition} if divided(devices) else {}
    rank = example("residual_pagerank").residual_pagerank(
        graph, epsilon=1e-12, devices=devices, **STEPS, **options
    )
    other = networkx.from_scipy_sparse_array(
        graph.to_scipy(merge="min"), create_using=networkx.DiGraph
    )
    expected = networkx.pagerank(other, alpha=0.85, tol=1e-12, max_iter=1000)
    np.testing.assert_allclose(rank, [expected[v] for v in range(graph.vertex_count)], atol=1e-8)


@given(data=st.data(), graph=graphs(min_vertices=1, directed=False))
@settings(max_examples=60)
def test_label_propagation_finds_scipys_components(data: st.DataObject, graph: gw.Graph) -> None:
    devices = data.draw(st.sampled_from(DEVICES))
    execution = data.draw(st.sampled_from(EXECUTIONS))
    label = example("label_propagation").label_propagation(
        graph, devices=devices, execution=execution
    )
    _, component = connected_components(
        graph.without_weights().to_scipy(merge="min"), directed=False
    )
    smallest = np.full(graph.vertex_count, graph.vertex_count)
    np.minimum.at(smallest, component, np.arange(graph.vertex_count))
    assert label.tolist() == smallest[component].tolist()


def test_label_propagation_refuses_directed_graphs() -> None:
    with pytest.raises(ValueError, match="symmetrize"):
        example("label_propagation").label_propagation(named_graph("cycle"))


@each_devices
def test_nothing_that_is_added_gets_lost_in_supersteps(devices: Any) -> None:
    """Three walks lead down a binary tree to every leaf: fewer were lost, more were taken twice."""
    depth = 10
    inner = np.arange(2**depth - 1)
    graph = gw.Graph.from_edges(
        np.repeat(inner, 2), np.stack([2 * inner + 1, 2 * inner + 2], 1).ravel()
    )
    result = gw.run(
        WALKS, graph, {0: 3}, devices=devices, worker=gw.WorkerOptions(ring_items=1), **STEPS
    )
    assert result.fields[2**depth - 1 :].tolist() == [3] * 2**depth


@each_devices
def test_a_superstep_goes_one_arc_far(devices: Any) -> None:
    """So on a path there are as many as arcs, plus the last, which finds nothing; one vertex in each."""
    arcs = 500
    graph = gw.generators.path(arcs + 1)
    options: dict[str, Any] = {"partition": "random"} if divided(devices) else {}
    with gw.place(graph, devices, **options) as placed:
        stepped = gw.run(HOPS, placed, {0: 0}, **STEPS)
        free = gw.run(HOPS, placed, {0: 0}, execution="asynchronous")
    assert stepped.values.tolist() == free.values.tolist() == list(range(arcs + 1))
    assert set(stepped.statistics.rounds.tolist()) <= {arcs, arcs + 1}
    assert stepped.statistics.processed_items.sum() == arcs + 1
    if not divided(devices):
        assert free.statistics.rounds.max() < arcs


HOPS = gw.VertexProgram(
    name="hops", dtype="int32", message=lambda value: value + 1, combine="min"
)  # fmt: skip


@each_devices
def test_supersteps_keep_the_order_that_delta_gives(devices: Any) -> None:
    """With one bucket there is none, and much is done twice; with narrow ones hardly anything is."""
    graph = gw.generators.road(60, seed=1, weights=(1, 64)).largest_component()
    source = graph.highest_degree_vertex()
    wanted = gw.sssp(graph, source, devices="cpu", execution="asynchronous").distance
    processed = {}
    for delta in (32.0, 1e9):
        found = gw.sssp(
            graph, source, devices=devices, worker=gw.WorkerOptions(delta=delta), **STEPS
        )
        assert np.array_equal(found.distance, wanted)
        processed[delta] = int(found.statistics.processed_items.sum())
    assert processed[32.0] < processed[1e9]
    assert gw.sssp(graph, source, devices=devices, **STEPS).statistics.delta == (
        gw.sssp(graph, source, devices=devices, execution="asynchronous").statistics.delta
    )


def test_the_statistics_say_which_execution_ran() -> None:
    graph = gw.generators.path(10)
    solvers = {
        (str(devices), execution): gw.sssp(
            graph, 0, devices=devices, execution=execution
        ).statistics.solver
        for devices in DEVICES
        for execution in EXECUTIONS
    }
    assert solvers == {
        (str(devices), execution): "bulk-synchronous"
        if execution == "bulk-synchronous"
        else "delta-stepping" if devices == "cpu" else "asynchronous"
        for devices in DEVICES
        for execution in EXECUTIONS
    }  # fmt: skip


@each_devices
def test_a_limit_and_a_target_end_supersteps_early(devices: Any) -> None:
    graph = gw.generators.road(80, seed=2, weights=(1, 9)).largest_component()
    source = graph.highest_degree_vertex()
    whole = gw.sssp(graph, source, devices=devices, **STEPS)
    target = int(np.argsort(whole.distance)[graph.vertex_count // 4])
    near = gw.sssp(graph, source, devices=devices, target=graph.ids[target], **STEPS)
    reached = whole.distance <= whole.distance[target]
    assert np.array_equal(near.distance[reached], whole.distance[reached])
    assert (near.distance[~reached] == near.unreached).all()
    assert near.statistics.processed_items.sum() < whole.statistics.processed_items.sum()
    cut = gw.sssp(graph, source, devices=devices, cutoff=int(whole.distance[target]), **STEPS)
    assert np.array_equal(cut.distance, near.distance)


@each_devices
def test_an_endless_program_times_out_between_supersteps(devices: Any) -> None:
    graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 0])
    with pytest.raises(RunTimeoutError, match=r"did not finish within 0\.3 s"):
        gw.run(WALKS, graph, {0: 1}, devices=devices, timeout_s=0.3, **STEPS)
    assert gw.bfs(graph, 0, devices=devices, **STEPS).distance.tolist() == [0, 1, 2]


@each_devices
def test_a_value_that_does_not_fit_ends_supersteps(devices: Any) -> None:
    program = gw.VertexProgram(
        name="doubling", dtype="int32", message=lambda value: value * 2, combine="max", initial=0
    )
    with pytest.raises(ValueOverflowError, match="'doubling' does not fit int32"):
        gw.run(program, gw.generators.path(40), {0: 1}, devices=devices, **STEPS)


def test_wrong_executions() -> None:
    graph = gw.generators.path(3)
    for wrong in ("synchronous", "", None, 1, ["auto"], np.array(["auto", "auto"])):
        for query in (gw.bfs, gw.sssp):
            with pytest.raises(
                InputError, match="'auto', 'asynchronous' or 'bulk-synchronous', got"
            ):
                query(graph, 0, execution=wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="'auto', 'asynchronous' or 'bulk-synchronous', got"):
            gw.run(HOPS, graph, {0: 0}, execution=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="hops of ExperimentOptions must be 0, 1 or None, got 2"):
        gw.sssp(graph, 0, gpu=ExperimentOptions(hops=2), **STEPS)
    assert gw.sssp(graph, 0, gpu=ExperimentOptions(hops=0), **STEPS).distance.tolist() == [0, 1, 2]


# On GPUs.

_NEEDS_GPU = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
ENDPOINTS = [["cuda:0"], ["cuda:0", "cuda:0"]]
if driver.device_count() > 1:
    ENDPOINTS.append([f"cuda:{index}" for index in range(driver.device_count())])
each_endpoints = pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)


def on_gpus(test: Any) -> Any:
    return pytest.mark.gpu(_NEEDS_GPU(test))


@on_gpus
@each_endpoints
@pytest.mark.parametrize("hops", [None, 0, 1])
def test_gpus_go_in_supersteps(devices: list[str], hops: int | None) -> None:
    gpu = ExperimentOptions(hops=hops)
    widest_path = example("widest_path").widest_path
    for name in ZOO:
        graph = named_graph(name)
        if graph.vertex_count == 0:  # there is no vertex to begin at
            continue
        partition = "random" if len(devices) > 1 else None
        with gw.place(graph, devices, partition) as placed:
            for source in {0, graph.vertex_count - 1}:
                # Breadth-first search has supersteps of its own, which know of no hops.
                for query, how in ((gw.bfs, gw.GpuOptions()), (gw.sssp, gpu)):
                    wanted = query(graph, source, devices="cpu").distance
                    found = query(placed, source, gpu=how, **STEPS)
                    assert np.array_equal(found.distance, wanted), (name, source)
                width = widest_path(placed, source, gpu=gpu, **STEPS)
                assert width.tolist() == widest(graph, source), (name, source)


@on_gpus
@each_endpoints
@pytest.mark.parametrize("slice_s", [0.1, 0])
def test_supersteps_of_gpus_started_by_the_host_or_not(devices: list[str], slice_s: float) -> None:
    arcs = 300
    graph = gw.generators.path(arcs + 1)
    found = gw.run(
        HOPS, graph, {0: 0}, devices=devices, gpu=gw.GpuOptions(slice_s=slice_s), **STEPS
    )
    assert found.values.tolist() == list(range(arcs + 1))
    assert found.statistics.solver == "bulk-synchronous"
    assert found.statistics.hops == 1
    # A vertex whose place in memory comes later may be processed in the superstep that reaches it.
    assert 2 <= found.statistics.rounds.max() <= arcs + 2
    labels = example("label_propagation").label_propagation(graph, devices=devices, **STEPS)
    assert not labels.any()


@on_gpus
@each_endpoints
def test_residual_pagerank_in_supersteps_on_gpus(devices: list[str]) -> None:
    graph = gw.generators.rmat(10, 8, seed=3)
    residual_pagerank = example("residual_pagerank").residual_pagerank
    exact = residual_pagerank(graph, epsilon=1e-12, devices="cpu")
    found = residual_pagerank(graph, epsilon=1e-9, devices=devices, **STEPS)
    # What is left undone goes on, damped, for ever: 0.85 + 0.85^2 + ... of it is missing, below 6 times.
    assert np.abs(found - exact).sum() < 6 * 1e-9 * graph.vertex_count
