"""Conversions of users' numbers and arrays to those of ids, weights and settings.

A conversion never changes a value: values that do not fit are refused, arrays that fit are shared.
"""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np

from godwit.arrays import host_array
from godwit.errors import InputError, shown

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
    """Return the dtype of vertex ids: the requested one if it fits, else the smallest that does."""
    needed = ID_DTYPES[0] if vertex_count < 2**31 else ID_DTYPES[1]
    if requested is None:
        return needed
    try:
        dtype: np.dtype[Any] = np.dtype(requested)
    except (TypeError, ValueError):
        raise InputError(f"id_dtype must be int32 or int64, got {shown(requested)}") from None
    if dtype not in ID_DTYPES:
        raise InputError(f"id_dtype must be int32 or int64, got {dtype}")
    if dtype.itemsize < needed.itemsize:
        raise InputError(f"{vertex_count} vertices need id_dtype int64, got {dtype}")
    return dtype


def as_integer(value: Any, name: str) -> int:
    """Return the value as an int; InputError unless it is an integer of Python or NumPy, and no bool."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise InputError(f"{name} must be an integer, got {shown(value)}")


def as_count(value: Any, name: str, low: int = 0, high: int | None = None) -> int:
    """Return the value as an int in [low, high]; InputError if it is no integer or out of range."""
    count = as_integer(value, name)
    if count < low:
        bound = "not be negative" if low == 0 else f"be at least {low}"
        raise InputError(f"{name} must {bound}, got {shown(count)}")
    if high is not None and count > high:
        raise InputError(f"{name} must be at most {high}, got {shown(count)}")
    return count


def as_flag(value: Any, name: str) -> bool:
    """Return the value as a bool; InputError unless it is one of Python or NumPy ("no" would count as
    true).
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(f"{name} must be True or False, got {shown(value)}")


def check_callable(value: Any, name: str) -> None:
    """Raise InputError if the value is neither None nor callable."""
    if value is not None and not callable(value):
        raise InputError(f"{name} must be a function, got {shown(value)}")


def as_number(value: Any, name: str) -> int | float:
    """Return the value as an exact int or as a float; InputError if it is no real number, or a bool."""
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
        if isinstance(value, Real):
            return float(value)
    raise InputError(f"{name} must be a number, got {shown(value)}")


def as_float(value: Any, name: str) -> float:
    """Return the value as a float, infinities and NaN included; InputError if it is no real number."""
    try:
        return float(as_number(value, name))
    except OverflowError:
        raise InputError(f"{name} must be below 1e308, got {shown(value)}") from None


def as_positive_number(value: Any, name: str) -> float:
    """Return the value as a float above 0, infinity included; InputError otherwise."""
    number = as_float(value, name)
    if not number > 0:
        raise InputError(f"{name} must be positive, got {shown(value)}")
    return number


def as_bucket_width(value: Any, name: str = "delta") -> float:
    """Return the value as a positive float whose reciprocal is one, too; InputError otherwise."""
    width = as_positive_number(value, name)
    if math.isinf(width) or math.isinf(1 / width):
        raise InputError(f"{name} must be a number from 1e-307 to 1e308, got {shown(value)}")
    return width


def as_array(values: Any, name: str) -> Array:
    """Return the values as a NumPy array on the host, shared where possible; see :func:`host_array`.

    :raises InputError: they are none
    :raises DeviceError: they lie on a GPU, and nothing installed copies them to the host
    """
    try:
        return host_array(values)
    except (TypeError, ValueError) as error:  # a list of lists of several lengths
        raise InputError(f"{name} must be an array: {error}") from None


def as_integers(values: Any, name: str) -> Array:
    """Return a one-dimensional array of int32 or int64; InputError otherwise."""
    array = as_array(values, name)
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
    """Return weights in one of :data:`WEIGHT_DTYPES`, copied only to convert them; None stays None."""
    if weights is None:
        return None
    array = as_array(weights, "weights")
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
    """Return a read-only, contiguous, aligned view of the array; a copy only where that needs one.

    Kernels are compiled per type, and being read-only is part of it: handed over like this, arrays
    that the caller may write and arrays that he may not need one kernel, not two.
    """
    view = np.asarray(array, dtype, order="C").view()
    if not view.flags.aligned:
        view = view.copy()
    view.flags.writeable = False
    return view
