"""Random walks on GPUs: uploads the graph, fills in the arguments of walks.cuh, and downloads walks.

Each GPU has the whole graph in its own order, and a share of the walks, which it does as many at a time as
there is memory for.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.random_walks.query import TRIES, WORDS_BITS, WalkQuery
from godwit.dtypes import Array
from godwit.graph.hashing import mix
from godwit.placement import PlacedGraph
from godwit.runtime.cuda import memory
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.memory import new_host_array
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.copies import download, upload
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.supersteps import place_positions
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.run import StepPlan, step_source

Placed = StepPlacement | StepCopies

ARGUMENTS = struct_dtype("algorithms/random_walks/walks.cuh", "Arguments")

_STEPS = 1 << 26
"""Steps of all walks of a device in a superstep, about."""
_LEAST_SHARE = 1 << 20
"""Steps that pay for copying the whole graph to another GPU."""
_MEMORY_SHARE = 2
"""1 / the part of free memory that walks may take."""


def source(id_dtype: Any) -> str:
    """Return the source of the kernel.

    :param id_dtype: of the graph's targets
    """
    text = step_source(
        "algorithms/random_walks/walks.cuh",
        types={"Id": c_type(np.dtype(id_dtype))},
        work="grid_walk",
    )
    return f"#define TRIES {TRIES}u\n#define WORDS_BITS {WORDS_BITS}\n{text}"


class WalkArrays:
    """The graph in its own order, and arrays of walks, kept on a device between queries.

    :ivar targets: False: in the graph's order; True: rows sorted for biased walks, unless they are already
    :ivar sums: sums of weights within rows, in either order
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.offsets = DeviceArray(placement)
        self.targets = {way: DeviceArray(placement) for way in (False, True)}
        self.sums = {way: DeviceArray(placement) for way in (False, True)}
        self.sources = DeviceArray(placement)
        self.walks = DeviceArray(placement)


def walk_on_gpus(
    placed: PlacedGraph, query: WalkQuery, gpu: GpuOptions, poll: RunPoll | None
) -> tuple[Array, dict[str, float]]:
    """Return the walks of a query that has some, and seconds by phase: ``compile``, ``kernel``, ``gather``.

    :raises GraphTooLargeError: need against free
    """
    steps = place_positions(placed)

    def run(target: Placed) -> tuple[Array, dict[str, float]]:
        return _walk_on(target, query, gpu, poll)

    return steps.run_on_shares(len(query.sources) * query.length // _LEAST_SHARE, run)


def _walk_on(
    target: Placed, query: WalkQuery, gpu: GpuOptions, poll: RunPoll | None
) -> tuple[Array, dict[str, float]]:
    """Do all walks on a placement of one device, or on copies."""
    dtype = query.graph.id_dtype
    walks, columns = query.shape
    result, _ = new_host_array(walks * columns, dtype, target.indexes)
    key = ("walks", query.sorts_rows, query.weighted, gpu)
    seconds = {"kernel": 0.0, "gather": 0.0}

    def make() -> _WalkPlan:
        made = _WalkPlan(target, query, gpu)
        seconds["compile"] = made.compile_s
        return made

    with target.held():
        plan = target.plan(key, make)
        share = -(-walks // len(target.parts))
        room = plan.reserve_walks(min(share, walks), columns * dtype.itemsize)
        for begin in range(0, share, room):
            pieces = [
                (at, min(at + room, end))
                for part in range(len(target.parts))
                for end in (min(walks, (part + 1) * share),)
                for at in (min(end, part * share + begin),)
            ]
            plan.ask(query, pieces)
            seconds["kernel"] += plan.run(poll=poll)
            copied = perf_counter()
            plan.take(pieces, result, columns)
            seconds["gather"] += perf_counter() - copied
            if poll is not None:
                poll.before += sum(end - at for at, end in pieces) * query.length
    return result.reshape(walks, columns), seconds


class _WalkPlan(StepPlan[StepPlacement | StepCopies]):
    """Walks on a placement with one device, or on copies."""

    def __init__(self, target: Placed, query: WalkQuery, gpu: GpuOptions) -> None:
        dtype = query.graph.id_dtype
        super().__init__(target, source(dtype), np.zeros(len(target.parts), ARGUMENTS), gpu)
        self._owners = list(target.placements)
        self._arrays = [owner.kept(WalkArrays) for owner in self._owners]
        for number, (owner, arrays) in enumerate(zip(self._owners, self._arrays, strict=True)):
            self._upload(number, owner, arrays, query)
        self.lay_out()

    def _upload(
        self, number: int, owner: StepPlacement, arrays: WalkArrays, query: WalkQuery
    ) -> None:
        """Upload what is not on a device yet, and point to it.

        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        rows, way = query.rows, query.sorts_rows
        values = {
            "offsets": (arrays.offsets, rows.offsets),
            "targets": (arrays.targets[way], rows.targets),
        }
        if query.weighted:
            values["sums"] = (arrays.sums[way], query.sums)
        missing = [(array, data) for array, data in values.values() if not array]
        owner.reserve(*((array, [max(8, data.nbytes)]) for array, data in missing))
        part, own = owner.parts[0], self.arguments[number]
        for array, data in missing:
            if len(data):
                upload(array[part], data)
        for name, (array, _) in values.items():
            own[name] = array[part].pointer

    def reserve_walks(self, walks: int, row_bytes: int) -> int:
        """Allocate ``walks`` walks on each device, or fewer where memory is short; return how many.

        :param row_bytes: bytes of a walk
        :raises GraphTooLargeError: need against free
        """
        for owner, arrays in zip(self._owners, self._arrays, strict=True):
            part = owner.parts[0]
            free = memory.free_memory_bytes(part.index) + arrays.walks.nbytes(part)
            walks = max(1, min(walks, free // _MEMORY_SHARE // (row_bytes + 8)))
        for number, (owner, arrays) in enumerate(zip(self._owners, self._arrays, strict=True)):
            owner.reserve((arrays.walks, [walks * row_bytes]), (arrays.sources, [walks * 8]))
            part, own = owner.parts[0], self.arguments[number]
            own["walks"], own["sources"] = arrays.walks[part].pointer, arrays.sources[part].pointer
        return walks

    def ask(self, query: WalkQuery, pieces: list[tuple[int, int]]) -> None:
        """Write the walks of a run into the arguments: of each device a range."""
        arguments = self.arguments
        most = max(1, *(end - begin for begin, end in pieces))
        arguments["length"] = query.length
        arguments["steps"] = max(1, min(query.length, _STEPS // most))
        arguments["return_bias"], arguments["far_bias"] = query.return_bias, query.far_bias
        arguments["biased"] = query.is_biased
        with np.errstate(over="ignore"):
            arguments["seed"] = mix(query.seed)
        for number, (begin, end) in enumerate(pieces):
            arguments["first"][number], arguments["count"][number] = begin, end - begin
            if begin < end:
                part = self._owners[number].parts[0]
                self._arrays[number].sources[part].upload(query.sources[begin:end])

    def take(self, pieces: list[tuple[int, int]], result: Array, columns: int) -> None:
        """Download the walks of a run."""
        for owner, arrays, (begin, end) in zip(self._owners, self._arrays, pieces, strict=True):
            part = owner.parts[0]
            download(
                part.index, arrays.walks[part].pointer, result[begin * columns : end * columns]
            )
