"""VertexProgram: improving and accumulating programs, on every engine, and what is refused."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.errors import InputError, OperatorError, RunTimeoutError, ValueOverflowError
from godwit.worker.cpu import engine
from graphs import graphs, named_graph
from programs import WALKS
from references import smallest_label

DEVICES: list[Any] = [None, ["cpu:0"], 2, 3]
each_devices = pytest.mark.parametrize("devices", DEVICES, ids=str)

LABELS = gw.VertexProgram(
    name="labels",
    dtype="int32",
    initial=lambda vertices: vertices,
    message=lambda value: value,
    combine="min",
)


def example(name: str) -> Any:
    path = Path(__file__).resolve().parent.parent / "examples" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@given(data=st.data(), graph=graphs(min_vertices=1))
@settings(max_examples=80)
def test_smallest_labels_from_all_vertices(data: st.DataObject, graph: gw.Graph) -> None:
    devices = data.draw(st.sampled_from(DEVICES))
    capacity = data.draw(st.sampled_from([None, 1]))
    result = gw.run(
        LABELS,
        graph,
        devices=devices,
        worker=gw.WorkerOptions(capacity_items=capacity, ring_items=2),
    )
    assert result.values.tolist() == smallest_label(graph)


@given(graph=graphs(min_vertices=1))
@settings(max_examples=20)
def test_highest_values_come_first(graph: gw.Graph) -> None:
    result = gw.run(LABELS, graph)
    expected = sorted(result.to_dict().items(), key=lambda item: -item[1])
    assert result.highest(5) == expected[:5]


def test_unreached_vertices_are_the_lowest() -> None:
    program = gw.VertexProgram(
        name="widest",
        dtype="int64",
        message=lambda value, weight: min(value, weight),  # noqa: PLW0108 (operators go by names)
        combine="max",
    )
    graph = gw.Graph.from_edges([0, 1], [1, 2], [5, 3], vertex_count=4, ids=["a", "b", "c", "d"])
    assert gw.run(program, graph, {"b": 9}).highest(4) == [
        ("b", 9), ("c", 3), ("a", -(2**63)), ("d", -(2**63)),
    ]  # fmt: skip


@each_devices
def test_widest_path(devices: Any) -> None:
    graph = named_graph("random undirected")
    width = example("widest_path").widest_path(graph, 0, devices=devices)
    expected = np.zeros(graph.vertex_count)
    expected[0] = np.inf
    for _ in range(graph.vertex_count):
        sources = np.repeat(np.arange(graph.vertex_count), np.diff(graph.offsets))
        through = np.minimum(expected[sources], graph.weights)
        before = expected.copy()
        np.maximum.at(expected, graph.targets, through)
        if np.array_equal(before, expected):
            break
    np.testing.assert_array_equal(width, expected)


@each_devices
@pytest.mark.parametrize("name", ["grid", "random undirected", "random directed"])
def test_fewest_hops(devices: Any, name: str) -> None:
    from scipy.sparse.csgraph import dijkstra

    graph = named_graph(name)
    graph = graph.without_weights().with_random_weights(1, 3, seed=1)
    module = example("fewest_hops")
    length, hops = module.fewest_hops(graph, 0, devices=devices)
    rows = graph.merge_parallel_arcs("min").to_scipy().astype(np.float64)
    rows.data = rows.data * 2**20 + 1  # exact
    expected = dijkstra(rows, indices=0)
    reached = np.isfinite(expected)
    np.testing.assert_array_equal(reached, length < 2**31 - 1)
    np.testing.assert_array_equal(length[reached] * 2**20 + hops[reached], expected[reached])
    far = int(np.argmax(np.where(reached, hops, 0)))
    path = gw.run(module.FEWEST_HOPS, graph, {0: 0}, devices=devices).path_to(far)
    assert len(path) == hops[far] + 1


@each_devices
@pytest.mark.parametrize("name", ["grid", "complete", "random undirected"])
def test_residual_pagerank_equals_networkx(devices: Any, name: str) -> None:
    import networkx

    graph = named_graph(name).without_weights().merge_parallel_arcs().remove_self_loops()
    graph = graph.largest_component()
    rank = example("residual_pagerank").residual_pagerank(graph, epsilon=1e-12, devices=devices)
    other = networkx.from_scipy_sparse_array(
        graph.to_scipy(merge="min"), create_using=networkx.DiGraph
    )
    expected = networkx.pagerank(other, alpha=0.85, tol=1e-12, max_iter=1000)
    np.testing.assert_allclose(rank, [expected[v] for v in range(graph.vertex_count)], atol=1e-8)


@each_devices
def test_nothing_that_is_added_gets_lost(devices: Any) -> None:
    """Three walks lead down a binary tree to every leaf: fewer were lost, more were taken twice."""
    depth = 10
    count = 2 ** (depth + 1) - 1
    inner = np.arange(2**depth - 1)
    graph = gw.Graph.from_edges(
        np.repeat(inner, 2), np.stack([2 * inner + 1, 2 * inner + 2], 1).ravel(), vertex_count=count
    )
    result = gw.run(WALKS, graph, {0: 3}, devices=devices, worker=gw.WorkerOptions(ring_items=1))
    leaves = result.fields[2**depth - 1 :]
    assert leaves.tolist() == [3] * 2**depth


@each_devices
def test_parameters_change_without_compiling_anew(devices: Any) -> None:
    scaled = gw.VertexProgram(
        name="scaled",
        dtype="float64",
        message=lambda value, factor: value * factor,
        combine="max",
        initial=0.0,
        activate=lambda value, floor: value > floor,
        parameters={"factor": 0.5, "floor": 0.1},
    )
    graph = gw.generators.path(6)
    halves = gw.run(scaled, graph, {0: 1.0}, devices=devices).values
    assert halves.tolist() == [1, 0.5, 0.25, 0.125, 0.0625, 0]
    tenths = gw.run(scaled, graph, {0: 1.0}, devices=devices, parameters={"factor": 0.1}).values
    np.testing.assert_allclose(tenths, [1, 0.1, 0, 0, 0, 0], atol=1e-15)


def test_closures_and_helpers_are_compiled_with_an_operator() -> None:
    step = 5

    def helper(value: int) -> int:
        return value + step

    program = gw.VertexProgram(
        name="steps", dtype="int32", message=lambda value: helper(value) + 0, combine="min"
    )
    assert gw.run(program, gw.generators.path(4), {0: 0}).values.tolist() == [0, 5, 10, 15]


@each_devices
def test_a_value_that_does_not_fit_ends_the_run(devices: Any) -> None:
    program = gw.VertexProgram(
        name="doubling", dtype="int32", message=lambda value: value * 2, combine="max", initial=0
    )
    with pytest.raises(ValueOverflowError, match="'doubling' does not fit int32"):
        gw.run(program, gw.generators.path(40), {0: 1}, devices=devices)


@each_devices
def test_an_endless_program_times_out_and_the_next_one_runs(devices: Any) -> None:
    graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 0])
    with pytest.raises(RunTimeoutError, match=r"did not finish within 0\.3 s"):
        gw.run(WALKS, graph, {0: 1}, devices=devices, timeout_s=0.3)
    assert gw.bfs(graph, 0, devices=devices).distance.tolist() == [0, 1, 2]


def test_progress_is_reported_while_it_runs() -> None:
    graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 0])
    seen: list[int] = []
    with pytest.raises(RunTimeoutError):
        gw.run(WALKS, graph, {0: 1}, timeout_s=0.6, progress=seen.append)
    assert len(seen) > 1
    assert seen == sorted(seen)
    assert seen[-1] > 0


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"combine": "mul"}, InputError, "'mul'"),
    ({"combine": "add"}, InputError, "activate"),
    ({"dtype": "int16"}, InputError, "int16"),
    ({"dtype": "nonsense"}, InputError, "nonsense"),
    ({"update": lambda field: field}, InputError, "field_dtype"),
    ({"name": 5}, InputError, "a vertex program must be named by printable text, got 5"),
    ({"initial": "x"}, InputError, "initial must be a number, an array"),
    ({"field_initial": "x"}, InputError, "field_initial must be a number, an array"),
    ({"field_initial": np.zeros((2, 2))}, InputError, "field_initial must be a number, an array"),
    ({"message": "value"}, OperatorError, "message must be a Python function"),
    ({"message": lambda speed: speed}, OperatorError, "'speed', which is not offered"),
    ({"message": lambda *values: values}, OperatorError, "plain positional"),
]


@pytest.mark.parametrize(("changes", "error", "message"), WRONG, ids=lambda value: str(value)[:30])
def test_wrong_declarations(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"name": "wrong", "message": lambda value: value, "combine": "min", **changes}
    with pytest.raises(error, match=message):
        gw.VertexProgram(**arguments)


def test_an_operator_that_does_not_compile_is_named() -> None:
    program = gw.VertexProgram(
        name="broken", dtype="int32", message=lambda value: value.no_such_thing, combine="min"
    )
    with pytest.raises(OperatorError, match="no_such_thing"):
        gw.run(program, gw.generators.path(3), {0: 0})


def test_a_series_starts_at_its_labels() -> None:
    pandas = pytest.importorskip("pandas")
    graph = gw.Graph.from_edges([0, 1], [1, 2], vertex_count=6)
    for labels in ([4], [1, 3], [5, 4, 3, 2, 1, 0]):
        start = {vertex: 10 * vertex - 25 for vertex in labels}
        found = gw.run(LABELS, graph, pandas.Series(start)).values
        np.testing.assert_array_equal(found, gw.run(LABELS, graph, start).values)
    with pytest.raises(InputError, match="labels of start must be distinct, and 2 occurs twice"):
        gw.run(LABELS, graph, pandas.Series([1, 1], [2, 2]))


def test_wrong_runs() -> None:
    graph = gw.generators.path(3)
    with pytest.raises(InputError, match="a vertex of start must be in"):
        gw.run(LABELS, graph, {7: 0})
    with pytest.raises(InputError, match="start must be 'all'"):
        gw.run(LABELS, graph, "some")
    with pytest.raises(InputError, match=r"shape \(3,\), got \(2,\)"):
        gw.run(LABELS, graph, np.zeros(2))
    with pytest.raises(InputError, match="no parameter 'damping'"):
        gw.run(LABELS, graph, parameters={"damping": 1.0})
    with pytest.raises(InputError, match="expected a VertexProgram"):
        gw.run("sssp", graph)  # type: ignore[arg-type]


def test_values_that_the_dtype_cannot_hold_are_refused() -> None:
    graph = gw.generators.path(3)
    for value in (2**31, 0.5, "far", None):
        with pytest.raises(InputError, match="number that int32 holds"):
            gw.run(LABELS, graph, {0: value})
        if value is not None:
            with pytest.raises(InputError, match="limit must be a number that int32 holds"):
                gw.run(LABELS, graph, {0: 1}, limit=value)


@each_devices
def test_the_identity_is_no_distance(devices: Any) -> None:
    limit = 2**31 - 1
    for weights in ([limit], [limit - 1, 1], [limit - 1]):
        count = len(weights)
        graph = gw.Graph.from_edges(
            np.arange(count), np.arange(count) + 1, np.array(weights), vertex_count=4
        )
        distance = gw.sssp(graph, 0, devices=devices).distance
        assert distance[: count + 1].tolist() == [0, *np.cumsum(weights).tolist()]


@each_devices
def test_sums_that_do_not_fit_end_the_run(devices: Any) -> None:
    program = gw.VertexProgram(
        name="sums",
        dtype="int32",
        message=lambda value: 2**30,
        combine="add",
        activate=lambda value: value == 1,
    )
    graph = gw.Graph.from_edges([1, 2, 3], [0, 0, 0], vertex_count=4)
    with pytest.raises(ValueOverflowError):
        gw.run(program, graph, np.array([0, 1, 1, 1]), devices=devices)


@each_devices
def test_active_vertices_that_were_not_started_are_processed(devices: Any) -> None:
    program = gw.VertexProgram(
        name="halves",
        dtype="float64",
        message=lambda value: value * 0.5,
        combine="add",
        initial=1.0,
        activate=lambda value: value > 0.1,
        update=lambda field, value: field + value,
        field_dtype="float64",
    )
    result = gw.run(program, gw.generators.path(4), {0: 4.0}, devices=devices)
    assert (result.values <= 0.1).all()


@each_devices
def test_operators_keep_defaults_between_offered_parameters(devices: Any) -> None:
    program = gw.VertexProgram(
        name="scaled weights",
        dtype="int32",
        message=lambda value, scale=2, weight=1: value + scale * weight,
        combine="min",
    )
    graph = gw.Graph.from_edges([0, 1], [1, 2], [5, 7])
    assert gw.run(program, graph, {0: 0}, devices=devices).values.tolist() == [0, 10, 24]


@pytest.mark.parametrize(
    "initial", [2**40, np.array([0.5, 1, 2]), lambda vertices: vertices[:0], "text", np.nan]
)
def test_initial_values_that_do_not_fit_are_refused(initial: Any) -> None:
    def run() -> None:
        program = gw.VertexProgram(
            name="labels",
            dtype="int32",
            message=lambda value: value,
            combine="min",
            initial=initial,
        )
        gw.run(program, gw.generators.path(3))

    with pytest.raises(InputError, match="initial"):
        run()


def test_filtered_items_are_counted() -> None:
    graph = gw.generators.rmat(8, 8, seed=1)
    statistics = gw.sssp(graph, 0, devices=2, partition="random").statistics
    assert statistics.filtered_items.sum() > 0


@pytest.mark.parametrize("operator", ["message", "activate", "update", "priority"])
def test_operators_return_numbers(operator: str) -> None:
    operators: dict[str, Any] = {"message": lambda value: value, operator: lambda value: None}
    if operator == "update":
        operators |= {
            "update": lambda field, value: None, "field_dtype": "int32", "field_initial": 0,
        }  # fmt: skip
    combine = "add" if operator == "activate" else "min"
    program = gw.VertexProgram(name="wrong", combine=combine, dtype="int32", **operators)
    with pytest.raises(OperatorError, match=f"'{operator}'.* returns nothing .None.; an operator"):
        gw.run(program, gw.generators.path(3), {0: 1}, devices="cpu")


UNFIT: dict[str, tuple[Any, str]] = {
    "message": (lambda value: value + 0.5, "returns float64; an operator for integers returns"),
    "activate": (lambda value: value, r"returns int\d\d; a condition returns a boolean"),
    "update": (lambda field, value: value / 2, "returns float64; an operator for integers"),
}


@pytest.mark.parametrize("devices", ["cpu", "cuda"])
def test_types_that_do_not_fit_are_refused(devices: Any) -> None:
    right = {"message": lambda value: value, "update": lambda field, value: field + value}
    with emulated_gpus(2) if devices == "cuda" else nullcontext() as gpus:
        for role, (operator, message) in UNFIT.items():
            program = gw.VertexProgram(
                name="wrong", combine="min", dtype="int32", field_dtype="int64",
                **{**right, role: operator},
            )  # fmt: skip
            words = rf"\(test_vertex_program.py, line \d+\) {message}"
            with pytest.raises(OperatorError, match=words):
                gw.run(program, gw.generators.path(3), {0: 1}, devices=devices)
    assert gpus is None or "work" not in gpus.launched


def test_what_returns_no_number_is_called_by_its_name_and_place() -> None:
    """Not by that of a helper which has the name of an operator."""

    def update(value: Any) -> Any:
        return value + 1

    def sometimes(value: Any) -> Any:
        return update(value) if value > 0 else None

    line = sometimes.__code__.co_firstlineno
    program = gw.VertexProgram(name="wrong", combine="min", dtype="int32", message=sometimes)
    words = rf"'sometimes' \(test_vertex_program.py, line {line}\) returns int64 or nothing"
    with pytest.raises(OperatorError, match=words):
        gw.run(program, gw.generators.path(3), {0: 1}, devices="cpu")
    program = gw.VertexProgram(
        name="wrong", combine="min", dtype="int32", message=lambda value: value, field_initial=0,
        field_dtype="int32", update=lambda field, value: (update(value), field),
    )  # fmt: skip
    line = program.update.__code__.co_firstlineno
    with pytest.raises(OperatorError, match=rf"'update' \(\S+, line {line}\) returns a tuple"):
        gw.run(program, gw.generators.path(3), {0: 1}, devices="cpu")


def _is_even(number: Any) -> Any:
    return True if number <= 0 else _is_odd(number - 1)


def _is_odd(number: Any) -> Any:
    return False if number <= 0 else _is_even(number - 1)


def test_an_operator_that_calls_itself_by_others_is_refused() -> None:
    program = gw.VertexProgram(
        name="ring", dtype="int64", combine="min",
        message=lambda value: value + (1 if _is_even(value % 4) else 2),
    )  # fmt: skip
    with pytest.raises(OperatorError, match="'_is_even' calls itself, perhaps by others"):
        gw.run(program, gw.generators.path(5), {0: 0}, devices="cpu")


def test_large_arrays_of_a_run_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 2], vertex_count=10_000)
    hops = gw.VertexProgram("hops", lambda value: value + 1, "min", dtype="int32")
    for most, kept in [(1 << 20, 1), (1 << 15, 0)]:
        monkeypatch.setattr(engine, "_MOST_KEPT_BYTES", most)
        gw.run(hops, graph, {0: 0}, devices="cpu", worker=gw.WorkerOptions(capacity_items=64))
        assert len(graph.cached("workspaces of programs", list)) == kept
