"""Values as bit patterns and back, for compiled code: what travels in the words of a work-item."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.extending import intrinsic


def _to_bits(typing_context: Any, value: Any) -> Any:
    """The bits of a 4- or 8-byte number as int64; 4-byte ones are zero-extended."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        bits = builder.bitcast(arguments[0], ir.IntType(value.bitwidth))
        return bits if value.bitwidth == 64 else builder.zext(bits, word)

    return types.int64(value), generate


to_bits: Any = intrinsic(_to_bits)


def _make_from_bits(dtype: np.dtype[Any]) -> Any:
    numba_type = from_dtype(dtype)

    def from_bits(typing_context: Any, bits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word = arguments[0]
            if numba_type.bitwidth < 64:
                word = builder.trunc(word, ir.IntType(numba_type.bitwidth))
            return builder.bitcast(word, context.get_value_type(numba_type))

        return numba_type(types.int64), generate

    from_bits.__name__ = from_bits.__qualname__ = f"from_bits_{dtype.name}"
    from_bits.__doc__ = f"The {dtype.name} whose bits are the low ones of an int64."
    return intrinsic(from_bits)


VALUE_DTYPES = tuple(
    np.dtype(name) for name in ("int32", "uint32", "int64", "uint64", "float32", "float64")
)
"""The dtypes that the value of a work-item can have."""

FROM_BITS = {dtype: _make_from_bits(dtype) for dtype in VALUE_DTYPES}
