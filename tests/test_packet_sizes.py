"""Packets from what was measured, and grids from what a kernel needs. No GPU is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import godwit as gw
import pretend_gpus
from godwit import cache
from godwit.cli.application import app
from godwit.dataflow import spaces
from godwit.dataflow.cuda import packets
from godwit.errors import InputError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.driver import GpuProperties
from godwit.runtime.cuda.kernel_sizing import Limits, resident_blocks
from godwit.runtime.cuda.measurements import Measurement, Measurements
from godwit.runtime.cuda.topology import Gpu, Topology
from godwit.runtime.protocol import Device

MB = 1 << 20
H200 = Limits(132, 2048, 32, 65536, 228 << 10, 1 << 10)


def measured(rates: dict[tuple[str, str], dict[int, float]]) -> Measurements:
    shape = Topology(
        (Gpu(0, "Some", "0000:01"), Gpu(1, "Some", "0000:02")),
        ((True, True), (True, True)), ((True, True), (True, True)),
        (("same", "nvlink"), ("nvlink", "same")), ((0, 0), (0, 0)),
    )  # fmt: skip
    results = [
        Measurement("packets_copy", *ends, size, "GB/s", rate, rate, rate, 5)
        for ends, curve in rates.items()
        for size, rate in curve.items()
    ]
    return Measurements(shape, tuple(results), 1 << 26, 1 << 25, 1.0)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    monkeypatch.setenv("GODWIT_CACHE", str(tmp_path / "cache"))
    places = {0: "0000:01", 1: "0000:02"}
    monkeypatch.setattr(
        driver,
        "properties",
        lambda index: GpuProperties("Some", "90", 1, 1, 1, places[index], True),
    )
    packets._kept.cache_clear()
    yield places
    packets._kept.cache_clear()


def gpu(index: int) -> Device:
    return Device(f"cuda:{index}", "cuda")


def test_packets_are_the_smallest_that_come_near_to_the_best(gpus: Any) -> None:
    assert spaces.default_packet(None, gpu(0)) == (packets.DEFAULT_BYTES, 3)
    packets.keep(
        measured(
            {
                ("host", "cuda:0"): {MB: 40.0, 4 * MB: 52.3, 16 * MB: 55.0},
                ("cuda:0", "cuda:1"): {MB: 102.0, 4 * MB: 229.0, 8 * MB: 310.0, 16 * MB: 320.0},
            }
        )
    )
    assert spaces.default_packet(None, gpu(0)) == (4 * MB, 3)
    assert spaces.default_packet(Device("cpu:0", "cpu"), gpu(0)) == (4 * MB, 3)
    assert spaces.default_packet(gpu(0), gpu(1)) == (8 * MB, 3)
    assert spaces.default_packet(gpu(1), gpu(0)) == (8 * MB, 3)  # joined in the same way
    assert spaces.default_packet(gpu(0), None) == (packets.DEFAULT_BYTES, 3)  # not measured
    gpus[0] = "0000:77"  # another GPU stands there now
    packets._kept.cache_clear()
    assert spaces.default_packet(None, gpu(0)) == (packets.DEFAULT_BYTES, 3)


def test_godwit_devices_keeps_what_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = pretend_gpus.pretend(monkeypatch, np.ones((2, 2)))
    result = CliRunner().invoke(app, ["devices", "--measure", "--quiet"])
    assert result.exit_code == 0
    (found,) = machine.kept
    curves = found.curves(["packets_copy"])
    assert packets.smallest_near(curves["cuda:0", "cuda:1", "packets_copy"]) == 1 << 16
    assert list(packets.curves_of(found)) == ["cuda:0 -> cuda:1", "cuda:1 -> cuda:0"]


@pytest.mark.parametrize("text", ["", "[]", '{"gpus": {"cuda:0": "Some at 0000:01"}}', "\xff"])
def test_a_file_that_is_broken_is_as_none(gpus: Any, text: str) -> None:
    cache.store(text.encode("latin-1"), packets._FILE)
    assert packets.packet_bytes(None, 0) == packets.DEFAULT_BYTES


def test_between_cpus_no_gpu_is_asked_for() -> None:
    cpus = Device("cpu:0", "cpu"), Device("cpu:1", "cpu")
    assert spaces.default_packet(*cpus) == (spaces.PACKET_BYTES, spaces.BUFFERS)


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
