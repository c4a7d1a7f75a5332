"""Dictionaries by node whose items are made of arrays on first use.

A dictionary of a million nodes takes longer to make than many an algorithm takes. So functions return
:class:`LazyDict`, a ``dict`` that is filled when something needs all of it, and that answers
``result[node]`` from arrays until then.

Code in C that reads a ``dict`` without calling its methods does not fill it. It finds one item, with a key
of a type of its own, so that it fails instead of taking the result for empty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from godwit.dtypes import Array
from godwit.graph.interchange.libraries import collector_paused
from godwit.networkx.graph import ArrayGraph
from godwit.networkx.searches import Search, way


class Items(Protocol):
    """Items of a dictionary, in arrays."""

    def __len__(self) -> int:
        """Return the number of items."""

    def value(self, node: Any) -> Any:
        """Return the value of a node; KeyError if it has none, TypeError if it cannot be hashed."""

    def keys_and_values(self) -> tuple[list[Any], list[Any]]:
        """Return all keys and their values, in the order of the dictionary."""


class NodeValues:
    """A number for each node, in the order of the graph.

    :param values: (n) numbers
    """

    def __init__(self, graph: ArrayGraph, values: Array) -> None:
        self._graph = graph
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def value(self, node: Any) -> Any:
        """Return the number of a node."""
        return self._values[self._graph.position(node)].item()

    def keys_and_values(self) -> tuple[list[Any], list[Any]]:
        """Return nodes and numbers."""
        return self._graph.nodes, self._values.tolist()


class NodeDistances:
    """The distance of each node that a search reached, in the order of the search."""

    def __init__(self, graph: ArrayGraph, found: Search) -> None:
        self._graph = graph
        self._found = found

    def __len__(self) -> int:
        return self._found.count

    def value(self, node: Any) -> Any:
        """Return the distance of a node."""
        position = self._graph.position(node)
        if not self._found.reached[position]:
            raise KeyError(node)
        return self._found.distance[position].item()

    def keys_and_values(self) -> tuple[list[Any], list[Any]]:
        """Return nodes and distances."""
        order = self._found.order
        return self._graph.names(order), self._found.distance[order].tolist()


class NodePaths:
    """A path to each node that a search reached, in the order of the search.

    :param backward: paths lead from the node to where the search began
    """

    def __init__(self, graph: ArrayGraph, found: Search, *, backward: bool = False) -> None:
        self._graph = graph
        self._found = found
        self._backward = backward

    def __len__(self) -> int:
        return self._found.count

    def value(self, node: Any) -> list[Any]:
        """Return the path of a node."""
        positions = way(self._found.parent, self._graph.position(node))
        if not positions:
            raise KeyError(node)
        path = self._graph.names(positions)
        return path[::-1] if self._backward else path

    def keys_and_values(self) -> tuple[list[Any], list[Any]]:
        """Return all nodes that were reached, and the path to each."""
        order = self._found.order
        rank = np.empty(len(self._graph), np.int64)
        rank[order] = np.arange(len(order))
        before = self._found.parent[order]
        sources = int(np.count_nonzero(before < 0))  # they come first
        names = self._graph.names(order)
        paths = [[name] for name in names[:sources]]
        ranks = rank[before[sources:]].tolist()
        with collector_paused():
            if self._backward:
                for name, k in zip(names[sources:], ranks, strict=True):
                    paths.append([name, *paths[k]])
            else:
                for name, k in zip(names[sources:], ranks, strict=True):
                    paths.append([*paths[k], name])
        return names, paths


class _Unfilled:
    """Type of the only key that a :class:`LazyDict` has before it is filled."""


_UNFILLED = _Unfilled()
_LOCK = threading.Lock()
_FEW = 16
"""Look-ups of more than one in 16 nodes take longer than filling the dictionary."""


class FilledDict(dict[Any, Any]):
    """A dictionary that was filled: nothing but a ``dict``, and pickled and copied as one."""

    __slots__ = ("_items", "_lookups")

    _items: Items | None
    _lookups: int

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self.items())


class LazyDict(FilledDict):
    """A dictionary that is filled from arrays on first use."""

    __slots__ = ()

    def __init__(self, items: Items) -> None:
        super().__init__({_UNFILLED: _UNFILLED})
        self._items = items
        self._lookups = 0

    def __len__(self) -> int:
        items = self._items
        return dict.__len__(self) if items is None else len(items)

    def __getitem__(self, node: Any) -> Any:
        items = self._items
        self._lookups += 1
        if items is None or self._lookups * _FEW > len(items):
            fill(self)
            return dict.__getitem__(self, node)
        try:
            return items.value(node)
        except KeyError:
            raise KeyError(node) from None

    def __contains__(self, node: Any) -> bool:
        try:
            _ = self[node]
        except KeyError:
            return False
        return True

    def get(self, node: Any, default: Any = None) -> Any:
        """Return the value of a node, or the default if it has none."""
        try:
            return self[node]
        except KeyError:
            return default


def fill(result: LazyDict) -> None:
    """Fill a dictionary, which is an ordinary one from then on."""
    with _LOCK:
        items = result._items
        if items is None:
            return
        keys, values = items.keys_and_values()
        dict.clear(result)
        dict.update(result, zip(keys, values, strict=True))
        result._items = None
        result.__class__ = FilledDict  # type: ignore[assignment]


def _filling(method: Callable[..., Any]) -> Callable[..., Any]:
    def filled(self: LazyDict, *arguments: Any, **named: Any) -> Any:
        fill(self)
        for other in arguments:
            if isinstance(other, LazyDict):  # dict's methods would not call its own
                fill(other)
        return method(self, *arguments, **named)

    filled.__doc__ = method.__doc__
    return filled


_READ_OR_CHANGE_ALL = (
    "__delitem__", "__eq__", "__ge__", "__gt__", "__ior__", "__iter__", "__le__", "__lt__", "__ne__",
    "__or__", "__repr__", "__reversed__", "__ror__", "__setitem__", "__sizeof__", "clear", "copy", "items",
    "keys", "pop", "popitem", "setdefault", "update", "values",
)  # fmt: skip

for _name in _READ_OR_CHANGE_ALL:
    setattr(LazyDict, _name, _filling(getattr(dict, _name)))


def values_by_node(graph: ArrayGraph, values: Array) -> dict[Any, Any]:
    """Return a number for each node, in the order of the graph."""
    return LazyDict(NodeValues(graph, np.asarray(values)))


def distances_by_node(graph: ArrayGraph, found: Search) -> dict[Any, Any]:
    """Return the distance of each node that a search reached, in the order of the search."""
    return LazyDict(NodeDistances(graph, found))


def paths_by_node(
    graph: ArrayGraph, found: Search, *, backward: bool = False
) -> dict[Any, list[Any]]:
    """Return a path to each node that a search reached, or from it, in the order of the search."""
    return LazyDict(NodePaths(graph, found, backward=backward))
