"""Arrays filtered on GPUs that only keep order: who sends, receives and puts together is the real one.

The GPUs are those of pretend_cuda.py; the kernel is NumPy, put into the endpoint's stream.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from godwit.algorithms.filtering import FilterOptions, filter_host_array
from godwit.algorithms.filtering import cuda as cuda_filtering
from godwit.errors import DeviceError, InputError, OperatorError, RunTimeoutError
from godwit.runtime.cuda.memory import PinnedBuffer
from pretend_cuda import Machine, pretended_gpus
from pretend_filter import PretendedFilter

INT32 = np.dtype(np.int32)
PEERS = np.ones((2, 2), bool)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    with pretended_gpus(PEERS, delay_s=1e-3) as found:
        monkeypatch.setattr(cuda_filtering, "GpuFilter", partial(PretendedFilter, found))
        yield found
        assert found.faults == []


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("kind", ["plain", "strided", "cast", "short", "empty"])
@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:1", "cpu:0"]])
def test_all_that_is_kept_comes_back_in_its_order(
    machine: Machine, devices: list[str], kind: str, ordered: bool
) -> None:
    values = np.random.default_rng(3).integers(0, 1000, 60_000, np.int32)
    if kind == "short":
        values = values[:1234]
    given = {"strided": np.repeat(values, 2)[::2], "cast": values.astype(">i4")}.get(kind, values)
    given = given[:0] if kind == "empty" else given
    packet_bytes = 8000 if ordered else 3200  # of whole units of the CPU's, and not
    options = FilterOptions(ordered=ordered, packet_bytes=packet_bytes, timeout_s=30.0)
    found = filter_host_array(given, lambda x: x < 300, INT32, devices, options)
    expected = given[given < 300].astype(np.int32)
    if not ordered:
        found, expected = np.sort(found), np.sort(expected)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("copies", [0, 3, 6])
@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:1", "cpu:0"]])
def test_gpus_that_are_lost_end_it(machine: Machine, devices: list[str], copies: int) -> None:
    """By one exception; no worker is left, and no memory but what is kept for the next call."""
    values = np.random.default_rng(3).integers(0, 1000, 60_000, np.int32)
    before = set(threading.enumerate())
    machine.copies_left = copies
    with pytest.raises(DeviceError, match=r"cuda:[01].*cudaErrorIllegalAddress"):
        filter_host_array(
            values, lambda x: x < 300, INT32, devices, FilterOptions(packet_bytes=8000)
        )
    left = {one.name for one in set(threading.enumerate()) - before}
    assert not [name for name in left if "worker" in name]
    machine.copies_left = None
    found = filter_host_array(
        values, lambda x: x < 300, INT32, devices, FilterOptions(packet_bytes=8000)
    )
    np.testing.assert_array_equal(found, values[values < 300])


def test_what_is_wrong_with_a_predicate_is_said_as_it_is(machine: Machine) -> None:
    """A worker makes the filter, with packets on their way to it."""
    options = FilterOptions(packet_bytes=8000)
    values = np.zeros(60_000, np.int32)
    with pytest.raises(OperatorError, match="a predicate returns a boolean"):
        filter_host_array(values, lambda x: x + 5, INT32, ["cuda:0", "cuda:1"], options)
    again = filter_host_array(values, lambda x: x == 0, INT32, ["cuda:0", "cuda:1"], options)
    assert len(again) == 60_000


def test_packets_are_on_their_way_while_a_filter_is_made(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, copied = cuda_filtering.GpuFilter, threading.Event()

    def late(*given: Any, **more: Any) -> Any:
        if machine.copies or any(copied.wait(0.01) or machine.copies for _ in range(1000)):
            copied.set()
        return real(*given, **more)

    monkeypatch.setattr(cuda_filtering, "GpuFilter", late)
    options = FilterOptions(packet_bytes=8000)
    found = filter_host_array(
        np.arange(60_000, dtype=np.int32), lambda x: x < 5, INT32, ["cuda:0"], options
    )
    assert found.tolist() == [0, 1, 2, 3, 4]
    assert copied.is_set()


@pytest.mark.parametrize("devices", [["cuda:0", "cuda:1"], ["cuda:0", "cpu"]], ids=str)
def test_too_little_room_is_said(machine: Machine, devices: list[str]) -> None:
    values = np.arange(60_000, dtype=np.int32)
    options = FilterOptions(packet_bytes=8000, out=np.empty(9000, np.int32))
    with pytest.raises(InputError, match="out has room for 9,000 items, and at least"):
        filter_host_array(values, lambda x: x >= 0, INT32, devices, options)


@pytest.mark.parametrize("devices", [["cuda:0", "cuda:1"], ["cuda:0", "cpu"]], ids=str)
@pytest.mark.parametrize("is_in_place", [False, True])
def test_what_is_kept_goes_straight_to_a_page_locked_result(
    machine: Machine, devices: list[str], is_in_place: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(4).integers(0, 1000, 60_000, np.int32)
    held = [PinnedBuffer(values.nbytes) for _ in range(2)]
    given, out = (one.array(np.int32) for one in held)
    given[:] = values
    if is_in_place:
        out = given
    options = FilterOptions(packet_bytes=8000, out=out)
    found = filter_host_array(given, lambda x: x < 300, INT32, devices, options)
    np.testing.assert_array_equal(found, values[values < 300])
    assert np.shares_memory(found, out)
    del given, out, found, options
    for one in held:
        one.close()


def test_time_is_over_for_gpus_too(machine: Machine) -> None:
    options = FilterOptions(packet_bytes=400, timeout_s=1e-3)
    for devices in (["cuda:0"], ["cuda:0", "cpu"]):
        with pytest.raises(RunTimeoutError, match=r"within timeout_s=0\.001 s"):
            filter_host_array(np.zeros(600_000, np.int32), lambda x: x < 5, INT32, devices, options)


def test_what_progress_raises_comes_out_beside_gpus(machine: Machine) -> None:
    def stop(count: int) -> None:
        raise KeyError(count)

    options = FilterOptions(packet_bytes=8000, progress=stop)
    for devices in (["cuda:0"], ["cuda:0", "cpu"]):
        with pytest.raises(KeyError):
            filter_host_array(np.zeros(60_000, np.int32), lambda x: x < 5, INT32, devices, options)
