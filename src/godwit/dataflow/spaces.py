"""Makes the memory of an endpoint: the one place that imports the CPU's and the GPUs' segments."""

from __future__ import annotations

from typing import Any

from godwit.runtime.memory import Space, Transport
from godwit.runtime.protocol import Device

PACKET_BYTES = 16 << 20
"""Default packet size of links. Copy engines reached 361 of 382 GB/s with it between H200s over NVLink (315
with 4 MiB), and 54.5 of 55 to and from the host."""
BUFFERS = 3
"""Default receive buffers: one is read, one is filled, one waits until its result has been sent."""


def make_space(
    device: Device | None,
    *,
    beside_gpus: bool,
    limit_bytes: int | None = None,
    memory: Any = None,
    transport: Transport = "direct",
    trace: Any = None,
) -> Space:
    """The memory of an endpoint.

    :param device: None for the host
    :param beside_gpus: whether the context has GPUs: host memory is then page-locked, so that copies run
        beside kernels
    :param limit_bytes: of its buffers; None for as much as there is
    :param memory: an array of bytes there that buffers are to be taken from
    :param transport: between GPUs
    :param trace: a :class:`godwit.trace.Trace` that copies are added to
    :raises InputError: ``memory`` is no array of that device
    :raises DeviceError: the device is not there
    """
    if beside_gpus:
        from godwit.dataflow.cuda.segments import make_space as of_cuda

        space: Space = of_cuda(device, limit_bytes, memory, transport, trace)
        return space
    from godwit.dataflow.cpu import HostSpace

    return HostSpace(limit_bytes, memory)
