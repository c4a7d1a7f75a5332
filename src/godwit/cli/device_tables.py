"""The tables of ``godwit devices``: how GPUs are joined, and what their links do when measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from godwit.config import readable_bytes
from godwit.runtime.cuda.measurements import (
    BROADCASTS,
    HOST,
    POINT_TO_POINT,
    SHIFTS,
    Measurements,
    What,
)

if TYPE_CHECKING:
    from godwit.cli.report import Report
    from godwit.runtime.cuda.topology import Topology

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
_LINKS = {"same": "-", "nvlink": "NVLink", "pcie": "PCIe"}


def print_topology(report: Report, topology: Topology) -> None:
    """Where each GPU is plugged in, and how it reaches the others."""
    rows = [
        [gpu.device, gpu.pci_bus_id, *(_reach(topology, i, j) for j in range(len(topology)))]
        for i, gpu in enumerate(topology.gpus)
    ]
    header = ["from \\ to", "PCI address", *(gpu.device for gpu in topology.gpus)]
    report.table(header, rows, title="How GPUs reach each other", text_columns=len(header))


def _reach(topology: Topology, i: int, j: int) -> str:
    route = topology.route(i, j)
    if route.kind == "direct":
        link = topology.links[i][j]
        lacking = link != "same" and not topology.native_atomics[i][j]
        return _LINKS[link] + (", no atomics" if lacking else "")
    return "host" if route.via is None else f"via {topology.gpus[route.via].device}"


def print_measurements(report: Report, found: Measurements) -> None:
    """All matrices and microbenchmarks."""
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
    """Three digits that count, or all before the point; nothing where nothing was measured."""
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
    """A row for each packet size, a column for each way."""
    sizes = sorted(set().union(*curves))
    rows = [[readable_bytes(size), *(rate(curve.get(size)) for curve in curves)] for size in sizes]
    report.table(["packet", *names], rows, title=title, text_columns=0)
