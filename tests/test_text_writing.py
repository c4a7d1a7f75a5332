"""Graphs written as text are read again as they were, by us and by SciPy."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import InputError
from godwit.graph.csr import Graph
from godwit.graph.ids import VertexIds
from godwit.io.graph_files import read, write
from godwit.io.text import edge_list
from godwit.io.text import writing as text_writing
from graphs import arcs_of, each_graph, forced_threads, graphs, named_graph

PACKINGS = ("", ".gz", ".xz", ".zst")
DOUBLES = st.floats(allow_nan=False) | st.sampled_from(
    [0.1, 1e22, 5e-324, -0.0, 1.7976931348623157e308]
)


def named_arcs(graph: Graph) -> list[tuple[Any, ...]]:
    """Arcs between ids, in order."""
    return sorted((graph.ids[u], graph.ids[v], *rest) for u, v, *rest in arcs_of(graph))


def assert_same(found: Graph, graph: Graph) -> None:
    """The same arcs; integers may have become wider, and float32 double."""
    assert (found.vertex_count, found.directed) == (graph.vertex_count, graph.directed)
    assert sorted(arcs_of(found)) == sorted(arcs_of(graph))
    if graph.arc_count:
        assert found.is_weighted == graph.is_weighted
    if found.weights is not None and graph.weights is not None and graph.arc_count:
        assert (found.weights.dtype.kind == "f") == (graph.weights.dtype.kind == "f")
    Graph(found.offsets, found.targets, found.weights, directed=found.directed)


class TestMatrixMarket:
    @pytest.mark.parametrize("packed", PACKINGS)
    @settings(max_examples=40)
    @given(graph=graphs())
    def test_round_trip(self, tmp_path_factory: Any, packed: str, graph: Graph) -> None:
        path = tmp_path_factory.getbasetemp() / f"round.mtx{packed}"
        write(graph, path)
        found = read(path)
        assert_same(found, graph)
        assert found.is_weighted == graph.is_weighted

    @each_graph
    def test_scipy_reads_the_same_matrix(self, name: str, tmp_path: Path) -> None:
        graph = named_graph(name)
        path = tmp_path / "x.mtx"
        write(graph, path)
        if graph.vertex_count == 0:
            return  # SciPy refuses
        entries = scipy.sparse.coo_array(scipy.io.mmread(path))
        columns = [entries.row.tolist(), entries.col.tolist()]
        if graph.is_weighted:
            columns.append(entries.data.tolist())
        assert sorted(zip(*columns, strict=True)) == sorted(arcs_of(graph))

    @given(weights=st.lists(DOUBLES, min_size=1, max_size=50))
    def test_doubles_are_exact(self, tmp_path_factory: Any, weights: list[float]) -> None:
        path = tmp_path_factory.getbasetemp() / "doubles.mtx"
        targets = np.arange(len(weights))
        graph = Graph.from_edges(np.zeros_like(targets), targets, np.array(weights))
        write(graph, path)
        found = read(path).weights
        assert found is not None
        assert graph.weights is not None
        assert np.array_equal(found.view(np.int64), graph.weights.view(np.int64))

    def test_not_a_number_is_kept(self, tmp_path: Path) -> None:
        weights = np.array([1.0, np.nan, np.inf, -np.inf])
        write(Graph.from_edges([0, 0, 0, 0], [0, 1, 2, 3], weights), tmp_path / "x.mtx")
        assert np.array_equal(read(tmp_path / "x.mtx").weights, weights, equal_nan=True)


class TestDimacs:
    @pytest.mark.parametrize("packed", PACKINGS)
    @settings(max_examples=40)
    @given(graph=graphs(weighted=True))
    def test_round_trip(self, tmp_path_factory: Any, packed: str, graph: Graph) -> None:
        path = tmp_path_factory.getbasetemp() / f"round.gr{packed}"
        assert graph.weights is not None
        if graph.weights.dtype.kind == "f":
            with pytest.raises(InputError, match="only integers"):
                write(graph, path)
            return
        write(graph, path)
        found = read(path)
        assert found.directed
        arcs = Graph.trusted(graph.offsets, graph.targets, graph.weights)
        assert_same(found, arcs)
        assert found.is_weighted

    def test_what_it_cannot_hold(self, tmp_path: Path) -> None:
        graph = Graph.from_edges([0], [1], [5])
        for wrong, message in (
            (graph.without_weights(), "the graph has none"),
            (graph.with_ids(["a", "b"]), "cannot hold text ids"),
        ):
            with pytest.raises(InputError, match=message):
                write(wrong, tmp_path / "x.gr")
        assert list(tmp_path.iterdir()) == []

    def test_lines(self, tmp_path: Path) -> None:
        write(Graph.from_edges([0, 2], [1, 2], [5, -(2**62)]), tmp_path / "x.gr")
        expected = f"p sp 3 2\na 1 2 5\na 3 3 {-(2**62)}\n"
        assert (tmp_path / "x.gr").read_text() == expected


class TestEdgeList:
    @pytest.mark.parametrize("packed", PACKINGS)
    @settings(max_examples=40)
    @given(graph=graphs())
    def test_round_trip(self, tmp_path_factory: Any, packed: str, graph: Graph) -> None:
        path = tmp_path_factory.getbasetemp() / f"round.txt{packed}"
        write(graph, path)
        assert_same(read(path), graph)

    @pytest.mark.parametrize("kind", ["base", "integer", "text"])
    @settings(max_examples=40)
    @given(graph=graphs(min_vertices=1))
    def test_ids_of_any_kind(self, tmp_path_factory: Any, kind: str, graph: Graph) -> None:
        path = tmp_path_factory.getbasetemp() / "named.txt"
        n = graph.vertex_count
        ids: Any = {
            "base": VertexIds.counted(n, 3),
            "integer": np.arange(n) ** 3 * 10**9 - 10,
            "text": [f"vértex-{v:03}" for v in range(n)],  # in the order of texts,
        }[kind]
        graph = graph.with_ids(ids)
        if kind != "base" and graph.degree_statistics().isolated:
            with pytest.raises(InputError, match="vertices without edges"):
                write(graph, path)
            return
        write(graph, path)
        found = read(path)
        assert found.ids == graph.ids
        assert (found.vertex_count, found.directed) == (n, graph.directed)
        assert named_arcs(found) == named_arcs(graph)

    @pytest.mark.parametrize(
        "ids",
        [["007", "1", "7"], ["1", "02", "x"], ["-1", "-2", "3"], ["0x1", "0x2", "0x3"], [-9, 5, 7],
         ["a\u00a0", "b\u0085c", "\u2028"], ["c", "p", "a"], [0, 1, 10**15]],
    )  # fmt: skip
    def test_ids_that_look_like_others(self, ids: list[Any], tmp_path: Path) -> None:
        graph = Graph.from_edges([0, 1, 0], [2, 2, 1], ids=ids)
        for name in ("x.txt", "x.el"):
            write(graph, tmp_path / name)
            found = read(tmp_path / name)
            assert sorted(found.ids.of(range(3)), key=str) == sorted(ids, key=str)
            assert named_arcs(found) == named_arcs(graph)

    @pytest.mark.parametrize(
        "id", ["x" * (1 << 16), "", "a b", "a,b", "#a", "%", 'a"b', "a\tb", "a\nb"]
    )
    def test_ids_that_cannot_be_read_again(self, id: str, tmp_path: Path) -> None:
        graph = Graph.from_edges([0], [1], ids=["fine", id])
        with pytest.raises(InputError, match="cannot hold the id"):
            write(graph, tmp_path / "x.txt")
        assert list(tmp_path.iterdir()) == []

    def test_lines(self, tmp_path: Path) -> None:
        graph = Graph.from_edges([0, 1, 1], [1, 1, 0], [1.0, 2.5, 3.0], directed=False)
        write(graph, tmp_path / "x.txt")
        assert (tmp_path / "x.txt").read_text() == (
            "# Undirected graph\n# Nodes: 2 Edges: 3\n1 0 1.0\n1 0 3\n1 1 2.5\n"
        )

    def test_isolated_vertices_stay_however_many(self, tmp_path: Path) -> None:
        graph = Graph.from_edges([0, 5], [7, 1_999_999], vertex_count=3_000_000)
        write(graph, tmp_path / "x.txt")
        assert_same(read(tmp_path / "x.txt"), graph)

    def test_whole_doubles_stay_doubles(self, tmp_path: Path) -> None:
        write(Graph.from_edges([0, 0], [1, 2], [1.0, 2.0]), tmp_path / "x.wel")
        weights = read(tmp_path / "x.wel").weights
        assert weights is not None
        assert weights.dtype == np.float64


@pytest.mark.parametrize("piece", [3, 64])
@pytest.mark.parametrize("threads", [1, 3])
@each_graph
def test_pieces_and_threads_change_nothing(
    name: str, piece: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = named_graph(name)
    names = np.arange(graph.vertex_count) * 10**9 - 5

    def all_texts() -> list[bytes]:
        files = [io.BytesIO() for _ in range(4)]
        edge_list.write(graph, files[0])
        text_writing.write_arcs(graph, files[1], prefix="a", base=7, both=True)
        plain = graph.without_weights()
        text_writing.write_rows(plain, files[2], base=1)
        integral = plain
        if graph.weights is not None:
            integral = Graph.trusted(
                graph.offsets, graph.targets, np.arange(graph.arc_count) * 10**17 - 10**18
            )
        text_writing.write_rows(integral, files[3], names=names, headed=True)
        return [file.getvalue() for file in files]

    expected = all_texts()
    monkeypatch.setattr(text_writing, "_ARCS_PER_PIECE", piece)
    with forced_threads(threads):
        assert all_texts() == expected
    rows = expected[3].decode().split("\n")[:-1]
    assert len(rows) == graph.vertex_count
    for v, row in enumerate(rows):
        targets = graph.targets[graph.offsets[v] : graph.offsets[v + 1]]
        step = 2 if graph.is_weighted else 1
        assert [int(word) for word in row.split(" ")][1::step] == names[targets].tolist()
        assert int(row.split(" ")[0]) == names[v]


def test_rows_hold_every_integer_of_64_bits() -> None:
    weights = [-(2**63), 2**63 - 1, 0, -1, 9, 10, 99, 100, 10**18, 10**18 - 1, -(10**18)]
    graph = Graph.from_edges(np.zeros(len(weights), int), np.arange(len(weights)), weights)
    file = io.BytesIO()
    text_writing.write_rows(graph, file)
    words = file.getvalue().decode().split("\n")[0].split(" ")
    assert list(map(int, words[1::2])) == weights


LIMITS: dict[str, list[float]] = {
    "int32": [-(2**31), 1 - 2**31, -1, 0, 1, 2**31 - 2, 2**31 - 1],
    "uint32": [0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1],
    "int64": [-(2**63), 1 - 2**63, -(2**53) - 1, -(2**31) - 1, 0, 2**53 + 1, 2**63 - 2, 2**63 - 1],
    "float32": [
        *map(float, [np.finfo("f4").min, np.finfo("f4").tiny, np.finfo("f4").max]),
        -1e-45, -0.0, 0.1, 2.0**24, np.inf, -np.inf, np.nan,
    ],
    "float64": [
        *map(float, [np.finfo("f8").min, np.finfo("f8").tiny, np.finfo("f8").max]),
        -5e-324, -0.0, 0.1, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e22, np.inf, -np.inf, np.nan,
    ],
}  # fmt: skip
"""The limits of each dtype of weights, their neighbours, and what else is hard to write or read."""

WEIGHTED = (".mtx", ".gr", ".graph", ".e", ".wel", ".txt", ".csv", ".tsv", ".parquet")


@pytest.mark.parametrize("ending", WEIGHTED)
@pytest.mark.parametrize("dtype", LIMITS)
@given(data=st.data())
@settings(max_examples=25)
def test_weights_at_the_limits_of_dtypes(
    tmp_path_factory: pytest.TempPathFactory, ending: str, dtype: str, data: st.DataObject
) -> None:
    limits = st.sampled_from(LIMITS[dtype])
    weights = np.array(data.draw(st.lists(limits, min_size=1, max_size=4)), dtype)
    integer = weights.dtype.kind != "f"
    directed = ending != ".graph"
    n = len(weights) + 1
    graph = Graph.from_edges(
        np.arange(n - 1), np.arange(1, n), weights, directed=directed, vertex_count=n
    )
    path = tmp_path_factory.mktemp("limits") / f"graph{ending}"
    if not integer and ending in (".gr", ".graph"):
        with pytest.raises(InputError, match="only integers"):
            write(graph, path)
        return
    write(graph, path)
    found = read(path).weights
    assert found is not None
    assert (found.dtype.kind == "f") == (not integer)
    if integer:
        assert found.tolist() == graph.weights.tolist()  # type: ignore[union-attr]
    else:
        np.testing.assert_array_equal(found, graph.weights)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(graph.weights))


@pytest.mark.parametrize("ending", [".el", ".e", ".adj", ".csv", ".parquet"])
def test_ids_at_the_limits_of_integers(ending: str, tmp_path: Path) -> None:
    names = [2**63 - 2, 2**63 - 1, 2**53 + 1, 7]
    if ending not in (".e", ".adj"):  # which have no negative ones
        names += [-(2**63), 1 - 2**63]
    graph = Graph.from_edges(np.arange(len(names)), np.roll(np.arange(len(names)), 1), ids=names)
    write(graph, tmp_path / f"graph{ending}")
    assert named_arcs(read(tmp_path / f"graph{ending}")) == named_arcs(graph)
