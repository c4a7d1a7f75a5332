"""Atomic operations on elements of NumPy arrays, for code compiled by Numba.

Numba offers atomics for GPUs only; here they are LLVM instructions. ``relaxed`` operations order
nothing else, ``acquire``/``release`` pair up as in C++11. Plain loads in a spin loop are hoisted out
of it by LLVM: a word that another thread writes must be read by one of these.

All take ``(array, index)`` of a C-contiguous one-dimensional array of 4- or 8-byte numbers, and
trust the index. ``fetch_min`` and its kin return the old value, as the hardware does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def untyped_intrinsic(define: Callable[..., Any]) -> Any:
    """Return ``define`` as an intrinsic of Numba, typed Any: callers do not pass the typing context."""
    return intrinsic(define)


def _element_pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    view = context.make_array(array_type)(context, builder, array)
    return cgutils.get_item_pointer(
        context, builder, array_type, view, [index], wraparound=False, boundscheck=False
    )


def _integer_type(array_type: Any) -> Any:
    return ir.IntType(array_type.dtype.bitwidth)


@untyped_intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """Return the element by a plain load; unlike ``array[index]``, without Python's negative indices."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_element_pointer(context, builder, array, arguments[0], arguments[1]))

    return array.dtype(array, types.intp), generate


@untyped_intrinsic
def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Set the element by a plain store, without Python's negative indices."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(
            arguments[2], _element_pointer(context, builder, array, arguments[0], arguments[1])
        )
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), generate


def _make_load(ordering: str, name: str) -> Any:
    def load(typing_context: Any, array: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _element_pointer(context, builder, array, arguments[0], arguments[1])
            bits = _integer_type(array)
            pointer = builder.bitcast(pointer, bits.as_pointer())
            loaded = builder.load_atomic(pointer, ordering, bits.width // 8)
            return builder.bitcast(loaded, context.get_value_type(array.dtype))

        return array.dtype(array, types.intp), generate

    load.__name__ = load.__qualname__ = name
    load.__doc__ = f"The element, by an atomic load of {ordering} order."
    return untyped_intrinsic(load)


def _make_store(ordering: str, name: str) -> Any:
    def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _element_pointer(context, builder, array, arguments[0], arguments[1])
            bits = _integer_type(array)
            pointer = builder.bitcast(pointer, bits.as_pointer())
            builder.store_atomic(
                builder.bitcast(arguments[2], bits), pointer, ordering, bits.width // 8
            )
            return context.get_dummy_value()

        return types.void(array, types.intp, array.dtype), generate

    store.__name__ = store.__qualname__ = name
    store.__doc__ = f"Set the element, by an atomic store of {ordering} order."
    return untyped_intrinsic(store)


def _make_read_modify_write(operation: str, ordering: str, name: str) -> Any:
    def modify(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _element_pointer(context, builder, array, arguments[0], arguments[1])
            operand = arguments[2]
            floating = isinstance(array.dtype, types.Float)
            chosen = operation
            if floating and operation == "xchg":
                bits = _integer_type(array)
                pointer = builder.bitcast(pointer, bits.as_pointer())
                old = builder.atomic_rmw("xchg", pointer, builder.bitcast(operand, bits), ordering)
                return builder.bitcast(old, context.get_value_type(array.dtype))
            if floating:
                chosen = {"add": "fadd"}[operation]
            elif not array.dtype.signed and operation in ("min", "max"):
                chosen = "u" + operation
            return builder.atomic_rmw(chosen, pointer, operand, ordering)

        return array.dtype(array, types.intp, array.dtype), generate

    modify.__name__ = modify.__qualname__ = name
    modify.__doc__ = f"Atomic {operation} of {ordering} order; returns the old element."
    return untyped_intrinsic(modify)


load_relaxed = _make_load("monotonic", "load_relaxed")
load_acquire = _make_load("acquire", "load_acquire")
store_relaxed = _make_store("monotonic", "store_relaxed")
store_release = _make_store("release", "store_release")
exchange = _make_read_modify_write("xchg", "acq_rel", "exchange")
fetch_add = _make_read_modify_write("add", "acq_rel", "fetch_add")
fetch_or = _make_read_modify_write("or", "acq_rel", "fetch_or")
fetch_and = _make_read_modify_write("and", "acq_rel", "fetch_and")


@untyped_intrinsic
def compare_exchange(
    typing_context: Any, array: Any, index: Any, expected: Any, desired: Any
) -> Any:
    """Set the element to ``desired`` if it is bitwise ``expected``; return True if it was set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element_pointer(context, builder, array, arguments[0], arguments[1])
        bits = _integer_type(array)
        pair = builder.cmpxchg(
            builder.bitcast(pointer, bits.as_pointer()),
            builder.bitcast(arguments[2], bits),
            builder.bitcast(arguments[3], bits),
            "acq_rel",
            "monotonic",
        )
        return builder.extract_value(pair, 1)

    return types.boolean(array, types.intp, array.dtype, array.dtype), generate


@untyped_intrinsic
def prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of the element; never faults."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element_pointer(context, builder, array, arguments[0], arguments[1])
        byte_pointer = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte_pointer, word, word, word])
        function = cgutils.get_or_insert_function(
            builder.module, function_type, "llvm.prefetch.p0i8"
        )
        builder.call(function, [builder.bitcast(pointer, byte_pointer), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@untyped_intrinsic
def trailing_zero_bits(typing_context: Any, word: Any) -> Any:
    """Return the number of zero bits below the lowest one bit of a uint64; 64 for zero."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.IntType(1)(0))

    return types.uint64(types.uint64), generate


@untyped_intrinsic
def keep_rolled(typing_context: Any) -> Any:
    """Keep LLVM from unrolling the loop around, by assembly without instructions.

    A loop of few turns, as over a short row, is faster so: its end is a branch that is predicted badly, and
    an unrolled loop has two.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], True)
        return context.get_dummy_value()

    return types.void(), generate


_YIELD_SYMBOL = "SwitchToThread" if sys.platform == "win32" else "sched_yield"


@untyped_intrinsic
def yield_thread(typing_context: Any) -> Any:
    """Yield this core to another thread, as waiting loops do between two looks."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function_type = ir.FunctionType(ir.IntType(32), [])
        function = cgutils.get_or_insert_function(builder.module, function_type, _YIELD_SYMBOL)
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


def fetch_min(array: Any, index: int, value: Any) -> Any:
    """Lower the element to ``value`` if that is smaller; return the old element.

    A load comes first: most candidates do not improve, and a plain load leaves the cache line
    shared. NaN never improves.
    """
    old = load_relaxed(array, index)
    while value < old:
        if compare_exchange(array, index, old, value):
            return old
        old = load_relaxed(array, index)
    return old
