"""Measurements of benchmarks/devices.py as values, tables and plots; works without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from godwit.cli.report import Report
from godwit.config import readable_bytes
from godwit.runtime.cuda.devices import Topology

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
    "shift_copy",  # all to the next at once, by copy engines
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
    """Median and range of one trial's samples.

    :param source: source of the data; of random accesses, the GPU whose kernel makes them
    :param destination: target of the data; of random accesses, the memory's GPU; ``"all"`` for all GPUs
    :param packet_bytes: size of the packets, or None for an undivided message
    :param unit: 10^9 bytes a second, 10^9 accesses a second, or microseconds
    :param samples: number of samples
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
    """Measurements on some GPUs.

    :param topology: the GPUs and their links
    :param results: in the order of measurement
    :param message_bytes: size of the messages of rates in GB/s
    :param span_bytes: size of the memory of random accesses
    :param seconds: duration of all measurements
    """

    topology: Topology
    results: tuple[Measurement, ...]
    message_bytes: int
    span_bytes: int
    seconds: float

    @property
    def same_gpu_twice(self) -> bool:
        """Return True if there is one GPU, so that pairs are this GPU and itself."""
        return len({gpu.index for gpu in self.topology.gpus}) == 1

    def of(self, *whats: What) -> list[Measurement]:
        """Return the results of some kinds, in the order of measurement."""
        return [one for one in self.results if one.what in whats]

    def matrix(self, what: What) -> dict[tuple[str, str], float]:
        """Return medians by source and destination."""
        return {(one.source, one.destination): one.median for one in self.of(what)}

    def curves(self, whats: Iterable[What]) -> dict[tuple[str, str, What], dict[int, float]]:
        """Return medians by packet size, for each source, destination and kind; no undivided messages."""
        found: dict[tuple[str, str, What], dict[int, float]] = {}
        for one in self.of(*whats):
            if one.packet_bytes is not None:
                curve = found.setdefault((one.source, one.destination, one.what), {})
                curve[one.packet_bytes] = one.median
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; without the topology."""
        return {
            "message_bytes": self.message_bytes,
            "span_bytes": self.span_bytes,
            "same_gpu_twice": self.same_gpu_twice,
            "seconds": self.seconds,
            "results": [asdict(one) for one in self.results],
        }


# Tables

NAMES: dict[What, str] = {
    "packets_copy": "copy engine",
    "packets_push": "kernel",
    "packets_staged_copy": "copy engines, staged",
    "packets_staged_push": "kernels, staged",
    "broadcast_copies": "copies from the first to each",
    "broadcast_ring_copies": "ring of copies",
    "broadcast_ring_push": "ring of kernels",
    "shift_copy": "copy engines",
    "shift_push": "kernels",
}


def print_measurements(found: Measurements) -> None:
    """Print all tables."""
    report = Report()
    if found.same_gpu_twice:
        report.facts([("note", "there is one GPU: pairs of GPUs are this one and itself")])
    message, span = readable_bytes(found.message_bytes), readable_bytes(found.span_bytes)
    matrices: list[tuple[What, str]] = [
        ("round_trip", "Round trip of a flag, µs"),
        ("copy", f"Copy engine, {message}, GB/s"),
        ("push", f"Kernel that pushes (writes there), {message}, GB/s"),
        ("pull", f"Kernel that pulls (reads there), {message}, GB/s"),
        ("random_read", f"Random reads of 4 bytes over {span}, 10⁹ a second"),
        ("random_write", f"Random writes of 4 bytes over {span}, 10⁹ a second"),
        ("random_minimum", f"Random atomic minimums of 4 bytes over {span}, 10⁹ a second"),
    ]
    for what, title in matrices:
        _print_matrix(report, title, found, what)
    for source, destination in dict.fromkeys(
        (one.source, one.destination) for one in found.of(*POINT_TO_POINT)
    ):
        _print_packets(report, found, source, destination)
    if found.of(*BROADCASTS):
        _print_broadcasts(report, found)
    rows = [[NAMES[one.what], rate(one.median)] for one in found.of(*SHIFTS)]
    if rows:
        report.table(["by", "GB/s"], rows, title="Each GPU to the next at once, all together")


def rate(value: float | None) -> str:
    """Return a number with three significant digits, or all before the point; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def _print_matrix(report: Report, title: str, found: Measurements, what: What) -> None:
    medians = found.matrix(what)
    if not medians:
        return
    gpus = list(dict.fromkeys(gpu.device for gpu in found.topology.gpus))
    rows_of, columns_of = (
        [*gpus, *([HOST] if any(pair[side] == HOST for pair in medians) else [])] for side in (0, 1)
    )
    random = what.startswith("random")
    rows = [[row, *(rate(medians.get((row, column))) for column in columns_of)] for row in rows_of]
    corner = "by \\ in memory of" if random else "from \\ to"
    report.table([corner, *columns_of], rows, title=title)


def _print_packets(report: Report, found: Measurements, source: str, destination: str) -> None:
    columns = {
        what: curve
        for (one, other, what), curve in found.curves(POINT_TO_POINT).items()
        if (one, other) == (source, destination)
    }
    print_curves(
        report,
        f"{readable_bytes(found.message_bytes)} in packets from {source} to {destination}, GB/s",
        [NAMES[what] for what in columns],
        list(columns.values()),
    )


def _print_broadcasts(report: Report, found: Measurements) -> None:
    columns = {what: curve for (_, _, what), curve in found.curves(BROADCASTS).items()}
    whole = [one for one in found.of(*BROADCASTS) if one.packet_bytes is None]
    for one in whole:
        columns.setdefault(one.what, {})[found.message_bytes] = one.median
    print_curves(
        report,
        f"{readable_bytes(found.message_bytes)} from {whole[0].source} to all others in packets, "
        "GB/s that each receives",
        [NAMES[what] for what in columns],
        list(columns.values()),
    )


def print_curves(
    report: Report, title: str, names: Sequence[str], curves: Sequence[Mapping[int, float]]
) -> None:
    """Print a row for each packet size, a column for each curve."""
    sizes = sorted(set().union(*curves))
    rows = [[readable_bytes(size), *(rate(curve.get(size)) for curve in curves)] for size in sizes]
    report.table(["packet", *names], rows, title=title, text_columns=0)


# Plot: rates by packet size, as in Groute's figure 2

ENDINGS = (".svg", ".png")


def plot(found: Measurements, target: str) -> None:
    """Draw the rates by packet size into a file; needs Matplotlib."""
    from matplotlib.figure import Figure

    panels = [("One GPU to another", POINT_TO_POINT)]
    if found.of(*BROADCASTS):
        panels.append(("One GPU to all others", BROADCASTS))
    figure = Figure(figsize=(6.4 * len(panels), 4.8), layout="constrained")
    for number, (title, whats) in enumerate(panels, 1):
        _draw(figure.add_subplot(1, len(panels), number), title, found, whats)
    figure.savefig(target, dpi=150)


def _draw(axes: Any, title: str, found: Measurements, whats: tuple[What, ...]) -> None:
    curves = found.curves(whats)
    for (source, destination, what), curve in curves.items():
        sizes = sorted(curve)
        label = f"{NAMES[what]}, {source} to {destination}"
        axes.plot(sizes, [curve[size] for size in sizes], marker="o", label=label)
    sizes = sorted({size for curve in curves.values() for size in curve})
    axes.set_xscale("log", base=2)
    axes.set_xticks(
        sizes, [readable_bytes(size).replace(".0 ", " ") for size in sizes], rotation=45
    )
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"packet size (message of {readable_bytes(found.message_bytes)})")
    axes.set_ylabel("GB/s")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
