"""What was measured on a machine's links, as values: no GPU is needed to hold, print or draw them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from godwit.runtime.cuda.topology import Topology

HOST = "host"
ALL = "all"

Unit = Literal["GB/s", "G/s", "us"]
What = Literal[
    "round_trip",  # of a flag
    "copy",  # by a copy engine
    "push",  # a kernel at the source writes
    "pull",  # a kernel at the destination reads
    "random_read",  # 4 bytes at a time
    "random_write",
    "random_minimum",  # an atomic that returns nothing
    "packets_copy",  # by a copy engine, packet by packet
    "packets_push",  # by kernels with a flag a packet
    "packets_staged_copy",  # through the host's memory, by copy engines
    "packets_staged_push",  # through the host's memory, by two kernels
    "broadcast_copies",  # one to all: a copy for each
    "broadcast_ring_copies",  # from each to the next, packet by packet, by copy engines
    "broadcast_ring_push",  # the same by kernels
    "shift_copy",  # everyone to the next at once, by copy engines
    "shift_push",  # the same by kernels
]

POINT_TO_POINT: tuple[What, ...] = (
    "packets_copy",
    "packets_push",
    "packets_staged_copy",
    "packets_staged_push",
)
BROADCASTS: tuple[What, ...] = ("broadcast_copies", "broadcast_ring_copies", "broadcast_ring_push")
SHIFTS: tuple[What, ...] = ("shift_copy", "shift_push")


@dataclass(frozen=True)
class Measurement:
    """One thing that was measured.

    :param what: see ``What``
    :param source: where data comes from; of random accesses, the GPU whose kernel makes them
    :param destination: where it goes; of random accesses, whose memory it is; ``"all"`` for all GPUs
    :param packet_bytes: size of the packets, or None where the message is not divided
    :param unit: 10^9 bytes a second, 10^9 accesses a second, or microseconds
    :param median: of the samples
    :param least: of the samples
    :param most: of the samples
    :param samples: how many there are
    """

    what: What
    source: str
    destination: str
    packet_bytes: int | None
    unit: Unit
    median: float
    least: float
    most: float
    samples: int


@dataclass(frozen=True)
class Measurements:
    """All that was measured on some GPUs.

    :param topology: the GPUs and what joins them
    :param results: in the order in which they were measured
    :param message_bytes: size of the message that rates in GB/s are of
    :param span_bytes: size of the memory over which random accesses were spread
    :param seconds: the whole took
    """

    topology: Topology
    results: tuple[Measurement, ...]
    message_bytes: int
    span_bytes: int
    seconds: float

    @property
    def same_gpu_twice(self) -> bool:
        """Whether pairs of GPUs are one GPU and itself, as there is no other."""
        return len({gpu.index for gpu in self.topology.gpus}) == 1

    def of(self, *whats: What) -> list[Measurement]:
        """The results for these, in the order in which they were measured."""
        return [one for one in self.results if one.what in whats]

    def matrix(self, what: What) -> dict[tuple[str, str], float]:
        """Medians by source and destination."""
        return {(one.source, one.destination): one.median for one in self.of(what)}

    def curves(self, whats: Iterable[What]) -> dict[tuple[str, str, What], dict[int, float]]:
        """Medians by packet size, for each source, destination and way; undivided messages apart."""
        found: dict[tuple[str, str, What], dict[int, float]] = {}
        for one in self.of(*whats):
            if one.packet_bytes is not None:
                curve = found.setdefault((one.source, one.destination, one.what), {})
                curve[one.packet_bytes] = one.median
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it; the topology apart."""
        return {
            "message_bytes": self.message_bytes,
            "span_bytes": self.span_bytes,
            "same_gpu_twice": self.same_gpu_twice,
            "seconds": self.seconds,
            "results": [asdict(one) for one in self.results],
        }
