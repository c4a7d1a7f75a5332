"""Hints for names that Godwit does not have, such as those of functions in other libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

_OTHERS = {
    other: name
    for name, others in {
        "bfs": "breadth_first_search single_source_shortest_path_length bfs_tree",
        "sssp": "dijkstra shortest_path shortest_paths delta_stepping bellman_ford "
        "single_source_dijkstra single_source_dijkstra_path_length shortest_path_length",
        "distances": "all_pairs_shortest_path_length all_pairs_dijkstra all_pairs_dijkstra_path_length "
        "all_pairs apsp multi_source_bfs",
        "eccentricity": "radius center periphery",
        "diameter_bounds": "diameter",
        "betweenness_centrality": "betweenness edge_betweenness edge_betweenness_centrality",
        "closeness_centrality": "closeness",
        "harmonic_centrality": "harmonic",
        "eigenvector_centrality": "eigenvector",
        "katz_centrality": "katz",
        "connected_components": "cc wcc weakly_connected_components components connected_component "
        "is_connected is_weakly_connected number_connected_components node_connected_component",
        "strongly_connected_components": "scc strong_components strong_component "
        "is_strongly_connected number_strongly_connected_components",
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
        "read": "read_graph read_csv read_edgelist read_graphml read_parquet load",
        "write": "write_graph write_csv write_edgelist write_graphml save",
        "generate": "rmat generator",
        "Graph.from_networkx": "from_networkx",
        "Graph.from_scipy": "from_scipy from_scipy_sparse_array",
        "Graph.from_edges": "from_edges from_edgelist from_cudf_edgelist from_numpy_array",
        "Graph.from_table": "from_pandas_edgelist from_pandas from_dataframe",
        "Graph.out_degree": "degree degrees degree_centrality out_degree_centrality",
        "Graph.in_degree": "in_degree_centrality",
        "Graph.subgraph": "induced_subgraph subgraph",
        "Graph.neighborhood": "ego_graph ego_net",
        "Graph.plot": "draw draw_networkx draw_spring",
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


_ATTRIBUTES = {
    other: meant
    for others, *meant in (  # the first that the object has is meant
        # Graphs.
        ("nodes vertices vs node_list get_vertex_dataframe", "ids"),
        ("number_of_nodes number_of_vertices num_nodes num_vertices numberOfNodes vcount order n",
         "vertex_count"),
        ("number_of_edges num_edges numberOfEdges ecount m", "edge_count"),
        ("edges es edge_list edgelist iterEdges", "to_edges()"),
        ("get_edgelist view_edge_list to_pandas_edgelist get_edge_dataframe to_pandas to_dataframe df",
         "to_frame()"),
        ("degree degrees outdegree out_degrees", "out_degree()"),
        ("indegree in_degrees", "in_degree()"),
        ("has_node has_vertex hasNode", "ids, as in vertex in graph.ids"),
        ("has_edge hasEdge are_adjacent", "neighbors, as in v in graph.neighbors(u)"),
        ("adj successors neighbours iterNeighbors", "neighbors(vertex)"),
        ("get_edge_data weight", "edge_weight(u, v)"),
        ("is_directed isDirected", "directed"),
        ("weighted isWeighted", "is_weighted"),
        ("to_undirected toUndirected", "symmetrize()"),
        ("transpose reversed", "reverse"),
        ("induced_subgraph", "subgraph(vertices)"),
        ("ego_graph", "neighborhood(vertex, hops)"),
        ("giant", "largest_component()"),
        ("draw show", "plot()"),
        ("from_pandas_edgelist from_pandas from_dataframe from_cudf_edgelist from_polars from_arrow "
         "DataFrame",
         "from_table(table, source, target, weight)"),
        ("from_edgelist from_edge_list from_numpy_array TupleList", "from_edges(sources, targets)"),
        ("from_scipy_sparse_array Adjacency Weighted_Adjacency", "from_scipy(matrix)"),
        ("to_scipy_sparse_array adjacency_matrix get_adjacency_sparse", "to_scipy()"),
        ("add_edge add_edges add_node add_nodes add_vertex add_vertices add_edges_from add_nodes_from "
         "add_weighted_edges_from remove_edge remove_node delete_edges delete_vertices",
         "from_edges(sources, targets), as graphs are immutable"),
        # Results and programs, and what both have.
        ("save write to_csv to_parquet write_parquet",
         "to_frame(), whose result has to_csv and to_parquet"),
        ("distances lengths length dist", "distance"),
        ("distance_to length_to get_distance", "to_dict()[vertex]"),
        ("predecessors parents parent pred", "predecessor", "reverse.neighbors(vertex)"),
        ("path paths get_path getPath shortest_path", "path_to(vertex)"),
        ("top nlargest most_common sort_values ranking topk", "highest(count)"),
        ("communities community partition clusters groups", "members(community)", "label"),
        ("membership labels component components", "label"),
        ("members", "label, as in graph.ids.of(result.label == 0)"),
        ("score scores pagerank", "rank", "centrality"),
        ("run", "gw.run(program, graph)"),
    )
    for other in others.split()
}  # fmt: skip
"""Attributes of other libraries' objects, with the names of the same thing in Godwit."""


def attribute_hint(name: str, known: Iterable[str]) -> str:
    """Return ``": did you mean ...?"`` for an attribute that an object does not have, or nothing.

    :param known: the attributes that the object has
    """
    known = [attribute for attribute in known if not attribute.startswith("_")]
    function = _OTHERS.get(name.lower(), name)
    if function in dir(import_module("godwit")) and "vertex_count" in known:
        return f": did you mean gw.{function}(graph)?"
    for meant in _ATTRIBUTES.get(name, ()):
        attribute = re.match(r"\w+", meant)
        if attribute is not None and attribute[0] in (*known, "gw"):
            return f": did you mean {meant}?"
    similar = get_close_matches(name, known, 1, 0.75)
    return f": did you mean {similar[0]}?" if similar else ""


def _raise_unknown(owner: object, kind: str, name: str) -> NoReturn:
    hint = "" if name.startswith("_") else attribute_hint(name, dir(owner))
    # Python would add a hint of its own, by the letters of all names, if it knew the object.
    raise AttributeError(f"{kind} has no attribute {name!r}{hint}", name=name, obj=object())


class NamesItsAttributes:
    """An object whose error for an attribute that does not exist names the one that was meant."""

    __slots__ = ()

    if not TYPE_CHECKING:  # else all attributes would seem to exist

        def __getattr__(self, name):
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # a property that raised AttributeError
            _raise_unknown(self, f"{type(self).__name__!r} object", name)


class NamesItsMethods(type):
    """The type of a class whose error for a method that does not exist names the one that was meant."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name):
            _raise_unknown(cls, f"type object {cls.__name__!r}", name)
