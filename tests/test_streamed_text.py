"""Components of edges that stream from files of formats that list arcs: those of the graph that ``read``
gives, under the same ids, in windows of any size."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.cli.application import app
from godwit.errors import FileError, FormatError, InputError
from godwit.graph import arcs
from godwit.graph.generators import grid
from godwit.io import compression
from godwit.io import graph_files as formats
from godwit.io.edge_sources import EdgeText
from godwit.io.source import open_source
from godwit.io.text.line_reader import windows
from graphs import arc_lists
from test_formats import COMPRESSORS, SAMPLES

MTX = "%%MatrixMarket matrix"
LISTS = {
    **SAMPLES,
    "comments": "# a\n% b\n1 2\n# c\n\n   \n  3\t4  \n%\n2 1",
    "commas": "0,1\n5 , 3\n",
    "names above": "source target\n4 1\n2 6\n",
    "undirected": "# Undirected graph\n# Nodes: 6 Edges: 2\n0 1\n3 1\n",
    "no edges": "# Directed graph\n# Nodes: 4 Edges: 0\n",
    "ids from": "# Ids: from 7\n7 9\n12 8\n",
    "ids are integers": "# Ids: integer\n70 900\n12 70\n",
    "sparse ids": "5 70000000\n70000000 9\n123456789012 3\n",
    "negative ids": "-5 7\n8 -900000000\n",
    "ids of 64 bits": "9223372036854775806 5\n5 3\n4 1",
    "wide weights": "1 2 3\n4 2 1099511627776\n5 6 0.5\n",
    "csv": "user;friend;since\n4;2;2001\n3;9;2002\n",
    "csv of quotes": '"source","target"\n"4","2"\n3,9\n',
    "dimacs of no arcs": "p sp 5 0\n",
    "dimacs from 1": "a 1 4 2\na 5 2 0.5\n",
    "mtx of no entries": f"{MTX} coordinate real general\n3 3 0\n",
    "mtx skew-symmetric": f"{MTX} coordinate integer skew-symmetric\n5 5 2\n2 1 3\n5 4 -1\n",
    "mtx array": f"{MTX} array integer general\n2 2\n0\n1\n0\n0\n",
    "webgraph": "4\n1 3\n\n\n0\n",
}
ADJACENCY = "7 9 3\n20\n3 7\n"


@pytest.fixture
def nothing_is_open() -> Iterator[None]:
    def others() -> set[str]:
        found = set()
        for one in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # that of the folder
                found.add(os.readlink(one))
        return found

    def left() -> set[str]:
        return {one for one in others() - before if "graph" in one or "godwit" in one}

    before = others()
    yield
    until = time.monotonic() + 10
    while left() and time.monotonic() < until:  # Arrow's threads close files a little later
        time.sleep(0.01)
    assert left() == set()


@pytest.fixture(params=[1, 40])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held of a file; one byte makes windows of a line."""
    monkeypatch.setattr(formats, "STREAMED_BYTES", request.param)


def check_same(path: Path, devices: Any = "cpu", **options: Any) -> gw.ComponentsResult:
    """Streamed labels are those of the graph, and vertices have the same ids."""
    graph = gw.read(path, weighted=False)
    expected = gw.connected_components(graph, devices="cpu")
    found = gw.connected_components_of_edges(path, devices=devices, **options)
    np.testing.assert_array_equal(found.label, expected.label)
    assert found.label.dtype == expected.label.dtype
    assert found.ids == graph.ids
    assert found.to_dict() == expected.to_dict()
    assert found.graph is None
    return found


@pytest.mark.usefixtures("nothing_is_open")
class TestLabels:
    @pytest.mark.parametrize("pack", [None, *COMPRESSORS])
    @pytest.mark.parametrize("ending", ["\n", "\r\n"])
    @pytest.mark.parametrize("name", LISTS)
    @pytest.mark.usefixtures("window")
    def test_of_every_format(
        self, name: str, ending: str, pack: str | None, tmp_path: Path
    ) -> None:
        path = tmp_path / ("graph.graph-txt" if name == "webgraph" else "graph")
        content = LISTS[name].replace("\n", ending).encode()
        path.write_bytes(content if pack is None else COMPRESSORS[pack](content))
        check_same(path)

    @pytest.mark.usefixtures("window")
    def test_of_neighbours_and_of_several_files(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.adj"
        path.write_text(ADJACENCY)
        assert check_same(path).to_dict() == {3: 3, 7: 3, 9: 3, 20: 20}
        (tmp_path / "graph.v").write_text("9\n4\n100\n7\n")
        (tmp_path / "graph.e").write_text("4 100\n9 7\n9 9\n")
        (tmp_path / "graph.properties").write_text("graph.graph.directed = false\n")
        for part in ("e", "v", "properties"):
            found = check_same(tmp_path / f"graph.{part}")
            assert found.to_dict() == {4: 4, 7: 7, 9: 7, 100: 4}

    @settings(max_examples=80)
    @given(
        drawn=arc_lists(),
        ending=st.sampled_from(
            [".el", ".wel", ".mtx", ".gr", ".csv", ".tsv", ".parquet", ".graph-txt", ".adj"]
        ),
        pack=st.sampled_from(["", ".gz", ".bz2", ".xz", ".zst"]),
        size=st.sampled_from([1, 13, 64, 1 << 20]),
        directed=st.booleans(),
        base=st.integers(0, 3),
        devices=st.sampled_from(["cpu", ["cpu:0"], ["cpu:0", "cpu:1", "cpu:2"]]),
    )
    def test_of_what_is_written(
        self, drawn: Any, ending: str, pack: str, size: int, directed: bool, base: int, devices: Any,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:  # fmt: skip
        n, sources, targets = drawn
        weights = np.ones(len(sources), np.int32) if ending in (".wel", ".gr") else None
        graph = gw.Graph.from_edges(
            sources, targets, weights, vertex_count=n, ids=base if ending == ".el" else 0
        )
        if not directed:
            graph = graph.symmetrize()
        path = tmp_path_factory.mktemp("any") / f"graph{ending}{pack}"
        try:
            gw.write(graph, path)
        except InputError:  # there is no room in the format for such a graph
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(formats, "STREAMED_BYTES", size)
            check_same(path, devices, packet_bytes=1024)

    @pytest.mark.parametrize("size", [100, 1000, 1 << 20])
    def test_of_many_sparse_ids(
        self, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(formats, "STREAMED_BYTES", size)
        path = tmp_path / "graph.el"
        generator = np.random.default_rng(7)
        names = generator.choice(10**15, 300, replace=False)
        pairs = names[generator.integers(0, len(names), (150, 2))]
        path.write_text("".join(f"{u} {v}\n" for u, v in pairs.tolist()))
        assert check_same(path).count > 20

    def test_a_byte_makes_windows_of_a_line(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.el"
        path.write_text("10 2\n3 44\n5 6\n")
        with open_source(path, held_bytes=1) as source:
            assert list(windows(source.text(), 0)) == [(0, 5), (5, 10), (10, 14)]

    def test_vertices_of_files_that_count_from_1_count_from_0(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.mtx"
        path.write_text(f"{MTX} coordinate pattern symmetric\n4 4 2\n2 1\n4 3\n")
        found = gw.connected_components_of_edges(path, devices="cpu")
        assert found.label.tolist() == [0, 0, 2, 2]
        assert found.to_dict() == {0: 0, 1: 0, 2: 2, 3: 2}
        assert found.to_arrow().column("component").to_pylist() == [0, 0, 2, 2]
        assert found.ids.in_file.of(found.label) == [1, 1, 3, 3]

    def test_complex_entries_need_no_option(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.mtx"
        path.write_text(f"{MTX} coordinate complex general\n3 3 1\n3 2 0.5 1\n")
        assert check_same(path).label.tolist() == [0, 1, 1]

    @pytest.mark.parametrize("ending", [".mtx", ".csv"])
    def test_statistics_and_progress(
        self, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(formats, "STREAMED_BYTES", 1 << 12)
        path = tmp_path / f"graph{ending}"
        gw.write(grid(40, 40), path)
        seen: list[tuple[int, Any, int]] = []
        found = gw.connected_components_of_edges(
            path,
            devices="cpu",
            progress=lambda done: seen.append((int(done), done.total, threading.get_ident())),
        )
        edges = 2 * 39 * 40
        assert found.statistics.processed_items.sum() == edges
        assert {"scan", "run"} <= set(found.statistics.seconds)
        assert seen[0][:2] == (0, None)
        assert seen[-1][:2] == (edges, edges)
        assert {thread for *_, thread in seen} == {threading.get_ident()}


WRONG = [
    "0 1\n1 2\n3 x\n",
    "0 1\n1 2\n3",
    "0 1 1\n1 2 1\n3 4\n",
    "# Nodes: 9 Edges: 4\n0 1\n1 2\n3 4\n",
    "# Nodes: 2 Edges: 2\n0 1\n1 2\n",
    "p sp 4 3\na 1 2 1\na 2 3 1\na 3 5 1\n",
    "p sp 4 3\na 1 2 1\na 2 3 1\na 0 1 1\n",
    "p sp 4 3\na 1 2 1\na 2 3 1\n",
    "p sp 4 2\na 1 2 1\na 2 3 1\nb 1 2\n",
    "c nothing here\n",
    f"{MTX} coordinate pattern general\n4 4 3\n1 2\n2 3\n4 5\n",
    f"{MTX} coordinate pattern general\n4 4 9\n1 2\n2 3\n4 4\n",
    f"{MTX} coordinate real general\n4 4 3\n1 2 1\n2 3 1\n4 4 1.0x\n",
    f"{MTX} coordinate pattern general\n4 5 3\n1 2\n2 3\n4 4\n",
    "source,target\n1,2\n3,4\n5,\n",
    "# no edges\n",
    "",
    "\n\n",
    "nothing that is known\n",
]


class TestBadInput:
    @pytest.mark.parametrize("pack", [None, "gzip"])
    @pytest.mark.parametrize("content", WRONG)
    @pytest.mark.usefixtures("window")
    def test_what_read_refuses_is_refused_alike(
        self, content: str, pack: str | None, tmp_path: Path
    ) -> None:
        path = tmp_path / "graph"
        path.write_bytes(gzip.compress(content.encode()) if pack else content.encode())
        with pytest.raises(FormatError) as expected:
            gw.read(path)
        with pytest.raises(FormatError) as caught:
            gw.connected_components_of_edges(path, devices="cpu")
        assert str(caught.value) == str(expected.value)
        assert caught.value.line == expected.value.line

    @pytest.mark.usefixtures("window")
    def test_an_edge_whose_end_is_not_listed(self, tmp_path: Path) -> None:
        (tmp_path / "graph.v").write_text("1\n2\n3\n")
        (tmp_path / "graph.e").write_text("1 2\n3 2\n2 4\n")
        with pytest.raises(FormatError, match=r"vertex 4 is not in graph\.v.*") as caught:
            gw.connected_components_of_edges(tmp_path / "graph.e")
        assert caught.value.line == 3

    @pytest.mark.parametrize("pack", list(COMPRESSORS))
    def test_a_truncated_stream(self, pack: str, tmp_path: Path) -> None:
        path = tmp_path / "graph"
        path.write_bytes(COMPRESSORS[pack](LISTS["dimacs"].encode() * 50)[:-9])
        with pytest.raises(FormatError, match=rf"(truncated|corrupt) {pack} stream"):
            gw.connected_components_of_edges(path)

    @pytest.mark.parametrize(
        "content",
        ["ann bob\ncid ann\n", "# Ids: text\n1 2\n3 4\n", "source,target\n1,2\nx,y\n",
         "1 2\n99999999999999999999999 3\n"],
    )  # fmt: skip
    @pytest.mark.usefixtures("window")
    def test_texts_are_no_ids(self, content: str, tmp_path: Path) -> None:
        path = tmp_path / "graph"
        path.write_text(content)
        assert gw.read(path).ids.kind == "text"
        with pytest.raises(InputError, match=r"ids are texts.*call godwit.read first"):
            gw.connected_components_of_edges(path, devices="cpu")

    def test_texts_are_refused_before_they_are_many(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(formats, "STREAMED_BYTES", 1)
        as_numbers, seen = arcs.integers_in, []

        def look(distinct: Any) -> Any:
            seen.append(len(distinct))
            return as_numbers(distinct)

        monkeypatch.setattr(arcs, "integers_in", look)
        path = tmp_path / "graph.el"
        path.write_text("".join(f"x{line} y{line}\n" for line in range(200)))
        with pytest.raises(InputError, match="ids are texts"):
            gw.connected_components_of_edges(path, devices="cpu")
        assert seen == [2]

    def test_formats_that_list_no_arcs(self, tmp_path: Path) -> None:
        for ending, name in ((".graph", "metis"), (".godwit.gz", "godwit"), (".sg", "gap")):
            path = tmp_path / f"graph{ending}"
            gw.write(grid(3, 3).without_weights(), path)
            said = f"is of format {name}, whose arcs do not stream: call godwit.read first"
            with pytest.raises(InputError, match=said):
                gw.connected_components_of_edges(path)

    def test_what_is_no_text(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.bin"
        path.write_bytes(np.arange(8, dtype=np.int32).tobytes())
        with pytest.raises(FormatError, match=r"not a text file .*with their edge_dtype"):
            gw.connected_components_of_edges(path)
        with path.open("wb") as file:
            np.save(file, np.arange(8).reshape(4, 2))
        with pytest.raises(
            FormatError, match=r"takes edges from (one|files) (that is )?called \.npy"
        ):
            gw.connected_components_of_edges(path)
        with pytest.raises(FileError, match="no such file"):
            gw.connected_components_of_edges(tmp_path / "graph.none")
        with pytest.raises(FileError, match="is a directory"):
            gw.connected_components_of_edges(tmp_path)

    def test_the_file_says_how_many_vertices_there_are(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.el"
        path.write_text("0 1\n")
        with pytest.raises(
            InputError,
            match=r"vertex_count is for edges that do not say it; .*\.el .* edge_dtype must",
        ):
            gw.connected_components_of_edges(path, vertex_count=9)

    @pytest.mark.parametrize("after", [0, 3])
    @pytest.mark.usefixtures("nothing_is_open")
    def test_whoever_looks_on_may_end_it(
        self, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(formats, "STREAMED_BYTES", 100)
        path = tmp_path / "graph.el.gz"
        gw.write(grid(20, 20).without_weights(), path)
        looks = iter(range(after))

        def look(_: int) -> None:
            if next(looks, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            gw.connected_components_of_edges(path, devices="cpu", progress=look)

    def test_the_survey_looks_on_behind_every_window(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(formats, "STREAMED_BYTES", 1)
        for ending, content in ((".el", "0 1\n" * 9), (".graph-txt", "9\n" + "1\n" * 9)):
            path = tmp_path / f"graph{ending}"
            path.write_text(content)
            looks: list[None] = []
            with closing(EdgeText(path)) as edges:
                edges.survey(partial(looks.append, None))
                assert edges.count == 9
            assert len(looks) >= 9

    def test_a_file_that_becomes_shorter(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.el"
        path.write_text("0 1\n" * 9)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(formats, "STREAMED_BYTES", 8)
            edges = EdgeText(path)
            edges.survey(None)
        path.write_text("0 1\n")
        with pytest.raises(FileError, match="changed its size"):
            list(edges)
        edges.close()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("ending", [".el", ".mtx", ".csv"])
def test_memory_holds_windows_and_labels(
    ending: str, pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "STREAMED_BYTES", 1 << 18)
    monkeypatch.setattr(compression, "_OUTPUT_BYTES", 1 << 18)
    monkeypatch.setenv("GODWIT_THREADS", "2")
    pairs = np.random.default_rng(1).integers(1000, 5000, (600_000, 2))
    begin = {
        ".mtx": f"{MTX} coordinate pattern general\n5000 5000 600000\n",
        ".csv": "user,friend\n",
    }
    between = "," if ending == ".csv" else " "
    lines = "\n".join(f"{u}{between}{v}" for u, v in pairs.tolist())
    path = tmp_path / f"graph{ending}"
    path.write_bytes(pack((begin.get(ending, "") + lines).encode()))
    gw.connected_components_of_edges(path, devices="cpu", packet_bytes=1 << 16)  # compiled
    tracemalloc.start()  # sees what NumPy allocates
    try:
        found = gw.connected_components_of_edges(path, devices="cpu", packet_bytes=1 << 16)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.statistics.processed_items.sum() == len(pairs)
    assert peak < 4 << 20 < len(lines)


class TestCommand:
    def run(self, *arguments: str, given: str | None = None) -> Any:
        return CliRunner().invoke(app, ["components", *arguments, "--devices", "cpu"], input=given)

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        path = tmp_path / "graph.gr.gz"
        path.write_bytes(gzip.compress(b"c\np sp 5 2\na 2 3 1\na 5 3 1\n"))
        return str(path)

    def test_results_name_the_ids_of_the_file(self, path: str, tmp_path: Path) -> None:
        ran = self.run(path, "--stream", "--json")
        assert ran.exit_code == 0, ran.output
        facts = json.loads(ran.stdout)
        assert facts["graph"] == {"name": path, "vertices": 5, "edges": 2}
        assert facts["components"] == 3
        assert facts["top"][0] == {"component": 2, "vertices": 3}
        streamed = self.run(path, "--stream", "--output", "-").stdout
        assert streamed == "vertex,component\n1,1\n2,2\n3,2\n4,4\n5,2\n"
        assert streamed == self.run(path, "--output", "-").stdout

    def test_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = []

        def find(edges: Any, **_: Any) -> None:
            seen.append(edges)
            raise InputError("no more")

        monkeypatch.setattr("godwit.connected_components_of_edges", find)
        assert self.run("-", "--stream").exit_code == 2
        assert seen == ["/dev/stdin"]

    @pytest.mark.filterwarnings(
        "ignore::godwit.errors.LostDataWarning"
    )  # of columns that might be weights
    def test_columns(self, tmp_path: Path) -> None:
        path = tmp_path / "named.csv"
        path.write_text("id,kind,friend,source,target\n0,7,1,1,2\n1,8,9,2,3\n2,9,9,7,8\n")
        for columns in (None, ["id", "friend"], ["source", "id", "kind"]):
            given = {} if columns is None else {"columns": columns}
            expected = gw.connected_components(gw.read(path, **given), devices="cpu")
            found = gw.connected_components_of_edges(path, devices="cpu", **given)
            assert found.to_dict() == expected.to_dict()
            options = [] if columns is None else ["--columns", " ,".join(columns)]
            for stream in ([], ["--stream"]):
                ran = self.run(str(path), *stream, *options, "--json")
                assert json.loads(ran.stdout)["components"] == expected.count
        for wrong, said in (
            ({"columns": ["id", "nobody"]}, "there is no column 'nobody'"),
            ({"columns": "id"}, "columns must be names such as"),
            ({"columns": ["id"]}, "columns must be 2 or 3 different names"),
        ):
            with pytest.raises(InputError, match=said):
                gw.connected_components_of_edges(path, devices="cpu", **wrong)

    def test_what_has_no_columns(self, path: str, tmp_path: Path) -> None:
        np.save(tmp_path / "edges.npy", [[0, 1]])
        gw.write(grid(3, 3), tmp_path / "graph.godwit")
        given: dict[str, Any] = {"columns": ["a", "b"], "devices": "cpu"}
        for edges, said in (
            (path, "is of format dimacs, for which columns means nothing"),
            (tmp_path / "graph.godwit", "is of format godwit, for which columns means nothing"),
            (tmp_path / "edges.npy", "columns is for tables .* holds pairs"),
            ([[0, 1]], "columns is for tables in files"),
            (grid(3, 3), "columns is for tables in files"),
        ):
            with pytest.raises(InputError, match=said):
                gw.connected_components_of_edges(edges, **given)

    def test_edges_of_a_graph_are_counted_once(self, tmp_path: Path) -> None:
        path = str(tmp_path / "graph.godwit")
        gw.write(grid(3, 3), path)
        ran = self.run(path, "--stream", "--json")
        assert json.loads(ran.stdout)["graph"]["edges"] == 12

    def test_what_cannot_be(self, path: str, tmp_path: Path) -> None:
        (tmp_path / "names.txt").write_text("ann bob\n")
        for arguments, said in (
            (["rmat:4", "--stream"], "--stream takes a file; leave it out for rmat:4"),
            ([path, "--stream", "--vertices", "7"], "vertex_count is for edges that do not say it"),
            ([path, "--stream", "--id-base", "0"], "not for edges that stream"),
            ([path, "--vertices", "7"], "--vertices is for edges that stream: --stream, a .npy"),
            ([str(tmp_path / "names.txt"), "--stream"], "ids are texts"),
        ):
            ran = self.run(*arguments)
            assert ran.exit_code == 2
            assert said in " ".join(ran.output.split())


def test_lines_of_an_error_are_those_of_the_unpacked_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "STREAMED_BYTES", 1000)
    path = tmp_path / "graph.txt.gz"
    lines = "".join(f"{line} {line + 1}\n" for line in range(5000))
    path.write_bytes(gzip.compress(f"{lines}7 seven\n".encode()))
    with pytest.raises(FormatError) as caught:
        gw.connected_components_of_edges(path, devices="cpu")
    assert (caught.value.line, caught.value.text) == (5001, "7 seven")
