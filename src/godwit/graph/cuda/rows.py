"""Rows of a graph, made from edges on a GPU, with the same result as graph/build.py.

Kernels: build_rows.cuh.

Edges are drawn by the GPU, or given as arrays of other libraries that lie there. Rows of given edges stay
on the GPU if it has room for several copies of them; others are copied to the host. A graph whose arcs do
not fit at once is built by ranges of sources, each downloaded before the next. Parallel arcs with given
weights stay in their order, which takes a stable sort of positions beside the keys, and all arcs at once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from godwit.dtypes import ID_DTYPES, WEIGHT_DTYPES, Array, as_count, id_dtype_for
from godwit.errors import DeviceError, GraphTooLargeError, InputError
from godwit.graph.cuda.builder import TILE, GraphBuilder, c_id, c_word, kernel_source, spare_bytes
from godwit.graph.cuda.given import common_gpu, on_gpu
from godwit.graph.cuda.stored import HeldRows, RowsOnGpu
from godwit.graph.hashing import seed_word, weight_rule
from godwit.graph.rows import Rows, estimate_bytes, require_memory
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.gpu_arrays import sort_keys, stable_order
from godwit.runtime.cuda.memory import Buffer, HeldArray
from godwit.runtime.cuda.structs import struct_type
from godwit.runtime.cuda.transfer.copies import download

_BUCKETS = 1024  # as in build_rows.cuh
_KEY_BITS = 63
_MOST_ARCS = 2**31 - 1  # of one sort
_KEY_BYTES = 8
_ORDERED_BYTES = 48  # an arc's key and position, and what a stable sort of both needs beside them
_COPIES_WITH_ROOM = 4
"""Rows stay on a GPU if this number of copies of them would fit, since engines make some."""
_NO_ID = (np.iinfo(np.int64).max, np.iinfo(np.int64).min)  # initial smallest and largest id


GivenEdges = struct_type("graph/generators/generate.cuh", "GivenEdges")
EdgeRules = struct_type("graph/cuda/build_rows.cuh", "EdgeRules")
SourceRange = struct_type("graph/cuda/build_rows.cuh", "SourceRange")
_IntegerWeights = struct_type("graph/generators/generate.cuh", "IntegerWeights")
_FloatWeights = struct_type("graph/generators/generate.cuh", "FloatWeights")
_NoWeights = struct_type("graph/generators/generate.cuh", "NoWeights")


@dataclass(frozen=True)
class RandomWeights:
    """The rule by which kernels make random weights.

    :param dtype: the dtype of the weights; None for a graph without weights
    :param type_name: the C++ type of ``structure``
    """

    dtype: np.dtype[Any] | None
    type_name: str
    structure: ctypes.Structure

    @property
    def itemsize(self) -> int:
        """Bytes of a weight; 0 without weights."""
        return 0 if self.dtype is None else self.dtype.itemsize

    @classmethod
    def of(cls, weights: tuple[float, float] | None, seed: int) -> RandomWeights:
        """Return the rule for bounds (low, high) and a seed."""
        if weights is None:
            return cls(None, "NoWeights", _NoWeights())
        word = int(seed_word(seed))
        dtype, settings = weight_rule(*weights)
        if dtype.kind == "f":
            low, high, last = settings
            return cls(dtype, "FloatWeights", _FloatWeights(word, low, high - low, last))
        low, span = (int(number) for number in settings)
        name = f"IntegerWeights<{c_id(dtype)}>"
        return cls(dtype, name, _IntegerWeights(word, low, span))


NO_WEIGHTS = RandomWeights.of(None, 0)


@dataclass(frozen=True)
class ArcsOnGpu:
    """Edges that a GPU holds or draws, and the rules by which they become rows.

    :param edges: a structure of the C++ type ``edges_type``
    :param count: the number of edges
    :param what: the graph in words, for messages
    :param weights: random weights of the arcs
    :param given_weights: a pointer to the weights of the edges, of ``given_dtype``, instead
    """

    edges: Any
    edges_type: str
    count: int
    vertices: int
    id_dtype: np.dtype[Any]
    what: str
    both_directions: bool = False
    drop_loops: bool = False
    merge: bool = False
    weights: RandomWeights = NO_WEIGHTS
    given_weights: int = 0
    given_dtype: np.dtype[Any] | None = None

    @property
    def source(self) -> str:
        """The source of the kernels."""
        return kernel_source(
            "graph/cuda/build_rows.cuh",
            Edges=self.edges_type,
            Id=c_id(self.id_dtype),
            Word=c_word(self.given_dtype),
            Weights=self.weights.type_name,
        )

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """The dtype of the graph's weights; None if it has none."""
        return self.weights.dtype if self.given_dtype is None else self.given_dtype

    @property
    def weight_bytes(self) -> int:
        """Bytes of a weight of the graph; 0 without weights."""
        return 0 if self.weight_dtype is None else self.weight_dtype.itemsize

    @property
    def rules(self) -> Any:
        """The argument of kernels that read edges: :data:`EdgeRules`."""
        return EdgeRules(self.count, self.both_directions, self.drop_loops)

    @property
    def target_bits(self) -> int:
        """The bits of a target in a key."""
        return max(1, (self.vertices - 1).bit_length())

    def range(self, first: int, last: int) -> Any:
        """Return the argument of kernels that read or write keys: :data:`SourceRange`."""
        return SourceRange(first, last, self.target_bits)


def build_rows(builder: GraphBuilder, arcs: ArcsOnGpu, *, arcs_at_once: int = _MOST_ARCS) -> Rows:
    """Return the rows of edges, on the host.

    The arguments and errors are those of :func:`_build_rows`.
    """
    return _build_rows(builder, arcs, arcs_at_once, stay=False).on_host()


def _build_rows(
    builder: GraphBuilder, arcs: ArcsOnGpu, arcs_at_once: int = _MOST_ARCS, *, stay: bool
) -> Rows | RowsOnGpu:
    """Return the rows of edges.

    :param builder: made with ``arcs.source``
    :param arcs_at_once: at most this many are sorted together, where buckets of sources allow
    :param stay: leave the rows on the GPU, if it has room; else they are on the host
    :raises GraphTooLargeError: before anything large is allocated
    """
    _check_bits(arcs)
    if arcs.count == 0 or arcs.vertices == 0:
        return _HostRows(arcs).finished()
    with builder.step("count"):
        per_bucket, bucket_bits = _count_arcs(builder, arcs)
    limit = min(arcs_at_once, _MOST_ARCS, _capacity_arcs(builder, arcs))
    ranges = list(_ranges(per_bucket, bucket_bits, arcs, limit))
    if arcs.given_dtype is not None:
        ranges = [(0, arcs.vertices, int(per_bucket.sum()))]
    total = int(per_bucket.sum())
    rows: _HostRows | None = None
    if not (stay and len(ranges) == 1 and _has_room(builder, arcs, total)):
        require_memory(_result_bytes(arcs, total), arcs.what)
        rows = _HostRows(arcs)
        rows.reserve(total)
    for first, last, count in ranges:
        keyed = arcs.range(first, last)
        builder.require(_range_bytes(arcs, count, last - first), arcs.what)
        with ExitStack() as owned:
            keys, weights = _sorted_keys(builder, arcs, keyed, count, owned)
            kept = count
            if arcs.merge:
                keys, kept = _distinct(builder, keys, count, owned)
            if rows is None:
                return _rows_that_stay(builder, arcs, keyed, keys, kept, weights)
            _write_rows(builder, arcs, keyed, keys, kept, weights, rows)
    assert rows is not None
    return rows.finished()


def _result_bytes(arcs: ArcsOnGpu, count: int) -> int:
    return estimate_bytes(arcs.vertices, count, arcs.id_dtype.itemsize, arcs.weight_bytes)


def _has_room(builder: GraphBuilder, arcs: ArcsOnGpu, count: int) -> bool:
    """Return True if the GPU has room for rows, and for what engines make of them."""
    return _COPIES_WITH_ROOM * _result_bytes(arcs, count) <= spare_bytes(builder.index)


def _check_bits(arcs: ArcsOnGpu) -> None:
    """Refuse arcs whose keys are too long: with given weights one range has all sources and targets."""
    bits = arcs.target_bits
    row_bits = max(0, bits - (_BUCKETS.bit_length() - 1)) if arcs.given_dtype is None else bits
    if bits + row_bits > _KEY_BITS or (
        arcs.given_dtype is not None and arcs.count > _MOST_ARCS // 2
    ):
        raise GraphTooLargeError(
            f"{arcs.what} is too large to be built on a GPU, which sorts keys of {_KEY_BITS} bits; "
            "the CPU builds it, with device=None"
        )


@dataclass
class _HostRows:
    """Rows on the host, filled with one range after another."""

    arcs: ArcsOnGpu
    offsets: Array = field(init=False)
    targets: Array = field(init=False)
    weights: Array | None = field(init=False)
    filled: int = 0

    def __post_init__(self) -> None:
        self.offsets = np.zeros(self.arcs.vertices + 1, np.int64)
        self.reserve(0)

    def reserve(self, count: int) -> None:
        """Allocate ``count`` arcs; pages that are never written cost nothing."""
        dtype = self.arcs.weight_dtype
        self.targets = np.empty(count, self.arcs.id_dtype)
        self.weights = None if dtype is None else np.empty(count, dtype)

    def finished(self) -> Rows:
        """Return the rows, shortened to what was filled."""
        for array in (self.targets, self.weights):
            if array is not None:
                array.resize(self.filled, refcheck=False)
        return Rows(self.offsets, self.targets, self.weights)


def _range_bytes(arcs: ArcsOnGpu, count: int, rows: int) -> int:
    """Return the peak of GPU memory for a range: while it is sorted, or while its rows are written."""
    result = arcs.id_dtype.itemsize + arcs.weight_bytes
    if arcs.given_dtype is not None:
        slots = 2 * arcs.count if arcs.both_directions else arcs.count
        return slots * _ORDERED_BYTES + count * (_KEY_BYTES + result) + 8 * rows
    return count * (_KEY_BYTES + max(_KEY_BYTES, result)) + 8 * (rows + count // TILE + 2)


def _capacity_arcs(builder: GraphBuilder, arcs: ArcsOnGpu) -> int:
    """Return the arcs that can be sorted at once, if all rows are in one range."""
    per_arc = _range_bytes(arcs, 1 << 20, 0) / (1 << 20)
    return int((spare_bytes(builder.index) - 8 * arcs.vertices) / per_arc)


def _count_arcs(builder: GraphBuilder, arcs: ArcsOnGpu) -> tuple[Array, int]:
    """Return the number of arcs of each bucket of sources, and the bits of a source within its bucket."""
    bucket_bits = max(0, arcs.target_bits - (_BUCKETS.bit_length() - 1))
    with Buffer(builder.index, 8 * _BUCKETS) as counts:
        builder.clear(counts)
        builder.start("count_arcs", arcs.edges, arcs.rules, bucket_bits, counts.pointer)
        builder.stream.synchronize()
        return counts.download(np.uint64, _BUCKETS).astype(np.int64), bucket_bits


def _ranges(
    per_bucket: Array, bucket_bits: int, arcs: ArcsOnGpu, limit: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (first source, last source + 1, number of arcs) of ranges of sources that are sorted together.

    A range consists of whole buckets. It has at most ``limit`` arcs, unless a single bucket has more, and
    no more sources than a key has bits for.

    :param per_bucket: number of arcs of each bucket of ``1 << bucket_bits`` sources
    """
    used = ((arcs.vertices - 1) >> bucket_bits) + 1
    most_buckets = max(1, 1 << max(0, _KEY_BITS - arcs.target_bits - bucket_bits))
    begin = 0
    while begin < used:
        end = begin + 1
        count = int(per_bucket[begin])
        while end < used and end - begin < most_buckets and count + per_bucket[end] <= limit:
            count += int(per_bucket[end])
            end += 1
        yield begin << bucket_bits, min(end << bucket_bits, arcs.vertices), count
        begin = end


def _sorted_keys(
    builder: GraphBuilder, arcs: ArcsOnGpu, keyed: Any, count: int, owned: ExitStack
) -> tuple[Buffer, Buffer | None]:
    """Return the keys of a range in order, and the given weights in the same order."""
    if arcs.given_dtype is not None:
        return _stably_sorted(builder, arcs, keyed, count, owned)
    keys = owned.enter_context(Buffer(builder.index, _KEY_BYTES * count))
    with builder.step("distribute"), Buffer(builder.index, 8) as cursor:
        builder.clear(cursor)
        builder.start(
            "distribute_arcs", arcs.edges, arcs.rules, keyed, keys.pointer, cursor.pointer
        )
        builder.stream.synchronize()
    if count:
        with builder.step("sort"):
            sort_keys(keys, count, builder.stream)
    return keys, None


def _stably_sorted(
    builder: GraphBuilder, arcs: ArcsOnGpu, keyed: Any, count: int, owned: ExitStack
) -> tuple[Buffer, Buffer]:
    """Return all keys in order, parallel arcs in the order given, and the weights in the same order."""
    assert arcs.given_dtype is not None
    slots = 2 * arcs.count if arcs.both_directions else arcs.count
    keys = owned.enter_context(Buffer(builder.index, _KEY_BYTES * count))
    weights = owned.enter_context(Buffer(builder.index, arcs.given_dtype.itemsize * count))
    with Buffer(builder.index, _KEY_BYTES * slots) as unsorted:
        with builder.step("distribute"):
            builder.start("place_arcs", arcs.edges, arcs.rules, keyed, unsorted.pointer)
        with builder.step("sort"):
            order = stable_order(unsorted, slots, builder.stream)
            positions = int(order.data.ptr)
            builder.start("gather_keys", unsorted.pointer, positions, count, keys.pointer)
            builder.start(
                "gather_weights",
                arcs.given_weights,
                positions,
                count,
                int(arcs.both_directions),
                weights.pointer,
            )
    return keys, weights


def _distinct(
    builder: GraphBuilder, keys: Buffer, count: int, owned: ExitStack
) -> tuple[Buffer, int]:
    """Return the distinct keys among sorted ones, and their number."""
    tiles_count = -(-count // TILE)
    with builder.step("merge"), Buffer(builder.index, 8 * (tiles_count + 1)) as tiles:
        builder.start("count_distinct", keys.pointer, count, tiles.pointer)
        distinct = builder.sum_up(tiles, tiles_count)
        kept = owned.enter_context(Buffer(builder.index, _KEY_BYTES * distinct))
        builder.start("keep_distinct", keys.pointer, count, tiles.pointer, kept.pointer)
        builder.stream.synchronize()
        keys.close()
    return kept, distinct


def _write_rows(
    builder: GraphBuilder,
    arcs: ArcsOnGpu,
    keyed: Any,
    keys: Buffer,
    count: int,
    weights: Buffer | None,
    rows: _HostRows,
) -> None:
    """Write the rows of sorted keys, and download them."""
    index, start = builder.index, builder.start
    first, last = keyed.first, keyed.last
    begin, end = rows.filled, rows.filled + count
    with Buffer(index, 8 * (last - first)) as ends:
        with builder.step("rows"):
            start("write_ends", keys.pointer, count, keyed, begin, ends.pointer)
        with builder.step("download"):
            download(index, ends.pointer, rows.offsets[first + 1 : last + 1])
    with Buffer(index, arcs.id_dtype.itemsize * count) as targets:
        with builder.step("rows"):
            start("write_targets", keys.pointer, count, keyed, targets.pointer)
        with builder.step("download"):
            download(index, targets.pointer, rows.targets[begin:end])
    if rows.weights is not None:
        with ExitStack() as owned:
            if weights is None:
                weights = owned.enter_context(Buffer(index, arcs.weight_bytes * count))
                with builder.step("rows"):
                    rule = arcs.weights.structure
                    start("write_weights", keys.pointer, count, keyed, rule, weights.pointer)
            with builder.step("download"):
                download(index, weights.pointer, rows.weights[begin:end])
    rows.filled = end


def _rows_that_stay(
    builder: GraphBuilder,
    arcs: ArcsOnGpu,
    keyed: Any,
    keys: Buffer,
    count: int,
    weights: Buffer | None,
) -> RowsOnGpu:
    """Write the rows of all keys, in order, into memory of the GPU that the result owns.

    :param weights: given weights in the order of the keys, which the result takes over
    """
    index, start = builder.index, builder.start
    with builder.step("rows"), ExitStack() as made:
        offsets = made.enter_context(Buffer(index, 8 * (arcs.vertices + 1)))
        start("clear", offsets.pointer, 1)
        start("write_ends", keys.pointer, count, keyed, 0, offsets.pointer + 8)
        targets = made.enter_context(Buffer(index, arcs.id_dtype.itemsize * count))
        start("write_targets", keys.pointer, count, keyed, targets.pointer)
        builder.stream.synchronize()
        made.pop_all()
    held_weights = None
    if weights is not None:
        owner = weights.moved()
        held_weights = HeldArray(index, owner.pointer, arcs.given_dtype, count, owner)
    return RowsOnGpu(
        HeldRows(
            HeldArray(index, offsets.pointer, np.int64, arcs.vertices + 1, offsets),
            HeldArray(index, targets.pointer, arcs.id_dtype, count, targets),
            held_weights,
        )
    )


def rows_of_gpu_arrays(
    sources: Any, targets: Any, weights: Any, vertex_count: Any, directed: bool, id_dtype: Any
) -> Rows | RowsOnGpu | None:
    """Return the rows of edges whose arrays lie on a GPU, as :meth:`Graph.from_edges` makes them.

    None if an array is wrong, or the GPU has no room: the host then builds the rows, or names the first
    mistake.
    """
    try:
        return _rows_of_arrays(sources, targets, weights, vertex_count, directed, id_dtype)
    except (InputError, DeviceError, MemoryError):
        return None


def _rows_of_arrays(
    sources: Any, targets: Any, weights: Any, vertex_count: Any, directed: bool, id_dtype: Any
) -> Rows | RowsOnGpu | None:
    arrays = [on_gpu(values) for values in (sources, targets, weights) if values is not None]
    if not _are_consistent(arrays):
        return None
    first, second, *others = arrays
    first.device.synchronize()  # the arrays may have been made in any stream
    given_count = None if vertex_count is None else as_count(vertex_count, "vertex_count")
    arcs = ArcsOnGpu(
        edges=GivenEdges(int(first.data.ptr), int(second.data.ptr)),
        edges_type=f"GivenEdges<{c_id(np.dtype(first.dtype))}>",
        count=int(first.size),
        vertices=given_count or 1,
        id_dtype=id_dtype_for(given_count or 1, id_dtype),
        what=f"a graph of {int(first.size):,} arcs",
        both_directions=not directed,
        given_weights=int(others[0].data.ptr) if others else 0,
        given_dtype=np.dtype(others[0].dtype) if others else None,
    )
    index = int(first.device.id)
    with GraphBuilder(index, arcs.source) as builder:
        smallest, largest = _id_range(builder, arcs)
    vertices = largest + 1 if given_count is None else given_count
    if smallest < 0 or largest >= vertices:
        return None
    arcs = replace(arcs, vertices=vertices, id_dtype=id_dtype_for(vertices, id_dtype))
    with GraphBuilder(index, arcs.source) as builder:
        return _build_rows(builder, arcs, stay=True)


def _are_consistent(arrays: list[Any]) -> bool:
    """Return True if sources, targets and any weights lie on one GPU, with one length and known dtypes."""
    if common_gpu(arrays) is None:
        return False
    first, second, *others = arrays
    return (
        len({int(array.size) for array in arrays}) == 1
        and first.size > 0
        and first.dtype in ID_DTYPES
        and second.dtype == first.dtype
        and all(array.dtype in WEIGHT_DTYPES for array in others)
    )


def _id_range(builder: GraphBuilder, arcs: ArcsOnGpu) -> tuple[int, int]:
    """Return the smallest and the largest id."""
    none = np.array(_NO_ID, np.int64)
    with Buffer(builder.index, none.nbytes) as id_range:
        driver.copy_async(id_range.pointer, none.ctypes.data, none.nbytes, builder.stream)
        builder.start("find_id_range", arcs.edges, arcs.count, id_range.pointer)
        builder.stream.synchronize()
        smallest, largest = id_range.download(np.int64, 2)
    return int(smallest), int(largest)
