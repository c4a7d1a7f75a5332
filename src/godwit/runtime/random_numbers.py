"""Random numbers that are functions of a vertex and a salt: the same on every device and in every run."""

from __future__ import annotations

import numpy as np

from godwit.errors import InputError, shown
from godwit.runtime.content import COMPILED_AS

_MASK = 0xFFFFFFFF
_FIRST, _SECOND = 0x7FEB352D, 0x5BD1E995  # below 2^31: products with 32-bit words fit 63 bits


def _mixed(word: int) -> int:
    """Return a word of 32 bits whose bits depend on all bits of another."""
    word ^= word >> 16
    word = (word * _FIRST) & _MASK
    word ^= word >> 15
    word = (word * _SECOND) & _MASK
    word ^= word >> 16
    return word


def _drawn(vertex: int, salt: int = 0) -> float:
    """Return the random number of a vertex and a salt."""
    seed = _mixed(_mixed((salt & _MASK) ^ 0x2545F491) ^ ((salt >> 32) & _MASK))
    word = _mixed(_mixed(seed ^ (vertex & _MASK)) ^ ((vertex >> 32) & _MASK))
    high = _mixed(word ^ 0x1B873593) >> 6
    low = _mixed(word ^ seed ^ 0x38495AB5) >> 6
    return (high * 67108864 + low) / 4503599627370496


def random(vertex: int, salt: int = 0) -> float:
    """Return a random number in [0, 1), float64, the same for a vertex and a salt whenever it is asked.

    Operators of vertex and step programs may call it, on all devices; so may Python.

    >>> import godwit as gw
    >>> gw.random(5) == gw.random(5), gw.random(5) == gw.random(5, salt=1)
    (True, False)

    :param vertex: an integer of 64 bits, such as a vertex or the number of an arc
    :param salt: an integer of 64 bits; each gives other numbers, such as one for each round of a program
    :raises InputError: they are no such integers; only if Python asks
    :returns: a multiple of 2^-52. By a hash of 32-bit words with multiplications and shifts, after C.
        Wellons, *Hash Prospector*; not for cryptography
    """
    for value, name in ((vertex, "vertex"), (salt, "salt")):
        if not isinstance(value, int | np.integer) or not -(2**63) <= value < 2**64:
            raise InputError(f"{name} must be an integer of 64 bits, got {shown(value)}")
    return _drawn(int(vertex), int(salt))


setattr(random, COMPILED_AS, _drawn)
