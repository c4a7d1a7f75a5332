"""Constants of compiled functions have Python's values, or are refused."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from fractions import Fraction
from random import Random
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.algorithms.filtering.predicate import ITEM_DTYPES
from godwit.errors import OperatorError
from godwit.runtime.constants import check_constants, with_exact_constants

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip
POWERS = (0, 7, 8, 15, 16, 24, 31, 32, 53, 63, 64, 70, 1024)
INTEGERS = [0, 300, 10**18, 10**19, 10**400] + [
    sign * 2**power + more for power in POWERS for more in (-1, 0, 1) for sign in (1, -1)
]
FLOATS = [-0.0, 0.1, 0.5, 1e300, 5e-324, math.inf, -math.inf, math.nan, sys.float_info.max] + [
    sign * math.nextafter(2.0**power, toward)
    for power in POWERS[:-1]
    for sign in (1, -1)
    for toward in (0.0, 2.0**power, math.inf)
]


def items_of(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Values at and around the limits of a dtype."""
    if dtype == np.bool_:
        return np.array([False, True])
    if dtype.kind == "f":
        floats = [*FLOATS, *(float(one) for one in INTEGERS if abs(one) < 2**1000)]
        with np.errstate(over="ignore"):
            return np.array(floats, dtype)
    limits = np.iinfo(dtype)
    near = {one for one in INTEGERS if limits.min <= one <= limits.max}
    return np.array(sorted(near | {limits.min, limits.min + 1, limits.max - 1, limits.max}), dtype)


def written(text: str, constant: Any) -> str:
    """An expression with a literal in the place of c."""
    literal = repr(constant).replace("inf", "1e999").replace("nan", "(1e999 - 1e999)")
    return text.replace("c", literal)


def exact(value: Any) -> Any:
    """A number that Python compares exactly with integers and fractions."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, float) and not math.isfinite(value) else Fraction(value)


@pytest.mark.parametrize("name", ITEM_DTYPES)
def test_comparisons_with_constants_are_exact_or_refused(name: str) -> None:
    dtype = np.dtype(name)
    random = Random(name)
    accepted: list[tuple[str, str, Any]] = []
    for constant in [*INTEGERS, *FLOATS]:
        comparison = random.choice(list(COMPARISONS))
        text = random.choice([f"c {comparison} x", f"x {comparison} c"])
        try:
            with_exact_constants(eval(f"lambda x: {written(text, constant)}"), dtype)
        except OperatorError:
            # What fits the items is never refused.
            assert abs(constant) >= 2**53
            assert dtype.itemsize == 8 or type(constant) is int
            is_integer = dtype.kind in "iu" and type(constant) is int
            assert not (is_integer and np.iinfo(dtype).min <= constant <= np.iinfo(dtype).max)
            continue
        accepted.append((text, comparison, constant))
    assert len(accepted) > 60
    chosen = random.sample(accepted, 24)
    terms = [f"({written(text, constant)})" for text, _, constant in chosen]
    predicate = eval(f"lambda x: {' ^ '.join(terms)}")
    items = items_of(dtype)
    keeps = []
    for item in items:
        values = (
            COMPARISONS[comparison](
                *(map(exact, (constant, item) if text[0] == "c" else (item, constant)))
            )
            for text, comparison, constant in chosen
        )
        keeps.append(sum(values) % 2 == 1)
    found = gw.filter(items, predicate, "cpu:0")
    assert np.array_equal(found, items[keeps], equal_nan=dtype.kind == "f"), chosen


LARGE, MOST, BEYOND = 2**70, 2**63 - 1, 2**63


def _power(x: Any) -> bool:
    exponent = 70
    return bool(x < 2**exponent)


def _calls(x: Any) -> bool:
    return _power(x) and x > 0


REFUSED = [
    (lambda x: x < 2**70, "1180591620717411303424 does not fit in 64 bits; write 1.1805916207174113e[+]21"),
    (lambda x: x > 10**400, "an integer of 1329 bits does not fit .* every integer of 64 bits is below it"),
    (lambda x: x > -(2**64), "every integer of 64 bits is above it"),
    (lambda x: x < 9**9**9, "more than 4096 bits"),
    (lambda x: x < 1 << 10**9, "more than 4096 bits"),
    (lambda x: x < LARGE, "1180591620717411303424 does not fit"),
    (lambda x: x < MOST + 1, "computed with int64, which 9223372036854775808 exceeds"),
    (lambda x: x > -BEYOND, "computed with int64, which 9223372036854775808 exceeds"),
    (lambda x: x < MOST * 8 // 16, "computed with int64|does not fit"),
    (lambda x: 0 < x < 2**64, "18446744073709551616 does not fit"),
    (lambda x: x in (1, 2**64), "18446744073709551616 does not fit"),
    (lambda x: x < 1 / 0, "has no value"),
    (lambda x: x < 10.0**400, "has no value"),
    (lambda x: x < (-MOST) ** 0.5, "has no real value"),
    (lambda x: x % 0 == 0, "divides by the constant 0"),
    (lambda x: x // 0 == 0, "divides by the constant 0"),
    (lambda x: x / 0.0 == 0, "divides by the constant 0"),
    (lambda x: int(x) << 64 > 0, "shifts by 64 bits"),
    (lambda x: int(x) >> -1 > 0, "shifts by -1 bits"),
    (_power, r"'_power' \(test_constants.py, line \d+\): the constant 1180591620717411303424"),
    (_calls, r"'_power' \(test_constants.py, line \d+\)"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_refused_constants(dtype: str) -> None:
    for predicate, message in REFUSED:
        with pytest.raises(OperatorError, match=message):
            gw.filter(np.arange(10, dtype=dtype), predicate, "cpu:0")


def test_constants_that_a_comparison_would_round() -> None:
    for dtype, predicate, message in (
        ("float64", lambda x: x < 2**53 + 1, "write 9007199254740992.0"),
        ("float32", lambda x: x in (1, 2**53 + 1), "write 9007199254740992.0"),
        ("int64", lambda x: x < 2.0**53, "write an integer such as 9007199254740992"),
        ("uint64", lambda x: x >= 2.0**64, "such as 18446744073709551615"),
        (
            "uint64",
            lambda x: x < MOST,
            r"write numpy.uint64\(9223372036854775807\) around the function",
        ),
        ("int64", lambda x: x < 2**63, "every int64 is below it"),
    ):
        with pytest.raises(OperatorError, match=message):
            gw.filter(np.arange(10, dtype=dtype), predicate, "cpu:0")


def test_other_operators_are_checked_too() -> None:
    program = gw.VertexProgram(
        name="large",
        dtype="int64",
        combine="min",
        message=lambda value, weight: value + weight + 2**70,
    )
    with pytest.raises(OperatorError, match="1180591620717411303424 does not fit in 64 bits"):
        gw.run(program, gw.generators.path(3), {0: 0}, devices="cpu:0")


def test_constants_of_usual_functions_are_accepted() -> None:
    def usual(x: Any) -> bool:
        total = 0
        for index in range(3):
            total += index * 2**40 % 7 - (MOST - 5) // 3
        return bool((x % 2 == 1) | (x << 3 >= total) | (x < 10.0**300) | (math.inf > x > -math.inf))

    assert isinstance(usual, FunctionType)
    check_constants(usual, np.dtype(np.int64))
