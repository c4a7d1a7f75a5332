"""What the figures of gpu_steps.py are held against: least times, targets, other systems.

Floors are bytes that must move over 4.0 TB/s, the memory bandwidth that an H200 reaches, times the GPUs:

- BFS: 4 a vertex to fill depths, 4 a reached vertex for its depth, 4 for an arc of each vertex that has any
  (no search can do with less than one), and bits of all vertices, which every GPU clears twice (two
  bitmaps) and receives once and whose owner reads them once;
- PageRank, an iteration: ids of the arcs; for each vertex with arcs 8 of offset and twice its rank;
- betweenness, a source: ids of the arcs reached, forth and back; for each vertex reached 2 x 8 of offset,
  4 of depth, 8 of paths, 8 of dependency.

Random reads that caches may serve, and links between GPUs, are not in them. A search costs at least its
supersteps, too: their number times what one takes that does hardly anything (section overhead, where
measured).

GTEPS is Graph500's: undirected edges of the component reached over the time of the search (without
parallel edges, which are merged here and Graph500 counts).
"""

from __future__ import annotations

from typing import Any

from gpu_steps_plans import PUSHED, STEP_LEVELS, device_names

Row = dict[str, Any]

BYTES_A_MS = 4.0e9
TARGETS = {
    ("overhead", "path", "1"): ("4", "2"),
    ("overhead", "path", "4"): ("8", "5"),
    ("bfs", "rmat22", "1"): ("0.8", "0.25"),
    ("bfs", "rmat24", "1"): ("1.9", "0.6"),
    ("bfs", "rmat24", "4"): ("1.4", "0.3"),
    ("bfs", "rmat26", "1"): ("7", "-"),
    ("bfs", "rmat26", "4"): ("1/2 of 1 GPU", "2.5"),
    ("pagerank", "rmat24", "1"): ("3.5", "2.4"),
    ("pagerank", "rmat24", "4"): ("1.2", "0.7"),
    ("pagerank", "road4900", "1"): ("0.4", "0.2"),
    ("pagerank", "road4900", "4"): ("0.2", "0.06"),
    ("betweenness", "rmat24", "1"): ("60", "15"),
    ("betweenness", "rmat24", "4"): ("30", "6"),
}
"""What must be reached, and the goal."""

CUGRAPH = {
    ("bfs", "rmat22", "1"): "1.23", ("bfs", "rmat22", "2"): "8.2", ("bfs", "rmat22", "4"): "9.1",
    ("bfs", "rmat24", "1"): "1.98", ("bfs", "rmat24", "2"): "9.3", ("bfs", "rmat24", "4"): "10.2",
    ("bfs", "road4900", "1"): "1,085", ("bfs", "road4900", "4"): "6,037",
    ("pagerank", "rmat22", "1"): "1.07", ("pagerank", "rmat22", "2"): "0.99",
    ("pagerank", "rmat22", "4"): "0.78",
    ("pagerank", "rmat24", "1"): "3.90", ("pagerank", "rmat24", "2"): "2.53",
    ("pagerank", "rmat24", "4"): "1.87",
    ("pagerank", "road4900", "1"): "0.61", ("pagerank", "road4900", "4"): "1.44",
    ("betweenness", "rmat22", "1"): "34 (NaN)", ("betweenness", "rmat24", "1"): "140 (NaN)",
}  # fmt: skip
"""Milliseconds of cuGraph 26.10, from the peers' page of the project's design: BFS direction-optimizing
where graphs are R-MAT, on one GPU its C++ algorithm alone; an iteration of PageRank; one source."""


PEERS = {
    ("sssp", "rmat22", "1"): ("18.1", "7.8", "35"),
    ("sssp", "rmat22", "2"): ("14.2", "-", "84"),
    ("sssp", "rmat22", "4"): ("21.6", "6.7", "94"),
    ("sssp", "rmat24", "1"): ("125", "-", "66"),
    ("sssp", "rmat24", "2"): ("67", "-", "104"),
    ("sssp", "rmat24", "4"): ("64", "-", "121"),
    ("sssp", "road4900", "1"): ("159", "-", "3,788"),
    ("sssp", "road4900", "2"): ("294", "-", "-"),
    ("sssp", "road4900", "4"): ("394", "-", "-"),
    ("components", "rmat22", "1"): ("3.2", "7.7", "22.7"),
    ("components", "rmat22", "2"): ("3.3", "-", "70"),
    ("components", "rmat22", "4"): ("3.2", "6.9", "94"),
    ("components", "rmat24", "1"): ("10.9", "-", "42"),
    ("components", "rmat24", "2"): ("10.4", "-", "90"),
    ("components", "rmat24", "4"): ("10.3", "-", "103"),
    ("components", "road4900", "1"): ("4.5", "-", "84"),
    ("components", "road4900", "2"): ("2.3", "-", "-"),
    ("components", "road4900", "4"): ("1.55", "-", "687"),
    ("levels", "rmat22", "1"): ("4.2", "3.9", "3.88"),
    ("levels", "rmat22", "2"): ("4.2", "-", "7.6"),
    ("levels", "rmat22", "4"): ("7.0", "4.3", "10.4"),
    ("levels", "rmat24", "1"): ("29.4", "-", "10.2"),
    ("levels", "rmat24", "2"): ("16.7", "-", "11.2"),
    ("levels", "rmat24", "4"): ("17.3", "-", "12.7"),
    ("levels", "road4900", "1"): ("138", "-", "1,085"),
    ("levels", "road4900", "2"): ("230", "-", "-"),
    ("levels", "road4900", "4"): ("361", "-", "6,037"),
}
"""Milliseconds of Groute, Gunrock 0.5.1 and cuGraph 26.10, from the same page; levels: BFS that pushes."""


def peers(row: Row) -> list[str]:
    """Groute, Gunrock and cuGraph."""
    algorithm = row["algorithm"]
    algorithm = "components" if algorithm == "labels" else algorithm.split()[0]
    return list(PEERS.get((algorithm, row["graph"], row["devices"]), ("-", "-", "-")))


def device_count(row: Row) -> int:
    return len(set(device_names(row["devices"])))


def bfs_floor_ms(row: Row) -> float:
    n, count = row["vertices"], device_count(row)
    owned = 4 * n + 4 * row["reached"] + 4 * row["with_arcs"] + n / 8
    everywhere = 3 * n / 8
    return float(owned / count + everywhere) / BYTES_A_MS


def _id_bytes(row: Row) -> int:
    return 8 if row.get("position_dtype") == "int64" else 4


def pagerank_floor_ms(row: Row) -> float:
    rank_bytes = 4 if row["dtype"] == "float32" else 8
    moved = _id_bytes(row) * row["arcs"] + (8 + 2 * rank_bytes) * row["with_arcs"]
    return float(moved / device_count(row)) / BYTES_A_MS


def betweenness_floor_ms(row: Row) -> float:
    moved = 2 * _id_bytes(row) * 2 * row["edges_reached"] + (2 * 8 + 4 + 8 + 8) * row["reached"]
    return float(row["sources"] * moved / device_count(row)) / BYTES_A_MS


def unit_ms(row: Row) -> float:
    """Of an iteration, where there are some; else of the query."""
    return float(row["kernel_ms"]) / (row["iterations"] or 1)


def rate(row: Row) -> float:
    """Billions a second: of edges of the component in a search, of arcs in an iteration."""
    is_search = row["algorithm"] in ("bfs", PUSHED, "sssp", *STEP_LEVELS)
    work = row["edges_reached"] if is_search else row["arcs"]
    return float(work) / unit_ms(row) / 1e6
