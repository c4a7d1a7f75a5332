"""Power iterations on GPUs: what the CPU computes, over devices, partitions, rows, weights and slices.

Without a GPU the same kernels run on emulated ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.power_iteration import cuda as power_steps
from godwit.arrays import ResultLocation, host_array
from godwit.cli.application import app
from godwit.errors import ConvergenceError, GraphTooLargeError, InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.supersteps import place_positions, tiled_rows
from godwit.supersteps.tiled_rows import KeptTiles
from gpu_endpoints import COUNT, COUNTS, names_of, needs_gpu, on_endpoints
from graphs import each_graph, named_graph

Array = np.ndarray[Any, np.dtype[Any]]

FUNCTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "eigenvector": (gw.eigenvector_centrality, {"tolerance": 1e-3, "max_iterations": 40}),
    "katz": (gw.katz_centrality, {"alpha": 1e-3}),
    "hits": (gw.hits, {"tolerance": 1e-4, "max_iterations": 40}),
}
each_function = pytest.mark.parametrize("function", FUNCTIONS)


def answer(function: str, graph: Any, devices: Any = None, **settings: Any) -> tuple[Any, ...]:
    """Return iterations, residual and arrays; without arrays if iterations do not converge."""
    call, usual = FUNCTIONS[function]
    try:
        result = call(graph, devices=devices, **{**usual, **settings})
    except ConvergenceError as error:
        return error.iterations, error.residual
    arrays = (result.hubs, result.authorities) if function == "hits" else (result.centrality,)
    return result.iterations, result.residual, *map(host_array, arrays)


def check(function: str, graph: Graph, devices: Any, **settings: Any) -> tuple[Any, ...]:
    """Compare with what the CPU computes; return the answer of the GPUs."""
    gpu = settings.pop("gpu", None)
    expected = answer(function, graph, "cpu", **settings)
    found = answer(function, graph, devices, gpu=gpu, **settings)
    compare(found, expected)
    return found


def compare(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    assert found[0] == expected[0]
    assert len(found) == len(expected)
    # Of the residual, a sum of differences of nearly equal numbers, most digits may be roundings.
    assert found[1] == pytest.approx(expected[1], rel=1e-5, abs=1e-14)
    for one, other in zip(found[2:], expected[2:], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-13)


def graph_of_all_lengths(*, directed: bool, weighted: bool, hubs_point: bool = False) -> Graph:
    """Rows of up to 5,000 arcs, and around each length at which the schedule changes.

    :param hubs_point: out-rows are the long ones, and not in-rows
    """
    generator = np.random.default_rng(5)
    lengths = [5000, 4200, 4097, 4096, 700, 257, 256, 90, 40, 33, 32, 17, 9, 5, 4, 3, 2, 1]
    n = 5300
    hubs = np.repeat(generator.permutation(n)[: len(lengths)], lengths)
    others = generator.integers(0, n, len(hubs))
    weights = generator.integers(-3, 9, len(hubs)) if weighted else None
    ends = (hubs, others) if hubs_point else (others, hubs)
    return Graph.from_edges(*ends, weights, vertex_count=n, directed=directed)


class TestEmulated:
    @pytest.fixture(autouse=True, params=COUNTS)
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @each_function
    @each_graph
    def test_values_are_the_cpus(self, function: str, name: str, devices: list[str]) -> None:
        check(function, named_graph(name), devices)

    @each_function
    @pytest.mark.parametrize("kind", ["directed", "weighted", "out-hubs", "undirected"])
    def test_rows_of_every_length(self, function: str, kind: str, devices: list[str]) -> None:
        graph = graph_of_all_lengths(
            directed=kind != "undirected", weighted=kind == "weighted",
            hubs_point=kind == "out-hubs",
        )  # fmt: skip
        check(function, graph, devices, tolerance=1e-300, max_iterations=2)

    def test_values_given_for_vertices(self, devices: list[str]) -> None:
        for name in ("random sparse", "two components", "star from its last vertex"):
            graph = named_graph(name)
            generator = np.random.default_rng(graph.vertex_count)
            values = generator.normal(size=graph.vertex_count)
            for start in (values, {0: 2.0, 3: -1.0}):
                for function in FUNCTIONS:
                    check(function, graph, devices, start=start)
            check("katz", graph, devices, beta=values, normalized=False)
            check("katz", graph, devices, beta=1e200 * values, tolerance=1e190)
            check("katz", graph, devices, beta=1e-200, tolerance=1e-210, normalized=False)
            check("hits", graph, devices, normalized=False)

    @each_function
    def test_the_same_bits_however_slices_fall(self, function: str, devices: list[str]) -> None:
        graph = gw.generators.rmat(7, 6, seed=3)
        found = [
            answer(function, graph, devices, gpu=gpu)
            for gpu in (GpuOptions(), GpuOptions(), GpuOptions(slice_s=0))
        ]
        assert len({tuple(np.asarray(part).tobytes() for part in one) for one in found}) == 1

    def test_queries_of_a_placed_graph_do_not_depend_on_those_before(
        self, devices: list[str]
    ) -> None:
        graph = named_graph("random float32")
        partition = np.arange(graph.vertex_count) ** 2 % len(devices)
        with gw.place(graph, devices, partition if len(devices) > 1 else None) as placed:
            for settings in ({"weighted": False}, {}, {"start": {1: 1.0}}, {}) * 2:
                for function in FUNCTIONS:
                    expected = answer(function, graph, "cpu", **settings)
                    compare(answer(function, placed, **settings), expected)
                    gw.pagerank(placed)

    @each_function
    def test_where_the_host_copies(self, function: str, devices: list[str]) -> None:
        graph = named_graph("random directed")
        check(function, graph, devices, gpu=GpuOptions(transport="host"))
        check(function, graph, devices, gpu=GpuOptions(communication="broadcast"))

    def test_too_large_alpha(self, devices: list[str]) -> None:
        with pytest.raises(ConvergenceError, match="exceed float64"):
            gw.katz_centrality(gw.generators.complete(30), devices=devices)

    def test_statistics_and_progress(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(7)
        seen: list[int] = []
        result = gw.hits(
            graph, devices=devices, progress=seen.append, gpu=GpuOptions(slice_s=0), tolerance=1e-3
        )
        statistics = result.statistics
        assert statistics.solver == "power iteration"
        assert statistics.devices == tuple(devices)
        assert statistics.processed_items.sum() == result.iterations * graph.vertex_count
        assert statistics.arcs_relaxed.sum() == 2 * (result.iterations + 1) * graph.arc_count
        assert {"number", "rows", "kernel", "gather"} <= set(statistics.seconds)
        assert seen == sorted(seen)
        json.dumps(statistics.to_dict())

    def test_time_runs_out(self, devices: list[str]) -> None:
        with pytest.raises(RunTimeoutError, match=r"did not finish within 0\.2 s"):
            gw.hits(
                gw.generators.path(100), devices=devices, tolerance=1e-300,
                max_iterations=10**12, timeout_s=0.2,
            )  # fmt: skip


class Chosen(list[int]):
    """Words of a sum, of each query: by tiles everywhere; 0 for row by row."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr(tiled_rows, "LEAST_TILE_WORK", 60)
        monkeypatch.setattr(power_steps, "takes_tiles", lambda *_: True)
        ask = power_steps._PowerPlan.ask

        def noted(plan: Any, *arguments: Any) -> float:
            self.append(power_steps._TILE_WORDS if plan.is_tiled else 0)
            return ask(plan, *arguments)

        monkeypatch.setattr(power_steps._PowerPlan, "ask", noted)


class TestByTiles:
    @pytest.fixture(autouse=True, params=COUNTS)
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @pytest.fixture(autouse=True)
    def chosen(self, monkeypatch: pytest.MonkeyPatch) -> Chosen:
        return Chosen(monkeypatch)

    @each_function
    @each_graph
    def test_values_are_the_cpus(
        self, function: str, name: str, devices: list[str], chosen: Chosen
    ) -> None:
        graph = named_graph(name)
        check(function, graph, devices)
        of_32_bits = graph.id_dtype.itemsize == 4
        assert chosen == [3 * of_32_bits] * (graph.vertex_count > 0)

    @each_function
    @pytest.mark.parametrize("kind", ["weighted", "out-hubs"])
    def test_rows_of_every_length(self, function: str, kind: str, devices: list[str]) -> None:
        graph = graph_of_all_lengths(
            directed=True, weighted=kind == "weighted", hubs_point=kind == "out-hubs"
        )
        check(function, graph, devices, tolerance=1e-300, max_iterations=2)

    def test_values_of_any_size(self, devices: list[str], chosen: Chosen) -> None:
        graph = named_graph("random float32")
        values = np.random.default_rng(1).normal(size=graph.vertex_count)
        weights = graph.weights
        assert weights is not None
        for scale in (1e-60, 1e60):
            scaled = graph.with_weights(scale * weights.astype(np.float64))
            for function in ("eigenvector", "hits"):
                check(function, scaled, devices, start=values)
            check("katz", scaled, devices, alpha=1e-3 / scale, beta=1e200 * values, tolerance=1e190)
        assert set(chosen) == {3}
        check("hits", graph.with_weights(1e-200 * weights.astype(np.float64)), devices)
        assert chosen[-1] == 0

    def test_values_that_grow_too_far(self, devices: list[str], chosen: Chosen) -> None:
        # Where the largest value is 10^120, no unit suffices for the smallest, which lead to it.
        for n in (20, 40):
            del chosen[:]
            graph = gw.generators.path(n)
            directed = Graph.from_edges(np.arange(n - 1), np.arange(1, n))
            check("katz", directed, devices, alpha=1e6, normalized=False)
            assert chosen == [3, 0]
        with pytest.raises(ConvergenceError, match="exceed float64"):
            gw.katz_centrality(graph, alpha=1e20, devices=devices)

    def test_rows_longer_than_sums_allow(
        self, devices: list[str], chosen: Chosen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(power_steps, "_ROW_BITS", 3)
        check("hits", gw.generators.star(9), devices)
        check("hits", gw.generators.star(8), devices)
        assert chosen == [0, 3]

    def test_tiles_are_shared(self, devices: list[str]) -> None:
        graph = named_graph("random undirected")
        with gw.place(graph, devices) as placed:
            for function in FUNCTIONS:
                for weighted in (False, True) if graph.is_weighted else (False,):
                    expected = answer(function, graph, "cpu", weighted=weighted)
                    compare(answer(function, placed, weighted=weighted), expected)
            tiles = place_positions(placed).kept(KeptTiles)
            assert len(tiles) == 1 + graph.is_weighted

    def test_nothing_races(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(6, 5, seed=1, weights=(1, 9), symmetrize=False)
        with emulated_gpus(len(devices), seed=1, checks=True):
            for function in ("katz", "hits"):
                check(function, graph, devices, max_iterations=3)


class TestSchedules:
    @each_function
    def test_no_schedule_of_tiles_changes_a_bit(
        self, function: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Chosen(monkeypatch)
        graph = gw.generators.rmat(6, 6, seed=3, symmetrize=False)
        found = set()
        for seed in range(3):
            with emulated_gpus(2, seed=seed):
                for gpu in (GpuOptions(), GpuOptions(slice_s=0)):
                    one = answer(function, graph, names_of(2), gpu=gpu)
                    found.add(tuple(np.asarray(part).tobytes() for part in one))
        assert len(found) == 1

    def test_where_tiles_are_chosen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiled_rows, "LEAST_GAINING_ARCS", 1000)
        star = gw.generators.rmat(8, 8, seed=1, symmetrize=False)
        offsets, targets = np.append(star.offsets, star.arc_count + 70_000), star.targets
        hub = Graph(offsets, np.append(targets, np.zeros(70_000, targets.dtype)), directed=True)
        cases = [
            (gw.generators.rmat(8, 8, seed=1), ("eigenvector", "hits")),
            (hub.reverse, ()),
            (gw.generate("road:40x40,seed=1"), ()),
        ]
        with emulated_gpus(1):
            for graph, expected in cases:
                for function in ("eigenvector", "hits"):
                    with gw.place(graph, "cuda:0") as placed:
                        answer(function, placed, max_iterations=2)
                        tiles = place_positions(placed).kept(KeptTiles)
                        assert bool(tiles) == (function in expected)

    @pytest.mark.parametrize("seed", range(1, 4))
    @each_function
    def test_no_order_of_threads_matters(self, function: str, seed: int) -> None:
        graph = gw.generators.rmat(6, 5, seed=seed, weights=(1, 9), symmetrize=False)
        with emulated_gpus(2, seed=seed, checks=True):
            for devices in (["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:1", "cuda:1"]):
                check(function, graph, devices, max_iterations=4)

    @pytest.mark.parametrize("seed", range(1, 4))
    def test_one_block_with_several_long_rows(self, seed: int) -> None:
        graph = graph_of_all_lengths(directed=True, weighted=False, hubs_point=True)
        with emulated_gpus(1, seed=seed):
            check("hits", graph, ["cuda:0"], max_iterations=2, gpu=ExperimentOptions(blocks=1))

    def test_all_memory_is_given_back(self) -> None:
        with emulated_gpus(2) as machine:
            for function in FUNCTIONS:
                answer(function, named_graph("random directed"), ["cuda:0", "cuda:1"])
            assert [machine.held_bytes(index) for index in (0, 1)] == [0, 0]

    def test_a_graph_that_does_not_fit(self) -> None:
        graph = gw.generators.path(5000)
        too_large = pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .* and has .* free")
        with emulated_gpus(1, memory_bytes=200_000), too_large:
            gw.hits(graph, devices="cuda:0")

    def test_what_is_refused(self) -> None:
        graph = gw.generators.path(50)
        with emulated_gpus(2):
            placed = gw.place(graph, names_of(2), duplication="1-hop")
            with placed, pytest.raises(InputError, match=r"duplication='1-hop'"):
                gw.hits(placed)
            with pytest.raises(InputError, match="is for the asynchronous solver"):
                gw.hits(graph, devices="cuda:0", gpu=ExperimentOptions(hops=1))

    def test_the_command(self) -> None:
        with emulated_gpus(2):
            arguments = ["hits", "rmat:6,seed=4", "--devices", "cuda:0,cuda:1", "--json"]
            ran = CliRunner().invoke(app, arguments)
            assert ran.exit_code == 0, ran.output
        facts = json.loads(ran.stdout)
        expected = gw.hits(gw.generate("rmat:6,seed=4"), devices="cpu")
        assert facts["statistics"]["devices"] == ["cuda:0", "cuda:1"]
        assert facts["iterations"] == expected.iterations
        assert facts["top"][0]["authority"] == pytest.approx(expected.authorities.max(), rel=1e-9)


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @each_function
    @each_graph
    def test_values_are_the_cpus(self, name: str, function: str, devices: list[str]) -> None:
        check(function, named_graph(name), devices)

    @on_endpoints
    @each_function
    @pytest.mark.parametrize("spec", ["rmat:16", "rmat:15,symmetrize=false", "road:300"])
    def test_larger_graphs(self, spec: str, function: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        first = check(function, graph, devices)
        again = answer(function, graph, devices)
        for one, other in zip(first, again, strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()

    @on_endpoints
    @each_function
    @pytest.mark.parametrize("kind", ["directed", "weighted", "out-hubs", "undirected"])
    def test_rows_of_every_length(self, function: str, kind: str, devices: list[str]) -> None:
        graph = graph_of_all_lengths(
            directed=kind != "undirected", weighted=kind == "weighted",
            hubs_point=kind == "out-hubs",
        )  # fmt: skip
        check(function, graph, devices, tolerance=1e-300, max_iterations=5)
        delayed = ExperimentOptions(slice_s=0, delay_ns=20_000)
        check(function, graph, devices, tolerance=1e-300, max_iterations=5, gpu=delayed)

    @on_endpoints
    @each_function
    @pytest.mark.parametrize("directed", [True, False])
    def test_larger_graphs_by_tiles(
        self, function: str, directed: bool, devices: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        chosen = Chosen(monkeypatch)
        graph = gw.generators.rmat(15, 8, seed=1, symmetrize=not directed, weights=(-2, 9))
        for weighted in (False, True):
            first, again = (
                check(function, graph, devices, weighted=weighted, max_iterations=4, gpu=gpu)
                for gpu in (None, ExperimentOptions(slice_s=0, delay_ns=20_000))
            )
            for one, other in zip(first, again, strict=True):
                assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        assert chosen == [3] * 4

    @on_endpoints
    def test_results_on_a_gpu(self, devices: list[str]) -> None:
        graph = named_graph("random directed")
        expected = gw.hits(graph, devices="cpu")
        for results in ("cuda:0", f"cuda:{COUNT - 1}"):
            found = gw.hits(graph, devices=devices, results=results)
            assert found.hubs.device.id == ResultLocation.named(results).gpu
            np.testing.assert_allclose(found.hubs.get(), expected.hubs, rtol=1e-9, atol=1e-13)
            vertices, values = zip(*found.highest_hubs(3), strict=True)
            assert list(vertices) == [vertex for vertex, _ in expected.highest_hubs(3)]
            np.testing.assert_allclose(values, expected.hubs[list(vertices)], rtol=1e-9)
