"""Graphs of arrays on GPUs: equal to those of the same arrays on the host, and kept where the arrays are.

Without a GPU the kernels run on emulated ones, and pretended arrays stand for those of CuPy.
"""

from __future__ import annotations

import gc
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import Machine, emulated_gpus
from godwit import placement
from godwit.errors import InputError
from godwit.graph.cuda import rows as gpu_rows
from godwit.graph.cuda.stored import RowsOnGpu
from godwit.graph.facts import in_offsets, is_symmetric
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.devices import held_gpus
from godwit.runtime.cuda.memory import Buffer

Values = np.ndarray[Any, Any]

KINDS = [("int32", None), ("int64", None), ("int32", "float32"), ("int64", "int64")]


class PretendedArray:
    """Stands for a CuPy array: values in the memory of an emulated GPU."""

    def __init__(self, values: Any, gpu: int = 0) -> None:
        self.values = np.ascontiguousarray(values)
        self.dtype, self.size, self.ndim = self.values.dtype, self.values.size, self.values.ndim
        self.shape = self.values.shape
        self._gpu = gpu
        self._buffer = Buffer(gpu, self.values.nbytes)
        self._buffer.upload(self.values)
        self.data = SimpleNamespace(ptr=self._buffer.pointer)
        self.__cuda_array_interface__: dict[str, Any] = {}

    @property
    def device(self) -> Any:
        return Gpu(self._gpu)

    def astype(self, dtype: Any) -> PretendedArray:
        return PretendedArray(self.values.astype(dtype), self._gpu)

    def cpu(self) -> Values:
        return self.values


class Gpu:
    """Stands for cupy.cuda.Device."""

    def __init__(self, index: int) -> None:
        self.id = index

    def synchronize(self) -> None:
        pass

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        pass


ToGpu = Callable[..., Any]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    pretended = SimpleNamespace(asarray=lambda one: one, ascontiguousarray=lambda one: one)
    monkeypatch.setattr("godwit.graph.cuda.given.cupy", lambda: pretended)
    with emulated_gpus(2) as machine:
        yield machine
        gc.collect()  # while the memory of these GPUs can be freed


def assert_same(made: gw.Graph, expected: gw.Graph) -> None:
    assert made.directed == expected.directed
    for one, other in zip(made.rows, expected.rows, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


def copied(graph: gw.Graph) -> set[str]:
    """The arrays of a graph on a GPU that were copied to the host."""
    assert isinstance(graph.stored, RowsOnGpu)
    return set(graph.stored._copies)


def random_edges(
    count: int, n: int, dtype: str = "int32", weights: str | None = None, seed: int = 1
) -> list[Values]:
    generator = np.random.default_rng(seed)
    ends = list(generator.integers(0, n, (2, count)).astype(dtype))
    return ends if weights is None else [*ends, generator.permutation(count).astype(weights)]


def check_edges(to_gpu: ToGpu, sizes: list[tuple[int, int]]) -> None:
    for dtype, weights in KINDS:
        for directed in (True, False):
            for count, n in sizes:
                edges = random_edges(count, n, dtype, weights)
                there = [to_gpu(one) for one in edges]
                made = gw.Graph.from_edges(*there, directed=directed)
                expected = gw.Graph.from_edges(*edges, directed=directed)
                assert copied(made) == set()
                assert repr(made) == repr(expected)
                assert made.nbytes == expected.nbytes
                assert copied(made) == set()
                assert_same(made, expected)


def check_rows(to_gpu: ToGpu, sizes: list[tuple[int, int]]) -> None:
    for dtype, weights in KINDS:
        for directed in (True, False):
            for count, n in sizes:
                edges = random_edges(count, n, dtype, weights)
                expected = gw.Graph.from_edges(*edges, directed=directed, id_dtype=dtype)
                for offset_dtype in ("int32", "int64"):
                    offsets = to_gpu(expected.offsets.astype(offset_dtype))
                    others = [to_gpu(one) for one in expected.rows[1:] if one is not None]
                    made = gw.Graph(offsets, *others, directed=directed)
                    assert copied(made) == set()
                    held = made.stored.arrays.targets
                    assert held.pointer == others[0].data.ptr  # type: ignore[union-attr]
                    assert_same(made, expected)


ROWS = ([0, 2, 3, 4], [1, 2, 0, 0])

WRONG_ROWS: list[tuple[Any, ...]] = [
    ([1, 2, 3, 4], [1, 2, 0, 0]),
    ([0, 2, 1, 4], [1, 2, 0, 0]),
    ([0, 2, 3, 5], [1, 2, 0, 0]),
    ([0, 2, 3, 4], [1, 3, 0, 0]),
    ([0, 2, 3, 4], [1, 2, -1, 0]),
    ([0, 2, 3, 4], [1.0, 2.0, 0.0, 0.0]),
    ([0, 2, 3, 4], [1, 2, 0, 0], [1, 2, 3]),
    ([0, 2, 3, 4], [1, 2, 0, 0], np.array(["1", "2", "3", "4"])),
    ([[0, 2], [3, 4]], [1, 2, 0, 0]),
    ([], []),
]
WRONG_EDGES: list[tuple[Any, ...]] = [
    ([0, -1], [1, 0]),
    ([0, 1], [1, -3]),
    ([0, 1, 1], [1, 0]),
    ([0.5, 1.0], [1, 0]),
    ([0, 1], [1, 0], [1.0]),
    ([0, 1], [1, 0], np.ones(2, complex)),
]


def check_mistakes(to_gpu: ToGpu) -> None:
    for make, cases in ((gw.Graph, WRONG_ROWS), (gw.Graph.from_edges, WRONG_EDGES)):
        for case in cases:
            arrays = [np.asarray(one) for one in case]
            with pytest.raises(InputError) as expected:
                make(*arrays)  # type: ignore[operator]
            with pytest.raises(InputError, match=f"^{re.escape(str(expected.value))}$"):
                make(*[to_gpu(one) for one in arrays])  # type: ignore[operator]
    offsets, targets = (to_gpu(np.array(one)) for one in ROWS)
    with pytest.raises(InputError, match="an id for each of the 3 vertices, got 1"):
        gw.Graph(offsets, targets, ids=[1])
    one_way = (to_gpu(np.array([0, 1, 1])), to_gpu(np.array([1])))
    with pytest.raises(InputError, match="the arcs between 0 and 1 differ"):
        gw.Graph(*one_way, directed=False)
    unequal = (np.array([0, 1, 2]), np.array([1, 0]), np.array([2, 3]))
    with pytest.raises(InputError, match="the arcs between 0 and 1 of weight 2 differ"):
        gw.Graph(*[to_gpu(one) for one in unequal], directed=False)


@pytest.mark.usefixtures("gpus")
class TestEmulated:
    def test_edges_become_the_same_graph(self) -> None:
        check_edges(PretendedArray, [(1, 1), (5, 3), (700, 90)])

    def test_rows_become_the_same_graph(self) -> None:
        check_rows(PretendedArray, [(1, 1), (5, 3), (700, 90)])

    def test_mistakes_are_told_as_on_the_host(self) -> None:
        check_mistakes(PretendedArray)

    def test_arrays_in_several_places_come_to_the_host(self) -> None:
        offsets, targets = (np.array(one) for one in ROWS)
        for given_arrays in (
            (offsets, PretendedArray(targets)),
            (PretendedArray(offsets), targets),
            (PretendedArray(offsets, 0), PretendedArray(targets, 1)),
        ):
            made = gw.Graph(*given_arrays)
            assert not isinstance(made.stored, RowsOnGpu)
            assert_same(made, gw.Graph(offsets, targets))

    @pytest.mark.parametrize("directed", [True, False])
    @pytest.mark.parametrize("devices", ["cuda:0", "cuda:1", ["cuda:0", "cuda:1"]])
    def test_queries_on_gpus(self, directed: bool, devices: Any) -> None:
        edges = random_edges(300, 60, "int32", "float32")
        expected = gw.Graph.from_edges(*edges, directed=directed)
        made = gw.Graph.from_edges(*[PretendedArray(one) for one in edges], directed=directed)
        with gw.place(made, devices) as placed:
            if isinstance(devices, str):
                assert copied(made) == {"offsets"}
            for execution in ("bulk-synchronous", "asynchronous"):
                found = gw.bfs(placed, 0, execution=execution).distance
                assert np.array_equal(found, gw.bfs(expected, 0, devices="cpu").distance)
            length = gw.sssp(placed, 0).distance
            assert np.array_equal(length, gw.sssp(expected, 0, devices="cpu").distance)

    def test_devices_are_chosen_without_a_copy_of_the_graph(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("GODWIT_DEVICES", raising=False)
        monkeypatch.setattr(placement, "_GPU_CALL_NS", 0)
        monkeypatch.setattr(placement, "_GPU_ARC_NS", 0)
        graph = gw.Graph.from_edges(*map(PretendedArray, random_edges(3000, 200)))
        found = gw.bfs(graph, 0)
        assert found.statistics.devices == ("cuda:0",)
        assert "targets" not in copied(graph)

    def test_supersteps_leave_the_arcs_on_the_gpu(self) -> None:
        edges = random_edges(300, 60)
        made = gw.Graph.from_edges(*[PretendedArray(one) for one in edges])
        expected = gw.Graph.from_edges(*edges)
        with gw.place(made, "cuda:0") as placed:
            found = gw.connected_components(placed)
            rank = gw.pagerank(placed).rank
        assert "targets" not in copied(made)
        assert np.array_equal(found.label, gw.connected_components(expected, devices="cpu").label)
        assert np.allclose(rank, gw.pagerank(expected, devices="cpu").rank)

    @settings(max_examples=15, deadline=None)
    @given(data=st.data())
    def test_facts_are_those_of_the_host(self, data: st.DataObject) -> None:
        n = data.draw(st.integers(1, 40))
        ends = st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), min_size=1, max_size=80)
        pairs = np.array(data.draw(ends), np.int32)
        if data.draw(st.booleans()):
            pairs = np.concatenate([pairs, pairs[:, ::-1]])
        weights = (pairs.sum(1) * data.draw(st.sampled_from([1, -1]))).astype(np.int32)
        if data.draw(st.booleans()):
            weights[0] += 1
        edges = [pairs[:, 0].copy(), pairs[:, 1].copy(), weights]
        made = gw.Graph.from_edges(*[PretendedArray(one) for one in edges])
        expected = gw.Graph.from_edges(*edges)
        for weighted in (False, True):
            assert is_symmetric(made, weighted=weighted) == is_symmetric(
                expected, weighted=weighted
            )
        in_arcs = in_offsets(made)
        assert np.array_equal(in_arcs, in_offsets(expected))
        assert copied(made) <= {"offsets"}  # those of a symmetric graph are its own
        assert_same(made.reverse, expected.reverse)

    def test_a_graph_of_a_graph(self) -> None:
        edges = random_edges(50, 9, "int32", "float64")
        made = gw.Graph.from_edges(*[PretendedArray(one) for one in edges], vertex_count=9)
        expected = gw.Graph.from_edges(*edges, vertex_count=9)
        named = made.with_ids(list("abcdefghi"))
        plain = made.without_weights()
        assert copied(named) == copied(plain) == set()
        assert named.ids.position("c") == 2
        assert_same(plain, expected.without_weights())
        assert_same(pickle.loads(pickle.dumps(made)), expected)
        assert made.without_weights().weights is None
        merged = made.merge_parallel_arcs()
        assert merged.merge_parallel_arcs() is merged

    def test_what_changes_nothing_returns_the_graph(self) -> None:
        made = gw.Graph.from_edges(PretendedArray([0, 1]), PretendedArray([1, 0]))
        assert made.remove_self_loops() is made

    def test_arcs_that_are_edges_stay(self) -> None:
        class Pairs:
            """An array of two rows, as PyTorch Geometric's edge_index."""

            shape, ndim = (2, 4), 2

            def __init__(self, *rows: list[int]) -> None:
                self._rows = [PretendedArray(row) for row in rows]
                self.__cuda_array_interface__: dict[str, Any] = {}

            def __len__(self) -> int:
                return 2

            def __getitem__(self, row: int) -> PretendedArray:
                return self._rows[row]

        made = gw.Graph.from_edge_index(Pairs([0, 1, 1, 2], [1, 0, 2, 1]), directed=False)
        assert copied(made) == set()
        assert_same(made, gw.Graph.from_edges([0, 1], [1, 2], directed=False))
        with pytest.raises(InputError, match="the arcs between 0 and 1 differ"):
            gw.Graph.from_edge_index(Pairs([0, 1, 1, 2], [1, 2, 2, 1]), directed=False)

    def test_threads_get_one_copy(self) -> None:
        edges = random_edges(2000, 100)
        made = gw.Graph.from_edges(*[PretendedArray(one) for one in edges])
        together = threading.Barrier(8)
        found: list[Any] = []

        def read() -> None:
            together.wait()
            found.append((made.targets, made.rows))

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        assert len({id(targets) for targets, _ in found}) == 1
        assert len({id(rows) for _, rows in found}) == 1
        assert not found[0][0].flags.writeable

    def test_a_thread_that_holds_gpus_gets_a_copy(self) -> None:
        edges = random_edges(100, 10)
        made = gw.Graph.from_edges(*[PretendedArray(one) for one in edges])
        with held_gpus([1]):
            assert is_symmetric(made) == is_symmetric(gw.Graph.from_edges(*edges))
        with held_gpus([0]):
            assert_same(made, gw.Graph.from_edges(*edges))

    def test_large_graphs_leave_the_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        edges = random_edges(100, 10, "int32", "int32")
        monkeypatch.setattr(gpu_rows, "_COPIES_WITH_ROOM", 1 << 30)
        made = gw.Graph.from_edges(*[PretendedArray(one) for one in edges])
        assert not isinstance(made.stored, RowsOnGpu)
        assert_same(made, gw.Graph.from_edges(*edges))

    def test_memory_is_given_back(self) -> None:
        def make() -> int:
            edges = [PretendedArray(one) for one in random_edges(1000, 50, "int64", "int64")]
            gw.Graph.from_edges(*edges)
            del edges
            gc.collect()
            with held_gpus([0]):
                return memory.free_memory_bytes(0)

        assert make() == make()


@pytest.mark.gpu
class TestOnGpu:
    @pytest.fixture(autouse=True)
    def _gpu(self) -> None:
        if driver.device_count() == 0:
            pytest.skip(driver.why_not())
        pytest.importorskip("cupy")

    def test_arrays_become_the_same_graph(self) -> None:
        import cupy

        sizes = [(1, 1), (300, 20), (200_000, 5000)]
        check_edges(cupy.asarray, sizes)
        check_rows(cupy.asarray, sizes)

    def test_mistakes_are_told_as_on_the_host(self) -> None:
        import cupy

        def to_gpu(values: Values) -> Any:
            return values if values.dtype.kind == "U" else cupy.asarray(values)

        check_mistakes(to_gpu)

    @pytest.mark.parametrize("directed", [True, False])
    def test_other_libraries_and_strides(self, directed: bool) -> None:
        import cupy

        class OfDlpack:
            """An array of a library that has nothing but DLPack."""

            def __init__(self, values: Values) -> None:
                self._held = cupy.asarray(values)

            def __dlpack__(self, **named: Any) -> Any:
                return self._held.__dlpack__(**named)

            def __dlpack_device__(self) -> Any:
                return self._held.__dlpack_device__()

        class OfInterface:
            """An array of a library that has nothing but CUDA's interface, as Numba's."""

            def __init__(self, values: Values) -> None:
                self._held = cupy.asarray(values)
                self.__cuda_array_interface__ = self._held.__cuda_array_interface__

        edges = random_edges(5000, 300, "int64", "float32")
        expected = gw.Graph.from_edges(*edges, directed=directed)
        rows = expected.rows
        for to_gpu in (OfDlpack, OfInterface, lambda one: cupy.asarray(np.repeat(one, 2))[::2]):
            made = gw.Graph.from_edges(*[to_gpu(one) for one in edges], directed=directed)
            assert copied(made) == set()
            assert_same(made, expected)
            again = gw.Graph(*[to_gpu(one) for one in rows], directed=directed)
            assert copied(again) == set()
            assert_same(again, expected)

    @pytest.mark.parametrize("directed", [True, False])
    def test_queries(self, directed: bool) -> None:
        import cupy

        edges = random_edges(400_000, 30_000, "int32", "float32")
        expected = gw.Graph.from_edges(*edges, directed=directed)
        made = gw.Graph.from_edges(*[cupy.asarray(one) for one in edges], directed=directed)
        assert is_symmetric(made) == is_symmetric(expected)
        assert np.array_equal(in_offsets(made), in_offsets(expected))
        with gw.place(made, "cuda:0") as placed:
            for execution in ("bulk-synchronous", "asynchronous"):
                found = gw.bfs(placed, 0, execution=execution).distance
                assert np.array_equal(found, gw.bfs(expected, 0, devices="cpu").distance)
            assert "targets" not in copied(made)
            length = gw.sssp(placed, 0).distance
        assert np.array_equal(length, gw.sssp(expected, 0, devices="cpu").distance)

    @pytest.mark.alone
    def test_memory_is_given_back(self) -> None:
        import cupy

        edges = [cupy.asarray(one) for one in random_edges(1 << 20, 1000, "int64", "int64")]

        def make() -> int:
            gw.Graph.from_edges(*edges, directed=False)
            gc.collect()
            with held_gpus([0]):
                return memory.free_memory_bytes(0)

        before = make()
        assert min(make() for _ in range(3)) >= before - (16 << 20)
