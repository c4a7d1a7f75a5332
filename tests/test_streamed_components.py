"""Components of edges that stream: SciPy's partition, over sources, devices, methods and packets."""

from __future__ import annotations

import json
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms.components import streamed, streamed_cpu
from godwit.cli.application import app
from godwit.cli.components import parse_bytes
from godwit.errors import FileError, FormatError, GraphTooLargeError, InputError, RunTimeoutError
from godwit.graph.csr import Graph
from godwit.io.edge_sources import EdgeRows, as_edges
from graphs import arc_lists, arcs_of, each_graph, named_graph
from test_components import expected_labels

Array = np.ndarray[Any, Any]

DEVICES = ("cpu", ["cpu:0"], ["cpu:0", "cpu:1"], ["cpu:0", "cpu:1", "cpu:2"])
SMALLEST_PACKET = 1024


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [one for one in threading.enumerate() if one not in before and one.is_alive()]
    # Teams wait for the next run; workers and readers do not.
    assert [one.name for one in left if not one.name.removeprefix("godwit-").isdigit()] == []


@pytest.fixture
def several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GODWIT_THREADS", "3")
    monkeypatch.setattr(streamed_cpu, "SMALL_EDGES", 0)


def edges_of(graph: Graph) -> Array:
    return np.array([arc[:2] for arc in arcs_of(graph)], np.int32).reshape(-1, 2)


def random_edges(vertices: int, count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, vertices, (count, 2), dtype=np.int32)


def labels_of(edges: Array, vertices: int) -> Array:
    return expected_labels(Graph.from_edges(edges[:, 0], edges[:, 1], vertex_count=vertices))


def chunks_of(edges: Array, sizes: list[int]) -> Iterator[Array]:
    """The edges in chunks of these sizes, and the rest, all in one array that is used again."""
    again = np.empty((len(edges), 2), edges.dtype)
    place = 0
    for size in [*sizes, len(edges)]:
        some = edges[place : place + size]
        again[: len(some)] = some
        yield again[: len(some)]
        again[:] = 0  # whoever still reads it joins nothing
        place += len(some)


class TestLabels:
    @each_graph
    @pytest.mark.parametrize("method", ["hook", "rem"])
    def test_as_scipy(self, name: str, method: str) -> None:
        graph = named_graph(name)
        edges, n = edges_of(graph), graph.vertex_count
        for devices in DEVICES:
            for given_edges in (edges, chunks_of(edges, [0, 1, 3, 0])):
                found = gw.connected_components_of_edges(
                    given_edges, vertex_count=n, method=method, devices=devices
                )
                np.testing.assert_array_equal(found.label, expected_labels(graph))
                assert found.label.dtype == np.int32

    @settings(max_examples=60)
    @given(
        arcs=arc_lists(),
        sizes=st.lists(st.integers(0, 9), max_size=6),
        method=st.sampled_from(["auto", "hook", "rem"]),
        rounds=st.sampled_from([None, 1, 3]),
        jumps=st.sampled_from([None, 0, 1]),
        devices=st.sampled_from(DEVICES),
        dtype=st.sampled_from(["int8", "uint16", ">i4", "uint32", "int64", "uint64", ">u8"]),
    )
    def test_any_chunks_any_options(
        self, arcs: Any, sizes: list[int], method: str, rounds: Any, jumps: Any, devices: Any,
        dtype: str,
    ) -> None:  # fmt: skip
        n, sources, targets = arcs
        edges = np.array([sources, targets], dtype).T.reshape(-1, 2)
        options: dict[str, Any] = {"method": method, "rounds": rounds, "jumps": jumps}
        expected = labels_of(edges.astype(np.int64), n)
        for source in (edges, iter(np.array_split(edges, 3)), chunks_of(edges, sizes)):
            found = gw.connected_components_of_edges(
                source, vertex_count=n, devices=devices, **options
            )
            np.testing.assert_array_equal(found.label, expected)

    @pytest.mark.parametrize("devices", [*DEVICES, [f"cpu:{one}" for one in range(7)]])
    @pytest.mark.parametrize("method", ["hook", "rem"])
    def test_many_packets_meet(
        self, devices: Any, method: str, several_threads: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(streamed_cpu, "WALKS_PER_VERTEX", 0.01)
        edges = random_edges(9000, 8000, seed=5)
        expected = labels_of(edges, 9000)
        for packet in (SMALLEST_PACKET, 3001, None):
            found = gw.connected_components_of_edges(
                edges, vertex_count=9000, method=method, devices=devices, packet_bytes=packet
            )
            np.testing.assert_array_equal(found.label, expected)
            assert found.statistics.processed_items.sum() == len(edges)

    @pytest.mark.parametrize("jumps", [None, 0, 1])
    @pytest.mark.parametrize("method", ["hook", "rem"])
    def test_rounds_without_atomics_undo_no_earlier_segment(
        self, method: str, jumps: int | None, several_threads: None
    ) -> None:
        edges = random_edges(700, 800)
        for devices in ("cpu", ["cpu:0"]):
            for rounds in (1, 3):
                found = gw.connected_components_of_edges(
                    edges, vertex_count=700, method=method, rounds=rounds, jumps=jumps,
                    devices=devices, packet_bytes=SMALLEST_PACKET,
                )  # fmt: skip
                np.testing.assert_array_equal(found.label, labels_of(edges, 700))

    @pytest.mark.parametrize("shape", ["path", "backwards", "star", "cycle"])
    def test_long_ways_to_the_root(self, shape: str, several_threads: None) -> None:
        n = 30_000
        after = np.arange(1, n, dtype=np.int32)
        before = after - 1 if shape != "star" else np.zeros(n - 1, np.int32)
        edges = np.column_stack([before, after])
        if shape == "backwards":
            edges = np.ascontiguousarray(edges[::-1, ::-1])
        if shape == "cycle":
            edges = np.append(edges, [[n - 1, 0]], axis=0).astype(np.int32)
        for method in ("hook", "rem"):
            for devices in ("cpu", ["cpu:0", "cpu:1", "cpu:2"]):
                found = gw.connected_components_of_edges(
                    edges, method=method, devices=devices, packet_bytes=SMALLEST_PACKET
                )
                assert found.count == 1
                assert len(found.label) == n

    def test_segments_go_to_several_devices(self) -> None:
        edges = random_edges(2000, 200_000)
        found = gw.connected_components_of_edges(
            edges, devices=["cpu:0", "cpu:1"], packet_bytes=SMALLEST_PACKET, vertex_count=2000
        )
        assert found.statistics.rounds.sum() == -(-200_000 // 128)
        assert (found.statistics.rounds > 0).all()


class TestSources:
    @pytest.fixture
    def edges(self) -> Array:
        return random_edges(500, 3000, seed=2)

    def check(self, found: gw.ComponentsResult, edges: Array, vertices: int = 500) -> None:
        np.testing.assert_array_equal(found.label, labels_of(edges, vertices))

    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("dtype", ["int16", "int32", "uint64", ">i8"])
    def test_npy_files(self, dtype: str, order: Any, edges: Array, tmp_path: Path) -> None:
        path = tmp_path / "edges.npy"
        np.save(path, np.asarray(edges.astype(dtype), order=order))
        for given_path in (path, str(path)):
            found = gw.connected_components_of_edges(
                given_path, packet_bytes=SMALLEST_PACKET, devices="cpu"
            )
            self.check(found, edges)

    def test_files_of_bare_pairs(self, edges: Array, tmp_path: Path) -> None:
        path = tmp_path / "edges.bin"
        edges.astype("<u4").tofile(path)
        found = gw.connected_components_of_edges(
            path, edge_dtype="<u4", packet_bytes=SMALLEST_PACKET, devices=["cpu:0", "cpu:1"]
        )
        self.check(found, edges)

    def test_what_is_like_an_array(self, edges: Array, tmp_path: Path) -> None:
        np.save(tmp_path / "edges.npy", edges)
        wide = np.zeros((3000, 4), np.int32)
        wide[:, ::2] = edges
        for source in (
            np.load(tmp_path / "edges.npy", mmap_mode="r"),
            np.asfortranarray(edges),
            edges[::-1],
            wide[:, ::2],
            edges.tolist(),
            list(np.array_split(edges, 7)),
            tuple(map(list, edges.tolist())),
            map(np.array, ([pair] for pair in edges.tolist())),
        ):
            n = 500
            found = gw.connected_components_of_edges(
                source, vertex_count=n, packet_bytes=2000, devices="cpu"
            )
            self.check(found, edges)

    def test_no_edges(self, tmp_path: Path) -> None:
        np.save(tmp_path / "none.npy", np.empty((0, 2), np.int64))
        for source in (np.empty((0, 2), np.int32), [], (), tmp_path / "none.npy"):
            assert gw.connected_components_of_edges(source, devices="cpu").label.tolist() == []
        nothing: list[Callable[[], Any]] = [
            list, lambda: np.empty((0, 2), np.int32), lambda: tmp_path / "none.npy",
            lambda: iter([]), lambda: iter([[]]),
        ]  # fmt: skip
        for make in nothing:
            for devices in ("cpu", ["cpu:0", "cpu:1"]):
                found = gw.connected_components_of_edges(make(), vertex_count=3, devices=devices)
                assert found.label.tolist() == [0, 1, 2]

    def test_the_number_of_vertices_is_found(self, edges: Array) -> None:
        found = gw.connected_components_of_edges(edges, devices="cpu")
        self.check(found, edges, int(edges.max()) + 1)
        assert "scan" in found.statistics.seconds

    def test_64_bit_ids_where_they_are_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from godwit.algorithms.components import streamed as streamed_components

        wide = np.dtype(np.int64)
        monkeypatch.setattr(streamed_components, "id_dtype_for", lambda vertices: wide)
        edges = random_edges(300, 250, seed=8)
        for method in ("hook", "rem"):
            for devices in DEVICES:
                found = gw.connected_components_of_edges(
                    edges, vertex_count=300, method=method, devices=devices, packet_bytes=1024
                )
                assert found.label.dtype == wide
                self.check(found, edges, 300)


def check_graph(graph: Graph, **options: Any) -> gw.ComponentsResult:
    """Arcs that stream give what the graph gives where it lies, and name it."""
    expected = gw.connected_components(graph, devices="cpu")
    found = gw.connected_components_of_edges(graph, packet_bytes=SMALLEST_PACKET, **options)
    np.testing.assert_array_equal(found.label, expected.label)
    assert found.label.dtype == expected.label.dtype
    assert found.statistics.solver.startswith("streamed")
    assert found.statistics.processed_items.sum() == graph.arc_count
    assert found.graph is graph
    assert found.to_dict() == expected.to_dict()
    return found


class TestGraphs:
    @each_graph
    @pytest.mark.parametrize("method", ["hook", "rem"])
    def test_as_where_it_lies(self, name: str, method: str) -> None:
        for devices in DEVICES:
            check_graph(named_graph(name), method=method, devices=devices)

    @settings(max_examples=60)
    @given(
        arcs=arc_lists(),
        directed=st.booleans(),
        id_dtype=st.sampled_from(["int32", "int64"]),
        devices=st.sampled_from(DEVICES),
    )
    def test_any_graph(self, arcs: Any, directed: bool, id_dtype: str, devices: Any) -> None:
        n, sources, targets = arcs
        graph = Graph.from_edges(
            sources, targets, vertex_count=n, directed=directed, id_dtype=id_dtype
        )
        check_graph(graph, devices=devices)

    @pytest.mark.parametrize("directed", [True, False])
    @pytest.mark.parametrize("id_dtype", ["int32", "int64"])
    def test_hubs_are_longer_than_a_packet(
        self, id_dtype: str, directed: bool, several_threads: None
    ) -> None:
        # Vertices without arcs before, between and behind the two.
        few = SMALLEST_PACKET // 4
        first, second = np.arange(50, 50 + 9 * few), np.arange(5000, 5000 + 3 * few + 1)
        sources = np.repeat([7, 40], [len(first), len(second)])
        graph = Graph.from_edges(
            sources,
            np.append(first, second),
            vertex_count=9000,
            directed=directed,
            id_dtype=id_dtype,
        )
        for devices in DEVICES:
            found = check_graph(graph, devices=devices)
            assert found.count == 9000 - graph.arc_count // (1 if directed else 2)
            assert found.statistics.rounds.sum() > 12

    def test_every_range_of_arcs(self) -> None:
        graph = Graph.from_edges([1, 1, 1, 4, 5, 5], [0, 3, 7, 4, 1, 6], vertex_count=9)
        arcs = np.column_stack([np.repeat([1, 4, 5], [3, 1, 2]), graph.targets])
        table = as_edges(graph)
        assert isinstance(table, EdgeRows)
        assert table.survey() is graph.ids
        for first in range(7):
            for last in range(first, 7):
                target = np.full((last - first, 2), -1, np.int32)
                table.fill(target, first)
                np.testing.assert_array_equal(target, arcs[first:last])

    def test_no_vertices_and_no_arcs(self) -> None:
        for n in (0, 1, 9):
            for devices in DEVICES:
                assert (
                    check_graph(Graph.from_edges([], [], vertex_count=n), devices=devices).count
                    == n
                )

    def test_a_file_that_is_mapped(self, tmp_path: Path) -> None:
        made = gw.generators.rmat(9, 4, seed=3)
        graph = made.with_ids(np.arange(made.vertex_count) * 3 - 5)
        path = tmp_path / "a graph"  # known by its content
        gw.write(graph, path, format="godwit")
        expected = gw.connected_components(graph, devices="cpu")
        for devices in DEVICES:
            for given_path in (path, str(path)):
                found = gw.connected_components_of_edges(
                    given_path, devices=devices, packet_bytes=1024
                )
                np.testing.assert_array_equal(found.label, expected.label)
                assert found.to_dict() == expected.to_dict()
                assert found.graph is not None
                assert found.statistics.solver == "streamed rem"
        with pytest.raises(InputError, match="a graph has as many vertices as"):
            gw.connected_components_of_edges(path, vertex_count=9)

    def test_a_mapped_file_that_is_damaged(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.godwit"
        gw.write(gw.generators.path(2000), path)
        content = bytearray(path.read_bytes())
        content[-300] ^= 1
        path.write_bytes(content)
        with pytest.raises(FormatError, match="damaged"):
            gw.connected_components_of_edges(path, devices="cpu")

    def test_memory_does_not_grow_with_the_graph(self, tmp_path: Path) -> None:
        def peak(arcs: int) -> int:
            ends = random_edges(4000, arcs)
            path = tmp_path / f"{arcs}.godwit"
            gw.write(Graph.from_edges(ends[:, 0], ends[:, 1], vertex_count=4000), path)
            del ends
            gw.connected_components_of_edges(path, devices="cpu", packet_bytes=1 << 14)  # compiled
            tracemalloc.start()  # sees what NumPy allocates
            try:
                gw.connected_components_of_edges(path, devices="cpu", packet_bytes=1 << 14)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        few, many = peak(50_000), peak(1_500_000)
        assert many < few + (1 << 20) < 4 * 1_500_000

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"vertex_count": 9}, "vertex_count is for edges that do not say it; the graph has"),
            ({"edge_dtype": "i4"}, "edge_dtype is for files of bare pairs; Graph has its own"),
            ({"packet_bytes": 1024, "method": "afforest"}, "'auto', 'hook' or 'rem' for edges"),
            (
                {"packet_bytes": 1024, "devices": ["cpu:0", "cpu:0"], "memory_bytes": 7},
                "the forest of",
            ),
        ],
    )
    def test_what_cannot_be(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError, match=said):
            gw.connected_components_of_edges(named_graph("path"), **options)

    def test_a_placed_graph_stays_where_it_is(self) -> None:
        said = r"its arcs do not stream: give placed\.graph"
        placed = gw.place(named_graph("path"), "cpu")
        with placed, pytest.raises(InputError, match=said):
            gw.connected_components_of_edges(placed, memory_bytes=1 << 20)

    def test_what_takes_several_devices_of_the_cpu_is_named(self) -> None:
        said = (
            "method='label-propagation' and connected_components_of_edges take several of the CPU"
        )
        with pytest.raises(InputError, match=said):
            gw.connected_components(named_graph("path"), devices=["cpu:0", "cpu:1"])


class TestResult:
    def test_without_a_graph(self, tmp_path: Path) -> None:
        result = gw.connected_components_of_edges(
            [[5, 4], [1, 3], [3, 2]], vertex_count=7, devices="cpu"
        )
        assert result.graph is None
        assert result.label.tolist() == [0, 1, 1, 1, 4, 4, 6]
        assert result.sizes.tolist() == [1, 3, 2, 1]
        assert result.to_dict()[3] == 1
        assert result.to_arrow().column("component").to_pylist() == result.label.tolist()
        assert result.method == "rem"
        assert result.statistics.devices == ("cpu",)
        assert set(result.statistics.seconds) == {"place", "compile", "run", "gather"}

    def test_progress_knows_how_many(self) -> None:
        seen: list[Any] = []
        edges = random_edges(2000, 50_000)
        gw.connected_components_of_edges(
            edges, vertex_count=2000, devices="cpu", packet_bytes=1024, progress=seen.append
        )
        assert seen[-1] == seen[-1].total == 50_000
        assert sorted(seen) == seen

    def test_progress_of_chunks_does_not(self) -> None:
        slowly, seen = threading.Event(), []

        def chunks() -> Iterator[Array]:
            yield random_edges(20, 100)
            slowly.wait(60)
            yield random_edges(20, 50)

        def look(done: Any) -> None:
            seen.append((int(done), done.total))
            slowly.set()

        gw.connected_components_of_edges(chunks(), vertex_count=20, devices="cpu", progress=look)
        assert seen[0][1] is None
        assert seen[-1] == (150, 150)


WRONG_IDS = [
    ("int32", -1, "-1"),
    ("int64", -(2**40), str(-(2**40))),
    ("int64", 100, "100"),
    ("uint32", 2**32 - 1, str(2**32 - 1)),
    ("uint64", 2**64 - 1, str(2**64 - 1)),
    ("uint64", 2**63, str(2**63)),
    ("int8", -128, "-128"),
]


class TestBadInput:
    @pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1", "cpu:2"]])
    @pytest.mark.parametrize(("dtype", "wrong", "said"), WRONG_IDS)
    def test_no_vertex(
        self, dtype: str, wrong: int, said: str, devices: Any, tmp_path: Path
    ) -> None:
        for column in (0, 1):
            edges = random_edges(100, 3000).astype(dtype)
            edges[2900, column] = np.array(wrong, dtype)
            shown = f"and {said} is no vertex in \\[0, 100\\)"
            how: dict[str, Any] = {"vertex_count": 100, "devices": devices, "packet_bytes": 1024}
            with pytest.raises(InputError, match=f"row 2,900 of edges is .*{shown}"):
                gw.connected_components_of_edges(edges, **how)
            with pytest.raises(InputError, match=f"row 0 of chunk 58 is .*{shown}"):
                gw.connected_components_of_edges(iter(np.array_split(edges, 60)), **how)
            np.save(tmp_path / "edges.npy", edges)
            with pytest.raises(InputError, match=f"row 2,900 of .*edges.npy is .*{shown}"):
                gw.connected_components_of_edges(tmp_path / "edges.npy", **how)

    def test_negative_ids_where_nobody_says_how_many(self) -> None:
        with pytest.raises(InputError, match=r"row 1 of edges is \(3, -2\), and -2 is no vertex"):
            gw.connected_components_of_edges([[1, 2], [3, -2]], devices="cpu")
        with pytest.raises(InputError, match=r"-1 is no vertex there, as there are none"):
            gw.connected_components_of_edges([[-1, -2]], devices="cpu")

    def test_ids_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InputError, match=f"row 1 of edges has the id {2**64 - 1}"):
            gw.connected_components_of_edges(np.array([[1, 2], [3, 2**64 - 1]], np.uint64))
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", "10000000")
        with pytest.raises(
            GraphTooLargeError, match=r"row 0 .* has the id 5000000, .*5,000,001 vertices"
        ):
            gw.connected_components_of_edges([[1, 5_000_000]], devices="cpu")

    @pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]])
    @pytest.mark.parametrize("after", [0, 1, 40])
    def test_an_iterator_that_raises(self, devices: Any, after: int) -> None:
        class OwnError(Exception):
            pass

        ended = []

        def chunks() -> Iterator[Array]:
            try:
                for number in range(after):
                    yield random_edges(50, 100, number)
                raise OwnError
            finally:
                ended.append(True)

        with pytest.raises(OwnError):
            gw.connected_components_of_edges(chunks(), vertex_count=50, devices=devices)
        assert ended == [True]

    def test_a_generator_is_ended_where_something_else_fails(self) -> None:
        ended = []

        def chunks() -> Iterator[Array]:
            try:
                while True:
                    yield np.array([[1, 2], [3, 77]])
            finally:
                ended.append(True)

        with pytest.raises(InputError, match="77 is no vertex"):
            gw.connected_components_of_edges(chunks(), vertex_count=50, devices="cpu")
        assert ended == [True]

    def test_progress_that_raises_ends_it(self) -> None:
        def chunks() -> Iterator[Array]:
            while True:
                yield random_edges(20, 10)

        def look(_: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            gw.connected_components_of_edges(
                chunks(), vertex_count=20, devices="cpu", progress=look
            )

    def test_out_of_time(self) -> None:
        def chunks() -> Iterator[Array]:
            while True:
                yield random_edges(20, 10)

        with pytest.raises(RunTimeoutError, match=r"0\.2 s"):
            gw.connected_components_of_edges(
                chunks(), vertex_count=20, devices="cpu", timeout_s=0.2
            )

    @pytest.mark.parametrize(
        ("chunk", "said"),
        [
            ([1, 2, 3], r"chunk 1 must have shape \(m, 2\)"),
            ([[1, 2, 3]], r"chunk 1 must have shape \(m, 2\)"),
            ([[0.5, 1.0]], "chunk 1 must be pairs of integers, got float64"),
            ([["a", "b"]], "chunk 1 must be pairs of integers"),
            ([[True, False]], "chunk 1 must be pairs of integers, got bool"),
            ([[1, 2], [3]], "chunk 1 must be an array"),
            (7, r"chunk 1 must have shape \(m, 2\)"),
        ],
    )
    def test_chunks_that_are_none(self, chunk: Any, said: str) -> None:
        with pytest.raises(InputError, match=said):
            gw.connected_components_of_edges(iter([[[0, 1]], chunk]), vertex_count=9, devices="cpu")

    @pytest.mark.parametrize(
        ("edges", "options", "said"),
        [
            (7, {}, "expected a godwit.Graph, or edges: .* got 7"),
            ({1: 2}, {}, "expected a godwit.Graph, or edges: .* got {1: 2}"),
            ({(0, 1)}, {}, "expected a godwit.Graph, or edges: .* got {"),
            (networkx.path_graph(3), {}, r"godwit\.Graph\.from_networkx makes a graph of a Graph"),
            (
                networkx.path_graph(3).edges,
                {},
                "from_networkx takes the graph that has this EdgeView",
            ),
            (named_graph("path").to_scipy(), {}, r"Graph\.from_scipy makes a graph of a csr_array"),
            (np.zeros((2, 9), int), {}, r"got \(2, 9\) of int64; \.T of it has that"),
            (None, {}, "expected a godwit.Graph"),
            (iter([]), {}, "vertex_count must be given where edges come out of an iterator"),
            ([1, 2, 3], {}, r"edges must have shape \(m, 2\)"),
            ([[0.5, 1]], {}, "edges must be pairs of integers"),
            ([[0, 1]], {"method": "afforest"}, "'auto', 'hook' or 'rem' for edges that stream"),
            ([[0, 1]], {"method": 3}, "'auto', 'hook' or 'rem'"),
            ([[0, 1]], {"vertex_count": -1}, "vertex_count must not be negative"),
            ([[0, 1]], {"packet_bytes": 3}, "packet_bytes must be at least 1024"),
            ([[0, 1]], {"edge_dtype": "i4"}, "edge_dtype is for files of bare pairs"),
            (
                iter([[]]),
                {"vertex_count": 9, "host_bytes": 1000},
                "packets of 1,024 bytes do not fit",
            ),
            (
                "edges.bin",
                {"edge_dtype": "f4"},
                "edge_dtype must be a dtype of integers such as 'int32', got 'f4'",
            ),
            ("edges.bin", {"edge_dtype": "nonsense"}, "edge_dtype must be a dtype"),
            ("edges.npy", {"edge_dtype": "i4"}, "declares its dtype"),
        ],
    )
    def test_what_cannot_be(self, edges: Any, options: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError, match=said):
            gw.connected_components_of_edges(edges, devices="cpu", **options)

    def test_files_that_are_none(self, tmp_path: Path) -> None:
        path = tmp_path / "edges.npy"
        with pytest.raises(FileError, match=r"cannot read .*edges\.npy"):
            gw.connected_components_of_edges(path)
        with pytest.raises(FileError, match=r"cannot read .*edges\.bin"):
            gw.connected_components_of_edges(tmp_path / "edges.bin", edge_dtype="int32")
        path.write_bytes(b"nonsense")
        with pytest.raises(FormatError, match="not an array in NumPy's format"):
            gw.connected_components_of_edges(path)
        np.save(path, np.zeros((3, 3), np.int32))
        with pytest.raises(InputError, match=r"shape \(m, 2\)"):
            gw.connected_components_of_edges(path)
        (tmp_path / "edges.bin").write_bytes(b"1234567")
        with pytest.raises(FormatError, match="no whole number of pairs of int32"):
            gw.connected_components_of_edges(tmp_path / "edges.bin", edge_dtype="int32")

    def test_a_file_that_became_shorter(self, tmp_path: Path) -> None:
        path = tmp_path / "edges.bin"
        random_edges(10, 1000).tofile(path)
        edges = as_edges(path, "int32")
        path.write_bytes(b"12345678")
        with pytest.raises(FileError, match="ends before row 8"):
            edges.fill(np.empty((5, 2), np.int32), 3)
        edges.close()
        edges.close()


class TestLimits:
    @pytest.mark.parametrize("is_file", [True, False])
    def test_buffers_on_the_host_keep_to_their_limit(
        self, is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = []
        send_filled = streamed.EdgeSenders._send_filled

        def watch(senders: Any, *given: Any) -> None:
            send_filled(senders, *given)
            taken.append(senders._space.used_bytes)

        monkeypatch.setattr(streamed.EdgeSenders, "_send_filled", watch)
        edges = random_edges(300, 30_000)
        np.save(tmp_path / "edges.npy", edges)
        source = tmp_path / "edges.npy" if is_file else iter(np.array_split(edges, 5))
        found = gw.connected_components_of_edges(
            source, vertex_count=300, packet_bytes=4096, host_bytes=2 * 4096 + 100, devices="cpu"
        )
        np.testing.assert_array_equal(found.label, labels_of(edges, 300))
        assert max(taken) <= 2 * 4096

    def test_a_forest_that_does_not_fit(self) -> None:
        message = (
            r"the forest of 9,000 vertices takes 35\.2 KiB of memory_bytes .* are 19\.5 KiB on cpu"
        )
        with pytest.raises(InputError, match=message):
            gw.connected_components_of_edges(
                [[1, 2]], vertex_count=9000, memory_bytes=20_000, devices="cpu"
            )

    def test_packets_are_smaller_where_limits_are_low(self) -> None:
        edges = random_edges(3000, 9000)
        low: dict[str, Any] = {"memory_bytes": 90_000, "host_bytes": 30_000}
        for source in (edges, iter(np.array_split(edges, 4))):
            found = gw.connected_components_of_edges(
                source, vertex_count=3000, devices=["cpu:0", "cpu:1"], **low
            )
            np.testing.assert_array_equal(found.label, labels_of(edges, 3000))
            assert found.statistics.rounds.sum() > 9


class TestCommand:
    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["components", *arguments, "--devices", "cpu"])

    @pytest.fixture
    def edges(self) -> Array:
        return random_edges(400, 450)

    @pytest.fixture
    def path(self, edges: Array, tmp_path: Path) -> str:
        np.save(tmp_path / "edges.npy", edges)
        return str(tmp_path / "edges.npy")

    def test_table_json_and_labels(self, path: str, edges: Array, tmp_path: Path) -> None:
        labels = labels_of(edges, 400)
        ran = self.run(path, "--vertices", "400")
        assert ran.exit_code == 0, ran.output
        count = len(np.unique(labels))
        assert f"{count}, the largest of {np.bincount(labels).max()} vertices" in ran.output
        target = str(tmp_path / "labels.npy")
        ran = self.run(path, "--vertices", "400", "--json", "-o", target, "--memory", "10MB",
                       "--host-memory", "1MiB", "--method", "hook")  # fmt: skip
        assert ran.exit_code == 0, ran.output
        facts = json.loads(ran.stdout)
        assert facts["components"] == count
        assert facts["graph"] == {"name": path, "vertices": 400, "edges": 450}
        assert facts["method"] == "hook"
        np.testing.assert_array_equal(np.load(target), labels)

    def test_bare_pairs(self, edges: Array, tmp_path: Path) -> None:
        edges.astype("<u2").tofile(tmp_path / "edges.bin")
        ran = self.run(str(tmp_path / "edges.bin"), "--edge-dtype", "<u2", "--json")
        assert ran.exit_code == 0, ran.output
        assert json.loads(ran.stdout)["graph"]["edges"] == 450

    def test_a_file_of_our_own(self, edges: Array, tmp_path: Path) -> None:
        graph = Graph.from_edges(edges[:, 0], edges[:, 1], vertex_count=407)
        path, labels = str(tmp_path / "graph.godwit"), str(tmp_path / "labels.npy")
        gw.write(graph, path)
        ran = self.run(path, "--stream", "--json", "--memory", "10MB", "-o", labels)
        assert ran.exit_code == 0, ran.output
        facts = json.loads(ran.stdout)
        assert facts["statistics"]["solver"] == "streamed rem"
        assert facts["graph"]["vertices"] == 407
        np.testing.assert_array_equal(np.load(labels), expected_labels(graph))

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--memory", "much"), "--memory must be a number of bytes such as 1.5GB"),
            (("--directed",), "--directed is not for edges that stream"),
            (
                ("--undirected", "--id-base", "1"),
                "--id-base and --undirected are not for edges that",
            ),
            (
                ("--no-relabel", "--stream"),
                "leave it out, or leave out --stream, to read the graph first",
            ),
            (("--merge", "direct"), "error: --merge is for graphs; here, edges stream"),
            (("--method", "afforest"), "for edges that stream"),
            (("--vertices", "3"), "is no vertex in [0, 3)"),
        ],
    )
    def test_what_cannot_be(self, arguments: tuple[str, ...], said: str, path: str) -> None:
        ran = self.run(path, *arguments)
        assert ran.exit_code == 2
        assert said in " ".join(ran.stderr.split())

    def test_other_files_do_not_stream(self) -> None:
        ran = self.run("road:30", "--memory", "8GB")
        assert ran.exit_code == 2
        assert (
            "--memory is for edges that stream: --stream, a .npy file, or bare pairs" in ran.stderr
        )
        ran = self.run("road:30", "--stream")
        assert ran.exit_code == 2
        assert "--stream takes a file; leave it out for road:30" in ran.stderr

    @pytest.mark.parametrize(
        ("text", "count"),
        [("12", 12), ("8GB", 8 * 10**9), ("1.", None), ("512MiB", 512 << 20), ("3k", 3000),
         ("7iB", None), ("2Ti", 2 << 40), ("-1", None), ("1.5GB", 1_500_000_000), ("0.5 KiB", None),
         ("0.5KiB", 512), ("1.0009k", 1000), ("1.5", None), ("1.5B", None), (".5GB", None)],
    )  # fmt: skip
    def test_numbers_of_bytes(self, text: str, count: int | None) -> None:
        if count is None:
            with pytest.raises(InputError, match="number of bytes"):
                parse_bytes(text, "--memory")
        else:
            assert parse_bytes(text, "--memory") == count
