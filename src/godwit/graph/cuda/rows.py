"""Arcs into rows on a GPU: as graph/build.py, whose result they equal. Kernels: build_rows.cuh.

A graph whose arcs do not fit at once is built by ranges of sources, each brought down before the next.
Parallel arcs with given weights stay in their order, which takes a stable sort of places beside the keys,
and all arcs at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.graph.cuda.builder import TILE, GraphBuilder, kernel_source
from godwit.graph.cuda.structures import NO_WEIGHTS, Dealing, RandomWeights, Range, c_id, c_word
from godwit.runtime.cuda.download import download
from godwit.runtime.cuda.driver import Buffer
from godwit.runtime.cuda.sorting import sort_keys, stable_order

_BUCKETS = 1024  # as in build_rows.cuh
_KEY_BITS = 63
_MOST_ARCS = 2**31 - 1  # of one sort
_KEY_BYTES = 8
# Keys, places and what a stable sort of both needs beside them.
_ORDERED_BYTES = 48


@dataclass(frozen=True)
class ArcsOnGpu:
    """Edges that a GPU holds or draws, and what rows shall be made of them.

    :param edges: a structure of structures.py, of the C++ type ``edges_type``
    :param count: how many edges there are
    :param weights: random weights of the arcs
    :param given_weights: a pointer to the edges' own, of ``given_dtype``, instead
    :param what: the graph in words
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
        """Of the kernels."""
        return kernel_source(
            "graph/cuda/row_kernels.cuh",
            Edges=self.edges_type,
            Id=c_id(self.id_dtype),
            Word=c_word(self.given_dtype),
            Weights=self.weights.type_name,
        )

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """Of the graph's weights; None if it has none."""
        return self.weights.dtype if self.given_dtype is None else self.given_dtype

    @property
    def dealing(self) -> Dealing:
        """As kernels take it."""
        return Dealing(self.count, self.both_directions, self.drop_loops)

    @property
    def target_bits(self) -> int:
        """Of a key."""
        return max(1, (self.vertices - 1).bit_length())

    def range(self, first: int, last: int) -> Range:
        """As kernels take it."""
        return Range(first, last, self.target_bits)


def build_rows(
    builder: GraphBuilder, arcs: ArcsOnGpu, *, arcs_at_once: int = _MOST_ARCS
) -> tuple[Array, Array, Array | None]:
    """(offsets, targets, weights) on the host.

    :param builder: of ``arcs.source``
    :param arcs_at_once: at most so many are sorted together, where buckets of sources allow
    :raises GraphTooLargeError: before anything large is allocated
    """
    _check_bits(arcs)
    rows = _HostRows(arcs)
    if arcs.count == 0 or arcs.vertices == 0:
        return rows.finished()
    with builder.step("count"):
        per_bucket, bucket_bits = _count_arcs(builder, arcs)
    rows.reserve(int(per_bucket.sum()))
    limit = min(arcs_at_once, _MOST_ARCS, _capacity_arcs(builder, arcs))
    ranges = _ranges(per_bucket, bucket_bits, arcs, limit)
    if arcs.given_dtype is not None:
        ranges = iter([(0, arcs.vertices, int(per_bucket.sum()))])
    for first, last, count in ranges:
        one_range = arcs.range(first, last)
        builder.require(_range_bytes(arcs, count, last - first), arcs.what)
        with ExitStack() as owned:
            keys, weights = _sorted_keys(builder, arcs, one_range, count, owned)
            stay = count
            if arcs.merge:
                keys, stay = _distinct(builder, keys, count, owned)
            _read_off(builder, arcs, one_range, keys, stay, weights, rows)
    return rows.finished()


def _check_bits(arcs: ArcsOnGpu) -> None:
    """Refuse what has no keys: with given weights all sources and targets share one range."""
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
    """Rows as they come down: those of one range after another."""

    arcs: ArcsOnGpu
    offsets: Array = field(init=False)
    targets: Array = field(init=False)
    weights: Array | None = field(init=False)
    filled: int = 0

    def __post_init__(self) -> None:
        self.offsets = np.zeros(self.arcs.vertices + 1, np.int64)
        self.reserve(0)

    def reserve(self, count: int) -> None:
        """Room for so many arcs; pages that are never written cost nothing."""
        dtype = self.arcs.weight_dtype
        self.targets = np.empty(count, self.arcs.id_dtype)
        self.weights = None if dtype is None else np.empty(count, dtype)

    def finished(self) -> tuple[Array, Array, Array | None]:
        """The arrays, no longer than they need to be."""
        for array in (self.targets, self.weights):
            if array is not None:
                array.resize(self.filled, refcheck=False)
        return self.offsets, self.targets, self.weights


def _range_bytes(arcs: ArcsOnGpu, count: int, rows: int) -> int:
    """Bytes of the GPU at the worst moment of a range: while it is sorted, or while it is read off."""
    weight_bytes = 0 if arcs.weight_dtype is None else arcs.weight_dtype.itemsize
    result = arcs.id_dtype.itemsize + weight_bytes
    if arcs.given_dtype is not None:
        slots = 2 * arcs.count if arcs.both_directions else arcs.count
        return slots * _ORDERED_BYTES + count * (_KEY_BYTES + result) + 8 * rows
    return count * (_KEY_BYTES + max(_KEY_BYTES, result)) + 8 * (rows + count // TILE + 2)


def _capacity_arcs(builder: GraphBuilder, arcs: ArcsOnGpu) -> int:
    """Arcs that can be sorted at once, should all rows be in the same range."""
    per_arc = _range_bytes(arcs, 1 << 20, 0) / (1 << 20)
    return int((builder.spare_bytes() - 8 * arcs.vertices) / per_arc)


def _count_arcs(builder: GraphBuilder, arcs: ArcsOnGpu) -> tuple[Array, int]:
    """How many arcs leave each bucket of sources, and how many bits a source has within one."""
    bucket_bits = max(0, arcs.target_bits - (_BUCKETS.bit_length() - 1))
    with Buffer(builder.index, 8 * _BUCKETS) as counts:
        builder.clear(counts)
        builder.start("count_arcs", arcs.edges, arcs.dealing, bucket_bits, counts.pointer)
        builder.stream.synchronize()
        return counts.download(np.uint64, _BUCKETS).astype(np.int64), bucket_bits


def _ranges(
    per_bucket: Array, bucket_bits: int, arcs: ArcsOnGpu, limit: int
) -> Iterator[tuple[int, int, int]]:
    """Neighbouring buckets together, as long as their arcs and their keys' bits allow: (first source, last
    source + 1, arcs)."""
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
    builder: GraphBuilder, arcs: ArcsOnGpu, one_range: Range, count: int, owned: ExitStack
) -> tuple[Buffer, Buffer | None]:
    """The keys of a range in order, and the given weights in the same order."""
    if arcs.given_dtype is not None:
        return _placed(builder, arcs, one_range, count, owned)
    keys = owned.enter_context(Buffer(builder.index, _KEY_BYTES * count))
    with builder.step("deal"), Buffer(builder.index, 8) as cursor:
        builder.clear(cursor)
        builder.start(
            "deal_arcs", arcs.edges, arcs.dealing, one_range, keys.pointer, cursor.pointer
        )
        builder.stream.synchronize()
    if count:
        with builder.step("sort"):
            sort_keys(keys, count, builder.stream)
    return keys, None


def _placed(
    builder: GraphBuilder, arcs: ArcsOnGpu, one_range: Range, count: int, owned: ExitStack
) -> tuple[Buffer, Buffer]:
    """All keys in order, parallel arcs as given, and the weights given with them."""
    assert arcs.given_dtype is not None
    slots = 2 * arcs.count if arcs.both_directions else arcs.count
    keys = owned.enter_context(Buffer(builder.index, _KEY_BYTES * count))
    weights = owned.enter_context(Buffer(builder.index, arcs.given_dtype.itemsize * count))
    with Buffer(builder.index, _KEY_BYTES * slots) as places:
        with builder.step("deal"):
            builder.start("place_arcs", arcs.edges, arcs.dealing, one_range, places.pointer)
        with builder.step("sort"):
            order = stable_order(places, slots, builder.stream)
            where = int(order.data.ptr)
            builder.start("gather_keys", places.pointer, where, count, keys.pointer)
            builder.start(
                "gather_weights",
                arcs.given_weights,
                where,
                count,
                int(arcs.both_directions),
                weights.pointer,
            )
    return keys, weights


def _distinct(
    builder: GraphBuilder, keys: Buffer, count: int, owned: ExitStack
) -> tuple[Buffer, int]:
    """The distinct ones of sorted keys, and how many there are."""
    tiles_count = -(-count // TILE)
    with builder.step("merge"), Buffer(builder.index, 8 * (tiles_count + 1)) as tiles:
        builder.start("count_distinct", keys.pointer, count, tiles.pointer)
        distinct = builder.sum_up(tiles, tiles_count)
        kept = owned.enter_context(Buffer(builder.index, _KEY_BYTES * distinct))
        builder.start("keep_distinct", keys.pointer, count, tiles.pointer, kept.pointer)
        builder.stream.synchronize()
        keys.close()
    return kept, distinct


def _read_off(
    builder: GraphBuilder,
    arcs: ArcsOnGpu,
    one_range: Range,
    keys: Buffer,
    count: int,
    weights: Buffer | None,
    rows: _HostRows,
) -> None:
    """Make rows of distinct or sorted keys, and bring them down."""
    index, start = builder.index, builder.start
    first, last = one_range.first, one_range.last
    begin, end = rows.filled, rows.filled + count
    with closing(Buffer(index, 8 * (last - first))) as ends:
        with builder.step("rows"):
            start("write_ends", keys.pointer, count, one_range, begin, ends.pointer)
        with builder.step("download"):
            download(index, ends.pointer, rows.offsets[first + 1 : last + 1])
    with closing(Buffer(index, arcs.id_dtype.itemsize * count)) as targets:
        with builder.step("rows"):
            start("write_targets", keys.pointer, count, one_range, targets.pointer)
        with builder.step("download"):
            download(index, targets.pointer, rows.targets[begin:end])
    if rows.weights is not None:
        with ExitStack() as owned:
            if weights is None:
                weights = owned.enter_context(Buffer(index, arcs.weights.itemsize * count))
                with builder.step("rows"):
                    rule = arcs.weights.structure
                    start("write_weights", keys.pointer, count, one_range, rule, weights.pointer)
            with builder.step("download"):
                download(index, weights.pointer, rows.weights[begin:end])
    rows.filled = end
