"""Step programs: what operators mean, for every number of threads; errors; operators one by one."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

import godwit as gw
from godwit.errors import InputError, OperatorError, RunTimeoutError, ValueOverflowError
from godwit.runtime.rebuilding import wrong_return
from graphs import each_graph, graphs, named_graph
from references import as_list, breadth_first, dijkstra, smallest_label
from step_programs import (
    EVERYTHING,
    FAR,
    LENGTHS,
    LEVELS,
    LEVELS_PULLED,
    LEVELS_TURNED,
    PUSHED,
    REFERENCED,
    UNFIT,
    Reference,
    colours,
    connected_components,
    core_numbers,
    explore_arcs,
    start_of,
    with_integer_weights,
)
from waiting import HANG_S

DEVICES = ("cpu:0", ["cpu:0", "cpu:1", "cpu:2"])


def _check(program: gw.StepProgram, graph: gw.Graph, devices: Any) -> None:
    if program is EVERYTHING:
        graph = with_integer_weights(graph)
    start = start_of(program, graph)
    expected = Reference(program, graph, start)
    found = program.run(graph, start, devices=devices)
    for name, values in expected.fields.items():
        assert found.fields[name].dtype == values.dtype
        assert np.array_equal(found.fields[name], values), name
    assert found.numbers == expected.numbers
    assert found.frontier.tolist() == expected.frontier


@each_graph
@pytest.mark.parametrize("program", REFERENCED)
@pytest.mark.parametrize("devices", DEVICES, ids=("alone", "team"))
def test_programs_do_what_the_reference_does(program: str, name: str, devices: Any) -> None:
    _check(REFERENCED[program], named_graph(name), devices)


@pytest.mark.parametrize(
    "dtype",
    [
        # Fields of the programs of REFERENCED have the others.
        pytest.param(dtype, marks=pytest.mark.thorough if dtype in ("int32", "float64") else ())
        for dtype in PUSHED
    ],
)
def test_every_dtype(dtype: str) -> None:
    for name in ("grid", "star", "random undirected"):
        _check(PUSHED[dtype], named_graph(name), DEVICES[1])


@pytest.mark.thorough
@given(graph=graphs())
@settings(max_examples=60)
def test_operators_on_any_graph(graph: gw.Graph) -> None:
    _check(EVERYTHING, graph, DEVICES[1])
    _check(EVERYTHING, graph, "cpu")


@each_graph
def test_levels_and_lengths_are_those_of_other_algorithms(name: str) -> None:
    graph = named_graph(name)
    if graph.vertex_count == 0:
        return
    level = breadth_first(graph, [0])
    for program in (LEVELS, LEVELS_PULLED):
        found = program.run(graph, [0]).fields["level"]
        assert as_list(found, FAR) == level
    if graph.weights is not None:
        assert as_list(LENGTHS.run(graph, 0).fields["length"], np.inf) == dijkstra(graph, [0])


@each_graph
def test_components_by_pointer_jumping(name: str) -> None:
    graph = named_graph(name)
    for devices in DEVICES:
        found = connected_components(graph, devices=devices)
        assert found.tolist() == smallest_label(graph.symmetrize())


@each_graph
def test_core_numbers(name: str) -> None:
    graph = named_graph(name)
    plain = nx.Graph()
    plain.add_nodes_from(range(graph.vertex_count))
    sources = np.repeat(np.arange(graph.vertex_count), graph.out_degree())
    plain.add_edges_from(zip(sources.tolist(), graph.targets.tolist(), strict=True))
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    expected = nx.core_number(plain)
    for devices in DEVICES:
        assert dict(enumerate(core_numbers(graph, devices=devices).tolist())) == expected


@each_graph
def test_colours_are_those_of_the_serial_loop(name: str) -> None:
    graph = named_graph(name).symmetrize().remove_self_loops().merge_parallel_arcs()
    rank = np.random.default_rng(3).permutation(graph.vertex_count).astype(np.int32)
    expected = np.full(graph.vertex_count, -1)
    for vertex in np.argsort(-rank):
        row = graph.targets[graph.offsets[vertex] : graph.offsets[vertex + 1]]
        used = set(expected[row].tolist())
        expected[vertex] = next(colour for colour in range(len(row) + 1) if colour not in used)
    for devices in DEVICES:
        assert colours(graph, rank, devices=devices).tolist() == expected.tolist()


def test_large_frontiers_give_the_same_for_any_number_of_threads() -> None:
    graph = gw.generators.rmat(13, 16, seed=5, weights=(1, 9))
    alone = EVERYTHING.run(graph, devices="cpu:0")
    for threads in (2, 5):
        team = EVERYTHING.run(graph, devices=[f"cpu:{index}" for index in range(threads)])
        assert team.numbers == alone.numbers
        assert np.array_equal(team.frontier, alone.frontier)
        for name, values in alone.fields.items():
            assert np.array_equal(team.fields[name], values), name
    assert alone.statistics.arcs_relaxed[0] > graph.arc_count


def test_push_and_pull_are_the_same() -> None:
    graph = gw.generators.rmat(12, 8, seed=2)
    source = graph.highest_degree_vertex()
    pushed = LEVELS.run(graph, [source]).fields["level"]
    assert np.array_equal(LEVELS_PULLED.run(graph, [source]).fields["level"], pushed)
    assert np.array_equal(gw.bfs(graph, source).distance, pushed)
    looked = []
    for program in (LEVELS, LEVELS_PULLED, LEVELS_TURNED):
        for devices in ("cpu", ["cpu:0", "cpu:1"]):
            found = program.run(graph, [source], devices=devices)
            assert np.array_equal(found.fields["level"], pushed)
            looked.append(int(found.statistics.arcs_relaxed.sum()))
    pushing, again, pulling, _, turning, turned_again = looked
    assert (pushing, turning) == (again, turned_again)
    assert turning < min(pushing, pulling), "it goes the cheaper way in every round"


def test_when_a_step_turns() -> None:
    """More than a sixteenth of the vertices pull, over all rows; fewer push, over their own."""
    star = gw.generators.star(33)
    step = gw.frontier.advance(
        "x", lambda source: source, "add", direction="auto", candidates=lambda vertex: vertex != 3
    )
    program = _program(step)
    for devices in DEVICES:
        for size, arcs in ((2, 2), (3, 64 - 1)):
            found = program.run(star, range(1, 1 + size), devices=devices)
            assert found.statistics.arcs_relaxed.sum() == arcs
            assert found.statistics.processed_items.sum() == size
            assert found.fields["x"].tolist() == [sum(range(1 + size)), *[0] * 32]
        for frontier in ([0], range(33)):  # pushed, and pulled, from the hub
            leaves = program.run(star, frontier, devices=devices)
            assert 3 not in leaves.frontier
            assert set(range(1, 33)) - set(leaves.frontier.tolist()) == {3}


def test_a_frontier_of_arcs_is_pushed() -> None:
    star = gw.generators.star(9)
    step = gw.frontier.advance(
        "x", lambda: 1, "add", direction="auto", candidates=lambda vertex: vertex > 4
    )
    for devices in DEVICES:
        found = _program(gw.frontier.arcs(lambda target: target % 2 == 1), step).run(
            star, devices=devices
        )
        assert found.frontier.tolist() == [5, 7]
        assert found.fields["x"].tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 0]


def test_numbers_and_fields_of_a_run() -> None:
    program = gw.StepProgram(
        "scaled",
        fields={"x": "float64", "y": ("float64", 1.0)},
        numbers={"factor": ("float64", 2.0), "total": "float64"},
        steps=[
            gw.frontier.compute("y", lambda x, factor: x * factor),
            gw.frontier.reduce("total", lambda y: y, "add", of="all"),
        ],
    )
    graph = gw.generators.path(4)
    found = program.run(graph, [0, 2], fields={"x": [1, 2, 3, 4]}, numbers={"factor": 10})
    assert found.fields["y"].tolist() == [10, 1, 30, 1]
    assert found.numbers == {"size": 2, "vertex_count": 4, "factor": 10.0, "total": 42.0}
    with pytest.raises(InputError, match="field 'x' begins with what the run is given"):
        program.run(graph)
    with pytest.raises(InputError, match="has no field 'z'; it has x, y"):
        program.run(graph, fields={"z": 1})
    with pytest.raises(InputError, match="has no number 'k'; it has factor, total"):
        program.run(graph, numbers={"k": 1})
    with pytest.raises(
        InputError, match=r"field 'x' must have a number for each of the 4 vertices"
    ):
        program.run(graph, fields={"x": [1, 2]})
    with pytest.raises(InputError, match=r"in \[0, 4\), got 7"):
        program.run(graph, [7], fields={"x": 0})


def test_operators_one_by_one() -> None:
    graph = gw.generators.grid(3, 4)
    explorer = gw.explore(
        graph, fields={"level": ("int32", FAR)}, numbers={"now": "int64"}, frontier=[0]
    )
    explorer.fields["level"][0] = 0
    step = gw.frontier.advance("level", lambda now: now, "min")
    sizes = []
    while len(explorer.frontier):
        explorer.set(now=explorer.numbers["now"] + 1)
        sizes.append(explorer.do(step))
    assert sizes == [2, 3, 3, 2, 1, 0]
    assert np.array_equal(explorer.fields["level"], gw.bfs(graph, 0).distance)
    explorer.frontier = "all"
    assert explorer.do(gw.frontier.filter(lambda level: level == 5)) == 1
    assert explorer.frontier.tolist() == [11]
    assert explorer.numbers == {"size": 1, "vertex_count": 12, "now": 6}
    with pytest.raises(InputError, match="there is no number 'then'; there are now"):
        explorer.set(then=1)
    with pytest.raises(InputError, match=r"number 'now' is int64, which does not hold 0\.5"):
        explorer.set(now=0.5)
    with pytest.raises(InputError, match="expected an operator"):
        explorer.do("advance")


@pytest.mark.parametrize("devices", DEVICES, ids=("alone", "team"))
def test_arcs_one_by_one(devices: Any) -> None:
    explore_arcs(devices)


def _program(*steps: Any, **fields: Any) -> gw.StepProgram:
    return gw.StepProgram(
        "wrong",
        fields={"x": ("int32", 0), "f": ("float64", 0.0), **fields},
        numbers={"k": "int64"},
        steps=list(steps),
    )


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (_program, InputError, "at least one step"),
        (
            lambda: _program(gw.frontier.compute("y", lambda: 1)),
            InputError,
            "no field 'y'; there are x, f",
        ),
        (
            lambda: _program(gw.frontier.assign("x", lambda: 1)),
            InputError,
            "no number 'x'; there are k",
        ),
        (
            lambda: _program(gw.frontier.assign("size", lambda: 1)),
            InputError,
            "'size' cannot be set",
        ),
        (
            lambda: _program(gw.frontier.assign("k", lambda x: x)),
            OperatorError,
            "assign 'k': value takes 'x', which is not offered; it may take size, vertex_count, k",
        ),
        (
            lambda: _program(gw.frontier.compute("x", lambda weight: weight)),
            OperatorError,
            "value takes 'weight', which is not offered; it may take x, f, degree, vertex, size",
        ),
        (
            lambda: _program(gw.frontier.advance("x", lambda x_at_f: x_at_f, "min")),
            OperatorError,
            "message takes 'x_at_f', which is not offered",
        ),
        (
            lambda: _program(gw.frontier.advance("x", lambda: 1, "min", at="f")),
            InputError,
            "advance into 'x': at names the field 'f', which is not of integers",
        ),
        (
            lambda: gw.frontier.advance("x", lambda: 1, "xor"),
            InputError,
            "combine must be one of 'min', 'max', 'or', 'and', 'add', got 'xor'",
        ),
        (
            lambda: gw.frontier.advance("x", lambda: 1, "min", candidates=lambda: True),
            InputError,
            "candidates are for direction='pull'",
        ),
        (
            lambda: gw.frontier.advance("x", lambda: 1, "min", direction="pull", at="x"),
            InputError,
            "goes to the target, not at='x'",
        ),
        (
            lambda: gw.frontier.advance("x", lambda: 1, "min", direction="auto", at="source"),
            InputError,
            "direction='auto' goes to the target, not at='source'",
        ),
        (
            lambda: _program(gw.frontier.arcs(lambda: True), gw.frontier.compute("x", lambda: 1)),
            InputError,
            "compute 'x': the frontier is of arcs here",
        ),
        (
            lambda: _program(
                gw.frontier.arcs(lambda: True),
                gw.frontier.advance("x", lambda: 1, "min", direction="pull"),
            ),
            InputError,
            "direction='pull' is for a frontier of vertices",
        ),
        (
            lambda: _program(gw.frontier.repeat([gw.frontier.arcs(lambda: True)], lambda: True)),
            InputError,
            "a round begins with a frontier of vertices and ends with one of arcs",
        ),
        (
            lambda: gw.frontier.repeat([], lambda: True),
            InputError,
            "repeat: there must be at least one",
        ),
        (
            lambda: gw.frontier.repeat(gw.frontier.filter, lambda: True),
            InputError,
            "must be a list of operators",
        ),
        (
            lambda: _program(gw.frontier.filter(3)),
            OperatorError,
            "keep must be a Python function",
        ),
        (
            lambda: _program(gw.frontier.filter(abs), degree="int32"),
            InputError,
            "cannot be named 'degree'",
        ),
        (
            lambda: _program(gw.frontier.filter(abs), k="int32"),
            InputError,
            "of a field and of a number",
        ),
        (
            lambda: _program(gw.frontier.filter(abs), y="int8"),
            InputError,
            "one of the dtypes int32, uint32",
        ),
        (
            lambda: _program(gw.frontier.filter(abs), y=("int32", 2**31)),
            InputError,
            "field 'y' is int32, which does not hold 2147483648",
        ),
        (
            lambda: _program(gw.frontier.filter(abs), y=("int32", "ids")),
            InputError,
            "or an array, got 'ids'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_operators_that_do_not_compile_are_named() -> None:
    program = _program(gw.frontier.compute("x", lambda vertex: vertex.nonsense))
    with pytest.raises(OperatorError, match=r"'value' \(test_step_programs.py, line \d+\)"):
        program.run(gw.generators.path(3))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            gw.frontier.compute("x", lambda: 2**31),
            "compute 'x': a value does not fit 'x', of int32",
        ),
        (
            gw.frontier.compute("x", lambda: 2**31),
            "a value does not fit 'x', of int32; declare it as",
        ),
        (
            gw.frontier.assign("k", lambda: np.uint64(2**63 + 5)),
            "assign 'k': a value does not fit 'k', of",
        ),
        (
            gw.frontier.reduce("k", lambda: np.uint64(2**63), "max"),
            "reduce to 'k': a value does not fit",
        ),
        (
            gw.frontier.advance("x", lambda: 2**30, "add"),
            "advance into 'x': a value does not fit 'x'",
        ),
        (
            gw.frontier.advance("x", lambda: -(2**40), "min"),
            "advance into 'x': a value does not fit 'x'",
        ),
        (
            gw.frontier.advance("x", lambda: 2**30, "add", direction="pull"),
            "a value does not fit 'x'",
        ),
    ],
)
def test_values_that_do_not_fit(step: Any, message: str) -> None:
    graph = gw.generators.star(9)
    for devices in DEVICES:
        with pytest.raises(ValueOverflowError, match=message):
            _program(step).run(graph, devices=devices)


def test_the_largest_values_that_fit() -> None:
    program = _program(
        gw.frontier.compute("x", lambda: 2**31 - 1),
        gw.frontier.compute("f", lambda: True),
        gw.frontier.assign("k", lambda: -(2**63)),
    )
    found = program.run(gw.generators.path(2))
    assert found.fields["x"].tolist() == [2**31 - 1] * 2
    assert found.fields["f"].tolist() == [1.0] * 2
    assert found.numbers["k"] == -(2**63)


def test_a_team_leaves_together_when_an_operator_fails_at_once() -> None:
    """Who is first in the second operator fails there before the others have left the first."""
    program = _program(
        gw.frontier.compute("x", lambda: 1), gw.frontier.compute("x", lambda vertex: 2**40 + vertex)
    )
    assigned = _program(
        gw.frontier.assign("k", lambda: 1), gw.frontier.compute("x", lambda vertex: 2**41 + vertex)
    )
    graph = gw.generators.path(3000)
    for _ in range(40):
        for one in (program, assigned):
            with pytest.raises(ValueOverflowError):
                one.run(graph, devices=["cpu:0", "cpu:1", "cpu:2"], timeout_s=HANG_S)


def _sometimes(vertex: int) -> Any:
    if vertex > 1:
        return 1
    return None


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            gw.frontier.filter(lambda: None),
            r"filter: keep returns nothing \(None\); an operator returns one",
        ),
        (
            gw.frontier.compute("x", _sometimes),
            r"'wrong', compute 'x': value returns int64 or nothing",
        ),
        (
            gw.frontier.advance("x", lambda: (1, 2), "min"),
            "advance into 'x': message returns a tuple",
        ),
        (gw.frontier.compute("f", lambda: 1j), "compute 'f': value returns complex128"),
        (
            gw.frontier.repeat([gw.frontier.assign("k", lambda: 1)], lambda: None),
            "repeat: until returns nothing",
        ),
    ],
)
def test_operators_return_one_number(step: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        _program(step).run(gw.generators.path(3), timeout_s=HANG_S)


def test_what_operators_may_return() -> None:
    """Whatever a NumPy conversion keeps the kind of; conditions, a boolean."""
    kinds = ("bool", "int32", "uint32", "int64", "uint64", "float32", "float64")
    for returned in map(np.dtype, kinds):
        assert wrong_return("it", returned, None) == ""
        for wanted in map(np.dtype, kinds):
            is_right = np.can_cast(returned, wanted, "same_kind") or returned.kind in "i"
            is_right = is_right and (wanted.kind != "b" or returned.kind == "b")
            assert (wrong_return("it", returned, wanted) == "") == is_right, (returned, wanted)
    assert wrong_return("it", None, None) != ""


@pytest.mark.parametrize(("step", "message"), UNFIT)
def test_types_that_do_not_fit_are_refused(step: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        _program(step).run(gw.generators.path(3), devices="cpu", timeout_s=HANG_S)


def test_what_does_not_compile_is_named_with_its_program_and_place() -> None:
    def letters(vertex: int) -> Any:
        return "a" + vertex  # type: ignore[operator]

    line = letters.__code__.co_firstlineno + 1
    words = (
        rf"^step program 'wrong', cannot compile 'letters' \(test_step_programs.py, line {line}\)"
    )
    with pytest.raises(OperatorError, match=words):
        _program(gw.frontier.compute("x", letters)).run(
            gw.generators.path(3), devices="cpu", timeout_s=HANG_S
        )


def test_what_a_run_counts() -> None:
    star = gw.generators.star(9)
    steps = [
        gw.frontier.compute("x", lambda: 1, of="all"),
        gw.frontier.assign("k", lambda: 1),
        gw.frontier.arcs(lambda: True),
        gw.frontier.advance("x", lambda: 1, "add", frontier="kept"),
        gw.frontier.filter(lambda vertex: vertex > 3, of="all"),
        gw.frontier.reduce("k", lambda vertex: vertex, "max"),
        gw.frontier.advance("x", lambda: 1, "add", direction="pull"),
    ]
    for devices in DEVICES:
        found = _program(*steps).run(star, [0], devices=devices).statistics
        assert found.rounds.tolist() == [6] * len(found.devices)
        others = [0] * (len(found.devices) - 1)
        assert found.processed_items.tolist() == [9 + 1 + 1 + 9 + 5 + 5, *others]
        assert found.arcs_relaxed.tolist() == [8 + 8 + 16, *others]


def test_an_explorer_is_as_before_after_a_failure() -> None:
    graph = gw.generators.grid(3, 4)
    fields = {"x": ("int32", 0)}
    for devices in DEVICES:
        explorer = gw.explore(graph, fields=fields, numbers={"k": "int64"}, devices=devices)
        assert explorer.do(gw.frontier.arcs(lambda source, target: source < target)) == 17
        before = explorer.frontier
        failing = gw.frontier.repeat(
            [
                gw.frontier.assign("k", lambda: 5),
                gw.frontier.arcs(lambda source: source < 3),
                gw.frontier.compute("x", lambda: 2**31, of="all"),
            ],
            until=lambda: True,
        )
        with pytest.raises(ValueOverflowError):
            explorer.do(failing)
        assert np.array_equal(explorer.frontier, before)
        assert explorer.numbers == {"size": 17, "vertex_count": 12, "k": 0}


def test_without_fields() -> None:
    graph, steps = gw.generators.star(5), [gw.frontier.filter(lambda degree: degree > 1)]
    assert gw.StepProgram("hubs", steps=steps).run(graph).frontier.tolist() == [0]
    explorer = gw.explore(graph, numbers={"k": "int64"})
    assert (
        explorer.do(*steps, gw.frontier.assign("k", lambda size: size))
        == explorer.numbers["k"]
        == 1
    )


def test_what_an_explorer_shows_is_to_be_read() -> None:
    explorer = gw.explore(gw.generators.path(4), fields={"x": ("int32", 0)}, numbers={"k": "int64"})
    with pytest.raises(ValueError, match="read-only"):
        explorer.frontier[0] = 2**30
    with pytest.raises(TypeError):
        explorer.numbers["k"] = 9
    assert explorer.do(gw.frontier.compute("x", lambda: 1)) == 4
    for _ in range(70):
        assert explorer.do(gw.frontier.assign("k", lambda: 1)) == 4
    assert len(explorer._programs) == 64


def test_results_by_id() -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 2], ids=["a", "b", "c"])
    found = LEVELS.run(graph, ["a"])
    assert found.to_dict() == {"a": 0, "b": 1, "c": 2}
    assert found.to_dict("level") == found.to_dict()
    both = _program(gw.frontier.compute("x", lambda vertex: vertex)).run(graph)
    assert both.to_dict("x") == {"a": 0, "b": 1, "c": 2}
    for field in (None, "y"):
        with pytest.raises(InputError, match="field must be one of x, f, got"):
            both.to_dict(field)


def test_dtypes_of_another_byte_order() -> None:
    program = _program(gw.frontier.compute("y", lambda y: y + 1), y=">i4")
    found = program.run(gw.generators.path(2), fields={"y": np.array([1, 2], ">i4")})
    assert found.fields["y"].tolist() == [2, 3]
    assert found.fields["y"].dtype.isnative


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        (("int32", 0, 1), r"field 'y' must be a dtype, or \(dtype, initial\), got"),
        (("int32",), r"field 'y' must be a dtype, or \(dtype, initial\), got"),
        (("int32", [0, [1]]), "field 'y' must be an array"),
        (("float32", 1e39), r"field 'y' is float32, which does not hold 1e\+39"),
        (("float32", [0.0, 1e39]), r"which does not hold 1e\+39 of vertex 1"),
        (("int64", [0.0, 2.0**63]), r"which does not hold 9.*e\+18 of vertex 1"),
        (("int32", [0, 2**31]), "which does not hold 2147483648 of vertex 1"),
        (("uint32", [0, -1]), "which does not hold -1 of vertex 1"),
    ],
)
def test_values_to_begin_with(initial: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _program(gw.frontier.filter(lambda: True), y=initial).run(gw.generators.path(2))


@pytest.mark.parametrize(
    "labels", [[2, 0, 1], pd.Index([2, 0, 1], dtype=object), pd.Index([2, 0, 1], dtype="Int64")]
)
def test_a_series_goes_by_its_labels(labels: Any) -> None:
    graph = gw.generators.path(3)
    series = pd.Series([30, 10, 20], index=labels)
    program = _program(gw.frontier.filter(lambda: True), y="int32")
    assert program.run(graph, fields={"y": series}).fields["y"].tolist() == [10, 20, 30]
    assert program.run(graph, fields={"y": pd.Series([7, 8, 9])}).fields["y"].tolist() == [7, 8, 9]
    explorer = gw.explore(graph, fields={"y": ("int32", series)})
    assert explorer.fields["y"].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (
            pd.Series({2: 1, 0: 1}),
            "must be all vertices, and 1 is missing; series.reindex",
        ),
        (pd.Series({0: 1, 1: 1, 3: 1}), r"each label of field 'y' must be in \[0, 3\), got 3"),
        (pd.Series({0: 1, 1: 1, 2: 1, 2.5: 1}), "label of field 'y' must be an integer, got 0.0"),
        (
            pd.Series([1, 1, 1], index=[0, 1, 1]),
            "labels of field 'y' must be distinct, and 1 occurs",
        ),
        (
            pd.Series({"x": 1}),
            "each label of field 'y' must be an integer, got 'x'; the graph has no",
        ),
    ],
)
def test_labels_that_are_not_the_vertices(series: Any, message: str) -> None:
    program = _program(gw.frontier.filter(lambda: True), y="int32")
    with pytest.raises(InputError, match=message):
        program.run(gw.generators.path(3), fields={"y": series})
    named = gw.generators.path(3).with_ids(["a", "b", "c"])
    with pytest.raises(
        InputError, match=r"each label of field 'y' .* is not in the graph, which has"
    ):
        program.run(named, fields={"y": series})
    found = program.run(named, fields={"y": pd.Series({"c": 3, "a": 1, "b": 2})})
    assert found.to_dict("y") == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize(
    "frontier", [["b"], [0, "b"], np.array(["b"]), pd.Series(["b"]), ("b", "z")]
)
def test_a_frontier_is_by_id(frontier: Any) -> None:
    ids = ["a", "b", "z"] if "z" in list(frontier) else ["a", "b", 0]
    graph = gw.Graph.from_edges([0, 1], [1, 2], ids=ids)
    wanted = sorted(map(ids.index, frontier))
    explorer = gw.explore(graph, frontier=frontier)
    assert explorer.frontier.tolist() == wanted
    explorer.frontier = "all"
    explorer.frontier = graph.ids.of(np.array(wanted))
    assert explorer.frontier.tolist() == wanted
    with pytest.raises(InputError, match="got 'b'; the graph has no ids of its own"):
        LEVELS.run(gw.generators.path(2), frontier)


@pytest.mark.parametrize(
    ("frontier", "message"),
    [
        (None, "frontier must be 'all' or an array of vertices, got None"),
        (np.array([True, False]), r"got booleans: np.flatnonzero\(mask\)"),
        ([0, [1]], "frontier must be a vertex or a list of vertices"),
    ],
)
def test_frontiers_that_are_none(frontier: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LEVELS.run(gw.generators.path(2), frontier)


def test_names_of_programs() -> None:
    for name in ("a\0b", 3):
        with pytest.raises(InputError, match="must be named by printable text"):
            gw.StepProgram(name, fields={}, steps=[gw.frontier.filter(lambda: True)])


def test_fields_that_name_no_vertex() -> None:
    graph = gw.generators.path(5)
    for value in (-1, 5):
        for step in (
            gw.frontier.compute("f", lambda f_at_x: f_at_x),
            gw.frontier.advance("f", lambda: 1.0, "max", at="x"),
        ):
            with pytest.raises(InputError, match=r"a value outside of \[0, 5\)"):
                _program(step).run(graph, fields={"x": value})


def test_a_program_that_never_ends_is_stopped() -> None:
    program = _program(
        gw.frontier.repeat([gw.frontier.assign("k", lambda k: k + 1)], until=lambda k: k < 0)
    )
    seen: list[int] = []
    for devices in DEVICES:
        with pytest.raises(RunTimeoutError, match=r"within 0.2 s"):
            program.run(gw.generators.path(3), devices=devices, timeout_s=0.2, progress=seen.append)
    assert seen


def test_a_program_describes_itself() -> None:
    assert repr(LEVELS) == (
        "StepProgram('levels')\n  compute 'level'\n  repeat\n    assign 'now'\n"
        "    advance into 'level'"
    )


def test_wrong_graphs_and_devices() -> None:
    with pytest.raises(InputError, match=r"got a StepProgram; call program.run\(graph\)"):
        gw.run(LEVELS, gw.generators.path(3), {0: 0})
    with pytest.raises(InputError, match=r"expected a godwit.Graph, got a str"):
        LEVELS.run("graph", [0])
    graph = gw.generators.path(3)
    with gw.place(graph, ["cpu:0", "cpu:1"]) as placed:
        assert LEVELS.run(placed, [0]).fields["level"].tolist() == [0, 1, 2]
        with pytest.raises(InputError, match="placed already"):
            LEVELS.run(placed, [0], devices="cpu")
