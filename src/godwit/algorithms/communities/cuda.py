"""Label propagation on one GPU: arguments and results of labels.cuh."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from godwit.algorithms.communities.cuda_summary import (
    CommunitySummary,
    Summary,
    require_short_labels,
)
from godwit.algorithms.communities.levels import LABEL_CLASSES, class_count, first_word
from godwit.arrays import ResultLocation
from godwit.graph.facts import in_offsets
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.polling import RunPoll
from godwit.supersteps.one_gpu import OneGpuPlan, compiling
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.run import (
    STEP,
    left_rows_bytes,
    point_rows,
    state_words,
    step_source,
)

ARGUMENTS = struct_dtype("algorithms/communities/labels.cuh", "Arguments")

_WARP_SLOTS = 512
_WARP_ARCS = _WARP_SLOTS // 2
_CHUNK_ARCS = 256
_CHUNK_SLOTS = 2 * _CHUNK_ARCS
_PART_BYTES = 32
_LISTED_BYTES = 24
_MOST_BINS = 3 * LABEL_CLASSES  # these as in labels.cuh
_COUNTERS_BYTES = 8 * LABEL_CLASSES + 3 * 4 * _MOST_BINS
_MOST_ARENA_BYTES = 1 << 28
"""Upper limit of the tables of long rows, unless one alone is larger."""


class Phase(IntEnum):
    """``LabelPhase`` of the kernel."""

    (
        LABEL_BEGIN, LABEL_COUNT, LABEL_LIST, LABEL_DECIDE, LABEL_ADD, LABEL_CHOOSE, LABEL_TAKE,
        LABEL_LINK, LABEL_LINKED, LABEL_SPLIT, LABEL_NAME,
    ) = range(11)  # fmt: skip


class Word(IntEnum):
    """Words of ``control->state``: ``LabelState`` of the kernel."""

    SEED, ROUNDS, ROUND, START, MOVED, CLASS, PREVIOUS, LONG_BEGIN, LONG_END, CLASSES = range(10)


class Count(IntEnum):
    """Indices of the counts of a block: ``LabelCount`` of the kernel."""

    VISITED, MOVES, WITHIN = range(3)


@dataclass
class LabelOutcome:
    """Communities, work and times of a query.

    :param visited: visits of vertices
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``summary`` (numbers of communities, sizes,
        modularity), ``gather``
    """

    summary: Summary
    visited: int
    supersteps: int
    seconds: dict[str, float] = field(default_factory=dict)


def source(id_dtype: Any, *, weighted: bool, cdlp: bool) -> str:
    """Return the source of the kernel.

    :param id_dtype: of positions
    """
    flags = f"constexpr bool WEIGHTED = {str(weighted).lower()}, IS_CDLP = {str(cdlp).lower()};\n"
    text = step_source(
        "algorithms/communities/labels.cuh",
        types={
            "Id": c_type(np.dtype(id_dtype)),
            "WeightSum": "u64" if weighted else "u32",
            "TableSlot": "u32" if weighted else "u64",
        },
        work="grid_labels",
        enums=(Phase, Word, Count),
    )
    return flags + text


def labels_on_gpu(
    placement: StepPlacement,
    weighted: bool,
    cdlp: bool,
    iterations: int,
    seed: int,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: RunPoll | None,
) -> LabelOutcome:
    """Propagate labels in a graph that has vertices, and is on one device.

    :param weighted: by weights, which are int64
    :param location: where arrays of the result are to be
    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    """
    require_short_labels(placement)
    with placement.held():
        plan = placement.plan(
            ("labels", gpu, weighted, cdlp), lambda: _LabelPlan(placement, weighted, cdlp, gpu)
        )
        # Memory of the summary is taken now: if it is too short, nothing has been computed.
        communities = CommunitySummary(placement, gpu, poll, weighted=weighted)
        state = state_words([first_word(seed), iterations])
        control = plan.ask(state, phase=Phase.LABEL_BEGIN, poll=poll)
        seconds = plan.seconds
        visited, inside = (
            int(control["run_counts"][which]) for which in (Count.VISITED, Count.WITHIN)
        )
        if cdlp:  # the one list serves all iterations, in which vertices without arcs stay
            visited = placement.vertex_count * iterations
        supersteps = int(control["state"][STEP])
        if poll is not None:
            poll.before += visited
        summary = communities.number(
            plan.array("label"), location, named=cdlp, inside=None if cdlp else inside
        )
    for phase, taken in communities.seconds.items():
        name = "summary" if phase in ("kernel", "sort") else phase
        seconds[name] = seconds.get(name, 0.0) + taken
    return LabelOutcome(summary, visited, supersteps, seconds)


class _LabelPlan(OneGpuPlan):
    """Label propagation in a placement on one device."""

    def __init__(
        self, placement: StepPlacement, weighted: bool, cdlp: bool, gpu: GpuOptions
    ) -> None:
        text = source(placement.id_dtype, weighted=weighted, cdlp=cdlp)
        directed = placement.stored_direction("in", weighted=weighted) == "in"
        with compiling(placement, text) as prepared:
            (out_rows,) = placement.rows("out", weighted)
            (in_rows,) = placement.rows("in", weighted) if directed else (out_rows,)
            (vertices,) = placement.vertices()
        super().__init__(placement, prepared, ARGUMENTS, gpu, "labels")
        key_bytes, sum_bytes = (4, 8) if weighted else (8, 0)
        slot_bytes = key_bytes + sum_bytes
        self.shared_bytes = _WARP_SLOTS * (self._threads // 32) * slot_bytes
        blocks = self.blocks_with(self.part.device, self.shared_bytes)
        chunks, arena_chunks = _long_chunks(placement, directed, slot_bytes)
        n = placement.capacity
        self.allocate(
            {
                **dict.fromkeys(("label", "chosen", "parent"), 4 * n),
                "listed": _LISTED_BYTES * n,
                "active": n + 4,
                "firsts": 4 * _MOST_BINS * blocks,
                "chunks": 4 * n if chunks else 0,
                "arena_keys": key_bytes * _CHUNK_SLOTS * arena_chunks,
                "arena_sums": sum_bytes * _CHUNK_SLOTS * arena_chunks,
                "parts": _PART_BYTES * chunks,
                "long_rows": left_rows_bytes("mixed", out_rows, n),
                "counters": _COUNTERS_BYTES,
            }
        )
        struct = self.struct
        point_rows(struct["out"], out_rows)
        point_rows(struct["in"], in_rows)
        if weighted:
            assert out_rows.weights is not None
            assert in_rows.weights is not None
            struct["out_weights"] = out_rows.weights.pointer
            struct["in_weights"] = in_rows.weights.pointer
        struct["vertices"] = vertices.pointer
        arcs = out_rows.arcs + (in_rows.arcs if directed else 0)
        struct["classes"] = 1 if cdlp else class_count(placement.vertex_count, arcs, LABEL_CLASSES)
        struct["arena_chunks"], struct["is_directed"] = arena_chunks, directed
        struct["loops"] = 1 if placement.graph.directed else 2
        self.lay_out()


def _long_chunks(placement: StepPlacement, directed: bool, slot_bytes: int) -> tuple[int, int]:
    """Return the number of chunks of all long rows, and of those that tables have room for at once."""
    graph = placement.graph
    degrees = np.diff(graph.offsets)
    if directed:
        degrees = degrees + np.diff(in_offsets(graph))
    chunks = -(-degrees[degrees > _WARP_ARCS] // _CHUNK_ARCS)
    total = int(chunks.sum())
    room = max(int(chunks.max(initial=0)), _MOST_ARENA_BYTES // (_CHUNK_SLOTS * slot_bytes))
    return total, min(total, room)
