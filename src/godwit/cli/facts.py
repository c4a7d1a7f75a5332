"""What is reported, as plain Python values: ``--json`` prints it as it is, the tables render it.

Vertices in it are called what the file of the graph calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from godwit.algorithms.paths.result import PathResult
    from godwit.graph.csr import Graph
    from godwit.graph.partition import Partition
    from godwit.runtime.protocol import Device

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
        "ids": graph.ids.kind,
        "first_id": graph.ids.in_file[0] if graph.vertex_count else None,
        "last_id": graph.ids.in_file[graph.vertex_count - 1] if graph.vertex_count else None,
        "target_dtype": graph.targets.dtype.name,
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
            graph.ids.in_file[graph.ids.position(graph.highest_degree_vertex())]
            if graph.vertex_count
            else None
        ),
        "memory_bytes": graph.nbytes,
    }


def structure_facts(graph: Graph) -> Facts:
    """Components, and bounds of the largest one's diameter: a few searches."""
    from godwit.algorithms.diameter import diameter_bounds
    from godwit.graph.union_find import weak_components

    if graph.vertex_count == 0:
        return {"components": 0, "largest_component": 0, "diameter": None}
    sizes = np.bincount(weak_components(graph.rows, graph.directed))
    bounds = diameter_bounds(graph)
    return {
        "components": int(np.count_nonzero(sizes)),
        "largest_component": int(sizes.max()),
        "diameter": {"lower": bounds.lower, "upper": bounds.upper},
    }


def histogram_facts(graph: Graph) -> list[Facts]:
    """How many vertices have which out-degree, in classes that double: 0, 1, 2-3, 4-7, …"""
    degree = graph.out_degree()
    _, classes = np.frexp(degree.astype(np.float64))  # exact: degrees are below 2**53
    return [
        {"from": 0 if c == 0 else 1 << (c - 1), "to": (1 << c) - 1, "vertices": int(count)}
        for c, count in enumerate(np.bincount(classes))
    ]


def memory_facts(graph: Graph) -> list[Facts]:
    """What the device with most memory needs of a contiguous partition, for several device counts:
    its rows, and a value for each vertex that it owns or sends to."""
    from godwit.graph.partition import partition
    from godwit.graph.rows import estimate_bytes

    weights = graph.weights
    weight_bytes = 0 if weights is None else weights.itemsize
    found = []
    for count in (1, 2, 4, 8):
        if count > max(1, graph.vertex_count):
            break
        division = partition(graph, count)
        halo = division.border.sum(axis=1)
        rows = zip(division.vertices_per_part, division.arcs_per_part, halo, strict=True)
        needed = [
            estimate_bytes(int(owned), int(arcs), graph.targets.itemsize, weight_bytes)
            + 8 * int(owned + remote)
            for owned, arcs, remote in rows
        ]
        largest = int(np.argmax(needed))
        found.append(
            {
                "devices": count,
                "vertices": int(division.vertices_per_part[largest]),
                "arcs": int(division.arcs_per_part[largest]),
                "halo_vertices": int(halo[largest]),
                "bytes": needed[largest],
            }
        )
    return found


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


def verification_facts(verification: str | None) -> Facts:
    """Return whether the result was verified, and what was found right."""
    return {"verified": verification is not None, "verification": verification}


def result_facts(result: PathResult) -> Facts:
    """How far the search came; the nearest and the farthest few vertices; MTEPS."""
    graph = result.graph
    reached = result.reached
    traversed = int(graph.out_degree()[reached].sum())
    run_s = result.statistics.run_s
    candidates = np.flatnonzero(reached)
    distance = result.distance[candidates]
    others = ~np.isin(candidates, result._sources)
    ids = graph.ids.in_file

    def listed(order: Any, among: Any) -> list[Facts]:
        return [
            {"vertex": ids[among[i]], "distance": plain(result.distance[among[i]])} for i in order
        ]

    nearest = candidates[others]
    return {
        "sources": ids.of(result._sources),
        "reached_vertices": len(candidates),
        "largest_distance": plain(distance.max()) if len(distance) else None,
        "traversed_arcs": traversed,
        "mteps": traversed / run_s / 1e6 if run_s > 0 else None,
        "nearest": listed(smallest(distance[others]), nearest),
        "farthest": listed(smallest(-distance), candidates),
    }


def target_facts(result: PathResult, target: Any) -> Facts:
    """The way to the target, which is given by its id."""
    ids, named = result.graph.ids, result.graph.ids.in_file
    position = ids.position(target)
    distance = result.distance[position]
    if distance == result.unreached:
        return {"vertex": named[position], "distance": None, "path": None}
    path = named.of(ids.positions(result.path_to(target)))
    return {"vertex": named[position], "distance": plain(distance), "path": path}


def smallest(values: Any, count: int = _SHOWN_VERTICES) -> list[int]:
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
