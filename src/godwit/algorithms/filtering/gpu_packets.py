"""Filtering of a host array on GPUs, which CPUs may help: one thread feeds all GPUs.

Groute's first example (Ben-Nun et al., "Groute: asynchronous multi-GPU programming model with applications
to large-scale graph processing", 2020, sections 3 and 5.3, figures 5 and 6): packets go to whichever device
is free, and their kept items come back.

A GPU claims a packet whenever it has few in flight. The copy of a packet and its kernel are enqueued at
once, and events are polled in turn; nothing waits. Handing packets from thread to thread would cost the
host more time than a GPU takes for one. A GPU has several *slots*, each with room for a packet and for its
kept items: one is filtered while others are copied.

If the result is page-locked, kept items are copied from the GPU to their position, which is known when all
previous packets are counted; until then they stay on the GPU. Else, and if a GPU has no free slot because
another one is slow, they are copied to a page-locked buffer, from which threads move them on (assembly.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from time import sleep
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.filtering.assembly import Assembly, Packet, PacketShare, Share
from godwit.algorithms.filtering.cpu import SharedFilter, room_for, time_limit, too_small
from godwit.algorithms.filtering.predicate import Predicate, is_plain
from godwit.dataflow.context import Context
from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.packets import PAUSE_S, current_gpu_kept, is_page_locked, packet_items
from godwit.dtypes import Array
from godwit.runtime.memory import Block, Event, Space

PACKET_BYTES = 32 << 20
"""Largest default packet."""
LEAST_PACKET_BYTES = 4 << 20
"""Smallest default packet: each costs the host a tenth of a millisecond."""
HOST_BUFFER_BYTES = 512 << 20
"""Page-locked memory for buffers, unless three packets are more. The process keeps it: to lock more for
every call
takes longer than filtering."""
READY_PACKETS = 3
"""Packets in flight to a GPU, at most."""
SLOTS_PER_PACKET = 2
"""Slots per packet in flight: others hold kept items until their position is known."""
CPU_SHARE = 0.5
"""Share of the cores that filter beside GPUs; the others copy data of GPUs."""
_PACKETS = 16
"""Packets per GPU at most, in between: before the first and after the last of them a GPU is idle."""
_MAX_MOVERS = 8


def filter_on_gpus(
    context: Context,
    array: Array,
    predicate: Predicate,
    dtype: np.dtype[Any],
    out: Array | None,
    *,
    ordered: bool,
    packet_bytes: int | None,
    buffers: int | None,
    progress: Callable[[int], None] | None,
    timeout_s: float | None,
) -> Array:
    """Return the items of a host array that a predicate keeps; the context has GPUs, and perhaps CPUs.

    :param dtype: of the items, in native byte order
    :param out: array of the dtype for the result; None: a new one
    :param timeout_s: limit for all but compiling
    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises InputError: ``out`` is too small
    :raises RunTimeoutError: out of time
    """
    endpoints = [endpoint for endpoint in context.endpoints if endpoint.space.kind == "cuda"]
    if packet_bytes is None:
        packet_bytes = gpu_packet_bytes(array.size * dtype.itemsize, len(endpoints))
    most_items = max(1, packet_bytes // dtype.itemsize)
    room = room_for(array.size, dtype) if out is None else out
    units = _units_beside_gpus(context, array, predicate, dtype, room, out, most_items)
    share: Share = PacketShare(array.size, ordered=ordered) if units is None else units
    packets = _Packets(array, dtype, share, most_items, len(endpoints))
    ready = buffers or READY_PACKETS
    with ExitStack() as stack:
        stack.enter_context(current_gpu_kept())
        most_buffers = _host_buffers(packet_bytes)
        host_buffers = Buffers(context.host.space, most_items, dtype, most_buffers)
        stack.callback(host_buffers.close)
        assembly = Assembly(
            share,
            room,
            is_ours=out is None,
            progress=progress,
            movers=_movers(),
            most_held=(most_buffers - 1) // 2,
        )
        stack.callback(assembly.close)
        with endpoints[0].space.entered():
            is_direct = out is not None and is_page_locked(out)
        feeders, filters = [], []
        for endpoint in endpoints:
            with endpoint.space.entered():
                slots = SLOTS_PER_PACKET * ready
                gpu_filter = host_filter(endpoint, predicate, dtype, most_items, slots)
            filters.append(stack.enter_context(closing(gpu_filter)))
            feeders.append(
                Feeder(gpu_filter, packets, assembly, host_buffers, ready, is_direct=is_direct)
            )
            feeders[-1].advance()  # packets are in flight while the next filter is made
        workers = stack.enter_context(context.workers())
        if units is not None:
            stack.enter_context(_aborting(units))
            cpu = next(endpoint for endpoint in context.endpoints if endpoint not in endpoints)
            workers.start(cpu, filter_units, units)
        for gpu_filter in filters:
            gpu_filter.prepare()
        if units is not None and timeout_s is not None:
            units.prepare()  # as its worker does, but before the time counts
        check_time = time_limit(timeout_s)
        while True:
            has_moved = False
            for feeder in feeders:
                has_moved = feeder.advance() or has_moved
            for gpu_filter in filters:
                gpu_filter.advance()
            if units is not None and not units.advance():
                raise too_small(room, units.next_kept)
            is_all = assembly.advance() and share.placed[0] == array.size
            if is_all and all(feeder.is_done for feeder in feeders):
                break
            if context.cancel_scope.cause is not None:
                context.cancel_scope.check()
            check_time()
            if not has_moved:
                sleep(PAUSE_S)
    return assembly.result()


def filter_units(units: SharedFilter) -> None:
    """Filter units beside GPUs; function of the CPU's worker, by which traces name it."""
    units.run()


def host_filter(
    endpoint: Endpoint, predicate: Predicate, dtype: np.dtype[Any], packet_items: int, slots: int
) -> Any:
    """Return the :class:`~.cuda.GpuHostFilter` of a GPU endpoint.

    :raises GraphTooLargeError: the GPU has no room for the slots
    """
    from godwit.algorithms.filtering.cuda import GpuHostFilter

    return GpuHostFilter(endpoint, predicate, dtype, packet_items, slots)


def _units_beside_gpus(
    context: Context, array: Array, predicate: Predicate, dtype: np.dtype[Any], room: Array,
    out: Array | None, packet_items: int,
) -> SharedFilter | None:  # fmt: skip
    """Return the array shared with CPUs; None without CPUs, or if compiled code cannot use the arrays."""
    cpus = [device for device in context.devices if device.kind == "cpu"]
    has_room = out is not None or len(room) >= array.size
    if not (cpus and has_room and is_plain(array, dtype) and room.flags.c_contiguous):
        return None
    most = max(1, int(config.thread_count() * CPU_SHARE))
    threads = min(most, sum(device.threads for device in cpus))
    return SharedFilter(predicate, array, room, threads, packet_items)


@contextmanager
def _aborting(units: SharedFilter) -> Iterator[None]:
    """Return a block whose failure ends the CPU's threads."""
    try:
        yield
    except BaseException:
        units.abort()
        raise


def gpu_packet_bytes(nbytes: int, gpus: int) -> int:
    """Return the default packet size: a power of two, so that kept buffers fit the next call, too."""
    share = max(1, nbytes // (_PACKETS * gpus))
    return min(PACKET_BYTES, max(LEAST_PACKET_BYTES, 1 << (share - 1).bit_length()))


def _movers() -> int:
    return max(1, min(_MAX_MOVERS, config.thread_count() // 2))


def _host_buffers(packet_bytes: int) -> int:
    """Return the number of buffers: for packets being moved or held, and two that are always available."""
    return max(3, min(2 * _movers() + 2, HOST_BUFFER_BYTES // packet_bytes))


class _Packets:
    """Packets that GPUs claim from a share of an array."""

    def __init__(
        self, array: Array, dtype: np.dtype[Any], share: Share, most_items: int, gpus: int
    ) -> None:
        self._array = array
        self._dtype = dtype
        self._is_plain = is_plain(array, dtype)
        self._share = share
        self._most_items = most_items
        self._gpus = gpus

    def take(self) -> tuple[Packet, Array] | None:
        """Claim the next packet; return it with its items, or None if all are claimed."""
        wanted = packet_items(self._share.left_items, self._most_items, self._gpus)
        claimed = self._share.take(wanted)
        if claimed is None:
            return None
        begin, end = claimed
        items = self._array[begin:end]
        return Packet(begin, end - begin), items if self._is_plain else np.array(items, self._dtype)


class Buffers:
    """Pool of page-locked buffers, allocated on demand.

    :param most: largest number of buffers
    """

    def __init__(self, space: Space, items: int, dtype: np.dtype[Any], most: int) -> None:
        self._space = space
        self._items = items
        self._dtype = dtype
        self._most = most
        self._blocks: list[Block] = []
        self._free: deque[Array] = deque()

    def take(self) -> Array | None:
        """Return a free buffer; None if all are in use."""
        try:
            return self._free.popleft()
        except IndexError:
            pass
        if len(self._blocks) == self._most:
            return None
        block = self._space.allocate(self._items * self._dtype.itemsize)
        self._blocks.append(block)
        view: Array = block.view(self._dtype, (self._items,))
        return view

    def give_back(self, buffer: Array) -> None:
        """Return a buffer to the pool; called by any thread."""
        self._free.append(buffer)

    def close(self) -> None:
        """Free the memory; no buffer may be in use."""
        self._free.clear()
        for block in self._blocks:
            block.free()
        self._blocks.clear()


@dataclass(eq=False)
class BufferedPiece:
    """Kept items of a packet in a buffer of the host."""

    packet: Packet
    array: Array
    buffer: Array
    buffers: Buffers

    def release(self) -> None:
        """Return the buffer to its pool."""
        self.buffers.give_back(self.buffer)


class Feeder:
    """Packets and kept items of one GPU.

    :param gpu_filter: a :class:`~.cuda.GpuHostFilter`
    :param ready: packets in flight to the GPU, at most: a slow GPU must not hold what others could take
    :param is_direct: True if copy engines reach the result
    """

    def __init__(
        self, gpu_filter: Any, packets: _Packets, assembly: Assembly, buffers: Buffers, ready: int,
        *, is_direct: bool,
    ) -> None:  # fmt: skip
        self._packets = packets
        self._assembly = assembly
        self._buffers = buffers
        self._ready = ready
        self._is_direct = is_direct
        self._free = deque(gpu_filter.slots)
        self._started: deque[tuple[Any, Packet]] = deque()
        self._counted: deque[tuple[Any, Packet, int]] = deque()
        self._returning: deque[tuple[Event, BufferedPiece | None]] = deque()
        self._has_all = False

    @property
    def is_done(self) -> bool:
        """True if no packet is left, and all kept items are in place or being moved there."""
        return self._has_all and not (self._started or self._counted or self._returning)

    def advance(self) -> bool:
        """Do all steps that need not wait; return True if there were any."""
        has_moved = self._receive()
        while self._started and (count := self._started[0][0].count()) is not None:
            slot, packet = self._started.popleft()
            self._assembly.counted(packet, count)
            self._counted.append((slot, packet, count))
            has_moved = True
        while self._counted and self._return(*self._counted[0]):
            self._counted.popleft()
            has_moved = True
        return self._start_packet() or has_moved

    def _start_packet(self) -> bool:
        """Start one packet: those of several GPUs are then adjacent, and are placed soon."""
        if self._has_all or not self._free or len(self._started) == self._ready:
            return False
        claimed = self._packets.take()
        if claimed is None:
            self._has_all = True
            return True
        packet, items = claimed
        slot = self._free.popleft()
        slot.start(items)
        self._started.append((slot, packet))
        return True

    def _return(self, slot: Any, packet: Packet, count: int) -> bool:
        """Start to copy a packet's kept items to their position, or to a buffer."""
        target = self._assembly.place(packet, count) if self._is_direct else None
        piece = None
        if target is None:
            if self._is_direct and self._free:
                return False  # the position may be known soon
            buffer = self._buffers.take()
            if buffer is None:
                return False
            target = buffer[:count]
            piece = BufferedPiece(packet, target, buffer, self._buffers)
        self._returning.append((slot.download(target), piece))
        self._free.append(slot)
        return True

    def _receive(self) -> bool:
        has_moved = False
        while self._returning and self._returning[0][0].done():
            piece = self._returning.popleft()[1]
            if piece is not None:
                self._assembly.take(piece.packet, piece)
            has_moved = True
        return has_moved
