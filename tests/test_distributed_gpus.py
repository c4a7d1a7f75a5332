"""Graphs on GPUs of several processes: answers are, bit by bit, those of one process with as many GPUs.

Processes are threads here, with emulated GPUs; at the end, real ones on real GPUs.
"""

from __future__ import annotations

import copy
import itertools
import json
import re
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pandas
import pytest

import godwit as gw
from emulated_grid import COMPILER, emulated_gpus
from godwit import errors
from godwit.cli.application import command
from godwit.distributed import gpu_processes
from godwit.distributed import processes as processes_module
from godwit.distributed.gpu_graph import GpuGraph
from godwit.distributed.processes import Processes
from godwit.graph.cuda import builder
from godwit.graph.result import highest_values
from godwit.runtime.cuda import driver, ipc
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.supersteps import rows as step_rows
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.process_exchange import ProcessExchange
from gpu_endpoints import COUNT, names_of
from graphs import LENGTHS, each_graph, named_graph, with_weights_of
from process_threads import run_processes
from programs import FEWEST_HOPS, GAINED, LABELS, LOST, NUMBERED, RESIDUAL, WALKS, WIDEST
from step_programs import (
    ARCS,
    COMPONENTS,
    EVERYTHING,
    GAINED_BITS,
    LEVELS_PULLED,
    LEVELS_TURNED,
    PUSHED,
    start_of,
    with_integer_weights,
)
from test_distributed import needs_mpi
from test_distributed import run as run_command

emulates = pytest.mark.skipif(COMPILER is None, reason="no g++ to emulate GPUs with")

TRANSPORTS: list[Any] = ["direct", "host"]
ITERATIONS: dict[str, Any] = {"max_iterations": 5, "tolerance": 1e-12}


def answers(
    graph: gw.Graph,
    queries: dict[str, Callable[[Any], Any]],
    count: int = 2,
    *,
    checks: bool = False,
) -> None:
    """Check that queries give on several processes what they give on the GPUs of one."""

    def ask(placed: Any) -> dict[str, Any]:
        return {name: query(placed) for name, query in queries.items()}

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            return ask(placed)

    with emulated_gpus(count, checks=checks) as machine:
        parts = run_processes(machine, count, run)
        with gw.place(graph, names_of(count)) as placed:
            expected = ask(placed)
    for name, whole in expected.items():
        values = "rank" if hasattr(whole, "rank") else "distance"
        found = np.concatenate([getattr(part[name], values) for part in parts])
        wanted = getattr(whole, values)
        assert found.dtype == wanted.dtype
        assert found.tobytes() == wanted.tobytes(), name
        for part in parts:
            statistics = part[name].statistics
            assert statistics.processes == count
            assert (statistics.arcs_relaxed == whole.statistics.arcs_relaxed).all()
            assert (statistics.processed_items == whole.statistics.processed_items).all()


def in_steps(graph: Any) -> dict[str, Any]:
    """Return what makes one process search in supersteps, as several always do."""
    return {} if isinstance(graph, GpuGraph) else {"execution": "bulk-synchronous"}


def searches(graph: gw.Graph, gpu: GpuOptions) -> dict[str, Callable[[Any], Any]]:
    """Return searches from one source, and from several up to a limit."""
    if not graph.vertex_count:
        return {}
    last = graph.vertex_count - 1
    sources = [graph.ids[v] for v in sorted({0, last // 2, last})]
    return {
        "bfs": lambda placed: gw.bfs(placed, sources[-1], gpu=gpu, **in_steps(placed)),
        "several": lambda placed: gw.bfs(placed, sources, cutoff=2, gpu=gpu, **in_steps(placed)),
        "target": lambda placed: gw.bfs(
            placed, sources[0], target=sources[-1], gpu=gpu, **in_steps(placed)
        ),
    }


def ranks(gpu: GpuOptions) -> dict[str, Callable[[Any], Any]]:
    """Return ranks in both precisions; arrays grow from one to the other."""
    gpu = GpuOptions(transport=gpu.transport, communication="broadcast")
    return {
        "single": lambda placed: gw.pagerank(placed, dtype="float32", gpu=gpu, **ITERATIONS),
        "double": lambda placed: gw.pagerank(placed, gpu=gpu, **ITERATIONS),
    }


@emulates
@each_graph
def test_every_graph(name: str) -> None:
    """By the host, each superstep takes long where kernels are emulated: long graphs go directly."""
    graph = named_graph(name)
    for transport in TRANSPORTS[: 1 if graph.vertex_count > 70 else 2]:
        gpu = GpuOptions(transport=transport)
        answers(graph, searches(graph, gpu) | ranks(gpu))


@emulates
@pytest.mark.parametrize("count", [1, 3])
def test_numbers_of_processes(count: int) -> None:
    graph = gw.generators.rmat(6, seed=3)
    for transport in TRANSPORTS:
        gpu = GpuOptions(transport=transport)
        answers(graph, searches(graph, gpu) | ranks(gpu), count, checks=transport == "direct")


@emulates
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_hubs_growth_and_slices(transport: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of hubs' rows, frontiers that grow in one process, and a launch for each superstep."""
    monkeypatch.setattr(step_rows, "HUB_ARCS", 8)
    specs = ("rmat:7,seed=3", "path:40", "star:50")
    options: tuple[dict[str, Any], ...] = (
        {"frontier_items": 1, "turn_down": np.inf}, {"turn_down": 0.0}, {"slice_s": 0},
    )  # fmt: skip
    for (i, spec), (j, more) in itertools.product(enumerate(specs), enumerate(options)):
        if transport == "direct" or i == j:  # by the host, supersteps take long
            graph = gw.generate(spec)
            answers(graph, searches(graph, ExperimentOptions(transport=transport, **more)))


@emulates
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_settings_of_pagerank(transport: Any) -> None:
    """Selective values, weights, distributions, tiles, and plain iterations of a directed graph."""
    gpu = GpuOptions(transport=transport)
    generator = np.random.default_rng(5)
    graph = gw.Graph.from_edges(
        *generator.integers(0, 60, (2, 400)), generator.random(400), vertex_count=64
    )
    some = {3: 1.0, 40: 2.5}
    answers(
        graph,
        {
            "weighted": lambda placed: gw.pagerank(placed, gpu=gpu, **ITERATIONS),
            "again": lambda placed: gw.pagerank(placed, gpu=gpu, **ITERATIONS),
            "unweighted": lambda placed: gw.pagerank(placed, weighted=False, gpu=gpu, **ITERATIONS),
            "personalization": lambda placed: gw.pagerank(
                placed, 0.5, personalization=some, initial=some, gpu=gpu, **ITERATIONS
            ),
        },
    )


@emulates
def test_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from godwit.algorithms.pagerank import cuda

    monkeypatch.setattr(cuda, "takes_tiles", lambda *_: True)
    graph = gw.generators.rmat(6, seed=2)
    for transport in TRANSPORTS:
        answers(graph, ranks(GpuOptions(transport=transport)))


def distances(graph: gw.Graph, count: int = 2, *, checks: bool = False, **options: Any) -> None:
    """Check shortest paths on several processes, by each transport, against those of cores."""
    last = graph.vertex_count - 1
    sources = [graph.ids[v] for v in sorted({0, last // 2, last})]
    asked: list[Any] = [
        (sources[0], {}),
        (sources, {"cutoff": 3}),
        (sources[-1], {"target": sources[0]}),
        (sources, {"predecessors": True}),
    ]

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            found = [gw.sssp(placed, source, **given, **options) for source, given in asked]
            assert found[-1].path_to(sources[0]) == [sources[0]]
        return found

    with emulated_gpus(count, checks=checks) as machine:
        parts = run_processes(machine, count, run)
    for place, (source, given) in enumerate(asked):
        has_predecessors = given.pop("predecessors", False)
        expected = gw.sssp(graph, source, devices="cpu", **given)
        found = np.concatenate([part[place].distance for part in parts])
        assert found.dtype == expected.distance.dtype
        np.testing.assert_array_equal(found, expected.distance)
        if has_predecessors:
            before = np.concatenate([part[place].predecessor for part in parts])
            np.testing.assert_array_equal(before, expected.predecessor)
        assert all(part[place].statistics.processes == count for part in parts)


@emulates
@each_graph
def test_shortest_paths_of_every_graph(name: str) -> None:
    """Of graphs with and without hubs, and with kinds of weights that take turns.

    (But those of 1e-300: bounds that double from there on take a thousand supersteps.)
    """
    graph = named_graph(name)
    if not graph.vertex_count:
        return
    kinds = [kind for kind in LENGTHS if kind != "rounding"]
    kind = kinds[zlib.crc32(name.encode()) % len(kinds)]
    for weighted in (graph, with_weights_of(graph, kind, 1)):
        for transport in TRANSPORTS[: 1 if graph.vertex_count > 70 else 2]:
            distances(weighted, gpu=GpuOptions(transport=transport))


@emulates
@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_shortest_paths_by_all_weights(kind: str, count: int) -> None:
    graph = with_weights_of(gw.generators.rmat(6, 8, seed=3), kind, 2)
    transports = TRANSPORTS[: 1 if kind == "rounding" else 2]
    for transport in transports:
        distances(graph, count, gpu=GpuOptions(transport=transport))
    if kind != "rounding":  # (which takes a thousand supersteps)
        distances(graph, count, gpu=GpuOptions(transport=transports[count % 2 - 1], slice_s=0))


@emulates
def test_distances_of_64_bits() -> None:
    """Sums that do not fit 32 bits are found again with 64; beyond these, they are refused."""
    ends = np.arange(40)
    long = gw.Graph.from_edges(ends, ends + 1, np.full(40, 2**30 - 3))
    too_long = gw.Graph.from_edges(ends, ends + 1, np.full(40, 2**60))
    for transport in TRANSPORTS:
        distances(long, gpu=GpuOptions(transport=transport))
    distances(long.with_weights(np.full(40, 2**40)))

    def run(processes: Processes) -> Any:
        with processes.place(too_long, devices="cuda") as placed:
            with pytest.raises(errors.ValueOverflowError, match="as float64, or a cutoff"):
                gw.sssp(placed, 0)
            return gw.sssp(placed, 0, cutoff=2**61).reached

    with emulated_gpus(2) as machine:
        assert np.concatenate(run_processes(machine, 2, run)).sum() == 3


def components(graph: gw.Graph, *queries: dict[str, Any], count: int = 2) -> list[Any]:
    """Check components on several processes against those of cores; return the first process' results."""

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            found = [gw.connected_components(placed, **query) for query in queries]
            return found, [result.largest(3) for result in found]

    with emulated_gpus(count) as machine:
        parts = run_processes(machine, count, run)
    expected = gw.connected_components(graph, devices="cpu")
    for place, _ in enumerate(queries):
        results = [found[place] for found, _ in parts]
        label = np.concatenate([result.label for result in results])
        assert label.dtype == expected.label.dtype
        np.testing.assert_array_equal(label, expected.label)
        for result, (_, largest) in zip(results, parts, strict=True):
            assert result.count == expected.count
            assert result.statistics.processes == count
            assert largest[place] == expected.largest(3)
    return parts[0][0]


BY_HOST = GpuOptions(transport="host")
METHODS: list[dict[str, Any]] = [
    {},
    {"gpu": BY_HOST, "merge": "tree"},
    {"gpu": BY_HOST, "method": "rem"},
    {"merge": "direct"},
    {"merge": "tree"},
    {"method": "rem"},
    {"method": "hook", "rounds": 2, "merge": "tree"},
    {"method": "afforest", "merge": "direct"},
]


@emulates
@each_graph
def test_components_of_every_graph(name: str) -> None:
    components(named_graph(name), *METHODS)


@emulates
@pytest.mark.parametrize("count", [1, 3])
def test_components_on_numbers_of_processes(count: int) -> None:
    for spec in ("rmat:6,seed=3", "path:40", "road:5x7"):
        components(gw.generate(spec), *METHODS, count=count)


@emulates
def test_components_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes begin in tiles, or none."""
    from godwit.algorithms.components import cuda

    monkeypatch.setattr(cuda, "LEAST_ROWS", 1)
    monkeypatch.setattr(cuda, "LEAST_SHARE", 0.0)
    graph = gw.generate("road:20x30")
    components(graph, *METHODS)


@emulates
def test_each_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this is faster; if one GPU has no room for the graph, all of them work together."""
    graph = gw.generators.rmat(7, 8, seed=1)
    ((alone, together),) = [components(graph, {}, {"merge": "direct"})]
    assert alone.statistics.message_bytes.sum() < together.statistics.message_bytes.sum()
    real = StepPlacement.has_room_for_copy
    monkeypatch.setattr(
        StepPlacement,
        "has_room_for_copy",
        lambda steps: real(steps) and steps.processes.rank == 0,
    )
    (narrow,) = components(graph, {})
    assert narrow.statistics.message_bytes.sum() > alone.statistics.message_bytes.sum()


@emulates
def test_components_without_atomics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts merge forests if links have no atomics, or if a process does not see the others' GPUs."""
    graph = gw.generators.rmat(6, seed=4)
    monkeypatch.setattr(gpu_processes.GpuProcesses, "_has_atomics", lambda _: False)
    components(graph, {"merge": "tree"}, {"method": "rem"})
    with pytest.raises(errors.InputError, match="whose atomics work in each other's memory"):
        components(graph, {"merge": "direct"})


def betweenness(
    graph: gw.Graph, *queries: dict[str, Any], count: int = 2, memory_bytes: int = 1 << 30
) -> list[Any]:
    """Check betweenness on several processes against cores; return the first process' statistics."""

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            found = [gw.betweenness_centrality(placed, **query) for query in queries]
            again = [gw.betweenness_centrality(placed, **query) for query in queries]
            return found, again, [result.highest(3) for result in found]

    with emulated_gpus(count, memory_bytes=memory_bytes) as machine:
        parts = run_processes(machine, count, run)
    for place, query in enumerate(queries):
        settings = {name: value for name, value in query.items() if name != "gpu"}
        expected = gw.betweenness_centrality(graph, devices="cpu", **settings)
        whole, again = (
            np.concatenate([part[which][place].centrality for part in parts]) for which in (0, 1)
        )
        np.testing.assert_allclose(whole, expected.centrality, rtol=1e-9, atol=1e-12)
        if not (graph.is_weighted and query.get("weighted") is not False):
            assert whole.tobytes() == again.tobytes()
        for found, _, highest in parts:
            result = found[place]
            assert graph.ids.of(result.source_positions) == expected.sources
            assert highest[place] == highest_values(whole, 3, graph.ids)
            reached = result.statistics.processed_items.sum()
            assert reached == expected.statistics.processed_items.sum()
    return [result.statistics for result in parts[0][0]]


@emulates
@each_graph
def test_betweenness_of_every_graph(name: str) -> None:
    """From all vertices (apart), from two (GPUs search together), and by the host (apart)."""
    graph = named_graph(name)
    n = graph.vertex_count
    some = [graph.ids[v] for v in sorted({0, n - 1})] if n else []
    queries: list[dict[str, Any]] = [{}, {"endpoints": True}] if n <= 300 else []
    if n:
        queries += [{"sources": some, "normalized": False}, {"sources": some, "gpu": BY_HOST}]
    betweenness(graph, *({"weighted": False, **query} for query in queries))


@emulates
@pytest.mark.parametrize("count", [1, 3])
def test_betweenness_on_numbers_of_processes(count: int) -> None:
    """All options; also with fewer sources than processes, and levels of one vertex."""
    queries: list[dict[str, Any]] = [
        {"samples": 20, "seed": 3},
        {"samples": 20, "scale": "sum"},
        {"sources": [5]},
        {"sources": [5], "gpu": BY_HOST, "endpoints": True},
        {"sources": [1, 2], "gpu": gw.GpuOptions(communication="selective")},
    ]
    for spec in ("rmat:6,seed=3", "path:40", "star:50"):
        betweenness(gw.generate(spec), *queries, count=count)
    generator = np.random.default_rng(5)
    arcs = generator.integers(0, 60, (2, 300))
    betweenness(gw.Graph.from_edges(*arcs, vertex_count=64), {}, *queries, count=count)


@emulates
def test_betweenness_by_weights() -> None:
    graph = gw.generate("rmat:5,weights=1..9")
    sums = {"samples": 7, "scale": "sum"}
    betweenness(graph, sums, {"sources": [3]}, {"sources": [3], "weighted": False})


@emulates
def test_betweenness_apart_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many sources are shared out; if one GPU has no room for the graph, all search together."""
    graph = gw.generators.rmat(6, seed=1)
    apart, together = betweenness(graph, {}, {"sources": [0]})
    assert apart.processed_items.all()
    assert together.processed_items[1] == 0  # what GPUs do together counts at the first
    real = GpuGraph.whole

    def refuse(placed: GpuGraph) -> Any:
        if placed.processes.rank == 1:
            raise errors.GraphTooLargeError("no room")
        return real(placed)

    monkeypatch.setattr(GpuGraph, "whole", refuse)
    (narrow,) = betweenness(graph, {})
    assert narrow.processed_items[1] == 0
    with pytest.raises(errors.GraphTooLargeError, match="searches apart, with the whole graph"):
        betweenness(graph, {"gpu": BY_HOST})

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            gw.betweenness_centrality(placed)
            return placed._whole

    with emulated_gpus(2) as machine:
        assert run_processes(machine, 2, run) == [None, None]  # none keeps it in vain


@emulates
def test_betweenness_of_a_graph_that_no_gpu_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of each fits."""
    monkeypatch.setattr(builder, "_RESERVED_BYTES", 0)
    graph = gw.generate("rmat:9,seed=1")
    for nbytes, is_apart in ((260_000, True), (160_000, False)):
        (statistics,) = betweenness(graph, {"samples": 20}, memory_bytes=nbytes)
        assert bool(statistics.processed_items[1]) == is_apart


@emulates
def test_betweenness_of_too_many_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of paths beyond float64 are counted by cores, whether GPUs search apart or together."""
    steps = np.arange(0, 2200, 2)
    sides = np.concatenate([steps, steps, steps + 1, steps + 1])
    ends = np.concatenate([steps + 2, steps + 3, steps + 2, steps + 3])
    graph = gw.Graph.from_edges(sides, ends)
    for given in (
        {"sources": [0], "normalized": False},
        {"sources": [0, 1, 7], "normalized": False, "gpu": BY_HOST},
    ):
        (statistics,) = betweenness(graph, given)
        assert "overflow" in statistics.seconds
    real = GpuGraph.whole

    def refuse(placed: GpuGraph) -> Any:
        if placed.processes.rank == 0:
            raise errors.GraphTooLargeError("no room")
        return real(placed)

    monkeypatch.setattr(GpuGraph, "whole", refuse)
    far = {"sources": [0, *range(2150, 2200)], "normalized": False}
    (statistics,) = betweenness(graph, far)
    assert "overflow" in statistics.seconds
    assert not statistics.rounds.any()  # nothing that a GPU has done counts


def step_programs(
    graph: gw.Graph, *programs: gw.StepProgram, count: int = 2, **options: Any
) -> None:
    """Check step programs on several processes against cores."""

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            found = [
                program.run(placed, start_of(program, graph), **options) for program in programs
            ]
            return found, [result.gather() for result in found]

    with emulated_gpus(count) as machine:
        parts = run_processes(machine, count, run)
    for place, program in enumerate(programs):
        expected = program.run(graph, start_of(program, graph), devices="cpu")
        whole = parts[0][1][place]
        for name, values in expected.fields.items():
            np.testing.assert_array_equal(whole.fields[name], values, f"{program.name}: {name}")
            assert whole.fields[name].dtype == values.dtype
        members = np.concatenate([found[place].frontier for found, _ in parts])
        np.testing.assert_array_equal(members, expected.frontier)
        for found, _ in parts:
            assert found[place].numbers == expected.numbers
            statistics = found[place].statistics
            assert statistics.processed_items.sum() == expected.statistics.processed_items.sum()


@emulates
@each_graph
def test_step_programs_of_every_graph(name: str) -> None:
    """By the host, each superstep takes long where kernels are emulated: long graphs go directly."""
    graph = named_graph(name)
    step_programs(graph, LEVELS_TURNED, COMPONENTS)
    if graph.vertex_count <= 70:
        step_programs(graph, LEVELS_TURNED, gpu=BY_HOST)


@emulates
@pytest.mark.parametrize("count", [1, 3])
def test_programs_of_every_step(count: int) -> None:
    """Whatever there is, also reads at vertices that fields name, and queues without room."""
    for name in ("grid", "random directed", "path"):
        graph = with_integer_weights(named_graph(name))
        step_programs(graph, EVERYTHING, count=count)
        few = ExperimentOptions(frontier_items=2)
        step_programs(graph, EVERYTHING, LEVELS_PULLED, count=count, gpu=few)
    step_programs(named_graph("grid"), *PUSHED.values(), count=count, gpu=BY_HOST)


@emulates
def test_what_step_programs_are_given() -> None:
    """Fields of all vertices, of a process' own and by id; errors reach all processes."""
    graph = gw.generate("rmat:6,seed=3")
    n = graph.vertex_count
    bits = np.arange(n) % 60
    expected = GAINED_BITS.run(graph, fields={"bits": bits}, devices="cpu").fields["bits"]

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            own = slice(placed.vertices.start, placed.vertices.stop)
            for given in (bits, bits[own], dict(enumerate(bits.tolist()))):
                found = GAINED_BITS.run(placed, fields={"bits": given})
                assert found.fields["bits"].tolist() == expected[own].tolist()
            with pytest.raises(errors.ProcessError, match="different arguments"):
                LEVELS_PULLED.run(placed, "all" if processes.rank else [0])
            rank = processes.rank
            mine = gw.StepProgram(
                "mine", fields={"x": ("int64", 0)}, steps=[gw.frontier.compute("x", lambda: rank)]
            )
            with pytest.raises(errors.ProcessError, match="different arguments"):
                mine.run(placed)
            with pytest.raises(errors.InputError, match="ends with a frontier of arcs"):
                ARCS.run(placed)
            with pytest.raises(errors.InputError, match="reduced by 'add' only"):
                EVERYTHING.run(placed, gpu=BY_HOST)
            large = dict.fromkeys(range(n), 2**30)
            with pytest.raises(errors.ValueOverflowError, match="does not fit"):
                PUSHED["int32"].run(placed, fields={"total": np.full(n, 2**31 - 1), "low": large})
            with pytest.raises(errors.InputError, match="each of the 64 vertices"):
                GAINED_BITS.run(placed, fields={"bits": bits[1:]})
            return GAINED_BITS.run(placed, fields={"bits": bits}).fields["bits"].tolist()

    with emulated_gpus(2) as machine:
        assert np.concatenate(run_processes(machine, 2, run)).tolist() == expected.tolist()


def vertex_programs(
    graph: gw.Graph, *queries: tuple[gw.VertexProgram, dict[str, Any]], count: int = 2, **more: Any
) -> None:
    """Check vertex programs on several processes against cores: bit by bit, but for sums of floats."""

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            return [gw.run(program, placed, **query, **more) for program, query in queries]

    with emulated_gpus(count) as machine:
        parts = run_processes(machine, count, run)
    for place, (program, query) in enumerate(queries):
        expected = gw.run(program, graph, devices="cpu", **query)
        values = np.concatenate([part[place].values for part in parts])
        assert values.dtype == expected.values.dtype
        if program is not RESIDUAL:
            np.testing.assert_array_equal(values, expected.values, program.name)
        if expected.fields is not None:
            fields = np.concatenate([part[place].fields for part in parts])
            assert fields.dtype == expected.fields.dtype
            np.testing.assert_allclose(fields, expected.fields, rtol=1e-7)
        assert all(part[place].statistics.processes == count for part in parts)


@emulates
def test_errors_of_vertex_programs_are_those_of_one_process() -> None:
    """They name the user's operators, and not what is made of them."""

    def program(message: Any, **more: Any) -> gw.VertexProgram:
        return gw.VertexProgram("wrong", message, **({"combine": "min", "dtype": "int32"} | more))

    adds: dict[str, Any] = {"combine": "add", "activate": lambda value: value > 0}
    programs = [
        program(lambda value: value * 0.5),
        program(lambda value: None),
        program(lambda value: value + 1, activate=lambda value: value),
        program(lambda value: value // (value - value), activate=lambda value: (value, 1)),
        program(
            lambda value: value, **adds, field_dtype="int32", update=lambda field, value: value / 2
        ),
        program(lambda value: value + 2**29, combine="max"),
        program(
            lambda value: 0, **adds, field_dtype="int32", update=lambda field, value: value + 2**40
        ),
    ]

    def messages(placed: Any) -> list[str]:
        found = []
        for one in programs:
            with pytest.raises((errors.OperatorError, errors.ValueOverflowError)) as info:
                gw.run(one, placed, {0: 5})
            found.append(str(info.value))
        return found

    def run(processes: Processes) -> list[str]:
        with processes.place("path:40", devices="cuda") as placed:
            return messages(placed)

    with emulated_gpus(2) as machine:
        first, second = run_processes(machine, 2, run)
        with gw.place(gw.generate("path:40"), names_of(2)) as placed:
            assert first == second == messages(placed)


def vertex_queries(graph: gw.Graph) -> list[tuple[gw.VertexProgram, dict[str, Any]]]:
    """Return programs of all kinds, with values by vertex, arrays, parameters, limits and targets."""
    n = graph.vertex_count
    far = {graph.ids[n // 2]: 0, graph.ids[0]: 7}
    masks = np.random.default_rng(3).integers(-(2**60), 2**60, n)
    return [
        (LABELS, {}),
        (WIDEST, {"start": {graph.ids[0]: np.inf}}),
        (WIDEST, {"start": far, "limit": 0.25}),
        (FEWEST_HOPS, {"start": far, "parameters": {"add": 2}}),
        (FEWEST_HOPS, {"start": far, "target": graph.ids[n - 1]}),
        (NUMBERED, {"start": {graph.ids[0]: 1}}),
        (GAINED, {"start": {graph.ids[v]: 1 << v % 60 for v in range(0, n, max(1, n // 40))}}),
        (LOST, {"start": masks}),
        (RESIDUAL, {}),
    ]


@emulates
@each_graph
def test_vertex_programs_of_every_graph(name: str) -> None:
    graph = named_graph(name)
    if not graph.vertex_count:
        vertex_programs(graph, (LABELS, {}), (RESIDUAL, {}))
        return
    queries = vertex_queries(graph)
    first = zlib.crc32(name.encode()) % len(queries)
    vertex_programs(graph, *(queries[(first + i) % len(queries)] for i in (0, 4)))


@emulates
@pytest.mark.parametrize("count", [1, 3])
def test_vertex_programs_of_all_kinds(count: int) -> None:
    graph = gw.generate("rmat:6,seed=3").with_random_weights(0, 64, seed=1)
    vertex_programs(graph, *vertex_queries(graph), count=count)
    vertex_programs(graph, *vertex_queries(graph)[:2], count=count, gpu=BY_HOST)
    generator = np.random.default_rng(3)
    sources, targets = np.sort(generator.integers(0, 40, (2, 120)), axis=0)
    arcs = np.compress(sources < targets, [sources, targets], axis=1)
    ascending = gw.Graph.from_edges(*arcs, vertex_count=40)
    vertex_programs(ascending, (WALKS, {"start": {0: 1, 20: 2}}), count=count)


@emulates
def test_what_vertex_programs_are_given() -> None:
    """Arrays of a process' own vertices; errors reach all processes."""
    around = np.arange(200)
    cycle = gw.Graph.from_edges(around, (around + 1) % 200)
    masks = np.random.default_rng(3).integers(-(2**60), 2**60, 200)
    grows = gw.VertexProgram("grows", lambda value: value + 2**29, "max", dtype="int32")
    falls = gw.VertexProgram("falls", lambda value: value - 1, "min", dtype="int64")
    slices = ExperimentOptions(slice_s=0)

    def run(processes: Processes) -> Any:
        rank = processes.rank
        mine = gw.VertexProgram("mine", lambda value: value + rank, "min")
        with processes.place(cycle, devices="cuda") as placed:
            for kind, text, program, options in (
                (errors.ValueOverflowError, "grows", grows, {"start": {0: 0}}),
                (errors.RunTimeoutError, "items", falls, {"start": {0: 0}, "max_items": 99}),
                (errors.RunTimeoutError, "within", falls, {"start": {0: 0}, "timeout_s": 1e-9}),
                (errors.ProcessError, "different arguments", mine, {"start": {0: 0}}),
                (errors.InputError, "a vertex of start must be", LABELS, {"start": {777: 0}}),
                (errors.InputError, "target must be", LABELS, {"target": 777}),
                (errors.InputError, "shape", LABELS, {"start": np.zeros(7, np.int32)}),
                (errors.InputError, "combine by min or max", RESIDUAL, {"limit": 1}),
                (errors.InputError, "in supersteps", LABELS, {"execution": "asynchronous"}),
                (errors.InputError, "VertexProgram", "labels", {}),
                (errors.ProcessError, "values of start", LABELS, {"start": {7: rank}}),
            ):
                with pytest.raises(kind, match=text):
                    gw.run(program, placed, **options, gpu=slices)  # type: ignore[arg-type]
            own = slice(placed.vertices.start, placed.vertices.stop)
            return gw.run(LOST, placed, masks[own]).values

    with emulated_gpus(2) as machine:
        found = np.concatenate(run_processes(machine, 2, run))
    np.testing.assert_array_equal(found, gw.run(LOST, cycle, masks, devices="cpu").values)


@emulates
def test_what_a_process_has(tmp_path: Path) -> None:
    """A range of vertices, with their ids, and all of them after gathering."""

    def run(processes: Processes) -> Any:
        with processes.place("road:5x7", devices="cuda") as placed:
            assert placed.transport == "direct"
            assert placed.device == f"cuda:{processes.rank}"
            assert "35 vertices" in repr(placed)
            result = gw.bfs(placed, 0)
            assert list(result.ids) == list(result.vertices) == list(placed.vertices)
            whole = result.gather()
            with pytest.raises(errors.InputError, match="takes graph, source"):
                gw.bfs(placed, 0, devices="cpu")
            for path in (tmp_path / "road.godwit", tmp_path / "road.mtx.gz"):
                gw.write(placed, path)
            with pytest.raises(errors.FileError):
                gw.write(placed, tmp_path / "nowhere" / "road.godwit")
        with pytest.raises(errors.ClosedContextError):
            gw.bfs(placed, 0)
        return whole

    with emulated_gpus(2) as machine:
        first, second = run_processes(machine, 2, run)
    assert second is None
    expected = gw.bfs(gw.generate("road:5x7"), 0, devices="cpu").distance
    assert first.distance.tolist() == expected.tolist()
    for name in ("road.godwit", "road.mtx.gz"):
        assert gw.read(tmp_path / name).arc_count == gw.generate("road:5x7").arc_count


@emulates
def test_errors_of_one_process_reach_all() -> None:
    graph = gw.generators.path(300)
    stops = ExperimentOptions(slice_s=0)

    def run(processes: Processes) -> Any:
        raised = []

        def expect(kind: type[BaseException], function: Callable[[], Any]) -> None:
            with pytest.raises(kind) as info:
                function()
            raised.append(str(info.value))

        def interrupt(_: int) -> None:
            calls.append(0)
            if processes.rank == 1 and len(calls) > 3:
                raise KeyboardInterrupt

        with processes.place(graph, devices="cuda") as placed:
            expect(errors.InputError, lambda: gw.bfs(placed, 300))
            expect(errors.ProcessError, lambda: gw.bfs(placed, processes.rank))
            expect(errors.InputError, lambda: gw.betweenness_centrality(placed, samples=301))
            soon = {"timeout_s": 1e-9, "gpu": gw.GpuOptions(slice_s=0)}
            expect(errors.RunTimeoutError, lambda: gw.betweenness_centrality(placed, **soon))
            some = [0, 150] if processes.rank else [0]
            expect(errors.ProcessError, lambda: gw.betweenness_centrality(placed, sources=some))
            calls: list[int] = []
            expect(KeyboardInterrupt, lambda: gw.bfs(placed, 0, progress=interrupt, gpu=stops))
            found = gw.bfs(placed, 0)
            assert found.distance.tolist() == list(found.vertices)
        return raised

    with emulated_gpus(2) as machine:
        first, second = run_processes(machine, 2, run)
    assert "source must be" in first[0] == second[0]
    assert "processes 0 and 1 call different functions" in first[1]


class _OnlyDlpack:
    """An array of another library; its ``repr`` has an address."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __dlpack__(self, **given: Any) -> Any:
        return self._values.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


@emulates
def test_arguments_differ_wherever_an_element_does() -> None:
    """Also in the middle of long arrays, which ``repr`` leaves out; the order of sets does not count."""
    long = np.arange(3000)
    other = np.where(long == 1500, 7, long)
    texts = list(map(str, long))
    pairs: list[tuple[Any, Any]] = [
        (long, other),
        (long.astype(float), long),
        (long.reshape(30, 100), long.reshape(100, 30)),
        (pandas.Series(long), pandas.Series(other)),
        (pandas.Series(texts), pandas.Series([*texts[:-1], "7"])),
        (pandas.Series(long), pandas.Series(long, index=other)),
        ({"x": [long]}, {"x": [other]}),
        ({1: 2}, {1: 3}),
        (np.array(texts), np.array([*texts[:-1], "7"])),
        (np.array(texts, np.dtypes.StringDType()), np.array([*texts[1:], "7"])),
        (_OnlyDlpack(long), _OnlyDlpack(other)),
        ({*texts}, {*texts[1:]}),
    ]

    def run(processes: Processes) -> None:
        for pair in pairs:
            with processes.running("same", copy.deepcopy(pair[0]), {*reversed(texts)}):
                processes.require_same(copy.deepcopy(pair[1]), "it", "the same")
            with pytest.raises(errors.ProcessError), processes.running("x", pair[processes.rank]):
                pass
            with pytest.raises(errors.ProcessError), processes.running("x"):
                processes.require_same(pair[processes.rank], "it", "the same")
        mine = (long, other)[processes.rank]
        for devices in (None, "cuda"):
            with processes.place("star:3000", devices=devices) as placed:
                with pytest.raises(errors.ProcessError):
                    gw.bfs(placed, mine)
                with pytest.raises(errors.ProcessError):
                    gw.betweenness_centrality(placed, sources=mine)

    with emulated_gpus(2) as machine:
        run_processes(machine, 2, run)


@emulates
def test_values_that_differ_are_refused() -> None:
    """Each GPU begins with all values, of which those of processes would differ."""
    graph = gw.generate("path:80")
    n = graph.vertex_count

    def run(processes: Processes) -> Any:
        rank = processes.rank
        numbers = np.arange(n)
        several = dict(enumerate(numbers.tolist()))
        other = numbers + np.where(numbers == 40, rank, 0)
        labels = gw.VertexProgram("labels", lambda value: value, "min", "int64", initial=other)
        called = gw.VertexProgram(
            "called", lambda value: value, "min", "int64", initial=lambda vertices: vertices + rank
        )
        with processes.place(graph, devices="cuda") as placed:
            for wrong in (
                lambda: gw.run(FEWEST_HOPS, placed, {rank * 20: 0}),
                lambda: gw.run(LOST, placed, other),
                lambda: gw.run(labels, placed),
                lambda: gw.run(called, placed),
                lambda: LEVELS_PULLED.run(placed, [rank * 20]),
                lambda: GAINED_BITS.run(placed, fields={"bits": other}),
                lambda: GAINED_BITS.run(placed, fields={"bits": several | {40: rank}}),
                lambda: GAINED_BITS.run(placed, fields={"bits": rank}),
                lambda: gw.pagerank(placed, personalization={rank: 1}),
                lambda: gw.pagerank(placed, initial=other + 1),
            ):
                with pytest.raises(errors.ProcessError):
                    wrong()
        with processes.place("path:2", devices="cuda") as placed:
            mine = [7 + rank]
            found = gw.run(LOST, placed, mine).values
            assert GAINED_BITS.run(placed, fields={"bits": mine}).fields["bits"].tolist() == [15]
        return found.tolist()

    with emulated_gpus(2) as machine:
        assert np.concatenate(run_processes(machine, 2, run)).tolist() == [0, 0]


@emulates
def test_one_vertex_on_two_processes() -> None:
    """One has no vertex, and the part of the other is the whole."""

    def run(processes: Processes) -> Any:
        with processes.place("path:1", devices="cuda") as placed:
            mine = np.full(len(placed.vertices), 9)
            whole = [9]
            for given in (mine, whole):
                assert gw.run(LOST, placed, given).values.tolist() == mine.tolist()
                found = GAINED_BITS.run(placed, fields={"bits": given}).fields["bits"]
                assert found.tolist() == mine.tolist()

    with emulated_gpus(2) as machine:
        run_processes(machine, 2, run)


@emulates
def test_a_process_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of one is that of all, and names the process."""

    def run(processes: Processes) -> Any:
        with processes.place("rmat:10", devices="cuda") as placed:
            with pytest.raises(errors.GraphTooLargeError) as info:
                gw.pagerank(placed)
            return str(info.value), getattr(info.value, "__notes__", [])

    with emulated_gpus(2, memory_bytes=200_000) as machine:
        found = run_processes(machine, 2, run)
    assert all("does not fit" in message for message, _ in found)


@emulates
def test_a_host_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels wait for the reports that hosts carry as long as ``patience_s`` says, and no less."""
    real = Processes.exchange

    def late(self: Processes, *given: Any) -> Any:
        sleep(0.2)
        return real(self, *given)

    monkeypatch.setattr(Processes, "exchange", late)
    answers(
        gw.generate("path:3"),
        {"bfs": lambda placed: gw.bfs(placed, 0, gpu=BY_HOST, **in_steps(placed))},
    )


@emulates
def test_which_gpu_is_whose(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(processes: Processes) -> Any:
        messages = []
        for devices in ("cuda:0", "cpu", "cuda:9"):
            with pytest.raises(errors.GodwitError) as info:
                processes.place("path:4", devices=devices)
            messages.append(str(info.value))
        with processes.place("path:4", devices=f"cuda:{1 - processes.rank}") as placed:
            assert gw.bfs(placed, 3).distance.tolist() == [3 - v for v in placed.vertices]
        return messages

    with emulated_gpus(2) as machine:
        same, cpu, none = run_processes(machine, 2, run)[0]
        assert "processes 0 and 1 would use the same GPU" in same
        assert "'cuda' (a GPU for each process)" in cpu
        assert "there is no device 'cuda:9'" in none
        with pytest.raises(errors.DeviceError, match="process 2 sees 2 GPUs: start one process"):
            run_processes(machine, 3, lambda processes: processes.place("path:4", devices="cuda"))


@emulates
def test_without_mapped_memory_hosts_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA may refuse to share memory, and several machines have none in common."""
    graph = gw.generators.rmat(6, seed=1)
    expected = gw.bfs(graph, 0, devices="cpu").distance.tolist()

    def refuse(*_: Any) -> Any:
        raise errors.DeviceError("not permitted")

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            assert placed.transport == "host"
            return placed.why_by_host, gw.bfs(placed, 0).distance.tolist()

    with emulated_gpus(2) as machine, monkeypatch.context() as patch:
        patch.setattr(ipc, "opened", refuse)
        (why, first), (_, second) = run_processes(machine, 2, run)
        assert why == "not permitted"
        assert first + second == expected
    machines = iter(f"machine {number}" for number in range(100))
    with emulated_gpus(2) as machine, monkeypatch.context() as patch:
        patch.setattr(gpu_processes, "machine", lambda: next(machines))
        names = (f"cuda:{rank}" for rank in range(2))

        def run_apart(processes: Processes) -> Any:
            with processes.place(graph, devices=next(names)) as placed:
                return placed.why_by_host, gw.bfs(placed, 0).distance.tolist()

        parts = run_processes(machine, 2, run_apart)
        assert parts[0][0] == "the processes are on several machines"
        assert parts[0][1] + parts[1][1] == expected


@emulates
@pytest.mark.parametrize("forgotten", ["broadcast_rows", "fetch"])
def test_nothing_is_sent_in_vain(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were one of the messages left out, these tests would tell."""
    monkeypatch.setattr(ProcessExchange, forgotten, lambda *_: None)
    graph = gw.generators.rmat(6, 4, seed=3)
    queries: dict[str, Any] = {}
    for turn_down in (0.0, np.inf):
        gpu = ExperimentOptions(transport="host", turn_down=turn_down)
        queries |= {f"{name} {turn_down}": one for name, one in searches(graph, gpu).items()}
    with pytest.raises(AssertionError):
        answers(graph, queries)


@emulates
def test_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each process takes a GPU; the first one writes the whole result, and prints."""
    here = threading.local()
    monkeypatch.setattr(processes_module, "context", lambda: here.processes)
    monkeypatch.setenv("PMI_SIZE", "2")  # as MPICH's launcher does
    graph = gw.generate("rmat:6,weights=1..9")
    gw.write(graph, tmp_path / "graph.godwit")
    commands = {
        "bfs": ["-s", "max-degree"],
        "sssp": ["-s", "max-degree", "--predecessors", "--target", "3"],
        "pagerank": ["--dtype", "float32"],
        "components": ["--merge", "tree"],
        "betweenness": ["--ignore-weights", "--samples", "9"],
    }
    outputs = {name: tmp_path / f"{name}.npy" for name in commands}

    def call(*arguments: str) -> Any:
        with pytest.raises(SystemExit) as info:
            command()(arguments)
        return info.value.code

    def run(processes: Processes) -> Any:
        here.processes = processes
        path, on_gpus = str(tmp_path / "graph.godwit"), ["--devices", "cuda", "--json"]
        for name, options in commands.items():
            assert call(name, path, *on_gpus, *options, "--output", str(outputs[name])) == 0
        assert call("bfs", path, "-s", "0", *on_gpus, "--partition", "metis") == 2

    with emulated_gpus(2) as machine:
        run_processes(machine, 2, run)
    output, errors_output = capsys.readouterr()
    assert "2 processes do not take --partition" in errors_output
    printed = []
    while output.strip():
        facts, end = json.JSONDecoder().raw_decode(output)
        printed.append(facts)
        output = output[end:].lstrip()
    assert [facts["command"] for facts in printed] == list(commands)
    assert all(facts["statistics"]["processes"] == 2 for facts in printed)
    source = graph.highest_degree_vertex()
    found = {name: np.load(path) for name, path in outputs.items()}
    expected = gw.sssp(graph, source, target=3, devices="cpu")
    assert found["sssp"]["distance"].tolist() == expected.distance.tolist()
    assert found["sssp"]["predecessor"].tolist() == expected.predecessor.tolist()
    assert printed[1]["target"]["path"] == expected.path_to(3)
    assert found["bfs"].tolist() == gw.bfs(graph, source, devices="cpu").distance.tolist()
    label = gw.connected_components(graph, devices="cpu").label
    assert found["components"].tolist() == label.tolist()
    assert found["pagerank"].dtype == np.float32
    scores = gw.betweenness_centrality(graph, samples=9, weighted=False, devices="cpu").centrality
    np.testing.assert_allclose(found["betweenness"], scores, rtol=1e-9, atol=1e-12)


@pytest.mark.gpu
@needs_mpi
@pytest.mark.parametrize("shared", [False, True])
def test_real_processes(shared: bool) -> None:
    """On GPUs of their own, and, as far as that goes, on one that they share."""
    needed = 1 if shared else 2
    if needed > COUNT:
        pytest.skip(f"{COUNT} GPUs, and {needed} are needed: {driver.why_not()}")
    checks = Path(__file__).with_name("distributed_gpu_checks.py")
    given = ["cuda:0"] if shared else []
    status, output, messages = run_command(2, sys.executable, str(checks), *given, threads=2)
    assert status == 0, messages
    assert re.search(r"^done\b", output, re.MULTILINE), messages  # codes of colours may follow


@pytest.mark.gpu
@needs_mpi
def test_real_command(tmp_path: Path) -> None:
    if COUNT < 2:
        pytest.skip(f"{COUNT} GPUs, and 2 are needed: {driver.why_not()}")
    labels = tmp_path / "labels.npy"
    given = ["components", "rmat:12", "--devices", "cuda", "--json", "--output", str(labels)]
    status, output, messages = run_command(2, sys.executable, "-m", "godwit", *given, threads=2)
    assert status == 0, messages
    assert json.loads(output)["statistics"]["processes"] == 2
    expected = gw.connected_components(gw.generate("rmat:12"), devices="cpu").label
    assert np.load(labels).tolist() == expected.tolist()
