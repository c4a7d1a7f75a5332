"""Predicate-based filtering: the elements of an array that satisfy a predicate, in their order.

Groute's first example (Ben-Nun et al., "Groute: asynchronous multi-GPU programming model with applications
to large-scale graph processing", 2020, sections 3 and 5.3, figures 5 and 6): the host sends packets of the
array to whichever device is free, devices send back what they keep, and the host puts that together.

A device has several *slots* for what packets keep. While the kernel of one runs, the next packet is on its
way to the device and what the one before has kept on its way back; the worker only ever waits for a kernel
that has another behind it. GPUs and CPUs together have a router each: :mod:`godwit.algorithms.sharing`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.assembly import Assembly, Packet
from godwit.algorithms.sharing import Spread, send_from_host, spreads_of
from godwit.arrays import host_array, lies_on_gpu
from godwit.backends.filtering import PacketFilter, Predicate, as_item_dtype, as_predicate
from godwit.backends.packet_filters import filter_on_gpu, gpu_array, packet_filter
from godwit.backends.registry import DevicesArgument, resolve_devices
from godwit.dataflow.context import Context, Endpoint
from godwit.dataflow.future import Future
from godwit.dataflow.link import Link
from godwit.dataflow.router import Router
from godwit.dataflow.segment import Segment
from godwit.dtypes import Array, shown
from godwit.errors import EndOfLink, FileError, FormatError, InputError, RunTimeoutError
from godwit.trace import active

PACKET_BYTES = 64 << 20
"""Where a GPU takes part, at most: every packet costs the host a quarter of a millisecond."""
LEAST_PACKET_BYTES = 4 << 20
"""Likewise, at least: a link of hosts is at its best, with some to spare."""
_PACKETS = 8
"""Of a GPU in between, at most: what comes before the first and behind the last of them is idle time."""
CPU_PACKET_BYTES = 4 << 20
"""For each thread, where no GPU does: handing a packet on wakes some threads, which takes its time."""
HOST_BUFFER_BYTES = 512 << 20
"""Of page-locked memory, unless three packets are more: the process keeps as much. To lock more for every
call takes longer than to filter."""
SLOTS = 4
"""One to be filled, others whose kernels run or whose contents travel."""
_MOST_MOVERS = 8
_LEAST_GPU_BYTES = 64 << 20
"""Of a host array for which a GPU is chosen unasked: to set one up takes longer than to filter less."""


@dataclass(frozen=True)
class FilterOptions:
    """How an array is to be filtered; all checked.

    :param ordered: what is kept stays in its order; else packets come as they are done
    :param packet_bytes: of the array that a device takes at a time; None for what suits the devices
    :param buffers: of each device, for packets on their way to it
    :param out: where the result goes, if not to a new array
    :param progress: called with how many items have been dealt with
    :param timeout_s: for all of it
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
            if options.out is not None:
                raise InputError(f"out is for arrays on the host; this one is filtered on {here}")
            return filter_on_gpu(resident.astype(dtype, order="C", copy=False), keeps)
    found = mapped_array(array) if isinstance(array, str | os.PathLike) else _on_host(array)
    _check_shape(found)
    dtype = as_item_dtype(found.dtype)
    if options.out is not None:
        _check_out(options.out, dtype)
        _check_overlap(found, options)
    if devices is None:
        devices = default_devices(found)
    return filter_host_array(found, keeps, dtype, devices, options)


def default_devices(array: Array) -> DevicesArgument:
    """Where an array of the host is filtered if nobody says."""
    return "cpu" if array.nbytes < _LEAST_GPU_BYTES else None


def mapped_array(path: str | os.PathLike[str]) -> Array:
    """The array of a .npy file, of which nothing is read yet.

    :raises FileError: it cannot be read
    :raises FormatError: it holds no array
    """
    from tokenize import TokenError  # NumPy parses the header as Python

    try:
        found = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise FileError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error
    except (ValueError, SyntaxError, TokenError, EOFError) as error:
        raise FormatError(
            os.fspath(path), f"not an array in NumPy's format (.npy): {error}"
        ) from error
    return np.asarray(found)


def _on_host(array: Any) -> Array:
    if isinstance(array, np.ma.MaskedArray):
        raise InputError("a masked array would lose its mask; array.compressed() has what is valid")
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
    with Context(devices) as context, ExitStack() as filters:
        context.trace = context.trace or active()
        packet_bytes = options.packet_bytes or _default_packet_bytes(context, array, dtype)
        packet_items = max(1, packet_bytes // dtype.itemsize)
        movers = max(1, min(_MOST_MOVERS, config.thread_count() // 2))
        spreads = spreads_of(context, packet_items, dtype, options.policy, options.buffers)
        buffers = _host_buffers(spreads, packet_items * dtype.itemsize, movers)
        gather = Router(
            context.endpoints,
            [context.host],
            "any",
            packet_bytes=packet_items * dtype.itemsize,
            buffers=buffers,
        )

        def filter_of(spread: Spread, endpoint: Endpoint) -> PacketFilter:
            """What has all that is kept, until it has been put together."""
            return filters.enter_context(closing(_filter_of(spread, endpoint, predicate)))

        assembly = Assembly(
            array.size,
            dtype,
            ordered=options.ordered,
            out=options.out,
            progress=options.progress,
            movers=movers,
            most_held=(buffers - 1) // 2,
        )
        with closing(assembly):
            with context.workers() as workers:
                send_from_host(workers, array, spreads)
                for spread in spreads:
                    for endpoint in spread.endpoints:
                        links = spread.router.output(endpoint), gather.input(endpoint)
                        make = partial(filter_of, spread, endpoint)
                        workers.start(endpoint, filter_packets, *links, make)
                for segment in _received(gather.output(context.host), options.timeout_s):
                    assembly.take(segment)
            return assembly.result()


def _has_gpus(context: Context) -> bool:
    return any(device.kind == "cuda" for device in context.devices)


def _default_packet_bytes(context: Context, array: Array, dtype: np.dtype[Any]) -> int:
    if not _has_gpus(context):
        return CPU_PACKET_BYTES * max(device.threads for device in context.devices)
    gpus = sum(device.kind == "cuda" for device in context.devices)
    return gpu_packet_bytes(array.size * dtype.itemsize, gpus)


def gpu_packet_bytes(nbytes: int, gpus: int) -> int:
    """What suits an array on so many GPUs: a power of two, so that kept buffers fit the next one, too."""
    share = max(1, nbytes // (_PACKETS * gpus))
    return min(PACKET_BYTES, max(LEAST_PACKET_BYTES, 1 << (share - 1).bit_length()))


def _host_buffers(spreads: list[Spread], packet_bytes: int, movers: int) -> int:
    """For packets being moved, those that are held, and two that others may always have."""
    most = 2 * movers + 2
    if not _has_gpus(spreads[0].router.context):
        return most  # CPUs' packets are read where they lie
    return max(3, min(most, HOST_BUFFER_BYTES // packet_bytes))


def _filter_of(spread: Spread, endpoint: Endpoint, predicate: Predicate) -> PacketFilter:
    assert endpoint.device is not None
    threads = min(spread.threads, endpoint.device.threads)
    with endpoint.space.entered():
        return packet_filter(endpoint, predicate, spread.dtype, spread.packet_items, SLOTS, threads)


def filter_packets(incoming: Link, outgoing: Link, make: Callable[[], PacketFilter]) -> None:
    """What the worker of a device does: filter what comes, send on what is kept of it."""
    incoming.receive()  # packets are on their way while the filter is made
    filtering = make()
    slots, stream = filtering.slots, incoming.target.stream
    most_started = len(slots) - 1 if filtering.runs_on else 1
    sent: list[Future[None] | None] = [None] * len(slots)
    started: deque[tuple[int, Packet]] = deque()

    def send_first() -> None:
        number, packet = started.popleft()
        sent[number] = outgoing.send(slots[number].kept(), metadata=packet)

    for count, segment in enumerate(incoming):
        number = count % len(slots)
        earlier = sent[number]
        if earlier is not None and stream is None:
            earlier.wait()
        elif earlier is not None:
            earlier.wait_on(stream)
        with segment:
            slots[number].start(segment.array)
            packet = Packet(segment.metadata + segment.offset, len(segment))
        started.append((number, packet))
        if len(started) == most_started:
            send_first()
    while started:
        send_first()


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
            raise RunTimeoutError(
                f"filter did not finish within timeout_s={timeout_s:g} s"
            ) from None
        yield segment
