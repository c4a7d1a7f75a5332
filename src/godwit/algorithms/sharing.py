"""An array dealt out by the host: to all devices by one router, or to GPUs and CPUs by one each.

A packet that suits a GPU keeps a CPU busy for so long that all which GPUs find meanwhile waits for its
place, and at the end everybody waits for it; pieces that suit a CPU cost the host more time a byte than a
GPU can be kept busy with. So where there are both, each kind has a router and a feeder, which takes as much
as suits its kind from the front of what is left, whenever one of its devices will soon be free.

That all are done at the same time, packets of GPUs shrink near the end (:func:`guided_items`), and a CPU
takes no more than it will have done when GPUs have done the rest (:func:`cpu_items`).
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from godwit import config
from godwit.dataflow.context import Context, Endpoint
from godwit.dataflow.future import Future
from godwit.dataflow.link import Link
from godwit.dataflow.router import Router
from godwit.dataflow.workers import Workers
from godwit.dtypes import Array

READY_PACKETS = 3
"""Buffers of a GPU for packets on their way to it."""
CPU_PIECE_BYTES = 2 << 20
"""For each thread, beside GPUs: who waits for its place shall not wait long."""
LAST_PACKET_BYTES = 16 << 20
"""To which a GPU's packets shrink: a smaller one costs the host more time than it takes on the bus."""
_FIRST_PART = 16
"""Of what is left a CPU takes no more, as long as nobody knows how fast all are."""
_LEAST_PART = 8
"""Of a piece a CPU takes no less, and at first no more."""
_MOST_CPU_THREADS = 8
"""Beside GPUs: to wake each, the host's own threads stand still for a moment."""


@dataclass(frozen=True)
class Spread:
    """From the host to some of the endpoints.

    :param packet_items: of a packet
    :param last_items: to which packets shrink near the end
    :param dtype: in which items are sent
    :param threads: that a CPU among them may use, at most
    :param ready: packets on their way to a GPU
    """

    router: Router
    endpoints: tuple[Endpoint, ...]
    packet_items: int
    last_items: int
    dtype: np.dtype[Any]
    threads: int
    ready: int

    @property
    def cpus(self) -> int:
        """How many of the endpoints are."""
        return sum(one.device is not None and one.device.kind == "cpu" for one in self.endpoints)


def spreads_of(
    context: Context, packet_items: int, dtype: np.dtype[Any], policy: str, buffers: int | None
) -> list[Spread]:
    """One to all devices; where there are both kinds, one to the GPUs and one to the CPUs.

    :param policy: of the router; any but ``"any"`` has one for both kinds
    :param buffers: of each GPU
    """
    every = context.endpoints
    gpus = tuple(one for one in every if one.device is not None and one.device.kind == "cuda")
    cpus = tuple(one for one in every if one not in gpus)
    ready = buffers or READY_PACKETS
    threads = max(one.device.threads for one in every if one.device is not None)
    if gpus:
        threads = max(1, min(_MOST_CPU_THREADS, config.thread_count() // 4))
    plans = [(every, packet_items)]
    if gpus and cpus and policy == "any":
        most = max(one.device.threads for one in cpus if one.device is not None)
        piece_items = min(threads, most) * CPU_PIECE_BYTES // dtype.itemsize
        plans = [(gpus, packet_items), (cpus, min(packet_items, piece_items))]
    found = []
    for endpoints, items in plans:
        # A CPU reads packets where they lie: to have some ready would only keep them from others.
        counts = {one: 1 if one in cpus else ready for one in endpoints}
        router = Router(
            [context.host], endpoints, policy, packet_bytes=items * dtype.itemsize, buffers=counts
        )
        last = items
        if policy == "any" and any(one in gpus for one in endpoints):
            last = min(items, max(1, LAST_PACKET_BYTES // dtype.itemsize))
        found.append(Spread(router, endpoints, items, last, dtype, threads, ready))
    return found


def send_from_host(workers: Workers, array: Array, spreads: list[Spread]) -> None:
    """Start the host's workers: one that sends all, or one for each kind of devices."""
    first, last = spreads[0], spreads[-1]
    host, dtype = first.router.context.host, first.dtype
    link = first.router.input(host)
    if first is last:
        workers.start(host, _distribute, array, link, first)
        return
    shared = SharedArray(array, dtype)
    takers = len(first.router.context.endpoints)
    workers.start(host, feed_gpus, shared, link, first, takers)
    pieces = last.router.input(host), last.packet_items, len(last.endpoints)
    workers.start(host, feed_cpus, shared, *pieces)


def is_plain(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an array can be sent as it lies."""
    return array.flags.c_contiguous and array.flags.aligned and bool(array.dtype == dtype)


def guided_items(left_items: int, takers: int, most_items: int, last_items: int) -> int:
    """How many items the next packet has: half of an equal part of what is left, within bounds.

    Guided self-scheduling (Polychronopoulos and Kuck, 1987): who is last is so by a small packet, and few
    are small.

    :param takers: devices that take packets
    :param last_items: packets shrink to that
    """
    return max(last_items, min(most_items, left_items // (2 * takers)))


def _distribute(array: Array, link: Link, spread: Spread) -> None:
    """Send the array; the metadata are where a message begins.

    What can be read as it lies goes as one message, up to where packets shrink.
    """
    packet_items, takers = spread.packet_items, len(spread.endpoints)
    plain = is_plain(array, spread.dtype)
    begin = 0
    if plain and spread.last_items == packet_items:
        begin = array.size
    elif plain:
        full = array.size // packet_items - 2 * takers + 1
        begin = max(0, full) * packet_items
    if begin or not array.size:
        link.send(array[:begin], metadata=0)
    sent: deque[Future[None]] = deque()
    while begin < array.size:
        end = begin + guided_items(array.size - begin, takers, packet_items, spread.last_items)
        piece = array[begin:end]
        sent.append(link.send(piece if plain else np.array(piece, spread.dtype), metadata=begin))
        begin = end
        if not plain and len(sent) > READY_PACKETS * len(link.context.endpoints):
            sent.popleft().wait()


class SharedArray:
    """What is left of an array; both kinds take from its front.

    :param dtype: in which it is sent
    """

    def __init__(self, array: Array, dtype: np.dtype[Any]) -> None:
        self._array = array
        self._dtype = dtype
        self._is_plain = is_plain(array, dtype)
        self._begin = 0
        self._lock = threading.Lock()
        self.gpu_item_s: float | None = None
        """Seconds that GPUs together take for an item; None: not measured yet."""
        self.gpu_items = 0
        """That GPUs have been sent, and not begun with."""

    @property
    def left_items(self) -> int:
        """That nobody has taken."""
        return self._array.size - self._begin

    def take(self, count: int) -> tuple[int, Array] | None:
        """The next items and where they begin; None behind the last."""
        with self._lock:
            begin = self._begin
            end = self._begin = min(begin + count, self._array.size)
        if begin == end:
            return None
        piece = self._array[begin:end]
        return begin, piece if self._is_plain else np.array(piece, self._dtype)


def cpu_items(
    left_items: int,
    gpu_items: int,
    gpu_item_s: float | None,
    cpu_item_s: float | None,
    cpus: int,
    most_items: int,
) -> int:
    """How many items a CPU that is free is to take: what it does while all others do the rest.

    :param left_items: of the array, that nobody has taken
    :param gpu_items: that GPUs have taken, and not begun with
    :param gpu_item_s: seconds that all GPUs together take for one; None: not known yet
    :param cpu_item_s: seconds that a CPU takes for one; None: not known yet
    :param most_items: of a piece
    :returns: 0 where it is not worth it
    """
    if cpu_item_s is None:
        most_items = -(-most_items // _LEAST_PART)
    if cpu_item_s is None or gpu_item_s is None:
        return min(most_items, -(-left_items // _FIRST_PART))
    share = (left_items + gpu_items) * gpu_item_s / max(cpu_item_s + cpus * gpu_item_s, 1e-30)
    items = int(min(most_items, left_items, share))
    return items if items * _LEAST_PART >= most_items else 0


def feed_gpus(shared: SharedArray, link: Link, spread: Spread, takers: int) -> None:
    """Send packets, some ahead, and note how fast they go.

    :param takers: all devices
    """
    gpus = len(spread.endpoints)
    most_sent = 1 + spread.ready * gpus
    sent: deque[tuple[int, Future[None]]] = deque()
    first_s = 0.0
    done = done_items = 0
    while shared.left_items:
        count = guided_items(shared.left_items, takers, spread.packet_items, spread.last_items)
        taken = shared.take(count)
        if taken is None:
            break
        begin, items = taken
        shared.gpu_items += items.size
        sent.append((items.size, link.send(items, metadata=begin)))
        if len(sent) < most_sent:
            continue
        count, future = sent.popleft()
        future.wait()
        shared.gpu_items -= count
        # By rounds; the first is no measure, as much is set up before.
        done += 1
        if done > gpus:
            done_items += count
        if done == gpus:
            first_s = perf_counter()
        elif done % gpus == 0:
            shared.gpu_item_s = (perf_counter() - first_s) / done_items
    link.shutdown()


def feed_cpus(shared: SharedArray, link: Link, piece_items: int, cpus: int) -> None:
    """Send a piece to each CPU, and the next when the first of them is done, while it is worth it."""
    sent: deque[tuple[float, int, Future[None]]] = deque()
    cpu_item_s: float | None = None
    while True:
        if len(sent) == cpus:
            begin_s, count, future = sent.popleft()
            future.wait()
            cpu_item_s = (perf_counter() - begin_s) / count
        taken = shared.take(
            cpu_items(
                shared.left_items,
                shared.gpu_items,
                shared.gpu_item_s,
                cpu_item_s,
                cpus,
                piece_items,
            )
        )
        if taken is None:
            break
        begin, items = taken
        sent.append((perf_counter(), items.size, link.send(items, metadata=begin)))
    link.shutdown()
