"""Checks that run on GPUs of several processes, started by mpiexec: by test_distributed_gpus.py.

``mpiexec -n 2 python tests/distributed_gpu_checks.py [brief | NAME]``: brief leaves out large graphs and
errors, for tools that make kernels slow; NAME is that of a GPU which all processes share. Kernels of
several processes run on one GPU by turns, so each meeting takes milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import godwit as gw
from godwit.distributed import gpu_processes
from godwit.errors import DeviceError, InputError, RunTimeoutError
from godwit.runtime.cuda.transfer import nvshmem
from godwit.runtime.registry import resolve_devices
from programs import FEWEST_HOPS, NUMBERED, RESIDUAL
from step_programs import (
    COMPONENTS,
    EVERYTHING,
    LEVELS_TURNED,
    PUSHED,
    start_of,
    with_integer_weights,
)

processes = gw.distributed.context()


TRANSPORTS = [gw.GpuOptions(), gw.GpuOptions(transport="host")]


def check_answers(graph: gw.Graph, transport: Any = "direct") -> None:
    """Compare answers with those of cores, by both ways of data, or by NVSHMEM."""
    iterations: dict[str, Any] = {"max_iterations": 6, "tolerance": 1e-12}
    sources = [0, 5]
    distance = gw.bfs(graph, sources, devices="cpu").distance
    length = gw.sssp(graph, sources, devices="cpu").distance
    rank = gw.pagerank(graph, devices="cpu", **iterations).rank
    components = gw.connected_components(graph, devices="cpu")
    with processes.place(graph, devices="cuda", transport=transport) as placed:
        assert placed.transport == transport, placed.why_by_host
        own = slice(placed.vertices.start, placed.vertices.stop)
        gw.pagerank(placed, dtype="float32", **iterations)  # arrays grow after it
        ranks = []
        for gpu in TRANSPORTS:
            for _ in range(2):
                found = gw.bfs(placed, sources, gpu=gpu)
                assert found.distance.tolist() == distance[own].tolist()
                found = gw.sssp(placed, sources, gpu=gpu)
                assert found.distance.tolist() == length[own].tolist()
            ranks.append(gw.pagerank(placed, gpu=gpu, **iterations).rank)
            np.testing.assert_allclose(ranks[-1], rank[own], rtol=1e-9, atol=1e-12)
        assert ranks[0].tobytes() == ranks[1].tobytes()
        direct: list[dict[str, Any]] = [{}, {"merge": "direct"}, {"merge": "tree"}]
        by_host: dict[str, Any] = {"merge": "tree", "gpu": TRANSPORTS[1]}
        if transport != "direct":
            direct = [{}]
        for given in (*direct, by_host, {"method": "rem"}):
            labels = gw.connected_components(placed, **given)
            assert labels.label.tolist() == components.label[own].tolist()
            assert labels.count == components.count


def has_nvshmem() -> bool:
    """Return whether NVSHMEM is installed; say so if it is not."""
    try:
        nvshmem.load()
    except DeviceError as error:
        if processes.rank == 0:
            print(f"not checked: {error}")
        return False
    return True


def check_betweenness(graph: gw.Graph) -> None:
    """Compare betweenness with that of cores, of GPUs that search apart, and together."""
    queries: list[dict[str, Any]] = [
        {"sources": range(40), "weighted": False},
        {"sources": [7], "weighted": False, "endpoints": True},
        {"sources": [7], "weighted": False, "gpu": TRANSPORTS[1]},
        {"sources": [7, 11, 30]},
    ]
    with processes.place(graph, devices="cuda") as placed:
        own = slice(placed.vertices.start, placed.vertices.stop)
        for query in queries:
            alone = {name: value for name, value in query.items() if name != "gpu"}
            expected = gw.betweenness_centrality(graph, devices="cpu", **alone).centrality
            for _ in range(2):
                found = gw.betweenness_centrality(placed, **query).centrality
                np.testing.assert_allclose(found, expected[own], rtol=1e-9, atol=1e-12)


def check_programs(graph: gw.Graph, transport: Any = "direct") -> None:
    """Compare step programs and vertex programs with those of cores, by both ways of data, or NVSHMEM."""
    steps = [
        (LEVELS_TURNED, TRANSPORTS),
        (COMPONENTS, TRANSPORTS),
        (EVERYTHING, TRANSPORTS[: int(transport == "direct")]),
        (PUSHED["float32"], TRANSPORTS),
    ]
    source = graph.highest_degree_vertex()
    vertices: list[tuple[gw.VertexProgram, dict[str, Any]]] = [
        (FEWEST_HOPS, {"start": {source: 0}, "parameters": {"add": 2}}),
        (NUMBERED, {}),
        (RESIDUAL, {}),
    ]
    with processes.place(graph, devices="cuda", transport=transport) as placed:
        own = slice(placed.vertices.start, placed.vertices.stop)
        for program, transports in steps:
            frontier = start_of(program, graph)
            expected = program.run(graph, frontier, devices="cpu")
            for gpu in transports:
                for _ in range(2):
                    found = program.run(placed, frontier, gpu=gpu)
                    for name, values in expected.fields.items():
                        np.testing.assert_array_equal(found.fields[name], values[own])
                    assert found.numbers == expected.numbers
                    members = np.concatenate(processes.share(found.frontier))
                    assert members.tolist() == expected.frontier.tolist()
        for vertex_program, options in vertices:
            solution = gw.run(vertex_program, graph, devices="cpu", **options)
            for gpu in TRANSPORTS:
                part = gw.run(vertex_program, placed, gpu=gpu, **options)
                if solution.fields is None:
                    assert part.values.tolist() == solution.values[own].tolist()
                else:
                    np.testing.assert_allclose(part.fields, solution.fields[own], rtol=1e-7)


def check_errors(*, alone: bool) -> None:
    """Check that errors and Ctrl-C reach all, and that all go on afterwards.

    :param alone: each process has a GPU to itself
    """
    with processes.place("path:20000", devices="cuda") as placed:

        def refuses(kind: type[BaseException], query: Callable[[], Any]) -> None:
            with pytest.raises(kind):
                query()

        refuses(InputError, lambda: gw.bfs(placed, -1))
        slices = gw.GpuOptions(slice_s=0.001)
        refuses(RunTimeoutError, lambda: gw.bfs(placed, 0, timeout_s=0.01, gpu=slices))
        if processes.rank == processes.count - 1:
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        refuses(KeyboardInterrupt, lambda: [gw.bfs(placed, 0) for _ in range(1000)])
        if alone:
            found = gw.bfs(placed, 0)
            assert found.distance.tolist() == list(found.vertices)
            refuses(InputError, lambda: processes.place("path:4", devices="cuda:0"))


if __name__ == "__main__":
    is_brief = sys.argv[1:] == ["brief"]
    shared = [] if is_brief else sys.argv[1:]
    if shared:
        gpu_processes.own_gpu = lambda *_: resolve_devices(shared[0])[0]
    small = gw.generate("rmat:9,seed=1").with_random_weights(1, 20, seed=1)
    check_answers(small)
    check_betweenness(small)
    check_programs(with_integer_weights(small))
    if not shared and has_nvshmem():
        check_answers(small, "nvshmem")
        check_programs(with_integer_weights(small), "nvshmem")
        if not is_brief:
            check_answers(gw.generate("road:30x40"), "nvshmem")
            check_answers(gw.generate("rmat:14,weights=1..9"), "nvshmem")
    if not shared and not is_brief:
        check_answers(gw.generate("rmat:12,weights=1..9"))
        check_answers(gw.generate("road:30x40"))
        check_betweenness(gw.generate("rmat:14"))
        check_programs(with_integer_weights(gw.generate("rmat:12")))
        check_betweenness(gw.generate("road:30x40"))
        check_answers(gw.generate("road:30x40").with_random_weights(0.5, 2.0, seed=1))
    if not is_brief:
        check_errors(alone=not shared)
    if processes.rank == 0:
        print("done")
