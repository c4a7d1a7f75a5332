"""Rows from arcs, and graphs from graphs, against NumPy and SciPy, for several thread counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from godwit.algorithms import diameter
from godwit.errors import GraphTooLargeError, InputError, ValueOverflowError
from godwit.graph import blocks, build, union_find
from godwit.graph.build import _key_bits
from godwit.graph.csr import Graph
from graphs import (
    WEIGHT_DTYPES,
    arc_lists,
    arcs_of,
    each_graph,
    forced_threads,
    graphs,
    named_graph,
)


@pytest.fixture(scope="module", autouse=True, params=["compiled", "by libraries"])
def _small(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small graphs both ways: by compiled code, and by NumPy and SciPy."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "compiled":
            for module in (blocks, build, diameter, union_find):
                patch.setattr(module, "SMALL_ARCS", 0)
        yield


THREADS = (1, 2, 3)
thread_counts = st.sampled_from(THREADS)


def reference_rows(
    n: int, sources: Any, targets: Any, weights: Any, *, directed: bool
) -> tuple[Any, Any, Any]:
    """What from_edges must give, by one stable sort."""
    sources, targets = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    position = np.arange(len(sources))
    if not directed:
        turned = np.flatnonzero(sources != targets)
        sources, targets = (
            np.concatenate([sources, targets[turned]]),
            np.concatenate([targets, sources[turned]]),
        )
        position = np.concatenate([position, turned])
    order = np.lexsort((position, targets, sources))
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(sources, minlength=n), out=offsets[1:])
    taken = None if weights is None else np.asarray(weights)[position[order]]
    return offsets, targets[order], taken


def assert_rows(graph: Graph, expected: tuple[Any, Any, Any]) -> None:
    offsets, targets, weights = expected
    np.testing.assert_array_equal(graph.offsets, offsets)
    np.testing.assert_array_equal(graph.targets, targets)
    if weights is None:
        assert graph.weights is None
    else:
        assert graph.weights is not None
        assert graph.weights.dtype == weights.dtype
        np.testing.assert_array_equal(graph.weights, weights)


def assert_same(one: Graph, other: Graph) -> None:
    assert (one.directed, one.ids) == (other.directed, other.ids)
    assert_rows(one, (other.offsets, other.targets, other.weights))


@given(arc_lists(), st.booleans(), st.sampled_from((None, *WEIGHT_DTYPES)), thread_counts)
def test_from_arcs_equals_a_stable_sort(
    arcs: tuple[int, list[int], list[int]], directed: bool, dtype: str | None, threads: int
) -> None:
    n, sources, targets = arcs
    # Distinct weights show whether parallel arcs keep their order.
    weights = None if dtype is None else np.arange(len(sources)).astype(dtype)
    with forced_threads(threads):
        graph = Graph.from_edges(sources, targets, weights, vertex_count=n, directed=directed)
    assert_rows(graph, reference_rows(n, sources, targets, weights, directed=directed))


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("arcs_per_bucket", [500, 100_000])
@pytest.mark.parametrize("shape", ["uniform", "hub", "sorted", "wide"])
@pytest.mark.parametrize("dtype", [None, "int32", "float64"])
def test_from_arcs_of_more_arcs_than_one_digit_sorts(
    shape: str, threads: int, arcs_per_bucket: int, dtype: str | None
) -> None:
    generator = np.random.default_rng(5)
    n = 5_000_000 if shape == "wide" else 3_000
    sources, targets = generator.integers(0, n, (2, 20_000))
    if shape == "hub":
        sources[generator.random(len(sources)) < 0.7] = 17
    if shape == "sorted":
        sources.sort()
    weights = None if dtype is None else np.arange(len(sources)).astype(dtype)
    for directed in (True, False):
        with forced_threads(threads, arcs_per_bucket):
            graph = Graph.from_edges(sources, targets, weights, vertex_count=n, directed=directed)
        assert_rows(graph, reference_rows(n, sources, targets, weights, directed=directed))


@pytest.mark.parametrize("arc_count", [1, 10**6, 10**11])
@pytest.mark.parametrize("vertex_count", [1, 2, 1000, 2**31, 2**33 + 1, 2**40])
def test_keys_fit_their_words(vertex_count: int, arc_count: int) -> None:
    target_bits, row_bits = _key_bits(vertex_count, arc_count)
    assert vertex_count <= 2**target_bits
    assert row_bits >= 0
    assert target_bits + row_bits < 63
    assert (vertex_count - 1) >> row_bits < 2**20


def test_from_arcs_takes_mixed_and_wide_ids() -> None:
    graph = Graph.from_edges(
        np.array([2, 0], np.int32), np.array([1, 2], np.int64), id_dtype=np.int64
    )
    assert graph.targets.dtype == np.int64
    assert arcs_of(graph) == [(0, 2), (2, 1)]
    assert arcs_of(Graph.from_edges(np.array([1], np.uint8), np.array([0], np.uint64))) == [(1, 0)]


def test_from_arcs_takes_strided_and_foreign_arrays() -> None:
    pairs = np.array([[0, 1], [2, 0], [1, 2]], ">i4")
    weights = np.arange(6, dtype=">f8")[::2]
    graph = Graph.from_edges(pairs[:, 0], pairs[:, 1], weights)
    assert arcs_of(graph) == [(0, 1, 0.0), (1, 2, 4.0), (2, 0, 2.0)]


def test_graph_that_does_not_fit_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "1000000")
    with pytest.raises(GraphTooLargeError, match=r"100,000,000 vertices.*available"):
        Graph.from_edges([0], [99_999_999])
    with pytest.raises(GraphTooLargeError):
        Graph.from_edges([0], [2**62])


@given(graphs(), thread_counts)
def test_reverse_is_the_transpose(graph: Graph, threads: int) -> None:
    with forced_threads(threads):
        reverse = graph.reverse
    assert reverse.reverse is graph
    turned = sorted((t, s, *w) for s, t, *w in arcs_of(graph))
    assert sorted(arcs_of(reverse)) == turned
    assert reverse.has_sorted_rows
    if not graph.directed:
        assert reverse is graph


@given(graphs(directed=True), thread_counts, st.sampled_from(["min", "max", "sum", "first"]))
def test_symmetrize_joins_both_directions(graph: Graph, threads: int, how: Any) -> None:
    with forced_threads(threads):
        symmetric = graph.symmetrize(how)
        every = graph.symmetrize(None)
    expected = defaultdict(list)
    for source, target, *weight in arcs_of(graph):
        expected[source, target] += weight
        if source != target:
            expected[target, source] += weight
    assert_merged(symmetric, expected, how)
    assert not symmetric.directed
    loops = sum(s == t for s, t, *_ in arcs_of(graph))
    assert every.arc_count == 2 * graph.arc_count - loops
    assert every.edge_count == graph.arc_count
    Graph(every.offsets, every.targets, every.weights, directed=False)


@given(graphs(), thread_counts, st.sampled_from(["min", "max", "sum", "first"]))
def test_merge_parallel_arcs(graph: Graph, threads: int, how: Any) -> None:
    with forced_threads(threads):
        merged = graph.merge_parallel_arcs(how)
    expected = defaultdict(list)
    for source, target, *weight in arcs_of(graph):
        expected[source, target] += weight
    assert_merged(merged, expected, how)
    assert merged.directed == graph.directed


def assert_merged(graph: Graph, expected: dict[tuple[int, int], list[Any]], how: str) -> None:
    choose = {"min": min, "max": max, "sum": sum, "first": lambda weights: weights[0]}[how]
    arcs = [(*pair, choose(w)) if graph.is_weighted else pair for pair, w in expected.items()]
    assert arcs_of(graph) == sorted(arcs)


def test_merge_sorts_rows_that_were_not() -> None:
    graph = Graph([0, 4], [0, 0, 0, 0], [3, 1, 4, 1])
    assert arcs_of(graph.merge_parallel_arcs("sum")) == [(0, 0, 9)]
    graph = Graph([0, 3, 3, 3], [2, 1, 2], [5, 6, 4])
    assert arcs_of(graph.merge_parallel_arcs("first")) == [(0, 1, 6), (0, 2, 5)]


@pytest.mark.parametrize(
    ("dtype", "weights"),
    [
        ("int32", [2**31 - 1, 1]),
        ("int32", [-(2**31), -1]),
        ("uint32", [2**32 - 1, 1]),
        ("int64", [2**63 - 1, 1]),
        ("int64", [-(2**63), -1]),
    ],
)
def test_sum_that_does_not_fit_is_an_error(dtype: str, weights: list[int]) -> None:
    graph = Graph.from_edges([1, 1], [2, 2], np.array(weights, dtype))
    with pytest.raises(ValueOverflowError, match=rf"1 -> 2 .*{dtype}"):
        graph.merge_parallel_arcs("sum")
    assert graph.merge_parallel_arcs("max").weights is not None
    barely = Graph.from_edges([1, 1], [2, 2], np.array([weights[0], 0], dtype))
    assert arcs_of(barely.merge_parallel_arcs("sum")) == [(1, 2, weights[0])]


def test_sum_of_both_signs() -> None:
    graph = Graph.from_edges([0, 0, 0], [1, 1, 1], np.array([5, -7, 4], np.int32))
    assert arcs_of(graph.merge_parallel_arcs("sum")) == [(0, 1, 2)]


def test_merge_refuses_an_unknown_way() -> None:
    for make in (Graph.merge_parallel_arcs, Graph.symmetrize):
        with pytest.raises(InputError, match="first, min, max, sum, got 'mean'"):
            make(named_graph("one arc"), "mean")  # type: ignore[operator]


@given(graphs(), thread_counts)
def test_remove_self_loops(graph: Graph, threads: int) -> None:
    with forced_threads(threads):
        result = graph.remove_self_loops()
    assert arcs_of(result) == [arc for arc in arcs_of(graph) if arc[0] != arc[1]]
    assert result.vertex_count == graph.vertex_count
    assert result.degree_statistics().self_loops == 0
    if result.arc_count == graph.arc_count:
        assert result is graph


@given(graphs(), thread_counts, st.randoms(use_true_random=False))
def test_relabel_renames_every_end(graph: Graph, threads: int, random: Any) -> None:
    names = list(range(graph.vertex_count))
    random.shuffle(names)
    with forced_threads(threads):
        renamed = graph.relabel(names)
    expected = sorted((names[s], names[t], *w) for s, t, *w in arcs_of(graph))
    assert sorted(arcs_of(renamed)) == expected
    assert renamed.has_sorted_rows
    back = np.argsort(names)
    assert_same(renamed.relabel(back), graph)


@pytest.mark.parametrize(
    ("permutation", "message"),
    [
        ([0, 1], "3 entries, got 2"),
        ([0, 1, 3], r"permutation\[2\] must be in \[0, 3\), got 3"),
        ([0, -1, 1], r"permutation\[1\]"),
        ([0, 1, 1], "2 is absent"),
        ([0.0, 1.0, 2.0], "must be integers, got float64"),
    ],
)
def test_relabel_refuses_what_is_no_permutation(permutation: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph.from_edges([0], [2]).relabel(permutation)


@given(graphs(min_vertices=1), thread_counts)
def test_largest_component_is_scipys(graph: Graph, threads: int) -> None:
    with forced_threads(threads):
        component = graph.largest_component()
    vertices = component.ids.stored
    _, labels = connected_components(graph.to_scipy(merge="min"), directed=True, connection="weak")
    sizes = np.bincount(labels)
    assert len(vertices) == component.vertex_count == sizes.max()
    first = int(np.argmax(sizes[labels] == sizes.max()))
    np.testing.assert_array_equal(vertices, np.flatnonzero(labels == labels[first]))
    names = {int(v): i for i, v in enumerate(vertices)}
    inside = [(names[s], names[t], *w) for s, t, *w in arcs_of(graph) if s in names]
    assert arcs_of(component) == inside
    assert component.directed == graph.directed


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("directed", [True, False])
def test_components_under_contention(threads: int, directed: bool) -> None:
    from godwit.graph.union_find import weak_components

    generator = np.random.default_rng(threads)
    n = 20_000
    sources, targets = generator.integers(0, n, (2, 14_000))
    graph = Graph.from_edges(sources, targets, vertex_count=n, directed=directed)
    _, labels = connected_components(graph.to_scipy(merge="min"), directed=True, connection="weak")
    smallest = np.full(labels.max() + 1, n)
    np.minimum.at(smallest, labels, np.arange(n))
    for _ in range(5):
        with forced_threads(threads):
            np.testing.assert_array_equal(
                weak_components(graph.rows, graph.directed), smallest[labels]
            )


@given(graphs(), thread_counts, st.integers(-5, 5), st.integers(0, 100), st.integers())
def test_random_weights_are_equal_in_both_directions(
    graph: Graph, threads: int, low: int, span: int, seed: int
) -> None:
    with forced_threads(threads):
        weighted = graph.with_random_weights(low, low + span, seed)
    assert weighted.weights is not None
    assert weighted.weights.dtype == np.int32
    assert ((weighted.weights >= low) & (weighted.weights <= low + span)).all()
    by_pair: dict[frozenset[int], int] = {}
    for source, target, weight in arcs_of(weighted):
        assert by_pair.setdefault(frozenset((source, target)), weight) == weight
    assert_same(graph.with_random_weights(low, low + span, seed), weighted)


def test_random_weights_use_the_whole_range_and_the_seed() -> None:
    graph = named_graph("random directed")
    one, two = (graph.with_random_weights(1, 8, seed) for seed in (1, 2))
    assert one.weights is not None
    assert two.weights is not None
    assert set(one.weights.tolist()) == set(range(1, 9))
    assert (one.weights != two.weights).any()
    wide = graph.with_random_weights(0, 2**40)
    assert wide.weights is not None
    assert wide.weights.dtype == np.int64
    for low, high in ((2, 1), (0, 2**62), (3, 0.5), (1.0, 1), (0.0, np.inf), ("a", "b")):
        with pytest.raises(InputError, match="low <= high"):
            graph.with_random_weights(low, high)  # type: ignore[arg-type]


@given(graphs(), thread_counts, st.integers())
def test_random_floats_are_equal_in_both_directions(graph: Graph, threads: int, seed: int) -> None:
    with forced_threads(threads):
        weighted = graph.with_random_weights(-0.25, 1, seed)
    assert weighted.weights is not None
    assert weighted.weights.dtype == np.float64
    assert ((weighted.weights >= -0.25) & (weighted.weights < 1)).all()
    Graph(weighted.offsets, weighted.targets, weighted.weights, directed=graph.directed)
    assert_same(graph.with_random_weights(-0.25, 1, seed), weighted)


def test_random_floats_are_spread_evenly_and_stay_below_high() -> None:
    graph = Graph.from_edges(np.arange(20_000), np.arange(20_000))
    weights = graph.with_random_weights(2.0, 4).weights
    assert weights is not None
    parts = np.bincount(((weights - 2) * 5).astype(int), minlength=10)
    assert len(parts) == 10
    np.testing.assert_allclose(parts, 2000, rtol=0.1)
    # Between two neighbouring floats every sum rounds to one of them: the lower it must be.
    narrow = graph.with_random_weights(1.0, np.nextafter(1.0, 2.0)).weights
    assert narrow is not None
    assert set(narrow.tolist()) == {1.0}


@given(graphs(), thread_counts, st.integers(1, 5))
def test_replicas_are_disjoint_copies(graph: Graph, threads: int, count: int) -> None:
    with forced_threads(threads):
        copies = graph.replicate(count)
    n, m = graph.vertex_count, graph.arc_count
    assert (copies.vertex_count, copies.arc_count) == (count * n, count * m)
    expected = [
        (s + c * n, t + c * n, *weight) for c in range(count) for s, t, *weight in arcs_of(graph)
    ]
    assert arcs_of(copies) == expected
    assert copies.directed == graph.directed
    assert copies.targets.dtype == graph.targets.dtype
    if graph.weights is not None:
        assert copies.weights is not None
        assert copies.weights.dtype == graph.weights.dtype


def test_ids_of_replicas_count_on() -> None:
    graph = Graph.from_edges([0], [1], ids=1).replicate(3)
    assert [graph.ids[v] for v in range(6)] == [1, 2, 3, 4, 5, 6]
    assert graph.replicate(1) is graph
    named = Graph.from_edges([0], [1], ids=["a", "b"])
    with pytest.raises(InputError, match=r"2 copies cannot share .*with_ids"):
        named.replicate(2)
    assert named.replicate(1) is named
    for count in (0, -1, 1.5):
        with pytest.raises(InputError, match="count must"):
            graph.replicate(count)  # type: ignore[arg-type]
    with pytest.raises(GraphTooLargeError, match="copies needs"):
        graph.replicate(2**60)


@each_graph
@pytest.mark.parametrize("threads", [2, 3])
def test_every_operation_gives_one_result_for_any_number_of_threads(
    name: str, threads: int
) -> None:
    graph = named_graph(name)

    def everything() -> list[Graph]:
        copy = Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)
        return [
            copy.reverse,
            copy.symmetrize(),
            copy.merge_parallel_arcs("sum"),
            copy.remove_self_loops(),
            copy.relabel(np.arange(copy.vertex_count)[::-1]),
            copy.largest_component(),
            copy.with_random_weights(1, 64),
            copy.with_random_weights(0.5, 1),
            copy.replicate(3),
        ]

    alone = everything()
    with forced_threads(threads):
        for one, other in zip(everything(), alone, strict=True):
            assert_same(one, other)
