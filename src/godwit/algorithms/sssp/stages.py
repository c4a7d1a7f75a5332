"""What searches by sorted rows on CPUs and GPUs share: the first width of a stage, and if they gain."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.graph.csr import Graph
from godwit.graph.facts import hub_share

UNREACHED: dict[str, Any] = {"int32": 2**31 - 1, "int64": 2**63 - 1, "float64": np.inf}
"""Distances of vertices that were not reached, by dtype."""

_SAMPLE = 4096
_SUPERSTEPS = 100
"""Supersteps of GPUs that take as long as the asynchronous engine takes for all arcs of a graph with hubs,
or of another large one (benchmarks/choices.py)."""


_MOST_SHARE = 0.1
"""The asynchronous engine, whose blocks wait for each other at hubs, is slower if these have more of the
arcs, whatever a search by sorted rows has looked at."""


def gains(graph: Graph, looked: int, supersteps: int | None = None) -> bool:
    """Return True if a search was faster than others, as it has looked at few arcs in few supersteps.

    :param looked: arcs that it looked at
    :param supersteps: of GPUs; None: cores have searched
    """
    if supersteps is None:
        return looked < graph.arc_count
    if hub_share(graph) > _MOST_SHARE:
        return True
    return looked + supersteps * graph.arc_count // _SUPERSTEPS < graph.arc_count


def first_width(graph: Graph, active: int, dtype: np.dtype[Any]) -> Any:
    """Return the width of a stage: on average, one arc of a vertex is not longer.

    :param active: number of vertices that have arcs
    :param dtype: of distances
    """
    assert graph.weights is not None
    count = len(graph.weights)
    if not count:
        return dtype.type(1).item()
    sample = graph.weights[np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64)]
    quantile = np.quantile(sample, min(1.0, max(1, active) / max(1, count)), method="higher")
    positive = sample[sample > 0]
    least = positive.min() if len(positive) else 1
    width = max(quantile, least)
    if dtype.kind == "f":
        return float(width) if np.isfinite(width) else 1.0
    return int(min(width, UNREACHED[dtype.name] // 4))
