"""What a predicate keeps of an array on a GPU: kernels/filter.cuh, launched; the twin of cpu/filtering.py.

A launch neither waits nor clears anything: how much was kept is written to page-locked memory, and an event
says when. What tells launches apart is counted here: epochs, and tickets of tiles.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from godwit.backends.cuda import driver
from godwit.backends.cuda.compilation import cubin
from godwit.backends.cuda.copy_times import CopyTimes, noted
from godwit.backends.cuda.driver import Event, Module
from godwit.backends.cuda.gpu_arrays import address_of, cupy, gpu_of
from godwit.backends.cuda.instantiation import c_type
from godwit.backends.cuda.libraries import bindings
from godwit.backends.cuda.marks import native_stream
from godwit.backends.cuda.operators import DeviceFunction, compile_function
from godwit.backends.cuda.pools import keep_pinned, take_pinned
from godwit.backends.filtering import not_boolean
from godwit.errors import DeviceError, GodwitError, OperatorError
from godwit.parallel.content import ADAPTERS

THREADS = 256
"""Of a block."""
_RESIDENT_BLOCKS = {1: 4, 2: 4, 4: 6, 8: 6}
"""On a multiprocessor at a time, by bytes of an item: the most for which nothing spills."""
_THREAD_BYTES = 64  # of the array, that a thread takes: FILTER_ROUNDS vectors
_EPOCHS = 1 << 22  # that a word of a tile's state tells apart

_UINT8 = np.dtype(np.uint8)

_compiling = threading.Lock()
"""Workers of several GPUs ask for the same kernel at once."""


def filter_source(dtype: np.dtype[Any], threads: int = THREADS) -> str:
    """The kernel for items of a dtype, to be compiled with the predicate."""
    item = "u8" if dtype == np.bool_ else c_type(dtype)
    return f"""#include "filter.cuh"
struct Predicate {{
    using Item = {item};
    static_assert(IS_BOOLEAN<decltype(predicate(Item()))>);
    static __device__ __forceinline__ bool keeps(Item item) {{ return predicate(item); }}
}};
extern "C" __global__ void __launch_bounds__({threads}, {_RESIDENT_BLOCKS[dtype.itemsize]})
filter_items(const __grid_constant__ Filtering<Predicate::Item> given) {{
    block_filter<Predicate, {threads}>(given);
}}
"""


def filter_function(predicate: Callable[..., Any], dtype: np.dtype[Any]) -> DeviceFunction:
    """The predicate as the kernel calls it; booleans come to kernels as bytes."""
    if dtype != np.bool_:
        return DeviceFunction("predicate", predicate, (dtype,))
    namespace: dict[str, Any] = {"predicate": predicate, "__name__": ADAPTERS}
    exec("def keep(item):\n    return predicate(item != 0)\n", namespace)
    return DeviceFunction("predicate", namespace["keep"], (_UINT8,))


def filter_code(
    predicate: Callable[..., Any], dtype: np.dtype[Any], architecture: str, threads: int = THREADS
) -> bytes:
    """The compiled kernel.

    :raises OperatorError: the predicate does not compile, or returns no boolean
    """
    function = filter_function(predicate, dtype)
    try:
        with _compiling:
            return cubin(filter_source(dtype, threads), [function], architecture)
    except (OperatorError, DeviceError):
        raise
    except GodwitError as error:
        prototype = compile_function(function, architecture).prototype
        returned = re.search(r"__device__ (.*) predicate", prototype)
        if returned is None or returned[1] == "bool":
            raise
        raise OperatorError(not_boolean(predicate, f"a number ({returned[1]})")) from error


@lru_cache(maxsize=64)
def _module(index: int, code: bytes) -> Module:
    return driver.load(index, code)


@dataclass(frozen=True)
class _BorrowedStream:
    """Somebody else's stream, as ours are handed to the driver."""

    index: int
    handle: int

    def synchronize(self) -> None:
        _, runtime = bindings()
        outcome = runtime.cudaStreamSynchronize(self.handle)
        driver.checked(outcome, f"a kernel on cuda:{self.index} failed")


class GpuFilter:
    """Filters arrays on a GPU, one after the other in one stream.

    :param index: the GPU
    :param stream: of that GPU
    :param most_items: of an array
    :param slots: how many arrays may be under way at a time
    :param times: where kernels are noted, with the bytes that they read
    :raises OperatorError: the predicate does not compile, or returns no boolean
    """

    def __init__(
        self,
        index: int,
        stream: Any,
        predicate: Callable[..., Any],
        dtype: np.dtype[Any],
        most_items: int,
        slots: int = 1,
        threads: int = THREADS,
        times: CopyTimes | None = None,
    ) -> None:
        architecture = driver.properties(index).compute_capability
        self._kernel = _module(index, filter_code(predicate, dtype, architecture, threads)).kernel(
            "filter_items"
        )
        self._stream = stream
        self._threads = threads
        self._times = times
        self._item_bytes = dtype.itemsize
        self._tile_items = threads * _THREAD_BYTES // dtype.itemsize
        self._epoch = 0
        self._tickets_taken = 0
        with ExitStack() as stack:
            # One allocation: the words of tiles, and the tickets.
            self._words = driver.kept_or_new(index, 8 * (self._tiles(most_items) + 1))
            stack.callback(self._words.keep)
            self._tickets = self._words.pointer + 8 * self._tiles(most_items)
            pinned = take_pinned(8 * slots)
            stack.callback(keep_pinned, pinned)
            self._count_pointers = [pinned.pointer + 8 * slot for slot in range(slots)]
            self._counts = pinned.array(np.uint64)
            self._counts[:] = 0
            self._clear()
            self._events = [Event(index) for _ in range(slots)]
            self._stack = stack.pop_all()

    def _tiles(self, items: int) -> int:
        return -(-items // self._tile_items)

    def _clear(self) -> None:
        self._words.fill_bytes(0)
        self._epoch = self._tickets_taken = 0

    def start(self, source: int, count: int, target: int, slot: int = 0) -> None:
        """Begin to filter: what is kept goes to ``target``, which has room for all.

        :param source: where the items lie
        """
        if count == 0:
            self._counts[slot] = 0
            return
        self._epoch += 1
        if self._epoch == _EPOCHS:  # words of the first launches would be taken for the next ones'
            self._stream.synchronize()
            self._clear()
            self._epoch = 1
        tiles = self._tiles(count)
        given = np.array(
            [
                source, target, count, self._words.pointer, self._tickets,
                self._tickets_taken, self._epoch, self._count_pointers[slot],
            ],
            np.uint64,
        )  # fmt: skip
        with noted(self._times, self._stream, "kernel", count * self._item_bytes):
            driver.launch(
                self._kernel,
                self._stream,
                blocks=tiles,
                threads=self._threads,
                arguments=given.tobytes(),
            )
        self._tickets_taken += tiles
        self._events[slot].record(self._stream)

    def kept_count(self, slot: int = 0) -> int:
        """How many items were kept; waits until that is known."""
        self._events[slot].synchronize()
        return int(self._counts[slot])

    def close(self) -> None:
        """Give the memory back, for the next filter; nothing is under way. Twice does no harm."""
        self._stack.close()


class _GpuSlot:
    """Room for what a packet keeps, in the memory of a GPU."""

    def __init__(self, filtering: GpuFilter, number: int, room: Any) -> None:
        self._filtering = filtering
        self._number = number
        self._room = room

    def start(self, packet: Any) -> None:
        """Launch the kernel."""
        self._filtering.start(address_of(packet), packet.size, address_of(self._room), self._number)

    def kept(self) -> Any:
        """A CuPy array."""
        return self._room[: self._filtering.kept_count(self._number)]

    def close(self) -> None:
        """No array may be left over memory that is given back."""
        self._room = None


class GpuPacketFilter:
    """Filters the packets of a GPU's endpoint; as :func:`godwit.backends.packet_filters.packet_filter`."""

    runs_on = True

    def __init__(
        self,
        endpoint: Any,
        predicate: Callable[..., Any],
        dtype: np.dtype[Any],
        packet_items: int,
        slots: int,
    ) -> None:
        index = int(endpoint.device.name.partition(":")[2])
        space = endpoint.space
        with ExitStack() as stack:
            stream = _BorrowedStream(index, int(native_stream(space.stream)))
            trace = endpoint.context.trace
            times = None if trace is None else CopyTimes(trace)
            filtering = GpuFilter(index, stream, predicate, dtype, packet_items, slots, times=times)
            stack.callback(filtering.close)
            if times is not None:
                stack.callback(times.close)
            # One allocation for all slots.
            block = space.allocate(slots * packet_items * dtype.itemsize)
            stack.callback(block.free)
            rooms = block.view(dtype, (slots, packet_items))
            self.slots = [_GpuSlot(filtering, number, rooms[number]) for number in range(slots)]
            for slot in self.slots:
                stack.callback(slot.close)
            stack.callback(stream.synchronize)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Wait for what is under way, and give all memory back."""
        self._stack.close()


def filter_on_gpu(array: Any, predicate: Callable[..., Any]) -> Any:
    """What a predicate keeps of a contiguous CuPy array, as another on the same GPU.

    It runs in CuPy's current stream.

    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises DeviceError: the GPU has no room for what may be kept
    """
    index = gpu_of(array)
    with driver.current_kept(), cupy().cuda.Device(index):
        current = cupy().cuda.get_current_stream()
        stream = _BorrowedStream(index, int(native_stream(current)))
        try:
            room = _room_beside(array)
        except MemoryError as error:
            raise DeviceError(
                f"cuda:{index} has no room for a result of up to {array.nbytes:,} bytes; give a host "
                "array, which goes over the GPU in packets"
            ) from error
        filtering = GpuFilter(index, stream, predicate, array.dtype, array.size)
        try:
            filtering.start(address_of(array), array.size, address_of(room))
            count = filtering.kept_count() if array.size else 0
            kept = room[:count].copy()  # the room behind it shall not be held
            stream.synchronize()
            return kept
        finally:
            filtering.close()


def _room_beside(array: Any) -> Any:
    """As much again; CuPy does not know what the process keeps."""
    try:
        return cupy().empty(array.size, array.dtype)
    except MemoryError:
        if not driver.free_kept(gpu_of(array)):
            raise
        return cupy().empty(array.size, array.dtype)
