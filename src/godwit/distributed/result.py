"""Results of which each process has the values of its own vertices."""

from __future__ import annotations

import os
import pickle
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from godwit.distributed.gpu_graph import GpuGraph, array_of_ids
from godwit.distributed.graph import DistributedGraph
from godwit.distributed.processes import Processes
from godwit.dtypes import Array, as_count
from godwit.errors import FileError, InputError
from godwit.files import replacing
from godwit.graph.ids import VertexIds
from godwit.graph.interchange.tables import Column
from godwit.graph.result import VertexResult, highest_values
from godwit.runtime.statistics import RunStatistics


class DistributedResult(VertexResult):
    """Values of the own vertices of a process, or, after :meth:`gather`, of all vertices.

    :ivar vertices: positions in the whole graph of the vertices that have values here
    :ivar statistics: counts and times of the run, the same in all processes
    """

    value_name: ClassVar[str]
    """Name of the values, also that of the attribute."""
    _gathered: ClassVar[tuple[str, ...]] = ("_values",)
    """Attributes that are an array with an element for each vertex, or None."""

    def __init__(
        self, graph: DistributedGraph | GpuGraph, values: Array, statistics: RunStatistics
    ) -> None:
        self._processes: Processes | None = graph.processes
        self.vertices = graph.vertices
        self._ids = graph.ids
        self._values = values
        self.statistics = statistics

    @property
    def ids(self) -> VertexIds:
        """Ids of the vertices that have values here, in the order of the values."""
        return self._ids

    @property
    def columns(self) -> list[Column]:
        """The values; a subclass says which are there."""
        return [Column(self.value_name, self._values)]

    def _column_of_vertices(
        self,
        name: str,
        positions: Array,
        names: Array | VertexIds | int,
        present: Array | None = None,
    ) -> Column:
        """Return a column whose values are vertices of the whole graph.

        :param names: their ids; or those of all vertices, of which the first one is enough if they are
            consecutive
        """
        if self._processes is None:
            return Column(name, positions, present, ids=True)
        if isinstance(names, VertexIds):
            names = array_of_ids(names, np.maximum(positions, 0))
        return Column(name, positions + names if isinstance(names, int) else names, present)

    def gather(self, root: int = 0) -> Self | None:
        """Return the result of all vertices in one process, and None in the others; all call it.

        >>> import godwit as gw
        >>> graph = gw.distributed.context().place("path:4")
        >>> gw.bfs(graph, 0).gather().distance.tolist()
        [0, 1, 2, 3]

        :param root: the process that gets all values
        :raises InputError: there is no such process
        """
        processes = self._processes
        if processes is None:
            return self
        with processes.running("gather", root):
            root = as_count(root, "root", 0, processes.count - 1)
            arrays = {name: processes.gather(array, root) for name, array in self._arrays().items()}
            ids = processes.gather(np.frombuffer(pickle.dumps(self._ids), np.uint8), root)
        if processes.rank != root:
            return None
        whole = copy(self)
        whole._processes = None
        whole._set_arrays({name: np.concatenate(parts or ()) for name, parts in arrays.items()})
        whole.vertices = range(len(whole._values))
        whole._ids = _joined([pickle.loads(part.tobytes()) for part in ids or ()])
        return whole

    def _arrays(self) -> dict[str, Array]:
        """Return the arrays that have an element for each vertex."""
        arrays = {name: getattr(self, name) for name in self._gathered}
        return {name: array for name, array in arrays.items() if array is not None}

    def _set_arrays(self, arrays: dict[str, Array]) -> None:
        """Set those of :meth:`_arrays`."""
        for name, array in arrays.items():
            setattr(self, name, array)

    def to_parquet(self, folder: str | os.PathLike[str]) -> Path:
        """Write the values as a Parquet file of each process in one folder; all processes call it.

        Readers of Parquet take the folder for one table: ``pandas.read_parquet(folder)``, with the columns
        of :meth:`to_arrow`. Files of an earlier run with another number of processes are refused.

        :param folder: made if it is not there; machines without a common file system have one each
        :returns: the file of this process, ``part-00000-of-00004.parquet``
        :raises InputError: the folder has other Parquet files
        :raises FileError: a file cannot be written
        """
        from godwit.io.binary import parquet

        rank, count = (self._processes.rank, self._processes.count) if self._processes else (0, 1)
        path = Path(folder)
        target = path / f"part-{rank:05}-of-{count:05}.parquet"

        def write() -> None:
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(f"cannot write {path}: {error.strerror or error}") from error
            of_this_run = {f"part-{other:05}-of-{count:05}.parquet" for other in range(count)}
            others = {file.name for file in path.glob("*.parquet")} - of_this_run
            if others:
                raise InputError(f"{path} has Parquet files already, such as {min(others)}")
            table = self.to_arrow()
            with replacing(target) as file, parquet.writer(file, table.schema) as writer:
                writer.write_table(table)

        if self._processes is None:
            write()
        else:
            with self._processes.running("to_parquet", os.fspath(folder)):
                write()
        return target

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all but the processes."""
        return {**self.__dict__, "_processes": None}

    def __repr__(self) -> str:
        where = f"vertices {self.vertices.start} to {self.vertices.stop} of "
        of = "" if self._processes is None else where
        return f"{type(self).__name__}({of}{len(self._values)} values, {self._values.dtype})"


class DistributedScores(DistributedResult):
    """A number for each vertex."""

    def to_dict(self) -> dict[Any, int | float]:
        """Return the value of each vertex in ``vertices``, by its id."""
        ids = self.ids.of(np.arange(len(self._values)))
        return dict(zip(ids, self._values.tolist(), strict=True))

    def highest(self, count: int) -> list[tuple[Any, int | float]]:
        """Return ids and values of the vertices of highest value in the whole graph, highest first.

        All processes call it, and get the same; of a gathered result, the process that has it. Of equal
        values that of the smaller position comes first.

        >>> import godwit as gw
        >>> graph = gw.distributed.context().place(gw.generators.star(5))
        >>> gw.betweenness_centrality(graph, normalized=False).highest(2)
        [(0, 6.0), (1, 0.0)]

        :raises InputError: ``count`` is no integer, or negative
        """
        if self._processes is None:
            return highest_values(self._values, count, self.ids)
        with self._processes.running("highest", count):
            parts = self._processes.share(highest_values(self._values, count, self.ids))
        return first_of_parts(parts, count)


def first_of_parts(parts: list[list[tuple[Any, Any]]], count: int) -> list[tuple[Any, Any]]:
    """Return the pairs of highest value, highest first, of each process' own; NaN is last."""
    listed = [pair for part in parts for pair in part]
    return sorted(listed, key=lambda pair: (pair[1] != pair[1], -pair[1]))[:count]


def _joined(parts: list[VertexIds]) -> VertexIds:
    """Return the ids of all vertices from those of the processes' vertices."""
    filled = [part for part in parts if len(part)]
    count = sum(map(len, filled))
    if not filled:
        return VertexIds(0)
    starts = (
        [filled[0][0] + sum(map(len, filled[:index])) for index in range(len(filled))]
        if all(part.is_range for part in filled)
        else []
    )
    if starts and starts == [part[0] for part in filled]:
        whole = VertexIds(count, starts[0])
    elif all(part.kind in ("consecutive", "integer") for part in filled):
        whole = VertexIds(
            count,
            np.concatenate([np.array(part.of(np.arange(len(part))), np.int64) for part in filled]),
        )
    else:
        whole = VertexIds(
            count, [name for part in filled for name in part.of(np.arange(len(part)))]
        )
    whole._base = filled[0]._base
    return whole
