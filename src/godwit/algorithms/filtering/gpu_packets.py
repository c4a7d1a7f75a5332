"""An array of the host filtered on GPUs, by one thread that keeps all of them busy.

A GPU is dealt a packet whenever it has few on their way; the copy of it and its kernel are put into
streams at once, and nobody waits for them: events are looked at in turn. To hand packets from thread to
thread would cost the host more than a GPU takes for one.

Where the result is page-locked, what a packet keeps goes straight to its place, which is known when all
packets before it have been counted; until then it stays on its GPU. Else, and where a GPU has no slot left
because another one is slow, it goes through a page-locked buffer, from which threads move it on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import sleep
from typing import Any, Protocol

import numpy as np

from godwit.algorithms.filtering.assembly import Assembly, Packet
from godwit.algorithms.filtering.packets import HostFilter, HostSlot
from godwit.dataflow.packets import PAUSE_S
from godwit.dtypes import Array
from godwit.runtime.memory import Block, Event, Space


class Buffers:
    """Page-locked memory that goes round.

    :param most: how many there are, at most; made when they are first needed
    """

    def __init__(self, space: Space, items: int, dtype: np.dtype[Any], most: int) -> None:
        self._space = space
        self._items = items
        self._dtype = dtype
        self._most = most
        self._blocks: list[Block] = []
        self._free: deque[Array] = deque()

    def take(self) -> Array | None:
        """One that nobody uses; None if there is none."""
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
        """Nobody uses it any more; from any thread."""
        self._free.append(buffer)

    def close(self) -> None:
        """Give the memory back; nobody uses any."""
        self._free.clear()
        for block in self._blocks:
            block.free()
        self._blocks.clear()


@dataclass(eq=False)
class Arrived:
    """What a packet keeps, in a buffer."""

    packet: Packet
    array: Array
    buffer: Array
    buffers: Buffers

    def release(self) -> None:
        """The buffer may be used again."""
        self.buffers.give_back(self.buffer)


class Source(Protocol):
    """Where a GPU gets its packets from."""

    def take(self) -> tuple[int, Array] | None:
        """The next items and where they begin; None behind the last."""


class Gpu:
    """What one GPU is dealt.

    :param ready: packets on their way to it, at most: who is slow shall not have what others could take
    :param is_direct: whether copy engines reach the result
    """

    def __init__(
        self,
        filtering: HostFilter,
        source: Source,
        assembly: Assembly,
        buffers: Buffers,
        ready: int,
        *,
        is_direct: bool,
    ) -> None:
        self._filtering = filtering
        self._source = source
        self._assembly = assembly
        self._buffers = buffers
        self._ready = ready
        self._is_direct = is_direct
        self._free = deque(filtering.slots)
        self._started: deque[tuple[HostSlot, Packet]] = deque()
        self._counted: deque[tuple[HostSlot, Packet, int]] = deque()
        self._homeward: deque[tuple[Event, Arrived | None]] = deque()
        self._has_all = False

    @property
    def is_done(self) -> bool:
        """Whether all that it was dealt is where it belongs, or is being moved there."""
        return self._has_all and not (self._started or self._counted or self._homeward)

    def advance(self) -> bool:
        """Do what can be done at once; whether there was something."""
        has_moved = self._receive()
        while self._started and (count := self._started[0][0].count()) is not None:
            slot, packet = self._started.popleft()
            self._assembly.counted(packet, count)
            self._counted.append((slot, packet, count))
            has_moved = True
        while self._counted and self._send_home(*self._counted[0]):
            self._counted.popleft()
            has_moved = True
        return self._deal_one() or has_moved

    def _deal_one(self) -> bool:
        """One packet at a time: those of several GPUs lie side by side, and wait little."""
        if self._has_all or not self._free or len(self._started) == self._ready:
            return False
        dealt = self._source.take()
        if dealt is None:
            self._has_all = True
            return True
        begin, items = dealt
        slot = self._free.popleft()
        slot.start(items)
        self._started.append((slot, Packet(begin, items.size)))
        return True

    def launch(self) -> None:
        """Start kernels of what is on its way."""
        self._filtering.advance()

    def _send_home(self, slot: HostSlot, packet: Packet, count: int) -> bool:
        """Start to bring what a packet keeps to where it belongs, or to a buffer."""
        to = self._assembly.place(packet, count) if self._is_direct else None
        arrived = None
        if to is None:
            if self._is_direct and self._free:
                return False  # its place may be known soon
            buffer = self._buffers.take()
            if buffer is None:
                return False
            to = buffer[:count]
            arrived = Arrived(packet, to, buffer, self._buffers)
        self._homeward.append((slot.bring(to), arrived))
        self._free.append(slot)
        return True

    def _receive(self) -> bool:
        has_moved = False
        while self._homeward and self._homeward[0][0].done():
            arrived = self._homeward.popleft()[1]
            if arrived is not None:
                self._assembly.take(arrived.packet, arrived, is_lent=False)
            has_moved = True
        return has_moved


def drive(gpus: list[Gpu], advance: Callable[[], bool], check: Callable[[], None]) -> None:
    """Keep GPUs busy until all is done.

    :param advance: does what others have made possible, and says whether all of that is done
    :param check: called again and again; what it raises ends this
    """
    while True:
        has_moved = False
        for gpu in gpus:
            has_moved = gpu.advance() or has_moved
        for gpu in gpus:
            gpu.launch()
        if advance() and all(gpu.is_done for gpu in gpus):
            return
        check()
        if not has_moved:
            sleep(PAUSE_S)
