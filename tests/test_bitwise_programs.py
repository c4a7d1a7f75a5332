"""Programs that combine the bits of values: which of many sources reach each vertex, one bit each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import emulated_gpus
from emulated_grid_compiler import COMPILER
from godwit.errors import InputError
from godwit.runtime.cuda import driver
from graphs import graphs
from programs import GAINED, LOST
from step_programs import GAINED_BITS, LOST_BITS


def _bits_that_arrive(graph: gw.Graph, bits: Any) -> Any:
    """Return for each vertex the bits of all vertices that reach it, by a search from all."""
    found = bits.copy()
    waiting = list(range(graph.vertex_count))
    while waiting:
        vertex = waiting.pop()
        begin, end = graph.offsets[vertex], graph.offsets[vertex + 1]
        for target in graph.targets[begin:end].tolist():
            if found[target] | found[vertex] != found[target]:
                found[target] |= found[vertex]
                waiting.append(target)
    return found


def _check(graph: gw.Graph, bits: Any, devices: Any, execution: str) -> None:
    expected = _bits_that_arrive(graph, bits)
    start = {v: int(word) for v, word in enumerate(bits) if word}
    gained = gw.run(GAINED, graph, start, devices=devices, execution=execution)
    np.testing.assert_array_equal(gained.values, expected)
    lost = gw.run(LOST, graph, ~bits, devices=devices, execution=execution)
    np.testing.assert_array_equal(lost.values, ~expected)
    fields = GAINED_BITS.run(graph, fields={"bits": bits}, devices=devices).fields
    np.testing.assert_array_equal(fields["bits"], expected)
    fields = LOST_BITS.run(graph, fields={"bits": ~bits}, devices=devices).fields
    np.testing.assert_array_equal(fields["bits"], ~expected)


WORDS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.just(0), min_size=1)


@pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"], ["cpu:0", "cpu:1", "cpu:2"]])
@given(
    graph=graphs(min_vertices=1),
    words=WORDS,
    execution=st.sampled_from(["asynchronous", "bulk-synchronous"]),
)
def test_bits_arrive_at_all_that_are_reached(
    graph: gw.Graph, words: list[int], execution: str, devices: Any
) -> None:
    bits = np.resize(np.array(words, np.int64), graph.vertex_count)
    _check(graph, bits, devices, execution)


@pytest.mark.skipif(COMPILER is None, reason="no g++ to emulate GPUs with")
def test_bits_arrive_on_gpus() -> None:
    graph = gw.generators.rmat(5, 3, seed=3)
    bits = np.random.default_rng(1).integers(-(2**63), 2**63, graph.vertex_count)
    bits *= np.arange(len(bits)) % 3 == 0
    with emulated_gpus(2, checks=True, seed=2):
        _check(graph, bits, ["cuda:0", "cuda:1"], "asynchronous")


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
@pytest.mark.parametrize("count", [1, 2, driver.device_count()])
def test_bits_arrive_on_real_gpus(count: int) -> None:
    devices = [f"cuda:{index % driver.device_count()}" for index in range(count)]
    for graph in (gw.generators.rmat(13, 8, seed=3), gw.generators.road(120, 90, seed=2)):
        bits = np.random.default_rng(1).integers(-(2**63), 2**63, graph.vertex_count)
        bits *= np.arange(len(bits)) % 100 == 0
        for execution in ("asynchronous", "bulk-synchronous"):
            _check(graph, bits, devices, execution)


def test_bits_are_of_integers() -> None:
    for combine in ("or", "and"):
        with pytest.raises(InputError, match="is for integers, got float64"):
            gw.VertexProgram(name="x", message=lambda value: value, combine=combine)  # type: ignore[arg-type]
        step = gw.frontier.advance("a", lambda a: a, combine)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"advance into 'a': .* is for integers"):
            gw.StepProgram("x", fields={"a": "float32"}, steps=[step])
    with pytest.raises(InputError, match="limit and target are for programs that combine by min"):
        gw.run(GAINED, gw.generators.path(3), {0: 1}, target=1)
