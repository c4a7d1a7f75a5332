"""GPUs that do not reach each other's memory: what the host copies between supersteps.

Emulated GPUs refuse a kernel another GPU's memory (``checks``). ``transport="host"`` has GPUs that are
peers go the same way, so real ones run it, too, as do two endpoints on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import COMPILER, emulated_gpus
from emulated_grid_machine import EmulationError
from godwit import placement
from godwit.errors import DeviceError, GraphTooLargeError, InputError
from godwit.frontier.cuda import program as step_program_text
from godwit.runtime.cuda import driver
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.supersteps import rows as step_rows
from godwit.supersteps.exchange import Exchange
from gpu_endpoints import COUNT, ENDPOINTS, names_of, needs_gpu
from graphs import each_graph, graphs, named_graph
from step_programs import (
    ARCS,
    COMPONENTS,
    EVERYTHING,
    K_CORE,
    LEVELS,
    LEVELS_PULLED,
    LEVELS_TURNED,
    start_of,
    with_integer_weights,
)

emulates = pytest.mark.skipif(COMPILER is None, reason="no g++ to emulate GPUs with")

HOST = GpuOptions(transport="host")
APART = np.eye(3, dtype=bool)
PARTITIONS = (None, "contiguous", "random")

TWICE = gw.StepProgram(
    "sums of sums",
    fields={"x": ("int64", 1)},
    steps=[
        gw.frontier.advance("x", lambda x: x, "add"),
        gw.frontier.advance("x", lambda x: x, "add"),
    ],
)


@pytest.fixture
def apart() -> Iterator[None]:
    """Three GPUs, of which none reaches another."""
    with emulated_gpus(3, peers=APART, checks=True):
        yield


def check_search(graph: gw.Graph, placed: Any, gpu: GpuOptions | None = None) -> None:
    """Distances in supersteps are the CPU's: pushed, pulled, and as it comes."""
    if not graph.vertex_count:
        return
    source = graph.vertex_count // 2
    expected = gw.bfs(graph, source, devices="cpu").distance
    for turn_down in (0.01, 0.0, np.inf):
        options = ExperimentOptions(turn_down=turn_down) if gpu is None else gpu
        found = gw.bfs(placed, source, execution="bulk-synchronous", gpu=options)
        assert found.statistics.solver == "direction-optimizing"
        np.testing.assert_array_equal(found.distance, expected)
        if gpu is not None:
            break


def check_ranks(graph: gw.Graph, placed: Any, gpu: GpuOptions | None = None) -> None:
    """Ranks are the CPU's, of both precisions; with room for what is read, and for all."""
    if gpu is None:
        check_ranks(graph, placed, GpuOptions(communication="broadcast"))
    for dtype, tolerance in (("float64", 1e-12), ("float32", 2e-5)):
        settings: dict[str, Any] = {"max_iterations": 30, "dtype": dtype, "accelerated": False}
        expected = gw.pagerank(graph, devices="cpu", **settings)
        found = gw.pagerank(placed, gpu=gpu, **settings)
        np.testing.assert_allclose(found.rank, expected.rank, rtol=tolerance, atol=1e-7)


def check_sums(graph: gw.Graph, placed: Any, gpu: GpuOptions | None = None) -> None:
    """Betweenness of vertices and edges is the CPU's."""
    if not graph.vertex_count:
        return
    few = list(range(0, graph.vertex_count, 1 + graph.vertex_count // 5))
    for sources in (few, few[:1]):
        settings: dict[str, Any] = {"sources": sources, "edges": True, "weighted": False}
        expected = gw.betweenness_centrality(graph, devices="cpu", **settings)
        found = gw.betweenness_centrality(placed, gpu=gpu, **settings)
        np.testing.assert_allclose(found.centrality, expected.centrality, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(
            found.edge_centrality, expected.edge_centrality, rtol=1e-9, atol=1e-12
        )


def check_power(graph: gw.Graph, placed: Any, gpu: GpuOptions | None = None) -> None:
    """Katz centralities and hubs are the CPU's."""
    expected = gw.katz_centrality(graph, alpha=1e-3, devices="cpu")
    found = gw.katz_centrality(placed, alpha=1e-3, gpu=gpu)
    np.testing.assert_allclose(found.centrality, expected.centrality, rtol=1e-9)
    expected_hubs = gw.hits(graph, tolerance=1e-2, devices="cpu").hubs
    found_hubs = gw.hits(placed, tolerance=1e-2, gpu=gpu).hubs
    np.testing.assert_allclose(found_hubs, expected_hubs, rtol=1e-9, atol=1e-13)


def check_program(
    program: gw.StepProgram, graph: gw.Graph, placed: Any, gpu: GpuOptions | None = None
) -> None:
    """Fields, numbers and frontier are the CPU's."""
    frontier = start_of(program, graph)
    expected = program.run(graph, frontier, devices="cpu")
    found = program.run(placed, frontier, gpu=gpu)
    for name, values in expected.fields.items():
        np.testing.assert_allclose(found.fields[name], values, rtol=1e-9, err_msg=name)
    assert found.numbers == pytest.approx(expected.numbers, rel=1e-9)
    np.testing.assert_array_equal(found.frontier, expected.frontier)


PRIMITIVES: dict[str, Callable[..., None]] = {
    "bfs": check_search,
    "pagerank": check_ranks,
    "betweenness": check_sums,
    "power iterations": check_power,
}


@emulates
@each_graph
@pytest.mark.parametrize("primitive", PRIMITIVES)
@pytest.mark.usefixtures("apart")
def test_every_graph(primitive: str, name: str) -> None:
    graph = named_graph(name)
    for count in (2, 3):
        division = PARTITIONS[(len(name) + count) % 3]
        with gw.place(graph, names_of(count), division) as placed:
            PRIMITIVES[primitive](graph, placed)


@emulates
@pytest.mark.parametrize(
    "program",
    [
        LEVELS_TURNED,
        ARCS,
        K_CORE,
        *(
            pytest.param(program, marks=pytest.mark.thorough)
            for program in (LEVELS, LEVELS_PULLED, COMPONENTS)
        ),
    ],
)
@pytest.mark.usefixtures("apart")
def test_step_programs(program: gw.StepProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    small = step_program_text.SMALL
    for name, least in (("grid", 0), ("random undirected", small), ("star", small), ("star", 0)):
        monkeypatch.setattr(step_program_text, "SMALL", least)
        graph = named_graph(name)
        if program is K_CORE:
            graph = graph.remove_self_loops().merge_parallel_arcs()
        with gw.place(graph, names_of(3)) as placed:
            check_program(program, graph, placed)


@emulates
@pytest.mark.usefixtures("apart")
def test_a_program_of_every_step() -> None:
    for name in ("grid", "random directed", "path"):
        graph = with_integer_weights(named_graph(name))
        with gw.place(graph, names_of(2)) as placed:
            check_program(EVERYTHING, graph, placed)
            check_program(EVERYTHING, graph, placed, ExperimentOptions(frontier_items=2))


@emulates
@pytest.mark.usefixtures("apart")
def test_operators_one_by_one() -> None:
    graph = named_graph("grid")
    steps = [
        gw.frontier.advance("x", lambda: 1, "add"),
        gw.frontier.filter(lambda vertex: vertex % 2 == 0),
        gw.frontier.advance("x", lambda x: x + 1, "add"),
        gw.frontier.reduce("most", lambda x: x, "max", of="all"),
    ]
    found = []
    for devices in ("cpu", names_of(2)):
        explorer = gw.explore(
            graph, fields={"x": ("int32", 0)}, numbers={"most": ("int64", 0)}, frontier=[0, 5],
            devices=devices,
        )  # fmt: skip
        for step in steps:
            explorer.do(step)
        found.append(
            (explorer.fields["x"].tolist(), explorer.numbers["most"], explorer.frontier.tolist())
        )
    assert found[0] == found[1]


@emulates
@settings(max_examples=settings().max_examples // 4)
@given(graph=graphs(), count=st.integers(2, 3), seed=st.integers(0, 2))
def test_random_graphs(graph: gw.Graph, count: int, seed: int) -> None:
    with emulated_gpus(3, peers=APART, seed=seed), gw.place(graph, names_of(count)) as placed:
        for check in (check_search, check_ranks, check_sums):
            check(graph, placed)


@emulates
def test_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rows are shared out, and who finds one tells all."""
    monkeypatch.setattr(step_rows, "HUB_ARCS", 8)
    with emulated_gpus(3, peers=APART, checks=True):
        for spec in ("rmat:7,seed=3", "rmat:8,seed=1"):
            graph = gw.generate(spec)
            with gw.place(graph, names_of(3)) as placed:
                check_search(graph, placed)
                check_search(graph, placed, ExperimentOptions(frontier_items=1, turn_down=np.inf))


@emulates
def test_peers_that_go_by_the_host() -> None:
    graph = gw.generators.rmat(7, 4, seed=3)
    weighted = graph.with_weights(np.full(graph.arc_count, 3))
    for devices in (names_of(2), ["cuda:0", "cuda:0"], ["cuda:1", "cuda:0", "cuda:1"]):
        with emulated_gpus(2), gw.place(weighted, devices) as placed:
            check_search(graph, placed, HOST)
            check_ranks(weighted, placed, HOST)
            check_ranks(weighted, placed, GpuOptions(transport="host", communication="broadcast"))
            check_sums(graph, placed, HOST)
            check_program(LEVELS_TURNED, graph, placed, HOST)
            expected = gw.betweenness_centrality(weighted, devices="cpu", sources=[3, 9])
            found = gw.betweenness_centrality(placed, sources=[3, 9], gpu=HOST)
            np.testing.assert_allclose(found.centrality, expected.centrality, rtol=1e-9, atol=1e-12)


@emulates
@pytest.mark.usefixtures("apart")
def test_by_weights() -> None:
    graph = named_graph("grid")
    expected = gw.betweenness_centrality(graph, devices="cpu", sources=[0, 7], weighted=True)
    found = gw.betweenness_centrality(graph, devices=names_of(2), sources=[0, 7], weighted=True)
    assert found.statistics.devices == ("cuda:0", "cuda:1")
    np.testing.assert_allclose(found.centrality, expected.centrality, rtol=1e-9, atol=1e-12)


@emulates
def test_one_pair_that_is_none() -> None:
    """Two reach each other, the third reaches nobody."""
    peers = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool)
    graph = gw.generators.rmat(6, 4, seed=5)
    with emulated_gpus(3, peers=peers, checks=True), gw.place(graph, names_of(3)) as placed:
        for check in PRIMITIVES.values():
            check(graph, placed)


@emulates
@pytest.mark.usefixtures("apart")
def test_what_is_chosen() -> None:
    """Nothing needs to be asked for, and one GPU is no different."""
    graph = gw.generators.rmat(7, 4, seed=5)
    found = gw.bfs(graph, 0, devices=names_of(2))
    assert found.statistics.devices == ("cuda:0",)
    assert "exchange" not in found.statistics.seconds
    found = gw.bfs(graph, 0, devices="cuda:1", execution="bulk-synchronous")
    assert "exchange" not in found.statistics.seconds
    found = gw.bfs(graph, 0, devices=names_of(2), execution="bulk-synchronous")
    assert found.statistics.seconds["exchange"] > 0


@emulates
@pytest.mark.usefixtures("apart")
def test_one_gpu_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """For supersteps, where the host would copy; what else runs asynchronously takes all."""
    monkeypatch.setenv("GODWIT_DEVICES", "cuda")
    monkeypatch.setattr(placement, "_ROOM", 10**9)
    graph = gw.generators.rmat(7, 16, seed=5)
    one: list[Any] = [
        gw.pagerank(graph),
        gw.bfs(graph, 0),
        gw.bfs(graph, 0, execution="bulk-synchronous"),
        LEVELS.run(graph, [0]),
        gw.connected_components(graph),
    ]
    for found in one:
        assert found.statistics.devices == ("cuda:0",)
    assert gw.sssp(graph, 0).statistics.devices == ("cuda:0", "cuda:1", "cuda:2")


@emulates
@pytest.mark.usefixtures("apart")
def test_what_goes_without() -> None:
    graph, devices = gw.generators.rmat(6, 4, seed=5), names_of(2)
    wishes: list[dict[str, Any]] = [
        {"merge": "direct"}, {"method": "afforest"}, {"gpu": ExperimentOptions(threads=64)},
    ]  # fmt: skip
    for wish in wishes:
        with pytest.raises(
            DeviceError, match=rf"cuda:0, cuda:1 change .* without {next(iter(wish))}"
        ):
            gw.connected_components(graph, devices=devices, **wish)
    selective = GpuOptions(communication="selective")
    with gw.place(graph, devices, duplication="all") as placed:
        for run in (
            lambda: gw.pagerank(placed, gpu=selective),
            lambda: LEVELS.run(placed, [0], gpu=selective),
        ):
            with pytest.raises(InputError, match="the host copies what GPUs send each other"):
                run()
    for run in (
        lambda: gw.pagerank(graph, devices=devices, gpu=GpuOptions(transport="ring")),
        lambda: LEVELS.run(graph, [0], devices=devices, gpu=GpuOptions(transport="ring")),
        lambda: gw.bfs(
            graph,
            0,
            devices=devices,
            execution="bulk-synchronous",
            gpu=GpuOptions(transport="ring"),
        ),
    ):
        with pytest.raises(InputError, match="transport='ring'"):
            run()


@emulates
def test_a_graph_that_no_gpu_holds() -> None:
    """Searches apart need the whole graph on each."""
    graph = gw.generators.rmat(12, 16, seed=5)
    with (
        emulated_gpus(2, peers=APART[:2, :2], memory_bytes=1 << 20),
        pytest.raises(GraphTooLargeError, match=r"search apart, each with the whole\s+graph"),
    ):
        gw.betweenness_centrality(graph, sources=[0, 1], devices=names_of(2))


@emulates
@pytest.mark.parametrize("forgotten", ["broadcast", "reset"])
def test_nothing_is_copied_in_vain(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were one of the copies left out, these tests would tell; without the third, kernels read anything."""
    monkeypatch.setattr(Exchange, forgotten, lambda *_: None)
    graph = named_graph("grid")

    def check_all() -> None:
        check_search(graph, placed, ExperimentOptions(transport="host", turn_down=0.0))
        check_search(graph, placed, ExperimentOptions(transport="host", turn_down=np.inf))
        check_program(TWICE, graph, placed, HOST)

    with (
        emulated_gpus(2),
        gw.place(graph, names_of(2), "random") as placed,
        pytest.raises(AssertionError),
    ):
        check_all()


@emulates
@pytest.mark.parametrize("turn_down", [np.inf, 0.5])
def test_a_hub_is_pushed_along_by_all(turn_down: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a leaf of a star to its hub, then to the other leaves, on all GPUs, and on to a tail of each.

    Tails are pushed to, or (0.5) pull: from leaves on other GPUs, whose bits that push has sent to all.
    """
    monkeypatch.setattr(step_rows, "HUB_ARCS", 30)
    clique = np.triu_indices(20, 1)  # apart: without long rows, there would be no hubs
    hub, leaves, tails = 20, np.arange(21, 61), np.arange(61, 100)
    source = leaves[29]
    graph = gw.Graph.from_edges(
        np.concatenate([clique[0], np.full(40, hub), leaves[leaves != source]]),
        np.concatenate([clique[1], leaves, np.roll(tails, 1)]),
        directed=False,
    )
    assert source == graph.vertex_count // 2  # from which check_search begins
    with emulated_gpus(2), gw.place(graph, names_of(2)) as placed:
        check_search(graph, placed, ExperimentOptions(transport="host", turn_down=turn_down))


@emulates
def test_kernels_that_reach_for_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above rest on: memory of another GPU is nobody's for a kernel."""
    graph = gw.generators.rmat(6, 4, seed=3)
    monkeypatch.setattr(driver, "can_access_peer", lambda here, there: True)
    with emulated_gpus(2, peers=APART[:2, :2], checks=True), pytest.raises(EmulationError):
        gw.bfs(graph, 0, devices=names_of(2), execution="bulk-synchronous")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("devices", ENDPOINTS[1:], ids="+".join)
class TestOnGpus:
    """The host's copies between real GPUs."""

    def test_primitives(self, devices: list[str]) -> None:
        for graph in (
            gw.generators.rmat(14, 8, seed=3),
            gw.generators.road(60, seed=2),
            gw.generators.rmat(11, 4, seed=3, symmetrize=False),
            named_graph("star"),
        ):
            for division in PARTITIONS:
                with gw.place(graph, devices, division) as placed:
                    check_search(graph, placed, HOST)
                    check_search(graph, placed, ExperimentOptions(transport="host", turn_down=0.0))
                    check_ranks(graph, placed, HOST)
                    check_sums(graph, placed, HOST)

    def test_step_programs(self, devices: list[str]) -> None:
        for program in (LEVELS_TURNED, LEVELS_PULLED, COMPONENTS, EVERYTHING):
            graph = gw.generators.rmat(10, 4, seed=3)
            if program is EVERYTHING:
                graph = with_integer_weights(graph)
            with gw.place(graph, devices) as placed:
                check_program(program, graph, placed, HOST)


@pytest.mark.gpu
@pytest.mark.skipif(COUNT < 2, reason="one GPU is its own peer")
def test_strangers_among_real_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is chosen for GPUs that are no peers, on some that are not let to be."""
    monkeypatch.setattr(driver, "can_access_peer", lambda here, there: here == there)
    for graph in (gw.generators.rmat(13, 8, seed=3), gw.generators.road(50, seed=2)):
        with gw.place(graph, names_of(COUNT)) as placed:
            check_search(graph, placed)
            check_ranks(graph, placed)
            check_sums(graph, placed)
            check_program(COMPONENTS, graph, placed)
            found = gw.connected_components(placed)
            assert found.statistics.solver.startswith("streamed")
            expected = gw.connected_components(graph, devices="cpu").label
            np.testing.assert_array_equal(found.label, expected)
            np.testing.assert_array_equal(
                gw.bfs(placed, 0).distance, gw.bfs(graph, 0, devices="cpu").distance
            )
        with gw.place(graph, names_of(COUNT), duplication="1-hop") as placed:
            check_ranks(graph, placed, GpuOptions(communication="selective"))
