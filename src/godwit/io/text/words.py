"""Machine words for compiled code that reads text: eight bytes at once, and what to do with them.

All words are uint64. Bytes are taken in little-endian order, so the first byte of the text is the
lowest of the word, whatever the machine.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic

cgutils: Any = _cgutils  # partly typed

WORD_BYTES = 8


def _load_word(typing_context: Any, array: Any, index: Any) -> Any:
    """The eight bytes of a uint8 array that begin at an index, aligned or not."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = context.make_array(array)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(
            context, builder, array, view, [arguments[1]], wraparound=False, boundscheck=False
        )
        word = ir.IntType(64)
        loaded = builder.load(builder.bitcast(pointer, word.as_pointer()), align=1)
        return builder.bswap(loaded) if sys.byteorder == "big" else loaded

    return types.uint64(array, types.intp), generate


load_word: Any = intrinsic(_load_word)


def _trailing_zeros(typing_context: Any, word: Any) -> Any:
    """The number of zero bits below the lowest one bit; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


trailing_zeros: Any = intrinsic(_trailing_zeros)


def _leading_zeros(typing_context: Any, word: Any) -> Any:
    """The number of zero bits above the highest one bit; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


leading_zeros: Any = intrinsic(_leading_zeros)


def _multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    """The upper 64 bits of the 128-bit product."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


multiply_high: Any = intrinsic(_multiply_high)
