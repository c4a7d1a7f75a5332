"""Partitions: every method owns every vertex, keeps its promise, and is measured rightly."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.partition import Partition, halo, partition
from godwit.graph.partition.methods import PARTITIONERS
from graphs import each_graph, graphs, named_graph

METHODS = tuple(PARTITIONERS)


def reference_border(graph: Graph, owner: Any, parts: int) -> tuple[int, Any]:
    """Cut arcs, and distinct remote vertices per pair of parts, arc by arc."""
    reached: list[list[set[int]]] = [[set() for _ in range(parts)] for _ in range(parts)]
    cut = 0
    for v in range(graph.vertex_count):
        for target in graph.targets[graph.offsets[v] : graph.offsets[v + 1]]:
            if owner[v] != owner[target]:
                cut += 1
                reached[owner[v]][owner[target]].add(int(target))
    return cut, np.array([[len(cell) for cell in row] for row in reached])


def check_measures(made: Partition) -> None:
    graph, parts = made.graph, made.part_count
    cut, border = reference_border(graph, made.owner, parts)
    assert made.cut_arcs == cut
    np.testing.assert_array_equal(made.border, border)
    assert made.border.dtype == np.int64
    assert made.border_vertices == border.sum()
    degree = graph.out_degree()
    vertices = [np.count_nonzero(made.owner == p) for p in range(parts)]
    arcs = [int(degree[made.owner == p].sum()) for p in range(parts)]
    np.testing.assert_array_equal(made.vertices_per_part, vertices)
    np.testing.assert_array_equal(made.arcs_per_part, arcs)
    mean = graph.arc_count / parts
    assert made.balance == pytest.approx(max(arcs) / mean if mean else 1.0)
    assert made.cut_fraction == pytest.approx(cut / graph.arc_count if graph.arc_count else 0.0)


def check_owners(made: Partition, graph: Graph, parts: int) -> None:
    assert made.owner.dtype == np.int32
    assert made.owner.shape == (graph.vertex_count,)
    assert not made.owner.flags.writeable
    if graph.vertex_count:
        assert set(np.unique(made.owner)) == set(range(min(parts, graph.vertex_count)))


@each_graph
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_every_method_owns_every_vertex_and_leaves_no_part_empty(
    name: str, method: str, parts: int
) -> None:
    """But the last ones, where there are fewer vertices than parts."""
    graph = named_graph(name)
    made = partition(graph, parts, method, seed=3)
    check_owners(made, graph, parts)
    assert made.part_count == parts
    assert made.method == method or (made.method == "contiguous" and "metis" in made.note)
    check_measures(made)


@settings(max_examples=60, deadline=None)
@given(graphs(min_vertices=1), st.data())
def test_any_graph_in_any_number_of_parts(graph: Graph, data: Any) -> None:
    parts = data.draw(st.integers(1, graph.vertex_count + 3))
    method = data.draw(st.sampled_from(METHODS))
    seed = data.draw(st.integers(-5, 2**70))
    made = partition(graph, parts, method, seed=seed)
    check_owners(made, graph, parts)
    check_measures(made)
    again = partition(graph, parts, method, seed=seed)
    np.testing.assert_array_equal(made.owner, again.owner)


@settings(max_examples=40, deadline=None)
@given(graphs(min_vertices=1), st.data())
def test_measures_do_not_depend_on_threads(graph: Graph, data: Any) -> None:
    parts = data.draw(st.integers(1, graph.vertex_count + 3))
    owner = data.draw(
        st.lists(
            st.integers(0, parts - 1), min_size=graph.vertex_count, max_size=graph.vertex_count
        )
    )
    threads = data.draw(st.integers(2, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halo, "thread_count_for", lambda arcs: threads)
        check_measures(partition(graph, parts, owner))


@pytest.mark.parametrize("parts", [63, 64, 65, 130])
def test_more_parts_than_bits_of_a_mask(parts: int) -> None:
    graph = named_graph("random directed")
    check_measures(partition(graph, parts, "random", seed=parts))
    check_measures(partition(graph, parts, "contiguous"))


@settings(max_examples=100, deadline=None)
@given(graphs(min_vertices=1, max_arcs=200), st.data())
def test_contiguous_is_ranges_balanced_to_one_vertex(graph: Graph, data: Any) -> None:
    parts = data.draw(st.integers(1, graph.vertex_count + 3))
    made = partition(graph, parts)
    assert made.method == "contiguous"
    assert (np.diff(made.owner) >= 0).all()
    boundaries = made.boundaries
    assert boundaries is not None
    np.testing.assert_array_equal(made.owner, np.repeat(np.arange(parts), np.diff(boundaries)))
    cost = graph.out_degree() + 1
    per_part = np.bincount(made.owner, cost, minlength=parts)
    assert per_part.max() <= cost.sum() / parts + cost.max()


def test_random_has_equal_numbers_of_vertices() -> None:
    made = partition(named_graph("star"), 7, "random", seed=1)
    counts = made.vertices_per_part
    assert counts.max() - counts.min() <= 1
    assert made.boundaries is None


@pytest.mark.parametrize("method", ["random", "biased-random"])
def test_another_seed_gives_another_partition(method: str) -> None:
    graph = named_graph("grid")
    first, second = (partition(graph, 3, method, seed=seed).owner for seed in (1, 2))
    assert (first != second).any()


@settings(max_examples=60, deadline=None)
@given(graphs(min_vertices=1, max_vertices=60, max_arcs=200), st.data())
def test_biased_random_keeps_the_balance(graph: Graph, data: Any) -> None:
    parts = data.draw(st.integers(1, graph.vertex_count + 3))
    made = partition(graph, parts, "biased-random", seed=data.draw(st.integers(0, 99)))
    cost = graph.out_degree() + 1
    per_part = np.bincount(made.owner, cost, minlength=parts)
    assert per_part.max() <= 1.02 * cost.sum() / parts + cost.max()


def test_biased_random_cuts_less_than_random_and_metis_least() -> None:
    n = 60
    ids = np.arange(n * n).reshape(n, n)
    graph = Graph.from_edges(
        np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()]),
        np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()]),
        directed=False,
    )
    pytest.importorskip("pymetis")
    random, biased, metis = (
        partition(graph, 4, method, seed=5) for method in ("random", "biased-random", "metis")
    )
    assert biased.cut_arcs < 0.9 * random.cut_arcs
    assert biased.border_vertices < 0.95 * random.border_vertices
    assert metis.border_vertices < 0.1 * random.border_vertices
    assert metis.method == "metis"
    assert metis.note == ""
    assert metis.balance < 1.1


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_owners_given_by_the_user(dtype: Any) -> None:
    graph = named_graph("two components")
    given_owner = np.array([2, 0, 0, 2, 0, 2, 2, 0, 0], dtype)
    made = partition(graph, 3, given_owner)
    np.testing.assert_array_equal(made.owner, given_owner)
    assert made.method == "array"
    check_measures(made)  # part 1 is empty
    given_owner[:] = 1
    assert made.owner[0] == 2
    assert given_owner.flags.writeable


def test_owners_given_as_a_list_and_by_a_function() -> None:
    graph = named_graph("cycle")
    listed = partition(graph, 2, [v % 2 for v in range(50)])

    def parity(graph: Graph, parts: int) -> Any:
        return np.arange(graph.vertex_count) % parts

    called = partition(graph, 2, parity)
    np.testing.assert_array_equal(listed.owner, called.owner)
    assert called.method == "parity"
    assert called.cut_arcs == 50
    assert "parity" in repr(called)


def test_a_partition_serves_again_for_its_graph_and_for_another_of_its_size() -> None:
    graph = named_graph("grid")
    made = partition(graph, 3, "random", seed=9)
    assert partition(graph, 3, made) is made
    other = graph.without_weights()
    rebound = partition(other, 3, made)
    assert rebound.graph is other
    assert rebound.owner is made.owner
    assert rebound.method == "random"
    with pytest.raises(InputError, match="has 3 parts, and 2 are needed"):
        partition(graph, 2, made)
    with pytest.raises(InputError, match="is of 204 vertices, and the graph has 300"):
        partition(named_graph("path"), 3, made)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (2**31, "parts must be at most 2147483647, got 2147483648"),
        (0, "parts must be at least 1, got 0"),
        (-2, "parts must be at least 1, got -2"),
        (1.5, "parts must be an integer, got 1.5"),
        ("two", "parts must be an integer, got 'two'"),
    ],
)
def test_wrong_numbers_of_parts_are_named(parts: Any, message: str) -> None:
    graph = Graph.from_edges([0, 1], [1, 2])
    with pytest.raises(InputError, match=message):
        partition(graph, parts)


@pytest.mark.parametrize("parts", [1, 2])
def test_no_vertices_are_divided(parts: int) -> None:
    graph = named_graph("empty")
    for method in METHODS:
        made = partition(graph, parts, method)
        assert len(made.owner) == 0
        assert made.balance == 1.0
        assert made.boundaries is not None
        assert made.boundaries.tolist() == [0] * (parts + 1)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "metiss",
            "partition must be one of contiguous, random, biased-random, metis, .* 'metiss'",
        ),
        ([0, 1], "partition must have an owner for each of 3 vertices, got 2"),
        ([0, 2, 1], r"partition\[1\] must be a part in \[0, 2\), got 2"),
        ([0, 1, -1], r"partition\[2\] must be a part in \[0, 2\), got -1"),
        ([0.0, 1.0, 1.0], "partition must be integers, got float64"),
        ([[0, 1, 1]], r"partition must have one dimension, got shape \(1, 3\)"),
        ([[0], [1, 2]], "partition cannot be read"),
        (lambda graph, parts: [0, 7, 0], r"the result of <lambda>\[1\] must be .* got 7"),
    ],
)
def test_wrong_methods_are_named(method: Any, message: str) -> None:
    graph = Graph.from_edges([0, 1], [1, 2])
    with pytest.raises(InputError, match=message):
        partition(graph, 2, method)


def test_wrong_seeds_are_named() -> None:
    with pytest.raises(InputError, match=r"seed must be an integer, got 0\.5"):
        partition(named_graph("path"), 2, "random", seed=0.5)  # type: ignore[arg-type]


def _metis_that(vertex_part: Any) -> Any:
    def part_graph(parts: int, **arguments: Any) -> Any:
        if isinstance(vertex_part, Exception):
            raise vertex_part
        return 0, vertex_part

    return SimpleNamespace(part_graph=part_graph, Options=lambda **options: None)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, "pymetis cannot be imported"),
        (_metis_that(RuntimeError("out of luck")), r"it failed \(out of luck\)"),
        (_metis_that(ValueError()), r"it failed \(ValueError\)"),
        (_metis_that([0] * 300), "it left 1 of 2 parts empty"),
        (_metis_that([0, 1]), "it failed .*300 vertices, got 2"),
        (_metis_that([7] * 300), r"it failed .*its result\[0\] must be a part in \[0, 2\), got 7"),
    ],
)
def test_metis_falls_back_to_contiguous_and_says_so(
    monkeypatch: pytest.MonkeyPatch, module: Any, reason: str
) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", module)
    graph = named_graph("path")
    made = partition(graph, 2, "metis")
    assert made.method == "contiguous"
    assert made.note.startswith("contiguous in place of metis: ")
    assert re.search(reason, made.note), made.note
    np.testing.assert_array_equal(made.owner, partition(graph, 2).owner)


def test_metis_without_edges_falls_back() -> None:
    loops = Graph.from_edges(np.arange(6), np.arange(6))
    made = partition(loops, 3, "metis")
    assert made.method == "contiguous"
    assert "no two vertices are joined" in made.note


def test_metis_gets_a_simple_undirected_graph_and_weights_that_count_arcs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, Any] = {}

    def part_graph(parts: int, **arguments: Any) -> Any:
        seen.update(arguments)
        return 0, [0, 1, 0, 1]

    def options(**chosen: int) -> Any:
        seen["options chosen"] = chosen

    module = SimpleNamespace(part_graph=part_graph, Options=options)
    monkeypatch.setitem(sys.modules, "pymetis", module)
    graph = named_graph("parallel arcs and self-loops")
    made = partition(graph, 2, "metis", seed=-1)
    assert made.method == "metis"
    xadj, adjncy = seen["xadj"], seen["adjncy"]
    rows = [adjncy[xadj[v] : xadj[v + 1]].tolist() for v in range(4)]
    assert rows == [[1, 2], [0, 2, 3], [0, 1], [1]]
    assert seen["vweights"].tolist() == (graph.out_degree() + 1).tolist()
    assert seen["options chosen"] == {"objtype": 1, "seed": 2**31 - 1}
    assert seen["recursive"] is False
