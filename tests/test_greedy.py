"""Independent sets and colourings: the results of serial loops, on CPUs and on GPUs.

Without a GPU the same kernels run on emulated ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.greedy import cpu, cuda
from godwit.algorithms.greedy.order import Kind, vertex_order
from godwit.arrays import ResultLocation, host_array
from godwit.cli.application import app
from godwit.errors import InputError, RunTimeoutError, VerificationError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import COUNT, names_of, needs_gpu, on_endpoints
from graphs import arcs_of, each_graph, graphs, named_graph

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
KINDS: dict[str, tuple[Kind, Any, Any, str]] = {
    "set": (
        Kind.SET, gw.maximal_independent_set, gw.verify_maximal_independent_set, "member",
    ),
    "colours": (Kind.COLOR, gw.greedy_color, gw.verify_greedy_color, "color"),
}  # fmt: skip
each_kind = pytest.mark.parametrize("kind", KINDS)


def serial(graph: Graph, kind: Kind, seed: int) -> list[int]:
    """Decide the vertices one by one."""
    neighbours: list[list[int]] = [[] for _ in range(graph.vertex_count)]
    for tail, head, *_ in arcs_of(graph):
        neighbours[tail].append(head)
        neighbours[head].append(tail)
    decided: dict[int, int] = {}
    for v in vertex_order(graph, kind, seed).tolist():
        near = {decided[u] for u in neighbours[v] if u in decided}
        if kind is Kind.SET:
            decided[v] = int(1 not in near)
        else:
            decided[v] = next(color for color in range(len(near) + 1) if color not in near)
    return [decided[v] for v in range(graph.vertex_count)]


def check(kind: str, graph: Any, devices: Any, **settings: Any) -> Any:
    """Compare with what the CPU decides; return the result."""
    _, function, verify, name = KINDS[kind]
    plain = graph.graph if isinstance(graph, gw.PlacedGraph) else graph
    seed = settings.get("seed", 0)
    expected = getattr(function(plain, seed=seed, devices="cpu"), name)
    result = function(graph, devices=devices, **settings)
    np.testing.assert_array_equal(host_array(getattr(result, name)), expected)
    verify(plain, result)
    return result


@each_kind
@given(graph=graphs(), seed=st.integers(0, 2**63 - 1), threads=st.integers(1, 3))
def test_results_are_those_of_the_serial_loop(
    kind: str, graph: Graph, seed: int, threads: int
) -> None:
    what, function, verify, name = KINDS[kind]
    result = function(graph, seed=seed, devices="cpu")
    expected = serial(graph, what, seed)
    assert getattr(result, name).tolist() == expected
    verify(graph, result)
    if graph.vertex_count:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu, "thread_count", lambda graph, threads: threads)
            order = vertex_order(graph, what, seed)
            found = cpu.decide_on_cores(graph, what, order, threads, None)
        assert found.tolist() == expected


@pytest.mark.parametrize("largest", [1, 1 << 17])
def test_orders_are_by_degree_then_at_random(largest: int, monkeypatch: Any) -> None:
    degree = np.arange(2000) % 7 * largest
    monkeypatch.setattr("godwit.algorithms.greedy.order.degrees", lambda graph: degree)
    graph = gw.generators.path(2000)
    for kind, sign in ((Kind.SET, 1), (Kind.COLOR, -1)):
        order = vertex_order(graph, kind, 1)
        assert sorted(order) == list(range(2000))
        assert (np.diff(sign * degree[order]) >= 0).all()
        equal = order[degree[order] == largest]
        assert 0.4 < np.mean(np.diff(equal) > 0) < 0.6
        assert not np.array_equal(order, vertex_order(graph, kind, 2))


@each_kind
@pytest.mark.parametrize("name", ["email-Enron", "rome-roads", "wave"])
def test_real_graphs(kind: str, name: str) -> None:
    files = sorted(DATA.glob(f"{name}.*"))
    if not files:
        pytest.skip(f"{name} is not there")
    graph = gw.read(files[0])
    KINDS[kind][2](graph, KINDS[kind][1](graph, devices="cpu"))


def test_results() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], ids=["Bonn", "Ulm", "Jena"])
    chosen = gw.maximal_independent_set(graph)
    assert (chosen.vertices, chosen.size) == (["Bonn", "Jena"], 2)
    colors = gw.greedy_color(graph)
    assert colors.to_dict() == {"Bonn": 1, "Ulm": 0, "Jena": 1}
    assert (colors.count, colors.sizes.tolist()) == (2, [1, 2])
    empty = Graph.from_edges([], [])
    assert (gw.greedy_color(empty).count, gw.maximal_independent_set(empty).size) == (0, 0)
    clique = gw.greedy_color(gw.generators.complete(70))
    assert clique.count == 70


def test_verifiers_name_the_vertex() -> None:
    graph = gw.generators.path(4)
    for wrong, message in (([1, 1, 0, 1], "0 and 1 are"), ([1, 0, 0, 0], "vertex 2 is not")):
        with pytest.raises(VerificationError, match=message):
            gw.verify_maximal_independent_set(graph, np.array(wrong, np.bool_))
    for colors, message in (
        ([0, 0, 1, 0], "0 and 1 have"), ([2, 0, 1, 0], "vertex 0 has"), ([0, 1, -1, 1], "negative"),
    ):  # fmt: skip
        with pytest.raises(VerificationError, match=message):
            gw.verify_greedy_color(graph, np.array(colors))


@each_kind
def test_wrong_arguments_and_time_limits(kind: str) -> None:
    function = KINDS[kind][1]
    with pytest.raises(InputError, match="seed"):
        function(gw.generators.path(4), seed=-1)
    with pytest.raises(RunTimeoutError):
        function(gw.generators.path(4_000_000), devices="cpu", timeout_s=1e-9)


@pytest.mark.parametrize("command", ["independent-set", "coloring"])
def test_commands(command: str, tmp_path: Path) -> None:
    output = tmp_path / "result.npy"
    ran: Any = CliRunner().invoke(
        app, [command, "rmat:8", "--seed", "3", "--verify", "--json", "-o", str(output)]
    )
    assert ran.exit_code == 0, ran.output
    facts, graph = json.loads(ran.stdout), gw.generate("rmat:8")
    if command == "coloring":
        colors = gw.greedy_color(graph, seed=3)
        assert facts["colors"] == colors.count
        np.testing.assert_array_equal(np.load(output), colors.color)
    else:
        chosen = gw.maximal_independent_set(graph, seed=3)
        assert facts["size"] == chosen.size
        np.testing.assert_array_equal(np.load(output), chosen.member)


@each_kind
class TestEmulated:
    @pytest.fixture(autouse=True)
    def gpus(self) -> Iterator[None]:
        with emulated_gpus(2):
            yield

    @each_graph
    def test_decisions_are_the_cpus(self, name: str, kind: str) -> None:
        check(kind, named_graph(name), "cuda:0")

    def test_queries_of_a_placed_graph(self, kind: str, monkeypatch: Any) -> None:
        monkeypatch.setattr(cuda, "_CHUNK", 64)
        for symmetric in (True, False):
            graph = gw.generators.rmat(8, 6, seed=1, symmetrize=symmetric)
            with gw.place(graph, "cuda:0") as placed:
                for seed in (0, 5, 5):
                    result = check(kind, placed, None, seed=seed)
                gw.core_number(placed)
            for gpu in (GpuOptions(slice_s=0), ExperimentOptions(blocks=1)):
                check(kind, graph, "cuda:0", gpu=gpu)
        active = int(np.count_nonzero(graph.out_degree() + graph.in_degree()))
        assert result.statistics.processed_items.tolist() == [active]

    def test_more_colours_than_a_window(self, kind: str) -> None:
        tails, heads = np.triu_indices(200, 1)
        check(kind, Graph.from_edges(tails, heads, directed=False), "cuda:0")

    @pytest.mark.thorough
    def test_several_gpus(self, kind: str, monkeypatch: Any) -> None:
        tails, heads = np.triu_indices(70, 1)  # more colours than a step compares at once
        for graph in (named_graph("random directed"), Graph.from_edges(tails, heads)):
            with gw.place(graph, names_of(2)) as placed:
                assert check(kind, placed, None).statistics.devices == ("cuda:0",)
                with monkeypatch.context() as patch:
                    patch.setattr(StepPlacement, "has_room_for_copy", lambda self: False)
                    result = check(kind, placed, None, seed=3)
                    assert result.statistics.devices == ("cuda:0", "cuda:1")


@each_kind
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 5))]
)
def test_no_order_of_threads_matters(kind: str, seed: int) -> None:
    with emulated_gpus(1, seed=seed, checks=True):
        check(kind, gw.generators.rmat(7, 5, seed=seed, symmetrize=False), "cuda:0")
        check(kind, gw.generators.rmat(7, 5, seed=seed), "cuda:0")


@pytest.mark.gpu
@needs_gpu
@each_kind
class TestOnGpus:
    @on_endpoints
    @each_graph
    def test_decisions_are_the_cpus(self, name: str, kind: str, devices: list[str]) -> None:
        check(kind, named_graph(name), devices)

    @on_endpoints
    @pytest.mark.parametrize(
        "spec", ["rmat:18", "rmat:16,symmetrize=false", "road:300", "complete:2000", "star:100000",
                 "path:100000"]
    )  # fmt: skip
    def test_larger_graphs(self, spec: str, kind: str, devices: list[str]) -> None:
        graph = gw.generate(spec)
        with gw.place(graph, devices) as placed:
            for seed in (0, 1, 0):
                check(kind, placed, None, seed=seed)
        check(kind, graph, devices, gpu=ExperimentOptions(slice_s=0, delay_ns=20_000))

    def test_several_by_a_step_program(self, kind: str, monkeypatch: Any) -> None:
        monkeypatch.setattr(StepPlacement, "has_room_for_copy", lambda self: False)
        for devices in (["cuda:0", "cuda:0"], names_of(max(1, COUNT))):
            for spec in ("rmat:12", "rmat:11,symmetrize=false"):
                check(kind, gw.generate(spec), devices)

    def test_results_on_a_gpu(self, kind: str) -> None:
        graph = named_graph("random directed")
        for results in ("cuda:0", f"cuda:{COUNT - 1}"):
            found = check(kind, graph, "cuda:0", results=results)
            array = getattr(found, KINDS[kind][3])
            assert array.device.id == ResultLocation.named(results).gpu
