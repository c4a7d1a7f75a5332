"""Connected components on GPUs: SciPy's partition, over methods, devices, merges and slices of time.

Without a GPU the very kernels run on emulated ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.components import MERGES
from godwit.algorithms.components.cuda import UnionQuery, label_on_gpus
from godwit.arrays import ResultLocation
from godwit.cli.application import app
from godwit.errors import DeviceError, GraphTooLargeError
from godwit.graph.csr import Graph
from godwit.runtime.cuda import driver
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.runtime.registry import resolve_devices
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import COUNT, COUNTS, names_of, needs_gpu, on_endpoints
from graphs import each_graph, graphs, named_graph
from test_components import UNIONS, expected_labels


def merges_of(devices: list[str]) -> tuple[str, ...]:
    return ("auto",) if len(devices) == 1 else ("tree", "direct")


def check(graph: Graph, devices: list[str], **options: Any) -> RunStatistics:
    """Every merge, against SciPy; of directed graphs also with in-rows, which placed graphs have."""
    expected = expected_labels(graph)
    for merge in merges_of(devices):
        result = gw.connected_components(graph, merge=merge, devices=devices, **options)
        assert result.label.dtype == graph.targets.dtype
        np.testing.assert_array_equal(result.label, expected)
    return check_kept(graph, devices, **options) if graph.directed else result.statistics


def check_kept(graph: Graph, devices: list[str], **options: Any) -> RunStatistics:
    """Every merge on a placed graph, against SciPy."""
    expected = expected_labels(graph)
    with gw.place(graph, devices) as placed:
        for merge in merges_of(devices):
            result = gw.connected_components(placed, merge=merge, **options)
            np.testing.assert_array_equal(result.label, expected)
    return result.statistics


def graph_with_long_rows(*, directed: bool) -> Graph:
    """Rows above the limit of 256 arcs, from hubs that have few arcs between them, and small components."""
    generator = np.random.default_rng(7)
    lengths = [900, 600, 300, 257, 256, 255, 40, 9, 5, 4, 3, 2, 1]
    sources = np.repeat(np.arange(len(lengths)), lengths)
    targets = generator.integers(20, 2500, len(sources))
    tails = np.arange(2600, 2700, 3)
    sources, targets = np.append(sources, tails), np.append(targets, tails + 1)
    return Graph.from_edges(sources, targets, vertex_count=2703, directed=directed)


class TestEmulated:
    @pytest.fixture(autouse=True, params=COUNTS)
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @each_graph
    def test_as_scipy(self, name: str, devices: list[str]) -> None:
        for method in UNIONS:
            check(named_graph(name), devices, method=method)

    @pytest.mark.parametrize("method", UNIONS)
    @pytest.mark.parametrize("directed", [False, True])
    def test_long_rows(self, directed: bool, method: str, devices: list[str]) -> None:
        graph = graph_with_long_rows(directed=directed)
        check(graph, devices, method=method)
        check(graph, devices, method=method, rounds=2, gpu=GpuOptions(slice_s=0))

    def test_more_neighbours_are_linked_where_trees_are_many(self, devices: list[str]) -> None:
        """Cliques: first neighbours join hardly more than one. A star needs no more."""
        supersteps = {}
        cliques, star = gw.generate("complete:12,copies=100"), gw.generators.star(500)
        for name, graph in (("cliques", cliques), ("star", star)):
            for rounds in (None, 1):
                found = check(graph, devices, method="afforest", rounds=rounds)
                supersteps[name, rounds] = int(found.rounds.max())
        assert supersteps["cliques", None] > supersteps["cliques", 1]
        assert supersteps["star", None] == supersteps["star", 1]

    @pytest.mark.parametrize("method", UNIONS)
    def test_rounds_and_jumps(self, method: str, devices: list[str]) -> None:
        for spec in ("rmat:7,seed=2", "rmat:7,symmetrize=false", "road:15", "path:300"):
            graph = gw.generate(spec)
            for rounds, jumps in ((1, None), (3, None), (1, 0), (2, 1)):
                check(graph, devices, method=method, rounds=rounds, jumps=jumps)

    def test_labels_propagate(self, devices: list[str]) -> None:
        for name in ("random sparse", "two components", "64-bit ids"):
            graph = named_graph(name)
            found = gw.connected_components(graph, method="label-propagation", devices=devices)
            np.testing.assert_array_equal(found.label, expected_labels(graph))

    def test_positions_of_64_bits(self, devices: list[str]) -> None:
        for graph in (gw.generate("rmat:7"), graph_with_long_rows(directed=True)):
            for splices in (False, True):
                for merge in MERGES[1:]:
                    query = UnionQuery(
                        not splices, splices, 1, 0, None, merge, ResultLocation(),
                        graph.targets.dtype, GpuOptions(),
                    )  # fmt: skip
                    placement = StepPlacement(resolve_devices(devices), graph, id_dtype=np.int64)
                    try:
                        found = label_on_gpus(placement, query, None).labels
                    finally:
                        placement.close()
                    np.testing.assert_array_equal(found, expected_labels(graph))

    def test_partitions_and_statistics(self, devices: list[str]) -> None:
        graph = gw.generate("road:25,seed=3")
        for partition in (None, "random", np.arange(graph.vertex_count) * 0):
            if partition is not None and len(devices) == 1:
                continue
            with gw.place(graph, devices, partition) as placed:
                for merge in merges_of(devices):
                    result = gw.connected_components(placed, merge=merge)
                    np.testing.assert_array_equal(result.label, expected_labels(graph))
        statistics = gw.connected_components(graph, method="rem", devices=devices).statistics
        assert statistics.devices == tuple(devices)
        assert statistics.arcs_relaxed.sum() == graph.arc_count
        assert {"rows", "compile", "kernel", "gather", "run"} <= set(statistics.seconds)
        assert all(seconds >= 0 for seconds in statistics.seconds.values())


class TestSchedules:
    @pytest.mark.parametrize("seed", range(1, 6))
    @pytest.mark.parametrize("method", UNIONS)
    def test_no_order_of_threads_matters(self, method: str, seed: int) -> None:
        graphs_ = [gw.generators.rmat(6, 3, seed=seed), gw.generators.road(12, seed=seed)]
        with emulated_gpus(3, seed=seed):
            for devices in (names_of(1), names_of(3), ["cuda:1", "cuda:1"]):
                for graph in graphs_:
                    check(graph, devices, method=method)
                    check(graph, devices, method=method, rounds=2)

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("count", COUNTS)
    def test_no_races(self, count: int, seed: int) -> None:
        with emulated_gpus(count, seed=seed, checks=True):
            for graph in (gw.generate("rmat:6"), gw.generate("rmat:6,symmetrize=false")):
                for method in UNIONS:
                    check(graph, names_of(count), method=method, rounds=2)

    @settings(max_examples=15)
    @given(
        graph=graphs(),
        method=st.sampled_from(UNIONS),
        count=st.integers(1, 3),
        seed=st.integers(0, 99),
    )
    def test_any_graph(self, graph: Graph, method: str, count: int, seed: int) -> None:
        with emulated_gpus(count, seed=seed):
            check(graph, names_of(count), method=method)

    def test_rows_of_the_largest_are_left_out(self) -> None:
        graph = gw.generate("rmat:9")
        with emulated_gpus(2):
            for devices in (names_of(1), names_of(2)):
                statistics = check(graph, devices, method="afforest", rounds=2)
                # Besides second neighbours, which are one arc a vertex.
                assert statistics.arcs_relaxed.sum() < graph.vertex_count + graph.arc_count // 50

    def test_rows_of_the_largest_are_left_out_of_directed_graphs(self) -> None:
        graph = gw.generate("rmat:9,symmetrize=false")
        with emulated_gpus(2):
            for devices in (names_of(1), names_of(2)):
                statistics = check_kept(graph, devices, method="afforest", rounds=1)
                assert statistics.arcs_relaxed.sum() < graph.arc_count // 5

    def test_in_rows_reach_components_without_arcs_out(self) -> None:
        """The largest component has all arcs; whatever is joined to it is so by arcs from there only."""
        hub, leaves = 0, np.arange(1, 400)
        far = np.arange(400, 500)
        sources = np.concatenate([np.full(len(leaves), hub), leaves[: len(far)]])
        graph = Graph.from_edges(sources, np.concatenate([leaves, far]), vertex_count=500)
        for seed in range(3):
            with emulated_gpus(2, seed=seed):
                for devices in (names_of(1), names_of(2)):
                    check_kept(graph, devices, method="afforest", rounds=1)

    def test_one_of_several_gpus_is_chosen_where_it_is_faster(self) -> None:
        graph = gw.generate("rmat:8,seed=5")
        with emulated_gpus(2), gw.place(graph, names_of(2)) as placed:
            for merge, devices in (("auto", 1), ("direct", 2), ("auto", 1)):
                result = gw.connected_components(placed, merge=merge)
                assert result.statistics.devices == tuple(names_of(devices))
                assert len(result.statistics.processed_items) == devices
                np.testing.assert_array_equal(result.label, expected_labels(graph))
            assert gw.connected_components(placed, method="rem").statistics.devices == (
                "cuda:0",
                "cuda:1",
            )

    def test_all_gpus_are_taken_where_one_has_no_room(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        graph = gw.generate("rmat:8,seed=5")
        monkeypatch.setattr("godwit.supersteps.placement._COPY_ROOM", 10**9)
        with emulated_gpus(2):
            result = gw.connected_components(graph, devices=names_of(2))
            assert result.statistics.devices == ("cuda:0", "cuda:1")
            np.testing.assert_array_equal(result.label, expected_labels(graph))

    def test_all_memory_is_given_back(self) -> None:
        with emulated_gpus(2) as machine:
            for merge in ("tree", "direct"):
                gw.connected_components(
                    named_graph("random directed"), merge=merge, devices=names_of(2)
                )
            assert [machine.held_bytes(index) for index in (0, 1)] == [0, 0]

    def test_a_graph_that_does_not_fit(self) -> None:
        graph = gw.generators.path(5000)
        too_large = pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .* and has .* free")
        with emulated_gpus(1, memory_bytes=200_000), too_large:
            gw.connected_components(
                graph, devices="cuda:0", method="afforest"
            )  # which cannot stream

    def test_links_without_atomics(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = gw.generators.path(50)
        with emulated_gpus(2):
            monkeypatch.setattr(driver, "peer_attribute", lambda name, here, there: 0)
            with pytest.raises(DeviceError, match=r"by atomics, .* without merge='direct'"):
                gw.connected_components(graph, merge="direct", devices=names_of(2))
            assert gw.connected_components(graph, devices=["cuda:0", "cuda:0"]).count == 1

    def test_the_command(self) -> None:
        with emulated_gpus(2):
            arguments = ["components", "rmat:6,seed=4", "--devices", "cuda:0,cuda:1", "--json"]
            ran = CliRunner().invoke(app, [*arguments, "--merge", "tree"])
            assert ran.exit_code == 0, ran.output
        facts = json.loads(ran.stdout)
        assert facts["statistics"]["devices"] == ["cuda:0", "cuda:1"]
        wanted = gw.connected_components(gw.generate("rmat:6,seed=4"), devices="cpu")
        assert facts["components"] == wanted.count


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @each_graph
    def test_as_scipy(self, name: str, devices: list[str]) -> None:
        for method in UNIONS:
            check(named_graph(name), devices, method=method)

    @on_endpoints
    @pytest.mark.parametrize(
        "spec", ["rmat:16", "rmat:15,symmetrize=false", "road:600", "path:1000000", "star:100000",
                 "road:1200", "path:2000000"],
    )  # fmt: skip
    def test_larger_graphs(self, spec: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        expected = gw.connected_components(graph, method="rem", devices="cpu").label
        for method in UNIONS:
            for merge in merges_of(devices):
                for gpu in (GpuOptions(), ExperimentOptions(slice_s=0, delay_ns=20_000)):
                    found = gw.connected_components(
                        graph, method=method, merge=merge, devices=devices, gpu=gpu
                    )
                    np.testing.assert_array_equal(found.label, expected)

    @on_endpoints
    def test_long_rows(self, devices: list[str]) -> None:
        for directed in (False, True):
            graph = graph_with_long_rows(directed=directed)
            for method in UNIONS:
                check(graph, devices, method=method, rounds=2)

    @on_endpoints
    def test_results_on_a_gpu(self, devices: list[str]) -> None:
        graph = named_graph("random sparse")
        for results in ("cuda:0", f"cuda:{COUNT - 1}"):
            for method in ("afforest", "label-propagation"):
                found = gw.connected_components(
                    graph, method=method, devices=devices, results=results
                )
                label: Any = found.label
                assert label.device.id == ResultLocation.named(results).gpu
                np.testing.assert_array_equal(label.get(), expected_labels(graph))
                assert found.sizes.sum() == graph.vertex_count
