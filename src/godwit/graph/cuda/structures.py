"""The structs of build_rows.cuh and graph/generators/generate.cuh, which kernels take by value.

Every member has 8 bytes, so no compiler has a choice where to put it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from godwit.graph.generators.common import WeightRange
from godwit.graph.hashing import seed_word
from godwit.graph.weights import weight_rule

_C_IDS = {4: "i32", 8: "i64"}


class RmatEdges(ctypes.Structure):
    """Edges drawn by R-MAT."""

    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("scale", ctypes.c_int64),
        ("a", ctypes.c_int64),
        ("ab", ctypes.c_int64),
        ("abc", ctypes.c_int64),
    )


class GivenEdges(ctypes.Structure):
    """Edges whose ends lie on the GPU."""

    _fields_ = (("sources", ctypes.c_uint64), ("targets", ctypes.c_uint64))


class Dealing(ctypes.Structure):
    """How many edges there are, and which arcs they become."""

    _fields_ = (
        ("edges", ctypes.c_int64),
        ("both_directions", ctypes.c_uint64),
        ("drop_loops", ctypes.c_uint64),
    )


class Range(ctypes.Structure):
    """Sources from ``first`` to before ``last``, and the bits of a target in a key."""

    _fields_ = (
        ("first", ctypes.c_int64),
        ("last", ctypes.c_int64),
        ("target_bits", ctypes.c_uint64),
    )


class PercolatedGrid(ctypes.Structure):
    """A grid of which some edges are kept."""

    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("threshold", ctypes.c_uint64),
        ("columns", ctypes.c_int64),
        ("vertices", ctypes.c_int64),
    )


class _IntegerWeights(ctypes.Structure):
    _fields_ = (("seed", ctypes.c_uint64), ("low", ctypes.c_int64), ("span", ctypes.c_uint64))


class _FloatWeights(ctypes.Structure):
    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("low", ctypes.c_double),
        ("width", ctypes.c_double),
        ("last", ctypes.c_double),
    )


class _NoWeights(ctypes.Structure):
    _fields_ = (("seed", ctypes.c_uint64),)


@dataclass(frozen=True)
class RandomWeights:
    """Random weights as a kernel makes them.

    :param dtype: of the weights; None in a graph without
    :param type_name: of the struct, in C++
    """

    dtype: np.dtype[Any] | None
    type_name: str
    structure: ctypes.Structure

    @property
    def itemsize(self) -> int:
        """Bytes of a weight, 0 without."""
        return 0 if self.dtype is None else self.dtype.itemsize

    @classmethod
    def of(cls, weights: WeightRange | None, seed: int) -> RandomWeights:
        """Of bounds as generators take them."""
        if weights is None:
            return cls(None, "NoWeights", _NoWeights())
        word = int(seed_word(seed))
        dtype, settings = weight_rule(*weights)
        if dtype.kind == "f":
            low, high, last = settings
            return cls(dtype, "FloatWeights", _FloatWeights(word, low, high - low, last))
        low, span = (int(number) for number in settings)
        name = f"IntegerWeights<{c_id(dtype)}>"
        return cls(dtype, name, _IntegerWeights(word, low, span))


NO_WEIGHTS = RandomWeights.of(None, 0)


def c_id(dtype: np.dtype[Any]) -> str:
    """How kernels call int32 or int64."""
    return _C_IDS[dtype.itemsize]


def c_word(dtype: np.dtype[Any] | None) -> str:
    """How kernels call the bits of a given weight."""
    return "u64" if dtype is not None and dtype.itemsize == 8 else "u32"
