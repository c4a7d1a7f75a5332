"""Checks in compiled operators: an index out of bounds, a division by zero and their like raise.

Numba trusts indices, and leaves undefined what hardware does with a shift by 64 bits or with ``int(nan)``.
A function that a user wrote is compiled with :class:`Checks` in front of the operations that Python checks:
what fails is reported (by which function, at which vertex), and raises as in Python. Code without such
operations is the same as without the checks, but for sums that wrap around (:class:`_Wrapping`).
"""

from __future__ import annotations

import ctypes
import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils
from numba.core.callconv import NumpyErrorModel
from numba.core.cpu import CPUContext
from numba.core.errors import UnsupportedError


class Fault(IntEnum):
    """Kinds of failures that compiled code cannot raise as Python does."""

    NONE = 0
    INDEX = 1
    DIVISION = 2
    QUOTIENT = 3
    SHIFT = 4
    CONVERSION = 5
    POWER = 6
    EXCEPTION = 7


_EXCEPTIONS: dict[Fault, type[Exception]] = {
    Fault.INDEX: IndexError,
    Fault.DIVISION: ZeroDivisionError,
    Fault.QUOTIENT: OverflowError,
    Fault.SHIFT: ValueError,
    Fault.CONVERSION: ValueError,
    Fault.POWER: ValueError,
    Fault.EXCEPTION: RuntimeError,
}


@dataclass(frozen=True)
class FaultRecord:
    """The first fault of a run.

    :param function: number of the user's function, in the order in which an entry was rebuilt; see
        :func:`number_function`
    :param value: the index, the number of bits, or the bits of the float64 that failed
    :param limit: the length, or the bits of the integer
    :param vertex: the argument ``vertex`` of the function; -1 if it takes none
    """

    fault: Fault
    function: int
    value: int
    limit: int
    vertex: int

    @property
    def exception(self) -> type[Exception]:
        """The class of the exception that Python raises there."""
        return _EXCEPTIONS[self.fault]

    def message(self) -> str:
        """Return what failed, in words."""
        what = {
            Fault.INDEX: f"index {self.value} is out of bounds for length {self.limit}",
            Fault.DIVISION: "integer division or modulo by zero",
            Fault.QUOTIENT: f"the quotient does not fit {self.limit} bits",
            Fault.SHIFT: f"shift by {self.value} bits of an integer of {self.limit}",
            Fault.CONVERSION: f"{_float_of_bits(self.value)} does not fit an integer of {self.limit} bits",
            Fault.POWER: f"an integer to the power of {self.value}",
        }.get(self.fault, "an exception")
        at = f" at vertex {self.vertex}" if self.vertex >= 0 else ""
        return f"{self.exception.__name__}: {what}{at}"


def _float_of_bits(bits: int) -> float:
    return ctypes.c_double.from_buffer(ctypes.c_int64(bits)).value


_local = threading.local()


def _keep_record(fault: int, function: int, value: int, limit: int, vertex: int) -> None:
    """Keep a reported fault; compiled code calls this, and then raises in the same thread."""
    _local.record = FaultRecord(Fault(fault), function, value, limit, vertex)


_NOTE = "godwit_note_fault"
_note = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(_keep_record)
llvmlite.binding.add_symbol(_NOTE, ctypes.cast(_note, ctypes.c_void_p).value)


def take_fault(error: BaseException) -> FaultRecord | None:
    """Return the fault that this thread's compiled code reported with an error, once; else None."""
    record: FaultRecord | None = getattr(_local, "record", None)
    _local.record = None
    return record if record is not None and type(error) is record.exception else None


def number_function(rebuilt: Any, number: int) -> None:
    """Give a rebuilt function the number by which its faults are reported."""
    rebuilt.godwit_number = number


_INT = ir.IntType(64)
_DIVISIONS = (operator.floordiv, operator.ifloordiv)
_REMAINDERS = (operator.mod, operator.imod)
_SHIFTS = (operator.lshift, operator.ilshift, operator.rshift, operator.irshift)
_POWERS = (operator.pow, operator.ipow, pow)
_SUMS = (
    operator.add, operator.iadd, operator.sub, operator.isub, operator.mul, operator.imul,
)  # fmt: skip
_ACCESSES = (operator.getitem, operator.setitem, "static_getitem", "static_setitem")


class OperatorErrors(NumpyErrorModel):  # type: ignore[misc, unused-ignore]
    """Error model: integer divisions by zero raise; floating-point ones are NumPy's."""

    def __init__(self, context: Any) -> None:
        super().__init__(context.raises)  # type: ignore[no-untyped-call, unused-ignore]
        self._context = context

    def fp_zero_division(self, builder: Any, exc_args: Any = None, loc: Any = None) -> bool:
        """Raise if the division is one of integers; return whether it does."""
        if not exc_args or not exc_args[0].startswith("integer"):
            return False
        self._context.fail(builder, Fault.DIVISION, _INT(0), _INT(0))
        return True


class Checks:
    """Mixin of Numba's contexts: tests in front of what Python checks and Numba does not."""

    types: Any = numba.types
    """Numba's module of types; Numba for GPUs has one of its own."""
    raises: Any = None
    """What raises an exception in compiled code: Numba's calling convention."""
    number: int
    """Number of the function that is compiled, by which reports name it."""

    def report(self, builder: Any, *values: Any) -> None:
        """Report a fault: five int64, as :class:`FaultRecord` has them."""
        raise NotImplementedError

    def fail(self: Any, builder: Any, fault: Fault, value: Any, limit: Any) -> None:
        """Report, and raise."""
        vertex: Any = _INT(-1)
        for argument in builder.function.args:
            if argument.name in ("arg.vertex", "vertex") and isinstance(argument.type, ir.IntType):
                widen = builder.zext if argument.type.width < 64 else builder.bitcast
                vertex = widen(argument, _INT)
        self.report(builder, _INT(fault), _INT(self.number), value, limit, vertex)
        self.raises.return_user_exc(builder, _EXCEPTIONS[fault], (fault.name.lower(),))

    def get_function(self: Any, fn: Any, sig: Any, *given: Any, **named: Any) -> Any:
        """Return Numba's implementation behind the checks that it needs."""
        implementation = super().get_function(fn, sig, *given, **named)  # type: ignore[misc]
        function = getattr(fn, "typing_key", fn)
        if function in _SUMS:
            return _Wrapping(implementation)
        check = _check_for(self.types, function, sig)
        return implementation if check is None else _Checked(self, implementation, check)

    def cast(self: Any, builder: Any, val: Any, fromty: Any, toty: Any) -> Any:
        """Convert; a floating-point number that the integer cannot hold raises."""
        integer = self.types.unliteral(toty)
        if isinstance(fromty, self.types.Float) and isinstance(integer, self.types.Integer):
            _require_integer(self, builder, val, integer)
        return super().cast(builder, val, fromty, toty)  # type: ignore[misc]


class _Changed:
    """Wrapper of an implementation of Numba's, with its attributes."""

    def __init__(self, implementation: Any) -> None:
        self._implementation = implementation

    def __getattr__(self, name: str) -> Any:
        if name == "_implementation":  # of a copy that is being made: it has nothing yet
            raise AttributeError(name)
        return getattr(self._implementation, name)


class _Checked(_Changed):
    """An implementation behind a check."""

    def __init__(self, context: Any, implementation: Any, check: Callable[..., Any]) -> None:
        super().__init__(implementation)
        self._context = context
        self._check = check

    def __call__(self, builder: Any, args: Any, loc: Any = None) -> Any:
        return self._implementation(builder, self._check(self._context, builder, args), loc)


class _Wrapping(_Changed):
    """A sum or a product that wraps around.

    Numba declares that sums of signed integers do not overflow (``nsw``), from which LLVM concludes that
    ``x + 1 > x`` always holds.
    """

    def __call__(self, builder: Any, args: Any, loc: Any = None) -> Any:
        value = self._implementation(builder, args, loc)
        if "nsw" in getattr(value, "flags", ()):
            value.flags = [flag for flag in value.flags if flag != "nsw"]
        return value


def _check_for(types: Any, function: Any, signature: Any) -> Callable[..., Any] | None:
    """Return a function that checks, and may change, the arguments of a call; None if none is needed."""
    kinds = [types.unliteral(kind) for kind in signature.args]
    integers = len(kinds) == 2 and all(isinstance(kind, types.Integer) for kind in kinds)
    result = types.unliteral(signature.return_type)
    if function in _ACCESSES and kinds:
        if isinstance(kinds[0], types.NumpyFlatType):
            raise UnsupportedError("items of a.flat cannot be indexed; index the array itself")
        if isinstance(kinds[0], types.Buffer) and not isinstance(function, str):
            return lambda *call: _check_index(kinds, *call)
    elif integers and isinstance(result, types.Integer):
        if function in _DIVISIONS and result.signed:
            return lambda *call: _check_quotient(kinds, result, *call)
        if function in _REMAINDERS and result.signed:
            return lambda *call: _safe_remainder(kinds, *call)
        if function in _SHIFTS:
            return lambda *call: _check_shift(kinds, result, *call)
        if function in _POWERS and kinds[1].signed:
            return lambda *call: _check_power(kinds, *call)
    elif (
        len(kinds) == 1 and isinstance(kinds[0], types.Float) and isinstance(result, types.Integer)
    ):
        return lambda *call: _check_conversion(kinds, result, *call)
    return None


def _unless(context: Any, builder: Any, holds: Any, fault: Fault, value: Any, limit: Any) -> None:
    """Fail where a condition does not hold."""
    with cgutils.if_unlikely(builder, builder.not_(holds)):
        context.fail(builder, fault, value, limit)


def _value(builder: Any, value: Any, kind: Any) -> Any:
    """Return an integer as int64; uint64 from 2^63 on become negative, and are out of bounds, too."""
    if isinstance(value, int):
        return _INT(value)
    width = value.type.width
    if width == 64:
        return value
    return (builder.sext if kind.signed else builder.zext)(value, _INT)


def _check_index(kinds: Any, context: Any, builder: Any, args: Any) -> Any:
    """Check the integers of an index; they count from the end where they are negative."""
    array = context.make_array(kinds[0])(context, builder, args[0])
    shape = cgutils.unpack_tuple(builder, array.shape, kinds[0].ndim)
    types = context.types
    parts = [(kinds[1], args[1])]
    if isinstance(kinds[1], types.BaseTuple):
        parts = list(zip(kinds[1].types, cgutils.unpack_tuple(builder, args[1]), strict=True))
    for length, (kind, value) in zip(shape, parts, strict=False):
        plain = types.unliteral(kind)
        if isinstance(plain, types.Integer):
            index = _value(builder, value, plain)
            wrapped = index
            if plain.signed:
                is_negative = builder.icmp_signed("<", index, _INT(0))
                wrapped = builder.select(is_negative, builder.add(index, length), index)
            holds = builder.icmp_unsigned("<", wrapped, length)
            _unless(context, builder, holds, Fault.INDEX, index, length)
        elif not isinstance(plain, types.SliceType):
            break  # the axes of further indices are not known here; Numba checks these itself
    return args


def _check_quotient(kinds: Any, result: Any, context: Any, builder: Any, args: Any) -> Any:
    """Refuse the lowest integer divided by -1, which traps on processors."""
    left, right = (
        context.cast(builder, value, kind, result) for value, kind in zip(args, kinds, strict=True)
    )
    lowest = builder.icmp_signed("==", left, left.type(-(1 << (result.bitwidth - 1))))
    negates = builder.icmp_signed("==", right, right.type(-1))
    holds = builder.not_(builder.and_(lowest, negates))
    _unless(context, builder, holds, Fault.QUOTIENT, _INT(0), _INT(result.bitwidth))
    return args


def _safe_remainder(kinds: Any, context: Any, builder: Any, args: Any) -> Any:
    """Divide by 1 instead of -1: both leave 0, and the lowest integer does not trap."""
    left, right = args
    if isinstance(right, int) or not kinds[1].signed:
        return args
    negates = builder.icmp_signed("==", right, right.type(-1))
    return left, builder.select(negates, right.type(1), right)


def _check_shift(kinds: Any, result: Any, context: Any, builder: Any, args: Any) -> Any:
    """Refuse shifts by less than 0 bits, and by the integer's number of bits or more."""
    bits = _value(builder, args[1], kinds[1])
    holds = builder.icmp_unsigned("<", bits, _INT(result.bitwidth))
    _unless(context, builder, holds, Fault.SHIFT, bits, _INT(result.bitwidth))
    return args


def _check_power(kinds: Any, context: Any, builder: Any, args: Any) -> Any:
    """Refuse powers of integers whose exponent is negative."""
    exponent = _value(builder, args[1], kinds[1])
    holds = builder.icmp_signed(">=", exponent, _INT(0))
    _unless(context, builder, holds, Fault.POWER, exponent, _INT(0))
    return args


def _check_conversion(kinds: Any, result: Any, context: Any, builder: Any, args: Any) -> Any:
    """Refuse conversions to integers that cannot hold the value."""
    _require_integer(context, builder, args[0], result)
    return args


def _require_integer(context: Any, builder: Any, value: Any, integer: Any) -> None:
    """Fail where a floating-point number, without its fraction, does not fit an integer type."""
    bits, signed = integer.bitwidth, integer.signed
    wide = value
    if not isinstance(value.type, ir.DoubleType):
        wide = builder.fpext(value, ir.DoubleType())
    # Both limits are exact where the lower one is a power of two; for fewer bits, one below it is.
    low = -(2.0 ** (bits - 1)) if signed else 0.0
    high = 2.0 ** (bits - 1) if signed else 2.0**bits
    if bits < 54 or not signed:
        above = builder.fcmp_ordered(">", wide, wide.type(low - 1.0))
    else:
        above = builder.fcmp_ordered(">=", wide, wide.type(low))
    holds = builder.and_(above, builder.fcmp_ordered("<", wide, wide.type(high)))
    _unless(context, builder, holds, Fault.CONVERSION, builder.bitcast(wide, _INT), _INT(bits))


class CheckedContext(Checks, CPUContext):  # type: ignore[misc, unused-ignore]
    """Numba's context of the CPU with checks."""

    def report(self, builder: Any, *values: Any) -> None:
        """Call :func:`_keep_record`."""
        kind = ir.FunctionType(ir.VoidType(), [_INT] * 5)
        builder.call(cgutils.get_or_insert_function(builder.module, kind, _NOTE), values)


def checked(context: Any, checked_class: type[Any], call_conv: Any, function: Any) -> Any:
    """Make the context of one function's compilation check what users' functions do."""
    context.__class__ = checked_class
    context.raises = call_conv
    context.number = getattr(function, "godwit_number", 0)
    context.enable_boundscheck = True
    context.error_model = OperatorErrors(context)
    return context
