"""Predecessors on the GPUs of a placed graph: arguments and results of predecessors.cuh.

Every device computes the candidates of rule 1 for its own rows, those of the asynchronous engine, which
:func:`godwit.place` has uploaded. Devices get all distances; if there are several, their candidates are
merged on one GPU: over the bus or NVLink go n distances to each GPU and n candidates back. Rule 2, which
most graphs do not need, runs on one GPU in rounds; the host finishes it where rounds are many, and where
there are several devices.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.algorithms.paths.predecessors import finish_ties, unreached_of
from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array
from godwit.errors import ClosedContextError
from godwit.graph.csr import Graph
from godwit.graph.facts import is_known_symmetric
from godwit.placement import PlacedGraph
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type, layout_checks, load
from godwit.runtime.cuda.devices import CLOSED, held_gpus
from godwit.runtime.cuda.memory import Buffer, kept_or_new, new_host_array
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.copies import download, upload
from godwit.worker.cuda.placement import GpuPart, GpuPlacement, synchronize
from godwit.worker.cuda.program import HUB_DEGREE
from godwit.worker.query import place_parts

_THREADS = 256
_KEYS_A_THREAD = 4

MOST_ROUNDS = 256
"""Rounds of rule 2 on a GPU: after these the host, which processes a long chain faster, goes on."""

CONTROL = struct_dtype("algorithms/paths/predecessors.cuh", "Control")
HUB = struct_dtype("algorithms/paths/predecessors.cuh", "Hub")


@dataclass(frozen=True)
class PassKind:
    """Properties for which the kernels of a pass are compiled.

    :param id_dtype: of the graph
    :param distance_dtype: int32, int64 or float64
    :param length_dtype: of weights; None: all lengths are 1
    :param pulls: rows are in-arcs, too
    """

    id_dtype: np.dtype[Any]
    distance_dtype: np.dtype[Any]
    length_dtype: np.dtype[Any] | None
    pulls: bool

    @property
    def arguments(self) -> np.dtype[Any]:
        """``Arguments`` of the kernels."""
        file = "algorithms/paths/predecessors.cuh"
        return struct_dtype(file, "Arguments", Distance=self.distance_dtype)

    @property
    def key_dtype(self) -> np.dtype[Any]:
        """The dtype of keys."""
        return self.distance_dtype if self.distance_dtype.kind == "f" else np.dtype(np.uint8)

    @property
    def source(self) -> str:
        """The source of the kernels."""
        length_dtype = np.dtype(np.int32) if self.length_dtype is None else self.length_dtype
        dtypes = {"Id": self.id_dtype, "Distance": self.distance_dtype, "Length": length_dtype}
        flags = {"PULLS": self.pulls, "UNIT": self.length_dtype is None}
        structs = {"Arguments": self.arguments, "Control": CONTROL, "Hub": HUB}
        return "\n".join(
            [
                '#include "runtime/cuda/include/memory.cuh"',
                *(f"using {name} = {c_type(dtype)};" for name, dtype in dtypes.items()),
                *(f"constexpr bool {name} = {str(flag).lower()};" for name, flag in flags.items()),
                '#include "algorithms/paths/predecessors.cuh"',
                *(layout_checks(struct, dtype) for struct, dtype in structs.items()),
                f"static_assert(THREADS == {_THREADS} && KEYS_A_THREAD == {_KEYS_A_THREAD});",
                f"static_assert(HUB_ARCS == {HUB_DEGREE});",
                "",
            ]
        )


def predecessors_on_gpus(
    placed: PlacedGraph,
    distance: Any,
    sources: Array,
    *,
    unit_lengths: bool,
    location: ResultLocation,
) -> Any:
    """Return what :func:`~godwit.algorithms.paths.predecessors.predecessors` does, at a location.

    :param distance: (n) an array of NumPy, or of CuPy on any GPU
    :raises GodwitError: the graph is closed, this thread is in a run on its GPUs, or memory is short
    """
    graph = placed.graph
    sources = np.unique(np.asarray(sources, np.int64))
    placement = place_parts(placed)
    assert placement is not None
    length_dtype = None if unit_lengths else graph.weight_dtype
    pulls = is_known_symmetric(graph, weighted=length_dtype is not None)
    kind = PassKind(graph.id_dtype, np.dtype(distance.dtype), length_dtype, pulls)
    with held_gpus(placement.indexes + ([] if location.gpu is None else [location.gpu])):
        if placement.closed:
            raise ClosedContextError(CLOSED)
        plan = placement.plan(
            ("predecessors", kind), lambda: PredecessorPlan(placement, graph, kind)
        )
        result, is_complete = plan.run(distance, sources, location)
    if is_complete:
        return result
    predecessor = host_array(result)
    finish_ties(graph, host_array(distance), predecessor, sources)
    return location.place(predecessor)


class _Endpoint:
    """The pass of one device: kernels ready to be started, and the memory that they need.

    :param count: vertices of the graph
    :param is_alone: there is no other device
    :ivar arguments: (1) of :attr:`PassKind.arguments`, read at each start
    """

    def __init__(self, part: GpuPart, kind: PassKind, count: int, *, is_alone: bool) -> None:
        self.part, self.kind, self.count = part, kind, count
        self.arguments = np.zeros(1, kind.arguments)
        self._module = load(part.index, kind.source)
        self._launches: dict[str, driver.Launch] = {}
        self._reads_distances = is_alone and kind.key_dtype == kind.distance_dtype
        with ExitStack() as stack:
            self._allocate(stack, is_alone=is_alone)
            self._held = stack.pop_all()

    def _allocate(self, stack: ExitStack, *, is_alone: bool) -> None:
        """Fill in the arguments that are the same in every pass."""
        index, graph, rooms = self.part.index, self.part.graph, self.part.rooms
        arguments, kind = self.arguments, self.kind

        def kept(nbytes: int) -> Buffer:
            return stack.enter_context(Buffer(index, nbytes))

        local_count = graph.vertex_count + graph.halo_count
        arguments["owned"], arguments["locals"] = graph.vertex_count, local_count
        arguments["count"], arguments["unreached"] = self.count, unreached_of(kind.distance_dtype)
        arguments["offsets"] = rooms.offsets.buffer.pointer
        arguments["targets"] = rooms.targets.buffer.pointer
        if kind.length_dtype is not None:
            weights = graph.stored.arrays.weights
            assert weights is not None
            arguments["lengths"] = rooms.weights.resident(weights).pointer
        if not is_alone:
            vertices = np.concatenate([graph.vertices, graph.halo_vertices])
            of_locals = kept(vertices.nbytes)
            upload(of_locals, vertices)
            arguments["vertices"] = of_locals.pointer
        if not self._reads_distances:
            room = -(-local_count // _KEYS_A_THREAD) * _KEYS_A_THREAD
            arguments["keys"] = kept(kind.key_dtype.itemsize * room).pointer
        arguments["hubs"] = kept(HUB.itemsize * self.part.hubs).pointer
        self._control = kept(CONTROL.itemsize)
        self._control.fill_bytes(0)
        arguments["control"] = self._control.pointer

    def _start(self, name: str) -> None:
        """Start a kernel on the whole GPU."""
        if name not in self._launches:
            kernel = self._module.kernel(name)
            multiprocessors = driver.properties(self.part.index).multiprocessors
            self._launches[name] = driver.Launch(
                kernel, self.part.stream, blocks=multiprocessors * kernel.occupancy(_THREADS),
                threads=_THREADS, arguments=self.arguments,
            )  # fmt: skip
        self._launches[name].start()

    def search(self, distance: int, candidates: int, source: int) -> None:
        """Start to search for the candidates of own vertices.

        :param distance: address of all distances, on this GPU
        :param candidates: address of those of all vertices
        :param source: the only source, or -1
        """
        arguments = self.arguments
        arguments["distance"], arguments["candidates"] = distance, candidates
        if self._reads_distances:
            arguments["keys"] = distance
        arguments["source"] = source
        arguments["number"] += 1
        self._start("prepare")
        self._start("search_rows")
        if self.part.hubs:
            self._start("search_hubs")

    def merge(self, others: int) -> None:
        """Start to replace candidates by those of another device that are smaller.

        :param others: address of the others on this GPU
        """
        self.arguments["others"] = others
        self._start("merge")

    def open_count(self) -> int:
        """Return the number of reached vertices, with sources, that have no candidate."""
        self._start("count_open")
        return self._word("open")

    def settle_ties(self, sources: Array) -> bool:
        """Settle ties by rounds (rule 2); return False if these are more than :data:`MOST_ROUNDS`."""
        arguments, index = self.arguments, self.part.index
        with ExitStack() as stack:
            arguments["rounds"] = _scratch(stack, index, 4 * self.count).pointer
            queue_bytes = self.kind.id_dtype.itemsize * self.count
            arguments["queue"] = _scratch(stack, index, queue_bytes).pointer
            of_sources = _scratch(stack, index, sources.nbytes)
            of_sources.upload(sources)
            arguments["sources"], arguments["source_count"] = of_sources.pointer, len(sources)
            self._start("open_ties")
            self._start("settle_sources")
            first, last, tail = 0, self.count, 0
            for number in range(1, MOST_ROUNDS + 1):
                arguments["round"], arguments["first"], arguments["last"] = number, first, last
                self._start("settle_ties")
                first, last = tail, self._word("tail")
                if first == last:
                    return True
                tail = last
        return False

    def _word(self, name: str) -> int:
        self.part.stream.synchronize()
        return int(self._control.download(CONTROL, 1)[name][0])

    def close(self) -> None:
        """Free the memory."""
        self._held.close()


class PredecessorPlan:
    """A pass over the arcs of a placement: made once for a kind of distances. The caller holds the GPUs."""

    def __init__(self, placement: GpuPlacement, graph: Graph, kind: PassKind) -> None:
        self.kind = kind
        self.count = graph.vertex_count
        self.endpoints: list[_Endpoint] = []
        is_alone = len(placement.parts) == 1
        try:
            for part in placement.parts:
                self.endpoints.append(_Endpoint(part, kind, self.count, is_alone=is_alone))
        except BaseException:
            self.close()
            raise

    def run(self, distance: Any, sources: Array, location: ResultLocation) -> tuple[Any, bool]:
        """Return the predecessors, and whether they are complete: else the host must finish rule 2.

        :param distance: (n) an array of NumPy, or of CuPy on any GPU
        :param sources: (k) int64, each once
        """
        home = next(
            (endpoint for endpoint in self.endpoints if endpoint.part.index == location.gpu),
            self.endpoints[0],
        )
        result = self._new_result(location)
        with ExitStack() as stack:
            try:
                distances = self._distances(stack, distance, home)
                candidates = self._candidates(stack, home, result)
                source = int(sources[0]) if len(sources) == 1 else -1
                for endpoint in self.endpoints:
                    pointer = distances[endpoint.part.index]
                    endpoint.search(pointer, candidates[endpoint], source)
                self._merge(stack, home, candidates)
                is_complete = True
                if self.kind.length_dtype is not None and home.open_count() > len(sources):
                    is_complete = len(self.endpoints) == 1 and home.settle_ties(sources)
                self._deliver(home, candidates[home], result)
            finally:
                synchronize(self._parts)  # before scratch memory is given back
        return result, is_complete

    @property
    def _parts(self) -> list[GpuPart]:
        return [endpoint.part for endpoint in self.endpoints]

    def _distances(self, stack: ExitStack, distance: Any, home: _Endpoint) -> dict[int, int]:
        """Return the address of all distances on each GPU; where they do not lie, copies are made."""
        owner = _gpu_of(distance)
        addresses: dict[int, int] = {}
        if owner is not None:
            addresses[owner] = int(distance.data.ptr)
        nbytes = self.kind.distance_dtype.itemsize * self.count
        for endpoint in [home, *self.endpoints]:
            index, stream = endpoint.part.index, endpoint.part.stream
            if index in addresses:
                continue
            copy = _scratch(stack, index, nbytes)
            if not addresses:
                upload(copy, distance)
            else:
                there, pointer = next(iter(addresses.items()))
                driver.copy_peer_async(copy.pointer, index, pointer, there, nbytes, stream)
            addresses[index] = copy.pointer
        if len(addresses) > 1:
            synchronize(self._parts)  # a copy may be read by several endpoints
        return addresses

    def _candidates(self, stack: ExitStack, home: _Endpoint, result: Any) -> dict[_Endpoint, int]:
        """Return the address of each device's candidates: that of the result if it lies there."""
        nbytes = self.kind.id_dtype.itemsize * self.count
        return {
            endpoint: int(result.data.ptr)
            if endpoint is home and _gpu_of(result) == home.part.index
            else _scratch(stack, endpoint.part.index, nbytes).pointer
            for endpoint in self.endpoints
        }

    def _merge(self, stack: ExitStack, home: _Endpoint, candidates: dict[_Endpoint, int]) -> None:
        """Merge the candidates of all endpoints into those of one."""
        others = [endpoint for endpoint in self.endpoints if endpoint is not home]
        if not others:
            return
        synchronize(self._parts)
        nbytes = self.kind.id_dtype.itemsize * self.count
        index, stream = home.part.index, home.part.stream
        for other in others:
            pointer, there = candidates[other], other.part.index
            if there != index:
                arrived = _scratch(stack, index, nbytes).pointer
                driver.copy_peer_async(arrived, index, pointer, there, nbytes, stream)
                pointer = arrived
            home.merge(pointer)

    def _new_result(self, location: ResultLocation) -> Any:
        """Return an array for the result; on the host in page-locked memory if possible."""
        if location.gpu is not None:
            return location.empty(self.count, self.kind.id_dtype)
        indexes = [part.index for part in self._parts]
        return new_host_array(self.count, self.kind.id_dtype, indexes)[0]

    def _deliver(self, home: _Endpoint, candidates: int, result: Any) -> None:
        """Copy the candidates of all vertices to the result, unless they lie there."""
        index, stream, gpu = home.part.index, home.part.stream, _gpu_of(result)
        if gpu is None:
            stream.synchronize()
            download(index, candidates, result)
        elif gpu != index:
            address, nbytes = int(result.data.ptr), int(result.nbytes)
            driver.copy_peer_async(address, gpu, candidates, index, nbytes, stream)

    def close(self) -> None:
        """Free the memory."""
        for endpoint in self.endpoints:
            endpoint.close()
        self.endpoints = []


def _gpu_of(array: Any) -> int | None:
    """Return the GPU of an array; None for the host."""
    return None if isinstance(array, np.ndarray) else int(array.device.id)


def _scratch(stack: ExitStack, index: int, nbytes: int) -> Buffer:
    """Return memory of a GPU that the process keeps at the end of the block."""
    buffer = kept_or_new(index, nbytes)
    stack.callback(buffer.keep)
    return buffer
