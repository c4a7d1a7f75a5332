"""Formats with a line of neighbours for each vertex: METIS, WebGraph's ASCII form, adjacency lists."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.errors import DirectionWarning, FormatError, GodwitError, InputError
from godwit.graph.csr import Graph
from godwit.io.graph_files import read, write
from godwit.io.text import line_reader
from graphs import arcs_of, graphs
from mutations import mutated

Write = Callable[[str | bytes], Path]

# The examples of the METIS manual's section on graph files, with weights of our own.
METIS = "7 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n5 4 7\n6 4\n"
METIS_WEIGHTED = (
    "% sizes, two weights, neighbours\n4 3 111 2\n"
    "9 1 0 2 7 3 8\n% between\n9 2 0 1 7\n\t9 3 0 1 8 4 9 \n9 4 1 3 9\n"
)
WEBGRAPH = "5\n1 2 4\n\n0 3\n3\n2\n"
ADJACENCY = "3 10 4\n4\n10 3 4 11 4\n"


@pytest.fixture
def put(tmp_path: Path) -> Write:
    """Write a file whose name says nothing, and give its path."""

    def put_file(content: str | bytes) -> Path:
        path = tmp_path / "graph"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return put_file


def assert_sound(graph: Graph) -> None:
    """The full check of a graph's arrays."""
    Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)


def assert_same(graph: Graph, expected: Graph) -> None:
    assert graph.directed == expected.directed
    assert graph.vertex_count == expected.vertex_count
    assert sorted(arcs_of(graph)) == sorted(arcs_of(expected))
    assert graph.is_weighted == expected.is_weighted
    assert_sound(graph)


def metis_text(graph: Graph, fmt: str | None, weight_count: int, *, entries: bool = False) -> str:
    """A graph as METIS has it, written line by line; with ``entries`` as DIMACS-10 has it."""
    digits = (fmt or "0").zfill(3)
    count = graph.arc_count if entries else graph.arc_count // 2
    header = [graph.vertex_count, count, *([fmt] if fmt else [])]
    if weight_count > 1:
        header.append(weight_count)
    lines = [" ".join(map(str, header))]
    for v in range(graph.vertex_count):
        row = range(graph.offsets[v], graph.offsets[v + 1])
        numbers: list[Any] = [17] if digits[0] == "1" and not entries else []
        numbers += [v % 5] * weight_count if digits[1] == "1" else []
        for arc in row:
            numbers.append(graph.targets[arc] + 1)
            if graph.weights is not None:
                numbers.append(graph.weights[arc])
        lines.append(" ".join(map(str, numbers)))
    return "\n".join(lines) + "\n"


@st.composite
def simple_graphs(draw: Any, *, weighted: bool) -> Graph:
    graph = draw(graphs(directed=False, weighted=False)).remove_self_loops().merge_parallel_arcs()
    if not weighted:
        return graph
    high = draw(st.sampled_from([5, 2**31, 2**40]))
    return graph.with_random_weights(0, high, seed=1)


class TestMetis:
    def test_the_manuals_example(self, put: Write) -> None:
        graph = read(put(METIS))
        assert (graph.vertex_count, graph.edge_count, graph.directed) == (7, 11, False)
        assert (graph.ids.kind, graph.ids.base, graph.weights) == ("consecutive", 1, None)
        assert graph.targets[graph.offsets[3] : graph.offsets[4]].tolist() == [1, 2, 5, 6]
        assert read(put(METIS), directed=True).directed
        assert read(put(METIS), directed=False).edge_count == 11
        weighted = read(put(METIS_WEIGHTED))
        assert arcs_of(weighted) == [
            (0, 1, 7), (0, 2, 8), (1, 0, 7), (2, 0, 8), (2, 3, 9), (3, 2, 9)
        ]  # fmt: skip
        assert not read(put(METIS_WEIGHTED), weighted=False).is_weighted

    @pytest.mark.parametrize(
        "fmt", [None, "0", "1", "01", "001", "10", "11", "100", "101", "110", "111"]
    )
    def test_every_combination_of_flags(self, fmt: str | None, tmp_path: Path) -> None:
        path = tmp_path / "x.graph"

        @settings(max_examples=30)
        @given(st.data())
        def check(data: Any) -> None:
            graph = data.draw(simple_graphs(weighted=(fmt or "0")[-1] == "1"))
            count = data.draw(st.integers(1, 3)) if fmt and fmt.zfill(3)[1] == "1" else 1
            path.write_text(metis_text(graph, fmt, count))
            found = read(path)
            assert_same(found, graph)
            if found.weights is not None and graph.weights is not None:
                wide = graph.weights.max(initial=0) >= 2**31
                assert found.weights.dtype == (np.int64 if wide else np.int32)

        check()

    @pytest.mark.parametrize("fmt", ["100", "101", "110", "111"])
    def test_dimacs_10_counts_entries_where_there_are_loops_and_parallel_edges(
        self, fmt: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "x.graph"

        @settings(max_examples=30)
        @given(graphs(directed=False, weighted=False))
        def check(graph: Graph) -> None:
            weights = np.ones(graph.arc_count, np.int32)
            graph = graph.with_weights(weights) if fmt[-1] == "1" else graph
            path.write_text(metis_text(graph, fmt, 1, entries=True))
            assert_same(read(path), graph)

        check()

    def test_loops_may_count_as_edges(self, put: Write) -> None:
        graph = read(put("2 2\n1 2\n1\n"), format="metis")
        assert (arcs_of(graph), graph.edge_count) == ([(0, 0), (0, 1), (1, 0)], 2)

    @pytest.mark.parametrize(
        ("content", "n", "arcs"),
        [
            ("0 0\n", 0, []),
            ("1 0\n", 1, []),
            ("1 0\n\n", 1, []),
            ("3 0\n\n\n\n\n\n", 3, []),
            ("3 1\n2\n1\n", 3, [(0, 1), (1, 0)]),
            ("3 1\r\n2\r\n1\r\n\r\n", 3, [(0, 1), (1, 0)]),
            ("% a\n\n%b\n3 1\n%c\n\n3\n 2 \n%d\n\n%", 3, [(1, 2), (2, 1)]),
            ("\ufeff3 1\n2\n1\n\n", 3, [(0, 1), (1, 0)]),
            ("2 1 1\n2 1.5\n1 15e-1\n", 2, [(0, 1, 1.5), (1, 0, 1.5)]),
            ("2 1 1\n2 -5\n1 -5\n", 2, [(0, 1, -5), (1, 0, -5)]),
        ],
    )
    def test_odd_files(self, put: Write, content: str, n: int, arcs: list[Any]) -> None:
        graph = read(put(content), format="metis")
        assert (graph.vertex_count, arcs_of(graph)) == (n, arcs)
        assert_sound(graph)

    def test_edges_in_one_list_are_arcs_with_a_warning(self, put: Write) -> None:
        path = put("3 3\n2 2\n3\n")
        with pytest.warns(DirectionWarning, match="each edge in the lists of both") as warned:
            graph = read(path, format="metis")
        assert warned[0].filename == __file__
        assert (graph.directed, arcs_of(graph)) == (True, [(0, 1), (0, 1), (1, 2)])

    def test_no_warning_where_the_caller_decides(self, put: Write) -> None:
        path = put("3 3\n2 2\n3\n")
        graph = read(path, format="metis", directed=True)
        assert (graph.directed, arcs_of(graph)) == (True, [(0, 1), (0, 1), (1, 2)])
        graph = read(path, format="metis", directed=False)
        assert (graph.directed, graph.edge_count) == (False, 3)

    def test_first_id(self, put: Write) -> None:
        graph = read(put("2 1\n1\n0\n"), format="metis", id_base=0)
        assert (arcs_of(graph), graph.ids.base) == ([(0, 1), (1, 0)], 0)

    @pytest.mark.parametrize(
        ("content", "line", "message"),
        [
            ("3\n", 1, "malformed header"),
            ("3 2 5\n", 1, "malformed header"),
            ("% only\n", 1, "malformed header"),
            (f"{10**17} 1\n2\n1\n", 1, "do not fit in memory"),
            ("90000 1\n2\n1\n", 1, "but the lines of 2 follow"),
            ("2 1\n2\n3\n", 3, "vertex id 3 is out of range: 2 vertices are declared, 1 to 2"),
            ("2 1\n2\n0\n", 3, "id_base=0"),
            ("2 1\n2\nx\n", 3, "malformed line, expected NEIGHBOUR"),
            ("2 1\n2\n1.5\n", 3, "malformed line, expected NEIGHBOUR"),
            ("2 1\n2\n-1\n", 3, "vertex id -1 is negative"),
            ("2 1\n2\n99999999999999999999\n", 3, "out of range"),
            ("2 1\n2\n1\n\n1\n", 5, "the lines of more follow"),
            ("2 3\n2\n1\n", 1, "declares 3 edges, each in two lists, but 2 neighbours follow"),
            ("3 2\n2 3\n1\n\n", 1, "may be truncated"),
            ("3 1\n2 3\n1\n1\n", 1, "the header is wrong"),
            ("3 1\n2\n3\n\n", None, "must be in the lists of both its ends"),
            ("2 1 1\n2 5\n1 6\n", None, "must be in the lists of both its ends"),
            ("2 1 1\n2 5\n1\n", 3, "malformed line, expected NEIGHBOUR WEIGHT"),
            ("2 1 1\n2 x\n1 5\n", 2, "malformed line"),
            ("2 1 1\n2 5x\n1 5\n", 2, "malformed line"),
            ("2 1 1\n2 99999999999999999999\n1 1\n", 2, "does not fit in 64 bits"),
            ("2 1 11\n7 2 5\n1 1\n", 3, "malformed line, expected WEIGHT NEIGHBOUR WEIGHT"),
            ("2 1 11\n7 2 5\n-7 1 5\n", 3, "malformed line, expected WEIGHT NEIGHBOUR WEIGHT"),
            ("2 0 10\n\n5\n", 2, "malformed line, expected WEIGHT"),
            ("2 1 10 9\n7 2 5\n7 1 5\n", 2, "expected 9 WEIGHTS NEIGHBOUR"),
            ("2 1 100\n7 2\n1 8 9\n", 3, "out of range"),
        ],
    )
    def test_what_is_wrong(self, put: Write, content: str, line: int | None, message: str) -> None:
        with pytest.raises(FormatError, match=message) as caught:
            read(put(content), format="metis")
        assert caught.value.line == line

    def test_recognized_by_content(self, put: Write, tmp_path: Path) -> None:
        long = metis_text(Graph.from_edges(*np.triu_indices(200, 1), directed=False), None, 1)
        assert len(long) > 1 << 16
        for content in (METIS, METIS_WEIGHTED, long, metis_text(read(put(METIS)), "100", 1)):
            assert not read(put(content)).directed
        for edge_list in (
            "3 3\n1 2\n2 3\n3 1\n",
            "3 2\n0 1\n1 2\n",
            "2 1 1\n1 2 1\n",
            "1 2 5\n2 1 5\n",
        ):
            assert read(put(edge_list)).directed
        path = tmp_path / "any.graph"
        path.write_text("2 1\n2\n1\n")
        assert not read(path).directed

    @given(graph=graphs(directed=False))
    def test_round_trip(self, tmp_path_factory: Any, graph: Graph) -> None:
        path = tmp_path_factory.getbasetemp() / "round.graph.zst"
        if graph.weights is not None and graph.weights.dtype.kind == "f":
            with pytest.raises(InputError, match="only integers"):
                write(graph, path)
            return
        write(graph, path)
        assert_same(read(path), graph)

    def test_the_gap_suites_graphs(self, data_folder: Path, tmp_path: Path) -> None:
        with tarfile.open(data_folder / "small" / "gapbs.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        folder = next(tmp_path.rglob("4.graph")).parent
        reference = (folder.parent / "reference" / "graph-4.graph.out").read_text()
        for name, other in (("4.graph", "4.el"), ("4w.graph", "4.wel")):
            with pytest.warns(DirectionWarning):
                graph = read(folder / name)
            assert f"{graph.vertex_count} nodes and {graph.arc_count} directed" in reference
            simple = read(folder / other, relabel=False).remove_self_loops().merge_parallel_arcs()
            assert_same(graph.without_weights(), simple.without_weights())
            assert graph.is_weighted == (name == "4w.graph")


class TestWebGraph:
    def test_example(self, put: Write) -> None:
        graph = read(put(WEBGRAPH))
        assert arcs_of(graph) == [(0, 1), (0, 2), (0, 4), (2, 0), (2, 3), (3, 3), (4, 2)]
        assert (graph.directed, graph.ids.base, graph.weights) == (True, 0, None)

    def test_undirected_where_both_directions_are_there(self, put: Write) -> None:
        path = put("3\n1\n0 2\n1\n")
        assert read(path).directed
        assert read(path, directed=False).edge_count == 2
        with pytest.raises(FormatError, match="in the lists of both its ends"):
            read(put(WEBGRAPH), directed=False)

    @pytest.mark.parametrize(
        ("content", "line", "message"),
        [
            ("x\n", 1, "malformed first line"),
            (f"{10**17}\n1\n", 1, "do not fit in memory"),
            ("3\n1\n2\n", 1, "but the lines of 2 follow"),
            ("2\n1\n2\n", 3, "vertex id 2 is out of range"),
            ("2\n1\n0\n1\n", 4, "the lines of more follow"),
            ("2\n1\n0 x\n", 3, "malformed line, expected SUCCESSOR"),
            ("2\n1\n% 0\n", 3, "malformed line, expected SUCCESSOR"),
        ],
    )
    def test_what_is_wrong(self, put: Write, content: str, line: int, message: str) -> None:
        with pytest.raises(FormatError, match=message) as caught:
            read(put(content), format="webgraph-ascii")
        assert caught.value.line == line

    @given(graph=graphs(weighted=False))
    def test_round_trip(self, tmp_path_factory: Any, graph: Graph) -> None:
        path = tmp_path_factory.getbasetemp() / "round.graph-txt.gz"
        simple = graph.merge_parallel_arcs()
        if simple.arc_count != graph.arc_count:
            with pytest.raises(InputError, match="parallel"):
                write(graph, path)
        write(simple, path)
        assert_same(read(path, directed=graph.directed), simple)

    def test_rows_are_written_in_ascending_order(self, tmp_path: Path) -> None:
        path = tmp_path / "x.graph-txt"
        write(Graph([0, 3, 3, 3], [2, 0, 1]), path)
        assert path.read_text() == "3\n0 1 2\n\n\n"

    def test_no_weights_nor_ids(self, tmp_path: Path) -> None:
        graph = Graph.from_edges([0], [1], [5])
        for wrong in (graph, graph.without_weights().with_ids([5, 7])):
            with pytest.raises(InputError, match="cannot hold"):
                write(wrong, tmp_path / "x.graph-txt")
        assert list(tmp_path.iterdir()) == []


class TestAdjacencyList:
    def test_example(self, put: Write) -> None:
        graph = read(put(ADJACENCY))
        assert graph.ids.stored.tolist() == [3, 4, 10, 11]
        assert arcs_of(graph) == [(0, 1), (0, 2), (2, 0), (2, 1), (2, 1), (2, 3)]

    def test_large_and_consecutive_ids(self, put: Write) -> None:
        graph = read(put(f"{2**62} 5 {2**63 - 2}\n\n# c\n7\n"), format="adjacency-list")
        assert graph.ids.stored.tolist() == [5, 7, 2**62, 2**63 - 2]
        assert arcs_of(graph) == [(2, 0), (2, 3)]
        graph = read(put("3 4 4 4\n4 2\n"))
        assert (graph.ids.nbytes, list(graph.ids)) == (0, [2, 3, 4])

    @pytest.mark.parametrize(
        ("content", "line", "message"),
        [
            ("1 2\n1 3\n", None, "vertex 1 has more than one line"),
            ("1 2\n3 x\n", 2, "malformed line, expected VERTEX NEIGHBOUR"),
            ("1 2\n-3\n", 2, "vertex id -3 is negative"),
            (f"1 {2**63}\n", 1, "too large"),
        ],
    )
    def test_what_is_wrong(self, put: Write, content: str, line: int | None, message: str) -> None:
        with pytest.raises(FormatError, match=message) as caught:
            read(put(content), format="adjacency-list")
        assert caught.value.line == line

    @given(graph=graphs(weighted=False), ids=st.integers(0, 2**40))
    def test_round_trip(self, tmp_path_factory: Any, graph: Graph, ids: int) -> None:
        path = tmp_path_factory.getbasetemp() / "round.adj.xz"
        if ids % 3 == 0:
            graph = graph.with_ids(ids % 2**20)
        elif graph.vertex_count > 1:
            graph = graph.with_ids(np.arange(graph.vertex_count) ** 2 * (ids + 1))
        write(graph, path)
        found = read(path, directed=graph.directed)
        assert_same(found, graph)
        assert found.ids.of(np.arange(found.vertex_count)) == graph.ids.of(
            np.arange(graph.vertex_count)
        )


SAMPLES = {
    "metis": METIS,
    "metis weighted": METIS_WEIGHTED,
    "webgraph-ascii": WEBGRAPH,
    "adjacency-list": ADJACENCY,
}
each_sample = pytest.mark.parametrize("sample", SAMPLES)


@each_sample
@pytest.mark.filterwarnings("ignore::godwit.errors.DirectionWarning")
def test_mutations(sample: str, put: Write) -> None:
    outcomes = {"read": 0, "refused": 0}
    for seed in range(10 * settings().max_examples):
        path = put(mutated(SAMPLES[sample].encode(), seed))
        try:
            graph = read(path, format=sample.split(maxsplit=1)[0])
        except GodwitError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
            assert_sound(graph)
    assert min(outcomes.values()) > 0


def _large(sample: str) -> str:
    """The beginning of a sample, and many more lines."""
    generator = np.random.default_rng(3)
    rows = [generator.integers(0, 300, k).tolist() for k in generator.integers(0, 9, 300)]
    weights = generator.choice([5, -7, 2**40], 3000).tolist()
    if sample == "adjacency-list":
        return "\n".join(" ".join(map(str, [v * 7, *row])) for v, row in enumerate(rows)) + "\n"
    if sample == "webgraph-ascii":
        return "\n".join(["300", *(" ".join(map(str, row)) for row in rows)]) + "\n"
    count = sum(map(len, rows))
    fmt = " 011" if sample == "metis weighted" else ""
    lines = [f"300 {count}{fmt}"]
    for row in rows:
        ids = [u + 1 for u in row]
        numbers = [3, *chain(*zip(ids, weights, strict=False))] if fmt else ids
        lines.append(" ".join(map(str, numbers)))
        if len(row) == 5:
            lines.append("% five")
    return "\n".join(lines) + "\n"


@each_sample
@pytest.mark.filterwarnings("ignore::godwit.errors.DirectionWarning")
def test_pieces_threads_and_windows_change_nothing(
    sample: str, put: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sample.split(maxsplit=1)[0]
    path = put(_large(sample))
    expected = read(path, format=name)
    assert expected.arc_count > 900
    monkeypatch.setattr(line_reader, "_BYTES_FOR_TEAM", 0)
    monkeypatch.setenv("GODWIT_THREADS", "3")
    for piece in (1, 7, 100):
        monkeypatch.setattr(line_reader, "_PIECE_BYTES", piece)
        assert arcs_of(read(path, format=name)) == arcs_of(expected)
    monkeypatch.setattr(line_reader, "_SMALLEST_WINDOW", 300)
    monkeypatch.setattr(line_reader, "_SHARE_OF_MEMORY", 1 << 62)
    monkeypatch.setattr("godwit.io.source._SHARE_HELD", 0)
    found = read(path, format=name)
    assert arcs_of(found) == arcs_of(expected)
    assert found.ids == expected.ids


def test_progress_is_told(put: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int, str]] = []
    graph = Graph.from_edges(*np.triu_indices(700, 1), directed=False)
    path = put(metis_text(graph, None, 1))
    read(path, progress=lambda *state: told.append(state))
    assert {phase for _, _, phase in told} >= {"reading", "building"}
    assert all(0 <= done <= total for done, total, _ in told)


def test_an_unknown_metis_file_is_not_taken_for_an_adjacency_list(put: Write) -> None:
    for content in ("14 53 100\n2 3 4 5 7\n", "4\n1 2 3\n0 1 2 3\n"):
        with pytest.raises(FormatError, match="unknown format"):
            read(put(content))
