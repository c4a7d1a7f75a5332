"""Sums of Brandes' dependencies on GPUs: fills in the arguments of betweenness.cuh, runs it, gathers sums.

All blocks of all devices do one search at a time. With enough sources each GPU has the whole graph and a
share of the sources, and does one search at a time, or one per block, each in memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import ClosedContextError, GraphTooLargeError
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES, c_type
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.results import deliver_arcs, deliver_positions
from godwit.supersteps.rows import RowClass, StepRows
from godwit.supersteps.run import (
    PEERS,
    ROWS,
    STAGE,
    STEP,
    THREADS,
    StepPlan,
    copies_by_host,
    point_rows,
    state_words,
    step_source,
)

LIGHT_VERTICES, LIGHT_ARCS = 512, 4096
"""A level with at most so many vertices and arcs is processed by one block alone."""
DENSE_FACTOR = 4
"""Dense search pays if the arcs of the previous level times this exceed the unseen arcs."""
BLOCK_SEARCH_ARCS = 1 << 25
"""Largest graph for searches by single blocks: the bitmaps of all searches stay in a GPU's cache."""
ARCS_PER_SOURCE = 45_000
"""Arcs per source below which a block's own search, which is slow but waits for no other block, pays."""
LEAST_LONG_SOURCES = 8
"""Sources from which it pays on roads, whose levels are many and small."""
SOURCES_PER_COPY = 8
"""Sources per GPU that pay for copying the whole graph there."""

_LONG_ROW = 4096  # as in search.cuh
_SETS = 4
_STATE_COUNT, _DENSE_BEGIN, _DENSE_END = 6, 3, 4
_STATE_PHASE, _FAILED, _ALL_COUNT, _ALL_ARCS = 8, 9, 10, 11
_NO_DEPTH = 0xFFFFFFFF
_BEGIN, _ROUND = 0, 5
_COUNTERS_BYTES = 8 * (2 + 4 * MAXIMAL_DEVICES + 32)
_MAX_PER_ROUND = 16
_ROUND_ARCS = 1 << 24
_SPARE_SHARE = 8
"""1 / the share of free memory that searches of blocks leave free."""

_ARRAYS = (
    "visited", "sets", "values", "depths", "order", "taken", "ends", "taken_ends", "lights", "inbox",
    "counters", "centrality", "edges",
)  # fmt: skip
_LONG_ROWS = np.dtype([("rows", np.uint64), ("count", np.int64)])

ARGUMENTS = np.dtype(
    [
        ("stage", STAGE),
        ("out", ROWS),
        ("in", ROWS),
        ("long_out", _LONG_ROWS),
        ("long_in", _LONG_ROWS),
        ("sources", np.uint64),
        ("centrality", np.uint64),
        ("edges", np.uint64),
        ("subscribers", np.uint64),
        ("searches", PEERS),
        ("layout", [(name, np.int64) for name in (*_ARRAYS, "nbytes")]),
        ("words", np.int64),
        ("source_count", np.uint64),
        ("arcs", np.uint64),
        ("mean_degree", np.uint64),
        ("light_vertices", np.uint64),
        ("light_arcs", np.uint64),
        ("dense_factor", np.uint64),
        ("block_searches", np.uint32),
        ("sources_a_round", np.uint32),
        ("endpoints", np.uint32),
        ("is_by_degree", np.uint32),
        ("is_directed", np.uint32),
        ("has_long_rows", np.uint32),
    ]
)
"""``Arguments`` of search.cuh."""


@dataclass(frozen=True)
class DependencyQuery:
    """A checked query of a graph that has vertices.

    :param sources: int64 (k), at least one valid vertex
    :param endpoints: a path counts for its two ends, too
    :param edges: sum dependencies on arcs as well
    :param gpu: how kernels are run
    """

    sources: Array
    endpoints: bool
    edges: bool
    gpu: GpuOptions


@dataclass
class DependencyOutcome:
    """Sums over all sources, in the graph's order, and the work they took.

    :param vertices: float64 (n), dependencies on each vertex; None if numbers of paths were too large for
        float64, and the outcome is useless
    :param arcs: float64 (m), dependencies on each arc, or None
    :param visited: vertices reached by each device, over all searches
    :param examined: arcs of these, by device, as on the CPU; work that devices did together is the first's
    :param supersteps: supersteps of each device
    :param block_searches: number of concurrent searches of a device, each by a block; 0: all blocks,
        perhaps of several devices, did one search together
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    vertices: Array | None
    arcs: Array | None
    visited: Array
    examined: Array
    supersteps: Array
    block_searches: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def source(id_dtype: np.dtype[Any]) -> str:
    """Return the source of the kernel."""
    types = {"Id": c_type(id_dtype)}
    return step_source(
        "algorithms/betweenness/betweenness.cuh", ARGUMENTS, types=types, work="grid_betweenness"
    )


def sum_on_gpus(
    placement: StepPlacement, query: DependencyQuery, poll: ProgressPoll | None
) -> DependencyOutcome:
    """Sum the dependencies on all vertices over the sources.

    :raises GraphTooLargeError: need against free, before anything but rows is allocated
    """
    by_host = copies_by_host(placement, query.gpu)
    sources = len(query.sources)
    apart = min(sources, len(set(placement.indexes))) if by_host else gpus_apart(placement, sources)
    if apart:
        try:
            return _run_apart(placement, apart, query, poll)
        except GraphTooLargeError as error:  # for one GPU
            placement.copies_fit = False
            placement.drop_copies()
            if by_host:
                raise GraphTooLargeError(
                    f"{error}. GPUs that do not reach each other's memory search apart, each with the "
                    "whole graph"
                ) from error
    return _run(placement, query, poll)


def gpus_apart(placement: StepPlacement, sources: int) -> int:
    """Return the number of GPUs that search on their own copy of the graph; 0 if all search together."""
    if len(placement.indexes) == 1 or not placement.copies_fit:
        return 0
    gpus = len(set(placement.indexes))
    blocks = driver.properties(placement.indexes[0]).multiprocessors
    if _blocks_pay(placement, sources, blocks):
        return min(gpus, -(-sources // blocks))
    return gpus if sources >= SOURCES_PER_COPY * gpus else 0


def _blocks_pay(placement: StepPlacement, sources: int, blocks: int) -> bool:
    """Return True if it is faster for blocks to do a search each than to do one together."""
    if sources < 2:
        return False
    if not placement.numbering.classes[
        :, RowClass.CLASS_THREAD
    ].any():  # no row of more than 4 arcs
        return sources >= LEAST_LONG_SOURCES
    arcs = placement.graph.arc_count
    return arcs <= BLOCK_SEARCH_ARCS and sources >= min(blocks, arcs / ARCS_PER_SOURCE)


def _run_apart(
    placement: StepPlacement, gpus: int, query: DependencyQuery, poll: ProgressPoll | None
) -> DependencyOutcome:
    """Search from a share of the sources on each GPU."""
    while True:
        copies = placement.copies(gpus)
        try:
            outcome = _run(copies, query, poll)
            break
        except ClosedContextError:  # another thread has dropped them
            if placement.closed:
                raise
    if copies.is_narrow():  # memory is needed for other queries
        placement.drop_copies()
    for name in ("visited", "examined", "supersteps"):
        counts = np.zeros(len(placement.indexes), np.int64)
        counts[copies.devices] = getattr(outcome, name)
        setattr(outcome, name, counts)
    return outcome


def _run(
    placed: StepPlacement | StepCopies, query: DependencyQuery, poll: ProgressPoll | None
) -> DependencyOutcome:
    """Search from all sources, each by the devices of one placement together."""
    placements = placed.placements
    code = source(placements[0].id_dtype)
    arguments = np.zeros(len(placed.parts), ARGUMENTS)
    with placed.held():
        teams = [
            _SearchTeam(
                placement, replace(query, sources=query.sources[place :: len(placements)]), own
            )
            for place, (placement, own) in enumerate(
                zip(placements, np.split(arguments, len(placements)), strict=True)
            )
        ]
        plan = StepPlan[StepPlacement | StepCopies](placed, code, arguments, query.gpu)
        try:
            block_searches = _choose_block_searches(teams, plan, len(query.sources))
            for team, count in zip(teams, block_searches, strict=True):
                team.upload(count)
            state = [0] * 12
            state[_STATE_COUNT] = 1
            state[_DENSE_BEGIN] = state[_DENSE_END] = _NO_DEPTH
            phase = state[_STATE_PHASE] = _ROUND if block_searches[0] else _BEGIN
            plan.lay_out()
            kernel_s = plan.run(state_words(state), phase=phase, poll=poll)
            controls = plan.controls()
        finally:
            plan.close()
        seconds = {
            "rows": sum(team.rows_s for team in teams),
            "compile": plan.compile_s,
            "kernel": kernel_s,
        }
        words = controls["state"]
        vertices = arcs = None
        if not words[:, _FAILED].any():
            begin = perf_counter()
            vertices = _sum(team.vertices() for team in teams)
            seconds["gather"] = perf_counter() - begin
            if query.edges:
                arcs = _sum(team.edges() for team in teams)
    # Devices that search together all count the same work.
    is_counted = np.arange(len(words)) % placed.group_size == 0
    return DependencyOutcome(
        vertices,
        arcs,
        visited=np.where(is_counted, words[:, _ALL_COUNT], 0).astype(np.int64),
        examined=np.where(is_counted, words[:, _ALL_ARCS], 0).astype(np.int64),
        supersteps=words[:, STEP].astype(np.int64),
        block_searches=max(block_searches),
        seconds=seconds,
    )


def _choose_block_searches(
    teams: Sequence[_SearchTeam], plan: StepPlan[StepPlacement | StepCopies], sources: int
) -> list[int]:
    """Return the number of blocks of each team with searches of their own; 0 if blocks search together."""
    if teams[0].devices > 1:
        return [0]
    threads = max(64, teams[0].query.gpu.threads or THREADS)
    blocks = [plan.blocks_for(place, threads) for place in range(len(teams))]
    if not _blocks_pay(teams[0].placement, sources, min(blocks)):
        return [0] * len(teams)
    counts = [team.block_searches_at_most(most) for team, most in zip(teams, blocks, strict=True)]
    return counts if all(counts) else [0] * len(counts)


def _sum(arrays: Iterator[Array]) -> Array:
    total = next(arrays)
    for other in arrays:
        total += other
    return total


class SearchArrays:
    """The arrays of searches, kept on the devices between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.searches = DeviceArray(placement)
        self.sums = DeviceArray(placement)
        self.arc_sums = DeviceArray(placement)
        self.sources = DeviceArray(placement)
        self.long_out = DeviceArray(placement)
        self.long_in = DeviceArray(placement)


class _SearchTeam:
    """Devices that do each search together, with their rows, buffers and arguments.

    :param arguments: (devices) :data:`ARGUMENTS`, filled in by :meth:`upload`
    """

    def __init__(self, placement: StepPlacement, query: DependencyQuery, arguments: Array) -> None:
        self.placement = placement
        self.query = query
        self.arguments = arguments
        self.positions = placement.position(query.sources).astype(placement.id_dtype)
        self.arrays = placement.kept(SearchArrays)
        self.block_searches = 0
        begin = perf_counter()
        # Sums of arcs are gathered by the position of arcs in the graph's rows.
        ordered = query.edges
        self.out = placement.rows("out", ordered=ordered)
        directed = placement.is_directed
        self.into = placement.rows("in") if directed else self.out
        self.is_by_degree = directed or not ordered
        self.long_out = [self._long_rows(place, self.out[place]) for place in range(self.devices)]
        # Paths come along arcs in, coefficients along arcs out.
        selects = self.devices > 1 and query.gpu.communication == "selective"
        self.subscribers = placement.subscriber_masks("in", "out") if selects else None
        self.rows_s = perf_counter() - begin

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.placement.parts)

    def _long_rows(self, place: int, rows: StepRows) -> Array:
        """Return the own indexes of the longest out-rows; classes are by in-degree."""
        if not self.placement.is_directed:
            return _first(int(rows.classes[RowClass.CLASS_BLOCK]), self.placement.id_dtype)
        offsets = rows.offsets.download(np.int64, self.placement.parts[place].owned + 1)
        return np.flatnonzero(np.diff(offsets) > _LONG_ROW).astype(self.placement.id_dtype)

    def upload(self, block_searches: int) -> None:
        """Allocate buffers, and fill in the arguments.

        :param block_searches: as of :class:`DependencyOutcome`
        :raises GraphTooLargeError: need against free
        """
        placement = self.placement
        self.block_searches = block_searches
        layouts = [self._layout(part, rows) for part, rows in self._each()]
        # Offsets are the same on all devices, which address each other's arrays.
        layout = {name: max(one[name] for one in layouts) for name in (*_ARRAYS, "nbytes")}
        if self.block_searches:
            layout = self._layout(placement.parts[0], self.out[0], is_block=True)
        search_bytes = layout["nbytes"] * max(1, self.block_searches)
        placement.reserve(*self._needs(search_bytes))
        for place, part in enumerate(placement.parts):
            self._fill(place, part, layout)
        self.arguments["searches"] = self.arrays.searches.pointers

    def _each(self) -> list[tuple[StepPart, StepRows]]:
        return list(zip(self.placement.parts, self.out, strict=True))

    def _needs(self, search_bytes: int) -> list[tuple[DeviceArray, list[int]]]:
        """Return the bytes of each array on each device, as :meth:`StepPlacement.reserve` takes them."""
        arrays, count = self.arrays, self.placement.count
        id_bytes = self.placement.id_dtype.itemsize
        needs = [
            (arrays.searches, [search_bytes] * self.devices),
            (arrays.sums, [8 * count] * self.devices),
            (arrays.sources, [self.positions.nbytes] * self.devices),
            (arrays.long_out, [max(1, rows.nbytes) for rows in self.long_out]),
            (
                arrays.long_in,
                [max(1, id_bytes * int(rows.classes[RowClass.CLASS_BLOCK])) for rows in self.into],
            ),
        ]
        if self.query.edges:
            needs.append((arrays.arc_sums, [8 * rows.arcs for rows in self.out]))
        return needs

    def _layout(self, part: StepPart, rows: StepRows, *, is_block: bool = False) -> dict[str, int]:
        """Return the offset of each array in the memory of a search, and the size of that."""
        placement = self.placement
        words, ids = placement.count // 32, placement.id_dtype.itemsize
        levels = placement.vertex_count + 3
        others = self.devices > 1
        owned = max(1, part.owned)
        sizes = {
            "visited": 4 * words,
            "sets": 4 * words * _SETS,
            "values": 8 * placement.count,
            "depths": 4 * owned,
            "order": ids * owned,
            "taken": ids * owned * others,
            "ends": ids * levels,
            "taken_ends": ids * levels,
            "lights": levels,
            "inbox": ids * placement.count * others,
            "counters": _COUNTERS_BYTES,
            "centrality": 8 * owned * is_block,
            "edges": 8 * rows.arcs * is_block * self.query.edges,
        }
        layout, end = {}, 0
        for name in _ARRAYS:
            layout[name] = end
            end += -(-sizes[name] // 128) * 128
        return layout | {"nbytes": end}

    def block_searches_at_most(self, blocks: int) -> int:
        """Return the number of blocks with memory for a search each; 0 if some have none."""
        part = self.placement.parts[0]
        nbytes = self._layout(part, self.out[0], is_block=True)["nbytes"]
        free = memory.free_memory_bytes(part.index)
        free += self.arrays.searches.nbytes(part)
        free -= sum(nbytes[0] for _, nbytes in self._needs(0)) + free // _SPARE_SHARE
        wanted = min(blocks, len(self.positions))
        # With fewer, the rest of the GPU would be idle.
        return wanted if wanted * nbytes <= free else 0

    def _fill(self, place: int, part: StepPart, layout: dict[str, int]) -> None:
        placement, query = self.placement, self.query
        graph = placement.graph
        own = self.arguments[place]
        for name, rows in (("out", self.out[place]), ("in", self.into[place])):
            point_rows(own[name], rows)
        long_in = _first(int(self.into[place].classes[RowClass.CLASS_BLOCK]), placement.id_dtype)
        arrays = self.arrays
        for name, array, given in (
            ("out", arrays.long_out, self.long_out[place]),
            ("in", arrays.long_in, long_in),
        ):
            buffer = array[part]
            buffer.upload(given)
            own[f"long_{name}"]["rows"] = buffer.pointer
            own[f"long_{name}"]["count"] = len(given)
        if self.subscribers is not None:
            own["subscribers"] = self.subscribers[place].pointer
        arrays.sources[part].upload(self.positions)
        own["sources"] = arrays.sources[part].pointer
        arrays.sums[part].fill_bytes(0, 8 * placement.count)
        own["centrality"] = arrays.sums[part].pointer + 8 * part.first
        if query.edges:
            arrays.arc_sums[part].fill_bytes(0, 8 * self.out[place].arcs)
            own["edges"] = arrays.arc_sums[part].pointer
        if self.block_searches:
            arrays.searches[part].fill_bytes(0, layout["nbytes"] * self.block_searches)
        for name, offset in layout.items():
            own["layout"][name] = offset
        own["words"] = placement.count // 32
        own["source_count"] = len(self.positions)
        own["arcs"] = graph.arc_count
        own["mean_degree"] = -(-graph.arc_count // max(1, sum(p.active for p in placement.parts)))
        own["light_vertices"], own["light_arcs"] = LIGHT_VERTICES, LIGHT_ARCS
        own["dense_factor"] = DENSE_FACTOR
        own["block_searches"] = self.block_searches
        own["sources_a_round"] = min(_MAX_PER_ROUND, 1 + _ROUND_ARCS // (graph.arc_count + 1))
        own["endpoints"], own["is_by_degree"] = query.endpoints, self.is_by_degree
        own["is_directed"] = placement.is_directed
        # All devices decide alike, so each is given this for all.
        own["has_long_rows"] = any(map(len, self.long_out)) or any(
            rows.classes[RowClass.CLASS_BLOCK] for rows in self.into
        )

    def vertices(self) -> Array:
        """Return the sums of vertices in the graph's order."""
        vertices = np.empty(self.placement.vertex_count)
        deliver_positions(self.placement, self.arrays.sums, np.float64, vertices)
        return vertices

    def edges(self) -> Array:
        """Return the sums of arcs in the graph's order."""
        sums = np.empty(self.placement.graph.arc_count)
        deliver_arcs(self.placement, self.arrays.arc_sums, sums)
        return sums


def _first(count: int, dtype: np.dtype[Any]) -> Array:
    return np.arange(count).astype(dtype)
