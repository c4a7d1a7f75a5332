"""Connected components on GPUs: fills in the arguments of components.cuh, runs it, and downloads labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import pairwise, permutations
from time import perf_counter
from typing import Any, Literal

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import DeviceError, GraphTooLargeError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type, compile_meanwhile
from godwit.runtime.cuda.slices import KeptOutcomes
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.runtime.statistics import RunStatistics
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.process_exchange import ProcessExchange
from godwit.supersteps.results import VertexValues, compile_delivery
from godwit.supersteps.rows import RowClass, StepRows
from godwit.supersteps.run import (
    StepPlan,
    copies_by_host,
    count_work,
    left_rows_bytes,
    point_rows,
    step_source,
)

ARGUMENTS = struct_dtype("algorithms/components/components.cuh", "Arguments")

MERGES = {"none": 0, "tree": 1, "direct": 2}
"""``MERGE`` of union_find.cuh."""

GROUP = 128
"""Rows of a group, of which tiles consist: ``GROUP`` of tiles.cuh."""
LEAST_ROWS = 4096
"""Rows of a tile below which tiles do not pay: they add a phase, and the run is short anyway."""
LEAST_SHARE = 0.5
"""Share of arcs within half a tile's distance from which tiles pay."""


class Phase(IntEnum):
    """``ComponentPhase`` of the kernel, as far as the host looks at it."""

    COMPRESS, MERGE_FORESTS, LOWER_LABELS = 2, 7, 9


class Word(IntEnum):
    """Words of ``control->state``: ``ComponentState`` of the kernel, as far as the host looks at it."""

    DISTANCE, IS_MERGED = 2, 3


class Count(IntEnum):
    """Indices of the counts of a block; ``ComponentCount`` of the kernel."""

    ROWS_DONE, ARCS_SEEN, ROOT, VOTES, COMPONENTS = range(5)


_UNBOUNDED = 2**64 - 1
_SAMPLE = 1024
_ALIKE = 0.15
"""Standard deviation over mean of degrees: 0.07 in a 3-D stencil, 0.22 in a Delaunay triangulation."""
_MAX_TILE_BYTES = 192 << 10  # the rest of a multiprocessor's memory caches the rows
_STATIC_BYTES = 1024  # upper bound of the kernel's other shared memory
_WORD_BYTES = 4


@dataclass(frozen=True)
class UnionQuery:
    """A checked query of a graph that has vertices.

    :param is_sampled: True to leave out the rows of the largest component (Afforest)
    :param splices: True for Rem's algorithm, False for hooks of roots
    :param rounds: neighbours of every vertex after the first that are linked before the sample, or rounds
        of hooking without atomics before the atomic one
    :param more_rounds: further neighbours, linked one at a time while sampled vertices are in many trees
    :param jumps: steps that vertices move up their tree after each of the ``rounds``; None: up to the root
    :param merge: ``"tree"``: each device makes trees of all vertices by its own arcs, and these are merged
        in pairs of devices; ``"direct"``: all devices hook parents that lie in their owners' memory
    :param location: of the labels
    :param dtype: of the labels
    :param gpu: how kernels are run
    :param reverses: in-rows of directed graphs may be made, so that rows can be left out there, too
    """

    is_sampled: bool
    splices: bool
    rounds: int
    more_rounds: int
    jumps: int | None
    merge: Literal["auto", "tree", "direct"]
    location: ResultLocation
    dtype: np.dtype[Any]
    gpu: GpuOptions
    reverses: bool = False


@dataclass
class UnionOutcome:
    """Labels, work and times of a query.

    :param labels: (n) the smallest vertex of each vertex's component
    :param outcomes: of the devices
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    labels: Any
    outcomes: KeptOutcomes
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def count(self) -> Callable[[RunStatistics], object]:
        """Function that fills in counts: of rows that each device processed, and arcs that it looked at."""
        return partial(count_work, self.outcomes, Count.ROWS_DONE, Count.ARCS_SEEN)

    @property
    def components(self) -> int:
        """Number of components whose roots are on these devices."""
        return int(self.outcomes.array()["run_counts"][:, Count.COMPONENTS].sum())


def source(
    id_dtype: Any, merge: str, *, splices: bool, tiled: bool = False, by_host: bool = False
) -> str:
    """Return the source of the kernel.

    :param merge: one of :data:`MERGES`
    :param tiled: True if trees begin in tiles (tiles.cuh)
    :param by_host: the host copies what devices send
    """
    types = {"Id": c_type(np.dtype(id_dtype))}
    text = step_source(
        "algorithms/components/components.cuh", types=types, enums=(Phase, Word, Count),
        work="grid_components",
    )  # fmt: skip
    flags = {"SPLICES": splices, "TILED": tiled} | ({"BY_HOST": True} if by_host else {})
    defined = {"MERGE": MERGES[merge], **{name: str(flag).lower() for name, flag in flags.items()}}
    return "".join(f"#define {name} {value}\n" for name, value in defined.items()) + text


class LabelArrays:
    """The arrays of components, kept on the devices between queries.

    :ivar other_parents: where the host copies: another device's ``parents``
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.labels = DeviceArray(placement)
        self.parents = DeviceArray(placement)
        self.other_parents = DeviceArray(placement)
        self.left_rows = DeviceArray(placement)
        self.row_bits = DeviceArray(placement)


def label_on_gpus(
    placement: StepPlacement, query: UnionQuery, poll: ProgressPoll | None
) -> UnionOutcome:
    """Return the smallest vertex of every vertex's component.

    :raises GraphTooLargeError: need against free, or more vertices than the kernel counts
    :raises DeviceError: devices whose atomics do not reach each other's memory, or that wait in vain
    """
    if not copies_by_host(placement, query.gpu):
        _require_atomics(placement)
    if placement.capacity >= 1 << 32:
        raise GraphTooLargeError(
            f"a device would own {placement.capacity:,} vertices, and components take fewer than "
            f"{1 << 32:,} a device; use more GPUs"
        )
    with placement.held():
        seconds: dict[str, float] = {}
        options = (
            query.is_sampled, query.splices, query.rounds, query.more_rounds, query.jumps,
            query.reverses,
        )  # fmt: skip
        key = ("components", query.gpu, query.merge, *options)
        plan = placement.plan(key, lambda: _LabelPlan(placement, query, seconds))
        labels = plan.values_at(
            query.location,
            lambda: VertexValues(
                placement, plan.arrays.labels, placement.id_dtype, query.location,
                result_dtype=query.dtype, exchange=plan.exchange,
            ),
        )  # fmt: skip
        seconds["kernel"] = plan.run(early=True, poll=poll, behind=labels.start)
        outcomes = plan.kept_outcomes()
        found, seconds["gather"] = labels.gather()
    return UnionOutcome(found, outcomes, seconds)


class _LabelPlan(StepPlan[StepPlacement]):
    """Components of a placement for one set of options.

    :param seconds: gets the time of making rows, and of loading the kernel
    """

    def __init__(
        self, placement: StepPlacement, query: UnionQuery, seconds: dict[str, float]
    ) -> None:
        by_host = copies_by_host(placement, query.gpu)
        tiled = not by_host and not placement.any(not is_tiled(placement, query))
        merge = "tree" if by_host else _merge_of(placement, query, tiled)
        begin = perf_counter()
        code = source(
            placement.id_dtype, merge, splices=query.splices, tiled=tiled, by_host=by_host
        )
        compile_meanwhile(placement.indexes[0], code)
        compile_delivery(placement, placement.id_dtype, result_dtype=query.dtype)
        rows = placement.rows("out")
        in_rows = _in_rows(placement, query)
        heads = placement.first_neighbours() if in_rows else placement.heads("out")
        placement.vertices()
        seconds["rows"] = perf_counter() - begin
        arguments = np.zeros(len(placement.parts), ARGUMENTS)
        super().__init__(placement, code, arguments, query.gpu)
        seconds["compile"] = self.compile_s
        self.arrays = placement.kept(LabelArrays)
        _allocate(placement, query, merge, tiled, by_host, rows, in_rows, arguments)
        arguments["vertices"] = self.exchange.broadcast_pointers(placement.vertex_of)
        arguments["heads"] = self.exchange.broadcast_pointers(heads)
        arguments["parents"] = self.exchange.broadcast_pointers(self.arrays.parents)
        if by_host:
            (part,) = placement.parts
            own = arguments["parents"][0, part.device]
            arguments["parents"][0, :] = self.arrays.other_parents[part].pointer
            arguments["parents"][0, part.device] = own
            self.exchange_on_host = self._host_copies
        arguments["labels"] = self.exchange.broadcast_pointers(self.arrays.labels)
        if tiled:
            _lay_tiles(placement, self, arguments)
        self.lay_out()

    def _host_copies(self, last: int, coming: int, state: Array) -> None:
        """Copy between the devices of processes after the superstep ``last``, where hosts do so."""
        exchange, arrays, count = self.exchange, self.arrays, self.placement.device_count
        assert isinstance(exchange, ProcessExchange)
        sources: dict[int, int] = {}
        if coming == Phase.MERGE_FORESTS:
            distance = int(state[Word.DISTANCE])
            sources = {
                device: device + distance for device in range(0, count - distance, 2 * distance)
            }
        elif last == Phase.COMPRESS and state[Word.IS_MERGED]:
            sources = dict.fromkeys(range(1, count), 0)
        if sources:
            nbytes = int(self.arguments["words"][0]) * self.placement.id_dtype.itemsize
            exchange.carry(arrays.parents, nbytes, sources, arrays.other_parents)
        if last == Phase.LOWER_LABELS:
            exchange.lower(arrays.labels, self.placement.id_dtype)


def _require_atomics(placement: StepPlacement) -> None:
    """Raise DeviceError if atomics do not work over a link: every merge lowers labels at their owners."""
    for here, there in permutations(sorted(set(placement.indexes)), 2):
        if not driver.peer_attribute("native_atomics", here, there):
            raise DeviceError(
                f"atomics of cuda:{here} do not work in the memory of cuda:{there}, as connected "
                "components on several GPUs need: use one GPU, or method='label-propagation'"
            )


def _merge_of(placement: StepPlacement, query: UnionQuery, tiled: bool) -> str:
    """Choose how devices merge, by measurements (docs/component-experiments.md).

    Directly where little goes over the links: most arcs stay on their device; tiles, or rounds without
    atomics whose trees were compressed, have joined what is near; the rows of a graph with hubs are left
    out; or hooks stay near, as the order of ids was kept, since rows are short or all of one length. Else
    nearly every arc reads the parents of both ends, half of which are remote, and forests are merged.
    """
    if placement.device_count == 1:
        return "none"
    if query.merge != "auto":
        return query.merge
    numbering = placement.numbering
    if tiled or numbering.stays_near:
        return "direct"
    stays_near = not query.splices and _has_equal_degrees(placement)
    if query.is_sampled:
        has_hubs = bool((numbering.classes[:, 1] > 0).any())
        stays_near = stays_near or has_hubs or not numbering.by_degree
    elif query.rounds > 0 and query.jumps != 0:
        stays_near = stays_near or not numbering.by_degree
    return "direct" if stays_near else "tree"


def _has_equal_degrees(placement: StepPlacement) -> bool:
    """Return True if the degrees of sampled vertices are about the same."""
    offsets = placement.graph.offsets
    sample = np.linspace(0, len(offsets) - 2, _SAMPLE).astype(np.int64)
    degrees = offsets[sample + 1] - offsets[sample]
    degrees = degrees[degrees > 0]
    return len(degrees) > 0 and bool(degrees.std() < _ALIKE * degrees.mean())


def _in_rows(placement: StepPlacement, query: UnionQuery) -> list[StepRows]:
    """Return the in-rows of a directed graph if the query is sampled, and they are wanted and fit."""
    if not (query.reverses and query.is_sampled and placement.is_directed):
        return []
    try:
        rows = placement.rows("in")
    except GraphTooLargeError:
        rows = []
    return [] if placement.any(not rows) else rows


def _allocate(
    placement: StepPlacement, query: UnionQuery, merge: str, tiled: bool, by_host: bool,
    rows: list[StepRows], in_rows: list[StepRows], arguments: Array,
) -> None:  # fmt: skip
    """Allocate buffers, and fill in each device's local arguments.

    :param in_rows: of each device, or none
    :raises GraphTooLargeError: need against free
    """
    active = [int(part_rows.classes[RowClass.CLASS_NONE]) for part_rows in rows]
    words = active
    if merge == "tree":  # a whole forest has a word for every vertex of every device
        most = int(placement.numbering.classes[:, RowClass.CLASS_NONE].max())
        words = [placement.device_count * (placement.capacity if tiled else most)] * len(rows)
    id_bytes = placement.id_dtype.itemsize
    arrays = placement.kept(LabelArrays)
    placement.reserve(
        (arrays.labels, [id_bytes * placement.count] * len(rows)),
        (arrays.parents, [id_bytes * count for count in words]),
        *([(arrays.other_parents, [id_bytes * count for count in words])] if by_host else []),
        (
            arrays.left_rows,
            [
                max(left_rows_bytes("mixed", each, placement.capacity) for each in own)
                for own in zip(rows, in_rows or rows, strict=True)
            ],
        ),
        (arrays.row_bits, [row_bits_bytes(count) if tiled else 0 for count in active]),
    )
    is_directed = placement.is_directed
    for place, part in enumerate(placement.parts):
        own = arguments[place]
        point_rows(own["rows"], rows[place])
        if in_rows:
            point_rows(own["in_rows"], in_rows[place])
        own["long_rows"] = arrays.left_rows[part].pointer
        # In directed graphs classes are of in-degrees.
        own["has_long_rows"] = is_directed or rows[place].classes[RowClass.CLASS_WARP] > 0
        own["words"] = words[place]
        own["rounds"], own["more_rounds"] = query.rounds, query.more_rounds
        own["jumps"] = _UNBOUNDED if query.jumps is None else query.jumps
        own["is_sampled"], own["is_directed"] = query.is_sampled, is_directed


def is_tiled(placement: StepPlacement, query: UnionQuery) -> bool:
    """Return True if trees begin in tiles: neighbours are near, and all arcs are linked once."""
    if placement.numbering.by_degree or query.is_sampled or query.rounds:
        return False
    rows = min(
        min(
            _max_tile_bytes(part.index) // _WORD_BYTES,
            part.active // driver.properties(part.index).multiprocessors,
        )
        for part in placement.parts
    )
    return rows >= LEAST_ROWS and _share_of_near_arcs(placement, rows // 2) >= LEAST_SHARE


def row_bits_bytes(active: int) -> int:
    """Return the size of the two bits per row with arcs."""
    return 2 * -(-active // GROUP) * GROUP // 8


def _lay_tiles(placement: StepPlacement, plan: StepPlan[StepPlacement], arguments: Array) -> None:
    """Choose the size of tiles so that all blocks of a device have the same number of full ones."""
    is_ascending = _is_ascending(placement)
    row_bits = placement.kept(LabelArrays).row_bits
    for place, part in enumerate(placement.parts):
        max_bytes = _max_tile_bytes(part.index)
        blocks = plan.blocks_with(place, max_bytes)
        max_rows = max_bytes // _WORD_BYTES // GROUP * GROUP
        rounds = max(1, -(-part.active // (blocks * max_rows)))
        tile = max(1, -(-part.active // (blocks * rounds * GROUP))) * GROUP
        own = arguments[place]
        own["tile"], own["row_bits"] = tile, row_bits[part].pointer
        own["is_ascending"] = is_ascending
        plan.shared_bytes = max(plan.shared_bytes, _WORD_BYTES * tile)


def _max_tile_bytes(index: int) -> int:
    """Return the largest size of a tile in a GPU's shared memory."""
    return min(driver.properties(index).shared_bytes - _STATIC_BYTES, _MAX_TILE_BYTES)


def _share_of_near_arcs(placement: StepPlacement, distance: int) -> float:
    """Return the share of sampled vertices' first arcs that stay on the device and within a distance."""
    graph, position = placement.graph, placement.numbering.position
    sample: Any = np.linspace(0, graph.vertex_count - 1, _SAMPLE).astype(np.int64)
    sample = sample[graph.offsets[sample + 1] > graph.offsets[sample]]
    if len(sample) == 0:
        return 1.0
    here = position[sample].astype(np.int64)
    there = position[graph.targets[graph.offsets[sample]]].astype(np.int64)
    is_own = here // placement.capacity == there // placement.capacity
    return float(np.mean(is_own & (np.abs(here - there) <= distance)))


def _is_ascending(placement: StepPlacement) -> bool:
    """Return True if vertex numbers ascend with positions, over the vertices that have arcs."""
    ends: list[tuple[int, int]] = []
    numbering = placement.numbering
    for device, classes in enumerate(numbering.classes):
        if np.count_nonzero(np.diff(classes[: RowClass.CLASS_NONE + 1])) > 1:
            return False  # they ascend within a class
        if active := int(classes[RowClass.CLASS_NONE]):
            vertices = numbering.vertices(device)
            ends.append((int(vertices[0]), int(vertices[active - 1])))
    return all(last < first for (_, last), (first, _) in pairwise(ends))
