"""Makes the filter of an endpoint: the one place that imports the CPU's and the GPUs'."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from godwit.algorithms.filtering.packets import HostFilter, PacketFilter, Predicate
from godwit.dtypes import Array


def packet_filter(
    predicate: Predicate, dtype: np.dtype[Any], packet_items: int, slots: int, threads: int
) -> PacketFilter:
    """What filters packets on a CPU.

    :param packet_items: of a packet, at most
    :param threads: that work on a packet
    :raises OperatorError: the predicate does not compile, or returns no boolean
    """
    from godwit.algorithms.filtering.cpu import CpuPacketFilter

    return CpuPacketFilter(predicate, dtype, packet_items, slots, threads)


class SharedFilter(Protocol):
    """An array that threads of the CPU and GPUs filter together, by units; see
    :class:`godwit.algorithms.filtering.cpu.SharedFilter`.

    :ivar unit_items: of a unit: packets begin where units do, and are of whole ones, but the last
    """

    unit_items: int

    @property
    def left_items(self) -> int:
        """That nobody has taken."""

    def take(self, most_items: int) -> tuple[int, int] | None:
        """The next items for a GPU: from where, to where; None behind the last."""

    def part(self, part: int, parts: int) -> tuple[int, int]:
        """From where to where an equal part reaches."""

    def counted(self, begin: int, length: int, kept: int) -> None:
        """A packet keeps so many items."""

    def advance(self) -> bool:
        """Say where what has been counted belongs; False if there is no room for that."""

    def place(self, begin: int) -> int | None:
        """Where what a packet keeps begins in the result; None as long as that is not known."""

    @property
    def placed(self) -> tuple[int, int]:
        """Of how many items, from the front, is known where they belong; how many of them are kept."""

    @property
    def next_kept(self) -> int:
        """How many items are kept of those whose place is known, and of the unit behind them."""

    def run(self) -> None:
        """What the CPU does; returns when all that it kept is where it belongs.

        :raises OperatorError: the predicate does not compile, or returns no boolean
        """

    def prepare(self) -> object:
        """Compile."""

    def abort(self) -> None:
        """Let the CPU's threads end."""


def shared_filter(
    predicate: Predicate,
    source: Array,
    target: Array,
    threads: int,
    packet_items: int,
    part: int = 0,
    parts: int = 1,
) -> SharedFilter:
    """What filters a contiguous array of the host on CPUs beside GPUs.

    :param target: for all that is kept
    :param packet_items: of a packet for a GPU, at most
    :param part: the CPU's, of so many equal ones; by default it takes from the whole, as all do
    """
    from godwit.algorithms.filtering.cpu import SharedFilter as CpuSharedFilter

    return CpuSharedFilter(predicate, source, target, threads, packet_items, part, parts)


def host_filter(
    endpoint: Any, predicate: Predicate, dtype: np.dtype[Any], packet_items: int, slots: int
) -> HostFilter:
    """What filters packets of host memory on a GPU.

    :param endpoint: a :class:`godwit.dataflow.context.Endpoint` of a GPU
    :param packet_items: of a packet, at most
    :param slots: packets that may be under way at a time
    :raises GraphTooLargeError: the GPU has no room for them
    """
    from godwit.algorithms.filtering.cuda import GpuHostFilter

    return GpuHostFilter(endpoint, predicate, dtype, packet_items, slots)


def gpu_array(array: Any) -> Any:
    """An array on a GPU, of whatever library, as CuPy's, contiguous.

    :raises DeviceError: CuPy is not there
    :raises InputError: it does not take the array
    """
    from godwit.runtime.cuda.gpu_arrays import sendable_gpu_array

    return sendable_gpu_array(array)


def filter_on_gpu(array: Any, predicate: Predicate) -> Any:
    """What a predicate keeps of a contiguous CuPy array, as another on the same GPU.

    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises DeviceError: the GPU has no room for what may be kept
    """
    from godwit.algorithms.filtering.cuda import filter_on_gpu as on_gpu

    return on_gpu(array, predicate)
