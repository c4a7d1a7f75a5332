"""Graphs, weights and ids of other libraries, which keep one Python object for each edge or vertex.

A weight is a number of Python or NumPy, and keeps its value. Either all edges have one or none has: what
a missing weight means is not for us to guess.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from godwit.dtypes import Array
from godwit.errors import InputError, shown
from godwit.graph.foreign import kind_of
from godwit.graph.ids import MAXIMAL_ID_BASE

DEFAULT_WEIGHT = "weight"
"""The attribute that is taken for weights where nobody names one."""

_WHOLE = (int, np.integer, np.bool_)
_REAL = (*_WHOLE, float, np.float32, np.float16)
_EXACT_FLOAT = 2**53


def require_instance(source: Any, expected: str, methods: tuple[str, ...]) -> None:
    """Refuse what is no graph of a library that is not imported: classes have the methods as well.

    :raises InputError: naming what is expected
    """
    if isinstance(source, type):
        raise InputError(f"expected {expected}, got the class {source.__name__}")
    if not all(hasattr(source, method) for method in methods):
        raise InputError(f"expected {expected}, got a {kind_of(source)}")


def weights_of(values: list[Any], name: Any, edge: Callable[[int], str]) -> Array | None:
    """(m) weights: int64, float64, or as wide as NumPy's numbers are; None if every value is None.

    :param values: the attribute of each edge, None where it has none
    :param name: what the attribute is called
    :param edge: what edge i is called in a message
    :raises InputError: naming the first edge that has no weight while others do, or that has one which
        is no number, or none that the others' dtype holds
    """
    types = set(map(type, values))
    if not types - {type(None)}:
        return None
    if type(None) in types:
        i = next(i for i, value in enumerate(values) if value is None)
        raise InputError(
            f"edge {edge(i)} has no {shown(name)}, and others have: give every edge one, or "
            "weight=None"
        )
    if not all(issubclass(one, _REAL) for one in types):
        i = next(i for i, value in enumerate(values) if not isinstance(value, _REAL))
        raise InputError(
            f"{shown(name)} of edge {edge(i)} must be an int or a float, got {shown(values[i])}"
        )
    whole = [issubclass(one, _WHOLE) for one in types]
    if all(whole):
        _check_range(values, name, edge)
        array = np.array(values)
        return array if array.dtype.kind in "ib" else np.array(values, np.int64)
    if any(whole):
        _check_exact(values, name, edge)
        return np.array(values, np.float64)
    return np.array(values)


def require_there(weights: Array | None, name: Any, edge_count: int) -> None:
    """Refuse the name of an attribute that no edge has, unless it is the default: it is misspelt.

    :raises InputError: saying so
    """
    if weights is None and name is not None and name != DEFAULT_WEIGHT and edge_count:
        raise InputError(f"no edge has {shown(name)}; weight=None makes a graph without weights")


def _check_range(values: list[Any], name: Any, edge: Callable[[int], str]) -> None:
    """Refuse integers beyond 64 bits."""
    if int(min(values)) >= -(2**63) and int(max(values)) < 2**63:
        return
    for i, value in enumerate(values):
        if not -(2**63) <= value < 2**63:
            raise InputError(
                f"{shown(name)} of edge {edge(i)} must be in [-2**63, 2**63), got {shown(value)}"
            )


def _check_exact(values: list[Any], name: Any, edge: Callable[[int], str]) -> None:
    """Refuse integers that become other numbers among floats."""
    for i, value in enumerate(values):
        if not isinstance(value, _WHOLE) or abs(int(value)) <= _EXACT_FLOAT:
            continue
        if abs(int(value)) >= 2**1023 or int(float(value)) != int(value):
            raise InputError(
                f"{shown(name)} of edge {edge(i)}, {shown(value)}, does not fit float64, "
                "which other edges need"
            )


def ids_of(labels: list[Any]) -> Any:
    """Labels as ``Graph(..., ids=)`` takes them: the first of consecutive integers where they are."""
    first = labels[0] if labels else 0
    if type(first) is not int or not 0 <= first <= MAXIMAL_ID_BASE:
        return labels
    consecutive = labels == list(range(first, first + len(labels)))
    return first if consecutive and set(map(type, labels)) <= {int} else labels
