"""Sizing grids for kernels that run beside others (Groute, section 4.5: KernelSizing).

Copies between endpoints are made by copy engines and need no multiprocessor, so a kernel of the user's may
have all of a GPU. Where several endpoints share a GPU, or kernels that wait for each other run beside it,
each must leave room: a grid that does not fit waits for others to end, silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from godwit.dataflow.endpoint import Endpoint
from godwit.dtypes import as_count, as_positive_number
from godwit.errors import InputError, shown
from godwit.runtime.registry import resolve_devices

_MOST = 1 << 40


@dataclass(frozen=True)
class KernelSize:
    """A grid that is resident at once; unpacked, blocks and threads.

    :param blocks: of the grid
    :param threads: of each block
    :param resident_blocks: that the whole GPU has room for
    """

    blocks: int
    threads: int
    resident_blocks: int

    def __iter__(self) -> Any:
        return iter((self.blocks, self.threads))


def kernel_sizing(
    kernel: Any,
    device: Endpoint | str,
    *,
    items: int | None = None,
    threads: int | None = None,
    shared_bytes: int = 0,
    share: float | None = None,
) -> KernelSize:
    """A grid for a kernel of one's own, which is to run beside those of others.

    The kernel has to stride over its items: the grid is no larger than what runs at once.

    :param kernel: CuPy's RawKernel, a compiled kernel of Numba or cuda.core, or the number of registers a
        thread of it has
    :param device: an endpoint on a GPU, or the name of a GPU
    :param items: threads that have something to do; None for as many as there are
    :param threads: of a block; None for what has most threads resident, 256 if several do
    :param shared_bytes: dynamic shared memory of a block
    :param share: of the GPU; by default all of it, divided by the endpoints of the context that are on it
    :raises InputError: no kernel, a number out of range, or no block fits
    :raises DeviceError: there is no such GPU
    """
    name, sharing = _place(device)
    part = 1 / sharing if share is None else as_positive_number(share, "share")
    if part > 1:
        raise InputError(f"share must be in (0, 1], got {shown(share)}")
    if threads is not None:
        as_count(threads, "threads", 1, 1024)
    as_count(shared_bytes, "shared_bytes", 0, _MOST)
    from godwit.runtime.cuda.kernel_sizing import size_of_kernel

    index = int(name.partition(":")[2])
    resident, chosen = size_of_kernel(index, kernel, threads, shared_bytes)
    blocks = max(1, int(resident * part))
    if items is not None:
        blocks = max(1, min(blocks, -(-as_count(items, "items", 0, 1 << 62) // chosen)))
    return KernelSize(blocks, chosen, resident)


def _place(device: Endpoint | str) -> tuple[str, int]:
    """The name of a GPU, and how many endpoints share it."""
    if isinstance(device, Endpoint):
        found = device.device
        peers = [one.device for one in device.context.endpoints]
    else:
        found = resolve_devices(device)[0]
        peers = [found]
    if found is None or found.kind != "cuda":
        raise InputError(f"kernels are sized for GPUs, got {device}; a CPU's threads need no grid")
    return found.name, peers.count(found)
