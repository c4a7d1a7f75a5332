"""Arrays of a run that are kept with a graph: never part of a result, never used by two runs at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import godwit as gw

ROAD = gw.generators.road(230, 230, seed=1).with_random_weights(1, 64, seed=1)
"""Large enough for a team of two threads."""
HUBS = gw.generators.rmat(12, 16, seed=1).with_random_weights(1, 64, seed=1)

HOPS = gw.VertexProgram(
    "hops", lambda value: value + 1, "min", dtype="int32", priority=lambda value: value
)
FLOW = gw.VertexProgram(
    "flow",
    lambda value, degree: 0.5 * value / degree,
    "add",
    dtype="float64",
    activate=lambda value: value > 1e-6,
    field_initial=0.0,
    field_dtype="float64",
    update=lambda field, value: field + value,
)


def distances(graph: gw.Graph, source: int) -> list[Any]:
    return [gw.sssp(graph, source, devices="cpu").distance]


def depths(graph: gw.Graph, source: int) -> list[Any]:
    return [gw.bfs(graph, source, devices="cpu").distance]


def near_hops(graph: gw.Graph, source: int) -> list[Any]:
    return [gw.run(HOPS, graph, {source: 0}, devices="cpu", limit=9).values]


def hops(graph: gw.Graph, source: int) -> list[Any]:
    return [gw.run(HOPS, graph, {source: 0}, devices="cpu").values]


def flow(graph: gw.Graph, source: int) -> list[Any]:
    solution = gw.run(FLOW, graph, {source: 1.0}, devices="cpu")
    return [solution.values, solution.fields]


CASES: dict[str, tuple[Callable[[gw.Graph, int], list[Any]], gw.Graph]] = {
    "distances": (distances, ROAD),
    "distances of floats": (distances, ROAD.with_random_weights(0.5, 2.0, seed=2)),
    "distances by sorted rows": (distances, HUBS),
    "depths": (depths, ROAD),
    "hops": (hops, ROAD),
    "hops within a limit": (near_hops, ROAD),
    "flow": (flow, ROAD),
}


@pytest.mark.parametrize("name", CASES)
def test_later_runs_do_not_change_a_result(name: str) -> None:
    run, graph = CASES[name]
    sources = [3, 700, 1900, 3, 44, 700, 8]
    results = [run(graph, source) for source in sources]
    copies = [[array.copy() for array in run(graph, source)] for source in sources]
    for result, copy in zip(results, copies, strict=True):
        for array, expected in zip(result, copy, strict=True):
            if name == "flow":  # the order of additions differs
                np.testing.assert_allclose(array, expected, atol=1e-3)
            else:
                np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("name", ["distances", "distances by sorted rows", "hops"])
def test_runs_at_the_same_time_have_arrays_of_their_own(name: str) -> None:
    run, graph = CASES[name]
    sources = [3, 700, 1900, 44, 8, 2000] * 2
    expected = [run(graph, source)[0].copy() for source in sources]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda source: run(graph, source)[0], sources))
    for result, of_one in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, of_one)


class _Stop(Exception):  # noqa: N818
    pass


def test_a_run_after_one_that_was_stopped() -> None:
    graph = gw.generators.road(700, 700, seed=1).with_random_weights(1, 64, seed=1)
    expected = gw.sssp(graph, 3, devices="cpu").distance.copy()

    def stop(processed: int) -> None:
        raise _Stop

    def run_until_stopped() -> None:
        while True:  # a run may be over before it is first looked at
            gw.sssp(graph, 9, devices="cpu", progress=stop)

    with pytest.raises(_Stop):
        run_until_stopped()
    np.testing.assert_array_equal(gw.sssp(graph, 3, devices="cpu").distance, expected)
