"""Betweenness on GPUs: what the CPU finds, over devices, schedules, ways to find a level, slices of time.

Without a GPU the very kernels run on emulated ones.
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
from godwit.algorithms.betweenness import cuda as brandes_steps
from godwit.algorithms.betweenness.cpu import sum_dependencies
from godwit.algorithms.betweenness.cuda import (
    DependencyOutcome,
    DependencyQuery,
    sum_on_gpus,
)
from godwit.cli.application import app
from godwit.errors import GraphTooLargeError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.graph.cuda import builder as builder_module
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.runtime.registry import resolve_devices
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.run import STEP_CONTROL, RunArrays, StepPlan
from gpu_endpoints import COUNT, COUNTS, names_of, needs_gpu
from graphs import each_graph, named_graph

# Sums of fractions in another order.
_CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture(autouse=True)
def all_devices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All devices work together, also where they would be faster apart."""
    if "apart" not in request.node.name:
        monkeypatch.setattr(brandes_steps, "gpus_apart", lambda *_: 0)


def run(
    graph: Graph, devices: list[str], sources: Any, *, endpoints: bool = False, edges: bool = False,
    id_dtype: Any = None, gpu: GpuOptions | None = None,
) -> DependencyOutcome:  # fmt: skip
    """The sums of GPUs, as they are before they are scaled."""
    query = DependencyQuery(np.array(sources), endpoints, edges, gpu or GpuOptions())
    steps = StepPlacement(resolve_devices(devices), graph, id_dtype=id_dtype)
    try:
        return sum_on_gpus(steps, query, None)
    finally:
        steps.close()


def check_sums(
    graph: Graph, devices: list[str], sources: Any, *, endpoints: bool = True, edges: bool = True,
    **settings: Any,
) -> DependencyOutcome:  # fmt: skip
    """Compare with what the CPU finds."""
    wanted = sum_dependencies(graph, np.array(sources), endpoints=endpoints, edges=edges)
    found = run(graph, devices, sources, endpoints=endpoints, edges=edges, **settings)
    np.testing.assert_allclose(found.vertices, wanted.vertices, **_CLOSE)
    if edges:
        np.testing.assert_allclose(found.arcs, wanted.arcs, **_CLOSE)
    assert found.visited.sum() == wanted.vertices_visited
    assert found.examined.sum() == wanted.arcs_examined
    return found


def check(graph: Graph, devices: Any, **settings: Any) -> gw.BetweennessResult:
    """Compare the result of a call with that of the CPU."""
    gpu = settings.pop("gpu", None)
    settings.setdefault("weighted", False)
    wanted = gw.betweenness_centrality(graph, devices="cpu", **settings)
    found = gw.betweenness_centrality(graph, devices=devices, gpu=gpu, **settings)
    np.testing.assert_array_equal(found.sources, wanted.sources)
    np.testing.assert_allclose(found.centrality, wanted.centrality, **_CLOSE)
    if settings.get("edges"):
        np.testing.assert_allclose(found.edge_centrality, wanted.edge_centrality, **_CLOSE)
    return found


def layers(sizes: list[int], *, directed: bool = False) -> Graph:
    """Levels of so many vertices from vertex 0, each vertex with arcs to all of the next level."""
    bounds = np.cumsum([0, *sizes])
    arcs = []
    for level, size in enumerate(sizes[:-1]):
        heads = np.arange(bounds[level + 1], bounds[level + 2])
        for tail in range(bounds[level], bounds[level] + size):
            arcs.append(np.stack([np.full(len(heads), tail), heads]))
    sources, targets = np.concatenate(arcs, axis=1)
    return Graph.from_edges(sources, targets, vertex_count=int(bounds[-1]), directed=directed)


def ring(count: int) -> Graph:
    """A directed cycle with an arc back from each vertex to the one before: arcs to all levels."""
    vertices = np.arange(count)
    sources = np.concatenate([vertices, vertices[1:]])
    targets = np.concatenate([(vertices + 1) % count, vertices[:-1]])
    return Graph.from_edges(sources, targets, vertex_count=count, directed=True)


def long_rows(*, directed: bool) -> Graph:
    """Rows of every class, of 4,200 arcs out of one vertex and into another."""
    generator = np.random.default_rng(3)
    n = 4600
    many = generator.choice(np.arange(2, n), 4200, replace=False)
    more = generator.integers(0, n, (2, 3000))
    some = generator.integers(2, n, 300)
    sources = np.concatenate([np.zeros(4200, int), many, more[0], np.full(300, 5)])
    targets = np.concatenate([many, np.ones(4200, int), more[1], some])
    return Graph.from_edges(sources, targets, vertex_count=n, directed=directed)


def few_layers(devices: list[str], directed: bool) -> None:
    graph = layers([1, 3, 40, 5, 300, 2, 1], directed=directed)
    check_sums(graph, devices, [0, 2, graph.vertex_count - 1])


@pytest.fixture(params=["lists", "dense", "alone", "lists and dense"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How levels are found: from the level before, from all that is left, or by one block."""
    name: str = request.param
    monkeypatch.setattr(brandes_steps, "LIGHT_VERTICES", 10**6 if name == "alone" else 0)
    monkeypatch.setattr(brandes_steps, "LIGHT_ARCS", 10**6)
    factor = {"dense": 10**6, "lists and dense": 4}.get(name, 0)
    monkeypatch.setattr(brandes_steps, "DENSE_FACTOR", factor)
    return name


class TestEmulated:
    @pytest.fixture(autouse=True, params=COUNTS)
    def devices(self, request: pytest.FixtureRequest) -> Iterator[list[str]]:
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @pytest.mark.parametrize("directed", [False, True])
    @pytest.mark.usefixtures("way")
    def test_layers(self, devices: list[str], directed: bool) -> None:
        few_layers(devices, directed)

    @pytest.mark.parametrize("symmetrize", [False, True])
    @pytest.mark.usefixtures("way")
    def test_wide_graphs(self, devices: list[str], symmetrize: bool) -> None:
        graph = gw.generators.rmat(8, 6, seed=4, symmetrize=symmetrize)
        sources = sorted({0, 7, graph.highest_degree_vertex()})
        check_sums(graph, devices, sources)
        check_sums(graph, devices, sources[:1], endpoints=False, edges=False)

    @pytest.mark.usefixtures("way")
    def test_levels_with_arcs_to_all_before(self, devices: list[str]) -> None:
        check_sums(ring(40), devices, [0, 9])

    @pytest.mark.parametrize("directed", [False, True])
    @pytest.mark.usefixtures("way")
    def test_long_rows(self, devices: list[str], directed: bool) -> None:
        check_sums(long_rows(directed=directed), devices, [0, 7], edges=False)

    def test_edges_of_long_rows(self, devices: list[str]) -> None:
        check_sums(long_rows(directed=True), devices, [0])

    @each_graph
    def test_the_zoo(self, devices: list[str], name: str) -> None:
        graph = named_graph(name)
        few = min(3, graph.vertex_count) or None
        check(graph, devices, edges=True, samples=few)
        check(graph, devices, normalized=False, endpoints=True, samples=few, seed=1)

    def test_roads(self, devices: list[str]) -> None:
        check(gw.generators.road(9, seed=1), devices, edges=True)

    def test_wide_ids(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(7, 5, seed=3)
        check_sums(graph, devices, [0, 1, 2], id_dtype=np.int64)

    def test_a_kernel_that_leaves_at_every_meeting(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(7, 5, seed=6)
        check_sums(graph, devices, [3, 4], gpu=GpuOptions(slice_s=0))

    def test_the_same_bits_every_time(self, devices: list[str], way: str) -> None:
        """However the level was found, and whatever ran when."""
        graph = gw.generators.rmat(8, 6, seed=9)
        found = run(graph, devices, [1, 2, 3]).vertices
        np.testing.assert_array_equal(run(graph, devices, [1, 2, 3]).vertices, found)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(brandes_steps, "DENSE_FACTOR", 0 if "dense" in way else 10**6)
            np.testing.assert_array_equal(run(graph, devices, [1, 2, 3]).vertices, found)

    def test_too_many_paths_are_left_to_the_cpu(self, devices: list[str]) -> None:
        """2^1200 of them: more than float64 knows."""
        graph = layers([1, *[2] * 1200, 1])
        found = check(graph, devices, sources=[0], edges=True)
        assert found.statistics.devices == ("cpu",)
        assert found.statistics.seconds["overflow"] > 0
        assert np.isfinite(found.centrality).all()

    def test_placed_graphs_and_partitions(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(7, 5, seed=6)
        with gw.place(graph, devices, partition="random") as placed:
            for sources in ([1], [1, 5]):
                found = gw.betweenness_centrality(placed, sources=sources)
                wanted = gw.betweenness_centrality(graph, sources=sources, devices="cpu")
                np.testing.assert_allclose(found.centrality, wanted.centrality, **_CLOSE)
                assert found.statistics.devices == tuple(devices)

    def test_out_of_time(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(7, 5, seed=6)
        with pytest.raises(RunTimeoutError):
            gw.betweenness_centrality(
                graph, devices=devices, timeout_s=1e-6, gpu=GpuOptions(slice_s=0)
            )
        check(graph, devices, sources=[2])  # nothing is left behind

    def test_progress_counts_sources(
        self, devices: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(brandes_steps, "_MAX_PER_ROUND", 1)
        seen: list[int] = []
        gw.betweenness_centrality(
            gw.generators.path(30), devices=devices, samples=20, progress=seen.append,
            gpu=GpuOptions(slice_s=0),
        )  # fmt: skip
        assert seen == sorted(seen)
        assert 0 < seen[-1] <= 20


@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.usefixtures("way")
def test_any_order_of_threads(count: int, seed: int) -> None:
    with emulated_gpus(count, seed=seed):
        graph = gw.generators.rmat(6, 5, seed=seed)
        check_sums(graph, names_of(count), [0, 1])
        check_sums(gw.generators.path(12), names_of(count), [3])


class TestBlockSearches:
    """Every block searches for itself, where there are sources enough."""

    @pytest.mark.parametrize("edges", [False, True])
    def test_sums(self, edges: bool) -> None:
        graph = gw.generators.rmat(7, 5, seed=6, symmetrize=False)
        with emulated_gpus(1):
            found = check_sums(graph, ["cuda:0"], range(100), edges=edges, endpoints=edges)
            assert found.block_searches == 3

    @pytest.mark.parametrize(
        "graph",
        [gw.generators.rmat(7, 5, seed=6, symmetrize=False), gw.generators.path(40)],
        ids=["rmat", "path"],
    )
    def test_devices_search_apart(self, graph: Graph) -> None:
        """A GPU has three blocks here, so that for few sources not all GPUs are needed."""
        with emulated_gpus(4, multiprocessors=3) as machine:
            for count, busy in ((20, 4), (8, 3)):
                found = check_sums(graph, names_of(4), range(count), endpoints=False)
                assert found.block_searches == 3
                assert np.count_nonzero(found.supersteps) == busy
                assert np.count_nonzero(found.visited) == busy
            with gw.place(graph, ["cuda:0", "cuda:0", "cuda:2"]) as placed:
                for sources in ([*range(20)], [3], [*range(20)]):  # apart, together, apart
                    query = {"sources": sources, "edges": True}
                    wanted = gw.betweenness_centrality(graph, devices="cpu", **query)
                    again = gw.betweenness_centrality(placed, **query)
                    np.testing.assert_allclose(again.centrality, wanted.centrality, **_CLOSE)
                    np.testing.assert_allclose(
                        again.edge_centrality, wanted.edge_centrality, **_CLOSE
                    )
                    is_at_work = again.statistics.rounds > 0
                    assert is_at_work.tolist() == [True, len(sources) == 1, True]
            assert not any(machine.held_bytes(index) for index in range(4))

    def test_one_search_at_a_time_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As on graphs that are too large for a search a block; slices end at different times."""
        monkeypatch.setattr(brandes_steps, "BLOCK_SEARCH_ARCS", 0)
        graph = gw.generators.rmat(7, 5, seed=6)
        with emulated_gpus(2, seed=5):
            for gpu in (GpuOptions(), GpuOptions(slice_s=0)):
                found = check_sums(graph, names_of(2), range(17), gpu=gpu)
                assert found.block_searches == 0
                assert found.visited.all()

    def test_too_many_paths_apart(self) -> None:
        """One source of one GPU is enough."""
        with emulated_gpus(2):
            graph = layers([1, *[2] * 1000, 1])
            found = run(graph, names_of(2), [*[2001] * 7, 0])
        assert found.vertices is None

    def test_memory_of_searches_apart_is_others_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With so much the whole graph does not fit a GPU, or leaves little: what would run runs."""
        monkeypatch.setattr(builder_module, "_RESERVED_BYTES", 0)
        ends = np.arange(0, 60_000, 2)
        graph = Graph.from_edges(ends, ends + 1)
        wanted = gw.betweenness_centrality(graph, sources=range(16), devices="cpu").centrality
        are_apart = []
        for memory_bytes in (3_600_000, 4_400_000, 5_200_000):
            with (
                emulated_gpus(2, memory_bytes=memory_bytes),
                gw.place(graph, names_of(2)) as placed,
            ):
                for _ in range(2):
                    found = gw.betweenness_centrality(placed, sources=range(16))
                    np.testing.assert_allclose(found.centrality, wanted, **_CLOSE)
                    are_apart.append(len(set(found.statistics.rounds)) > 1)
                    assert gw.betweenness_centrality(placed, sources=[3]).statistics.rounds.all()
        assert are_apart == [False, False, True, False, True, False]

    def test_no_room_to_search_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_room(placement: StepPlacement, count: int) -> StepCopies:
            raise GraphTooLargeError("too large for one")

        monkeypatch.setattr(StepPlacement, "copies", no_room)
        with emulated_gpus(2):
            found = check_sums(gw.generators.path(40), names_of(2), range(20))
            assert found.block_searches == 0
            assert found.supersteps.all()

    def test_several_rounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(brandes_steps, "_MAX_PER_ROUND", 2)
        graph = gw.generators.path(20)
        with emulated_gpus(1, seed=3):
            found = check_sums(graph, ["cuda:0"], range(19), gpu=GpuOptions(slice_s=0))
            assert found.supersteps.tolist() == [5]  # of 6 sources each, and the sum

    def test_the_same_bits_every_time(self) -> None:
        graph = gw.generators.rmat(7, 5, seed=6)
        sums = []
        for seed in (0, 1, 2):
            with emulated_gpus(1, seed=seed):
                sums.append(run(graph, ["cuda:0"], range(30)).vertices)
        np.testing.assert_array_equal(sums[0], sums[1])
        np.testing.assert_array_equal(sums[0], sums[2])

    def test_too_many_paths(self) -> None:
        with emulated_gpus(1):
            graph = layers([1, *[2] * 1000, 1])
            found = run(graph, ["cuda:0"], range(0, 1600, 200))
        assert found.block_searches == 3
        assert found.vertices is None

    def test_large_graphs_are_searched_by_all_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(brandes_steps, "BLOCK_SEARCH_ARCS", 100)
        with emulated_gpus(1):
            found = check_sums(gw.generators.rmat(7, 5, seed=6), ["cuda:0"], range(9))
        assert found.block_searches == 0

    def test_so_are_those_for_whose_searches_there_is_no_room(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(brandes_steps, "_SPARE_SHARE", 1)
        with emulated_gpus(1) as machine:
            found = check_sums(gw.generators.rmat(7, 5, seed=6), ["cuda:0"], range(9), edges=False)
            assert machine.held_bytes(0) == 0
        assert found.block_searches == 0


def test_arcs_are_counted_as_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """From vertices reached, not to them: vertex 1 has 31 arcs in, and 40 out."""
    arcs = [(0, 1), *((v, 1) for v in range(2, 32)), *((1, v) for v in range(32, 72))]
    graph = Graph.from_edges(*np.array(arcs).T, directed=True)
    for count, sources, factor in ((1, [0], 0), (2, [0], 0), (2, [0], 10**6), (1, range(40), 4)):
        monkeypatch.setattr(brandes_steps, "DENSE_FACTOR", factor)
        with emulated_gpus(count):
            for one in (graph, graph.reverse):
                check_sums(one, names_of(count), sources)
            found = run(graph, names_of(count), sources)
        assert found.examined.sum() == sum(
            41 if v < 1 or 2 <= v < 32 else 40 * (v == 1) for v in sources
        )


def test_all_blocks_work_on_hubs_of_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level that consists of what was sent may be a few vertices, and most arcs of the graph."""
    seen: list[list[int]] = []
    controls = StepPlan.controls

    def watched(plan: Any) -> Any:
        found = controls(plan)
        (placement,) = plan.placement.placements
        control = placement.kept(RunArrays).control[placement.parts[0]].download(STEP_CONTROL, 1)
        seen.append([int(phase) for phase in control["phases"][0]])
        return found

    monkeypatch.setattr(StepPlan, "controls", watched)

    def is_alone(graph: Graph) -> bool:
        """Whether one block did the level after the source."""
        division = np.zeros(graph.vertex_count, int)
        division[1] = 1
        seen.clear()
        with emulated_gpus(2), gw.place(graph, names_of(2), division) as placed:
            gw.betweenness_centrality(placed, sources=[0])
        lists = [phase for phase in seen[-1] if phase & 15 == 1]
        return lists[1] >> 31 == 1

    leaves = np.arange(2, 4300)
    hub = Graph.from_edges([0] + [1] * len(leaves), [1, *leaves], directed=False)
    assert not is_alone(hub)
    assert is_alone(gw.generators.path(20))


def test_nothing_is_read_while_another_warp_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With sums of arcs, a vertex' number of paths is read in the superstep that replaces it."""
    monkeypatch.setattr(brandes_steps, "DENSE_FACTOR", 0)
    monkeypatch.setattr(brandes_steps, "LIGHT_VERTICES", 5)
    graph = gw.generators.rmat(6, 5, seed=2, symmetrize=False)
    for sources in ([0, 1], range(20)):
        with emulated_gpus(1, checks=True, seed=1):
            check_sums(graph, names_of(1), sources)


def test_memory_is_asked_for_before_it_is_taken() -> None:
    graph = gw.generators.rmat(12, 8, seed=1)
    with emulated_gpus(1, memory_bytes=1 << 20) as machine:
        with pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .* and has .* free"):
            gw.betweenness_centrality(graph, devices="cuda:0", sources=[0])
        assert machine.held_bytes(0) == 0


def test_small_queries_stay_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gw.generators.path(30)
    monkeypatch.delenv("GODWIT_DEVICES", raising=False)
    with emulated_gpus(1):
        found = gw.betweenness_centrality(graph)
        assert found.statistics.devices == ("cpu",)
        monkeypatch.setenv("GODWIT_DEVICES", "cuda")
        assert gw.betweenness_centrality(graph).statistics.devices == ("cuda:0",)


def test_command_line() -> None:
    with emulated_gpus(2):
        line = ["betweenness", "rmat:7", "--samples", "5", "--json", "--quiet"]
        found = CliRunner().invoke(app, [*line, "--devices", "cuda"])
        wanted = CliRunner().invoke(app, [*line, "--devices", "cpu"])
    assert found.exit_code == 0, found.output
    made, other = json.loads(found.stdout), json.loads(wanted.stdout)
    assert made["statistics"]["devices"] == ["cuda:0", "cuda:1"]
    assert [one["vertex"] for one in made["top"]] == [one["vertex"] for one in other["top"]]


@pytest.mark.gpu
@needs_gpu
class TestGpus:
    @pytest.fixture(params=["one", "shared", "all"])
    def devices(self, request: pytest.FixtureRequest) -> list[str]:
        kinds = {"one": ["cuda:0"], "shared": ["cuda:0", "cuda:0"], "all": names_of(COUNT)}
        return kinds[request.param]

    @pytest.mark.parametrize("directed", [False, True])
    @pytest.mark.usefixtures("way")
    def test_layers(self, devices: list[str], directed: bool) -> None:
        few_layers(devices, directed)

    @pytest.mark.parametrize("symmetrize", [False, True])
    @pytest.mark.usefixtures("way")
    def test_wide_graphs(self, devices: list[str], symmetrize: bool) -> None:
        graph = gw.generators.rmat(14, 8, seed=4, symmetrize=symmetrize)
        check_sums(graph, devices, [0, 7, graph.highest_degree_vertex()])

    @pytest.mark.parametrize("directed", [False, True])
    @pytest.mark.usefixtures("way")
    def test_long_rows(self, devices: list[str], directed: bool) -> None:
        check_sums(long_rows(directed=directed), devices, [0, 7])

    def test_roads(self, devices: list[str]) -> None:
        graph = gw.generators.road(60, seed=1)
        check(graph, devices, edges=True, samples=40)
        check(graph, devices, sources=[5])

    def test_blocks_that_lag(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(10, 6, seed=2)
        gpu = ExperimentOptions(delay_ns=20_000, slice_s=0.001)
        check(graph, devices, sources=list(range(6)), gpu=gpu)

    def test_the_same_bits_every_time(self, devices: list[str]) -> None:
        graph = gw.generators.rmat(13, 8, seed=9)
        for sources in ([1, 2], range(500)):
            first = run(graph, devices, sources).vertices
            np.testing.assert_array_equal(run(graph, devices, sources).vertices, first)
