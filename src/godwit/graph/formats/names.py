"""Vertices that a file names by integers, of which few of the possible ones occur."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import Array, frozen, id_dtype_for
from godwit.graph.ids import MAXIMAL_ID_BASE, VertexIds


class Names:
    """The vertices 0, 1, 2, …: integers that are not negative, in ascending order.

    :param names: (n) int64, in any order
    :ivar ids: of the vertices
    :ivar duplicate: a name that occurs twice; None if there is none
    """

    def __init__(self, names: Array) -> None:
        ascending = np.sort(names)
        count = len(ascending)
        again = np.flatnonzero(ascending[1:] == ascending[:-1])
        self.duplicate = int(ascending[again[0]]) if len(again) else None
        first = int(ascending[0]) if count else 0
        consecutive = count == 0 or int(ascending[-1]) - first == count - 1
        self._base = first if consecutive and first <= MAXIMAL_ID_BASE else None
        self._set: Any = None
        if self._base is not None:
            self.ids = VertexIds(count, first)
            return
        import pyarrow as pa

        self.ids = VertexIds.trusted("integer", frozen(ascending, np.int64))
        self._set = pa.array(ascending)

    def vertices(self, names: Array) -> Array:
        """(k) the vertices of so many names; -1 where there is none."""
        dtype = id_dtype_for(len(self.ids))
        if self._base is not None:
            vertices = names - self._base
            vertices[(vertices < 0) | (vertices >= len(self.ids))] = -1
            return vertices.astype(dtype)
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pc.index_in(pa.array(names), value_set=self._set)
        return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(dtype, copy=False)  # type: ignore[no-any-return]
