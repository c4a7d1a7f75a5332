"""Similarity on GPUs: arguments of similarity.cuh and neighbours.cuh, which it runs, and results.

Each GPU has the rows of the simple graph, uploaded once, and a share of the given pairs, or of the vertices
whose pairs with common neighbours are found. These are sorted on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from godwit.algorithms.similarity.query import Measure
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.graph.csr import Graph
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.memory import new_host_array
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.copies import download, upload
from godwit.runtime.gpu_options import GpuOptions
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.run import StepPlan, step_source
from godwit.supersteps.shares import Placed, SharedQuery

HUB_DEGREE = 1024
LEAST_PAIRS = 32
"""Degree and number of pairs from which those of a vertex are grouped by it."""
THREADS = 1024
NEIGHBOURS_THREADS = 256
PIECE_PAIRS = 1 << 24
"""Pairs that a device has at once."""

_BATCHES_A_STEP = 256
_UNITS_A_STEP = 64
"""Batches of each warp, and units of each block, in a superstep: time-outs are looked at in between."""
_MOST_BITMAP_BYTES = 1 << 18
"""Shared memory of a block for the bits of vertices, where it has so much."""
_PLACE_BYTES = 28
"""Shared memory of a thread: ``UnitMemory`` of similarity.cuh."""
_STATIC_BYTES = 4096
"""Shared memory that is left to the engine."""
_NO_HUB = (1 << 32) - 1
_LEAST_SHARE_ARCS = 1 << 22
"""Arcs, where all pairs are found, that pay for copying the whole graph to another GPU."""
_MEMORY_SHARE = 2
"""1 / the part of free memory that the sums of blocks may take."""
_VERTICES_A_STEP = 16
"""Vertices of each block in a superstep, where all pairs are found."""
_MOST_BLOCKS = 2
"""Blocks of a multiprocessor that have sums."""
_LEAST_SHARE_PAIRS = 1 << 20
"""Pairs that pay for copying the whole graph to another GPU."""

ARGUMENTS = struct_dtype("algorithms/similarity/similarity.cuh", "Arguments")
NEIGHBOURS_ARGUMENTS = struct_dtype("algorithms/similarity/neighbours.cuh", "Arguments")


class Phase(IntEnum):
    """``SimilarityPhase`` of the kernel."""

    CLEAR, COUNT, PLACE, GROUP, TAKE_UNITS, TAKE_OTHERS = range(6)


def source(id_dtype: np.dtype[Any]) -> str:
    """Return the source of the kernel."""
    enums: Sequence[type[IntEnum]] = (Measure, Phase)
    return step_source(
        "algorithms/similarity/similarity.cuh",
        types={"Id": c_type(id_dtype)},
        enums=enums,
        work="grid_similarity",
    )


def neighbours_source(id_dtype: np.dtype[Any]) -> str:
    """Return the source of the kernel that finds all pairs."""
    enums: Sequence[type[IntEnum]] = (Measure,)
    return step_source(
        "algorithms/similarity/neighbours.cuh",
        types={"Id": c_type(id_dtype)},
        enums=enums,
        work="grid_neighbours",
    )


class _SimilarityArrays:
    """Rows of the simple graph on a device, terms, pairs, groups of them and scores, kept between queries.

    ``sums`` are zeros between queries; ``found`` counts the pairs of a device.
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.offsets = DeviceArray(placement)
        self.targets = DeviceArray(placement)
        self.terms = DeviceArray(placement)
        self.pairs = DeviceArray(placement)
        self.scores = DeviceArray(placement)
        self.hub_of = DeviceArray(placement)
        self.hubs = DeviceArray(placement)
        self.group_sizes = DeviceArray(placement)
        self.group_begins = DeviceArray(placement)
        self.group_units = DeviceArray(placement)
        self.order = DeviceArray(placement)
        self.sums = DeviceArray(placement)
        self.reached = DeviceArray(placement)
        self.found = DeviceArray(placement)


@dataclass(eq=False)
class PairsQuery(SharedQuery[Any]):
    """Scores of given pairs of a simple undirected graph with sorted rows: float64 (k).

    :param pairs: (k, 2) positions, NumPy's array or CuPy's, contiguous
    :param terms: (n) terms of vertices, or empty
    :param location: of the scores
    """

    pairs: Any
    terms: Array
    measure: Measure
    location: ResultLocation

    def shares(self, placement: StepPlacement) -> int:
        """Return how many GPUs have enough pairs to work on; at most so many get a copy of the graph."""
        return len(self.pairs) // _LEAST_SHARE_PAIRS

    def run_on(self, target: Placed) -> Any:
        """Return the scores of all pairs, found for as many at a time as devices have room for."""
        devices, shares = self.devices(target), len(target.parts)
        scores: Any
        if self.location.gpu is None:
            scores, _ = new_host_array(len(self.pairs), np.float64, target.indexes)
        else:
            scores = self.location.empty(len(self.pairs), np.float64)
        piece = min(PIECE_PAIRS, -(-len(self.pairs) // shares))
        with target.held():
            for owner in target.placements:
                self._make_room(owner, piece)
            plan = self.plan(target, "similarity", lambda: _SimilarityPlan(target, self.gpu))
            self._upload_terms(plan)
            for begin in range(0, len(self.pairs), shares * piece):
                ranges = [
                    slice(begin + number * piece, begin + (number + 1) * piece)
                    for number in range(shares)
                ]
                plan.ask([self.pairs[each] for each in ranges])
                self.drive(plan, target)
                for number, each in enumerate(ranges):
                    self._take(target.parts[number], plan.arrays[number].scores, scores[each])
                    self.statistics.processed_items[devices[number]] += len(self.pairs[each])
                if self.poll is not None:
                    self.poll.before += sum(len(self.pairs[each]) for each in ranges)
        return scores

    def _take(self, part: StepPart, scores: DeviceArray, into: Any) -> None:
        """Copy the scores of some pairs from a device to where they are wanted."""
        pointer, gpu = scores[part].pointer, self.location.gpu
        if gpu is None:
            download(part.index, pointer, into)
        elif len(into):
            to, stream = int(into.data.ptr), part.stream
            driver.copy_peer_async(to, gpu, pointer, part.index, into.nbytes, stream)
            stream.synchronize()

    def _make_room(self, owner: StepPlacement, piece: int) -> None:
        """Allocate the arrays of a device, and upload the rows if it does not have them."""
        arrays = _with_rows(owner)
        hubs = _hubs(owner.graph)
        ids = owner.graph.id_dtype.itemsize
        is_new = not arrays.hub_of
        owner.reserve(
            (arrays.terms, [max(8, self.terms.nbytes)]),
            (arrays.pairs, [max(8, 2 * ids * piece)]),
            (arrays.scores, [max(8, 8 * piece)]),
            (arrays.hub_of, [4 * owner.vertex_count]),
            (arrays.hubs, [max(8, hubs.nbytes)]),
            (arrays.group_sizes, [4 * (len(hubs) + 1)]),
            (arrays.group_begins, [4 * (len(hubs) + 2)]),
            (arrays.group_units, [4 * (len(hubs) + 1)]),
            (arrays.order, [max(8, 4 * piece)]),
        )
        if is_new:
            hub_of = np.full(owner.vertex_count, _NO_HUB, np.uint32)
            hub_of[hubs] = np.arange(len(hubs), dtype=np.uint32)
            upload(arrays.hub_of.buffers[0], hub_of)
            upload(arrays.hubs.buffers[0], hubs)

    def _upload_terms(self, plan: _SimilarityPlan) -> None:
        plan.arguments["measure"] = int(self.measure)
        for number, arrays in enumerate(plan.arrays):
            (buffer,) = arrays.terms.buffers
            plan.arguments["terms"][number] = buffer.pointer if len(self.terms) else 0
            if len(self.terms):
                upload(buffer, self.terms)


def _hubs(graph: Graph) -> Array:
    """Return the vertices of high degree, dtype of the targets: found once."""

    def find() -> Array:
        return np.flatnonzero(np.diff(graph.offsets) >= HUB_DEGREE).astype(graph.id_dtype)

    found: Array = graph.cached(("hubs", HUB_DEGREE), find)
    return found


def _with_rows(owner: StepPlacement) -> _SimilarityArrays:
    """Return the arrays of a device, with the rows, which are uploaded if it does not have them."""
    arrays = owner.kept(_SimilarityArrays)
    (part,) = owner.parts
    if part not in arrays.targets:
        graph = owner.graph
        rows = [(arrays.offsets, graph.offsets), (arrays.targets, graph.targets)]
        owner.reserve(*((array, [max(8, held.nbytes)]) for array, held in rows))
        for array, held in rows:
            array[part].upload(held)
    return arrays


class _SimilarityPlan(StepPlan[StepPlacement | StepCopies]):
    """The kernel, with the arguments that no query changes; :meth:`ask` takes the pairs of a run.

    :ivar arrays: of each device
    """

    def __init__(self, target: Placed, gpu: GpuOptions) -> None:
        first = target.placements[0]
        graph = first.graph
        text = source(graph.id_dtype)
        arguments = np.zeros(len(target.parts), ARGUMENTS)
        super().__init__(target, text, arguments, gpu, threads=THREADS)
        places_bytes = _PLACE_BYTES * self._threads
        room = min(driver.properties(part.index).shared_bytes for part in target.parts)
        bitmap_bytes = min(room - _STATIC_BYTES - places_bytes, _MOST_BITMAP_BYTES)
        words = min(-(-graph.vertex_count // 32), bitmap_bytes // 4)
        self.shared_bytes = places_bytes + 4 * words
        self.arrays = [owner.kept(_SimilarityArrays) for owner in target.placements]
        for number, arrays in enumerate(self.arrays):
            own = self.arguments[number]
            for name in (
                "offsets", "targets", "pairs", "scores", "hub_of", "hubs", "group_sizes",
                "group_begins", "group_units", "order",
            ):  # fmt: skip
                own[name] = getattr(arrays, name).buffers[0].pointer
            blocks = self.blocks_with(number, self.shared_bytes)
            own["vertices"], own["hub_count"] = graph.vertex_count, len(_hubs(graph))
            own["bitmap_words"], own["least_pairs"] = words, LEAST_PAIRS
            own["units_a_step"] = _UNITS_A_STEP * blocks
            own["batches_a_step"] = _BATCHES_A_STEP * blocks * max(1, self._threads // 32)
        self.lay_out()

    def ask(self, pairs: Sequence[Any]) -> None:
        """Copy the pairs of a run to the devices, of each (k, 2), from the host or from a GPU."""
        for number, (arrays, own) in enumerate(zip(self.arrays, pairs, strict=True)):
            self.arguments["pair_count"][number] = len(own)
            if not len(own):
                continue
            part, (buffer,) = self.placement.parts[number], arrays.pairs.buffers
            if isinstance(own, np.ndarray):
                upload(buffer, own)
                continue
            there, pointer = int(own.device.id), int(own.data.ptr)
            driver.copy_peer_async(
                buffer.pointer, part.index, pointer, there, own.nbytes, part.stream
            )
            part.stream.synchronize()


@dataclass(eq=False)
class NeighboursQuery(SharedQuery[tuple[Array, Array]]):
    """All pairs with common neighbours whose score is above a bound, and their scores.

    Of a simple undirected graph with sorted rows; results as of ``cpu.score_neighbours``.

    :param above: the bound
    :param terms: (n) terms of vertices, or empty
    """

    above: float
    terms: Array
    measure: Measure

    def shares(self, placement: StepPlacement) -> int:
        """Return the number of shares."""
        return placement.graph.arc_count // _LEAST_SHARE_ARCS

    def run_on(self, target: Placed) -> tuple[Array, Array]:
        """Find the pairs: a second time, if there was no room for all."""
        room = target.placements[0].graph.arc_count
        while True:
            counts, capacity = self._run(target, room)
            if max(counts) <= capacity:
                return self._sorted(target, counts)
            room = max(counts)

    def _run(self, target: Placed, room: int) -> tuple[list[int], int]:
        """Run once; return how many pairs each device found, and how many each has room for.

        :param room: pairs that each device has room for, at least
        """
        with target.held():
            for owner in target.placements:
                self._make_room(owner, room)
            plan = self.plan(target, "neighbours", lambda: _NeighboursPlan(target, self.gpu))
            arguments = plan.arguments
            arguments["above"], arguments["measure"] = self.above, int(self.measure)
            for number, owner in enumerate(target.placements):
                arrays = owner.kept(_SimilarityArrays)
                (part,) = owner.parts
                arguments["terms"][number] = 0
                if len(self.terms):
                    arrays.terms[part].upload(self.terms)
                    arguments["terms"][number] = arrays.terms[part].pointer
                arrays.found[part].fill_bytes(0)
            try:
                self.drive(plan, target)
            except BaseException:
                for owner in target.placements:  # sums may not be zero
                    owner.kept(_SimilarityArrays).sums.release()
                raise
            counts = []
            for device, owner in zip(self.devices(target), target.placements, strict=True):
                (buffer,) = owner.kept(_SimilarityArrays).found.buffers
                counts.append(int(buffer.download(np.uint64, 1)[0]))
                self.statistics.processed_items[device] = counts[-1]
        if self.poll is not None:
            self.poll.before += target.placements[0].vertex_count
        return counts, int(arguments["capacity"].min())

    def _make_room(self, owner: StepPlacement, room: int) -> None:
        """Allocate the arrays of a device; new sums are zeros."""
        arrays = _with_rows(owner)
        (part,) = owner.parts
        ids = owner.graph.id_dtype.itemsize
        owner.reserve(
            (arrays.terms, [max(8, self.terms.nbytes)]),
            (arrays.pairs, [2 * ids * room]),
            (arrays.scores, [8 * room]),
            (arrays.found, [8]),
        )
        if part not in arrays.sums:
            each = (8 + ids) * owner.vertex_count
            properties = driver.properties(part.index)
            affordable = memory.free_memory_bytes(part.index) // _MEMORY_SHARE // each
            blocks = max(1, min(_MOST_BLOCKS * properties.multiprocessors, affordable))
            owner.reserve(
                (arrays.sums, [8 * blocks * owner.vertex_count]),
                (arrays.reached, [ids * blocks * owner.vertex_count]),
            )
            arrays.sums[part].fill_bytes(0)

    def _sorted(self, target: Placed, counts: Sequence[int]) -> tuple[Array, Array]:
        """Return the pairs of all devices, ascending, and their scores."""
        dtype = target.placements[0].graph.id_dtype
        pairs, scores = [], []
        for owner, count in zip(target.placements, counts, strict=True):
            arrays = owner.kept(_SimilarityArrays)
            pairs.append(arrays.pairs.buffers[0].download(dtype, 2 * count).reshape(-1, 2))
            scores.append(arrays.scores.buffers[0].download(np.float64, count))
        every, score = np.concatenate(pairs), np.concatenate(scores)
        order = np.lexsort((every[:, 1], every[:, 0]))
        return every[order], score[order]


class _NeighboursPlan(StepPlan[StepPlacement | StepCopies]):
    """The kernel that finds all pairs, with the arguments that no query changes."""

    def __init__(self, target: Placed, gpu: GpuOptions) -> None:
        first = target.placements[0]
        ids = first.graph.id_dtype
        arguments = np.zeros(len(target.parts), NEIGHBOURS_ARGUMENTS)
        super().__init__(target, neighbours_source(ids), arguments, gpu, threads=NEIGHBOURS_THREADS)
        n = first.vertex_count
        for number, owner in enumerate(target.placements):
            arrays = owner.kept(_SimilarityArrays)
            own = self.arguments[number]
            for name in ("offsets", "targets", "sums", "reached", "found", "pairs", "scores"):
                own[name] = getattr(arrays, name).buffers[0].pointer
            room = arrays.sums.buffers[0].nbytes // (8 * n)
            blocks = min(self.blocks_with(number, 0), room)
            own["capacity"] = arrays.scores.buffers[0].nbytes // 8
            own["vertices"], own["blocks"] = n, blocks
            own["vertices_a_step"] = _VERTICES_A_STEP * blocks
            own["share"], own["shares"] = number, len(target.parts)
        self.lay_out()
