"""NetworkX's backend: functions return what NetworkX returns, in its order, and raise what it raises."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import GeneratorType
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networkx.utils.backends import _registered_algorithms

import _godwit_networkx
import godwit.networkx as backend
import networkx_table
from godwit.networkx import dispatch, from_networkx, options
from networkx_graphs import networkx_graphs

_UNDIRECTED = (nx.Graph, nx.MultiGraph)
_DIRECTED = (nx.DiGraph, nx.MultiDiGraph)


def _of_networkx(name: str) -> Any:
    """Return NetworkX's own function."""
    return _registered_algorithms[name].__wrapped__.orig_func


def _listed(result: Any) -> Any:
    """Return a result with its order: dictionaries and iterators as lists of items."""
    if isinstance(result, dict):
        return [(key, _listed(value)) for key, value in result.items()]
    if isinstance(result, Iterator | GeneratorType):
        return [_listed(item) for item in result]
    if isinstance(result, tuple):
        return tuple(map(_listed, result))
    if isinstance(result, nx.Graph):
        return [(node, list(row.items())) for node, row in result.adjacency()]
    return result


def _outcome(function: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return _listed(function(*args, **kwargs))
    except (nx.NetworkXException, KeyError, ZeroDivisionError, ValueError, TypeError) as error:
        return type(error), str(error)


def _check(name: str, graph: Any, *args: Any, **kwargs: Any) -> None:
    """Check that Godwit's outcome is NetworkX's, to the order of items."""
    expected = _outcome(_of_networkx(name), graph, *args, **kwargs)
    arrays = from_networkx(graph, {"weight": 1})
    assert _outcome(getattr(backend, name), arrays, *args, **kwargs) == expected


def _node(data: st.DataObject, graph: Any) -> Any:
    """Draw a node, or now and then something that is none."""
    return data.draw(st.sampled_from([*graph, "no such node"]))


_OF_GRAPHS = ["degree_centrality", "is_forest", "is_tree", "isolates", "number_of_isolates"]


@pytest.mark.parametrize("name", _OF_GRAPHS)
@given(graph=networkx_graphs(min_nodes=0))
def test_functions_of_graphs(name: str, graph: Any) -> None:
    _check(name, graph)


@pytest.mark.parametrize(
    "name", ["connected_components", "number_connected_components", "is_connected"]
)
@given(graph=networkx_graphs(_UNDIRECTED, min_nodes=0))
def test_functions_of_undirected_graphs(name: str, graph: Any) -> None:
    _check(name, graph)


@pytest.mark.parametrize(
    "name",
    [
        "weakly_connected_components", "number_weakly_connected_components", "is_weakly_connected",
        "in_degree_centrality", "out_degree_centrality", "is_arborescence", "is_branching",
    ],
)  # fmt: skip
@given(graph=networkx_graphs(_DIRECTED, min_nodes=0))
def test_functions_of_directed_graphs(name: str, graph: Any) -> None:
    _check(name, graph)


@pytest.mark.parametrize(
    "name",
    [
        "ancestors", "bfs_edges", "bfs_layers", "bfs_predecessors", "bfs_successors", "bfs_tree",
        "descendants", "generic_bfs_edges", "is_isolate", "node_connected_component",
        "single_source_shortest_path", "single_source_shortest_path_length",
        "single_target_shortest_path", "single_target_shortest_path_length",
    ],
)  # fmt: skip
@given(graph=networkx_graphs(), data=st.data())
def test_functions_of_a_node(name: str, graph: Any, data: st.DataObject) -> None:
    _check(name, graph, _node(data, graph))


_CUTOFFS = st.sampled_from([None, -1, 0, 0.5, 1, 1.5, 2, 3, float("inf")])


@pytest.mark.parametrize(
    "name",
    [
        "single_source_shortest_path", "single_source_shortest_path_length",
        "single_target_shortest_path", "single_target_shortest_path_length",
    ],
)  # fmt: skip
@given(graph=networkx_graphs(), data=st.data(), cutoff=_CUTOFFS)
def test_cutoffs(name: str, graph: Any, data: st.DataObject, cutoff: float | None) -> None:
    _check(name, graph, _node(data, graph), cutoff=cutoff)


@pytest.mark.parametrize("name", ["bfs_edges", "bfs_tree"])
@given(graph=networkx_graphs(), data=st.data(), limit=_CUTOFFS)
def test_depth_limits_and_reverse_searches(
    name: str, graph: Any, data: st.DataObject, limit: float | None
) -> None:
    _check(name, graph, _node(data, graph), reverse=True, depth_limit=limit)


@given(graph=networkx_graphs(), data=st.data())
def test_layers_of_several_sources(graph: Any, data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.sampled_from([*graph, "no such node"]), max_size=4))
    _check("bfs_layers", graph, sources)


@given(graph=networkx_graphs(), data=st.data(), distance=st.integers(-1, 4))
def test_descendants_at_distance(graph: Any, data: st.DataObject, distance: int) -> None:
    _check("descendants_at_distance", graph, _node(data, graph), distance)


@given(graph=networkx_graphs(), data=st.data())
def test_path_between_nodes(graph: Any, data: st.DataObject) -> None:
    _check("bidirectional_shortest_path", graph, _node(data, graph), _node(data, graph))


@given(graph=networkx_graphs(), cutoff=_CUTOFFS)
def test_all_pairs(graph: Any, cutoff: float | None) -> None:
    _check("all_pairs_shortest_path", graph, cutoff=cutoff)
    _check("all_pairs_shortest_path_length", graph, cutoff=cutoff)


@given(graph=networkx_graphs((nx.DiGraph,)), data=st.data())
def test_reciprocity(graph: Any, data: st.DataObject) -> None:
    _check("overall_reciprocity", graph)
    nodes = data.draw(st.none() | st.lists(st.sampled_from([*graph, "none"])) | st.integers())
    _check("reciprocity", graph, nodes)
    _check("reciprocity", graph, _node(data, graph))


@pytest.mark.parametrize("kind", [*_UNDIRECTED, nx.MultiDiGraph])
def test_reciprocity_of_other_graphs_is_left_to_networkx(kind: Any) -> None:
    graph = from_networkx(kind([(0, 1), (0, 1), (1, 0), (1, 2)]))
    for call in (
        backend.overall_reciprocity,
        backend.reciprocity,
        lambda g: backend.reciprocity(g, 0),
    ):
        with pytest.raises(NotImplementedError, match=r"undirected|parallel"):
            call(graph)


def _check_numbers(name: str, graph: Any, *args: Any, tolerance: float, **kwargs: Any) -> None:
    expected = _outcome(_of_networkx(name), graph, *args, **kwargs)
    arrays = from_networkx(graph, {"weight": 1})
    try:
        outcome = _outcome(getattr(backend, name), arrays, *args, **kwargs)
    except NotImplementedError:
        return
    if not isinstance(expected, list):
        assert outcome == expected
        return
    assert [node for node, _ in outcome] == [node for node, _ in expected]
    assert [value for _, value in outcome] == pytest.approx(
        [value for _, value in expected], abs=tolerance, rel=tolerance, nan_ok=True
    )


_WEIGHTS = st.integers(0, 5) | st.floats(0, 4).map(lambda x: round(x, 2))
_POSITIVE = st.integers(1, 5)


@given(graph=networkx_graphs(weights=_WEIGHTS, min_nodes=0), data=st.data())
def test_pagerank(graph: Any, data: st.DataObject) -> None:
    shares = st.dictionaries(st.sampled_from([*graph, "none"]), st.integers(0, 3), min_size=1)
    _check_numbers(
        "pagerank", graph,
        alpha=data.draw(st.sampled_from([0.5, 0.85])), tol=1e-10, max_iter=1000,
        personalization=data.draw(st.none() | shares),
        weight=data.draw(st.sampled_from(["weight", None])),
        tolerance=1e-7,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["betweenness_centrality", "edge_betweenness_centrality"])
@given(graph=networkx_graphs(weights=_POSITIVE, min_nodes=0), data=st.data())
def test_betweenness(name: str, graph: Any, data: st.DataObject) -> None:

    n = len(graph)
    k = data.draw(st.none() | st.integers(1, n)) if n else None
    seed = data.draw(st.integers(0, 5))
    arguments: dict[str, Any] = {
        "k": k,
        "normalized": data.draw(st.booleans()),
        "weight": data.draw(st.sampled_from([None, "weight"])),
    }
    if name == "betweenness_centrality":
        arguments["endpoints"] = data.draw(st.booleans())
    expected = _outcome(_of_networkx(name), graph, seed=random.Random(seed), **arguments)
    arrays = from_networkx(graph, {"weight": 1})
    try:
        outcome = _listed(getattr(backend, name)(arrays, seed=random.Random(seed), **arguments))
    except NotImplementedError:
        assert graph.is_multigraph()
        return
    assert [key for key, _ in outcome] == [key for key, _ in expected]
    assert [value for _, value in outcome] == pytest.approx(
        [value for _, value in expected], nan_ok=True
    )


@given(graph=networkx_graphs(weights=_POSITIVE), data=st.data())
def test_betweenness_subset(graph: Any, data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.sampled_from(list(graph)), unique=True))
    _check_numbers(
        "betweenness_centrality_subset", graph, sources, list(graph),
        normalized=data.draw(st.booleans()), weight=data.draw(st.sampled_from([None, "weight"])),
        tolerance=1e-9,
    )  # fmt: skip


_LENGTHS = st.integers(0, 3) | st.sampled_from([0.0, 0.1, 0.25, 0.3, 1e-9, 2.5])


@pytest.mark.parametrize(
    "name",
    [
        "single_source_dijkstra", "single_source_dijkstra_path", "single_source_dijkstra_path_length",
        "shortest_path", "shortest_path_length",
    ],
)  # fmt: skip
@given(graph=networkx_graphs(weights=_LENGTHS), data=st.data())
def test_paths_by_length_from_a_node(name: str, graph: Any, data: st.DataObject) -> None:
    cutoff = {} if name.startswith("shortest") else {"cutoff": data.draw(_CUTOFFS)}
    if cutoff.get("cutoff") == -1:
        with suppress(NotImplementedError):
            _check(name, graph, _node(data, graph), weight="weight", **cutoff)
    else:
        _check(name, graph, _node(data, graph), weight="weight", **cutoff)


@pytest.mark.parametrize("weights", [st.integers(0, 3), st.integers(1, 2)], ids=["0", "1"])
@pytest.mark.parametrize(
    "name", ["multi_source_dijkstra", "multi_source_dijkstra_path", "voronoi_cells"]
)
@given(data=st.data())
def test_paths_by_length_from_several_nodes(name: str, weights: Any, data: st.DataObject) -> None:
    graph = data.draw(networkx_graphs(weights=weights))
    sources = st.sampled_from([*graph, "no such node"])
    _check(name, graph, data.draw(st.lists(sources, max_size=3)), weight="weight")


@pytest.mark.parametrize(
    "name",
    [
        "bidirectional_dijkstra", "dijkstra_path", "dijkstra_path_length", "has_path", "shortest_path",
        "shortest_path_length", "single_source_dijkstra",
    ],
)  # fmt: skip
@given(graph=networkx_graphs(weights=_LENGTHS), data=st.data())
def test_paths_between_nodes(name: str, graph: Any, data: st.DataObject) -> None:
    weights = ["weight", None] if name.startswith("shortest") else ["weight"]
    weight = {} if name == "has_path" else {"weight": data.draw(st.sampled_from(weights))}
    _check(name, graph, _node(data, graph), _node(data, graph), **weight)


@given(graph=networkx_graphs(), data=st.data(), length=st.sampled_from(["weight", None]))
def test_paths_to_a_node(graph: Any, data: st.DataObject, length: str | None) -> None:
    target = _node(data, graph)
    _check("shortest_path", graph, target=target, weight=length)
    _check("shortest_path_length", graph, target=target, weight=length)


@pytest.mark.parametrize("method", ["dijkstra", "bellman-ford", "nonsense"])
@given(graph=networkx_graphs(weights=_LENGTHS), weight=st.sampled_from(["weight", None]))
def test_paths_of_all_pairs(method: str, graph: Any, weight: str | None) -> None:
    for name in ("shortest_path", "shortest_path_length"):
        expected = _outcome(_of_networkx(name), graph, weight=weight, method=method)
        arrays = from_networkx(graph, {"weight": 1})
        outcome = _outcome(getattr(backend, name), arrays, weight=weight, method=method)
        if method == "nonsense":
            assert outcome == expected
        elif method == "dijkstra" or weight is None or name == "shortest_path_length":
            assert {node: dict(row) for node, row in outcome} == {
                node: dict(row) for node, row in expected
            }
        else:
            _check_paths(graph, outcome, expected)


def _check_paths(graph: Any, outcome: Any, expected: Any) -> None:
    """Check that paths lead where the expected ones do, and are as long."""
    assert [node for node, _ in outcome] == [node for node, _ in expected]
    for (_, paths), (_, others) in zip(outcome, expected, strict=True):
        lengths = [
            {target: nx.path_weight(_least(graph), path, "weight") for target, path in found}
            for found in (paths, others)
        ]
        assert lengths[0] == pytest.approx(lengths[1])


def _least(graph: Any) -> Any:
    """Return the graph with one edge for parallel ones, of the least length."""
    simple = nx.DiGraph()
    for u, v, weight in graph.to_directed().edges(data="weight", default=1):
        old = simple.get_edge_data(u, v, {"weight": weight})["weight"]
        simple.add_edge(u, v, weight=min(weight, old))
    return simple


@given(graph=networkx_graphs(weights=_LENGTHS), data=st.data())
def test_bellman_ford(graph: Any, data: st.DataObject) -> None:
    source, target = _node(data, graph), _node(data, graph)
    arrays = from_networkx(graph, {"weight": 1})

    def outcomes(name: str, *nodes: Any) -> tuple[Any, Any]:
        return (
            _outcome(getattr(backend, name), arrays, *nodes),
            _outcome(_of_networkx(name), graph, *nodes),
        )

    length, expected = outcomes("bellman_ford_path_length", source, target)
    assert length == expected
    path, expected = outcomes("bellman_ford_path", source, target)
    if isinstance(expected, tuple):
        assert path == expected
    else:
        assert nx.path_weight(_least(graph), path, "weight") == pytest.approx(length)
    lengths, expected = outcomes("single_source_bellman_ford_path_length", source)
    if isinstance(expected, tuple):
        assert lengths == expected
        return
    assert dict(lengths) == dict(expected)
    (distances, paths), _ = outcomes("single_source_bellman_ford", source)
    assert distances == lengths
    assert [(node, path[0], path[-1]) for node, path in paths] == [
        (node, source, node) for node, _ in lengths
    ]


@given(graph=networkx_graphs(weights=_LENGTHS, min_nodes=0), data=st.data())
def test_closeness(graph: Any, data: st.DataObject) -> None:
    distance = data.draw(st.sampled_from([None, "weight"]))
    _check_numbers("closeness_centrality", graph, distance=distance, tolerance=1e-9)
    if len(graph):
        node = _node(data, graph)
        improved = data.draw(st.booleans())
        arrays = from_networkx(graph, {"weight": 1})
        arguments = {"u": node, "distance": distance, "wf_improved": improved}
        outcome = _outcome(backend.closeness_centrality, arrays, **arguments)
        expected = _outcome(_of_networkx("closeness_centrality"), graph, **arguments)
        assert outcome == (expected if isinstance(expected, tuple) else pytest.approx(expected))


@given(graph=networkx_graphs(weights=_LENGTHS), data=st.data())
def test_harmonic_centrality(graph: Any, data: st.DataObject) -> None:
    some = st.none() | st.sets(st.sampled_from([*graph, "no such node"]), min_size=1)
    _check_numbers(
        "harmonic_centrality", graph, nbunch=data.draw(some), sources=data.draw(some),
        distance=data.draw(st.sampled_from([None, "weight"])), tolerance=1e-9,
    )  # fmt: skip


@given(graph=networkx_graphs(weights=_POSITIVE, min_nodes=0), data=st.data())
def test_clusters(graph: Any, data: st.DataObject) -> None:
    nodes = None
    if len(graph):
        some = st.sets(st.sampled_from([*graph, "no such node"]), min_size=1)
        nodes = data.draw(st.none() | st.sampled_from([*graph]) | some)
    if not graph.is_directed():
        _check_numbers("triangles", graph, nodes, tolerance=0)
    weight = data.draw(st.sampled_from([None, "weight"]))
    _check_numbers("clustering", graph, nodes, weight=weight, tolerance=1e-9)
    _check_numbers("transitivity", graph, tolerance=0)
    if not isinstance(nodes, str | int):
        zeros = data.draw(st.booleans())
        _check_numbers("average_clustering", graph, nodes, count_zeros=zeros, tolerance=0)


@pytest.mark.parametrize(
    "name", ["jaccard_coefficient", "adamic_adar_index", "resource_allocation_index"]
)
@given(graph=networkx_graphs(kinds=(nx.Graph, nx.MultiGraph)), data=st.data())
def test_link_prediction(name: str, graph: Any, data: st.DataObject) -> None:
    nodes = st.sampled_from([*graph]) | st.just("no such node")
    pairs = data.draw(st.lists(st.tuples(nodes, nodes), max_size=6))
    arrays = from_networkx(graph)
    try:
        outcome = _outcome(lambda: list(getattr(backend, name)(arrays, pairs)))
    except NotImplementedError:
        same = any(u == v for u, v in pairs)
        assert same or graph.is_multigraph() or nx.number_of_selfloops(graph)
        return
    expected = _outcome(lambda: list(_of_networkx(name)(graph, pairs)))
    if isinstance(expected, tuple):
        assert outcome == expected
        return
    assert [pair for *pair, _ in outcome] == [pair for *pair, _ in expected]
    assert [score for *_, score in outcome] == pytest.approx([score for *_, score in expected])
    assert list(getattr(backend, name)(arrays, iter(pairs))) == []


@pytest.mark.parametrize(
    "name", ["pagerank", "louvain_communities", "dijkstra_predecessor_and_distance"]
)
def test_an_attribute_that_was_not_converted_is_named_with_what_converts_it(name: str) -> None:
    graph = nx.path_graph(3)
    function = getattr(backend, name)
    arguments = (0,) if name.startswith("dijkstra") else ()
    with pytest.raises(nx.NetworkXError, match=r"from_networkx\(G, \{'weight': 1\}\)"):
        function(from_networkx(graph), *arguments, weight="weight")
    assert function(from_networkx(graph, {"weight": 1}), *arguments, weight="weight")
    assert function(from_networkx(graph), *arguments, weight=None)


_WHOLE = st.integers(1, 4)


def _connected(graph: Any) -> None:
    """Add edges until every node reaches all others."""
    nodes = list(graph)
    graph.add_edges_from(zip(nodes, [*nodes[1:], nodes[0]], strict=True))


@pytest.mark.parametrize("name", ["eccentricity", "diameter", "radius", "periphery", "center"])
@given(graph=networkx_graphs(weights=_WHOLE), data=st.data())
def test_eccentricity(name: str, graph: Any, data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        _connected(graph)
    arguments: dict[str, Any] = {"weight": data.draw(st.sampled_from([None, "weight"]))}
    if name == "eccentricity":
        arguments["v"] = data.draw(
            st.none() | st.sampled_from(list(graph)) | st.lists(st.sampled_from(list(graph)))
        )
    else:
        arguments["usebounds"] = data.draw(st.booleans())
    _check(name, graph, **arguments)


@given(seed=st.integers(0, 1000), n=st.integers(1, 12))
def test_center_of_trees(seed: int, n: int) -> None:
    tree = nx.relabel_nodes(nx.random_labeled_tree(n, seed=seed), lambda node: f"node {-node}")
    _check("center", tree)
    nodes = random.Random(seed).sample(list(tree), n)
    ordered = nx.Graph()
    ordered.add_nodes_from(nodes)
    ordered.add_edges_from(tree.edges)
    _check("center", ordered)


@pytest.mark.parametrize("name", ["diameter", "radius", "periphery", "center"])
def test_measures_of_given_eccentricities(name: str) -> None:
    _check(name, nx.path_graph(3), e={0: 4, 1: 2, 2: 4})
    _check(name, nx.Graph())


@given(graph=networkx_graphs(weights=_WHOLE, min_nodes=0), data=st.data())
def test_average_shortest_path_length(graph: Any, data: st.DataObject) -> None:
    if len(graph) and data.draw(st.booleans()):
        _connected(graph)
    for weight in (None, "weight"):
        for method in (None, "unweighted", "dijkstra", "bellman-ford", "nonsense"):
            _check("average_shortest_path_length", graph, weight=weight, method=method)
    with pytest.raises(NotImplementedError, match="floyd"):
        backend.average_shortest_path_length(from_networkx(graph), method="floyd-warshall")


@given(graph=networkx_graphs(_UNDIRECTED, min_nodes=0))
def test_global_efficiency(graph: Any) -> None:
    expected = _of_networkx("global_efficiency")(graph)
    assert backend.global_efficiency(from_networkx(graph)) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["eigenvector_centrality", "katz_centrality"])
@given(graph=networkx_graphs((nx.Graph, nx.DiGraph), weights=_WEIGHTS, min_nodes=0), data=st.data())
def test_iterated_centralities(name: str, graph: Any, data: st.DataObject) -> None:
    some = st.sampled_from([*graph, "none"])
    arguments: dict[str, Any] = {
        "weight": data.draw(st.sampled_from([None, "weight"])),
        "max_iter": data.draw(st.sampled_from([0, 3, 1000])),
        "nstart": data.draw(
            st.none()
            | st.fixed_dictionaries(dict.fromkeys(graph, st.integers(0, 3)))
            | st.dictionaries(some, st.integers(1, 3), min_size=1)
        ),
    }
    if name == "katz_centrality":
        arguments |= {
            "alpha": data.draw(st.sampled_from([0.01, 0.05])),
            "beta": data.draw(
                st.sampled_from([1.0, 2, 0.5])
                | st.fixed_dictionaries(dict.fromkeys(graph, st.integers(0, 3)))
                | st.dictionaries(some, st.integers(1, 3), min_size=1)
            ),
            "normalized": data.draw(st.booleans()),
        }
    if arguments["nstart"] is not None and arguments["nstart"].keys() != set(graph):
        if len(graph) and isinstance(arguments.get("beta", 1), int | float):
            with pytest.raises(NotImplementedError, match="nstart"):
                getattr(backend, name)(from_networkx(graph, {"weight": 1}), **arguments)
        return
    _check_numbers(name, graph, tolerance=1e-6, **arguments)


def _dominant_hits(graph: nx.Graph, normalized: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return hub and authority scores by NumPy's decomposition, from equal scores on."""
    matrix = nx.to_numpy_array(graph)
    _, values, vectors = np.linalg.svd(matrix)
    space = vectors[np.isclose(values, values[0])]
    authorities = space.T @ (space @ np.ones(len(graph)))
    authorities /= np.linalg.norm(authorities)
    hubs = matrix @ authorities
    if normalized:
        return hubs / hubs.sum(), authorities / authorities.sum()
    return abs(hubs), abs(authorities)


def test_hits() -> None:
    graph = nx.gnp_random_graph(40, 0.2, seed=3, directed=True)
    for (_, _, data), weight in zip(graph.edges(data=True), range(1000), strict=False):
        data["weight"] = weight % 7
    start = {node: 1.0 + node for node in graph}
    for kind in (nx.DiGraph, nx.MultiDiGraph):
        for arguments in ({}, {"nstart": start}):
            arrays = from_networkx(kind(graph), {"weight": 1})
            outcome = backend.hits(arrays, tol=1e-12, **arguments)
            for found, expected in zip(outcome, nx.hits(graph), strict=True):
                assert found == pytest.approx(expected, abs=1e-6)
    with pytest.raises(nx.PowerIterationFailedConvergence):
        backend.hits(arrays, max_iter=0)
    with pytest.raises(nx.PowerIterationFailedConvergence):
        backend.hits(from_networkx(nx.path_graph(200), {"weight": 1}), max_iter=1)
    hard = nx.path_graph(200)  # ARPACK's turn: two singular values are close
    for normalized in (True, False):
        outcome = backend.hits(from_networkx(hard, {"weight": 1}), normalized=normalized)
        for found, expected in zip(outcome, _dominant_hits(hard, normalized), strict=True):
            assert [abs(value) for value in found.values()] == pytest.approx(expected, abs=1e-6)
    assert backend.hits(from_networkx(nx.Graph(), {"weight": 1})) == ({}, {})


def _check_graph(name: str, graph: Any, *args: Any, **kwargs: Any) -> None:
    """Check that Godwit's graph has the nodes and edges of NetworkX's, and their attributes."""
    arrays = from_networkx(graph, keep_data=True)
    try:
        expected = _of_networkx(name)(graph, *args, **kwargs)
    except nx.NetworkXException as error:
        with pytest.raises(type(error), match=str(error)):
            getattr(backend, name)(arrays, *args, **kwargs)
        return
    found = backend.convert_to_nx(getattr(backend, name)(arrays, *args, **kwargs))
    assert type(found) is type(expected)
    assert (found._node, found._adj, found.graph) == (expected._node, expected._adj, expected.graph)
    if found.is_directed():
        assert found._pred == expected._pred


@given(graph=networkx_graphs(weights=_LENGTHS), data=st.data())
def test_ego_graph(graph: Any, data: st.DataObject) -> None:
    graph.graph["name"] = "a graph"
    for node in graph:
        graph.nodes[node]["color"] = str(node)
    _check_graph(
        "ego_graph", graph, _node(data, graph), radius=data.draw(st.sampled_from([0, 1, 1.5, 2])),
        center=data.draw(st.booleans()), distance=data.draw(st.sampled_from([None, "weight"])),
    )  # fmt: skip


_SIMPLE = (nx.Graph, nx.DiGraph)


@given(graph=networkx_graphs(_SIMPLE, min_nodes=0), loops=st.booleans())
def test_core_number(graph: Any, loops: bool) -> None:
    if not loops:
        graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    _check("core_number", graph)


@pytest.mark.parametrize("name", ["k_core", "k_shell", "k_crust", "k_corona"])
@given(graph=networkx_graphs(_SIMPLE, min_nodes=0), k=st.none() | st.integers(0, 3), data=st.data())
def test_subgraphs_by_core_numbers(
    name: str, graph: Any, k: int | None, data: st.DataObject
) -> None:
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    k = 1 if k is None and name == "k_corona" else k
    given_numbers = nx.core_number(graph) if data.draw(st.booleans()) else None
    if len(graph) == 0 and k is None:
        assert _outcome(getattr(backend, name), from_networkx(graph, {}), k)[0] is ValueError
        return
    _check_graph(name, graph, k, core_number=given_numbers)


@given(graph=networkx_graphs((nx.Graph,), min_nodes=0), k=st.integers(-1, 6), loops=st.booleans())
def test_k_truss(graph: Any, k: int, loops: bool) -> None:
    if not loops:
        graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    if nx.number_of_selfloops(graph):
        _check("k_truss", graph, k)
    else:
        _check_graph("k_truss", graph, k)


@given(graph=networkx_graphs(_UNDIRECTED, min_nodes=0))
def test_greedy_color(graph: Any) -> None:
    _check("greedy_color", graph)
    with pytest.raises(NotImplementedError, match="largest_first"):
        backend.greedy_color(from_networkx(nx.path_graph(3)), "DSATUR")


@given(graph=networkx_graphs(min_nodes=0))
def test_complement(graph: Any) -> None:
    _check_graph("complement", graph)


@given(graph=networkx_graphs(weights=_LENGTHS))
def test_reverse(graph: Any) -> None:
    _check_graph("reverse", graph)
    if graph.is_directed():
        reverse = backend.reverse(from_networkx(graph, {"weight": 1})).to_networkx()
        expected = from_networkx(graph.reverse(), {"weight": 1}).to_networkx()
        assert reverse._adj == expected._adj


@pytest.mark.parametrize(
    "name", ["dijkstra_predecessor_and_distance", "bellman_ford_predecessor_and_distance"]
)
@given(graph=networkx_graphs(weights=st.integers(0, 3)), data=st.data())
def test_predecessors_and_distances(name: str, graph: Any, data: st.DataObject) -> None:
    node = _node(data, graph)
    expected = _outcome(_of_networkx(name), graph, node)
    arrays = from_networkx(graph, {"weight": 1})
    outcome = _outcome(getattr(backend, name), arrays, node)
    if isinstance(expected[0], type):
        assert outcome == expected
        return
    sort = sorted if name.startswith("bellman") else list
    predecessors = [
        {node: sort(before, key=repr) if sort is sorted else before for node, before in found[0]}
        for found in (outcome, expected)
    ]
    assert predecessors[0] == predecessors[1]
    assert dict(outcome[1]) == dict(expected[1])


@given(graph=networkx_graphs(weights=_WEIGHTS))
def test_conversion_and_back(graph: Any) -> None:
    for node in graph:
        graph.nodes[node]["color"] = str(node)
    arrays = from_networkx(graph, {"weight": 1}, keep_data=True)
    assert (len(arrays), arrays.number_of_edges()) == (len(graph), graph.number_of_edges())
    again = arrays.to_networkx()
    assert type(again) is type(graph)
    assert _listed(again) == _listed(graph)
    assert again._node == graph._node
    assert (again.is_directed() and _listed(again._pred)) == (
        graph.is_directed() and _listed(graph._pred)
    )
    for row in again._adj.values():  # of its own
        for data in row.values():
            data.clear()
    assert _listed(arrays.to_networkx()) == _listed(graph)


@given(graph=networkx_graphs(weights=_WEIGHTS))
def test_conversion_of_a_view(graph: Any) -> None:
    view = graph.subgraph(list(graph)[::2])
    assert _listed(from_networkx(view, keep_data=True).to_networkx()) == _listed(view)


@pytest.mark.parametrize("weight", [None, "3", [1], 1j, 2**64, 10**400])
def test_weights_that_are_no_numbers_are_left_to_networkx(weight: Any) -> None:
    graph = nx.path_graph(4)
    graph[0][1]["weight"] = weight
    with pytest.raises(NotImplementedError, match="'weight' of"):
        from_networkx(graph, {"weight": 1})


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), 2**62])
def test_lengths_that_searches_do_not_take_are_left_to_networkx(weight: Any) -> None:
    graph = nx.path_graph(4)
    graph[0][1]["weight"] = weight
    arrays = from_networkx(graph, {"weight": 1})
    with pytest.raises(NotImplementedError, match="'weight' of an edge"):
        arrays.lengths("weight")


def test_the_table_has_the_functions_with_networkx_parameters() -> None:
    for name, row in _godwit_networkx.FUNCTIONS.items():
        function = getattr(backend, name)
        assert function.__module__ == f"godwit.networkx.{row.module}"
        assert inspect.getdoc(function)
        given_by_networkx = inspect.signature(_of_networkx(name)).parameters.values()
        parameters = dict(inspect.signature(function).parameters)
        assert row.devices == (parameters.pop("devices", None) is not None), name
        assert [(p.name, p.kind, p.default) for p in parameters.values()] == [
            (p.name, p.kind, p.default) for p in given_by_networkx
        ], name


def test_the_documentation_has_the_table_of_functions() -> None:
    text = networkx_table.PAGE.read_text(encoding="utf-8")
    table = text.partition(networkx_table.HEAD)[2].partition("\n\n")[0].strip()
    assert table.splitlines() == networkx_table.rows(), "run python tests/networkx_table.py"


def test_unknown_functions_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'draw'"):
        _ = backend.draw


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("pagerank", {"dangling": {0: 1}}, "dangling is given"),
        ("bfs_edges", {"source": 0, "sort_neighbors": sorted}, "sort_neighbors is given"),
        ("betweenness_centrality", {"weight": lambda u, v, d: 1}, "weight is a function"),
        ("bfs_edges", {}, "missing a required argument"),
    ],
)
def test_calls_that_godwit_does_not_take_have_a_reason(
    name: str, arguments: dict[str, Any], reason: str
) -> None:
    assert reason in str(backend.can_run(name, (nx.path_graph(3),), arguments))
    for parameter in ("dangling", "sort_neighbors", "weight"):
        arguments.pop(parameter, None)
    if arguments or name != "bfs_edges":
        assert backend.can_run(name, (nx.path_graph(3),), arguments) is True


_LESS = "less time than a call"
_LATER = "not converted yet"


def _verdict(name: str, graph: Any, **arguments: Any) -> str:
    """Return why NetworkX should run a call itself; nothing if Godwit should."""
    verdict = backend.should_run(name, (graph,), arguments)
    return verdict if isinstance(verdict, str) else ""


def _converted(graph: Any) -> Any:
    """Return a graph with a conversion, as NetworkX keeps it."""
    kept = graph.__networkx_cache__.setdefault("backends", {})
    kept["godwit"] = {"key": from_networkx(graph, {"weight": 1})}
    return graph


def test_small_graphs_stay_with_networkx() -> None:
    few = _converted(nx.path_graph(40))
    for name in ("bfs_edges", "single_source_dijkstra", "single_source_shortest_path"):
        assert _LESS in _verdict(name, few, source=0)
    assert _LESS in _verdict("pagerank", few)
    for name in ("bfs_edges", "ego_graph", "pagerank"):
        assert backend.should_run(name, (from_networkx(few), 0), {}) is True


def test_graphs_are_converted_when_that_is_worth_it() -> None:
    graph = nx.path_graph(5_000)
    assert not _verdict("pagerank", graph)
    assert not _verdict("single_source_dijkstra", graph, source=0)
    assert _LESS in _verdict("ego_graph", graph, n=0)
    calls = 0
    while verdict := _verdict("bfs_edges", graph, source=0):
        assert _LATER in verdict
        calls += 1
    assert 1 < calls < 5
    graph.add_edge(0, 5)
    assert _LATER in _verdict("bfs_edges", graph, source=0)
    assert not _verdict("bfs_edges", _converted(graph), source=0)
    graph.__networkx_cache__ = None
    assert "cannot be kept" in _verdict("bfs_edges", graph, source=0)


def test_the_arguments_count() -> None:
    graph = nx.path_graph(4_000)
    one, some = {"u": 3}, {"nbunch": [1, 2, 3]}
    assert not _verdict("closeness_centrality", graph)
    assert _LATER in _verdict("closeness_centrality", graph, **one)
    assert not _verdict("harmonic_centrality", graph, sources=iter([205]))
    assert _LATER in _verdict("harmonic_centrality", graph, **some)
    assert not _verdict("betweenness_centrality", graph, k=50)
    assert _LATER in _verdict("betweenness_centrality", graph, k=1)
    assert _LESS in _verdict("diameter", graph, e=dict.fromkeys(graph, 1))
    assert "bounds" in _verdict("diameter", graph, usebounds=True)
    assert not _verdict("shortest_path", graph)
    assert _LATER in _verdict("shortest_path", graph, source=0)
    assert not _verdict("shortest_path", graph, source=0, weight="weight")
    for name in ("shortest_path", "bidirectional_shortest_path"):
        assert _LESS in _verdict(name, _converted(graph), source=0, target=5)
        assert not _verdict(name, _converted(nx.path_graph(40_000)), source=0, target=5)
    assert not _verdict("single_source_dijkstra", _converted(graph), source=0, target=5)


def test_searches_that_reach_few_nodes_stay_with_networkx() -> None:
    pieces = nx.disjoint_union(nx.path_graph(5_000), nx.path_graph(10))
    for name in ("single_source_dijkstra", "single_source_bellman_ford_path_length"):
        assert not _verdict(name, pieces, source=3)
        assert "few nodes" in _verdict(name, pieces, source=5_005, weight=None)
    assert not _verdict("multi_source_dijkstra", pieces, sources={5_005, 3})
    assert "few nodes" in _verdict("multi_source_dijkstra", pieces, sources=[5_005, 5_000])
    directed = _converted(nx.path_graph(5_000, create_using=nx.DiGraph))
    assert not _verdict("bfs_edges", directed, source=0)
    assert "few nodes" in _verdict("bfs_edges", directed, source=4_990)
    assert not _verdict("bfs_edges", directed, source=4_990, reverse=True)
    assert not _verdict("ancestors", directed, source=4_990)
    assert "few nodes" in _verdict("descendants", directed, source=4_990)


@pytest.mark.parametrize("devices", ["cuda", ["cuda:0", "cuda:1"]])
def test_placing_a_graph_on_gpus_counts(devices: Any) -> None:
    graph = nx.path_graph(5_000)
    for arrays in (graph, _converted(graph)):
        assert not _verdict("single_source_dijkstra", arrays, source=0)
        assert _LATER in _verdict("single_source_dijkstra", arrays, source=0, devices=devices)
    if "godwit" in nx.config.backends:
        with nx.config.backends.godwit(devices=devices):
            assert _LATER in _verdict("single_source_dijkstra", graph, source=0)
            assert not _verdict("bfs_edges", graph, source=0)  # has no part for GPUs


def test_small_graphs_are_on_the_cpu_unless_gpus_are_asked_for(monkeypatch: Any) -> None:
    graph = nx.path_graph(5_000)
    for module in (dispatch, options):
        monkeypatch.setattr(module, "gpu_names", lambda: ("cuda:0",))
    assert not _verdict("single_source_dijkstra", graph, source=0)
    large = nx.path_graph(70_000)
    assert _LATER in _verdict("single_source_dijkstra", large, source=0)
    assert not _verdict("pagerank", large)
    assert sum(backend.pagerank(from_networkx(graph, {"weight": 1})).values()) == pytest.approx(1)


class _Row(dict[Any, Any]):
    """A row of a graph that counts how often its length is taken."""

    taken = 0

    def __len__(self) -> int:
        _Row.taken += 1
        return super().__len__()


def test_whether_a_call_is_dispatched_is_found_without_looking_at_the_whole_graph() -> None:
    graph = _converted(nx.path_graph(10_000))
    for node, row in list(graph._adj.items()):
        graph._adj[node] = _Row(row)
    for name in _godwit_networkx.FUNCTIONS:
        parameters = list(inspect.signature(getattr(backend, name)).parameters.values())[1:]
        required = [one.name for one in parameters if one.default is inspect.Parameter.empty]
        _Row.taken = 0
        _verdict(name, graph, **dict.fromkeys(required, 0))
        assert 0 < _Row.taken <= 200, name


def test_functions_have_a_cost_and_parameters_that_limit_searches() -> None:
    for name, row in _godwit_networkx.FUNCTIONS.items():
        assert row.cost in _godwit_networkx.COSTS, name
        if row.searches not in ("", _godwit_networkx.ALL):
            assert row.searches in inspect.signature(getattr(backend, name)).parameters, name


_INSTALLED = pytest.mark.skipif(
    "godwit" not in nx.utils.backends.backends,
    reason="the installed package has no entry points for NetworkX: install it again",
)


@_INSTALLED
def test_networkx_calls_the_backend_and_keeps_the_conversion() -> None:
    graph = nx.gnp_random_graph(30, 0.2, seed=1)
    assert nx.pagerank(graph, backend="godwit") == pytest.approx(nx.pagerank(graph), abs=1e-4)
    [kept] = graph.__networkx_cache__["backends"]["godwit"].values()
    with nx.config(warnings_to_ignore={"cache"}):
        nx.betweenness_centrality(graph, backend="godwit", devices="cpu:0")
        graph[0][next(iter(graph[0]))]["cost"] = 3
        nx.betweenness_centrality(graph, weight="cost", backend="godwit")
    assert set(map(id, graph.__networkx_cache__["backends"]["godwit"].values())) == {id(kept)}
    assert kept.attributes["cost", 1].max() == 3
    assert "Additional parameters" in nx.pagerank.__doc__


@_INSTALLED
@pytest.mark.filterwarnings("ignore:Note. conversions")
@pytest.mark.parametrize("kind", [*_UNDIRECTED, *_DIRECTED])
def test_graphs_are_pickled_and_copied_without_their_conversion(kind: Any) -> None:
    graph = kind(nx.gnp_random_graph(30, 0.2, seed=1))
    ranks = nx.pagerank(graph, backend="godwit")
    data = pickle.dumps(graph)
    assert b"godwit.networkx" not in data  # read where there is no Godwit, too
    for twin in (pickle.loads(data), copy.deepcopy(graph)):
        assert nx.pagerank(twin, backend="godwit") == ranks
        assert set(map(type, twin.__networkx_cache__["backends"]["godwit"].values())) != {
            type(None)
        }
        twin.add_edge(0, 30)
        assert len(nx.pagerank(twin, backend="godwit")) == 31
    assert nx.pagerank(graph, backend="godwit") == ranks


def test_conversions_by_hand_are_pickled_and_copied() -> None:
    graph = nx.MultiDiGraph(nx.gnp_random_graph(30, 0.2, seed=1, directed=True))
    ranks = backend.pagerank(graph_in_arrays := from_networkx(graph, {"weight": 1}))
    for twin in (
        pickle.loads(pickle.dumps(graph_in_arrays)),
        copy.copy(graph_in_arrays),
        copy.deepcopy(graph_in_arrays),
    ):
        assert backend.pagerank(twin) == ranks
        assert nx.utils.graphs_equal(twin.to_networkx(), graph_in_arrays.to_networkx())


_VIEWS = {
    "subgraph": lambda graph: graph.subgraph(range(20)),
    "subgraph of a subgraph": lambda graph: graph.subgraph(range(20)).subgraph(range(15)),
    "edge subgraph": lambda graph: graph.edge_subgraph(list(graph.edges)[:5]),
    "without nodes": lambda graph: nx.restricted_view(graph, [17], []),
    "undirected": lambda graph: graph.to_undirected(as_view=True),
    "directed": lambda graph: graph.to_directed(as_view=True),
    "reversed": lambda graph: graph.reverse(copy=False) if graph.is_directed() else graph,
    "undirected subgraph": lambda graph: graph.to_undirected(as_view=True).subgraph(range(9)),
}


@_INSTALLED
@pytest.mark.filterwarnings("ignore:Note. conversions")
@pytest.mark.parametrize("kind", [nx.Graph, nx.MultiDiGraph])
@pytest.mark.parametrize("view", _VIEWS)
def test_conversions_of_views_follow_changes_of_the_graph(view: str, kind: Any) -> None:
    graph = kind(nx.path_graph(30))
    shown = _VIEWS[view](graph)
    reached = "single_source_shortest_path_length"

    def check() -> None:
        assert nx.single_source_shortest_path_length(shown, 0, backend="godwit") == (
            _of_networkx(reached)(shown, 0)
        )

    check()
    [kept] = shown.__networkx_cache__["backends"]["godwit"].values()
    check()
    assert [kept] == list(shown.__networkx_cache__["backends"]["godwit"].values())
    graph.add_edge(0, 5)
    check()
    graph.remove_node(3)
    check()
    graph.add_node(3)
    check()


@_INSTALLED
def test_networkx_runs_itself_what_godwit_does_not_take() -> None:
    graph = nx.path_graph(100)
    graph[0][1]["weight"] = "far"
    with nx.config.backend_priority(algos=["godwit"]):
        with pytest.raises(TypeError):  # NetworkX's
            nx.betweenness_centrality(graph, weight="weight")
        assert nx.bfs_tree(graph, 0).number_of_edges() == 99


@_INSTALLED
def test_devices_are_those_of_the_configuration() -> None:
    graph = nx.path_graph(100)
    with nx.config.backends.godwit(devices="nonsense"), pytest.raises(Exception, match="nonsense"):
        nx.pagerank(graph, backend="godwit")


@_INSTALLED
@pytest.mark.parametrize(
    ("variable", "before", "after"),
    [
        ("NETWORKX_BACKEND_PRIORITY_ALGOS", None, ["godwit"]),
        ("NETWORKX_BACKEND_PRIORITY_ALGOS", "networkx, godwit", ["networkx", "godwit"]),
        ("NETWORKX_BACKEND_PRIORITY", "networkx", ["godwit", "networkx"]),
    ],
)
def test_an_environment_variable_makes_godwit_the_first(
    variable: str, before: str | None, after: list[str]
) -> None:
    program = (
        "import sys, networkx as nx; print(nx.config.backend_priority.algos,"
        "'godwit.networkx' in sys.modules, 'numba' in sys.modules)"
    )

    environment = {**os.environ, "GODWIT_NETWORKX_AUTO": "1"}
    environment.pop("NETWORKX_BACKEND_PRIORITY_ALGOS", None)
    if before is not None:
        environment[variable] = before
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == f"{after} False False"


def test_importing_the_table_takes_no_other_module() -> None:
    program = (
        "import os, typing, sys; before = set(sys.modules); import _godwit_networkx;"
        "_godwit_networkx.get_info(); print(sorted(set(sys.modules) - before))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "['_godwit_networkx']"


def test_graphs_with_neighbours_of_their_own_stay_with_networkx() -> None:
    """NetworkX's complements store the edges that they do not have."""

    class Complement(nx.Graph):
        def __getitem__(self, node: Any) -> Any:
            others = set(self._adj) - set(self._adj[node]) - {node}
            return {other: {} for other in others}

    graph = Complement(nx.path_graph(50))
    for name, arguments in {"core_number": (graph,), "has_path": (graph, 0, 1)}.items():
        assert "neighbours of its own" in str(dispatch.can_run(name, arguments, {}))
    assert dispatch.can_run("core_number", (nx.path_graph(50),), {}) is True
    assert dispatch.can_run("core_number", (nx.path_graph(50).subgraph(range(9)),), {}) is True
