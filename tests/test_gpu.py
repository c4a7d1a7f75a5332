"""Vertex programs on GPUs: the same results as on the CPU, over endpoints, partitions and transports."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.errors import (
    ClosedContextError,
    DeviceError,
    GraphTooLargeError,
    InputError,
    RunTimeoutError,
    ValueOverflowError,
)
from godwit.runtime.cuda import driver, memory
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from graphs import ZOO, named_graph
from waiting import HANG_S

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}"),
]

COUNT = driver.device_count()
ENDPOINTS = [["cuda:0"], ["cuda:0", "cuda:0"], ["cuda:0"] * 3]
if COUNT > 1:
    ENDPOINTS.append([f"cuda:{index}" for index in range(COUNT)])


@pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)
@pytest.mark.parametrize("name", ZOO)
def test_distances_equal_the_cpus(name: str, devices: list[str]) -> None:
    graph = named_graph(name)
    if graph.vertex_count == 0:
        pytest.skip("there is no vertex to begin at")
    for source in {0, graph.vertex_count - 1, graph.vertex_count // 2}:
        for query in (gw.bfs, gw.sssp):
            wanted = query(graph, source, devices="cpu")
            found = query(
                graph, source, devices=devices, partition="random" if len(devices) > 1 else None
            )
            assert np.array_equal(found.distance, wanted.distance)
            assert np.array_equal(found.predecessor, wanted.predecessor)


def _random_graph(seed: int) -> gw.Graph:
    generator = np.random.default_rng(seed)
    n = int(generator.integers(1, 400))
    m = int(generator.integers(0, 6 * n))
    sources, targets = generator.integers(0, n, (2, m))
    if m and seed % 3 == 0:
        sources[: m // 2] = sources[0]  # a hub
    kinds = [
        None,
        generator.integers(0, 9, m),
        generator.random(m),
        generator.random(m).astype("f4"),
    ]
    kinds.append(generator.integers(0, 2**40, m))
    weights = kinds[seed % len(kinds)]
    return gw.Graph.from_edges(sources, targets, weights, vertex_count=n, directed=seed % 2 == 0)


def check_random_graph(
    seed: int, devices: list[str], gpu: GpuOptions, *, tiny: bool = False
) -> None:
    """BFS and SSSP (one of them, if tiny) of a random graph, however tuned, against the CPU's."""
    graph = _random_graph(seed)
    generator = np.random.default_rng(seed + 1)
    source = int(generator.integers(0, graph.vertex_count))
    ring_items = [1, 2, 3][seed % 3] if tiny else [None, 1, 2, 7][seed % 4]
    window = int(generator.integers(0, 3))
    delta = float(generator.choice([0.1, 1, 10, 1e6])) if seed % 2 else None
    worker = gw.WorkerOptions(delta, window, ring_items)
    partition = ["contiguous", "random"][seed // 2 % 2] if len(devices) > 1 else None
    cutoff = [None, 3, 12.5][seed % 3]
    target = None if seed % 5 else int(generator.integers(0, graph.vertex_count))
    for query in [(gw.bfs, gw.sssp)[seed // 5 % 2]] if tiny else (gw.bfs, gw.sssp):
        asked: dict[str, Any] = {"cutoff": cutoff, "target": target}
        wanted = query(graph, source, devices="cpu", **asked).distance
        result = query(
            graph, source, devices=devices, partition=partition, **asked, worker=worker, gpu=gpu
        )
        assert np.array_equal(result.distance, wanted), (seed, query.__name__, devices)


@pytest.mark.parametrize("transport", ["direct", "host", "ring"])
@pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)
def test_random_graphs_any_tuning(devices: list[str], transport: str) -> None:
    for seed in range(24):
        slices = [0.1, 0.0][seed % 7 == 0]
        hops = [None, 0, 1, 4][seed % 4]
        gpu = ExperimentOptions(transport=transport, slice_s=slices, hops=hops)
        check_random_graph(seed, devices, gpu)


@pytest.mark.parametrize("devices", ENDPOINTS[1:], ids="+".join)
def test_random_delays(devices: list[str]) -> None:
    for seed in range(20):
        check_random_graph(seed, devices, ExperimentOptions(delay_ns=1_000_000, hops=2))


@pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)
@pytest.mark.parametrize("spec", ["rmat:14,weights=1..64", "road:200,weights=1..64", "star:100000"])
def test_larger_graphs(spec: str, devices: list[str]) -> None:
    graph = gw.generate(spec)
    source = graph.highest_degree_vertex()
    for query in (gw.bfs, gw.sssp):
        wanted = query(graph, source, devices="cpu").distance
        with gw.place(graph, devices) as placed:
            for gpu in (
                GpuOptions(),
                ExperimentOptions(threads=256, blocks=3),
                GpuOptions(slice_s=0),
            ):
                found = query(placed, source, gpu=gpu)
                assert np.array_equal(found.distance, wanted)
                statistics = found.statistics
                assert statistics.processed_items.sum() > 0
                assert statistics.sent_items.sum() == statistics.received_items.sum()
            relayed = query(placed, source, gpu=GpuOptions(transport="ring"))
            assert np.array_equal(relayed.distance, wanted)
            links = relayed.statistics.sent_items
            used = {(int(i), int(j)) for i, j in np.argwhere(links)}
            assert used <= {(i, (i + 1) % len(devices)) for i in range(len(devices))}


@pytest.mark.parametrize("devices", ENDPOINTS[1:], ids="+".join)
@pytest.mark.parametrize("partition", ["contiguous", "random"])
def test_every_remote_vertex_duplicated(devices: list[str], partition: str) -> None:
    graph = gw.generators.rmat(11, 3, seed=4, weights=(1, 9))
    wanted = gw.sssp(graph, 7, devices="cpu").distance
    with gw.place(graph, devices, partition, duplication="all") as placed:
        assert np.array_equal(gw.sssp(placed, 7).distance, wanted)


@pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)
def test_examples(devices: list[str]) -> None:
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "examples"))
    try:
        from fewest_hops import fewest_hops
        from residual_pagerank import residual_pagerank
        from widest_path import widest_path
    finally:
        sys.path.pop(0)
    for graph in (
        gw.generators.rmat(10, 8, seed=3, weights=(1, 9)),
        gw.generators.road(50, weights=(1, 9)),
    ):
        source = graph.highest_degree_vertex()
        wide = widest_path(graph, source, devices="cpu")
        assert np.array_equal(widest_path(graph, source, devices=devices), wide)
        hops = fewest_hops(graph, source, devices="cpu")
        assert np.array_equal(fewest_hops(graph, source, devices=devices), hops)
        epsilon = 1e-7
        exact = residual_pagerank(graph, epsilon=1e-12, devices="cpu")
        rank = residual_pagerank(graph, epsilon=epsilon, devices=devices)
        assert np.abs(rank - exact).sum() <= 8 * epsilon * graph.vertex_count


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "float32", "float64"])
@pytest.mark.parametrize("combine", ["min", "max"])
def test_every_value_type(dtype: str, combine: str) -> None:
    """Labels spread: the least or greatest id of what reaches a vertex."""
    graph = gw.generators.rmat(9, 4, seed=5)
    labels = gw.VertexProgram(
        name="labels", message=lambda value: value, combine=combine, dtype=dtype,
        initial=lambda vertices: vertices,
    )  # fmt: skip
    wanted = gw.run(labels, graph, devices="cpu").values
    for devices in ENDPOINTS:
        assert np.array_equal(gw.run(labels, graph, devices=devices).values, wanted)


def test_operators_see_degree_vertex_and_parameters() -> None:
    graph = gw.generators.rmat(9, 4, seed=6)
    program = gw.VertexProgram(
        name="odd", combine="min", dtype="float64", priority=lambda value: value,
        message=lambda value, degree, vertex, step: value + step * degree + vertex % 3,
        parameters={"step": 0.5},
    )  # fmt: skip
    wanted = gw.run(program, graph, {0: 0}, devices="cpu", parameters={"step": 2}).values
    for devices in ENDPOINTS:
        found = gw.run(program, graph, {0: 0}, devices=devices, parameters={"step": 2}).values
        assert np.array_equal(found, wanted)


def test_wide_ids() -> None:
    graph = gw.generators.rmat(10, 8, seed=2, weights=(1, 9))
    wide = gw.Graph(
        graph.offsets, graph.targets.astype(np.int64), graph.weights, directed=graph.directed
    )
    wanted = gw.sssp(graph, 1, devices="cpu").distance
    for devices in ENDPOINTS:
        assert np.array_equal(gw.sssp(wide, 1, devices=devices).distance, wanted)


def test_overflow_is_noticed() -> None:
    graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 3], np.array([2**30, 2**30, 2**30]))
    assert gw.sssp(graph, 0, devices="cuda:0").distance.tolist() == [0, 2**30, 2**31, 3 * 2**30]
    narrow = gw.VertexProgram(
        name="narrow", message=lambda value, weight: value + weight, combine="min", dtype="int32"
    )
    with pytest.raises(ValueOverflowError):
        gw.run(narrow, graph, {0: 0}, devices=["cuda:0", "cuda:0"])


def test_a_run_without_end_is_stopped_and_the_next_one_works() -> None:
    graph = gw.generators.path(1000)
    endless = gw.VertexProgram(
        name="endless", message=lambda value: value - 1, combine="min", dtype="int64"
    )
    for devices in ENDPOINTS:
        with pytest.raises(RunTimeoutError):
            gw.run(endless, graph, {0: 0}, devices=devices, timeout_s=0.5)
        assert gw.bfs(graph, 0, devices=devices).distance.max() > 100


def test_progress_is_reported_while_kernels_run() -> None:
    graph = gw.generators.path(200_000)
    seen: list[int] = []
    gpu = GpuOptions(slice_s=0.001)
    gw.bfs(
        graph,
        0,
        devices="cuda:0",
        progress=seen.append,
        gpu=gpu,
        worker=gw.WorkerOptions(delta=1.0),
    )
    assert len(seen) > 2
    assert seen == sorted(seen)
    last: Any = seen[-1]
    assert last.threshold > 0
    assert 0 <= last.idle_share[0] <= 1


def test_ctrl_c_while_a_kernel_runs() -> None:
    script = (
        "import os, signal, threading, time, godwit as gw\n"
        "g = gw.generators.path(1000)\n"
        "p = gw.VertexProgram(name='endless', message=lambda value: value - 1,\n"
        "                     combine='min', dtype='int64')\n"
        "gw.bfs(g, 0, devices='cuda:0')\n"
        "threading.Timer(3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "begin = time.perf_counter()\n"
        "try:\n"
        "    gw.run(p, g, {0: 0}, devices='cuda:0')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', gw.bfs(g, 0, devices='cuda:0').distance.max())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert "interrupted 999" in done.stdout, done.stderr


@pytest.mark.alone
def test_a_graph_that_does_not_fit_is_refused() -> None:
    graph = gw.generators.road(1000)
    free = memory.free_memory_bytes(0)
    with memory.Buffer(0, free - (100 << 20)):
        with pytest.raises(GraphTooLargeError, match="cuda:0 needs"):
            gw.place(gw.generators.road(2000), "cuda:0")
        assert gw.bfs(graph, 0, devices="cuda:0").distance[0] == 0


def test_names_of_devices() -> None:
    assert gw.all_devices()[0].name == "cuda:0"
    with pytest.raises(DeviceError, match="there is no device 'cuda:99'"):
        gw.bfs(gw.generators.path(3), 0, devices="cuda:99")
    assert gw.bfs(gw.generators.path(30), 0, devices="cuda").distance[29] == 29


def test_a_device_that_never_comes_is_given_up() -> None:
    """The start gate: one of two kernels is not started; the other leaves by itself, and says so."""
    from godwit.worker.cuda import engine

    launch_of = engine.ProgramPlan._launch
    is_missing = True

    def without_the_second(plan: engine.ProgramPlan, endpoint_index: int) -> driver.Launch:
        launch = launch_of(plan, endpoint_index)
        start = launch.start

        def start_unless_missing() -> None:
            if endpoint_index == 0 or not is_missing or plan.arguments[1]["prepare"]:
                start()

        launch.start = start_unless_missing  # type: ignore[method-assign]
        return launch

    graph = gw.generators.path(100)
    gpu = ExperimentOptions(patience_s=0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.ProgramPlan, "_launch", without_the_second)
        with gw.place(graph, ["cuda:0", "cuda:0"]) as placed:
            with pytest.raises(DeviceError, match=r"waited 0\.2 s"):
                gw.bfs(placed, 0, gpu=gpu)
            is_missing = False
            assert gw.bfs(placed, 0, gpu=gpu).distance[99] == 99


def test_fields_of_a_program_that_improves() -> None:
    """The field counts how often a vertex was processed; on a path, once each, whatever the devices."""
    program = gw.VertexProgram(
        name="fields", combine="min", dtype="int32", field_dtype="int64", field_initial=7,
        message=lambda value, field: value + field, update=lambda field: field + 1,
    )  # fmt: skip
    graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 3])
    wanted = gw.run(program, graph, {0: 0}, devices="cpu")
    for devices in ENDPOINTS:
        found = gw.run(program, graph, {0: 0}, devices=devices)
        assert found.values.tolist() == wanted.values.tolist()
        assert found.fields is not None
        assert wanted.fields is not None
        assert found.fields.tolist() == wanted.fields.tolist()


def test_a_sum_that_overflows_on_its_way_is_noticed() -> None:
    program = gw.VertexProgram(
        name="sum", combine="add", dtype="int32", message=lambda value: value,
        activate=lambda value: value > 0, initial=0,
    )  # fmt: skip
    graph = gw.Graph.from_edges([0, 1], [2, 2], vertex_count=4)
    for devices in ENDPOINTS[:2]:
        with pytest.raises(ValueOverflowError):
            gw.run(program, graph, {0: 2**30 + 1, 1: 2**30 + 1}, devices=devices)


def test_a_progress_function_that_asks_the_same_gpu_is_refused() -> None:
    graph = gw.generators.path(100_000)

    def ask(_: int) -> None:
        gw.bfs(graph, 0, devices="cuda:0")

    with pytest.raises(InputError, match="is at work for this thread"):
        gw.bfs(
            graph,
            0,
            devices="cuda:0",
            progress=ask,
            worker=gw.WorkerOptions(delta=1.0),
            gpu=GpuOptions(slice_s=0),
        )


def test_closing_is_told() -> None:
    placed = gw.place(gw.generators.path(100), "cuda:0")
    placed.close()
    with pytest.raises(ClosedContextError):
        gw.bfs(placed, 0)


def test_the_callers_gpu_stays_current() -> None:
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Device(0):
        gw.bfs(gw.generators.path(100), 0, devices=ENDPOINTS[-1])
        assert cupy.cuda.runtime.getDevice() == 0


@pytest.mark.parametrize(
    "query",
    [
        lambda devices: gw.bfs(gw.generators.path(100), 0, devices=devices),
        lambda devices: gw.bfs(gw.generators.path(100), 0, devices=devices, results=devices[-1]),
        lambda devices: gw.connected_components(gw.generators.path(100), devices=devices),
        lambda devices: gw.filter(np.ones(1 << 20), lambda value: value > 0, devices=devices),
    ],
    ids=["bfs", "results", "components", "filter"],
)
@pytest.mark.parametrize("devices", [ENDPOINTS[-1], [f"cuda:{driver.device_count() - 1}"]])
def test_a_thread_new_to_gpus_has_the_first_afterwards(query: Any, devices: list[str]) -> None:
    cupy = pytest.importorskip("cupy")

    def current() -> int:
        for _ in range(2):
            query(devices)
        return int(cupy.arange(3).device.id)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(current).result() == 0


def test_cupy_goes_on_in_a_thread_new_to_gpus() -> None:
    cupy = pytest.importorskip("cupy")
    array = cupy.arange(1 << 16)
    free_blocks = [cupy.empty(1 << power, np.int8) for power in range(9, 22)]
    free_blocks.clear()  # so that what follows is launched without asking the runtime for memory

    def keep_and_add() -> int:
        kept = gw.filter(array[::2], lambda value: value > 10)
        return int((kept + 1).sum())

    with ThreadPoolExecutor(1) as thread:
        for _ in range(2):
            assert thread.submit(keep_and_add).result() == sum(range(12, 1 << 16, 2)) + 32767 - 5


def test_too_many_endpoints_are_refused() -> None:
    with pytest.raises(InputError, match="at most 16 endpoints can run, got 17"):
        gw.bfs(gw.generators.path(100), 0, devices=["cuda:0"] * 17)
