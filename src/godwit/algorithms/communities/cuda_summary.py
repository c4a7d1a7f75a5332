"""Communities by size, and their modularity, on one GPU: arguments and results of summary.cuh.

What the CPU computes with ``by_size`` and ``modularity_of``, of labels that lie on the GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation, gpu_array, lies_on_gpu
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.gpu_arrays import sort_keys
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.cuda.transfer.copies import upload
from godwit.runtime.gpu_options import DEFAULT_GPU_OPTIONS, GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_items, deliver_vertices
from godwit.supersteps.run import (
    StepPlan,
    left_rows_bytes,
    point_rows,
    state_words,
    step_source,
)

ARGUMENTS = struct_dtype("algorithms/communities/summary.cuh", "Arguments")

_LIMB_BITS = 32
_UNIT_BITS = 160


class Phase(IntEnum):
    """``SummaryPhase`` of the kernel."""

    (
        STRENGTHS_BEGIN, STRENGTHS_ADD, STRENGTHS_SUM, LABELS_TAKE, SIZES_BEGIN, SIZES_ADD, SIZES_LIST,
        NUMBERS_BEGIN, NUMBERS_TAKE, INNER_ADD, SQUARES_ADD,
    ) = range(11)  # fmt: skip


class Word(IntEnum):
    """Words of ``control->state``: ``SummaryWord`` of the kernel."""

    NUMBERS, KNOWS_INNER = range(2)


class Count(IntEnum):
    """Indices of the counts of a block: ``SummaryCount`` of the kernel."""

    DONE, FOUND, LIMBS = range(3)


class SummaryArrays:
    """The arrays of summaries, kept on the device between queries.

    :ivar of: by name; ``strength`` has the sum of the weights of each position's out-arcs, and
        ``entering`` that of its in-arcs, of a directed graph
    :ivar total: sum of all strengths
    :ivar are_weighted: whether strengths are of weights; None: there are none yet
    """

    names = (
        "given", "number", "strength", "entering", "size", "first", "leaving_of", "entering_of", "keys",
        "rank", "sizes", "names", "long_rows",
    )  # fmt: skip

    def __init__(self, placement: StepPlacement) -> None:
        self.of = {name: DeviceArray(placement) for name in self.names}
        self.total = 0
        self.are_weighted: bool | None = None


@dataclass(frozen=True)
class Summary:
    """Communities by size, the largest first, then by smallest vertex.

    :param label: (n) number of each vertex's community, dtype of the targets
    :param sizes: int64 (communities)
    :param names: (communities) the label of each community before, dtype of the targets; or None
    :param modularity: NaN in a graph without arcs
    """

    label: Any
    sizes: Any
    names: Any
    modularity: float


class CommunitySummary:
    """Summaries of labels of a graph on one device. The caller holds the placement.

    :param weighted: by weights, which are int64
    :param poll: called now and then
    :ivar seconds: of what has been done: ``rows``, ``compile``, ``kernel``, ``sort``, ``gather``
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """

    def __init__(
        self, placement: StepPlacement, gpu: GpuOptions, poll: RunPoll | None, *, weighted: bool
    ) -> None:  # fmt: skip
        require_short_labels(placement)
        self.seconds: dict[str, float] = {}
        self._placement = placement
        self._poll = poll
        self._weighted = weighted
        self._plan = placement.plan(
            ("communities", gpu, weighted), lambda: self._make_plan(gpu, weighted)
        )
        self.arrays = placement.kept(SummaryArrays)
        if self.arrays.are_weighted != weighted:
            self.arrays.are_weighted = None
            self._run(Phase.STRENGTHS_BEGIN)
            self.arrays.total = self._found()
            self.arrays.are_weighted = weighted

    def number(
        self,
        label: DeviceArray,
        location: ResultLocation,
        *,
        resolution: float = 1.0,
        named: bool = False,
        inside: int | None = None,
    ) -> Summary:
        """Return communities by size, and their modularity.

        :param label: uint32 by position: numbers below n
        :param location: where arrays are to be
        :param named: return the labels of communities as well
        :param inside: sum of the weights of arcs within communities, those from a vertex to itself twice in
            undirected graphs; None: it is computed
        """
        placement = self._placement
        (part,) = placement.parts
        self._point(label)
        self._run(Phase.SIZES_BEGIN, numbers=True)
        count = self._found()
        begin = perf_counter()
        sort_keys(self.arrays.of["keys"][part], count, part.stream)
        self._add("sort", perf_counter() - begin)
        self._plan.arguments["communities"] = count
        self._run(Phase.NUMBERS_BEGIN, knows_inner=inside is not None)
        modularity = self._modularity(resolution, self._found() if inside is None else inside)
        dtype = placement.graph.targets.dtype
        numbers, gather_s = deliver_vertices(
            placement, self.arrays.of["number"], np.int32, location, result_dtype=dtype
        )
        wanted = {"sizes": np.int64} | ({"names": np.int32} if named else {})
        items = [(self.arrays.of[name][part].pointer, count, of) for name, of in wanted.items()]
        found, items_s = deliver_items(part, items, location)
        self._add("gather", gather_s + items_s)
        names = found[1] if named else None
        if names is not None and names.dtype != dtype:
            names = names.astype(dtype)
        return Summary(numbers, found[0], names, modularity)

    def modularity(self, labels: Any, resolution: float) -> float:
        """Return the modularity of communities; NaN without arcs.

        :param labels: (n) integers below n, by vertex, on the host or on a GPU
        """
        (part,) = self._placement.parts
        given = self.arrays.of["given"][part]
        if lies_on_gpu(labels):
            short = _words(gpu_array(labels))
            if not short.flags.c_contiguous:
                short = short.copy()
            short.device.synchronize()  # CuPy may still be writing it
            driver.copy_peer_async(
                given.pointer, part.index, int(short.data.ptr), int(short.device.id), short.nbytes,
                part.stream,
            )  # fmt: skip
            part.stream.synchronize()
        else:
            upload(given, _words(labels))
        self._point(self.arrays.of["number"])
        self._run(Phase.LABELS_TAKE)
        return self._modularity(resolution, self._found())

    def _point(self, label: DeviceArray) -> None:
        (part,) = self._placement.parts
        self._plan.arguments["label"] = label[part].pointer
        self._plan.arguments["total"] = self.arrays.total

    def _modularity(self, resolution: float, inside: int) -> float:
        """Return the modularity of the latest run: rounded as ``modularity_of`` of the CPU does it."""
        total = self.arrays.total
        if total == 0:
            return math.nan
        counts = self._plan.controls()[0]["run_counts"]
        squares = sum(
            int(limb) << (_LIMB_BITS * place) for place, limb in enumerate(counts[Count.LIMBS :])
        )
        return inside / total - resolution * (squares / (1 << _UNIT_BITS))

    def _found(self) -> int:
        return int(self._plan.controls()[0]["run_counts"][Count.FOUND])

    def _run(self, phase: Phase, *, numbers: bool = False, knows_inner: bool = False) -> None:
        state = state_words([int(numbers), int(knows_inner)])
        self._add("kernel", self._plan.run(state, phase=phase, poll=self._poll))

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _make_plan(self, gpu: GpuOptions, weighted: bool) -> _SummaryPlan:
        made = _SummaryPlan(self._placement, weighted, gpu)
        self._add("compile", made.compile_s)
        return made


def _words(labels: Any) -> Any:
    """Return small numbers that are not negative as uint32, without a copy where they have as many bits."""
    return labels.view(np.uint32) if labels.dtype.itemsize == 4 else labels.astype(np.uint32)


def modularity_on_gpu(
    placement: StepPlacement, labels: Any, resolution: float, *, weighted: bool
) -> float:
    """Return the modularity of communities of a graph that has vertices, and is on one device.

    :param labels: (n) integers below n, by vertex, on the host or on a GPU
    """
    with placement.held():
        summary = CommunitySummary(placement, DEFAULT_GPU_OPTIONS, None, weighted=weighted)
        return summary.modularity(labels, resolution)


def require_short_labels(placement: StepPlacement) -> None:
    """Raise GraphTooLargeError if labels of 31 bits are too short."""
    if placement.capacity >= 1 << 31:
        raise GraphTooLargeError(
            f"communities on a GPU take fewer than {1 << 31:,} vertices, and the graph has "
            f"{placement.vertex_count:,}; use devices='cpu'"
        )


def source(id_dtype: Any, *, weighted: bool, wide: bool) -> str:
    """Return the source of the kernel.

    :param id_dtype: of positions
    :param wide: strengths have 64 bits
    """
    text = step_source(
        "algorithms/communities/summary.cuh",
        types={"Id": c_type(np.dtype(id_dtype)), "Strength": "u64" if wide else "u32"},
        work="grid_summary",
        enums=(Phase, Word, Count),
    )
    return f"constexpr bool WEIGHTED = {str(weighted).lower()};\n{text}"


class _SummaryPlan(StepPlan[StepPlacement]):
    """The kernel on a placement on one device, with arguments that no query changes."""

    def __init__(self, placement: StepPlacement, weighted: bool, gpu: GpuOptions) -> None:
        wide = weighted or 2 * placement.graph.arc_count >= 1 << 32
        text = source(placement.id_dtype, weighted=weighted, wide=wide)
        (out_rows,) = placement.rows("out", weighted)
        (vertices,) = placement.vertices()
        super().__init__(placement, text, np.zeros(1, ARGUMENTS), gpu)
        (part,) = placement.parts
        arrays = placement.kept(SummaryArrays)
        directed = placement.graph.directed
        n, bytes_of = placement.capacity, 8 if wide else 4
        both = bytes_of * n if directed else 8
        sizes = {
            **dict.fromkeys(("given", "size", "first", "rank", "names"), 4 * n),
            **dict.fromkeys(("strength", "leaving_of"), bytes_of * n),
            **dict.fromkeys(("keys", "sizes"), 8 * n),
            "number": 4 * max(n, placement.count),  # delivery joins those of all positions
            "entering": both,
            "entering_of": both,
            "long_rows": left_rows_bytes("mixed", out_rows, n),
        }
        placement.reserve(*((arrays.of[name], [max(8, nbytes)]) for name, nbytes in sizes.items()))
        struct = self.arguments[0]
        point_rows(struct["out"], out_rows)
        if weighted:
            assert out_rows.weights is not None
            struct["out_weights"] = out_rows.weights.pointer
        struct["vertices"] = vertices.pointer
        for name in sizes:
            struct[name] = arrays.of[name][part].pointer
        struct["is_directed"] = directed
        self.lay_out()
