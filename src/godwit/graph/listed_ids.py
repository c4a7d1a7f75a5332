"""Vertices that a file names by integers: those that occur, in ascending order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from godwit import config
from godwit.dtypes import Array, id_dtype_for
from godwit.graph.ids import VertexIds


class Names:
    """The vertices 0, 1, 2, …: integers that are not negative, in ascending order.

    :param names: (n) int64, in any order
    :ivar ids: of the vertices
    :ivar duplicate: a name that occurs twice; None if there is none
    """

    def __init__(self, names: Array) -> None:
        ascending = np.sort(names)
        again = np.flatnonzero(ascending[1:] == ascending[:-1])
        self.duplicate = int(ascending[again[0]]) if len(again) else None
        self.ids = VertexIds.ascending(ascending)
        self._set: Any = None
        if not self.ids.is_range:
            import pyarrow as pa

            self._set = pa.array(ascending)

    def vertices(self, names: Array) -> Array:
        """(k) the vertices of so many names; -1 where there is none."""
        dtype = id_dtype_for(len(self.ids))
        if self._set is None:
            vertices = names - (self.ids[0] if len(self.ids) else 0)
            vertices[(vertices < 0) | (vertices >= len(self.ids))] = -1
            return vertices.astype(dtype)
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.index_in(pa.array(names), value_set=self._set)
        return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(dtype, copy=False)  # type: ignore[no-any-return]


class OccurringIds:
    """Which integers occur in the columns of a file, as a table of flags, while these are not too sparse.

    The flags take a byte for each number up to the largest, at most 4 for each arc.

    :ivar compact: False once a number is negative or too large for the table, which is then dropped
    """

    def __init__(self) -> None:
        self.compact = True
        self._occurs: Array = np.zeros(0, np.bool_)
        self._marked = 0
        self._complete = False

    def add(self, columns: Sequence[Array], low: int, high: int, most_arcs: int) -> None:
        """Take in columns of ids, int32 or int64.

        :param low: the smallest of the ids, or a smaller number
        :param high: the largest of the ids
        :param most_arcs: arcs that the file may have, these and others
        """
        if not self.compact or all(len(column) == 0 for column in columns):
            return
        limit = min(_IDS_PER_ARC * most_arcs, config.available_memory_bytes() // _SHARE_OF_MEMORY)
        if low < 0 or high >= max(limit, _SMALLEST_TABLE):
            self.compact = False
            self._occurs = np.zeros(0, np.bool_)
            return
        if high >= len(self._occurs):
            grown = np.zeros(max(high + 1, 2 * len(self._occurs)), np.bool_)
            grown[: len(self._occurs)] = self._occurs
            self._occurs = grown
        self._marked, self._complete = 0, False
        pieces = [
            column[begin : begin + _PIECE]
            for column in columns
            for begin in range(0, len(column), _PIECE)
        ]
        mark = partial(self._mark, self._occurs[low : high + 1])
        with ThreadPoolExecutor(config.thread_count()) as pool:
            for _ in pool.map(mark, pieces):
                pass

    def _mark(self, between: Array, ids: Array) -> None:
        """Mark ids, unless all numbers between the smallest and the largest are known to occur."""
        if self._complete:
            return
        self._occurs[ids] = True
        self._marked += len(ids)  # threads may lose a sum, which only delays the look
        if self._marked >= len(between):
            self._marked, self._complete = 0, bool(between.all())

    def vertices(self) -> tuple[VertexIds, Callable[[Array], Array] | None]:
        """The ids of the vertices, and what turns ids into vertices; None where ids are a range."""
        occurring = np.flatnonzero(self._occurs)
        ids = VertexIds.ascending(occurring)
        if ids.is_range:
            return ids, None
        rank = np.cumsum(self._occurs, dtype=id_dtype_for(len(ids)))
        rank -= 1
        return ids, partial(np.take, rank, mode="clip")  # all are known to be in range


_IDS_PER_ARC = 4
_PIECE = 1 << 20
_SMALLEST_TABLE = 1 << 16
_SHARE_OF_MEMORY = 8
