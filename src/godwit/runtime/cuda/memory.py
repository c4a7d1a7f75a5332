"""Memory of GPUs and pinned memory of the host: allocations, what the process keeps of them, and pools.

Why plain allocations: stream-ordered pools are not mapped to peers, and a pool that frees late may wait for
a kernel that waits for a peer. Every :class:`Buffer` is one ``cudaMalloc``, made and freed while no kernel
of Godwit runs on its GPU. Allocating and freeing takes milliseconds, pinning more than that, so what calls
with similar needs release is kept for the next (:class:`KeptMemory`).

Segments get their memory from pools. Where no limit is set for a GPU, and on the host, a block is an
allocation of its own, reused by size (:class:`GrowingPool`). A pool with a limit on a GPU is one allocation
from the beginning, and so is memory that the user hands in: blocks are cut from it, first fit
(:class:`SlabPool`). Nothing is freed while a dataflow runs, since freeing waits for kernels. Memory is
released when its pool is closed, but never under an array that still exists: arrays hold a
:class:`Holding`.

Results on the host lie in page-locked memory as well, which GPUs write at the speed of the bus
(:class:`ResultMemory`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import weakref
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from math import prod
from time import perf_counter
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from godwit import config
from godwit.dtypes import Array
from godwit.errors import DeviceError, GraphTooLargeError, InputError
from godwit.runtime.cuda.driver import checked, current_kept, entered, loaded_cupy, use
from godwit.runtime.cuda.libraries import bindings, cupy
from godwit.trace import HOST, copied

_PORTABLE_AND_MAPPED = 0x01 | 0x02  # of cudaHostAlloc and cudaHostRegister
_ALIGNED_BYTES = 512

KEPT_BYTES = 1 << 30
"""Bytes of each GPU that the process keeps."""
KEPT_PINNED_BYTES = 128 << 20
"""Pinned bytes that the process keeps, for segments on the host and results, beside the staging pool's."""

RESULT_BYTES = 8 << 30
"""Limit of the page-locked memory of results, if that is no more than a share of the host's memory."""
LEAST_LOCKED_BYTES = 256 << 10
"""Smaller results are copied out of kept memory sooner than memory is page-locked for them."""
_RESULT_SHARE = 8  # 1 / the share of the host's memory
_ROUNDED_SHARE = 8  # 1 / the share of a result's size that rounding may add
_MOST_TOUCHING_THREADS = 16
_TOUCHED_BYTES = 4 << 20  # by one thread at least

Allocation = TypeVar("Allocation")


class KeptMemory(Generic[Allocation]):
    """Released allocations, by GPU (0 for the host) and size.

    Invariants: at most ``limit_bytes`` are kept of each GPU and lent, together; no work uses what is kept;
    and the first to be freed is what has been kept the longest: calls that need the same sizes again and
    again find them, whatever was needed before them.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._spare: dict[int, list[tuple[int, Allocation]]] = {}  # the longest kept first
        self._lent: dict[int, int] = {}
        self._lock = threading.RLock()  # the garbage collector may run while it is held

    def take(self, index: int, nbytes: int) -> Allocation | None:
        """Return the allocation of exactly this size that was kept last, or None."""
        taken = self._best(index, nbytes, nbytes)
        return None if taken is None else taken[1]

    def borrow(self, index: int, nbytes: int, most: int) -> Allocation | None:
        """Return the smallest allocation of ``nbytes`` to ``most`` that is kept, or None.

        It counts as lent, until :meth:`end_loan`.
        """
        with self._lock:
            taken = self._best(index, nbytes, most)
            if taken is None:
                return None
            self._lent[index] = self._lent.get(index, 0) + taken[0]
            return taken[1]

    def put(self, index: int, nbytes: int, allocation: Allocation) -> list[Allocation]:
        """Keep an allocation, and return those that the caller must free for it."""
        with self._lock:
            self._spare.setdefault(index, []).append((nbytes, allocation))
            return self._surplus(index)

    def lend(self, index: int, nbytes: int) -> list[Allocation] | None:
        """Count memory that is to be allocated as lent, and return what the caller must free for it.

        None if the limit does not leave room for it: it is not counted then.
        """
        with self._lock:
            lent = self._lent.get(index, 0) + nbytes
            if lent > self.limit_bytes:
                return None
            self._lent[index] = lent
            return self._surplus(index)

    def end_loan(self, index: int, nbytes: int) -> None:
        """Count memory as lent no longer."""
        with self._lock:
            self._lent[index] -= nbytes

    def stop_growing(self, index: int) -> None:
        """Lower the limit to what there is."""
        with self._lock:
            self.limit_bytes = self.kept_bytes(index) + self.lent_bytes(index)

    def _best(self, index: int, nbytes: int, most: int) -> tuple[int, Allocation] | None:
        """Remove the smallest allocation of such a size, of equal ones the last, and return it."""
        with self._lock:
            spare = self._spare.get(index, [])
            best = -1
            for position, (size, _) in enumerate(spare):
                if nbytes <= size <= most and (best < 0 or size <= spare[best][0]):
                    best = position
            return None if best < 0 else spare.pop(best)

    def _surplus(self, index: int) -> list[Allocation]:
        """Remove and return allocations until the others are within the limit."""
        surplus = []
        spare = self._spare.get(index, [])
        excess = self.kept_bytes(index) + self.lent_bytes(index) - self.limit_bytes
        while excess > 0:
            size, oldest = spare.pop(0)
            surplus.append(oldest)
            excess -= size
        return surplus

    def take_all(self, index: int) -> list[Allocation]:
        """Return all allocations of a GPU, which the caller must free."""
        with self._lock:
            return [allocation for _, allocation in self._spare.pop(index, [])]

    def kept_bytes(self, index: int) -> int:
        """Return the number of bytes kept of a GPU."""
        with self._lock:
            return sum(size for size, _ in self._spare.get(index, []))

    def lent_bytes(self, index: int) -> int:
        """Return the bytes of a GPU that are taken from here, or allocated, and not given back."""
        with self._lock:
            return self._lent.get(index, 0)


_KEPT: KeptMemory[int] = KeptMemory(KEPT_BYTES)
_ABANDONED: list[tuple[int, int]] = []  # GPU and pointer of buffers that were never closed
_UNMAPPING: dict[int, Callable[[], None]] = {}  # by pointer: frees memory of joint_memory.py


class _Closing:
    """Base of allocations that the end of a block closes."""

    def close(self) -> None:
        raise NotImplementedError

    def __exit__(self, *raised: object) -> None:
        self.close()


class Buffer(_Closing):
    """Memory of one GPU, accessible to its peers. A context manager; closing twice is allowed.

    :param index: the GPU
    :param nbytes: at least 1 byte is allocated
    :raises GraphTooLargeError: there is no room, with the bytes needed and free
    """

    def __init__(self, index: int, nbytes: int) -> None:
        self.index = index
        self.nbytes = int(nbytes)
        self.pointer = 0
        use(index)
        _, runtime = bindings()
        no_memory = runtime.cudaError_t.cudaErrorMemoryAllocation
        pointer = allocated(
            index, self.nbytes, lambda: runtime.cudaMalloc(max(1, self.nbytes)), no_memory
        )
        self.pointer = int(pointer)

    def upload(self, array: Array, offset_bytes: int = 0) -> None:
        """Copy a host array into the buffer."""
        array = np.ascontiguousarray(array)
        begin = perf_counter()
        self._copy("UP", offset_bytes, array)
        copied(HOST, f"cuda:{self.index}", array.nbytes, begin)

    def download(self, dtype: Any, count: int, offset_bytes: int = 0) -> Array:
        """Return a part of the buffer as a new host array."""
        array = np.empty(count, dtype)
        begin = perf_counter()
        self._copy("DOWN", offset_bytes, array)
        copied(f"cuda:{self.index}", HOST, array.nbytes, begin)
        return array

    def fill_bytes(self, byte: int, count: int | None = None) -> None:
        """Set the first ``count`` bytes, by default all."""
        use(self.index)
        _, runtime = bindings()
        nbytes = self.nbytes if count is None else count
        if nbytes:
            checked(runtime.cudaMemset(self.pointer, byte, nbytes), f"filling on cuda:{self.index}")
            # cudaMemset is asynchronous, and non-blocking streams do not wait for it.
            checked(runtime.cudaStreamSynchronize(0), f"filling on cuda:{self.index}")

    def _copy(self, way: Literal["UP", "DOWN"], offset_bytes: int, array: Array) -> None:
        from godwit.runtime.cuda.transfer.copies import copy_by_pool  # which needs this module
        from godwit.runtime.cuda.transfer.staging import Way

        pointer, nbytes = self.pointer + offset_bytes, array.nbytes
        if nbytes == 0 or copy_by_pool(Way[way], self.index, pointer, array):
            return
        use(self.index)
        _, runtime = bindings()
        host, kind = array.ctypes.data, runtime.cudaMemcpyKind.cudaMemcpyDefault
        ends = (pointer, host) if way == "UP" else (host, pointer)
        outcome = runtime.cudaMemcpy(*ends, nbytes, kind)
        checked(outcome, f"copying {nbytes:,} bytes on cuda:{self.index}")
        # From ordinary memory cudaMemcpy may return before all has arrived.
        checked(runtime.cudaStreamSynchronize(0), f"copying on cuda:{self.index}")

    def close(self) -> None:
        """Free the memory. Errors of earlier work on the GPU are not raised here."""
        pointer, self.pointer, self.nbytes = self.pointer, 0, 0
        if pointer:
            _free(self.index, pointer)

    def moved(self) -> Buffer:
        """Return a buffer with the memory of this one, which has none afterwards."""
        made = _buffer_at(self.index, self.nbytes, self.pointer)
        self.pointer, self.nbytes = 0, 0
        return made

    def keep(self) -> None:
        """Close the buffer, and keep its memory for :func:`kept_or_new`, up to :data:`KEPT_BYTES`.

        Waits for all work on the GPU, as freeing does: nothing may use what others get.
        """
        pointer, self.pointer = self.pointer, 0
        nbytes, self.nbytes = self.nbytes, 0
        if not pointer:
            return
        surplus = [pointer]
        _, runtime = bindings()
        with suppress(DeviceError), entered(self.index):
            if int(runtime.cudaDeviceSynchronize()[0]) == 0:
                surplus = _KEPT.put(self.index, nbytes, pointer)
        for freed in surplus:
            _free(self.index, freed)

    def __enter__(self) -> Buffer:
        return self

    def __del__(self) -> None:
        # The garbage collector runs at any time, and freeing waits for kernels, which may wait for others
        # that this thread is about to start.
        if getattr(self, "pointer", 0):
            _ABANDONED.append((self.index, self.pointer))


class HeldArray:
    """An array in the memory of a GPU that never changes. A slice of it shares its memory.

    :param index: the GPU
    :param pointer: the address of the first item
    :param owner: what the memory belongs to, which lives as long as the array
    """

    __slots__ = ("_count", "_owner", "dtype", "index", "pointer")

    def __init__(self, index: int, pointer: int, dtype: Any, count: int, owner: object) -> None:
        self.index = index
        self.pointer = pointer
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._count = count
        self._owner = owner

    def __len__(self) -> int:
        return self._count

    @property
    def itemsize(self) -> int:
        """Bytes of an item."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all items."""
        return self._count * self.itemsize

    def __getitem__(self, part: slice) -> HeldArray:
        begin, end, _ = part.indices(self._count)
        pointer = self.pointer + begin * self.itemsize
        return HeldArray(self.index, pointer, self.dtype, max(0, end - begin), self._owner)


def allocated(
    index: int, nbytes: int, allocate: Callable[[], tuple[Any, Any]], no_memory: Any
) -> Any:
    """Return memory of a GPU, which is the current one, having freed what is kept for later if need be.

    :param allocate: returns the status, and the memory of ``nbytes``
    :param no_memory: the status if there is none
    :raises GraphTooLargeError: there is no room, with the bytes needed and free
    """
    status, made = allocate()
    if status == no_memory and free_kept(index):
        status, made = allocate()
    if status == no_memory and (cupy_module := loaded_cupy()) is not None:
        cupy_module.get_default_memory_pool().free_all_blocks()
        status, made = allocate()
    if status == no_memory:
        free = config.readable_bytes(free_memory_bytes(index))
        raise GraphTooLargeError(
            f"cuda:{index} cannot give {config.readable_bytes(nbytes)}: {free} are free"
        )
    checked((status,), f"memory of cuda:{index}")
    return made


def kept_or_new(index: int, nbytes: int) -> Buffer:
    """Return a buffer of kept memory of this size, or a new one. Its content is undefined."""
    pointer = _KEPT.take(index, nbytes)
    if pointer is None:
        return Buffer(index, nbytes)
    return _buffer_at(index, nbytes, pointer)


def mapped_buffer(index: int, nbytes: int, pointer: int, unmap: Callable[[], None]) -> Buffer:
    """Return a buffer of memory that was mapped, and is not to be kept (:meth:`Buffer.keep`).

    :param unmap: frees the memory
    """
    _UNMAPPING[pointer] = unmap
    return _buffer_at(index, nbytes, pointer)


def _buffer_at(index: int, nbytes: int, pointer: int) -> Buffer:
    buffer = Buffer.__new__(Buffer)
    buffer.index, buffer.nbytes, buffer.pointer = index, nbytes, pointer
    return buffer


def free_kept(index: int) -> bool:
    """Free the memory that the process keeps of a GPU; return True if there was any."""
    pointers = _KEPT.take_all(index)
    for pointer in pointers:
        _free(index, pointer)
    return bool(pointers)


def free_abandoned(indexes: Sequence[int]) -> None:
    """Free buffers that were garbage-collected without :meth:`Buffer.close`, on GPUs that are idle."""
    if not _ABANDONED:
        return
    for entry in [entry for entry in _ABANDONED if entry[0] in indexes]:
        _ABANDONED.remove(entry)
        _free(*entry)


def _free(index: int, pointer: int) -> None:
    _, runtime = bindings()
    with suppress(DeviceError), entered(index):
        unmap = _UNMAPPING.pop(pointer, None)
        if unmap is None:
            runtime.cudaFree(pointer)
        else:
            try:
                runtime.cudaDeviceSynchronize()  # as cudaFree does
            finally:  # after Ctrl-C, too
                unmap()


def free_memory_bytes(index: int) -> int:
    """Return the free memory of a GPU, with what CuPy's pool and the process keep for later."""
    _, runtime = bindings()
    with entered(index):
        free, _ = checked(runtime.cudaMemGetInfo(), f"asking cuda:{index} for its memory")
        module = loaded_cupy()
        pooled = 0 if module is None else int(module.get_default_memory_pool().free_bytes())
        return int(free) + pooled + _KEPT.kept_bytes(index)


class PinnedBuffer(_Closing):
    """Page-locked host memory that kernels of every GPU read and write directly. A context manager."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = int(nbytes)
        self.pointer = 0
        _, runtime = bindings()
        outcome = runtime.cudaHostAlloc(max(1, self.nbytes), _PORTABLE_AND_MAPPED)
        self.pointer = int(checked(outcome, f"{self.nbytes:,} bytes of pinned host memory"))

    def array(self, dtype: Any) -> Array:
        """Return the memory as a NumPy array, which must not be used after :meth:`close`."""
        raw = (ctypes.c_byte * self.nbytes).from_address(self.pointer)
        array: Array = np.ctypeslib.as_array(raw).view(np.dtype(dtype))
        return array

    def upload(self, array: Array) -> None:
        """Copy a NumPy array to the beginning of the buffer, while no kernel reads it."""
        array = np.ascontiguousarray(array)
        ctypes.memmove(self.pointer, array.ctypes.data, array.nbytes)

    def fill_bytes(self, byte: int) -> None:
        """Set every byte."""
        self.array(np.uint8)[:] = byte

    def close(self) -> None:
        """Free the memory."""
        pointer, self.pointer = self.pointer, 0
        if pointer:
            _, runtime = bindings()
            runtime.cudaFreeHost(pointer)

    def __enter__(self) -> PinnedBuffer:
        return self

    def __del__(self) -> None:
        # When the interpreter shuts down, names of the module may be gone.
        try:  # noqa: SIM105
            self.close()
        except Exception:
            pass


def is_locked(address: int, nbytes: int) -> bool:
    """Return True if GPUs reach host memory: its first and last byte are page-locked or managed.

    Asked each time, since memory that is freed and allocated again at the same address may be of another
    kind.
    """
    _, runtime = bindings()
    last = address + nbytes - 1
    for pointer in (
        (address,) if address // mmap.PAGESIZE == last // mmap.PAGESIZE else (address, last)
    ):
        status, attributes = runtime.cudaPointerGetAttributes(pointer)
        if status:
            runtime.cudaGetLastError()  # clears the error
            return False
        if attributes.type == runtime.cudaMemoryType.cudaMemoryTypeUnregistered:
            return False
    return True


_KEPT_PINNED: KeptMemory[PinnedBuffer] = KeptMemory(KEPT_PINNED_BYTES)
_released_pinned: deque[PinnedBuffer] = (
    deque()
)  # released by arrays that existed longer than their pool


def take_pinned(nbytes: int) -> PinnedBuffer:
    """Return a kept pinned buffer, or a new one; release it by :func:`keep_pinned`."""
    while _released_pinned:
        keep_pinned(_released_pinned.popleft())
    buffer = _KEPT_PINNED.take(0, nbytes)
    if buffer is None:
        with current_kept():
            buffer = PinnedBuffer(nbytes)
    return buffer


def keep_pinned(buffer: PinnedBuffer) -> None:
    """Keep a pinned buffer for :func:`take_pinned`, up to :data:`KEPT_PINNED_BYTES`."""
    for surplus in _KEPT_PINNED.put(0, buffer.nbytes, buffer):
        surplus.close()


def pinned_kept_bytes() -> int:
    """Return the number of pinned bytes that the process keeps."""
    return _KEPT_PINNED.kept_bytes(0)


class LockedBuffer(PinnedBuffer):
    """Ordinary memory of the process, page-locked so that kernels of every GPU read and write it directly.

    Closing unlocks the pages.

    Unlike memory that CUDA allocates, they are the process's own: a forked process has its copy. Huge pages
    that several threads touch are locked in a third of the time that CUDA needs to allocate as much.

    :param nbytes: a multiple of the size of a page
    :raises DeviceError: CUDA does not lock them, or GPUs would see them at another address
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.pointer = 0
        self.forks = _forks()
        self._process = os.getpid()
        pages = mmap.mmap(-1, self.nbytes, access=mmap.ACCESS_COPY)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # the system has none
                pages.madvise(mmap.MADV_HUGEPAGE)
        self._pages = np.frombuffer(pages, np.uint8)
        _touch(self._pages)
        pointer = self._pages.ctypes.data
        _, runtime = bindings()
        outcome = runtime.cudaHostRegister(pointer, self.nbytes, _PORTABLE_AND_MAPPED)
        checked(outcome, f"{self.nbytes:,} bytes of page-locked host memory")
        self.pointer = pointer
        try:
            seen = checked(runtime.cudaHostGetDevicePointer(pointer, 0), "page-locked memory")
            if int(seen) != pointer:
                raise DeviceError("GPUs see page-locked memory of the host at another address")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unlock the pages, which exist as long as an array over them."""
        pointer, self.pointer = self.pointer, 0
        if pointer and self._process == os.getpid():
            _, runtime = bindings()
            runtime.cudaHostUnregister(pointer)


def _touch(pages: Array) -> None:
    """Make the pages of new memory, which the system zeroes: by several threads if there are many."""
    threads = min(config.thread_count(), _MOST_TOUCHING_THREADS, len(pages) // _TOUCHED_BYTES)
    if threads <= 1:
        pages[:: mmap.PAGESIZE] = 0
        return
    step = -(-len(pages) // threads // mmap.PAGESIZE) * mmap.PAGESIZE

    def touch(begin: int) -> None:
        pages[begin : begin + step : mmap.PAGESIZE] = 0

    with ThreadPoolExecutor(threads, "godwit-touch") as pool:
        list(pool.map(touch, range(0, len(pages), step)))


_FORKS = [0]


def _forks() -> int:
    """Return how often this process was forked."""
    return _FORKS[0]


def _count_fork() -> None:
    _FORKS[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_count_fork)


class ResultMemory:
    """Page-locked memory for the arrays of results on the host, reused when they are garbage-collected.

    Invariants: the arrays that exist and what is kept for further ones have at most ``limit_bytes``;
    no two arrays share memory; memory is reused only if nothing refers to an array over it, nor to a view
    of one. What existed when the process was forked is not reused: before Linux 5.11, a page that both
    processes have may part from the one that GPUs write.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._kept: KeptMemory[LockedBuffer] = KeptMemory(limit_bytes)
        self._released: deque[LockedBuffer] = deque()  # by the garbage collector, at any time
        self._forks = _forks()

    @property
    def limit_bytes(self) -> int:
        """Bytes of arrays that exist and of what is kept for further ones, at most."""
        return self._kept.limit_bytes

    @property
    def lent_bytes(self) -> int:
        """Bytes of arrays that exist."""
        self._take_back()
        return self._kept.lent_bytes(0)

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept for further arrays."""
        self._take_back()
        return self._kept.kept_bytes(0)

    def array(self, count: int, dtype: Any, indexes: Iterable[int]) -> Array | None:
        """Return a new array, with undefined content; None if there is no room for it here.

        :param indexes: GPUs that will write to it, which the caller holds. Their work ends first if the
            memory is reused: copies by the user's libraries may still read the last array there
        """
        nbytes = int(count) * np.dtype(dtype).itemsize
        self._take_back()
        buffer = self._kept.borrow(0, nbytes, 2 * nbytes)
        if buffer is not None:
            _wait_for(indexes)
        else:
            buffer = self._new_buffer(rounded_size(nbytes))
        if buffer is None:
            return None
        holding = Holding(buffer, buffer.pointer, buffer.nbytes)
        holding.release = self._released.append
        return _host_view(holding, buffer.pointer, dtype, (count,))

    def _new_buffer(self, nbytes: int) -> LockedBuffer | None:
        surplus = self._kept.lend(0, nbytes)
        if surplus is None:
            return None
        for buffer in surplus:
            buffer.close()
        try:
            return LockedBuffer(nbytes)
        except (DeviceError, OSError, MemoryError):
            self._kept.end_loan(0, nbytes)
            self._kept.stop_growing(0)  # trying again costs more than it gains
            return None

    def _take_back(self) -> None:
        """Keep the memory of arrays that were garbage-collected."""
        if self._forks != _forks():
            self._forks = _forks()
            for buffer in self._kept.take_all(0):
                buffer.close()
        while self._released:
            buffer = self._released.popleft()
            self._kept.end_loan(0, buffer.nbytes)
            is_usable = buffer.forks == self._forks
            for freed in self._kept.put(0, buffer.nbytes, buffer) if is_usable else [buffer]:
                freed.close()


@lru_cache(maxsize=1)
def result_memory() -> ResultMemory:
    """Return the process's memory for results."""
    return ResultMemory(min(RESULT_BYTES, config.available_memory_bytes() // _RESULT_SHARE))


def new_host_array(count: int, dtype: Any, indexes: Iterable[int]) -> tuple[Array, bool]:
    """Return a new array for a result, and whether it lies in page-locked memory; as of ResultMemory."""
    if count * np.dtype(dtype).itemsize >= LEAST_LOCKED_BYTES:
        array = result_memory().array(count, dtype, indexes)
        if array is not None:
            return array, True
    return np.empty(count, dtype), False


def rounded_size(nbytes: int) -> int:
    """Return a size that is the same for similar sizes."""
    step = max(mmap.PAGESIZE, (1 << max(0, nbytes - 1).bit_length()) // 2 // _ROUNDED_SHARE)
    return -(-nbytes // step) * step


def _wait_for(indexes: Iterable[int]) -> None:
    """Wait for all work on some GPUs."""
    _, runtime = bindings()
    for index in set(indexes):
        use(index)
        checked(runtime.cudaDeviceSynchronize(), f"a kernel on cuda:{index} failed")


class Holding:
    """Memory that exists as long as a pool, a block or an array refers to it.

    :ivar release: called with the memory if the garbage collector takes the last reference
    """

    __slots__ = ("__weakref__", "memory", "nbytes", "pointer", "release")

    def __init__(self, memory: Any, pointer: int, nbytes: int) -> None:
        self.memory = memory
        self.pointer = pointer
        self.nbytes = nbytes
        self.release: Callable[[Any], None] | None = None

    def __del__(self) -> None:
        if self.release is not None:
            self.release(self.memory)


def array_over(
    pointer: int, nbytes: int, index: int, owner: object, dtype: Any, shape: tuple[int, ...]
) -> Any:
    """Return a CuPy array over memory of a GPU; the array refers to the owner."""
    module = cupy()
    memory = module.cuda.UnownedMemory(pointer, nbytes, owner, index)
    return module.ndarray(shape, np.dtype(dtype), module.cuda.MemoryPointer(memory, 0))


def sized(dtype: Any, shape: tuple[int, ...]) -> int:
    """Return the number of bytes of an array."""
    return int(np.dtype(dtype).itemsize) * prod(shape)


ViewOf = Callable[[Holding, int, Any, tuple[int, ...]], Any]
"""``(holding, address, dtype, shape)``: makes an array over a part of the memory."""


class PoolBlock:
    """A piece of a pool's memory.

    :param offset: in the holding
    :param size: of the piece, at least ``nbytes``
    """

    __slots__ = ("_last_view", "_pool", "holding", "nbytes", "offset", "size")

    def __init__(self, pool: Pool, holding: Holding, offset: int, size: int, nbytes: int) -> None:
        self._pool = pool
        self.holding: Holding | None = holding
        self.offset = offset
        self.size = size
        self.nbytes = nbytes
        self._last_view: tuple[int, Any, tuple[int, ...], Any] | None = None  # packets are alike

    @property
    def address(self) -> int:
        """Address of the memory; InputError if it has been given back."""
        if self.holding is None:
            raise InputError("this block has been given back")
        return self.holding.pointer + self.offset

    def view(self, dtype: Any, shape: tuple[int, ...], offset: int = 0) -> Any:
        """Return an array over the block, from an offset in bytes on.

        :raises InputError: the block has been given back, or is too small
        """
        address = self.address + offset
        last = self._last_view
        if last is not None and last[0] == offset and last[1] == dtype and last[2] == shape:
            return last[3]
        if offset + sized(dtype, shape) > self.nbytes:
            raise InputError(
                f"a block of {self.nbytes:,} bytes has no room for {np.dtype(dtype)} of shape {shape}"
                + f" at {offset:,}" * bool(offset)
            )
        assert self.holding is not None
        view = self._pool.view_of(self.holding, address, dtype, shape)
        self._last_view = offset, dtype, shape, view
        return view

    def free(self) -> None:
        """Give the block back to its pool, when no work uses it. Freeing twice is allowed."""
        holding, self.holding = self.holding, None
        if holding is not None:
            self._last_view = None
            self._pool.take_back(self, holding)


class Pool:
    """Source of blocks.

    :param name: the owner of the memory, for error messages
    :param make: allocates
    :param discard: frees what ``make`` made
    :param limit_bytes: of all blocks together, and of what the pool keeps for further ones
    :ivar used_bytes: size of the blocks that have not been given back
    """

    def __init__(
        self,
        name: str,
        make: Callable[[int], Holding],
        discard: Callable[[Any], None],
        view_of: ViewOf,
        limit_bytes: int | None = None,
    ) -> None:
        self.name = name
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.view_of = view_of
        self._make = make
        self._discard = discard
        self._lock = threading.RLock()  # the garbage collector may run while it is held

    def allocate(self, nbytes: int) -> PoolBlock:
        """Return a block of at least this size.

        :raises InputError: the limit does not leave room
        """
        size = max(_ALIGNED_BYTES, -(-nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES)
        with self._lock:
            holding, offset = self._piece(size)
            self.used_bytes += size
        return PoolBlock(self, holding, offset, size, nbytes)

    def take_back(self, block: PoolBlock, holding: Holding) -> None:
        """Reuse the memory of a block that is given back."""
        with self._lock:
            self.used_bytes -= block.size
            self._put_back(block, holding)

    def close(self) -> None:
        """Release all memory. Closing twice is allowed."""
        with self._lock:
            held = self._take_holdings()
            while held:
                _discard_unless_held(held.pop, self._discard)

    def _piece(self, size: int) -> tuple[Holding, int]:
        """Return memory for a block, and where it begins there."""
        raise NotImplementedError

    def _put_back(self, block: PoolBlock, holding: Holding) -> None:
        raise NotImplementedError

    def _take_holdings(self) -> list[Holding]:
        """Remove and return all memory that no block uses."""
        raise NotImplementedError

    def _no_room(self, size: int, left: int) -> InputError:
        limit, room = (
            config.readable_bytes(self.limit_bytes or 0),
            config.readable_bytes(max(0, left)),
        )
        return InputError(
            f"a buffer of {config.readable_bytes(size)} does not fit in the pool of {self.name}, {limit}, "
            f"of which {room} are left in one piece; use smaller packets, fewer buffers or a larger pool"
        )


class GrowingPool(Pool):
    """Pool whose blocks are allocations of their own, reused by size."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._spare: dict[int, list[Holding]] = {}

    def _piece(self, size: int) -> tuple[Holding, int]:
        spare = self._spare.get(size)
        if spare:
            return spare.pop(), 0
        limit = self.limit_bytes
        if limit is not None:
            kept = sum(length * len(holdings) for length, holdings in self._spare.items())
            if self.used_bytes + kept + size > limit:
                self.close()
            if self.used_bytes + size > limit:
                raise self._no_room(size, limit - self.used_bytes)
        return self._make(size), 0

    def _put_back(self, block: PoolBlock, holding: Holding) -> None:
        self._spare.setdefault(block.size, []).append(holding)

    def _take_holdings(self) -> list[Holding]:
        holdings = [holding for spare in self._spare.values() for holding in spare]
        self._spare.clear()
        return holdings


class SlabPool(Pool):
    """Pool whose blocks are cut from one allocation of ``limit_bytes``, made for the first block.

    Invariant: gaps are in the order of their offsets, do not touch, and with the blocks are the whole.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        assert self.limit_bytes is not None
        self._holding: Holding | None = None
        self._gaps: list[tuple[int, int]] = [(0, self.limit_bytes)]  # offset, length

    def _piece(self, size: int) -> tuple[Holding, int]:
        position = next((at for at, (_, length) in enumerate(self._gaps) if length >= size), None)
        if position is None:
            raise self._no_room(size, max((length for _, length in self._gaps), default=0))
        if self._holding is None:
            self._holding = self._make(self.limit_bytes or 0)
        offset, length = self._gaps[position]
        self._gaps[position : position + 1] = (
            [(offset + size, length - size)] if length > size else []
        )
        return self._holding, offset

    def _put_back(self, block: PoolBlock, holding: Holding) -> None:
        gap = block.offset, block.size
        insort(self._gaps, gap)
        position = self._gaps.index(gap)
        for left in (position, position - 1):
            if 0 <= left < len(self._gaps) - 1:
                (begin, length), (behind, more) = self._gaps[left : left + 2]
                if begin + length == behind:
                    self._gaps[left : left + 2] = [(begin, length + more)]

    def _take_holdings(self) -> list[Holding]:
        holding, self._holding = self._holding, None
        return [] if holding is None else [holding]


def _discard_unless_held(take: Callable[[], Holding], discard: Callable[[Any], None]) -> None:
    """Discard a holding if nothing else refers to it; else it is released with the last array over it.

    :param take: returns the caller's only reference
    """
    holding = take()
    memory, seen = holding.memory, weakref.ref(holding)
    release, holding.release = holding.release, None
    del holding
    remaining = seen()
    if remaining is None:
        discard(memory)
    else:
        remaining.release = release


def gpu_pool(index: int, limit_bytes: int | None) -> Pool:
    """Return a pool of a GPU's memory, accessible to its peers."""

    def allocated(allocate: Callable[[int, int], Buffer], nbytes: int) -> Holding:
        with current_kept():
            buffer = allocate(index, nbytes)
        return Holding(buffer, buffer.pointer, nbytes)

    name, view_of = f"cuda:{index}", partial(_gpu_view, index)
    if limit_bytes is None:
        return GrowingPool(name, partial(allocated, kept_or_new), Buffer.keep, view_of)
    size = limit_bytes // _ALIGNED_BYTES * _ALIGNED_BYTES
    return SlabPool(name, partial(allocated, Buffer), Buffer.close, view_of, size)


def pinned_pool(limit_bytes: int | None) -> Pool:
    """Return a pool of pinned memory of the host."""

    def allocated(nbytes: int) -> Holding:
        buffer = take_pinned(nbytes)
        holding = Holding(buffer, buffer.pointer, nbytes)
        holding.release = _released_pinned.append
        return holding

    return GrowingPool("the host", allocated, keep_pinned, _host_view, limit_bytes)


def given_gpu_pool(index: int, memory: Any, limit_bytes: int | None) -> Pool:
    """Return a pool over a CuPy array of the user's."""
    pointer = int(memory.data.ptr)
    return _given_pool(f"cuda:{index}", memory, pointer, partial(_gpu_view, index), limit_bytes)


def given_host_pool(memory: Array, limit_bytes: int | None) -> Pool:
    """Return a pool over an array of bytes of the user's, in pinned memory."""
    return _given_pool("the host", memory, memory.ctypes.data, _host_view, limit_bytes)


def _given_pool(
    name: str, memory: Any, pointer: int, view_of: ViewOf, limit_bytes: int | None
) -> Pool:
    usable = memory.nbytes if limit_bytes is None else min(memory.nbytes, limit_bytes)
    size = int(usable) // _ALIGNED_BYTES * _ALIGNED_BYTES
    holding = Holding(memory, pointer, size)
    return SlabPool(name, lambda nbytes: holding, lambda memory: None, view_of, size)


def _gpu_view(index: int, holding: Holding, address: int, dtype: Any, shape: Any) -> Any:
    return array_over(address, sized(dtype, shape), index, holding, dtype, shape)


def _host_view(holding: Holding, address: int, dtype: Any, shape: tuple[int, ...]) -> Array:
    nbytes = sized(dtype, shape)
    if nbytes == 0:
        return np.empty(shape, dtype)
    raw = (ctypes.c_byte * nbytes).from_address(address)
    raw.holding = holding  # type: ignore[attr-defined]
    array: Array = np.frombuffer(raw, np.uint8).view(dtype).reshape(shape)  # type: ignore[call-overload]
    return array
