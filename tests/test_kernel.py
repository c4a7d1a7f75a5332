"""Kernels: found again by content, whatever the process; what they may refer to."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from godwit.errors import OperatorError
from godwit.parallel.kernel import Kernel, content_key
from godwit.parallel.team import ABORT, Team, barrier, borrowed_team, new_control, run_team

SCALE = 3


def _scaled(values: Any) -> Any:
    total = 0
    for index in range(len(values)):
        total += values[index] * SCALE
    return total


def _same_under_another_name(values: Any) -> Any:
    total = 0
    for index in range(len(values)):
        total += values[index] * SCALE
    return total


def test_a_kernel_computes() -> None:
    assert Kernel(_scaled)(np.arange(5)) == 30


def test_the_key_is_the_content() -> None:
    assert content_key(_scaled, {}) == content_key(_same_under_another_name, {})

    def with_step(step: Any) -> Any:
        return lambda value: value + step

    assert content_key(with_step(1), {}) == content_key(with_step(1), {})
    assert content_key(with_step(1), {}) != content_key(with_step(2), {})
    assert content_key(with_step(1), {}) != content_key(with_step(1.0), {})


def test_the_key_follows_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    before = content_key(_scaled, {})
    monkeypatch.setitem(globals(), "SCALE", 4)
    assert content_key(_scaled, {}) != before


def test_what_cannot_be_compiled_is_named() -> None:
    unfit = {"a": 1}

    def refers(value: int) -> int:
        return value + unfit["a"]

    with pytest.raises(OperatorError, match="unfit is a dict"):
        Kernel(refers)(1)
    with pytest.raises(OperatorError, match="must be a Python function"):
        Kernel(3)  # type: ignore[arg-type]


_PROGRAM = """
import sys, time, numba, numpy as np
import godwit as gw
from numba.core import event
with event.install_recorder("numba:compile") as record:
    result = gw.sssp(gw.path(9, weights=(1, 5)), 0, devices=2)
print(sum(1 for _, e in record.buffer if e.is_start), int(result.distance[-1]))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    import os

    environment = {**os.environ, "GODWIT_CACHE": str(tmp_path)}
    outputs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        outputs.append(done.stdout.split())
    assert int(outputs[0][0]) > 0
    assert int(outputs[1][0]) == 0
    assert outputs[0][1] == outputs[1][1]


def test_an_unwritable_cache_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GODWIT_CACHE", str(blocked))
    monkeypatch.setitem(globals(), "SCALE", 7)  # a kernel of its own
    assert Kernel(_scaled)(np.arange(4)) == 42


def _count_barriers(rank: int, size: int, control: Any, steps: Any, out: Any) -> None:
    for step in range(steps):
        out[rank] = step
        if not barrier(control, size):
            return
        for other in range(size):
            if out[other] != step:
                out[size] += 1
        if not barrier(control, size):
            return


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_barriers_keep_threads_together(threads: int) -> None:
    out = np.zeros(threads + 1, np.int64)
    run_team(Kernel(_count_barriers), 300, out, threads=threads)
    assert out[:threads].tolist() == [299] * threads
    assert out[threads] == 0


def test_a_failing_task_stops_the_others() -> None:
    control = new_control()

    def fail() -> None:
        raise ValueError("broken")

    def wait() -> None:
        while not control[ABORT]:
            pass

    with borrowed_team(2) as team, pytest.raises(ValueError, match="broken"):
        team.run([(fail, ()), (wait, ())], control)
    assert run_team(lambda rank, size, control: rank, threads=2) == [0, 1]


def test_teams_are_kept_and_end() -> None:
    before = threading.active_count()
    team = Team(2)
    assert threading.active_count() == before + 2
    team.close()
    for thread in team._threads:
        thread.join(timeout=5)
    assert threading.active_count() == before
