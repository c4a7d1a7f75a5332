"""Triangles on GPUs: arguments of triangles.cuh, which it runs, and results.

Each GPU has all rows by degree, uploaded once, and a share of the pieces of rows. Sums by position are
delivered in the order of vertices; those of several GPUs are added up on the first one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from godwit.algorithms.triangles.rows import DegreeRows, rows_in_order
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.results import deliver_vertices
from godwit.supersteps.rows import RowClass
from godwit.supersteps.run import StepPlan, step_source
from godwit.supersteps.shares import Placed, SharedQuery

THREADS = 256
"""Threads of a block, of which several are resident on a multiprocessor."""
TABLE_BITS = {False: 12, True: 11}
"""Slots of a block's table, as a power of two, by whether edges have values: within 48 KB."""
PIECE_ARCS = 4096
"""Arcs of long rows that a block takes at once."""

_SLOT_BYTES = {False: 8, True: 20}
_BATCH_ROWS = 32  # as in triangles.cuh
_PIECES_A_STEP = 16
"""Pieces of each block, and batches of each warp, in a superstep: time-outs are looked at in between."""
_LEAST_SHARE_ARCS = 1 << 22
"""Arcs that pay for copying the whole graph to another GPU."""

ARGUMENTS = struct_dtype("algorithms/triangles/triangles.cuh", "Arguments")


class TrianglesPhase(IntEnum):
    """Phases of triangles.cuh."""

    CLEAR, LONG_ROWS, SHORT_ROWS, ADD = range(4)


class TrianglesWord(IntEnum):
    """Words of the state of triangles.cuh that are read when a run has ended."""

    ALL_FOUND = 1


def source(id_dtype: np.dtype[Any], *, valued: bool) -> str:
    """Return the source of the kernel.

    :param valued: products of values of edges are summed; else triangles are counted
    """
    text = step_source(
        "algorithms/triangles/triangles.cuh",
        types={"Id": c_type(id_dtype)},
        enums=(TrianglesPhase, TrianglesWord),
        work="grid_triangles",
    )
    return f"#define VALUED {int(valued)}\n{text}"


class _TriangleArrays:
    """Rows by degree on a device, and its sums, kept between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.offsets = DeviceArray(placement)
        self.splits = DeviceArray(placement)
        self.targets = DeviceArray(placement)
        self.values = DeviceArray(placement)
        self.sums = DeviceArray(placement)
        self.received = DeviceArray(placement)


@dataclass(eq=False)
class TrianglesQuery(SharedQuery[tuple[Any, int | None]]):
    """Triangles at each vertex of a simple graph, whose weights are values of edges.

    The result is (n) int64 numbers of triangles, or float64 sums of products, and the number of all
    triangles, or None.

    :param location: of the sums
    """

    location: ResultLocation

    def shares(self, placement: StepPlacement) -> int:
        """Return how many GPUs have enough arcs to work on; at most so many get a copy of the graph.

        :raises GraphTooLargeError: more vertices than the kernel counts
        """
        if placement.count >= 1 << 32:
            raise GraphTooLargeError(
                f"the graph has {placement.vertex_count:,} vertices, and triangles on GPUs take fewer than "
                f"{1 << 32:,}"
            )
        return placement.graph.arc_count // _LEAST_SHARE_ARCS

    def run_on(self, target: Placed) -> tuple[Any, int | None]:
        """Return the sums of vertices and their total."""
        first, devices = target.placements[0], self.devices(target)
        with target.held():
            plan = self.plan(target, "triangles", lambda: _TrianglesPlan(target, self.gpu))
            outcomes = self.drive(plan, target)
            for device, counts in zip(devices, outcomes["run_counts"], strict=True):
                self.statistics.processed_items[device] = int(counts[0])
                self.statistics.arcs_relaxed[device] = first.graph.arc_count // len(devices)
            total = int(outcomes["state"][:, TrianglesWord.ALL_FOUND].sum())
            self.seconds["kernel"] += plan.add_up(self.poll)
            dtype = np.dtype(np.float64 if plan.valued else np.int64)
            sums = first.kept(_TriangleArrays).sums
            found = deliver_vertices(first, sums, dtype, self.location)[0]
            return found, None if plan.valued else total


class _TrianglesPlan(StepPlan[StepPlacement | StepCopies]):
    """The kernel, with arguments that no query changes.

    :ivar valued: edges have values
    """

    def __init__(self, target: Placed, gpu: GpuOptions) -> None:
        first = target.placements[0]
        self.valued = first.graph.is_weighted
        text = source(first.id_dtype, valued=self.valued)
        arguments = np.zeros(len(target.parts), ARGUMENTS)
        super().__init__(target, text, arguments, gpu, threads=THREADS)
        self.shared_bytes = 8 * self._threads + (
            _SLOT_BYTES[self.valued] << TABLE_BITS[self.valued]
        )
        rows = rows_in_order(first.graph, first.numbering)
        for number in range(len(target.parts)):
            self._point(number, rows)
        self.lay_out()

    def _point(self, number: int, rows: DegreeRows) -> None:
        """Upload the rows to a device, unless it has them, and fill in its arguments."""
        owner, part = self.placement.placements[number], self.placement.parts[number]
        arrays = owner.kept(_TriangleArrays)
        uploads: list[tuple[str, Array]] = [
            ("offsets", rows.offsets), ("splits", rows.splits), ("targets", rows.targets)
        ]  # fmt: skip
        if self.valued:
            uploads.append(("values", rows.values))
        if part not in arrays.sums:
            sizes = [(getattr(arrays, name), [max(8, held.nbytes)]) for name, held in uploads]
            owner.reserve(*sizes, (arrays.sums, [8 * owner.capacity]))
            for name, held in uploads:
                getattr(arrays, name)[part].upload(held)
        own = self.arguments[number]
        for name, _ in uploads:
            own[name] = getattr(arrays, name)[part].pointer
        own["sums"] = arrays.sums[part].pointer
        if number == 0 and len(self.placement.parts) > 1:
            owner.reserve((arrays.received, [8 * owner.capacity]))
            own["received"] = arrays.received[part].pointer
        n, shares = len(rows.splits), len(self.placement.parts)
        long_rows = int(owner.numbering.classes[0][RowClass.CLASS_WARP])
        pieces = -(-int(rows.offsets[long_rows]) // PIECE_ARCS)
        batches = -(-(n - long_rows) // _BATCH_ROWS)
        own["rows"], own["long_rows"], own["piece_arcs"] = n, long_rows, PIECE_ARCS
        own["share"], own["shares"] = number, shares
        own["pieces"] = len(range(number, pieces, shares))
        own["batches"] = len(range(number, batches, shares))
        blocks = self.blocks_with(number, self.shared_bytes)
        own["pieces_a_step"] = _PIECES_A_STEP * blocks
        own["batches_a_step"] = _PIECES_A_STEP * blocks * max(1, self._threads // 32)
        own["table_bits"] = TABLE_BITS[self.valued]

    def add_up(self, poll: RunPoll | None) -> float:
        """Add the sums of all devices to those of the first, in their order; return seconds of kernels."""
        first, *others = self.placement.placements
        part, kernel_s = first.parts[0], 0.0
        if poll is not None:
            poll.before += first.vertex_count
        for other in others:
            sums = other.kept(_TriangleArrays).sums.buffers[0]
            driver.copy_peer_async(
                first.kept(_TriangleArrays).received[part].pointer, part.index,
                sums.pointer, sums.index, 8 * first.vertex_count, part.stream,
            )  # fmt: skip
            kernel_s += self.run(phase=TrianglesPhase.ADD, poll=poll)
        return kernel_s
