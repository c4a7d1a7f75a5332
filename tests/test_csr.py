"""The graph itself: what it accepts and refuses, what it shares, what it says about itself."""

from __future__ import annotations

import pickle
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

import godwit as gw
from godwit.errors import GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.graph.rows import estimate_bytes, require_memory
from graphs import WEIGHT_DTYPES, arcs_of, each_graph, forced_threads, graphs, named_graph
from waiting import HANG_S


@each_graph
def test_arrays_are_read_only_contiguous_and_typed(name: str) -> None:
    graph = named_graph(name)
    assert graph.offsets.dtype == np.int64
    assert graph.offsets.shape == (graph.vertex_count + 1,)
    assert graph.targets.dtype in (np.int32, np.int64)
    for array in (graph.offsets, graph.targets, graph.weights):
        if array is not None:
            assert array.flags.c_contiguous
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
    with pytest.raises(AttributeError):
        graph.targets = graph.targets  # type: ignore[misc]
    with pytest.raises(AttributeError):
        graph.other = 1  # type: ignore[attr-defined]


@each_graph
def test_nbytes_is_the_estimate(name: str) -> None:
    graph = named_graph(name)
    weight_bytes = 0 if graph.weights is None else graph.weights.itemsize
    n, m = graph.vertex_count, graph.arc_count
    assert graph.nbytes == estimate_bytes(n, m, graph.targets.itemsize, weight_bytes)


def test_arrays_of_the_right_type_are_shared_and_left_writable() -> None:
    offsets = np.array([0, 1, 2])
    targets = np.array([1, 0], np.int32)
    weights = np.array([0.5, 1.5])
    graph = Graph(offsets, targets, weights)
    assert graph.weights is not None
    for given_array, kept in (
        (offsets, graph.offsets),
        (targets, graph.targets),
        (weights, graph.weights),
    ):
        assert np.shares_memory(given_array, kept)
        assert given_array.flags.writeable


def test_id_dtypes() -> None:
    assert Graph([0, 1], [0]).targets.dtype == np.int32
    assert Graph([0, 1], np.array([0], np.int64)).targets.dtype == np.int64
    assert Graph([0, 1], np.array([0], np.uint16)).targets.dtype == np.int32
    assert Graph.from_edges([0], [0], id_dtype="int64").targets.dtype == np.int64
    for wrong in ("uint32", float, "nonsense"):
        with pytest.raises(InputError, match="id_dtype must be int32 or int64"):
            Graph.from_edges([0], [0], id_dtype=wrong)


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [(name, name) for name in WEIGHT_DTYPES]
    + [
        ("bool", "int32"),
        ("int8", "int32"),
        ("uint16", "int32"),
        ("float16", "float32"),
        ("uint64", "int64"),
        (">f4", "float32"),
        (">i8", "int64"),
    ],
)
def test_weight_dtypes(given_dtype: str, kept: str) -> None:
    graph = Graph.from_edges([1, 0], [0, 1], np.array([1, 0], given_dtype))
    assert graph.weights is not None
    assert graph.weights.dtype == kept
    assert graph.weights.dtype.isnative
    assert graph.weights.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), r"vertex_count \+ 1 entries"),
        (([1, 2], [0, 0]), "begin with 0, got 1"),
        (([0, 2, 1, 3], [0, 0, 0]), "must not decrease, got 2 and 1 at 1 and 2"),
        (([0, 1], [0, 0]), "end with the number of targets, 2, got 1"),
        (([0, 2], [0, 1]), r"targets\[1\] must be a vertex in \[0, 1\), got 1"),
        (([0, 1], [-1]), r"targets\[0\] must be a vertex in \[0, 1\), got -1"),
        (([0, 1], [2**40]), "got 1099511627776"),
        (([0.0, 1.0], [0]), "offsets must be integers, got float64"),
        (([0, 1], [[0]]), "one dimension"),
        (([0, 1], [0], [1, 2]), r"weights must have shape \(1,\), got \(2,\)"),
        (([0, 1], [0], ["x"]), "floating-point numbers, got <U1"),
        (([0, 1], [0], [1j]), "floating-point numbers, got complex128"),
        (([0, 1], [0], np.array([2**63], np.uint64)), "below"),
    ],
)
def test_wrong_rows_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Graph(*arguments)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (([0, 1], [1]), {}, "one length, got 2 and 1"),
        (([0, 5], [1, 2]), {"vertex_count": 3}, r"sources\[1\] must be .* \[0, 3\), got 5"),
        (([0, 1], [1, -2]), {}, r"targets\[1\] must be .* \[0, 2\), got -2"),
        (([-1], [-1]), {}, r"sources\[0\] .* got -1"),
        (([0], [1], [1.0, 2.0]), {}, "weights must have shape"),
        (([0.5], [1]), {}, "sources must be integers"),
        (([], []), {"vertex_count": -1}, "must not be negative, got -1"),
        (([0], [0]), {"vertex_count": 0}, r"\[0, 0\), got 0"),
        ((np.array([2**63], np.uint64), [1]), {}, r"below 2\*\*63"),
    ],
)
def test_wrong_arcs_are_refused(
    arguments: tuple[Any, ...], keywords: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Graph.from_edges(*arguments, **keywords)


@given(graphs(), st.sampled_from([1, 2, 3]))
def test_symmetry_is_checked(graph: Graph, threads: int) -> None:
    arcs = sorted(arcs_of(graph))
    symmetric = arcs == sorted((t, s, *w) for s, t, *w in arcs)
    with forced_threads(threads):
        if symmetric:
            Graph(graph.offsets, graph.targets, graph.weights, directed=False)
        else:
            with pytest.raises(InputError, match="between"):
                Graph(graph.offsets, graph.targets, graph.weights, directed=False)


def test_what_breaks_symmetry_is_named() -> None:
    with pytest.raises(InputError, match=r"between 1 and 2 differ.*symmetrize"):
        Graph([0, 1, 3, 3], [1, 0, 2], directed=False)
    with pytest.raises(
        InputError,
        match=r"between [01] and [01] of weight [56] differ.*least of their weights, or symm",
    ):
        Graph([0, 1, 2], [1, 0], [5, 6], directed=False)
    with pytest.raises(InputError, match="differ"):
        Graph.from_edges([0], [1], [1], directed=False).with_weights([1, 2])


@given(graphs())
def test_scipy_and_back(graph: Graph) -> None:
    merged = graph.merge_parallel_arcs("min")
    if merged is not graph and merged.arc_count < graph.arc_count:
        with pytest.raises(InputError, match=r"parallel arcs from vertex .* merge='min'"):
            graph.to_scipy()
        assert arcs_of(Graph.from_scipy(graph.to_scipy(merge="min"))) == arcs_of(merged)
        graph = merged
    matrix = graph.to_scipy()
    assert isinstance(matrix, sparse.csr_array)
    assert matrix.shape == (graph.vertex_count, graph.vertex_count)
    if graph.arc_count and graph.targets.dtype == np.int32:
        assert np.shares_memory(matrix.indices, graph.targets)
        assert graph.weights is None or np.shares_memory(matrix.data, graph.weights)
    back = Graph.from_scipy(matrix, directed=graph.directed)
    assert arcs_of(back) == arcs_of(graph)
    assert back.directed == graph.directed
    if graph.weights is not None:
        assert back.weights is not None
        assert back.weights.dtype == graph.weights.dtype


def test_scipy_finds_our_distances_where_arcs_are_parallel_or_of_weight_0() -> None:
    graph = Graph.from_edges([0, 0, 0, 1, 2], [1, 1, 2, 2, 3], [7, 5, 0, 1, 4])
    matrix = graph.to_scipy(merge="min")
    assert matrix.nnz == 4
    for source in range(4):
        found = gw.sssp(graph, source, devices="cpu:0")
        distances = np.where(found.reached, found.distance, np.inf)
        assert distances.tolist() == dijkstra(matrix, indices=source).tolist()
    assert graph.to_scipy(merge="sum").toarray()[0].tolist() == [0, 12, 0, 0]
    with pytest.raises(InputError, match=r"merge must be one of .*, got 'keep'"):
        graph.to_scipy(merge="keep")  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32"])
@pytest.mark.parametrize("directed", [True, False])
def test_from_scipy_layouts(layout: str, kind: str, dtype: str, directed: bool) -> None:
    generator = np.random.default_rng(3)
    dense = np.where(generator.random((30, 30)) < 0.2, generator.integers(1, 9, (30, 30)), 0)
    if not directed:
        dense = np.maximum(dense, dense.T)
    dense = dense.astype(dtype)
    matrix = getattr(sparse, f"{layout}_{kind}")(dense)
    graph = Graph.from_scipy(matrix, directed=directed)
    assert graph.directed == directed
    assert graph.is_weighted == (dtype != "bool")
    sources, targets = np.nonzero(dense)
    expected = [sources.tolist(), targets.tolist()]
    if dtype != "bool":
        expected.append(dense[sources, targets].tolist())
    assert arcs_of(graph) == list(zip(*expected, strict=True))


def test_from_scipy_shares_csr_and_keeps_its_order() -> None:
    indices, indptr = np.array([2, 0, 1], np.int32), np.array([0, 2, 3, 3], np.int32)
    matrix = sparse.csr_array((np.array([3, 0, 2]), indices, indptr), shape=(3, 3))
    graph = Graph.from_scipy(matrix)
    assert arcs_of(graph) == [(0, 2, 3), (0, 0, 0), (1, 1, 2)]
    assert graph.weights is not None
    assert np.shares_memory(graph.targets, matrix.indices)
    assert np.shares_memory(graph.weights, matrix.data)
    assert matrix.data.flags.writeable


def test_from_scipy_keeps_stored_duplicates_as_parallel_arcs() -> None:
    matrix = sparse.coo_array(([1, 2], ([0, 0], [1, 1])), shape=(2, 2))
    assert arcs_of(Graph.from_scipy(matrix)) == [(0, 1, 1), (0, 1, 2)]


def test_from_scipy_refuses() -> None:
    with pytest.raises(InputError, match=r"square, got shape \(2, 3\)"):
        Graph.from_scipy(sparse.csr_array((2, 3)))
    with pytest.raises(InputError, match=r"scipy.sparse matrix, got ndarray"):
        Graph.from_scipy(np.eye(3))
    with pytest.raises(InputError, match="complex128"):
        Graph.from_scipy(sparse.csr_array(np.eye(2) * 1j))
    with pytest.raises(InputError, match="eliminate_zeros"):
        Graph.from_scipy(
            sparse.csr_array((np.array([False]), np.array([0]), np.array([0, 1])), shape=(1, 1))
        )
    with pytest.raises(InputError, match="both directions"):
        Graph.from_scipy(sparse.coo_array(([1], ([0], [1])), shape=(2, 2)), directed=False)


@each_graph
def test_counts_and_statistics(name: str) -> None:
    graph = named_graph(name)
    arcs = arcs_of(graph)
    degree = [sum(arc[0] == v for arc in arcs) for v in range(graph.vertex_count)]
    loops = sum(arc[0] == arc[1] for arc in arcs)
    assert graph.out_degree().tolist() == degree
    assert graph.edge_count == (None if graph.directed else (len(arcs) + loops) // 2)
    statistics = graph.degree_statistics()
    ends = {arc[0] for arc in arcs} | {arc[1] for arc in arcs}
    assert statistics.isolated == graph.vertex_count - len(ends)
    assert statistics.self_loops == loops
    if degree:
        assert (statistics.min, statistics.max) == (min(degree), max(degree))
        assert statistics.mean == pytest.approx(np.mean(degree))
        assert statistics.median == np.median(degree)
        assert graph.highest_degree_vertex() == degree.index(max(degree))
        assert statistics.sinks == degree.count(0)
    else:
        with pytest.raises(InputError, match="without vertices"):
            graph.highest_degree_vertex()


def test_derived_facts_are_computed_once() -> None:
    graph = named_graph("grid")
    assert graph.degree_statistics() is graph.degree_statistics()
    directed = Graph.from_edges([0, 1], [1, 2])
    assert directed.reverse is directed.reverse
    assert directed.cached("fact", lambda: [1]) is directed.cached("fact", lambda: [2])


def test_reverse_and_original_do_not_keep_each_other_alive() -> None:
    graph = Graph.from_edges([0, 1, 1], [1, 2, 0], [5, 6, 7])
    arcs = arcs_of(graph)
    reverse = graph.reverse
    assert reverse.reverse is graph
    gone = weakref.ref(graph)
    del graph
    assert gone() is None  # at once, without the garbage collector
    assert arcs_of(reverse.reverse) == arcs
    assert reverse.reverse is reverse.reverse


def test_weights_are_exchanged_without_copying_the_arcs() -> None:
    graph = named_graph("random directed")
    bare = graph.without_weights()
    assert not bare.is_weighted
    assert bare.without_weights() is bare
    again = bare.with_weights(np.arange(bare.arc_count))
    assert again.weights is not None
    assert again.targets.base is graph.targets.base or np.shares_memory(
        again.targets, graph.targets
    )
    with pytest.raises(InputError, match="shape"):
        graph.with_weights([1])


def test_id_base_is_carried_along() -> None:
    graph = Graph.from_edges([0, 0], [1, 1], ids=VertexIds.counted(2, 1))
    for made in (
        graph.reverse,
        graph.symmetrize(),
        graph.merge_parallel_arcs(),
        graph.with_random_weights(1, 2),
        graph.relabel([1, 0]),
        graph.largest_component(),
    ):
        assert made.ids.base == 1


def test_pickles() -> None:
    graph = named_graph("parallel edges and self-loops")
    copy = pickle.loads(pickle.dumps(graph))
    assert arcs_of(copy) == arcs_of(graph)
    assert not copy.directed
    assert not copy.targets.flags.writeable


def test_repr_says_what_it_is() -> None:
    assert repr(named_graph("grid")) == (
        "<Graph: 204 vertices, 758 arcs, undirected, int32 ids, int32 weights>"
    )


def test_require_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(2**30))
    require_memory(2**30, "this")
    with pytest.raises(GraphTooLargeError, match=r"this needs some 2.0 GiB, and 1.0 GiB are"):
        require_memory(2**31, "this")


def test_importing_the_class_does_not_import_numba() -> None:
    code = (
        "import sys, godwit.graph.csr; sys.exit('numba' in sys.modules or 'scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=HANG_S).returncode == 0
