"""Results as files, which exist completely or not at all (:mod:`godwit.files`).

``.npy`` holds what the Python functions return: an array in the order of the vertices (with fields if there
are several columns), or of the arcs; vertices are numbered from 0, and unreached vertices have the largest
distance. ``.csv`` and ``.parquet`` are tables with a column ``vertex``, or ``source`` and ``target``, which
hold the ids of the graph's file; they list each edge of an undirected graph once, and values that do not
exist (the distance of an unreached vertex) are empty or null.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from godwit.cli.failures import PipeClosedError
from godwit.errors import InputError
from godwit.files import check_writable, replacing
from godwit.graph.interchange.tables import Column, edge_tables, vertex_table

if TYPE_CHECKING:
    from godwit.dtypes import Array
    from godwit.graph.csr import Graph
    from godwit.graph.ids import VertexIds

STDOUT = "-"
FORMS = (".npy", ".csv", ".parquet")


class Output:
    """Destination of a result, checked before the command computes it.

    :param target: a path, ``-`` for CSV on stdout, or None for nowhere
    :param input_path: the file that the command reads, which must be another
    :param json: True if JSON goes to stdout
    :param trace: the timeline's file, which must be another
    :param npy_only: True if the result cannot be a table
    :raises InputError: the ending is unknown, the path is that of the input or of the timeline, or result
        and JSON both go to stdout
    :raises FileError: the file could not be written: a temporary file is written to find out
    """

    def __init__(
        self,
        target: str | None,
        input_path: str,
        json: bool = False,
        trace: str | None = None,
        npy_only: bool = False,
    ) -> None:
        self.target = target
        self._form = ".csv"
        self.on_stdout = target == STDOUT and not npy_only
        if json and self.on_stdout:
            raise InputError("--json and --output - both want stdout; give --output a file")
        if target is None or self.on_stdout:
            return
        self._form = Path(target).suffix.lower()
        if npy_only and self._form != ".npy":
            raise InputError(f"--output must end in .npy, got {target!r}")
        if self._form not in FORMS:
            raise InputError(
                f"--output must end in {', '.join(FORMS[:-1])} or {FORMS[-1]}, or be {STDOUT} for "
                f"CSV on stdout; got {target!r}"
            )
        check_writable(target, input_path)
        if trace is not None and os.path.realpath(trace) == os.path.realpath(target):
            raise InputError(f"--trace and --output are the same file, {target}")

    def write(self, columns: list[Column], ids: VertexIds) -> None:
        """Write columns that have a value for each vertex.

        :param ids: of the vertices in tables
        :raises FileError: writing failed, and a previous file is unchanged
        """
        self._write(columns, lambda: [vertex_table(columns, ids)])

    def write_edges(self, column: Column, graph: Graph) -> None:
        """Write a column that has a value for each arc of a graph.

        :raises FileError: writing failed, and a previous file is unchanged
        """
        self._write(
            [column], lambda: edge_tables(column, graph.rows, graph.ids.in_file, graph.directed)
        )

    def write_matrix(self, values: Array, table: Callable[[], Any]) -> None:
        """Write a matrix: as .npy as it is, else as the Arrow table that a function returns.

        :raises FileError: writing failed, and a previous file is unchanged
        """
        self._write([Column("", values)], lambda: [table()])

    def write_array(self, values: Array) -> None:
        """Write an array, as .npy.

        :raises FileError: writing failed, and a previous file is unchanged
        """
        self._write([Column("", values)], tuple)

    def _write(self, columns: list[Column], tables: Callable[[], Iterable[Any]]) -> None:
        """Write columns as .npy, or the tables: Arrow tables of the same columns, one after the other."""
        if self.target is None:
            return
        if self.on_stdout:
            try:
                sys.stdout.flush()
                _write_csv(sys.stdout.buffer, tables())
                sys.stdout.buffer.flush()
            except BrokenPipeError as error:
                raise PipeClosedError from error
            return
        with replacing(self.target) as file:
            if self._form == ".npy":
                _write_npy(file, columns)
            elif self._form == ".csv":
                _write_csv(file, tables())
            else:
                _write_parquet(file, tables())


def _write_npy(file: IO[bytes], columns: list[Column]) -> None:
    import numpy as np

    if len(columns) == 1:
        np.save(file, columns[0].values, allow_pickle=False)
        return
    fields = np.dtype([(column.name, column.values.dtype) for column in columns])
    rows = np.empty(len(columns[0].values), fields)
    for column in columns:
        rows[column.name] = column.values
    np.save(file, rows, allow_pickle=False)


def _write_csv(file: Any, tables: Iterable[Any]) -> None:
    import pyarrow.csv

    for count, table in enumerate(tables):
        if count == 0:  # Arrow would quote the names
            file.write((",".join(table.column_names) + "\n").encode())
        pyarrow.csv.write_csv(table, file, pyarrow.csv.WriteOptions(include_header=False))


def _write_parquet(file: BinaryIO, tables: Iterable[Any]) -> None:
    from godwit.io.binary import parquet

    remaining = iter(tables)
    first = next(remaining, None)
    if first is None:
        return
    with parquet.writer(file, first.schema) as writer:
        for table in chain([first], remaining):
            writer.write_table(table)
