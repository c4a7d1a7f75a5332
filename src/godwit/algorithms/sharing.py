"""An array dealt out by the host: to all devices by one router, or to GPUs and CPUs by one each.

A packet that suits a GPU keeps a CPU busy for so long that all which GPUs find meanwhile waits for its
place, and at the end everybody waits for it; pieces that suit a CPU cost the host more time a byte than a
GPU can be kept busy with. So where there are both, each kind has a router and a feeder, which takes as much
as suits its kind from the front of what is left, whenever one of its devices will soon be free. The CPUs'
feeder stops where GPUs would be done with all that is left before a CPU is done with its next piece
(:func:`is_worth_taking`).
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
_MOST_CPU_THREADS = 8
"""Beside GPUs: to wake each, the host's own threads stand still for a moment."""


@dataclass(frozen=True)
class Spread:
    """From the host to some of the endpoints.

    :param packet_items: of a packet
    :param dtype: in which items are sent
    :param threads: that a CPU among them may use, at most
    :param ready: packets on their way to a GPU
    """

    router: Router
    endpoints: tuple[Endpoint, ...]
    packet_items: int
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
        found.append(Spread(router, endpoints, items, dtype, threads, ready))
    return found


def send_from_host(workers: Workers, array: Array, spreads: list[Spread]) -> None:
    """Start the host's workers: one that sends all, or one for each kind of devices."""
    first, last = spreads[0], spreads[-1]
    host, dtype = first.router.context.host, first.dtype
    link = first.router.input(host)
    if first is last:
        workers.start(host, _distribute, array, dtype, link, first.packet_items)
        return
    shared = SharedArray(array, dtype)
    most_sent = 1 + first.ready * len(first.endpoints)
    workers.start(host, feed_gpus, shared, link, first.packet_items, most_sent)
    pieces = last.router.input(host), last.packet_items, len(last.endpoints)
    workers.start(host, feed_cpus, shared, *pieces)


def is_plain(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an array can be sent as it lies."""
    return array.flags.c_contiguous and array.flags.aligned and bool(array.dtype == dtype)


def _distribute(array: Array, dtype: np.dtype[Any], link: Link, packet_items: int) -> None:
    """Send the array, whole if it can be read as it lies; the metadata are where the message begins."""
    if is_plain(array, dtype):
        link.send(array, metadata=0)
        return
    sent: deque[Future[None]] = deque()
    for begin in range(0, array.size, packet_items):
        piece = np.array(array[begin : begin + packet_items], dtype)
        sent.append(link.send(piece, metadata=begin))
        if len(sent) > READY_PACKETS * len(link.context.endpoints):
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


def is_worth_taking(left_items: int, gpu_item_s: float | None, piece_s: float | None) -> bool:
    """Whether a CPU that is free is to take another piece.

    As long as either time is not known it is: a piece is small.

    :param left_items: of the array
    :param gpu_item_s: seconds that all GPUs together take for one
    :param piece_s: seconds that a CPU takes for a piece
    """
    if gpu_item_s is None or piece_s is None:
        return left_items > 0
    return left_items * gpu_item_s > piece_s


def feed_gpus(shared: SharedArray, link: Link, packet_items: int, most_sent: int) -> None:
    """Send packets, so many ahead, and note how fast they go."""
    sent: deque[tuple[int, Future[None]]] = deque()
    first_s: float | None = None
    done_items = 0
    while (taken := shared.take(packet_items)) is not None:
        begin, items = taken
        sent.append((items.size, link.send(items, metadata=begin)))
        if len(sent) < most_sent:
            continue
        count, future = sent.popleft()
        future.wait()
        if first_s is None:
            first_s = perf_counter()  # what was set up before is no measure
            continue
        done_items += count
        shared.gpu_item_s = (perf_counter() - first_s) / done_items
    link.shutdown()


def feed_cpus(shared: SharedArray, link: Link, piece_items: int, cpus: int) -> None:
    """Send a piece to each CPU, and the next when the first of them is done, while it is worth it."""
    sent: deque[tuple[float, Future[None]]] = deque()
    piece_s: float | None = None
    while True:
        if len(sent) == cpus:
            begin_s, future = sent.popleft()
            future.wait()
            piece_s = perf_counter() - begin_s
        if not is_worth_taking(shared.left_items, shared.gpu_item_s, piece_s):
            break
        taken = shared.take(piece_items)
        if taken is None:
            break
        begin, items = taken
        sent.append((perf_counter(), link.send(items, metadata=begin)))
    link.shutdown()
