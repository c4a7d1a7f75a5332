"""Ways of communication that a primitive cannot be run with, refused before anything is started.

What each takes, and why: docs/supersteps.md, "What travels". PageRank and betweenness take either way.
"""

from __future__ import annotations

from collections.abc import Sequence

from godwit.backends.base import Communication, Device, GpuOptions
from godwit.backends.step_code import StepCode
from godwit.backends.step_reads import reads_anywhere
from godwit.errors import InputError


def check_asynchronous(devices: Sequence[Device], gpu: GpuOptions) -> None:
    """InputError if what goes from worker to worker is to be broadcast."""
    _refuse(
        devices, gpu, "broadcast",
        "of a vertex program, a message goes to the device that owns its vertex; leave communication out "
        "(BFS broadcasts with execution='bulk-synchronous')",
    )  # fmt: skip


def check_search(devices: Sequence[Device], gpu: GpuOptions) -> None:
    """InputError if BFS in supersteps, which may look in either direction next, is to be selective."""
    _refuse(
        devices, gpu, "selective",
        "BFS in supersteps tells all devices which vertices are visited, as the next level may be looked "
        "for from either end of an arc; leave communication out, or ask for execution='asynchronous'",
    )  # fmt: skip


def check_steps(code: StepCode, devices: Sequence[Device], gpu: GpuOptions) -> None:
    """InputError if a step program that reads at any vertex is to be selective."""
    step = reads_anywhere(code)
    if step is not None:
        _refuse(
            devices, gpu, "selective",
            f"step program {code.name!r}, {step.label}, reads at vertices that a field names, which may be "
            "any device's; leave communication out",
        )  # fmt: skip


def _refuse(devices: Sequence[Device], gpu: GpuOptions, wrong: Communication, reason: str) -> None:
    if devices[0].kind != "cpu" and gpu.communication == wrong:
        raise InputError(f"communication={wrong!r} is not possible here: {reason}")
