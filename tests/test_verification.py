"""The verifiers accept what is right, and notice every way of being wrong that they know of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphs as zoo
from godwit.algorithms import checks
from godwit.algorithms.paths.predecessors import predecessors
from godwit.algorithms.paths.verify import verify_bfs, verify_sssp
from godwit.errors import InputError, VerificationError
from godwit.graph.csr import Graph
from graphs import named_graph
from test_predecessors import distances, dtype_for

NOT_REACHED = np.iinfo(np.int64).max


@given(st.data())
def test_right_results_pass(data: Any) -> None:
    graph = data.draw(zoo.graphs(min_vertices=1))
    vertices = st.integers(0, graph.vertex_count - 1)
    sources = np.array(data.draw(st.lists(vertices, min_size=1, max_size=4)))
    for counted, dtype, verify in (
        (graph.without_weights(), "int32", verify_bfs),
        (graph, dtype_for(graph), verify_sssp),
    ):
        distance = distances(counted, sources, dtype)
        before = predecessors(counted, distance, sources, unit_lengths=counted.weights is None)
        verify(graph, sources, distance)
        verify(graph, sources, distance, before)
        cutoff = data.draw(st.integers(0, 30), "cutoff")
        unreached = np.inf if dtype == "float64" else np.iinfo(dtype).max
        cut = np.where(distance <= cutoff, distance, unreached).astype(dtype)
        verify(graph, sources, cut, np.where(distance <= cutoff, before, -1), cutoff=cutoff)


@given(st.data())
def test_any_other_distance_is_noticed(data: Any) -> None:
    graph = data.draw(zoo.graphs(min_vertices=1))
    source = data.draw(st.integers(0, graph.vertex_count - 1))
    distance = distances(graph, [source], dtype_for(graph))
    wrong = distance.copy()
    v = data.draw(st.integers(0, graph.vertex_count - 1))
    others = [0, 1, 2, 3, 5, 1000, np.inf if wrong.dtype.kind == "f" else NOT_REACHED]
    wrong[v] = data.draw(st.sampled_from(others).filter(lambda d: d != distance[v]))
    with pytest.raises(VerificationError):
        verify_sssp(graph, source, wrong)


@given(st.data())
def test_any_predecessor_that_is_no_tight_arc_is_noticed(data: Any) -> None:
    graph = data.draw(zoo.graphs(min_vertices=1))
    source = data.draw(st.integers(0, graph.vertex_count - 1))
    distance = distances(graph, [source], dtype_for(graph))
    before = predecessors(graph, distance, np.array([source]), unit_lengths=False)
    v = data.draw(st.integers(0, graph.vertex_count - 1))
    before[v] = data.draw(
        st.integers(-2, graph.vertex_count).filter(lambda u: u != before[v]), "predecessor"
    )
    u = int(before[v])
    unreached = np.inf if distance.dtype.kind == "f" else NOT_REACHED
    tight = False
    if v != source and unreached not in (distance[v], distance[u % graph.vertex_count]):
        arcs = [arc for arc in zoo.arcs_of(graph) if arc[:2] == (u, v)]
        tight = any(distance[u] + (arc[2:] or (1,))[0] == distance[v] for arc in arcs)
    if not tight:
        with pytest.raises(VerificationError):
            verify_sssp(graph, source, distance, before)
    elif distance[u] < distance[v]:  # as good as the other one
        verify_sssp(graph, source, distance, before)


#   0 --1-- 1 --1-- 2 --0-- 3     4 --0-- 5     6
#    \______3______/
def small() -> Graph:
    return Graph.from_edges(
        [0, 1, 2, 0, 4], [1, 2, 3, 2, 5], [1, 1, 0, 3, 0], vertex_count=7, directed=False
    )


DISTANCE = [0, 1, 2, 2, NOT_REACHED, NOT_REACHED, NOT_REACHED]
BEFORE = [-1, 0, 1, 2, -1, -1, -1]


def corrupted(values: list[int], **changes: int) -> list[int]:
    return [changes.get(f"v{v}", value) for v, value in enumerate(values)]


@pytest.mark.parametrize(
    ("distance", "before", "message"),
    [
        ({"v0": 1}, {}, "source 0 must be at distance 0, is at 1"),
        ({"v6": -1}, {}, "vertex 6 is at distance -1"),
        ({"v2": 3}, {}, "vertex 2 is at 3, but the arc 1 -> 2 reaches it at 2"),
        ({"v2": NOT_REACHED}, {}, "vertex 2 was not reached, but the arc"),
        ({"v6": 4}, {}, "vertex 6 is at 4, but no shortest path from a source ends there"),
        ({"v4": 7, "v5": 7}, {}, "vertex 4 is at 7, but no shortest path"),  # hold up each other
        ({"v1": 0}, {}, "vertex 2 is at 2, but the arc 1 -> 2 reaches it at 1"),
        ({}, {"v0": 1}, "source 0 must have predecessor -1, has 1"),
        ({}, {"v6": 0}, "unreached vertex 6 must have predecessor -1, has 0"),
        ({}, {"v1": -1}, r"vertex 1 must have a predecessor in \[0, 7\), has -1"),
        ({}, {"v1": 7}, r"vertex 1 must have a predecessor in \[0, 7\), has 7"),
        ({}, {"v3": 0}, "the arc 0 -> 3 from the predecessor of 3 is not in the graph"),
        ({}, {"v2": 0}, "the arc 0 -> 2 from the predecessor of 2 is not tight"),
        ({}, {"v2": 3}, "the predecessors of vertex 2 go round in a cycle through"),
    ],
)  # fmt: skip
def test_each_rule(distance: dict[str, int], before: dict[str, int], message: str) -> None:
    graph = small()
    verify_sssp(graph, 0, np.array(DISTANCE), np.array(BEFORE))
    with pytest.raises(VerificationError, match=message):
        verify_sssp(
            graph,
            0,
            np.array(corrupted(DISTANCE, **distance)),
            np.array(corrupted(BEFORE, **before)),
        )


def test_a_distance_that_is_too_small_everywhere_is_noticed() -> None:
    # No arc contradicts it: only the missing way back to the source gives it away.
    graph = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 1], [5, 0, 0, 0])
    with pytest.raises(VerificationError, match="vertex 1 is at 3, but no shortest path"):
        verify_sssp(graph, 0, np.array([0, 3, 3, 3]))
    verify_sssp(graph, 0, np.array([0, 5, 5, 5]))


def test_bfs_counts_arcs_and_sssp_their_weights() -> None:
    graph = small()
    arcs = np.array([0, 1, 1, 2, 2**31 - 1, 2**31 - 1, 2**31 - 1], np.int32)
    verify_bfs(graph, 0, arcs)
    with pytest.raises(VerificationError, match="vertex 2 is at 2, but the arc 0 -> 2"):
        verify_bfs(graph, 0, np.array(DISTANCE))
    with pytest.raises(VerificationError):
        verify_sssp(graph, 0, arcs)


@pytest.mark.parametrize("verify", [verify_bfs, verify_sssp])
def test_cutoff(verify: Callable[..., None]) -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], directed=False)
    verify(graph, 0, np.array([0, 1, NOT_REACHED, NOT_REACHED]), cutoff=1)
    verify(graph, 0, np.array([0, 1, NOT_REACHED, NOT_REACHED]), cutoff=1.5)
    with pytest.raises(VerificationError, match="vertex 2 is at 2, beyond the cutoff of 1"):
        verify(graph, 0, np.array([0, 1, 2, NOT_REACHED]), cutoff=1)
    with pytest.raises(VerificationError, match="vertex 2 was not reached, but the arc 1 -> 2"):
        verify(graph, 0, np.array([0, 1, NOT_REACHED, NOT_REACHED]), cutoff=2)
    with pytest.raises(VerificationError, match="vertex 2 was not reached"):
        verify(graph, 0, np.array([0, 1, NOT_REACHED, NOT_REACHED]))


def test_floats_are_given_a_little_slack_and_no_more() -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 0], [0.1, 0.2, np.inf], vertex_count=4)
    exact = np.array([0, 0.1, 0.1 + 0.2, np.inf])
    before = np.array([-1, 0, 1, -1])
    verify_sssp(graph, 0, exact, before)
    verify_sssp(graph, 0, exact * [1, 1, 1 + 4e-16, 1], before)
    for factor in (1 + 1e-11, 1 - 1e-11):
        with pytest.raises(VerificationError, match="vertex 2"):
            verify_sssp(graph, 0, exact * [1, 1, factor, 1])
    with pytest.raises(VerificationError, match="vertex 3 is at distance nan"):
        verify_sssp(graph, 0, np.array([0, 0.1, 0.1 + 0.2, np.nan]))
    with pytest.raises(VerificationError, match="vertex 2 was not reached"):
        verify_sssp(graph, 0, np.array([0, 0.1, np.inf, np.inf]))


def test_an_arc_of_infinite_weight_reaches_nothing() -> None:
    graph = Graph.from_edges([0], [1], [np.inf])
    verify_sssp(graph, 0, np.array([0, np.inf]), np.array([-1, -1]))
    with pytest.raises(VerificationError, match=r"vertex 1 is at 5\.0, but no shortest path"):
        verify_sssp(graph, 0, np.array([0, 5.0]))


def test_vertices_a_rounding_apart_do_not_hold_up_each_other() -> None:
    graph = Graph.from_edges([1, 2], [2, 1], [0.0, 0.0], vertex_count=3)
    for second in (5.0, 5.0 * (1 + 1e-13), 5.0 * (1 - 1e-13)):
        with pytest.raises(VerificationError, match="but no shortest path from a source"):
            verify_sssp(graph, 0, np.array([0, 5.0, second]))


def test_zeros_behind_a_rounding_are_followed_from_the_source() -> None:
    # 1 is a rounding off, so that nothing behind it is explained by exact sums alone.
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [5.0, 0.0, 1.0])
    near = 5.0 * (1 + 1e-13)
    verify_sssp(graph, 0, np.array([0, near, near, near + 1]))
    verify_sssp(graph, 0, np.array([0, near, 5.0, 6.0]), np.array([-1, 0, 1, 2]))


def test_blocks_of_arcs_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "BLOCK_ARCS", 3)
    graph = named_graph("zero weights")
    distance = distances(graph, [7], "int64")
    before = predecessors(graph, distance, np.array([7]), unit_lengths=False)
    verify_sssp(graph, 7, distance, before)
    v = int(np.argmax(np.where(distance == NOT_REACHED, -1, distance)))
    distance[v] += 1
    with pytest.raises(VerificationError, match=f"vertex {v} is at"):
        verify_sssp(graph, 7, distance, before)


def test_wrong_arrays_are_refused() -> None:
    graph = small()
    with pytest.raises(InputError, match=r"distance must have shape \(7,\), got \(3,\)"):
        verify_bfs(graph, 0, np.zeros(3, np.int32))
    with pytest.raises(InputError, match="predecessor must be signed integers, got float64"):
        verify_bfs(graph, 0, np.zeros(7, np.int32), np.zeros(7))
    with pytest.raises(InputError, match=r"sources must be in \[0, 7\)"):
        verify_bfs(graph, 7, np.zeros(7, np.int32))
    floating = graph.with_weights(np.ones(graph.arc_count))
    with pytest.raises(InputError, match="must be floating-point"):
        verify_sssp(floating, 0, np.array(DISTANCE))


def test_graphs_without_vertices_or_arcs() -> None:
    verify_bfs(named_graph("empty"), [], np.empty(0, np.int32), np.empty(0, np.int32))
    verify_sssp(named_graph("one vertex"), 0, np.zeros(1), np.array([-1]))
