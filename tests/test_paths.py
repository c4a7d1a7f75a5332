"""BFS and SSSP give the same right answer on every device count, partition and schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from godwit.algorithms import sssp as sssp_module
from godwit.algorithms.paths.verify import verify_bfs, verify_sssp
from godwit.errors import ClosedContextError, DeviceError, InputError, ValueOverflowError
from graphs import each_graph, graphs, named_graph
from references import as_list, breadth_first, dijkstra

ALGORITHMS = {"bfs": gw.bfs, "sssp": gw.sssp}
REFERENCES = {"bfs": breadth_first, "sssp": dijkstra}
VERIFIERS = {"bfs": verify_bfs, "sssp": verify_sssp}
DEVICES: list[Any] = [None, ["cpu:0"], 2, 3]
PARTITIONS = ["contiguous", "random", "biased-random", "metis"]

each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def check(graph: gw.Graph, algorithm: str, sources: list[int], **options: Any) -> None:
    result = ALGORITHMS[algorithm](graph, sources, **options)
    assert as_list(result.distance, result.unreached) == REFERENCES[algorithm](graph, sources)
    VERIFIERS[algorithm](graph, result.sources, result.distance, result.predecessor)


@each_algorithm
@each_graph
@pytest.mark.parametrize("devices", DEVICES, ids=str)
def test_zoo(algorithm: str, name: str, devices: Any) -> None:
    graph = named_graph(name)
    # Of all cores, only vertex programs are asynchronous: other searches of small graphs are not.
    executions = ("auto", "asynchronous") if devices is None else ("auto",)
    for source in range(0, graph.vertex_count, max(1, graph.vertex_count // 3)):
        for execution in executions:
            check(graph, algorithm, [source], devices=devices, execution=execution)


@given(data=st.data(), graph=graphs(min_vertices=1))
@settings(max_examples=4 * settings().max_examples)
def test_any_graph_devices_and_partition(data: st.DataObject, graph: gw.Graph) -> None:
    algorithm = data.draw(st.sampled_from(list(ALGORITHMS)))
    devices = data.draw(st.sampled_from(DEVICES))
    parts = devices if isinstance(devices, int) else 1
    owners = st.lists(
        st.integers(0, parts - 1), min_size=graph.vertex_count, max_size=graph.vertex_count
    )
    partition = data.draw(st.sampled_from(PARTITIONS) | owners.map(np.array))
    vertices = st.integers(0, graph.vertex_count - 1)
    sources = data.draw(st.lists(vertices, min_size=1, max_size=3))
    check(
        graph,
        algorithm,
        sources,
        devices=devices,
        partition=partition,
        worker=gw.WorkerOptions(
            window=data.draw(st.sampled_from([0, 1, 1000])),
            delta=data.draw(st.sampled_from([None, 0.5, 3.0, 1e9])),
            ring_items=data.draw(st.sampled_from([1, 2, 7, 4096])),
            capacity_items=data.draw(st.sampled_from([None, 1])),
        ),
    )


def test_small_graphs_are_searched_as_large_ones() -> None:
    graph = gw.generators.road(60, seed=1, weights=(1, 64)).largest_component().with_ids(0)
    for weights in (graph.weights, np.sqrt(graph.weights)):
        small = graph.with_weights(weights)
        for cutoff in (None, 500):
            for source in (0, graph.highest_degree_vertex()):
                found = gw.sssp(small, source, cutoff=cutoff, devices="cpu")
                wanted = gw.sssp(
                    small, source, cutoff=cutoff, devices="cpu", execution="asynchronous"
                )
                assert found.distance.dtype == wanted.distance.dtype
                np.testing.assert_array_equal(found.distance, wanted.distance)
                np.testing.assert_array_equal(found.predecessor, wanted.predecessor)
                assert found.statistics.rounds.sum() == 0 < wanted.statistics.rounds.sum()
                reached_arcs = graph.out_degree()[found.reached].sum()
                assert found.statistics.arcs_relaxed.sum() >= reached_arcs


@given(data=st.data(), graph=graphs(min_vertices=1))
@settings(max_examples=100)
def test_cutoff_and_target_do_not_depend_on_devices(data: st.DataObject, graph: gw.Graph) -> None:
    algorithm = data.draw(st.sampled_from(list(ALGORITHMS)))
    devices = data.draw(st.sampled_from(DEVICES))
    vertices = st.integers(0, graph.vertex_count - 1)
    source, target = data.draw(vertices), data.draw(vertices)
    cutoff = data.draw(st.none() | st.integers(0, 6))
    use_target = data.draw(st.booleans())
    reference = REFERENCES[algorithm](graph, [source])
    limit = float("inf") if cutoff is None else cutoff
    if use_target and reference[target] is not None:
        limit = min(limit, reference[target])
    result = ALGORITHMS[algorithm](
        graph,
        source,
        devices=devices,
        cutoff=cutoff,
        target=target if use_target else None,
    )
    expected = [None if d is None or d > limit else d for d in reference]
    assert as_list(result.distance, result.unreached) == expected


@each_algorithm
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_new_york_equals_scipy(
    new_york: gw.Graph, algorithm: str, partition: str, devices: int
) -> None:
    from scipy.sparse.csgraph import dijkstra as scipy_dijkstra

    source = 0
    with gw.place(new_york, devices, partition) as placed:
        result = ALGORITHMS[algorithm](placed, source)
    matrix = new_york.to_scipy(merge="min")
    expected = scipy_dijkstra(matrix, indices=source, unweighted=algorithm == "bfs")
    found = np.where(result.reached, result.distance.astype(np.float64), np.inf)
    np.testing.assert_array_equal(found, expected)
    VERIFIERS[algorithm](new_york, result.sources, result.distance, result.predecessor)


@pytest.fixture(scope="session")
def new_york(data_folder: Any) -> gw.Graph:
    return gw.read(data_folder / "USA-road-d.NY.gr.xz")


@pytest.mark.parametrize("name", ["bremen_dist.gr.xz", "soc-Slashdot0902.mtx.xz", "wave.mtx.xz"])
@pytest.mark.parametrize("devices", [1, 3])
def test_real_graphs(data_folder: Any, name: str, devices: int) -> None:
    from scipy.sparse.csgraph import dijkstra as scipy_dijkstra

    graph = gw.read(data_folder / name)
    source = graph.highest_degree_vertex()
    result = gw.sssp(graph, source, devices=devices)
    expected = scipy_dijkstra(
        graph.to_scipy(merge="min"),
        indices=source,
        unweighted=not graph.is_weighted,
    )
    found = np.where(result.reached, result.distance.astype(np.float64), np.inf)
    np.testing.assert_array_equal(found, expected)


def test_weights_can_be_ignored() -> None:
    graph = gw.generators.road(9, seed=1, weights=(1, 9))
    for devices in ("cpu", 2):
        found = gw.sssp(graph, 0, weighted=False, devices=devices)
        expected = gw.bfs(graph, 0)
        np.testing.assert_array_equal(found.distance, expected.distance)
        np.testing.assert_array_equal(found.predecessor, expected.predecessor)
        again = gw.sssp(graph, 0, weighted=True, devices=devices)
        np.testing.assert_array_equal(again.distance, gw.sssp(graph, 0).distance)
    with pytest.raises(InputError, match="needs a graph with weights"):
        gw.sssp(graph.without_weights(), 0, weighted=True)


GRAPHALYTICS_UNREACHED = {"9223372036854775807", "Infinity"}


def graphalytics(
    folder: Any, case: str, algorithm: str
) -> tuple[gw.Graph, int, list[float | None]]:
    """A graph, a source and the expected distances of Graphalytics' validation set."""
    base = folder / "expected" / "graphalytics-validation"
    directed = not case.startswith("undir") and "undirected" not in case
    if case.startswith("example"):
        output = (base / "example" / f"{case}-{algorithm.upper()}").read_text()
        edges = (base / "example" / f"{case}.e").read_text()
    elif algorithm == "sssp":
        output = (base / "sssp" / f"{case}-output").read_text()
        edges = (base / "sssp" / f"{case}-input.e").read_text()
    else:
        output = (base / "bfs" / f"{case}-output").read_text()
        edges = "\n".join(
            f"{line.split()[0]} {target}"
            for line in (base / "bfs" / f"{case}-input").read_text().splitlines()
            for target in line.split()[1:]
            if directed or int(line.split()[0]) <= int(target)
        )
    expected = {int(line.split()[0]): line.split()[1] for line in output.splitlines() if line}
    ids = sorted(expected)
    place = {vertex: index for index, vertex in enumerate(ids)}
    rows = [line.split() for line in edges.splitlines() if line.split()]
    weights = [float(row[2]) for row in rows] if len(rows[0]) > 2 else None
    graph = gw.Graph.from_edges(
        [place[int(row[0])] for row in rows],
        [place[int(row[1])] for row in rows],
        weights,
        vertex_count=len(ids),
        directed=directed,
    )
    distances = [
        None if expected[vertex] in GRAPHALYTICS_UNREACHED else float(expected[vertex])
        for vertex in ids
    ]
    return graph, distances.index(0.0), distances


@each_algorithm
@pytest.mark.parametrize("case", ["dir", "undir", "example-directed", "example-undirected"])
@pytest.mark.parametrize("devices", [1, 2, 4])
def test_graphalytics(data_folder: Any, algorithm: str, case: str, devices: int) -> None:
    graph, source, expected = graphalytics(data_folder, case, algorithm)
    result = ALGORITHMS[algorithm](graph, source, devices=devices)
    found = as_list(result.distance, result.unreached)
    assert [value is None for value in found] == [value is None for value in expected]
    for value, wanted in zip(found, expected, strict=True):
        if wanted is not None:
            assert value == pytest.approx(wanted, rel=0 if algorithm == "bfs" else 1e-4)


def test_integer_distances_are_exact_where_32_bits_do_not_suffice() -> None:
    heavy = 2**30 + 1
    graph = gw.Graph.from_edges(np.arange(9), np.arange(1, 10), np.full(9, heavy, np.int32))
    for devices in DEVICES:
        distance = gw.sssp(graph, 0, devices=devices).distance
        assert distance.dtype == np.int64
        assert distance.tolist() == [heavy * index for index in range(10)]


def test_uint32_and_int64_weights_are_exact() -> None:
    for dtype, weight in (("uint32", 2**32 - 1), ("int64", 2**53 + 1)):
        graph = gw.Graph.from_edges([0, 1], [1, 2], np.array([weight, 1], dtype))
        assert gw.sssp(graph, 0, devices=2).distance.tolist() == [0, weight, weight + 1]


def test_weights_that_could_overflow_64_bits_are_refused() -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 2], np.array([2**62, 2**62]))
    with pytest.raises(ValueOverflowError, match="beyond the range of int64 distances"):
        gw.sssp(graph, 0)


@pytest.mark.parametrize("devices", DEVICES, ids=str)
def test_infinite_weights_are_no_way(devices: Any) -> None:
    graph = gw.Graph.from_edges([0, 1, 0], [1, 2, 2], [1.0, np.inf, 7.0])
    assert gw.sssp(graph, 0, devices=devices).distance.tolist() == [0.0, 1.0, 7.0]


def test_placed_graph_answers_many_queries_and_then_closes() -> None:
    graph = named_graph("grid")
    with gw.place(graph, 2, "random") as placed:
        for source in (0, 50, 203):
            expected = dijkstra(graph, [source])
            result = gw.sssp(placed, source)
            assert as_list(result.distance, result.unreached) == expected
        with pytest.raises(InputError, match="placed already"):
            gw.sssp(placed, 0, devices=2)
    with pytest.raises(ClosedContextError):
        gw.sssp(placed, 0)


def test_a_placed_graph_has_the_copies_that_were_asked_for() -> None:
    graph = gw.generators.rmat(8, 3, seed=1, weights=(1, 9))
    wanted = gw.sssp(graph, 7, devices="cpu").distance
    choices: tuple[Any, ...] = ("1-hop", "all")
    for duplication in choices:
        with gw.place(graph, 3, "random", duplication=duplication) as placed:
            for part in placed.layout.parts:
                assert part.part not in placed.layout.owner[part.halo_vertices]
                elsewhere = graph.vertex_count - len(part.vertices)
                assert (len(part.halo_vertices) == elsewhere) == (duplication == "all")
            assert np.array_equal(gw.sssp(placed, 7).distance, wanted)


def test_queries_may_run_at_the_same_time() -> None:
    from concurrent.futures import ThreadPoolExecutor

    graph = named_graph("grid")
    expected = {source: dijkstra(graph, [source]) for source in range(8)}
    with gw.place(graph, 2) as placed, ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda source: gw.sssp(placed, source % 8), range(64)))
    for index, result in enumerate(results):
        assert as_list(result.distance, result.unreached) == expected[index % 8]


def test_path_to_walks_from_a_source() -> None:
    graph = gw.Graph.from_edges([0, 0, 1, 2], [1, 2, 3, 3], [1, 1, 1, 1], vertex_count=5)
    result = gw.sssp(graph, 0)
    assert result.path_to(3) == [0, 1, 3]
    with pytest.raises(InputError, match="vertex 4 was not reached"):
        result.path_to(4)


def test_statistics_add_up() -> None:
    graph = named_graph("grid")
    result = gw.sssp(graph, 0, devices=3)
    statistics = result.statistics
    assert statistics.devices == ("cpu:0", "cpu:1", "cpu:2")
    assert statistics.sent_items.shape == (3, 3)
    assert statistics.sent_items.trace() == 0
    assert statistics.sent_items.sum() == statistics.received_items.sum() > 0
    assert statistics.processed_items.sum() - statistics.useless_items.sum() >= graph.vertex_count
    assert statistics.arcs_relaxed.sum() >= graph.arc_count
    assert {"partition", "place", "run", "gather"} <= set(statistics.seconds)


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"source": -3}, InputError, r"source must be in \[0, 204\), got -3"),
    ({"source": 204}, InputError, r"source must be in \[0, 204\), got 204"),
    ({"source": 1.5}, InputError, "1.5"),
    ({"source": []}, InputError, "non-empty"),
    ({"source": [0, 999]}, InputError, r"source must be in \[0, 204\), got 999"),
    ({"source": True}, InputError, "True"),
    ({"source": 0, "devices": 0}, InputError, "devices must be at least 1, got 0"),
    ({"source": 0, "devices": []}, InputError, "empty list"),
    ({"source": 0, "devices": "gpu"}, DeviceError, "no device 'gpu'"),
    ({"source": 0, "devices": ["cpu", "cpu:0"]}, InputError, "cannot be one of several"),
    ({"source": 0, "devices": 2, "partition": "zebra"}, InputError, "zebra"),
    ({"source": 0, "devices": 2, "partition": [0, 1]}, InputError, "204"),
    ({"source": 0, "target": 204}, InputError, "target"),
    ({"source": 0, "cutoff": -1}, InputError, "cutoff must not be negative, got -1"),
    ({"source": 0, "timeout_s": 0}, InputError, "timeout_s must be positive, got 0"),
]


@each_algorithm
@pytest.mark.parametrize(
    ("arguments", "error", "message"), WRONG, ids=lambda value: str(value)[:40]
)
def test_wrong_arguments(
    algorithm: str, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ALGORITHMS[algorithm](named_graph("grid"), **arguments)


@pytest.mark.parametrize("weight", [-1.0, np.nan])
def test_wrong_weights_name_the_arc(weight: float) -> None:
    graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 0], [1.0, weight, 2.0])
    with pytest.raises(InputError, match="the arc from 1 to 2 has weight"):
        gw.sssp(graph, 0)


def test_a_graph_without_vertices_has_no_source() -> None:
    with pytest.raises(InputError, match="no vertices"):
        gw.bfs(gw.Graph.from_edges([], []), 0)


def test_programs_of_all_dtypes_are_declared_once() -> None:
    assert set(sssp_module.PROGRAMS) == {"int32", "int64", "float64"}
