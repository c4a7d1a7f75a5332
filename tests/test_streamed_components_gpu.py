"""Components of edges that stream to GPUs: kernels on emulated ones, copies and streams on pretended ones.

Emulated GPUs run the very kernels; pretended ones have streams that do things late and in any order that
events allow, and a forest that is linked by the CPU's code when its turn in the stream comes.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np
import pytest

import godwit as gw
from architectures import compiled_for, each_architecture
from emulated_grid import Machine, emulated_gpus
from godwit.algorithms.components import streamed_cuda as cuda_streams
from godwit.algorithms.components.streamed_cpu import HostForest, Linking
from godwit.algorithms.components.streamed_cuda import GpuForest, memory_bytes
from godwit.dataflow.cpu import HostSpace
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.io.edge_sources import END_DTYPES
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import ARCHITECTURES
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.memory import Buffer
from graphs import each_graph, named_graph
from pretend_cuda import pretended_gpus
from test_components import expected_labels
from test_streamed_components import WRONG_IDS, edges_of, labels_of, random_edges

COUNT = driver.device_count()
needs_gpu = pytest.mark.skipif(COUNT == 0, reason=f"no GPU: {driver.why_not()}")

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


class EmulatedForest:
    """A forest on GPU 0, with room for edges beside it."""

    def __init__(self, linking: Linking) -> None:
        self.linking = linking
        self.stream = Stream(0)
        self.memory = Buffer(0, memory_bytes(linking))
        self.forest = GpuForest(0, self.stream.handle, self.memory.pointer, linking)

    def link(self, edges: Any, chunk: int = 0, row: int = 0) -> None:
        with Buffer(0, edges.nbytes) as there:
            there.upload(edges)
            self.forest.link(there.pointer, len(edges), edges.dtype, chunk, row)
            self.stream.synchronize()

    def absorb(self, other: EmulatedForest, first: int, count: int) -> None:
        place = other.memory.pointer + first * self.linking.id_dtype.itemsize
        self.forest.absorb(place, first, count)
        self.stream.synchronize()

    def labels(self) -> Any:
        self.forest.flatten()
        self.stream.synchronize()
        return self.memory.download(self.linking.id_dtype, self.linking.vertices)

    def control(self) -> Any:
        offset = memory_bytes(self.linking) - 256
        return self.memory.download(np.uint64, 3, offset)

    def close(self) -> None:
        self.forest.close()
        self.memory.close()
        self.stream.close()


@contextmanager
def forests(linking: Linking, count: int = 1) -> Iterator[list[EmulatedForest]]:
    made = [EmulatedForest(linking) for _ in range(count)]
    try:
        yield made
    finally:
        for one in made:
            one.close()


def check(edges: Any, vertices: int, linking: Linking, pieces: int = 3) -> None:
    with forests(linking) as (forest,):
        for piece in np.array_split(edges, pieces):
            if len(piece):
                forest.link(np.ascontiguousarray(piece))
        assert forest.forest.fault() is None
        expected = labels_of(edges.astype(np.int64), vertices)
        np.testing.assert_array_equal(forest.labels(), expected)


@pytest.fixture(params=[0, 1, 2])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with emulated_gpus(1, seed=request.param) as made:
        yield made
        assert made.held_bytes(0) == made.held_bytes(-1) == 0


@pytest.mark.usefixtures("machine")
class TestKernels:
    @each_graph
    def test_as_scipy(self, name: str) -> None:
        graph = named_graph(name)
        if graph.vertex_count:
            for splices in (False, True):
                linking = Linking(graph.vertex_count, INT32, splices)
                with forests(linking) as (forest,):
                    if graph.arc_count:
                        forest.link(edges_of(graph))
                    np.testing.assert_array_equal(forest.labels(), expected_labels(graph))

    @pytest.mark.parametrize("splices", [False, True])
    @pytest.mark.parametrize("id_dtype", [INT32, INT64])
    @pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
    def test_ids_of_any_width(self, dtype: str, id_dtype: Any, splices: bool) -> None:
        edges = random_edges(900, 1100, seed=4).astype(dtype)
        check(edges, 900, Linking(900, id_dtype, splices))

    @pytest.mark.parametrize("splices", [False, True])
    @pytest.mark.parametrize(("rounds", "jumps"), [(1, 0), (1, None), (2, 1), (3, None)])
    def test_rounds_without_atomics(self, rounds: int, jumps: int | None, splices: bool) -> None:
        check(random_edges(700, 800), 700, Linking(700, INT32, splices, rounds, jumps))

    @pytest.mark.parametrize("splices", [False, True])
    @pytest.mark.parametrize("shape", ["path", "backwards", "star", "shuffled path"])
    def test_long_ways_to_the_root(
        self, shape: str, splices: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        n = 3000
        after = np.arange(1, n, dtype=np.int32)
        before = after - 1 if shape != "star" else np.zeros(n - 1, np.int32)
        edges = np.column_stack([before, after])
        if shape == "backwards":
            edges = edges[::-1, ::-1]
        if shape == "shuffled path":
            order = np.random.default_rng(3).permutation(n).astype(np.int32)
            edges = np.random.default_rng(4).permutation(order[edges])
        for walks in (0.001, 0.25, 1e6):  # flattened always, sometimes, and never
            monkeypatch.setattr(cuda_streams, "WALKS_PER_VERTEX", walks)
            check(np.ascontiguousarray(edges), n, Linking(n, INT32, splices), pieces=4)

    def test_trees_are_flattened_when_walks_have_paid_for_it(self) -> None:
        linking = Linking(1000, INT32, True)
        with forests(linking) as (forest,):
            forest.link(np.array([[1, 2], [3, 4], [5, 5]], np.int32))
            walks, settled, _ = forest.control()
            assert (walks, settled) == (2, 0)
            forest.link(random_edges(1000, 2000))
            walks, settled, root = forest.control()
            assert walks == settled > 900
            assert root == 0
            flat = forest.memory.download(np.int32, 1000)
            np.testing.assert_array_equal(flat[flat], flat)
            forest.link(random_edges(1000, 2000))  # joins nothing: nobody walks
            assert forest.control()[0] == walks

    @pytest.mark.parametrize("splices", [False, True])
    def test_a_root_that_is_known_and_is_none_any_more(self, splices: bool) -> None:
        n = 600
        with forests(Linking(n, INT32, splices)) as (forest,):
            upper = np.arange(101, n, dtype=np.int32)
            forest.link(np.column_stack([np.full(len(upper), 100, np.int32), upper]))
            assert forest.control()[2] == 100
            # Below smaller ones, all at once, among links of its own tree.
            more = np.column_stack([upper, np.roll(upper, 7)])
            ties = np.array([[7, 300], [100, 9], [9, 3], [8, 7], [8, 599]], np.int32)
            forest.link(np.vstack([more[:250], ties, more[250:]]))
            expected = np.arange(n)
            expected[[9, *range(100, n)]] = 3
            expected[[7, 8, 3]] = 3
            np.testing.assert_array_equal(forest.labels(), expected)

    @pytest.mark.parametrize("splices", [False, True])
    def test_forests_that_are_merged(self, splices: bool) -> None:
        n = 1500
        edges = random_edges(n, 1400, seed=6)
        with forests(Linking(n, INT32, splices), 3) as made:
            for forest, piece in zip(made, np.array_split(edges, 3), strict=True):
                forest.link(np.ascontiguousarray(piece))
            made[1].labels()
            for other in made[1:]:
                for first in range(0, n, 400):
                    made[0].absorb(other, first, min(400, n - first))
            np.testing.assert_array_equal(made[0].labels(), labels_of(edges, n))

    @pytest.mark.parametrize("splices", [False, True])
    @pytest.mark.parametrize(("dtype", "wrong", "said"), WRONG_IDS[:-1])
    def test_no_vertex(self, dtype: str, wrong: int, said: str, splices: bool) -> None:
        for column in (0, 1):
            edges = random_edges(100, 500).astype(dtype)
            edges[333, column] = np.array(wrong, dtype)
            with forests(Linking(100, INT32, splices)) as (forest,):
                forest.link(random_edges(100, 50))
                assert forest.forest.fault() is None
                forest.link(edges, chunk=7, row=10_000)
                fault = forest.forest.fault()
                assert fault is not None
                assert (fault.chunk, fault.row) == (7, 10_333)
                ends = [fault.source, fault.target]
                assert str(ends[column]) == said
                assert ends[1 - column] == edges[333, 1 - column]
                edges[333, column] = 0
                forest.link(random_edges(100, 50))
                assert forest.forest.fault() == fault

    def test_everything_is_wrong(self) -> None:
        with forests(Linking(10, INT32, True)) as (forest,):
            forest.link(np.full((5000, 2), -1, np.int32))
            fault = forest.forest.fault()
            assert fault is not None
            assert 0 <= fault.row < 5000
            np.testing.assert_array_equal(forest.labels(), np.arange(10))


class TestRaces:
    @pytest.mark.parametrize("splices", [False, True])
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_every_access_is_ordered(self, seed: int, splices: bool) -> None:
        with emulated_gpus(1, seed=seed, checks=True):
            linking = Linking(200, INT32, splices, rounds=1, jumps=None)
            with forests(linking, 2) as made:
                for forest in made:
                    forest.link(random_edges(200, 300, seed))
                    forest.link(random_edges(200, 90, seed + 9))
                made[0].absorb(made[1], 0, 200)
                both = [random_edges(200, 300, seed), random_edges(200, 90, seed + 9)]
                np.testing.assert_array_equal(made[0].labels(), labels_of(np.vstack(both), 200))


class _LateForest:
    """Stands for :class:`GpuForest`: the CPU's code, when the turn of a launch in the stream comes."""

    def __init__(self, machine: Any, index: int, stream: int, place: int, linking: Linking) -> None:
        self._machine = machine
        self._stream = stream
        self._linking = linking
        self._fault: Any = None
        nbytes = linking.vertices * linking.id_dtype.itemsize
        raw = (ctypes.c_byte * nbytes).from_address(place)
        self._parents = np.frombuffer(raw, np.uint8).view(linking.id_dtype)
        self._real = HostForest(HostSpace(), linking, 1)

    def _put(self, action: Callable[[], None]) -> None:
        def kernel() -> None:
            action()
            self._parents[:] = self._real.parents
            self._fault = self._real.fault()

        self._machine.launch(self._stream, kernel)

    def link(self, pointer: int, rows: int, dtype: Any, chunk: int, row: int) -> None:
        def read() -> None:
            raw = (ctypes.c_byte * (2 * rows * dtype.itemsize)).from_address(pointer)
            edges = np.frombuffer(raw, np.uint8).view(dtype).reshape(rows, 2)
            self._real.link(edges, chunk, row)

        self._put(read if rows else lambda: None)

    def absorb(self, pointer: int, first: int, count: int) -> None:
        def read() -> None:
            raw = (ctypes.c_byte * (count * self._linking.id_dtype.itemsize)).from_address(pointer)
            theirs = np.frombuffer(raw, np.uint8).view(self._linking.id_dtype)
            self._real.absorb(theirs, first)

        self._put(read)

    def flatten(self) -> None:
        self._put(self._real.flatten)

    def fault(self) -> Any:
        return self._fault

    def close(self) -> None:
        return


@contextmanager
def late_gpus(count: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with pretended_gpus(np.ones((count, count)), seed) as machine, monkeypatch.context() as patch:
        patch.setattr(cuda_streams, "GpuForest", lambda *given: _LateForest(machine, *given))
        patch.setattr(cuda_streams, "compile_kernels", lambda *_: None)
        yield machine
        gc.collect()  # arrays over memory hold it
        memory.free_abandoned(range(count))
        for index in range(count):
            memory.free_kept(index)
        assert machine.faults == []
        assert [machine.bytes_on(index) for index in range(count)] == [0] * count


@pytest.mark.parametrize("seed", range(4))
class TestDataflow:
    @pytest.mark.parametrize(
        "devices",
        [["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:0", "cuda:0", "cuda:1"], ["cuda:1", "cpu"],
         ["cpu:0", "cuda:0"]],
    )  # fmt: skip
    @pytest.mark.parametrize("source", ["array", "chunks", "file"])
    def test_as_scipy(
        self, source: str, devices: list[str], seed: int, tmp_path: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        edges = random_edges(1500, 1900, seed)
        np.save(tmp_path / "edges.npy", edges)
        given: Any = edges if source == "array" else tmp_path / "edges.npy"
        if source == "chunks":
            given = iter(np.array_split(edges, 5))
        with late_gpus(2, seed, monkeypatch):
            found = gw.connected_components_of_edges(
                given, vertex_count=1500, devices=devices, packet_bytes=2048
            )
        np.testing.assert_array_equal(found.label, labels_of(edges, 1500))

    def test_no_edges(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        for edges in ([], iter([]), np.zeros((1, 2), np.int32)):
            with late_gpus(2, seed, monkeypatch):
                found = gw.connected_components_of_edges(
                    edges, vertex_count=9, devices=["cuda:0", "cuda:1", "cpu"]
                )
            assert found.label.tolist() == list(range(9))

    def test_within_limits(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        edges = random_edges(1500, 1900, seed)
        with late_gpus(2, seed, monkeypatch):
            found = gw.connected_components_of_edges(
                iter(np.array_split(edges, 3)), vertex_count=1500, devices=["cuda:0", "cuda:1"],
                memory_bytes=100_000, host_bytes=20_000,
            )  # fmt: skip
        np.testing.assert_array_equal(found.label, labels_of(edges, 1500))

    @pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cuda:1"]])
    @pytest.mark.parametrize("directed", [True, False])
    def test_a_graph_that_does_not_fit(
        self, directed: bool, devices: list[str], seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        edges = random_edges(1500, 1900, seed)
        graph = Graph.from_edges(edges[:, 0], edges[:, 1], vertex_count=1507, directed=directed)
        expected = gw.connected_components(graph, devices="cpu")
        with late_gpus(2, seed, monkeypatch):
            monkeypatch.setattr(memory, "free_memory_bytes", lambda index: 1000)
            monkeypatch.setattr(driver, "peer_attribute", lambda *_: 1)
            # As much as the forest takes, and packets, is there all the same.
            found = gw.connected_components(graph, devices=devices)
            likewise = gw.connected_components_of_edges(
                graph, devices=[*devices, "cpu"], packet_bytes=2048
            )
        for one in (found, likewise):
            np.testing.assert_array_equal(one.label, expected.label)
            assert one.graph is graph
            assert one.statistics.solver == "streamed rem"
        assert found.statistics.devices == tuple(devices)

    def test_an_edge_that_is_none(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        edges = random_edges(1500, 1900, seed)
        edges[1700] = 3, -7
        with (
            late_gpus(2, seed, monkeypatch),
            pytest.raises(
                InputError, match=r"row 1,700 of edges is \(3, -7\), and -7 is no vertex"
            ),
        ):
            gw.connected_components_of_edges(
                edges, vertex_count=1500, devices=["cuda:0", "cuda:1"], packet_bytes=2048
            )


TOO_LARGE = r"cuda:0 needs .* and has .* free; use more GPUs, or devices='cpu'"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"merge": "direct"}, "its arcs would stream without merge='direct'$"),
        ({"method": "afforest"}, "its arcs would stream without method='afforest'$"),
        ({"method": "label-propagation"}, "stream without method='label-propagation'$"),
        (
            {"method": "afforest", "gpu": gw.GpuOptions()},
            "stream without gpu and method='afforest'$",
        ),
    ],
)
def test_what_lets_a_graph_that_does_not_fit_stream_is_said(
    options: dict[str, Any], said: str
) -> None:
    graph = gw.generators.path(5000)
    with emulated_gpus(1, memory_bytes=200_000) as machine:
        with pytest.raises(GraphTooLargeError, match=f"{TOO_LARGE}; .*{said}"):
            gw.connected_components(graph, devices="cuda:0", **options)
        assert machine.held_bytes(0) == 0


def test_a_placed_graph_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_gpus(1), gw.place(gw.generators.path(5000), "cuda:0") as placed:
        monkeypatch.setattr(memory, "free_memory_bytes", lambda index: 1000)
        said = r"; the arcs of placed\.graph would stream$"
        with pytest.raises(GraphTooLargeError, match=f"{TOO_LARGE}{said}"):
            gw.connected_components(placed)


@pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="not installed: cuda (extra 'cuda')"
)
@each_architecture
def test_kernels_compile(architecture: str) -> None:
    half = ARCHITECTURES.index(architecture) % 2  # those of the gate are one of each
    variants = list(product((INT32, INT64), END_DTYPES, (False, True)))
    for id_dtype, end_dtype, splices in variants[half::2]:
        code = compiled_for(cuda_streams.source(id_dtype, end_dtype, splices=splices), architecture)
        for name in cuda_streams.KERNELS:
            assert f".text.{name}\0".encode() in code


@needs_gpu
@pytest.mark.gpu
class TestRealGpus:
    @pytest.mark.parametrize("method", ["hook", "rem"])
    def test_a_large_stream(self, method: str, tmp_path: Any) -> None:
        n, m = 1 << 20, 1 << 23
        edges = random_edges(n, m)
        edges += edges[:, :1] % 2 - edges % 2  # two parts at least: even and odd
        expected = gw.connected_components_of_edges(
            edges, vertex_count=n, devices="cpu", method=method
        )
        np.save(tmp_path / "edges.npy", edges)
        for devices in (["cuda:0"], "cuda", ["cuda:0", "cuda:0"], ["cuda:0", "cpu"]):
            for source in (edges, tmp_path / "edges.npy", iter(np.array_split(edges, 9))):
                found = gw.connected_components_of_edges(
                    source, vertex_count=n, devices=devices, method=method, packet_bytes=1 << 20
                )
                np.testing.assert_array_equal(found.label, expected.label)
                assert found.statistics.processed_items.sum() == m

    def test_edges_on_a_gpu(self) -> None:
        cupy = pytest.importorskip("cupy")
        edges = random_edges(5000, 6000)
        for source in (cupy.asarray(edges), cupy.asarray(edges.reshape(-1))[1:-1].reshape(-1, 2)):
            found = gw.connected_components_of_edges(source, devices="cuda:0", vertex_count=5000)
            np.testing.assert_array_equal(found.label, labels_of(cupy.asnumpy(source), 5000))

    def test_results_on_a_gpu(self) -> None:
        cupy = pytest.importorskip("cupy")
        edges = random_edges(5000, 6000)
        found = gw.connected_components_of_edges(
            edges, devices="cuda:0", results="cuda", vertex_count=5000
        )
        assert isinstance(found.label, cupy.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(found.label), labels_of(edges, 5000))

    @pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
    def test_no_vertex(self, dtype: str) -> None:
        edges = random_edges(1000, 100_000).astype(dtype)
        edges[77_777, 1] = 1000
        with pytest.raises(InputError, match=r"row 77,777 of edges .* and 1000 is no vertex"):
            gw.connected_components_of_edges(
                edges, devices="cuda", vertex_count=1000, packet_bytes=1 << 16
            )

    @pytest.mark.alone
    def test_a_graph_that_does_not_fit(self) -> None:
        graph = gw.generators.rmat(22, 16, seed=1)
        expected = gw.connected_components(graph, devices="cpu")
        with memory.Buffer(0, memory.free_memory_bytes(0) - (300 << 20)):
            found = gw.connected_components(graph, devices="cuda:0")
        assert found.statistics.solver == "streamed rem"
        np.testing.assert_array_equal(found.label, expected.label)

    def test_limits_are_kept(self) -> None:
        edges = random_edges(1 << 18, 1 << 22)
        how: dict[str, Any] = {"vertex_count": 1 << 18, "devices": "cuda:0"}
        small = gw.connected_components_of_edges(
            iter(np.array_split(edges, 7)), memory_bytes=8 << 20, host_bytes=4 << 20, **how
        )
        np.testing.assert_array_equal(
            small.label, gw.connected_components_of_edges(edges, **how).label
        )
