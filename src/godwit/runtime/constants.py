"""Check the constants of a user's function: compiled integers have 64 bits, Python's have any number.

Python folds ``2**62`` to a number but leaves ``2**70`` or ``10**400`` for later, and compiled code would
evaluate these modulo 2**64. Here constant expressions are evaluated exactly, from Numba's intermediate
representation of the function. What compiled code cannot hold or compute as Python does is refused.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numba.core import compiler, ir

from godwit.errors import OperatorError, shown
from godwit.runtime.content import Content, is_users, plain_function, references

_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
_SHIFTS = (operator.lshift, operator.rshift)
_COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
_IN_PLACE = {
    operator.itruediv: operator.truediv,
    operator.ifloordiv: operator.floordiv,
    operator.imod: operator.mod,
    operator.ilshift: operator.lshift,
    operator.irshift: operator.rshift,
    operator.ipow: operator.pow,
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
}
_FOLDED = (
    operator.add, operator.sub, operator.mul, operator.pow, operator.and_, operator.or_, operator.xor,
    *_DIVISIONS, *_SHIFTS,
)  # fmt: skip
_FOLDED_BITS = 4096
"""Bits of the largest integer that is computed here; a larger one does not fit in any case."""

_CHECKED: set[tuple[str, str]] = set()
"""Functions by content, with the dtype of their item: to hash one takes less time than to check it."""

_INT64 = range(-(2**63), 2**63)
_INT64_OR_UINT64 = range(-(2**63), 2**64)


class _NotConstantError(Exception):
    """The value of a variable is known only when compiled code runs."""


def check_constants(function: types.FunctionType, item: np.dtype[Any] | None = None) -> None:
    """Raise OperatorError if compiled code would change a constant of the function.

    Refused are integers beyond 64 bits, also as the value of a constant expression; constant expressions
    that Python cannot evaluate; divisions by a constant 0; shifts by a constant outside of 0 to 63.

    :param function: alone, without those that it calls
    :param item: the dtype of its argument: comparisons that would round the constant, or items, to float64
        are refused too, so that all comparisons of an item with a constant are exact
    """
    try:
        code = compiler.run_frontend(function)
    except Exception:  # what Numba does not support is reported when the function is compiled
        return
    constants = _Constants(code)
    for block in code.blocks.values():
        for statement in block.body:
            value = getattr(statement, "value", None)
            try:
                if isinstance(statement, ir.Assign) and isinstance(value, ir.Expr):
                    _check_expression(constants, value, item)
                elif isinstance(value, ir.Const | ir.Global | ir.FreeVar):
                    _require_64_bits(value.value)
            except ValueError as error:
                line = getattr(statement.loc, "line", function.__code__.co_firstlineno)
                name = function.__name__
                raise OperatorError(
                    f"cannot compile '{name}' ({_file_name(function)}, line {line}): {error}"
                ) from None


def with_exact_constants(function: Callable[..., Any], item: np.dtype[Any]) -> types.FunctionType:
    """Return a user's function of one item so that its constants are compared with items exactly.

    :raises OperatorError: as :func:`check_constants`, also of all functions of users that it calls
    """
    plain = plain_function(function)
    assert plain is not None
    made = _with_unsigned_constants(plain) if item == np.uint64 else plain
    content = Content({})
    content.visit(plain, plain.__name__)
    key = content.digest.hexdigest(), item.str
    if key in _CHECKED:
        return made
    waiting, checked = [made], {id(plain), id(made)}
    while waiting:
        plain = waiting.pop()
        check_constants(plain, item)
        for value in references(plain, {}).values():
            called = plain_function(value)
            if called is not None and id(called) not in checked and is_users(called):
                checked.add(id(called))
                waiting.append(called)
    _CHECKED.add(key)
    return made


def _file_name(function: types.FunctionType) -> str:
    return function.__code__.co_filename.replace("\\", "/").rpartition("/")[2]


class _Constants:
    """Exact values of the variables of a function."""

    def __init__(self, code: ir.FunctionIR) -> None:
        self._code = code
        self._known: dict[str, Any] = {}

    def value(self, variable: Any) -> Any:
        """Return the number, tuple of numbers or module that a variable is.

        :raises _NotConstantError: it is none
        :raises ValueError: compiled code cannot compute it as Python does
        """
        name = variable.name
        if name not in self._known:
            try:
                definition = self._code.get_definition(variable)
            except Exception:  # Numba's KeyError: it is assigned to in several places
                raise _NotConstantError from None
            self._known[name] = self._evaluate(definition)
        return self._known[name]

    def _evaluate(self, definition: Any) -> Any:
        if isinstance(definition, ir.Const | ir.Global | ir.FreeVar):
            return _known_value(definition.value)
        if isinstance(definition, ir.Var):
            return self.value(definition)
        if isinstance(definition, ir.Expr):
            if definition.op == "getattr" and isinstance(
                owner := self.value(definition.value), types.ModuleType
            ):
                return _known_value(getattr(owner, definition.attr, None))
            if definition.op == "unary":
                return self._unary(definition.fn, _plain(self.value(definition.value)))
            if definition.op in ("binop", "inplace_binop"):
                left, right = map(_plain, map(self.value, (definition.lhs, definition.rhs)))
                return _folded(_function(definition), left, right)
            if definition.op == "build_tuple":
                return tuple(map(self.value, definition.items))
        raise _NotConstantError

    def _unary(self, function: Any, value: Any) -> Any:
        by_name = {"-": operator.neg, "+": operator.pos, "~": operator.invert}
        operation = by_name.get(function, function)
        if operation not in by_name.values() or not isinstance(value, bool | int | float):
            raise _NotConstantError
        try:
            result = operation(value)
        except TypeError:  # ~0.5
            raise _NotConstantError from None
        _require_int64(value, result)
        return result


def _known_value(value: Any) -> Any:
    if isinstance(value, np.integer | np.floating | bool | int | float | tuple | types.ModuleType):
        return value
    raise _NotConstantError


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _function(expression: ir.Expr) -> Any:
    return _IN_PLACE.get(expression.fn, expression.fn)


def _folded(function: Any, left: Any, right: Any) -> int | float:
    """Return the value of a constant expression.

    :raises ValueError: it has none, or compiled code, which computes with int64, would get another
    """
    numbers = (bool, int, float)
    if function not in _FOLDED or not (isinstance(left, numbers) and isinstance(right, numbers)):
        raise _NotConstantError
    if isinstance(left, int) and isinstance(right, int):
        bits = 0
        if function is operator.pow and abs(left) > 1:
            bits = max(0, right) * (abs(left).bit_length() - 1)
        elif function is operator.lshift and left:
            bits = left.bit_length() + max(0, right)
        if bits > _FOLDED_BITS:
            raise ValueError(
                f"a constant expression has more than {_FOLDED_BITS} bits: compiled integers have 64"
            )
    try:
        value: int | float = function(left, right)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ValueError(f"a constant expression has no value ({error})") from None
    if isinstance(value, complex):
        raise ValueError("a constant expression has no real value")
    _require_int64(left, right, value)
    return value


def _require_int64(*values: int | float) -> None:
    """Raise ValueError unless operands and result of a constant expression fit in int64."""
    for value in values:
        _require_64_bits(value)
        if isinstance(value, int) and value not in _INT64:
            raise ValueError(
                f"a constant expression is computed with int64, which {shown(value)} exceeds: write its "
                "value as one number"
            )


def _require_64_bits(value: Any) -> None:
    """Raise ValueError if a value is an integer beyond int64 and uint64."""
    for item in value if isinstance(value, tuple) else ():
        _require_64_bits(item)
    if type(value) is not int or value in _INT64_OR_UINT64:
        return
    advice = f"every integer of 64 bits is {'below' if value > 0 else 'above'} it"
    with suppress(OverflowError):
        if abs(float(value)) > 2.0**64:
            advice = f"write {float(value)!r}"
    raise ValueError(f"the constant {shown(value)} does not fit in 64 bits; {advice}")


def _check_expression(
    constants: _Constants, expression: ir.Expr, item: np.dtype[Any] | None
) -> None:
    """Raise ValueError if compiled code would not compute what Python does."""
    if expression.op not in ("binop", "inplace_binop"):
        return
    function = _function(expression)
    values = []
    for variable in (expression.lhs, expression.rhs):
        try:
            values.append(constants.value(variable))
        except _NotConstantError:
            values.append(None)
    left, right = map(_plain, values)
    if left is not None and right is not None:
        with suppress(_NotConstantError):
            _folded(function, left, right)
    elif function in _DIVISIONS and isinstance(right, int | float) and right == 0:
        raise ValueError("it divides by the constant 0")
    elif function in _SHIFTS and isinstance(right, int) and right not in range(64):
        raise ValueError(f"it shifts by {shown(right)} bits; integers have 64")
    elif item is not None and (function in _COMPARISONS or function is operator.contains):
        constant = values[1] if left is None else values[0]
        for number in constant if isinstance(constant, tuple) else (constant,):
            _require_exact(number, item)


def _require_exact(constant: Any, item: np.dtype[Any]) -> None:
    """Raise ValueError if comparing items with the constant would round one of them to float64."""
    value, advice = _plain(constant), ""
    if isinstance(value, int) and item.kind == "f":
        if int(float(value)) != value:
            advice = f"write {float(value)!r}, or the float64 next to it"
    elif isinstance(value, float) and item.kind in "iu" and item.itemsize == 8:
        if 2.0**53 <= abs(value) <= 2.0**64:
            limits = np.iinfo(item)
            advice = f"write an integer such as {min(max(int(value), limits.min), limits.max)}"
    elif isinstance(value, int) and item.kind in "iu" and item.itemsize == 8 and value >= 2**53:
        is_unsigned = (
            constant.dtype.kind == "u" if isinstance(constant, np.integer) else value >= 2**63
        )
        if is_unsigned != (item.kind == "u"):
            advice = f"write numpy.{item}({value}) around the function"
            if value > np.iinfo(item).max:
                advice = f"every {item} is below it"
    if advice:
        raise ValueError(
            f"items of {item} compared with {shown(value)} would be rounded to float64: {advice}"
        )


def _with_unsigned_constants(function: types.FunctionType) -> types.FunctionType:
    """Return the function with large integers as numpy.uint64, which Numba compares exactly with uint64."""

    def unsigned(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(unsigned, value))
        return np.uint64(value) if type(value) is int and 2**53 <= value < 2**64 else value

    constants = tuple(map(unsigned, function.__code__.co_consts))
    changed = types.FunctionType(
        function.__code__.replace(co_consts=constants),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    changed.__kwdefaults__ = function.__kwdefaults__
    changed.__module__ = function.__module__
    return changed
