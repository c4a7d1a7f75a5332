"""What of ``GpuOptions`` a primitive cannot be run with, refused before anything is started.

Ways of communication, and why: docs/supersteps.md, "What travels". PageRank and betweenness take either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import get_args

from godwit.errors import InputError
from godwit.frontier.code import StepCode
from godwit.frontier.reads import reads_anywhere
from godwit.runtime.protocol import USUAL, Communication, Device, GpuOptions

OF_WORKERS = ("transport", "hops", "volume")
"""Options of the asynchronous solver."""
OF_STEPS = ("transport",)
"""Of these, one of supersteps, too, but for ``"ring"``."""
OF_FRONTIERS = ("frontier_items", "schedule")
"""Of BFS in supersteps and step programs."""
OF_SEARCHES = (*OF_FRONTIERS, "turn_down", "turn_back")
"""Of BFS in supersteps."""

_WHOSE = {
    **dict.fromkeys(OF_SEARCHES, "BFS in supersteps"),
    **dict.fromkeys(OF_FRONTIERS, "BFS in supersteps and step programs"),
    **dict.fromkeys(OF_WORKERS, "the asynchronous solver"),
    **dict.fromkeys(
        OF_STEPS, "the asynchronous solver, BFS, PageRank, betweenness and step programs"
    ),
}


def asked_for(gpu: GpuOptions, names: Iterable[str]) -> list[str]:
    """Which of these options are not as usual."""
    return [name for name in names if getattr(gpu, name) != getattr(USUAL, name)]


def _rings_for_nothing(gpu: GpuOptions, names: Sequence[str]) -> bool:
    """Whether a ring was asked for, of what is not of workers."""
    return gpu.transport == "ring" and not set(OF_WORKERS) <= set(names)


def only_of_workers(gpu: GpuOptions) -> list[str]:
    """What was asked for that the asynchronous solver alone has."""
    rings = ["transport='ring'"] if gpu.transport == "ring" else []
    return rings + asked_for(gpu, [name for name in OF_WORKERS if name not in OF_STEPS])


def options_for(gpu: GpuOptions, names: Sequence[str]) -> GpuOptions:
    """The options for a part of a primitive that takes, of those that not all take, these only.

    Supersteps that are to send in a ring send as usual.
    """
    left_out = [name for name in _WHOSE if name not in names]
    if _rings_for_nothing(gpu, names):
        left_out.append("transport")
    return replace(gpu, **{name: getattr(USUAL, name) for name in left_out})


def check_options(
    devices: Sequence[Device], gpu: GpuOptions, what: str, names: Sequence[str] = ()
) -> None:
    """InputError if an option was given that a primitive has no use for.

    :param what: the primitive
    :param names: of the options that not all primitives take, those that it does
    """
    if devices[0].kind == "cpu":
        return
    for name in asked_for(gpu, [one for one in _WHOSE if one not in names]):
        raise InputError(
            f"{name} of GpuOptions is for {_WHOSE[name]}, and means nothing to {what}: leave it out"
        )
    if _rings_for_nothing(gpu, names):
        raise InputError(
            f"transport='ring' is for the asynchronous solver: {what} takes 'direct' or 'host'"
        )


def check_asynchronous(devices: Sequence[Device], gpu: GpuOptions) -> None:
    """InputError if what goes from worker to worker is to be broadcast, or an option is not for workers."""
    what = "vertex programs, SSSP, and BFS with execution='asynchronous'"
    check_options(devices, gpu, what, OF_WORKERS)
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
    """InputError if a step program that reads at any vertex is to be selective; or another option."""
    check_options(devices, gpu, "step programs", OF_FRONTIERS + OF_STEPS)
    step = reads_anywhere(code)
    if step is not None:
        _refuse(
            devices, gpu, "selective",
            f"step program {code.name!r}, {step.label}, reads at vertices that a field names, which may be "
            "any device's; leave communication out",
        )  # fmt: skip


def check_ranks(devices: Sequence[Device], gpu: GpuOptions, *, one_hop: bool) -> None:
    """InputError if PageRank is to broadcast to devices that have no room for what they do not read."""
    if one_hop:
        _refuse(
            devices, gpu, "broadcast",
            "the graph was placed with duplication='1-hop', so a GPU has room for the ranks that it reads "
            "only; leave communication out, or place the graph with duplication='all'",
        )  # fmt: skip


def check_components(devices: Sequence[Device], gpu: GpuOptions) -> None:
    """InputError if components, whose merge says who tells whom, are to communicate in any way."""
    check_options(devices, gpu, "connected components")
    for wrong in get_args(Communication):
        _refuse(
            devices, gpu, wrong,
            "how GPUs come to one result of connected components is what merge='direct' or 'tree' says",
        )  # fmt: skip


def _refuse(devices: Sequence[Device], gpu: GpuOptions, wrong: Communication, reason: str) -> None:
    if devices[0].kind != "cpu" and gpu.communication == wrong:
        raise InputError(f"communication={wrong!r} is not possible here: {reason}")
