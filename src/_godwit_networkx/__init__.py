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
        :data:`MANY`, and for several calls of fewer
    :ivar notes: what differs from NetworkX, for its documentation
    :ivar devices: True if the call takes ``devices``
    """

    module: str
    passes: float
    notes: str = ""
    devices: bool = False


MANY = 100.0
"""Passes of functions that search from every node, or iterate."""

_A_LOOKUP = 0.1

FUNCTIONS = {
    "ancestors": Function("traversal", 1),
    "all_pairs_shortest_path": Function("unweighted", MANY),
    "all_pairs_shortest_path_length": Function("unweighted", MANY),
    "betweenness_centrality": Function(
        "centrality",
        MANY,
        "Weights must be positive numbers; lengths are compared in float64.",
        True,
    ),
    "betweenness_centrality_subset": Function(
        "centrality", MANY, "Targets must be all nodes. Weights must be positive numbers.", True
    ),
    "bfs_edges": Function("traversal", 1, "``sort_neighbors`` is not taken."),
    "bfs_layers": Function("traversal", 1),
    "bfs_predecessors": Function("traversal", 1, "``sort_neighbors`` is not taken."),
    "bfs_successors": Function("traversal", 1, "``sort_neighbors`` is not taken."),
    "bfs_tree": Function("traversal", 1, "``sort_neighbors`` is not taken."),
    "bidirectional_shortest_path": Function("unweighted", _A_LOOKUP),
    "connected_components": Function("components", 1, "", True),
    "degree_centrality": Function("structure", _A_LOOKUP),
    "descendants": Function("traversal", 1),
    "descendants_at_distance": Function("traversal", 1),
    "edge_betweenness_centrality": Function(
        "centrality", MANY, "Multigraphs are not taken. Weights must be positive numbers.", True
    ),
    "generic_bfs_edges": Function("traversal", 1, "``neighbors`` is not taken."),
    "in_degree_centrality": Function("structure", _A_LOOKUP),
    "is_arborescence": Function("components", 1, "", True),
    "is_branching": Function("components", 1, "", True),
    "is_connected": Function("components", 1, "", True),
    "is_forest": Function("components", 1, "", True),
    "is_isolate": Function("structure", 0),
    "is_tree": Function("components", 1, "", True),
    "is_weakly_connected": Function("components", 1, "", True),
    "isolates": Function("structure", _A_LOOKUP),
    "node_connected_component": Function("components", 1),
    "number_connected_components": Function("components", 1, "", True),
    "number_of_isolates": Function("structure", _A_LOOKUP),
    "number_weakly_connected_components": Function("components", 1, "", True),
    "out_degree_centrality": Function("structure", _A_LOOKUP),
    "overall_reciprocity": Function("structure", 1),
    "pagerank": Function(
        "centrality",
        MANY,
        "Ranks sum to 1. Undirected graphs converge in fewer iterations, within the same bound. "
        "``dangling`` is not taken, nor are negative weights.",
        True,
    ),
    "reciprocity": Function("structure", 1),
    "single_source_shortest_path": Function("unweighted", 1),
    "single_source_shortest_path_length": Function("unweighted", 1),
    "single_target_shortest_path": Function("unweighted", 1),
    "single_target_shortest_path_length": Function("unweighted", 1),
    "weakly_connected_components": Function("components", 1, "", True),
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
