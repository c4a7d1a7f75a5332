"""A thousand random graphs on one, two and four endpoints, with tiny mailboxes and blocks that lag behind.

A run must give the right result, or a named exception within a minute. GODWIT_STRESS_GRAPHS sets how many,
GODWIT_STRESS_FIRST the first seed: so processes can share a thousand.
"""

from __future__ import annotations

import faulthandler
import os

import pytest

from godwit.runtime.cuda import driver
from godwit.runtime.gpu_options import ExperimentOptions
from test_gpu import check_random_graph

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}"),
]

GRAPHS = int(os.environ.get("GODWIT_STRESS_GRAPHS", "50"))
FIRST = int(os.environ.get("GODWIT_STRESS_FIRST", "0"))
LONGEST_S = 60


@pytest.mark.parametrize("endpoints", [1, 2, 4])
def test_random_graphs_with_delays(endpoints: int) -> None:
    gpus = max(1, driver.device_count())
    devices = [f"cuda:{place % gpus}" for place in range(endpoints)]
    for seed in range(FIRST, FIRST + GRAPHS):
        gpu = ExperimentOptions(
            delay_ns=10_000_000, blocks=1 + seed % 6, threads=[64, 128, 1024][seed % 3],
            hops=seed % 5, transport=["direct", "ring", "host"][seed // 3 % 3],
            slice_s=[0.1, 0.003][seed % 9 == 0],
        )  # fmt: skip
        print(f"endpoints {endpoints}, seed {seed}", flush=True)
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)  # a hang shows where, and ends
        try:
            check_random_graph(seed, devices, gpu, tiny=True)
        finally:
            faulthandler.cancel_dump_traceback_later()
