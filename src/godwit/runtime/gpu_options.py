"""Options of GPU kernels (:class:`GpuOptions`), and checks of which of them an algorithm takes.

Each public function calls one of the checks before it starts a kernel, so that no option is ignored
silently. What GPUs send each other by ``communication``, and why: docs/supersteps.md, "What travels".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from godwit.dtypes import as_count, as_float, as_positive_number
from godwit.errors import InputError, shown
from godwit.runtime.protocol import Device

OF_WORKERS = ("transport", "hops", "volume")
"""Options that the asynchronous solver takes."""
OF_STEPS = ("transport",)
"""Options of the asynchronous solver that supersteps take, too (``transport="ring"`` excepted)."""
OF_FRONTIERS = ("frontier_items", "schedule")
"""Options that BFS in supersteps and step programs take."""
OF_SEARCHES = (*OF_FRONTIERS, "turn_down", "turn_back")
"""Options that BFS in supersteps takes."""

_WHOSE = {  # for messages: which algorithms take an option that not all of them take
    **dict.fromkeys(OF_SEARCHES, "BFS in supersteps"),
    **dict.fromkeys(OF_FRONTIERS, "BFS in supersteps and step programs"),
    **dict.fromkeys(OF_WORKERS, "the asynchronous solver"),
    **dict.fromkeys(
        OF_STEPS,
        "the asynchronous solver, BFS, PageRank, power iterations, betweenness and step programs",
    ),
}


def asked_for(gpu: GpuOptions, names: Iterable[str]) -> list[str]:
    """Return the names of those options that differ from their defaults."""
    if gpu is DEFAULT_GPU_OPTIONS:
        return []
    return [name for name in names if getattr(gpu, name) != getattr(DEFAULT_GPU_OPTIONS, name)]


def _rings_for_nothing(gpu: GpuOptions, names: Sequence[str]) -> bool:
    """Return True if a ring was asked for, and ``names`` are not the asynchronous solver's options."""
    return gpu.transport == "ring" and not set(OF_WORKERS) <= set(names)


def only_of_workers(gpu: GpuOptions) -> list[str]:
    """Return the options given that only the asynchronous solver takes."""
    rings = ["transport='ring'"] if gpu.transport == "ring" else []
    return rings + asked_for(gpu, [name for name in OF_WORKERS if name not in OF_STEPS])


def options_for(gpu: GpuOptions, names: Sequence[str]) -> GpuOptions:
    """Return options with the defaults in place of those that a part of an algorithm does not take.

    ``transport="ring"``, which supersteps do not take, becomes the default, too.

    :param names: the options that the part takes, of those that not all algorithms take
    """
    left_out = asked_for(gpu, [name for name in _WHOSE if name not in names])
    if _rings_for_nothing(gpu, names):
        left_out.append("transport")
    return replace(gpu, **{name: getattr(DEFAULT_GPU_OPTIONS, name) for name in left_out})


def check_options(
    devices: Sequence[Device], gpu: GpuOptions, what: str, names: Sequence[str] = ()
) -> None:
    """Raise InputError if an option was given that an algorithm does not take.

    :param what: name of the algorithm, for the message
    :param names: the options that it takes, of those that not all algorithms take
    """
    if devices[0].kind == "cpu" or gpu is DEFAULT_GPU_OPTIONS:
        return
    for name in asked_for(gpu, [known for known in _WHOSE if known not in names]):
        raise InputError(
            f"{name} of GpuOptions is for {_WHOSE[name]}, and means nothing to {what}: leave it out"
        )
    if _rings_for_nothing(gpu, names):
        raise InputError(
            f"transport='ring' is for the asynchronous solver: {what} takes 'direct' or 'host'"
        )


def check_asynchronous(devices: Sequence[Device], gpu: GpuOptions) -> None:
    """Raise InputError for options that the asynchronous solver does not take, such as broadcasts."""
    if gpu is DEFAULT_GPU_OPTIONS:
        return
    what = "vertex programs, SSSP, and BFS with execution='asynchronous'"
    check_options(devices, gpu, what, OF_WORKERS)
    refuse(
        devices, gpu, "broadcast",
        "of a vertex program, a message goes to the device that owns its vertex; leave communication out "
        "(BFS broadcasts with execution='bulk-synchronous')",
    )  # fmt: skip


def check_search(devices: Sequence[Device], gpu: GpuOptions) -> None:
    """Raise InputError if BFS in supersteps is to send selectively: a pulled level reads all marks."""
    refuse(
        devices, gpu, "selective",
        "BFS in supersteps sends all devices which vertices are visited, as the next level may be looked "
        "for from either end of an arc; leave communication out, or ask for execution='asynchronous'",
    )  # fmt: skip


def check_ranks(devices: Sequence[Device], gpu: GpuOptions, *, one_hop: bool) -> None:
    """Raise InputError if PageRank is to broadcast, and devices store only the ranks that they read.

    :param one_hop: the graph was placed with ``duplication="1-hop"``
    """
    if one_hop:
        refuse(
            devices, gpu, "broadcast",
            "the graph was placed with duplication='1-hop', so a GPU has room for the ranks that it reads "
            "only; leave communication out, or place the graph with duplication='all'",
        )  # fmt: skip


def check_components(devices: Sequence[Device], gpu: GpuOptions, names: Sequence[str] = ()) -> None:
    """Raise InputError if ``communication`` was given for components: ``merge`` decides what GPUs send.

    :param names: as of :func:`check_options`
    """
    if gpu is DEFAULT_GPU_OPTIONS:
        return
    check_options(devices, gpu, "connected components", names)
    for wrong in get_args(Communication):
        refuse(
            devices, gpu, wrong,
            "how GPUs come to one result of connected components is what merge='direct' or 'tree' says",
        )  # fmt: skip


def check_strong_components(devices: Sequence[Device], gpu: GpuOptions) -> None:
    """Raise InputError if ``communication`` was given for strong components, which one GPU finds alone."""
    for wrong in get_args(Communication):
        refuse(devices, gpu, wrong, "one GPU finds strongly connected components alone")


def refuse(devices: Sequence[Device], gpu: GpuOptions, wrong: Communication, reason: str) -> None:
    """Raise InputError, with a reason, if ``gpu.communication`` is ``wrong`` and devices are GPUs."""
    if devices[0].kind != "cpu" and gpu.communication == wrong:
        raise InputError(f"communication={wrong!r} is not possible here: {reason}")


LONGEST_SLICE_S = 10


Schedule = Literal["mixed", "thread", "warp", "block", "merge-path"]
"""Ways to distribute the arcs of a frontier over threads; each a file of runtime/cuda/include/schedule."""


Communication = Literal["selective", "broadcast"]
"""Which values a device sends to another one: those that it reads, or all."""


@dataclass(frozen=True)
class GpuOptions:
    """Options of kernels; the defaults suit nearly all graphs and machines.

    :param transport: how GPUs reach each other: ``"direct"`` (kernels store into the memory of peers; GPUs
        without peer access are reached through a common peer, else through pinned host memory),
        ``"host"`` (always through pinned host memory; in supersteps, the host copies after each one) or
        ``"ring"`` (each device sends to the next one only)
    :param slice_s: seconds after which a kernel ends and is launched again, so that Ctrl-C, time-outs and
        displays are served; 0: after every round
    :param communication: which devices get the new values of a device's vertices: ``"selective"``: those
        that read them, ``"broadcast"``: all; None: what suits the algorithm. Not every algorithm has both
        (docs/supersteps.md)
    :param schedule: how supersteps share out the arcs that they push along among threads: a row to a
        ``"thread"``, a ``"warp"`` or a ``"block"``, by ``"merge-path"``, or ``"mixed"``: by their lengths
        (docs/supersteps.md). Results are the same
    :param patience_s: seconds that a device waits for the others at a meeting before it ends the run
    :raises InputError: a value is out of range
    """

    transport: Literal["direct", "host", "ring"] = "direct"
    slice_s: float = 0.1
    communication: Communication | None = None
    schedule: Schedule = "mixed"
    patience_s: float = 30.0
    # The others are set by ExperimentOptions alone.
    hops: int | None = field(default=None, init=False, repr=False)
    threads: int | None = field(default=None, init=False, repr=False)
    blocks: int | None = field(default=None, init=False, repr=False)
    delay_ns: int = field(default=0, init=False, repr=False)
    latency_ns: int = field(default=0, init=False, repr=False)
    volume: int = field(default=1, init=False, repr=False)
    frontier_items: int | None = field(default=None, init=False, repr=False)
    turn_down: float = field(default=0.01, init=False, repr=False)
    turn_back: float = field(default=0.1, init=False, repr=False)

    def __post_init__(self) -> None:
        if not _is_one_of(self.transport, ("direct", "host", "ring")):
            raise InputError(
                f"transport must be 'direct', 'host' or 'ring', got {shown(self.transport)}"
            )
        if self.communication is not None and not _is_one_of(
            self.communication, get_args(Communication)
        ):
            raise InputError(
                f"communication must be 'selective', 'broadcast' or None, got {shown(self.communication)}"
            )
        if not _is_one_of(self.schedule, get_args(Schedule)):
            known = ", ".join(map(repr, get_args(Schedule)))
            raise InputError(f"schedule must be one of {known}, got {shown(self.schedule)}")
        if not 0 <= as_float(self.slice_s, "slice_s") <= LONGEST_SLICE_S:
            raise InputError(
                f"slice_s must be from 0 to {LONGEST_SLICE_S}, got {shown(self.slice_s)}: Ctrl-C and "
                "time-outs wait for its end"
            )
        as_positive_number(self.patience_s, "patience_s")


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(GpuOptions):
    """Options of kernels for tests and experiments: the defaults are right for everybody else.

    :param hops: arcs that a block of the worker may follow before all blocks synchronize; 0: none; None:
        what suits delta and weights
    :param threads: threads of a block, at least 64 in supersteps; None: what suits the graph
    :param blocks: largest number of blocks; None: as many as fit
    :param delay_ns: largest random delay of a block, in nanoseconds
    :param latency_ns: nanoseconds added to every meeting of several devices
    :param volume: number of times that every item is sent
    :param frontier_items: items that a frontier's queue of supersteps has room for at the start; the queue
        of a search grows, and step programs go on without. None: an estimate ("just enough": multi-GPU
        Gunrock, section VI-B)
    :param turn_down: a search in supersteps pulls once pushing would look at more than this multiple of the
        arcs that pulling would: 0: at once, infinity: never (``do_a`` of multi-GPU Gunrock, section VI-A)
    :param turn_back: and pushes again once pushing would look at less than this multiple (``do_b``)
    :raises InputError: a value is out of range
    """

    hops: int | None = None
    threads: int | None = None
    blocks: int | None = None
    delay_ns: int = 0
    latency_ns: int = 0
    volume: int = 1
    frontier_items: int | None = None
    turn_down: float = 0.01
    turn_back: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("turn_down", "turn_back"):
            if not as_float(getattr(self, name), name) >= 0:
                raise InputError(f"{name} must not be negative, got {shown(getattr(self, name))}")
        if self.hops is not None:
            as_count(self.hops, "hops", 0, 2**31)
        as_count(self.delay_ns, "delay_ns", 0, 10**10)
        as_count(self.latency_ns, "latency_ns", 0, 10**10)
        as_count(self.volume, "volume", 1, 1000)
        if self.frontier_items is not None:
            as_count(self.frontier_items, "frontier_items", 1, 2**32)
        if self.threads is not None and as_count(self.threads, "threads", 32, 1024) % 32:
            raise InputError(f"threads must be a multiple of 32, got {self.threads}")
        if self.blocks is not None:
            as_count(self.blocks, "blocks", 1, 2**16 - 1)


def _is_one_of(value: Any, known: tuple[str, ...]) -> bool:
    """Return True if the value is one of the texts (comparing an array would give an array)."""
    return isinstance(value, str) and value in known


DEFAULT_GPU_OPTIONS = GpuOptions()
"""The options of queries that are given none."""
