"""Graphs made on a GPU: equal to the CPU's bit by bit, whatever the arguments, the memory and the ranges.

Without a GPU the very kernels run on an emulated one, and are compiled for real ones.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import godwit as gw
from architectures import compiled_for
from emulated_gpu import COMPILER, EmulatedBuffer, emulate
from godwit.cli.application import app
from godwit.errors import DeviceError, GraphTooLargeError, InputError
from godwit.graph.cuda import rows as gpu_rows
from godwit.graph.cuda.builder import TILE, GraphBuilder, kernel_source
from godwit.graph.cuda.stored import RowsOnGpu
from godwit.graph.generators.cuda import GENERATORS, grid, rmat, road
from godwit.graph.rows import Rows
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.transfer.copies import download
from godwit.runtime.protocol import Device

Arrays = tuple[np.ndarray[Any, Any], ...]

WEIGHTS = [None, (1, 64), (0.0, 1.0)]
PARAMETERS = ["graph500", "gtgraph", (0.25, 0.25, 0.25), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)]
SEEDS = [0, 1, -7, 2**70]


def assert_same(made: gw.Graph, expected: gw.Graph) -> None:
    assert made.directed == expected.directed
    assert_same_rows(made.rows, expected.rows)


def assert_same_rows(made: Rows | RowsOnGpu | None, expected: Rows) -> None:
    assert made is not None
    for one, other in zip(made.on_host(), expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


def rmat_settings(scale: int) -> list[tuple[int, dict[str, Any]]]:
    """Every combination of the flags, with other edge factors, weights, seeds and parameters each time."""
    flags = itertools.product((True, False), repeat=2)
    return [
        (
            (0, 1, 3, 16)[(scale + i) % 4],
            {
                "symmetrize": symmetrize,
                "simple": simple,
                "weights": WEIGHTS[(scale + i) % len(WEIGHTS)],
                "seed": SEEDS[(scale // 2 + i) % len(SEEDS)],
                "parameters": PARAMETERS[(scale + 2 * i) % len(PARAMETERS)],
            },
        )
        for i, (symmetrize, simple) in enumerate(flags)
    ]


def random_arcs(count: int, n: int, dtype: str, weights: str | None, seed: int) -> Arrays:
    """Sources, targets and weights, of which many are parallel, and all weights differ."""
    generator = np.random.default_rng(seed)
    ends = generator.integers(0, n, (2, count)).astype(dtype)
    given = () if weights is None else (generator.permutation(count).astype(weights),)
    return (*ends, *given)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated-kernels")


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, compiled: Path) -> Callable[..., None]:
    """What makes an emulated GPU with so much memory."""
    if COMPILER is None:
        pytest.skip("no g++ to compile kernels for this machine")
    emulate(monkeypatch, compiled)
    return lambda free_bytes: emulate(monkeypatch, compiled, free_bytes)


@pytest.mark.usefixtures("emulated")
class TestEmulated:
    @pytest.mark.parametrize("scale", range(8))
    def test_rmat_is_the_same(self, scale: int) -> None:
        for edge_factor, settings in rmat_settings(scale):
            expected = gw.generators.rmat(scale, edge_factor, **settings)
            assert_same(rmat(scale, edge_factor, **settings), expected)

    @pytest.mark.parametrize("arcs_at_once", [1, 100, 300])
    def test_rmat_in_ranges(self, arcs_at_once: int) -> None:
        for simple in (True, False):
            expected = gw.generators.rmat(6, 8, simple=simple, weights=(1, 64), seed=5)
            made = rmat(6, 8, simple=simple, weights=(1, 64), seed=5, arcs_at_once=arcs_at_once)
            assert_same(made, expected)

    @pytest.mark.parametrize(
        "size", [(1, 1), (1, 9), (9, 1), (2, 2), (31, 33), (40, 77), (1, 2100), (2100, 1)]
    )
    def test_road_is_the_same(self, size: tuple[int, int]) -> None:
        for i, keep in enumerate((0.0, 0.3, 0.6, 1.0)):
            settings: dict[str, Any] = {
                "keep": keep,
                "seed": SEEDS[i],
                "weights": (None, (-5, 2**40))[(size[0] + i) % 2],
            }
            assert_same(road(*size, **settings), gw.generators.road(*size, **settings))

    def test_grid_is_the_same(self) -> None:
        assert_same(grid(23, seed=3), gw.generators.grid(23, seed=3))

    @pytest.mark.parametrize("directed", [True, False])
    @pytest.mark.parametrize(
        ("dtype", "weights"),
        [("int32", None), ("int64", None), ("int32", "float32"), ("int64", "int64")],
    )
    def test_arcs_are_built_the_same(self, directed: bool, dtype: str, weights: str | None) -> None:
        for count, n in ((1, 1), (5, 3), (300, 20), (3000, 1000)):
            given = random_arcs(count, n, dtype, weights, seed=count)
            padded: Any = (*given, None)[:3]
            for vertex_count in (None, n, n + 70):
                graph = gw.Graph.from_edges(*given, vertex_count=vertex_count, directed=directed)
                made = gpu_rows.rows_of_gpu_arrays(*padded, vertex_count, directed, None)
                assert_same_rows(made, graph.rows)

    def test_arcs_that_the_host_shall_judge(self) -> None:
        def made(sources: Any, targets: Any, *others: Any) -> Any:
            weights, vertex_count, id_dtype = (*others, None, None, None)[:3]
            ends = (np.array(sources, np.int32), np.array(targets, np.int32))
            return gpu_rows.rows_of_gpu_arrays(*ends, weights, vertex_count, True, id_dtype)

        assert made([0, 1], [1, 0]) is not None
        assert made([0, -1], [1, 0]) is None
        assert made([0, 1], [1, 2], None, 2) is None
        assert made([0, 1], [1, 0], None, -1) is None
        assert made([0, 1], [1, 0], None, None, "int16") is None
        assert made([0, 1, 1], [1, 0]) is None
        assert made([], []) is None
        assert made([0, 1], [1, 0], np.ones(2, np.float16)) is None
        assert made([0, 1], [1, 0], np.ones(3)) is None
        assert gpu_rows.rows_of_gpu_arrays(np.ones(2), np.ones(2), None, None, True, None) is None

    def test_what_does_not_fit_at_once_is_built_in_ranges(
        self, emulated: Callable[..., None]
    ) -> None:
        expected = gw.generators.rmat(12, 16, seed=3)
        reserved = 64 << 20
        seconds: dict[str, float] = {}
        emulated(int(reserved * 1.04) + (1 << 18))  # some 250 KB, and all arcs need 2 MB
        assert_same(rmat(12, 16, seed=3, seconds=seconds), expected)
        assert set(seconds) == {
            "compile",
            "count",
            "distribute",
            "sort",
            "merge",
            "rows",
            "download",
        }
        emulated(reserved)
        with pytest.raises(
            GraphTooLargeError, match=r"scale 12 .* on cuda:0, and 0 B are available"
        ):
            rmat(12, 16, seed=3)
        with pytest.raises(GraphTooLargeError, match=r"100 x 100 needs some .* on cuda:0"):
            road(100)
        given = random_arcs(30_000, 10, "int32", None, seed=1)
        assert gpu_rows.rows_of_gpu_arrays(*given, None, None, True, None) is None

    def test_arguments_are_judged_as_on_the_cpu(self) -> None:
        with pytest.raises(InputError, match="scale must not be negative, got -1"):
            rmat(-1)
        with pytest.raises(InputError, match="parameters must be"):
            rmat(4, parameters="none")
        with pytest.raises(InputError, match="keep must be a probability"):
            road(4, keep=1.5)
        with pytest.raises(InputError, match="weights must be"):
            road(4, weights=(5, 1))

    def test_a_graph_too_large_for_the_host_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GODWIT_MEMORY_BYTES", "1000")
        for make in (lambda: rmat(10), lambda: road(100)):
            with pytest.raises(GraphTooLargeError, match="1,000 B are available"):
                make()

    def test_many_tiles_are_summed_up(self) -> None:
        source = kernel_source("graph/generators/grid_kernels.cuh", Id="i32", Weights="NoWeights")
        counts = np.random.default_rng(1).integers(0, TILE + 1, 5000).astype(np.uint64)
        for count in (0, 1, 31, 1023, 1024, 1025, 5000):
            with GraphBuilder(0, source) as shop, EmulatedBuffer(0, 8 * (count + 1)) as tiles:
                tiles.inside[: 8 * count] = counts[:count].view(np.uint8)
                tiles_of_the_gpu: Any = tiles
                assert shop.sum_up(tiles_of_the_gpu, count) == counts[:count].sum()
                sums = np.concatenate(([0], np.cumsum(counts[:count]))).astype(np.uint64)
                assert tiles.download(np.uint64, count + 1).tolist() == sums.tolist()


class TestCompiles:
    """For real GPUs, which need not be there."""

    @pytest.fixture(autouse=True)
    def _compilers(self) -> None:
        if importlib.util.find_spec("cuda") is None:
            pytest.skip("not installed: cuda-bindings (extra 'cuda')")

    @pytest.mark.parametrize("architecture", ["80", "90"])
    @pytest.mark.parametrize(
        ("file", "types"),
        [
            ("graph/cuda/build_rows.cuh", {"Edges": "RmatEdges", "Weights": "FloatWeights"}),
            (
                "graph/cuda/build_rows.cuh",
                {"Edges": "GivenEdges<i64>", "Weights": "IntegerWeights<i64>"},
            ),
            ("graph/generators/grid_kernels.cuh", {"Weights": "IntegerWeights<i32>"}),
        ],
    )
    def test_kernels(self, architecture: str, file: str, types: dict[str, str]) -> None:
        word = {"Word": "u64"} if "build_rows" in file else {}
        source = kernel_source(file, Id="i32", **word, **types)
        assert compiled_for(source, architecture)[:4] == b"\x7fELF"


class TestAsked:
    """``device=`` of the functions and of the command line."""

    @staticmethod
    def pretend(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        found = tuple(Device(name, "cuda") for name in names)
        monkeypatch.setattr("godwit.runtime.registry.resolve_devices", lambda device: found)

    def test_by_name(self) -> None:
        expected = gw.generate("rmat:6,seed=2,copies=2")
        assert_same(gw.generate("rmat:6,seed=2,copies=2", device="cpu"), expected)
        for wrong in (0, ["cpu"], b"cpu"):
            with pytest.raises(InputError, match="device must be a name such as 'cuda:0'"):
                gw.generate("rmat:6", device=wrong)  # type: ignore[arg-type]

    def test_what_is_not_there(self) -> None:
        with pytest.raises(DeviceError, match="there is no device 'cuda:4711'"):
            gw.generate("rmat:6", device="cuda:4711")
        with pytest.raises(InputError, match="expected rmat:SCALE"):
            gw.generate("rmat:x", device="cuda:4711")

    def test_several(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pretend(monkeypatch, "cuda:0", "cuda:1")
        with pytest.raises(InputError, match="device must be one, as 'cuda:0' is"):
            gw.generate("rmat:6", device="cuda")

    def test_the_gpu_that_was_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pretend(monkeypatch, "cuda:3")
        asked: list[Any] = []

        def make(*arguments: Any, **keywords: Any) -> gw.Graph:
            asked.append((arguments, keywords))
            return gw.generators.path(3)

        monkeypatch.setitem(GENERATORS, "rmat", make)
        graph = gw.generate("rmat:6,seed=2,copies=2", device="cuda:3")
        assert graph.vertex_count == 6
        assert asked == [((6,), {"seed": 2, "index": 3})]

    def test_generators_that_a_gpu_does_not_have(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pretend(monkeypatch, "cuda:0")
        with pytest.raises(InputError, match=r"watts-strogatz .* cuda:0; .* rmat, road, grid"):
            gw.generate("watts-strogatz:50", device="cuda:0")

    def test_on_the_command_line(self, tmp_path: Path) -> None:
        path = tmp_path / "graph.godwit"
        found = CliRunner().invoke(app, ["generate", "rmat:6", str(path), "--device", "cpu"])
        assert found.exit_code == 0
        assert_same(gw.read(path), gw.generators.rmat(6))
        wrong = CliRunner().invoke(app, ["generate", "rmat:6", str(path), "--device", "cuda:4711"])
        assert wrong.exit_code != 0


def test_arrays_on_the_host_stay_there() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_rows, "rows_of_gpu_arrays", lambda *_: pytest.fail("arrays of the host"))
        assert gw.Graph.from_edges([0, 1], np.array([1, 0])).arc_count == 2


def test_arrays_on_a_gpu_are_built_there() -> None:
    class Elsewhere:
        def __init__(self) -> None:
            self.__cuda_array_interface__: dict[str, Any] = {}

    rows = Rows(np.array([0, 1, 1]), np.array([1], np.int32), np.array([0.5]))
    asked: list[Any] = []

    def build(*arcs: Any) -> Rows:
        asked.append(arcs)
        return rows

    sources, targets = Elsewhere(), Elsewhere()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_rows, "rows_of_gpu_arrays", build)
        graph = gw.Graph.from_edges(sources, targets, vertex_count=2, directed=False, ids=[7, 9])
    assert asked == [(sources, targets, None, 2, False, None)]
    assert_same(graph, gw.Graph.trusted(*rows, directed=False))
    assert graph.ids.position(9) == 1


@pytest.mark.gpu
class TestOnGpu:
    @pytest.fixture(autouse=True)
    def _gpu(self) -> None:
        if driver.device_count() == 0:
            pytest.skip(driver.why_not())
        pytest.importorskip("cupy")

    @pytest.mark.parametrize("scale", range(13))
    def test_rmat_is_the_same(self, scale: int) -> None:
        for edge_factor, settings in rmat_settings(scale):
            expected = gw.generators.rmat(scale, edge_factor, **settings)
            for arcs_at_once in (1000, 2**31 - 1):
                made = rmat(scale, edge_factor, **settings, arcs_at_once=arcs_at_once)
                assert_same(made, expected)

    @pytest.mark.parametrize("weights", [None, (1, 64), (-5, 2**40), (0.0, 1.0), (-1, 3.5)])
    def test_larger_ones_are_the_same(self, weights: Any) -> None:
        assert_same(
            rmat(18, 16, seed=4, weights=weights),
            gw.generators.rmat(18, 16, seed=4, weights=weights),
        )
        assert_same(
            road(1100, 1300, seed=4, weights=weights),
            gw.generators.road(1100, 1300, seed=4, weights=weights),
        )

    @pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (31, 33), (1, 5000), (5000, 1)])
    def test_road_is_the_same(self, size: tuple[int, int]) -> None:
        for i, keep in enumerate((0.0, 0.3, 0.6, 1.0)):
            settings: dict[str, Any] = {"keep": keep, "seed": SEEDS[i], "weights": WEIGHTS[i % 3]}
            assert_same(road(*size, **settings), gw.generators.road(*size, **settings))

    def test_as_asked_for_by_text(self, tmp_path: Path) -> None:
        spec = "road:90x70,keep=0.7,weights=1..9,copies=2"
        assert_same(gw.generate(spec, device="cuda:0"), gw.generate(spec))
        path = tmp_path / "graph.godwit"
        found = CliRunner().invoke(
            app, ["generate", "rmat:10", str(path), "--device", "cuda:0", "--json"]
        )
        assert json.loads(found.output)["output"] == str(path)
        assert_same(gw.read(path), gw.generators.rmat(10))

    def test_bring_down(self) -> None:
        values = np.random.default_rng(1).integers(0, 2**60, 9_000_001)
        with memory.Buffer(0, values.nbytes) as buffer:
            stream = driver.Stream(0)
            driver.copy_async(buffer.pointer, values.ctypes.data, values.nbytes, stream)
            stream.synchronize()
            found = np.zeros_like(values)
            download(0, buffer.pointer, found)
        assert np.array_equal(found, values)

    @pytest.mark.parametrize("library", ["cupy", "torch"])
    @pytest.mark.parametrize("directed", [True, False])
    @pytest.mark.parametrize(
        ("dtype", "weights"),
        [("int32", None), ("int64", None), ("int32", "float32"), ("int64", "int64")],
    )
    @pytest.mark.filterwarnings("default")  # of libraries that are what they are on the machine
    def test_arcs_are_built_the_same(
        self, library: str, directed: bool, dtype: str, weights: str | None
    ) -> None:
        module = pytest.importorskip(library)
        to_gpu = module.asarray if library == "cupy" else lambda a: module.from_numpy(a).cuda()
        for count, n in ((1, 1), (300, 20), (200_000, 5000)):
            given = random_arcs(count, n, dtype, weights, seed=count)
            expected = gw.Graph.from_edges(*given, directed=directed)
            there = [to_gpu(one) for one in given]
            padded: Any = (*there, None)[:3]
            rows = gpu_rows.rows_of_gpu_arrays(*padded, None, directed, None)
            assert_same_rows(rows, expected.rows)
            assert_same(gw.Graph.from_edges(*there, directed=directed), expected)
            strided = [to_gpu(np.repeat(one, 2))[::2] for one in given]
            assert_same(gw.Graph.from_edges(*strided, directed=directed), expected)
        pairs = to_gpu(np.stack(given[:2]))
        assert_same(gw.Graph.from_edge_index(pairs), gw.Graph.from_edges(*given[:2]))

    def test_wrong_ids_are_named(self) -> None:
        cupy = pytest.importorskip("cupy")
        ids = cupy.array([0, 5, -1])
        with pytest.raises(InputError, match=r"sources\[2\] must be a vertex in \[0, 6\), got -1"):
            gw.Graph.from_edges(ids, cupy.array([1, 1, 1]))
        with pytest.raises(InputError, match=r"targets\[1\] must be a vertex in \[0, 4\), got 5"):
            gw.Graph.from_edges(cupy.array([1, 1, 1]), abs(ids), vertex_count=4)

    @pytest.mark.alone
    def test_memory_is_given_back(self) -> None:
        def make(seed: int) -> int:
            rmat(18, seed=seed, weights=(1, 9))
            road(1500, seed=seed)
            return memory.free_memory_bytes(0)

        before = make(0)  # with all kernels loaded
        assert min(make(seed) for seed in (1, 2, 3)) >= before - (16 << 20)
