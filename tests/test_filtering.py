"""Filtering equals NumPy's ``array[predicate(array)]``, over devices, packets, dtypes, kinds of arrays."""

from __future__ import annotations

import gc
import importlib.util
import re
import runpy
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import godwit as gw
from emulated_grid import emulated_gpus
from godwit.algorithms import filtering
from godwit.algorithms.filtering import assembly
from godwit.algorithms.filtering import cpu as cpu_filtering
from godwit.algorithms.filtering import cuda as cuda_filtering
from godwit.algorithms.filtering.cpu import _CHUNK_ITEMS, CpuFilter
from godwit.algorithms.filtering.cuda import GpuFilter, filter_code
from godwit.algorithms.filtering.predicate import ITEM_DTYPES
from godwit.errors import (
    DeviceError,
    FileError,
    FormatError,
    InputError,
    OperatorError,
    RunTimeoutError,
)
from godwit.runtime.cpu.team import GRACE_S
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import ARCHITECTURES
from godwit.runtime.cuda.driver import Stream
from godwit.runtime.cuda.memory import Buffer
from pretend_cuda import Machine, pretended_gpus
from pretend_filter import PretendedFilter
from waiting import check_quick

_REPOSITORY = Path(__file__).resolve().parent.parent

DEVICES: list[Any] = ["cpu", "cpu:0", ["cpu:0", "cpu:1", "cpu:2"]]


needs_gpu = pytest.mark.skipif(driver.device_count() == 0, reason=f"no GPU: {driver.why_not()}")


def is_odd(x: Any) -> bool:
    return bool(x % 2 == 1)


def keeps_some(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """Of random items, about half."""
    if dtype == np.bool_:
        return lambda x: x
    middle = 0.5 if dtype.kind == "f" else 50
    return lambda x: x > middle


def random_items(dtype: Any, count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Of a dtype, with NaNs where it has them."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        items = rng.random(count).astype(kind)
        items[rng.random(count) < 0.1] = np.nan
        return items
    return rng.integers(0, 2 if kind == np.bool_ else 100, count).astype(kind)


def assert_same(found: Any, wanted: np.ndarray[Any, Any]) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


# --- What comes out.


@settings(deadline=None)  # the first of each kind is compiled
@given(
    items=st.lists(st.integers(-9, 9), max_size=70),
    packet_items=st.integers(1, 80),
    devices=st.sampled_from(DEVICES),
    ordered=st.booleans(),
    least=st.sampled_from([-10, 0, 3, 10]),
)
def test_filter_is_numpys_selection(
    items: list[int], packet_items: int, devices: Any, ordered: bool, least: int
) -> None:
    array = np.array(items, np.int32)
    found = gw.filter(
        array, lambda x: x >= least, devices, ordered=ordered, packet_bytes=4 * packet_items
    )
    wanted = array[array >= least]
    if not ordered:
        found, wanted = np.sort(found), np.sort(wanted)
    assert_same(found, wanted)


@pytest.mark.parametrize("dtype", ITEM_DTYPES)
@pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]], ids=str)
def test_dtypes(dtype: str, devices: Any) -> None:
    array = random_items(dtype, 100_001)
    predicate = keeps_some(array.dtype)
    found = gw.filter(array, predicate, devices, packet_bytes=70_000 * array.itemsize)
    assert_same(found, array[predicate(array)])


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 32, 33])
def test_lengths_around_packets(count: int) -> None:
    array = np.arange(count, dtype=np.int16)
    for devices in DEVICES:
        assert_same(gw.filter(array, is_odd, devices, packet_bytes=32), array[array % 2 == 1])


@pytest.mark.parametrize("size", [0, 1, _CHUNK_ITEMS, _CHUNK_ITEMS + 1, 400_000])
@pytest.mark.parametrize("less", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("count", [1, 3, 16])
def test_a_team_equals_a_thread(count: int, less: float, size: int) -> None:
    array = random_items("float32", size)
    filtering_ = CpuFilter(lambda x: x < less, array.dtype, count)
    for _ in range(3):
        target = np.full(len(array) + 1, 7, np.float32)
        kept, _ = filtering_.keep(array, target)
        assert_same(target[:kept], array[array < less])
        assert target[-1] == 7


def test_a_team_whose_predicate_raises_ends() -> None:
    def keeps(x: int) -> bool:
        if x == 5_000_000:
            raise ValueError("this one")
        return x > 5

    array = np.arange(10_000_000)
    filtering_ = CpuFilter(keeps, array.dtype, 3)

    def fail() -> float:
        begin_s = perf_counter()
        with pytest.raises(OperatorError, match="this one"):
            filtering_.keep(array, np.empty_like(array))
        return perf_counter() - begin_s

    check_quick(fail, GRACE_S)  # nobody is left behind


def test_all_and_nothing() -> None:
    array = np.arange(1000.0)
    for devices in DEVICES:
        assert_same(gw.filter(array, lambda x: True, devices, packet_bytes=64), array)
        assert_same(gw.filter(array, lambda x: False, devices, packet_bytes=64), array[:0])


def test_nan_is_as_in_python() -> None:
    array = np.array([1.0, np.nan, -np.inf, 2.0, np.nan])
    assert_same(gw.filter(array, lambda x: x < 0 or x >= 0), array[[0, 2, 3]])
    assert_same(gw.filter(array, lambda x: not x < 2), array[[1, 3, 4]])


def test_constants_around_a_predicate_may_change() -> None:
    array = np.arange(10)
    for least in (2, 7):
        at_least: Any = lambda x, low=least: x >= low  # noqa: E731
        assert_same(gw.filter(array, at_least), array[least:])


@pytest.mark.parametrize(
    "array",
    [
        np.arange(100)[::3],
        np.arange(100)[::-1],
        np.arange(100, dtype=">i4"),
        np.arange(100, dtype=">f8")[5::2],
        np.frombuffer(np.arange(100, dtype=np.int32).tobytes() , np.uint8)[2:-2].view(np.int32),
    ],
    ids=["gaps", "backwards", "big-endian", "big-endian with gaps", "unaligned"],
)  # fmt: skip
def test_arrays_that_do_not_lie_as_kernels_want_them(array: Any) -> None:
    predicate: Callable[[Any], Any] = lambda x: x % 5 != 0  # noqa: E731
    found = gw.filter(array, predicate, ["cpu:0", "cpu:1"], packet_bytes=64)
    assert found.dtype == array.dtype
    assert_same(found, array[predicate(array)])
    out = np.empty(array.size, array.dtype)
    kept = gw.filter(array, predicate, "cpu:0", out=out)
    assert np.shares_memory(kept, out)
    assert_same(kept, found)
    swapped = np.empty(array.size, array.dtype.newbyteorder())
    with pytest.raises(
        InputError, match=f"out must be a NumPy array of {re.escape(str(array.dtype))}"
    ):
        gw.filter(array, predicate, "cpu:0", out=swapped)


def test_what_is_read_only_stays_as_it_is() -> None:
    array = np.arange(20)
    array.flags.writeable = False
    assert_same(gw.filter(array, is_odd), array[1::2])


def test_other_things_that_are_arrays() -> None:
    assert_same(gw.filter([3, 1, 2], lambda x: x > 1), np.array([3, 2]))
    assert_same(gw.filter(range(5), lambda x: x > 2), np.array([3, 4]))


def test_files(tmp_path: Path) -> None:
    array = random_items("float32", 5000)
    np.save(tmp_path / "items.npy", array)
    mapped = np.load(tmp_path / "items.npy", mmap_mode="r")
    for given_array in (tmp_path / "items.npy", str(tmp_path / "items.npy"), mapped):
        found = gw.filter(given_array, lambda x: x > 0.5, ["cpu:0", "cpu:1"], packet_bytes=512)
        assert type(found) is np.ndarray
        assert_same(found, array[array > 0.5])


def test_the_result_may_be_mapped(tmp_path: Path) -> None:
    array = np.arange(3000)
    out = np.lib.format.open_memmap(
        tmp_path / "kept.npy", mode="w+", dtype=array.dtype, shape=(1500,)
    )
    found = gw.filter(array, is_odd, ["cpu:0", "cpu:1"], packet_bytes=160, out=out)
    assert np.shares_memory(found, out)
    out.flush()
    assert_same(np.load(tmp_path / "kept.npy"), array[1::2])


def test_a_new_result_has_no_more_memory_than_it_needs() -> None:
    found = gw.filter(np.arange(100_000), lambda x: x < 3)
    assert found.base is None
    assert found.nbytes == 24


def test_room_grows_where_there_is_no_address_space_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_filtering, "room_for", lambda size, dtype: np.empty(1, dtype))
    array = random_items("int64", 300_000)
    for devices in DEVICES:
        found = gw.filter(array, lambda x: x > 20, devices, packet_bytes=1 << 18)
        assert_same(found, array[array > 20])


def test_progress_counts_items() -> None:
    seen: list[int] = []
    gw.filter(np.arange(10_000), is_odd, ["cpu:0", "cpu:1"], packet_bytes=800, progress=seen.append)
    assert seen[-1] == 10_000
    assert seen == sorted(seen)


def test_trace(tmp_path: Path) -> None:
    gw.filter(np.arange(100), is_odd, ["cpu:0", "cpu:1"], trace=tmp_path / "run.json")
    assert "keep_chunks" in (tmp_path / "run.json").read_text()


@pytest.mark.parametrize("devices", ["cpu:0", ["cpu:0", "cpu:1"]], ids=str)
def test_the_example(devices: Any) -> None:
    """Written with links and routers; its predicate is of arrays."""
    filtered = runpy.run_path(str(_REPOSITORY / "examples" / "filtering.py"))["filtered"]
    array = random_items("float64", 5_000_000)
    assert_same(filtered(array, lambda x: x > 0.25, devices), array[array > 0.25])


# --- What goes wrong.


def _raises(x: Any) -> bool:
    if x > 5:
        raise ValueError("too much")
    return True


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (lambda x: x * 2, r"predicate '<lambda>' \(test_filtering.py, line \d+\) returns int64; a pre"),
        (lambda x: None, r"returns nothing \(None\); a predicate returns a boolean"),
        (lambda x: x.nonsense, r"cannot compile 'predicate' \(test_filtering.py, line \d+\): Unknown"),
        (lambda x, y: x > y, "must take one item, as 'lambda x: x > 0' does; it takes x, y"),
        (lambda: True, "must take one item, as 'lambda x: x > 0' does; it takes nothing"),
        (lambda *x: True, r"must take one item, .* it takes \*x"),
        (abs, "predicate must be a Python function .*, got <built-in function abs>"),
        (3, "predicate must be a Python function such as lambda x: x > 0, got 3"),
        (None, "predicate must be a Python function .*, got None"),
        ("x > 5", "predicate must be a Python function .*, got 'x > 5'"),
        (_raises, "'_raises'.* raised ValueError: too much"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("devices", ["cpu", ["cpu:0", "cpu:1"]], ids=str)
def test_wrong_predicates(predicate: Any, message: str, devices: Any) -> None:
    before = threading.active_count()
    with pytest.raises(OperatorError, match=message):
        gw.filter(np.arange(10), predicate, devices)
    assert threading.active_count() <= before + 1  # a team is kept


A = np.arange(10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gw.filter(A.reshape(2, 5), is_odd), r"one dimension, got shape \(2, 5\); pass array.resh"),
        (lambda: gw.filter(3.5, is_odd), r"array of numbers, or the path of a .npy file, got 3\.5"),
        (lambda: gw.filter(None, is_odd), r"array of numbers, or the path of a .npy file, got None"),
        (lambda: gw.filter(np.ma.array(A), is_odd), r"masked array would lose its mask; array\.compr"),
        (lambda: gw.filter(A, is_odd, progress=cast(Any, 3)), "progress must be a function, got 3"),
        (lambda: gw.filter(A.astype(complex), is_odd), "must hold one of bool, int8, .* got complex128"),
        (lambda: gw.filter(A.astype(np.float16), is_odd), "must hold one of bool, .* got float16"),
        (lambda: gw.filter(A.astype(object), is_odd), "must hold one of bool, .* got object"),
        (lambda: gw.filter(np.zeros(3, "i4,f4"), is_odd), "must hold one of bool, .* got "),
        (lambda: gw.filter(A, is_odd, out=np.empty(4, int)), "room for 4 items, and at least 5 are kept"),
        (lambda: gw.filter(A, is_odd, out=np.empty(9)), "array of int64 .*, got float64 of shape"),
        (lambda: gw.filter(A, is_odd, out=cast(Any, [0])), r"out must be a NumPy array .*, got \[0\]"),
        (lambda: gw.filter(A, is_odd, packet_bytes=0), "packet_bytes must be at least 1, got 0"),
        (lambda: gw.filter(A, is_odd, buffers=0), "buffers must be at least 1, got 0"),
        (lambda: gw.filter(A, is_odd, timeout_s=0), "timeout_s must be positive, got 0"),
        (lambda: gw.filter(A, is_odd, ordered=cast(Any, 2)), "ordered must be"),
        (lambda: gw.filter(A, is_odd, []), "at least one device"),
    ],
)  # fmt: skip
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def test_a_read_only_out() -> None:
    out = np.empty(10, int)
    out.flags.writeable = False
    with pytest.raises(InputError, match="out must be writable"):
        gw.filter(A, is_odd, out=out)


def test_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"nowhere\.npy: No such file"):
        gw.filter(tmp_path / "nowhere.npy", is_odd)
    (tmp_path / "text.npy").write_text("1 2 3")
    with pytest.raises(
        FormatError, match=r"text\.npy: not an array in NumPy's format \(\.npy\): EOF"
    ):
        gw.filter(tmp_path / "text.npy", is_odd)
    np.save(tmp_path / "short.npy", A)
    with (tmp_path / "short.npy").open("r+b") as file:
        file.truncate(130)
    with pytest.raises(
        FormatError, match=r"short\.npy: cut short: its array is longer than the file, of 130 bytes"
    ):
        gw.filter(tmp_path / "short.npy", is_odd)
    np.savez(tmp_path / "two.npz", a=A, b=A)
    with pytest.raises(FormatError, match=r"two\.npz: not an array in NumPy's format \(\.npy\)"):
        gw.filter(tmp_path / "two.npz", is_odd)


def test_an_out_that_overlaps_the_array() -> None:
    """The array itself will do, where what is kept moves to its front only behind the readers."""
    items = np.arange(100_000)
    expected = items[items % 2 == 1]
    for out in (items[1:], items[::-1], items[3:10]):
        with pytest.raises(InputError, match="out overlaps the array"):
            gw.filter(items, is_odd, out=out)
    for array, ordered in ((items, False), (items[::-1], True), (items[::2], True)):
        with pytest.raises(InputError, match="out overlaps the array"):
            gw.filter(array, is_odd, out=items, ordered=ordered)
    kept = gw.filter(items, is_odd, ["cpu:0", "cpu:1"], out=items, packet_bytes=800)
    assert np.array_equal(kept, expected)
    assert np.shares_memory(kept, items)


def test_unknown_devices() -> None:
    with pytest.raises(DeviceError, match="there is no device 'tpu'"):
        gw.filter(A, is_odd, ["cpu:0", "tpu"])


def test_out_of_time() -> None:
    def slow(x: Any) -> bool:
        total = x
        for step in range(1, 2000):
            total += x // step
        return bool(total > 0)

    with pytest.raises(RunTimeoutError, match=r"filter did not finish within timeout_s=0.05 s"):
        gw.filter(np.arange(1 << 23), slow, ["cpu:0", "cpu:1"], timeout_s=0.05)


def test_what_progress_raises_comes_out() -> None:
    def stop(count: int) -> None:
        raise KeyError(count)

    with pytest.raises(KeyError):
        gw.filter(A, is_odd, ["cpu:0", "cpu:1"], progress=stop)


def test_hundreds_of_calls_leave_nothing_behind() -> None:
    gw.filter(A, is_odd, ["cpu:0", "cpu:1"])
    before = threading.active_count()
    for turn in range(150):
        if turn % 3:
            gw.filter(A, is_odd, ["cpu:0", "cpu:1"], packet_bytes=16)
        else:
            with pytest.raises(InputError, match="room for 1 items"):
                gw.filter(A, is_odd, ["cpu:0", "cpu:1"], packet_bytes=16, out=np.empty(1, int))
    assert threading.active_count() == before


# --- The kernel, emulated.


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float32", "int64"])
@pytest.mark.parametrize(("seed", "checks"), [(0, "strict"), (1, True), (2, False), (3, "strict")])
def test_kernel(dtype: str, seed: int, checks: Any) -> None:
    """Lengths around tiles and vectors; arrays and results that begin anywhere; epochs that go on."""
    kind = np.dtype(dtype)
    predicate = keeps_some(kind)
    tile = 64 * 64 // kind.itemsize
    most = 7 * tile + 5
    with emulated_gpus(1, seed=seed, checks=checks) as machine, ExitStack() as stack:
        stream = Stream(0)
        stack.callback(stream.close)
        kernel = GpuFilter(0, stream, predicate, kind, most, slots=2, threads=64)
        stack.callback(kernel.close)
        room = (most + 32) * kind.itemsize
        source, target = (stack.enter_context(Buffer(0, room)) for _ in range(2))
        rounds = [
            (0, 0),
            (1, 0),
            (1, 3),
            (tile - 1, 1),
            (tile, 0),
            (tile + 1, 0),
            (most, 0),
            (most, 7),
        ]
        for number, (count, begin) in enumerate(rounds):
            array = random_items(kind, count, number)
            source.upload(array, begin * kind.itemsize)
            to = number % 5 * kind.itemsize
            kernel.start(
                source.pointer + begin * kind.itemsize, count, target.pointer + to, number % 2
            )
            kept = kernel.kept_count(number % 2)
            assert_same(target.download(kind, kept, to), array[predicate(array)])
        stack.close()
        assert machine.held_bytes(0) == memory._KEPT.kept_bytes(0) > 0
        assert memory.free_kept(0)
        assert machine.held_bytes(0) == 0


def test_epochs_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word of a tile's state tells so many launches apart; then all are cleared."""
    monkeypatch.setattr("godwit.algorithms.filtering.cuda._EPOCHS", 3)
    array = random_items("float64", 2000)
    with emulated_gpus(1, checks=True), ExitStack() as stack:
        stream = Stream(0)
        stack.callback(stream.close)
        kernel = GpuFilter(0, stream, lambda x: x < 0.4, array.dtype, 2000, threads=64)
        stack.callback(kernel.close)
        source, target = (stack.enter_context(Buffer(0, array.nbytes)) for _ in range(2))
        source.upload(array)
        for count in (2000, 1999, 2000, 600, 2000, 2000, 1):
            kernel.start(source.pointer, count, target.pointer)
            wanted = array[:count][array[:count] < 0.4]
            assert_same(target.download(array.dtype, kernel.kept_count()), wanted)


_MISSING = [name for name in ("numba_cuda", "cuda") if importlib.util.find_spec(name) is None]
needs_compilers = pytest.mark.skipif(
    bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)} (extra 'cuda')"
)


@needs_compilers
@pytest.mark.parametrize(
    ("architecture", "dtype"),
    list(
        zip(ARCHITECTURES, ["uint8", "bool", "int16", "float32", "int64", "float64"], strict=True)
    ),
)
def test_kernel_compiles(architecture: str, dtype: str) -> None:
    kind = np.dtype(dtype)
    code = filter_code(keeps_some(kind), kind, architecture)
    assert b".text.filter_items\0" in code
    assert b"predicate" not in code, "an operator that was not inlined"


@needs_compilers
@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (lambda x: x * 2, r"predicate '<lambda>' \(test_filtering.py, line \d+\) returns a number"),
        (lambda x: None, r"returns nothing \(None\)"),
        (_raises, "raises or handles an exception, which code on a GPU cannot"),
    ],
)
def test_wrong_predicates_for_gpus(predicate: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        filter_code(predicate, np.dtype(np.int32), "90")


# --- The dataflow over GPUs, pretended: their kernels run some time later, in their streams.


@pytest.fixture(params=range(3))
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with pretended_gpus(np.ones((2, 2), bool), seed=request.param) as made:
        monkeypatch.setattr(cuda_filtering, "GpuFilter", partial(PretendedFilter, made))
        yield made


@pytest.mark.parametrize(
    "devices", [["cuda:0"], ["cuda:0", "cuda:1"], ["cuda:0", "cpu"], ["cuda:0", "cuda:0", "cpu:0"]],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("ordered", [True, False])
def test_dataflow_over_gpus(machine: Machine, devices: list[str], ordered: bool) -> None:
    array = random_items("int32", 6001)
    before = machine.bytes_on(0)
    found = gw.filter(array, lambda x: x > 30, devices, packet_bytes=400, ordered=ordered)
    wanted = array[array > 30]
    if not ordered:
        found, wanted = np.sort(found), np.sort(wanted)
    assert_same(found, wanted)
    gc.collect()
    memory.free_abandoned([0, 1])  # over which there were arrays when the context ended
    memory.free_kept(0)
    assert machine.bytes_on(0) == before
    assert not machine.faults


@pytest.mark.parametrize("least", [-1, 90])
@pytest.mark.parametrize("ordered", [True, False])
def test_what_a_gpu_has_no_room_for_is_set_aside(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, ordered: bool, least: int
) -> None:
    """The first packet is counted last, and others stay on the GPU while there is room."""
    real = assembly.Assembly.set_aside
    aside: list[int] = []

    def set_aside(self: Any, packet: Any, array: Any, arrival: Any) -> None:
        aside.append(packet.begin)
        real(self, packet, array, arrival)

    class LateFilter(PretendedFilter):
        """Says late how many items of the first packet it keeps."""

        def is_done(self, slot: int = 0) -> bool:
            is_first = self.index == 0 and slot == 0 and len(aside) < 3
            return super().is_done(slot) and (not is_first or not ordered)

        def __init__(self, machine: Machine, index: int, *given: Any, **named: Any) -> None:
            super().__init__(machine, index, *given, **named)
            self.index = index

    monkeypatch.setattr(assembly.Assembly, "set_aside", set_aside)
    monkeypatch.setattr(cuda_filtering, "GpuFilter", partial(LateFilter, machine))
    array = random_items("int32", 20_011)
    found = gw.filter(
        array, lambda x: x > least, ["cuda:0", "cuda:1"], packet_bytes=1200, ordered=ordered
    )
    wanted = array[array > least]
    if not ordered:
        found, wanted = np.sort(found), np.sort(wanted)
    assert_same(found, wanted)
    assert len(aside) >= 3 * ordered
    assert not machine.faults


@pytest.mark.parametrize("devices", [["cuda:0"], ["cuda:0", "cpu"]], ids=str)
def test_a_failure_gives_all_memory_of_gpus_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, devices: list[str]
) -> None:
    before = machine.bytes_on(0)
    monkeypatch.setattr(PretendedFilter, "kept_count", lambda self, slot: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        gw.filter(random_items("int32", 6001), lambda x: x > 30, devices, packet_bytes=400)
    gc.collect()
    memory.free_abandoned([0])
    memory.free_kept(0)
    assert machine.bytes_on(0) == before
    assert not machine.faults


# --- Real GPUs.


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ITEM_DTYPES)
def test_gpu_dtypes(dtype: str) -> None:
    array = random_items(dtype, 1_000_003)
    predicate = keeps_some(array.dtype)
    found = gw.filter(array, predicate, "cuda:0", packet_bytes=100_000 * array.itemsize)
    assert_same(found, array[predicate(array)])


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    "devices", [["cuda:0"], ["cuda:0", "cpu"], ["cuda:0", "cuda:0"], "cuda"], ids=str
)
def test_gpu_devices(devices: Any, ordered: bool) -> None:
    for count in (0, 1, 4_000_000, 4_000_001, 30_000_000):
        array = random_items("float32", count)
        found = gw.filter(
            array, lambda x: x > 0.25, devices, ordered=ordered, packet_bytes=16_000_000
        )
        wanted = array[array > 0.25]
        if not ordered:
            found, wanted = np.sort(found), np.sort(wanted)
        assert_same(found, wanted)


@needs_gpu
@pytest.mark.gpu
def test_gpu_arrays_stay_there() -> None:
    cupy = pytest.importorskip("cupy")
    array = cupy.random.random(50_000_001, dtype=cupy.float32)
    for part in (array, array[3:], array[::2], array[:0]):
        found = gw.filter(part, lambda x: x > 0.25)
        assert isinstance(found, cupy.ndarray)
        assert bool((found == part[part > 0.25]).all())
        assert found.size == int((part > 0.25).sum())
    on_host = gw.filter(array, lambda x: x > 0.25, "cpu")
    assert_same(on_host, cupy.asnumpy(array[array > 0.25]))


@needs_gpu
@pytest.mark.gpu
def test_gpu_page_locked_arrays_and_files(tmp_path: Path) -> None:
    cupyx = pytest.importorskip("cupyx")
    array = cupyx.empty_pinned(20_000_000, np.float32)
    array[:] = np.random.default_rng(1).random(len(array), dtype=np.float32)
    out = cupyx.empty_pinned(20_000_000, np.float32)
    wanted = array[array > 0.5]
    found = gw.filter(array, lambda x: x > 0.5, "cuda:0", out=out)
    assert np.shares_memory(found, out)
    assert_same(found, wanted)
    np.save(tmp_path / "items.npy", array)
    assert_same(gw.filter(tmp_path / "items.npy", lambda x: x > 0.5, "cuda:0"), wanted)


@needs_gpu
@pytest.mark.gpu
def test_gpu_wrong_predicates() -> None:
    for devices in ("cuda:0", ["cuda:0", "cpu"]):
        with pytest.raises(OperatorError, match="a predicate returns a boolean"):
            gw.filter(np.arange(10), lambda x: x * 2, devices)


def test_who_filters_an_array_if_nobody_says(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = np.zeros(1000, np.float32), np.zeros(1 << 24, np.float32)
    monkeypatch.setattr(filtering, "gpu_names", tuple)
    assert filtering.default_devices(large) == "cpu"
    monkeypatch.setattr(filtering, "gpu_names", lambda: ("cuda:0", "cuda:1"))
    monkeypatch.setattr(filtering, "is_page_locked", lambda array: False)
    assert filtering.default_devices(small) == "cpu"
    assert filtering.default_devices(large) == ["cuda:0", "cpu"]
    monkeypatch.setattr(filtering, "is_page_locked", lambda array: True)
    assert filtering.default_devices(large) is None
