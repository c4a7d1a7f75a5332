"""What users' functions do wrong: an OperatorError on every engine, and nothing foreign is read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.dataflow.operators import push
from godwit.errors import OperatorError
from godwit.runtime.cuda import driver

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")

TABLE = np.arange(5, dtype=np.int64)
SQUARE = np.arange(12.0).reshape(3, 4)
RECORDS = np.zeros(3, [("x", "i4"), ("y", "f8")])
EMPTY = np.empty(0)
LOWEST = -(2**63)


def _fetched(index: int) -> int:
    return TABLE[index]


def _stepping(index: int) -> int:
    for number in range(0, 5, index - 10):
        return number
    return 0


def _raising(index: int) -> int:
    if index > 8:
        raise KeyError("too much")
    return index


def _catching(index: int) -> int:
    try:
        return TABLE[index]
    except Exception:
        return 77


def _writing(index: int) -> int:
    TABLE[index] = 3
    return index


def _calling_itself(index: int) -> int:
    return 1 if index < 0 else _calling_itself(index + 1)


# Functions of 10, or of whatever vertex or element it is made of.
FAULTS: list[tuple[Callable[[int], Any], str]] = [
    (lambda x: TABLE[x + 10**9], "IndexError: index 1000000010 is out of bounds for length 5"),
    (lambda x: TABLE[x - 5], "IndexError: index 5 is out of bounds for length 5"),
    (lambda x: TABLE[x - 16], "IndexError: index -6 is out of bounds for length 5"),
    (lambda x: TABLE[np.uint64(x)], "IndexError: index 10 is out of bounds for length 5"),
    (lambda x: TABLE[1:][x - 6], "IndexError: index 4 is out of bounds for length 4"),
    (lambda x: TABLE[::-1][x], "IndexError: index 10 is out of bounds for length 5"),
    (lambda x: EMPTY[x], "IndexError: index 10 is out of bounds for length 0"),
    (lambda x: SQUARE[x - 10, x - 6], "IndexError: index 4 is out of bounds for length 4"),
    (lambda x: SQUARE[x, 0], "IndexError: index 10 is out of bounds for length 3"),
    (lambda x: SQUARE[x - 10][x], "IndexError: index 10 is out of bounds for length 4"),
    (lambda x: SQUARE.T[x - 6, 0], "IndexError: index 4 is out of bounds for length 4"),
    (lambda x: SQUARE[:, x - 6][0], "IndexError: index 4 is out of bounds for length 4"),
    (lambda x: SQUARE[..., x][0], "IndexError: index"),
    (lambda x: SQUARE[x].sum(), "IndexError: index 10 is out of bounds for length 3"),
    (lambda x: RECORDS[x].x, "IndexError: index 10 is out of bounds for length 3"),
    (lambda x: TABLE[int(x * math.nan)], "ValueError: nan does not fit an integer of 64 bits"),
    (lambda x: (1, 2, 3)[x], "IndexError: tuple index out of range"),
    (lambda x: _fetched(x) + 0, "'_fetched'.*IndexError: index 10"),
    (lambda x: 1 // (x - 10), "ZeroDivisionError: integer division or modulo by zero"),
    (lambda x: 1 % (x - 10), "ZeroDivisionError"),
    (lambda x: divmod(1, x - 10)[1], "ZeroDivisionError"),
    (lambda x: (LOWEST + x - 10) // (9 - x), "OverflowError: the quotient does not fit 64 bits"),
    (lambda x: 1 << (x + 54), "ValueError: shift by 64 bits of an integer of 64"),
    (lambda x: 1 >> (x - 11), "ValueError: shift by -1 bits"),
    (lambda x: 2 ** (x - 11), "ValueError: an integer to the power of -1"),
    (lambda x: int(1.0 / (x - 10)), "ValueError: inf does not fit"),
    (lambda x: round(x * 1e300), "ValueError: 1e.301 does not fit"),
    (lambda x: np.int32(x * 1e9), "ValueError: 10000000000.0 does not fit an integer of 32 bits"),
    (lambda x: np.uint8(x - 11.0), "ValueError: -1.0 does not fit an integer of 8 bits"),
    (_stepping, "ValueError: range"),
    (_raising, "'_raising'.*KeyError: 'too much'"),
]  # fmt: skip

RESULTS: list[tuple[Callable[[int], Any], Any]] = [
    (lambda x: TABLE[x - 11], 4),
    (lambda x: TABLE[x - 15], 0),
    (lambda x: SQUARE[x - 8, x - 7], 11.0),
    (lambda x: TABLE[x:].sum(), 0),
    (lambda x: (LOWEST + x - 10) % (9 - x), 0),
    (lambda x: int(math.ldexp(-1.0, x + 53)), LOWEST),
    (lambda x: np.uint8(255.9 * x / 10), 255),
    (lambda x: np.int32(-2147483648.5 * x / 10), -(2**31)),
    (lambda x: 1.0 / (x - 10), math.inf),
    (_catching, 77),
]

LARGEST = np.array([2**63 - 1, 2**63 - 7, 2**62 + 1, 3, -(2**62) - 1, -(2**63)])

WRAPPING: list[Callable[[Any], Any]] = [  # where a compiler may assume that no sum overflows
    lambda x: x + 1 > x,
    lambda x: x - 1 < x,
    lambda x: x * 2 < 0,
    lambda x: x > 0 and x + x < 0,
    lambda x: x * x >= 0,
    lambda x: -x < 0,
    lambda x: _doubled(x) - x == x,
    lambda x: x**2 < 0,
]


def _doubled(x: Any) -> Any:
    x += x
    return x


REFUSED: list[tuple[Callable[[int], Any], str]] = [
    (_writing, "it writes to an array that it captures"),
    (_calling_itself, "'_calling_itself' calls itself, perhaps by others.*write a loop"),
    (lambda x: TABLE.flat[x], "items of a.flat cannot be indexed; index the array itself"),
    (lambda x: TABLE[x < TABLE].size, "cannot compile"),
    (lambda x: np.take(TABLE, x), "cannot compile"),
    (lambda x: np.lib.stride_tricks.as_strided(TABLE, (99,), (8,))[x], "cannot compile"),
    (lambda x: len(str(x)), "cannot compile"),
]


def _filtered(function: Callable[[int], Any], devices: Any = "cpu") -> Any:
    return gw.filter(np.full(3, 10), lambda x: function(x) > -math.inf, devices)


@pytest.mark.parametrize(("function", "words"), FAULTS)
def test_a_fault_is_an_operator_error(function: Callable[[int], Any], words: str) -> None:
    with pytest.raises(OperatorError, match=words) as caught:
        _filtered(function)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("function", "result"), RESULTS)
def test_what_python_computes_is_computed(function: Callable[[int], Any], result: Any) -> None:
    kept = gw.filter(np.full(3, 10), lambda x: function(x) == result, "cpu")
    assert len(kept) == 3


def _check_wrapping(function: Callable[[Any], Any], devices: str) -> None:
    with np.errstate(over="ignore"):
        exact = [value for value in LARGEST if function(value)]
    assert gw.filter(LARGEST, function, devices).tolist() == exact


@pytest.mark.parametrize("function", WRAPPING)
def test_sums_wrap_around_as_those_of_numpy(function: Callable[[Any], Any]) -> None:
    _check_wrapping(function, "cpu")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("function", WRAPPING)
def test_sums_wrap_around_as_those_of_numpy_on_a_gpu(function: Callable[[Any], Any]) -> None:
    _check_wrapping(function, "cuda:0")


@pytest.mark.parametrize(("function", "words"), REFUSED)
def test_what_is_not_compiled_is_refused(function: Callable[[int], Any], words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        _filtered(function)


def _vertices(operator: Callable[..., Any], devices: Any, execution: Any = "asynchronous") -> Any:
    program = gw.VertexProgram(name="reader", dtype="int64", combine="min", message=operator)
    graph = gw.generators.path(9)
    return gw.run(program, graph, {0: 0}, devices=devices, execution=execution).values


def _steps(*steps: Any, devices: Any = "cpu") -> Any:
    program = gw.StepProgram(
        name="reader", fields={"field": ("int64", 0)}, numbers={"number": ("int64", 5)}, steps=steps
    )
    return program.run(gw.generators.path(9), devices=devices)


READ = r"IndexError: index 5 is out of bounds for length 5"

ENGINES: dict[str, Callable[[Any], Any]] = {
    "asynchronous": lambda devices: _vertices(lambda value, vertex: TABLE[vertex] + value, devices),
    "supersteps": lambda devices: _vertices(
        lambda value, vertex: TABLE[vertex] + value, devices, "bulk-synchronous"
    ),
    "compute": lambda devices: _steps(
        gw.frontier.compute("field", lambda vertex: TABLE[vertex]), devices=devices
    ),
    "advance": lambda devices: _steps(
        gw.frontier.advance("field", lambda source: TABLE[source], "add", keep=lambda source: source < 6),
        devices=devices,
    ),
    "filter of vertices": lambda devices: _steps(
        gw.frontier.filter(lambda vertex: TABLE[vertex] >= 0), devices=devices
    ),
    "reduce": lambda devices: _steps(
        gw.frontier.reduce("number", lambda vertex: TABLE[vertex], "min"), devices=devices
    ),
    "assign": lambda devices: _steps(
        gw.frontier.assign("number", lambda number: TABLE[number]), devices=devices
    ),
    "until": lambda devices: _steps(
        gw.frontier.repeat(
            [gw.frontier.assign("number", lambda number: number)], until=lambda number: TABLE[number] > 9
        ),
        devices=devices,
    ),
    "filter": lambda devices: gw.filter(np.arange(6), lambda x: TABLE[x] >= 0, devices),
}  # fmt: skip


@pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]], ids=["threads", "two devices"])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_ends_with_an_operator_error(engine: str, devices: Any) -> None:
    with pytest.raises(OperatorError, match=READ):
        ENGINES[engine](devices)


@pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]], ids=["threads", "two devices"])
def test_the_vertex_is_named(devices: Any) -> None:
    with pytest.raises(OperatorError, match=rf"'message' \(.*{READ} at vertex 5$"):
        ENGINES["asynchronous"](devices)


def _counts(worklist: Any, state: Any, key: Any, value: Any) -> None:
    state[0][key] += 1
    push(worklist, state, key + 1, value)


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        ({}, r"'_counts' \(test_operator_faults.py, line \d+\) raised IndexError: index 3 .* 3$"),
        ({"owner": lambda key: 1 // key}, "owner fails for key 0: ZeroDivisionError"),
        ({"fanout": lambda key: 1 // (key - 2)}, "'fanout' .*ZeroDivisionError"),
    ],
)
def test_worklists_neither_write_nor_read_beyond_their_state(
    operators: dict[str, Any], words: str
) -> None:
    with gw.Context(devices=["cpu:0", "cpu:1"]) as context:
        worklist = gw.DistributedWorklist(
            gw.ItemRouter(context, "direct"),
            process=_counts,
            **{"owner": lambda key: 0, "fanout": 1, **operators},
        )
        with pytest.raises(OperatorError, match=words):
            worklist.run([(0, 1)], [(np.zeros(3, np.int64),) for _ in context.endpoints])


def test_a_run_after_a_fault_is_sound() -> None:
    """One compiled program, right and wrong by its parameters."""
    program = gw.VertexProgram(
        name="reader", dtype="int64", combine="min", parameters={"shift": 0},
        message=lambda value, vertex, shift: TABLE[(vertex + int(shift)) % 9] + value,
    )  # fmt: skip
    path = gw.generators.path(3)
    found = gw.run(program, path, {0: 0}, devices="cpu")
    with pytest.raises(OperatorError, match=re.escape("out of bounds for length 5")):
        gw.run(program, path, {0: 0}, devices="cpu", parameters={"shift": 5})
    again = gw.run(program, path, {0: 0}, devices="cpu")
    assert found.values.tolist() == again.values.tolist() == [0, 0, 1]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_ends_with_an_operator_error_on_a_gpu(engine: str) -> None:
    for _ in range(2):  # what the first run noted is not the second's
        with pytest.raises(OperatorError, match=READ):
            ENGINES[engine]("cuda:0")
    assert _vertices(lambda value, vertex: TABLE[vertex % 5] + value, "cuda:0")[1] == 0


_RAISES = (_raising, _stepping)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("function", "words"), [one for one in FAULTS if one[0] not in _RAISES])
def test_a_fault_on_a_gpu_is_an_operator_error(function: Callable[[int], Any], words: str) -> None:
    kind = words.partition(":")[0].rpartition("*")[2]
    with pytest.raises(OperatorError, match=rf"{kind}|RuntimeError: an exception|cannot compile"):
        _filtered(function, "cuda:0")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("function", "result"), RESULTS[:-1])
def test_what_python_computes_is_computed_on_a_gpu(
    function: Callable[[int], Any], result: Any
) -> None:
    kept = gw.filter(np.full(3, 10), lambda x: function(x) == result, "cuda:0")
    assert len(kept) == 3
