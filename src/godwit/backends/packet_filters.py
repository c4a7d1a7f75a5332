"""Which filter an endpoint has: the one place that knows both backends' filtering."""

from __future__ import annotations

from typing import Any

import numpy as np

from godwit.backends.filtering import PacketFilter, Predicate


def packet_filter(
    endpoint: Any,
    predicate: Predicate,
    dtype: np.dtype[Any],
    packet_items: int,
    slots: int,
    threads: int,
) -> PacketFilter:
    """What filters the packets that come to an endpoint.

    :param endpoint: a :class:`godwit.dataflow.context.Endpoint` of a device
    :param packet_items: of a packet, at most
    :param threads: of a CPU, that work on a packet
    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises InputError: the endpoint's pool has no room for the slots
    """
    if endpoint.device.kind == "cuda":
        from godwit.backends.cuda.filtering import GpuPacketFilter

        return GpuPacketFilter(endpoint, predicate, dtype, packet_items, slots)
    from godwit.backends.cpu.filtering import CpuPacketFilter

    return CpuPacketFilter(predicate, dtype, packet_items, slots, threads)


def gpu_array(array: Any) -> Any:
    """An array on a GPU, of whatever library, as CuPy's, contiguous.

    :raises DeviceError: CuPy is not there
    :raises InputError: it does not take the array
    """
    from godwit.backends.cuda.gpu_arrays import sendable_gpu_array

    return sendable_gpu_array(array)


def filter_on_gpu(array: Any, predicate: Predicate) -> Any:
    """What a predicate keeps of a contiguous CuPy array, as another on the same GPU.

    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises DeviceError: the GPU has no room for what may be kept
    """
    from godwit.backends.cuda.filtering import filter_on_gpu as on_gpu

    return on_gpu(array, predicate)
