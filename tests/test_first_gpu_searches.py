"""Searches by the asynchronous engine of a graph on several GPUs, of which the first alone is faster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import COMPILER, Machine, emulated_gpus
from godwit import placement
from godwit.errors import GraphTooLargeError
from godwit.runtime.cuda.memory import free_memory_bytes
from godwit.worker import query
from godwit.worker.cuda.placement import GpuPlacement

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels with"),
    pytest.mark.usefixtures("gpus", "first_gpu_searches"),
]
DEVICES = ["cuda:0", "cuda:1"]
GRID = gw.generators.grid(7, 9).with_random_weights(1, 20, seed=1)
SEARCHES = {"sssp": gw.sssp, "bfs": gw.bfs}


@pytest.fixture(scope="module")
def gpus() -> Iterator[Machine]:
    with emulated_gpus(2, multiprocessors=2) as machine:
        yield machine


def check(found: Any, name: str, graph: gw.Graph, devices: list[str]) -> None:
    expected = SEARCHES[name](graph, 3, devices="cpu")
    assert found.statistics.solver == "asynchronous"
    assert found.statistics.devices == tuple(devices)
    np.testing.assert_array_equal(found.distance, expected.distance)
    np.testing.assert_array_equal(found.predecessor, expected.predecessor)


@pytest.mark.parametrize("name", SEARCHES)
def test_the_first_gpu_searches_alone(name: str) -> None:
    search = SEARCHES[name]
    check(search(GRID, 3, devices=DEVICES), name, GRID, DEVICES[:1])
    with gw.place(GRID, DEVICES[::-1]) as placed:
        for _ in range(2):
            check(search(placed, 3), name, GRID, DEVICES[1:])


@pytest.mark.parametrize(
    ("placing", "asking"),
    [
        ({"partition": "contiguous"}, {}),
        ({"duplication": "1-hop"}, {}),
        ({}, {"execution": "asynchronous"}),
        ({}, {"worker": gw.WorkerOptions(delta=30)}),
        ({}, {"gpu": gw.GpuOptions(transport="host")}),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", SEARCHES)
def test_all_search_if_anything_was_asked(
    name: str, placing: dict[str, Any], asking: dict[str, Any]
) -> None:
    with gw.place(GRID, DEVICES, **placing) as placed:
        check(SEARCHES[name](placed, 3, **asking), name, GRID, DEVICES)


def test_all_search_where_each_has_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    star = gw.generators.star(60)
    graph = star.with_weights(np.full(star.arc_count, 3))  # not searched by sorted rows
    for arcs, devices in ((0, DEVICES), (graph.arc_count, DEVICES[:1])):
        monkeypatch.setattr(query, "_ASYNCHRONOUS_ARCS", arcs)
        with gw.place(graph, DEVICES) as placed:
            check(gw.sssp(placed, 3), "sssp", graph, devices)
    monkeypatch.setattr(query, "_ASYNCHRONOUS_ARCS", 0)
    with gw.place(GRID, DEVICES) as placed:  # no hubs: small frontiers
        check(gw.sssp(placed, 3), "sssp", GRID, DEVICES[:1])


def test_all_search_a_graph_that_the_first_has_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_first_with_room", lambda gpus, graph: gpus)
    with gw.place(GRID, DEVICES) as placed:
        check(gw.sssp(placed, 3), "sssp", GRID, DEVICES)


def test_all_search_a_graph_whose_rows_do_not_fit_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = GpuPlacement.__init__

    def refusing(placed: GpuPlacement, devices: Any, parts: Any) -> None:
        if len(parts) == 1:
            raise GraphTooLargeError("no room")
        make(placed, devices, parts)

    monkeypatch.setattr(GpuPlacement, "__init__", refusing)
    with gw.place(GRID, DEVICES) as placed:
        check(gw.sssp(placed, 3), "sssp", GRID, DEVICES)


def test_a_graph_is_uploaded_once_and_freed() -> None:
    graph = gw.generators.grid(60, 90).with_random_weights(1, 20, seed=1)
    free = [free_memory_bytes(index) for index in range(2)]
    with gw.place(graph, DEVICES) as placed:
        taken = [before - free_memory_bytes(index) for index, before in enumerate(free)]
        assert taken[1] == 0 < taken[0] < 2 * graph.nbytes
        gw.sssp(placed, 3)
        gw.bfs(placed, 3)
        assert free_memory_bytes(1) == free[1]
    assert [free_memory_bytes(index) for index in range(2)] == free
