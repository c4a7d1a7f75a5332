"""Graphs that need the memory of several GPUs, for algorithms that one GPU runs: what cores compute."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from threading import Thread
from time import sleep
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.communities import levels
from godwit.algorithms.communities.cuda_summary import CommunitySummary
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.cuda import builder
from godwit.runtime.cuda import driver, libraries, memory
from godwit.runtime.cuda.joint_memory import joint_buffer, page_bytes
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import resolve_devices
from godwit.supersteps import place_positions, rows
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import JointPlacement, StepCopies, StepPlacement
from gpu_endpoints import COUNT, names_of, needs_gpu

Method = Callable[..., list[Any]]
_BYTES = 400_000
"""Memory of an emulated GPU, of which Leiden's method needs two for the graph of :func:`dense`."""


def dense(method: Method | None = None) -> Graph:
    if method is of_strong_components:
        return gw.generators.rmat(9, 30, seed=2, symmetrize=False)
    return gw.generators.rmat(9, 40, seed=1)


@pytest.fixture
def scaled_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that suit GPUs of less than a megabyte, and graphs that are large for them."""
    monkeypatch.setattr(builder, "_RESERVED_BYTES", 0)
    monkeypatch.setattr(rows, "CHUNK_ARCS", 1 << 10)
    monkeypatch.setattr(levels, "SMALL_VERTICES", 16)
    monkeypatch.setattr(levels, "_SMALL_GRAPH_ARCS", 1)
    monkeypatch.delenv("GODWIT_DEVICES", raising=False)


def of_leiden(graph: Any, **where: Any) -> list[Any]:
    found = gw.leiden(graph, seed=1, **where)
    return [found.label, found.modularity, *found.levels]


def of_louvain(graph: Any, **where: Any) -> list[Any]:
    return [gw.louvain(graph, seed=1, **where).label]


def of_labels(graph: Any, **where: Any) -> list[Any]:
    return [gw.label_propagation(graph, seed=1, **where).label]


def of_trusses(graph: Any, **where: Any) -> list[Any]:
    return [gw.truss_number(graph, **where).truss]


def of_strong_components(graph: Any, **where: Any) -> list[Any]:
    return [gw.strongly_connected_components(graph, **where).label]


METHODS: dict[Method, int] = {
    of_leiden: 400_000,
    of_louvain: 350_000,
    of_labels: 200_000,
    of_trusses: 400_000,
    of_strong_components: 130_000,
}
"""Methods, and for each the memory of an emulated GPU: more than half of what it needs."""


def check(method: Method, graph: Graph, given: Any, **where: Any) -> None:
    for mine, theirs in zip(method(given, **where), method(graph, devices="cpu"), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture
def joint(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, int]]:
    """The shares of the buffers that are made."""
    from godwit.supersteps import placement

    made: list[dict[int, int]] = []

    def note(shares: dict[int, int]) -> memory.Buffer:
        made.append(shares)
        return joint_buffer(shares)

    monkeypatch.setattr(placement, "joint_buffer", note)
    return made


class TestBuffers:
    def test_content_and_memory(self) -> None:
        with emulated_gpus(3) as machine:
            page = page_bytes(0)
            buffer = joint_buffer({0: 1, 1: 2 * page, 2: page + 1})
            assert [machine.held_bytes(index) for index in range(3)] == [page, 2 * page, 2 * page]
            assert (buffer.index, buffer.nbytes) == (0, 5 * page)
            values = np.arange(5 * page // 8)
            buffer.upload(values)
            np.testing.assert_array_equal(buffer.download(np.int64, len(values)), values)
            buffer.close()
            buffer.close()
            assert [machine.held_bytes(index) for index in range(3)] == [0, 0, 0]

    def test_a_gpu_without_room(self) -> None:
        with emulated_gpus(2, memory_bytes=1 << 16) as machine:
            with pytest.raises(
                GraphTooLargeError, match=r"cuda:1 cannot give 68\.0 KiB: 64\.0 KiB"
            ):
                joint_buffer({0: 1, 1: (1 << 16) + 1})
            assert [machine.held_bytes(index) for index in range(2)] == [0, 0]

    @pytest.mark.parametrize("is_done", [False, True])
    @pytest.mark.parametrize("call", ["cuMemMap", "cuMemSetAccess", "cudaDeviceSynchronize"])
    def test_ctrl_c(self, monkeypatch: pytest.MonkeyPatch, call: str, is_done: bool) -> None:
        with emulated_gpus(2) as machine:
            bindings = libraries.bindings()
            (there,) = [one for one in bindings if call in dir(type(one))]
            real = getattr(there, call)

            def interrupted(*given: Any) -> None:
                monkeypatch.setattr(there, call, real)
                if is_done:
                    real(*given)
                raise KeyboardInterrupt

            monkeypatch.setattr(there, call, interrupted)
            with pytest.raises(KeyboardInterrupt):
                joint_buffer({0: 1, 1: 1}).close()
            assert [machine.held_bytes(index) for index in range(2)] == [0, 0]

    def test_buffers_that_nobody_closes(self) -> None:
        with emulated_gpus(2) as machine:
            made = joint_buffer({0: 1, 1: 1})
            assert made.nbytes
            del made
            gc.collect()
            memory.free_abandoned([0])
            assert [machine.held_bytes(index) for index in range(2)] == [0, 0]


@pytest.mark.usefixtures("scaled_down")
class TestEmulated:
    @pytest.mark.parametrize("method", METHODS)
    def test_results_are_those_of_cores(self, method: Method, joint: list[dict[int, int]]) -> None:
        graph = dense(method)
        with emulated_gpus(2, memory_bytes=METHODS[method]) as machine:
            check(method, graph, graph, devices=names_of(2))
            assert [machine.held_bytes(index) for index in range(2)] == [0, 0]
        lent = sum(shares[1] for shares in joint)
        assert lent > 0

    def test_lenders_keep_some_memory_while_others_have_more(self) -> None:
        with emulated_gpus(3, memory_bytes=1 << 20) as machine:
            devices = resolve_devices(names_of(3))
            with closing(JointPlacement(devices, dense())) as whole:
                for nbytes, is_full in ((2 << 20, False), (3 << 20, True)):
                    buffer = whole.new_buffer(whole.parts[0], nbytes)
                    free = [machine.memory_bytes - machine.held_bytes(gpu) for gpu in range(3)]
                    assert (free[1] == 0) is is_full
                    buffer.close()

    def test_directed_weights_on_three(self, joint: list[dict[int, int]]) -> None:
        graph = gw.generators.rmat(9, 30, seed=2, symmetrize=False, weights=(1, 9))
        with emulated_gpus(3, memory_bytes=_BYTES) as machine:
            with gw.place(graph, names_of(3)) as placed:
                for _ in range(2):
                    check(of_leiden, graph, placed)
            assert [machine.held_bytes(index) for index in range(3)] == [0, 0, 0]
        assert all(any(shares.get(lender) for shares in joint) for lender in (1, 2))

    def test_defaults_take_all_gpus(self, joint: list[dict[int, int]]) -> None:
        graph = dense()
        with emulated_gpus(2, memory_bytes=_BYTES):
            check(of_leiden, graph, graph)
        assert joint

    @pytest.mark.parametrize("peers", [None, np.eye(2)])
    def test_too_large_for_all(self, peers: Any) -> None:
        graph = dense()
        nbytes = _BYTES // 3 if peers is None else _BYTES
        needs = "cuda:0 and cuda:1 together need .* free; .*devices='cpu'$"
        if peers is not None:
            needs = "cuda:0 needs .* free; .*it cannot take memory of the others here"
        with emulated_gpus(2, memory_bytes=nbytes, peers=peers) as machine:
            with pytest.raises(GraphTooLargeError, match=needs):
                gw.leiden(graph, devices=names_of(2))
            found = gw.leiden(graph)
            assert [machine.held_bytes(index) for index in range(2)] == [0, 0]
        assert found.statistics.devices == ("cpu",)

    @pytest.mark.parametrize("others", [(1, 0), (2, 0)])
    def test_one_run_at_a_time_has_the_memory_of_several(self, others: tuple[int, ...]) -> None:
        at_work: list[StepPlacement] = []
        most = []

        def run(whole: StepPlacement) -> None:
            if not isinstance(whole, JointPlacement):
                raise GraphTooLargeError("no room")
            with whole.held():
                at_work.append(whole)
                sleep(0.1)
                most.append(len(at_work))
                at_work.remove(whole)

        graph = dense()
        with (
            emulated_gpus(3),
            gw.place(graph, names_of(2)) as one,
            gw.place(graph, [f"cuda:{index}" for index in others]) as other,
            ThreadPoolExecutor() as pool,
        ):
            runs = [
                pool.submit(place_positions(placed).run_on_first, "test", run)
                for placed in (one, other)
            ]
            for asked in runs:
                asked.result()
        assert most == [1, 1]

    def test_copies_of_other_queries_make_room(self) -> None:
        graph = dense()
        with emulated_gpus(2, memory_bytes=360_000), gw.place(graph, names_of(2)) as placed:
            for _ in range(2):
                check(of_leiden, graph, placed)
                gw.random_walks(placed, np.arange(512), 4)

    @pytest.mark.parametrize("is_same", [True, False])
    def test_copies_that_other_threads_make_meanwhile_make_room(self, is_same: bool) -> None:
        """A run in the memory of both GPUs, and copies of the same or another graph on them."""
        graph, names = dense(), names_of(2)

        def fill(whole: StepPlacement, nbytes: int) -> None:
            whole.reserve((DeviceArray(whole), [nbytes]))

        def on_copies(copies: StepCopies) -> None:
            with copies.held():
                for copy in copies.placements:
                    fill(copy, 400_000)

        def run(whole: StepPlacement) -> str:
            if isinstance(whole, JointPlacement):
                with ThreadPoolExecutor() as pool:
                    pool.submit(theirs.run_on_copies, 2, on_copies).result()
            with whole.held():
                fill(whole, 1_500_000)
            return "done"

        with (
            emulated_gpus(2, memory_bytes=1 << 20) as machine,
            gw.place(graph, names) as one,
            gw.place(graph, names) as other,
        ):
            mine, theirs = (place_positions(placed) for placed in (one, one if is_same else other))
            for _ in range(2):
                assert mine.run_on_first("test", run) == "done"
            theirs.run_on_copies(2, on_copies)
            assert machine.held_bytes(1) >= 400_000

    @pytest.mark.parametrize("interruption", [None, KeyboardInterrupt])
    def test_memory_is_given_back_before_the_gpus_are(self, interruption: Any) -> None:
        held = []

        def run(whole: StepPlacement) -> None:
            try:
                with whole.held():
                    whole.reserve((DeviceArray(whole), [1_500_000]))
                    if interruption is not None:
                        raise interruption
            finally:
                held.append([machine.held_bytes(index) for index in range(2)])

        ends = nullcontext() if interruption is None else pytest.raises(interruption)
        with (
            emulated_gpus(2, memory_bytes=1 << 20) as machine,
            closing(StepPlacement(resolve_devices(names_of(2)), dense())) as steps,
            ends,
        ):
            steps.run_on_first("test", run)
        assert held == [[0, 0], [0, 0]]  # that of one GPU was too little

    def test_arrays_of_other_algorithms_in_a_copy_make_room(self) -> None:
        def filled_with(nbytes: int) -> Callable[[StepPlacement], type]:
            def run(whole: StepPlacement) -> type:
                with whole.held():
                    whole.reserve((DeviceArray(whole), [nbytes]))
                return type(whole)

            return run

        with (
            emulated_gpus(2, memory_bytes=1 << 20),
            closing(StepPlacement(resolve_devices(names_of(2)), dense())) as steps,
        ):
            for name, nbytes in (("one", 400_000), ("other", 700_000), ("third", 600_000)):
                assert steps.run_on_first(name, filled_with(nbytes)) is StepPlacement

    def test_an_algorithm_that_has_room_on_one_gpu_keeps_its_copy_there(self) -> None:
        """Whatever memory others needed."""
        with emulated_gpus(2, memory_bytes=520_000), gw.place(dense(), names_of(2)) as placed:
            gw.leiden(placed)
            runs = [gw.label_propagation(placed).statistics for _ in range(2)]
        assert ["rows" in run.seconds for run in runs] == [True, False]

    def test_where_all_gpus_can_compute_none_lends(self) -> None:
        tried = []

        def run(whole: StepPlacement) -> None:
            tried.append(type(whole))
            raise GraphTooLargeError("no room")

        with emulated_gpus(2), gw.place(dense(), names_of(2)) as placed:
            assert place_positions(placed).run_on_first_with_room(run) is None
        assert tried == [StepPlacement]

    def test_progress_never_decreases(self, joint: list[dict[int, int]]) -> None:
        seen: list[int] = []
        with emulated_gpus(2, memory_bytes=540_000):
            gw.leiden(dense(), devices=names_of(2), progress=seen.append, gpu=GpuOptions(slice_s=0))
        assert joint
        assert seen == sorted(seen)

    @pytest.mark.parametrize("is_small", [False, True])
    @pytest.mark.parametrize("takes_over", [False, True])
    @pytest.mark.parametrize("method", [gw.leiden, gw.label_propagation])
    def test_what_a_run_has_counted_that_begins_again_does_not_count(
        self, monkeypatch: pytest.MonkeyPatch, method: Any, takes_over: bool, is_small: bool
    ) -> None:
        """In joint memory, or, where no devices were named and there is one GPU, on cores."""
        real, seen = CommunitySummary.number, list[int]()
        if is_small:
            monkeypatch.setattr(levels, "SMALL_VERTICES", 1 << 17)
            monkeypatch.setattr(levels, "_SMALL_GRAPH_ARCS", 1 << 21)

        def fail_once(*_: Any, **__: Any) -> None:
            monkeypatch.setattr(CommunitySummary, "number", real)
            raise GraphTooLargeError("no room")

        monkeypatch.setattr(CommunitySummary, "number", fail_once)
        with emulated_gpus(1 if takes_over else 2):
            given = gw.place(dense(), names_of(2)) if not takes_over else dense()
            found = method(given, progress=seen.append, gpu=GpuOptions(slice_s=0))
        assert found.statistics.devices == (("cpu",) if takes_over else ("cuda:0",))
        assert seen == sorted(seen)
        assert seen[-1] == found.statistics.processed_items[0]

    @pytest.mark.parametrize(
        ("method", "nbytes"), [(gw.leiden, 500_000), (gw.label_propagation, 350_000)]
    )
    def test_too_little_memory_is_found_before_vertices_are_visited(
        self, method: Any, nbytes: int
    ) -> None:
        graph, seen = dense(), list[int]()
        if method is gw.label_propagation:  # whose rows need less with weights
            graph = graph.with_random_weights(1, 9)
        with emulated_gpus(1, memory_bytes=nbytes), pytest.raises(GraphTooLargeError):
            method(graph, devices="cuda:0", progress=seen.append, gpu=GpuOptions(slice_s=0))
        assert not any(seen)

    def test_gpus_whose_memory_cannot_be_mapped(self, joint: list[dict[int, int]]) -> None:
        graph = dense()
        with emulated_gpus(2, memory_bytes=_BYTES) as machine:
            machine.maps_memory = False
            with pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .*it cannot take memory"):
                gw.leiden(graph, devices=names_of(2))
            assert gw.leiden(graph).statistics.devices == ("cpu",)
        assert not joint

    def test_a_progress_function_that_asks_the_same_graph(self) -> None:
        graph = dense()
        with emulated_gpus(2, memory_bytes=_BYTES), gw.place(graph, names_of(2)) as placed:

            def ask(_: int) -> None:
                gw.louvain(placed)

            with pytest.raises(InputError, match="at work for this thread"):
                gw.leiden(placed, progress=ask)
            check(of_leiden, graph, placed)

    def test_a_progress_function_that_asks_while_another_thread_waits_for_the_gpus(self) -> None:
        graph, refusals = dense(), []
        with emulated_gpus(2):
            placed = gw.place(graph, names_of(2))
            steps = place_positions(placed)
            other = Thread(target=gw.label_propagation, args=[placed], daemon=True)

            def ask(_: int) -> None:
                if not other.ident:
                    other.start()
                    while not steps._copying.locked():
                        sleep(1e-3)
                try:
                    gw.louvain(placed)
                except InputError as error:
                    refusals.append(str(error))

            query = Thread(target=gw.pagerank, args=[placed], kwargs={"progress": ask}, daemon=True)
            query.start()
            for thread in (query, other):
                thread.join(timeout=60)
                assert not thread.is_alive()
            placed.close()
        assert refusals
        assert all("at work for this thread" in text for text in refusals)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.skipif(COUNT < 2, reason="needs two GPUs")
@pytest.mark.alone
class TestOnGpus:
    @pytest.fixture
    def narrow(self) -> Iterator[None]:
        """Leave 700 MB of the first GPU."""
        import cupy

        with driver.entered(0):
            taken = cupy.cuda.Memory(memory.free_memory_bytes(0) - 700_000_000)
        yield
        del taken

    @pytest.mark.usefixtures("narrow")
    @pytest.mark.parametrize("method", METHODS)
    def test_results_are_those_of_cores(self, method: Method, joint: list[dict[int, int]]) -> None:
        symmetrize = "false" if method is of_strong_components else "true"
        graph = gw.generate(f"rmat:20,edge_factor=64,symmetrize={symmetrize},seed=1")
        check(method, graph, graph, devices=["cuda:0", "cuda:1"])
        assert sum(shares[1] for shares in joint) > 0
