"""Results as files: complete under their name, or not there at all (:mod:`godwit.files`).

Whether they can be written is found out before anything else is done.

Forms. ``.npy`` holds what the Python functions return: an array in the order of the vertices,
counted from 0 (with fields, where there is more than one column), sentinels and all; of edges, in the
order of the arcs. ``.csv`` and ``.parquet`` are tables with a column ``vertex``, or ``source`` and
``target``; there, vertices are called what the file of the graph calls them, each edge of an undirected
graph stands once, and what does not exist (the distance of an unreached vertex) is empty or null.
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
    from godwit.graph.csr import Graph
    from godwit.graph.ids import VertexIds

Tables = Callable[[], Iterable[Any]]
"""Arrow tables of the same columns, one after the other, once they are asked for."""

STDOUT = "-"
FORMS = (".npy", ".csv", ".parquet")


class Output:
    """Where results go.

    :param target: what the user wrote: a path, ``-`` for CSV on stdout, or None for nowhere
    :param input_path: what was read; writing over it is refused
    :param json: whether facts go to stdout as JSON, which then has no room for the result
    :param trace: where the timeline goes, which is written later
    :raises InputError: the ending is unknown, the path is that of the input or of the timeline, or result
        and facts both want stdout
    :raises FileError: it could not be written; found out by writing a temporary file
    """

    def __init__(
        self, target: str | None, input_path: str, *, json: bool = False, trace: str | None = None
    ) -> None:
        self.target = target
        self._form = ".csv"
        if json and self.on_stdout:
            raise InputError("--json and --output - both want stdout; give --output a file")
        if target is None or target == STDOUT:
            return
        self._form = Path(target).suffix.lower()
        if self._form not in FORMS:
            raise InputError(
                f"--output must end in {', '.join(FORMS[:-1])} or {FORMS[-1]}, or be {STDOUT} for "
                f"CSV on stdout; got {target!r}"
            )
        check_writable(target, input_path)
        if trace is not None and os.path.realpath(trace) == os.path.realpath(target):
            raise InputError(f"--trace and --output are the same file, {target}")

    @property
    def on_stdout(self) -> bool:
        """Whether the result itself goes to stdout, so that nothing else may."""
        return self.target == STDOUT

    def write(self, columns: list[Column], ids: VertexIds) -> None:
        """Write the columns of the vertices that a file gives the ids.

        :raises FileError: it did not work; what was there before is there still
        """
        self._write(columns, lambda: [vertex_table(columns, ids)])

    def write_edges(self, column: Column, graph: Graph) -> None:
        """Write a column that has a value for each arc of a graph.

        :raises FileError: it did not work; what was there before is there still
        """
        self._write(
            [column], lambda: edge_tables(column, graph.rows, graph.ids.in_file, graph.directed)
        )

    def _write(self, columns: list[Column], tables: Tables) -> None:
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
