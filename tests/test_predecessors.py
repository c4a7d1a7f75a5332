"""Predecessors against the two rules written out in plain Python, and walked back to the sources."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphs as zoo
from godwit.algorithms.paths import predecessors as module
from godwit.algorithms.paths.predecessors import predecessors
from godwit.graph.csr import Graph
from graphs import arcs_of, each_graph, named_graph

each_team = pytest.mark.parametrize("threads", [1, 2, 3])


@contextmanager
def all_threads() -> Iterator[None]:
    """Within the block small graphs are not left to one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ALONE_ARCS", 0)
        patch.setattr(module, "_CHUNK", 2)
        yield


def distances(graph: Graph, sources: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Dijkstra's, with sums in the dtype."""
    number = np.dtype(dtype).type
    unreached = np.inf if dtype.startswith("float") else np.iinfo(dtype).max
    distance = np.full(graph.vertex_count, unreached, dtype)
    distance[sources] = 0
    heap = [(number(0), int(v)) for v in sources]
    while heap:
        near, u = heapq.heappop(heap)
        if near > distance[u]:
            continue
        for arc in range(graph.offsets[u], graph.offsets[u + 1]):
            length = 1 if graph.weights is None else graph.weights[arc]
            v = graph.targets[arc]
            if (far := number(near + length)) < distance[v]:
                distance[v] = far
                heapq.heappush(heap, (far, int(v)))
    return distance


def reference(graph: Graph, distance: Any, sources: Any, *, unit: bool = False) -> list[int]:
    """The two rules of the module, one after the other."""
    n = graph.vertex_count
    unreached = np.inf if distance.dtype.kind == "f" else np.iinfo(distance.dtype).max
    tight = []
    for u, v, *weight in arcs_of(graph):
        length = weight[0] if weight and not unit else 1
        if unreached in (distance[u], distance[v]):
            continue
        if distance.dtype.type(distance[u] + length) == distance[v]:
            tight.append((u, v))
    result = [-1] * n
    settled = {int(s) for s in sources}
    for u, v in sorted(tight):
        if distance[u] < distance[v] and result[v] == -1:
            result[v] = u
    settled |= {v for v in range(n) if result[v] != -1}
    while True:
        new = {}
        for u, v in sorted(tight):
            if u in settled and v not in settled and v not in new:
                new[v] = u
        if not new:
            return result
        for v, u in new.items():
            result[v] = u
        settled |= new.keys()


def dtype_for(graph: Graph) -> str:
    return "int64" if graph.weights is None or graph.weights.dtype.kind in "iu" else "float64"


def assert_leads_to_sources(result: Any, distance: Any, sources: Any) -> None:
    unreached = np.inf if distance.dtype.kind == "f" else np.iinfo(distance.dtype).max
    for v in range(len(result)):
        steps = 0
        at = v
        while result[at] != -1:
            at = result[at]
            steps += 1
            assert steps <= len(result), f"the predecessors of {v} go round"
        assert at in sources or distance[v] == unreached


@each_team
@each_graph
def test_the_zoo(name: str, threads: int) -> None:
    graph = named_graph(name)
    sources = np.array([graph.vertex_count // 3] if graph.vertex_count else [], np.int64)
    distance = distances(graph, sources, dtype_for(graph))
    with all_threads():
        result = predecessors(graph, distance, sources, unit_lengths=False, threads=threads)
    assert result.dtype == graph.targets.dtype
    assert result.tolist() == reference(graph, distance, sources)
    assert_leads_to_sources(result, distance, sources)


@given(st.data())
def test_any_graph(data: Any) -> None:
    graph = data.draw(zoo.graphs(min_vertices=1))
    vertices = st.integers(0, graph.vertex_count - 1)
    sources = np.array(data.draw(st.lists(vertices, min_size=1, max_size=4), "sources"))
    unit = data.draw(st.booleans(), "unit")
    if data.draw(st.booleans(), "reverse at hand"):
        assert graph.reverse is not None
    counted = graph.without_weights() if unit else graph
    distance = distances(counted, sources, "int32" if unit else dtype_for(graph))
    expected = reference(graph, distance, sources, unit=unit)
    for threads in (1, 2, 3):
        with all_threads():
            result = predecessors(graph, distance, sources, unit_lengths=unit, threads=threads)
        assert result.tolist() == expected
    assert_leads_to_sources(expected, distance, sources)


@given(st.data())
def test_rows_need_not_be_sorted(data: Any) -> None:
    graph = data.draw(zoo.graphs(min_vertices=1, directed=False, weighted=True))
    generator = np.random.default_rng(0)
    order = np.concatenate(
        [
            np.empty(0, np.int64),
            *(
                generator.permutation(np.arange(a, b))
                for a, b in zip(graph.offsets[:-1], graph.offsets[1:], strict=True)
            ),
        ]
    )
    assert graph.weights is not None
    shuffled = Graph(graph.offsets, graph.targets[order], graph.weights[order], directed=False)
    sources = np.array([0])
    distance = distances(graph, sources, dtype_for(graph))
    result = predecessors(shuffled, distance, sources, unit_lengths=False)
    assert np.array_equal(result, predecessors(graph, distance, sources, unit_lengths=False))


def test_ties_go_to_the_smallest_id() -> None:
    graph = Graph.from_edges([3, 3, 3, 2, 1, 4], [4, 1, 2, 0, 0, 0], [2, 2, 2, 1, 1, 1])
    distance = distances(graph, [3], "int64")
    result = predecessors(graph, distance, np.array([3]), unit_lengths=False)
    assert result.tolist() == [1, 3, 3, -1, 3]


def test_zero_weights_make_no_cycle_and_fewest_hops_win() -> None:
    # 0 -> 4 of length 1, then 4 - 3 - 2 - 1 and back by zeros; 1 also directly from 4.
    tails, heads = [0, 4, 3, 2, 1, 4, 3, 2, 1], [4, 3, 2, 1, 2, 1, 4, 3, 4]
    graph = Graph.from_edges(tails, heads, [1] + [0] * 8)
    distance = distances(graph, [0], "int64")
    assert distance.tolist() == [0, 1, 1, 1, 1]
    result = predecessors(graph, distance, np.array([0]), unit_lengths=False)
    # Round 1: 1 and 3 from 4. Round 2: 2, from the smaller of the two.
    assert result.tolist() == [-1, 4, 1, 4, 0]


def test_a_weight_that_a_sum_absorbs_is_a_tie() -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 1], [1.0, 1e-20, 1e-20])
    distance = np.array([0.0, 1.0, 1.0])
    result = predecessors(graph, distance, np.array([0]), unit_lengths=False)
    assert result.tolist() == [-1, 0, 1]


def test_sources_among_zero_weights_have_none() -> None:
    graph = Graph.from_edges([0, 1, 1, 2], [1, 0, 2, 1], [0, 0, 0, 0], directed=True)
    result = predecessors(graph, np.zeros(3, np.int64), np.array([1, 0, 1]), unit_lengths=False)
    assert result.tolist() == [-1, -1, 1]


def test_long_chains_of_zeros_take_linear_time() -> None:
    n = 200_000
    graph = Graph.from_edges(
        np.arange(n - 1), np.arange(1, n), np.zeros(n - 1, np.int32), directed=False
    )
    result = predecessors(graph, np.zeros(n, np.int64), np.array([0]), unit_lengths=False)
    assert np.array_equal(result, np.arange(n) - 1)


@each_team
def test_distances_up_to_a_cutoff(threads: int) -> None:
    graph = named_graph("grid")
    full = distances(graph, [0], "int64")
    unreached = np.iinfo(np.int64).max
    cut = np.where(full <= 60, full, unreached)
    with all_threads():
        whole = predecessors(graph, full, np.array([0]), unit_lengths=False, threads=threads)
        part = predecessors(graph, cut, np.array([0]), unit_lengths=False, threads=threads)
    assert np.array_equal(part, np.where(full <= 60, whole, -1))
