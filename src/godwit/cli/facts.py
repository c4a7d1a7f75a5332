"""Facts of graphs and partitions as plain Python values, for ``--json`` and the tables.

Vertices are named by the ids of the graph's file.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from godwit.graph.csr import Graph
    from godwit.graph.partition import Partition

Facts = dict[str, Any]

_SHOWN_VERTICES = 5


def plain(value: Any) -> Any:
    """Return a value that JSON can represent: Python's numbers for NumPy's, None for infinity and NaN."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def graph_facts(graph: Graph, name: str) -> Facts:
    """Return size, ids and weights of a graph; reads all weights."""
    weights = graph.weights
    ids = graph.ids.in_file
    return {
        "name": name,
        "vertices": graph.vertex_count,
        "arcs": graph.arc_count,
        "directed": graph.directed,
        "ids": graph.ids.kind,
        "first_id": ids[0] if graph.vertex_count else None,
        "last_id": ids[graph.vertex_count - 1] if graph.vertex_count else None,
        "target_dtype": graph.targets.dtype.name,
        "weights": None if weights is None else weights.dtype.name,
        "min_weight": None if weights is None or not len(weights) else plain(weights.min()),
        "max_weight": None if weights is None or not len(weights) else plain(weights.max()),
    }


def partition_facts(division: Partition) -> Facts:
    """Return method, sizes and cut of a partition."""
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


def smallest(values: Any, count: int = _SHOWN_VERTICES) -> list[int]:
    """Return the indices of the smallest values in ascending order; of equal values the first."""
    import numpy as np

    if len(values) > count:
        bound = np.partition(values, count - 1)[count - 1]
        candidates = np.concatenate(
            [np.flatnonzero(values < bound), np.flatnonzero(values == bound)[:count]]
        )
    else:
        candidates = np.arange(len(values))
    order = candidates[np.argsort(values[candidates], kind="stable")]
    return [int(index) for index in order[:count]]
