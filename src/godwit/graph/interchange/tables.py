"""Tables of other libraries as lists of arcs, and graphs and results as Arrow tables.

Tables are read as Arrow streams (``__arrow_c_stream__``: Arrow, Polars, DuckDB, pandas from version 2.2 on)
or by the dataframe interchange protocol (``__dataframe__``), which import no other library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from godwit.dtypes import Array, as_array, as_flag
from godwit.errors import InputError, shown
from godwit.graph.arcs import ArcList, ReadOptions
from godwit.graph.attributes import Columns as AttributeColumns
from godwit.graph.attributes import columns_as_given, taken
from godwit.graph.ids import VertexIds
from godwit.graph.rows import Rows, estimate_bytes, require_memory
from godwit.graph.table_columns import (
    NAMES,
    Columns,
    arcs_of_tables,
    choose_columns,
    is_text,
    plain_column,
    read_metadata,
    row_tables,
    schema_of,
)

_WEIGHTED = b"godwit.weighted"
"""Key in the metadata of tables with attributes: ``b"false"`` if no column has weights."""

_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
"""Name that pandas gives to an index without a name."""


@dataclass(frozen=True)
class Column:
    """A column of a result: a value per vertex.

    :param name: the name of the column
    :param values: (n) values, as the Python functions return them
    :param present: bool (n), False where there is no value; None if every vertex has a value
    :param ids: True if the values are vertices
    """

    name: str
    values: Array
    present: Array | None = None
    ids: bool = False


def vertex_table(columns: list[Column], ids: VertexIds) -> Any:
    """Return an Arrow table with a row per vertex.

    Column ``vertex`` has its id, the others the values, with nulls where a vertex has no value; values
    that are vertices are replaced by their ids.
    """
    import pyarrow as pa

    names = ids.to_arrow()
    arrays = {"vertex": names}
    for column in columns:
        absent = None if column.present is None else ~column.present
        values = pa.array(column.values, mask=absent)
        arrays[column.name] = names.take(values) if column.ids else values
    return pa.table(arrays)


def edge_tables(column: Column, rows: Rows, ids: VertexIds, directed: bool) -> Iterator[Any]:
    """Yield Arrow tables of source, target (ids) and value, with a row for each arc, or for each edge.

    :param column: a value for each arc; both arcs of an edge have the same
    :returns: at least one table; all have the same columns
    """
    valued = rows._replace(weights=column.values)
    names = ["source", "target", column.name]
    is_empty = True
    for table in row_tables(valued, ids, directed):
        is_empty = False
        yield table.rename_columns(names)
    if is_empty:
        yield schema_of(valued, ids, directed).empty_table().rename_columns(names)


def list_table_arcs(
    table: Any,
    source: str | int | None,
    target: str | int | None,
    weight: str | int | None,
    directed: bool | None,
    relabel: bool | None,
) -> tuple[ArcList, ReadOptions, AttributeColumns]:
    """Return the arcs in a table, the options given, and further columns: a value for each row.

    See :meth:`godwit.Graph.from_table`.
    """
    directed = None if directed is None else as_flag(directed, "directed")
    relabel = None if relabel is None else as_flag(relabel, "relabel")
    if source is None and target is None:
        _refuse_matrix(table)
    arrow = _arrow_table(table)
    names = [str(name) for name in arrow.column_names]
    metadata = arrow.schema.metadata or {}
    if source is None and target is None and metadata.get(_WEIGHTED) == b"false":
        source, target = NAMES[:2]  # no attribute is taken for weights
    columns = _columns(names, source, target, weight)
    chosen = _check_ids(arrow.select(columns.used))
    options = ReadOptions(directed=directed, relabel=relabel)
    arc_list = arcs_of_tables(
        Path("table"),
        lambda: [chosen],
        options,
        _problem,
        metadata=read_metadata(arrow.schema.metadata, _problem),
        one_table=True,
        most_rows=chosen.num_rows,
    )
    return arc_list, options, _attributes(arrow, names, columns)


def _attributes(table: Any, names: list[str], columns: Columns) -> AttributeColumns:
    """Return the columns of a table that are neither ids nor weights; not the unnamed index of pandas."""
    used = set(columns.used)
    further = {
        at: name
        for at, name in enumerate(names)
        if at not in used and not _UNNAMED_INDEX.fullmatch(name)
    }
    for at, name in further.items():
        if names.index(name) != at:
            raise _problem(f"several columns are called {shown(name)}", None)
    return columns_as_given({name: _values(table.column(at)) for at, name in further.items()})


def _values(column: Any) -> Array:
    """Return a column as an array: numbers and truth values in their dtypes, all else as objects.

    Where a value is missing, floats are NaN; columns of other types become objects, None among them.
    """
    import pyarrow as pa

    types = pa.types
    column = plain_column(column)
    kind = column.type
    whole = column.null_count == 0 and (types.is_integer(kind) or types.is_boolean(kind))
    if whole or types.is_floating(kind):
        return as_array(column.to_numpy(), "column")
    if not is_text(kind):
        return np.fromiter(column.to_pylist(), object, len(column))
    # A text that occurs several times is one object.
    encoded = pa.concat_arrays(
        column.cast(pa.large_string()).chunks or [pa.array([], pa.large_string())]
    )
    encoded = encoded.dictionary_encode()
    distinct = [*encoded.dictionary.to_pylist(), None]
    indices = encoded.indices.fill_null(len(distinct) - 1).to_numpy()
    values: Array = np.fromiter(distinct, object, len(distinct))[indices]
    return values


def arc_table(rows: Rows, ids: VertexIds, directed: bool, edge_data: AttributeColumns) -> Any:
    """Return the arcs of a graph as an Arrow table; see :meth:`godwit.Graph.to_arrow`."""
    import pyarrow as pa

    value_bytes = sum(values.itemsize for values in edge_data.values())
    value_bytes += 0 if rows.weights is None else rows.weights.itemsize
    require_memory(estimate_bytes(0, rows.arc_count, 16, value_bytes), "a table of all arcs")
    tables = list(row_tables(rows, ids, directed))
    table = pa.concat_tables(tables) if tables else schema_of(rows, ids, directed).empty_table()
    if not edge_data:
        return table
    if not directed:
        tails = np.repeat(np.arange(rows.vertex_count), np.diff(rows.offsets))
        edge_data = taken(edge_data, tails <= rows.targets)
    for given, values in edge_data.items():
        name = str(given)
        while name in table.column_names:
            name += "_"
        table = table.append_column(name, _arrow_values(values))
    weighted = b"false" if rows.weights is None else b"true"
    return table.replace_schema_metadata({**table.schema.metadata, _WEIGHTED: weighted})


def _arrow_values(values: Array) -> Any:
    """Return values as an Arrow array; as texts if Arrow has no type for them."""
    import pyarrow as pa

    try:
        return pa.array(values.tolist() if values.dtype == object else values)
    except (pa.ArrowException, OverflowError):
        texts = (None if value is None else str(value) for value in values.tolist())
        return pa.array(texts, pa.large_string())


def to_frame(table: Any, *, nullable: bool) -> Any:
    """Return an Arrow table as a ``pandas.DataFrame``.

    :param nullable: True for pandas' nullable dtypes of integers
    :raises InputError: pandas is not installed
    """
    try:
        import pandas as pd
    except ImportError:
        raise InputError("pandas is not installed: pip install pandas") from None
    import pyarrow as pa

    dtypes = {pa.int32(): pd.Int32Dtype(), pa.int64(): pd.Int64Dtype()} if nullable else {}
    return table.to_pandas(types_mapper=dtypes.get)


def _columns(
    names: list[str], source: str | int | None, target: str | int | None, weight: str | int | None
) -> Columns:
    """Return the columns to read. Names may be integers, as pandas names columns: Arrow has their texts."""
    for which, name in (("source", source), ("target", target), ("weight", weight)):
        if name is not None and (not isinstance(name, str | int) or isinstance(name, bool)):
            raise InputError(f"{which} must be the name of a column, got {shown(name)}")
    source, target, weight = (
        str(name) if isinstance(name, int) else name for name in (source, target, weight)
    )
    if (source is None) != (target is None):
        raise InputError("source and target must be given both, or neither")
    if source is None or target is None:
        columns = choose_columns(names, None, _problem)
        if weight is None:
            return columns
        source, target = names[columns.source], names[columns.target]
    wanted = [source, target] if weight is None else [source, target, weight]
    return choose_columns(names, wanted, _problem)


def _check_ids(table: Any) -> Any:
    """Return the table; refuse integer ids in one column and texts in the other: 1 would equal "1".

    Empty columns of floats, which pandas makes of columns without rows, become columns of nulls.

    :raises InputError: integers in one column and texts in the other, naming both
    """
    import pyarrow as pa

    kinds = [column.type for column in table.columns[:2]]
    if len(table) == 0:
        for i, kind in enumerate(kinds):
            if pa.types.is_floating(kind):
                table = table.set_column(i, table.column_names[i], pa.nulls(0))
        return table
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
    integers = list(map(pa.types.is_integer, kinds))
    if integers[0] != integers[1] and any("string" in str(kind) for kind in kinds):
        names = [shown(name) for name in table.column_names[:2]]
        integer, text = names if integers[0] else reversed(names)
        raise InputError(
            f"table: ids of column {integer} are integers and those of column {text} are texts: "
            "convert either"
        )
    return table


def _problem(message: str, row: int | None) -> InputError:
    where = "table" if row is None else f"table, row {row:,}"
    return InputError(f"{where}: {message}")


def pairs_of_table(table: Any) -> tuple[list[Any], list[Any]] | None:
    """Return the two columns of a table of pairs; None if it is no table.

    :raises InputError: there are more or fewer columns, or a value is missing
    """
    if not (hasattr(table, "columns") or hasattr(table, "column_names")):
        return None
    arrow = _arrow_table(table)
    names = [str(name) for name in arrow.column_names if not _UNNAMED_INDEX.fullmatch(str(name))]
    if len(names) != 2:
        raise InputError(
            f"a table of pairs must have two columns, got {', '.join(names) or 'none'}"
        )
    first, second = (plain_column(arrow.column(name)) for name in names)
    for name, column in zip(names, (first, second), strict=True):
        if column.null_count:
            raise InputError(f"a table of pairs must be complete, and {name} lacks a value")
    return first.to_pylist(), second.to_pylist()


def _refuse_matrix(table: Any) -> None:
    """Raise InputError for a frame of pandas whose rows have the names of its columns."""
    if type(table).__module__.split(".")[0] != "pandas" or not hasattr(table, "columns"):
        return
    are_numbered = "RangeIndex" in (type(table.columns).__name__, type(table.index).__name__)
    if not are_numbered and table.index.equals(table.columns):
        raise InputError(
            "the table is a matrix, as its rows and its columns have the same names: "
            "godwit.Graph.from_scipy(scipy.sparse.csr_array(table.to_numpy())).with_ids(list(table.index)) "
            "makes a graph of it"
        )


def _arrow_table(table: Any) -> Any:
    """Return a table of any library as an Arrow table."""
    import pyarrow as pa

    if isinstance(table, type):  # a class has these attributes, too, but is no table
        raise _not_a_table(table)
    try:
        if isinstance(table, pa.Table):
            return table
        if hasattr(table, "__arrow_c_stream__") or isinstance(table, pa.RecordBatch | Mapping):
            return pa.table(table)
        if type(table).__module__.split(".")[0] == "pandas":
            return pa.Table.from_pandas(table)
        if hasattr(table, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            return from_dataframe(table)
    except MemoryError:
        raise
    except Exception as error:  # methods of a foreign library raise anything
        reasons = "; ".join(map(str, error.args))
        is_mixed = isinstance(error, TypeError) or "tried to convert to int" in reasons
        advice = "; a column holds integers or texts, not both: astype(str) makes texts"
        advice = advice if is_mixed else ""
        raise InputError(f"the table cannot be read: {reasons}{advice}") from error
    raise _not_a_table(table)


def _not_a_table(table: Any) -> InputError:
    if type(table).__name__ == "LazyFrame":
        return InputError("table is a LazyFrame of Polars: pass table.collect()")
    return InputError(
        "table must be of pandas, Polars, Arrow or another library whose tables have "
        "__arrow_c_stream__ or __dataframe__, or a dictionary of columns, such as {'source': [0], "
        f"'target': [1]}}; got {shown(table)}"
    )
