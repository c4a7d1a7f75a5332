"""What users' functions must not do is refused in a sentence; gw.random is the same everywhere."""

from __future__ import annotations

import gc
import math
import random
import re
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from random import random as drawn
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from emulated_grid_compiler import COMPILER
from godwit.errors import GodwitError, InputError, OperatorError, RunTimeoutError

GRAPH = gw.generators.path(5)
GENERATOR = np.random.default_rng(1)
ARRAY = np.zeros(5)
CALLS = 0


def _helper(value: float) -> float:
    return value + random.uniform(0, 1)


def _counts(value: float) -> float:
    global CALLS  # noqa: PLW0603
    CALLS += 1
    return value


def _imports(value: float) -> float:
    import math as inside

    return inside.sqrt(value)


def _writes(value: float) -> float:
    ARRAY[0] += value
    return value


def _run(message: Any, **options: Any) -> Any:
    program = gw.VertexProgram(
        name="x", dtype="float64", initial=np.inf, message=message, combine="min"
    )
    return gw.run(program, GRAPH, {0: 0.0}, **options)


REFUSED: dict[str, tuple[Any, str]] = {
    "an object's number": (
        lambda value: value + GRAPH.vertex_count,
        r"-> GRAPH is a Graph, which .* a number that is taken from it outside of the function",
    ),
    "random": (lambda value: value + random.random(), r"uses random\.random: .*gw\.random"),
    "from random": (lambda value: value + drawn(), r"uses drawn: .*gw\.random"),
    "numpy": (
        lambda value: value + np.random.random(),  # noqa: NPY002
        r"uses np\.random\.random: .*gw\.random",
    ),
    "generator": (lambda value: value + GENERATOR.random(), r"uses GENERATOR.*gw\.random"),
    "below": (lambda value: _helper(value) + 1, r"'_helper' .* uses random\.uniform"),
    "print": (lambda value: 1.0 if print(value) else value, r"uses print: .*parameters alone"),
    "time": (lambda value: value + time.time(), r"uses time\.time: .*parameters alone"),
    "global": (_counts, r"'_counts' .* writes CALLS"),
    "import": (_imports, r"'_imports' .* imports math; write the import above"),
    "array": (_writes, r"'_writes' .* writes to an array that it captures"),
    "attribute": (
        lambda value: math.sqroot(value) + 1,  # type: ignore[attr-defined]
        r"line \d+\) uses math\.sqroot: module 'math' has no attribute",
    ),
    "tuple": (lambda value: (value, 1), r"returns a tuple; an? (operator|predicate) returns"),
    "text": (lambda value: f"{value}", r"returns a text; an? (operator|predicate) returns"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    message, text = REFUSED[name]
    with pytest.raises(OperatorError, match=text) as caught:
        _run(message)
    assert "test_operators_of_users.py, line" in str(caught.value)
    with pytest.raises(OperatorError, match=text):
        gw.filter(np.arange(3.0), message)


@pytest.mark.parametrize(
    "message",
    [lambda value: valu + 1, lambda value: "text", lambda value: [value], lambda value: (value,)],  # type: ignore[name-defined] # noqa: F821
)
def test_tracebacks_are_short(message: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines() -> int:
        try:
            _run(message)
        except GodwitError as error:
            return len(traceback.format_exception(error))
        raise AssertionError("nothing was raised")

    assert lines() <= 6
    monkeypatch.setenv("GODWIT_FULL_TRACEBACK", "1")
    assert lines() > 10


def test_causes_of_other_errors_stay(tmp_path: Any) -> None:
    with pytest.raises(GodwitError) as caught:
        gw.read(tmp_path / "missing.csv")
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(InputError) as refused:
        gw.bfs(GRAPH, 99)
    assert len(traceback.extract_tb(refused.value.__traceback__)) == 2


def test_errors_keep_no_arguments() -> None:
    graph = gw.generators.path(3)
    kept = weakref.ref(graph)
    gc.disable()
    try:
        with suppress(InputError):
            gw.bfs(graph, 99)
        del graph
        assert kept() is None
    finally:
        gc.enable()


def test_random_numbers_are_uniform_and_differ() -> None:
    numbers = np.array([gw.random(v, salt) for salt in range(4) for v in range(5000)])
    assert len(np.unique(numbers)) == len(numbers)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.histogram(numbers, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 45  # chi-squared of 19 degrees, one in 1,000
    first, second = numbers[:5000], numbers[5000:10000]
    for other in (second, np.roll(first, 1)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.05
    extremes = [0, 1, -1, 2**31, 2**32, 2**62, -(2**63), 2**63 - 1]
    assert len({gw.random(v, s) for v in extremes for s in extremes}) == 64


DRAW = gw.StepProgram(
    name="draw",
    fields={"number": ("float64", 0.0)},
    numbers={"salt": ("int64", 7)},
    steps=[gw.frontier.compute("number", lambda vertex, salt: gw.random(vertex, salt) + 0.0)],
)


def test_random_numbers_in_operators() -> None:
    expected = [gw.random(v, 7) for v in range(GRAPH.vertex_count)]
    for devices in ("cpu", ["cpu:0", "cpu:1"]):
        assert DRAW.run(GRAPH, devices=devices).fields["number"].tolist() == expected
    found = _run(lambda vertex: gw.random(vertex, 3)).values
    assert found[1] == min(gw.random(0, 3), gw.random(2, 3))


def test_random_numbers_compile_for_gpus() -> None:
    pytest.importorskip("numba_cuda", reason="no compiler of operators for GPUs")
    from godwit.runtime.cuda.operators import DeviceFunction, compile_function

    function = DeviceFunction("f", lambda vertex: gw.random(vertex, 3), (np.dtype("int64"),))
    assert "double" in compile_function(function, "90").prototype


@pytest.mark.skipif(COMPILER is None, reason="no g++ to emulate GPUs with")
def test_random_numbers_on_gpus() -> None:
    expected = [gw.random(v, 7) for v in range(GRAPH.vertex_count)]
    with emulated_gpus(2):
        found = DRAW.run(GRAPH, devices=["cuda:0", "cuda:1"]).fields["number"]
    assert found.tolist() == expected


ENDLESS = gw.VertexProgram(
    name="endless", dtype="int64", combine="min", message=lambda value: value - 1
)


@pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]])
def test_a_program_that_never_ends_is_ended(devices: Any) -> None:
    with pytest.raises(RunTimeoutError, match=r"within 5,000 items: .* max_items=") as caught:
        gw.run(ENDLESS, GRAPH, {0: 0}, devices=devices, max_items=5000)
    assert (
        int(re.findall(r"processed ([\d,]+) items", str(caught.value))[0].replace(",", "")) > 5000
    )
    with pytest.raises(InputError, match="max_items must be at least 1"):
        gw.run(ENDLESS, GRAPH, {0: 0}, max_items=0)


@pytest.mark.skipif(COMPILER is None, reason="no g++ to emulate GPUs with")
def test_a_program_that_never_ends_is_ended_on_gpus() -> None:
    with emulated_gpus(2), pytest.raises(RunTimeoutError, match="within 50 items"):
        gw.run(
            ENDLESS, GRAPH, {0: 0}, devices=["cuda:0", "cuda:1"], max_items=50,
            gpu=gw.GpuOptions(slice_s=0.01),
        )  # fmt: skip


def test_an_interruption_says_how_far_the_run_was() -> None:
    def interrupt(processed: int) -> None:  # where Ctrl-C arrives: in the thread that waits
        raise KeyboardInterrupt

    never = gw.frontier.repeat([gw.frontier.filter(lambda: False)], until=lambda size: size < 0)
    steps = gw.StepProgram("endless", fields={"a": ("int64", 0)}, steps=[never])
    runs: list[Callable[[], Any]] = [
        lambda: gw.run(ENDLESS, GRAPH, {0: 0}, progress=interrupt),
        lambda: steps.run(GRAPH, progress=interrupt),
    ]
    for run in runs:
        with pytest.raises(KeyboardInterrupt) as caught:
            run()
        assert "s and processed" in caught.value.__notes__[0]
        assert len(caught.traceback) <= 4
