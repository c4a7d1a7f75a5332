"""What NetworkX is told of the backend ``godwit`` while it is imported.

This package imports nothing of Godwit or NetworkX, since ``import networkx`` runs it: :data:`FUNCTIONS` is
a table, from which :func:`get_info` makes what NetworkX's documentation shows, and :mod:`godwit.networkx`
its attributes. A new function is a row here, and a function of the same name in the module that the row
names.
"""

import os
from typing import Any, NamedTuple


class Function(NamedTuple):
    """A function of NetworkX that Godwit has.

    :ivar module: the module of ``godwit.networkx`` that it is in
    :ivar passes: about how many passes over the graph NetworkX needs; a graph is converted for
        :data:`MANY`, and for several calls of fewer. 0: it looks at a few nodes, and takes less time than
        finding the conversion
    :ivar notes: what differs from NetworkX, for its documentation
    :ivar devices: True if the call takes ``devices``
    """

    module: str
    passes: float
    notes: str = ""
    devices: bool = False


MANY = 100.0
"""Passes of functions that search from every node, or iterate."""

LOOKUP = 0.1

_NOT_NEGATIVE = "Lengths must not be negative."
_BY_DISTANCE = f"Keys are ordered by distance. {_NOT_NEGATIVE}"
_AS_DIJKSTRA = f"{_NOT_NEGATIVE} Ties, and the order of nodes, are those of Dijkstra's algorithm."
_NO_SORTING = "``sort_neighbors`` is not taken."
_COMMUNITIES = "Weights must not be negative. Seeds give other communities."
_LOUVAIN = f"{_COMMUNITIES} ``threshold`` does not count."

FUNCTIONS = {
    "all_pairs_bellman_ford_path": Function("weighted", MANY, _AS_DIJKSTRA, devices=True),
    "all_pairs_bellman_ford_path_length": Function("weighted", MANY, _AS_DIJKSTRA, devices=True),
    "all_pairs_dijkstra": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "all_pairs_dijkstra_path": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "all_pairs_dijkstra_path_length": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "all_pairs_shortest_path": Function("unweighted", MANY),
    "all_pairs_shortest_path_length": Function("unweighted", MANY),
    "ancestors": Function("traversal", 1),
    "average_shortest_path_length": Function(
        "distances",
        MANY,
        "Not by Floyd and Warshall's algorithm. Lengths must not be negative.",
        devices=True,
    ),
    "bellman_ford_path": Function("weighted", MANY, _AS_DIJKSTRA),
    "bellman_ford_path_length": Function("weighted", MANY, _AS_DIJKSTRA),
    "bellman_ford_predecessor_and_distance": Function("weighted", MANY, _AS_DIJKSTRA, devices=True),
    "betweenness_centrality": Function(
        "centrality", MANY, "Lengths must be positive.", devices=True
    ),
    "betweenness_centrality_subset": Function(
        "centrality", MANY, "Lengths must be positive, and targets all nodes.", devices=True
    ),
    "bfs_edges": Function("traversal", 1, _NO_SORTING),
    "bfs_layers": Function("traversal", 1),
    "bfs_predecessors": Function("traversal", 1, _NO_SORTING),
    "bfs_successors": Function("traversal", 1, _NO_SORTING),
    "bfs_tree": Function("traversal", 1, _NO_SORTING),
    "bidirectional_dijkstra": Function("weighted", LOOKUP, _NOT_NEGATIVE),
    "bidirectional_shortest_path": Function("unweighted", LOOKUP),
    "center": Function(
        "distances",
        MANY,
        "The same with ``usebounds``. Lengths must not be negative.",
        devices=True,
    ),
    "closeness_centrality": Function("distances", MANY, _NOT_NEGATIVE, devices=True),
    "complement": Function("operators", 1),
    "connected_components": Function("components", 1, devices=True),
    "degree_centrality": Function("structure", LOOKUP),
    "descendants": Function("traversal", 1),
    "descendants_at_distance": Function("traversal", 1),
    "diameter": Function(
        "distances",
        MANY,
        "The same with ``usebounds``. Lengths must not be negative.",
        devices=True,
    ),
    "dijkstra_path": Function("weighted", LOOKUP, _NOT_NEGATIVE),
    "dijkstra_path_length": Function("weighted", LOOKUP, _NOT_NEGATIVE),
    "dijkstra_predecessor_and_distance": Function("weighted", MANY, _BY_DISTANCE, devices=True),
    "eccentricity": Function(
        "distances", MANY, "``sp`` is not taken. Lengths must not be negative.", devices=True
    ),
    "edge_betweenness_centrality": Function(
        "centrality", MANY, "Lengths must be positive. Multigraphs are not taken.", devices=True
    ),
    "ego_graph": Function("operators", 0, "``undirected`` is not taken for directed graphs."),
    "eigenvector_centrality": Function(
        "centrality", MANY, "``nstart`` needs a value for every node.", devices=True
    ),
    "generic_bfs_edges": Function("traversal", 1, "``neighbors`` is not taken."),
    "global_efficiency": Function("distances", MANY, devices=True),
    "harmonic_centrality": Function("distances", MANY, _NOT_NEGATIVE, devices=True),
    "has_path": Function("paths", LOOKUP),
    "hits": Function(
        "centrality",
        MANY,
        "Power iterations, ``max_iter`` on the CPU, and only then ARPACK.",
        devices=True,
    ),
    "in_degree_centrality": Function("structure", LOOKUP),
    "is_arborescence": Function("components", 1, devices=True),
    "is_branching": Function("components", 1, devices=True),
    "is_connected": Function("components", 1, devices=True),
    "is_forest": Function("components", 1, devices=True),
    "is_isolate": Function("structure", 0),
    "is_tree": Function("components", 1, devices=True),
    "is_weakly_connected": Function("components", 1, devices=True),
    "isolates": Function("structure", LOOKUP),
    "katz_centrality": Function(
        "centrality", MANY, "``nstart`` needs a value for every node.", devices=True
    ),
    "label_propagation_communities": Function(
        "communities", MANY, "Classes of nodes by a hash, not by a colouring: other communities."
    ),
    "leiden_communities": Function("communities", MANY, _COMMUNITIES),
    "leiden_partitions": Function("communities", MANY, _COMMUNITIES),
    "louvain_communities": Function("communities", MANY, _LOUVAIN),
    "louvain_partitions": Function("communities", MANY, _LOUVAIN),
    "modularity": Function("communities", 3, "Weights must not be negative."),
    "multi_source_dijkstra": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "multi_source_dijkstra_path": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "multi_source_dijkstra_path_length": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "node_connected_component": Function("components", 1),
    "number_connected_components": Function("components", 1, devices=True),
    "number_of_isolates": Function("structure", LOOKUP),
    "number_weakly_connected_components": Function("components", 1, devices=True),
    "out_degree_centrality": Function("structure", LOOKUP),
    "overall_reciprocity": Function("structure", 1),
    "pagerank": Function(
        "centrality",
        MANY,
        "Ranks sum to 1. Undirected graphs converge in fewer iterations, within the same bound. "
        "``dangling`` is not taken, nor are negative weights.",
        devices=True,
    ),
    "periphery": Function(
        "distances",
        MANY,
        "The same with ``usebounds``. Lengths must not be negative.",
        devices=True,
    ),
    "radius": Function(
        "distances",
        MANY,
        "The same with ``usebounds``. Lengths must not be negative.",
        devices=True,
    ),
    "reciprocity": Function("structure", 1),
    "reverse": Function("operators", 1, "For graphs that were converted by hand."),
    "shortest_path": Function("paths", LOOKUP, _NOT_NEGATIVE, devices=True),
    "shortest_path_length": Function("paths", LOOKUP, _NOT_NEGATIVE, devices=True),
    "single_source_bellman_ford": Function("weighted", MANY, _AS_DIJKSTRA, devices=True),
    "single_source_bellman_ford_path": Function("weighted", MANY, _AS_DIJKSTRA, devices=True),
    "single_source_bellman_ford_path_length": Function(
        "weighted", MANY, _AS_DIJKSTRA, devices=True
    ),
    "single_source_dijkstra": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "single_source_dijkstra_path": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "single_source_dijkstra_path_length": Function("weighted", MANY, _NOT_NEGATIVE, devices=True),
    "single_source_shortest_path": Function("unweighted", 1),
    "single_source_shortest_path_length": Function("unweighted", 1),
    "single_target_shortest_path": Function("unweighted", 1),
    "single_target_shortest_path_length": Function("unweighted", 1),
    "voronoi_cells": Function("distances", MANY, _NOT_NEGATIVE, devices=True),
    "weakly_connected_components": Function("components", 1, devices=True),
}

_DEVICES = {
    "devices : name, list of names or None": "Devices of Godwit: 'cpu', 'cuda', ['cuda:0', 'cuda:1'], …. "
    "Default: that of ``nx.config.backends.godwit``."
}


def get_info() -> dict[str, Any]:
    """Return what NetworkX asks a backend for, by the entry point ``networkx.backend_info``.

    ``GODWIT_NETWORKX_AUTO=1`` in the environment puts Godwit first among the backends that NetworkX tries
    for functions that return no graph.
    """
    if os.environ.get("GODWIT_NETWORKX_AUTO", "").strip().lower() in ("1", "true"):
        _come_first()
    functions: dict[str, dict[str, Any]] = {}
    for name, function in FUNCTIONS.items():
        functions[name] = {}
        if function.notes:
            functions[name]["additional_docs"] = function.notes
        if function.devices:
            functions[name]["additional_parameters"] = _DEVICES
    return {
        "backend_name": "godwit",
        "project": "godwit",
        "package": "godwit.networkx",
        "short_summary": "Multithreaded on CPUs, and on NVIDIA GPUs.",
        "functions": functions,
        "default_config": {"devices": None},
    }


def _come_first() -> None:
    """Name Godwit first in the environment's list of backends for algorithms."""
    names = (
        "NETWORKX_BACKEND_PRIORITY_ALGOS",
        "NETWORKX_BACKEND_PRIORITY",
        "NETWORKX_AUTOMATIC_BACKENDS",
    )
    variable = next((name for name in names if name in os.environ), names[0])
    listed = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    if "godwit" not in listed:
        os.environ[variable] = ",".join(["godwit", *listed])
