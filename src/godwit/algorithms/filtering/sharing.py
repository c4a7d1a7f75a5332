"""An array dealt out: who takes the next items, and where what is kept of them belongs.

Packets for GPUs are taken from the front of what is left, whenever one will soon be free. Where CPUs
help, their threads take small units from the same front, by themselves, so that handing work over costs
the thread that drives the GPUs nothing (:mod:`godwit.algorithms.filtering.cpu`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.algorithms.filtering.assembly import Packet
from godwit.algorithms.filtering.endpoints import SharedFilter
from godwit.dataflow.packets import packet_items
from godwit.dtypes import Array


def is_plain(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an array can be read as it lies."""
    return array.flags.c_contiguous and array.flags.aligned and bool(array.dtype == dtype)


class Share:
    """Some of an array, dealt out to GPUs from its front.

    :param dtype: in which items are given
    :param begin: of the first item
    :param end: behind the last
    :param most_items: of a packet
    :param gpus: that take from it
    :param unit_items: packets but the last are of whole units, as threads of the CPU have them
    """

    def __init__(
        self,
        array: Array,
        dtype: np.dtype[Any],
        begin: int,
        end: int,
        most_items: int,
        gpus: int,
        unit_items: int = 1,
    ) -> None:
        self._array = array
        self._dtype = dtype
        self._is_plain = is_plain(array, dtype)
        self._begin = begin
        self._end = end
        self._most_items = most_items
        self._gpus = gpus
        self._unit_items = unit_items

    def take(self) -> tuple[int, Array] | None:
        """The next items and where they begin; None behind the last."""
        begin, left = self._begin, self._end - self._begin
        if left == 0:
            return None
        units = packet_items(left, self._most_items, self._gpus) // self._unit_items
        end = begin + min(left, max(1, units) * self._unit_items)
        self._begin = end
        piece = self._array[begin:end]
        return begin, piece if self._is_plain else np.array(piece, self._dtype)


class UnitShare:
    """Likewise, of an array of which threads of the CPU take units, too."""

    def __init__(self, array: Array, units: SharedFilter, most_items: int, gpus: int) -> None:
        self._array = array
        self._units = units
        self._most_items = most_items
        self._gpus = gpus

    def take(self) -> tuple[int, Array] | None:
        """As of :class:`Share`."""
        wanted = packet_items(self._units.left_items, self._most_items, self._gpus)
        taken = self._units.take(wanted)
        return None if taken is None else (taken[0], self._array[slice(*taken)])


class UnitOrder:
    """The order of packets and of the CPU's units (:class:`godwit.algorithms.filtering.assembly.Order`)."""

    def __init__(self, units: SharedFilter) -> None:
        self._units = units

    def counted(self, packet: Packet, count: int) -> None:
        """A packet keeps so many items."""
        self._units.counted(packet.begin, packet.length, count)

    def place(self, packet: Packet) -> int | None:
        """Where these begin in the result; None as long as that is not known."""
        return self._units.place(packet.begin)

    @property
    def placed(self) -> tuple[int, int]:
        """Of how many items, from the beginning, is known where they belong; how many of them are kept."""
        return self._units.placed
