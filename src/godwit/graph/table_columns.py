"""Tables of arcs (Arrow): a row is an arc, and columns hold its source, its target and its weight.

Which columns do is told by their names. Ids are integers or texts; a table that comes from Godwit
also says, in the metadata of its schema, whether the graph is directed, how many vertices it has and
what the first one is called, if they are counted on from there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from godwit.dtypes import Array, as_weights
from godwit.errors import InputError, shown
from godwit.graph.arcs import Arcs, Block, Listed, relabelled
from godwit.graph.csr import Graph
from godwit.graph.ids import MAXIMAL_ID_BASE, VertexIds
from godwit.graph.listed_ids import OccurringIds
from godwit.graph.read_options import ReadOptions

NAMES = ("source", "target", "weight")
"""The columns of the tables that Godwit makes."""

_SOURCES = ("source", "src", "from", "tail", "start", "origin", "u", "node1", "vertex1")
_TARGETS = ("target", "dst", "dest", "destination", "to", "head", "end", "v", "node2", "vertex2")
_WEIGHTS = ("weight", "weights", "w", "cost", "distance", "dist", "length", "value")

_DIRECTED = b"godwit.directed"
_VERTICES = b"godwit.vertices"
_ID_BASE = b"godwit.id_base"

_INTEGER_64_END = 2**63
_TABLE_ROWS = 1 << 20

Problem = Callable[[str, int | None], InputError]
"""Makes the error about a table, or about one of its rows (counted from 0)."""


class Columns(NamedTuple):
    """Positions of columns in a table."""

    source: int
    target: int
    weight: int | None

    @property
    def used(self) -> list[int]:
        """The two or three positions."""
        return [self.source, self.target, *([] if self.weight is None else [self.weight])]


def chosen_columns(names: Sequence[str], wanted: Sequence[str] | None, problem: Problem) -> Columns:
    """The columns that make the arcs.

    :param names: of all columns of a table
    :param wanted: names of source, target and perhaps weight; None: those that are usually called
        so, else the first two, and a weight if one is called so
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


def known_columns(names: Sequence[str]) -> Columns | None:
    """The columns that are called as sources, targets and weights usually are; None if none are."""
    source, target = _usual(names, _SOURCES), _usual(names, _TARGETS)
    if source is None or target is None:
        return None
    return Columns(source, target, _usual(names, _WEIGHTS))


def _usual(names: Sequence[str], usual: Sequence[str]) -> int | None:
    """The first column that has one of the usual names: ``FromNodeId`` and ``:START_ID`` do, too."""
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
class Said:
    """What the metadata of a table's schema says of the graph; nothing if it is not Godwit's."""

    directed: bool | None = None
    id_base: int | None = None
    """Of ids that count on from there, for all vertices; None where each has one of its own."""
    vertex_count: int = 0
    """Where ids count on; else the vertices are those that have arcs."""


NOTHING_SAID = Said()


def metadata_of(graph: Graph, *, in_file: bool) -> dict[bytes, bytes]:
    """What :func:`said_by` reads."""
    metadata = {_DIRECTED: b"true" if graph.directed else b"false"}
    if not graph.ids.own:
        metadata[_ID_BASE] = b"%d" % (graph.ids.base if in_file else 0)
        metadata[_VERTICES] = b"%d" % graph.vertex_count
    return metadata


def said_by(metadata: dict[bytes, bytes] | None, problem: Problem) -> Said:
    """What metadata says of the graph."""
    if metadata is None or _DIRECTED not in metadata:
        return NOTHING_SAID
    directed = metadata[_DIRECTED]
    if directed not in (b"true", b"false"):
        raise problem(
            f"metadata godwit.directed must be true or false, got {directed[:80]!r}", None
        )
    if _ID_BASE not in metadata:
        return Said(directed == b"true")
    counts = []
    for key, high in ((_ID_BASE, MAXIMAL_ID_BASE), (_VERTICES, 2**48)):
        value = metadata.get(key, b"")
        if not re.fullmatch(rb"[0-9]{1,15}", value) or int(value) > high:
            raise problem(
                f"metadata {key.decode()} must be an integer up to {high}, got {value[:80]!r}", None
            )
        counts.append(int(value))
    return Said(directed == b"true", *counts)


def arcs_of_tables(
    path: Path,
    tables: Callable[[], Iterable[Any]],
    options: ReadOptions,
    problem: Problem,
    *,
    said: Said = NOTHING_SAID,
    one_table: bool,
    most_rows: int,
) -> Listed:
    """The arcs in Arrow tables.

    :param path: what the arcs come from
    :param tables: goes through tables of one schema, each time it is called: two or three columns,
        the sources, the targets and the weights
    :param one_table: whether there is only one
    :param most_rows: the rows of all tables, or more
    :raises InputError: as ``problem`` makes it, about what is no id or no weight
    """
    counts = (
        options.relabel is False
        or options.id_base is not None
        or (said.id_base is not None and options.relabel is None)
    )
    survey = _Survey(problem, None if counts else OccurringIds(), most_rows)
    for table in tables():
        survey.add(_decoded(table))

    def blocks() -> Iterator[Block]:
        for table in map(_decoded, tables()):
            weights = _weights(table[2]) if len(table) > 2 else None
            yield Block(_ids(table[0], survey.texts), _ids(table[1], survey.texts), weights)

    arcs = Arcs(path, blocks, survey.count, survey.weight_dtype, one_table)
    directed = said.directed is not False
    if survey.texts and (options.relabel is False or options.id_base is not None):
        which = "relabel=False" if options.id_base is None else "id_base"
        raise problem(f"ids are texts, and {which} needs integers below 2**63", None)
    if survey.texts or not counts:
        occurring = None if survey.texts else survey.occurring
        arcs, ids = relabelled(arcs, occurring, options, typed=True)
        return Listed(arcs, len(ids), directed, ids)
    base = options.id_base if options.id_base is not None else said.id_base or 0
    if survey.count and survey.min_id < base:
        raise problem(
            f"id {survey.min_id} is smaller than that of the first vertex, {base}; "
            "relabel=True takes any",
            None,
        )
    count = max(survey.max_id + 1 - base, 0)
    if base == said.id_base:
        if count > said.vertex_count:
            last = base + said.vertex_count - 1
            raise problem(
                f"id {survey.max_id} is greater than {last}, the last one by godwit.vertices", None
            )
        count = said.vertex_count
    if base:
        arcs = arcs.shifted(base)
    return Listed(arcs, count, directed, VertexIds.counted(count, base))


class _Survey:
    """What there is in the tables of a sequence, all of one schema.

    :param most_rows: the rows of all tables, or more
    :ivar occurring: takes in the ids, where they are names
    :ivar texts: whether ids are texts; integers of 2**63 and more are taken as such
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
        """Look at a table. :raises InputError: it has what is no id, or no weight"""
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

        if _is_text(column.type):
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
            advice = "; astype('int64') converts it" if pa.types.is_floating(column.type) else ""
            raise self._problem(
                f"the {name} must be an integer or a text, and its column is of type {column.type}"
                f"{advice}",
                None,
            )

    def _add_weights(self, column: Any) -> None:
        import pyarrow as pa

        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)):
            raise self._problem(
                f"the weight must be a number, and its column is of type {kind}", None
            )
        try:
            self.weight_dtype = _weights(column).dtype
        except InputError as error:  # 2**63 or more
            raise self._problem(str(error), None) from None


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _decoded(table: Any) -> list[Any]:
    """The columns of a table, none of them a dictionary (a categorical)."""
    import pyarrow as pa

    def plain(column: Any) -> Any:
        if not pa.types.is_dictionary(column.type):
            return column
        kind = column.type.value_type
        kind = pa.large_string() if _is_text(kind) else kind
        chunks = (part.dictionary.cast(kind).take(part.indices) for part in column.chunks)
        return pa.chunked_array(chunks, kind)

    return list(map(plain, table.columns))


def _first_null(column: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.index(pc.is_null(column), True).as_py())


def _ids(column: Any, texts: bool) -> Any:
    """A column of ids, or a chunk of one: int32 or int64, or an Arrow array of texts."""
    import pyarrow as pa

    if texts:
        return _in_one_piece(column.cast(pa.large_string()))
    narrow = column.type == pa.int32()
    return _in_one_piece(column.cast(pa.int32() if narrow else pa.int64())).to_numpy()


def _weights(column: Any) -> Array:
    import pyarrow as pa

    if pa.types.is_null(column.type):  # there is no row
        column = column.cast(pa.int32())
    weights = as_weights(column.to_numpy(), len(column))
    assert weights is not None
    return weights


def _in_one_piece(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def schema_of(graph: Graph, *, in_file: bool = False) -> Any:
    """The Arrow schema of :func:`tables_of`."""
    import pyarrow as pa

    ids = pa.int64() if graph.ids.kind in ("consecutive", "integer") else pa.large_string()
    kinds = [ids, ids]
    if graph.weights is not None:
        kinds.append(pa.from_numpy_dtype(graph.weights.dtype))
    return pa.schema(zip(NAMES, kinds, strict=False), metadata_of(graph, in_file=in_file))


def tables_of(graph: Graph, *, in_file: bool = False) -> Iterator[Any]:
    """The arcs of a directed graph, or the edges of an undirected one, each once: Arrow tables.

    A table has a million rows, or those of one vertex. It has columns source and target, with ids
    (objects as texts), and weight if there are weights.

    :param in_file: whether vertices without ids of their own are numbered as in files
    """
    import pyarrow as pa

    schema = schema_of(graph, in_file=in_file)
    ids = graph.ids.in_file if in_file else graph.ids
    offsets, targets, weights = graph.offsets, graph.targets, graph.weights
    begin = 0
    while begin < graph.vertex_count:
        end = int(np.searchsorted(offsets, offsets[begin] + _TABLE_ROWS, "right")) - 1
        end = min(max(end, begin + 1), graph.vertex_count)
        place = slice(int(offsets[begin]), int(offsets[end]))
        tails = np.repeat(np.arange(begin, end), np.diff(offsets[begin : end + 1]))
        heads = targets[place]
        own_weights = None if weights is None else weights[place]
        if not graph.directed:
            once = tails <= heads
            tails, heads = tails[once], heads[once]
            own_weights = None if own_weights is None else own_weights[once]
        begin = end
        columns = [_named(ids, tails), _named(ids, heads)]
        if own_weights is not None:
            columns.append(pa.array(own_weights))
        yield pa.table(columns, schema)


def _named(ids: VertexIds, vertices: Array) -> Any:
    """The ids of vertices, as an Arrow array."""
    import pyarrow as pa

    if ids.is_range:
        return pa.array(vertices.astype(np.int64) + ids[0])
    return ids.take(vertices).to_arrow()


def require_all_in_arcs(graph: Graph, format: str, remedy: str) -> None:
    """Refuse vertices that a list of arcs does not show, in a graph that is to be written as one.

    :param remedy: what would work, for the message
    :raises InputError: there are such vertices, or their ids are objects
    """
    if graph.ids.kind == "object":
        raise InputError(
            f"{format} cannot hold object ids: drop them with graph.with_ids(0) "
            "(command line: --drop ids)"
        )
    offsets, targets = graph.offsets, graph.targets
    shown_there = offsets[1:] > offsets[:-1]
    shown_there[targets] = True
    if not shown_there.all():
        vertex = int(np.argmin(shown_there))
        raise InputError(
            f"{format} cannot hold vertices without arcs, such as {shown(graph.ids.in_file[vertex])}: "
            f"{remedy}"
        )
