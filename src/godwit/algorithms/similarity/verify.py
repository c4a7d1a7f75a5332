"""Verifier of similarities: the neighbours of both vertices of a pair are intersected by NumPy.

If there are more pairs than some seconds allow, some are drawn at random.
"""

from __future__ import annotations

import math

import numpy as np

from godwit.algorithms.checks import check_graph, fail
from godwit.algorithms.similarity.result import SimilarityResult
from godwit.algorithms.triangles.rows import simple_graph
from godwit.dtypes import as_count
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph

_MOST_STEPS = 1 << 26
"""Neighbours that can be intersected in some seconds, and what a call of NumPy counts beside them."""
_CALL_STEPS = 1 << 9
_SLACK = 1e-9
"""Relative difference allowed between two sums in another order."""


def verify_similarity(graph: Graph, result: SimilarityResult, *, seed: int = 0) -> int:
    """Check scores of pairs; return how many were checked: all, if that takes seconds.

    :param graph: the graph of the result
    :param result: of :func:`jaccard`, :func:`overlap`, :func:`sorensen`, :func:`adamic_adar` or
        :func:`resource_allocation`; whether all pairs with common neighbours are there is not checked
    :param seed: of the draw of pairs
    :raises VerificationError: naming a pair whose score is wrong
    :raises InputError: a wrong argument
    """
    check_graph(graph)
    if not isinstance(result, SimilarityResult):
        raise InputError(
            f"result must be one of a similarity, such as jaccard(), got {shown(result)}"
        )
    if result.graph.vertex_count != graph.vertex_count:
        raise InputError(
            f"the result is of a graph with {result.graph.vertex_count} vertices, this one has "
            f"{graph.vertex_count}"
        )
    simple = simple_graph(graph)
    offsets, targets = simple.offsets, simple.targets
    degree = np.diff(offsets)
    steps = checked = 0
    for number in np.random.default_rng(as_count(seed, "seed")).permutation(len(result.positions)):
        u, v = (int(vertex) for vertex in result.positions[number])
        steps += int(degree[u] + degree[v]) + _CALL_STEPS
        if steps > _MOST_STEPS and checked:
            break
        checked += 1
        first, second = (targets[offsets[vertex] : offsets[vertex + 1]] for vertex in (u, v))
        common = degree[np.intersect1d(first, second)].tolist()
        expected = _score(result.score_name, common, int(degree[u]), int(degree[v]))
        score = float(result._scores[number])
        if not (score == expected or abs(score - expected) <= _SLACK * expected):
            names = " and ".join(shown(graph.ids[vertex]) for vertex in (u, v))
            fail(
                f"the similarity ({result.score_name}) of {names} is {expected:.17g}, got {score:.17g}"
            )
    return checked


def _score(name: str, common: list[int], left: int, right: int) -> float:
    """Return a score from the degrees of common neighbours, and those of both vertices."""
    if not common:
        return 0.0
    if name == "adamic_adar":
        return math.fsum(1 / math.log(degree) if degree > 1 else math.inf for degree in common)
    if name == "resource_allocation":
        return math.fsum(1 / degree for degree in common)
    count = len(common)
    divisors = {
        "jaccard": left + right - count,
        "overlap": min(left, right),
        "sorensen": (left + right) / 2,
    }
    return count / divisors[name]
