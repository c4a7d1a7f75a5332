"""Unknown keyword arguments: the error suggests the argument that was meant."""

from __future__ import annotations

import inspect
import operator
import pickle
from typing import Any

import pytest

import godwit as gw
from godwit import other_names

STAR = gw.generators.star(4)


@pytest.mark.parametrize(
    ("function", "given", "meant"),
    [
        (gw.pagerank, "alpha", "damping"),
        (gw.pagerank, "tol", "tolerance"),
        (gw.pagerank, "max_iter", "max_iterations"),
        (gw.pagerank, "nstart", "initial"),
        (gw.pagerank, "weight", "weighted"),
        (gw.eigenvector_centrality, "nstart", "start"),
        (gw.betweenness_centrality, "k", "samples"),
        (gw.closeness_centrality, "u", "vertices"),
        (gw.bfs, "dvices", "devices"),
        (gw.bfs, "depth_limit", "cutoff"),
        (gw.sssp, "weight", "weighted"),
        (gw.connected_components, "device", "devices"),
    ],
)
def test_the_argument_that_was_meant_is_named(function: Any, given: str, meant: str) -> None:
    with pytest.raises(TypeError) as caught:
        function(STAR, **{given: 1})
    assert f"no argument '{given}': did you mean {meant}=?" in str(caught.value)
    assert meant in inspect.signature(function).parameters


@pytest.mark.parametrize(
    ("function", "positional", "given", "meant"),
    [
        (gw.Graph.from_edges, ([0], [1]), "weight", "weights"),
        (gw.Graph.from_table, ([0],), "src", "source"),
        (gw.generators.rmat, (4,), "random_state", "seed"),
    ],
)
def test_makers_of_graphs_name_it_too(
    function: Any, positional: tuple[Any, ...], given: str, meant: str
) -> None:
    with pytest.raises(TypeError, match=f"no argument '{given}': did you mean {meant}="):
        function(*positional, **{given: 1})


def test_arguments_are_listed_where_none_is_similar() -> None:
    with pytest.raises(TypeError, match=r"bfs\(\) has no argument 'xyz': it takes graph, source, "):
        gw.bfs(STAR, 0, xyz=1)  # type: ignore[call-arg]


def test_other_errors_of_types_pass() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        gw.bfs(STAR)  # type: ignore[call-arg]


def test_functions_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(gw.bfs)) is gw.bfs


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("scc", "strongly_connected_components"),
        ("weakly_connected_components", "connected_components"),
        ("louvain_communities", "louvain"),
        ("from_networkx", "Graph.from_networkx"),
        ("pagerang", "pagerank"),
    ],
)
def test_a_wrong_name_gets_a_hint(name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"'{name}': did you mean {meant}\?"):
        getattr(gw, name)


def test_hints_name_what_exists() -> None:
    for meant in set(other_names._OTHERS.values()):
        assert operator.attrgetter(meant)(gw) is not None
    assert not set(other_names._OTHERS) & set(gw.__all__)
    assert not hasattr(gw, "__wrapped__")
