"""Step programs on GPUs: what the CPU makes of them, on one device and on several.

Without a GPU the very kernels run on emulated ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import godwit as gw
from emulated_grid import Machine, emulated_gpus
from godwit.errors import InputError, OperatorError, RunTimeoutError, ValueOverflowError
from godwit.frontier.cuda import program as step_program_text
from godwit.frontier.cuda.program import ProgramText
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import ARCHITECTURES, cubin
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from gpu_endpoints import names_of
from graphs import each_graph, graphs, named_graph
from step_programs import (
    ARCS,
    COMPONENTS,
    EVERYTHING,
    GAINED_BITS,
    GREEDY_COLOURING,
    K_CORE,
    LEVELS,
    LEVELS_PULLED,
    LEVELS_TURNED,
    PUSHED,
    REFERENCED,
    UNFIT,
    explore_arcs,
    start_of,
    with_integer_weights,
)

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate GPUs with")


@pytest.fixture(scope="module")
def emulated() -> Iterator[Machine]:
    with emulated_gpus(3) as machine:
        yield machine


@pytest.fixture(params=["grid", "one block"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs, by all blocks or, as they usually are, by one."""
    monkeypatch.setattr(step_program_text, "SMALL", 0 if request.param == "grid" else 4096)


def _check(
    program: gw.StepProgram, graph: gw.Graph, devices: Any, partition: Any = None, **options: Any
) -> None:
    if program is EVERYTHING:
        graph = with_integer_weights(graph)
    start = start_of(program, graph)
    expected = program.run(graph, start, devices="cpu")
    with gw.place(graph, devices, partition) as placed:
        for _ in range(2):  # the second time on what is there
            found = program.run(placed, start, **options)
            for name, values in expected.fields.items():
                assert found.fields[name].dtype == values.dtype
                assert np.array_equal(found.fields[name], values), name
            assert found.numbers == expected.numbers
            assert np.array_equal(found.frontier, expected.frontier)
            for counts in ("processed_items", "arcs_relaxed"):
                theirs = getattr(expected.statistics, counts).sum()
                assert getattr(found.statistics, counts).sum() == theirs, counts
            assert found.statistics.rounds[0] == expected.statistics.rounds[0]


@emulates
@each_graph
@pytest.mark.parametrize("program", REFERENCED)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("small", "emulated")
def test_emulated(program: str, name: str, count: int) -> None:
    graph = named_graph(name)
    partition = [None, "contiguous", "random"][len(name) % 3] if count > 1 else None
    _check(REFERENCED[program], graph, [f"cuda:{index}" for index in range(count)], partition)


@emulates
@pytest.mark.parametrize("dtype", PUSHED)
@pytest.mark.usefixtures("small", "emulated")
def test_every_dtype(dtype: str) -> None:
    for name in ("grid", "star", "random undirected"):
        _check(PUSHED[dtype], named_graph(name), ["cuda:0", "cuda:1"])


@emulates
@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (3, 4, 5))]
)
def test_emulated_in_any_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_program_text, "SMALL", 0)
    with emulated_gpus(2, seed=seed):
        # All with one type of weights: each is compiled for itself.
        for name in ("star from its last vertex", "random directed", "grid"):
            for devices in (["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:0", "cuda:0"]):
                _check(EVERYTHING, named_graph(name), devices)
                _check(LEVELS_PULLED, named_graph(name), devices)
                _check(
                    LEVELS_TURNED,
                    named_graph(name),
                    devices,
                    gpu=ExperimentOptions(frontier_items=3),
                )


def _hubs(vertices: int) -> gw.Graph:
    """Two stars that share their leaves: frontiers of two, of many, and long rows."""
    arcs = 2 * vertices - vertices // 3
    return gw.Graph.from_edges(
        np.repeat([3, 4], arcs // 2),
        np.arange(arcs // 2 * 2) % vertices,
        vertex_count=vertices,
        directed=False,
    )


@emulates
@pytest.mark.parametrize(
    "items", [3, *(pytest.param(items, marks=pytest.mark.thorough) for items in (1, 40, None))]
)
@pytest.mark.usefixtures("emulated")
def test_queues_that_overflow(items: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds no room in a queue is found in the bitmap, and queued again when there is room."""
    monkeypatch.setattr(step_program_text, "SMALL", 0)
    gpu = ExperimentOptions(frontier_items=items)
    graphs = (named_graph("grid"), named_graph("random directed"), _hubs(300))
    for program in (LEVELS, LEVELS_TURNED, COMPONENTS, ARCS, EVERYTHING):
        for graph in graphs:
            for count in (1, 3):
                _check(program, graph, [f"cuda:{index}" for index in range(count)], gpu=gpu)


@emulates
@pytest.mark.usefixtures("emulated")
def test_pulling_after_lists_overflowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other devices forget who was in a frontier, also where no word of the next one says so."""
    monkeypatch.setattr(step_program_text, "SMALL", 0)
    program = gw.StepProgram(
        name="pushed, then pulled",
        fields={"pushed": ("int64", 0), "pulled": ("int64", 0)},
        steps=[
            gw.frontier.advance("pushed", lambda source: source + 1, "add"),
            gw.frontier.advance("pulled", lambda source: source + 1, "add", direction="pull"),
        ],
    )
    generator = np.random.default_rng(5)
    graph = gw.Graph.from_edges(*generator.integers(0, 600, (2, 1200)), vertex_count=600)
    with gw.place(graph, ["cuda:0", "cuda:1"]) as placed:
        for start in range(8):
            expected = program.run(graph, [start], devices="cpu").fields
            for items in (1, 3, None):
                found = program.run(
                    placed, [start], gpu=ExperimentOptions(frontier_items=items)
                ).fields
                for name, values in expected.items():
                    assert np.array_equal(found[name], values), (start, items, name)


@emulates
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_queues_have_no_races(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_program_text, "SMALL", 0)
    with emulated_gpus(2, seed=seed, checks=True):
        for number, program in enumerate((LEVELS_TURNED, COMPONENTS, EVERYTHING)):
            for items, count in (
                (3, 1 + number % 2),
                (None, 2 - number % 2),
            ):  # all pairs of values
                gpu = ExperimentOptions(frontier_items=items)
                _check(program, named_graph("grid"), names_of(count), gpu=gpu)
        graph = named_graph("random undirected").remove_self_loops().merge_parallel_arcs()
        expected = K_CORE.run(graph, devices="cpu")
        found = K_CORE.run(graph, devices=["cuda:0", "cuda:1"])
        for name, values in expected.fields.items():
            assert np.array_equal(found.fields[name], values), name


@emulates
@pytest.mark.usefixtures("emulated")
def test_memory_of_queues() -> None:
    graph = gw.generators.path(5000)
    program = _program(gw.frontier.filter(lambda vertex: vertex % 2 == 0))
    control_bytes, index_bytes = 16, 4
    for count, lists, items, room in (
        (1, 2, 7, 7),
        (1, 2, None, 5120),
        (3, 3, 7, 7),
        (3, 3, None, 2048),
    ):
        devices = [f"cuda:{index}" for index in range(count)]
        gpu = ExperimentOptions(frontier_items=items)
        statistics = program.run(graph, [0, 1, 2], devices=devices, gpu=gpu).statistics
        assert statistics.frontier_bytes == count * (control_bytes + lists * index_bytes * room)
        assert statistics.growths == 0
    assert program.run(graph, devices="cpu").statistics.frontier_bytes is None


@emulates
@given(graph=graphs(weighted=False, min_vertices=2))
@settings(max_examples=settings().max_examples // 4)
def test_emulated_on_any_graph(graph: gw.Graph) -> None:
    with emulated_gpus(2):
        _check(EVERYTHING, graph, ["cuda:0", "cuda:1"])


@emulates
@pytest.mark.usefixtures("emulated")
def test_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    hubs = gw.Graph.from_edges(
        np.repeat([3, 4], 5000), np.arange(10000) % 6000, vertex_count=6000, directed=False
    )
    for program in (LEVELS, LEVELS_PULLED, EVERYTHING):
        for devices in (["cuda:0"], ["cuda:0", "cuda:1"]):
            _check(program, hubs, devices)


@emulates
@pytest.mark.usefixtures("emulated")
def test_a_kernel_may_leave_after_every_superstep() -> None:
    graph = named_graph("grid")
    for devices in (["cuda:0"], ["cuda:0", "cuda:1"]):
        _check(EVERYTHING, graph, devices, gpu=GpuOptions(slice_s=0))


@emulates
@pytest.mark.usefixtures("small", "emulated")
def test_examples() -> None:
    graph = named_graph("random undirected").remove_self_loops().merge_parallel_arcs()
    rank = np.random.default_rng(1).permutation(graph.vertex_count).astype(np.int32)
    for program, fields in ((K_CORE, {}), (GREEDY_COLOURING, {"rank": rank})):
        expected = program.run(graph, fields=fields, devices="cpu")
        found = program.run(graph, fields=fields, devices=["cuda:0", "cuda:2"])
        for name, values in expected.fields.items():
            assert np.array_equal(found.fields[name], values), name


@emulates
@pytest.mark.usefixtures("emulated")
def test_operators_one_by_one() -> None:
    graph = named_graph("grid")
    with gw.explore(
        graph,
        fields={"level": ("int32", 2**31 - 1)},
        numbers={"now": "int64"},
        frontier=[0],
        devices=["cuda:0", "cuda:1"],
    ) as explorer:
        explorer.fields["level"][0] = 0
        step = gw.frontier.advance("level", lambda now: now, "min")
        while len(explorer.frontier):
            explorer.set(now=explorer.numbers["now"] + 1)
            explorer.do(step)
    assert np.array_equal(explorer.fields["level"], gw.bfs(graph, 0, devices="cpu").distance)
    assert explorer.statistics is not None
    assert explorer.statistics.devices == ("cuda:0", "cuda:1")


@emulates
@pytest.mark.usefixtures("emulated", "small")
@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cuda:1"]])
def test_arcs_one_by_one(devices: list[str]) -> None:
    explore_arcs(devices)


def _program(step: Any) -> gw.StepProgram:
    fields = {"x": ("int32", 0), "f": ("float64", 0.0)}
    return gw.StepProgram("wrong", fields=fields, numbers={"k": "int64"}, steps=[step])


@emulates
def test_an_explorer_takes_options(emulated: Machine) -> None:
    graph, devices = named_graph("grid"), ["cuda:0", "cuda:1"]
    step = gw.frontier.advance("x", lambda: 1, "add")
    room = []
    for items in (3, 5):
        gpu = ExperimentOptions(frontier_items=items)
        with gw.explore(graph, fields={"x": ("int32", 0)}, devices=devices, gpu=gpu) as explorer:
            explorer.do(step)
            assert np.array_equal(explorer.fields["x"], graph.out_degree())
            assert explorer.statistics is not None
            room.append(explorer.statistics.frontier_bytes)
    assert room[0] < room[1]
    with pytest.raises(InputError, match="gpu must be GpuOptions, got 'warp'"):
        gw.explore(graph, gpu="warp")  # type: ignore[arg-type]


@emulates
def test_types_that_do_not_fit_are_refused(emulated: Machine) -> None:
    emulated.launched.clear()
    for step, message in UNFIT:
        with pytest.raises(OperatorError, match=message):
            _program(step).run(gw.generators.path(3), devices=["cuda:0", "cuda:1"])
    assert "work" not in emulated.launched


@emulates
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        (
            gw.frontier.compute("x", lambda: 2**31),
            ValueOverflowError,
            "compute 'x': a value does not fit",
        ),
        (
            gw.frontier.advance("x", lambda: 2**30, "add"),
            ValueOverflowError,
            "a value does not fit 'x'",
        ),
        (
            gw.frontier.assign("k", lambda: np.uint64(2**63)),
            ValueOverflowError,
            "assign 'k': a value does",
        ),
        (
            gw.frontier.reduce("k", lambda: np.uint64(2**63), "max"),
            ValueOverflowError,
            "reduce to 'k': a value does",
        ),
        (
            gw.frontier.compute("f", lambda f_at_x: f_at_x),
            InputError,
            r"compute 'f': .* outside of \[0, 9\)",
        ),
        (gw.frontier.advance("f", lambda: 1.0, "max", at="x"), InputError, r"outside of \[0, 9\)"),
    ],
)
def test_what_goes_wrong_in_operators(step: Any, kind: type[Exception], message: str) -> None:
    graph = gw.generators.star(9)
    x = -1 if kind is InputError else 0
    for devices in (["cuda:0"], ["cuda:0", "cuda:1"]):
        with pytest.raises(kind, match=message):
            _program(step).run(graph, fields={"x": x}, devices=devices)


@emulates
@pytest.mark.usefixtures("emulated")
def test_a_program_that_never_ends_is_stopped() -> None:
    program = _program(
        gw.frontier.repeat([gw.frontier.assign("k", lambda k: k + 1)], until=lambda k: k < 0)
    )
    gpu = GpuOptions(slice_s=0.001)
    with pytest.raises(RunTimeoutError):
        program.run(gw.generators.path(3), devices=["cuda:0", "cuda:1"], timeout_s=0.01, gpu=gpu)


def test_too_many_fields_for_a_kernel() -> None:
    fields = {f"f{index}": ("int32", 0) for index in range(30)}
    program = gw.StepProgram("wide", fields=fields, steps=[gw.frontier.filter(lambda f3: f3 > 0)])
    with pytest.raises(InputError, match=r"'wide' has 30 fields .* 0 numbers; GPUs take 24 and 22"):
        ProgramText(program.code, np.int32, None)


@pytest.mark.parametrize(
    ("program", "weight", "architecture"),
    [
        pytest.param(
            program, weight, name, id=f"{program.name}-{name}",
            marks=() if name == chosen else pytest.mark.thorough,
        )
        for program, weight, chosen in (
            (EVERYTHING, np.dtype(np.float32), "90"), (GAINED_BITS, None, "80"),
        )
        for name in ARCHITECTURES
    ],
)  # fmt: skip
def test_programs_compile(program: gw.StepProgram, weight: Any, architecture: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the extra 'cuda'")
    pytest.importorskip("numba_cuda", reason="needs the extra 'cuda'")
    text = ProgramText(program.code, np.int32, weight)
    assert cubin(text.source, text.functions, architecture)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("program", REFERENCED)
def test_on_gpus(program: str) -> None:
    names = [f"cuda:{index}" for index in range(min(4, driver.device_count()))]
    together = sorted({1, len(names)})
    for graph in (
        gw.generators.rmat(15, 16, seed=4, weights=(1, 9)),
        gw.generators.road(200, 150, seed=2),
        named_graph("star"),
    ):
        for count in together:
            _check(REFERENCED[program], graph, names[:count])
        _check(REFERENCED[program], graph, ["cuda:0", "cuda:0"])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("items", [1, 100, None])
def test_queues_on_gpus(items: int | None) -> None:
    names = [f"cuda:{index}" for index in range(min(4, driver.device_count()))]
    for graph in (gw.generators.rmat(15, 16, seed=4), gw.generators.road(200, 150, seed=2)):
        for program in (LEVELS, LEVELS_TURNED, COMPONENTS, ARCS):
            for devices in (names[:1], names, ["cuda:0", "cuda:0"]):
                _check(program, graph, devices, gpu=ExperimentOptions(frontier_items=items))


@pytest.mark.gpu
@needs_gpu
def test_examples_on_gpus() -> None:
    graph = gw.generators.rmat(14, 8, seed=7).symmetrize().remove_self_loops()
    graph = graph.merge_parallel_arcs()
    rank = np.random.default_rng(1).permutation(graph.vertex_count).astype(np.int32)
    for program, fields in ((K_CORE, {}), (GREEDY_COLOURING, {"rank": rank})):
        expected = program.run(graph, fields=fields, devices="cpu")
        found = program.run(graph, fields=fields, devices="cuda")
        for name, values in expected.fields.items():
            assert np.array_equal(found.fields[name], values), name
