"""Graphs on GPUs of several processes: their answers are those of one process with as many GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import COMPILER, emulated_gpus
from godwit.distributed.processes import Processes
from process_threads import run_processes

emulates = pytest.mark.skipif(COMPILER is None, reason="no g++ to emulate GPUs with")


def gathered(parts: list[Any], name: str) -> Any:
    return np.concatenate([getattr(part, name) for part in parts])


@emulates
@pytest.mark.parametrize("transport", ["direct", "host"])
def test_bfs(transport: Any) -> None:
    graph = gw.generators.rmat(8, seed=1)
    gpu = gw.GpuOptions(transport=transport)

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            return gw.bfs(placed, 3, gpu=gpu), gw.bfs(placed, [5, 7], cutoff=2, gpu=gpu)

    with emulated_gpus(2) as machine:
        found = run_processes(machine, 2, run)
    expected = gw.bfs(graph, 3, devices="cpu").distance
    assert gathered([one for one, _ in found], "distance").tolist() == expected.tolist()
    expected = gw.bfs(graph, [5, 7], cutoff=2, devices="cpu").distance
    assert gathered([one for _, one in found], "distance").tolist() == expected.tolist()


@emulates
@pytest.mark.parametrize("transport", ["direct", "host"])
def test_pagerank(transport: Any) -> None:
    graph = gw.generators.rmat(8, seed=1)
    gpu = gw.GpuOptions(transport=transport)

    def run(processes: Processes) -> Any:
        with processes.place(graph, devices="cuda") as placed:
            return gw.pagerank(placed, gpu=gpu)

    with emulated_gpus(2) as machine:
        found = run_processes(machine, 2, run)
        expected = gw.pagerank(graph, devices=["cuda:0", "cuda:1"])
    assert gathered(found, "rank").tolist() == expected.rank.tolist()
    assert {one.iterations for one in found} == {expected.iterations}
