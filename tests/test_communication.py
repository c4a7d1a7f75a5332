"""What travels between GPUs, and to whom: whatever is asked for, the results are the same.

Without a GPU the very kernels run on emulated ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import Machine, emulated_gpus
from godwit.algorithms.betweenness import cuda as brandes_steps
from godwit.algorithms.pagerank.cuda import RankArrays
from godwit.errors import GraphTooLargeError, InputError
from godwit.frontier.code import reads_anywhere, shared_fields, ways_of_arcs
from godwit.frontier.cuda.run import ProgramArrays
from godwit.graph.partition import partition
from godwit.runtime.gpu_options import ExperimentOptions, GpuOptions
from godwit.runtime.protocol import Device
from godwit.supersteps import halos as step_halos
from godwit.supersteps import place_positions
from godwit.supersteps.placement import StepPlacement
from gpu_endpoints import COUNT, names_of, needs_gpu
from step_programs import COMPONENTS, FAR, K_CORE, LEVELS, LEVELS_PULLED, LEVELS_TURNED, start_of

emulates = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate GPUs with")

WAYS = ("selective", "broadcast")
PARTITIONS = (None, "contiguous", "random")

GRAPHS: dict[str, Callable[[], gw.Graph]] = {
    "undirected": lambda: gw.generators.rmat(7, 4, seed=3),
    "directed": lambda: gw.generators.rmat(7, 3, seed=3, symmetrize=False),
    "path": lambda: gw.generators.path(18),
}


@pytest.fixture(autouse=True)
def all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Betweenness from many sources would have each search for itself."""
    monkeypatch.setattr(brandes_steps, "gpus_apart", lambda *_: 0)


def check_ranks(graph: gw.Graph, devices: Any, gpu: GpuOptions) -> np.ndarray[Any, Any]:
    """Ranks, which are the CPU's."""
    expected = gw.pagerank(graph, max_iterations=9, devices="cpu").rank
    found = gw.pagerank(graph, max_iterations=9, devices=devices, gpu=gpu).rank
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    return found


def check_sums(graph: gw.Graph, devices: Any, gpu: GpuOptions) -> np.ndarray[Any, Any]:
    """Betweenness of arcs, which is the CPU's, as that of vertices is."""
    settings: dict[str, Any] = {"sources": [0, 5, 17], "edges": True}
    expected = gw.betweenness_centrality(graph, devices="cpu", **settings)
    found = gw.betweenness_centrality(graph, devices=devices, gpu=gpu, **settings)
    assert found.statistics.devices != ("cpu",)  # where numbers that are not there would lead
    np.testing.assert_allclose(found.centrality, expected.centrality, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        found.edge_centrality, expected.edge_centrality, rtol=1e-9, atol=1e-12
    )
    return found.edge_centrality


def check_program(
    program: gw.StepProgram, graph: gw.Graph, devices: Any, gpu: GpuOptions, placed: Any = None
) -> None:
    """A step program leaves what it leaves on the CPU."""
    where = {"devices": devices} if placed is None else {}
    given = graph if placed is None else placed
    expected = program.run(graph, start_of(program, graph), devices="cpu")
    found = program.run(given, start_of(program, graph), gpu=gpu, **where)
    for name, values in expected.fields.items():
        assert np.array_equal(found.fields[name], values), name


@emulates
class TestSubscriberMasks:
    """The bits that say who reads what."""

    @pytest.mark.parametrize("method", PARTITIONS)
    @pytest.mark.parametrize("count", [2, 3])
    @pytest.mark.parametrize("name", GRAPHS)
    def test_they_are_the_ends_of_arcs(self, name: str, count: int, method: Any) -> None:
        graph = GRAPHS[name]()
        division = None if method is None else partition(graph, count, method, seed=1)
        with emulated_gpus(count):
            devices = [Device(one, "cuda") for one in names_of(count)]
            placed = StepPlacement(devices, graph, division)
            with placed.held():
                for directions in (("out",), ("in",), ("in", "out")):
                    found = placed.subscriber_masks(*directions)
                    assert placed.subscriber_masks(*reversed(directions)) == found
                    assert np.array_equal(_bits(placed, found), _expected(placed, directions))
            placed.close()

    def test_they_are_made_of_the_rows_that_are_there_and_given_back(self) -> None:
        graph = GRAPHS["directed"]()
        with emulated_gpus(2) as machine:
            placed = StepPlacement([Device(one, "cuda") for one in names_of(2)], graph)
            with placed.held():
                placed.rows("in", ordered=True)
                before = machine.launched["place_targets"]
                placed.subscriber_masks("in")
                assert machine.launched["place_targets"] == before
                assert machine.launched["mark_targets"] == 2
            placed.close()
            assert [machine.held_bytes(place) for place in (0, 1)] == [0, 0]

    def test_where_there_is_no_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = GRAPHS["path"]()
        with emulated_gpus(2):
            placed = StepPlacement([Device(one, "cuda") for one in names_of(2)], graph)
            with placed.held():
                placed.rows("out")
                monkeypatch.setattr(step_halos, "spare_bytes", lambda index: 100)
                with pytest.raises(GraphTooLargeError, match=r"cuda:1 needs 512 B and has 100 B"):
                    placed.subscriber_masks("out")
                monkeypatch.undo()
                assert len(placed.subscriber_masks("out")) == 2
            placed.close()


def _bits(placed: StepPlacement, readers: Any) -> np.ndarray[Any, Any]:
    """(readers, positions): those of a device's own range as they are of no use, False."""
    count, capacity = len(placed.parts), placed.capacity
    found = np.zeros((count, placed.count), bool)
    for owner, buffer in enumerate(readers):
        words = buffer.download(np.uint8, placed.count // 8)
        rows = np.unpackbits(words, bitorder="little").reshape(count, capacity)
        found[:, owner * capacity : (owner + 1) * capacity] = rows
        found[owner, owner * capacity : (owner + 1) * capacity] = False
    return found


def _expected(placed: StepPlacement, directions: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    graph, position = placed.graph, placed.numbering.position
    tails = position[np.repeat(np.arange(graph.vertex_count), graph.out_degree())]
    heads = position[graph.targets]
    wanted = np.zeros((len(placed.parts), placed.count), bool)
    if "out" in directions:
        wanted[tails // placed.capacity, heads] = True
    if "in" in directions:
        wanted[heads // placed.capacity, tails] = True
    for owner in range(len(placed.parts)):
        wanted[owner, owner * placed.capacity : (owner + 1) * placed.capacity] = False
    return wanted


@emulates
class TestEmulated:
    @pytest.mark.parametrize("method", PARTITIONS)
    @pytest.mark.parametrize("count", [2, 3])
    @pytest.mark.parametrize("name", GRAPHS)
    def test_results_are_the_cpus(self, name: str, count: int, method: Any) -> None:
        graph, devices = GRAPHS[name](), names_of(count)
        with emulated_gpus(count, seed=len(name) + count):
            for check in (check_ranks, check_sums):
                with gw.place(graph, devices, method) as placed:
                    found = [
                        _on(placed, check, graph, GpuOptions(communication=way)) for way in WAYS
                    ]
                assert np.array_equal(*found)  # the same sums in the same order
            for program in (LEVELS, LEVELS_TURNED, K_CORE):
                if program is K_CORE and graph.directed:
                    continue
                with gw.place(graph, devices, method) as placed:
                    for way in (*WAYS, None):
                        gpu = GpuOptions(communication=way)
                        check_program(program, graph, devices, gpu, placed)

    @pytest.mark.parametrize("way", WAYS)
    def test_without_races(self, way: Any) -> None:
        graph, devices, gpu = GRAPHS["undirected"](), names_of(2), GpuOptions(communication=way)
        with emulated_gpus(2, checks=True, seed=1):
            check_ranks(graph, devices, gpu)
            check_sums(graph, devices, gpu)
            check_program(LEVELS_PULLED, graph, devices, gpu)

    @pytest.mark.parametrize("duplication", [None, "all"])
    def test_duplication_makes_no_difference(self, duplication: Any) -> None:
        graph, devices = GRAPHS["undirected"](), names_of(3)
        with (
            emulated_gpus(3),
            gw.place(graph, devices, "random", duplication=duplication) as placed,
        ):
            for way in WAYS:
                _on(placed, check_ranks, graph, GpuOptions(communication=way))
                check_program(LEVELS, graph, devices, GpuOptions(communication=way), placed)
            found = gw.bfs(placed, 0, execution="bulk-synchronous")
            assert np.array_equal(found.distance, gw.bfs(graph, 0, devices="cpu").distance)

    @pytest.mark.parametrize("way", WAYS)
    def test_ranks_go_to_those_who_read_them(self, way: Any) -> None:
        graph = GRAPHS["directed"]()
        with emulated_gpus(3), gw.place(graph, names_of(3), "random") as placed:
            gw.pagerank(placed, max_iterations=4)
            steps: Any = place_positions(placed)
            carried = steps.kept(RankArrays).carried["float64"]
            for array in carried:
                for buffer in array.buffers:
                    buffer.fill_bytes(0x55)
            gw.pagerank(placed, max_iterations=4, gpu=GpuOptions(communication=way))
            # What comes out of the last iteration takes the place of what it read, at the owner only.
            seen = _everywhere(steps, carried[0], np.float64)
            poison = np.frombuffer(b"\x55" * 8)[0]
            _check_sent(steps, seen != poison, seen[_owners(steps)] != poison, way, ("in",))

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize(("program", "direction"), [(LEVELS, "out"), (LEVELS_PULLED, None)])
    def test_fields_go_to_those_who_read_them(
        self, program: gw.StepProgram, direction: Any, way: Any
    ) -> None:
        graph = GRAPHS["directed"]()
        start = [graph.highest_degree_vertex()]
        with emulated_gpus(3), gw.place(graph, names_of(3), "random") as placed:
            found = program.run(placed, start, gpu=GpuOptions(communication=way))
            steps: Any = place_positions(placed)
            seen = _everywhere(steps, steps.kept(ProgramArrays).field(0), np.int32)
            seen[:, steps.numbering.vertex < 0] = FAR
            level = np.full(steps.count, FAR)
            level[steps.numbering.position] = found.fields["level"]
            if direction is None:  # a pulling advance reads no level at the other end
                assert shared_fields(program.code) == set()
                own = np.arange(3)[:, None] == np.arange(steps.count) // steps.capacity
                assert np.array_equal((seen != FAR)[1:], (own & (level != FAR))[1:])
            else:
                _check_sent(steps, seen != FAR, level != FAR, way, (direction,))

    def test_who_is_told_that_nobody_reads_sends_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = StepPlacement.subscriber_masks

        def nobody(placement: StepPlacement, *directions: Any) -> Any:
            found = real(placement, *directions)
            for buffer in found if directions else ():
                buffer.fill_bytes(0)
            return found

        monkeypatch.setattr(StepPlacement, "subscriber_masks", nobody)
        graph, devices = GRAPHS["undirected"](), names_of(2)
        for check in (check_ranks, check_sums):
            with emulated_gpus(2), pytest.raises(AssertionError):
                check(graph, devices, GpuOptions(communication="selective"))
            with emulated_gpus(2):
                check(graph, devices, GpuOptions(communication="broadcast"))


def _on(placed: Any, check: Callable[..., Any], graph: gw.Graph, gpu: GpuOptions) -> Any:
    """A check of a graph that is placed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("pagerank", "betweenness_centrality"):
            real = getattr(gw, name)

            def query(given: Any, real: Any = real, **settings: Any) -> Any:
                if settings["devices"] != "cpu":
                    given = placed
                    settings.pop("devices")
                return real(given, **settings)

            patch.setattr(gw, name, query, raising=False)
        return check(graph, "placed", gpu)


def _owners(steps: Any) -> Any:
    """An index of (devices, positions): each position at its owner."""
    positions = np.arange(steps.count)
    return positions // steps.capacity, positions


def _everywhere(steps: Any, array: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """(devices, positions): what lies where."""
    with steps.held():
        return np.stack([buffer.download(dtype, steps.count) for buffer in array.buffers])


def _check_sent(steps: Any, seen: Any, written: Any, way: str, directions: tuple[Any, ...]) -> None:
    """Whether positions that their owners wrote were written where they are read, or everywhere."""
    sent = _expected(steps, directions) if way == "selective" else np.ones_like(seen)
    sent[_owners(steps)] = True
    assert np.array_equal(seen[1:], (sent & written)[1:])  # on the first, results were put together
    if way == "selective":  # some are spared
        assert (sent & written)[1:].sum() < len(sent[1:]) * written.sum()


@emulates
class TestRefused:
    """What a primitive cannot run with is refused before anything is started."""

    @pytest.fixture
    def machine(self) -> Any:
        with emulated_gpus(2) as machine:
            yield machine
            assert not machine.launched
            assert [machine.held_bytes(place) for place in (0, 1)] == [0, 0]

    @pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cuda:1"]])
    def test_searches_in_supersteps(self, devices: list[str], machine: Machine) -> None:
        gpu = GpuOptions(communication="selective")
        with pytest.raises(InputError, match=r"'selective'.*execution='asynchronous'"):
            gw.bfs(
                GRAPHS["undirected"](), 0, devices=devices, execution="bulk-synchronous", gpu=gpu
            )

    def test_vertex_programs(self, machine: Machine) -> None:
        graph, gpu = GRAPHS["undirected"](), GpuOptions(communication="broadcast")
        hops = gw.VertexProgram(
            name="hops", combine="min", dtype="int32", message=lambda value: value + 1
        )
        runs: list[Callable[[], Any]] = [
            lambda: gw.bfs(graph, 0, devices=names_of(2), execution="asynchronous", gpu=gpu),
            lambda: gw.sssp(graph, 0, devices=names_of(2), gpu=gpu),
            lambda: gw.run(hops, graph, {0: 0}, devices=names_of(2), gpu=gpu),
            lambda: gw.run(
                hops, graph, {0: 0}, devices=["cuda:0"], execution="bulk-synchronous", gpu=gpu
            ),
        ]
        for run in runs:
            with pytest.raises(InputError, match=r"'broadcast'.*the device that owns its vertex"):
                run()

    def test_step_programs_that_read_anywhere(self, machine: Machine) -> None:
        gpu = GpuOptions(communication="selective")
        with pytest.raises(InputError, match=r"'components', advance into 'label', reads at"):
            COMPONENTS.run(GRAPHS["undirected"](), devices=names_of(2), gpu=gpu)

    def test_options_that_mean_nothing(self, machine: Machine) -> None:
        """Each option that some primitives lack, for each that lacks it."""
        graph, devices = GRAPHS["undirected"](), names_of(2)
        weighted = graph.with_weights(np.ones(graph.arc_count, np.int32))
        searches: dict[str, Any] = {
            "frontier_items": 9,
            "schedule": "warp",
            "turn_down": 0.5,
            "turn_back": 0.5,
        }
        turns = {name: searches[name] for name in ("turn_down", "turn_back")}
        workers: dict[str, Any] = {"hops": 1, "volume": 2}
        lacking: list[tuple[Callable[..., Any], dict[str, Any]]] = [
            (partial(gw.pagerank, graph), searches | workers),
            (partial(gw.betweenness_centrality, graph, sources=[0]), searches | workers),
            (partial(gw.betweenness_centrality, weighted, sources=[0], weighted=True), turns),
            (
                partial(gw.connected_components, graph, method="rem"),
                searches | workers | {"transport": "host"},
            ),
            (partial(gw.connected_components, graph, method="label-propagation"), searches),
            (partial(gw.sssp, weighted, 0), searches),
            (partial(gw.bfs, graph, 0, execution="asynchronous"), searches),
            (partial(gw.bfs, graph, 0, execution="bulk-synchronous"), workers),
            (partial(LEVELS.run, graph), turns | workers),
        ]
        for query, options in lacking:
            for name, value in options.items():
                gpu = ExperimentOptions(**{name: value})
                with pytest.raises(InputError, match=rf"\b{name}\b.*leave (it|them) out"):
                    query(devices=devices, gpu=gpu)
        for way, merge in product(WAYS, ("direct", "tree", "auto")):
            gpu = GpuOptions(communication=way)  # type: ignore[arg-type]
            with pytest.raises(InputError, match=r"communication=.*merge='direct' or 'tree'"):
                gw.connected_components(graph, method="rem", merge=merge, devices=devices, gpu=gpu)

    def test_what_is_no_way(self) -> None:
        with pytest.raises(InputError, match="'selective', 'broadcast' or None, got 'loud'"):
            GpuOptions(communication="loud")  # type: ignore[arg-type]

    def test_cpus_take_no_notice(self) -> None:
        for way in WAYS:
            gpu = GpuOptions(communication=way)  # type: ignore[arg-type]
            found = gw.bfs(
                GRAPHS["path"](), 0, devices="cpu", execution="bulk-synchronous", gpu=gpu
            )
            assert found.distance[-1] == 17
            COMPONENTS.run(GRAPHS["path"](), devices="cpu", gpu=gpu)
        gpu = ExperimentOptions(schedule="warp", hops=3, turn_down=0.5)
        assert gw.pagerank(GRAPHS["path"](), devices="cpu", gpu=gpu).converged


@emulates
def test_a_search_goes_by_what_is_asked_for() -> None:
    graph = GRAPHS["undirected"]()
    expected = gw.bfs(graph, 0, devices="cpu").distance
    solvers = {"selective": "asynchronous", "broadcast": "direction-optimizing"}
    with emulated_gpus(2):
        for way, solver in solvers.items():
            gpu = GpuOptions(communication=way)  # type: ignore[arg-type]
            found = gw.bfs(graph, 0, devices=names_of(2), gpu=gpu)
            assert found.statistics.solver == solver
            assert np.array_equal(found.distance, expected)
        for options in ({"schedule": "warp"}, {"frontier_items": 9}, {"turn_down": 0.5}):
            gpu = ExperimentOptions(**options)  # type: ignore[arg-type]
            for given in (graph, GRAPHS["directed"]()):
                found = gw.bfs(given, 0, devices=names_of(2), gpu=gpu)
                assert found.statistics.solver == "direction-optimizing"
        with pytest.raises(InputError, match=r"leave them out, or leave schedule out$"):
            gw.bfs(graph, 0, devices=names_of(2), gpu=ExperimentOptions(schedule="warp", hops=1))
        # Nothing else could take over from supersteps that are given up.
        long = gw.generators.path(300)
        gpu = GpuOptions(communication="broadcast")
        assert gw.bfs(long, 0, devices=names_of(2), gpu=gpu).distance.max() == 299


def _read(step: Any) -> tuple[Any, ...]:
    fields = {"a": ("int64", 0), "b": ("int64", 0), "c": ("float64", 0.0)}
    code = gw.StepProgram("reads", fields=fields, steps=[step]).code
    return shared_fields(code), ways_of_arcs(code), reads_anywhere(code) is not None


@pytest.mark.parametrize(
    ("step", "fields", "ways", "anywhere"),
    [
        (gw.frontier.advance("a", lambda b: b, "add"), set(), (), False),
        (gw.frontier.advance("a", lambda b: b, "min"), {0}, ("out",), False),
        (gw.frontier.advance("a", lambda b_at_target: b_at_target, "add"), {1}, ("out",), False),
        (gw.frontier.advance("a", lambda b: b, "max", at="source"), set(), (), False),
        (gw.frontier.advance("a", lambda b: b, "add", at="b"), set(), (), False),
        (gw.frontier.advance("a", lambda: 1, "add", at="b_at_target"), {1}, ("out",), False),
        (gw.frontier.advance("a", lambda: 1, "min", at="b"), {0}, (), True),
        (gw.frontier.advance("a", lambda b: b, "add", direction="pull"), {1}, ("in",), False),
        (
            gw.frontier.advance(
                "a", lambda b_at_target: b_at_target, "max", direction="pull",
                keep=lambda c: c > 0, candidates=lambda a: a == 0,
            ),
            {2}, ("in",), False,
        ),
        (gw.frontier.advance("a", lambda c_at_b_at_target: 1, "add"), {1, 2}, ("out",), True),
        (gw.frontier.filter(lambda a, b: a < b), set(), (), False),
        (gw.frontier.compute("a", lambda a_at_b: a_at_b), {0}, (), True),
        (gw.frontier.arcs(lambda a, a_at_target: a < a_at_target), {0}, ("out",), False),
    ],
)  # fmt: skip
def test_what_steps_read_elsewhere(
    step: Any, fields: set[int], ways: tuple[str, ...], anywhere: bool
) -> None:
    assert _read(step) == (fields, ways, anywhere)


def test_a_program_that_reads_along_arcs_of_both_directions() -> None:
    steps = [
        gw.frontier.advance("a", lambda b: b, "min", frontier="kept"),
        gw.frontier.advance("a", lambda b: b, "min", direction="pull"),
    ]
    code = gw.StepProgram("both", fields={"a": ("int64", 0), "b": ("int64", 0)}, steps=steps).code
    assert ways_of_arcs(code) == ("in", "out")
    assert shared_fields(code) == {0, 1}
    assert reads_anywhere(code) is None


def test_a_step_that_turns_reads_what_it_reads_either_way() -> None:
    step = gw.frontier.advance(
        "a", lambda b: b, "add", direction="pull", candidates=lambda c: c == 0
    )
    fields = {"a": ("int64", 0), "b": ("int64", 0), "c": ("float64", 0.0)}
    code = gw.StepProgram("turns", fields=fields, steps=[step]).code
    assert (shared_fields(code), ways_of_arcs(code)) == ({1}, ("in",))
    turning = replace(code, steps=(replace(code.steps[0], turns=True),))
    assert (shared_fields(turning), ways_of_arcs(turning)) == ({1, 2}, ("in", "out"))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("method", PARTITIONS)
@pytest.mark.parametrize("way", WAYS)
def test_on_gpus(way: Any, method: Any) -> None:
    gpu = GpuOptions(communication=way)
    for graph in (gw.generators.rmat(14, 8, seed=3), gw.generators.road(150, seed=3)):
        for devices in (["cuda:0", "cuda:0"], names_of(min(COUNT, 4)), ["cuda:0"] * 3):
            given = None if len(devices) == 1 else method
            with gw.place(graph, devices, given) as placed:
                _on(placed, check_ranks, graph, gpu)
                _on(placed, check_sums, graph, gpu)
                for program in (LEVELS, LEVELS_TURNED, K_CORE):
                    check_program(program, graph, devices, gpu, placed)
