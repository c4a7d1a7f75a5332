"""What a run counted: what rates divide by, what links carried, and how it is told as plain values."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.runtime.statistics import RunStatistics, WorklistCounts


def counts(devices: int, **settings: Any) -> WorklistCounts:
    """Each counter of device i is a number of its own."""
    names = (
        "processed_items", "useless_items", "arcs_relaxed", "threshold_changes", "received_items",
        "filtered_items",
    )  # fmt: skip
    found = {name: np.arange(devices) + 10 * (place + 1) for place, name in enumerate(names)}
    return WorklistCounts(
        **found,
        sent_items=np.array([[0, 7], [5, 0]])[:devices, :devices],
        rounds=np.full(devices, 3),
        **settings,
    )


def of_gpus(devices: int = 2) -> RunStatistics:
    """A run of 2 s around kernels of 0.5 s, 0.25 s of it spent on loading them."""
    names = tuple(f"cuda:{index}" for index in range(devices))
    made = RunStatistics(names, "asynchronous", {"run": 2.0})
    busy = np.array([0.5, 0.75])[:devices]
    made.take_counts(counts(devices, compile_s=0.25, busy_share=busy, item_bytes=12))
    made.split_run({"kernel": 0.5})
    return made


LEVELS = gw.StepProgram(
    name="levels",
    fields={"level": ("int32", 99)},
    steps=[
        gw.frontier.repeat(
            [gw.frontier.advance("level", lambda level: level + 1, "min")],
            until=lambda size: size == 0,
        )
    ],
)
QUERIES: dict[str, Any] = {
    "bfs": partial(gw.bfs, source=0, execution="bulk-synchronous"),
    "sssp": partial(gw.sssp, source=0),
    "pagerank": gw.pagerank,
    "betweenness": partial(gw.betweenness_centrality, sources=[0, 9]),
    "weighted betweenness": lambda graph, devices: gw.betweenness_centrality(
        graph.with_weights(np.ones(graph.arc_count)), sources=[0], weighted=True,
        devices=devices,
    ),
    "components": gw.connected_components,
    "step program": partial(LEVELS.run, fields={"level": np.where(np.arange(20) > 0, 99, 0)}),
}  # fmt: skip
DEVICES_OF_CPU = ["cpu:0", "cpu:1", "cpu:2"]


def check_entries(found: RunStatistics) -> None:
    count = len(found.devices)
    for name in (field.name for field in fields(found)):
        value = getattr(found, name)
        if isinstance(value, np.ndarray):
            assert value.shape == ((count, count) if name == "sent_items" else (count,)), name


class TestTime:
    def test_no_time_is_in_two_phases(self) -> None:
        made = of_gpus()
        assert made.seconds == {"run": 1.25, "compile": 0.25, "kernel": 0.5}
        assert made.run_s == 1.75

    def test_without_kernels_it_is_the_run(self) -> None:
        made = RunStatistics(("cpu",), "delta-stepping", {"read": 9.0, "run": 2.0})
        made.take_counts(counts(1, compile_s=0.5))
        assert made.run_s == made.seconds["run"] == 1.5

    def test_before_anything_ran(self) -> None:
        assert RunStatistics(("cpu",), "asynchronous").run_s == 0.0


class TestCounts:
    """Counts are made when they are read."""

    @staticmethod
    def count(statistics: RunStatistics) -> None:
        statistics.processed_items = np.array([5])
        statistics.levels = 3

    def test_are_zero_before_anything_ran(self) -> None:
        made = RunStatistics(("cpu:0", "cpu:1"), "asynchronous")
        assert made.sent_items.tolist() == [[0, 0], [0, 0]]
        assert (made.levels, made.growths, made.busy_share) == (None, 0, None)

    @pytest.mark.parametrize("first", ["processed_items", "levels", "rounds"])
    def test_whichever_is_read_first(self, first: str) -> None:
        made = RunStatistics(("cuda:0",), "direction-optimizing")
        made.count_later(self.count)
        getattr(made, first)
        assert (made.processed_items.tolist(), made.levels, made.rounds.tolist()) == ([5], 3, [0])

    @pytest.mark.parametrize("change", [copy.copy, lambda made: pickle.loads(pickle.dumps(made))])
    def test_are_copied(self, change: Any) -> None:
        made = RunStatistics(("cuda:0",), "direction-optimizing")

        def count(statistics: RunStatistics) -> None:  # which cannot be pickled
            self.count(statistics)

        made.count_later(count)
        assert change(made).to_dict() == made.to_dict()
        assert made.to_dict()["processed_items"] == [5]

    def test_are_forgotten_with_the_devices(self) -> None:
        made = RunStatistics(("cuda:0", "cuda:1"), "direction-optimizing")
        made.count_later(self.count)
        made.begin_on(["cuda:0"])
        assert made.processed_items.tolist() == [0]
        assert not hasattr(made, "processed")

    def test_are_shown(self) -> None:
        made = RunStatistics(("cuda:0",), "direction-optimizing")
        made.count_later(self.count)
        assert "processed_items" in made._repr_html_()


class TestBytes:
    def test_are_items_times_their_size(self) -> None:
        sent = of_gpus().sent_bytes
        assert sent is not None
        assert sent.tolist() == [[0, 84], [60, 0]]

    def test_are_not_known_of_cpus(self) -> None:
        made = RunStatistics(("cpu:0", "cpu:1"), "asynchronous", {"run": 1.0})
        made.take_counts(counts(2))
        assert made.sent_bytes is None


class TestEntries:
    """Every array has an entry a device, whatever ran and whether it counts such things."""

    @pytest.mark.parametrize("name", QUERIES)
    def test_of_cpus(self, name: str) -> None:
        devices = DEVICES_OF_CPU if name in ("bfs", "sssp", "step program") else "cpu"
        check_entries(QUERIES[name](gw.generators.grid(5, 4), devices=devices).statistics)

    @pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to emulate GPUs with")
    def test_of_gpus(self) -> None:
        graph = gw.generators.grid(5, 4)
        with emulated_gpus(2):
            for query in QUERIES.values():
                found = query(graph, devices=["cuda:0", "cuda:1"]).statistics
                check_entries(found)
                assert found.processed_items.sum() > 0, found.solver
            assert (found.processed_items > 0).all(), "of a step program, each GPU counts its own"

    def test_of_others_than_were_meant(self) -> None:
        made = of_gpus()
        made.begin_on(["cpu"])
        check_entries(made)
        assert not made.processed_items.any()


class TestPlainValues:
    @pytest.mark.parametrize("devices", [1, 2])
    def test_of_gpus(self, devices: int) -> None:
        plain = json.loads(json.dumps(of_gpus(devices).to_dict(), allow_nan=False))
        assert plain["busy_share"] == [0.5, 0.75][:devices]
        assert plain["run_s"] == 1.75
        assert plain["sent_bytes"] == [[[0]], [[0, 84], [60, 0]]][devices - 1]
        assert plain["received_items"] == [50, 51][:devices]
        assert plain["hops"] is None

    def test_of_a_run_here(self) -> None:
        graph = gw.generators.grid(9)
        told = gw.sssp(graph, 0, devices=["cpu:0", "cpu:1"]).statistics.to_dict()
        plain = json.loads(json.dumps(told, allow_nan=False))
        assert plain["run_s"] == plain["seconds"]["run"] > 0
        assert plain["busy_share"] is plain["sent_bytes"] is None
        assert sum(map(sum, plain["sent_items"])) == sum(plain["received_items"]) > 0
