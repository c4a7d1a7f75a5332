"""Collectives over links and routers: broadcast, reduce, all-reduce, gather.

One array an endpoint goes in, one an endpoint comes out, of NumPy or CuPy by the endpoint; GPUs and CPUs
may stand together. Each is some lines over links or a router, in a context of its own on the same devices,
whose buffers go when it ends: a broadcast by the policy ``"broadcast"``, or along a chain of GPUs, each of
which passes on every packet as it comes; a reduction by ``"tree"``; an all-reduce around a ring (Patarasuk
and Yuan 2009: reduce-scatter, then all-gather), packet by packet. On GPUs NCCL does the same, where it is
there and has been set up.

Invariant of the ring: rows are sent on as soon as they are combined, and come back complete after
``2 (k - 1)`` steps. They are overwritten only by what has gone around since, so after the copies that read
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from time import perf_counter
from typing import Any

from godwit.dataflow.collective_arguments import (
    FUNCTIONS,
    Collective,
    as_arrays,
    as_operands,
    as_root,
    takes_nccl,
    when_made,
)
from godwit.dataflow.context import Context
from godwit.dataflow.endpoint import Endpoint
from godwit.dataflow.library_collectives import Operator, note_links, own_group
from godwit.dataflow.link import Link
from godwit.dataflow.router import Router
from godwit.dtypes import as_count
from godwit.errors import InputError

_LARGEST_PACKET = 64 << 20
_SMALLEST_PACKET = 256 << 10
_PACKETS = 8
"""So many a message, where that makes them no smaller: packets fill the chain that passes them on."""


def broadcast(
    context: Context,
    array: Any,
    *,
    root: int | Endpoint = 0,
    collective: Collective = "auto",
    packet_bytes: int | None = None,
) -> list[Any]:
    """An array of one endpoint, brought to all.

    :param array: of that endpoint
    :param root: the endpoint, or its place; ``context.host`` for an array of the host
    :param collective: ``"links"``, ``"nccl"``, or ``"auto"``: NCCL where it is there, as soon as links
        have cost what setting it up does (most of a second)
    :param packet_bytes: of links; None for what suits the array
    :returns: one array an endpoint; the root's is the one given
    :raises InputError: no array, or no such root
    :raises DeviceError: there is no NCCL for these devices
    """
    source = as_root(context, root)
    taken = when_made(source, array)
    if takes_nccl(context, collective, [taken], source):
        outs = [taken if one is source else _empty(one, taken) for one in context.endpoints]
        own_group(context.devices).broadcast(taken, outs, source.index)
        return outs
    found: dict[int, Any] = {}
    with _inner(context) as inner:
        first = _twin(inner, source)
        others = [one for one in inner.endpoints if one is not first]
        order = [first, *others]
        packet = _packet(packet_bytes, taken)
        ways_in, ways_out = _chain(order, packet) if _all_gpus(order) else _fan(order, packet)

        def take(endpoint: Endpoint) -> None:
            out = found[endpoint.index] = _empty(endpoint, taken)
            rows, ahead = out.reshape(-1), ways_out.get(endpoint)
            for segment in ways_in[endpoint]:
                # Its place, of those that were passed on; else where it is in the message.
                begin = (segment.metadata or 0) + segment.offset
                end = begin + len(segment)
                with segment:
                    rows[begin:end] = segment.array
                if ahead is not None:
                    ahead.send(rows[begin:end], metadata=begin)
            endpoint.space.record_event().wait()

        with inner.workers() as workers:
            workers.each(others, take)
            if others:
                workers.start(first, ways_out[first].send, taken.reshape(-1))
    if source.kind == "device":
        found[source.index] = taken
    return [found[one.index] for one in context.endpoints]


def reduce(
    context: Context,
    arrays: Sequence[Any],
    operator: Operator = "add",
    *,
    root: int = 0,
    collective: Collective = "auto",
    packet_bytes: int | None = None,
) -> Any:
    """Arrays of all endpoints, combined number by number, at one of them.

    :param arrays: one an endpoint, of one shape and dtype
    :param operator: ``"add"``, ``"min"`` or ``"max"``
    :param root: the place of the endpoint where the result is to be
    :param collective: as of :func:`broadcast`
    :param packet_bytes: likewise
    :returns: an array of that endpoint; the arrays stay as they are
    :raises InputError: arrays that differ, an unknown operator, or no such root
    """
    given = as_operands(context, arrays, operator)
    target = as_root(context, root)
    if takes_nccl(context, collective, given):
        out = _empty(target, given[target.index])
        own_group(context.devices).reduce(given, out, operator, target.index)
        return out
    if len(given) == 1 or prod(given[0].shape) == 0:
        return _copied(target, given[target.index])
    found: list[Any] = []
    with _inner(context) as inner:
        order = [inner.endpoints[target.index]]
        order += [one for one in inner.endpoints if one is not order[0]]
        router = Router(order, order, "tree", packet_bytes=_packet(packet_bytes, given[0]))
        below = [sum(child & (child - 1) == place for child in range(place + 1, len(order)))
                 for place in range(len(order))]  # fmt: skip

        def combine(endpoint: Endpoint, place: int) -> None:
            out = _copied(endpoint, given[endpoint.index])
            rows = out.reshape(-1)
            left = below[place] * len(rows)
            segments = iter(router.output(endpoint))
            while left:  # the link ends when all have ended, and they wait for their elders
                with next(segments) as segment:
                    begin = segment.offset
                    _combine(operator, rows[begin : begin + len(segment)], segment.array)
                    left -= len(segment)
            if place:
                router.input(endpoint).send(rows)
            else:
                found.append(out)
            endpoint.space.record_event().wait()

        with inner.workers() as workers:
            for place, endpoint in enumerate(order):
                workers.start(endpoint, combine, endpoint, place)
    return found[0]


def all_reduce(
    context: Context,
    arrays: Sequence[Any],
    operator: Operator = "add",
    *,
    collective: Collective = "auto",
    packet_bytes: int | None = None,
) -> list[Any]:
    """Arrays of all endpoints, combined number by number, at all of them.

    :param arrays: one an endpoint, of one shape and dtype
    :param operator: ``"add"``, ``"min"`` or ``"max"``
    :param collective: as of :func:`broadcast`
    :param packet_bytes: likewise
    :returns: one array an endpoint; those given stay as they are
    :raises InputError: arrays that differ, or an unknown operator
    """
    given = as_operands(context, arrays, operator)
    if takes_nccl(context, collective, given):
        outs = [_empty(one, given[one.index]) for one in context.endpoints]
        own_group(context.devices).all_reduce(given, outs, operator)
        return outs
    count = len(given)
    numbers = prod(given[0].shape)
    if count == 1 or numbers == 0:
        return [_copied(one, given[one.index]) for one in context.endpoints]
    bounds = [numbers * place // count for place in range(count + 1)]
    found: dict[int, Any] = {}
    with _inner(context) as inner:
        ends = inner.endpoints
        packet = _packet(packet_bytes, given[0], count)
        ring = [Link(ends[i], ends[(i + 1) % count], packet_bytes=packet) for i in range(count)]

        def go_around(endpoint: Endpoint) -> None:
            """At step s comes the chunk that began s + 1 places back; the first half combines."""
            place = endpoint.index
            out = found[place] = _copied(endpoint, given[place])
            rows, ahead = out.reshape(-1), ring[place]
            begin, end = bounds[place : place + 2]
            if end > begin:
                ahead.send(rows[begin:end], metadata=(0, begin))
            if left[place] == 0:
                ahead.shutdown()
            for segment in ring[place - 1]:
                step, begin = segment.metadata
                begin += segment.offset
                mine = rows[begin : begin + len(segment)]
                with segment:
                    if step < count - 1:
                        _combine(operator, mine, segment.array)
                    else:
                        mine[...] = segment.array
                if step < 2 * count - 3:
                    ahead.send(mine, metadata=(step + 1, begin))
                left[place] -= len(segment)
                if left[place] == 0:
                    ahead.shutdown()
            endpoint.space.record_event().wait()

        left = [_rows_around(bounds, place) for place in range(count)]
        with inner.workers() as workers:
            workers.each(ends, go_around)
    return [found[one.index] for one in context.endpoints]


def gather(
    context: Context,
    arrays: Sequence[Any],
    *,
    root: int | Endpoint = 0,
    packet_bytes: int | None = None,
) -> Any:
    """Arrays of all endpoints, one behind the other along the first axis, at one of them.

    :param arrays: one an endpoint; of one dtype, and of one shape but for the first axis
    :param root: the endpoint, or its place, where the result is to be; ``context.host`` for the host
    :returns: an array of that endpoint
    :raises InputError: arrays that do not fit together, or no such root
    """
    given = as_arrays(context, arrays)
    if len({(one.dtype, one.shape[1:]) for one in given}) > 1:
        raise InputError("arrays of one dtype can be gathered, of one shape but for the first axis")
    target = as_root(context, root)
    begins = [sum(len(one) for one in given[:place]) for place in range(len(given) + 1)]
    width = prod(given[0].shape[1:])
    shape = (begins[-1], *given[0].shape[1:])
    with _inner(context) as inner:
        last = _twin(inner, target)
        senders = [one for one in inner.endpoints if one is not last]
        with last.space.entered():
            out = _empty(last, given[0], shape)
            rows = out.reshape(-1)
            if last.kind == "device":
                begin, end = begins[last.index : last.index + 2]
                rows[begin * width : end * width] = given[last.index].reshape(-1)
            if senders:
                packet = _packet(packet_bytes, out)
                router = Router(senders, [last], "gather", packet_bytes=packet)
                with inner.workers() as workers:
                    for one in senders:
                        flat = given[one.index].reshape(-1)
                        workers.start(one, router.input(one).send, flat)
                    for segment in router.output(last):
                        begin = begins[segment.source.index] * width + segment.offset
                        with segment:
                            rows[begin : begin + len(segment)] = segment.array
            last.space.record_event().wait()
    return out


# What they share.


@contextmanager
def _inner(context: Context) -> Iterator[Context]:
    """A context on the same devices, which notes what it does in the same trace."""
    names = [device.name for device in context.devices]
    limits = context._limits or None
    begin = perf_counter()
    with Context(names, memory_bytes=limits, transport=context._transport) as inner:
        inner.trace = context.trace
        yield inner
    note_links(context.devices, perf_counter() - begin)


def _twin(inner: Context, endpoint: Endpoint) -> Endpoint:
    return inner.host if endpoint.kind == "host" else inner.endpoints[endpoint.index]


def _packet(wished: int | None, array: Any, parts: int = 1) -> int:
    """Of links: the message in several, so that they overlap on a chain."""
    if wished is not None:
        return as_count(wished, "packet_bytes", 1, 1 << 40)
    fair = -(-int(array.nbytes) // (_PACKETS * parts))
    return max(int(array.dtype.itemsize), min(_LARGEST_PACKET, max(_SMALLEST_PACKET, fair)))


def _all_gpus(order: Sequence[Endpoint]) -> bool:
    return len(order) > 2 and all(one.space.kind == "cuda" for one in order)


def _chain(order: Sequence[Endpoint], packet: int) -> tuple[dict[Endpoint, Link], Any]:
    """Links from each to the next: by who receives, and by who sends."""
    pairs = list(pairwise(order))
    links = [Link(one, other, packet_bytes=packet) for one, other in pairs]
    into = {other: link for (_, other), link in zip(pairs, links, strict=True)}
    return into, {one: link for (one, _), link in zip(pairs, links, strict=True)}


def _fan(order: Sequence[Endpoint], packet: int) -> tuple[dict[Endpoint, Link], Any]:
    """Links from the first to all others, likewise."""
    first, *others = order
    if not others:
        return {}, {}
    router = Router([first], others, "broadcast", packet_bytes=packet)
    return {one: router.output(one) for one in others}, {first: router.input(first)}


def _rows_around(bounds: Sequence[int], place: int) -> int:
    """How many numbers come to one of a ring: those of all chunks but one, twice."""
    count = len(bounds) - 1
    sizes = [bounds[i + 1] - bounds[i] for i in range(count)]
    return sum(sizes[(place - 1 - step) % count] for step in range(2 * count - 2))


def _module(endpoint: Endpoint) -> Any:
    if endpoint.space.kind == "cuda":
        import cupy

        return cupy
    import numpy as np

    return np


def _empty(endpoint: Endpoint, like: Any, shape: Any = None) -> Any:
    with endpoint.space.entered():
        return _module(endpoint).empty(like.shape if shape is None else shape, like.dtype)


def _copied(endpoint: Endpoint, array: Any) -> Any:
    with endpoint.space.entered():
        copy = _module(endpoint).array(array)
    endpoint.space.record_event().wait()
    return copy


def _combine(operator: str, mine: Any, other: Any) -> None:
    """Number by number, by the library of the array."""
    if hasattr(mine, "__cuda_array_interface__"):
        import cupy as module
    else:
        import numpy as module

    getattr(module, FUNCTIONS[operator])(mine, other, out=mine)
