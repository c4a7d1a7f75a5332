"""Predicate-based filtering: the elements of an array that satisfy a predicate, in their order.

Groute's first example (Ben-Nun et al., "Groute: asynchronous multi-GPU programming model with applications
to large-scale graph processing", 2020, sections 3 and 5.3, figures 5 and 6): the host sends packets of the
array to whichever device is free, devices send back what they keep, and the host puts that together.

A device has several *slots* for what packets keep. While the kernel of one runs, the next packet is on its
way to the device and what the one before has kept on its way back; the worker only ever waits for a kernel
that has another behind it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.algorithms.assembly import Assembly, Packet
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
from godwit.errors import EndOfLink, FileError, InputError, RunTimeoutError
from godwit.trace import active

PACKET_BYTES = 16 << 20
"""Where a GPU takes part: what the links of hosts need to be at their best, with some to spare."""
CPU_PACKET_BYTES = 4 << 20
"""For each thread, where none does: handing a packet on wakes some threads, which takes its time."""
READY_PACKETS = 3
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
    found = _mapped(array) if isinstance(array, str | os.PathLike) else _on_host(array)
    _check_shape(found)
    dtype = as_item_dtype(found.dtype)
    if options.out is not None:
        _check_out(options.out, dtype)
    if devices is None and found.nbytes < _LEAST_GPU_BYTES:
        devices = "cpu"
    return filter_host_array(found, keeps, dtype, devices, options)


def _mapped(path: str | os.PathLike[str]) -> Array:
    """The array of a .npy file, of which nothing is read yet."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise FileError(f"{os.fspath(path)}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"{os.fspath(path)}: not the array of a .npy file ({error})") from error
    if not isinstance(found, np.ndarray):
        raise InputError(f"{os.fspath(path)}: an archive of arrays; a .npy file has one")
    return np.asarray(found)


def _on_host(array: Any) -> Array:
    try:
        return host_array(array)
    except (TypeError, ValueError) as error:
        raise InputError(f"array must be an array of numbers, got {shown(array)}") from error


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
    with Context(devices) as context, ExitStack() as stack:
        context.trace = context.trace or active()
        packet_bytes = options.packet_bytes or _default_packet_bytes(context)
        packet_items = max(1, packet_bytes // dtype.itemsize)
        movers = max(1, min(_MOST_MOVERS, config.thread_count() // 2))
        spread, gather = _routers(context, packet_items * dtype.itemsize, movers, options)
        filters = [
            stack.enter_context(closing(_filter_of(endpoint, predicate, dtype, packet_items)))
            for endpoint in context.endpoints
        ]
        assembly = stack.enter_context(
            closing(
                Assembly(
                    array.size,
                    dtype,
                    ordered=options.ordered,
                    out=options.out,
                    progress=options.progress,
                    movers=movers,
                    most_held=movers,
                )
            )
        )
        with context.workers() as workers:
            for endpoint, filtering in zip(context.endpoints, filters, strict=True):
                links = spread.output(endpoint), gather.input(endpoint)
                workers.start(endpoint, filter_packets, *links, filtering)
            workers.start(
                context.host, _distribute, array, dtype, spread.input(context.host), packet_items
            )
            for segment in _received(gather.output(context.host), options.timeout_s):
                assembly.take(segment)
        return assembly.result()


def _default_packet_bytes(context: Context) -> int:
    if any(device.kind == "cuda" for device in context.devices):
        return PACKET_BYTES
    return CPU_PACKET_BYTES * max(device.threads for device in context.devices)


def _routers(
    context: Context, packet_bytes: int, movers: int, options: FilterOptions
) -> tuple[Router, Router]:
    """From the host to the devices, and back."""
    # A CPU reads packets where they lie: to have some ready would only keep them from others.
    ready = {
        endpoint: 1 if endpoint.device.kind == "cpu" else options.buffers or READY_PACKETS
        for endpoint in context.endpoints
        if endpoint.device is not None
    }
    spread = Router(
        [context.host], context.endpoints, options.policy, packet_bytes=packet_bytes, buffers=ready
    )
    gather = Router(
        context.endpoints,
        [context.host],
        "any",
        packet_bytes=packet_bytes,
        buffers=2 * movers + 2,  # being moved, held, and two that others may always have
    )
    return spread, gather


def _filter_of(
    endpoint: Endpoint, predicate: Predicate, dtype: np.dtype[Any], packet_items: int
) -> PacketFilter:
    assert endpoint.device is not None
    threads = endpoint.device.threads
    if any(device.kind == "cuda" for device in endpoint.context.devices):
        threads = max(1, threads // 2)  # others move what comes from GPUs
    with endpoint.space.entered():
        return packet_filter(endpoint, predicate, dtype, packet_items, SLOTS, threads)


def _distribute(array: Array, dtype: np.dtype[Any], link: Link, packet_items: int) -> None:
    """Send the array, whole if it can be read as it lies; the metadata are where the message begins."""
    if array.flags.c_contiguous and array.flags.aligned and array.dtype == dtype:
        link.send(array, metadata=0)
        return
    sent: deque[Future[None]] = deque()
    for begin in range(0, array.size, packet_items):
        piece = np.array(array[begin : begin + packet_items], dtype)
        sent.append(link.send(piece, metadata=begin))
        if len(sent) > READY_PACKETS * len(link.context.endpoints):
            sent.popleft().wait()


def filter_packets(incoming: Link, outgoing: Link, filtering: PacketFilter) -> None:
    """What the worker of a device does: filter what comes, send on what is kept of it."""
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
