"""Searches that are slow on GPUs end there, and cores take them over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import godwit as gw
from emulated_grid import COMPILER, emulated_gpus
from godwit.runtime import polling
from godwit.runtime.cuda import driver
from godwit.runtime.polling import CoresAreFasterError, HandOver, RunPoll


class Clock:
    """Stands for the clock of runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(polling, "run_clock", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def pace(clock: Clock, poll: RunPoll, rate: Callable[[float], float], seconds: float) -> float:
    """Return after how many seconds a run of a pace, in items per second by time, is handed over."""
    done, begin = 0.0, clock.now
    poll(0)
    while clock.now - begin < seconds:
        step = min(0.01, max(1e-4, poll.until_look_s()))
        done += rate(clock.now - begin) * step
        clock.now += step
        try:
            poll(int(done))
        except CoresAreFasterError:
            return clock.now - begin
    return np.inf


def test_a_slow_run_ends_when_cores_would_be_done(clock: Clock) -> None:
    poll = RunPoll(None, None, None, hand_over=HandOver(0.05, 1000))
    assert pace(clock, poll, lambda _: 100.0, 20) == pytest.approx(0.05, abs=1e-3)


def test_a_fast_run_goes_on(clock: Clock) -> None:
    poll = RunPoll(None, None, None, hand_over=HandOver(0.05, 1000))
    assert pace(clock, poll, lambda _: 15_000.0, 0.099) == np.inf


def test_items_that_are_processed_again_do_not_hide_that_a_run_is_slow(clock: Clock) -> None:
    poll = RunPoll(None, None, None, hand_over=HandOver(0.05, 1000))
    assert pace(clock, poll, lambda _: 15_000.0, 2) == pytest.approx(0.1, abs=1e-3)


def test_a_run_that_becomes_slow_ends_within_a_multiple(clock: Clock) -> None:
    poll = RunPoll(None, None, None, hand_over=HandOver(0.05, 30_000))
    slow_at = 0.06
    ended = pace(clock, poll, lambda now: 320_000.0 if now < slow_at else 100.0, 20)
    assert slow_at < ended <= 3 * slow_at


def test_items_that_were_only_begun_do_not_count(clock: Clock) -> None:
    poll = RunPoll(None, None, None, hand_over=HandOver(0.05, 1, unfinished=1))
    poll(0)
    clock.now += 0.06
    with pytest.raises(CoresAreFasterError):
        poll(1)


def test_runs_are_looked_at_in_time(clock: Clock) -> None:
    poll = RunPoll(1.0, None, None, hand_over=HandOver(0.05, 10))
    poll(0)
    assert poll.until_look_s() == pytest.approx(0.05)
    clock.now += 0.02
    assert poll.until_look_s() == pytest.approx(0.03)
    assert RunPoll(1.0, None, None).until_look_s() == pytest.approx(1.0)


QUERIES: dict[str, Callable[[Any], Any]] = {
    "bfs": lambda graph: gw.bfs(graph, 3).distance,
    "sssp": lambda graph: gw.sssp(graph, [3, 40], cutoff=900).distance,
    "betweenness": lambda graph: (
        gw.betweenness_centrality(graph, sources=[3, 40], weighted=False).centrality
    ),
}


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler")
@pytest.mark.parametrize("name", QUERIES)
def test_cores_take_over_with_equal_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GODWIT_DEVICES", raising=False)
    monkeypatch.setattr(polling, "_FIRST_LOOK_S", 0.0)
    graph = gw.generate("path:600,weights=1..9")
    expected = QUERIES[name](gw.place(graph, "cpu"))
    devices: list[tuple[str, ...]] = []
    with emulated_gpus(1), gw.place(graph) as placed:
        assert placed.context.devices[0].name == "cuda:0"
        for _ in range(2):
            np.testing.assert_allclose(QUERIES[name](placed), expected, rtol=1e-12)
        devices = [gw.bfs(placed, 3).statistics.devices]
        assert placed.slow >= {name}
    if name == "bfs":
        assert devices == [("cpu",)]


@pytest.mark.skipif(not COMPILER, reason="no C++ compiler")
def test_named_gpus_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GODWIT_DEVICES", raising=False)
    monkeypatch.setattr(polling, "_FIRST_LOOK_S", 0.0)
    graph = gw.generate("path:300")
    with emulated_gpus(1), gw.place(graph, "cuda:0") as placed:
        assert gw.bfs(placed, 0).statistics.devices == ("cuda:0",)


@pytest.mark.gpu
@pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")
@pytest.mark.parametrize("name", QUERIES)
def test_cores_take_over_from_a_real_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GODWIT_DEVICES", raising=False)
    graph = gw.generate("path:1000000,weights=1..9")
    with gw.place(graph, "cpu") as cores:
        expected = QUERIES[name](cores)
    with gw.place(graph) as placed:
        for _ in range(2):
            np.testing.assert_allclose(QUERIES[name](placed), expected, rtol=1e-12)
        if name != "sssp":  # a cutoff of 900 is reached soon
            assert name in placed.slow
