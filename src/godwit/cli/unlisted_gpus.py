"""Why ``godwit devices`` does not list a GPU: something is missing, or the GPU is too old."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

from godwit.runtime.cuda import driver, libraries
from godwit.runtime.cuda.devices import OLDEST_ARCHITECTURE
from godwit.runtime.protocol import Device

_KERNEL_MODULE = Path("/proc/driver/nvidia")
_DRIVER_LIBRARY = "libcuda.so.1"


def why_unlisted(listed: Sequence[Device]) -> str | None:
    """For people; None where all GPUs are listed, and where there is nothing of NVIDIA.

    :param listed: all devices
    """
    count = driver.device_count()
    if count == 0:
        return driver.why_not() if has_driver() else None
    names = {device.name for device in listed}
    missing = [index for index in range(count) if f"cuda:{index}" not in names]
    if not missing:
        return None
    if not libraries.are_there():
        gpus = "1 GPU" if count == 1 else f"{count} GPUs"
        return f"{gpus}, for which nothing that compiles is installed: {libraries.INSTALL}"
    capability = {index: driver.properties(index).compute_capability for index in missing}
    old = [_described(index) for index in missing if int(capability[index]) < OLDEST_ARCHITECTURE]
    if not old:
        return None
    oldest = _dotted(OLDEST_ARCHITECTURE)
    return f"{', '.join(old)}: kernels need compute capability {oldest} (Ampere) or later"


def has_driver() -> bool:
    """Whether there is anything of an NVIDIA driver; no library of ours is needed to find out."""
    if _KERNEL_MODULE.exists():
        return True
    try:
        ctypes.CDLL(_DRIVER_LIBRARY)
    except OSError:
        return False
    return True


def _described(index: int) -> str:
    gpu = driver.properties(index)
    return f"cuda:{index} ({gpu.name}, {_dotted(gpu.compute_capability)})"


def _dotted(capability: int | str) -> str:
    text = str(capability)
    return f"{text[:-1]}.{text[-1]}"
