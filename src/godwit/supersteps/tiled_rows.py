"""Tiles of rows, made on GPUs, in which kernels read the sources of arcs in order.

Encoding: supersteps/tiled_sums.cuh; kernels: supersteps/tiled_rows.cuh. Tiles are bounded by rows, so that
a block's sums fit into shared memory, and by arcs, so that each block gets several tiles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.graph.csr import Graph
from godwit.graph.cuda.builder import c_id, kernel_source
from godwit.graph.facts import in_offsets
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import c_type, layout_checks, load
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.cuda.structs import struct_dtype
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.rows import Direction, StepRows

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPlacement

Made = TypeVar("Made")

SUM_TILE = struct_dtype("supersteps/tiled_sums.cuh", "SumTile")
TILED_ARCS = struct_dtype("supersteps/tiled_sums.cuh", "TiledArcs")

_CHUNK, _SLOT_BITS = 128, 14
_RANGE = 1 << (32 - _SLOT_BITS)  # positions
TILE_SLOTS = (1 << _SLOT_BITS) - 1
"""Limit of the rows of a tile."""
ROW_WORK = 8
"""Work of updating a vertex, in units of the work of an arc."""
LEAST_TILE_WORK, MOST_TILE_WORK = 1 << 14, 1 << 21
"""Bounds of the work of a tile, in the same units."""
_TILES_OF_BLOCK = 2
_FEW_SLOTS = 1024
"""Tiles of fewer rows get several sums for each, since threads that add to one at the same time wait."""
_LEAST_LOG_BINS, _MOST_LOG_BINS = 6, 11
LEAST_GAINING_ARCS = 1 << 22
"""Arcs of a device below which making tiles takes longer than they save in a query."""
_LEAST_GAINING_DEGREE = 4
_LONGEST_ROW_TILES = 4
"""Tiles gain nothing if the work of the longest row is more than this number of tiles."""
_THREADS = 1024
_STATIC_BYTES = 1 << 10


class SourceBins(ctypes.Structure):
    """Division of positions into bins and ranges: ``SourceBins`` of tiled_rows.cuh."""

    _fields_ = (
        ("capacity", ctypes.c_int64),
        ("devices", ctypes.c_int64),
        ("log_bins", ctypes.c_uint64),
        ("bins", ctypes.c_uint64),
        ("ranges", ctypes.c_uint64),
    )

    @classmethod
    def of(cls, capacity: int, devices: int, log_bins: int) -> SourceBins:
        """Return the division of the positions of some devices."""
        last = capacity - 1
        width = max(0, last.bit_length() - 1 - log_bins)
        bins = (width << log_bins) + (last >> width) + 1
        return cls(capacity, devices, log_bins, bins, -(-capacity // _RANGE))

    def shared_bytes(self, rows: int) -> int:
        """Return the dynamic shared memory that making tiles of ``rows`` rows takes."""
        words = self.devices * self.bins + 1 + rows + 1 + self.devices * self.ranges
        return 4 * int(words)


@dataclass(frozen=True)
class Tiling:
    """The tiles of a device's rows.

    :param tiles: array of :data:`SUM_TILE`, the largest first; chunks are not counted yet
    :param chunks: number of chunks of arcs that all tiles have room for
    """

    tiles: Array
    chunks: int


class TiledRows:
    """The tiles of the rows of all devices.

    :param factor_dtype: of factors, which is that of the values that are summed up; None: arcs have none
    :param outflows: by position: an arc's factor is its weight over the outflow of its source; None: its
        weight
    :raises GraphTooLargeError: need against free, before anything is allocated
    :ivar rows: of each device; their targets and weights may be freed once tiles are made
    """

    def __init__(
        self, placement: StepPlacement, rows: list[StepRows], factor_dtype: Any = None,
        outflows: DeviceArray | None = None,
    ) -> None:  # fmt: skip
        self.rows = rows
        item = 0 if factor_dtype is None else np.dtype(factor_dtype).itemsize
        sources = [_source_bins(placement, part) for part in placement.parts]
        tilings = [
            _tiling(placement, part, own, source)
            for part, own, source in zip(placement.parts, rows, sources, strict=True)
        ]
        chunks = [tiling.chunks for tiling in tilings]
        self.tiles, self.arcs = DeviceArray(placement), DeviceArray(placement)
        self.begins = DeviceArray(placement)
        needs = [
            (self.tiles, [tiling.tiles.nbytes for tiling in tilings]),
            (self.arcs, [4 * _CHUNK * count for count in chunks]),
            (self.begins, [4 * count for count in chunks]),
        ]
        self.factors: DeviceArray | None = None
        if item:
            self.factors = DeviceArray(placement)
            needs.append((self.factors, [item * _CHUNK * count for count in chunks]))
        placement.reserve(*needs)
        code = source_code(placement.id_dtype, rows[0].weight_dtype, factor_dtype)
        for part, own, source, tiling in zip(placement.parts, rows, sources, tilings, strict=True):
            count = len(tiling.tiles)
            self.tiles[part].upload(tiling.tiles)
            kernel = load(part.index, code).kernel("make_tiles")
            shared_bytes = source.shared_bytes(TILE_SLOTS)
            kernel.allow_shared(shared_bytes)
            weights = 0 if own.weights is None or not item else own.weights.pointer
            driver.launch(
                kernel, part.stream, blocks=_blocks(part), threads=_THREADS,
                shared_bytes=shared_bytes,
                arguments=[
                    own.offsets.pointer, own.targets.pointer, weights,
                    0 if outflows is None else outflows[part].pointer, source, count, TILE_SLOTS,
                    self.tiles[part].pointer, self.arcs[part].pointer, self.begins[part].pointer,
                    0 if self.factors is None else self.factors[part].pointer,
                ],
            )  # fmt: skip
        for part in placement.parts:
            part.stream.synchronize()
        self._counts = [len(tiling.tiles) for tiling in tilings]

    def point(self, part: StepPart, member: Any) -> None:
        """Fill in a :data:`TILED_ARCS`."""
        member["tiles"] = self.tiles[part].pointer
        member["arcs"] = self.arcs[part].pointer
        member["begins"] = self.begins[part].pointer
        member["factors"] = 0 if self.factors is None else self.factors[part].pointer
        member["count"] = self._counts[part.place]


@dataclass(frozen=True)
class TileKind:
    """The rows that tiles are made of, and the factors of their arcs.

    :param direction: of their rows
    :param factor_dtype: name of the dtype of factors; None: arcs have none
    :param by_outflow: factors are weights over the outflow of the arc's source, else weights
    """

    direction: Direction
    factor_dtype: str | None = None
    by_outflow: bool = False


class KeptTiles:
    """The tiles of a placement, kept between queries for all algorithms.

    :ivar fit: False once there was too little memory for some
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.fit = True
        self._placement = placement
        self._tiled: dict[TileKind, TiledRows] = {}

    def __len__(self) -> int:
        return len(self._tiled)

    def rows(self, kind: TileKind, stack: ExitStack) -> list[StepRows]:
        """Return rows to make tiles of, which may be freed when the stack ends, or those of kept tiles.

        :raises GraphTooLargeError: need against free, before anything is allocated
        """
        tiled = self._tiled.get(self._stored(kind))
        if tiled is not None:
            return tiled.rows
        weighted = kind.factor_dtype is not None
        return stack.enter_context(self._placement.passing_rows(kind.direction, weighted))

    def of(
        self, kind: TileKind, rows: list[StepRows], outflows: DeviceArray | None = None
    ) -> TiledRows:
        """Return the tiles of a kind; make them if there are none.

        :param rows: as :meth:`rows` has returned them
        :param outflows: by position, if factors depend on them
        :raises GraphTooLargeError: need against free, before any tile is allocated
        """
        key = self._stored(kind)
        if key not in self._tiled:
            self._tiled[key] = TiledRows(self._placement, rows, kind.factor_dtype, outflows)
        return self._tiled[key]

    def _stored(self, kind: TileKind) -> TileKind:
        weighted = kind.factor_dtype is not None
        return replace(
            kind,
            direction=self._placement.stored_direction(kind.direction, weighted=weighted),
        )


def takes_tiles(placement: StepPlacement, asked: bool | None, *directions: Direction) -> bool:
    """Return whether a query is to sum up by tiles, where that is possible.

    :param asked: what the query says; None: what is faster
    :param directions: of the rows that it sums up
    """
    if asked is not None:
        return asked
    return placement.kept(KeptTiles).fit and tiles_gain(placement, *directions)


def make_with_tiles(
    placement: StepPlacement, words: int, make: Callable[[int], Made], *, asked: bool | None
) -> Made:
    """Return what a function makes for sums by tiles or, if memory does not suffice for tiles, row by row.

    :param words: of a sum by tiles; 0: row by row
    :param make: called with the number of words
    :param asked: what the query says; True: memory must suffice for tiles
    :raises GraphTooLargeError: need against free
    """
    try:
        return make(words)
    except GraphTooLargeError:
        if words == 0 or asked or placement.processes is not None:
            raise  # all of several processes must sum up in the same way
        placement.kept(KeptTiles).fit = False
        return make(0)  # rows alone may fit


def source_code(id_dtype: Any, weight_dtype: Any = None, factor_dtype: Any = None) -> str:
    """Return the CUDA source that makes tiles for dtypes of positions and, if arcs have factors, of these.

    :param weight_dtype: of the graph's weights
    """
    has_factors = factor_dtype is not None
    code = kernel_source(
        "supersteps/tiled_rows.cuh",
        Id=c_id(np.dtype(id_dtype)),
        Weight=c_type(np.dtype(weight_dtype)) if has_factors else "void",
        Factor=c_type(np.dtype(factor_dtype if has_factors else np.float32)),
    )
    return code + layout_checks("SumTile", SUM_TILE) + "\n" + tile_checks()


def tile_checks() -> str:
    """Return C++ that checks the constants and structs of tiled_sums.cuh against those here."""
    return (
        f"static_assert(CHUNK == {_CHUNK} && TILE_SLOTS == {TILE_SLOTS});\n"
        f"static_assert(SLOT_BYTES_A_WORD == {tile_bytes(1)});\n"
        + layout_checks("TiledArcs", TILED_ARCS)
    )


def tile_bytes(words: int) -> int:
    """Return the dynamic shared memory of a block that sums up tiles, for the words of a sum."""
    return 4 * words << _SLOT_BITS


def can_be_tiled(placement: StepPlacement, words: int) -> bool:
    """Return whether positions have 32 bits, and blocks enough shared memory for tiles and their sums.

    :param words: of a sum
    """
    source = SourceBins.of(placement.capacity, placement.device_count, _LEAST_LOG_BINS)
    needed = max(tile_bytes(words), source.shared_bytes(TILE_SLOTS)) + _STATIC_BYTES
    return placement.id_dtype.itemsize == 4 and not placement.any(
        any(driver.properties(index).shared_bytes < needed for index in placement.indexes)
    )


def longest_row(graph: Graph, direction: Direction) -> int:
    """Return the number of arcs of the longest row of a graph."""

    def longest() -> int:
        offsets = graph.offsets if direction == "out" else in_offsets(graph)
        return int(np.diff(offsets).max(initial=0))

    arcs: int = graph.cached(("longest row", direction), longest)
    return arcs


def tiles_gain(placement: StepPlacement, *directions: Direction) -> bool:
    """Return whether summing up rows by tiles is expected to be faster than row by row.

    It is where rows are not short and read values in no order, and where no row keeps one block busy while
    all others are done.

    :param directions: of the rows
    """
    graph, numbering = placement.graph, placement.numbering
    arcs = graph.arc_count // placement.device_count
    if not numbering.by_degree or arcs < LEAST_GAINING_ARCS:
        return False
    if graph.arc_count < _LEAST_GAINING_DEGREE * placement.active_count:
        return False
    longest = max(longest_row(graph, direction) for direction in directions)
    least = min(tile_work(part, arcs) for part in placement.parts)
    return not placement.any(longest > _LONGEST_ROW_TILES * least)


def _blocks(part: StepPart) -> int:
    return driver.properties(part.index).multiprocessors


def _source_bins(placement: StepPlacement, part: StepPart) -> SourceBins:
    """Return the finest division of positions for which shared memory suffices."""
    most = driver.properties(part.index).shared_bytes - _STATIC_BYTES
    for log_bins in range(_MOST_LOG_BINS, _LEAST_LOG_BINS, -1):
        source = SourceBins.of(placement.capacity, placement.device_count, log_bins)
        if source.shared_bytes(TILE_SLOTS) <= most:
            return source
    return SourceBins.of(placement.capacity, placement.device_count, _LEAST_LOG_BINS)


def tile_work(part: StepPart, arcs: int) -> int:
    """Return the work of a tile of a device: its arcs, and ROW_WORK for each row."""
    share = (arcs + ROW_WORK * part.active) // (_TILES_OF_BLOCK * _blocks(part))
    return min(max(share, LEAST_TILE_WORK), MOST_TILE_WORK)


def _tiling(placement: StepPlacement, part: StepPart, rows: StepRows, source: SourceBins) -> Tiling:
    """Divide a device's rows into tiles: of about equal work, and of at most ``TILE_SLOTS`` rows."""
    active = part.active
    apart = tile_work(part, rows.arcs)
    cuts = _find_rows(placement, part, rows, apart)
    cuts = np.unique(np.append(cuts, (0, active)))
    pieces = -(-np.diff(cuts) // TILE_SLOTS)  # of each tile
    within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    bounds = np.append(np.repeat(cuts[:-1], pieces) + within * TILE_SLOTS, active)
    begins = _offsets_at(placement, part, rows, bounds)
    tiles = np.zeros(len(bounds) - 1, SUM_TILE)
    arcs = np.diff(begins)
    tiles["arc"], tiles["row"], tiles["rows"] = begins[:-1], bounds[:-1], np.diff(bounds)
    tiles["log_slots"] = np.log2(np.maximum(1, _FEW_SLOTS // tiles["rows"].astype(np.int64)))
    room = -(-arcs // _CHUNK) + source.devices * source.ranges
    tiles["chunk"] = np.cumsum(room) - room
    work = arcs + ROW_WORK * np.diff(bounds)
    return Tiling(tiles[np.argsort(-work, kind="stable")], int(room.sum()))


def _find_rows(placement: StepPlacement, part: StepPart, rows: StepRows, apart: int) -> Array:
    """Return the first row that begins at or behind each multiple of ``apart`` units of work, int64."""
    count = -(-(rows.arcs + ROW_WORK * part.active) // apart) + 1
    with Buffer(part.index, 8 * count) as found:
        _start(
            placement, part, "find_rows", rows.offsets.pointer, part.active, ROW_WORK, apart, count,
            found,
        )  # fmt: skip
        return found.download(np.int64, count)


def _offsets_at(placement: StepPlacement, part: StepPart, rows: StepRows, bounds: Array) -> Array:
    with ExitStack() as stack:
        wanted = stack.enter_context(Buffer(part.index, bounds.nbytes))
        found = stack.enter_context(Buffer(part.index, bounds.nbytes))
        wanted.upload(bounds)
        _start(
            placement, part, "read_offsets", rows.offsets.pointer, wanted, len(bounds), found
        )  # fmt: skip
        return found.download(np.int64, len(bounds))


def _start(placement: StepPlacement, part: StepPart, name: str, *arguments: Any) -> None:
    """Run a small kernel of tiled_rows.cuh to its end."""
    module = load(part.index, source_code(placement.id_dtype))
    given = [value.pointer if isinstance(value, Buffer) else value for value in arguments]
    driver.launch(
        module.kernel(name), part.stream, blocks=_blocks(part), threads=256, arguments=given
    )
    part.stream.synchronize()
