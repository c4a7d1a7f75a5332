"""Calls of C functions, and words of memory at an address, for code compiled by Numba.

Compiled code holds no lock of the interpreter, so threads in it copy memory and call the driver side by
side. Addresses of memory and of functions are int64; nothing is checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from godwit.runtime.cpu.atomics import untyped_intrinsic

_INT = ir.IntType(32)
_WORD = ir.IntType(64)
_WORD_BYTES = 8


@untyped_intrinsic
def call(typing_context: Any, function: Any, arguments: Any) -> Any:
    """Call the C function at an address with a tuple of int64, and return its int.

    Machines of 64 bits pass pointers, sizes and ints alike: in registers that a word fills.
    """

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        address, packed = given
        words = cgutils.unpack_tuple(builder, packed)
        kind = ir.FunctionType(_INT, [_WORD] * len(words))
        called = builder.call(builder.inttoptr(address, kind.as_pointer()), words)
        return builder.sext(called, _WORD)

    return types.int64(types.int64, types.UniTuple(types.int64, len(arguments))), generate


def _make_call(symbol: str, count: int, text: str) -> Any:
    """Return an intrinsic that calls a function of the C library with ``count`` int64."""

    def define(typing_context: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            words = cgutils.unpack_tuple(builder, given[0])
            kind = ir.FunctionType(_INT, [_WORD] * count)
            function = cgutils.get_or_insert_function(builder.module, kind, symbol)
            return builder.sext(builder.call(function, words), _WORD)

        return types.int64(types.UniTuple(types.int64, count)), generate

    define.__name__ = define.__qualname__ = symbol
    define.__doc__ = text
    return untyped_intrinsic(define)


clock_gettime = _make_call(
    "clock_gettime", 2, "Write seconds and nanoseconds of a clock to an address: (clock, address)."
)
usleep = _make_call("usleep", 1, "Let the thread sleep: (microseconds,).")
sem_init = _make_call(
    "sem_init", 3, "Make 32 bytes at an address a semaphore: (address, 0, its value)."
)
sem_post = _make_call("sem_post", 1, "Wake a thread that waits for a semaphore: (address,).")
sem_wait = _make_call(
    "sem_wait", 1, "Wait for :data:`sem_post`: (address,). Not 0 if a signal came."
)


@untyped_intrinsic
def copy_bytes(typing_context: Any, to: Any, origin: Any, nbytes: Any) -> Any:
    """Copy so many bytes from one address to another; they do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, "memcpy")
        builder.call(function, given)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@untyped_intrinsic
def load_word(typing_context: Any, address: Any) -> Any:
    """Return the int64 at an address, by an atomic load of acquire order."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pointer = builder.inttoptr(given[0], _WORD.as_pointer())
        return builder.load_atomic(pointer, "acquire", _WORD_BYTES)

    return types.int64(types.int64), generate


@untyped_intrinsic
def store_word(typing_context: Any, address: Any, value: Any) -> Any:
    """Set the int64 at an address, by an atomic store of release order."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pointer = builder.inttoptr(given[0], _WORD.as_pointer())
        builder.store_atomic(given[1], pointer, "release", _WORD_BYTES)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@untyped_intrinsic
def add_to_word(typing_context: Any, address: Any, value: Any) -> Any:
    """Add to the int64 at an address, by an atomic operation of acq_rel order; return its old value."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        pointer = builder.inttoptr(given[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, given[1], "acq_rel")

    return types.int64(types.int64, types.int64), generate
