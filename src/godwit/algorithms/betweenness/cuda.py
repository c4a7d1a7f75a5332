"""Sums of Brandes' dependencies on GPUs: fills in the arguments of betweenness.cuh, runs it, gathers sums.

All blocks of all devices do one search at a time. With enough sources each GPU has the whole graph and a
share of the sources, and does one search at a time, or one per block, each in memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import IntEnum
from time import perf_counter
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import MAXIMAL_DEVICES, c_type
from godwit.runtime.cuda.gpu_arrays import current_stream, gpu_of, is_gpu_array
from godwit.runtime.cuda.memory import PinnedBuffer
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.exchange import Exchange
from godwit.supersteps.placement import StepCopies, StepPlacement
from godwit.supersteps.results import VertexValues, deliver_arcs
from godwit.supersteps.rows import RowClass
from godwit.supersteps.run import (
    STEP,
    THREADS,
    StepPlan,
    copies_by_host,
    point_rows,
    state_words,
    step_source,
)

LIGHT_VERTICES, LIGHT_ARCS = 512, 4096
"""A level with at most these numbers of vertices and arcs is processed by one block alone."""
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
_NO_DEPTH = 0xFFFFFFFF
_COUNTERS_BYTES = 8 * (2 + 4 * MAXIMAL_DEVICES + 32)
_MAX_PER_ROUND = 16
_ROUND_ARCS = 1 << 24
_SPARE_SHARE = 8
"""1 / the share of free memory that searches of blocks leave free."""

ARGUMENTS = struct_dtype("algorithms/betweenness/search.cuh", "Arguments")


class Word(IntEnum):
    """Words of a search's state, as in search.cuh."""

    (
        SOURCE, DEPTH, LAST, DENSE_BEGIN, DENSE_END, SEEN, COUNT, ARRIVING, PHASE, HAS_FAILED,
        ALL_COUNT, ALL_ARCS, ORIGIN,
    ) = range(13)  # fmt: skip


class Kind(IntEnum):
    """Kinds of supersteps with which a run begins, as in betweenness.cuh."""

    BEGIN, ROUND = 0, 5


@dataclass(frozen=True)
class DependencyQuery:
    """A checked query of a graph that has vertices.

    :param sources: int64 (k), at least one valid vertex
    :param endpoints: a path counts for its two ends, too
    :param edges: sum dependencies on arcs as well
    :param gpu: how kernels are run
    :param location: where sums of vertices are wanted
    :param scale: factor of the sums of vertices that are not sources
    :param scale_of_sources: factor of those of sources
    """

    sources: Array
    endpoints: bool
    edges: bool
    gpu: GpuOptions
    location: ResultLocation = field(default_factory=ResultLocation)
    scale: float = 1.0
    scale_of_sources: float = 1.0


@dataclass
class DependencyOutcome:
    """Sums over all sources, in the graph's order, and the work they took.

    :param vertices: float64 (n), scaled dependencies on each vertex, of NumPy or CuPy; None if numbers of
        paths were too large for float64, and the outcome is useless
    :param arcs: float64 (m), dependencies on each arc, or None
    :param visited: vertices reached by each device, over all searches
    :param examined: out-arcs of the vertices reached, by device; work that devices did together counts at
        the first
    :param supersteps: supersteps of each device
    :param block_searches: number of concurrent searches of a device, each by a block; 0: all blocks,
        perhaps of several devices, did one search together
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    vertices: Any
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
        "algorithms/betweenness/betweenness.cuh",
        types=types,
        enums=(Word, Kind),
        work="grid_betweenness",
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
            if by_host:
                raise GraphTooLargeError(
                    f"{error}. GPUs that do not reach each other's memory search apart, each with the "
                    "whole graph"
                ) from error
    return search_from_all(placement, query, poll)


def gpus_apart(placement: StepPlacement, sources: int) -> int:
    """Return the number of GPUs that search on their own copy of the graph; 0 if all search together."""
    if placement.device_count == 1 or not placement.copies_fit:
        return 0
    is_alone = placement.processes is None
    gpus = len(set(placement.indexes)) if is_alone else placement.device_count
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

    def run(copies: StepCopies) -> DependencyOutcome:
        outcome = search_from_all(copies, query, poll)
        for name in ("visited", "examined", "supersteps"):
            counts = np.zeros(len(placement.indexes), np.int64)
            counts[copies.devices] = getattr(outcome, name)
            setattr(outcome, name, counts)
        return outcome

    return placement.run_on_copies(gpus, run)


def search_from_all(
    placed: StepPlacement | StepCopies, query: DependencyQuery, poll: ProgressPoll | None
) -> DependencyOutcome:
    """Search from all sources, each by the devices of one placement together.

    If these are of several processes, all call it alike, and get the sums of a share of the vertices.
    """
    first, *others = placed.placements
    seconds: dict[str, float] = {}
    with placed.held():
        # A plan points to the arrays of all placements, and is kept with the first.
        key = ("betweenness", query.gpu, query.edges, *(other.version for other in others))
        plan = first.plan(key, lambda: _SearchPlan(placed, query, seconds))
        plan.ask(query)
        seconds["kernel"] = plan.run(plan.first_state(), phase=plan.first_phase, poll=poll)
        words = plan.controls()["state"]
        vertices = arcs = None
        if not words[:, Word.HAS_FAILED].any():
            begin = perf_counter()
            vertices = plan.vertices(query.location)
            seconds["gather"] = perf_counter() - begin
            if query.edges:
                arcs = plan.arcs()
        block_searches = max(team.block_searches for team in plan.teams)
    # Devices that search together all count the same work.
    is_counted = np.array([part.device == 0 for part in placed.parts])
    return DependencyOutcome(
        vertices,
        arcs,
        visited=np.where(is_counted, words[:, Word.ALL_COUNT], 0).astype(np.int64),
        examined=np.where(is_counted, words[:, Word.ALL_ARCS], 0).astype(np.int64),
        supersteps=words[:, STEP].astype(np.int64),
        block_searches=block_searches,
        seconds=seconds,
    )


def _sum(arrays: Sequence[Any]) -> Any:
    """Return the sum of arrays of NumPy, or of CuPy on one GPU, in the memory of the first."""
    total, *others = arrays
    with ExitStack() as stack:
        if others and is_gpu_array(total):
            stack.enter_context(driver.entered(gpu_of(total)))
            stack.callback(current_stream(gpu_of(total)).synchronize)
        for other in others:
            total += other
    return total


class SearchArrays:
    """The arrays of searches, kept on the devices between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.searches = DeviceArray(placement)
        self.sums = DeviceArray(placement)
        self.arc_sums = DeviceArray(placement)
        self.long_out = DeviceArray(placement)
        self.long_in = DeviceArray(placement)


class _SearchPlan(StepPlan[StepPlacement | StepCopies]):
    """Searches of a placement, or of copies that search apart, for one set of options.

    :param seconds: gets the time of making rows, and of loading the kernel
    :ivar teams: the devices of each placement
    :raises GraphTooLargeError: need against free, before anything but rows is allocated
    """

    def __init__(
        self, placed: StepPlacement | StepCopies, query: DependencyQuery, seconds: dict[str, float]
    ) -> None:
        arguments = np.zeros(len(placed.parts), ARGUMENTS)
        begin = perf_counter()
        self.teams = [
            _SearchTeam(placement, query, own)
            for placement, own in zip(
                placed.placements, np.split(arguments, len(placed.placements)), strict=True
            )
        ]
        seconds["rows"] = perf_counter() - begin
        super().__init__(placed, source(placed.placements[0].id_dtype), arguments, query.gpu)
        seconds["compile"] = self.compile_s
        self._positions = PinnedBuffer(self.teams[0].placement.id_dtype.itemsize)
        for team in self.teams:
            team.lay_out()
        self.lay_out()

    def ask(self, query: DependencyQuery) -> None:
        """Write a query into the arguments, and make room for its searches.

        :raises GraphTooLargeError: need against free
        """
        sources = self.teams[0].placement.numbering.position[query.sources]
        if sources.nbytes > self._positions.nbytes:
            self._positions.close()
            self._positions = PinnedBuffer(sources.nbytes)
        self._positions.upload(sources)
        arguments = self.arguments
        arguments["sources"], arguments["all_sources"] = self._positions.pointer, len(sources)
        arguments["source_step"] = len(self.teams)
        for number, team in enumerate(self.teams):
            team.arguments["first_source"] = number
            team.arguments["source_count"] = len(sources[number :: len(self.teams)])
        arguments["endpoints"] = query.endpoints
        arguments["scale"] = query.scale
        arguments["scale_of_sources"] = query.scale_of_sources / query.scale
        block_searches = self._choose_block_searches(len(sources))
        for team, count in zip(self.teams, block_searches, strict=True):
            team.make_room(count)

    @property
    def first_phase(self) -> int:
        """Phase with which a run begins."""
        return Kind.ROUND if self.teams[0].block_searches else Kind.BEGIN

    def first_state(self) -> Array:
        """Return (devices, words): the words of ``control->state`` with which each device begins."""
        common: dict[int, int] = {
            Word.COUNT: 1,
            Word.DENSE_BEGIN: _NO_DEPTH,
            Word.DENSE_END: _NO_DEPTH,
            Word.PHASE: self.first_phase,
        }
        words = state_words([common.get(word, 0) for word in Word])
        states = np.tile(words, (len(self.arguments), 1))
        origins = self._positions.array(self.teams[0].placement.id_dtype)
        states[:, Word.ORIGIN] = origins[self.arguments["first_source"]]
        return states

    def _choose_block_searches(self, sources: int) -> list[int]:
        """Return the number of blocks of each team with searches of their own; 0 if all search together."""
        together = [0] * len(self.teams)
        if self.teams[0].devices > 1:
            return together
        threads = max(64, self.gpu.threads or THREADS)
        blocks = [self.blocks_for(number, threads) for number in range(len(self.teams))]
        if not _blocks_pay(self.teams[0].placement, sources, min(blocks)):
            return together
        counts = [
            team.block_searches_at_most(most) for team, most in zip(self.teams, blocks, strict=True)
        ]
        return counts if all(counts) else together

    def vertices(self, location: ResultLocation) -> Any:
        """Return the sums of vertices in the graph's order."""
        return _sum([team.vertices(location, self.exchange) for team in self.teams])

    def arcs(self) -> Array:
        """Return the sums of arcs in the graph's order, on the host."""
        sums: Array = _sum([team.arcs() for team in self.teams])
        return sums

    def close(self) -> None:
        """Free the memory of sources, too."""
        self._positions.close()
        super().close()


class _SearchTeam:
    """Devices that do each search together, with their rows, buffers and arguments.

    :param query: any with the same options
    :param arguments: (devices) :data:`ARGUMENTS`
    :ivar block_searches: as of :class:`DependencyOutcome`
    """

    def __init__(self, placement: StepPlacement, query: DependencyQuery, arguments: Array) -> None:
        self.placement = placement
        self.arguments = arguments
        self.arrays = placement.kept(SearchArrays)
        self.block_searches = 0
        self.has_edges = query.edges
        # Sums of arcs are gathered by the position of arcs in the graph's rows.
        self.out = placement.rows("out", ordered=query.edges)
        self.into = placement.rows("in") if placement.is_directed else self.out
        self.is_by_degree = placement.is_directed or not query.edges
        # Paths come along arcs in, coefficients along arcs out.
        selects = self.devices > 1 and query.gpu.communication == "selective"
        self.subscribers = placement.subscriber_masks("in", "out") if selects else None

    @property
    def devices(self) -> int:
        """Number of devices, of all processes."""
        return self.placement.device_count

    def lay_out(self) -> None:
        """Allocate what all queries need, and fill in the arguments that none changes.

        :raises GraphTooLargeError: need against free
        """
        placement, arrays, own = self.placement, self.arrays, self.arguments
        longs = {
            "long_out": (arrays.long_out, self._long_out()),
            "long_in": (arrays.long_in, self._long_in()),
        }
        placement.reserve(
            *self._needs(),
            *(
                (array, [max(1, indexes.nbytes) for indexes in given])
                for array, given in longs.values()
            ),
        )
        for name, (array, given) in longs.items():
            for part, indexes in zip(placement.parts, given, strict=True):
                array[part].upload(indexes)
                own[part.place][name] = array[part].pointer, len(indexes)
        for part in placement.parts:
            place = part.place
            point_rows(own[place]["out"], self.out[place])
            point_rows(own[place]["in"], self.into[place])
            if self.subscribers is not None:
                own["subscribers"][place] = self.subscribers[place].pointer
            own["centrality"][place] = arrays.sums[part].pointer + 8 * part.first
            if self.has_edges:
                own["edges"][place] = arrays.arc_sums[part].pointer
        arcs = placement.graph.arc_count
        own["words"], own["arcs"] = placement.count // 32, arcs
        own["mean_degree"] = -(-arcs // max(1, placement.active_count))
        own["light_vertices"], own["light_arcs"] = LIGHT_VERTICES, LIGHT_ARCS
        own["dense_factor"] = DENSE_FACTOR
        own["sources_a_round"] = min(_MAX_PER_ROUND, 1 + _ROUND_ARCS // (arcs + 1))
        own["is_by_degree"], own["is_directed"] = self.is_by_degree, placement.is_directed
        # All devices decide alike, so each is given this for all.
        own["has_long_rows"] = placement.any(
            any(len(rows) for _, given in longs.values() for rows in given)
        )

    def _long_in(self) -> list[Array]:
        """Return, for each device, the own indexes of the longest in-rows, which come first."""
        return [
            np.arange(rows.classes[RowClass.CLASS_BLOCK]).astype(self.placement.id_dtype)
            for rows in self.into
        ]

    def _long_out(self) -> list[Array]:
        """Return, for each device, the own indexes of the longest out-rows; classes are by in-degree."""
        placement = self.placement
        if not placement.is_directed:
            return self._long_in()
        vertices = np.flatnonzero(placement.graph.out_degree() > _LONG_ROW)
        owner, index = np.divmod(placement.position(vertices), placement.capacity)
        return [
            np.sort(index[owner == part.device]).astype(placement.id_dtype)
            for part in placement.parts
        ]

    def make_room(self, block_searches: int) -> None:
        """Lay out the memory of searches in the arguments, and allocate it.

        :raises GraphTooLargeError: need against free
        """
        self.block_searches = block_searches
        placement, searches = self.placement, self.arrays.searches
        layout = self._layout(is_block=block_searches > 0)
        placement.reserve((searches, [layout["nbytes"] * max(1, block_searches)] * self.devices))
        own = self.arguments
        for name, offset in layout.items():
            own["layout"][name] = offset
        own["searches"][:, : self.devices] = placement.addresses(searches)
        own["block_searches"] = block_searches

    def _needs(self) -> list[tuple[DeviceArray, list[int]]]:
        """Return the bytes of sums on each device, as :meth:`StepPlacement.reserve` takes them."""
        needs = [(self.arrays.sums, [8 * self.placement.count] * self.devices)]
        if self.has_edges:
            needs.append((self.arrays.arc_sums, [8 * rows.arcs for rows in self.out]))
        return needs

    def _layout(self, *, is_block: bool) -> dict[str, int]:
        """Return the offset of each array in the memory of a search, and the size of that.

        They are the same on all devices, which address each other's arrays.

        :param is_block: of a block's own search, on the only device
        """
        placement = self.placement
        words, ids = placement.count // 32, placement.id_dtype.itemsize
        levels = placement.vertex_count + 3
        others = self.devices > 1
        owned = max(1, int(placement.numbering.owned.max()))
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
            "edges": 8 * self.out[0].arcs * is_block * self.has_edges,
        }
        layout, end = {}, 0
        for name in (ARGUMENTS["layout"].names or ())[:-1]:  # without nbytes
            layout[name] = end
            end += -(-sizes[name] // 128) * 128
        return layout | {"nbytes": end}

    def block_searches_at_most(self, blocks: int) -> int:
        """Return the number of blocks that get memory for a search; 0 if it does not suffice for all."""
        part = self.placement.parts[0]
        nbytes = self._layout(is_block=True)["nbytes"]
        free = memory.free_memory_bytes(part.index)
        free += self.arrays.searches.nbytes(part) - free // _SPARE_SHARE
        wanted = min(blocks, int(self.arguments["source_count"][0]))
        # With fewer, the rest of the GPU would be idle.
        return wanted if wanted * nbytes <= free else 0

    def vertices(self, location: ResultLocation, exchange: Exchange) -> Any:
        """Return the sums of vertices in the graph's order; of several processes, those of a share."""
        sums = VertexValues(
            self.placement, self.arrays.sums, np.float64, location, exchange=exchange
        )
        return sums.begin().gather()[0]

    def arcs(self) -> Array:
        """Return the sums of arcs in the graph's order."""
        sums = np.empty(self.placement.graph.arc_count)
        deliver_arcs(self.placement, self.arrays.arc_sums, sums)
        return sums
