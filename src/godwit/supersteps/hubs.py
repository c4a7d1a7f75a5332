"""Rows of hubs that are shared out: each device has, of every device's hubs, the arcs to its own vertices.

So all devices push along a hub's row at once, each to vertices of its own, of which nobody is to be told.
A device's hubs are its first own vertices, as many on every device; hub ``owner * count + own index``. Of
undirected graphs only: there an arc from a hub to an own vertex stands in that vertex's own row as well,
and near its front, as rows are hot first, so nothing travels to make this. Kernels: hub_kernels.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.errors import GraphTooLargeError
from godwit.graph.cuda.builder import c_id, kernel_source, spare_bytes
from godwit.runtime.cuda.driver import Buffer
from godwit.supersteps.rows import StepRows, start_kernel
from godwit.worker.cuda.placement import require_room

if TYPE_CHECKING:
    from godwit.supersteps.placement import StepPart, StepPlacement

HUB_ARCS = 1 << 15
"""A vertex with more arcs is a hub: shorter rows keep one device busy for less than a meeting takes."""
MOST_HUBS = 256
"""Of a device; all of these are looked through at every superstep that pushes."""
GROUP = 32
"""Hubs of a device are a multiple of so many: a word of a bitmap is of one device's."""


@dataclass(frozen=True)
class HubRows:
    """What a device has of the rows of all devices' hubs.

    :param count: hubs of a device: own vertices before this one
    :param offsets: (devices * count + 1) int64: where each begins
    :param targets: (arcs) ids: positions, all of them own
    """

    count: int
    offsets: Buffer
    targets: Buffer


def source(id_dtype: np.dtype[Any]) -> str:
    """The kernels."""
    return kernel_source("supersteps/hub_kernels.cuh", Id=c_id(id_dtype))


def make_hub_rows(placement: StepPlacement, rows: list[StepRows]) -> list[HubRows]:
    """The rows of hubs as each device needs them; none where that does not fit.

    :param rows: of all devices, hot first, that leave their vertices
    """
    parts = placement.parts
    count = _hub_count(placement, rows)
    if count == 0 or len(parts) == 1:  # a device alone has them as they are
        return [HubRows(count, own.offsets, own.targets) for own in rows]
    begin = perf_counter()
    try:
        found = [
            _shared_out(placement, part, own, count) for part, own in zip(parts, rows, strict=True)
        ]
    except GraphTooLargeError:
        for part in parts:
            for name in ("hub offsets", "hub targets"):
                if name in part.buffers:
                    part.buffers.pop(name).close()
        return [HubRows(0, own.offsets, own.targets) for own in rows]
    placement.add_seconds("rows", begin)
    return found


def _hub_count(placement: StepPlacement, rows: list[StepRows]) -> int:
    """Hubs of the device that has most of them."""
    if placement.graph.directed or not placement.numbering.by_degree:
        return 0
    most = 0
    for part, own in zip(placement.parts, rows, strict=True):
        first = min(MOST_HUBS, part.active)
        if first:
            lengths = np.diff(own.offsets.download(np.int64, first + 1))
            most = max(most, int(np.count_nonzero(lengths > HUB_ARCS)))
    return min(-(-most // GROUP) * GROUP, placement.capacity)


def _shared_out(placement: StepPlacement, part: StepPart, rows: StepRows, count: int) -> HubRows:
    """Count what a device has of each hub's row, then place it."""
    hubs = count * len(placement.parts)
    text = source(placement.id_dtype)

    def start(name: str, *arguments: Any) -> None:
        given = (rows.offsets.pointer, rows.targets.pointer, part.active, part.first, *arguments)
        start_kernel(part, text, name, *given)
        part.stream.synchronize()

    common = placement.capacity, count
    with Buffer(part.index, 8 * hubs) as cursors:
        cursors.fill_bytes(0)
        start("count_hub_arcs", *common, cursors.pointer)
        offsets = np.zeros(hubs + 1, np.int64)
        offsets[1:] = np.cumsum(cursors.download(np.int64, hubs))
        nbytes = placement.id_dtype.itemsize * max(1, int(offsets[-1]))
        require_room([part.index], [nbytes + offsets.nbytes], spare_bytes)
        part.room("hub offsets", offsets.nbytes).upload(offsets)
        targets = part.room("hub targets", nbytes)
        cursors.upload(offsets[:-1])
        start("place_hub_arcs", *common, cursors.pointer, targets.pointer)
    return HubRows(count, part.buffers["hub offsets"], targets)
