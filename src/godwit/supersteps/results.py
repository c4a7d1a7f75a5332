"""Values of vertices and of arcs in device order on GPUs, gathered into one array in the graph's order.

An array on a GPU is gathered behind the kernels that compute its values (:class:`VertexValues`).

Each device's buffer has room for the values of all positions, so one device joins the others' values there
and gathers (:mod:`godwit.runtime.cuda.transfer.delivery`). Buffers that are too short for that (of own
values and those of the halo) go to the host as they are, and threads put them in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from godwit.arrays import ResultLocation
from godwit.dtypes import Array, frozen
from godwit.errors import GraphTooLargeError
from godwit.graph.rows import thread_count_for
from godwit.runtime.cpu.compile import kernel
from godwit.runtime.cpu.team import block_range, run_team
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import compile_meanwhile
from godwit.runtime.cuda.memory import new_host_array
from godwit.runtime.cuda.transfer.copies import download
from godwit.runtime.cuda.transfer.delivery import (
    Arrival,
    Conversion,
    Delivery,
    Share,
    Turns,
    source,
)
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.exchange import Exchange
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.process_exchange import ProcessExchange
from godwit.supersteps.rows import positions_on
from godwit.trace import seconds_since


class _StepDelivery(Delivery):
    """Delivery of arrays that have the values of vertices in the order of positions."""

    def __init__(self, placement: StepPlacement) -> None:
        parts, results = placement.parts, placement.results
        begin = results.start * placement.id_dtype.itemsize

        def active(part: StepPart) -> int:
            """Return the number of the first vertices that values may change of: those with arcs."""
            several = placement.device_count > 1
            return part.active if several and not placement.is_directed else part.owned

        super().__init__(
            [
                Share(part.index, part.stream, part.first, part.owned, active(part))
                for part in parts
            ],
            len(results),
            placement.id_dtype,
            positions=lambda number: positions_on(placement, parts[number]).pointer + begin,
            vertices=placement.numbering.vertices,
        )


class VertexValues(Arrival):
    """The values of all vertices in a new array; of several processes, those of a share in each.

    :param array: on each device a buffer for all positions, of which the range of its own vertices is read;
        on the device that gathers, the other ranges are overwritten
    :param dtype: dtype of the values, of 4 or 8 bytes
    :param result_dtype: dtype that they are converted to, if another
    :param unreached: the value of vertices that were not reached, the largest of all, and the result for it
    :param own_first: buffers begin with the values of own vertices, and have no room for all positions
    :param keeps_others: ranges of other devices are not overwritten: values of several GPUs are joined in
        memory of their own
    :param lasts: of an undirected graph, vertices without arcs have the same value after every run
    :param turns: as of :class:`godwit.runtime.cuda.transfer.delivery.Arrival`
    :param exchange: of the plan that computes them; gets the values of other processes' devices
    """

    def __init__(
        self,
        placement: StepPlacement,
        array: DeviceArray,
        dtype: Any,
        location: ResultLocation,
        *,
        result_dtype: Any = None,
        unreached: tuple[Any, Any] | None = None,
        own_first: bool = False,
        turns: Turns = (),
        keeps_others: bool = False,
        lasts: bool = False,
        exchange: Exchange | None = None,
    ) -> None:
        dtype = np.dtype(dtype)
        self._array, self._itemsize = array, dtype.itemsize
        self._exchange = exchange if isinstance(exchange, ProcessExchange) else None
        conversion = conversion_of(dtype, result_dtype, unreached)
        self._placement = placement
        delivery = placement.kept(_StepDelivery)
        values, joined = [buffer.pointer for buffer in array.buffers], 0
        if not own_first:
            gatherer = delivery.gatherer(location.gpu)
            values, joined = _addresses(placement, array, dtype, gatherer)
            if (keeps_others or turns) and len(values) > 1 and location.gpu is not None:
                joined = _joined_room(placement, array, gatherer, dtype)
        super().__init__(
            delivery, values, conversion, location, joined=joined, turns=turns,
            is_alone=placement.device_count == 1, lasts=lasts,
        )  # fmt: skip

    def gather(self) -> tuple[Any, float]:
        """Return the array when it is written, and the seconds that the caller waited for it."""
        begin = perf_counter()
        if self._exchange is not None:
            self._exchange.join(self._array, self._itemsize)
        result = self.finish()
        gather_s = seconds_since(begin, "gather")
        seconds = self._placement.seconds
        seconds["deliver"] = seconds.get("deliver", 0.0) + gather_s
        return result, gather_s


class _Joined:
    """Rooms on GPUs that gather for the values of all positions, by array, kept between queries."""

    def __init__(self, placement: StepPlacement) -> None:
        self.values: dict[DeviceArray, DeviceArray] = {}


def _joined_room(
    placement: StepPlacement, array: DeviceArray, gatherer: int, dtype: np.dtype[Any]
) -> int:
    """Return the address of room for an array's values of all positions; 0 if there is none."""
    part, rooms = placement.parts[gatherer], placement.kept(_Joined).values
    if array not in rooms:
        rooms[array] = DeviceArray(placement)
    try:
        return rooms[array].room(part, dtype.itemsize * placement.count).pointer
    except GraphTooLargeError:
        return 0


def conversion_of(dtype: Any, result_dtype: Any, unreached: tuple[Any, Any] | None) -> Conversion:
    """Return the conversion of values; parameters as of :class:`VertexValues`."""
    dtype = np.dtype(dtype)
    conversion = Conversion(dtype, dtype if result_dtype is None else np.dtype(result_dtype))
    if unreached is None:
        return conversion
    largest, never = unreached
    return replace(conversion, bound="min", limit=largest, identity=largest, never=never)


def compile_delivery(
    placement: StepPlacement,
    dtype: Any,
    *,
    result_dtype: Any = None,
    unreached: tuple[Any, Any] | None = None,
) -> None:
    """Start to compile what gathers values, while the caller goes on.

    Parameters as of :class:`VertexValues`.
    """
    conversion = conversion_of(dtype, result_dtype, unreached)
    compile_meanwhile(placement.indexes[0], source(conversion, placement.id_dtype))


def deliver_vertices(
    placement: StepPlacement,
    array: DeviceArray,
    dtype: Any,
    location: ResultLocation,
    *,
    result_dtype: Any = None,
) -> tuple[Any, float]:
    """Return the values of all vertices in a new array, and the seconds that it took.

    Parameters as of :class:`VertexValues`; the kernels that compute the values have ended.
    """
    values = VertexValues(placement, array, dtype, location, result_dtype=result_dtype)
    return values.begin().gather()


def _addresses(
    placement: StepPlacement, array: DeviceArray, dtype: np.dtype[Any], gatherer: int
) -> tuple[list[int], int]:
    """Return the address of each device's own values, and of room for all on the device that gathers."""
    pointers = [array[part].pointer for part in placement.parts]
    values = [
        pointer + dtype.itemsize * part.first
        for part, pointer in zip(placement.parts, pointers, strict=True)
    ]
    return values, pointers[gatherer]


def deliver_items(
    part: StepPart, items: Sequence[tuple[int, int, Any]], location: ResultLocation
) -> tuple[list[Any], float]:
    """Return items of a device in new arrays, in their order, and the seconds that it took.

    :param items: by array: the address of the first item, where no work is under way, their number, and
        their dtype
    """
    begin = perf_counter()
    results = []
    for pointer, count, dtype in items:
        if location.gpu is None:
            result, _ = new_host_array(count, dtype, [part.index])
            download(part.index, pointer, result)
        else:
            result = location.empty(count, dtype)
            if count:
                to, nbytes = int(result.data.ptr), int(result.nbytes)
                driver.copy_peer_async(to, location.gpu, pointer, part.index, nbytes, part.stream)
        results.append(result)
    if location.gpu is not None:
        part.stream.synchronize()
    return results, seconds_since(begin, "gather")


def fill_vertices(placement: StepPlacement, array: DeviceArray, dtype: Any, out: Array) -> None:
    """Fill an array of the host with the values of all vertices, which are converted to its dtype.

    Parameters as of :class:`VertexValues`, which is faster.
    """
    begin = perf_counter()
    if placement.vertex_count:
        dtype = np.dtype(dtype)
        delivery = placement.kept(_StepDelivery)
        values, joined = _addresses(placement, array, dtype, delivery.gatherer(None))
        delivery.fill(out, values, Conversion(dtype, out.dtype), joined=joined)
    placement.add_seconds("deliver", begin)
    seconds_since(begin, "gather")


def deliver_arcs(placement: StepPlacement, array: DeviceArray, destination: Array) -> None:
    """Fill an array of the host with a value for each arc, in the graph's order.

    :param array: of each device, the values of its own arcs, of the dtype of `destination`, in the order of
        ``placement.rows("out", ordered=True)``
    """
    begin = perf_counter()
    offsets = placement.graph.offsets
    for part in placement.parts:
        vertices = placement.numbering.vertices(part.device)
        ends = np.cumsum(offsets[1:][vertices] - offsets[:-1][vertices])
        if len(ends) and ends[-1]:
            values, _ = new_host_array(int(ends[-1]), destination.dtype, [part.index])
            download(part.index, array[part].pointer, values)
            threads = thread_count_for(len(values))
            arguments = (offsets, vertices, frozen(ends), frozen(values), destination)
            run_team(_scatter_rows, *arguments, threads=threads)
    placement.add_seconds("deliver", begin)
    seconds_since(begin, "gather")


@kernel
def _scatter_rows(
    rank: int, size: int, control: Any, offsets: Any, vertices: Any, ends: Any, values: Any,
    out: Any,
) -> None:  # fmt: skip
    """Copy the rows of some vertices, one behind the other, into the graph's rows."""
    begin, end = block_range(rank, size, vertices.size)
    at = ends[begin - 1] if begin > 0 else 0
    for row in range(begin, end):
        v = vertices[row]
        for arc in range(offsets[v], offsets[v + 1]):
            out[arc] = values[at]
            at += 1
