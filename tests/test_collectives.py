"""Collectives over links: every one equals what NumPy computes of the same arrays, on CPUs and on GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import godwit as gw
from godwit.dataflow import collectives
from godwit.errors import DeviceError, InputError
from godwit.runtime.cuda import driver

OPERATORS = {"add": np.add, "min": np.minimum, "max": np.maximum}
SHAPES = [(0,), (1,), (2,), (7,), (1000,), (5, 3), (1, 300), (2, 0, 3)]


def inputs(count: int, shape: Any, dtype: Any, seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.integers(0, 100, shape).astype(dtype) for _ in range(count)]


def devices(count: int) -> list[str]:
    return [f"cpu:{place}" for place in range(count)]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_reductions_are_numpys(count: int, shape: Any, operator: Any) -> None:
    arrays = inputs(count, shape, np.int32)
    before = [one.copy() for one in arrays]
    expected = OPERATORS[operator].reduce(arrays)
    with gw.Context(devices(count)) as context:
        everywhere = collectives.all_reduce(context, arrays, operator, packet_bytes=64)
        root = count - 1
        there = collectives.reduce(context, arrays, operator, root=root, packet_bytes=64)
    assert len(everywhere) == count
    for found in [*everywhere, there]:
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.int32
    for one, other in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_broadcast_brings_the_array_to_all(count: int, shape: Any) -> None:
    array = inputs(1, shape, np.float64)[0]
    with gw.Context(devices(count)) as context:
        for root in [0, count - 1, context.endpoints[-1], context.host]:
            found = collectives.broadcast(context, array, root=root, packet_bytes=64)
            assert len(found) == count
            for one in found:
                np.testing.assert_array_equal(one, array)
            own = [one for one in found if np.shares_memory(one, array)]
            assert len(own) == (root is not context.host and array.size > 0)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_arrays_are_gathered_in_the_order_of_endpoints(count: int) -> None:
    arrays = [np.full((place + 1, 2), place, np.int16) for place in range(count)]
    arrays[0] = arrays[0][:0]
    with gw.Context(devices(count)) as context:
        for root in [0, count - 1, context.host]:
            found = collectives.gather(context, arrays, root=root, packet_bytes=4)
            np.testing.assert_array_equal(found, np.concatenate(arrays))


@given(st.integers(1, 5), st.integers(0, 200), st.integers(1, 40), st.integers(0, 9))
def test_any_ring_with_any_packets(count: int, length: int, packet: int, seed: int) -> None:
    arrays = inputs(count, length, np.int64, seed)
    with gw.Context(devices(count)) as context:
        found = collectives.all_reduce(context, arrays, packet_bytes=8 * packet)
    for one in found:
        np.testing.assert_array_equal(one, np.sum(arrays, axis=0))


def test_a_collective_leaves_nothing_in_its_context() -> None:
    with gw.Context(devices(3)) as context:
        for _ in range(20):
            collectives.all_reduce(context, inputs(3, 100, np.int32))
        assert context.used_bytes == 0
        assert not context.routers
        assert not context.links


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, a: collectives.all_reduce(c, a, "mul"), "operator must be one of 'add', 'min'"),
        (lambda c, a: collectives.all_reduce(c, a[:1]), "one array an endpoint .* a list of 2"),
        (lambda c, a: collectives.all_reduce(c, [a[0], a[1][:-1]]), "one dtype and shape .* int32"),
        (lambda c, a: collectives.reduce(c, a, root=2), r"root must be in \[0, 2\), got 2"),
        (lambda c, a: collectives.broadcast(c, a[0], root=-1), "root must not be negative"),
        (lambda c, a: collectives.broadcast(c, [c]), "must hold numbers"),
        (lambda c, a: collectives.all_reduce(c, a, collective="mpi"), "collective must be one of"),
        (lambda c, a: collectives.gather(c, [a[0], a[1].astype(float)]), "of one dtype"),
    ],
)
def test_what_cannot_be_combined_is_refused(call: Any, message: str) -> None:
    with gw.Context(devices(2)) as context, pytest.raises(InputError, match=message):
        call(context, inputs(2, 10, np.int32))


def test_nccl_is_for_gpus() -> None:
    with gw.Context(devices(2)) as context, pytest.raises(DeviceError, match="'links' works"):
        collectives.all_reduce(context, inputs(2, 10, np.int32), collective="nccl")


# --- On GPUs.


def gpus() -> list[str]:
    found = [f"cuda:{index}" for index in range(driver.device_count())]
    if not found:
        pytest.skip(f"needs a GPU: {driver.why_not()}")
    return found


def placed(names: list[str], arrays: list[Any]) -> list[Any]:
    import cupy

    found = []
    for name, array in zip(names, arrays, strict=True):
        if name.startswith("cuda"):
            with cupy.cuda.Device(int(name[5:])):
                found.append(cupy.asarray(array))
        else:
            found.append(array)
    return found


def on_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


@pytest.mark.gpu
@pytest.mark.parametrize("collective", ["links", "nccl", "auto"])
@pytest.mark.parametrize("length", [0, 1, 1001, 3_000_001])
@pytest.mark.parametrize("beside", ["", "twice", "cpu"])
def test_collectives_on_gpus(beside: str, length: int, collective: Any) -> None:
    there = gpus()
    names = there + (there if beside == "twice" else ["cpu"] if beside == "cpu" else [])
    if collective == "nccl" and (beside or len(there) < 2):
        pytest.skip("NCCL is for several GPUs, each of them once")
    arrays = inputs(len(names), length, np.float32)
    with gw.Context(names) as context:
        given_ = placed(names, arrays)
        for operator, function in OPERATORS.items():
            expected = function.reduce(arrays)
            found = collectives.all_reduce(context, given_, operator, collective=collective)  # type: ignore[arg-type]
            for one in found:
                np.testing.assert_array_equal(on_host(one), expected)
            one = collectives.reduce(
                context, given_, operator, root=len(names) - 1, collective=collective
            )  # type: ignore[arg-type]
            np.testing.assert_array_equal(on_host(one), expected)
        for one in collectives.broadcast(context, given_[0], collective=collective):
            np.testing.assert_array_equal(on_host(one), arrays[0])
        for one in collectives.broadcast(context, arrays[0], root=context.host):
            np.testing.assert_array_equal(on_host(one), arrays[0])
        one = collectives.gather(context, given_)
        np.testing.assert_array_equal(on_host(one), np.concatenate(arrays))
