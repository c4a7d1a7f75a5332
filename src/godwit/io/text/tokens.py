"""Compiled functions that read one token of text: an id, a number or a word.

Text is a uint8 array that ends with a newline and has :data:`WORD_BYTES` bytes of padding behind it, so
that eight bytes can be loaded at any position. Digits are read eight at a time (little-endian, so the
first byte of the text is the lowest of the word).

A real number is w * 10^q with a 64-bit integer w. Its double is computed from the upper bits of w times
a 128-bit approximation of 5^q; the result is correctly rounded (ties to even) for every normal double.
What this does not cover (subnormal and overflowing numbers, ``inf``, ``nan``, and numbers of more than 19
digits whose last digits matter) is left to Python's ``float``. Arrow has the same algorithm, but takes
columns of strings: that needs a copy of each number and one thread, where this scans at the speed of
the rest of the line on all threads.

Source: D. Lemire, Number Parsing at a Gigabyte per Second, Software: Practice and Experience 51
(2021); N. Mushtak and D. Lemire, Fast Number Parsing Without Fallback, ibid. 53 (2023).
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils as _cgutils
from numba.extending import intrinsic

from godwit.runtime.cpu.atomics import trailing_zero_bits

cgutils: Any = _cgutils  # partly typed

WORD_BYTES = 8

NEWLINE = 10
RETURN = 13
SPACE = 32
_TAB = 9
_PLUS = 43
_COMMA = 44
_MINUS = 45
_POINT = 46
_ZERO = 48
_LOWER_E = 101

# What became of a number.
FINE, MALFORMED, BAD_ID, WIDE, FRACTION, SURPLUS = range(6)

NO_ID = -1
"""Returned in place of an id if there is no digit (or no character of a word)."""
_TOO_LARGE = -2  # in place of an id that does not fit int64

WORD_LENGTH_BITS = 16
"""A word is stored as its position * 2**WORD_LENGTH_BITS + its length."""

HARD = 0x7FF8 << 48
"""The bits of a NaN. HARD + the position of a number stands for a number that Python has to read."""

_EIGHT_ZEROS = np.uint64(0x3030303030303030)
_HIGH_BITS = np.uint64(0x8080808080808080)
_TEN_TO_HIGH_BIT = np.uint64(0x7676767676767676)
_TEN = np.uint64(10)
_TEN_TO_8 = np.uint64(10**8)
_PAIRS = np.uint64(0x000000FF000000FF)
_PAIR_WEIGHTS_1 = np.uint64(0x000F424000000064)
_PAIR_WEIGHTS_2 = np.uint64(0x0000271000000001)
_0, _1, _3, _8, _16, _32, _63, _64 = map(np.uint64, (0, 1, 3, 8, 16, 32, 63, 64))

_MOST_MANTISSA_DIGITS = 19  # of a uint64
_MOST_SIGNED = np.uint64((1 << 63) - 1)
_MOST = np.uint64((1 << 64) - 1)
_MOST_TIMES_TEN = np.uint64(((1 << 64) - 1) // 10 - 1)

_SMALLEST_POWER = -342
_LARGEST_POWER = 308
_LOW_9_BITS = np.uint64((1 << 9) - 1)
_BITS_BELOW_MANTISSA = np.uint64(64 - 52 - 3)
_HIDDEN_BIT = np.uint64(1 << 52)
_MANTISSA_END = np.uint64(1 << 53)


def _load_word(typing_context: Any, array: Any, index: Any) -> Any:
    """Return the eight bytes of a uint8 array that begin at an index, aligned or not."""

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


def _leading_zeros(typing_context: Any, word: Any) -> Any:
    """Return the number of zero bits above the highest one bit; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


_leading_zero_bits: Any = intrinsic(_leading_zeros)


def _multiply_high(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the upper 64 bits of a 128-bit product."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


_upper_product: Any = intrinsic(_multiply_high)


def is_blank(byte: int) -> bool:
    """Return True for a space or a tab."""
    return byte == SPACE or byte == _TAB  # noqa: PLR1714 (compiled: no tuple)


def skip_blanks(text: Any, at: int) -> int:
    """Return the first position from here on that is no blank."""
    while is_blank(text[at]):
        at += 1
    return at


def line_ends(text: Any, at: int) -> bool:
    """Return True if a line ends here: with a newline, or a carriage return before it."""
    if text[at] == RETURN:
        at += 1
    return bool(text[at] == NEWLINE)


def scan_id(text: Any, at: Any) -> Any:
    """Return the unsigned number at a position and the position behind it; a negative number if there is
    none, or one that does not fit int64.
    """
    value, after = _scan_digits(text, at)
    if after == at:
        return np.int64(NO_ID), at
    return (np.int64(value) if value <= _MOST_SIGNED else np.int64(_TOO_LARGE)), after


def scan_word(text: Any, at: Any) -> Any:
    """Return a word (position and length in one number) and the position behind it; NO_ID if there is
    none, or one that is too long.
    """
    begin = at
    while not is_blank(text[at]) and text[at] != _COMMA and text[at] > RETURN:
        at += 1
    length = at - begin
    if length == 0 or length >= (1 << WORD_LENGTH_BITS):
        return np.int64(NO_ID), at
    return np.int64(begin) << WORD_LENGTH_BITS | np.int64(length), at


def scan_integer(text: Any, at: int) -> Any:
    """Return a signed integer, the position behind it, and FINE, MALFORMED, WIDE or FRACTION."""
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    value, after = _scan_digits(text, at)
    none = after == at
    byte = text[after]
    if byte == _POINT or _lower(byte) == _LOWER_E or (none and _begins_inf_or_nan(byte)):
        return np.int64(0), after, FRACTION
    if none:
        return np.int64(0), after, MALFORMED
    if value > _MOST_SIGNED + (_1 if negative else _0):
        return np.int64(0), after, WIDE
    return np.int64(_0 - value if negative else value), after, FINE


def scan_real(text: Any, at: int, powers: Any) -> Any:
    """Return the bits of the double nearest to a decimal number, or HARD + its position, and the position
    behind it; -1 for the latter if there is no number.

    :param powers: :func:`powers_of_five`
    """
    begin = at
    negative = text[at] == _MINUS
    if negative or text[at] == _PLUS:
        at += 1
    if _begins_inf_or_nan(text[at]):  # Python decides what the word is
        while _lower(text[at]) >= 97 and _lower(text[at]) <= 122:
            at += 1
        return np.int64(HARD) + begin, at
    mantissa = np.uint64(0)
    digits = 0  # significant ones, in the mantissa
    dropped = 0
    power: Any = 0
    first = at
    while _is_digit(text[at]):
        if digits < _MOST_MANTISSA_DIGITS:
            mantissa = mantissa * _TEN + np.uint64(text[at] - _ZERO)
            digits += 1 if mantissa != np.uint64(0) else 0
        else:
            dropped += 1
            power += 1
        at += 1
    has_digits = at > first
    if text[at] == _POINT:
        at += 1
        first = at
        while digits + 8 <= _MOST_MANTISSA_DIGITS:
            word = load_word(text, at) ^ _EIGHT_ZEROS
            if ((word + _TEN_TO_HIGH_BIT) | word) & _HIGH_BITS != np.uint64(0):
                break
            mantissa = mantissa * _TEN_TO_8 + _eight_digits(word)
            digits += 8  # leading zeros too: rather too many than too few
            power -= 8
            at += 8
        while _is_digit(text[at]):
            if digits < _MOST_MANTISSA_DIGITS:
                mantissa = mantissa * _TEN + np.uint64(text[at] - _ZERO)
                digits += 1 if mantissa != np.uint64(0) else 0
                power -= 1
            else:
                dropped += 1
            at += 1
        has_digits = has_digits or at > first
    if not has_digits:
        return np.int64(0), np.int64(-1)
    if _lower(text[at]) == _LOWER_E:
        at += 1
        downwards = text[at] == _MINUS
        if downwards or text[at] == _PLUS:
            at += 1
        unsigned, after = _scan_digits(text, at)
        if after == at:
            return np.int64(0), np.int64(-1)
        at = after
        exponent = np.int64(min(unsigned, np.uint64(1 << 40)))
        power += -exponent if downwards else exponent
    bits = _double_bits(mantissa, power, powers)
    if dropped > 0 and bits != _double_bits(mantissa + _1, power, powers):
        bits = np.int64(HARD)
    if bits == np.int64(HARD):
        return np.int64(HARD) + begin, at
    if negative:
        bits |= np.int64(-(1 << 63))
    return bits, at


@cache
def powers_of_five() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the leading 128 bits of 5^q, q = -342 .. 308: uint64 (1302), upper and lower word in turn.

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


def _double_bits(w: Any, q: int, powers: Any) -> Any:
    """Return the bits (int64) of the double nearest to w * 10^q, or HARD.

    :param w: uint64
    """
    if w == _0:
        return np.int64(0)
    if q < _SMALLEST_POWER or q > _LARGEST_POWER:
        return np.int64(HARD)
    zeros = _leading_zero_bits(w)
    w = w << zeros
    at = 2 * (q - _SMALLEST_POWER)
    low = w * powers[at]
    high = _upper_product(w, powers[at])
    if high & _LOW_9_BITS == _LOW_9_BITS:  # the rest of the power may carry into the mantissa
        more = _upper_product(w, powers[at + 1])
        low = low + more
        if more > low:
            high = high + _1
    upper = high >> _63
    shift = upper + _BITS_BELOW_MANTISSA
    mantissa = high >> shift
    exponent = ((217706 * q) >> 16) + 63 + 1023 + np.int64(upper) - np.int64(zeros)
    if exponent <= 0:
        return np.int64(HARD)
    # Exactly half way between two doubles, which only small powers can be: round to even.
    if low <= _1 and q >= -4 and q <= 23 and mantissa & _3 == _1 and mantissa << shift == high:
        mantissa = mantissa & ~_1
    mantissa = (mantissa + (mantissa & _1)) >> _1
    if mantissa >= _MANTISSA_END:
        mantissa = _HIDDEN_BIT
        exponent += 1
    if exponent >= 0x7FF:
        return np.int64(HARD)
    return np.int64(mantissa & ~_HIDDEN_BIT) | (exponent << 52)


def _scan_digits(text: Any, at: Any) -> Any:
    """Return the unsigned number at a position (uint64) and the position behind it, the same one if there
    is no digit. Of numbers that do not fit the largest comes back, or nearly.
    """
    word = load_word(text, at) ^ _EIGHT_ZEROS
    # The lowest byte that is no digit is marked by its high bit (higher ones may be marked wrongly,
    # by a carry).
    marks = ((word + _TEN_TO_HIGH_BIT) | word) & _HIGH_BITS
    digits = trailing_zero_bits(marks) >> _3
    if digits == np.uint64(0):
        return np.uint64(0), at
    value = np.uint64(_eight_digits(word << (_64 - digits * _8)))
    at += np.int64(digits)
    if digits == _8:
        while _is_digit(text[at]):
            if value <= _MOST_TIMES_TEN:
                value = value * _TEN + np.uint64(text[at] - _ZERO)
            else:
                value = _MOST
            at += 1
    return value, at


def _eight_digits(word: Any) -> Any:
    """Return the number whose eight digits (0 to 9, not characters) are the bytes of a word."""
    word = word * _TEN + (word >> _8)
    upper = (word & _PAIRS) * _PAIR_WEIGHTS_1
    lower = ((word >> _16) & _PAIRS) * _PAIR_WEIGHTS_2
    return (upper + lower) >> _32


def _is_digit(byte: int) -> bool:
    return byte >= _ZERO and byte < _ZERO + 10


def _lower(byte: int) -> int:
    return byte | 32


def _begins_inf_or_nan(byte: int) -> bool:
    lower = _lower(byte)
    return lower == 105 or lower == 110  # noqa: PLR1714 ('i', 'n')
