"""Rows sorted by weight, made on the CPU when searches need them, and kept with the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array, frozen
from godwit.graph.csr import Graph
from godwit.graph.facts import in_arcs
from godwit.graph.rows import Rows
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import next_range, run_team
from godwit.runtime.cpu.values import to_bits

_ROWS_AT_ONCE = 256
_SHORT_ROW = 32
"""Arcs of a row up to which insertion is faster than a radix sort."""

_BYTE_VALUES = 256

at: Any = np.uint64
"""Cast of an index that is not negative: saves Numba's test for Python's a[-1]."""


@dataclass(frozen=True)
class SortedRows:
    """Rows, each by ascending weight; of equal weights in the graph's order.

    :param offsets: (n + 1) int64
    :param arcs: (m) records of a ``target`` and a ``weight``: a search reads both
    """

    offsets: Array
    arcs: Array

    @classmethod
    def of(cls, rows: Rows) -> SortedRows:
        """Return the sorted rows."""
        assert rows.weights is not None
        arcs = np.empty(rows.arc_count, record_dtype(rows))
        threads = config.thread_count()
        longest = int(np.diff(rows.offsets).max(initial=0))
        spare = np.empty((threads, longest if longest > _SHORT_ROW else 0), arcs.dtype)
        given = frozen(rows.offsets), frozen(rows.targets), frozen(rows.weights)
        places = np.empty((threads, _BYTE_VALUES), np.int64)
        run_team(_sort_rows, *given, arcs, spare, places, threads=threads)
        return cls(given[0], frozen(arcs))


@dataclass(frozen=True)
class SearchRows:
    """Sorted rows of arcs in both directions; the same ones if the graph is symmetric."""

    out: SortedRows
    into: SortedRows


def search_rows(graph: Graph) -> SearchRows:
    """Return the sorted rows of a graph, made once."""
    rows: SearchRows = graph.cached("rows by weight", lambda: _make_search_rows(graph))
    return rows


_SEARCH_BYTES_PER_VERTEX = 128
"""Upper bound of what a search needs besides rows: open entries, queues, stamps, distances."""


def has_room_for_rows(graph: Graph) -> bool:
    """Return True if memory is free for a search and the sorted rows in both directions, or these exist."""
    copies = 3 if graph.directed else 1  # both directions, and the reverse from which one is made
    needed = copies * graph.arc_count * record_dtype(graph.rows).itemsize
    needed += _SEARCH_BYTES_PER_VERTEX * graph.vertex_count
    return "rows by weight" in graph._cache or config.missing_memory_bytes(needed) is None


def record_dtype(rows: Rows) -> np.dtype[Any]:
    """Return the dtype of an arc."""
    assert rows.weights is not None
    return np.dtype([("target", rows.targets.dtype), ("weight", rows.weights.dtype)])


def _make_search_rows(graph: Graph) -> SearchRows:
    out = SortedRows.of(graph.rows)
    reverse = in_arcs(graph, weighted=True)
    return SearchRows(out, out if reverse is graph else SortedRows.of(reverse.rows))


def _insert_each(arcs: Any, begin: int, end: int) -> None:
    """Sort a row by insertion."""
    for i in range(begin + 1, end):
        target = arcs[at(i)].target
        weight = arcs[at(i)].weight
        j = i
        while j > begin and arcs[at(j - 1)].weight > weight:
            arcs[at(j)].target = arcs[at(j - 1)].target
            arcs[at(j)].weight = arcs[at(j - 1)].weight
            j -= 1
        arcs[at(j)].target = target
        arcs[at(j)].weight = weight


def _move_by_byte(into: Any, first: int, arcs: Any, begin: int, count: int, shift: int,
                  places: Any) -> None:  # fmt: skip
    """Copy arcs in the order of a byte of their weights."""
    places[:] = 0
    for i in range(count):
        places[at((to_bits(arcs[at(begin + i)].weight + 0) >> shift) & 255)] += 1
    place = np.int64(first)
    for byte in range(_BYTE_VALUES):
        size = places[at(byte)]
        places[at(byte)] = place
        place += size
    for i in range(count):
        byte = (to_bits(arcs[at(begin + i)].weight + 0) >> shift) & 255
        place = places[at(byte)]
        places[at(byte)] = place + 1
        into[at(place)].target = arcs[at(begin + i)].target
        into[at(place)].weight = arcs[at(begin + i)].weight


def _sort_by_bytes(arcs: Any, begin: int, end: int, spare: Any, places: Any) -> None:
    """Sort a row by the bytes of its weights, which are not negative and so ordered like their bits."""
    count = end - begin
    first = to_bits(arcs[at(begin)].weight + 0)
    differing = np.int64(0)
    for i in range(begin, end):
        differing |= to_bits(arcs[at(i)].weight + 0) ^ first
    is_spare = False
    for byte in range(8):
        if (differing >> (8 * byte)) & 255 == 0:
            continue
        if is_spare:
            _move_by_byte(arcs, begin, spare, 0, count, 8 * byte, places)
        else:
            _move_by_byte(spare, 0, arcs, begin, count, 8 * byte, places)
        is_spare = not is_spare
    if is_spare:
        for i in range(count):
            arcs[at(begin + i)].target = spare[at(i)].target
            arcs[at(begin + i)].weight = spare[at(i)].weight


@kernel
def _sort_rows(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, weights: Any, arcs: Any,
    spare: Any, places: Any,
) -> None:  # fmt: skip
    """Copy rows, sorted by weight, to ``arcs``; ``spare`` and ``places`` have a row for each thread."""
    while True:
        first, last = next_range(control, _ROWS_AT_ONCE, offsets.size - 1)
        if first == last:
            return
        for v in range(first, last):
            begin = offsets[at(v)]
            end = offsets[at(v + 1)]
            for i in range(begin, end):
                arcs[at(i)].target = targets[at(i)]
                arcs[at(i)].weight = weights[at(i)]
            if end - begin <= _SHORT_ROW:
                _insert_each(arcs, begin, end)
            else:
                _sort_by_bytes(arcs, begin, end, spare[rank], places[rank])
