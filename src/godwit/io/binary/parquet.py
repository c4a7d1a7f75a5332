"""Parquet: columns of sources, targets and weights, read and written by Arrow.

Source: apache/parquet-format. Written files declare direction and number of vertices in the metadata of
their schema. They have checksums of their pages, and a seal: the hash (XXH64) of all other bytes, in front
of the footer, where nothing refers to it. Other programs skip it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from godwit.dtypes import Array
from godwit.errors import FormatError, GodwitError, GraphTooLargeError
from godwit.graph.arcs import ArcList, ReadOptions
from godwit.graph.csr import Graph
from godwit.graph.table_columns import (
    arcs_of_tables,
    choose_columns,
    describe_unread,
    read_metadata,
    require_all_in_arcs,
    row_tables,
    schema_of,
)
from godwit.io.format import Format, Head
from godwit.io.source import Source

_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # length of the footer, and the magic
_SEAL = b"GodwitX1"
_HASH_BYTES = 8
_PIECE_BYTES = 1 << 24
_SHARE_HELD = 0.25  # columns as Arrow has them, and as they are made into rows
_ROWS_AT_A_TIME = 1 << 22
_NUMBER_BYTES = 8
_TEXT_BYTES = 32  # some guess
_LARGEST_TEXT_BYTES = 1 << 26


def recognize(head: Head) -> bool:
    """Return True if a file that begins like this is in this format."""
    return head.content.startswith(_MAGIC)


def read(source: Source, options: ReadOptions) -> ArcList:
    """Read arcs, with weights if there are some; directed unless the file declares otherwise.

    Columns are those of ``options.columns``; None: see
    :func:`godwit.graph.table_columns.choose_columns`. Ids are names, unless the file
    or ``options.relabel`` declares that vertices are counted.
    """
    content = source.content()
    if len(content) < 12 or content[-4:].tobytes() != _MAGIC:
        raise FormatError(source.path, "the file is truncated: Parquet ends with PAR1")
    _check_seal(source.path, content)
    file = _File(source, options)
    arcs = arcs_of_tables(
        source.path,
        file.tables,
        options,
        file.problem,
        metadata=file.metadata,
        one_table=not file.in_blocks,
        most_rows=file.row_count,
    )
    return replace(arcs, unread=file.unread)


def _check_seal(path: Path, content: Array) -> None:
    """Refuse a file whose content does not match its seal, if it has one."""
    footer = len(content) - _TAIL_BYTES - int(content[-_TAIL_BYTES:].view("<u4")[0])
    at = footer - len(_SEAL) - _HASH_BYTES
    if at < 0 or content[at : at + len(_SEAL)].tobytes() != _SEAL:
        return
    content_hash = xxhash.xxh64()
    for part in (content[:at], content[footer:]):
        for begin in range(0, len(part), _PIECE_BYTES):
            content_hash.update(part[begin : begin + _PIECE_BYTES].data)
    expected = int.from_bytes(content[footer - _HASH_BYTES : footer].tobytes(), "little")
    if content_hash.intdigest() != expected:
        raise FormatError(path, "corrupt Parquet: the checksum of the file does not match")


class _Sealed:
    """A file for Arrow to write to, which gets a seal in front of its footer."""

    closed = False  # it is closed by the caller

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = xxhash.xxh64()
        self._position = 0
        self._held: bytearray | None = None

    def write(self, data: bytes) -> int:
        self._position += len(data)
        if self._held is not None:
            self._held += data
        else:
            self._hash.update(data)
            self._file.write(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Do nothing: part of the interface that Arrow needs."""

    close = flush

    def hold(self) -> None:
        """Keep all further bytes, the last of which are the footer."""
        self._held = bytearray()

    def finish(self) -> None:
        """Write the bytes kept, with the seal in front of the footer."""
        held = self._held
        assert held is not None
        footer = len(held) - _TAIL_BYTES - int.from_bytes(held[-_TAIL_BYTES:-4], "little")
        self._hash.update(held)
        self._file.write(held[:footer] + _SEAL)
        self._file.write(self._hash.intdigest().to_bytes(_HASH_BYTES, "little"))
        self._file.write(held[footer:])


@contextmanager
def writer(file: BinaryIO, schema: Any) -> Iterator[Any]:
    """Open Arrow's writer of a Parquet file with a seal."""
    import pyarrow as pa
    import pyarrow.parquet

    sealed = _Sealed(file)
    with pyarrow.parquet.ParquetWriter(
        pa.PythonFile(sealed, "w"), schema, write_page_checksum=True
    ) as inner:
        yield inner
        sealed.hold()
    sealed.finish()


class _File:
    """The columns of a file that make arcs.

    :ivar in_blocks: they are read in blocks, each time that they are asked for
    """

    def __init__(self, source: Source, options: ReadOptions) -> None:
        import pyarrow as pa

        self.source = source
        self.progress = options.progress
        with self._errors_named():
            file = self._open()
            schema = file.schema_arrow
            names = list(schema.names)
            self.row_count = file.metadata.num_rows
        columns = choose_columns(names, options.columns, self.problem)
        self.unread = describe_unread(names, columns, options)
        if options.weighted is False:
            columns = columns._replace(weight=None)
        self.names = [names[position] for position in columns.used]
        for name in self.names:
            if names.count(name) > 1:
                raise self.problem(f"several columns are called {name!r}", None)
        self.metadata = read_metadata(schema.metadata, self.problem)
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
        """Yield tables of the two or three columns."""
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
        """Return the error about a row (counted from 0), or about the file."""
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
        """Return the columns in their order, texts and dictionary indices checked, too."""
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
        """Turn Arrow's errors into FormatError and GraphTooLargeError."""
        import pyarrow as pa

        try:
            yield
        except GodwitError:
            raise
        except MemoryError as error:
            raise GraphTooLargeError(f"{self.source.path}: {error}") from error
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            # Arrow has one line per layer.
            message = "; ".join(str(error).split("\n")).rstrip("; ")
            raise self.problem(f"corrupt Parquet: {message}", None) from error


def write(graph: Graph, file: BinaryIO) -> None:
    """Write columns source, target and weight, with the ids of the vertices; edges once.

    Vertices with ids are read back in ascending order of these.

    :raises InputError: a vertex with an id has no arcs, and would be lost; or ids are objects
    """
    if graph.ids.own:
        require_all_in_arcs(graph.rows, graph.ids, "Parquet", "write format godwit")
    with writer(file, schema_of(graph.rows, graph.ids, graph.directed, in_file=True)) as tables:
        for table in row_tables(graph.rows, graph.ids, graph.directed, in_file=True):
            tables.write_table(table)


FORMAT = Format(
    "parquet",
    recognize,
    read,
    write,
    options=frozenset({"columns", "relabel", "id_base"}),
    lists_arcs=True,
)
