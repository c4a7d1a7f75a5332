"""Predicate-based filtering: the elements of an array that satisfy a predicate, in their order.

Groute's first example (Ben-Nun et al., "Groute: asynchronous multi-GPU programming model with applications
to large-scale graph processing", 2020, sections 3 and 5.3, figures 5 and 6): the host sends packets of the
array to whichever device is free, devices send back what they keep, and the host puts that together.

A device has several *slots* for what packets keep. While the kernel of one runs, the next packet is on its
way to the device and what the one before has kept on its way back; the worker only ever waits for a kernel
that has another behind it. What GPUs and CPUs filter together is dealt out to them by
:mod:`godwit.algorithms.filtering.sharing`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.filtering.assembly import (
    Assembly,
    Order,
    Packet,
    PacketOrder,
    room_for,
    too_small,
)
from godwit.algorithms.filtering.endpoints import (
    SharedFilter,
    filter_on_gpu,
    gpu_array,
    host_filter,
    packet_filter,
    shared_filter,
)
from godwit.algorithms.filtering.gpu_packets import Buffers, Gpu, Source, drive
from godwit.algorithms.filtering.packets import PacketFilter, Predicate, as_item_dtype, as_predicate
from godwit.algorithms.filtering.sharing import Share, UnitOrder, UnitShare, is_plain
from godwit.arrays import MASKED, host_array, lies_on_gpu, mapped_array
from godwit.dataflow.context import Context, Endpoint
from godwit.dataflow.future import Future
from godwit.dataflow.link import Link
from godwit.dataflow.packets import current_gpu_kept, is_page_locked
from godwit.dataflow.receiver import Segment
from godwit.dataflow.router import Router
from godwit.dtypes import Array, as_count, as_flag, as_positive_number, check_callable
from godwit.errors import EndOfLink, InputError, RunTimeoutError, shown
from godwit.runtime.constants import with_exact_constants
from godwit.runtime.registry import DevicesArgument, gpu_names, resolve_devices
from godwit.trace import TraceArgument, active, recorded

PACKET_BYTES = 32 << 20
"""Where a GPU takes part, at most: every packet costs the host a tenth of a millisecond."""
LEAST_PACKET_BYTES = 4 << 20
"""Likewise, at least: a link of hosts is at its best, with some to spare."""
_PACKETS = 16
"""Of a GPU in between, at most: what comes before the first and behind the last of them is idle time."""
CPU_PACKET_BYTES = 4 << 20
"""For each thread, where no GPU does: handing a packet on wakes some threads, which takes its time."""
HOST_BUFFER_BYTES = 512 << 20
"""Of page-locked memory, unless three packets are more: the process keeps as much. To lock more for every
call takes longer than to filter."""
SLOTS = 4
"""Of a CPU: one to be filled, others whose contents are being moved."""
READY_PACKETS = 3
"""Of a GPU, on their way to it, at most."""
SLOTS_A_PACKET = 2
"""For each of these: others hold what is kept until its place is known."""
CPU_SHARE = 0.5
"""Of the cores, beside GPUs; the others move what comes from these, and goes there."""
_MOST_MOVERS = 8
_LEAST_GPU_BYTES = 64 << 20
"""Of a host array for which a GPU, or one with the CPU, is chosen unasked: to set one up takes longer than
to filter less."""


@dataclass(frozen=True)
class FilterOptions:
    """How an array is to be filtered; all checked.

    :param ordered: what is kept stays in its order; else packets come as they are done
    :param packet_bytes: of the array that a device takes at a time; None for what suits the devices
    :param buffers: of each device, for packets on their way to it
    :param out: where the result goes, if not to a new array
    :param progress: called with how many items have been dealt with
    :param timeout_s: for all of it but compiling
    :param policy: of the router that packets go to devices by; for comparison
    """

    ordered: bool = True
    packet_bytes: int | None = None
    buffers: int | None = None
    out: Array | None = None
    progress: Callable[[int], None] | None = None
    timeout_s: float | None = None
    policy: str = "any"


def filter_array(
    array: Any, predicate: Any, devices: DevicesArgument, options: FilterOptions
) -> Any:
    """As :func:`godwit.filter`."""
    keeps = as_predicate(predicate)
    if lies_on_gpu(array):
        resident = gpu_array(array)
        here = f"cuda:{resident.data.device_id}"
        if devices is None or [one.name for one in resolve_devices(devices, mixed=True)] == [here]:
            _check_shape(resident)
            dtype = as_item_dtype(resident.dtype)
            keeps = with_exact_constants(keeps, dtype)
            if options.out is not None:
                raise InputError(f"out is for arrays on the host; this one is filtered on {here}")
            return filter_on_gpu(resident.astype(dtype, order="C", copy=False), keeps)
    found = (
        np.asarray(mapped_array(array)) if isinstance(array, str | os.PathLike) else _on_host(array)
    )
    _check_shape(found)
    dtype = as_item_dtype(found.dtype)
    keeps = with_exact_constants(keeps, dtype)
    if options.out is not None:
        _check_out(options.out, found.dtype)
        _check_overlap(found, options)
        options = replace(options, out=options.out.view(dtype))
    if devices is None:
        devices = default_devices(found)
    kept = filter_host_array(found, keeps, dtype, devices, options)
    return kept if found.dtype.isnative else kept.byteswap(inplace=True).view(found.dtype)


def default_devices(array: Array) -> DevicesArgument:
    """Where an array of the host is filtered if nobody says.

    One GPU takes of ordinary memory what threads can bring to where copy engines reach it, and several only
    share that; the CPU reads it where it lies.
    """
    gpus = gpu_names()
    if not gpus or array.nbytes < _LEAST_GPU_BYTES:
        return "cpu"
    return None if is_page_locked(array) else [gpus[0], "cpu"]


def _on_host(array: Any) -> Array:
    if isinstance(array, np.ma.MaskedArray):
        raise InputError(MASKED)
    try:
        found = host_array(array)
    except (TypeError, ValueError) as error:
        raise InputError(_no_array(array)) from error
    if found.ndim == 0:
        raise InputError(_no_array(array))
    return found


def _no_array(given: Any) -> str:
    return f"array must be an array of numbers, or the path of a .npy file, got {shown(given)}"


def _check_shape(array: Any) -> None:
    if array.ndim != 1:
        raise InputError(
            f"an array to be filtered must have one dimension, got shape {tuple(array.shape)}; "
            "array.reshape(-1) has"
        )


def _check_out(out: Any, dtype: np.dtype[Any]) -> None:
    if isinstance(out, np.ma.MaskedArray):
        raise InputError(f"out cannot be masked: {MASKED}")
    if not isinstance(out, np.ndarray) or out.ndim != 1 or out.dtype != dtype:
        got = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else shown(out)
        raise InputError(f"out must be a NumPy array of {dtype} with one dimension, got {got}")
    if not out.flags.writeable:
        raise InputError("out must be writable, and is read-only")


def _check_overlap(array: Array, options: FilterOptions) -> None:
    """Refuse to write over what has not been read.

    Where the result begins with the array or before, and is in its order, that cannot be: what packets keep
    is no longer than they are, and is written when all before them have been dealt with.
    """
    out = options.out
    assert out is not None
    if not np.may_share_memory(array, out):
        return
    both = array, out
    is_behind = options.ordered and all(one.flags.c_contiguous for one in both)
    if not is_behind or out.ctypes.data > array.ctypes.data:
        raise InputError(
            "out overlaps the array, and would be written over what has not been read: give another one"
            " (with ordered=True the array itself will do, if it has no gaps)"
        )


def filter_host_array(
    array: Array, predicate: Predicate, dtype: np.dtype[Any], devices: Any, options: FilterOptions
) -> Array:
    """What a predicate keeps of an array in host memory, or of a file that is mapped there.

    :param dtype: of the array, in the machine's byte order
    :param devices: names, GPUs and CPUs together
    :raises OperatorError: the predicate does not compile, or returns no boolean
    :raises InputError: ``out`` has no room for what is kept
    :raises RunTimeoutError: out of time
    """
    with Context(devices) as context:
        context.trace = context.trace or active()
        if any(device.kind == "cuda" for device in context.devices):
            return _filter_on_gpus(context, array, predicate, dtype, options)
        return _filter_on_cpus(context, array, predicate, dtype, options)


# On GPUs, which CPUs may help.


def _filter_on_gpus(
    context: Context,
    array: Array,
    predicate: Predicate,
    dtype: np.dtype[Any],
    options: FilterOptions,
) -> Array:
    endpoints = [one for one in context.endpoints if one.space.kind == "cuda"]
    packet_bytes = options.packet_bytes or gpu_packet_bytes(
        array.size * dtype.itemsize, len(endpoints)
    )
    packet_items = max(1, packet_bytes // dtype.itemsize)
    room = room_for(array.size, dtype) if options.out is None else options.out
    movers, most_buffers = _movers(), _host_buffers(packet_bytes)
    units = _units_beside_gpus(context, array, predicate, dtype, room, packet_items, options)
    order: Order = PacketOrder(ordered=options.ordered) if units is None else UnitOrder(units)
    sources = _sources(array, dtype, units, packet_items, len(endpoints), options.policy)
    ready = options.buffers or READY_PACKETS
    with ExitStack() as stack:
        stack.enter_context(current_gpu_kept())
        buffers = Buffers(context.host.space, packet_items, dtype, most_buffers)
        stack.callback(buffers.close)
        assembly = Assembly(
            order,
            room,
            is_ours=options.out is None,
            progress=options.progress,
            movers=movers,
            most_held=(most_buffers - 1) // 2,
        )
        stack.callback(assembly.close)
        with endpoints[0].space.entered():
            is_direct = options.out is not None and is_page_locked(options.out)
        gpus, filters = [], []
        for endpoint, source in zip(endpoints, sources, strict=True):
            with endpoint.space.entered():
                made = host_filter(endpoint, predicate, dtype, packet_items, SLOTS_A_PACKET * ready)
            filters.append(stack.enter_context(closing(made)))
            gpus.append(Gpu(made, source, assembly, buffers, ready, is_direct=is_direct))
            gpus[-1].advance()  # packets are on their way while the next one is set up
        workers = stack.enter_context(context.workers())
        if units is not None:
            stack.enter_context(_aborting(units))
            helper = next(one for one in context.endpoints if one not in endpoints)
            workers.start(helper, filter_units, units)
        for made in filters:
            made.prepare()
        if units is not None and options.timeout_s is not None:
            units.prepare()  # as its worker does, but before the time counts
        advance = partial(_advance, units, order, assembly, array.size, room)
        drive(gpus, advance, _check(context, options.timeout_s))
    return assembly.result()


def filter_units(units: SharedFilter) -> None:
    """What the worker of the CPUs beside GPUs does."""
    units.run()


def _units_beside_gpus(
    context: Context,
    array: Array,
    predicate: Predicate,
    dtype: np.dtype[Any],
    room: Array,
    packet_items: int,
    options: FilterOptions,
) -> SharedFilter | None:
    """What CPUs take part by; None if there are none, or array or room are not as they need them."""
    cpus = [one for one in context.devices if one.kind == "cpu"]
    has_room = options.out is not None or len(room) >= array.size
    if not (cpus and has_room and is_plain(array, dtype) and room.flags.c_contiguous):
        return None
    most = max(1, int(config.thread_count() * CPU_SHARE))
    threads = min(most, sum(one.threads for one in cpus))
    parts = 1 if options.policy == "any" else 1 + len(context.devices) - len(cpus)
    return shared_filter(predicate, array, room, threads, packet_items, parts - 1, parts)


def _sources(
    array: Array,
    dtype: np.dtype[Any],
    units: SharedFilter | None,
    packet_items: int,
    gpus: int,
    policy: str,
) -> list[Source]:
    """Where each GPU gets its packets from: all from one place, or each from an equal part."""
    if policy == "any":
        one: Source = (
            Share(array, dtype, 0, array.size, packet_items, gpus)
            if units is None
            else UnitShare(array, units, packet_items, gpus)
        )
        return [one] * gpus
    if units is None:
        bounds = [(array.size * k // gpus, array.size * (k + 1) // gpus) for k in range(gpus)]
    else:
        bounds = [units.part(place, gpus + 1) for place in range(gpus)]
    unit_items = 1 if units is None else units.unit_items
    return [Share(array, dtype, *bound, packet_items, 1, unit_items) for bound in bounds]


@contextmanager
def _aborting(units: SharedFilter) -> Iterator[None]:
    """A block whose failure ends the CPU's threads."""
    try:
        yield
    except BaseException:
        units.abort()
        raise


def _advance(
    units: SharedFilter | None, order: Order, assembly: Assembly, items: int, room: Array
) -> bool:
    """Move what has got its place; whether all has."""
    if units is not None and not units.advance():
        raise too_small(room, units.next_kept)
    return assembly.advance() and order.placed[0] == items


def _check(context: Context, timeout_s: float | None) -> Callable[[], None]:
    """What raises when time is over, or a worker has failed."""
    end_s = np.inf if timeout_s is None else perf_counter() + timeout_s

    def check() -> None:
        if context.cancel_scope.cause is not None:
            context.cancel_scope.check()
        if perf_counter() > end_s:
            raise _out_of_time(timeout_s)

    return check


def gpu_packet_bytes(nbytes: int, gpus: int) -> int:
    """What suits an array on so many GPUs: a power of two, so that kept buffers fit the next one, too."""
    share = max(1, nbytes // (_PACKETS * gpus))
    return min(PACKET_BYTES, max(LEAST_PACKET_BYTES, 1 << (share - 1).bit_length()))


def _movers() -> int:
    return max(1, min(_MOST_MOVERS, config.thread_count() // 2))


def _host_buffers(packet_bytes: int) -> int:
    """For packets being moved, those that are held, and two that others may always have."""
    return max(3, min(2 * _movers() + 2, HOST_BUFFER_BYTES // packet_bytes))


# On CPUs alone, with links and routers.


def _filter_on_cpus(
    context: Context,
    array: Array,
    predicate: Predicate,
    dtype: np.dtype[Any],
    options: FilterOptions,
) -> Array:
    ends, host = context.endpoints, context.host
    threads = max(device.threads for device in context.devices)
    packet_bytes = options.packet_bytes or CPU_PACKET_BYTES * threads
    packet_items = max(1, packet_bytes // dtype.itemsize)
    packet_bytes = packet_items * dtype.itemsize
    movers = _movers()
    # A CPU reads packets where they lie: to have more ready would only keep them from others.
    spread = Router([host], ends, options.policy, packet_bytes=packet_bytes, buffers=1)
    gather = Router(ends, [host], "any", packet_bytes=packet_bytes, buffers=2 * movers + 2)
    with ExitStack() as filters:

        def filter_of(endpoint: Endpoint) -> PacketFilter:
            """What has all that is kept, until it has been put together."""
            assert endpoint.device is not None
            threads = endpoint.device.threads
            made = packet_filter(predicate, dtype, packet_items, SLOTS, threads)
            return filters.enter_context(closing(made))

        assembly = Assembly(
            PacketOrder(ordered=options.ordered),
            room_for(array.size, dtype) if options.out is None else options.out,
            is_ours=options.out is None,
            progress=options.progress,
            movers=movers,
            most_held=movers,
        )
        with closing(assembly):
            with context.workers() as workers:
                workers.start(host, distribute, array, dtype, spread.input(host), packet_items)
                for endpoint in ends:
                    links = spread.output(endpoint), gather.input(endpoint)
                    make = partial(filter_of, endpoint)
                    if options.timeout_s is not None:  # which counts from when all is compiled
                        make = partial(_itself, make())
                    workers.start(endpoint, filter_packets, *links, make)
                for segment in _received(gather.output(host), options.timeout_s):
                    packet: Packet = segment.hold().metadata
                    assembly.counted(packet, len(segment.array))
                    # It lies in the device's own slots, without which that could not go on.
                    assembly.take(packet, segment, is_lent=True)
                    assembly.advance()
            return assembly.result()


def _itself(made: PacketFilter) -> PacketFilter:
    return made


def distribute(array: Array, dtype: np.dtype[Any], link: Link, packet_items: int) -> None:
    """Send the array, at once if it can be read as it lies; the metadata are where a message begins."""
    if is_plain(array, dtype):
        link.send(array, metadata=0)
        return
    sent: deque[Future[None]] = deque()
    for begin in range(0, array.size, packet_items):
        packet = np.array(array[begin : begin + packet_items], dtype)
        sent.append(link.send(packet, metadata=begin))
        if len(sent) > READY_PACKETS:
            sent.popleft().wait()


def filter_packets(incoming: Link, outgoing: Link, make: Callable[[], PacketFilter]) -> None:
    """What the worker of a CPU does: filter what comes, send on what is kept of it."""
    incoming.receive()
    slots = make().slots
    sent: list[Future[None] | None] = [None] * len(slots)
    for count, segment in enumerate(incoming):
        number = count % len(slots)
        earlier = sent[number]
        if earlier is not None:
            earlier.wait()
        with segment:
            slots[number].start(segment.array)
            packet = Packet(segment.metadata + segment.offset, len(segment))
        sent[number] = outgoing.send(slots[number].kept(), metadata=packet)


def _out_of_time(timeout_s: float | None) -> RunTimeoutError:
    return RunTimeoutError(f"filter did not finish within timeout_s={timeout_s:g} s")


def _received(link: Link, timeout_s: float | None) -> Iterator[Segment]:
    """The segments of a link; RunTimeoutError if they take longer than that together."""
    if timeout_s is None:
        yield from link
        return
    deadline = perf_counter() + timeout_s
    while True:
        try:
            left = max(1e-6, deadline - perf_counter())
            segment = link.receive().wait(left)
        except EndOfLink:
            return
        except RunTimeoutError:
            raise _out_of_time(timeout_s) from None
        yield segment


def filter(
    array: Any,
    predicate: Callable[[Any], Any],
    devices: DevicesArgument = None,
    *,
    ordered: bool = True,
    out: Array | None = None,
    packet_bytes: int | None = None,
    buffers: int | None = None,
    timeout_s: float | None = None,
    progress: Callable[[int], None] | None = None,
    trace: TraceArgument = None,
) -> Array:
    """Return the elements of an array that satisfy a predicate.

    >>> import numpy as np, godwit as gw
    >>> gw.filter(np.arange(10), lambda x: x % 3 == 0)
    array([0, 3, 6, 9])

    Packets of the array go to whichever device is free, GPUs and the CPU together, and what they keep comes
    back (Groute, section 3). The array may be larger than the devices' memory, and a file larger than the
    host's. Page-locked memory (``cupyx.empty_pinned``) goes to GPUs at the speed of the bus.

    :param array: one-dimensional, of booleans, integers up to 64 bits, float32 or float64, in any byte
        order, contiguous or not; NumPy's, mapped (``np.memmap``), any other library's; or the path of a
        ``.npy`` file
    :param predicate: a Python function of one element that returns a boolean. It is compiled for the CPU by
        Numba and into the GPU's kernel; it may call other functions and read constants around it,
        and may be called twice for an element
    :param devices: as for :func:`bfs`, but kinds may be mixed: ``["cuda:0", "cpu"]``. None: of a CuPy
        array, its GPU; else, of at least 64 MiB, the first GPU if there is one, and if the array is not
        page-locked the CPU beside it; else all cores
    :param ordered: False: what is kept may come in any order of packets, which waits for nobody
    :param out: an array to write to, of the same dtype, with room for what is kept
    :param packet_bytes: of the array that a device takes at a time
    :param buffers: packets that may be on their way to a GPU at a time, 3 by default
    :param timeout_s: give up after so many seconds; compiling comes before
    :param progress: called now and then with the number of elements dealt with so far
    :param trace: as for :func:`bfs`
    :returns: a NumPy array of the same dtype, order of bytes included; of one on a GPU, filtered there,
        one of CuPy; with ``out``, a part of that
    :raises InputError: a wrong argument, or no room in ``out``
    :raises OperatorError: the predicate is no Python function of one element, cannot be compiled,
        returns no boolean, or has a constant that compiled code would change (``2**70``)
    :raises FileError: the file cannot be read
    :raises DeviceError: a device is not there
    :raises RunTimeoutError: out of time
    """
    check_callable(progress, "progress")

    options = FilterOptions(
        ordered=as_flag(ordered, "ordered"),
        out=out,
        packet_bytes=None
        if packet_bytes is None
        else as_count(packet_bytes, "packet_bytes", 1, 1 << 40),
        buffers=None if buffers is None else as_count(buffers, "buffers", 1, 1 << 10),
        progress=progress,
        timeout_s=None if timeout_s is None else as_positive_number(timeout_s, "timeout_s"),
    )
    with recorded(trace, "filter"):
        kept: Array = filter_array(array, predicate, devices, options)
        return kept
