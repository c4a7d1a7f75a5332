"""A graph in positions on GPUs: a renumbering that loses nothing, rows hot first, results back in order.

Without a GPU the very kernels run on emulated ones. What is expected is made of Python's lists and sorts.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import godwit as gw
from architectures import compiled_for
from emulated_grid import Machine, emulated_gpus, results_on_gpus
from godwit import config
from godwit.arrays import ResultLocation
from godwit.errors import ClosedContextError, GraphTooLargeError, InputError
from godwit.graph.csr import Graph
from godwit.graph.partition import partition, positions
from godwit.graph.partition.positions import CLASS_DEGREES, LINE, number_vertices
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.transfer import copies, delivery, staging
from godwit.runtime.protocol import Device
from godwit.supersteps import place_positions
from godwit.supersteps import rows as step_rows
from godwit.supersteps.arrays import DeviceArray
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_arcs, deliver_vertices
from graphs import each_graph, named_graph

needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")


def _devices(count: int) -> list[Device]:
    return [Device(f"cuda:{index}", "cuda") for index in range(count)]


GPUS = 8


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Emulated GPUs; afterwards, none of their memory is held."""
    monkeypatch.setattr(delivery, "ROOM_BYTES", 2000)
    monkeypatch.setattr(delivery, "LEAST_LOCKED_BYTES", 900)
    monkeypatch.setattr(staging, "LEAST_PIECE_BYTES", 1000)
    results_on_gpus(monkeypatch)
    monkeypatch.setattr(copies, "DIRECT_BYTES", 900)
    with emulated_gpus(GPUS) as machine:
        yield machine
        for index in range(GPUS):
            memory.free_kept(index)
        held = [machine.held_bytes(index) for index in range(GPUS)]
        assert held == [0] * GPUS


def _several_classes() -> Graph:
    """Of every class of degrees, with isolated vertices, parallel edges and self-loops."""
    generator = np.random.default_rng(3)
    hubs = np.repeat([5000, 17, 4444], [4300, 700, 60])
    others = generator.integers(0, 5200, len(hubs))
    more = generator.integers(0, 300, (2, 4000))
    ends = np.concatenate([np.stack([hubs, others]), more, [[9, 9], [9, 9]]], axis=1)
    return Graph.from_edges(ends[0], ends[1], vertex_count=5300, directed=False)


def _directed() -> Graph:
    generator = np.random.default_rng(4)
    ends = generator.integers(0, 700, (2, 3000)) // np.array([[1], [7]])
    weights = generator.permutation(3000).astype(np.float64)
    return Graph.from_edges(ends[0], ends[1], weights, vertex_count=720)


GRAPHS: dict[str, Callable[[], Graph]] = {
    "several classes": _several_classes,
    "directed": _directed,
    "road": lambda: gw.generate("road:60,keep=0.6,weights=1..64"),
    "rmat": lambda: gw.generate("rmat:10,seed=2,weights=1..9"),
    **{
        name: (lambda name=name: named_graph(name))  # type: ignore[misc]
        for name in (
            "empty", "one vertex", "one self-loop", "isolated vertices", "path", "directed path",
            "star", "star from its last vertex", "parallel edges and self-loops",
        )
    },
}  # fmt: skip


def _degrees(graph: Graph) -> tuple[list[int], list[int]]:
    """In- and out-degrees, counted arc by arc."""
    ins = [0] * graph.vertex_count
    for target in graph.targets.tolist():
        ins[target] += 1
    return ins, np.diff(graph.offsets).tolist()


def _class_of(in_degree: int, out_degree: int) -> int:
    if in_degree + out_degree == 0:
        return 5
    return next((k for k, most in enumerate(CLASS_DEGREES[:-1]) if in_degree > most), 4)


class TestNumbering:
    @pytest.fixture(autouse=True, params=["NumPy", "compiled code"])
    def number_by(self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
        if request.param == "compiled code":  # which large graphs have
            monkeypatch.setattr(positions, "SMALL_VERTICES", -1)

    @pytest.mark.parametrize("parts", [1, 2, 3])
    @each_graph
    def test_of_the_zoo(self, name: str, parts: int) -> None:
        _check_numbering(named_graph(name), parts, None)

    @pytest.mark.parametrize("parts", [1, 2, 3])
    @pytest.mark.parametrize("name", ["several classes", "directed", "road", "rmat"])
    @pytest.mark.parametrize("threads", [1, 5])
    def test_of_others(
        self, monkeypatch: pytest.MonkeyPatch, name: str, parts: int, threads: int
    ) -> None:
        monkeypatch.setattr(
            "godwit.graph.partition.positions.thread_count_for", lambda work: threads
        )
        graph = GRAPHS[name]()
        _check_numbering(graph, parts, None)
        if parts > 1:
            _check_numbering(graph, parts, partition(graph, parts, "random", seed=3))
            _check_numbering(graph, parts, partition(graph, parts, "contiguous"))

    def test_a_part_may_be_empty(self) -> None:
        graph = GRAPHS["rmat"]()
        division = partition(graph, 3, np.full(graph.vertex_count, 2))
        found = _check_numbering(graph, 3, division)
        assert found.owned.tolist() == [0, 0, graph.vertex_count]

    def test_what_is_dealt_is_balanced(self) -> None:
        graph = GRAPHS["several classes"]()
        found = number_vertices(graph, 3)
        assert found.by_degree
        assert np.ptp(found.owned) <= 1
        assert (np.ptp(found.classes, axis=0) <= 1).all()

    def test_a_road_stays_together(self) -> None:
        graph = GRAPHS["road"]()
        found = number_vertices(graph, 3)
        assert not found.by_degree
        owner = found.position // found.capacity
        assert (np.diff(owner) >= 0).all()
        arcs = np.bincount(owner, np.diff(graph.offsets))
        assert arcs.max() < 1.1 * arcs.mean()

    @pytest.mark.parametrize("parts", [2, 3, 4])
    @pytest.mark.parametrize(
        ("spec", "stays"),
        [
            ("delaunay:2000,seed=1", True),
            ("watts-strogatz:1500,rewire=0", True),
            ("random-geometric:2000,seed=1", True),
            ("rmat:10", False),
            ("watts-strogatz:2000,rewire=0.5,seed=1", False),
        ],
    )
    def test_ranges_where_arcs_stay_in_them(self, spec: str, stays: bool, parts: int) -> None:
        graph = gw.generate(spec)
        found = _check_numbering(graph, parts, None)
        assert found.by_degree
        assert found.stays_near == stays
        owner = found.position // found.capacity
        assert (np.diff(owner) >= 0).all() == stays
        arcs = np.bincount(owner, np.diff(graph.offsets))
        assert arcs.max() < 1.1 * arcs.mean()

    def test_what_was_asked_for_is_not_looked_at(self) -> None:
        graph = gw.generate("delaunay:500,seed=1")
        assert not number_vertices(graph, 2, partition(graph, 2, "random", seed=3)).stays_near
        assert not number_vertices(graph, 1).stays_near

    def test_ids(self) -> None:
        graph = GRAPHS["rmat"]()
        assert number_vertices(graph, 2).position.dtype == np.int32
        assert number_vertices(graph, 2, id_dtype=np.int64).position.dtype == np.int64


def _check_numbering(graph: Graph, parts: int, division: Any) -> Any:
    found = number_vertices(graph, parts, division)
    n, capacity = graph.vertex_count, found.capacity
    assert capacity % LINE == 0
    assert capacity > 0
    assert found.count == parts * capacity
    assert found.owned.sum() == n
    assert len(set(found.position.tolist())) == n
    ins, outs = _degrees(graph)
    for part in range(parts):
        owned = int(found.owned[part])
        assert capacity - LINE < owned or part != int(found.owned.argmax()) or owned == 0
        first = part * capacity
        vertices = found.vertex[first : first + capacity].tolist()
        assert vertices[owned:] == [-1] * (capacity - owned)
        assert found.vertices(part).tolist() == vertices[:owned]
        for index, v in enumerate(vertices[:owned]):
            assert found.position[v] == first + index
            if division is not None and parts > 1:
                assert division.owner[v] == part
        bounds = found.classes[part].tolist()
        assert bounds[0] == 0
        assert bounds[6] == owned
        for k in range(6):
            own = vertices[bounds[k] : bounds[k + 1]]
            assert all(_class_of(ins[v], outs[v]) == k for v in own)
            key = (lambda v: (-ins[v], v)) if found.by_degree else (lambda v: v)
            assert own == sorted(own, key=key)
    return found


def _rows_on_host(rows: Any, owned: int, id_dtype: Any) -> tuple[Any, Any, Any]:
    offsets = rows.offsets.download(np.int64, owned + 1)
    targets = rows.targets.download(id_dtype, rows.arcs)
    return offsets, targets, rows.heads.download(id_dtype, owned)


def _check_rows(placed: StepPlacement, direction: Any, kind: str) -> None:
    graph = placed.graph if direction == "out" else placed.graph.reverse
    numbering, capacity = placed.numbering, placed.capacity
    found = placed.rows(direction, kind == "weighted", ordered=kind == "ordered")
    assert [
        one.arcs for one in placed.rows(direction, kind == "weighted", ordered=kind == "ordered")
    ] == [one.arcs for one in found]
    assert sum(one.arcs for one in found) == graph.arc_count
    for part, rows in zip(placed.parts, found, strict=True):
        assert rows.classes.tolist() == part.classes.tolist()
        offsets, targets, heads = _rows_on_host(rows, part.owned, placed.id_dtype)
        assert offsets[0] == 0
        assert offsets[-1] == rows.arcs
        if kind == "weighted":
            assert rows.weights is not None
            assert graph.weights is not None
            weights = rows.weights.download(graph.weights.dtype, rows.arcs)
            assert rows.weight_dtype == graph.weights.dtype
        for index, v in enumerate(numbering.vertices(part.device).tolist()):
            own = slice(graph.offsets[v], graph.offsets[v + 1])
            wanted = [int(numbering.position[u]) for u in graph.targets[own]]
            if kind == "hot":
                wanted.sort(key=lambda p: (p % capacity, p // capacity))
            begin, end = offsets[index], offsets[index + 1]
            assert targets[begin:end].tolist() == wanted
            assert heads[index] == (wanted[0] if wanted else -1)
            if kind == "weighted":
                assert graph.weights is not None
                assert weights[begin:end].tolist() == graph.weights[own].tolist()


def _partition_of(graph: Graph, parts: int, method: str | None) -> Any:
    return None if method is None or parts > graph.vertex_count else partition(graph, parts, method)


class TestRows:
    @pytest.mark.parametrize("parts", [1, 2, 3])
    @pytest.mark.parametrize("method", [None, "random"])
    @pytest.mark.parametrize("name", GRAPHS)
    def test_rows(self, emulated: Machine, name: str, method: str | None, parts: int) -> None:
        graph = GRAPHS[name]()
        division = _partition_of(graph, parts, method)
        placed = StepPlacement(_devices(parts), graph, division)
        with placed.held():
            for direction in ("out", "in"):
                kinds = ["hot", "ordered", *(["weighted"] if graph.is_weighted else [])]
                for kind in kinds:
                    _check_rows(placed, direction, kind)
            _check_vertices(placed)
        if not graph.directed:
            assert placed.rows("in") is placed.rows("out")
        assert placed.seconds.keys() >= {"number", "rows", "sort"}
        placed.close()
        placed.close()

    @pytest.mark.parametrize("parts", [1, 3])
    @pytest.mark.parametrize("graph_ids", ["int32", "int64"])
    @pytest.mark.parametrize("ids", ["int32", "int64"])
    def test_ids(self, emulated: Machine, parts: int, ids: str, graph_ids: str) -> None:
        made = GRAPHS["directed"]()
        graph = Graph(made.offsets, made.targets.astype(graph_ids), made.weights)
        placed = StepPlacement(_devices(parts), graph, id_dtype=ids)
        assert placed.id_dtype == ids
        with placed.held():
            _check_rows(placed, "in", "hot")
            _check_rows(placed, "out", "weighted")
            _check_vertices(placed)
        placed.close()

    @pytest.mark.parametrize("parts", [1, 2])
    def test_in_chunks_and_ranges(
        self, emulated: Machine, monkeypatch: pytest.MonkeyPatch, parts: int
    ) -> None:
        monkeypatch.setattr(step_rows, "CHUNK_ARCS", 1777)
        monkeypatch.setattr(step_rows, "_MOST_ARCS", 4500)
        sorted_counts: list[int] = []
        real_sort = vars(step_rows)["sort_keys"]

        def sort(keys: Any, count: int, stream: Any) -> None:
            sorted_counts.append(count)
            real_sort(keys, count, stream)

        monkeypatch.setattr(step_rows, "sort_keys", sort)
        placed = StepPlacement(_devices(parts), GRAPHS["several classes"]())
        with placed.held():
            _check_rows(placed, "out", "hot")
        assert len(sorted_counts) > parts
        assert max(sorted_counts) <= 4500
        placed.close()

    def test_few_bits_of_a_key(self, emulated: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(step_rows, "_KEY_BITS", 13 + 7)  # 128 rows in a range
        placed = StepPlacement(_devices(1), GRAPHS["several classes"]())
        assert placed.count == 6 * LINE
        with placed.held():
            _check_rows(placed, "out", "hot")
        placed.close()

    def test_too_large(self, emulated: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = GRAPHS["rmat"]()
        placed = StepPlacement(_devices(2), graph)
        with placed.held():
            with monkeypatch.context() as patch:
                patch.setattr(step_rows, "spare_bytes", lambda index: 100_000)
                wanted = r"cuda:0 needs .* has .*; cuda:1 needs"
                with pytest.raises(GraphTooLargeError, match=wanted):
                    placed.rows("out")
            assert emulated.held_bytes(0) == 0
            _check_rows(placed, "out", "hot")
        placed.close()

    def test_a_row_that_cannot_be_sorted(
        self, emulated: Machine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        placed = StepPlacement(_devices(1), GRAPHS["star"]())
        monkeypatch.setattr(step_rows, "_MOST_ARCS", 400)
        with placed.held():
            with pytest.raises(GraphTooLargeError, match="499 arcs"):
                placed.rows("out")
            monkeypatch.setattr(step_rows, "_MOST_ARCS", 1000)
            _check_rows(placed, "out", "hot")
        placed.close()

    def test_refused(self, emulated: Machine) -> None:
        graph = GRAPHS["path"]()
        with pytest.raises(InputError, match="2 parts, and 300 into 3"):
            StepPlacement(_devices(3), graph, partition(graph, 2))
        placed = StepPlacement(_devices(1), graph)
        with pytest.raises(InputError, match="no weights"):
            placed.rows("out", weighted=True)
        placed.close()
        with pytest.raises(ClosedContextError), placed.held():
            pass

    @pytest.mark.parametrize("method", [None, "random"])
    def test_beside_a_placed_graph(self, emulated: Machine, method: str | None) -> None:
        """What PlacedGraph hands out: of the user's partition, or of none; made once, closed with it."""
        graph = GRAPHS["rmat"]()
        placed = gw.place(graph, ["cuda:0", "cuda:1"], method)
        steps = place_positions(placed)
        assert isinstance(steps, StepPlacement)
        assert place_positions(placed) is steps
        division = None if method is None else placed.partition
        wanted = number_vertices(graph, 2, division)
        assert np.array_equal(steps.numbering.position, wanted.position)
        assert placed.seconds.keys() == {"partition", "place", "upload", "number"}
        with steps.held():
            steps.rows("out")
        placed.close()
        assert steps.closed
        with pytest.raises(ClosedContextError):
            _ = place_positions(placed)


def _check_vertices(placed: StepPlacement) -> None:
    numbering = placed.numbering
    for part, held in zip(placed.parts, placed.positions(), strict=True):
        found = held.download(placed.id_dtype, placed.vertex_count)
        assert np.array_equal(found, numbering.position)
        vertices = placed.vertices()[part.device].download(placed.id_dtype, part.owned)
        assert np.array_equal(vertices, numbering.vertices(part.device))
        ins, outs = _degrees(placed.graph)
        for direction, degrees in (("in", ins), ("out", outs)):
            lengths = placed.degrees(direction)[part.device]  # type: ignore[arg-type]
            wanted = [degrees[v] for v in vertices]
            assert lengths.download(np.int64, part.owned).tolist() == wanted
    some = np.arange(placed.vertex_count)[::-7]
    assert placed.vertex(placed.position(some)).tolist() == some.tolist()
    if placed.count > placed.vertex_count:
        empty = sorted(set(range(placed.count)) - set(numbering.position.tolist()))
        assert (placed.vertex(empty) == -1).all()


def _filled(placed: StepPlacement, values: Any) -> DeviceArray:
    """Each device's own vertices' values; everybody else's are garbage."""
    array = DeviceArray(placed)
    for part in placed.parts:
        everything = np.full(placed.count, 99, values.dtype)
        own = placed.numbering.vertices(part.device)
        everything[part.first : part.first + part.owned] = values[own]
        array.room(part, everything.nbytes).upload(everything)
    return array


_CONVERSIONS = [
    ("int32", "int64"),
    ("int32", "int32"),
    ("float32", "float64"),
    ("float64", "float64"),
    ("float64", "float32"),
    ("uint32", "int64"),
]


class TestResults:
    @pytest.mark.parametrize("locked", [False, True])
    @pytest.mark.parametrize("gpu", [None, 0, 1, GPUS - 1])
    @pytest.mark.parametrize("parts", [1, 2, 3])
    @pytest.mark.parametrize("kind", _CONVERSIONS, ids="-".join)
    def test_delivered(
        self,
        emulated: Machine,
        monkeypatch: pytest.MonkeyPatch,
        parts: int,
        gpu: int | None,
        locked: bool,
        kind: Any,
    ) -> None:
        monkeypatch.setattr(config, "thread_count", lambda: 3)
        monkeypatch.setattr(memory, "LEAST_LOCKED_BYTES", 0 if locked else 1 << 40)
        dtype, result_dtype = kind
        graph = GRAPHS["rmat"]()
        placed = StepPlacement(_devices(parts), graph)
        values = np.random.default_rng(1).integers(0, 50, graph.vertex_count).astype(dtype)
        array = _filled(placed, values)
        with placed.held():
            for _ in range(2):
                out, seconds = deliver_vertices(
                    placed, array, dtype, ResultLocation(gpu), result_dtype=result_dtype
                )
                assert seconds >= 0
                out = out if gpu is None else out.get()
                assert out.dtype == result_dtype
                assert np.array_equal(out, values.astype(result_dtype))
        assert placed.seconds["deliver"] > 0
        placed.close()

    @pytest.mark.parametrize("name", ["empty", "one vertex"])
    def test_little(self, emulated: Machine, name: str) -> None:
        graph = GRAPHS[name]()
        placed = StepPlacement(_devices(2), graph)
        values = np.full(graph.vertex_count, 5, np.int32)
        array = _filled(placed, values)
        with placed.held():
            out, _ = deliver_vertices(
                placed, array, np.int32, ResultLocation(), result_dtype=np.int64
            )
        assert out.dtype == np.int64
        assert out.tolist() == values.tolist()
        placed.close()

    @pytest.mark.parametrize("parts", [1, 3])
    @pytest.mark.parametrize("name", ["several classes", "directed", "empty", "one vertex"])
    @pytest.mark.parametrize("locked", [False, True])
    def test_arcs(
        self,
        emulated: Machine,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        parts: int,
        locked: bool,
    ) -> None:
        monkeypatch.setattr(memory, "LEAST_LOCKED_BYTES", 0 if locked else 1 << 40)
        graph = GRAPHS[name]()
        placed = StepPlacement(_devices(parts), graph)
        wanted = np.random.default_rng(5).random(graph.arc_count)
        array = DeviceArray(placed)
        with placed.held():
            for part, rows in zip(placed.parts, placed.rows("out", ordered=True), strict=True):
                own = [wanted[graph.offsets[v] : graph.offsets[v + 1]] for v in
                       placed.numbering.vertices(part.device)]  # fmt: skip
                together = np.concatenate([np.empty(0), *own])
                assert len(together) == rows.arcs
                array.room(part, together.nbytes).upload(together)
            out = np.zeros(graph.arc_count)
            deliver_arcs(placed, array, out)
        assert np.array_equal(out, wanted)
        placed.close()


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("numba_cuda", "cuda")),
    reason="no compilers (extra 'cuda')",
)
class TestCompiled:
    @pytest.mark.parametrize("kind", _CONVERSIONS, ids="-".join)
    def test_results(self, kind: Any) -> None:
        conversion = delivery.Conversion(np.dtype(kind[0]), np.dtype(kind[1]))
        source = delivery.source(conversion, np.dtype(np.int32))
        assert compiled_for(source, "90")[:4] == b"\x7fELF"


COUNT = driver.device_count()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("indexes", [[0], [0, 0], [0] * 3, list(range(COUNT))], ids=str)
class TestOnGpus:
    @pytest.mark.parametrize("name", ["several classes", "directed", "road", "empty", "star"])
    @pytest.mark.parametrize("method", [None, "random"])
    def test_rows(self, indexes: list[int], name: str, method: str | None) -> None:
        graph = GRAPHS[name]()
        devices = [Device(f"cuda:{index}", "cuda") for index in indexes]
        placed = StepPlacement(devices, graph, _partition_of(graph, len(devices), method))
        with placed.held():
            _check_rows(placed, "out", "hot")
            _check_rows(placed, "in", "hot")
            if graph.is_weighted:
                _check_rows(placed, "in", "weighted")
            _check_vertices(placed)
        placed.close()

    @pytest.mark.parametrize("home", ["host", "cuda:0", f"cuda:{max(0, COUNT - 1)}"])
    def test_results(self, indexes: list[int], home: str) -> None:
        if home != "host":
            pytest.importorskip("cupy")
        graph = gw.generate("rmat:18,seed=1")
        devices = [Device(f"cuda:{index}", "cuda") for index in indexes]
        placed = StepPlacement(devices, graph)
        values = np.arange(graph.vertex_count, dtype=np.int32) - 5
        where = ResultLocation.named(home)
        array = _filled(placed, values)
        with placed.held():
            found, _ = deliver_vertices(placed, array, np.int32, where, result_dtype=np.int64)
        wanted = values.astype(np.int64)
        assert np.array_equal(found if home == "host" else found.get(), wanted)
        placed.close()
