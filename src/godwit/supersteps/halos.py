"""Duplicate-1-hop in supersteps: a device has room for its own vertices and its *halo*, and for no others.

The halo are the positions of other devices that it reads. What a device has room for is numbered: its own
vertices by own index, then the halo in the order of positions, so what it reads of one owner is one range.
Its rows name these *places* instead of positions. An owner has, for each device, a bitmap of its own
vertices, and for each word of it the place of the first vertex there that is read: it knows where a value
goes.

Rows of positions that nobody else has asked for are turned into such rows where they lie. All of it is kept
by the parts, by name, as rows are. Kernels: supersteps/halo_kernels.cuh.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.dtypes import Array
from godwit.graph.cuda.builder import c_id, kernel_source, spare_bytes
from godwit.runtime.cuda.driver import Buffer
from godwit.supersteps import readers as step_readers
from godwit.supersteps import rows as step_rows
from godwit.supersteps.readers import exchange_ranges
from godwit.supersteps.rows import StepRows, start_kernel, start_sum
from godwit.trace import seconds_since
from godwit.worker.cuda.placement import require_room, settle

if TYPE_CHECKING:
    from godwit.supersteps.placement import Direction, StepPlacement

_WORD = 32  # positions of a word


@dataclass(frozen=True)
class Halos:
    """Rows of a direction that name places, and who reads what where.

    :param rows: of each device; the targets are places, the heads positions
    :param readers: on each device (devices, capacity / 32) uint32: a bit for each own vertex and reader
    :param places: likewise ids: the place, at that reader, of the first vertex of a word that it reads
    :param begins: (devices, devices + 1) int64: at which place, of each device, what it reads of each owner
        begins, and where the last ends
    """

    rows: list[StepRows]
    readers: list[Buffer]
    places: list[Buffer]
    begins: Array

    def width(self, device: int) -> int:
        """How many values a device has room for: its own and those of its halo."""
        return int(self.begins[device, -1])


def halos_of(placement: StepPlacement, direction: Direction, weighted: bool) -> Halos:
    """Rows that name places; made once, and kept by the parts.

    :param weighted: with weights, in the graph's order; else neighbours of high degree first
    :raises GraphTooLargeError: need against free
    """
    begin = perf_counter()
    making = _Making(placement, direction if placement.graph.directed else "out", weighted)
    if making.local not in placement.parts[0].buffers:
        making.make()
        placement.add_seconds("rows", begin)
        seconds_since(begin, "rows")
    step_rows.drop_positions(placement)
    return making.found()


def halo_positions(placement: StepPlacement, halos: Halos, device: int) -> Array:
    """(halo) int64: which positions a device reads of others, in the order of their places."""
    row_bytes = placement.capacity // 8
    found = []
    for owner in placement.parts:
        if owner.device != device:
            bits = halos.readers[owner.device].download(np.uint8, row_bytes, device * row_bytes)
            found.append(owner.first + np.flatnonzero(np.unpackbits(bits, bitorder="little")))
    return np.concatenate(found) if found else np.empty(0, np.int64)


class _Making:
    """The names of what the parts keep, and how it is made."""

    def __init__(self, placement: StepPlacement, direction: Direction, weighted: bool) -> None:
        self.placement = placement
        self.parts = placement.parts
        self.direction: Direction = direction
        self.weighted = weighted
        order = "ordered" if weighted else "hot first"
        self.targets = f"{direction} targets, {order}"  # as step_rows names them
        self.heads = f"{direction} heads, {order}"
        self.local = f"{direction} places, {order}"
        self.readers = f"readers of {direction} halos"
        self.places = f"places of {direction} halos"
        self.begins = f"begins of {direction} halos"
        self.source = source(placement.id_dtype)
        self.words = placement.count // _WORD
        self.needs_bytes = 4 * self.words
        self.places_bytes = placement.id_dtype.itemsize * self.words

    def make(self) -> None:
        """Have all of it on the devices, or nothing that is half made."""
        known = self.targets in self.parts[0].buffers
        rows = step_rows.make_rows(self.placement, self.direction, self.weighted, self.weighted)
        with ExitStack() as failed:
            if not known:  # from now on ours: nobody else shall find them when they are changed
                for part in self.parts:
                    failed.callback(part.buffers.pop(self.targets).close)
            if self.readers not in self.parts[0].buffers:
                step_readers.make_readers(self.placement, self.readers, [rows])
            if self.places not in self.parts[0].buffers:
                self._make_places()
            with ExitStack() as owned:
                needs, places = self._brought_back(owned)
                owned.callback(settle, self.parts)  # before any of it is given back
                local = [one.targets for one in rows]
                if known:
                    nbytes = [one.targets.nbytes for one in rows]
                    self._require_room(nbytes)
                    local = [
                        failed.enter_context(Buffer(part.index, n))
                        for part, n in zip(self.parts, nbytes, strict=True)
                    ]
                for place, part in enumerate(self.parts):
                    start_kernel(
                        part, self.source, "localize_targets",
                        rows[place].targets.pointer, rows[place].arcs, part.first,
                        self.placement.capacity, needs[place].pointer, places[place].pointer,
                        local[place].pointer,
                    )  # fmt: skip
                settle(self.parts)
            failed.pop_all()
        self._keep(self.local, local)

    def _make_places(self) -> None:
        """For each device the places of its halo; and of these, to each owner, those in its range."""
        devices, words = len(self.parts), self.words
        counts_bytes = 8 * (words + 1)
        needed = self.needs_bytes + counts_bytes + 2 * self.places_bytes
        self._require_room([needed] * devices)
        with ExitStack() as failed:
            at_owners = self._room(failed, self.places_bytes)
            begins = self._room(failed, 8 * (devices + 1))
            with ExitStack() as owned:
                places = self._room(owned, self.places_bytes)
                counts = self._room(owned, counts_bytes)
                needs = self._needs(owned)
                owned.callback(settle, self.parts)  # before any of it is given back
                for place, part in enumerate(self.parts):
                    sums = counts[place].pointer
                    start_kernel(
                        part, self.source, "count_needs", needs[place].pointer, words, sums
                    )
                    start_sum(part, self.source, sums, words)
                    start_kernel(
                        part, self.source, "write_places", sums, words, self.placement.capacity // _WORD,
                        part.owned, places[place].pointer, begins[place].pointer,
                    )  # fmt: skip
                settle(self.parts)
                exchange_ranges(self.placement, places, at_owners)
            failed.pop_all()
        self._keep(self.begins, begins)
        self._keep(self.places, at_owners)

    def _brought_back(self, owned: ExitStack) -> tuple[list[Buffer], list[Buffer]]:
        """On each device, of all positions: which it needs, and the places of these."""
        self._require_room([self.needs_bytes + self.places_bytes] * len(self.parts))
        places = self._room(owned, self.places_bytes)
        needs = self._needs(owned)
        at_owners = self._kept(self.places)
        exchange_ranges(self.placement, places, at_owners, back=True)
        return needs, places

    def _needs(self, owned: ExitStack) -> list[Buffer]:
        """On each device a bitmap of the positions of others that it reads."""
        needs = self._room(owned, self.needs_bytes)
        for buffer in needs:
            buffer.fill_bytes(0)  # and so it remains in the own range
        exchange_ranges(self.placement, needs, self._kept(self.readers), back=True)
        return needs

    def _room(self, owned: ExitStack, nbytes: int) -> list[Buffer]:
        return [owned.enter_context(Buffer(part.index, nbytes)) for part in self.parts]

    def _require_room(self, nbytes: list[int]) -> None:
        require_room([part.index for part in self.parts], nbytes, spare_bytes)

    def _keep(self, name: str, buffers: list[Buffer]) -> None:
        for part, buffer in reversed(list(zip(self.parts, buffers, strict=True))):
            part.buffers[name] = buffer  # what the first one has, all have

    def _kept(self, name: str) -> list[Buffer]:
        return [part.buffers[name] for part in self.parts]

    def found(self) -> Halos:
        """What was made."""
        graph, devices = self.placement.graph, len(self.parts)
        rows = [
            StepRows(
                part.buffers[f"{self.direction} offsets"],
                part.buffers[self.local],
                part.buffers[self.heads],
                part.buffers[f"{self.direction} weights"] if self.weighted else None,
                None if graph.weights is None or not self.weighted else graph.weights.dtype,
                part.buffers[self.local].nbytes // self.placement.id_dtype.itemsize,
                part.classes,
            )
            for part in self.parts
        ]
        begins = [one.download(np.int64, devices + 1) for one in self._kept(self.begins)]
        return Halos(rows, self._kept(self.readers), self._kept(self.places), np.stack(begins))


def source(id_dtype: np.dtype[Any]) -> str:
    """Of the kernels."""
    return kernel_source("supersteps/halo_kernels.cuh", Id=c_id(id_dtype))
