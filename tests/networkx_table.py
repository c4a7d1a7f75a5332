"""The table of functions in docs/networkx.md, made of the backend's own.

``python tests/networkx_table.py`` writes it into the page, between its head and the next empty line.
"""

from __future__ import annotations

from pathlib import Path

from _godwit_networkx import FUNCTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "networkx.md"

HEAD = (
    "| function | NetworkX | nx-cugraph | CPU | a GPU | GPUs | differences |\n"
    "|---|---|---|---|---|---|---|\n"
)

_SCIPY = {"hits", "pagerank"}
"""Functions that NetworkX computes by SciPy."""

_NOT_IN_NX_CUGRAPH = {
    "adamic_adar_index", "resource_allocation_index",
    "average_shortest_path_length", "bellman_ford_predecessor_and_distance",
    "betweenness_centrality_subset", "bidirectional_dijkstra", "center", "closeness_centrality",
    "condensation", "is_directed_acyclic_graph", "is_strongly_connected",
    "number_strongly_connected_components", "strongly_connected_components",
    "topological_generations", "topological_sort",
    "diameter", "dijkstra_predecessor_and_distance", "eccentricity", "global_efficiency",
    "greedy_color", "harmonic_centrality", "k_core", "k_corona", "k_crust", "k_shell", "k_truss",
    "multi_source_dijkstra",
    "multi_source_dijkstra_path", "multi_source_dijkstra_path_length", "periphery", "radius",
    "voronoi_cells",
    "asyn_lpa_communities", "fast_label_propagation_communities", "leiden_partitions",
    "louvain_partitions", "modularity",
}  # fmt: skip
"""Functions of ours that nx-cugraph 26.08 does not have, by its own table."""

_NO_WEIGHTS_IN_NX_CUGRAPH = {"betweenness_centrality", "edge_betweenness_centrality"}


def rows() -> list[str]:
    """Return a row for each function that Godwit has."""
    return [_row(name) for name in FUNCTIONS]


def _row(name: str) -> str:
    row = FUNCTIONS[name]
    cugraph = "" if name in _NOT_IN_NX_CUGRAPH else "yes"
    if name in _NO_WEIGHTS_IN_NX_CUGRAPH:
        cugraph = "no weights"
    gpu = "yes" if row.devices else ""
    cells = [
        f"`{name}`", "SciPy" if name in _SCIPY else "Python", cugraph, "yes", gpu, gpu,
        row.notes.replace("``", "`"),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(HEAD)
    rest = after.partition("\n\n")[2]
    table = HEAD + "\n".join(rows()) + "\n"
    PAGE.write_text(before + table + (f"\n{rest}" if rest else ""), encoding="utf-8")
