"""What is reported, as plain Python values: ``--json`` prints it as it is, the tables render it.

Vertices in it are called what the file of the graph calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from godwit.algorithms.paths import PathResult
    from godwit.backends.base import Device
    from godwit.graph.csr import Graph
    from godwit.graph.partition import Partition

Facts = dict[str, Any]

_SHOWN_VERTICES = 5


def plain(value: Any) -> Any:
    """As JSON can say it: NumPy's numbers become Python's, infinity and NaN become None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def graph_facts(graph: Graph, name: str) -> Facts:
    """What the graph is, at the price of a look at the weights."""
    weights = graph.weights
    return {
        "name": name,
        "vertices": graph.vertex_count,
        "arcs": graph.arc_count,
        "directed": graph.directed,
        "id_base": graph.id_base,
        "id_dtype": graph.targets.dtype.name,
        "weights": None if weights is None else weights.dtype.name,
        "min_weight": None if weights is None or not len(weights) else plain(weights.min()),
        "max_weight": None if weights is None or not len(weights) else plain(weights.max()),
    }


def degree_facts(graph: Graph) -> Facts:
    """Edges, degrees, self-loops and memory, at the price of a pass over the arcs."""
    degrees = graph.degree_statistics()
    return {
        "edges": graph.edge_count,
        "self_loops": degrees.self_loops,
        "isolated_vertices": degrees.isolated,
        "sinks": degrees.sinks,
        "degree": {
            "min": degrees.min,
            "mean": degrees.mean,
            "median": degrees.median,
            "max": degrees.max,
        },
        "max_degree_vertex": (
            graph.highest_degree_vertex() + graph.id_base if graph.vertex_count else None
        ),
        "memory_bytes": graph.nbytes,
    }


def partition_facts(division: Partition) -> Facts:
    """What a partition costs."""
    return {
        "method": division.method,
        "note": division.note,
        "parts": division.part_count,
        "cut_arcs": division.cut_arcs,
        "cut_fraction": division.cut_fraction,
        "border_vertices": division.border_vertices,
        "balance": division.balance,
        "vertices_per_part": division.vertices_per_part.tolist(),
        "arcs_per_part": division.arcs_per_part.tolist(),
        "border": division.border.tolist(),
    }


def device_facts(devices: list[Device]) -> list[Facts]:
    """The devices, in order."""
    return [
        {
            "name": device.name,
            "kind": device.kind,
            "threads": device.threads,
            "memory_bytes": device.memory_bytes,
            "description": device.description,
        }
        for device in devices
    ]


def result_facts(result: PathResult) -> Facts:
    """How far the search came; the nearest and the farthest few vertices; MTEPS."""
    graph = result.graph
    reached = result.reached
    traversed = int(graph.out_degree()[reached].sum())
    run_s = result.statistics.seconds.get("run", 0.0)
    candidates = np.flatnonzero(reached)
    distance = result.distance[candidates]
    others = ~np.isin(candidates, result.sources)
    base = graph.id_base

    def listed(order: Any, among: Any) -> list[Facts]:
        return [
            {"vertex": int(among[i]) + base, "distance": plain(result.distance[among[i]])}
            for i in order
        ]

    nearest = candidates[others]
    return {
        "sources": [int(source) + base for source in result.sources],
        "reached_vertices": len(candidates),
        "largest_distance": plain(distance.max()) if len(distance) else None,
        "traversed_arcs": traversed,
        "mteps": traversed / run_s / 1e6 if run_s > 0 else None,
        "nearest": listed(_smallest(distance[others]), nearest),
        "farthest": listed(_smallest(-distance), candidates),
    }


def target_facts(result: PathResult, target: int) -> Facts:
    """The way to the target."""
    base = result.graph.id_base
    distance = result.distance[target]
    if distance == result.unreached:
        return {"vertex": target + base, "distance": None, "path": None}
    path = [vertex + base for vertex in result.path_to(target)]
    return {"vertex": target + base, "distance": plain(distance), "path": path}


def _smallest(values: Any, count: int = _SHOWN_VERTICES) -> list[int]:
    """Indices of the smallest values in ascending order; of equal ones the first."""
    if len(values) > count:
        bound = np.partition(values, count - 1)[count - 1]
        some = np.concatenate(
            [np.flatnonzero(values < bound), np.flatnonzero(values == bound)[:count]]
        )
    else:
        some = np.arange(len(values))
    order = some[np.argsort(values[some], kind="stable")]
    return [int(index) for index in order[:count]]
