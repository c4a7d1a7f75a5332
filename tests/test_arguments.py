"""Wrong arguments are InputErrors that name the value, wherever they are given; NumPy's are right."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import godwit as gw
from godwit import config, dtypes
from godwit.cli import inputs
from godwit.cli.report import print_json
from godwit.errors import ClosedContextError, DeviceError, GraphTooLargeError, InputError
from godwit.worker.options import SolverOptions, require_worklist_memory

PATH = gw.generators.path(4)

PROGRAM = gw.VertexProgram(
    name="hops",
    dtype="int32",
    message=lambda value, step: value + 1,
    combine="min",
    parameters={"step": 1.0},
)


def refused(message: str, call: Callable[[], Any]) -> None:
    """The call fails as it should: with our error, which is a ValueError, and says what is wrong."""
    with pytest.raises(InputError, match=message) as caught:
        call()
    assert isinstance(caught.value, ValueError)


# --- The checkers.


@pytest.mark.parametrize("value", [7, np.int8(7), np.uint64(7), np.array(7)])
def test_integers_of_all_kinds_are_counts(value: Any) -> None:
    found = dtypes.as_count(value, "n", 7, 7)
    assert found == 7
    assert type(found) is int


@pytest.mark.parametrize("value", [True, np.True_, 7.0, np.float64(7), "7", None, [7], 7j])
def test_what_is_no_integer_is_no_count(value: Any) -> None:
    refused("n must be an integer, got ", lambda: dtypes.as_count(value, "n"))


def test_counts_out_of_range() -> None:
    refused("n must not be negative, got -1", lambda: dtypes.as_count(-1, "n"))
    refused("n must be at least 3, got 2", lambda: dtypes.as_count(np.int64(2), "n", 3))
    refused("n must be at most 3, got 4", lambda: dtypes.as_count(4, "n", 1, 3))
    refused("an integer of 20001 bits", lambda: dtypes.as_count(1 << 20000, "n", 1, 3))


@pytest.mark.parametrize("value", [2, 2.5, np.float32(2.5), np.int16(2), float("inf")])
def test_positive_numbers(value: Any) -> None:
    assert dtypes.as_positive_number(value, "x") == value


@pytest.mark.parametrize(
    "value", [0, -1.5, float("nan"), True, "3", None, 1j, [1.0], 10**400, np.array([1.0])]
)
def test_what_is_no_positive_number(value: Any) -> None:
    refused("x must be ", lambda: dtypes.as_positive_number(value, "x"))


# --- Graphs.


@pytest.mark.parametrize("wrong", ["5", 5.0, True, [5], -1])
def test_vertex_counts(wrong: Any) -> None:
    refused("vertex_count must", lambda: gw.Graph.from_edges([0], [1], vertex_count=wrong))
    refused("n must", lambda: gw.generators.path(wrong))


def test_counts_may_be_numpy_integers() -> None:
    graph = gw.Graph.from_edges([0], [1], vertex_count=np.int64(5), ids=np.uint8(1))  # type: ignore[arg-type]
    assert (graph.vertex_count, graph.ids[0]) == (5, 1)
    assert type(graph.vertex_count) is int
    assert type(graph.ids[0]) is int


def test_vertex_counts_beyond_memory() -> None:
    for count in (2**48, 2**200):
        with pytest.raises(GraphTooLargeError, match="do not fit"):
            gw.Graph.from_edges([0], [1], vertex_count=count)


@pytest.mark.parametrize("wrong", ["x", 0.0, -1, 2**31, True])
def test_id_bases(wrong: Any, tmp_path: Path) -> None:
    refused("id", lambda: gw.Graph.from_edges([0], [1], ids=wrong))
    refused("id", lambda: gw.Graph([0, 0], [], ids=wrong))
    refused("id_base must", lambda: gw.read(tmp_path / "absent", id_base=wrong))


def test_ragged_lists() -> None:
    ragged: Any = [[0], [1, 2]]
    refused("sources must be an array", lambda: gw.Graph.from_edges(ragged, [0, 1]))
    refused("targets must be an array", lambda: gw.Graph.from_edges([0, 1], ragged))
    refused("weights must be an array", lambda: gw.Graph.from_edges([0, 1], [1, 0], ragged))
    refused("source must be a vertex or", lambda: gw.bfs(PATH, ragged))
    refused("start must be 'all', a mapping", lambda: gw.run(PROGRAM, PATH, ragged))
    refused("partition must be an array", lambda: gw.partition(PATH, 2, ragged))
    refused("sources must be a vertex or a list", lambda: gw.verify_bfs(PATH, ragged, np.zeros(4)))
    refused("distance must be an array", lambda: gw.verify_bfs(PATH, 0, ragged))


WRONG_CALLS: dict[str, tuple[str, Callable[[], Any]]] = {
    "rmat parameters": ("got .'x', 0, 0", lambda: gw.generators.rmat(4, parameters=("x", 0, 0))),  # type: ignore[arg-type]
    "rmat scale": ("scale must be an integer", lambda: gw.generators.rmat(4.0)),  # type: ignore[arg-type]
    "rmat seed": ("seed must be an integer, got 'x'", lambda: gw.generators.rmat(2, seed="x")),  # type: ignore[arg-type]
    "road keep": ("probability in .* got 'x'", lambda: gw.generators.road(3, keep="x")),  # type: ignore[arg-type]
    "road seed": ("seed must be an integer, got 1.5", lambda: gw.generators.road(3, seed=1.5)),  # type: ignore[arg-type]
    "road rows": ("rows must be an integer, got True", lambda: gw.generators.road(True)),
    "path seed": ("seed must be an integer, got None", lambda: gw.generators.path(3, seed=None)),  # type: ignore[arg-type]
    "weights inf": ("low <= high", lambda: gw.generators.path(3, weights=(1, float("inf")))),
    "weights words": ("low <= high", lambda: PATH.with_random_weights("1", "2")),  # type: ignore[arg-type]
    "weights seed": ("seed must", lambda: PATH.with_random_weights(1, 2, seed="x")),  # type: ignore[arg-type]
    "weights half": ("seed must", lambda: PATH.with_random_weights(1, 2, seed=1.5)),  # type: ignore[arg-type]
    "merge": ("how must be one of", lambda: PATH.merge_parallel_arcs(["min"])),  # type: ignore[arg-type]
    "id dtype": ("id_dtype must be", lambda: gw.Graph.from_edges([0], [0], id_dtype=["x"])),
    "format": ("format must be one of", lambda: gw.read("f", format=["x"])),  # type: ignore[arg-type]
    "file": ("path must be", lambda: gw.read(5)),  # type: ignore[arg-type]
    "read progress": ("progress must", lambda: gw.read("f", progress=5)),  # type: ignore[arg-type]
    "partition of": ("expected a godwit.Graph, got a str", lambda: gw.partition("x", 2)),  # type: ignore[arg-type]
    "parts": ("parts must be an integer, got 2.0", lambda: gw.partition(PATH, 2.0)),  # type: ignore[arg-type]
    "parts bool": ("parts must be an integer, got True", lambda: gw.partition(PATH, True)),
    "verify": ("expected a godwit.Graph", lambda: gw.verify_sssp("x", 0, np.zeros(4))),  # type: ignore[arg-type]
    "verify source": ("sources must be a vertex", lambda: gw.verify_bfs(PATH, 0.5, np.zeros(4))),
    "verify cutoff": (
        "cutoff must",
        lambda: gw.verify_bfs(PATH, 0, np.zeros(4), cutoff="3"),  # type: ignore[arg-type]
    ),
    "path_to": ("vertex must be an integer", lambda: gw.bfs(PATH, 0).path_to("1")),  # type: ignore[arg-type]
    "write": ("Graph, then a path; got a str first", lambda: gw.write("f.mtx", PATH)),  # type: ignore[arg-type]
    "columns": (r"such as \['source', 'target'\], got 'a,b'", lambda: gw.read("f", columns="a,b")),  # type: ignore[arg-type]
    "names as ends": (
        "sources must be integers, got <U3: Graph.from_table",
        lambda: gw.Graph.from_edges(["ann", "bob"], [0, 1]),
    ),
    "a graph of ours": (
        "expected a networkx.Graph, got a godwit Graph",
        lambda: gw.Graph.from_networkx(PATH),
    ),
    "objects as ends": (
        "targets must be integers, got object: Graph.from_table",
        lambda: gw.Graph.from_edges([0, 1], pd.Series(["ann", "bob"], dtype=object)),
    ),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_calls(name: str) -> None:
    refused(*WRONG_CALLS[name])


class DerivedGraph(nx.Graph):
    """As users derive one."""


NO_GRAPHS: dict[str, tuple[Any, str]] = {
    "derived": (
        DerivedGraph(),
        "networkx DerivedGraph; godwit.Graph.from_networkx makes a graph of it",
    ),
    "networkx": (
        nx.path_graph(3),
        "networkx Graph; godwit.Graph.from_networkx makes a graph of it",
    ),
    "scipy": (PATH.to_scipy(), "scipy csr_array; godwit.Graph.from_scipy makes a graph of it"),
    "pandas": (pd.DataFrame(), "pandas DataFrame; godwit.Graph.from_table makes a graph of it"),
    "path": ("roads.gr", "str; godwit.read makes a graph of it"),
    "number": (7, "int$"),
}


@pytest.mark.parametrize("name", NO_GRAPHS)
@pytest.mark.parametrize(
    "call",
    [
        lambda given: gw.bfs(given, 0),
        gw.place,
        gw.pagerank,
        lambda given: gw.run(PROGRAM, given),
        lambda given: gw.explore(given, fields={"x": ("int32", 0)}),
        lambda given: gw.partition(given, 2),
    ],
)
def test_what_is_no_graph_is_told_what_makes_one(call: Callable[[Any], Any], name: str) -> None:
    given, said = NO_GRAPHS[name]
    refused(f"expected a godwit.Graph, got a {said}", lambda: call(given))


def test_values_are_shown_in_one_line() -> None:
    assert dtypes.shown(np.eye(2)) == "array([[1., 0.], [0., 1.]])"
    assert dtypes.shown("a\n  b") == r"'a\n  b'"


def test_a_placed_graph_that_is_closed_says_so() -> None:
    placed = gw.place(PATH, "cpu")
    placed.close()
    calls: list[Callable[[], Any]] = [
        lambda: gw.bfs(placed, 0),
        lambda: gw.pagerank(placed),
        lambda: gw.connected_components(placed),
        lambda: gw.explore(placed, fields={"x": ("int32", 0)}),
        placed.__enter__,
    ]
    for call in calls:
        with pytest.raises(
            ClosedContextError, match="this placed graph is closed; place the graph"
        ):
            call()


@pytest.mark.parametrize(
    "copy_of", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"]
)
def test_placed_graphs_and_contexts_are_not_copied_and_say_what_is(
    copy_of: Callable[[Any], Any],
) -> None:
    with gw.place(PATH, "cpu") as placed:
        with pytest.raises(
            InputError, match=r"copy its \.graph, and place that with godwit\.place"
        ):
            copy_of(placed)
        with pytest.raises(InputError, match="open one in each process"):
            copy_of(placed.context)
        copy_of(placed.graph)


# --- Queries.


def test_weights_that_do_not_suit_an_algorithm() -> None:
    calls: dict[str, Callable[..., Any]] = {
        "sssp": lambda graph, **how: gw.sssp(graph, 0, **how),
        "distances": lambda graph, **how: gw.distances(graph, [0], **how),
        "closeness": gw.closeness_centrality,
        "betweenness": gw.betweenness_centrality,
        "eccentricity": gw.eccentricity,
        "pagerank": gw.pagerank,
        "eigenvector": gw.eigenvector_centrality,
        "katz": gw.katz_centrality,
        "hits": gw.hits,
        "clustering": gw.clustering,
        "louvain": gw.louvain,
        "leiden": gw.leiden,
        "labels": gw.label_propagation,
        "modularity": lambda graph, **how: gw.modularity(graph, [0, 0, 0], **how),
        "walks": lambda graph, **how: gw.random_walks(graph, 0, 2, **how),
        "forest": gw.minimum_spanning_forest,
    }
    graph = gw.Graph.from_edges([0, 1, 0], [1, 2, 2], [1, np.nan, 1], directed=False)
    for name, call in calls.items():
        with pytest.raises(InputError) as caught:
            call(graph)
        for words in ("has weight nan", "weighted=False", "--ignore-weights", "with_weights"):
            assert words in str(caught.value), name
        call(graph, weighted=False)
    graph = gw.Graph.from_edges([0], [1], [-1])
    with pytest.raises(
        InputError, match=r"bfs instead of sssp .* Bellman and Ford's method takes negative"
    ):
        gw.sssp(graph, 0)


def test_sources() -> None:
    for sources in ({2, 3}, frozenset([3, 2]), [3, 2, 2], np.array([2, 3])):
        assert gw.bfs(PATH, sources).distance.tolist() == [2, 1, 0, 0]
        found = gw.betweenness_centrality(PATH, sources=sources)
        assert found.sources == [2, 3]
    for graph, by_id in (
        (PATH, "must be an integer, got 'a'; the graph has no ids of its own"),
        (
            PATH.with_ids(["b", "c", "d", "e"]),
            "'a' is not in the graph, which has 4 text ids of its own, such as 'b'",
        ),
    ):
        for wrong in ("a", ["a", "b"]):
            refused(f"source {by_id}", lambda wrong=wrong, graph=graph: gw.bfs(graph, wrong))
            refused(
                f"sources {by_id}",
                lambda wrong=wrong, graph=graph: gw.betweenness_centrality(graph, sources=wrong),
            )
        refused(
            f"a vertex of personalization {by_id}",
            lambda graph=graph: gw.pagerank(graph, personalization={"a": 1}),
        )
        refused(f"a vertex of start {by_id}", lambda graph=graph: gw.run(PROGRAM, graph, {"a": 1}))
        refused(f"name {by_id}", lambda graph=graph: gw.connected_components(graph).size("a"))
        refused(f"vertex {by_id}", lambda graph=graph: gw.bfs(graph, graph.ids[0]).path_to("a"))
    for none in ([], set(), np.array([], str)):
        refused("^source must be a vertex or a non-empty", lambda none=none: gw.bfs(PATH, none))
        refused(
            "^sources must be a vertex or a non-empty",
            lambda none=none: gw.betweenness_centrality(PATH, sources=none),
        )


WRONG_QUERIES: list[tuple[dict[str, Any], str]] = [
    ({"devices": 2.0}, "devices must be a number.* got 2.0"),
    ({"devices": True}, "devices must be a number.* got True"),
    ({"devices": np.array(2.5)}, "devices must be a list of names"),
    ({"devices": [0]}, "names such as 'cpu:0', got 0"),
    ({"devices": np.int64(0)}, "devices must be at least 1, got 0"),
    ({"target": 1.0}, "target must be an integer, got 1.0"),
    ({"target": True}, "target must be an integer, got True"),
    ({"target": "a"}, "target must be an integer, got 'a'; the graph has no ids of its own"),
    ({"timeout_s": "3"}, "timeout_s must be a number, got '3'"),
    ({"timeout_s": True}, "timeout_s must be a number, got True"),
    ({"timeout_s": float("nan")}, "timeout_s must be positive, got nan"),
    ({"progress": 5}, "progress must be a function, got 5"),
    ({"worker": 3}, "worker must be WorkerOptions, got 3"),
    ({"gpu": 3}, "gpu must be GpuOptions, got 3"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_QUERIES, ids=lambda value: str(value)[:40])
def test_wrong_queries(arguments: dict[str, Any], message: str) -> None:
    refused(message, lambda: gw.sssp(PATH, 0, **arguments))
    refused(message, lambda: gw.run(PROGRAM, PATH, {0: 0}, **arguments))


WRONG_WORKER_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"delta": 0}, "delta must be positive, got 0"),
    ({"window": -1}, "window must not be negative, got -1"),
    ({"ring_items": 0}, "ring_items must be at least 1, got 0"),
    ({"window": "a"}, "window must be an integer, got 'a'"),
    ({"window": 1.5}, "window must be an integer, got 1.5"),
    ({"window": 2**70}, f"window must be at most {2**62}, got {2**70}"),
    ({"delta": "a"}, "delta must be a number, got 'a'"),
    ({"delta": float("inf")}, "delta must be a number from .* got inf"),
    ({"delta": float("nan")}, "delta must be positive, got nan"),
    ({"delta": 1e-320}, "delta must be a number from .* got 1e-320"),
    ({"ring_items": 1.5}, "ring_items must be an integer, got 1.5"),
    ({"ring_items": 2**35}, f"ring_items must be at most {2**24}, got {2**35}"),
    ({"ring_items": 2**62}, f"ring_items must be at most {2**24}"),
    ({"capacity_items": 2.5}, "capacity_items must be an integer, got 2.5"),
    ({"capacity_items": 2**62}, f"capacity_items must be at most {2**40}"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), WRONG_WORKER_OPTIONS, ids=lambda value: str(value)[:40]
)
def test_wrong_worker_options(arguments: dict[str, Any], message: str) -> None:
    refused(message, lambda: gw.WorkerOptions(**arguments))


@pytest.mark.parametrize(
    ("cutoff", "message"),
    [
        ("3", "must be a number, got '3'"),
        (True, "must be a number, got True"),
        ([3], "must be a number"),
        (-1, "must not be negative, got -1"),
        (float("nan"), "must not be negative, got nan"),
    ],
)
def test_wrong_cutoffs(cutoff: Any, message: str) -> None:
    refused(f"cutoff {message}", lambda: gw.bfs(PATH, 0, cutoff=cutoff))
    refused(f"cutoff {message}", lambda: gw.sssp(PATH, 0, cutoff=cutoff))


@pytest.mark.parametrize("source", [True, "0", None, {0.5}, [[0]], [True], [2**70], np.array(0.0)])
def test_wrong_sources(source: Any) -> None:
    refused("source must be", lambda: gw.bfs(PATH, source))
    refused("source must be", lambda: gw.sssp(PATH, source))


def test_settings_may_be_numpy_numbers() -> None:
    worker = gw.WorkerOptions(
        delta=np.float32(2.5),  # type: ignore[arg-type]
        window=np.int64(3),  # type: ignore[arg-type]
        ring_items=np.uint16(64),  # type: ignore[arg-type]
        capacity_items=np.int32(9),  # type: ignore[arg-type]
    )
    options = SolverOptions(timeout_s=np.int8(4))  # type: ignore[arg-type]
    found = (
        worker.delta, worker.window, worker.ring_items, worker.capacity_items, options.timeout_s,
    )  # fmt: skip
    assert found == (2.5, 3, 64, 9, 4.0)
    assert [type(value) for value in found] == [float, int, int, int, float]


def test_devices_and_parts_may_be_numpy_integers() -> None:
    with gw.Context(np.int64(2)) as context:  # type: ignore[arg-type]
        assert [device.name for device in context.devices] == ["cpu:0", "cpu:1"]
    with gw.Context(np.array(["cpu:0", "cpu:1"])) as context:  # type: ignore[arg-type]
        assert len(context.endpoints) == 2
    assert gw.partition(PATH, np.uint8(2)).part_count == 2  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="no device 'cpu:256'"):
        gw.Context(10**30)


def test_room_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GODWIT_MEMORY_BYTES", str(2**30))
    with pytest.raises(GraphTooLargeError, match="a worklist of"):
        gw.WorkerOptions(capacity_items=2**30)
    with pytest.raises(GraphTooLargeError, match="mailboxes of"):
        require_worklist_memory(8, 2**22, 1)
    require_worklist_memory(8, 4096, 1024)


# --- Vertex programs.


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (["a"], r"parameters must be a mapping such as .*, got \['a'\]"),
        ("step", "parameters must be a mapping"),
        ({"step": "a"}, "parameter 'step' must be a number, got 'a'"),
        ({"step": "3"}, "parameter 'step' must be a number, got '3'"),
        ({"step": None}, "parameter 'step' must be a number, got None"),
        ({"step": [1.0]}, "parameter 'step' must be a number"),
        ({"step": 10**400}, "parameter 'step' must be below"),
        ({"stop": 1.0}, "no parameter 'stop'; it has step"),
    ],
)
def test_wrong_parameters(parameters: Any, message: str) -> None:
    refused(message, lambda: gw.run(PROGRAM, PATH, {0: 0}, parameters=parameters))


@pytest.mark.parametrize(
    "wrong", [{"parameters": ["step"]}, {"parameters": {"step": "a"}}, {"combine": ["min"]},
              {"dtype": "zz"}, {"dtype": ["int32"]}],
)  # fmt: skip
def test_wrong_declarations(wrong: dict[str, Any]) -> None:
    right = {"dtype": "int32", "combine": "min"}
    refused(
        "must be",
        lambda: gw.VertexProgram(name="p", message=lambda value: value, **{**right, **wrong}),
    )


@pytest.mark.parametrize("start", [0, np.int64(0), 1.5, None, ["a"] * 4, [None] * 4])
def test_wrong_starts(start: Any) -> None:
    refused("start must be 'all', a mapping {vertex: value}", lambda: gw.run(PROGRAM, PATH, start))


@pytest.mark.parametrize("start", [[0], [0] * 5, [[0, 0, 0, 0]], []])
def test_starts_of_wrong_shape(start: Any) -> None:
    refused(r"must have shape \(4,\), got", lambda: gw.run(PROGRAM, PATH, start))


def test_seconds_of_the_placement_count_once() -> None:
    assert "place" in gw.bfs(PATH, 0, devices=2).statistics.seconds
    assert "place" not in gw.bfs(PATH, 0).statistics.seconds  # one device: nothing to lay out
    with gw.place(PATH) as placed:
        assert not placed.seconds
    with gw.place(PATH, devices=2) as placed:
        assert "place" in placed.seconds
        assert not {"place", "partition"} & set(gw.bfs(placed, 0).statistics.seconds)


# --- The dataflow layer.


def _process(worklist: Any, state: Any, key: int, value: int) -> None:
    raise NotImplementedError


def _worklist(context: gw.Context, **changes: Any) -> gw.DistributedWorklist:
    arguments = {"process": _process, "owner": lambda key: key % 2, "fanout": 1, **changes}
    return gw.DistributedWorklist(gw.ItemRouter(context), **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value_dtype": "zz"}, "value_dtype must be one of .*, got 'zz'"),
        ({"value_dtype": ["x"]}, "value_dtype must be one of"),
        ({"value_dtype": "int8"}, "value_dtype must be one of"),
        ({"item_bytes": 12}, "item_bytes must be 8 or 16, got 12"),
        ({"item_bytes": [8]}, "item_bytes must be an integer"),
        ({"fanout": 1.5}, "fanout must be an integer, got 1.5"),
        ({"fanout": True}, "fanout must be an integer, got True"),
        ({"fanout": -1}, "fanout must not be negative, got -1"),
        ({"fanout": 2**62}, "fanout must be at most"),
    ],
)
def test_wrong_worklists(arguments: dict[str, Any], message: str) -> None:
    with gw.Context(2) as context:
        refused(message, lambda: _worklist(context, **arguments))
        assert _worklist(context, fanout=np.int64(2)) is not None


STATE = (np.zeros(2),)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (None, r"items must be pairs \(key, value\), got None"),
        ([0], "items must be pairs of .* got 0"),
        (["ab"], "items must be pairs of .* got 'ab'"),
        ([(0, 1, 2)], "items must be pairs of .* got "),
        ([(0.5, 3)], r"got \(0.5, 3\): key must be an integer"),
        ([(0, 0.5)], r"got \(0, 0.5\): value must be an integer"),
        ([(2**63, 0)], "key must be at most"),
        ([(0, 2**63)], "value must be at most"),
        ([(-1, 0)], "owner gives endpoint 7 for key -1; there are 2"),
    ],
)
def test_wrong_items(items: Any, message: str) -> None:
    with gw.Context(2) as context:
        worklist = _worklist(context, owner=lambda key: key % 2 if key >= 0 else 7)
        refused(message, lambda: worklist.run(items, [STATE, STATE]))


def test_values_beyond_their_dtype() -> None:
    with gw.Context(2) as context:
        for dtype, value in (("uint32", -1), ("int32", 2**31), ("float32", 1e300)):
            worklist = _worklist(context, value_dtype=dtype)
            refused("value", lambda w=worklist, v=value: w.run([(0, v)], [STATE, STATE]))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (None, "states must be a list"),
        ([STATE], "a state for each endpoint: 2, got 1"),
        ([STATE, 5], "the state of endpoint 1 must be a tuple of arrays, got 5"),
        ([STATE, np.zeros(2)], "the state of endpoint 1 must be a tuple of arrays"),
        ([[[0, 0]], STATE], r"the state of endpoint 0 must be .* got \[0, 0\] in it"),
    ],
)
def test_wrong_states(states: Any, message: str) -> None:
    with gw.Context(2) as context:
        refused(message, lambda: _worklist(context).run([], states))


@pytest.mark.parametrize(
    "wrong",
    [{"window": 1.5}, {"window": "a"}, {"delta": float("inf")}, {"delta": True},
     {"capacity_items": 2.5}, {"capacity_items": 2**62}, {"poll": 5}],
)  # fmt: skip
def test_wrong_runs(wrong: dict[str, Any]) -> None:
    with gw.Context(2) as context:
        refused(
            f"{next(iter(wrong))} must be ",
            lambda: _worklist(context).run([], [STATE, STATE], **wrong),
        )


def test_wrong_routers() -> None:
    refused("endpoints of a Context, got 4", lambda: gw.ItemRouter(4))  # type: ignore[arg-type]
    refused(
        "router must be an ItemRouter, got 4",
        lambda: gw.DistributedWorklist(4, process=_process, owner=_process, fanout=1),  # type: ignore[arg-type]
    )
    with gw.Context(2) as context:
        here, there = context.endpoints
        assert gw.ItemLink(here, there, np.int64(7)).capacity_items == 7  # type: ignore[arg-type]
        for wrong in (1.5, 2**40, "x", True):
            refused("capacity_items must", lambda w=wrong: gw.ItemRouter(context, capacity_items=w))  # type: ignore[misc]
            refused("capacity_items must", lambda w=wrong: gw.ItemLink(here, there, w))  # type: ignore[misc]
        refused("connect endpoints of a context, got 1", lambda: gw.ItemLink(here, 1))  # type: ignore[arg-type]
        refused("a name or a function, got 5", lambda: gw.ItemRouter(context, 5))  # type: ignore[arg-type]


# --- The command line.


@pytest.mark.parametrize("text", ["1_0", " 1", "1.0", "٣", "9" * 5000, ""])
def test_ids_are_plain_integers(text: str) -> None:
    refused("source must be the id of a vertex", lambda: inputs.parse_vertex(text, PATH, "source"))
    if text not in (" 1", "1.0", "9" * 5000):
        refused("cutoff must be a number", lambda: inputs.parse_distance(text, "cutoff"))


def test_generators_take_plain_numbers() -> None:
    for text in ("path:1_0", "road:3,keep=0_1", "road:3,keep=nan"):
        refused("cannot understand", lambda t=text: gw.generate(t))  # type: ignore[misc]


def test_json_is_written_whole_or_not_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="JSON"):
        print_json({"first": 1, "delta": float("inf")})
    assert capsys.readouterr().out == ""
    print_json({"first": 1})
    assert json.loads(capsys.readouterr().out) == {"first": 1}


@pytest.mark.parametrize("option", [("--delta", "inf"), ("--window", "9" * 23)])
def test_settings_on_the_command_line(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    from godwit.cli.application import command

    with pytest.raises(SystemExit) as exit_info:
        command().main(["sssp", "path:4", "--source", "1", "--json", *option])
    assert exit_info.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"godwit: error: {option[0].strip('-')} must be ")


# --- The package, and the machine.


def test_errors_need_no_import_of_their_own() -> None:
    program = "import godwit as gw; print(issubclass(gw.errors.InputError, ValueError), dir(gw))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("True")
    assert "'errors'" in found.stdout
    assert "'verify_bfs'" in found.stdout


def test_page_cache_counts_as_available(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)

    assert config._cgroup_available_bytes(tmp_path) is None
    write("memory.max", "1000\n")
    write("memory.current", "900\n")
    assert config._cgroup_available_bytes(tmp_path) == 100
    write("memory.stat", "anon 300\ninactive_file 500\nactive_file 100\n")
    assert config._cgroup_available_bytes(tmp_path) == 600
    write("memory.stat", "inactive_file 5000\n")
    assert config._cgroup_available_bytes(tmp_path) == 1000
    write("memory.max", "max\n")
    assert config._cgroup_available_bytes(tmp_path) is None


@pytest.mark.parametrize(
    "query",
    [
        lambda devices: gw.pagerank(PATH, devices=devices).rank,
        lambda devices: gw.connected_components(PATH, devices=devices).label,
        lambda devices: gw.betweenness_centrality(PATH, devices=devices).centrality,
    ],
    ids=["pagerank", "components", "betweenness"],
)
def test_a_number_of_devices_means_all_cores_where_one_device_computes(query: Any) -> None:
    """So that ``devices=2`` runs on a machine without GPUs as well; devices that are named stay so."""
    expected = query("cpu").tolist()
    for number in (1, 2, np.int64(3)):
        assert query(number).tolist() == expected
    with pytest.raises(InputError, match="runs on one device of the CPU"):
        query(["cpu:0", "cpu:1"])
