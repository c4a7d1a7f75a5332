"""Predecessors in solutions of vertex programs, against gw.sssp, NetworkX, and the paths themselves."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import InputError, OperatorError
from godwit.worker import predecessors as module
from graphs import arcs_of, graphs
from programs import GAINED, WALKS

SHORTEST = gw.VertexProgram("shortest", lambda value, weight: value + weight, "min")
LONGEST = gw.VertexProgram("longest", lambda value, weight: value + weight, "max")
WIDEST = gw.VertexProgram(
    "widest", lambda value, weight: value if value < weight else weight, "max"
)

each_team = pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]])


def _with_weights(graph: gw.Graph, change: Callable[[Any], Any] = lambda weights: weights) -> Any:
    """Return the graph with weights of float64, changed by a function."""
    assert graph.weights is not None
    weights = change(graph.weights.astype(np.float64))
    return gw.Graph(graph.offsets, graph.targets, weights, directed=graph.directed)


@each_team
@given(data=st.data())
def test_predecessors_are_those_of_sssp(devices: Any, data: Any) -> None:
    graph = _with_weights(data.draw(graphs(min_vertices=1, weighted=True)))
    sources = data.draw(st.sets(st.integers(0, graph.vertex_count - 1), min_size=1, max_size=4))
    expected = gw.sssp(graph, sorted(sources))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GODWIT_THREADS", "2")
        patch.setattr(module, "ALONE_ARCS", 0)
        patch.setattr(module, "_CHUNK", 2)
        result = gw.run(SHORTEST, graph, dict.fromkeys(sources, 0), devices=devices)
        assert result.predecessor.dtype == graph.targets.dtype
        assert result.predecessor.tolist() == expected.predecessor.tolist()
    for vertex in np.flatnonzero(expected.reached).tolist():
        assert result.path_to(vertex) == expected.path_to(vertex)
    for vertex in np.flatnonzero(~expected.reached).tolist():
        with pytest.raises(InputError, match="was not reached"):
            result.path_to(vertex)


def _rounds(before: list[int], settled: set[int], arcs: Any) -> None:
    """Give vertices that are not settled the smallest settled in-neighbour, round by round."""
    while True:
        new: dict[int, int] = {}
        for u, v in sorted(arcs):
            if u in settled and v not in settled:
                new.setdefault(v, u)
        if not new:
            return
        for v, u in new.items():
            before[v] = u
        settled.update(new)


def _reference(graph: gw.Graph, values: Any, program: gw.VertexProgram) -> list[int]:
    """Return predecessors from vertex 0, by the three rules of the module, one after the other."""
    tight = {
        (u, v)
        for u, v, weight in arcs_of(graph)
        if v != 0 and np.isfinite(values[u]) and program.message(values[u], weight) == values[v]
    }
    before = [-1] * graph.vertex_count
    for u, v in sorted(tight, reverse=True):
        if (values[u] < values[v]) if program.combine == "min" else (values[u] > values[v]):
            before[v] = u
    settled = {0} | {v for v, u in enumerate(before) if u >= 0}
    _rounds(before, settled, [(u, v) for u, v in tight if values[u] == values[v]])
    if len(settled) < np.count_nonzero(np.isfinite(values)):
        before = [-1] * graph.vertex_count
        _rounds(before, {0}, tight)
    return before


@given(data=st.data(), program=st.sampled_from([SHORTEST, LONGEST, WIDEST]))
def test_values_come_along_the_paths(data: Any, program: gw.VertexProgram) -> None:
    graph = _with_weights(data.draw(graphs(min_vertices=1, weighted=True, directed=True)))
    if program is not WIDEST:  # weights of both signs, and no cycles
        arcs = [(u, v, weight - 8.0) for u, v, weight in arcs_of(graph) if u < v]
        sources, targets, weights = zip(*arcs, strict=True) if arcs else ([], [], [])
        n = graph.vertex_count
        graph = gw.Graph.from_edges(sources, targets, np.array(weights), vertex_count=n)
    result = gw.run(program, graph, {0: 9.0})
    assert result.predecessor.tolist() == _reference(graph, result.values, program)
    for vertex in np.flatnonzero(np.isfinite(result.values)).tolist():
        path = result.path_to(vertex)
        assert path[0] == 0
        assert path[-1] == vertex
        assert len(set(path)) == len(path)
    if program is not WIDEST:
        sign = 1 if program is SHORTEST else -1
        arcs_by_ends: Any = nx.DiGraph()
        arcs_by_ends.add_node(0)
        for u, v, weight in sorted(arcs_of(graph), key=lambda arc: -sign * arc[2]):
            arcs_by_ends.add_edge(u, v, weight=sign * weight)  # the best of parallel arcs is last
        lengths = nx.single_source_bellman_ford_path_length(arcs_by_ends, 0)
        for vertex, length in lengths.items():
            assert nx.path_weight(arcs_by_ends, result.path_to(vertex), "weight") == length


def test_only_vertices_that_sent_are_predecessors() -> None:
    graph = gw.Graph.from_edges([1, 5, 3, 2], [2, 2, 4, 6])
    hops = gw.VertexProgram(
        "hops", lambda value: value + 1, "min", dtype="int32",
        initial=np.array([9, 2, 9, 9, 9, 9, 9], np.int32), activate=lambda value, most: value < most,
        parameters={"most": 9.0},
    )  # fmt: skip
    result = gw.run(hops, graph, {5: 2})
    assert result.values.tolist() == [9, 2, 3, 9, 9, 2, 4]
    assert result.predecessor.tolist() == [-1, -1, 5, -1, -1, -1, 2]
    assert result.path_to(6) == [5, 2, 6]
    with pytest.raises(InputError, match="vertex 1 was not reached from the start"):
        result.path_to(1)
    everywhere = gw.run(hops, graph, np.array([9, 2, 9, 9, 9, 2, 9]))
    assert everywhere.predecessor.tolist() == [-1, -1, 1, -1, -1, -1, 2]
    assert everywhere.path_to(3) == [3]
    limited = gw.run(hops, graph, {5: 2}, limit=3)
    assert limited.predecessor.tolist() == [-1, -1, 5, -1, -1, -1, -1]
    with pytest.raises(InputError, match="vertex 6 was not reached"):
        limited.path_to(6)


def test_solutions_without_predecessors_say_so() -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 2])
    for program, why in ((GAINED, "combines by 'or'"), (WALKS, "has fields")):
        with pytest.raises(InputError, match=f"combine by 'min' or 'max'; .* {why}"):
            _ = gw.run(program, graph, {0: 1}).predecessor
    with pytest.raises(InputError, match="was pickled"):
        _ = pickle.loads(pickle.dumps(gw.run(SHORTEST, graph, {0: 0}))).predecessor
    changed = gw.run(SHORTEST, graph, {0: 0})
    changed.values[2] = 7
    with pytest.raises(OperatorError, match=r"no message equals the value of vertex 2 \(7.0\)"):
        changed.path_to(2)
