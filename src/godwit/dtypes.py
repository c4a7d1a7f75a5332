"""What ids and weights are made of, and arrays of them out of whatever a user holds.

A conversion never changes a value: what does not fit is refused, and what fits already is shared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.errors import InputError

Array = np.ndarray[Any, np.dtype[Any]]

ID_DTYPES = (np.dtype(np.int32), np.dtype(np.int64))
"""The dtypes that vertex ids can have."""

WEIGHT_DTYPES = tuple(np.dtype(name) for name in ("int32", "uint32", "int64", "float32", "float64"))
"""The dtypes that weights can have."""

# Other dtypes of weights, and what holds all their values.
_WIDENED = {
    "bool": "int32",
    "int8": "int32",
    "int16": "int32",
    "uint8": "int32",
    "uint16": "int32",
    "float16": "float32",
}


def id_dtype_for(vertex_count: int, requested: Any = None) -> np.dtype[Any]:
    """The dtype of vertex ids: the requested one if it fits, else the smallest that does."""
    needed = ID_DTYPES[0] if vertex_count < 2**31 else ID_DTYPES[1]
    if requested is None:
        return needed
    try:
        dtype: np.dtype[Any] = np.dtype(requested)
    except TypeError:
        raise InputError(f"id_dtype must be int32 or int64, got {requested!r}") from None
    if dtype not in ID_DTYPES:
        raise InputError(f"id_dtype must be int32 or int64, got {dtype}")
    if dtype.itemsize < needed.itemsize:
        raise InputError(f"{vertex_count} vertices need id_dtype int64, got {dtype}")
    return dtype


def as_integers(values: Any, name: str) -> Array:
    """A one-dimensional array of int32 or int64; InputError if ``values`` is none."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"{name} must have one dimension, got shape {array.shape}")
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # what NumPy makes of an empty list
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} must be integers, got {array.dtype}")
    if array.dtype == np.uint64 and array.size and int(array.max()) >= 2**63:
        raise InputError(f"{name} must be below 2**63, got {int(array.max())}")
    if array.dtype not in ID_DTYPES:
        small = array.dtype.itemsize < 4 or array.dtype == np.int32
        array = array.astype(np.int32 if small else np.int64)
    return array


def as_weights(weights: Any, count: int) -> Array | None:
    """Weights in one of :data:`WEIGHT_DTYPES`, not copied where they have it; None stays None."""
    if weights is None:
        return None
    array = np.asarray(weights)
    if array.shape != (count,):
        raise InputError(f"weights must have shape ({count},), got {array.shape}")
    dtype = array.dtype.newbyteorder("=")
    if dtype == np.uint64:
        if array.size and int(array.max()) >= 2**63:
            raise InputError(f"weights must be below 2**63, got {int(array.max())}")
        dtype = np.dtype(np.int64)
    dtype = np.dtype(_WIDENED.get(dtype.name, dtype))
    if dtype not in WEIGHT_DTYPES:
        raise InputError(f"weights must be integers or floating-point numbers, got {array.dtype}")
    return frozen(array, dtype)


def frozen(array: Array, dtype: Any = None) -> Array:
    """A read-only, contiguous, aligned view of the array; a copy only where that needs one.

    Kernels are compiled per type, and being read-only is part of it: handed over like this, arrays
    that the caller may write and arrays that he may not need one kernel, not two.
    """
    view = np.require(array, dtype, ["C", "A"]).view(np.ndarray)
    view.flags.writeable = False
    return view
