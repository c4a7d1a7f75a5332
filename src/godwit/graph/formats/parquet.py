"""Parquet: columns of sources, targets and weights, read and written by Arrow.

Source: apache/parquet-format. What is written says in the metadata of the schema whether the graph is
directed and how many vertices it has, and carries checksums of its pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from godwit.errors import FormatError, GodwitError, GraphTooLargeError
from godwit.graph.csr import Graph
from godwit.graph.formats.arcs import Listed
from godwit.graph.formats.format import Format, Head, ReadOptions
from godwit.graph.formats.source import Source
from godwit.graph.formats.tables import (
    arcs_of_tables,
    chosen_columns,
    require_all_in_arcs,
    said_by,
    schema_of,
    tables_of,
)

_MAGIC = b"PAR1"
_SHARE_HELD = 0.25  # columns as Arrow has them, and as they are made into rows
_ROWS_AT_A_TIME = 1 << 22
_NUMBER_BYTES = 8
_TEXT_BYTES = 32  # some guess
_LARGEST_TEXT_BYTES = 1 << 26


def recognize(head: Head) -> bool:
    """Whether a file that begins like this is in this format."""
    return head.content.startswith(_MAGIC)


def read(source: Source, options: ReadOptions) -> Listed:
    """Arcs, with the weights that there are; directed unless the file says otherwise.

    Columns are those of ``options.columns``; None: see
    :func:`godwit.graph.formats.tables.chosen_columns`. Ids are names, unless the file
    or ``options.relabel`` says that vertices are counted.
    """
    content = source.content()
    if len(content) < 12 or content[-4:].tobytes() != _MAGIC:
        raise FormatError(source.path, "the file is truncated: Parquet ends with PAR1")
    file = _File(source, options)
    return arcs_of_tables(
        source.path,
        file.tables,
        options,
        file.problem,
        said=file.said,
        one_table=not file.in_blocks,
        most_rows=file.row_count,
    )


class _File:
    """The columns of a file that are read."""

    def __init__(self, source: Source, options: ReadOptions) -> None:
        import pyarrow as pa

        self.source = source
        self.progress = options.progress
        with self._errors_named():
            file = self._open()
            schema = file.schema_arrow
            names = list(schema.names)
            self.row_count = file.metadata.num_rows
        columns = chosen_columns(names, options.columns, self.problem)
        if options.weighted is False:
            columns = columns._replace(weight=None)
        self.names = [names[position] for position in columns.used]
        for name in self.names:
            if names.count(name) > 1:
                raise self.problem(f"several columns are called {name!r}", None)
        self.said = said_by(schema.metadata, self.problem)
        kinds = [schema.types[position] for position in columns.used]
        row_bytes = sum(
            _NUMBER_BYTES if pa.types.is_primitive(kind) else _TEXT_BYTES for kind in kinds
        )
        needed = self.row_count * row_bytes
        self.in_blocks = needed > source.room(_SHARE_HELD)
        self._held: Any = None
        if not self.in_blocks:
            with self._errors_named():
                self._held = self._checked(self._open().read(columns=self.names))
                self._check_count(self._held.num_rows)

    def tables(self) -> Iterator[Any]:
        """Tables of the two or three columns."""
        import pyarrow as pa

        if not self.in_blocks:
            yield self._held
            return
        done = 0
        with self._errors_named():
            file = self._open()
            for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=self.names):
                yield self._checked(pa.Table.from_batches([batch]))
                done += batch.num_rows
                if self.progress is not None:
                    size = self.source.size
                    self.progress(size * done // max(self.row_count, done, 1), size, "parsing")
            self._check_count(done)

    def problem(self, message: str, row: int | None) -> FormatError:
        """The error about a row (counted from 0), or about the file."""
        where = "" if row is None else f"row {row:,}: "
        return FormatError(self.source.path, where + message)

    def _open(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet

        return pyarrow.parquet.ParquetFile(
            pa.BufferReader(pa.py_buffer(self.source.content())),
            page_checksum_verification=True,
            thrift_string_size_limit=_LARGEST_TEXT_BYTES,
        )

    def _checked(self, table: Any) -> Any:
        """The columns in their order; Arrow has not looked at texts, and at places in dictionaries."""
        chosen = table.select(self.names)
        chosen.validate(full=True)
        return chosen

    def _check_count(self, count: int) -> None:
        if count != self.row_count:
            raise self.problem(
                f"it declares {self.row_count:,} rows, and there are {count:,}", None
            )

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Turn Arrow's errors into ours."""
        import pyarrow as pa

        try:
            yield
        except GodwitError:
            raise
        except MemoryError as error:
            raise GraphTooLargeError(f"{self.source.path}: {error}") from error
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            # Arrow says one line per layer.
            message = "; ".join(str(error).split("\n")).rstrip("; ")
            raise self.problem(f"corrupt Parquet: {message}", None) from error


def write(graph: Graph, file: BinaryIO) -> None:
    """Columns source, target and weight, with the ids of the vertices; edges once.

    Vertices with ids of their own are read in the ascending order of these.

    :raises InputError: vertices without arcs would be lost, as ids are of their own; or ids are objects
    """
    import pyarrow as pa
    import pyarrow.parquet

    if graph.ids.own:
        require_all_in_arcs(graph, "Parquet", "write format godwit")
    with pyarrow.parquet.ParquetWriter(
        pa.PythonFile(file, "w"), schema_of(graph, in_file=True), write_page_checksum=True
    ) as writer:
        for table in tables_of(graph, in_file=True):
            writer.write_table(table)


FORMAT = Format(
    "parquet",
    recognize,
    read,
    write,
    options=frozenset({"columns", "relabel", "id_base"}),
    lists_arcs=True,
)
