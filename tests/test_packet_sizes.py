"""Packets from what was measured, and grids from what a kernel needs. No GPU is needed."""

from __future__ import annotations

import pytest

import godwit as gw
from godwit.errors import InputError
from godwit.runtime.cuda.kernel_sizing import Limits, resident_blocks

H200 = Limits(132, 2048, 32, 65536, 228 << 10, 1 << 10)


@pytest.mark.parametrize(
    ("registers", "threads", "shared_bytes", "blocks"),
    [
        (32, 256, 0, 8),  # all 2048 threads
        (32, 1024, 0, 2),
        (40, 256, 0, 6),  # 1280 registers a warp: 51 warps, 6 blocks of 8
        (255, 1024, 0, 0),
        (32, 32, 0, 32),  # no more blocks than that
        (32, 256, 50_000, 4),
        (32, 256, 227 << 10, 1),
        (32, 256, 228 << 10, 0),
    ],
)
def test_blocks_that_fit_on_a_multiprocessor(
    registers: int, threads: int, shared_bytes: int, blocks: int
) -> None:
    assert resident_blocks(H200, registers, threads, shared_bytes) == blocks


def test_kernels_are_sized_for_gpus() -> None:
    with pytest.raises(InputError, match="kernels are sized for GPUs, got cpu:0"):
        gw.kernel_sizing(32, "cpu:0")
