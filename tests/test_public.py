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
        (gw.Graph.from_table, ([0],), "edge_attr", "weight"),
        (gw.read, ("roads.csv",), "weights", "columns"),
        (gw.generators.road, (4,), "weight", "weights"),
        (gw.Graph.plot, (STAR,), "color", "values"),
        (gw.generators.rmat, (4,), "random_state", "seed"),
    ],
)
def test_methods_of_graphs_name_it_too(
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
        ("degree_centrality", "Graph.out_degree"),
        ("is_connected", "connected_components"),
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


PROGRAM = gw.VertexProgram("least", lambda value: value, "min", dtype="int32")


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        (STAR, "nodes", "ids"),
        (STAR, "number_of_edges", "edge_count"),
        (STAR, "degree", "out_degree()"),
        (STAR, "has_edge", "neighbors, as in v in graph.neighbors(u)"),
        (STAR, "add_edge", "from_edges(sources, targets), as graphs are immutable"),
        (STAR, "vertex_cuont", "vertex_count"),
        (STAR, "shortest_path", "gw.sssp(graph)"),
        (STAR, "pagerank", "gw.pagerank(graph)"),
        (gw.Graph, "from_pandas_edgelist", "from_table(table, source, target, weight)"),
        (gw.bfs(STAR, 0), "distances", "distance"),
        (gw.bfs(STAR, 0), "predecessors", "predecessor"),
        (gw.bfs(STAR, 0), "to_pandas", "to_frame()"),
        (gw.pagerank(STAR), "top", "highest(count)"),
        (gw.louvain(STAR), "communities", "members(community)"),
        (gw.leiden(STAR), "membership", "label"),
        (gw.connected_components(STAR), "labels", "label"),
        (PROGRAM, "run", "gw.run(program, graph)"),
    ],
)
def test_a_wrong_attribute_gets_a_hint(owner: Any, name: str, meant: str) -> None:
    assert not hasattr(owner, name)
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert str(caught.value).endswith(f"has no attribute {name!r}: did you mean {meant}?")


def test_attributes_that_nothing_resembles_get_none() -> None:
    with pytest.raises(AttributeError, match=r"^'Graph' object has no attribute 'xyz'$"):
        _ = STAR.xyz  # type: ignore[attr-defined]


def test_hints_of_attributes_name_what_some_object_has() -> None:
    scores = [gw.pagerank(STAR), gw.betweenness_centrality(STAR)]
    owners = [STAR, gw.bfs(STAR, 0), *scores, gw.louvain(STAR), gw]
    for expressions in other_names._ATTRIBUTES.values():
        for meant in expressions:
            name = meant.removeprefix("gw.").partition("(")[0].partition(",")[0].split(".")[0]
            assert any(hasattr(owner, name) for owner in owners), meant


def test_a_property_that_fails_says_why() -> None:
    class Broken(other_names.NamesItsAttributes):
        @property
        def value(self) -> int:
            return self._missing  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(AttributeError, match="'_missing'"):
        _ = Broken().value
