"""Ids are names: vertices are those that occur, in every format, and every vertex argument is by id."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.cli.application import app
from godwit.errors import GodwitError, InputError
from godwit.io import graph_files as formats
from graphs import named_graph

Edges = list[tuple[Any, Any]]

INTEGERS = st.one_of(
    st.integers(0, 6),
    st.integers(-3, 40),
    st.integers(2**31 - 3, 2**31 + 3),
    st.integers(-(2**63), 2**63 - 1),
)
WORDS = st.text("abcxyzäß_", min_size=1, max_size=4)


@st.composite
def edge_lists(draw: Any, names: st.SearchStrategy[Any]) -> Edges:
    """Some pairs of some of the names."""
    ids = draw(st.lists(names, min_size=1, max_size=12, unique=True))
    one = st.sampled_from(ids)
    return draw(st.lists(st.tuples(one, one), min_size=1, max_size=20))  # type: ignore[no-any-return]


def frame(edges: Edges) -> dict[str, list[Any]]:
    source, target = map(list, zip(*edges, strict=True))
    return {"source": source, "target": target}


def write_edges(edges: Edges, folder: Path, form: str) -> Path:
    """The edges in a file of a form that other programs write."""
    path = folder / f"edges{form}"
    lines = [f"{u} {v}" for u, v in edges]
    if form == ".csv":
        lines = ["source,target", *(f"{u},{v}" for u, v in edges)]
    elif form == ".wel":
        lines = [f"{line} 7" for line in lines]
    elif form == ".parquet":
        pa.parquet.write_table(pa.table(frame(edges)), path)
        return path
    elif form == ".e":
        occurring = sorted({end for edge in edges for end in edge}, reverse=True)
        path.with_suffix(".v").write_text("".join(f"{one}\n" for one in occurring))
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def check(graph: gw.Graph, edges: Edges) -> None:
    """Whether the vertices of a graph are those of the edges, and the arcs are the edges."""
    assert list(graph.ids) == sorted({end for edge in edges for end in edge})
    assert graph.ids.own == (list(graph.ids) != list(range(graph.vertex_count)))
    tails = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    found = zip(graph.ids.of(tails), graph.ids.of(graph.targets), strict=True)
    assert sorted(found) == sorted(edges)


FORMS = (".el", ".wel", ".txt", ".csv", ".parquet", ".e")


class TestVertices:
    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("names", [INTEGERS, WORDS], ids=["integers", "texts"])
    @settings(max_examples=40)
    @given(data=st.data())
    def test_of_files_are_those_that_occur(
        self, tmp_path_factory: pytest.TempPathFactory, names: Any, form: str, data: Any
    ) -> None:
        if form == ".e":  # Graphalytics has integers that are not negative
            names = st.integers(0, 2**63 - 2)
        edges = data.draw(edge_lists(names))
        path = write_edges(edges, tmp_path_factory.mktemp("names"), form)
        # A first line that has no numbers may be taken for names of columns.
        known: Any = {"format": "edge-list"} if form in (".el", ".txt") else {}
        if form in (".el", ".wel", ".txt") and not isinstance(edges[0][0], int):
            path.write_text(f"# Ids: text\n{path.read_text()}")
        check(gw.read(path, **known), edges)

    @pytest.mark.parametrize("form", [".el", ".csv", ".parquet", ".e"])
    @settings(max_examples=25)
    @given(data=st.data())
    def test_components_are_networkx(
        self, tmp_path_factory: pytest.TempPathFactory, form: str, data: Any
    ) -> None:
        names = st.integers(0, 2**63 - 2) if form == ".e" else INTEGERS
        edges = data.draw(edge_lists(names))
        path = write_edges(edges, tmp_path_factory.mktemp("names"), form)
        expected = {
            one: min(component)
            for component in nx.connected_components(nx.Graph(edges))
            for one in component
        }
        before = formats.STREAMED_BYTES
        try:
            for size in (before, 40):
                formats.STREAMED_BYTES = size
                found = gw.connected_components_of_edges(path, devices="cpu")
                assert found.to_dict() == expected
        finally:
            formats.STREAMED_BYTES = before
        assert gw.connected_components(gw.read(path), devices="cpu").to_dict() == expected

    @pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
    @pytest.mark.parametrize("names", [INTEGERS, WORDS], ids=["integers", "texts"])
    @settings(max_examples=25)
    @given(data=st.data())
    def test_of_tables_are_those_that_occur(self, make: Any, names: Any, data: Any) -> None:
        edges = data.draw(edge_lists(names))
        check(gw.Graph.from_table(make(frame(edges))), edges)

    @pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
    def test_of_any_dtype(self, dtype: str) -> None:
        columns = {"source": np.array([3, 5], dtype), "target": np.array([5, 120], dtype)}
        check(gw.Graph.from_table(pd.DataFrame(columns)), [(3, 5), (5, 120)])

    def test_of_a_file_larger_than_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        generator = np.random.default_rng(3)
        for scale, memory in ((1, 2**18), (3, 2**18), (10**9, 2**19)):
            ends = generator.integers(1, 900, (20_000, 2)) * scale
            edges = list(map(tuple, ends.tolist()))
            for form in (".el", ".csv", ".parquet"):
                path = write_edges(edges, tmp_path, form)
                with monkeypatch.context() as patch:
                    patch.setenv("GODWIT_MEMORY_BYTES", str(memory))
                    check(gw.read(path), edges)

    @pytest.mark.parametrize("form", FORMS)
    def test_positions_are_asked_for(self, tmp_path: Path, form: str) -> None:
        if form == ".e":
            return
        path = write_edges([(1, 2), (2, 4)], tmp_path, form)
        counted = gw.read(path, relabel=False)
        assert (counted.vertex_count, counted.ids.own) == (5, False)
        based = gw.read(path, id_base=1)
        assert (based.vertex_count, based.ids.own, based.ids.in_file[0]) == (4, False, 1)
        assert gw.bfs(based, 0).to_dict() == {0: 0, 1: 1, 3: 2}

    @pytest.mark.parametrize("ids", [[10, 20, 30], [1, 2, 3], [-5, 2, 2**62], ["x", "y", "z"]])
    @pytest.mark.parametrize("form", [".el", ".csv", ".parquet", ".godwit", ".txt.gz"])
    def test_round_trips_keep_names(self, tmp_path: Path, form: str, ids: list[Any]) -> None:
        graph = gw.Graph.from_edges([0, 1], [1, 2], ids=ids)
        path = tmp_path / f"graph{form}"
        gw.write(graph, path)
        assert gw.read(path).ids == graph.ids

    @pytest.mark.parametrize("ending", [".mtx", ".graph", ".vgr", ".sg"])
    def test_formats_that_count_say_what_is_lost(self, tmp_path: Path, ending: str) -> None:
        graph = gw.Graph.from_edges([0, 1], [1, 2], directed=False, ids=[10, 20, 30])
        with pytest.raises(InputError, match=r"cannot hold integer ids.*--drop ids"):
            gw.write(graph, tmp_path / f"graph{ending}")
        one_based = graph.with_ids(1)
        if ending in (".mtx", ".graph"):  # whose numbers they are
            gw.write(one_based, tmp_path / f"graph{ending}")
            assert gw.read(tmp_path / f"graph{ending}").ids.in_file == one_based.ids
            return
        with pytest.raises(InputError, match="cannot hold ids from 1 on"):
            gw.write(one_based, tmp_path / f"graph{ending}")

    def test_vertices_of_a_part_keep_numbers_of_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.mtx"
        banner = "%%MatrixMarket matrix coordinate pattern symmetric"
        path.write_text(f"{banner}\n6 6 3\n4 3\n6 4\n2 1\n")
        graph = gw.read(path)
        part = graph.largest_component()
        assert list(part.ids) == [2, 3, 5]
        assert gw.bfs(part, 5).to_dict() == {2: 2, 3: 1, 5: 0}
        for ending in (".el", ".godwit", ".parquet"):
            gw.write(part, tmp_path / f"part{ending}")
            assert list(gw.read(tmp_path / f"part{ending}").ids) == [3, 4, 6]


def path_of(ids: list[Any]) -> gw.Graph:
    """A path, undirected, with weights 1 to 4."""
    weights = [1, 2, 3, 4]
    return gw.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 4], weights, directed=False, ids=ids)


KINDS: dict[str, list[Any]] = {
    "from 1": [1, 2, 3, 4, 5],
    "integers": [30, -7, 2**62, 0, 12],
    "texts": ["Ulm", "Bonn", "Jena", "Kiel", "1"],
    "objects": [("a", 1), "a", 2.5, frozenset([1]), 7],
}

LEAST = gw.VertexProgram(
    "least", message=lambda value: value, combine="min", dtype="int64", initial=9
)
LEVEL = gw.StepProgram(
    "level",
    fields={"seen": ("int32", 0)},
    steps=[gw.frontier.compute("seen", lambda: 1)],
)

Call = Callable[[gw.Graph, Any], Any]
"""A function given one vertex of a path of five; the result must not depend on what vertices are called."""

ARGUMENTS: dict[str, Call] = {
    "bfs": lambda graph, one: gw.bfs(graph, one).distance.tolist(),
    "bfs of several": lambda graph, one: gw.bfs(graph, [one, one]).distance.tolist(),
    "bfs target": lambda graph, one: gw.bfs(graph, graph.ids[0], target=one).distance.max(),
    "sssp": lambda graph, one: gw.sssp(graph, {one}).distance.tolist(),
    "sssp target": lambda graph, one: gw.sssp(graph, graph.ids[4], target=one).reached.tolist(),
    "path_to": lambda graph, one: graph.ids.positions(
        gw.sssp(graph, graph.ids[0]).path_to(one)
    ).tolist(),
    "sources": lambda graph, one: graph.ids.positions(gw.bfs(graph, one).sources).tolist(),
    "to_dict": lambda graph, one: gw.sssp(graph, graph.ids[0]).to_dict()[one],
    "personalization": lambda graph, one: gw.pagerank(
        graph, personalization={one: 1}, devices="cpu"
    ).rank.tolist(),
    "initial": lambda graph, one: gw.pagerank(
        graph, initial={one: 1}, max_iterations=1
    ).rank.tolist(),
    "pagerank's dictionary": lambda graph, one: gw.pagerank(graph).to_dict()[one],
    "pushed": lambda graph, one: np.round(
        gw.pagerank(graph, personalization={one: 1}, execution="asynchronous", tolerance=1e-9).rank,
        6,
    ).tolist(),
    "highest": lambda graph, one: [
        v for v, _ in gw.pagerank(graph, personalization={one: 1}).highest(5)
    ].index(one),
    "betweenness": lambda graph, one: gw.betweenness_centrality(
        graph, sources=[one]
    ).centrality.tolist(),
    "betweenness' dictionary": lambda graph, one: gw.betweenness_centrality(graph).to_dict()[one],
    "component": lambda graph, one: gw.connected_components(graph).size(graph.ids[0]),
    "largest": lambda graph, one: graph.ids.positions(
        [name for name, _ in gw.connected_components(graph).largest(1)]
    ).tolist(),
    "start": lambda graph, one: gw.run(LEAST, graph, {one: 3}).values.tolist(),
    "target of a program": lambda graph, one: gw.run(
        LEAST, graph, {graph.ids[0]: 3}, target=one
    ).values.tolist(),
    "frontier": lambda graph, one: LEVEL.run(graph, [one]).fields["seen"].tolist(),
    "explorer": lambda graph, one: gw.explore(graph, frontier=[one]).frontier.tolist(),
    "verify": lambda graph, one: gw.verify_bfs(graph, one, gw.bfs(graph, one).distance),
    "degree": lambda graph, one: graph.ids.position(graph.highest_degree_vertex()),
}


class TestArguments:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("name", ARGUMENTS)
    def test_are_by_id(self, name: str, kind: str) -> None:
        graph, plain = path_of(KINDS[kind]), path_of([0, 1, 2, 3, 4])
        assert not plain.ids.own
        for position in (1, 3):
            id = KINDS[kind][position]
            assert ARGUMENTS[name](graph, id) == ARGUMENTS[name](plain, position)

    @pytest.mark.parametrize(
        "name", [name for name in ARGUMENTS if name not in ("component", "largest", "degree")]
    )
    def test_positions_are_no_ids(self, name: str) -> None:
        graph = path_of([30, -7, 2**62, 8, 12])
        with pytest.raises((GodwitError, KeyError), match="0") as caught:
            ARGUMENTS[name](graph, 0)
        if isinstance(caught.value, InputError):
            assert "ids of its own" in str(caught.value)
            assert "position 0 has the id 30 (graph.ids[0])" in str(caught.value)

    @pytest.mark.parametrize("kind", ["from 1", "integers", "texts"])
    def test_arrays_and_series_are_of_ids(self, kind: str) -> None:
        ids = KINDS[kind]
        graph = path_of(ids)
        chosen = [ids[4], ids[1]]
        expected = gw.bfs(graph.with_ids(0), [1, 4]).distance.tolist()
        several: list[Any] = [np.array(chosen), pd.Series(chosen), pa.array(chosen), tuple(chosen)]
        for sources in several:
            assert gw.bfs(graph, sources).distance.tolist() == expected
        series = pd.Series([5.0, 1.0], index=chosen)
        wanted = gw.pagerank(graph.with_ids(0), personalization={4: 5.0, 1: 1.0}).rank
        assert gw.pagerank(graph, personalization=series).rank.tolist() == wanted.tolist()
        whole = pd.Series(np.arange(5.0), index=ids)[::-1]
        wanted = gw.pagerank(graph.with_ids(0), personalization=np.arange(5.0)).rank
        assert gw.pagerank(graph, personalization=whole).rank.tolist() == wanted.tolist()

    def test_a_tuple_that_is_an_id_is_one_vertex(self) -> None:
        graph = gw.Graph.from_networkx(nx.grid_2d_graph(3, 3))
        assert gw.bfs(graph, (0, 0)).to_dict()[2, 2] == 4
        assert gw.bfs(graph, [(0, 0), (2, 2)]).to_dict()[2, 2] == 0
        found = gw.betweenness_centrality(graph, edges=True).edges_to_dict()
        assert ((0, 0), (0, 1)) in found

    @pytest.mark.parametrize("name", ["path", "grid", "random directed"])
    def test_searches_are_networkx_by_name(self, name: str) -> None:
        plain = named_graph(name).without_weights()
        ids = [f"v{(7 * v) % plain.vertex_count}-{v}" for v in range(plain.vertex_count)]
        graph = plain.with_ids(ids)
        known = graph.to_networkx()
        for source in ids[:3]:
            assert gw.bfs(graph, source).to_dict() == dict(
                nx.single_source_shortest_path_length(known, source)
            )


class TestCommands:
    @pytest.fixture
    def run(self) -> Iterator[Callable[..., Any]]:
        def run(*words: Any) -> Any:
            done = CliRunner().invoke(app, [*map(str, words), "--json"])
            assert done.exit_code == 0, done.output
            return json.loads(done.stdout)

        return run

    def test_of_a_table(self, tmp_path: Path, run: Callable[..., Any]) -> None:
        path = tmp_path / "edges.csv"
        path.write_text("source,target\n10,20\n20,30\n50,60\n")
        facts = run("bfs", path, "-s", 10, "-t", 30)
        assert facts["sources"] == [10]
        assert facts["target"] == {"vertex": 30, "distance": 2, "path": [10, 20, 30]}
        for stream in ([], ["--stream"]):
            assert run("components", path, *stream)["components"] == 2
        counted = run("bfs", path, "-s", 10, "--no-relabel")
        assert counted["graph"]["vertices"] == 61

    def test_of_a_file_that_counts_from_1(self, tmp_path: Path, run: Callable[..., Any]) -> None:
        path = tmp_path / "graph.gr"
        path.write_text("p sp 3 2\na 1 2 5\na 2 3 7\n")
        facts = run("sssp", path, "-s", 1, "-t", 3)
        assert facts["target"] == {"vertex": 3, "distance": 12, "path": [1, 2, 3]}
        graph = gw.read(path)
        assert gw.sssp(graph, 0).to_dict() == {0: 0, 1: 5, 2: 12}
        assert gw.sssp(graph, 0).to_frame()["vertex"].tolist() == [0, 1, 2]
        assert gw.sssp(graph, 0).path_to(2) == [0, 1, 2]
        with pytest.raises(InputError, match=r"target must be in \[0, 3\), got 3"):
            gw.sssp(graph, 0, target=3)
