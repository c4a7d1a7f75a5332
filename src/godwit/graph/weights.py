"""Random weights: of an arc u -> v a hash of {u, v} and the seed, equal in both directions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.dtypes import Array, as_number
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph, require_memory
from godwit.graph.hashing import mix, seed_word
from godwit.graph.rows import row_range, thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team

_ULP = 2.0**-53
_S11 = np.uint64(11)


def _edge_word(start: Any, u: Any, v: Any) -> Any:
    """A hash of two vertices, whatever their order."""
    return mix(mix(start ^ np.uint64(min(u, v))) ^ np.uint64(max(u, v)))


@kernel
def _integer_weights(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    low: int,
    span: Any,
    seed: Any,
    weights: Any,
) -> None:
    """``low + hash % span`` for every arc."""
    begin, end = row_range(rank, size, offsets)
    start = mix(seed)
    for v in range(begin, end):
        for i in range(offsets[v], offsets[v + 1]):
            weights[i] = low + np.int64(_edge_word(start, v, np.int64(targets[i])) % span)


@kernel
def _float_weights(
    rank: int,
    size: int,
    control: Any,
    offsets: Any,
    targets: Any,
    low: float,
    high: float,
    last: float,
    seed: Any,
    weights: Any,
) -> None:
    """``low + (high - low) * fraction`` for every arc, and at most ``last``, should that round up."""
    begin, end = row_range(rank, size, offsets)
    start = mix(seed)
    for v in range(begin, end):
        for i in range(offsets[v], offsets[v + 1]):
            word = _edge_word(start, v, np.int64(targets[i]))
            fraction = np.float64(word >> _S11) * _ULP
            weights[i] = min(low + (high - low) * fraction, last)


def random_weights(graph: Graph, low: float, high: float, seed: int) -> Array:
    """Weights for :meth:`Graph.with_random_weights`."""
    dtype, settings = weight_rule(low, high)
    fill = _float_weights if dtype.kind == "f" else _integer_weights
    require_memory(graph.arc_count * dtype.itemsize, "an array of weights")
    weights = np.empty(graph.arc_count, dtype)
    run_team(
        fill,
        graph.offsets,
        graph.targets,
        *settings,
        seed_word(seed),
        weights,
        threads=thread_count_for(graph.arc_count),
    )
    return weights


def weight_rule(low: Any, high: Any) -> tuple[np.dtype[Any], tuple[Any, ...]]:
    """The dtype of random weights and the numbers that make them of hashes.

    These are (low, span) of integers, and (low, high, last) of floats, of which ``last`` is the largest
    below ``high``.
    """
    low, high = check_weight_range(low, high)
    if isinstance(low, float):
        return np.dtype(np.float64), (low, high, math.nextafter(high, low))
    fits = low >= -(2**31) and high < 2**31
    return np.dtype(np.int32 if fits else np.int64), (np.int64(low), np.uint64(high - low + 1))


def check_weight_range(low: Any, high: Any) -> tuple[int, int] | tuple[float, float]:
    """The bounds of random weights: two integers, or two floats if either is one.

    :raises InputError: if they are no bounds of any weight
    """
    try:
        first, last = as_number(low, "low"), as_number(high, "high")
        if isinstance(first, int) and isinstance(last, int):
            if -(2**62) < first <= last < 2**62:
                return first, last
        elif float(first) < float(last) and math.isfinite(float(last) - float(first)):
            return float(first), float(last)
    except (InputError, OverflowError):
        pass
    raise InputError(
        "weights must be integers low <= high, or finite numbers low < high if either is a float, "
        f"got {shown(low)} and {shown(high)}"
    )
