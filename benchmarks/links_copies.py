"""Copies through links and routers against plain ones, for links.py: up, down, from GPU to GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import godwit as gw
from godwit.runtime.cuda import driver, memory
from godwit.runtime.cuda.transfer.copies import upload

KB, MB = 1 << 10, 1 << 20
PACKETS = (4 * KB, 16 * KB, 64 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB)
MOST_PACKETS = 2000
REPEATS = 5
Row = dict[str, Any]


def timed(run: Callable[[], float | None]) -> float:
    """Seconds, by the function's own clock if it has one."""
    found = []
    for _ in range(REPEATS + 1):
        begin = perf_counter()
        own = run()
        found.append(perf_counter() - begin if own is None else own)
    return median(found[1:])


def pinned(nbytes: int) -> Any:
    """Page-locked memory, kept as long as the process."""
    buffer = memory.PinnedBuffer(nbytes)
    _HELD.append(buffer)
    return buffer.array(np.uint8)


_HELD: list[Any] = []


def on_gpu(index: int, nbytes: int) -> Any:
    import cupy

    with cupy.cuda.Device(index):
        found = cupy.arange(nbytes // 4, dtype=cupy.uint32).view(cupy.uint8)
        cupy.cuda.get_current_stream().synchronize()
    return found


def address(array: Any) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)


class Plain:
    """Copies of packets in one stream, put there one by one."""

    def __init__(self, index: int, source: Any, target: Any, packet: int) -> None:
        self.stream = driver.Stream(index)
        self.pieces = [
            (address(target) + at, address(source) + at, min(packet, source.nbytes - at))
            for at in range(0, source.nbytes, packet)
        ]

    def start(self) -> None:
        """Put them there."""
        for to, origin, nbytes in self.pieces:
            driver.copy_async(to, origin, nbytes, self.stream)

    def run(self) -> None:
        """Put them there, and wait."""
        self.start()
        self.stream.synchronize()


class Flow:
    """An array over a link, or a router from one to one, received and given back at once.

    :param first: a part of it that is sent before, so that both workers and the buffers are there
    :ivar begin_s: when the array was sent
    :ivar end_s: when it had arrived
    """

    def __init__(
        self, kind: str, source: Any, target: Any, array: Any, packet: int, first: Any = None
    ) -> None:
        if kind == "link":
            self.sends = self.arrives = gw.Link(source, target, packet_bytes=packet)
        else:
            router = gw.Router([source], [target], packet_bytes=packet)
            self.sends, self.arrives = router.input(source), router.output(target)
        self.array, self.source, self.target = array, source, target
        self.first = first
        self.received = 0 if first is None else -first.nbytes
        self.begin_s = self.end_s = 0.0

    def send(self) -> None:
        """All of it, by the source's worker."""
        with self.sends:
            if self.first is not None:
                self.sends.send(self.first).wait()
            self.begin_s = perf_counter()
            self.sends.send(self.array)

    def receive(self) -> None:
        """By the target's worker."""
        for segment in self.arrives:
            self.received += segment.array.nbytes
            segment.release()
        self.target.space.record_event().wait()
        self.end_s = perf_counter()


def link_seconds(
    names: Sequence[str],
    ends: Sequence[tuple[str, str, Any]],
    packet: int,
    transport: Any = "direct",
    kind: str = "link",
    running: bool = False,
) -> float:
    """Time arrays over links or routers at once, in buffers that an earlier context has kept.

    :param running: from when workers that run already send them; else from when these are started
    """

    def run() -> float:
        with gw.Context(list(names), transport=transport) as context:
            by_name = {"host": context.host, **{str(one): one for one in context.endpoints}}
            flows = [
                Flow(
                    kind,
                    by_name[one],
                    by_name[other],
                    array,
                    packet,
                    array[:packet] if running else None,
                )
                for one, other, array in ends
            ]
            begin = perf_counter()
            with context.workers() as workers:
                # An endpoint whose workers have all ended takes nothing more: receivers first.
                for flow in flows:
                    workers.start(flow.target, flow.receive)
                for flow in flows:
                    workers.start(flow.source, flow.send)
            seconds = perf_counter() - begin
            assert [flow.received for flow in flows] == [array.nbytes for _, _, array in ends]
            if running:
                return max(one.end_s for one in flows) - min(one.begin_s for one in flows)
            return seconds

    return timed(run)


def link_and_router_seconds(
    names: Sequence[str], way: tuple[str, str, Any], packet: int
) -> list[float]:
    """Return times of one array over a link and a router, and of both with workers that run already."""
    return [
        link_seconds(names, [way], packet, kind=kind, running=running)
        for running in (False, True)
        for kind in ("link", "router")
    ]


def copies(names: Sequence[str], nbytes: int, packets: Sequence[int] = PACKETS) -> Iterator[Row]:
    gpus = [name for name in names if name.startswith("cuda")]
    if not gpus:
        return
    first = int(gpus[0][5:])
    here, there = pinned(nbytes), pinned(nbytes)
    ordinary = np.ones(nbytes, np.uint8)
    up, down = on_gpu(first, nbytes), on_gpu(first, nbytes)
    for packet in packets:
        size = min(nbytes, packet * max(MOST_PACKETS, nbytes // MB)) // packet * packet
        if size == 0:
            continue
        a, b, u, d = here[:size], there[:size], up[:size], down[:size]
        host_up = Plain(first, a, u, packet)
        host_down = Plain(first, d, b, packet)

        def both(one: Plain = host_up, other: Plain = host_down) -> None:
            one.start()
            other.start()
            one.stream.synchronize()
            other.stream.synchronize()

        name = gpus[0]
        for what, plain, way in (
            ("up", host_up, ("host", name, a)),
            ("down", host_down, (name, "host", d)),
        ):
            seconds = link_and_router_seconds([name], way, packet)
            yield row(what, packet, size, timed(plain.run), *seconds)
        ends = [("host", name, a), (name, "host", d)]
        yield row("both", packet, 2 * size, timed(both), link_seconds([name], ends, packet))
        if packet >= MB:
            seconds = link_seconds([name], [("host", name, ordinary[:size])], packet)
            upload = timed(partial(whole_upload, first, ordinary[:size]))
            yield row("up, ordinary memory", packet, size, upload, seconds)
        if len(gpus) > 1:
            second = int(gpus[1][5:])
            far = on_gpu(second, size)
            across = link_and_router_seconds(gpus[:2], (gpus[0], gpus[1], u), packet)
            staged = link_seconds(gpus[:2], [(gpus[0], gpus[1], u)], packet, "host")
            yield row("peer, by the host", packet, size, None, staged)
            driver.enable_peer_access([first, second])
            for what, index in (("peer, pushed", first), ("peer, pulled", second)):
                plain_s = timed(Plain(index, u, far, packet).run)
                yield row(what, packet, size, plain_s, *across)


def whole_upload(index: int, array: Any) -> float:
    """Ordinary memory as a graph's goes up, in one piece: by threads, until it is there."""
    with memory.Buffer(index, array.nbytes) as buffer:
        begin = perf_counter()
        upload(buffer, array)
        return perf_counter() - begin


def row(
    what: str,
    packet: int,
    nbytes: int,
    plain_s: float | None,
    link_s: float,
    router_s: float | None = None,
    link_running_s: float | None = None,
    router_running_s: float | None = None,
) -> Row:
    rates = {
        "plain": plain_s,
        "link": link_s,
        "router": router_s,
        "link_running": link_running_s,
        "router_running": router_running_s,
    }
    return {
        "section": "copies",
        "what": what,
        "packet_bytes": packet,
        **{
            f"{name}_gb_per_s": None if seconds is None else nbytes / seconds / 1e9
            for name, seconds in rates.items()
        },
        "us_a_packet": 1e6 * link_s / (nbytes / packet),
    }
