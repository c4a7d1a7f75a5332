"""Trials of benchmarks/devices.py: one for each kind of copy or access, pair of memories and packet size.

The patterns are those of Groute's figure 2: (a) direct access, coalesced and random; (b) messages in
packets; (c) direct and through the host; (d) one to all, by copies and by rings.

Ben-Nun, Sutton, Pai, Pingali: Groute: Asynchronous Multi-GPU Programming Model with Applications to
Large-scale Graph Processing, ACM TOPC 7(3), 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from devices_results import ALL, HOST, Unit, What
from devices_testbed import Station, Stop, Testbed
from godwit import config
from godwit.errors import DeviceError
from godwit.runtime.cuda.driver import Stream

PACKET_BYTES = tuple(1 << exponent for exponent in range(16, 25))  # 64 KiB … 16 MiB
BROADCAST_PACKET_BYTES = (1 << 20, 4 << 20, 16 << 20)

MOST_REPEATS = 32  # of what is submitted anew each time
MOST_REPEATS_INSIDE = 4096  # of what repeats inside a kernel
PING_ROUNDS = 100  # round trips of one repeat


@dataclass(frozen=True)
class Trial:
    """A measurement to be made.

    :param arrange: given a number of repeats, launches the waiting kernels and returns a function that
        launches the first step and makes the lead stream wait for everything
    :param amount: bytes, accesses or round trips of one repeat
    :param prepare: called once, before the first repeat
    :param check: called with 1 after the first; raises DeviceError if the outcome is wrong
    """

    what: What
    source: str
    destination: str
    lead: Stream
    arrange: Callable[[int], Callable[[], None]]
    amount: int
    unit: Unit = "GB/s"
    packet_bytes: int | None = None
    most_repeats: int = MOST_REPEATS
    prepare: Callable[[], None] | None = None
    check: Callable[[int], None] | None = None

    def __str__(self) -> str:
        size = self.packet_bytes
        packets = "" if size is None else f" in packets of {config.readable_bytes(size)}"
        return f"{self.what} from {self.source} to {self.destination}{packets}"


def all_trials(bed: Testbed) -> Iterator[Trial]:
    """Yield all trials of a testbed."""
    links = bed.topology
    pairs = [(one, other) for one in bed.stations for other in bed.stations]
    apart = [(one, other) for one, other in pairs if one is not other] or pairs
    for one, other in apart:
        yield _round_trip(bed, one, other)
    for one, other in pairs:
        yield _copy(bed, one, other)
    for station in bed.stations:
        yield from (_copy(bed, station, None), _copy(bed, None, station))
    for one, other in pairs:
        if links.access[one.position][other.position]:
            yield _push(bed, one, other)
        if links.access[other.position][one.position]:
            yield _pull(bed, one, other)
    for station in bed.stations:
        yield from (_push(bed, station, None), _pull(bed, None, station))
    for one, other in pairs:
        if links.access[one.position][other.position]:
            yield from (_random_read(bed, one, other), _random_write(bed, one, other))
        if links.native_atomics[one.position][other.position]:
            yield _random_minimum(bed, one, other)
    for station in bed.stations:
        yield from (_random_read(bed, station, None), _random_write(bed, station, None))
    for i, j in links.pairs_by_link().values():
        for packet_bytes in PACKET_BYTES:
            yield from _packets(bed, bed.stations[i], bed.stations[j], packet_bytes)
    if len(bed.stations) > 1:
        yield from _one_to_all(bed)
        yield from _shifts(bed)


def _name(station: Station | None) -> str:
    return HOST if station is None else f"cuda:{station.index}"


def _round_trip(bed: Testbed, one: Station, other: Station) -> Trial:
    return Trial(
        "round_trip", _name(one), _name(other), one.first,
        lambda repeats: bed.ping_pong(one, other, repeats * PING_ROUNDS),
        PING_ROUNDS, "us", most_repeats=MOST_REPEATS_INSIDE,
    )  # fmt: skip


# Whole messages. Where the host is an end, its staging buffer holds the GPU's message.


def _moved(
    bed: Testbed, what: What, source: Station | None, destination: Station | None,
    lead: Stream, move: Callable[[int, int], None],
) -> Trial:  # fmt: skip
    """Return the trial of a whole message, which ``move(to, origin)`` copies once."""
    owner = source or destination
    assert owner is not None
    landing = bed.staging if destination is None else destination.landing
    origin = bed.staging if source is None else source.data

    def prepare() -> None:
        landing.fill_bytes(0)
        if source is None:
            bed.copy(origin.pointer, None, owner.data.pointer, owner.index, bed.message_bytes, lead)
            lead.synchronize()

    def arrange(repeats: int) -> Callable[[], None]:
        def go() -> None:
            for _ in range(repeats):
                move(landing.pointer, origin.pointer)

        return go

    return Trial(
        what, _name(source), _name(destination), lead, arrange, bed.message_bytes,
        prepare=prepare, check=lambda _: bed.check_message(landing, owner),
    )  # fmt: skip


def _copy(bed: Testbed, source: Station | None, destination: Station | None) -> Trial:
    owner = source or destination
    assert owner is not None
    indexes = [None if one is None else one.index for one in (destination, source)]

    def move(to: int, origin: int) -> None:
        bed.copy(to, indexes[0], origin, indexes[1], bed.message_bytes, owner.first)

    return _moved(bed, "copy", source, destination, owner.first, move)


def _push(bed: Testbed, source: Station, destination: Station | None) -> Trial:
    def move(to: int, origin: int) -> None:
        bed.kernel_copy(source, source.first, to, origin, bed.message_bytes)

    return _moved(bed, "push", source, destination, source.first, move)


def _pull(bed: Testbed, source: Station | None, destination: Station) -> Trial:
    def move(to: int, origin: int) -> None:
        bed.kernel_copy(destination, destination.first, to, origin, bed.message_bytes)

    return _moved(bed, "pull", source, destination, destination.first, move)


# Random accesses by a GPU to the landing buffer of another, or to the host's staging buffer.


def _random(
    bed: Testbed, what: What, station: Station, home: Station | None, kernel: str,
    value: int, filled_with: int, check: Callable[[int], None] | None = None,
) -> Trial:  # fmt: skip
    table = bed.staging if home is None else home.landing

    def arrange(repeats: int) -> Callable[[], None]:
        return lambda: bed.random(station, kernel, table.pointer, repeats, value)

    def prepare() -> None:
        table.fill_bytes(filled_with)
        bed.take_sum(station)

    return Trial(
        what, _name(station), _name(home), station.first, arrange,
        bed.accesses(station, kernel), "G/s", most_repeats=MOST_REPEATS_INSIDE,
        prepare=prepare, check=check,
    )  # fmt: skip


def _random_read(bed: Testbed, station: Station, home: Station | None) -> Trial:
    def check(repeats: int) -> None:
        # Every word is 0x01010101, so the sum counts the reads.
        if bed.take_sum(station) != repeats * bed.accesses(station, "random_read") * 0x01010101:
            raise DeviceError(f"{_name(station)} reads something else than {_name(home)} holds")

    return _random(bed, "random_read", station, home, "random_read", 0, 1, check)


def _random_write(bed: Testbed, station: Station, home: Station | None) -> Trial:
    return _random(bed, "random_write", station, home, "random_write", 1, 0xFF)


def _random_minimum(bed: Testbed, station: Station, home: Station) -> Trial:
    own = station.index == home.index
    kernel = "random_minimum" if own else "random_minimum_system"
    return _random(bed, "random_minimum", station, home, kernel, 1, 0xFF)


# Messages in packets, and to many


def _clear(stations: Sequence[Station]) -> None:
    for station in stations:
        station.landing.fill_bytes(0)


def _check_all(bed: Testbed, deliveries: Sequence[tuple[Station, Station]]) -> None:
    for source, destination in deliveries:
        bed.check_message(destination.landing, source)


def _packets(bed: Testbed, one: Station, other: Station, packet_bytes: int) -> Iterator[Trial]:
    def trial(what: What, arrange: Callable[[int], Callable[[], None]]) -> Trial:
        return Trial(
            what, _name(one), _name(other), one.first, arrange, bed.message_bytes,
            packet_bytes=packet_bytes, prepare=lambda: _clear([other]),
            check=lambda _: _check_all(bed, [(one, other)]),
        )  # fmt: skip

    yield trial("packets_copy", _ring_of_copies(bed, [one, other], packet_bytes))
    if bed.topology.access[one.position][other.position]:
        direct = bed.stops_direct([one, other])
        yield trial("packets_push", _relayed(bed, direct, packet_bytes))
    yield trial("packets_staged_copy", _staged_copies(bed, one, other, packet_bytes))
    staged = bed.stops_staged(one, other)
    yield trial("packets_staged_push", _relayed(bed, staged, packet_bytes, staged=True))


def _relayed(
    bed: Testbed, stops: Sequence[Stop], packet_bytes: int, *, staged: bool = False
) -> Callable[[int], Callable[[], None]]:
    return lambda repeats: bed.relay(stops, packet_bytes, repeats, staged=staged)


def _staged_copies(
    bed: Testbed, one: Station, other: Station, packet_bytes: int
) -> Callable[[int], Callable[[], None]]:
    def arrange(repeats: int) -> Callable[[], None]:
        def go() -> None:
            staging, data, landing = bed.staging.pointer, one.data.pointer, other.landing.pointer
            for begin in list(range(0, bed.message_bytes, packet_bytes)) * repeats:
                middle = staging + begin
                bed.copy(middle, None, data + begin, one.index, packet_bytes, one.first)
                bed.follow(other.second, one.first)
                bed.copy(landing + begin, other.index, middle, None, packet_bytes, other.second)
            bed.join(one.first, [other.second])

        return go

    return arrange


def _ring_of_copies(
    bed: Testbed, path: Sequence[Station], packet_bytes: int
) -> Callable[[int], Callable[[], None]]:
    """Return copies from each GPU to the next, packet by packet."""
    hops = list(pairwise(path))
    streams = [path[0].first, *(station.second for station in path[1:-1])]

    def arrange(repeats: int) -> Callable[[], None]:
        def go() -> None:
            for begin in list(range(0, bed.message_bytes, packet_bytes)) * repeats:
                for hop, (here, there) in enumerate(hops):
                    origin = (here.landing if hop else here.data).pointer + begin
                    to = there.landing.pointer + begin
                    if hop:
                        bed.follow(streams[hop], streams[hop - 1])
                    bed.copy(to, there.index, origin, here.index, packet_bytes, streams[hop])
            bed.join(streams[0], streams[1:])

        return go

    return arrange


def _one_to_all(bed: Testbed) -> Iterator[Trial]:
    """Yield trials of the first GPU's message to all others: from the first to each, or along a chain."""
    first, *others = bed.stations
    reach = bed.topology.access
    linked = all(reach[i][i + 1] for i in range(len(others)))

    def trial(
        what: What, packet_bytes: int | None, arrange: Callable[[int], Callable[[], None]]
    ) -> Trial:
        return Trial(
            what, _name(first), ALL, first.first, arrange, bed.message_bytes,
            packet_bytes=packet_bytes,
            prepare=lambda: _clear(others),
            check=lambda _: _check_all(bed, [(first, station) for station in others]),
        )  # fmt: skip

    yield trial("broadcast_copies", None, _fan_of_copies(bed, bed.message_bytes))
    for packet_bytes in BROADCAST_PACKET_BYTES:
        yield trial("broadcast_copies", packet_bytes, _fan_of_copies(bed, packet_bytes))
        ring = _ring_of_copies(bed, bed.stations, packet_bytes)
        yield trial("broadcast_ring_copies", packet_bytes, ring)
        if linked:
            relayed = _relayed(bed, bed.stops_direct(bed.stations), packet_bytes)
            yield trial("broadcast_ring_push", packet_bytes, relayed)


def _fan_of_copies(bed: Testbed, packet_bytes: int) -> Callable[[int], Callable[[], None]]:
    first, *others = bed.stations

    def arrange(repeats: int) -> Callable[[], None]:
        def go() -> None:
            for begin in list(range(0, bed.message_bytes, packet_bytes)) * repeats:
                for station, stream in zip(others, bed.fan, strict=True):
                    bed.copy(
                        station.landing.pointer + begin, station.index,
                        first.data.pointer + begin, first.index, packet_bytes, stream,
                    )  # fmt: skip
            bed.join(first.first, bed.fan)

        return go

    return arrange


def _shifts(bed: Testbed) -> Iterator[Trial]:
    """Yield trials of all GPUs' messages to the next GPU at once; the rate is the sum."""
    stations = bed.stations
    nexts = [*stations[1:], stations[0]]
    streams = [stations[0].first, *(station.second for station in stations[1:])]
    moves = list(zip(stations, nexts, streams, strict=True))

    def shift(what: What, one: Callable[[Station, Station, Stream], None]) -> Trial:
        def arrange(repeats: int) -> Callable[[], None]:
            def go() -> None:
                for _ in range(repeats):
                    for move in moves:
                        one(*move)
                bed.join(streams[0], streams[1:])

            return go

        return Trial(
            what, ALL, ALL, streams[0], arrange, bed.message_bytes * len(stations),
            prepare=lambda: _clear(nexts),
            check=lambda _: _check_all(bed, [(here, there) for here, there, _ in moves]),
        )  # fmt: skip

    yield shift(
        "shift_copy",
        lambda here, there, stream: bed.copy(
            there.landing.pointer, there.index, here.data.pointer, here.index,
            bed.message_bytes, stream,
        ),
    )  # fmt: skip
    reach = bed.topology.access
    if all(reach[here.position][there.position] for here, there, _ in moves):
        yield shift(
            "shift_push",
            lambda here, there, stream: bed.kernel_copy(
                here, stream, there.landing.pointer, here.data.pointer, bed.message_bytes
            ),
        )
