"""Collectives: broadcast, reduce, all-reduce, gather.

Each takes or returns one array per endpoint, of NumPy or CuPy by the endpoint; GPUs and CPUs may stand
together. Distinct GPUs use NCCL where CuPy has it: on two H200 it takes 0.84 s to set up, once per process,
and is then faster than links for messages of any size. Everything else goes over links, in a context of its
own on the same devices, whose buffers are freed at the end: a broadcast along a chain, in which each
endpoint sends every packet on as soon as it has arrived; a reduction up a tree; an all-reduce around a ring
(Patarasuk and Yuan 2009: reduce-scatter, then all-gather), packet by packet.

Invariant of the ring: rows are sent on as soon as they are combined, and are complete after ``2 (k - 1)``
steps. Only rows that have gone around since overwrite them, so after the copies that read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from typing import Any, Literal, get_args

from godwit.dataflow.context import Context
from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.link import DEFAULT_BUFFERS, Link
from godwit.dataflow.router import Router
from godwit.dtypes import as_count
from godwit.errors import DeviceError, InputError, shown

Collective = Literal["auto", "links", "nccl"]
Operator = Literal["add", "min", "max"]

_FUNCTIONS = {"add": "add", "min": "minimum", "max": "maximum"}
"""Names of the operators in NumPy and CuPy."""
_LARGEST_PACKET = 64 << 20
_SMALLEST_PACKET = 256 << 10
_PACKETS = 8
"""Packets of a message that is not small: they overlap on a chain."""


def broadcast(
    context: Context,
    array: Any,
    *,
    root: int | Endpoint = 0,
    collective: Collective = "auto",
    packet_bytes: int | None = None,
) -> list[Any]:
    """Copy an array of one endpoint to all endpoints.

    :param array: the root's array
    :param root: the endpoint, or its index; ``context.host`` for an array of the host
    :param collective: ``"links"``, ``"nccl"``, or ``"auto"``: NCCL where it can be used, else links
    :param packet_bytes: packet size of links; None for a size that suits the array
    :returns: one array per endpoint; the root's is the one given
    :raises InputError: not an array of numbers, or no such root
    :raises DeviceError: there is no NCCL for these devices
    """
    source = _as_root(context, root)
    array = _synchronized(source, array)
    nccl = _nccl_group(context, collective, array, source)
    if nccl is not None:
        outs = [array if end is source else _empty(end, array) for end in context.endpoints]
        nccl.broadcast(array, outs, source.index)
        return outs
    outs_of = {source.index: array}
    with _inner_context(context) as inner:
        first = inner.host if source is context.host else inner.endpoints[source.index]
        chain = [first, *(end for end in inner.endpoints if end is not first)]
        packet = _packet_size(packet_bytes, array)
        links = [Link(*pair, packet, DEFAULT_BUFFERS) for pair in pairwise(chain)]

        def receive(endpoint: Endpoint, index: int) -> None:
            out = outs_of[endpoint.index] = _empty(endpoint, array)
            rows = out.reshape(-1)
            for segment in links[index - 1]:
                begin = (segment.metadata or 0) + segment.offset  # metadata: begin of the message
                end = begin + len(segment)
                with segment:
                    rows[begin:end] = segment.array
                if index < len(links):
                    links[index].send(rows[begin:end], metadata=begin)
            endpoint.space.record_event().wait()

        with inner.workers() as workers:
            for index, endpoint in enumerate(chain[1:], 1):
                workers.start(endpoint, receive, endpoint, index)
            if links:
                workers.start(first, links[0].send, array.reshape(-1))
    return [outs_of[end.index] for end in context.endpoints]


def reduce(
    context: Context,
    arrays: Sequence[Any],
    operator: Operator = "add",
    *,
    root: int = 0,
    collective: Collective = "auto",
    packet_bytes: int | None = None,
) -> Any:
    """Combine the arrays of all endpoints elementwise, at one endpoint.

    :param arrays: one array per endpoint, of one shape and dtype; they are not changed
    :param operator: ``"add"``, ``"min"`` or ``"max"``
    :param root: index of the endpoint that gets the result
    :param collective: as of :func:`broadcast`
    :param packet_bytes: as of :func:`broadcast`
    :returns: an array of that endpoint
    :raises InputError: arrays that differ, an unknown operator, or no such root
    :raises DeviceError: there is no NCCL for these devices
    """
    arrays = _as_operands(context, arrays, operator)
    target = _as_root(context, root)
    nccl = _nccl_group(context, collective, arrays[0])
    if nccl is not None:
        out = _empty(target, arrays[target.index])
        nccl.reduce(arrays, out, operator, target.index)
        return out
    if len(arrays) == 1 or prod(arrays[0].shape) == 0:
        return _copied(target, arrays[target.index])
    results: list[Any] = []
    with _inner_context(context) as inner:
        first = inner.endpoints[target.index]
        tree = [first, *(end for end in inner.endpoints if end is not first)]
        router = Router(tree, tree, "tree", packet_bytes=_packet_size(packet_bytes, arrays[0]))

        def combine(endpoint: Endpoint, index: int) -> None:
            out = _copied(endpoint, arrays[endpoint.index])
            rows = out.reshape(-1)
            for segment in router.output(endpoint):
                with segment:
                    part = rows[segment.offset : segment.offset + len(segment)]
                    _combine(endpoint, operator, part, segment.array)
            if index:
                router.input(endpoint).send(rows)
            else:
                results.append(out)
            endpoint.space.record_event().wait()

        with inner.workers() as workers:
            for index, endpoint in enumerate(tree):
                workers.start(endpoint, combine, endpoint, index)
    return results[0]


def all_reduce(
    context: Context,
    arrays: Sequence[Any],
    operator: Operator = "add",
    *,
    collective: Collective = "auto",
    packet_bytes: int | None = None,
) -> list[Any]:
    """Combine the arrays of all endpoints elementwise, at all endpoints.

    :param arrays: one array per endpoint, of one shape and dtype; they are not changed
    :param operator: ``"add"``, ``"min"`` or ``"max"``
    :param collective: as of :func:`broadcast`
    :param packet_bytes: as of :func:`broadcast`
    :returns: one array per endpoint
    :raises InputError: arrays that differ, or an unknown operator
    :raises DeviceError: there is no NCCL for these devices
    """
    arrays = _as_operands(context, arrays, operator)
    nccl = _nccl_group(context, collective, arrays[0])
    if nccl is not None:
        outs = [_empty(end, arrays[end.index]) for end in context.endpoints]
        nccl.all_reduce(arrays, outs, operator)
        return outs
    count, size = len(arrays), prod(arrays[0].shape)
    if count == 1 or size == 0:
        return [_copied(end, arrays[end.index]) for end in context.endpoints]
    bounds = [size * part // count for part in range(count + 1)]
    outs_of: dict[int, Any] = {}
    with _inner_context(context) as inner:
        ends = inner.endpoints
        packet = _packet_size(packet_bytes, arrays[0], count)
        ring = [Link(end, ends[(end.index + 1) % count], packet, DEFAULT_BUFFERS) for end in ends]

        def go_around(endpoint: Endpoint) -> None:
            """In step s, take the part of the endpoint s + 1 before; combine in the first k - 1 steps."""
            index = endpoint.index
            out = outs_of[index] = _copied(endpoint, arrays[index])
            rows, ahead = out.reshape(-1), ring[index]
            begin, end = bounds[index], bounds[index + 1]
            following = (index + 1) % count
            # In 2 k - 2 steps every part arrives twice, but the endpoint's and the following once.
            left = 2 * size - (end - begin) - (bounds[following + 1] - bounds[following])
            if end > begin:
                ahead.send(rows[begin:end], metadata=(0, begin))
            for segment in ring[index - 1]:
                step, begin = segment.metadata
                begin += segment.offset
                part = rows[begin : begin + len(segment)]
                with segment:
                    if step < count - 1:
                        _combine(endpoint, operator, part, segment.array)
                    else:
                        part[...] = segment.array
                if step < 2 * count - 3:
                    ahead.send(part, metadata=(step + 1, begin))
                left -= len(segment)
                if left == 0:
                    ahead.shutdown()
            endpoint.space.record_event().wait()

        with inner.workers() as workers:
            workers.each(ends, go_around)
    return [outs_of[end.index] for end in context.endpoints]


def gather(
    context: Context,
    arrays: Sequence[Any],
    *,
    root: int | Endpoint = 0,
    packet_bytes: int | None = None,
) -> Any:
    """Concatenate the arrays of all endpoints along the first axis, at one endpoint.

    :param arrays: one array per endpoint; of one dtype, and of one shape but for the first axis
    :param root: the endpoint that gets the result, or its index; ``context.host`` for the host
    :param packet_bytes: as of :func:`broadcast`
    :returns: an array of that endpoint
    :raises InputError: arrays that do not fit together, or no such root
    """
    arrays = _as_arrays(context, arrays)
    if len({(array.dtype, array.shape[1:]) for array in arrays}) > 1:
        raise InputError("arrays of one dtype can be gathered, of one shape but for the first axis")
    target = _as_root(context, root)
    width = prod(arrays[0].shape[1:])
    begins = [sum(map(len, arrays[:index])) * width for index in range(len(arrays))]
    shape = (sum(map(len, arrays)), *arrays[0].shape[1:])
    with _inner_context(context) as inner:
        last = inner.host if target is context.host else inner.endpoints[target.index]
        senders = [end for end in inner.endpoints if end is not last]
        with last.space.entered():
            out = _empty(last, arrays[0], shape)
            rows = out.reshape(-1)
            if last is not inner.host:
                kept = arrays[last.index].reshape(-1)
                rows[begins[last.index] :][: kept.size] = kept
            if senders:
                packet = _packet_size(packet_bytes, out)
                router = Router(senders, [last], "gather", packet_bytes=packet)
                with inner.workers() as workers:
                    for end in senders:
                        workers.start(end, router.input(end).send, arrays[end.index].reshape(-1))
                    for segment in router.output(last):
                        begin = begins[segment.source.index] + segment.offset
                        with segment:
                            rows[begin : begin + len(segment)] = segment.array
            last.space.record_event().wait()
    return out


# Arguments


def _as_root(context: Context, root: Any) -> Endpoint:
    if isinstance(root, Endpoint):
        if root is context.host or any(root is end for end in context.endpoints):
            return root
        raise InputError(f"the root must be an endpoint of the context, got {shown(root)}")
    index = as_count(root, "root", 0, 1 << 20)
    if index >= len(context.endpoints):
        raise InputError(f"root must be in [0, {len(context.endpoints)}), got {index}")
    return context.endpoints[index]


def _synchronized(endpoint: Endpoint, array: Any) -> Any:
    """Return an endpoint's array after the work that writes it."""
    taken, after = endpoint.space.take(array)
    for event in after:
        event.wait()
    return taken


def _as_arrays(context: Context, arrays: Sequence[Any]) -> list[Any]:
    """Return the arrays of all endpoints, after the work that writes them."""
    ends = context.endpoints
    if not isinstance(arrays, list | tuple) or len(arrays) != len(ends):
        raise InputError(f"one array an endpoint is combined: a list of {len(ends)}")
    taken = [_synchronized(end, array) for end, array in zip(ends, arrays, strict=True)]
    for end, array in zip(ends, taken, strict=True):
        if not end.space.reads(array):
            raise InputError(f"the array of {end} must lie in its memory, but lies elsewhere")
    return taken


def _as_operands(context: Context, arrays: Sequence[Any], operator: Any) -> list[Any]:
    if operator not in _FUNCTIONS:
        known = ", ".join(map(repr, _FUNCTIONS))
        raise InputError(f"operator must be one of {known}, got {shown(operator)}")
    taken = _as_arrays(context, arrays)
    kinds = {(array.dtype, array.shape) for array in taken}
    if len(kinds) > 1:
        several = " and ".join(sorted(f"{dtype} {shape}" for dtype, shape in kinds))
        raise InputError(f"arrays of one dtype and shape can be combined, got {several}")
    return taken


def _nccl_group(context: Context, collective: Any, array: Any, root: Endpoint | None = None) -> Any:
    """Return NCCL's communicators of the context's GPUs; None where links are used."""
    if collective not in get_args(Collective):
        known = ", ".join(map(repr, get_args(Collective)))
        raise InputError(f"collective must be one of {known}, got {shown(collective)}")
    devices = context.devices
    is_possible = (
        root is not context.host
        and len(set(devices)) == len(devices) > 1
        and all(device.kind == "cuda" for device in devices)
    )
    if collective != "links" and is_possible:
        from godwit.dataflow.cuda import nccl

        if nccl.is_there() and nccl.takes(array.dtype):
            if not array.size:
                return None
            return nccl.group(tuple(int(device.name.partition(":")[2]) for device in devices))
    if collective == "nccl":
        raise DeviceError(
            "NCCL needs several GPUs, each of them once, CuPy with NCCL, and a dtype of NCCL's; "
            "collective='links' works everywhere"
        )
    return None


# Links and arrays


@contextmanager
def _inner_context(context: Context) -> Iterator[Context]:
    """Open a context on the same devices, with the same limits and trace."""
    names = [device.name for device in context.devices]
    limits = context._limits or None
    with Context(names, memory_bytes=limits, transport=context._transport) as inner:
        inner.trace = context.trace
        yield inner


def _packet_size(packet_bytes: int | None, array: Any, parts: int = 1) -> int:
    """Return the packet size of links that carry an array in some equal parts."""
    if packet_bytes is not None:
        return as_count(packet_bytes, "packet_bytes", 1, 1 << 40)
    fair = -(-int(array.nbytes) // (_PACKETS * parts))
    return max(int(array.dtype.itemsize), min(_LARGEST_PACKET, max(_SMALLEST_PACKET, fair)))


def _module(endpoint: Endpoint) -> Any:
    """Return the array library of an endpoint."""
    if endpoint.space.kind == "cuda":
        import cupy

        return cupy
    import numpy as np

    return np


def _combine(endpoint: Endpoint, operator: str, part: Any, other: Any) -> None:
    getattr(_module(endpoint), _FUNCTIONS[operator])(part, other, out=part)


def _empty(endpoint: Endpoint, like: Any, shape: Any = None) -> Any:
    with endpoint.space.entered():
        return _module(endpoint).empty(like.shape if shape is None else shape, like.dtype)


def _copied(endpoint: Endpoint, array: Any) -> Any:
    with endpoint.space.entered():
        copy = _module(endpoint).array(array)
    endpoint.space.record_event().wait()
    return copy
