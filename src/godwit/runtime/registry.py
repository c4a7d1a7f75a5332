"""The devices of this machine, and those that a user's ``devices=`` names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from godwit import config
from godwit.dtypes import as_count
from godwit.errors import DeviceError, InputError, shown
from godwit.runtime.protocol import Device, DeviceKind

DevicesArgument = int | str | Sequence[str] | None


@lru_cache(maxsize=1)
def device_kinds() -> dict[str, DeviceKind]:
    """Return the kinds of devices of this machine, by name, the fastest first."""
    from godwit.runtime.cpu.device import CpuKind
    from godwit.runtime.cuda.devices import CudaKind

    return {"cuda": CudaKind(), "cpu": CpuKind()}


def gpu_names() -> tuple[str, ...]:
    """Return the GPUs that are used by default; none where ``GODWIT_DEVICES`` is ``"cpu"``."""
    if config.preferred_devices() == "cpu":
        return ()
    return tuple(device.name for device in device_kinds()["cuda"].devices())


def all_devices() -> list[Device]:
    """Return all devices of this machine."""
    return [device for kind in device_kinds().values() for device in kind.devices()]


def device_kind_of(devices: Sequence[Device]) -> DeviceKind:
    """Return the kind of some devices; InputError if they are of several."""
    kinds = sorted({device.kind for device in devices})
    if len(kinds) > 1:
        raise InputError(f"devices of one run must be of one kind, got {' and '.join(kinds)}")
    return device_kinds()[kinds[0]]


def are_peers(devices: Sequence[Device], *, atomics: bool = False) -> bool:
    """Return True if devices are GPUs with access to each other's memory; a single GPU is.

    :param atomics: require native atomics on it, too
    """
    if len(devices) == 1:
        return devices[0].kind == "cuda"
    if {device.kind for device in devices} != {"cuda"}:
        return False
    from godwit.runtime.cuda.devices import reach_each_other

    return reach_each_other(devices, atomics=atomics)


def resolve_devices(devices: DevicesArgument, *, mixed: bool = False) -> tuple[Device, ...]:
    """Return the devices that an argument names.

    :param devices: None for the first GPU, or all cores where there is none; a number for that many
        GPUs, or, where there is none, virtual devices of the CPU (1 is all cores as one device); a
        name (``"cuda"``: all GPUs); or a sequence of names, in which a name may be repeated: the same
        GPU twice is two endpoints that share it
    :param mixed: allow ``"cpu"`` beside GPUs
    :raises InputError: not one of these, or no devices
    :raises DeviceError: a device is not there
    """
    if devices is None:
        return (_find((*gpu_names(), "cpu")[0]),)
    if isinstance(devices, str):
        if devices == "cuda":
            return tuple(device_kinds()["cuda"].devices()) or (_find("cuda"),)
        return (_find(devices),)
    if isinstance(devices, bool) or not isinstance(devices, Iterable):
        count = _device_count(devices)
        gpus = gpu_names()
        if gpus:
            if count > len(gpus):
                there = "there is 1 GPU" if len(gpus) == 1 else f"there are {len(gpus)} GPUs"
                raise DeviceError(
                    f"{there}, not {count}; name one several times for as many endpoints, or ask for "
                    f"'cpu:0' to 'cpu:{count - 1}'"
                )
            return tuple(_find(name) for name in gpus[:count])
        if count == 1:
            return (_find("cpu"),)
        return tuple(_find(f"cpu:{index}") for index in range(count))
    try:
        names = list(devices)
    except TypeError:  # an array without dimensions says that it can be iterated over
        raise InputError(f"devices must be a list of names, got {shown(devices)}") from None
    if not names:
        raise InputError("devices must name at least one device, got an empty list")
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"devices must be names such as 'cpu:0', got {shown(name)}")
    if len(names) > 1 and "cuda" in names:
        raise InputError("'cuda' is all GPUs; name those that you want: 'cuda:0', 'cuda:1'")
    if names == ["cuda"]:
        return resolve_devices("cuda")
    if names.count("cpu") and (
        len(names) > 1
        if not mixed
        else any(name.startswith("cpu:") for name in names) or names.count("cpu") > 1
    ):
        raise InputError(
            "'cpu' is all cores as one device and cannot be one of several; "
            "name virtual devices ('cpu:0', 'cpu:1', ...) instead"
        )
    named = tuple(_find(name) for name in names)
    if not mixed:
        device_kind_of(named)
    return named


def _device_count(devices: Any) -> int:
    if isinstance(devices, bool) or not hasattr(devices, "__index__"):
        raise InputError(
            f"devices must be a number, a name or a list of names, got {shown(devices)}"
        )
    return as_count(devices, "devices", 1)


def _find(name: str) -> Device:
    kind = name.partition(":")[0]
    device_kind = device_kinds().get(kind)
    if device_kind is None:
        there = ", ".join(device.name for device in all_devices())
        hint = "; GPUs are called cuda" if kind.lower() in ("gpu", "gpus") else ""
        raise DeviceError(f"there is no device {shown(name)}; there are {there}{hint}")
    return device_kind.find(name)
