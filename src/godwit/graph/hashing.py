"""Random numbers and random weights as functions of a counter: no state, so no order of threads.

``mix`` is the finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
generators, OOPSLA 2014, with Stafford's variant 13 constants): a bijection of 64-bit words in which
every bit of the input changes every bit of the output with probability near 1/2. The random weight of
an arc u -> v is a hash of {u, v} and the seed: equal in both directions, and the same on every machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from godwit.dtypes import Array, as_integer, as_number
from godwit.errors import InputError, shown
from godwit.graph.rows import Rows, require_memory, row_range, thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import run_team

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)
_S11 = np.uint64(11)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_ULP = 2.0**-53
_SCRAMBLE_ROUNDS = 4


def mix(word: Any) -> Any:
    """Return a pseudorandom uint64 for a uint64. For compiled code, like all that takes a word."""
    word = word + _GAMMA
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return word ^ (word >> _S31)


def unit(word: Any) -> Any:
    """Return a hash as a float64 in [0, 1)."""
    return np.float64(word >> _S11) * _ULP


def below(word: Any, bound: Any) -> Any:
    """Return a hash as an int64 in [0, bound)."""
    return np.int64(word % np.uint64(bound))


def scramble(v: Any, bits: Any, seed: Any) -> Any:
    """Map words of ``bits`` bits one to one, by odd multipliers and shifts, so that bits mix."""
    mask = (_ONE << bits) - _ONE
    down = (bits + _ONE) >> _ONE
    for r in range(_SCRAMBLE_ROUNDS):
        key = mix(seed + np.uint64(r))
        v = ((v ^ (key >> _S11)) * (key | _ONE)) & mask
        if down > 0:
            v ^= v >> down
    return v


def seed_word(seed: int) -> np.uint64:
    """Return any integer as a seed of 64 bits; InputError for what is no integer."""
    return np.uint64(as_integer(seed, "seed") % 2**64)


def random_weights(rows: Rows, low: float, high: float, seed: int, first: int = 0) -> Array:
    """Return weights for :meth:`Graph.with_random_weights`.

    :param first: the vertex of the first row, where these are rows of a part of a graph
    """
    dtype, settings = weight_rule(low, high)
    fill = _float_weights if dtype.kind == "f" else _integer_weights
    require_memory(rows.arc_count * dtype.itemsize, "an array of weights")
    weights = np.empty(rows.arc_count, dtype)
    arguments = (rows.offsets, rows.targets, *settings, seed_word(seed), first, weights)
    run_team(fill, *arguments, threads=thread_count_for(rows.arc_count))
    return weights


def weight_rule(low: Any, high: Any) -> tuple[np.dtype[Any], tuple[Any, ...]]:
    """Return the dtype of random weights, and the numbers that map hashes to them.

    These are (low, span) for integers, and (low, high, last) for floats, where ``last`` is the largest
    float below ``high``.
    """
    low, high = check_weight_range(low, high)
    if isinstance(low, float):
        return np.dtype(np.float64), (low, high, math.nextafter(high, low))
    fits = low >= -(2**31) and high < 2**31
    return np.dtype(np.int32 if fits else np.int64), (np.int64(low), np.uint64(high - low + 1))


def check_weight_range(low: Any, high: Any) -> tuple[int, int] | tuple[float, float]:
    """Return the bounds of random weights: two integers, or two floats if either is a float.

    :raises InputError: no weight lies between them
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


def _edge_word(start: Any, u: Any, v: Any) -> Any:
    """Return a hash of two vertices, whatever their order; ``start`` is the mixed seed."""
    return mix(mix(start ^ np.uint64(min(u, v))) ^ np.uint64(max(u, v)))


@kernel
def _integer_weights(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, low: int, span: Any, seed: Any,
    first: int, weights: Any,
) -> None:  # fmt: skip
    """Set the weight of every arc to ``low + hash % span``."""
    begin, end = row_range(rank, size, offsets)
    start = mix(seed)
    for v in range(begin, end):
        for i in range(offsets[v], offsets[v + 1]):
            weights[i] = low + np.int64(_edge_word(start, first + v, np.int64(targets[i])) % span)


@kernel
def _float_weights(
    rank: int, size: int, control: Any, offsets: Any, targets: Any, low: float, high: float,
    last: float, seed: Any, first: int, weights: Any,
) -> None:  # fmt: skip
    """Set the weight of every arc to ``low + (high - low) * fraction``, at most ``last``."""
    begin, end = row_range(rank, size, offsets)
    start = mix(seed)
    for v in range(begin, end):
        for i in range(offsets[v], offsets[v + 1]):
            word = _edge_word(start, first + v, np.int64(targets[i]))
            weights[i] = min(low + (high - low) * unit(word), last)
