"""Options of GPUs that a step program cannot be run with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
from godwit.frontier.code import StepCode
from godwit.frontier.reads import reads_anywhere
from godwit.runtime.gpu_options import OF_FRONTIERS, OF_STEPS, GpuOptions, check_options, refuse
from godwit.runtime.protocol import Device


def check_steps(code: StepCode, devices: Sequence[Device], gpu: GpuOptions) -> None:
    """InputError if a step program that reads at any vertex is to be selective; or another option."""
    check_options(devices, gpu, "step programs", OF_FRONTIERS + OF_STEPS)
    step = reads_anywhere(code)
    if step is not None:
        refuse(
            devices, gpu, "selective",
            f"step program {code.name!r}, {step.label}, reads at vertices that a field names, which may be "
            "any device's; leave communication out",
        )  # fmt: skip
