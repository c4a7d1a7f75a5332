"""The hash XXH64, of bytes that come in pieces.

Source: Y. Collet, xxHash fast digest algorithm, section "XXH64 Algorithm Description".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.dtypes import frozen
from godwit.io.text.words import load_word
from godwit.runtime.cpu.compile import kernel

_STRIPE_BYTES = 32
_WORD_BITS = 64
_MODULUS = 1 << _WORD_BITS
_PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_P1, _P2 = np.uint64(_PRIMES[0]), np.uint64(_PRIMES[1])
_UP, _DOWN = np.uint64(31), np.uint64(_WORD_BITS - 31)


def _taken_in(lane: Any, word: Any) -> Any:
    lane += word * _P2
    return (lane << _UP | lane >> _DOWN) * _P1


@kernel
def _take_in(lanes: Any, content: Any) -> None:
    """Take whole stripes of content (uint8) into the four lanes (uint64)."""
    a, b, c, d = lanes[0], lanes[1], lanes[2], lanes[3]
    for at in range(0, content.size, _STRIPE_BYTES):
        a = _taken_in(a, load_word(content, at))
        b = _taken_in(b, load_word(content, at + 8))
        c = _taken_in(c, load_word(content, at + 16))
        d = _taken_in(d, load_word(content, at + 24))
    lanes[0], lanes[1], lanes[2], lanes[3] = a, b, c, d


class Xxh64:
    """XXH64, seed 0, of bytes that come in pieces."""

    def __init__(self) -> None:
        p1, p2, *_ = _PRIMES
        first = [(p1 + p2) % _MODULUS, p2, 0, -p1 % _MODULUS]
        self._lanes = np.array(first, np.uint64)
        self._size = 0
        self._rest = b""

    def update(self, piece: Any) -> None:
        """Take in the next bytes."""
        content = b"".join((self._rest, piece))
        self._size += len(content) - len(self._rest)
        whole = len(content) - len(content) % _STRIPE_BYTES
        self._rest = content[whole:]
        if whole:
            _take_in(self._lanes, frozen(np.frombuffer(content, np.uint8, whole)))

    def digest(self) -> int:
        """The hash of what has come so far."""
        p1, p2, p3, p4, p5 = _PRIMES
        lanes = self._lanes.tolist()
        if self._size < _STRIPE_BYTES:
            word = p5
        else:
            word = sum(map(_rotated, lanes, (1, 7, 12, 18))) % _MODULUS
            for lane in lanes:
                word = ((word ^ _rotated(lane * p2 % _MODULUS, 31) * p1) * p1 + p4) % _MODULUS
        word = (word + self._size) % _MODULUS
        rest = self._rest
        while len(rest) >= 8:
            part = _rotated(int.from_bytes(rest[:8], "little") * p2 % _MODULUS, 31) * p1 % _MODULUS
            word = (_rotated(word ^ part, 27) * p1 + p4) % _MODULUS
            rest = rest[8:]
        if len(rest) >= 4:
            part = int.from_bytes(rest[:4], "little") * p1 % _MODULUS
            word = (_rotated(word ^ part, 23) * p2 + p3) % _MODULUS
            rest = rest[4:]
        for byte in rest:
            word = _rotated(word ^ byte * p5 % _MODULUS, 11) * p1 % _MODULUS
        word = (word ^ word >> 33) * p2 % _MODULUS
        word = (word ^ word >> 29) * p3 % _MODULUS
        return word ^ word >> 32


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (_WORD_BITS - bits)) % _MODULUS
