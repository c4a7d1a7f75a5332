"""Filtering on a GPU: launches filter.cuh; counterpart of cpu.py.

A launch neither waits nor clears memory: the number of kept items is written to page-locked memory before
an event. Launches are distinguished by epochs and tickets of tiles, which are counted here.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import lru_cache
from struct import Struct
from typing import Any

import numpy as np

from godwit.algorithms.filtering.predicate import not_boolean
from godwit.dataflow.cuda.lanes import GpuLane, HostLane
from godwit.dataflow.packets import can_be_enqueued
from godwit.dtypes import Array
from godwit.errors import DeviceError, GodwitError, OperatorError
from godwit.runtime.content import ADAPTERS, Content
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.compile import c_type, cubin, load_cubin
from godwit.runtime.cuda.driver import BorrowedStream, TimedEvent
from godwit.runtime.cuda.events import native_stream
from godwit.runtime.cuda.gpu_arrays import address_of, gpu_of
from godwit.runtime.cuda.libraries import cupy
from godwit.runtime.cuda.memory import keep_pinned, take_pinned
from godwit.runtime.cuda.operators import DeviceFunction, compile_function, fault_error
from godwit.runtime.cuda.transfer.copies import CopyTimes, noted
from godwit.runtime.memory import READY, Event

THREADS = 256
"""Threads of a block."""
_RESIDENT_BLOCKS = {1: 4, 2: 4, 4: 6, 8: 6}
"""Blocks on a multiprocessor at a time, by bytes of an item: the most without spilled registers."""
_THREAD_BYTES = 64  # of the array per thread: FILTER_ROUNDS vectors
_EPOCHS = 1 << 22  # in a word of a tile's state

_ARGUMENT = Struct("8Q")  # ``Filtering`` of filter.cuh
_ALIGNED_BYTES = 256  # where packets begin
_UINT8 = np.dtype(np.uint8)


@lru_cache(maxsize=1)
def _codes() -> dict[tuple[str, str, str, int], bytes]:
    """Return compiled kernels by content of the predicate, dtype, architecture and threads.

    Hashing all headers again for each GPU would take longer than copying ten megabytes.
    """
    return {}


def filter_source(dtype: np.dtype[Any], threads: int = THREADS) -> str:
    """Return the source of the kernel for items of a dtype, to be compiled with the predicate."""
    item = "u8" if dtype == np.bool_ else c_type(dtype)
    return f"""#include "algorithms/filtering/filter.cuh"
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
    """Return the predicate for the kernel, to which booleans are bytes."""
    if dtype != np.bool_:
        return DeviceFunction("predicate", predicate, (dtype,))
    namespace: dict[str, Any] = {"predicate": predicate, "__name__": ADAPTERS}
    exec("def keep(item):\n    return predicate(item != 0)\n", namespace)
    return DeviceFunction("predicate", namespace["keep"], (_UINT8,))


def filter_code(
    predicate: Callable[..., Any], dtype: np.dtype[Any], architecture: str, threads: int = THREADS
) -> bytes:
    """Return the compiled kernel.

    :raises OperatorError: the predicate does not compile, or returns no boolean
    """
    function = filter_function(predicate, dtype)
    content = Content({})
    content.visit(function.function, function.symbol)
    key = content.digest.hexdigest(), dtype.str, architecture, threads
    try:
        code = _codes().get(key)
        if code is None:
            code = _codes()[key] = cubin(filter_source(dtype, threads), [function], architecture)
        return code
    except (OperatorError, DeviceError):
        raise
    except GodwitError as error:
        prototype = compile_function(function, architecture).prototype
        returned = re.search(r"__device__ (.*) predicate", prototype)
        if returned is None or returned[1] == "bool":
            raise
        raise OperatorError(not_boolean(predicate, f"a number ({returned[1]})")) from error


class GpuFilter:
    """Filter of arrays on a GPU, one after the other in one stream.

    :param index: the GPU
    :param stream: stream of that GPU
    :param most_items: largest size of an array
    :param slots: number of arrays in flight
    :param times: records kernels, with the bytes that they read
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
        code = filter_code(predicate, dtype, architecture, threads)
        self._kernel = load_cubin(index, code).kernel("filter_items")
        self._kernel.take_fault()  # discard faults of aborted filters
        self._faults_before = self._kernel.fault_count
        self._functions = [filter_function(predicate, dtype)]
        self._index = index
        self._stream = stream
        self._threads = threads
        self._times = times
        self._item_bytes = dtype.itemsize
        self._tile_items = threads * _THREAD_BYTES // dtype.itemsize
        self._epoch = 0
        self._tickets_taken = 0
        with ExitStack() as stack:
            # One allocation: the words of tiles, and the ticket.
            self._words = memory.kept_or_new(index, 8 * (self._tiles(most_items) + 1))
            stack.callback(self._words.keep)
            self._tickets = self._words.pointer + 8 * self._tiles(most_items)
            pinned = take_pinned(8 * slots)
            stack.callback(keep_pinned, pinned)
            self._count_pointers = [pinned.pointer + 8 * slot for slot in range(slots)]
            self._counts = pinned.array(np.uint64)
            self._counts[:] = 0
            self._clear()
            self._events = [TimedEvent(index) for _ in range(slots)]
            self._stack = stack.pop_all()

    def _tiles(self, items: int) -> int:
        return -(-items // self._tile_items)

    def _clear(self) -> None:
        self._words.fill_bytes(0)
        self._epoch = self._tickets_taken = 0

    def start(self, source: int, count: int, target: int, slot: int = 0) -> None:
        """Enqueue the filter of ``count`` items at address ``source`` into address ``target``.

        The target has room for ``count`` items; ``slot`` is where the number of kept items is stored.
        """
        if count == 0:
            self._counts[slot] = 0
            return
        self._epoch += 1
        if self._epoch == _EPOCHS:  # epochs start again
            self._stream.synchronize()
            self._clear()
            self._epoch = 1
        tiles = self._tiles(count)
        argument = _ARGUMENT.pack(
            source, target, count, self._words.pointer, self._tickets,
            self._tickets_taken, self._epoch, self._count_pointers[slot],
        )  # fmt: skip
        driver.use(self._index)  # one thread may drive several
        with noted(self._times, self._stream, "kernel", count * self._item_bytes):
            driver.launch(
                self._kernel,
                self._stream,
                blocks=tiles,
                threads=self._threads,
                arguments=argument,
            )
        self._tickets_taken += tiles
        self._events[slot].record(self._stream)

    def is_done(self, slot: int = 0) -> bool:
        """Return True if the number of kept items is known; DeviceError if the kernel failed."""
        return self._events[slot].is_reached()

    def kept_count(self, slot: int = 0) -> int:
        """Wait for the number of kept items, and return it.

        :raises OperatorError: the predicate failed for an item
        """
        self._events[slot].synchronize()
        self._kernel.take_fault()
        if self._kernel.fault_count != self._faults_before:
            raise fault_error(self._functions, self._kernel.last_fault)
        return int(self._counts[slot])

    def close(self) -> None:
        """Release the GPU memory. No filter may be pending; a second call has no effect."""
        self._stack.close()


class _HostSlot:
    """Room on a GPU for a packet, and for its kept items. No method but :meth:`wait` waits.

    :param source: address of the packet
    :param target: address of the kept items
    """

    def __init__(self, owner: GpuHostFilter, number: int, source: int, target: int) -> None:
        self._owner = owner
        self._number = number
        self._source = source
        self._target = target
        self._packet: Array | None = None
        self._arrival: Event = READY
        self._returned: Event = READY
        self._is_launched = False

    def start(self, packet: Array) -> None:
        """Start to copy a packet to the slot; the download of the previous kept items has been started."""
        self._packet = packet
        self._is_launched = False
        # The previous count is known, so the kernel that read this memory has ended.
        self._arrival = self._owner.lane.from_host(packet, self._source, ())
        self._owner.arriving.append(self)

    def launch(self) -> bool:
        """Enqueue the kernel; return False if it needs a staged copy that has not ended."""
        assert self._packet is not None
        arrival, stream = self._arrival, self._owner.stream.handle
        if not (can_be_enqueued(arrival) and can_be_enqueued(self._returned)):
            return False
        arrival.wait_on(stream)
        self._returned.wait_on(stream)
        self._owner.filter.start(self._source, self._packet.size, self._target, self._number)
        self._is_launched = True
        return True

    def count(self) -> int | None:
        """Return the number of kept items; None while unknown."""
        gpu_filter = self._owner.filter
        if not self._is_launched or not gpu_filter.is_done(self._number):
            return None
        self._packet = None
        return gpu_filter.kept_count(self._number)

    def download(self, target: Array) -> Event:
        """Start to copy the kept items to host memory; the slot may be started again."""
        self._returned = event = self._owner.download(self._target, target)
        return event

    def wait(self) -> None:
        """Wait for pending copies."""
        self._arrival.wait()
        self._returned.wait()


class GpuHostFilter:
    """Filter of packets of host memory on a GPU.

    Nothing but closing waits, so one thread feeds several GPUs. Packets are copied before the kernel is
    loaded.

    :param endpoint: of a GPU
    :param packet_items: largest size of a packet
    :param slots: number of packets in flight
    """

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
        trace = endpoint.context.trace
        self.index = index
        self.stream = BorrowedStream(index, int(native_stream(space.stream)))
        self.arriving: deque[_HostSlot] = deque()
        """Started slots whose kernels are not enqueued."""
        self._times = None if trace is None else CopyTimes(trace)
        self._made: GpuFilter | None = None
        self._made_of = index, self.stream, predicate, dtype, packet_items, slots
        with ExitStack() as stack:
            if self._times is not None:
                stack.callback(self._times.close)
            packet_bytes = -(-packet_items * dtype.itemsize // _ALIGNED_BYTES) * _ALIGNED_BYTES
            # One allocation for all slots.
            block = space.allocate(2 * slots * packet_bytes)
            stack.callback(block.free)
            place = address_of(block.view(_UINT8, (2 * slots * packet_bytes,)))
            self.slots = [
                _HostSlot(self, number, at, at + packet_bytes)
                for number in range(slots)
                for at in (place + 2 * number * packet_bytes,)
            ]
            self.lane: GpuLane = space.lane()
            stack.callback(self.lane.close)
            self._down = HostLane(None if trace is None else CopyTimes(trace))
            stack.callback(self._down.close)
            stack.callback(self.stream.synchronize)
            for slot in self.slots:
                stack.callback(slot.wait)
            self._stack = stack.pop_all()

    @property
    def filter(self) -> GpuFilter:
        """The filter, made on first use."""
        if self._made is None:
            self._made = GpuFilter(*self._made_of, times=self._times)
        return self._made

    def prepare(self) -> None:
        """Load the kernel; OperatorError if the predicate does not compile."""
        _ = self.filter

    def advance(self) -> None:
        """Enqueue the kernels of packets that have arrived, or for which a stream can wait."""
        while self.arriving and self.arriving[0].launch():
            self.arriving.popleft()

    def download(self, origin: int, target: Array) -> Event:
        """Start to copy from an address to host memory."""
        if not target.nbytes:
            return READY
        return self._down.from_gpu(self.index, origin, target.ctypes.data, target.nbytes, ())

    def close(self) -> None:
        """Wait for pending work, and free all memory."""
        with ExitStack() as stack:
            if self._made is not None:
                stack.callback(self._made.close)
            stack.callback(self._stack.close)


def filter_on_gpu(array: Any, predicate: Callable[..., Any]) -> Any:
    """Return the kept items of a contiguous CuPy array, as another one on the same GPU.

    It runs in CuPy's current stream.

    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises DeviceError: the GPU has no room for what may be kept
    """
    index = gpu_of(array)
    with driver.entered(index):
        current = cupy().cuda.get_current_stream()
        stream = BorrowedStream(index, int(native_stream(current)))
        try:
            room = _room_beside(array)
        except MemoryError as error:
            raise DeviceError(
                f"cuda:{index} has no room for a result of up to {array.nbytes:,} bytes; give a host "
                "array, which goes over the GPU in packets"
            ) from error
        gpu_filter = GpuFilter(index, stream, predicate, array.dtype, array.size)
        try:
            gpu_filter.start(address_of(array), array.size, address_of(room))
            count = gpu_filter.kept_count() if array.size else 0
            kept = room[:count].copy()  # frees the rest of the room
            stream.synchronize()
            return kept
        finally:
            gpu_filter.close()


def _room_beside(array: Any) -> Any:
    """Allocate an array like the given one; memory that the process keeps is freed if needed."""
    try:
        return cupy().empty(array.size, array.dtype)
    except MemoryError:
        if not memory.free_kept(gpu_of(array)):
            raise
        return cupy().empty(array.size, array.dtype)
