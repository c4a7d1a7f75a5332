"""The command ``devices``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from godwit.cli.facts import Facts
from godwit.cli.options import ReportOptions, with_options
from godwit.cli.report import Report, integer, present
from godwit.config import readable_bytes

if TYPE_CHECKING:
    from godwit.runtime.cuda.devices import Topology
    from godwit.runtime.protocol import Device

EXAMPLES = """
godwit devices
godwit devices --json | jq .topology.routes
"""
_LINKS = {"same": "-", "nvlink": "NVLink", "pcie": "PCIe"}
_MAX_VIRTUAL_ROWS = 4
_KERNEL_MODULE = Path("/proc/driver/nvidia")
_DRIVER_LIBRARY = "libcuda.so.1"


@with_options
def devices(options: ReportOptions) -> None:
    """List the devices of this machine, as --devices takes them, and the links between GPUs."""
    from godwit.runtime.cuda import driver
    from godwit.runtime.cuda.devices import topology
    from godwit.runtime.registry import all_devices

    gpus = range(driver.device_count())
    links = topology(gpus) if gpus else None
    listed = all_devices()
    names = ("name", "kind", "threads", "memory_bytes", "description")
    facts: Facts = {
        "command": "devices",
        "devices": [{name: getattr(device, name) for name in names} for device in listed],
        "unlisted": _why_unlisted(listed),
        "topology": None if links is None else links.to_dict(),
    }

    def show(report: Report) -> None:
        _print_devices(report, facts["devices"])
        if facts["unlisted"] is not None:
            report.facts([("not listed", facts["unlisted"])])
        if links is not None and len(links) > 1:
            _print_topology(report, links)

    present(facts, options, show)


def _why_unlisted(listed: Sequence[Device]) -> str | None:
    """Return why GPUs are missing among the devices; None if there are no others, or no NVIDIA driver."""
    from godwit.runtime.cuda import driver, libraries
    from godwit.runtime.cuda.devices import OLDEST_ARCHITECTURE

    count = driver.device_count()
    if count == 0:
        return driver.why_not() if has_driver() else None
    names = {device.name for device in listed}
    missing = {
        index: driver.properties(index) for index in range(count) if f"cuda:{index}" not in names
    }
    if not missing:
        return None
    if not libraries.are_installed():
        gpus = "1 GPU" if count == 1 else f"{count} GPUs"
        return f"{gpus}, for which nothing that compiles is installed: {libraries.INSTALL}"
    old = [
        f"cuda:{index} ({gpu.name}, {_dotted(gpu.compute_capability)})"
        for index, gpu in missing.items()
        if int(gpu.compute_capability) < OLDEST_ARCHITECTURE
    ]
    if not old:
        return None
    oldest = _dotted(OLDEST_ARCHITECTURE)
    return f"{', '.join(old)}: kernels need compute capability {oldest} (Ampere) or later"


def has_driver() -> bool:
    """Return True if there is an NVIDIA driver; needs none of the optional packages."""
    if _KERNEL_MODULE.exists():
        return True
    try:
        ctypes.CDLL(_DRIVER_LIBRARY)
    except OSError:
        return False
    return True


def _dotted(capability: int | str) -> str:
    text = str(capability)
    return f"{text[:-1]}.{text[-1]}"


def _print_devices(report: Report, devices: list[Facts]) -> None:
    """Print a row for each device; one for all virtual devices if there are many, which are alike."""
    virtual = [device for device in devices if device["name"].startswith("cpu:")]
    if len(virtual) > _MAX_VIRTUAL_ROWS:
        names = f"{virtual[0]['name']} … {virtual[-1]['name']}"
        devices = [device for device in devices if device not in virtual]
        devices.append(virtual[0] | {"name": names})
    rows = [
        [
            device["name"],
            device["kind"],
            device["description"],
            integer(device["threads"]),
            readable_bytes(device["memory_bytes"]),
        ]
        for device in devices
    ]
    header = ["device", "kind", "what it is", "threads", "free memory"]
    report.table(header, rows, text_columns=3)


def _print_topology(report: Report, topology: Topology) -> None:
    """Print the PCI address of each GPU, and its route to the others."""
    gpus = range(len(topology))
    rows = [
        [gpu.device, gpu.pci_bus_id, *(_route(topology, i, j) for j in gpus)]
        for i, gpu in enumerate(topology.gpus)
    ]
    header = ["from \\ to", "PCI address", *(gpu.device for gpu in topology.gpus)]
    report.table(header, rows, title="How GPUs reach each other", text_columns=len(header))


def _route(topology: Topology, i: int, j: int) -> str:
    route = topology.route(i, j)
    if route.kind == "direct":
        link = topology.links[i][j]
        no_atomics = link != "same" and not topology.native_atomics[i][j]
        return _LINKS[link] + (", no atomics" if no_atomics else "")
    return "host" if route.via is None else f"via {topology.gpus[route.via].device}"
