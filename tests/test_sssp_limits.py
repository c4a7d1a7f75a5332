"""Shortest paths whose sums come near the limits of integers are exact or raise ValueOverflowError."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import COMPILER, emulated_gpus
from godwit.errors import InputError, ValueOverflowError

UNREACHED = 2**63 - 1
LARGEST = 2**63 - 3
"""Distances up to this are exact."""

DEVICES: list[Any] = ["cpu", ["cpu:0", "cpu:1", "cpu:2"]]

ADVERSARIAL = sorted(
    {
        abs(sign + base)
        for base in (0, 2**7, 2**15, 2**16, 2**31, 2**32, 2**33, 2**40, 2**53, 2**61, 2**62, 2**63)
        for sign in (-2, -1, 0, 1)
        if abs(sign + base) < 2**63
    }
)


def exact_distances(graph: gw.Graph, source: int) -> list[int | None]:
    """Dijkstra's algorithm on Python's integers; None for what is not reached."""
    distance: list[int | None] = [None] * graph.vertex_count
    heap = [(0, source)]
    while heap:
        near, u = heapq.heappop(heap)
        if distance[u] is not None:
            continue
        distance[u] = near
        for arc in range(int(graph.offsets[u]), int(graph.offsets[u + 1])):
            weight = 1 if graph.weights is None else int(graph.weights[arc])
            heapq.heappush(heap, (near + weight, int(graph.targets[arc])))
    return distance


def check(graph: gw.Graph, source: int, **options: Any) -> None:
    """Assert that distances are those of exact arithmetic, or that it says that they do not fit."""
    cutoff = options.get("cutoff")
    within = [
        None if one is None or (cutoff is not None and one > cutoff) else one
        for one in exact_distances(graph, source)
    ]
    wanted = [UNREACHED if one is None else one for one in within]
    if not all(one is None or one <= LARGEST for one in within):
        with pytest.raises(ValueOverflowError, match=r"2\^63"):
            gw.sssp(graph, source, **options)
        return
    result = gw.sssp(graph, source, timeout_s=60, **options)
    assert result.distance.tolist() == wanted
    gw.verify_sssp(graph, source, result.distance) if cutoff is None else None


@st.composite
def graphs(draw: st.DrawFn) -> gw.Graph:
    """Small graphs with cycles, and weights at the limits of their dtypes."""
    n = draw(st.integers(1, 6))
    m = draw(st.integers(0, 12))
    ends = st.lists(st.integers(0, n - 1), min_size=m, max_size=m)
    dtype = draw(st.sampled_from(["uint32", "int64"]))
    top = min(np.iinfo(dtype).max, 2**63 - 1)
    weights = st.sampled_from([one for one in ADVERSARIAL if one <= top])
    return gw.Graph.from_edges(
        draw(ends), draw(ends),
        np.array(draw(st.lists(weights, min_size=m, max_size=m)), dtype),
        vertex_count=n, directed=draw(st.booleans()),
    )  # fmt: skip


CUTOFFS = st.one_of(st.none(), st.just(float("inf")), st.sampled_from(ADVERSARIAL))


@pytest.mark.parametrize("devices", DEVICES, ids=str)
class TestCpu:
    @settings(deadline=None)  # the first runs compile
    @given(graphs(), CUTOFFS)
    def test_adversarial_weights(self, devices: Any, graph: gw.Graph, cutoff: Any) -> None:
        check(graph, 0, devices=devices, cutoff=cutoff)

    def test_in_supersteps(self, devices: Any) -> None:
        graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 0], [2**62, 2**61, 5], directed=False)
        check(graph, 0, devices=devices, execution="bulk-synchronous")

    @pytest.mark.parametrize("weight", [2**32 - 1, 2**33 - 1, 2**40 - 1, 2**62 - 1, 2**62])
    def test_one_undirected_edge(self, devices: Any, weight: int) -> None:
        check(gw.Graph.from_edges([0], [1], [weight], directed=False), 0, devices=devices)
        check(
            gw.Graph.from_edges([0, 1], [1, 1], [weight, weight], directed=False),
            0,
            devices=devices,
        )

    def test_a_road_of_sentinels(self, devices: Any) -> None:
        road = gw.generators.grid(60, 60)
        weights = np.full(road.arc_count, 2**32 - 1, np.uint32)
        graph = gw.Graph(road.offsets, road.targets, weights, directed=False)
        distance = gw.sssp(graph, 0, devices=devices, timeout_s=60).distance
        hops = gw.bfs(graph, 0, devices="cpu").distance
        assert np.array_equal(distance, hops.astype(np.int64) * (2**32 - 1))

    def test_a_target_before_the_sums_that_do_not_fit(self, devices: Any) -> None:
        graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 3], [5, 2**62, 2**62 + 9], directed=True)
        assert gw.sssp(graph, 0, target=1, devices=devices).distance[1] == 5
        with pytest.raises(ValueOverflowError, match=r"2\^63"):
            gw.sssp(graph, 0, devices=devices)

    def test_programs_of_users(self, devices: Any) -> None:
        program = gw.VertexProgram(
            "sums", lambda value, weight: value + weight, "min", dtype="int32", initial=2**31 - 1
        )
        graph = gw.Graph.from_edges([0, 1], [1, 0], [2**31 - 2, 2**31 - 2], directed=True)
        with pytest.raises(ValueOverflowError, match="int32"):
            gw.run(program, graph, {0: 1}, devices=devices, timeout_s=60)

    @pytest.mark.parametrize("dtype", ["int32", "int64"])
    def test_sums_of_users_programs(self, devices: Any, dtype: str) -> None:
        half = np.iinfo(dtype).max // 2 + 1
        program = gw.VertexProgram(
            "gather", lambda value: value, "add", dtype=dtype, activate=lambda value: value != 0
        )
        graph = gw.Graph.from_edges([0, 0], [1, 1], directed=True)
        with pytest.raises(ValueOverflowError, match=dtype):
            gw.run(program, graph, {0: half}, devices=devices, timeout_s=60)

    def test_fields_of_users_programs(self, devices: Any) -> None:
        program = gw.VertexProgram(
            "fields", lambda value: value, "add", dtype="int64", activate=lambda value: value != 0,
            update=lambda field, value: field + value, field_dtype="int32",
        )  # fmt: skip
        graph = gw.Graph.from_edges([0], [1], directed=True)
        with pytest.raises(ValueOverflowError, match=r"int32|int64"):
            gw.run(program, graph, {0: 2**31}, devices=devices, timeout_s=60)


@pytest.mark.skipif(COMPILER is None, reason="no g++ to compile kernels for this machine")
@pytest.mark.parametrize("count", [1, 2])
def test_emulated_gpus(count: int) -> None:
    names = [f"cuda:{index}" for index in range(count)]
    with emulated_gpus(count):
        for weight in (2**31 - 2, 2**32 - 1, 2**40 - 1, 2**62):
            for ends in (([0], [1]), ([0, 1, 2], [1, 2, 0])):
                weights = np.full(len(ends[0]), weight)
                graph = gw.Graph.from_edges(*ends, weights, directed=False)
                check(graph, 0, devices=names)
                check(graph, 0, devices=names, cutoff=weight)
        graph = gw.Graph.from_edges([0, 1, 2], [1, 2, 3], [5, 2**62, 2**62 + 9], directed=True)
        check(graph, 0, devices=names)
        check(graph, 0, devices=names, cutoff=2**62 + 5)


def test_a_cutoff_of_another_type() -> None:
    graph = gw.Graph.from_edges([0, 1], [1, 2], [5 * 10**18, 1], directed=True)
    for cutoff in (
        6 * 10**18,
        6e18,
        np.int64(6 * 10**18),
        np.uint64(6 * 10**18),
        float("inf"),
        2**70,
        10**400,
    ):
        result = gw.sssp(graph, 0, cutoff=cutoff, devices="cpu")
        assert result.distance.tolist() == [0, 5 * 10**18, 5 * 10**18 + 1]
    halves = gw.Graph.from_edges([0, 1], [1, 2], [0.5, 1e300], directed=True)
    for far in (10**400, 2**1023, float("inf")):
        assert gw.sssp(halves, 0, cutoff=far, devices="cpu").reached.all()
        gw.verify_sssp(halves, 0, [0.0, 0.5, 1e300], cutoff=far)
    assert gw.sssp(graph, 0, cutoff=5 * 10**18, devices="cpu").reached.tolist() == [
        True,
        True,
        False,
    ]
    for wrong in (float("nan"), -1, "5", True):
        with pytest.raises(InputError, match="cutoff"):
            gw.sssp(graph, 0, cutoff=wrong, devices="cpu")  # type: ignore[arg-type]
