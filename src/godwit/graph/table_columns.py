"""Tables of arcs (Arrow): a row is an arc, and columns hold its source, its target and its weight.

Columns are recognized by their names. Ids are integers or texts. A table that Godwit made has, in the
metadata of its schema, whether the graph is directed and, if ids are consecutive integers, the first one
and the number of vertices.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from godwit.arrays import arrow_array, numpy_array
from godwit.dtypes import Array, as_weights
from godwit.errors import InputError, shown
from godwit.graph.arcs import ArcList, Arcs, Block, OccurringIds, ReadOptions, relabelled
from godwit.graph.ids import MAXIMAL_ID_BASE, VertexIds, require_no_objects
from godwit.graph.rows import Rows

NAMES = ("source", "target", "weight")
"""The columns of the tables that Godwit makes."""

_SOURCES = ("source", "src", "from", "tail", "start", "origin", "u", "node1", "vertex1")
_TARGETS = ("target", "dst", "dest", "destination", "to", "head", "end", "v", "node2", "vertex2")
_WEIGHTS = ("weight", "weights", "w", "cost", "distance", "dist", "length", "value")

_INDEX_OF_PANDAS = re.compile(r"(Unnamed: \d+|__index_level_\d+__)?")

_DIRECTED = b"godwit.directed"
_VERTICES = b"godwit.vertices"
_ID_BASE = b"godwit.id_base"

_INTEGER_64_END = 2**63
_TABLE_ROWS = 1 << 20

Problem = Callable[[str, int | None], InputError]
"""A function that makes the error about a table, or about one of its rows (counted from 0)."""


class Columns(NamedTuple):
    """Positions of columns in a table."""

    source: int
    target: int
    weight: int | None

    @property
    def used(self) -> list[int]:
        """The two or three positions."""
        return [self.source, self.target, *([] if self.weight is None else [self.weight])]


def choose_columns(names: Sequence[str], wanted: Sequence[str] | None, problem: Problem) -> Columns:
    """Return the columns of source, target and weight.

    :param names: the names of all columns of a table
    :param wanted: names of source, target and perhaps weight; None to recognize columns by their usual
        names, else to take the first two, and a third if it has a usual name of weights
    """
    if wanted is not None:
        source, target, *weight = (_position(names, name, problem) for name in wanted)
        return Columns(source, target, weight[0] if weight else None)
    known = known_columns(names)
    if known is not None:
        return known
    if len(names) < 2:
        raise problem(f"a table of arcs needs at least two columns, got {_listed(names)}", None)
    if _usual(names, _SOURCES) is not None or _usual(names, _TARGETS) is not None:
        raise problem(
            f"cannot tell which columns hold sources and targets: there are {_listed(names)}; "
            "name both",
            None,
        )
    third = len(names) > 2 and _usual(names[2:3], _WEIGHTS) is not None
    return Columns(0, 1, 2 if third else None)


def describe_unread(names: Sequence[str], columns: Columns, options: ReadOptions) -> str:
    """Return a sentence about columns that might be weights, where none is read; else an empty text.

    Columns that the caller chose, and a graph that is asked for without weights, need no such sentence.
    """
    if options.columns is not None or options.weighted is False or columns.weight is not None:
        return ""
    unread = [
        name
        for at, name in enumerate(names)
        if at not in columns.used and not _INDEX_OF_PANDAS.fullmatch(name)
    ]
    if not unread:
        return ""
    weight = unread[0] if len(unread) == 1 else "WEIGHT"
    chosen = [names[columns.source], names[columns.target], weight]
    return (
        f"the graph has no weights, as no column is called as weights usually are; not read: "
        f"{_listed(unread)} (columns={chosen} reads weights, columns={chosen[:2]} none; "
        f"command line: --columns {shlex.quote(','.join(chosen))})"
    )


def known_columns(names: Sequence[str]) -> Columns | None:
    """Return the columns that have usual names of sources, targets and weights; None if there are none."""
    source, target = _usual(names, _SOURCES), _usual(names, _TARGETS)
    if source is None or target is None:
        return None
    return Columns(source, target, _usual(names, _WEIGHTS))


def _usual(names: Sequence[str], usual: Sequence[str]) -> int | None:
    """Return the first column with one of the usual names; ``FromNodeId`` and ``:START_ID`` count, too."""
    plain = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in names]
    bare = [re.sub(r"(?<=.)(node|vertex)?(id)?$", "", name) for name in plain]
    for name in usual:
        for candidates in (plain, bare):
            if name in candidates:
                return candidates.index(name)
    return None


def _position(names: Sequence[str], name: str, problem: Problem) -> int:
    if name not in names:
        raise problem(f"there is no column {shown(name)}; the columns are {_listed(names)}", None)
    if list(names).count(name) > 1:
        raise problem(f"several columns are called {shown(name)}", None)
    return list(names).index(name)


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:10]) or "none"
    return listed if len(names) <= 10 else f"{listed}, …"


@dataclass(frozen=True)
class TableMetadata:
    """Facts about a graph in the metadata of a table's schema; the defaults if Godwit did not write it.

    :param id_base: the first of consecutive ids of all vertices; None where each vertex has its own id
    :param vertex_count: the number of vertices if ids are consecutive
    """

    directed: bool | None = None
    id_base: int | None = None
    vertex_count: int = 0


NO_METADATA = TableMetadata()


def _encode_metadata(
    rows: Rows, ids: VertexIds, directed: bool, in_file: bool
) -> dict[bytes, bytes]:
    """Return the metadata that :func:`read_metadata` reads."""
    metadata = {_DIRECTED: b"true" if directed else b"false"}
    if not ids.own:
        metadata[_ID_BASE] = b"%d" % (ids.base if in_file else 0)
        metadata[_VERTICES] = b"%d" % rows.vertex_count
    return metadata


def read_metadata(metadata: dict[bytes, bytes] | None, problem: Problem) -> TableMetadata:
    """Return the facts in the metadata of a schema."""
    if metadata is None or _DIRECTED not in metadata:
        return NO_METADATA
    directed = metadata[_DIRECTED]
    if directed not in (b"true", b"false"):
        raise problem(
            f"metadata godwit.directed must be true or false, got {directed[:80]!r}", None
        )
    if _ID_BASE not in metadata:
        return TableMetadata(directed == b"true")
    counts = []
    for key, high in ((_ID_BASE, MAXIMAL_ID_BASE), (_VERTICES, 2**48)):
        value = metadata.get(key, b"")
        if not re.fullmatch(rb"[0-9]{1,15}", value) or int(value) > high:
            raise problem(
                f"metadata {key.decode()} must be an integer up to {high}, got {value[:80]!r}", None
            )
        counts.append(int(value))
    return TableMetadata(directed == b"true", *counts)


def arcs_of_tables(
    path: Path,
    tables: Callable[[], Iterable[Any]],
    options: ReadOptions,
    problem: Problem,
    *,
    metadata: TableMetadata = NO_METADATA,
    one_table: bool,
    most_rows: int,
    typed: bool = True,
) -> ArcList:
    """Return the arcs in Arrow tables.

    :param path: the origin of the tables
    :param tables: a function whose every call iterates over all tables, which have one schema: two or
        three columns, the sources, the targets and the weights
    :param one_table: True if there is only one
    :param most_rows: upper bound of the rows of all tables
    :param typed: False to convert texts to integers if all of them are integers of 64 bits
    :raises InputError: made by ``problem``, about an entry that is no id or no weight
    """
    counted = (
        options.relabel is False
        or options.id_base is not None
        or (metadata.id_base is not None and options.relabel is None)
    )
    survey = _Survey(problem, None if counted else OccurringIds(), most_rows)
    for table in tables():
        survey.add(_decoded(table))

    def blocks() -> Iterator[Block]:
        for table in map(_decoded, tables()):
            weights = _weights(table[2]) if len(table) > 2 else None
            yield Block(_ids(table[0], survey.texts), _ids(table[1], survey.texts), weights)

    arcs = Arcs(path, blocks, survey.count, survey.weight_dtype, one_table)
    directed = metadata.directed is not False
    if survey.texts and (options.relabel is False or options.id_base is not None):
        which = "relabel=False" if options.id_base is None else "id_base"
        what = "texts" if typed else "texts, or written as 1.0"
        raise problem(f"ids are {what}, and {which} needs integers below 2**63", None)
    if survey.texts or not counted:
        occurring = None if survey.texts else survey.occurring
        arcs, ids = relabelled(arcs, occurring, options, typed=typed)
        return ArcList(arcs, len(ids), directed, ids)
    base = options.id_base if options.id_base is not None else metadata.id_base or 0
    if survey.count and survey.min_id < base:
        raise problem(
            f"id {survey.min_id} is smaller than that of the first vertex, {base}; "
            "relabel=True takes any",
            None,
        )
    count = max(survey.max_id + 1 - base, 0)
    if base == metadata.id_base:
        if count > metadata.vertex_count:
            last = base + metadata.vertex_count - 1
            raise problem(
                f"id {survey.max_id} is greater than {last}, the last one by godwit.vertices", None
            )
        count = metadata.vertex_count
    if base:
        arcs = arcs.shifted(base)
    return ArcList(arcs, count, directed, VertexIds.counted(count, base))


class _Survey:
    """Facts about the columns of several tables, collected before any arc is used.

    :param most_rows: upper bound of the rows of all tables
    :ivar occurring: the ids that occur, where ids are names
    :ivar texts: True if ids are texts; integers of 2**63 and more count as texts
    """

    def __init__(self, problem: Problem, occurring: OccurringIds | None, most_rows: int) -> None:
        self._problem = problem
        self._most_rows = most_rows
        self.occurring = occurring
        self.count = 0
        self.texts = False
        self.min_id = _INTEGER_64_END
        self.max_id = -_INTEGER_64_END
        self.weight_dtype: np.dtype[Any] | None = None

    def add(self, columns: list[Any]) -> None:
        """Add the columns of a table; InputError if an entry is no id or no weight."""
        for name, column in zip(NAMES, columns, strict=False):
            if column.null_count:
                raise self._problem(f"there is no {name}", self.count + _first_null(column))
        self._add_ids("source", columns[0])
        self._add_ids("target", columns[1])
        if self.occurring is not None and not self.texts and self.min_id <= self.max_id:
            chunks = [_ids(chunk, texts=False) for column in columns[:2] for chunk in column.chunks]
            self.occurring.add(chunks, self.min_id, self.max_id, self._most_rows)
        if len(columns) > 2:
            self._add_weights(columns[2])
        self.count += len(columns[0])

    def _add_ids(self, name: str, column: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if is_text(column.type):
            self.texts = True
        elif pa.types.is_integer(column.type):
            extremes = pc.min_max(column).as_py()
            if len(column) == 0:
                return
            if extremes["max"] >= _INTEGER_64_END:
                self.texts = True
            self.min_id = min(self.min_id, extremes["min"])
            self.max_id = max(self.max_id, extremes["max"])
        elif not pa.types.is_null(column.type):
            convertible = pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
            whole = "astype('int64') converts whole numbers, and " if convertible else ""
            advice = f"; {whole}astype(str) makes texts"
            raise self._problem(
                f"the {name} must be an integer or a text, and its column is of type {column.type}"
                f"{advice}",
                None,
            )

    def _add_weights(self, column: Any) -> None:
        import pyarrow as pa

        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            convertible = pa.types.is_decimal(kind) or pa.types.is_boolean(kind) or is_text(kind)
            advice = "; astype('float64') converts it" if convertible else ""
            raise self._problem(
                f"the weight must be a number, and its column is of type {kind}{advice}", None
            )
        try:
            self.weight_dtype = _weights(column).dtype
        except InputError as error:  # 2**63 or more
            raise self._problem(str(error), None) from None


def is_text(kind: Any) -> bool:
    """Return True if Arrow's type is one of texts."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _decoded(table: Any) -> list[Any]:
    """Return the columns of a table as of :func:`plain_column`."""
    return list(map(plain_column, table.columns))


def plain_column(column: Any) -> Any:
    """Return a column, of a dictionary (a categorical) with its values."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    kind = column.type.value_type
    kind = pa.large_string() if is_text(kind) else kind
    chunks = (part.dictionary.cast(kind).take(part.indices) for part in column.chunks)
    return pa.chunked_array(chunks, kind)


def _first_null(column: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.index(pc.is_null(column), True).as_py())


def _ids(column: Any, texts: bool) -> Any:
    """Return a column of ids, or a chunk of one, as int32 or int64, or as an Arrow array of texts."""
    import pyarrow as pa

    if texts:
        return _combined(column.cast(pa.large_string()))
    narrow = column.type == pa.int32()
    return numpy_array(_combined(column.cast(pa.int32() if narrow else pa.int64())))


def _weights(column: Any) -> Array:
    import pyarrow as pa

    if pa.types.is_null(column.type):  # there is no row
        column = column.cast(pa.int32())
    weights = as_weights(numpy_array(_combined(column)), len(column))
    assert weights is not None
    return weights


def _combined(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def schema_of(rows: Rows, ids: VertexIds, directed: bool, *, in_file: bool = False) -> Any:
    """Return the Arrow schema of :func:`row_tables`."""
    import pyarrow as pa

    id_type = pa.int64() if ids.kind in ("consecutive", "integer") else pa.large_string()
    kinds = [id_type, id_type]
    if rows.weights is not None:
        kinds.append(pa.from_numpy_dtype(rows.weights.dtype))
    metadata = _encode_metadata(rows, ids, directed, in_file)
    return pa.schema(zip(NAMES, kinds, strict=False), metadata)


def row_tables(
    rows: Rows, ids: VertexIds, directed: bool, *, in_file: bool = False
) -> Iterator[Any]:
    """Yield Arrow tables of the arcs of a directed graph, or of the edges of an undirected one, each once.

    A table has a million rows, or those of one vertex. Columns are source and target, with ids (objects as
    texts), and weight if there are weights.

    :param in_file: True to number vertices without ids as in files
    """
    import pyarrow as pa

    schema = schema_of(rows, ids, directed, in_file=in_file)
    names = ids.in_file if in_file else ids
    offsets, targets, weights = rows
    begin = 0
    while begin < rows.vertex_count:
        end = int(np.searchsorted(offsets, offsets[begin] + _TABLE_ROWS, "right")) - 1
        end = min(max(end, begin + 1), rows.vertex_count)
        arcs = slice(int(offsets[begin]), int(offsets[end]))
        tails = np.repeat(np.arange(begin, end), np.diff(offsets[begin : end + 1]))
        heads = targets[arcs]
        table_weights = None if weights is None else weights[arcs]
        if not directed:
            once = tails <= heads
            tails, heads = tails[once], heads[once]
            table_weights = None if table_weights is None else table_weights[once]
        begin = end
        columns = [_named(names, tails), _named(names, heads)]
        if table_weights is not None:
            columns.append(arrow_array(table_weights))
        yield pa.table(columns, schema)


def _named(ids: VertexIds, vertices: Array) -> Any:
    """Return the ids of vertices as an Arrow array."""
    if ids.is_range:
        return arrow_array(vertices.astype(np.int64) + ids[0])
    return ids.take(vertices).to_arrow()


def require_all_in_arcs(rows: Rows, ids: VertexIds, format: str, remedy: str) -> None:
    """Refuse to write a graph as a list of arcs if a vertex has no arc, or ids are objects.

    :param remedy: a way that works, for the message
    :raises InputError: naming such a vertex
    """
    require_no_objects(ids, format)
    has_arcs = rows.offsets[1:] > rows.offsets[:-1]
    has_arcs[rows.targets] = True
    if not has_arcs.all():
        vertex = int(np.argmin(has_arcs))
        raise InputError(
            f"{format} cannot hold vertices without arcs, such as {shown(ids.in_file[vertex])}: {remedy}"
        )
