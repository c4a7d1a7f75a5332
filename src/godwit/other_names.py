"""Hints for names that Godwit does not have, such as those of functions in other libraries."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_OTHERS = {
    other: name
    for name, others in {
        "bfs": "breadth_first_search single_source_shortest_path_length bfs_tree",
        "sssp": "dijkstra shortest_path shortest_paths delta_stepping bellman_ford "
        "single_source_dijkstra single_source_dijkstra_path_length shortest_path_length",
        "distances": "all_pairs_shortest_path_length all_pairs_dijkstra apsp multi_source_bfs",
        "betweenness_centrality": "betweenness edge_betweenness edge_betweenness_centrality",
        "closeness_centrality": "closeness",
        "harmonic_centrality": "harmonic",
        "eigenvector_centrality": "eigenvector",
        "katz_centrality": "katz",
        "connected_components": "cc wcc weakly_connected_components components connected_component",
        "strongly_connected_components": "scc strong_components strong_component",
        "louvain": "louvain_communities louvain_partitions community_multilevel multilevel",
        "leiden": "leiden_communities leiden_partitions community_leiden",
        "label_propagation": "label_propagation_communities asyn_lpa_communities cdlp lpa",
        "triangles": "triangle_count count_triangles tc",
        "truss_number": "trussness ktruss_number",
        "k_truss": "ktruss ktruss_subgraph",
        "core_number": "coreness core_numbers kcore_number",
        "k_core": "kcore",
        "minimum_spanning_forest": "mst msf minimum_spanning_tree maximum_spanning_tree spanning_tree",
        "maximal_independent_set": "mis independent_set independent_vertex_sets",
        "greedy_color": "coloring colouring vertex_coloring_greedy",
        "topological_generations": "topological_sort topological_sorting toposort",
        "random_walks": "node2vec random_walk uniform_random_walk biased_random_walk",
        "sample_neighbors": "neighbor_sample neighbour_sample uniform_neighbor_sample",
        "jaccard": "jaccard_coefficient similarity_jaccard",
        "overlap": "overlap_coefficient",
        "sorensen": "sorensen_coefficient similarity_dice dice",
        "adamic_adar": "adamic_adar_index",
        "resource_allocation": "resource_allocation_index",
        "read": "read_graph read_csv read_edgelist load",
        "generate": "rmat generator",
        "Graph.from_networkx": "from_networkx",
        "Graph.from_scipy": "from_scipy from_scipy_sparse_array",
        "Graph.from_edges": "from_edges from_edgelist from_cudf_edgelist from_numpy_array",
        "Graph.from_table": "from_pandas_edgelist from_pandas from_dataframe",
    }.items()
    for other in others.split()
}
"""Names of Godwit by those of other libraries and textbooks."""


def hint(name: str, known: Iterable[str]) -> str:
    """Return ``": did you mean ...?"`` for a name that does not exist, or nothing.

    :param known: the names that exist
    """
    meant = _OTHERS.get(name.lower())
    if meant is None:
        meant = next(iter(get_close_matches(name, known, 1, 0.75)), None)
    return "" if meant is None else f": did you mean {meant}?"
