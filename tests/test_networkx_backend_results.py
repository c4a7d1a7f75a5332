"""Dictionaries of the NetworkX backend that are filled on first use: they are dictionaries."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

from godwit.networkx import from_networkx, single_source_shortest_path
from godwit.networkx.results import FilledDict, LazyDict, NodeValues

_EXPECTED = {"a": 0.5, "b": 1.5, "c": 2.5}


def _lazy() -> LazyDict:
    graph = from_networkx(nx.Graph([("a", "b"), ("b", "c")]))
    return LazyDict(NodeValues(graph, np.array([0.5, 1.5, 2.5])))


def _set(d: Any) -> Any:
    d["a"] = 9.0
    return d


def _delete(d: Any) -> Any:
    del d["a"]
    return d


def _update(d: Any) -> Any:
    d.update(x=1)
    return d


def _clear(d: Any) -> Any:
    d.clear()
    return d


def _merge(d: Any) -> Any:
    d |= {"x": 1}
    return d


def _json(d: Any) -> Any:
    return json.dumps(d), json.dumps(d, sort_keys=True), json.dumps(d, indent=1)


@pytest.mark.parametrize(
    "use",
    [
        len, bool, list, dict, repr, str, sorted, max, copy.copy, copy.deepcopy, _json, _set, _delete,
        _update, _clear, _merge,
        lambda d: d["a"],
        lambda d: d.get("a"),
        lambda d: d.get("z", 7),
        lambda d: "a" in d,
        lambda d: "z" in d,
        lambda d: list(d.items()),
        lambda d: list(d.keys()),
        lambda d: list(d.values()),
        lambda d: list(reversed(d)),
        lambda d: {**d},
        lambda d: dict(**d),
        lambda d: d | {"x": 1},
        lambda d: {"x": 1} | d,
        lambda d: _update({}) | d,
        lambda d: d.copy(),
        lambda d: (d.pop("a"), d),
        lambda d: (d.popitem(), d),
        lambda d: (d.setdefault("z", 3), d.setdefault("a", 4), d),
        lambda d: d == _EXPECTED,
        lambda d: operator.eq(_EXPECTED, d),
        lambda d: d != _EXPECTED,
        lambda d: d == d.copy(),
        lambda d: d == {"a": 0.5},
        lambda d: max(d, key=d.get),
        lambda d: [d[node] for node in "abc" * 20],
        lambda d: dict.fromkeys(d, 0),
        lambda d: pickle.loads(pickle.dumps(d)),
        lambda d: isinstance(d, dict),
    ],
)  # fmt: skip
def test_what_a_dictionary_does(use: Callable[[Any], Any]) -> None:
    result, expected = use(_lazy()), use(dict(_EXPECTED))
    assert result == expected
    if type(expected) is dict:
        assert list(result.items()) == list(expected.items())


def test_unfilled_dictionaries_are_equal() -> None:
    assert _lazy() == _lazy()
    assert operator.ne(_lazy(), _lazy()) is False
    assert (_lazy() | _lazy()) == _EXPECTED


@pytest.mark.parametrize("key", ["z", ["unhashable"]])
def test_missing_keys_and_keys_that_cannot_be_hashed(key: Any) -> None:
    for use in (lambda d: d[key], lambda d: key in d, lambda d: d.get(key)):
        outcomes = []
        for mapping in (_lazy(), dict(_EXPECTED)):
            try:
                outcomes.append(use(mapping))
            except (KeyError, TypeError) as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]


def test_every_method_of_a_dictionary_is_covered() -> None:
    inert = {
        "__class__", "__class_getitem__", "__delattr__", "__dir__", "__doc__", "__format__",
        "__getattribute__", "__getstate__", "__hash__", "__init__", "__init_subclass__", "__new__",
        "__reduce__", "__setattr__", "__subclasshook__", "__str__", "fromkeys",
    }  # fmt: skip
    own = vars(LazyDict) | {"__reduce_ex__": None}
    assert set(dir(dict)) - inert - set(own) == set()


def test_one_value_is_found_without_filling() -> None:
    n = 1000
    graph = from_networkx(nx.path_graph(n))
    result = LazyDict(NodeValues(graph, np.arange(n)))
    assert result[7] == 7
    assert type(result[7]) is int
    assert type(result) is LazyDict
    assert [result[node] for node in range(n)] == list(range(n))
    assert type(result) is FilledDict


def test_code_that_reads_the_dictionary_behind_its_methods_does_not_find_it_empty() -> None:
    assert dict.__len__(_lazy()) == 1


def test_pickles_and_copies_are_plain_dictionaries() -> None:
    for made in (pickle.loads(pickle.dumps(_lazy())), copy.copy(_lazy()), copy.deepcopy(_lazy())):
        assert type(made) is dict
        assert made == _EXPECTED


@pytest.mark.parametrize("lookups", [0, 1, 100])
def test_paths_are_found_one_by_one_or_all(lookups: int) -> None:
    paths = single_source_shortest_path(from_networkx(nx.path_graph(50)), 0)
    for _ in range(lookups):
        assert paths[3] == [0, 1, 2, 3]
    assert paths == {node: list(range(node + 1)) for node in range(50)}
