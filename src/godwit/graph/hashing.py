"""Random numbers as a function of a counter, for compiled code: no state, so no order of threads.

``mix`` is the finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
generators, OOPSLA 2014, with Stafford's variant 13 constants): a bijection of 64-bit words in which
every bit of the input changes every bit of the output with probability near 1/2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import as_integer

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)


def mix(word: Any) -> Any:
    """A pseudorandom uint64 of a uint64."""
    word = word + _GAMMA
    word = (word ^ (word >> _S30)) * _FIRST
    word = (word ^ (word >> _S27)) * _SECOND
    return word ^ (word >> _S31)


def seed_word(seed: int) -> np.uint64:
    """Any integer as a seed of 64 bits; InputError if it is none."""
    return np.uint64(as_integer(seed, "seed") % 2**64)
