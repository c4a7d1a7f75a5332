"""Emulated GPUs: their memory, and the streams in which kernels wait for their turn.

What a stream gets is done when the host waits for something: then all streams go on together, so that
kernels that wait for each other can. What would wait for such kernels on a real GPU (allocating, freeing,
loading) fails here while they are under way. Copies must stay within a buffer; writes beyond its ends are
found.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count as count_up
from typing import Any

import numpy as np

PAGE_BYTES = 4096
"""Granularity of physical memory that is mapped."""
_GUARD = b"\xab" * 256  # before and behind every buffer
_GARBAGE = 0xCD
_MOST_FILLED_BYTES = 1 << 26


# As emulated_grid.cpp has them.
_KERNEL = np.dtype(
    [
        ("start", np.uint64),
        *((name, np.uint32) for name in ("device", "blocks", "threads", "shared", "resident")),
        ("padding", np.uint32),
    ]
)
_RANGE = np.dtype(
    [("begin", np.uint64), ("bytes", np.uint64), ("device", np.int32), ("padding", np.uint32)]
)


_ONE_AT_A_TIME = threading.Lock()  # there is one set of fibers


class EmulationError(AssertionError):
    """Something that a real GPU would not forgive, or would wait for for ever."""


@dataclass
class Kernel:
    """A kernel of a library.

    :param name: its name
    :param sizes: bytes of each parameter
    :param starter: makes a launch of the addresses of its arguments
    :ivar shared_bytes: dynamic shared memory that it may be launched with
    """

    name: str
    sizes: list[int]
    starter: Callable[[int], int]
    shared_bytes: int = 48 << 10

    def __int__(self) -> int:
        """As a handle: where it lies."""
        return id(self)


@dataclass
class _Launch:
    kernel: Kernel
    start: int
    blocks: int
    threads: int
    shared_bytes: int
    cooperative: bool


@dataclass
class _Memory:
    """Memory that kernels access.

    :param device: where it lies; -1 for the host
    :param is_reserved: addresses alone, to which memory of GPUs is mapped
    """

    device: int
    nbytes: int
    held: np.ndarray[Any, Any] | None
    is_reserved: bool = False


@dataclass
class _Pages:
    """Physical memory of a GPU, which exists until it is released, and mapped to no address.

    :param address: to which it is mapped, or None
    """

    device: int
    nbytes: int
    address: int | None = None
    is_released: bool = False


@dataclass
class _Stream:
    device: int
    left: deque[Any] = field(default_factory=deque)


class Machine:
    """Emulated GPUs.

    :ivar seed: of the schedule: 0 is by turns, others are as many random ones
    :ivar hosts_write: whether threads of the host write what kernels wait for, while these run
    :ivar launched: how often each kernel was started, by name
    """

    def __init__(
        self, run: Callable[..., Any], forget: Callable[[int], None], count: int, *,
        multiprocessors: int, blocks_per_multiprocessor: int, most_threads: int, memory_bytes: int,
        peers: Any, seed: int, checks: bool | str, explain: Callable[[str], str],
    ) -> None:  # fmt: skip
        self._run = run
        self._forget = forget
        self.count = count
        self.multiprocessors = multiprocessors
        self.blocks_per_multiprocessor = blocks_per_multiprocessor
        self.most_threads = most_threads
        self.memory_bytes = memory_bytes
        self.peers = np.ones((count, count), bool) if peers is None else np.asarray(peers, bool)
        self.seed = seed
        self.checks = checks
        self.hosts_write = False
        self._explain = explain
        self.launched: dict[str, int] = {}
        self.lock = threading.RLock()
        self._current = threading.local()
        self._memory: dict[int, _Memory] = {}
        self.maps_memory = True  # of several GPUs to consecutive addresses
        self._pages: dict[int, _Pages] = {}
        self._pointers: list[int] = []
        self._streams: dict[int, _Stream] = {}
        self._numbers = count_up(1)

    # Memory.

    @property
    def device(self) -> int:
        """The calling thread's current GPU."""
        return int(getattr(self._current, "device", 0))

    @device.setter
    def device(self, index: int) -> None:
        self._current.device = index

    def held_bytes(self, device: int) -> int:
        """What is allocated on a GPU; of page-locked host memory for -1."""
        buffers = [one for one in list(self._memory.values()) if not one.is_reserved]
        pages = list(self._pages.values())
        in_buffers = sum(one.nbytes for one in buffers if one.device == device)
        return in_buffers + sum(one.nbytes for one in pages if one.device == device)

    def holds(self, pointer: int) -> bool:
        """Whether that is where allocated memory begins."""
        return pointer in self._memory

    def allocate(self, device: int, nbytes: int) -> int:
        """The pointer to new memory, 0 if there is not enough."""
        with self.lock:
            self.refuse_while_running("allocating")
            if device >= 0 and self.held_bytes(device) + nbytes > self.memory_bytes:
                return 0
            return self._add(device, nbytes)

    def _add(self, device: int, nbytes: int, *, is_reserved: bool = False) -> int:
        with self.lock:
            held = np.empty(nbytes + 3 * len(_GUARD), np.uint8)
            pointer = -(-(held.ctypes.data + len(_GUARD)) // 256) * 256
            begin = pointer - held.ctypes.data
            if nbytes <= _MOST_FILLED_BYTES:
                held[:] = _GARBAGE
            guard = np.frombuffer(_GUARD, np.uint8)
            held[begin - len(_GUARD) : begin] = guard
            held[begin + nbytes : begin + nbytes + len(_GUARD)] = guard
            self._memory[pointer] = _Memory(device, nbytes, held, is_reserved)
            self._pointers = sorted(self._memory)
            return pointer

    # Memory of several GPUs at consecutive addresses.

    def create_pages(self, device: int, nbytes: int) -> int:
        """The number of new physical memory, 0 if there is not enough."""
        with self.lock:
            if nbytes % PAGE_BYTES:
                raise EmulationError(f"{nbytes} bytes are no whole pages")
            if self.held_bytes(device) + nbytes > self.memory_bytes:
                return 0
            number = next(self._numbers)
            self._pages[number] = _Pages(device, nbytes)
            return number

    def reserve(self, nbytes: int) -> int:
        """The first of new addresses without memory."""
        return self._add(self.device, nbytes, is_reserved=True)

    def map_pages(self, address: int, nbytes: int, number: int) -> None:
        """Give reserved addresses their memory."""
        with self.lock:
            pages = self._pages[number]
            base = self._pointers[bisect_right(self._pointers, address) - 1]
            memory = self._memory[base]
            is_inside = memory.is_reserved and address + nbytes <= base + memory.nbytes
            if not is_inside or pages.nbytes != nbytes or pages.address is not None:
                raise EmulationError("pages are mapped to addresses that are not theirs")
            if any(address < end and begin < address + nbytes for begin, end, _ in self._mapped()):
                raise EmulationError("pages are mapped to addresses that have memory")
            pages.address = address

    def release_pages(self, number: int) -> None:
        """Free physical memory, once it is not mapped."""
        with self.lock:
            self._pages[number].is_released = True
            self._drop_pages()

    def require_access(self, address: int, nbytes: int, devices: Sequence[int]) -> None:
        """EmulationError unless all of these addresses have memory that the GPUs reach."""
        with self.lock:
            there = [one for one in self._mapped() if address <= one[0] < address + nbytes]
            if sum(end - begin for begin, end, _ in there) != nbytes:
                raise EmulationError("addresses without memory")
            for here in devices:
                for _, _, device in there:
                    if here != device and not self.peers[here, device]:
                        raise EmulationError(f"GPU {here} does not reach GPU {device}")

    def unmap(self, address: int, nbytes: int) -> bool:
        """Take all of the memory away that was mapped there at once; whether there was some."""
        with self.lock:
            self.refuse_while_running("unmapping")
            for pages in self._pages.values():
                if pages.address == address and pages.nbytes == nbytes:
                    pages.address = None
                    self._drop_pages()
                    return True
            return False

    def unreserve(self, address: int, nbytes: int) -> None:
        """Give addresses back, whose memory was unmapped."""
        with self.lock:
            is_mapped = any(address <= begin < address + nbytes for begin, _, _ in self._mapped())
            if is_mapped or self._memory[address].nbytes != nbytes:
                raise EmulationError(
                    "addresses are given back that are mapped, or only some of them"
                )
            self.free(address)

    def _mapped(self) -> list[tuple[int, int, int]]:
        """Addresses that have memory: the first, the end, and the GPU."""
        return [
            (one.address, one.address + one.nbytes, one.device)
            for one in self._pages.values()
            if one.address is not None
        ]

    def _drop_pages(self) -> None:
        kept = self._pages.items()
        self._pages = {
            number: one for number, one in kept if one.address is not None or not one.is_released
        }

    def adopt(self, pointer: int, nbytes: int) -> None:
        """Take the host's own memory for page-locked."""
        with self.lock:
            self._memory[pointer] = _Memory(-1, nbytes, None)
            self._pointers = sorted(self._memory)

    def free(self, pointer: int) -> None:
        """Give memory back, having looked for writes beyond its ends."""
        with self.lock:
            self.refuse_while_running("freeing")
            if pointer not in self._memory:
                raise EmulationError(f"{pointer:#x} is freed and was not allocated, or is free")
            self.check_guards(pointer)
            del self._memory[pointer]
            self._pointers = sorted(self._memory)

    def check_guards(self, pointer: int) -> None:
        """EmulationError if there was a write before or behind a buffer."""
        one = self._memory[pointer]
        if one.held is None:
            return
        begin = pointer - one.held.ctypes.data
        end = begin + one.nbytes
        where = f"a buffer of {one.nbytes} bytes on GPU {one.device}"
        if one.held[begin - len(_GUARD) : begin].tobytes() != _GUARD:
            raise EmulationError(f"written before {where}")
        if one.held[end : end + len(_GUARD)].tobytes() != _GUARD:
            raise EmulationError(f"written behind {where}")

    def check_range(self, pointer: int, nbytes: int, what: str) -> None:
        """EmulationError if a range begins in a buffer and ends outside."""
        place = bisect_right(self._pointers, pointer) - 1
        if place < 0 or nbytes == 0:
            return
        base = self._pointers[place]
        one = self._memory[base]
        if pointer < base + one.nbytes < pointer + nbytes:
            raise EmulationError(
                f"{what} {nbytes} bytes at {pointer - base} of a buffer of {one.nbytes} bytes"
            )

    def kind_at(self, pointer: int) -> int:
        """The number of ``cudaMemoryType``: 0 for the host's own, 1 for page-locked, 2 for a GPU's."""
        place = bisect_right(self._pointers, pointer) - 1
        base = self._pointers[place] if place >= 0 else 0
        if place < 0 or pointer >= base + self._memory[base].nbytes:
            return 0
        return 1 if self._memory[base].device < 0 else 2

    def copy(self, to: int, source: int, nbytes: int) -> None:
        """Copy now."""
        self.check_range(to, nbytes, "writing")
        self.check_range(source, nbytes, "reading")
        ctypes.memmove(to, source, nbytes)

    # Streams.

    def refuse_while_running(self, what: str) -> None:
        """EmulationError if kernels that may wait for each other were started and not waited for.

        A kernel whose blocks wait for each other may wait for kernels of other streams; where only one
        stream has any, it does not, so that memory may be allocated, and kernels loaded.
        """
        with self.lock:
            by_stream = [
                [one for one in stream.left if isinstance(one, _Launch) and one.cooperative]
                for stream in self._streams.values()
            ]
        waiting = [launches[0] for launches in by_stream if launches]
        if len(waiting) > (what in ("allocating", "loading")):
            raise EmulationError(
                f"{what} may wait for kernel {waiting[0].kernel.name}, which may wait for another"
            )

    def new_stream(self) -> int:
        """Of the current GPU."""
        with self.lock:
            number = self.new_number()
            self._streams[number] = _Stream(self.device)
            return number

    def new_number(self) -> int:
        """Of something that the host holds."""
        return next(self._numbers)

    def end_stream(self, stream: int) -> None:
        """Finish, and forget a stream."""
        with self.lock:
            self.finish()
            self._streams.pop(stream, None)

    def put(self, stream: int, work: Any) -> None:
        """Something to be done in a stream: a launch, or a function."""
        with self.lock:
            if stream == 0:  # the null stream: at once
                self.finish()
                self._do([(self.device, work)])
            else:
                self._streams[stream].left.append(work)

    def is_idle(self, stream: int) -> bool:
        """Whether nothing is left to do in a stream."""
        with self.lock:
            return not self._streams[stream].left

    def finish(self) -> None:
        """Do all that is left in all streams, the next of each together."""
        with self.lock:
            try:
                while True:
                    waiting = [one for one in self._streams.values() if one.left]
                    if not waiting:
                        return
                    self._do([(one.device, one.left.popleft()) for one in waiting])
            except BaseException:
                for stream in self._streams.values():
                    stream.left.clear()
                raise

    def _do(self, work: list[tuple[int, Any]]) -> None:
        launches = []
        for device, one in work:
            if isinstance(one, _Launch):
                launches.append((device, one))
            else:
                one()
        if launches:
            self._start(launches)

    def _start(self, work: list[tuple[int, _Launch]]) -> None:
        launches = [one for _, one in work]
        resident = self.multiprocessors * self.blocks_per_multiprocessor
        kernels = np.array(
            [
                (
                    one.start, device, one.blocks, one.threads, one.shared_bytes,
                    one.blocks if one.cooperative else resident, 0,
                )
                for device, one in work
            ],
            _KERNEL,
        )  # fmt: skip
        places = [(at, self._memory[at]) for at in self._pointers] if self.checks else []
        ranges = np.array([(at, one.nbytes, one.device, 0) for at, one in places], _RANGE)
        access = np.ascontiguousarray(self.peers | np.eye(self.count, dtype=bool), np.uint8)
        with _ONE_AT_A_TIME:
            message = self._run(
                len(work), kernels.ctypes.data, self.seed, len(ranges), ranges.ctypes.data,
                self.count, access.ctypes.data, int(self.checks == "strict"), int(self.hosts_write),
            )  # fmt: skip
        for one in launches:
            self._forget(one.start)
        if self.seed:
            self.seed += 1
        if message is not None:
            names = ", ".join(sorted({one.kernel.name for one in launches}))
            raise EmulationError(f"{names}: {self._explain(message.decode())}")
        for pointer in self._memory:
            self.check_guards(pointer)

    def launch(
        self, kernel: Kernel, stream: int, addresses: int, blocks: int, threads: int,
        shared_bytes: int, *, cooperative: bool,
    ) -> str:  # fmt: skip
        """Put a kernel into a stream; the name of an error, or nothing."""
        if blocks > 1 or cooperative:
            threads = min(threads, self.most_threads)
        room = self.multiprocessors * self.blocks_per_multiprocessor
        if cooperative and blocks > room:
            return "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"
        if shared_bytes > kernel.shared_bytes or not 0 < threads <= 1024 or blocks < 1:
            return "CUDA_ERROR_INVALID_VALUE"
        with self.lock:
            self.launched[kernel.name] = self.launched.get(kernel.name, 0) + 1
            start = kernel.starter(addresses)
            self.put(stream, _Launch(kernel, start, blocks, threads, shared_bytes, cooperative))
        return ""
