"""Results of runs on GPUs: brought to the host or to a GPU as they are wanted.

What moves and changes numbers is tested without a GPU too: the kernel runs emulated, over buffers of plain
memory that notice writes beyond their ends.
"""

from __future__ import annotations

import ctypes
import runpy
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import emulated_gpu
import godwit as gw
from emulated_gpu import COMPILER, EmulatedBuffer, EmulatedModule, EmulatedStream
from godwit import config
from godwit.arrays import ResultLocation
from godwit.errors import ValueOverflowError
from godwit.runtime.cuda import copies, driver
from godwit.runtime.cuda.copies import Staging
from godwit.worker import solve as solver
from godwit.worker.cuda import results
from godwit.worker.program import VertexProgram, identity_of
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
    @pytest.mark.parametrize("count", [0, 1000, 10_017])
    def test_identity_stands_for_identity(
        self, monkeypatch: pytest.MonkeyPatch, combine: str, count: int
    ) -> None:
        monkeypatch.setattr(solver, "_SMALL_VALUES", 10_000)  # above: by a team
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


class _Pinned(EmulatedBuffer):
    def array(self, dtype: Any) -> Any:
        return self.inside.view(dtype)


class _Room:
    """A buffer with the content of an array."""

    def __init__(self, index: int, array: Any) -> None:
        self.buffer = EmulatedBuffer(index, array.nbytes)
        self.buffer.inside[:] = np.ascontiguousarray(array).view(np.uint8)

    def resident(self, array: Any) -> EmulatedBuffer:
        return self.buffer


class _Part:
    """A part with the buffers of its values, fields and vertices."""

    def __init__(self, index: int, vertices: Any, numbers: Any) -> None:
        self.index = index
        self.graph = SimpleNamespace(
            vertices=vertices, vertex_count=len(vertices), targets=vertices[:0]
        )
        numbers = {**numbers, "vertices": vertices}
        self.rooms = SimpleNamespace(
            **{name: _Room(index, array) for name, array in numbers.items()}
        )


class _Placement:
    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        self.stagings: list[Staging] = []

    def staging(self, count: int) -> list[Staging]:
        self.stagings += [Staging() for _ in range(count - len(self.stagings))]
        return self.stagings[:count]

    def close(self) -> None:
        for staging in self.stagings:
            staging.close()
        for part in self.parts:
            for room in vars(part.rooms).values():
                room.buffer.close()


def _emulated_empty(location: ResultLocation, count: int, dtype: Any) -> Any:
    """What stands for a CuPy array where a GPU is meant."""
    array = np.full(count, 77, dtype)
    if location.gpu is None:
        return array
    pointer = SimpleNamespace(ptr=array.ctypes.data)
    return SimpleNamespace(dtype=array.dtype, data=pointer, held=array)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    one_at_a_time = threading.Lock()  # the emulation has one set of fibers

    def launch(kernel: Any, stream: Any, **rest: Any) -> None:
        with one_at_a_time:
            emulated_gpu._launch(kernel, stream, **rest)

    def loaded(index: int, source: str) -> Any:
        with one_at_a_time:
            return EmulatedModule(folder, source)

    monkeypatch.setattr(results, "load", loaded)
    monkeypatch.setattr(results, "Stream", EmulatedStream)
    monkeypatch.setattr(copies, "Stream", EmulatedStream)
    monkeypatch.setattr(copies, "PinnedBuffer", _Pinned)
    for module in (results, copies):
        monkeypatch.setattr(module, "STAGING_BYTES", 1000)
    monkeypatch.setattr(driver, "launch", launch)
    monkeypatch.setattr(driver, "properties", lambda index: SimpleNamespace(multiprocessors=2))
    monkeypatch.setattr(
        driver, "copy_async", lambda to, source, n, _: ctypes.memmove(to, source, n)
    )
    monkeypatch.setattr(
        driver,
        "copy_peer_async",
        lambda to, there, source, here, n, stream: ctypes.memmove(to, source, n),
    )
    monkeypatch.setattr(ResultLocation, "empty", _emulated_empty)


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


@needs_compiler
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("gpu", [None, 0, 7])
@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: "-".join(map(str, kind)))
@pytest.mark.parametrize(("parts", "ranges"), [(1, True), (3, True), (3, False)])
def test_delivery(
    monkeypatch: pytest.MonkeyPatch, parts: int, ranges: bool, kind: Any, gpu: int | None
) -> None:
    combine, dtype, result_dtype, limited = kind
    monkeypatch.setattr(config, "thread_count", lambda: 3)
    generator = np.random.default_rng(parts)
    n = 1003
    program = _program(combine, dtype)
    values = generator.integers(0, 100, n).astype(dtype)
    values[::5] = program.identity
    fields = generator.random(n)
    limit = values.dtype.type(50) if limited else program.identity
    owner = np.sort(generator.integers(0, parts, n))
    if not ranges:
        generator.shuffle(owner)
    placement: Any = _Placement(
        [
            _Part(
                index,
                np.flatnonzero(owner == index).astype(np.int32),
                {"values": values[owner == index], "fields": fields[owner == index]},
            )
            for index in range(parts)
        ]
    )
    location = ResultLocation(gpu)
    never = identity_of(combine, np.dtype(result_dtype))
    destination = Destination(
        location.empty(n, result_dtype), location.empty(n, "float64"), never, gpu, ranges
    )
    operators: Any = SimpleNamespace(
        combine=combine,
        value_dtype=np.dtype(dtype),
        identity=program.identity,
        field_dtype=np.dtype(np.float64),
    )
    results.deliver(placement, operators, destination, limit)
    wanted = converted(program, values, result_dtype).copy()
    if limited:
        wanted[values > limit if combine == "min" else values < limit] = never
    found = destination.values if gpu is None else destination.values.held
    assert found.dtype == result_dtype
    assert np.array_equal(found, wanted)
    assert np.array_equal(destination.fields if gpu is None else destination.fields.held, fields)
    placement.close()


@needs_compiler
@pytest.mark.usefixtures("emulated")
def test_a_failure_while_results_come_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "thread_count", lambda: 3)
    calls: list[int] = []

    def fails(to: int, source: int, nbytes: int, _: Any) -> None:
        calls.append(nbytes)
        if len(calls) == 4:
            raise gw.errors.DeviceError("the bus is gone")

    monkeypatch.setattr(driver, "copy_async", fails)
    values = np.zeros(100_000, np.int32)
    placement: Any = _Placement([_Part(0, np.arange(100_000, dtype=np.int32), {"values": values})])
    program: Any = SimpleNamespace(
        combine="add", value_dtype=np.dtype(np.int32), identity=0, field_dtype=None
    )
    with pytest.raises(gw.errors.DeviceError, match="the bus is gone"):
        results.deliver(placement, program, Destination(values, None, 0, None, True), 0)
    placement.close()


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
