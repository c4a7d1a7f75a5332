"""Decimal numbers to the nearest double, without a detour over strings.

A decimal number is w * 10^q with a 64-bit integer w. Its double is found from the upper bits of
w times a 128-bit approximation of 5^q; the result is correctly rounded (ties to even) for every
normal double. What is not covered (subnormal, overflowing, and those of the numbers with more than
19 digits whose dropped digits matter) is reported as HARD, and left to Python's ``float``.

Source: D. Lemire, Number Parsing at a Gigabyte per Second, Software: Practice and Experience 51
(2021); N. Mushtak and D. Lemire, Fast Number Parsing Without Fallback, ibid. 53 (2023).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from godwit.io.text.words import leading_zeros, multiply_high

_SMALLEST_POWER = -342
_LARGEST_POWER = 308

HARD = 0x7FF8 << 48
"""The bits of a NaN: "not known here". Its low 51 bits are free to say where the number stands."""

_ONE = np.uint64(1)
_THREE = np.uint64(3)
_ZERO = np.uint64(0)
_LOW_9_BITS = np.uint64((1 << 9) - 1)
_UPPER_BIT = np.uint64(63)
_BITS_BELOW_MANTISSA = np.uint64(64 - 52 - 3)
_HIDDEN_BIT = np.uint64(1 << 52)
_MANTISSA_END = np.uint64(1 << 53)


@cache
def powers_of_five() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The leading 128 bits of 5^q, q = -342 .. 308: uint64 (1302), upper and lower word in turn.

    Positive powers are truncated, reciprocals are rounded up.
    """
    words = []
    for q in range(_SMALLEST_POWER, _LARGEST_POWER + 1):
        if q >= 0:
            power = 5**q
            shift = 128 - power.bit_length()
            power = power << shift if shift >= 0 else power >> -shift
        else:
            power = 5**-q
            bits = power.bit_length()
            power = (1 << (bits + 127 if q >= -27 else 2 * bits + 128)) // power + 1
            power >>= max(0, power.bit_length() - 128)
        words += [power >> 64, power & ((1 << 64) - 1)]
    return np.array(words, np.uint64)


def double_bits(w: Any, q: int, powers: Any) -> Any:
    """The bits (int64) of the double nearest to w * 10^q, or HARD. For compiled code.

    :param w: uint64
    :param powers: :func:`powers_of_five`
    """
    if w == _ZERO:
        return np.int64(0)
    if q < _SMALLEST_POWER or q > _LARGEST_POWER:
        return np.int64(HARD)
    zeros = leading_zeros(w)
    w = w << zeros
    at = 2 * (q - _SMALLEST_POWER)
    low = w * powers[at]
    high = multiply_high(w, powers[at])
    if high & _LOW_9_BITS == _LOW_9_BITS:  # the rest of the power may carry into the mantissa
        more = multiply_high(w, powers[at + 1])
        low = low + more
        if more > low:
            high = high + _ONE
    upper = high >> _UPPER_BIT
    shift = upper + _BITS_BELOW_MANTISSA
    mantissa = high >> shift
    exponent = ((217706 * q) >> 16) + 63 + 1023 + np.int64(upper) - np.int64(zeros)
    if exponent <= 0:
        return np.int64(HARD)
    # Exactly half way between two doubles, which only small powers can be: round to even.
    if (
        low <= _ONE
        and q >= -4
        and q <= 23
        and mantissa & _THREE == _ONE
        and mantissa << shift == high
    ):
        mantissa = mantissa & ~_ONE
    mantissa = (mantissa + (mantissa & _ONE)) >> _ONE
    if mantissa >= _MANTISSA_END:
        mantissa = _HIDDEN_BIT
        exponent += 1
    if exponent >= 0x7FF:
        return np.int64(HARD)
    return np.int64(mantissa & ~_HIDDEN_BIT) | (exponent << 52)
