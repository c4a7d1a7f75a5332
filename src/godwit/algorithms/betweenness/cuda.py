"""Brandes' dependencies on GPUs: what algorithms/betweenness/brandes.cuh needs, and what it gives.

One search at a time by all blocks of all devices; or, with enough sources, each GPU has the whole graph and
a share of the sources, and there one search at a time, or one a block, each in memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.betweenness.queries import DependencyOutcome, DependencyQuery
from godwit.dtypes import Array
from godwit.errors import ClosedContextError, GraphTooLargeError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.types import MAXIMAL_DEVICES, c_type
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.exchange import pointers
from godwit.supersteps.placement import StepCopies, StepPart, StepPlacement
from godwit.supersteps.results import deliver_positions
from godwit.supersteps.rows import StepRows
from godwit.supersteps.run import (
    PEERS,
    ROWS,
    STAGE,
    STEP,
    THREADS,
    StepRun,
    copies_by_host,
    point_rows,
    step_run,
    step_source,
)

LIGHT_VERTICES = 512
"""A level of so many vertices at most, and"""
LIGHT_ARCS = 4096
"""with so many arcs at most, is done by one block, without the others."""
DENSE_FACTOR = 4
"""A level is found from all vertices that are left where so many times the arcs of the one before are more
than those that are left."""
BLOCK_SEARCH_ARCS = 1 << 25
"""On a larger graph the bitmaps of so many searches do not stay in a GPU's cache."""
ARCS_PER_SOURCE = 45_000
"""A source pays for a block's own search, which is slow, by what it spares of waiting for other blocks: as
much as so many arcs take it."""
LEAST_LONG_SOURCES = 8
"""On roads, whose levels are many and small, so many sources pay."""
SOURCES_A_COPY = 8
"""On larger graphs so many sources a GPU pay for bringing the whole graph there."""

_LONG_ROW = 4096  # as in algorithms/betweenness/memory.cuh
_SETS = 4
_STATE_COUNT, _DENSE_BEGIN, _DENSE_END = 6, 3, 4
_STATE_PHASE, _FAILED, _ALL_COUNT, _ALL_ARCS = 8, 9, 10, 11
_NO_DEPTH = 0xFFFFFFFF
_BEGIN, _ROUND = 0, 5
_CLASS_BLOCK, _CLASS_THREAD = 1, 4
_COUNTERS_BYTES = 8 * (2 + 4 * MAXIMAL_DEVICES + 32)
_MOST_A_ROUND = 16
_ROUND_ARCS = 1 << 24
_SPARE_SHARE = 8
"""Of what is free, such a part is not for searches of blocks."""

_PLACES = (
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
        ("readers", np.uint64),
        ("searches", PEERS),
        ("layout", [(name, np.int64) for name in (*_PLACES, "nbytes")]),
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
        ("is_hot_first", np.uint32),
        ("is_directed", np.uint32),
        ("has_long_rows", np.uint32),
    ]
)
"""``Arguments`` of algorithms/betweenness/memory.cuh."""


def source(id_dtype: np.dtype[Any]) -> str:
    """The kernel."""
    types = {"Id": c_type(id_dtype)}
    return step_source(
        "algorithms/betweenness/brandes.cuh", ARGUMENTS, types=types, work="grid_brandes"
    )


def sum_on_gpus(
    placement: StepPlacement, query: DependencyQuery, poll: ProgressPoll | None
) -> DependencyOutcome:
    """Dependencies of all vertices, added up over the sources.

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
    """On how many GPUs, each with the whole graph, searches go on faster by themselves; 0: on none, but by
    all devices together.
    """
    if len(placement.indexes) == 1 or not placement.copies_fit:
        return 0
    gpus = len(set(placement.indexes))
    blocks = driver.properties(placement.indexes[0]).multiprocessors
    if _blocks_pay(placement, sources, blocks):
        return min(gpus, -(-sources // blocks))
    return gpus if sources >= SOURCES_A_COPY * gpus else 0


def _blocks_pay(placement: StepPlacement, sources: int, blocks: int) -> bool:
    """Whether it is faster for so many blocks to have a search each than to do one together."""
    if sources < 2:
        return False
    if not placement.numbering.classes[:, _CLASS_THREAD].any():  # no row of more than 4 arcs
        return sources >= LEAST_LONG_SOURCES
    arcs = placement.graph.arc_count
    return arcs <= BLOCK_SEARCH_ARCS and sources >= min(blocks, arcs / ARCS_PER_SOURCE)


def _run_apart(
    placement: StepPlacement, gpus: int, query: DependencyQuery, poll: ProgressPoll | None
) -> DependencyOutcome:
    """Each GPU searches from a share of the sources."""
    while True:
        copies = placement.copies(gpus)
        try:
            found = _run(copies, query, poll)
            break
        except ClosedContextError:  # another thread has dropped them
            if placement.closed:
                raise
    if copies.is_narrow():  # for what else is asked of the graph
        placement.drop_copies()
    for name in ("visited", "examined", "supersteps"):
        counts = np.zeros(len(placement.indexes), np.int64)
        counts[copies.places] = getattr(found, name)
        setattr(found, name, counts)
    return found


def _run(
    placed: StepPlacement | StepCopies, query: DependencyQuery, poll: ProgressPoll | None
) -> DependencyOutcome:
    """Searches of all sources, each done together by the devices of one of the placements."""
    teams = placed.placements
    code = source(teams[0].id_dtype)
    arguments = np.zeros(len(placed.parts), ARGUMENTS)
    with placed.held():
        searchings = [
            _Searching(team, replace(query, sources=query.sources[place :: len(teams)]), own)
            for place, (team, own) in enumerate(
                zip(teams, np.split(arguments, len(teams)), strict=True)
            )
        ]
        with step_run(placed, code, arguments, query.gpu) as run:
            block_searches = _choose_block_searches(searchings, run, len(query.sources))
            for searching, count in zip(searchings, block_searches, strict=True):
                searching.upload(count)
            state = [0] * 12
            state[_STATE_COUNT] = 1
            state[_DENSE_BEGIN] = state[_DENSE_END] = _NO_DEPTH
            phase = state[_STATE_PHASE] = _ROUND if block_searches[0] else _BEGIN
            run.prepare(state, phase=phase)
            kernel_s = run.drive(poll)
            controls = run.controls()
        seconds = {
            "rows": sum(searching.rows_s for searching in searchings),
            "compile": run.compile_s,
            "kernel": kernel_s,
        }
        words = controls["state"]
        vertices = arcs = None
        if not words[:, _FAILED].any():
            begin = perf_counter()
            vertices = _sum(searching.vertices() for searching in searchings)
            seconds["gather"] = perf_counter() - begin
            if query.edges:
                arcs = _sum(searching.edges() for searching in searchings)
    # What devices have done together each of them has counted.
    is_counted = np.arange(len(words)) % placed.joint == 0
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
    searchings: Sequence[_Searching], run: StepRun, sources: int
) -> list[int]:
    """How many blocks of each team have searches of their own; 0 if those of none have."""
    if searchings[0].devices > 1:
        return [0]
    threads = max(64, searchings[0].query.gpu.threads or THREADS)
    blocks = [run.blocks_for(place, threads) for place in range(len(searchings))]
    if not _blocks_pay(searchings[0].placement, sources, min(blocks)):
        return [0] * len(searchings)
    found = [one.block_searches_at_most(most) for one, most in zip(searchings, blocks, strict=True)]
    return found if all(found) else [0] * len(found)


def _sum(arrays: Iterator[Array]) -> Array:
    """Of arrays that are made one after the other."""
    total = next(arrays)
    for other in arrays:
        total += other
    return total


class _Searching:
    """What a query has on the devices that do each search together.

    :param arguments: (devices) :data:`ARGUMENTS`, which are filled in here
    """

    def __init__(self, placement: StepPlacement, query: DependencyQuery, arguments: Array) -> None:
        self.placement = placement
        self.query = query
        self.arguments = arguments
        self.positions = placement.position(query.sources).astype(placement.id_dtype)
        self.block_searches = 0
        begin = perf_counter()
        # Sums of arcs are told apart by where the arcs are in the graph.
        ordered = query.edges
        self.out = placement.rows("out", ordered=ordered)
        directed = placement.graph.directed
        self.into = placement.rows("in") if directed else self.out
        self.is_hot_first = directed or not ordered
        self.long_out = [self._long_rows(place, self.out[place]) for place in range(self.devices)]
        # Paths come along arcs in, coefficients along arcs out.
        selects = self.devices > 1 and query.gpu.communication == "selective"
        self.readers = placement.readers("in", "out") if selects else None
        self.rows_s = perf_counter() - begin

    @property
    def devices(self) -> int:
        """How many they are."""
        return len(self.placement.parts)

    def _long_rows(self, place: int, rows: StepRows) -> Array:
        """Own indexes of the longest out-rows; classes are by in-degree."""
        if not self.placement.graph.directed:
            return _first(int(rows.classes[_CLASS_BLOCK]), self.placement.id_dtype)
        offsets = rows.offsets.download(np.int64, self.placement.parts[place].owned + 1)
        return np.flatnonzero(np.diff(offsets) > _LONG_ROW).astype(self.placement.id_dtype)

    def upload(self, block_searches: int) -> None:
        """Make room for everything and fill the arguments in.

        :param block_searches: as of the outcome
        :raises GraphTooLargeError: need against free
        """
        placement = self.placement
        self.block_searches = block_searches
        layouts = [self._layout(part, rows) for part, rows in self._each()]
        # A place in one device's memory is found from its own by the others.
        layout = {name: max(one[name] for one in layouts) for name in (*_PLACES, "nbytes")}
        if self.block_searches:
            layout = self._layout(placement.parts[0], self.out[0], is_block=True)
        search_bytes = layout["nbytes"] * max(1, self.block_searches)
        sizes = [self._sizes(place, search_bytes) for place in range(self.devices)]
        placement.make_room(sizes)
        for place, part in enumerate(placement.parts):
            self._fill(place, part, layout)
        self.arguments["searches"] = pointers(placement.parts, "searches")

    def _each(self) -> list[tuple[StepPart, StepRows]]:
        return list(zip(self.placement.parts, self.out, strict=True))

    def _sizes(self, place: int, search_bytes: int) -> dict[str, int]:
        """Bytes of each buffer of a part."""
        id_bytes = self.placement.id_dtype.itemsize
        into = self.into[place]
        return {
            "searches": search_bytes,
            "sums": 8 * self.placement.count,
            "sums of arcs": 8 * self.out[place].arcs if self.query.edges else 0,
            "sources": self.positions.nbytes,
            "long rows out": max(1, self.long_out[place].nbytes),
            "long rows in": max(1, id_bytes * int(into.classes[_CLASS_BLOCK])),
        }

    def _layout(self, part: StepPart, rows: StepRows, *, is_block: bool = False) -> dict[str, int]:
        """Where each array of a search lies in its memory, and how large that is."""
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
        for name in _PLACES:
            layout[name] = end
            end += -(-sizes[name] // 128) * 128
        return layout | {"nbytes": end}

    def block_searches_at_most(self, blocks: int) -> int:
        """How many of so many blocks have memory for searches of their own; 0 if not enough have."""
        part = self.placement.parts[0]
        nbytes = self._layout(part, self.out[0], is_block=True)["nbytes"]
        free = driver.free_memory_bytes(part.index)
        if "searches" in part.buffers:
            free += part.buffers["searches"].nbytes
        free -= sum(self._sizes(0, 0).values()) + free // _SPARE_SHARE
        wanted = min(blocks, len(self.positions))
        # With fewer, the rest of the GPU would be idle.
        return wanted if wanted * nbytes <= free else 0

    def _fill(self, place: int, part: StepPart, layout: dict[str, int]) -> None:
        placement, query = self.placement, self.query
        graph = placement.graph
        own = self.arguments[place]
        for name, rows in (("out", self.out[place]), ("in", self.into[place])):
            point_rows(own[name], rows)
        long_in = _first(int(self.into[place].classes[_CLASS_BLOCK]), placement.id_dtype)
        for name, given in (("out", self.long_out[place]), ("in", long_in)):
            buffer = part.buffers[f"long rows {name}"]
            buffer.upload(given)
            own[f"long_{name}"]["rows"] = buffer.pointer
            own[f"long_{name}"]["count"] = len(given)
        if self.readers is not None:
            own["readers"] = self.readers[place].pointer
        part.buffers["sources"].upload(self.positions)
        own["sources"] = part.buffers["sources"].pointer
        part.buffers["sums"].fill_bytes(0, 8 * placement.count)
        own["centrality"] = part.buffers["sums"].pointer + 8 * part.first
        if query.edges:
            part.buffers["sums of arcs"].fill_bytes(0, 8 * self.out[place].arcs)
            own["edges"] = part.buffers["sums of arcs"].pointer
        if self.block_searches:
            part.buffers["searches"].fill_bytes(0, layout["nbytes"] * self.block_searches)
        for name, offset in layout.items():
            own["layout"][name] = offset
        own["words"] = placement.count // 32
        own["source_count"] = len(self.positions)
        own["arcs"] = graph.arc_count
        own["mean_degree"] = -(-graph.arc_count // max(1, sum(p.active for p in placement.parts)))
        own["light_vertices"], own["light_arcs"] = LIGHT_VERTICES, LIGHT_ARCS
        own["dense_factor"] = DENSE_FACTOR
        own["block_searches"] = self.block_searches
        own["sources_a_round"] = min(_MOST_A_ROUND, 1 + _ROUND_ARCS // (graph.arc_count + 1))
        own["endpoints"], own["is_hot_first"] = query.endpoints, self.is_hot_first
        own["is_directed"] = graph.directed
        # All devices decide alike, so each has to know of the others' rows.
        own["has_long_rows"] = any(map(len, self.long_out)) or any(
            rows.classes[_CLASS_BLOCK] for rows in self.into
        )

    def vertices(self) -> Array:
        """The sums of the vertices in the graph's order."""
        found = np.empty(self.placement.vertex_count)
        deliver_positions(self.placement, "sums", np.float64, found)
        return found

    def edges(self) -> Array:
        """The sums of the arcs in the graph's order: each row is a range here as there."""
        placement = self.placement
        offsets = placement.graph.offsets
        found = np.empty(placement.graph.arc_count)
        for part, rows in self._each():
            sums = part.buffers["sums of arcs"].download(np.float64, rows.arcs)
            own_offsets = rows.offsets.download(np.int64, part.owned + 1)
            vertices = placement.vertex(part.first + np.arange(part.owned))
            shift = np.repeat(offsets[vertices] - own_offsets[:-1], np.diff(own_offsets))
            found[shift + np.arange(rows.arcs)] = sums
        return found


def _first(count: int, dtype: np.dtype[Any]) -> Array:
    return np.arange(count).astype(dtype)
