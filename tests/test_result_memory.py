"""Page-locked memory of results: bounded, reused, and never under an array that anything refers to.

GPUs that only have memory take the place of real ones; what takes a real one is marked so.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from godwit import config
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.memory import ResultMemory, new_host_array
from godwit.runtime.cuda.transfer import copies, staging
from pretend_cuda import Machine, host_view, pretended_gpus

PAGE = 4096
needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@pytest.fixture
def machine() -> Iterator[Machine]:
    with pretended_gpus(np.ones((2, 2), bool)) as machine:
        yield machine
        assert machine.faults == []


def _array(pool: ResultMemory, count: int, dtype: Any = np.int32) -> Any:
    array = pool.array(count, dtype, [0])
    assert array is not None
    return array


def _address(array: Any) -> int:
    return int(array.ctypes.data)


@pytest.mark.usefixtures("machine")
class TestArrays:
    @pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "float32", "float64", "uint8"])
    @pytest.mark.parametrize("count", [1, 1000, 1024, 1025, 1 << 20])
    def test_they_are_like_any_other(self, dtype: str, count: int) -> None:
        pool = ResultMemory(1 << 24)
        array = _array(pool, count, dtype)
        assert array.shape == (count,)
        assert array.dtype == dtype
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.flags.aligned
        array[:] = 7
        assert (array == 7).all()
        assert pickle.loads(pickle.dumps(array)).tolist() == array.tolist()

    def test_they_are_apart(self) -> None:
        pool = ResultMemory(1 << 24)
        arrays = [_array(pool, 3000) for _ in range(20)]
        for number, array in enumerate(arrays):
            array[:] = number
        assert all((array == number).all() for number, array in enumerate(arrays))

    def test_memory_is_reused_for_similar_sizes(self, machine: Machine) -> None:
        pool = ResultMemory(1 << 24)
        first = _array(pool, 100_000)
        address = _address(first)
        del first
        for count in (100_000, 99_500, 54_000):
            assert _address(_array(pool, count)) == address
        assert _address(_array(pool, 40_000)) != address  # less than half of it
        assert machine.calls["cudaHostRegister"] == 2

    def test_the_smallest_that_fits_is_taken(self) -> None:
        pool = ResultMemory(1 << 24)
        arrays = [_array(pool, count) for count in (60_000, 40_000, 50_000)]
        addresses = [_address(array) for array in arrays]
        arrays.clear()
        assert _address(_array(pool, 45_000)) == addresses[2]

    def test_work_that_may_still_read_the_last_array_ends_first(self, machine: Machine) -> None:
        pool = ResultMemory(1 << 24)
        for _ in range(3):
            before = machine.calls["cudaDeviceSynchronize"]
            array = pool.array(5000, np.int32, [0, 1, 0])
            waits = machine.calls["cudaDeviceSynchronize"] - before
            del array
        assert waits == 2  # once a GPU

    def test_an_array_outlives_the_pool(self, machine: Machine) -> None:
        pool = ResultMemory(1 << 24)
        array = _array(pool, 5000)
        array[:] = np.arange(5000)
        view = array[::7]
        del pool, array
        gc.collect()
        assert view.tolist() == list(range(0, 5000, 7))


@pytest.mark.parametrize("locked", [True, False])
def test_copies_to_page_locked_arrays_are_direct(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    monkeypatch.setattr(copies, "DIRECT_BYTES", 0)
    monkeypatch.setattr(staging, "PIECE_BYTES", PAGE)
    monkeypatch.setattr(staging, "FEW_THREADS", 4)
    array = (
        _array(ResultMemory(1 << 24), 4 * PAGE, np.uint8) if locked else np.empty(4 * PAGE, "u1")
    )
    with memory.Buffer(0, array.nbytes) as buffer:
        host_view(buffer.pointer, array.nbytes, np.uint8)[:] = np.arange(4 * PAGE) % 251
        copies.download(0, buffer.pointer, array)
        pieces = -(-(array.ctypes.data % PAGE + array.nbytes) // PAGE)  # each within a page
        assert machine.calls["cudaMemcpyAsync"] == (1 if locked else pieces)
    assert np.array_equal(array, np.arange(4 * PAGE) % 251)


def _by_ctypes(array: Any) -> Any:
    return np.ctypeslib.as_array((ctypes.c_int32 * len(array)).from_buffer(array))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda array: array[10:],
    "strided": lambda array: array[::-3],
    "reshaped": lambda array: array.reshape(2, -1).T,
    "other dtype": lambda array: array.view(np.uint8),
    "view of a view": lambda array: array[1:][1:].view(np.float32),
    "memoryview": memoryview,
    "DLPack": np.from_dlpack,
    "frombuffer": lambda array: np.frombuffer(array, np.int64),
    "ctypes": _by_ctypes,
    "iterator": lambda array: iter(array.reshape(2, -1)),
    "flat": lambda array: array.flat,
    "bound method": lambda array: array.sum,
    "exception": ValueError,
    "closure": lambda array: lambda: array,
}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("name", VIEWS)
def test_memory_is_not_reused_while_a_view_exists(name: str) -> None:
    pool = ResultMemory(1 << 24)
    array = _array(pool, 4096)
    address = _address(array)
    view = VIEWS[name](array)
    del array
    gc.collect()
    assert pool.lent_bytes == 4 * 4096
    assert _address(_array(pool, 4096)) != address
    del view
    gc.collect()
    assert pool.lent_bytes == 0
    assert address in {_address(array) for array in [_array(pool, 4096) for _ in range(3)]}


@pytest.mark.usefixtures("machine")
@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from("tvdg"), st.integers(0, 7), st.sampled_from([1, 5, 6, 9, 30])),
        max_size=60,
    )
)
def test_any_order_of_use_is_within_the_limit(steps: list[tuple[str, int, int]]) -> None:
    """Take, view, drop and collect; what exists keeps its content."""
    pool = ResultMemory(32 * PAGE)
    held: list[tuple[Any, int]] = []
    for number, (what, place, pages) in enumerate(steps):
        if what == "t":
            array = pool.array(pages * PAGE // 4, np.int32, [0])
            if array is None:
                assert pool.lent_bytes + pages * PAGE > pool.limit_bytes
            else:
                array[:] = number
                held.append((array, number))
                del array
        elif held:
            array, content = held[place % len(held)]
            if what == "v":
                held.append((array[len(array) // 2 :], content))
            elif what == "d":
                del held[place % len(held)]
            del array
        bases = {_address(np.asarray(array)) for array, _ in held}
        assert len(bases) <= len(held)
        assert pool.lent_bytes + pool.kept_bytes <= pool.limit_bytes
        assert all((array == content).all() for array, content in held)
    held.clear()
    assert pool.lent_bytes == 0


@pytest.mark.usefixtures("machine")
class TestLimit:
    def test_arrays_beyond_it_are_ordinary(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pool = ResultMemory(3 * 64 * PAGE)
        monkeypatch.setattr(memory, "result_memory", lambda: pool)
        monkeypatch.setattr(memory, "LEAST_LOCKED_BYTES", PAGE)
        made = [new_host_array(64 * PAGE, np.uint8, [0]) for _ in range(5)]
        assert [is_locked for _, is_locked in made] == [True] * 3 + [False] * 2
        del made[1]
        assert new_host_array(64 * PAGE, np.uint8, [0])[1]
        assert not new_host_array(PAGE - 1, np.uint8, [0])[1]

    def test_what_is_kept_makes_room(self, machine: Machine) -> None:
        pool = ResultMemory(8 * PAGE)
        arrays = [_array(pool, PAGE, np.uint8) for _ in range(8)]
        arrays.clear()
        assert pool.kept_bytes == 8 * PAGE
        large = _array(pool, 6 * PAGE, np.uint8)
        assert (pool.kept_bytes, pool.lent_bytes) == (2 * PAGE, 6 * PAGE)
        assert machine.calls["cudaHostUnregister"] == 6
        del large

    def test_it_is_a_share_of_the_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for available, limit in ((1 << 30, 1 << 27), (1 << 40, memory.RESULT_BYTES)):
            monkeypatch.setattr(config, "available_memory_bytes", lambda given=available: given)
            memory.result_memory.cache_clear()
            assert memory.result_memory().limit_bytes == limit
        memory.result_memory.cache_clear()

    def test_a_refusal_is_not_asked_for_again(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pool = ResultMemory(1 << 24)
        kept = _array(pool, 4096)
        with monkeypatch.context() as patch:
            _, runtime = memory.bindings()
            refused = (runtime.cudaError_t.cudaErrorMemoryAllocation,)
            patch.setattr(runtime, "cudaHostRegister", lambda *_: refused)
            assert pool.array(9000, np.int32, [0]) is None
        assert pool.array(9000, np.int32, [0]) is None
        address = _address(kept)
        del kept
        assert _address(_array(pool, 4096)) == address

    def test_memory_at_another_address_on_gpus_is_not_used(
        self, machine: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, runtime = memory.bindings()
        monkeypatch.setattr(runtime, "cudaHostGetDevicePointer", lambda at, _: (0, at + 1))
        assert ResultMemory(1 << 24).array(9000, np.int32, [0]) is None
        assert machine.calls["cudaHostUnregister"] == 1


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("seed", range(3))
def test_threads_take_and_drop_arrays(seed: int) -> None:
    pool = ResultMemory(64 * PAGE)
    wrong: list[str] = []

    def work(number: int) -> None:
        generator = np.random.default_rng([seed, number])
        held: list[tuple[Any, int]] = []
        for step in range(300):
            tag = 1000 * number + step
            array = pool.array(int(generator.integers(1, 6)) * PAGE // 4, np.int32, [0])
            if array is not None:
                array[:] = tag
                held.append((array, tag))
            if held and (array is None or generator.random() < 0.5):
                old, tag = held.pop(int(generator.integers(len(held))))
                if not (old == tag).all():
                    wrong.append(f"{tag} became {old.max()}")
        wrong.extend(str(tag) for array, tag in held if not (array == tag).all())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.lent_bytes == 0
    assert pool.kept_bytes <= pool.limit_bytes


def _exit_code_of_child(child: Callable[[], bool]) -> int:
    """Fork; 0 if the function returned True there."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if child() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.usefixtures("machine")
class TestFork:
    def test_processes_have_arrays_of_their_own(self, machine: Machine) -> None:
        pool = ResultMemory(1 << 24)
        array = _array(pool, 5000)
        array[:] = 1
        done, proceed = os.pipe()

        def child() -> bool:
            os.read(done, 1)  # the parent has written
            own = bool((array == 1).all())
            array[:] = 3
            return own

        pid = os.fork()
        if pid == 0:
            os._exit(0 if child() else 2)
        array[:] = 2
        os.write(proceed, b".")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert (array == 2).all()

    def test_memory_from_before_is_not_reused(self, machine: Machine) -> None:
        pool = ResultMemory(1 << 24)
        lent, kept = _array(pool, 5000), _array(pool, 5000)
        addresses = {_address(lent), _address(kept)}
        del kept
        pool.array(1, np.int32, [0])
        assert _exit_code_of_child(lambda: True) == 0
        assert pool.kept_bytes == 0
        lent[:] = 4
        held = [_array(pool, 5000), lent]
        del lent
        assert _address(held[0]) != _address(held[1])
        held.clear()
        again = _array(pool, 5000)
        assert machine.calls["cudaHostUnregister"] >= 2
        assert again.flags.writeable
        assert len(addresses) == 2

    def test_a_child_leaves_cuda_alone(self, machine: Machine) -> None:
        pool = ResultMemory(4 * PAGE)
        array = _array(pool, 2 * PAGE, np.uint8)
        buffer = memory.LockedBuffer(PAGE)
        before = machine.calls["cudaHostUnregister"]

        def child() -> bool:
            nonlocal array
            del array
            buffer.close()
            return machine.calls["cudaHostUnregister"] == before

        assert _exit_code_of_child(child) == 0
        buffer.close()
        assert machine.calls["cudaHostUnregister"] == before + 1


COUNT = driver.device_count()


@pytest.fixture(scope="module")
def rmat() -> gw.Graph:
    return gw.generate("rmat:18,edge_factor=8,seed=1,weights=1..64")


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    """Distances of 2^18 vertices: 1 or 2 MiB, page-locked."""

    def test_results_outlive_everything(self, rmat: gw.Graph) -> None:
        source = rmat.highest_degree_vertex()
        wanted = gw.bfs(rmat, source, devices="cpu").distance
        with gw.place(rmat, "cuda:0") as placed:
            found = gw.bfs(placed, source).distance
            part = gw.sssp(placed, source).distance[5:]
        for other in range(5):  # which reuse what they can
            gw.bfs(rmat, other, devices="cuda:0")
        gc.collect()
        assert np.array_equal(found, wanted)
        assert np.array_equal(part, gw.sssp(rmat, source, devices="cpu").distance[5:])

    def test_many_results_at_once(self, rmat: gw.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those beyond the limit are ordinary arrays; all are right."""
        pool = ResultMemory(5 << 20)
        monkeypatch.setattr(memory, "result_memory", lambda: pool)
        wanted = {vertex: gw.bfs(rmat, vertex, devices="cpu").distance for vertex in range(12)}
        with gw.place(rmat, "cuda:0") as placed:
            found = {vertex: gw.bfs(placed, vertex).distance for vertex in range(12)}
            assert pool.lent_bytes == 5 << 20
            for vertex, distance in found.items():
                assert np.array_equal(distance, wanted[vertex])
                distance[:] = vertex  # they are the user's, to write to
            for vertex, distance in found.items():
                assert (distance == vertex).all()

    def test_queries_reuse_memory(self, rmat: gw.Graph) -> None:
        pool = memory.result_memory()
        gc.collect()
        with gw.place(rmat, "cuda:0") as placed:
            for _ in range(3):
                gw.bfs(placed, 0)
                gw.sssp(placed, 0)
            gc.collect()
            before = pool.kept_bytes + pool.lent_bytes
            for vertex in range(1500):
                assert gw.bfs(placed, vertex).distance[vertex] == 0
            gc.collect()
            assert pool.kept_bytes + pool.lent_bytes == before

    def test_threads(self, rmat: gw.Graph) -> None:
        wanted = [gw.bfs(rmat, vertex, devices="cpu").distance for vertex in range(8)]
        wrong: list[int] = []
        with gw.place(rmat, "cuda:0") as placed:

            def work(vertex: int) -> None:
                kept = [gw.bfs(placed, vertex).distance for _ in range(10)]
                wrong.extend(1 for one in kept if not np.array_equal(one, wanted[vertex]))

            threads = [threading.Thread(target=work, args=(vertex,)) for vertex in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not wrong

    def test_consumers_keep_memory(self, rmat: gw.Graph) -> None:
        torch = pytest.importorskip("torch")
        with gw.place(rmat, "cuda:0") as placed:
            wanted = gw.bfs(placed, 3).distance.copy()
            tensor = torch.from_dlpack(gw.bfs(placed, 3).distance)
            shared = torch.from_numpy(gw.bfs(placed, 3).distance)
            gc.collect()
            for vertex in range(4, 10):
                gw.bfs(placed, vertex)
            assert np.array_equal(tensor.numpy(), wanted)
            assert np.array_equal(shared.numpy(), wanted)
            # Not waited for, and dropped at once: the next query reuses the memory.
            copies = []
            for _ in range(5):
                distance = torch.from_numpy(gw.bfs(placed, 3).distance)
                copies.append(distance.to("cuda:0", non_blocking=True))
                del distance
                gw.bfs(placed, 4)
            assert all(np.array_equal(copy.cpu().numpy(), wanted) for copy in copies)

    @needs_fork
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
    def test_forked_processes_read_results(self, rmat: gw.Graph) -> None:
        with gw.place(rmat, "cuda:0") as placed:
            found = gw.bfs(placed, 0).distance
            wanted = found.copy()
            other = gw.bfs(placed, 1).distance.copy()
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.read(reading, 1)
                os._exit(0 if np.array_equal(found, wanted) else 2)
            del found
            for _ in range(3):
                assert np.array_equal(gw.bfs(placed, 1).distance, other)
            os.write(writing, b".")
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    @pytest.mark.parametrize("holds", [True, False])
    def test_a_process_ends_in_peace(self, holds: bool) -> None:
        """With arrays that exist, and memory that is kept."""
        code = f"""
import godwit as gw
graph = gw.generate("rmat:18,seed=1")
placed = gw.place(graph, "cuda:0")
kept = [gw.bfs(placed, vertex).distance for vertex in range(3)]
assert kept[0].base is not None
if not {holds}:
    kept.clear()
"""
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Exception ignored" not in done.stderr
