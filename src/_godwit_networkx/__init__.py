"""What NetworkX is told of the backend ``godwit`` while it is imported.

This package imports nothing of Godwit or NetworkX, since ``import networkx`` runs it: :data:`FUNCTIONS` is
a table, from which :func:`get_info` makes what NetworkX's documentation shows, and :mod:`godwit.networkx`
its attributes. A new function is a row here, and a function of the same name in the module that the row
names.
"""

import os
from typing import Any, NamedTuple


class Cost(NamedTuple):
    """Microseconds of a call, roughly: a model by which ``should_run`` compares NetworkX with Godwit.

    NetworkX's times are of graphs on which it is fast, Godwit's of those on which it is slow: calls that
    take about the same time stay with it.

    :ivar nodes: that NetworkX takes for each node, and Godwit does not
    :ivar edges: that NetworkX takes for each edge, and Godwit does not
    :ivar call: that Godwit takes on a converted graph of few nodes, dispatch included
    :ivar further: that Godwit takes for each search after the first, of functions with many
    """

    nodes: float
    edges: float
    call: float
    further: float = 0


COSTS = {
    "few nodes": Cost(0, 0, 50),  # looks at some nodes and their neighbours
    "degrees": Cost(0.2, 0, 100),
    "path": Cost(0.004, 0, 60),  # between two nodes, with fewest edges
    "path by lengths": Cost(0.1, 0.02, 100),
    "search": Cost(0.5, 0, 200, 60),  # breadth-first, or another pass over the graph
    "many searches": Cost(0.2, 0, 400),  # in one call of Godwit
    "lengths": Cost(0.8, 0.6, 200, 70),  # Dijkstra's algorithm
    "iterations": Cost(10, 1, 1000),
    "pairs": Cost(2, 0.2, 500),  # for each pair, by the mean number of edges of a node
}
CONVERSION = Cost(0.5, 0.5, 500)
"""Cost of converting a graph with an attribute of edges; ``call`` includes what else a first call takes."""

GPU_CALL = 1_000.0
"""Microseconds that a call on GPUs takes beside these."""

PLACING = 150_000.0
"""Microseconds that placing a graph on GPUs takes, which the first call there does, at most."""

ALL = "all"


class Function(NamedTuple):
    """A function of NetworkX that Godwit has.

    :ivar module: the module of ``godwit.networkx`` that it is in
    :ivar cost: a key of :data:`COSTS`; with lengths of edges, that of its counterpart by lengths
    :ivar notes: what differs from NetworkX, for its documentation
    :ivar devices: True if the call takes ``devices``
    :ivar searches: if it searches from many nodes, the parameter that limits these; :data:`ALL` for none
    """

    module: str
    cost: str
    notes: str = ""
    devices: bool = False
    searches: str = ""


_NOT_NEGATIVE = "Lengths must not be negative."
_BY_DISTANCE = f"Keys are ordered by distance. {_NOT_NEGATIVE}"
_AS_DIJKSTRA = f"{_NOT_NEGATIVE} Ties, and the order of nodes, are those of Dijkstra's algorithm."
_BY_PAIRS = "``ebunch`` must be given; self-loops, and pairs of a node with itself, are not taken."
_COMMUNITIES = "Weights must not be negative. Seeds give other communities."
_LOUVAIN = f"{_COMMUNITIES} ``threshold`` does not count."
_KRUSKAL = "``algorithm`` must be ``'kruskal'``. Multigraphs are not taken, nor is NaN."
_DIRECTED = "Undirected graphs and multigraphs are not taken."
_NO_SORTING = "``sort_neighbors`` is not taken."

FUNCTIONS = {
    "adamic_adar_index": Function(
        "similarity", "pairs", _BY_PAIRS, devices=True, searches="ebunch"
    ),
    "all_pairs_bellman_ford_path": Function(
        "weighted", "lengths", _AS_DIJKSTRA, devices=True, searches=ALL
    ),
    "all_pairs_bellman_ford_path_length": Function(
        "weighted", "lengths", _AS_DIJKSTRA, devices=True, searches=ALL
    ),
    "all_pairs_dijkstra": Function(
        "weighted", "lengths", _NOT_NEGATIVE, devices=True, searches=ALL
    ),
    "all_pairs_dijkstra_path": Function(
        "weighted", "lengths", _NOT_NEGATIVE, devices=True, searches=ALL
    ),
    "all_pairs_dijkstra_path_length": Function(
        "weighted", "lengths", _NOT_NEGATIVE, devices=True, searches=ALL
    ),
    "all_pairs_shortest_path": Function("unweighted", "search", searches=ALL),
    "all_pairs_shortest_path_length": Function("unweighted", "search", searches=ALL),
    "ancestors": Function("traversal", "search"),
    "asyn_lpa_communities": Function(
        "communities",
        "iterations",
        f"{_COMMUNITIES} Directed graphs are not taken.",
        devices=True,
    ),
    "average_clustering": Function(
        "clusters", "iterations", "Multigraphs are not taken.", devices=True
    ),
    "average_shortest_path_length": Function(
        "distances",
        "many searches",
        "Not by Floyd and Warshall's algorithm. Lengths must not be negative.",
        devices=True,
        searches=ALL,
    ),
    "bellman_ford_path": Function("weighted", "lengths", _AS_DIJKSTRA),
    "bellman_ford_path_length": Function("weighted", "lengths", _AS_DIJKSTRA),
    "bellman_ford_predecessor_and_distance": Function(
        "weighted", "lengths", _AS_DIJKSTRA, devices=True
    ),
    "betweenness_centrality": Function(
        "centrality", "many searches", "Lengths must be positive.", devices=True, searches="k"
    ),
    "betweenness_centrality_subset": Function(
        "centrality",
        "many searches",
        "Lengths must be positive, and targets all nodes.",
        devices=True,
        searches="sources",
    ),
    "bfs_edges": Function("traversal", "search", _NO_SORTING),
    "bfs_layers": Function("traversal", "search"),
    "bfs_predecessors": Function("traversal", "search", _NO_SORTING),
    "bfs_successors": Function("traversal", "search", _NO_SORTING),
    "bfs_tree": Function("traversal", "search", _NO_SORTING),
    "bidirectional_dijkstra": Function("weighted", "path by lengths", _NOT_NEGATIVE),
    "bidirectional_shortest_path": Function("unweighted", "path"),
    "center": Function(
        "distances",
        "many searches",
        "The same with ``usebounds``. Lengths must not be negative.",
        devices=True,
        searches="e",
    ),
    "closeness_centrality": Function(
        "distances", "many searches", _NOT_NEGATIVE, devices=True, searches="u"
    ),
    "clustering": Function("clusters", "iterations", "Multigraphs are not taken.", devices=True),
    "complement": Function("operators", "search"),
    "condensation": Function("components", "search"),
    "connected_components": Function("components", "search", devices=True),
    "core_number": Function("cores", "lengths", devices=True),
    "degree_centrality": Function("structure", "degrees"),
    "descendants": Function("traversal", "search"),
    "descendants_at_distance": Function("traversal", "search"),
    "diameter": Function(
        "distances",
        "many searches",
        "The same with ``usebounds``. Lengths must not be negative.",
        devices=True,
        searches="e",
    ),
    "dijkstra_path": Function("weighted", "path by lengths", _NOT_NEGATIVE),
    "dijkstra_path_length": Function("weighted", "path by lengths", _NOT_NEGATIVE),
    "dijkstra_predecessor_and_distance": Function(
        "weighted", "lengths", _BY_DISTANCE, devices=True
    ),
    "eccentricity": Function(
        "distances",
        "many searches",
        "``sp`` is not taken. Lengths must not be negative.",
        devices=True,
        searches="v",
    ),
    "edge_betweenness_centrality": Function(
        "centrality",
        "many searches",
        "Lengths must be positive. Multigraphs are not taken.",
        devices=True,
        searches="k",
    ),
    "ego_graph": Function(
        "operators", "few nodes", "``undirected`` is not taken for directed graphs."
    ),
    "eigenvector_centrality": Function(
        "centrality", "iterations", "``nstart`` needs a value for every node.", devices=True
    ),
    "fast_label_propagation_communities": Function(
        "communities", "iterations", _COMMUNITIES, devices=True
    ),
    "generic_bfs_edges": Function("traversal", "search", "``neighbors`` is not taken."),
    "global_efficiency": Function("distances", "many searches", devices=True, searches=ALL),
    "greedy_color": Function(
        "greedy",
        "search",
        "``largest_first`` only, without ``interchange``, and for undirected graphs.",
    ),
    "harmonic_centrality": Function(
        "distances", "many searches", _NOT_NEGATIVE, devices=True, searches="nbunch"
    ),
    "has_path": Function("paths", "path"),
    "hits": Function(
        "centrality",
        "iterations",
        "20 power iterations, on GPUs 20 ``max_iter``, and then Lanczos' method.",
        devices=True,
    ),
    "in_degree_centrality": Function("structure", "degrees"),
    "is_arborescence": Function("components", "search", devices=True),
    "is_branching": Function("components", "search", devices=True),
    "is_connected": Function("components", "search", devices=True),
    "is_directed_acyclic_graph": Function("acyclic", "search", devices=True),
    "is_forest": Function("components", "search", devices=True),
    "is_isolate": Function("structure", "few nodes"),
    "is_strongly_connected": Function("components", "search", devices=True),
    "is_tree": Function("components", "search", devices=True),
    "is_weakly_connected": Function("components", "search", devices=True),
    "isolates": Function("structure", "degrees"),
    "jaccard_coefficient": Function(
        "similarity", "pairs", _BY_PAIRS, devices=True, searches="ebunch"
    ),
    "k_core": Function("cores", "lengths", devices=True),
    "k_corona": Function("cores", "lengths", devices=True),
    "k_crust": Function("cores", "lengths", devices=True),
    "k_shell": Function("cores", "lengths", devices=True),
    "k_truss": Function("truss", "iterations", devices=True),
    "katz_centrality": Function(
        "centrality", "iterations", "``nstart`` needs a value for every node.", devices=True
    ),
    "label_propagation_communities": Function(
        "communities",
        "iterations",
        "Classes of nodes by a hash, not by a colouring: other communities.",
        devices=True,
    ),
    "leiden_communities": Function("communities", "iterations", _COMMUNITIES, devices=True),
    "leiden_partitions": Function("communities", "iterations", _COMMUNITIES, devices=True),
    "louvain_communities": Function("communities", "iterations", _LOUVAIN, devices=True),
    "louvain_partitions": Function("communities", "iterations", _LOUVAIN, devices=True),
    "maximum_spanning_edges": Function("trees", "lengths", _KRUSKAL, devices=True),
    "maximum_spanning_tree": Function("trees", "lengths", _KRUSKAL, devices=True),
    "minimum_spanning_edges": Function("trees", "lengths", _KRUSKAL, devices=True),
    "minimum_spanning_tree": Function("trees", "lengths", _KRUSKAL, devices=True),
    "modularity": Function("communities", "search", "Weights must not be negative.", devices=True),
    "multi_source_dijkstra": Function("weighted", "lengths", _NOT_NEGATIVE, devices=True),
    "multi_source_dijkstra_path": Function("weighted", "lengths", _NOT_NEGATIVE, devices=True),
    "multi_source_dijkstra_path_length": Function(
        "weighted", "lengths", _NOT_NEGATIVE, devices=True
    ),
    "node_connected_component": Function("components", "search"),
    "number_connected_components": Function("components", "search", devices=True),
    "number_of_isolates": Function("structure", "degrees"),
    "number_strongly_connected_components": Function("components", "search", devices=True),
    "number_weakly_connected_components": Function("components", "search", devices=True),
    "out_degree_centrality": Function("structure", "degrees"),
    "overall_reciprocity": Function("structure", "search", _DIRECTED),
    "pagerank": Function(
        "centrality",
        "iterations",
        "Ranks sum to 1. Undirected graphs converge in fewer iterations, within the same bound. "
        "``dangling`` is not taken, nor are negative weights.",
        devices=True,
    ),
    "periphery": Function(
        "distances",
        "many searches",
        "The same with ``usebounds``. Lengths must not be negative.",
        devices=True,
        searches="e",
    ),
    "radius": Function(
        "distances",
        "many searches",
        "The same with ``usebounds``. Lengths must not be negative.",
        devices=True,
        searches="e",
    ),
    "reciprocity": Function("structure", "search", _DIRECTED),
    "resource_allocation_index": Function(
        "similarity", "pairs", _BY_PAIRS, devices=True, searches="ebunch"
    ),
    "reverse": Function("operators", "search", "For graphs that were converted by hand."),
    "shortest_path": Function("paths", "path", _NOT_NEGATIVE, devices=True),
    "shortest_path_length": Function("paths", "path", _NOT_NEGATIVE, devices=True),
    "single_source_bellman_ford": Function("weighted", "lengths", _AS_DIJKSTRA, devices=True),
    "single_source_bellman_ford_path": Function("weighted", "lengths", _AS_DIJKSTRA, devices=True),
    "single_source_bellman_ford_path_length": Function(
        "weighted", "lengths", _AS_DIJKSTRA, devices=True
    ),
    "single_source_dijkstra": Function("weighted", "lengths", _NOT_NEGATIVE, devices=True),
    "single_source_dijkstra_path": Function("weighted", "lengths", _NOT_NEGATIVE, devices=True),
    "single_source_dijkstra_path_length": Function(
        "weighted", "lengths", _NOT_NEGATIVE, devices=True
    ),
    "single_source_shortest_path": Function("unweighted", "search"),
    "single_source_shortest_path_length": Function("unweighted", "search"),
    "single_target_shortest_path": Function("unweighted", "search"),
    "single_target_shortest_path_length": Function("unweighted", "search"),
    "strongly_connected_components": Function("components", "search"),
    "topological_generations": Function("acyclic", "search"),
    "topological_sort": Function("acyclic", "search"),
    "transitivity": Function(
        "clusters", "iterations", "Directed graphs are not taken.", devices=True
    ),
    "triangles": Function("clusters", "iterations", devices=True),
    "voronoi_cells": Function("distances", "lengths", _NOT_NEGATIVE, devices=True),
    "weakly_connected_components": Function("components", "search", devices=True),
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
