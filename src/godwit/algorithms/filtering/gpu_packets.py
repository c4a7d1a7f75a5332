"""Filtering of a host array on GPUs, which CPUs may help: one thread feeds all GPUs.

Groute's first example (Ben-Nun et al., "Groute: asynchronous multi-GPU programming model with applications
to large-scale graph processing", 2020, sections 3 and 5.3, figures 5 and 6): packets go to whichever device
is free, and their kept items come back.

A GPU claims a packet whenever it has few in flight. The copy of a packet and its kernel are enqueued at
once, and events are polled in turn; nothing waits. Handing packets from thread to thread would cost the
host more time than a GPU takes for one. A GPU has several *slots*, each with room for a packet and for its
kept items: one is filtered while others are copied.

Kept items are copied from the GPU to their position, which is known when all previous packets are counted;
until then they stay on the GPU. If a GPU has no free slot because another one is slow, they are set aside
(assembly.py). The staging pool copies from and to ordinary memory, copy engines from and to page-locked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from time import sleep
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.filtering.assembly import Assembly, Packet, PacketShare, Share
from godwit.algorithms.filtering.cpu import SharedFilter, room_for, time_limit, too_small
from godwit.algorithms.filtering.predicate import Predicate, is_plain
from godwit.dataflow.context import Context
from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.packets import PAUSE_S, current_gpu_kept, packet_items
from godwit.dtypes import Array

PACKET_BYTES = 32 << 20
"""Largest default packet."""
LEAST_PACKET_BYTES = 4 << 20
"""Smallest default packet: each costs the host a tenth of a millisecond."""
READY_PACKETS = 3
"""Packets in flight to a GPU, at most."""
SLOTS_PER_PACKET = 2
"""Slots per packet in flight: others hold kept items until their position is known."""
CPU_SHARE = 0.5
"""Share of the cores that filter beside GPUs; the others copy data of GPUs."""
_PACKETS = 16
"""Packets per GPU at most, in between: before the first and after the last of them a GPU is idle."""


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
        assembly = Assembly(share, room, is_ours=out is None, progress=progress)
        stack.callback(assembly.close)
        feeders, filters = [], []
        for endpoint in endpoints:
            with endpoint.space.entered():
                slots = SLOTS_PER_PACKET * ready
                gpu_filter = host_filter(endpoint, predicate, dtype, most_items, slots)
            filters.append(stack.enter_context(closing(gpu_filter)))
            feeders.append(Feeder(gpu_filter, packets, assembly, ready))
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
    """Stop the CPU's threads if the block raises an exception."""
    try:
        yield
    except BaseException:
        units.abort()
        raise


def gpu_packet_bytes(nbytes: int, gpus: int) -> int:
    """Return the default packet size: a power of two, so that kept buffers fit the next call, too."""
    share = max(1, nbytes // (_PACKETS * gpus))
    return min(PACKET_BYTES, max(LEAST_PACKET_BYTES, 1 << (share - 1).bit_length()))


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

    def room(self, count: int) -> Array:
        """Return a new array for ``count`` items, with undefined content."""
        return np.empty(count, self._dtype)


class Feeder:
    """Packets and kept items of one GPU.

    :param gpu_filter: a :class:`~.cuda.GpuHostFilter`
    :param ready: packets in flight to the GPU, at most: a slow GPU must not hold what others could take
    """

    def __init__(self, gpu_filter: Any, packets: _Packets, assembly: Assembly, ready: int) -> None:
        self._packets = packets
        self._assembly = assembly
        self._ready = ready
        self._free = deque(gpu_filter.slots)
        self._started: deque[tuple[Any, Packet]] = deque()
        self._counted: deque[tuple[Any, Packet, int]] = deque()
        self._has_all = False

    @property
    def is_done(self) -> bool:
        """True if no packet is left, and all kept items are in place or on their way."""
        return self._has_all and not (self._started or self._counted)

    def advance(self) -> bool:
        """Do all steps that need not wait; return True if there were any."""
        has_moved = False
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
        """Start to copy a packet's kept items to their position, or to where they are set aside."""
        target = self._assembly.place(packet, count)
        if target is not None:
            self._assembly.copied(slot.download(target), target)
        elif self._free:
            return False  # the position may be known soon
        else:
            target = self._packets.room(count)
            self._assembly.set_aside(packet, target, slot.download(target))
        self._free.append(slot)
        return True
