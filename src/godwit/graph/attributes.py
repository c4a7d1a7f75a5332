"""Attributes of vertices and arcs: columns of values, by name, that travel with a graph.

Columns are arrays that cannot be written to: bool, int64 or float64 where all values are of that type of
Python, else objects, None where a vertex or an arc has no value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from godwit.arrays import host_array
from godwit.dtypes import Array, frozen
from godwit.errors import InputError, shown
from godwit.graph.rows import Rows

Columns = Mapping[Any, Array]
"""Values by the name of the attribute."""

NO_COLUMNS: Columns = MappingProxyType({})

_DTYPES: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}


def columns_of(dictionaries: Iterable[Mapping[Any, Any]], without: Any = None) -> Columns:
    """Return the values of dictionaries by key, each in a column.

    :param without: a key that is left out
    """
    listed = list(dictionaries)
    names = dict.fromkeys(chain.from_iterable(listed))
    names.pop(without, None)
    return columns_as_given({name: [values.get(name) for values in listed] for name in names})


def columns_as_given(columns: Mapping[Any, Any]) -> Columns:
    """Return lists of values, or arrays, as columns."""
    if isinstance(columns, MappingProxyType):
        return columns
    return MappingProxyType({name: _column(values) for name, values in columns.items()})


def checked_columns(columns: Any, count: int) -> dict[Any, Any]:
    """Return copies of columns that a caller gives.

    :raises InputError: the mapping is none, or a column does not have ``count`` values
    """
    if not isinstance(columns, Mapping):
        raise InputError(f"columns must be a mapping of names to values, got {shown(columns)}")
    checked = {}
    for name, values in columns.items():
        try:
            array = values if isinstance(values, list | tuple) else host_array(values)
            length = len(array)
        except (TypeError, ValueError):
            raise InputError(f"column {shown(name)} must be values, got {shown(values)}") from None
        if length != count or getattr(array, "ndim", 1) != 1:
            raise InputError(f"column {shown(name)} must have {count} values, got {length}")
        checked[name] = array.copy() if isinstance(array, np.ndarray) else list(array)
    return checked


def taken(columns: Columns, rows: Array) -> Columns:
    """Return some rows of columns, in the order given."""
    return columns_as_given({name: values[rows] for name, values in columns.items()})


def arcs_after(transform: Callable[[Rows], Rows], rows: Rows) -> Array:
    """Return the number of the arc that each arc of transformed rows was before: int64.

    Numbers are passed as weights. Of arcs that become one it is the smallest, if the transformation takes
    the smallest weight.
    """
    numbers = transform(rows._replace(weights=np.arange(rows.arc_count))).weights
    assert numbers is not None
    return numbers


def dictionaries_of(columns: Columns) -> list[dict[Any, Any]]:
    """Return a dictionary for each row of columns, without the values that are None."""
    lists = [values.tolist() for values in columns.values()]
    return [
        {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        for row in zip(*lists, strict=True)
    ]


def _column(values: Any) -> Array:
    if isinstance(values, np.ndarray):
        return frozen(values, values.dtype)
    types = set(map(type, values))
    if len(types) == 1:
        dtype = _DTYPES.get(types.pop())
        if dtype is not None and not (
            dtype == np.int64 and not -(2**63) <= min(values) <= max(values) < 2**63
        ):
            return frozen(np.array(values, dtype))
    return frozen(np.fromiter(values, object, len(values)))
