"""Makes the memory of an endpoint: the one place that imports the CPU's and the GPUs' segments."""

from __future__ import annotations

from typing import Any

from godwit.runtime.memory import Space, Transport
from godwit.runtime.protocol import Device

PACKET_BYTES = 16 << 20
"""Between memory of the host, where nothing is copied: the share of work that is handed out at a time."""
BUFFERS = 3
"""One that is worked on, one that is filled, and one whose result is on its way."""


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


def default_packet(source: Device | None, target: Device | None) -> tuple[int, int]:
    """Packet size, in bytes, and number of buffers that suit a link between two devices.

    :param source: None for the host, and for a router, to which anyone may send
    :param target: None for the host
    """
    ends = [None if one is None or one.kind != "cuda" else one.name for one in (source, target)]
    if ends == [None, None]:
        return PACKET_BYTES, BUFFERS
    from godwit.dataflow.cuda.packets import packet_bytes

    here, there = (None if name is None else int(name.partition(":")[2]) for name in ends)
    return packet_bytes(here, there), BUFFERS
