"""An array dealt out by the host: to all devices by one router, or to GPUs and CPUs by one each.

A packet that suits a GPU keeps a CPU busy for so long that all which GPUs find meanwhile waits for its
place, and at the end everybody waits for it; pieces that suit a CPU cost the host more time a byte than a
GPU can be kept busy with. So where there are both, each kind has a router and a feeder, which takes as much
as suits its kind from the front of what is left, whenever one of its devices will soon be free. That all
are done at the same time, a CPU takes no more than it will have done when GPUs have done the rest
(:func:`cpu_items`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
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
READY_PIECES = 2
"""Likewise of a CPU beside GPUs, with what it works on: to hand one over takes a millisecond, in which it
would be idle."""
CPU_PIECE_BYTES = 4 << 20
"""For each thread, beside GPUs: a millisecond or two, as who waits for its place shall not wait long."""
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
    :param dtype: in which items are sent
    :param threads: that a CPU among them may use, at most
    :param ready: packets on their way to a GPU, at most
    """

    router: Router
    endpoints: tuple[Endpoint, ...]
    packet_items: int
    dtype: np.dtype[Any]
    threads: int
    ready: int


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
    plans = [(every, packet_items, 1)]
    if gpus and cpus and policy == "any":
        most = max(one.device.threads for one in cpus if one.device is not None)
        piece_items = min(threads, most) * CPU_PIECE_BYTES // dtype.itemsize
        pieces = cpus, min(packet_items, piece_items), READY_PIECES
        plans = [(gpus, packet_items, 0), pieces]
    found = []
    for endpoints, items, of_cpu in plans:
        # A CPU reads packets where they lie: to have more ready would only keep them from others.
        counts = {one: of_cpu if one in cpus else ready for one in endpoints}
        router = Router(
            [context.host], endpoints, policy, packet_bytes=items * dtype.itemsize, buffers=counts
        )
        found.append(Spread(router, endpoints, items, dtype, threads, ready))
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
    gpus = Taker(len(first.endpoints), first.ready * len(first.endpoints) + 1)
    cpus = Taker(len(last.endpoints), READY_PIECES * len(last.endpoints))
    pieces = last.router.input(host)
    workers.start(host, feed, shared, link, gpus, lambda: first.packet_items)
    workers.start(
        host, feed, shared, pieces, cpus, lambda: cpu_items(shared, gpus, cpus, last.packet_items)
    )


def is_plain(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an array can be sent as it lies."""
    return array.flags.c_contiguous and array.flags.aligned and bool(array.dtype == dtype)


def _distribute(array: Array, link: Link, spread: Spread) -> None:
    """Send the array, at once if it can be read as it lies; the metadata are where a message begins."""
    if is_plain(array, spread.dtype):
        link.send(array, metadata=0)
        return
    sent: deque[Future[None]] = deque()
    for begin in range(0, array.size, spread.packet_items):
        packet = np.array(array[begin : begin + spread.packet_items], spread.dtype)
        sent.append(link.send(packet, metadata=begin))
        if len(sent) > READY_PACKETS * len(spread.endpoints):
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


@dataclass
class Taker:
    """One kind of devices, all that a context has of it.

    :param devices: how many
    :param most_sent: messages that are on their way to them, or with a CPU, at a time
    :ivar items: of these messages
    :ivar item_s: seconds that they take for an item, together; None: not known yet
    """

    devices: int
    most_sent: int
    items: int = 0
    item_s: float | None = None


def cpu_items(shared: SharedArray, gpus: Taker, cpus: Taker, most_items: int) -> int:
    """How many items the next piece has: what a CPU does, behind what it has, while all others do the rest.

    :param most_items: of a piece
    :returns: 0 where it is not worth it
    """
    left_items = shared.left_items
    if cpus.item_s is None:
        most_items = -(-most_items // _LEAST_PART)
    if cpus.item_s is None or gpus.item_s is None:
        return min(most_items, -(-left_items // _FIRST_PART))
    ahead_s = (left_items + gpus.items) * gpus.item_s - cpus.items * cpus.item_s
    share = ahead_s / max(gpus.item_s + cpus.item_s, 1e-30) / cpus.devices
    items = int(min(most_items, left_items, share))
    return items if items * _LEAST_PART >= most_items else 0


def feed(shared: SharedArray, link: Link, taker: Taker, next_items: Callable[[], int]) -> None:
    """Send messages to one kind of devices, some ahead, and note how fast they go.

    :param next_items: how many the next message is to have; 0 if there is to be none
    """
    sent: deque[tuple[int, Future[None]]] = deque()
    first_s = 0.0
    done = done_items = 0
    while (count := next_items()) and (taken := shared.take(count)) is not None:
        begin, items = taken
        taker.items += items.size
        sent.append((items.size, link.send(items, metadata=begin)))
        if len(sent) < taker.most_sent:
            continue
        count, future = sent.popleft()
        future.wait()
        taker.items -= count
        # By rounds; the first is no measure, as much is set up before.
        done += 1
        if done > taker.devices:
            done_items += count
        if done == taker.devices:
            first_s = perf_counter()
        elif done % taker.devices == 0:
            taker.item_s = (perf_counter() - first_s) / done_items
    link.shutdown()
