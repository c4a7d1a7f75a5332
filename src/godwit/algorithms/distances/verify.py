"""Verifiers of distances from many sources, and of centralities that sum distances.

Rows are computed again on the CPU by :func:`godwit.bfs`, or by :func:`godwit.sssp` as a vertex program, and
checked by the rules that are sufficient for shortest paths (algorithms/paths/verify.py), so neither search
is trusted. If there are more rows than some seconds allow, some are drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from godwit.algorithms.bfs import bfs
from godwit.algorithms.checks import fail
from godwit.algorithms.distances.query import unreached_distance
from godwit.algorithms.distances.result import DistancesResult
from godwit.algorithms.distances.scores import SomeScores
from godwit.algorithms.paths.verify import RELATIVE_SLACK, verify_bfs, verify_sssp
from godwit.algorithms.sssp import sssp
from godwit.dtypes import Array
from godwit.errors import shown
from godwit.graph.csr import Graph

_SECONDS_OF_WORK = 1 << 26
"""Vertices and arcs that can be searched and checked in some seconds."""
_SUM_SLACK = 1e-9
"""Relative difference allowed between two sums in another order."""


def verify_distances(
    result: DistancesResult, *, weighted: bool, cutoff: float | None = None, seed: int = 0
) -> int:
    """Check rows of a matrix of distances; return their number.

    :param weighted: as of the result, like ``cutoff``
    :param seed: of the draw
    :raises VerificationError: naming source and vertex of a wrong distance
    """
    ids, targets = result.graph.ids, result._targets
    drawn = _drawn(len(result._sources), result.graph, seed)
    for row in drawn:
        source = int(result._sources[row])
        expected = checked_distances(result.graph, source, weighted, cutoff)
        expected = expected if targets is None else expected[targets]
        found = result._distance[row]
        wrong = np.flatnonzero(~_same(found, expected))
        if len(wrong):
            column = int(wrong[0])
            vertex = column if targets is None else int(targets[column])
            fail(
                f"the distance from {shown(ids[source])} to {shown(ids[vertex])} is {expected[column]}, "
                f"got {found[column]}"
            )
    return len(drawn)


def verify_sums(
    result: SomeScores, expected: Callable[[Array], float], *, weighted: bool, outward: bool,
    seed: int = 0,
) -> int:  # fmt: skip
    """Check the values of vertices that sum distances; return how many were checked.

    :param expected: returns a vertex's value from its distances to or from all vertices, float64 (n),
        infinite where there is no path
    :param weighted: as of the result
    :param outward: distances from the vertex, not to it
    :param seed: of the draw
    :raises VerificationError: naming a vertex with a wrong value
    """
    graph = result.graph if outward else result.graph.reverse
    drawn = _drawn(len(result._scores), graph, seed)
    for place in drawn:
        vertex = place if result._vertices is None else int(result._vertices[place])
        distance = checked_distances(graph, vertex, weighted, None)
        lengths = distance.astype(np.float64)
        lengths[distance == unreached_distance(distance.dtype)] = np.inf
        value, found = expected(lengths), float(result._scores[place])
        if not (value == found or abs(value - found) <= _SUM_SLACK * abs(value)):
            fail(
                f"the {result.score_name} of vertex {shown(graph.ids[vertex])} is {value}, got {found}"
            )
    return len(drawn)


def checked_distances(graph: Graph, source: int, weighted: bool, cutoff: float | None) -> Array:
    """Return distances from a vertex, by position, which have been verified."""
    graph = graph.with_ids(0)
    search, verify = (sssp, verify_sssp) if weighted else (bfs, verify_bfs)
    # Asynchronously: otherwise SSSP of a small graph is the search that is to be checked.
    found = search(graph, source, cutoff=cutoff, devices="cpu", execution="asynchronous")
    distance = found.distance
    verify(graph, source, distance, cutoff=cutoff)
    return distance


def _same(found: Array, expected: Array) -> Array:
    """Return where distances are equal, of floating-point numbers up to rounding."""
    equal: Array = found == expected
    if found.dtype.kind == "f":
        finite = np.isfinite(found) & np.isfinite(expected)
        near = np.zeros_like(equal)
        difference = np.abs(found[finite] - expected[finite])
        near[finite] = difference <= RELATIVE_SLACK * np.abs(expected[finite])
        equal |= near
    return equal


def _drawn(count: int, graph: Graph, seed: int) -> list[int]:
    """Return the numbers of all rows, or of some that were drawn."""
    most = max(1, _SECONDS_OF_WORK // (graph.vertex_count + graph.arc_count + 1))
    if count <= most:
        return list(range(count))
    return sorted(random.Random(seed).sample(range(count), most))
