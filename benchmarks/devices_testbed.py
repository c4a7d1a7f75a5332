"""Memory, streams, kernels and copies of benchmarks/devices.py.

Each GPU has a message (a pattern that depends on the GPU), a landing buffer of the same size and flags; the
host has a staging buffer and flags. A copy begins in the first stream of its source, goes on in the second
stream of its receivers, and ends when the first stream has waited for all of them. Flags only grow
(:meth:`Testbed.epochs`), so they are never reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from godwit.dtypes import Array
from godwit.errors import DeviceError
from godwit.runtime.cuda import driver
from godwit.runtime.cuda.compile import load
from godwit.runtime.cuda.devices import Topology
from godwit.runtime.cuda.driver import Kernel, Stream, TimedEvent
from godwit.runtime.cuda.libraries import bindings
from godwit.runtime.cuda.memory import Buffer, PinnedBuffer

MESSAGE_BYTES = 128 << 20
SPAN_BYTES = 64 << 20
TIMEOUT_S = 5.0

_SOURCE = (Path(__file__).parent / "devices.cu").read_text()
_KERNELS = (
    "fill_pattern", "copy_coalesced", "random_read", "random_write", "random_minimum",
    "random_minimum_system", "ping_pong", "relay",
)  # fmt: skip
_VECTOR_BYTES = 16
_RANDOM_THREADS = 256
_RANDOM_UNROLLED = 8  # UNROLLED of devices.cu
_COPY_THREADS = 512
# Both kernels of a pair must be resident at once, on one GPU too: a small block on each multiprocessor.
_RELAY_THREADS = 256
_SHARE_BYTES = 16 << 10  # of a packet that one block takes, at least
_TEAM_BLOCKS = 64
_HOST_TEAM_BLOCKS = 8  # each block polls all flags of a packet, over the bus

# Offsets in the control memory of a GPU and of the host.
_FAILED = 0
_SUM = 8
_PING = (256, 512)
_FLAGS = 1024
_CONTROL_BYTES = _FLAGS + 4 * (MESSAGE_BYTES // _SHARE_BYTES)

_SAMPLED_WORDS = 16


@dataclass
class Station:
    """One GPU of a testbed.

    :param position: in the topology
    :param index: as CUDA counts
    """

    position: int
    index: int
    first: Stream
    second: Stream
    event: TimedEvent
    data: Buffer
    landing: Buffer
    control: Buffer
    kernels: dict[str, Kernel]
    multiprocessors: int

    def full_grid(self, kernel: str, threads: int) -> int:
        """Blocks of a kernel that fit at once."""
        return self.multiprocessors * max(1, self.kernels[kernel].occupancy(threads))


@dataclass(frozen=True)
class Stop:
    """A station of a relayed message: what it does with each packet.

    :param to: pointer to copy to, or 0 where the message ends
    :param origin: pointer to copy from
    :param arrived: pointer to flags to wait for, or 0 where the message begins
    :param announced: pointer to flags to set, or 0 where nobody waits
    """

    station: Station
    stream: Stream
    to: int
    origin: int
    arrived: int
    announced: int


class Testbed:
    """GPUs of a topology with buffers and kernels; a context manager, which frees them."""

    __test__ = False  # not a class of tests

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.message_bytes = MESSAGE_BYTES
        self.span_bytes = SPAN_BYTES
        self._epoch = 1
        self._seed = 0
        with ExitStack() as stack:
            driver.enable_peer_access(gpu.index for gpu in topology.gpus)
            self.staging = stack.enter_context(PinnedBuffer(MESSAGE_BYTES))
            self.host_control = stack.enter_context(PinnedBuffer(_CONTROL_BYTES))
            self.host_control.fill_bytes(0)
            self.stations = [
                self._station(stack, position, gpu.index)
                for position, gpu in enumerate(topology.gpus)
            ]
            self.fan = [self._stream(stack, self.stations[0].index) for _ in self.stations[1:]]
            self._stack = stack.pop_all()

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def _station(self, stack: ExitStack, position: int, index: int) -> Station:
        properties = driver.properties(index)
        module = load(index, _SOURCE)
        station = Station(
            position,
            index,
            self._stream(stack, index),
            self._stream(stack, index),
            TimedEvent(index),
            stack.enter_context(Buffer(index, MESSAGE_BYTES)),
            stack.enter_context(Buffer(index, MESSAGE_BYTES)),
            stack.enter_context(Buffer(index, _CONTROL_BYTES)),
            {name: module.kernel(name) for name in _KERNELS},
            properties.multiprocessors,
        )
        station.control.fill_bytes(0)
        words = MESSAGE_BYTES // 4
        arguments = [station.data.pointer, words, self.pattern_seed(station)]
        self._launch(station, station.first, "fill_pattern", arguments, _COPY_THREADS)
        for stream in (station.first, station.second):
            # Zero rounds: a first launch, which may block, must not happen while another kernel waits.
            self._launch(station, stream, "ping_pong", [0] * 7, 1, blocks=1)
            idle = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]  # teams of one block
            blocks = station.multiprocessors
            self._launch(station, stream, "relay", idle, _RELAY_THREADS, blocks)
            stream.synchronize()
        return station

    @staticmethod
    def _stream(stack: ExitStack, index: int) -> Stream:
        stream = Stream(index)
        stack.callback(stream.close)
        return stream

    # Copies

    def copy(
        self, to: int, to_index: int | None, origin: int, origin_index: int | None,
        nbytes: int, stream: Stream,
    ) -> None:  # fmt: skip
        """One copy by a copy engine; index None is the host."""
        if to_index is None or origin_index is None or to_index == origin_index:
            driver.copy_async(to, origin, nbytes, stream)
        else:
            driver.copy_peer_async(to, to_index, origin, origin_index, nbytes, stream)

    def kernel_copy(
        self, station: Station, stream: Stream, to: int, origin: int, nbytes: int
    ) -> None:
        """One copy by a kernel of the whole GPU."""
        arguments = [to, origin, nbytes // _VECTOR_BYTES]
        self._launch(station, stream, "copy_coalesced", arguments, _COPY_THREADS)

    # Random access

    def accesses(self, station: Station, kernel: str) -> int:
        """Accesses that :meth:`random` makes for each repeat."""
        return station.full_grid(kernel, _RANDOM_THREADS) * _RANDOM_THREADS * _RANDOM_UNROLLED

    def random(
        self, station: Station, kernel: str, table: int, repeats: int, value: int = 0
    ) -> None:
        """Accesses at random places of the first ``span_bytes`` of a table; others each time.

        :param value: what is written, or the other operand of the minimum; of reads, meaningless
        """
        self._seed += 0x9E3779B9
        last = station.control.pointer + _SUM if kernel == "random_read" else value
        arguments = [table, self.span_bytes // 4, repeats, self._seed & 0xFFFFFFFF, last]
        self._launch(station, station.first, kernel, arguments, _RANDOM_THREADS)

    def take_sum(self, station: Station) -> int:
        """Return and reset the sum of all words that random reads have read."""
        found = station.control.download(np.uint64, 1, _SUM)
        station.control.upload(np.zeros(1, np.uint64), _SUM)
        return int(found[0])

    # Kernels that wait for each other

    def epochs(self, rounds: int) -> int:
        """Reserve epochs above those of all flags; return the first."""
        first = self._epoch
        self._epoch += rounds
        return first

    def ping_pong(self, one: Station, other: Station, rounds: int) -> Callable[[], None]:
        """Start the kernel that answers; returns what starts the one that leads, in its first stream.

        Each polls a flag in its own GPU's memory, which the other sets there; without peer access, both
        flags are in the host's memory.
        """
        peers = self.topology.access[one.position][other.position]
        homes = (one.control.pointer, other.control.pointer) if peers else (self._host_flags(),) * 2
        flags = [home + offset for home, offset in zip(homes, _PING, strict=True)]
        epoch = self.epochs(rounds)

        def start(station: Station, stream: Stream, leads: int) -> None:
            ours, theirs = flags if leads else flags[::-1]
            arguments = [
                ours, theirs, leads, rounds, epoch, _timeout_ns(), station.control.pointer,
            ]  # fmt: skip
            self._launch(station, stream, "ping_pong", arguments, 1, blocks=1)

        start(other, other.second, 0)

        def lead() -> None:
            start(one, one.first, 1)
            self.join(one.first, [other.second])

        return lead

    def stops_direct(self, path: Sequence[Station]) -> list[Stop]:
        """A message that goes from the first station to the second's landing place, from there to the
        third's, and so on to the last."""
        stops = []
        for place, station in enumerate(path):
            begins, ends = place == 0, place == len(path) - 1
            stops.append(
                Stop(
                    station,
                    station.first if begins else station.second,
                    0 if ends else path[place + 1].landing.pointer,
                    station.data.pointer if begins else station.landing.pointer,
                    0 if begins else station.control.pointer + _FLAGS,
                    0 if ends else path[place + 1].control.pointer + _FLAGS,
                )
            )
        return stops

    def stops_staged(self, one: Station, other: Station) -> list[Stop]:
        """A message that one pushes to the host's memory, and the other pulls from there."""
        staging, flags = self.staging.pointer, self._host_flags() + _FLAGS
        return [
            Stop(one, one.first, staging, one.data.pointer, 0, flags),
            Stop(other, other.second, other.landing.pointer, staging, flags, 0),
        ]

    def relay(
        self, stops: Sequence[Stop], packet_bytes: int, rounds: int, *, staged: bool = False
    ) -> Callable[[], None]:
        """Start all but the first stop; returns what starts that, too, in its first stream."""
        epoch = self.epochs(rounds)
        blocks = min(stop.station.multiprocessors for stop in stops)
        largest = min(
            _HOST_TEAM_BLOCKS if staged else _TEAM_BLOCKS, blocks, packet_bytes // _SHARE_BYTES
        )
        members = 1 << (largest.bit_length() - 1)  # a power of two divides every packet
        packets = self.message_bytes // packet_bytes

        def start(stop: Stop) -> None:
            arguments = [
                stop.to, stop.origin, stop.arrived, stop.announced, packets,
                packet_bytes // _VECTOR_BYTES, members, rounds, epoch, _timeout_ns(),
                stop.station.control.pointer + _FAILED,
            ]  # fmt: skip
            self._launch(stop.station, stop.stream, "relay", arguments, _RELAY_THREADS, blocks)

        for stop in reversed(stops[1:]):
            start(stop)

        def send() -> None:
            start(stops[0])
            self.join(stops[0].stream, [stop.stream for stop in stops[1:]])

        return send

    # Order and outcome

    def follow(self, stream: Stream, other: Stream) -> None:
        """Make a stream wait for the work that another holds now."""
        event = self._event_of(other.index)
        event.record(other)
        driver.use(stream.index)
        _, runtime = bindings()
        outcome = runtime.cudaStreamWaitEvent(stream.handle, event._event, 0)
        driver.checked(outcome, "letting a stream wait")

    def join(self, stream: Stream, others: Iterable[Stream]) -> None:
        """Make a stream wait for the work that others hold now."""
        for other in others:
            self.follow(stream, other)

    def synchronize(self) -> None:
        """Wait for fills and uploads, which are in the null stream."""
        for station in self.stations:
            station.control.download(np.uint32, 1)

    def check_answers(self) -> None:
        """Raise DeviceError if a kernel has reached its time limit; reset that."""
        late = []
        for station in self.stations:
            if station.control.download(np.uint32, 1, _FAILED)[0]:
                station.control.upload(np.zeros(1, np.uint32), _FAILED)
                late.append(f"cuda:{station.index}")
        if late:
            raise DeviceError(
                f"{' and '.join(late)} waited {TIMEOUT_S:g} s for another GPU in vain; "
                "something else may occupy it (nvidia-smi shows what runs there)"
            )

    def pattern_seed(self, station: Station) -> int:
        """Return the seed of a GPU's message."""
        return (station.position + 1) * 0x01000193

    def check_message(self, memory: Buffer | PinnedBuffer, source: Station) -> None:
        """Raise DeviceError if sampled words of a buffer are not those of a GPU's message."""
        words = self.message_bytes // 4
        places = np.linspace(0, words - 1, _SAMPLED_WORDS).astype(np.int64)
        if isinstance(memory, PinnedBuffer):
            found = memory.array(np.uint32)[places]
        else:
            found = np.array([memory.download(np.uint32, 1, 4 * int(i))[0] for i in places])
        if not np.array_equal(found, pattern(places, self.pattern_seed(source))):
            raise DeviceError(
                f"a message from cuda:{source.index} did not arrive as it was sent; peer access of "
                "this machine is broken (an IOMMU, or access control of PCIe, may redirect it)"
            )

    def _host_flags(self) -> int:
        return self.host_control.pointer

    def _event_of(self, index: int) -> TimedEvent:
        return next(one.event for one in self.stations if one.index == index)

    def _launch(
        self, station: Station, stream: Stream, kernel: str, arguments: list[int],
        threads: int, blocks: int | None = None,
    ) -> None:  # fmt: skip
        driver.launch(
            station.kernels[kernel],
            stream,
            blocks=station.full_grid(kernel, threads) if blocks is None else blocks,
            threads=threads,
            arguments=arguments,
        )


def pattern(places: Array, seed: int) -> Array:
    """What ``fill_pattern`` of devices.cu writes at these indexes of words."""
    mixed = (places.astype(np.uint64) * np.uint64(2654435761)).astype(np.uint32)
    return mixed ^ np.uint32(seed)


def _timeout_ns() -> int:
    return int(TIMEOUT_S * 1e9)
