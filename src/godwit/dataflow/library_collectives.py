"""Collectives of a vendor's library (NCCL), beside those over links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from godwit.runtime.protocol import Device

Operator = Literal["add", "min", "max"]


def has_own(devices: Sequence[Device], array: Any) -> bool:
    """Whether there is one for these devices and such numbers: NCCL, for distinct GPUs."""
    names = [device.name for device in devices]
    if len(set(names)) < len(names) or any(device.kind != "cuda" for device in devices):
        return False
    from godwit.dataflow.cuda.nccl import is_there, takes

    return takes(array.dtype) and is_there()


def own_group(devices: Sequence[Device]) -> Any:
    """What runs them on these devices; see dataflow/cuda/nccl.py."""
    from godwit.dataflow.cuda.nccl import group

    return group(_indexes(devices))


OWN_SETUP_S = 0.84
"""What making NCCL's communicators took, of 2 H200s. Then it is the faster one for messages of any size: by
1.7 to 3.4 ms of 4 KiB, by 7 to 21 ms of 1 GiB."""

_spent_s: defaultdict[tuple[str, ...], float] = defaultdict(float)


def own_pays(devices: Sequence[Device]) -> bool:
    """Whether the own one is set up, or links have cost by now what that costs.

    Who calls once does not wait for it, and who calls often waits for twice the best, at most.
    """
    from godwit.dataflow.cuda.nccl import is_set_up

    names = tuple(device.name for device in devices)
    return _spent_s[names] >= OWN_SETUP_S or is_set_up(_indexes(devices))


def note_links(devices: Sequence[Device], seconds: float) -> None:
    """A collective went over links."""
    _spent_s[tuple(device.name for device in devices)] += seconds


def _indexes(devices: Sequence[Device]) -> tuple[int, ...]:
    return tuple(int(device.name.partition(":")[2]) for device in devices)
