"""LDBC Graphalytics: vertices, edges and properties in files of their own; its validation set."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from godwit.errors import FileError, FormatError, GodwitError, GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.union_find import weak_components
from godwit.io.graph_files import read, write
from godwit.io.text import line_reader
from graphs import arcs_of, graphs
from mutations import mutated

VERTICES = "30\n5\n10\n7\n"
EDGES = "5 10 2\n10 5 3\n30 30 4\n"
PROPERTIES = (
    "# a comment\ngraph.x.vertex-file = g.v\ngraph.x.edge-file = g.e\n"
    "graph.x.meta.vertices = 4\ngraph.x.meta.edges = 3\n\ngraph.x.directed = false\n"
    "graph.x.edge-properties.names = weight\ngraph.x.edge-properties.types = real\n"
    "graph.x.algorithms = bfs, sssp\n"
)

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write the files of a graph, and give the path of its edges."""

    def put_files(
        edges: str | bytes = EDGES, vertices: str = VERTICES, properties: str | None = None
    ) -> Path:
        (tmp_path / "g.v").write_text(vertices)
        if properties is not None:
            (tmp_path / "g.properties").write_text(properties)
        path = tmp_path / "g.e"
        path.write_bytes(edges if isinstance(edges, bytes) else edges.encode())
        return path

    return put_files


def named_arcs(graph: Graph) -> list[tuple[Any, ...]]:
    """Arcs between ids, in order."""
    return sorted((graph.ids[u], graph.ids[v], *rest) for u, v, *rest in arcs_of(graph))


def test_without_properties(put: Put) -> None:
    graph = read(put())
    assert (graph.vertex_count, graph.directed) == (4, True)
    assert graph.ids.stored.tolist() == [5, 7, 10, 30]
    assert named_arcs(graph) == [(5, 10, 2), (10, 5, 3), (30, 30, 4)]
    assert graph.weights is not None
    assert graph.weights.dtype == np.int32


def test_properties_say_what_edges_mean(put: Put) -> None:
    graph = read(put(properties=PROPERTIES))
    assert not graph.directed
    assert named_arcs(graph) == [
        (5, 10, 2.0), (5, 10, 3.0), (10, 5, 2.0), (10, 5, 3.0), (30, 30, 4.0)
    ]  # fmt: skip
    assert graph.weights is not None
    assert graph.weights.dtype == np.float64


@pytest.mark.parametrize("suffix", [".v", ".e", ".properties"])
def test_any_of_the_files_may_be_named(put: Put, suffix: str) -> None:
    path = put(properties=PROPERTIES)
    expected = read(path)
    assert arcs_of(read(path.with_suffix(suffix))) == arcs_of(expected)
    for part in (".v", ".e"):
        plain = path.with_suffix(part)
        Path(f"{plain}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    packed = path.with_suffix(suffix)
    packed = packed if packed.exists() else Path(f"{packed}.gz")
    assert arcs_of(read(packed)) == arcs_of(expected)


def test_properties_may_name_other_files(put: Put) -> None:
    path = put(properties=PROPERTIES)
    for part in (".v", ".e"):
        path.with_suffix(part).rename(path.with_name(f"other{part}"))
    other = path.with_name("x.properties")
    other.write_text(PROPERTIES.replace("g.v", "other.v").replace("g.e", "other.e"))
    assert read(other).vertex_count == 4


@pytest.mark.parametrize("name", ["../g.v", "/g.v", ".", "..", "", "sub/g.v", "g.v/", "./g.v"])
@pytest.mark.parametrize("key", ["vertex-file", "edge-file"])
def test_properties_name_files_beside_them(put: Put, key: str, name: str) -> None:
    path = put(properties=f"graph.x.directed = true\ngraph.x.{key} = {name}\n")
    with pytest.raises(FormatError, match="name of a file in the same folder") as caught:
        read(path.with_suffix(".properties"))
    assert (caught.value.path.name, caught.value.line) == ("g.properties", 2)


@pytest.mark.parametrize("name", ["ird=x#", "a b", "a:b", "a\\b", "a\nb", " a", "a\udcff"])
def test_names_that_properties_cannot_hold(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"cannot be called .*: it has .* in it"):
        write(Graph.from_edges([0], [1]), tmp_path / f"{name}.e")
    assert list(tmp_path.iterdir()) == []


@given(
    name=st.text(
        st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=8
    )
)
def test_any_other_name_is_read(tmp_path_factory: Any, name: str) -> None:
    folder = tmp_path_factory.mktemp("names")
    graph = Graph.from_edges([0], [1], [2], directed=False)
    if re.search(r"[\s=:\\\x00-\x1f\x7f]", name):
        with pytest.raises(InputError, match="cannot be called"):
            write(graph, folder / f"x{name}.e")
        return
    write(graph, folder / f"x{name}.e")
    found = read(folder / f"x{name}.properties")
    assert (found.directed, arcs_of(found)) == (False, arcs_of(graph))


def test_vertices_that_do_not_fit(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match=r"too large: ids are below 2\*\*63 .*: '9+'$") as caught:
        read(put("5 10\n", f"5\n10\n{'9' * 20}\n"))
    assert (caught.value.path.name, caught.value.line) == ("g.v", 3)
    path = put("5 10\n", "".join(f"{k}\n" for k in range(5000)))
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "30000")
    monkeypatch.setattr("godwit.io.source._SHARE_HELD", 1)
    with pytest.raises(GraphTooLargeError, match=r"g\.v: 5,000 vertices needs"):
        read(path)


@pytest.mark.parametrize("window", [None, 8])
def test_data_of_vertices_are_skipped(
    put: Put, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libgrape-lite's vertices have a second column."""
    if window is not None:
        monkeypatch.setattr("godwit.io.source._SHARE_HELD", 0)
        monkeypatch.setattr(line_reader, "_SMALLEST_WINDOW", window)
        monkeypatch.setattr(line_reader, "_SHARE_OF_MEMORY", 1 << 62)
    graph = read(put("5 10\n10 7\n", "# data\n10 0.5\n\n5\tabc\n007 -1\n9 0\n", None))
    assert list(graph.ids) == [5, 7, 9, 10]
    assert named_arcs(graph) == [(5, 10), (10, 7)]


def test_consecutive_ids_are_not_stored(put: Put) -> None:
    graph = read(put("4 2\n", "3\n2\n4\n"))
    assert (graph.ids.nbytes, list(graph.ids), named_arcs(graph)) == (0, [2, 3, 4], [(4, 2)])
    assert not read(put("1 0\n", "1\n0\n")).ids.own
    graph = read(put(f"{2**62} {2**63 - 2}\n", f"{2**63 - 2}\n{2**62}\n0\n"))
    assert named_arcs(graph) == [(2**62, 2**63 - 2)]


def test_edges_alone_are_an_edge_list(tmp_path: Path) -> None:
    path = tmp_path / "alone.e"
    path.write_text("0 1\n2 1\n")
    assert read(path).arc_count == 2
    with pytest.raises(FileError, match=r"no such file: .*alone\.v, which belongs to .*alone\.e"):
        read(path, format="graphalytics")


@pytest.mark.parametrize(
    ("edges", "vertices", "properties", "file", "line", "message"),
    [
        ("5 10\n\n# c\n 010 6\n", VERTICES, None, "g.e", 4, "vertex 6 is not in g.v"),
        ("5 10\n4 10\n", "5\n10\n", None, "g.e", 2, "vertex 4 is not in g.v"),
        ("5 10\n5 1\n", "9\n10\n", None, "g.e", 1, "vertex 5 is not in g.v"),
        ("5 10 x\n", VERTICES, None, "g.e", 1, "not a number|malformed"),
        ("5 10 1\n10 5\n", VERTICES, None, "g.e", 2, "expected SOURCE TARGET WEIGHT"),
        ("5 -10\n", VERTICES, None, "g.e", 1, "negative"),
        ("5 10\n", "5\n10\n5\n", None, "g.v", None, "vertex 5 is listed twice"),
        ("5 10\n", "5\n10 7\n", None, "g.v", 2, "each has the data.*--format edge-list"),
        ("5 10\n", "5 x\n10\n", None, "g.v", 2, "each has the data.*--format edge-list"),
        ("5 10\n", "5 1 2\n10 7 1\n", None, "g.v", 1, "VERTEX DATA.*--format edge-list"),
        ("5 10\n", "5 0\n-10 1\n", None, "g.v", 2, "negative.*--format edge-list"),
        ("5 10\n", "5 0\n0x10 1\n", None, "g.v", 2, "expected VERTEX.*--format edge-list"),
        ("5 10\n", f"5 0\n{2**63} 1\n", None, "g.v", 2, "too large"),
        ("5 10\n", "5 1\n10 1\n5 2\n", None, "g.v", None, "vertex 5 is listed twice"),
        ("5 10\n5 1\n", "5 0\n10 1\n", None, "g.e", 2, "1 is not in g.v .*--format edge-list"),
        ("5 10\n", "5\n\nx\n", None, "g.v", 3, "malformed line, expected VERTEX"),
        (EDGES, VERTICES, "graph.x.directed = perhaps\n", "g.properties", 1, "true or false"),
        (EDGES, VERTICES, "graph.x.meta.edges = 4\n", "g.properties", 1, "but 3 follow"),
        (EDGES, VERTICES, "\ngraph.x.meta.vertices = 5\n", "g.properties", 2, "but 4 follow"),
        (EDGES, VERTICES, "graph.x.meta.edges = 1e3\n", "g.properties", 1, "expected a number"),
        (EDGES, VERTICES, "nonsense\n", "g.properties", 1, "KEY = VALUE"),
        ("5 10\n", VERTICES, "graph.x.edge-properties.types = real\n", "g.e", 1, "WEIGHT"),
        (EDGES, VERTICES, "graph.x.edge-properties.types = char\n", "g.properties", 1, "one of"),
    ],
)  # fmt: skip
def test_what_is_wrong(
    put: Put,
    edges: str,
    vertices: str,
    properties: str | None,
    file: str,
    line: int | None,
    message: str,
) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        read(put(edges, vertices, properties))
    assert (caught.value.path.name, caught.value.line) == (file, line)


@pytest.mark.parametrize("packed", ["", ".zst"])
@settings(max_examples=50)
@given(data=st.data(), graph=graphs())
def test_round_trip(tmp_path_factory: Any, packed: str, data: Any, graph: Graph) -> None:
    ids: Any = data.draw(
        st.sampled_from([0, 7])
        | st.lists(
            st.integers(0, 2**63 - 2),
            min_size=graph.vertex_count,
            max_size=graph.vertex_count,
            unique=True,
        )
    )
    graph = graph.with_ids(ids)
    path = tmp_path_factory.getbasetemp() / f"round{packed[1:]}.e{packed}"
    write(graph, path)
    found = read(path)
    assert found.directed == graph.directed
    assert found.is_weighted == graph.is_weighted
    assert named_arcs(found) == named_arcs(graph)
    vertices = np.arange(graph.vertex_count)
    assert sorted(found.ids.of(vertices)) == sorted(graph.ids.of(vertices))
    Graph(found.offsets, found.targets, found.weights, directed=found.directed)


def test_properties_are_those_of_the_benchmark(tmp_path: Path) -> None:
    graph = Graph.from_edges([0, 1], [1, 2], [0.5, 1.0], directed=False, ids=1)
    write(graph, tmp_path / "my-graph.e")
    assert (tmp_path / "my-graph.v").read_text() == "1\n2\n3\n"
    lines = (tmp_path / "my-graph.properties").read_text().splitlines()
    assert "graph.my-graph.directed = false" in lines
    assert "graph.my-graph.vertex-file = my-graph.v" in lines
    assert "graph.my-graph.edge-properties.types = real" in lines


def test_ids_that_it_cannot_hold(tmp_path: Path) -> None:
    graph = Graph.from_edges([0], [1])
    for ids in (["a", "b"], [-1, 5]):
        with pytest.raises(InputError, match="Graphalytics cannot hold"):
            write(graph.with_ids(ids), tmp_path / "x.e")
    with pytest.raises(InputError, match=r"cannot be called x\.v"):
        write(graph, tmp_path / "x.v", format="graphalytics")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("part", [".e", ".v", ".properties"])
def test_mutations(put: Put, part: str) -> None:
    path = put(properties=PROPERTIES.replace("graph.x.algorithms = bfs, sssp\n", ""))
    content = path.with_suffix(part).read_bytes()
    outcomes = {"read": 0, "refused": 0}
    for seed in range(10 * settings().max_examples):
        path.with_suffix(part).write_bytes(mutated(content, seed))
        try:
            graph = read(path, format="graphalytics")
        except GodwitError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
            Graph(graph.offsets, graph.targets, graph.weights, directed=graph.directed)
    assert min(outcomes.values()) > 0


def test_in_windows(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    names = np.unique(generator.integers(0, 2**50, 200))
    edges = names[generator.integers(0, len(names), (500, 2))]
    path = put(
        "".join(f"{u} {v} {u % 7}\n" for u, v in edges.tolist()),
        "".join(f"{name}\n" for name in names.tolist()),
    )
    expected = read(path)
    monkeypatch.setattr("godwit.io.source._SHARE_HELD", 0)
    monkeypatch.setattr(line_reader, "_SMALLEST_WINDOW", 300)
    monkeypatch.setattr(line_reader, "_SHARE_OF_MEMORY", 1 << 62)
    found = read(path)
    assert named_arcs(found) == named_arcs(expected)
    content = path.read_text()
    path.write_text(content + f"{names[0]} 3\n")
    with pytest.raises(FormatError, match="expected SOURCE TARGET WEIGHT"):
        read(path)
    path.write_text(content + f"{names[0]} 3 1\n")
    with pytest.raises(FormatError, match=r"vertex 3 is not in g\.v") as caught:
        read(path)
    assert caught.value.line == 501


CASES = [
    (folder, kind, part)
    for folder in ("bfs", "wcc", "cdlp", "lcc", "pr", "ffm", "sssp")
    for kind in ("dir", "undir")
    for part in ((".e", ".v") if folder == "sssp" else ("",))
]


class TestValidationSet:
    """The inputs and expected outputs of Graphalytics itself."""

    @pytest.fixture
    def folder(self, data_folder: Path) -> Path:
        return data_folder / "expected" / "graphalytics-validation"

    @pytest.mark.parametrize(("folder_name", "kind", "part"), CASES)
    def test_inputs(self, folder: Path, folder_name: str, kind: str, part: str) -> None:
        path = folder / folder_name / f"{kind}-input{part}"
        edges_once = kind == "undir" and bool(part)
        graph = read(path, directed=False if kind == "undir" else None)
        assert graph.directed == (kind == "dir")
        expected = set()
        for line in path.with_suffix(".e" if part else "").read_text().splitlines():
            head, *rest = line.split()
            targets = rest[:1] if part else rest
            expected |= {(int(head), int(target)) for target in targets}
        if edges_once:
            expected |= {(v, u) for u, v in expected}
        assert {arc[:2] for arc in named_arcs(graph)} == expected
        output = path.with_name(f"{kind}-output")
        if output.exists():
            ids = [int(line.split()[0]) for line in output.read_text().splitlines()]
            assert graph.ids.of(np.arange(graph.vertex_count)) == sorted(ids)

    def graphs_of(self, folder: Path) -> dict[str, tuple[Graph, dict[str, Path], dict[str, str]]]:
        """By name: a graph, the files of its expected outputs, and its properties."""
        found = {}
        for kind, long in (("dir", "directed"), ("undir", "undirected")):
            directed = None if kind == "dir" else False
            for name in ("bfs", "wcc", "sssp"):
                suffix = ".e" if name == "sssp" else ""
                graph = read(folder / name / f"{kind}-input{suffix}", directed=directed)
                outputs = {name: folder / name / f"{kind}-output"}
                found[f"test-{name}-{long}"] = (graph, outputs)
            for suffix in (".e", "-input"):
                graph = read(folder / "example" / f"example-{long}{suffix}", directed=directed)
                outputs = {
                    name: folder / "example" / f"example-{long}-{name.upper()}"
                    for name in ("bfs", "wcc", "sssp")
                    if name != "sssp" or suffix == ".e"
                }
                found[f"example-{long}{suffix}"] = (graph, outputs)
        return {
            name: (*rest, self.properties_of(folder, name.partition(".")[0].removesuffix("-input")))
            for name, rest in found.items()
        }

    @staticmethod
    def properties_of(folder: Path, name: str) -> dict[str, str]:
        lines = (folder / "properties" / f"{name}.properties").read_text().splitlines()
        pairs = (line.split("=") for line in lines if line.startswith("graph."))
        return {key.strip().removeprefix(f"graph.{name}."): value.strip() for key, value in pairs}

    @staticmethod
    def expected(path: Path) -> dict[int, str]:
        return {int(line.split()[0]): line.split()[1] for line in path.read_text().splitlines()}

    def test_breadth_first_search(self, folder: Path) -> None:
        compared = 0
        for graph, outputs, properties in self.graphs_of(folder).values():
            if "bfs" not in outputs:
                continue
            source = int(properties["bfs.source-vertex"])
            distance = gw.bfs(graph, source).distance
            unreached = np.iinfo(distance.dtype).max
            for id, level in self.expected(outputs["bfs"]).items():
                found = distance[graph.ids.position(id)]
                expected = unreached if int(level) == 2**63 - 1 else int(level)
                assert found == expected
            compared += 1
        assert compared == 6

    def test_shortest_paths(self, folder: Path) -> None:
        compared = 0
        for graph, outputs, properties in self.graphs_of(folder).values():
            if "sssp" not in outputs:
                continue
            source = int(properties["sssp.source-vertex"])
            distance = gw.sssp(graph, source).distance
            ids, lengths = zip(*self.expected(outputs["sssp"]).items(), strict=True)
            assert distance[graph.ids.positions(ids)] == pytest.approx(
                [float(length) for length in lengths], rel=1e-4
            )
            compared += 1
        assert compared == 4

    def test_weak_components(self, folder: Path) -> None:
        compared = 0
        for graph, outputs, _ in self.graphs_of(folder).values():
            if "wcc" not in outputs:
                continue
            labels = np.asarray(weak_components(graph.rows, graph.directed))
            expected = self.expected(outputs["wcc"])
            pairs = {(labels[graph.ids.position(id)], label) for id, label in expected.items()}
            assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
            compared += 1
        assert compared == 6

    def test_communities_by_label_propagation(self, folder: Path) -> None:
        compared = 0
        for kind, long in (("dir", "directed"), ("undir", "undirected")):
            directed = None if kind == "dir" else False
            cases = {
                f"test-cdlp-{long}": ("cdlp", f"{kind}-input", f"{kind}-output"),
                f"example-{long}": ("example", f"example-{long}.e", f"example-{long}-CDLP"),
            }
            for name, (part, edges, output) in cases.items():
                graph = read(folder / part / edges, directed=directed)
                iterations = int(self.properties_of(folder, name)["cdlp.max-iterations"])
                found = gw.label_propagation(graph, variant="cdlp", max_iterations=iterations)
                labels = graph.ids.of(found.names[found.label])
                for id, label in self.expected(folder / part / output).items():
                    assert labels[graph.ids.position(id)] == int(label)
                compared += 1
        assert compared == 4
