"""PageRank on GPUs: what the CPU finds, over devices, partitions, rows, weights and slices of time.

Without a GPU the very kernels run on emulated ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
from typer.testing import CliRunner

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.pagerank.cuda import RankQuery, rank_on_gpus
from godwit.arrays import ResultLocation, host_array
from godwit.cli.application import app
from godwit.errors import GraphTooLargeError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.runtime.registry import resolve_devices
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import COUNT, COUNTS, names_of, needs_gpu, on_endpoints
from graphs import each_graph, named_graph

ENDLESS: dict[str, Any] = {"damping": 1 - 1e-12, "tolerance": 1e-300, "max_iterations": 10**12}
"""Settings by which a long path does not converge in a lifetime."""


def check(graph: Graph, devices: Any, **settings: Any) -> gw.PageRankResult:
    """Compare with what the CPU finds, by plain iterations unless told otherwise."""
    settings = {"tolerance": 1e-10, "max_iterations": 60, "accelerated": False, **settings}
    gpu = settings.pop("gpu", None)
    wanted = gw.pagerank(graph, devices="cpu", **settings)
    found = gw.pagerank(graph, devices=devices, gpu=gpu, **settings)
    exact = found.rank.dtype == np.float64
    assert found.rank.dtype == wanted.rank.dtype
    if exact:
        assert found.iterations == wanted.iterations
        assert found.converged == wanted.converged
        assert found.residual == pytest.approx(wanted.residual, rel=1e-5, abs=1e-14)
    np.testing.assert_allclose(
        found.rank, wanted.rank, rtol=1e-12 if exact else 2e-5, atol=1e-15 if exact else 1e-7
    )
    if graph.vertex_count:
        assert found.rank.sum(dtype=np.float64) == pytest.approx(1, abs=1e-12 if exact else 1e-6)
    return found


def graph_of_all_classes(
    *, directed: bool, weighted: bool = False, scale: int = 1, hubs_apart: bool = False
) -> Graph:
    """Vertices with 5,000 in-arcs, some hundred, some tens, a few, one and none; two are isolated.

    :param hubs_apart: there are no arcs between those that have many
    """
    generator = np.random.default_rng(5)
    n = 6002 * scale
    lengths = [5000, 4200, 4099, 4097, 700, 300, 257, 256, 90, 40, 33, 32, 17, 9, 5, 4, 3, 2, 1]
    targets = np.repeat(np.arange(len(lengths)), lengths)
    sources = generator.integers(len(lengths) if hubs_apart else 0, n - 2, len(targets))
    if weighted:
        return Graph.from_edges(
            sources, targets, generator.integers(0, 9, len(targets)), vertex_count=n,
            directed=directed,
        )  # fmt: skip
    return Graph.from_edges(sources, targets, vertex_count=n, directed=directed)


class TestEmulated:
    @pytest.fixture(autouse=True, params=COUNTS)
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @each_graph
    def test_ranks_are_the_cpus(self, name: str, devices: list[str]) -> None:
        check(named_graph(name), devices, max_iterations=12)

    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("directed", [False, True])
    def test_rows_of_every_class(self, directed: bool, weighted: bool, devices: list[str]) -> None:
        graph = graph_of_all_classes(directed=directed, weighted=weighted)
        settings: dict[str, Any] = {"max_iterations": 3, "tolerance": 1e-300}
        check(graph, devices, **settings)
        check(graph, devices, **settings, dtype="float32", weighted=weighted)

    def test_queries_of_a_placed_graph_do_not_depend_on_those_before(
        self, devices: list[str]
    ) -> None:
        graph = graph_of_all_classes(directed=True, weighted=True)
        asked: dict[str, Any] = {"max_iterations": 3, "tolerance": 1e-300}
        with gw.place(graph, devices) as placed:
            for dtype in ("float64", "float32", "float64"):
                found = gw.pagerank(placed, dtype=dtype, **asked)
                expected = gw.pagerank(graph, devices="cpu", dtype=dtype, **asked)
                np.testing.assert_allclose(
                    found.rank, expected.rank, rtol=1e-9 if dtype == "float64" else 1e-4
                )
                gw.pagerank(placed, weighted=False, **asked)

    @pytest.mark.parametrize("damping", [0.0, 0.5, 0.99])
    def test_where_walks_begin(self, damping: float, devices: list[str]) -> None:
        for name in ("random sparse", "two components", "star from its last vertex"):
            graph = named_graph(name)
            generator = np.random.default_rng(graph.vertex_count)
            personalization = generator.integers(0, 4, graph.vertex_count)
            initial = {int(v): 1 + v % 3 for v in range(0, graph.vertex_count, 2)}
            for iterations in (1, 2, 9):
                check(
                    graph, devices, damping=damping, personalization=personalization,
                    initial=initial, max_iterations=iterations,
                )  # fmt: skip

    def test_as_networkx(self, devices: list[str]) -> None:
        graph = named_graph("random directed")
        found = gw.pagerank(graph, devices=devices, tolerance=1e-12, max_iterations=1000)
        expected = nx.pagerank(graph.to_networkx(), max_iter=1000, tol=1e-13)
        np.testing.assert_allclose(
            found.rank, [expected[v] for v in range(graph.vertex_count)], rtol=1e-8
        )

    def test_the_same_bits_however_slices_fall(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(7, 6, seed=3)
        found = [
            gw.pagerank(graph, devices=devices, gpu=gpu, max_iterations=9)
            for gpu in (GpuOptions(), GpuOptions(), GpuOptions(slice_s=0))
        ]
        assert len({(one.rank.tobytes(), one.residual) for one in found}) == 1
        assert found[0].iterations == 9

    def test_of_a_placed_graph(self, devices: list[str]) -> None:
        graph = named_graph("random float32")
        partition = np.arange(graph.vertex_count) ** 2 % len(devices)
        with gw.place(graph, devices, partition if len(devices) > 1 else None) as placed:
            for settings in [{"weighted": False}, {}, {"dtype": "float32"}, {}] * 2:
                wanted = gw.pagerank(graph, devices="cpu", **settings)
                found = gw.pagerank(placed, **settings)
                np.testing.assert_allclose(found.rank, wanted.rank, rtol=1e-4)
                assert found.statistics.devices == tuple(devices)
            assert "number" not in found.statistics.seconds

    def test_what_an_interrupted_run_made_is_not_kept(self, devices: list[str]) -> None:
        graph = named_graph("random directed")

        def interrupt(updated: int) -> None:
            raise KeyboardInterrupt

        with gw.place(graph, devices) as placed:
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    gw.pagerank(placed, progress=interrupt)
            found = gw.pagerank(placed, tolerance=1e-10)
        wanted = gw.pagerank(graph, devices="cpu", tolerance=1e-10)
        np.testing.assert_allclose(found.rank, wanted.rank, rtol=1e-9)

    def test_statistics_and_progress(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(7)
        seen: list[int] = []
        found = gw.pagerank(graph, devices=devices, progress=seen.append, gpu=GpuOptions(slice_s=0))
        statistics = found.statistics
        assert statistics.solver == "pull"
        assert statistics.rounds.tolist() == [found.iterations] * len(devices)
        assert statistics.arcs_relaxed.sum() == found.iterations * graph.arc_count
        assert statistics.processed_items.sum() == found.iterations * graph.vertex_count
        assert {"number", "rows", "kernel", "gather"} <= set(statistics.seconds)
        assert seen == sorted(seen)
        assert {count // graph.vertex_count for count in seen} >= set(range(found.iterations))
        json.dumps(statistics.to_dict())

    def test_time_runs_out(self, devices: list[str]) -> None:
        with pytest.raises(RunTimeoutError, match=r"did not finish within 0\.2 s"):
            gw.pagerank(gw.generators.path(100), devices=devices, **ENDLESS, timeout_s=0.2)

    def test_positions_of_64_bits(self, devices: list[str]) -> None:
        graph = named_graph("random undirected")
        host = ResultLocation()
        query = RankQuery(
            np.dtype(np.float64), True, None, None, 0.85, 1e-10, 100, False, host, GpuOptions()
        )
        placement = StepPlacement(resolve_devices(devices), graph, id_dtype=np.int64)
        try:
            outcome = rank_on_gpus(placement, query, None)
        finally:
            placement.close()
        wanted = gw.pagerank(graph, devices="cpu", accelerated=False, tolerance=1e-10)
        assert outcome.iterations == wanted.iterations
        np.testing.assert_allclose(outcome.rank, wanted.rank, rtol=1e-12)


def check_push(graph: Graph, devices: Any, **settings: Any) -> gw.PageRankResult:
    """Residual push gives what pull does, within the residual."""
    settings = {"tolerance": 1e-5, **settings}
    found = gw.pagerank(graph, devices=devices, execution="asynchronous", **settings)
    settings.update(tolerance=1e-12, max_iterations=2000, dtype="float64", results="host")
    exact = gw.pagerank(graph, devices="cpu", **settings).rank
    assert found.converged
    assert found.iterations is None
    assert np.abs(host_array(found.rank) - exact).sum() <= (found.residual + 1e-12) / 0.15
    return found


class TestSchedules:
    @pytest.mark.parametrize("count", COUNTS)
    def test_residual_push(self, count: int) -> None:
        devices = names_of(count)
        with emulated_gpus(count, seed=count) as machine:
            for name in (
                "zero weights", "parallel edges and self-loops", "isolated vertices, weighted",
                "one self-loop", "empty",
            ):  # fmt: skip
                graph = named_graph(name)
                # Each of them is a kernel to compile.
                for dtype, weighted in (("float32", False), ("float64", None)):
                    settings: dict[str, Any] = {"dtype": dtype, "weighted": weighted}
                    found = check_push(graph, devices, tolerance=1e-3, **settings)
                    assert found.rank.dtype == dtype
                    assert found.statistics.devices == tuple(devices)
                    assert found.statistics.solver == "asynchronous"
            graph = named_graph("zero weights")
            partition = np.arange(graph.vertex_count) ** 2 % count
            asked: dict[str, Any] = {"personalization": {3: 1, 5: 2}, "tolerance": 1e-3}
            wanted = gw.pagerank(graph, devices="cpu", **asked).rank
            with gw.place(graph, devices, partition) as placed:
                for _ in range(2):
                    rank = gw.pagerank(placed, **asked, execution="asynchronous").rank
                    assert np.abs(rank - wanted).sum() <= 2e-3 / 0.15
            assert [machine.held_bytes(index) for index in range(count)] == [0] * count

    @pytest.mark.parametrize("seed", range(1, 6))
    def test_no_order_of_threads_matters(self, seed: int) -> None:
        graph = gw.generators.rmat(6, 5, seed=seed, weights=(1, 9))
        with emulated_gpus(2, seed=seed):
            for devices in (["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:1", "cuda:1"]):
                check(graph, devices, max_iterations=5)
                road = gw.generate("road:8x8,seed=3").with_random_weights(1, 9, seed=seed)
                check(road, devices, accelerated=True, tolerance=1e-300, max_iterations=9)

    @pytest.mark.parametrize("seed", range(1, 6))
    def test_one_block_with_several_long_rows(self, seed: int) -> None:
        graph = graph_of_all_classes(directed=True)
        with emulated_gpus(1, seed=seed):
            check(graph, ["cuda:0"], max_iterations=2, gpu=ExperimentOptions(blocks=1))

    def test_gpus_where_they_are_preferred(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GODWIT_DEVICES", "cuda")
        graph = gw.generators.path(9)
        with emulated_gpus(2):
            assert gw.pagerank(graph).statistics.devices == ("cuda:0",)
            assert gw.pagerank(graph, devices="cpu").statistics.devices == ("cpu",)

    def test_all_memory_is_given_back(self) -> None:
        with emulated_gpus(2) as machine:
            gw.pagerank(named_graph("random directed"), devices=["cuda:0", "cuda:1"])
            gw.pagerank(named_graph("random undirected"), devices=["cuda:0"])
            assert [machine.held_bytes(index) for index in (0, 1)] == [0, 0]

    def test_a_graph_that_does_not_fit(self) -> None:
        graph = gw.generators.path(5000)
        too_large = pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .* and has .* free")
        with emulated_gpus(1, memory_bytes=200_000), too_large:
            gw.pagerank(graph, devices="cuda:0")

    def test_the_command(self) -> None:
        with emulated_gpus(2):
            arguments = ["pagerank", "rmat:6,seed=4", "--devices", "cuda:0,cuda:1", "--json"]
            ran = CliRunner().invoke(app, arguments)
            assert ran.exit_code == 0, ran.output
        facts = json.loads(ran.stdout)
        wanted = gw.pagerank(gw.generate("rmat:6,seed=4"), devices="cpu")
        assert facts["statistics"]["devices"] == ["cuda:0", "cuda:1"]
        assert facts["iterations"] == wanted.iterations
        assert facts["top"][0]["rank"] == pytest.approx(wanted.rank.max(), rel=1e-12)


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @each_graph
    def test_ranks_are_the_cpus(self, name: str, devices: list[str]) -> None:
        check(named_graph(name), devices, max_iterations=12)

    @on_endpoints
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("directed", [False, True])
    def test_rows_of_every_class(self, directed: bool, weighted: bool, devices: list[str]) -> None:
        graph = graph_of_all_classes(directed=directed, weighted=weighted, scale=3)
        check(graph, devices)
        check(graph, devices, dtype="float32", tolerance=1e-6)
        check(graph, devices, gpu=ExperimentOptions(slice_s=0, delay_ns=20_000), max_iterations=20)

    @on_endpoints
    @pytest.mark.parametrize("spec", ["rmat:16", "rmat:15,symmetrize=false", "road:300"])
    def test_larger_graphs(self, spec: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        first = check(graph, devices)
        settings: dict[str, Any] = {"tolerance": 1e-10, "max_iterations": 60}
        again = gw.pagerank(graph, devices=devices, accelerated=False, **settings)
        assert first.rank.tobytes() == again.rank.tobytes()
        check(graph, devices, dtype="float32", tolerance=1e-5)

    @on_endpoints
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_residual_push(self, dtype: str, weighted: bool, devices: list[str]) -> None:
        for spec in ("rmat:13", "rmat:12,symmetrize=false", "road:100"):
            graph = gw.generate(spec)
            if weighted:
                graph = graph.with_random_weights(0, 9, seed=1)
            check_push(graph, devices, dtype=dtype)
            check_push(graph, devices, dtype=dtype, personalization={0: 1, 7: 2})
        check_push(graph, devices, dtype=dtype, gpu=ExperimentOptions(slice_s=0, delay_ns=20_000))
        found = check_push(graph, devices, dtype=dtype, results=f"cuda:{COUNT - 1}")
        assert found.rank.device.id == COUNT - 1
        assert found.rank.dtype == dtype

    @on_endpoints
    def test_results_on_a_gpu(self, devices: list[str]) -> None:
        graph = named_graph("random directed")
        wanted = gw.pagerank(graph, devices="cpu").rank
        for results in ("cuda:0", f"cuda:{COUNT - 1}"):
            found = gw.pagerank(graph, devices=devices, results=results)
            assert found.rank.device.id == ResultLocation.named(results).gpu
            np.testing.assert_allclose(found.rank.get(), wanted, rtol=1e-12)

    def test_time_runs_out(self) -> None:
        with pytest.raises(RunTimeoutError, match=r"within 0\.5 s"):
            gw.pagerank(gw.generators.path(1000), devices="cuda:0", **ENDLESS, timeout_s=0.5)
