"""Runs a step program on CPUs or on GPUs: the one place that imports both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from godwit.frontier.code import StepCode, StepCounts, StepState
from godwit.graph.csr import Graph
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import Device


def run_steps(
    code: StepCode,
    graph: Graph,
    devices: Sequence[Device],
    placement: Any,
    state: StepState,
    poll: Callable[[int], None] | None,
    gpu: GpuOptions,
) -> StepCounts:
    """Run a program to its end, on devices of one kind.

    :param placement: of :func:`godwit.supersteps.place.place_positions`, where the devices' memory is
        not the host's
    :param poll: called now and then with the number of vertices processed so far; may raise
    :raises StepError: an operator's value does not fit, or names no vertex
    """
    if devices[0].kind == "cpu":
        from godwit.frontier.cpu.run import run_steps_on_cores

        return run_steps_on_cores(code, graph, devices, state, poll)
    from godwit.frontier.cuda.run import run_steps_on_gpus

    return run_steps_on_gpus(code, placement, state, poll, gpu)
