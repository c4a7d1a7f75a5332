"""Which vertices of others a GPU has a place for: PageRank by "1-hop" finds what "all" does, in less room.

Others in supersteps refuse "1-hop". Without a GPU the very kernels run on emulated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import Machine, emulated_gpus, results_on_gpus
from godwit.algorithms.pagerank.cuda import RankArrays, RankQuery, rank_on_gpus
from godwit.arrays import ResultLocation
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.runtime.protocol import Device
from godwit.supersteps import halos as step_halos
from godwit.supersteps import place_positions
from godwit.supersteps import rows as step_rows
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import COUNT, COUNTS, names_of, needs_gpu, on_endpoints
from graphs import each_graph, graphs, named_graph
from step_programs import LEVELS

PARTITIONS = (None, "contiguous", "random")


def both(graph: Graph, devices: list[str], method: Any = None, **asked: Any) -> Any:
    """What is found is bit by bit what full-length arrays give, and close to what the CPU finds."""
    asked = {"tolerance": 1e-10, "max_iterations": 12, "accelerated": False, **asked}
    found = []
    for duplication in ("1-hop", "all"):
        with gw.place(graph, devices, method, duplication=duplication) as placed:
            found.append(gw.pagerank(placed, **asked))
    check_same(*found)
    check_cpu(graph, found[0], asked)
    return found[0]


def check_same(found: Any, wanted: Any) -> None:
    assert found.rank.dtype == wanted.rank.dtype
    assert found.rank.tobytes() == wanted.rank.tobytes()
    assert (found.iterations, found.residual) == (wanted.iterations, wanted.residual)


def check_cpu(graph: Graph, found: Any, asked: dict[str, Any]) -> None:
    plain = {name: value for name, value in asked.items() if name != "gpu"}
    wanted = gw.pagerank(graph, devices="cpu", **plain)
    exact = found.rank.dtype == np.float64
    np.testing.assert_allclose(
        found.rank, wanted.rank, rtol=1e-11 if exact else 2e-5, atol=1e-14 if exact else 1e-7
    )


def carried_bytes(placed: gw.PlacedGraph, dtype: str = "float64") -> list[int]:
    """Of one of the two arrays of each device."""
    steps: Any = place_positions(placed)
    return [buffer.nbytes for buffer in steps.kept(RankArrays).carried[dtype][0].buffers]


class TestEmulated:
    @pytest.fixture(autouse=True, params=COUNTS)
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @each_graph
    def test_the_same_bits(self, name: str, devices: list[str]) -> None:
        both(named_graph(name), devices, max_iterations=7)

    @pytest.mark.parametrize("method", PARTITIONS)
    @pytest.mark.parametrize("name", ["random directed", "random float32", "64-bit ids"])
    def test_partitions_dtypes_and_where_walks_begin(
        self, name: str, method: Any, devices: list[str]
    ) -> None:
        graph = named_graph(name)
        begins = np.arange(graph.vertex_count) % 3
        for asked in (
            {"weighted": False},
            {"dtype": "float32"},
            {"dtype": "float32", "weighted": False, "damping": 0.5},
            {"personalization": begins, "initial": begins + 1},
        ):
            both(graph, devices, method, **asked)

    def test_accelerated(self, devices: list[str]) -> None:
        road = gw.generate("road:12x12,seed=3")
        for graph in (road, road.with_random_weights(1, 9, seed=1)):
            asked = {"tolerance": 1e-9, "max_iterations": 80}
            found = both(graph, devices, accelerated=None, **asked)
            plain = gw.pagerank(graph, devices="cpu", accelerated=False, **asked)
            assert found.iterations < plain.iterations

    def test_several_queries_of_one_placed_graph(self, devices: list[str]) -> None:
        graph = named_graph("random float32")
        queries: list[dict[str, Any]] = [
            {}, {"weighted": False}, {"dtype": "float32"}, {"dtype": "float32", "weighted": False},
        ]  # fmt: skip
        with (
            gw.place(graph, devices, duplication="1-hop") as near,
            gw.place(graph, devices) as placed,
        ):
            for asked in [*queries, *reversed(queries)]:
                check_same(gw.pagerank(near, **asked), gw.pagerank(placed, **asked))

    def test_a_partition_by_which_a_device_has_nothing(self, devices: list[str]) -> None:
        graph = named_graph("random undirected")
        division = np.full(graph.vertex_count, len(devices) - 1)
        both(graph, devices, division)
        division[0] = 0
        found = both(graph, devices, division, weighted=False)
        assert found.statistics.devices == tuple(devices)

    def test_slices_of_time(self, devices: list[str]) -> None:
        graph = named_graph("random directed")
        found = both(graph, devices, max_iterations=5, gpu=GpuOptions(slice_s=0))
        assert both(graph, devices, max_iterations=5).rank.tobytes() == found.rank.tobytes()

    def test_what_is_interrupted(self, devices: list[str]) -> None:
        graph = named_graph("random directed")

        def interrupt(updated: int) -> None:
            raise KeyboardInterrupt

        with (
            gw.place(graph, devices, duplication="1-hop") as placed,
            gw.place(graph, devices) as other,
        ):
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    gw.pagerank(placed, progress=interrupt)
            check_same(gw.pagerank(placed), gw.pagerank(other))

    def test_push_and_searches_run_asynchronously(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(6, 8, seed=1)  # wide: without a word, supersteps
        wanted = gw.bfs(graph, 0, devices="cpu").distance
        with gw.place(graph, devices, duplication="1-hop") as placed:
            found = gw.bfs(placed, 0)
            assert found.statistics.solver == "asynchronous"
            assert np.array_equal(found.distance, wanted)
            push = gw.pagerank(placed, execution="asynchronous", tolerance=1e-3)
            assert push.converged
        for duplication in (None, "all"):
            with gw.place(graph, devices, duplication=duplication) as placed:
                found = gw.bfs(placed, 0)
                assert found.statistics.solver == "direction-optimizing"
                assert np.array_equal(found.distance, wanted)

    def test_all_memory_is_given_back(self, devices: list[str]) -> None:
        with emulated_gpus(len(devices)) as machine:
            both(named_graph("random directed"), devices)
            assert [machine.held_bytes(index) for index in range(len(devices))] == [0] * len(
                devices
            )


@settings(max_examples=settings().max_examples // 4)
@given(
    graphs(max_vertices=40),
    st.integers(2, 4),
    st.sampled_from(["float32", "float64"]),
    st.booleans(),
    st.integers(0, 3),
)
def test_any_graph(graph: Graph, count: int, dtype: str, even: bool, seed: int) -> None:
    with emulated_gpus(count, seed=seed):
        weighted = False if even else None
        both(graph, names_of(count), "random", dtype=dtype, weighted=weighted, max_iterations=5)


@pytest.mark.parametrize("weighted", [False, True])
def test_without_races(weighted: bool) -> None:
    graph = gw.generators.rmat(6, 4, seed=2, weights=(0, 9))
    with emulated_gpus(3, checks=True, seed=1):
        both(graph, names_of(3), "random", weighted=weighted, max_iterations=4)


class TestRoom:
    @pytest.mark.parametrize("count", [2, 4])
    def test_a_path_in_ranges_takes_its_part(self, count: int) -> None:
        graph = gw.generators.path(8192)
        with emulated_gpus(count):
            room = {}
            for duplication in ("1-hop", None):
                with gw.place(
                    graph, names_of(count), "contiguous", duplication=duplication
                ) as placed:
                    gw.pagerank(placed, max_iterations=2)
                    room[duplication] = carried_bytes(placed)
                    steps: Any = place_positions(placed)
                    targets = [
                        array
                        for arrays in steps.row_arrays.values()
                        for kind in (arrays.targets, arrays.local_targets)
                        for array in kind.values()
                        if array
                    ]
                    assert len(targets) == 1  # rows are there once, whatever they name
        owned = [8192 // count] * count
        neighbours = [1 if place in (0, count - 1) else 2 for place in range(count)]
        assert room["1-hop"] == [8 * sum(pair) for pair in zip(owned, neighbours, strict=True)]
        assert min(room[None]) >= 8 * 8192

    def test_outflows_take_no_more(self) -> None:
        graph = gw.generators.path(8192).with_random_weights(1, 9, seed=1)
        with (
            emulated_gpus(2),
            gw.place(graph, names_of(2), "contiguous", duplication="1-hop") as placed,
        ):
            gw.pagerank(placed, max_iterations=2, dtype="float32")
            assert carried_bytes(placed, "float32") == [4 * 4097] * 2
            steps: Any = place_positions(placed)
            outflows = steps.kept(RankArrays).outflows[True]
            assert [buffer.nbytes for buffer in outflows.buffers] == [8 * 4097] * 2
            assert not steps.position_of

    def test_a_graph_that_fits_by_1_hop_only(self) -> None:
        graph = gw.generators.path(1 << 15)
        asked: dict[str, Any] = {"max_iterations": 2, "accelerated": False}
        with (
            emulated_gpus(4) as machine,
            gw.place(graph, names_of(4), duplication="1-hop") as placed,
        ):
            gw.pagerank(placed, **asked)
            held = max(machine.held_bytes(index) for index in range(4))
            gw.pagerank(placed, **asked)
            assert max(machine.held_bytes(index) for index in range(4)) == held
        with emulated_gpus(4) as machine, gw.place(graph, names_of(4)) as placed:
            gw.pagerank(placed, **asked)
            of_all = max(machine.held_bytes(index) for index in range(4))
        # Two arrays of float64, and where each vertex stands: of all vertices, or a fourth and none.
        assert of_all - held > (2 * 8 * 3 / 4 + 4 - 1) * graph.vertex_count

    def test_where_there_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = gw.generators.path(5000)
        with emulated_gpus(2) as machine:
            with gw.place(graph, names_of(2), duplication="1-hop") as placed:
                wanted = gw.pagerank(placed).rank
            with gw.place(graph, names_of(2), duplication="1-hop") as placed:
                for module in (step_rows, step_halos):
                    monkeypatch.setattr(module, "spare_bytes", lambda index: 100)
                    with pytest.raises(GraphTooLargeError, match=r"cuda:1 needs .* and has 100 B"):
                        gw.pagerank(placed)
                    monkeypatch.undo()
                assert np.array_equal(gw.pagerank(placed).rank, wanted)
            assert [machine.held_bytes(place) for place in (0, 1)] == [0, 0]


@contextmanager
def placement_of(graph: Graph, count: int, **given: Any) -> Iterator[StepPlacement]:
    placed = StepPlacement([Device(one, "cuda") for one in names_of(count)], graph, **given)
    try:
        yield placed
    finally:
        placed.close()


def ask(
    placed: StepPlacement, *, one_hop: bool, weighted: bool = False, gpu: int | None = None
) -> Any:
    query = RankQuery(
        np.dtype(np.float64), weighted, None, None, 0.85, 1e-10, 9, False, ResultLocation(gpu),
        GpuOptions(), one_hop,
    )  # fmt: skip
    return rank_on_gpus(placed, query, None).rank


class TestHalos:
    @pytest.mark.parametrize("ids", [np.int32, np.int64])
    @pytest.mark.parametrize("name", ["random directed", "random undirected", "path"])
    @pytest.mark.parametrize("count", [2, 3])
    def test_places_are_own_ones_and_then_those_of_others(
        self, name: str, ids: Any, count: int
    ) -> None:
        graph = named_graph(name)
        with (
            emulated_gpus(count),
            placement_of(graph, count, id_dtype=ids) as placed,
            placed.held(),
        ):
            made = placed.halos("in", False)
            wanted = placed.rows("in")
            for part, rows, of_all in zip(placed.parts, made.rows, wanted, strict=True):
                halo = made.halo_positions(placed, part.device)
                positions = of_all.targets.download(ids, of_all.arcs)
                others = positions[positions // placed.capacity != part.device]
                assert np.array_equal(halo, np.unique(others))
                where = np.concatenate((part.first + np.arange(part.owned), halo))
                assert np.array_equal(where[rows.targets.download(ids, rows.arcs)], positions)
                assert made.width(part.device) == len(where)
                ends = part.owned + np.searchsorted(halo, placed.capacity * np.arange(count + 1))
                assert np.array_equal(made.begins[part.device], ends)

    @pytest.mark.parametrize("before", [False, True])
    def test_rows_of_positions_stay_there_for_others(self, before: bool) -> None:
        graph = named_graph("random directed")
        with emulated_gpus(2) as machine, placement_of(graph, 2) as placed:
            for weighted in (False, True):
                if before:
                    ask(placed, one_hop=False, weighted=weighted)
                found = ask(placed, one_hop=True, weighted=weighted)
                wanted = ask(placed, one_hop=False, weighted=weighted)
                assert np.array_equal(found, wanted)
                assert np.array_equal(ask(placed, one_hop=True, weighted=weighted), wanted)
            assert machine.launched["localize_targets"] == 4

    @pytest.mark.parametrize("gpu", [0, 1, 2])
    @pytest.mark.parametrize("count", [2, 3])
    def test_results_on_a_gpu(self, monkeypatch: pytest.MonkeyPatch, count: int, gpu: int) -> None:
        graph = named_graph("random directed")
        with emulated_gpus(3), placement_of(graph, count) as placed:
            results_on_gpus(monkeypatch)
            wanted = ask(placed, one_hop=True)
            assert np.array_equal(ask(placed, one_hop=True, gpu=gpu).get(), wanted)


def test_results_of_one_hop_take_no_memory_of_gpus() -> None:
    graph = named_graph("random directed")
    with emulated_gpus(3) as machine, placement_of(graph, 3) as placed:
        wanted = ask(placed, one_hop=True)
        held = [machine.held_bytes(index) for index in range(3)]
        assert np.array_equal(ask(placed, one_hop=True), wanted)
        assert [machine.held_bytes(index) for index in range(3)] == held
        assert not placed.position_of


class TestRefused:
    @pytest.fixture(autouse=True)
    def machine(self) -> Iterator[Machine]:
        with emulated_gpus(2) as machine:
            yield machine

    @pytest.mark.parametrize(
        ("ask", "words"),
        [
            (
                lambda placed: gw.bfs(placed, 0, execution="bulk-synchronous"),
                "BFS with execution='bulk-synchronous' .*, or ask for execution='asynchronous'",
            ),
            (
                lambda placed: gw.bfs(placed, 0, gpu=GpuOptions(communication="broadcast")),
                "BFS with communication='broadcast' .*, or ask for execution='asynchronous'",
            ),
            (gw.betweenness_centrality, "betweenness runs"),
            (lambda placed: gw.betweenness_centrality(placed, weighted=True), "betweenness runs"),
            (gw.connected_components, "connected components by trees"),
            (lambda placed: LEVELS.run(placed, [0]), "step program 'levels"),
            (
                lambda placed: gw.explore(placed).do(gw.frontier.filter(lambda vertex: vertex < 3)),
                "step program 'explored'",
            ),
        ],
    )
    def test_others_in_supersteps(
        self, ask: Callable[[Any], Any], words: str, machine: Machine
    ) -> None:
        graph = named_graph("random undirected")
        for count in (1, 2):
            with gw.place(graph, names_of(count), duplication="1-hop") as placed:
                launched = sum(machine.launched.values())
                with pytest.raises(InputError, match=words) as caught:
                    ask(placed)
                assert "; place it with duplication='all', or leave that out" in str(caught.value)
                assert sum(machine.launched.values()) == launched

    def test_what_is_not_read_has_no_room(self, machine: Machine) -> None:
        graph = named_graph("random directed")
        gpu = GpuOptions(communication="broadcast")
        with gw.place(graph, names_of(2), duplication="1-hop") as placed:
            with pytest.raises(
                InputError, match="communication='broadcast' is not possible here: the graph"
            ):
                gw.pagerank(placed, gpu=gpu)
            assert not machine.launched
            gw.pagerank(placed, gpu=GpuOptions(communication="selective"))
        with gw.place(graph, names_of(2), duplication="all") as placed:
            gw.pagerank(placed, gpu=gpu)

    def test_labels_may_be_propagated(self) -> None:
        graph = named_graph("two components")
        with gw.place(graph, names_of(2), duplication="1-hop") as placed:
            found = gw.connected_components(placed, method="label-propagation")
        assert np.array_equal(found.label, gw.connected_components(graph, devices="cpu").label)

    @pytest.mark.parametrize("wrong", ["2-hop", "", 1, "ALL"])
    def test_another_word(self, wrong: Any) -> None:
        with pytest.raises(InputError, match="duplication must be '1-hop' or 'all'"):
            gw.place(named_graph("path"), names_of(2), duplication=wrong)

    def test_cpus_take_no_notice(self) -> None:
        graph = named_graph("random undirected")
        with gw.place(graph, "cpu", duplication="1-hop") as placed:
            LEVELS.run(placed, [0])
            gw.betweenness_centrality(placed)
            gw.connected_components(placed)
            gw.bfs(placed, 0, execution="bulk-synchronous")
            gw.pagerank(placed)


@pytest.mark.parametrize(
    "name",
    [
        "random directed",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("path", "zero weights", "star", "isolated vertices")
        ),
    ],
)
def test_gpus_that_are_no_peers(name: str) -> None:
    """The host brings halos over; the ranks are those of peers, bit by bit."""
    graph = named_graph(name)
    for division in (None, "random"):
        found = []
        for peers, communication in ((None, None), (np.eye(3, dtype=bool), "selective")):
            gpu = GpuOptions(communication=communication)  # type: ignore[arg-type]
            with (
                emulated_gpus(3, peers=peers, checks=peers is not None),
                gw.place(graph, names_of(3), division, duplication="1-hop") as placed,
            ):
                for dtype in ("float64", "float32", "float64"):
                    found.append(gw.pagerank(placed, dtype=dtype, gpu=gpu, max_iterations=20))
        for one, other in zip(found[:3], found[3:], strict=True):
            check_same(one, other)


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @each_graph
    def test_the_same_bits(self, name: str, devices: list[str]) -> None:
        both(named_graph(name), devices)

    @on_endpoints
    @pytest.mark.parametrize("method", PARTITIONS)
    @pytest.mark.parametrize("spec", ["rmat:15", "rmat:14,symmetrize=false", "road:200"])
    def test_larger_graphs(self, spec: str, method: Any, devices: list[str]) -> None:
        graph = gw.generate(spec)
        for given_graph in (graph, graph.with_random_weights(0, 9, seed=1)):
            for dtype in ("float32", "float64"):
                settings: dict[str, Any] = {"max_iterations": 60, "dtype": dtype}
                both(given_graph, devices, method, **settings)
        gpu = ExperimentOptions(slice_s=0, delay_ns=20_000)
        both(graph, devices, method, max_iterations=9, gpu=gpu)

    @on_endpoints
    def test_results_on_a_gpu(self, devices: list[str]) -> None:
        pytest.importorskip("cupy")
        graph = named_graph("random directed")
        wanted = gw.pagerank(graph, devices="cpu").rank
        with gw.place(graph, devices, duplication="1-hop") as placed:
            for results in ("cuda:0", f"cuda:{COUNT - 1}"):
                found = gw.pagerank(placed, results=results)
                np.testing.assert_allclose(found.rank.get(), wanted, rtol=1e-12)

    def test_room(self) -> None:
        graph = gw.generators.path(1 << 18)
        devices = ["cuda:0", "cuda:0"]
        with gw.place(graph, devices, "contiguous", duplication="1-hop") as placed:
            gw.pagerank(placed, max_iterations=2)
            assert carried_bytes(placed) == [8 * (1 << 17) + 8] * 2
