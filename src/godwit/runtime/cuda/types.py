"""Dtypes as CUDA C++ names them, and how many GPUs a kernel knows."""

from __future__ import annotations

from typing import Any

import numpy as np

MAXIMAL_DEVICES = 16

_C_TYPES = {
    "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "float32": "float",
    "float64": "double", "int8": "signed char", "uint8": "u8", "int16": "short", "uint16": "u16",
}  # fmt: skip


def c_type(dtype: np.dtype[Any]) -> str:
    """What kernels call a dtype."""
    return _C_TYPES[dtype.name]
