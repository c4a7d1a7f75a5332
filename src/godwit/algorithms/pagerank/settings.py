"""Checked settings of PageRank.

Definition of NetworkX: a walk follows, with probability ``damping``, an out-arc in proportion to weights.
Otherwise, and always from a dangling vertex (without out-arcs, or whose weights sum to 0), it goes to a
vertex drawn from the personalization. Ranks sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.algorithms.paths.weights import unsuitable_weight, uses_weights
from godwit.algorithms.power_iteration.query import vertex_values
from godwit.dtypes import Array, as_flag, as_float, as_positive_number
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.facts import is_symmetric

MAX_ITERATIONS = 100
"""Default limit of iterations."""

PAGERANK_NEEDS = "PageRank needs weights that are finite and not negative"

Distribution = Mapping[int, float] | Iterable[float] | Array | None


@dataclass(frozen=True)
class RankSettings:
    """Settings that define ranks.

    :param damping: in [0, 1)
    :param tolerance: positive, perhaps infinite
    :param number: dtype of the ranks, float32 or float64
    :param weighted: True if weights count; they have been checked
    :param teleport: (n) float64 of sum 1: distribution of restarts; None: uniform
    """

    damping: float
    tolerance: float
    number: np.dtype[Any]
    weighted: bool
    teleport: Array | None

    @classmethod
    def checked(
        cls, graph: Graph, *, damping: Any, tolerance: Any, personalization: Distribution,
        weighted: Any, dtype: Any,
    ) -> RankSettings:  # fmt: skip
        """Check the arguments of a user for a graph; InputError if one is wrong."""
        return cls(
            check_damping(damping),
            as_positive_number(tolerance, "tolerance"),
            check_dtype(dtype),
            _uses_weights(graph, weighted),
            distribution(personalization, graph, "personalization"),
        )


def check_damping(damping: Any) -> float:
    """Return the damping as a float; InputError if it is not in [0, 1)."""
    number = as_float(damping, "damping")
    if not 0 <= number < 1:
        raise InputError(f"damping must be in [0, 1), got {shown(damping)}")
    return number


_DTYPES = {name: np.dtype(name) for name in ("float32", "float64")}


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of ranks; InputError if it is not float32 or float64."""
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    number: np.dtype[Any] | None = None
    if dtype is not None:  # which NumPy takes for float64
        with suppress(TypeError, ValueError):
            number = np.dtype(dtype)
    if number is None or number not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise InputError(f"dtype must be float32 or float64, got {shown(dtype)}")
    return number


def _uses_weights(graph: Graph, weighted: Any) -> bool:
    """Return whether weights count, and check them."""
    if not uses_weights(graph, weighted):
        return False
    return bool(graph.cached("weights as parts", lambda: _check_weights(graph)))


def is_accelerated(graph: Graph, accelerated: Any, *, weighted: bool) -> bool:
    """Return whether iterations are accelerated: by default, of graphs whose arcs are symmetric.

    :param weighted: weights count, and must be symmetric, too
    """
    if accelerated is not None:
        accelerated = as_flag(accelerated, "accelerated")
    if accelerated is False:
        return False
    symmetric = is_symmetric(graph, weighted=weighted)
    if accelerated and not symmetric:
        raise InputError(
            "accelerated=True needs an undirected graph, such as symmetrize() gives; of a directed one "
            "only plain iterations are sure to converge"
        )
    return symmetric


def _check_weights(graph: Graph) -> bool:
    """Return True; InputError if a weight is negative or not finite."""
    weights = graph.weights
    assert weights is not None
    if len(weights) == 0:
        return True
    smallest, largest = weights.min(), weights.max()
    if not (smallest >= 0 and largest < np.inf):
        arc = int(np.argmax(~(weights >= 0) | (weights == np.inf)))
        raise unsuitable_weight(graph, arc, PAGERANK_NEEDS)
    if weights.dtype.kind == "f" and float(largest) * len(weights) == math.inf:
        raise InputError(
            f"sums of {len(weights)} weights up to {largest:g} could overflow; divide them by {largest:g}"
        )
    return True


def distribution(values: Any, graph: Graph, name: str) -> Array | None:
    """Return weights of vertices, an array (n) or a mapping, as probabilities; None stays None.

    A pandas Series is a mapping. Keys of mappings are ids (:attr:`Graph.ids`).

    :raises InputError: a wrong shape, an unknown vertex, a weight that is negative or not finite, or
        all are 0
    """
    if values is None:
        return None
    weights = vertex_values(values, graph, name, least=0)
    if len(weights) == 0:
        return weights
    largest = weights.max()
    if largest == 0:
        raise InputError(
            f"{name} must not be 0 everywhere: it sums to 0 over {len(weights)} vertices"
        )
    weights /= largest  # sums of large weights would overflow
    total = weights.sum()
    weights /= total
    return weights
