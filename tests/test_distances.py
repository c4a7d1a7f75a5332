"""Distances from many sources: equal to searches one by one, whatever the threads and the way to search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csgraph
from typer.testing import CliRunner

import godwit as gw
from godwit.algorithms.distances import contraction, cpu, single_source
from godwit.algorithms.distances.verify import verify_distances
from godwit.algorithms.paths import buckets as ring
from godwit.cli.application import app
from godwit.errors import (
    GraphTooLargeError,
    InputError,
    RunTimeoutError,
    ValueOverflowError,
    VerificationError,
)
from godwit.graph.csr import Graph
from graphs import forced_threads, graphs
from references import as_list, breadth_first, dijkstra
from search_ways import WAYS, searching


def _expected(graph: Graph, source: int, cutoff: float | None, weighted: bool) -> list[Any]:
    row = dijkstra(graph, [source]) if weighted else breadth_first(graph, [source])
    return [None if d is None or (cutoff is not None and d > cutoff) else d for d in row]


each_way = pytest.mark.parametrize("way", WAYS)
vertex_lists = st.lists(st.integers(0, 2**16), min_size=1, max_size=12)


@each_way
@given(
    graphs(min_vertices=1), vertex_lists, vertex_lists | st.none(),
    st.none() | st.floats(0, 30) | st.integers(0, 4), st.booleans(),
)  # fmt: skip
def test_rows_are_those_of_serial_searches(
    way: str, graph: Graph, sources: list[int], targets: list[int] | None, cutoff: float | None,
    weighted: bool,
) -> None:  # fmt: skip
    n = graph.vertex_count
    weighted = weighted and graph.is_weighted
    sources = [source % n for source in sources]
    columns = list(range(n)) if targets is None else [target % n for target in targets]
    with searching(way):
        found = gw.distances(
            graph, sources, None if targets is None else columns, weighted=weighted, cutoff=cutoff,
            devices="cpu",
        )  # fmt: skip
    assert found.distance.shape == (len(sources), len(columns))
    assert (found.sources, found.targets) == (sources, columns)
    for row, source in zip(found.distance, sources, strict=True):
        expected = _expected(graph, source, cutoff, weighted)
        assert as_list(row, found.unreached) == [expected[column] for column in columns]
    assert verify_distances(found, weighted=weighted, cutoff=cutoff) == len(sources)


@each_way
@pytest.mark.parametrize("count", [1, 63, 64, 65, 300, 1100])
def test_any_number_of_sources(way: str, count: int) -> None:
    graph = gw.generators.rmat(10, 4, seed=3)
    sources = np.random.default_rng(count).integers(0, graph.vertex_count, count)
    with searching(way):
        found = gw.distances(graph, sources)
        few = gw.distances(graph, sources, [5, 9, 5])  # begins at the targets
    hops = csgraph.dijkstra(
        graph.merge_parallel_arcs().to_scipy(), indices=sources, unweighted=True
    )
    assert found.distance.dtype == np.int32
    np.testing.assert_array_equal(np.where(np.isinf(hops), found.unreached, hops), found.distance)
    np.testing.assert_array_equal(few.distance, found.distance[:, [5, 9, 5]])


@pytest.mark.parametrize("most_neighbours", [0, 2, 64])
@given(graphs(min_vertices=1, weighted=True), vertex_lists, vertex_lists | st.none())
def test_contracted_graphs(
    most_neighbours: int, graph: Graph, sources: list[int], targets: list[int] | None
) -> None:
    """Rows are those of serial searches, whether all vertices are left in the core, some, or none."""
    n = graph.vertex_count
    sources = [source % n for source in sources]
    columns = list(range(n)) if targets is None else [target % n for target in targets]
    with pytest.MonkeyPatch.context() as patch, searching("one by one"):
        patch.setattr(cpu, "_MANY_SOURCES", 0)
        patch.setattr(contraction, "_LEAST_GAIN", 0)
        patch.setattr(contraction, "_MOST_NEIGHBOURS", most_neighbours)
        found = gw.distances(graph, sources, None if targets is None else columns, devices="cpu")
    for row, source in zip(found.distance, sources, strict=True):
        expected = _expected(graph, source, None, True)
        assert as_list(row, found.unreached) == [expected[column] for column in columns]


def test_roads_are_contracted_for_many_sources() -> None:
    graph = gw.generators.road(60, 70, weights=(0, 99), seed=2)
    for count, solver in (63, "side by side"), (64, "contracted"), (3, "contracted"):
        sources = np.random.default_rng(count).permutation(graph.vertex_count)[:count]
        found = gw.distances(graph, sources, devices="cpu")
        assert found.statistics.solver == solver
        expected = [
            gw.sssp(graph, source, devices="cpu", execution="asynchronous").distance
            for source in sources
        ]
        np.testing.assert_array_equal(found.distance, expected)
        within = gw.distances(graph, sources, cutoff=300, devices="cpu")
        assert within.statistics.solver == "side by side"
        np.testing.assert_array_equal(
            within.distance, np.where(found.distance <= 300, found.distance, found.unreached)
        )


def test_contracted_distances_beyond_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_MANY_SOURCES", 0)
    graph = Graph.from_edges([0, 1, 2, 4], [1, 2, 3, 5], [2**31, 2**31 - 3, 1, 2**40])
    for source, targets, solver in (0, [2], "contracted"), (0, None, "side by side"):
        found = gw.distances(graph, source, targets, devices="cpu")
        expected = gw.sssp(graph, source, devices="cpu", execution="asynchronous").distance
        np.testing.assert_array_equal(found.distance[0], expected[2:3] if targets else expected)
        assert found.statistics.solver == solver


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("spread", [0.5, 2, 5])
@pytest.mark.parametrize("buckets", [64, 4096])
def test_lengths_are_those_of_sssp(
    dtype: str, spread: float, buckets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all weights but a few are much smaller than the width of a bucket."""
    monkeypatch.setattr(single_source, "BUCKETS", buckets)
    monkeypatch.setattr(ring, "BUCKETS", buckets)
    graph = gw.generators.road(40, 50, seed=1)
    generator = np.random.default_rng(2)
    weights = generator.lognormal(3, spread, graph.arc_count)
    graph = Graph(*graph.reverse.rows[:2]).with_weights(weights.astype(dtype))
    sources = generator.integers(0, graph.vertex_count, 20)
    found = gw.distances(graph, sources, devices="cpu")
    for row, source in zip(found.distance, sources, strict=True):
        expected = gw.sssp(graph, source, devices="cpu", execution="asynchronous").distance
        assert row.dtype == expected.dtype
        np.testing.assert_array_equal(row, expected)
    some = gw.distances(graph, sources, sources[:7], cutoff=200, devices="cpu")
    wanted = found.distance[:, sources[:7]]
    np.testing.assert_array_equal(
        some.distance, np.where(wanted <= 200, wanted, found.unreached).astype(wanted.dtype)
    )


def _many_small_weights(large: int) -> Graph:
    """One large weight, which makes buckets wide, and a ladder that a stack alone visits 2^30 times.

    From rung to rung the upper way, visited last, is shorter by a power of two.
    """
    sources, targets, weights = [], [], []
    rungs = 30
    for rung in range(rungs):
        first = 2 * rung
        ways = [(first, first + 2, 2 ** (rungs - rung)), (first, first + 1, 0)]
        ways.append((first + 1, first + 2, 0))
        for u, v, weight in ways:
            sources.append(u)
            targets.append(v)
            weights.append(weight)
    sources.append(2 * rungs)
    targets.append(2 * rungs + 1)
    weights.append(large)
    return Graph.from_edges(sources, targets, weights)


@pytest.mark.parametrize("reverses", [False, True])
def test_weights_that_differ_much_in_size(reverses: bool) -> None:
    graph = _many_small_weights(2**50)
    if reverses:  # the order of arcs in a row
        last = graph.vertex_count - 1
        graph = graph.relabel(last - np.arange(last + 1))
    found = gw.distances(graph, np.arange(graph.vertex_count), timeout_s=60)
    for row, source in zip(found.distance, range(graph.vertex_count), strict=True):
        assert as_list(row, found.unreached) == dijkstra(graph, [source])


def test_sums_of_integers_that_overflow() -> None:
    large = 2**62
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [large, large - 3, 2])
    found = gw.distances(graph, [1, 2])
    assert as_list(found.distance[0], found.unreached) == [None, 0, large - 3, large - 1]
    with pytest.raises(ValueOverflowError, match="float64"):
        gw.distances(graph, [0, 1])
    near = gw.distances(graph, [0, 1], cutoff=2 * large - 3)
    assert as_list(near.distance[0], near.unreached) == [0, large, 2 * large - 3, None]


def test_a_search_ends_at_its_targets() -> None:
    """On a long path, a target that is near takes few visits."""
    path = gw.generators.path(100_000)
    for graph in (path, path.with_random_weights(1, 9, seed=1)):
        near = gw.distances(graph, [10, 20], [15, 25], devices="cpu")
        assert near.statistics.processed_items.sum() < 1000
        np.testing.assert_array_equal(
            near.distance, gw.distances(graph, [10, 20], devices="cpu").distance[:, [15, 25]]
        )


def test_results() -> None:
    graph = Graph.from_edges([0, 1, 2], [1, 2, 3], [5, 1, 1], ids=["a", "b", "c", "d"])
    found = gw.distances(graph, ["b", "a", "b"], ["d", "a"])
    assert found.sources == ["b", "a", "b"]
    assert found.targets == ["d", "a"]
    assert found.unreached == 2**63 - 1
    assert found.distance.tolist() == [[2, 2**63 - 1], [7, 0], [2, 2**63 - 1]]
    assert found.to_dict() == {"b": {"d": 2}, "a": {"d": 7, "a": 0}}
    assert found.to_frame().to_numpy().tolist() == [
        ["b", "d", 2], ["a", "d", 7], ["a", "a", 0], ["b", "d", 2]
    ]  # fmt: skip
    assert "3 source(s) x 2 vertices, int64" in repr(found)
    assert found.statistics.solver == "side by side"
    hops = gw.distances(graph, "a", weighted=False)
    assert hops.distance.tolist() == [[0, 1, 2, 3]]
    assert hops.statistics.solver == "bit-parallel"
    assert hops.statistics.processed_items.tolist() == [4]
    assert gw.distances(graph.without_weights(), ["c"]).distance.dtype == np.int32


def test_a_placed_graph() -> None:
    graph = gw.generators.watts_strogatz(300, seed=1)
    for devices in ("cpu", ["cpu:0", "cpu:1"]):
        with gw.place(graph, devices) as placed:
            found = gw.distances(placed, [3, 4])
            np.testing.assert_array_equal(found.distance, gw.distances(graph, [3, 4]).distance)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sources": [0, 5]}, r"in \[0, 5\), got 5"),
        ({"sources": []}, "sources must be a vertex or a non-empty list"),
        ({"sources": [0], "targets": []}, "targets must be a vertex or a non-empty list"),
        ({"sources": [0], "targets": [-1]}, "got -1"),
        ({"sources": [0], "cutoff": -1}, "cutoff must not be negative"),
        ({"sources": [0], "cutoff": float("nan")}, "cutoff"),
        ({"sources": [0], "weighted": True}, "needs a graph with weights"),
        ({"sources": [0], "weighted": 1}, "weighted must be True or False"),
        (
            {"sources": [0], "devices": ["cpu:0", "cpu:1"]},
            "distances runs on one device of the CPU",
        ),
        ({"sources": [0], "results": "gpu"}, "results"),
        ({"sources": [0], "timeout_s": 0}, "timeout_s"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        gw.distances(gw.generators.path(5), **arguments)


def test_negative_weights_are_refused() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], [1, -1])
    with pytest.raises(InputError, match="from 1 to 2"):
        gw.distances(graph, 0)
    assert gw.distances(graph, 0, weighted=False).distance.tolist() == [[0, 1, 2]]


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gw.generators.path(50_000)
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", "10000000")
    with pytest.raises(GraphTooLargeError, match="100 x 50,000 distances"):
        gw.distances(graph, range(100))
    with forced_threads(8):
        gw.distances(graph, range(20))  # by fewer threads


def test_timeout_and_progress() -> None:
    graph = gw.generators.road(200, 200, seed=1)
    with pytest.raises(RunTimeoutError):
        gw.distances(graph, range(5000), [3] * 6000, timeout_s=0.05)
    begun: list[Any] = []
    gw.distances(graph, range(600), progress=begun.append)
    assert begun == sorted(begun)
    assert all(0 <= count <= 600 == count.total for count in begun)


def test_a_wrong_distance_is_found() -> None:
    found = gw.distances(gw.generators.path(5), [0, 3])
    found.distance[1, 2] = 2
    with pytest.raises(VerificationError, match="the distance from 3 to 2 is 1, got 2"):
        verify_distances(found, weighted=False)


class TestCommand:
    def run(self, *arguments: object, status: int = 0) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == status, result.output
        return result

    def test_answers_as_the_function(self, tmp_path: Path) -> None:
        file = tmp_path / "distances.npy"
        spec = "road:20x20,weights=1..9"
        graph = gw.generate(spec)
        out = self.run("distances", spec, "-s", 7, "-s", 9, "-o", file, "--json", "--verify").stdout
        expected = gw.distances(graph, [7, 9])
        np.testing.assert_array_equal(np.load(file), expected.distance)
        found = json.loads(out)
        assert found["verified"]
        assert [row["source"] for row in found["rows"]] == [7, 9]
        reached = expected.distance[expected.distance != expected.unreached]
        assert sum(row["reached_vertices"] for row in found["rows"]) == len(reached)
        table = tmp_path / "distances.parquet"
        self.run("distances", spec, "-s", 7, "-s", 9, "--cutoff", 5, "-o", table, "-q")
        near = gw.distances(graph, [7, 9], cutoff=5)
        assert pq.read_table(table).to_pydict() == near.to_arrow().to_pydict()

    def test_tables(self) -> None:
        shown = self.run("distances", "path:9", "-s", 0, "-s", 4, "-t", 8, "-t", 5).stdout
        assert "from \\ to" in shown
        assert [line.split() for line in shown.splitlines()[3:5]] == [
            ["0", "8", "5"],
            ["4", "4", "1"],
        ]
        shown = self.run("distances", "path:9", "-s", "max-degree").stdout
        assert "largest distance" in shown
        csv = self.run("distances", "path:3,weights=2..2", "-s", 1, "-o", "-", "--ignore-weights")
        assert csv.stdout.split() == ["source,target,distance", "1,0,1", "1,1,0", "1,2,1"]

    def test_what_is_wrong(self) -> None:
        assert "is not in the graph" in self.run("distances", "path:9", "-s", 9, status=2).stderr
        assert "cutoff" in self.run("distances", "path:9", "-s", 1, "--cutoff", -2, status=2).stderr
