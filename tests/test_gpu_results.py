"""Results of runs on GPUs: brought to the host or to a GPU as they are wanted.

What moves and changes numbers is tested without a GPU too: the kernel runs on emulated ones.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import COMPILER, Machine, emulated_gpus, results_on_gpus
from godwit import config
from godwit.arrays import ResultLocation
from godwit.errors import GraphTooLargeError, ValueOverflowError
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.devices import held_gpus
from godwit.runtime.cuda.transfer import delivery, staging
from godwit.runtime.gpu_options import ExperimentOptions
from godwit.supersteps import results
from godwit.supersteps import run as steps_run
from godwit.worker import query
from godwit.worker import solve as solver
from godwit.worker.cuda.placement import GpuPlacement
from godwit.worker.cuda.results import ProgramResults
from godwit.worker.program import VertexProgram, identity_of
from godwit.worker.query import place_parts
from godwit.worker.solve import converted
from godwit.worker.task import Destination

_EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def _kept(value: Any) -> Any:
    return value


def _program(combine: Any, dtype: str) -> VertexProgram:
    activate = (lambda value: value > 0) if combine == "add" else None
    return VertexProgram(
        name="kept", message=_kept, combine=combine, dtype=dtype, activate=activate
    )


class TestConverted:
    @pytest.mark.parametrize("combine", ["min", "max"])
    @pytest.mark.parametrize("count", [0, 1000, 5000, 10_017])
    def test_identity_stands_for_identity(
        self, monkeypatch: pytest.MonkeyPatch, combine: str, count: int
    ) -> None:
        monkeypatch.setattr(solver, "_SMALL_VALUES", 2_000)  # above: by compiled code
        monkeypatch.setattr(solver, "_VALUES_OF_A_TEAM", 10_000)
        program = _program(combine, "int32")
        values = np.arange(count, dtype=np.int32) - count // 2
        values[::3] = program.identity
        found = converted(program, values, "int64")
        wanted = [int(value) for value in values]
        wanted[::3] = [int(identity_of(combine, np.dtype(np.int64)))] * len(wanted[::3])
        assert found.dtype == np.int64
        assert found.flags.writeable
        assert found.tolist() == wanted

    def test_nothing_to_convert(self) -> None:
        values = np.zeros(3)
        assert converted(_program("min", "float64"), values, None) is values
        assert converted(_program("min", "float64"), values, "float64") is values


# combine, dtype of values, dtype of results, whether some are beyond the limit
_KINDS = [
    ("min", "int32", "int64", False),
    ("min", "int32", "int64", True),
    ("min", "int32", "int32", False),
    ("min", "int32", "int32", True),
    ("max", "int32", "int64", True),
    ("max", "uint32", "uint32", True),
    ("min", "float64", "float64", True),
    ("max", "float32", "float32", True),
    ("add", "float64", "float64", False),
]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Emulated GPUs, three of which have a part each; results come in many pieces."""
    monkeypatch.setattr(delivery, "ROOM_BYTES", 2000)
    monkeypatch.setattr(delivery, "LEAST_LOCKED_BYTES", 900)
    monkeypatch.setattr(staging, "LEAST_PIECE_BYTES", 1000)
    monkeypatch.setattr(config, "thread_count", lambda: 3)
    with emulated_gpus(4) as machine:
        results_on_gpus(monkeypatch)
        yield machine


@contextmanager
def _placed_values(
    parts: int, ranges: bool, values: Any, fields: Any
) -> Iterator[tuple[GpuPlacement, bool]]:
    """Place a graph without arcs, whose vertices have these values."""
    graph = gw.Graph.from_edges([], [], vertex_count=len(values))
    owner = np.sort(np.random.default_rng(parts).integers(0, parts, len(values)))
    if not ranges:
        np.random.default_rng(1).shuffle(owner)
    with gw.place(graph, [f"cuda:{index}" for index in range(parts)], owner) as placed:
        placement = place_parts(placed)
        assert placement is not None
        is_range = parts == 1 or placed.partition.boundaries is not None
        assert is_range == (ranges or parts == 1)
        for part in placement.parts:
            part.rooms.values.filled(values[part.graph.vertices])
            part.rooms.fields.filled(fields[part.graph.vertices])
        with held_gpus(placement.indexes):
            yield placement, is_range


def _operators(combine: str, values: Any, identity: Any, field_dtype: Any = None) -> Any:
    return SimpleNamespace(
        combine=combine, value_dtype=values.dtype, identity=identity, field_dtype=field_dtype
    )


def _deliver(placement: GpuPlacement, operators: Any, destination: Destination, limit: Any) -> None:
    results = ProgramResults(placement, operators, destination, limit)
    results.begin()
    results.finish(destination, limit)


@needs_compiler
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("gpu", [None, 0, 3])
@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: "-".join(map(str, kind)))
@pytest.mark.parametrize(("parts", "ranges"), [(1, True), (3, True), (3, False)])
def test_delivery(
    monkeypatch: pytest.MonkeyPatch, parts: int, ranges: bool, kind: Any, locked: bool,
    gpu: int | None,
) -> None:  # fmt: skip
    """Of the values of all parts, on every way: values beyond the limit count as not reached."""
    monkeypatch.setattr(memory, "LEAST_LOCKED_BYTES", 0 if locked else 1 << 40)
    combine, dtype, result_dtype, limited = kind
    generator = np.random.default_rng(parts)
    n = 1003
    program = _program(combine, dtype)
    values = generator.integers(0, 100, n).astype(dtype)
    values[::5] = program.identity
    fields = generator.random(n)
    limit = values.dtype.type(50) if limited else program.identity
    never = identity_of(combine, np.dtype(result_dtype))
    operators = _operators(combine, values, program.identity, fields.dtype)
    wanted = converted(program, values, result_dtype).copy()
    if limited:
        wanted[values > limit if combine == "min" else values < limit] = never
    with _placed_values(parts, ranges, values, fields) as (placement, is_range):
        for begins_at in (
            None,
            limit,
            program.identity,
        ):  # the limit when a run began that was started
            destination = Destination(
                ResultLocation(gpu), np.dtype(result_dtype), never, ranges=is_range
            )
            if begins_at is None:
                _deliver(placement, operators, destination, limit)
            else:
                on_the_way = ProgramResults(placement, operators, destination, begins_at)
                on_the_way.begin()
                on_the_way.start()
                on_the_way.finish(destination, limit)
                assert on_the_way._values._result is None, "keeps memory that nobody wants"
            found = [
                array if gpu is None else array.get()
                for array in (destination.values, destination.fields)
            ]
            assert found[0].dtype == result_dtype
            assert np.array_equal(found[0], wanted)
            assert np.array_equal(found[1], fields)
            assert destination.seconds > 0


@needs_compiler
@pytest.mark.parametrize("gpu", [0, 3])
def test_results_go_by_the_host_where_a_gpu_has_no_room(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, gpu: int
) -> None:
    values = np.arange(1003, dtype=np.int32)
    operators = _operators("add", values, 0)
    failed: list[int] = []

    def no_room(index: int, nbytes: int) -> Any:
        failed.append(nbytes)
        raise GraphTooLargeError("no room")

    monkeypatch.setattr(delivery, "kept_or_new", no_room)
    with _placed_values(3, False, values, values) as (placement, ranges):
        destination = Destination(ResultLocation(gpu), values.dtype, 0, ranges)
        _deliver(placement, operators, destination, 0)
    assert failed
    assert destination.values.device.id == gpu
    assert np.array_equal(destination.values.get(), values)


@needs_compiler
def test_nothing_is_made_for_a_further_result(
    monkeypatch: pytest.MonkeyPatch, machine: Machine
) -> None:
    """The second result of a kind is one launch; no source is looked up, no memory allocated."""
    monkeypatch.setattr(memory, "LEAST_LOCKED_BYTES", 0)
    values = np.arange(1003, dtype=np.int32)
    operators = _operators("add", values, 0)
    with _placed_values(1, True, values, values) as (placement, ranges):
        for number in range(3):
            destination = Destination(ResultLocation(), values.dtype, 0, ranges)
            before = dict(machine.launched)
            with monkeypatch.context() as patch:
                if number:
                    for name in ("load", "source", "kept_or_new"):
                        patch.setattr(delivery, name, None)
                    patch.setattr(memory, "LockedBuffer", None)
                    patch.setattr(memory, "Buffer", None)
                _deliver(placement, operators, destination, 0)
            assert machine.launched["deliver"] == before.get("deliver", 0) + 1
            assert np.array_equal(destination.values, values)
            del destination


@needs_compiler
@pytest.mark.usefixtures("machine")
def test_a_failure_while_results_come_down(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def fails(piece: Any, *_: Any) -> list[Any]:
        calls.append(piece.begin)
        if len(calls) == 4:
            raise gw.errors.DeviceError("the bus is gone")
        return []

    monkeypatch.setattr(delivery, "_store", fails)
    monkeypatch.setattr(memory, "LEAST_LOCKED_BYTES", 1 << 40)
    values = np.zeros(100_000, np.int32)
    operators = _operators("add", values, 0)
    with _placed_values(1, True, values, values) as (placement, ranges):
        destination = Destination(ResultLocation(), values.dtype, 0, ranges)
        with pytest.raises(gw.errors.DeviceError, match="the bus is gone"):
            _deliver(placement, operators, destination, 0)
    assert destination.values is None


@needs_compiler
@pytest.mark.parametrize("slice_s", [0.1, 0.0])
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("gpu", [0, 3])
def test_each_launch_has_its_results_gathered_behind_it(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, devices: int, gpu: int, slice_s: float
) -> None:
    monkeypatch.setattr(
        ResultLocation, "named", lambda name: ResultLocation(None if name == "host" else gpu)
    )
    options: Any = {"gpu": ExperimentOptions(slice_s=slice_s), "results": f"cuda:{gpu}"}
    steps: Any = {**options, "execution": "bulk-synchronous"}
    generator = np.random.default_rng(devices)
    graph = gw.Graph.from_edges(*generator.integers(0, 60, (2, 150)), generator.integers(1, 9, 150))
    ring = np.arange(
        300
    )  # searched in supersteps once, and then asynchronously, as that gained nothing
    near = np.concatenate([(ring + step) % 300 for step in (1, 2, 3)])
    deep = gw.Graph.from_edges(np.tile(ring, 3), near, directed=False)
    names = [f"cuda:{index}" for index in range(devices)]
    with gw.place(graph, names) as placed, gw.place(deep, names) as long:
        asked: list[tuple[Callable[[], Any], Any]] = [
            (lambda: gw.bfs(placed, 1, **steps).distance, gw.bfs(graph, 1).distance),
            (lambda: gw.sssp(placed, 1, **options).distance, gw.sssp(graph, 1).distance),
            (lambda: gw.sssp(placed, 1, results="cuda").distance, gw.sssp(graph, 1).distance),
            (lambda: gw.bfs(long, 1, results="cuda").distance, gw.bfs(deep, 1).distance),
            (lambda: gw.connected_components(placed, **options).label,
             gw.connected_components(graph).label),
            *(
                (lambda limit=limit: gw.pagerank(placed, max_iterations=limit, **options).rank,
                 gw.pagerank(graph, max_iterations=limit).rank)
                for limit in (3, 4)
            ),
        ]  # fmt: skip
        for ask, wanted in asked:
            for number in range(3):
                before = dict(machine.launched)
                np.testing.assert_allclose(ask().get(), wanted, rtol=1e-9)
                works, gathers = (
                    machine.launched[name] - before.get(name, 0) for name in ("work", "deliver")
                )
                if number == 2 and devices == 1 and gpu == 0:
                    assert works == gathers


@needs_compiler
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("iterations", [3, 4])
def test_ranks_go_by_the_host_where_a_gpu_has_no_room_for_positions(
    monkeypatch: pytest.MonkeyPatch, iterations: int
) -> None:
    """Which of two arrays has the ranks is known on the GPU alone, on this way, too."""

    def no_room(*_: Any) -> Any:
        raise GraphTooLargeError("no room")

    ends = np.random.default_rng(1).integers(
        0, 900, (2, 3000)
    )  # more ranks than a room has place for
    graph = gw.Graph.from_edges(*ends)
    wanted = gw.pagerank(graph, max_iterations=iterations, devices="cpu").rank
    monkeypatch.setattr(ResultLocation, "named", lambda name: ResultLocation(0))
    monkeypatch.setattr(results, "positions_on", no_room)
    with gw.place(graph, ["cuda:0"]) as placed:
        found = gw.pagerank(placed, max_iterations=iterations, results="cuda:0").rank
    np.testing.assert_allclose(found.get(), wanted, rtol=1e-9)


@needs_compiler
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("gpu", [0, 1])
def test_vertices_without_arcs_keep_their_values_between_queries(
    monkeypatch: pytest.MonkeyPatch, gpu: int
) -> None:
    """They are brought from the other GPU once, and other queries bring other values meanwhile."""
    monkeypatch.setattr(
        ResultLocation, "named", lambda name: ResultLocation(None if name == "host" else gpu)
    )
    monkeypatch.setattr(query, "_ARCS_OF_A_GPU", 1)
    graph = gw.generate("rmat:10,edge_factor=4,seed=2,weights=1..64")
    degrees = graph.out_degree()
    assert (degrees == 0).sum() > 100
    sources = np.flatnonzero(degrees)[[0, 9, 99]].tolist()
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        for source in sources:
            for search in (gw.bfs, gw.sssp):
                wanted = search(graph, source, devices="cpu").distance
                for results in ("cuda", "host"):
                    found = search(placed, source, results=results)
                    assert found.statistics.devices == ("cuda:0", "cuda:1")
                    np.testing.assert_array_equal(_on_host(found._given), wanted)
            for dtype in ("float32", "float64"):
                ranks = gw.pagerank(placed, dtype=dtype, results="cuda")
                wanted = gw.pagerank(graph, dtype=dtype, devices="cpu").rank
                np.testing.assert_allclose(_on_host(ranks.rank), wanted, atol=1e-6)


COUNT = driver.device_count()
ENDPOINTS = [["cuda:0"], ["cuda:0"] * 3]
if COUNT > 1:
    ENDPOINTS.append([f"cuda:{index}" for index in range(COUNT)])
PARTITIONS = ["contiguous", "random"]
HOMES = ["host", *(f"cuda:{index}" for index in range(COUNT))]


def _on_host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()


@pytest.fixture(scope="module")
def road() -> gw.Graph:
    """Of several pieces for each of three parts, with vertices that are not reached."""
    return gw.generate("road:1500,keep=0.55,weights=1..64")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("devices", ENDPOINTS, ids="+".join)
class TestOnGpus:
    def test_paths(self, road: gw.Graph, devices: list[str], partition: str, home: str) -> None:
        if home != "host":
            pytest.importorskip("cupy")
        source = road.highest_degree_vertex()
        with gw.place(road, devices, partition) as placed:
            for query in (gw.bfs, gw.sssp):
                for asked in ({}, {"cutoff": 200}):
                    wanted = query(road, source, devices="cpu", **asked)
                    assert not wanted.reached.all()
                    found = query(placed, source, results=home, **asked)
                    gw.sssp(placed, 0)  # works in the same memory
                    assert found.distance.dtype == wanted.distance.dtype
                    assert np.array_equal(_on_host(found.distance), wanted.distance)
                    assert np.array_equal(_on_host(found.reached), wanted.reached)
                    if home == "host":
                        assert found.distance.flags.writeable
                    else:
                        assert f"cuda:{found.distance.device.id}" == home
                        assert f"cuda:{found.reached.device.id}" == home
                        assert "_distance" not in vars(found), "brought to the host unasked"
            assert np.array_equal(_on_host(found.predecessor), wanted.predecessor)

    def test_other_weights(self, devices: list[str], partition: str, home: str) -> None:
        if home != "host":
            pytest.importorskip("cupy")
        graph = gw.generate("rmat:12,seed=4")
        generator = np.random.default_rng(1)
        source = graph.highest_degree_vertex()
        for weights in (
            generator.random(graph.arc_count),
            generator.integers(2**30, 2**31 - 1, graph.arc_count),  # too long for 32 bits
        ):
            weighted = gw.Graph(graph.offsets, graph.targets, weights)
            wanted = gw.sssp(weighted, source, devices="cpu").distance
            found = gw.sssp(weighted, source, devices=devices, partition=partition, results=home)
            assert np.array_equal(_on_host(found.distance), wanted)

    def test_values_and_fields(self, devices: list[str], partition: str, home: str) -> None:
        if home != "host":
            pytest.importorskip("cupy")
        program = runpy.run_path(str(_EXAMPLES / "residual_pagerank.py"))["RESIDUAL_PAGERANK"]
        graph = gw.generate("rmat:12,seed=4")
        wanted = gw.run(program, graph, devices="cpu")
        found = gw.run(program, graph, devices=devices, partition=partition, results=home)
        assert np.allclose(_on_host(found.fields), wanted.fields, atol=1e-3)
        assert found.values.dtype == wanted.values.dtype
        assert _on_host(found.values).shape == wanted.values.shape


@pytest.mark.gpu
@needs_gpu
def test_an_overflow_leaves_no_result() -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 2], np.array([2**30, 2**31 - 1]))
    program = VertexProgram(name="too_far", message=_along, combine="min", dtype="int32")
    with pytest.raises(ValueOverflowError):
        gw.run(program, graph, {0: 0}, devices="cuda:0")
    assert gw.sssp(graph, 0, devices="cuda:0").distance.tolist() == [0, 2**30, 2**30 + 2**31 - 1]


def _along(value: Any, weight: Any) -> Any:
    return value + weight


@needs_compiler
@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("gpu", [0, 1])
def test_gathering_distances_leaves_what_is_on_its_way_to_owners(
    monkeypatch: pytest.MonkeyPatch, gpu: int
) -> None:
    """Each launch of a search on several GPUs is gathered, also those that have more to do."""
    monkeypatch.setattr(
        ResultLocation, "named", lambda name: ResultLocation(None if name == "host" else gpu)
    )
    monkeypatch.setattr(query, "_ARCS_OF_A_GPU", 1)
    # A superstep for each launch.
    monkeypatch.setattr(steps_run, "nanoseconds", lambda seconds: 0 if seconds < 1 else 10**12)
    graph = gw.generate("rmat:10,edge_factor=8,seed=2,weights=1..64")
    source = graph.highest_degree_vertex()
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        for _ in range(2):
            found = gw.sssp(placed, source, results="cuda")
            assert found.statistics.solver == "direction-optimizing"
            assert found.statistics.devices == ("cuda:0", "cuda:1")
            wanted = gw.sssp(graph, source, devices="cpu").distance
            np.testing.assert_array_equal(found._given.get(), wanted)
