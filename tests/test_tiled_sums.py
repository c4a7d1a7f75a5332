"""Sums by tiles: what tiles contain, and ranks by tiles against those of the CPU and of rows.

Without a GPU the very kernels run on emulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms.pagerank.cuda import RankOutcome, RankQuery, rank_on_gpus
from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array
from godwit.errors import GraphTooLargeError
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.registry import resolve_devices
from godwit.supersteps import tiled_rows
from godwit.supersteps.arrays import StepPart
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.tiled_rows import (
    SUM_TILE,
    TILE_SLOTS,
    TILED_ARCS,
    KeptTiles,
    SourceBins,
    TiledRows,
)
from gpu_endpoints import COUNTS, names_of, needs_gpu, on_endpoints
from graphs import each_graph, named_graph

DAMPING = 0.85


def ask(placement: StepPlacement, dtype: str = "float64", **given: Any) -> RankOutcome:
    """Ask for ranks by tiles, unless told otherwise."""
    settings: dict[str, Any] = {
        "weighted": False, "teleport": None, "start": None, "damping": DAMPING, "tolerance": 1e-9,
        "max_iterations": 200, "accelerated": False, "location": ResultLocation(),
        "gpu": GpuOptions(), "tiled": True, **given,
    }  # fmt: skip
    return rank_on_gpus(placement, RankQuery(np.dtype(dtype), **settings), None)


def check(placement: StepPlacement, dtype: str = "float64", **given: Any) -> RankOutcome:
    """Compare ranks by tiles with exact ones after as many iterations.

    Their distance in sum is what rounding ranks makes of it.
    """
    given = {"tolerance": 1e-9 if dtype == "float64" else 1e-6, **given}
    found = ask(placement, dtype, **given)
    assert placement.kept(KeptTiles)
    exact = gw.pagerank(
        placement.graph, devices="cpu", tolerance=given["tolerance"], max_iterations=found.iterations,
        weighted=given.get("weighted", False), accelerated=given.get("accelerated", False),
        personalization=given.get("teleport"), initial=given.get("start"),
        damping=given.get("damping", DAMPING),
    )  # fmt: skip
    if dtype == "float64":
        assert exact.iterations == found.iterations
    error = np.abs(host_array(found.rank).astype(np.float64) - exact.rank).sum()
    of_cpu = placement.vertex_count * np.finfo(np.float64).eps  # its sums of all ranks are rounded
    assert error <= (1e-14 + of_cpu if dtype == "float64" else 2e-6)
    return found


@contextmanager
def placed(graph: Graph, devices: list[str]) -> Iterator[StepPlacement]:
    """Place a graph for as long as the block lasts."""
    placement = StepPlacement(resolve_devices(devices), graph)
    try:
        yield placement
    finally:
        placement.close()


def has_targets(placement: StepPlacement) -> bool:
    """Return True if devices have rows, besides tiles."""
    arrays = placement.row_arrays.values()
    return any(targets for one in arrays for targets in one.targets.values())


def distributions(graph: Graph) -> dict[str, Any]:
    """Return a distribution of restarts and one of the beginning."""
    generator = np.random.default_rng(graph.vertex_count)
    found = {}
    for name in ("teleport", "start"):
        values = generator.integers(0, 4, graph.vertex_count).astype(float)
        values[0] += 1
        found[name] = values / values.sum()
    return found


class TestEmulated:
    @pytest.fixture(autouse=True, params=COUNTS)
    def devices(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[list[str]]:
        monkeypatch.setattr(tiled_rows, "LEAST_TILE_WORK", 60)
        with emulated_gpus(request.param):
            yield names_of(request.param)

    @each_graph
    def test_ranks_are_exact(self, name: str, devices: list[str]) -> None:
        with placed(named_graph(name), devices) as placement:
            if placement.vertex_count:
                found = check(placement)
                assert found.residual < 1e-9 or found.iterations == 200

    @pytest.mark.parametrize(("dtype", "weighted"), [("float32", True), ("float64", False)])
    def test_of_weighted_and_personalized_ranks(
        self, dtype: str, weighted: bool, devices: list[str]
    ) -> None:
        for directed in (True, False):
            graph = gw.generators.rmat(8, 6, seed=1, symmetrize=not directed, weights=(0, 9))
            with placed(graph, devices) as placement:
                for accelerated in {False, not directed}:
                    asked: dict[str, Any] = {"weighted": weighted, "accelerated": accelerated}
                    check(placement, dtype, **asked)
                    check(placement, dtype, **asked, **distributions(graph))
                    check(placement, dtype, **asked, damping=0.0)

    def test_rows_that_only_tiles_need_are_freed(self, devices: list[str]) -> None:
        graph = named_graph("random undirected")
        with placed(graph, devices) as placement:
            for _ in range(2):
                check(placement)
                check(placement, "float32", weighted=True)
                assert not has_targets(placement)
            exact = ask(placement, tiled=False).rank
            assert has_targets(placement)
            np.testing.assert_allclose(ask(placement).rank, exact, rtol=1e-12)
            assert has_targets(placement)

    def test_tiles_have_all_arcs(self, devices: list[str]) -> None:
        for name in ("random undirected", "random directed", "star", "path"):
            with placed(named_graph(name), devices) as placement:
                rows = placement.rows("in")
                tiled = TiledRows(placement, rows)
                for part, own in zip(placement.parts, rows, strict=True):
                    offsets = own.offsets.download(np.int64, part.owned + 1)
                    targets = own.targets.download(np.int32, own.arcs)
                    lengths = np.diff(offsets)
                    expected = np.column_stack((np.repeat(np.arange(part.owned), lengths), targets))
                    found = arcs_of_tiles(tiled, part)
                    order = np.lexsort(expected.T[::-1])
                    assert found[np.lexsort(found.T[::-1])].tolist() == expected[order].tolist()

    def test_more_rows_than_slots(self, devices: list[str]) -> None:
        n = TILE_SLOTS * len(devices) + 100
        with placed(gw.generators.path(n), devices) as placement:
            check(placement, max_iterations=2)


def arcs_of_tiles(tiled: TiledRows, part: StepPart) -> Array:
    """Return (local row, source) of each arc of a device's tiles."""
    member = np.zeros((), TILED_ARCS)
    tiled.point(part, member)
    tiles = tiled.tiles[part].download(SUM_TILE, int(member["count"]))
    words = tiled.arcs[part].download(np.uint32, tiled.arcs[part].nbytes // 4).reshape(-1, 128)
    begins = tiled.begins[part].download(np.uint32, len(words))
    bits = TILE_SLOTS.bit_length()
    found = [np.empty((0, 2), np.int64)]
    for tile in tiles:
        chunks = slice(tile["chunk"], tile["chunk"] + tile["chunks"])
        slots = words[chunks] & TILE_SLOTS
        rows = tile["row"] + (slots >> tile["log_slots"])
        sources = (words[chunks] >> bits) + begins[chunks, None]
        is_arc = slots != TILE_SLOTS
        assert (rows[is_arc] < tile["row"] + tile["rows"]).all()
        found.append(np.column_stack((rows[is_arc], sources[is_arc])).astype(np.int64))
    return np.concatenate(found)


@pytest.mark.parametrize("capacity", [1024, 5120, 300 * 1024, 3 * 1024 * 1024])
def test_bins_ascend_and_lie_in_one_range(capacity: int) -> None:
    source = SourceBins.of(capacity, 2, 8)
    local = np.arange(capacity)
    width = np.maximum(0, np.floor(np.log2(np.maximum(local, 1))).astype(np.int64) - 8)
    bins = (width << 8) + (local >> width)
    assert bins[-1] + 1 == source.bins
    assert (np.diff(bins) >= 0).all()
    borders = np.arange(1 << 18, capacity, 1 << 18)
    assert (bins[borders] > bins[borders - 1]).all()


class TestSchedules:
    def test_no_schedule_changes_a_bit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiled_rows, "LEAST_TILE_WORK", 60)
        graph = gw.generators.rmat(7, 6, seed=3, symmetrize=False)
        found = set()
        for seed in range(4):
            with emulated_gpus(2, seed=seed), placed(graph, names_of(2)) as placement:
                for gpu in (GpuOptions(), GpuOptions(slice_s=0)):
                    outcome = ask(placement, "float32", gpu=gpu, max_iterations=4)
                    found.add((host_array(outcome.rank).tobytes(), outcome.residual))
        assert len(found) == 1

    def test_nothing_races(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiled_rows, "LEAST_TILE_WORK", 60)
        graph = gw.generators.rmat(6, 6, seed=3, weights=(0, 9))
        with emulated_gpus(2, seed=1, checks=True), placed(graph, names_of(2)) as placement:
            check(placement, "float32", weighted=True, max_iterations=3)

    def test_where_tiles_are_chosen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiled_rows, "LEAST_GAINING_ARCS", 1000)
        with emulated_gpus(1):
            for graph, tiles in (
                (gw.generators.rmat(8, 8, seed=1), True),
                (gw.generate("road:40x40,seed=1"), False),
                (gw.generators.rmat(5, 4, seed=1), False),
            ):
                with placed(graph, ["cuda:0"]) as placement:
                    ask(placement, max_iterations=3, tiled=None)
                    assert bool(placement.kept(KeptTiles)) == tiles

    def test_row_by_row_where_tiles_do_not_fit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiled_rows, "LEAST_GAINING_ARCS", 1000)
        graph = gw.generators.rmat(8, 8, seed=1)

        def too_large(*_: Any) -> TiledRows:
            raise GraphTooLargeError("cuda:0 needs 9.0 GiB and has 1.0 GiB free")

        monkeypatch.setattr(tiled_rows, "TiledRows", too_large)
        with emulated_gpus(1), placed(graph, ["cuda:0"]) as placement:
            exact = gw.pagerank(graph, devices="cpu", tolerance=1e-9, accelerated=False)
            for _ in range(2):
                found = ask(placement, tiled=None)
                np.testing.assert_allclose(found.rank, exact.rank, rtol=1e-12)
            with pytest.raises(GraphTooLargeError, match=r"cuda:0 needs .* and has .* free"):
                ask(placement)


@pytest.mark.gpu
@needs_gpu
class TestOnGpus:
    @on_endpoints
    @each_graph
    def test_ranks_are_exact(self, name: str, devices: list[str]) -> None:
        with placed(named_graph(name), devices) as placement:
            if placement.vertex_count:
                check(placement)

    @on_endpoints
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_larger_graphs(self, dtype: str, devices: list[str]) -> None:
        for directed in (True, False):
            graph = gw.generators.rmat(17, 6, seed=1, symmetrize=not directed, weights=(0, 9))
            with placed(graph, devices) as placement:
                for weighted in (False, True):
                    for given in ({}, distributions(graph)):
                        for accelerated in {False, not directed}:
                            first, again = (
                                check(placement, dtype, weighted=weighted,
                                      accelerated=accelerated, **given)
                                for _ in range(2)
                            )  # fmt: skip
                            assert first.rank.tobytes() == again.rank.tobytes()
