"""Options of queries: of the asynchronous engine, of kernels, and where results are left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from godwit.arrays import ResultLocation
from godwit.dataflow.item_router import DEFAULT_RING_ITEMS, as_ring_items
from godwit.dtypes import as_bucket_width, as_count, as_positive_number, check_callable
from godwit.errors import InputError, shown
from godwit.graph.rows import require_memory
from godwit.progress import ProgressArgument
from godwit.runtime.gpu_options import DEFAULT_GPU_OPTIONS, GpuOptions
from godwit.runtime.polling import HandOver

Execution = Literal["auto", "asynchronous", "bulk-synchronous"]
EXECUTIONS: tuple[Execution, ...] = ("auto", "asynchronous", "bulk-synchronous")

SUPERSTEP_HOPS = 1
"""Arcs that a GPU's block follows in one superstep, before all blocks synchronize."""


# Upper bounds are far above useful values, and keep sizes in bytes within 64 bits.
MAXIMAL_WINDOW = 2**62
MAXIMAL_CAPACITY_ITEMS = 2**40
_ITEM_BYTES = 16


def as_window(value: Any) -> int:
    """Return the number of buckets that a device may run ahead; InputError if out of range."""
    return as_count(value, "window", 0, MAXIMAL_WINDOW)


def as_capacity_items(value: Any) -> int:
    """Return the capacity of a worklist; InputError if out of range.

    :raises GraphTooLargeError: it does not fit in memory
    """
    items = as_count(value, "capacity_items", 1, MAXIMAL_CAPACITY_ITEMS)
    require_memory(_ITEM_BYTES * items, f"a worklist of {items} items")
    return items


def require_worklist_memory(endpoints: int, ring_items: int, capacity_items: int) -> None:
    """Check that worklists, and mailboxes if they are larger than the default, fit in memory.

    :raises GraphTooLargeError: one of them does not fit
    """
    if ring_items > DEFAULT_RING_ITEMS:
        needed = _ITEM_BYTES * ring_items * endpoints**2
        require_memory(needed, f"mailboxes of {ring_items} items between {endpoints} devices")
    needed = _ITEM_BYTES * capacity_items * endpoints
    require_memory(needed, f"a worklist of {capacity_items} items on each of {endpoints} devices")


@dataclass(frozen=True)
class WorkerOptions:
    """Options of the asynchronous engine; the defaults suit nearly all graphs.

    :param delta: width of a priority bucket in units of priority (of distance in shortest paths:
        delta-stepping's delta); None: chosen from weights and degrees, and by GPUs also while they run
    :param window: number of buckets that a device may run ahead of the lowest bucket of all devices
    :param ring_items: slots of the mailbox between two devices; None: the engine's default
    :param capacity_items: items that each device's worklist has room for at the start (it grows); None: the
        number of the device's vertices
    :raises InputError: a value is out of range
    """

    delta: float | None = None
    window: int = 1
    ring_items: int | None = None
    capacity_items: int | None = None

    def __post_init__(self) -> None:
        checks: dict[str, Callable[[Any], Any]] = {
            "delta": as_bucket_width,
            "window": as_window,
            "ring_items": as_ring_items,
            "capacity_items": as_capacity_items,
        }
        for name, check in checks.items():
            value = getattr(self, name)
            if value is not None or name == "window":
                object.__setattr__(self, name, check(value))


DEFAULT_WORKER_OPTIONS = WorkerOptions()


@dataclass(frozen=True)
class SolverOptions:
    """All options of one query, checked; queries with the same options share them.

    :param execution: ``"asynchronous"``: devices do not wait for each other; ``"bulk-synchronous"``: in
        supersteps, at the end of which all devices synchronize; ``"auto"``: the faster one
    :param worker: options of the asynchronous engine
    :param gpu: options of kernels
    :param timeout_s: RunTimeoutError after this number of seconds
    :param progress: called repeatedly with the number of items processed until then
    :param location: where GPUs leave their results
    :param hand_over: when a run on GPUs is to end, as cores are faster; None: never
    :raises InputError: a value is out of range, or of another type
    """

    execution: Execution = "auto"
    worker: WorkerOptions = DEFAULT_WORKER_OPTIONS
    gpu: GpuOptions = DEFAULT_GPU_OPTIONS
    timeout_s: float | None = None
    progress: Callable[[int], None] | None = None
    location: ResultLocation = field(default_factory=ResultLocation)
    hand_over: HandOver | None = None

    def __post_init__(self) -> None:
        as_execution(self.execution)
        if not isinstance(self.worker, WorkerOptions):
            raise InputError(f"worker must be WorkerOptions, got {shown(self.worker)}")
        if not isinstance(self.gpu, GpuOptions):
            raise InputError(f"gpu must be GpuOptions, got {shown(self.gpu)}")
        if self.timeout_s is not None:
            seconds = as_positive_number(self.timeout_s, "timeout_s")
            object.__setattr__(self, "timeout_s", seconds)
        check_callable(self.progress, "progress")
        if self.in_steps and (self.gpu.hops or 0) > SUPERSTEP_HOPS:
            raise InputError(
                "execution='bulk-synchronous' follows one arc in each superstep: hops of "
                f"ExperimentOptions must be 0, 1 or None, got {self.gpu.hops}"
            )

    @cached_property
    def asks_for_kernels(self) -> bool:
        """True if the execution, or an option of workers or kernels, differs from its default."""
        is_plain = self.execution == "auto" and self.worker == DEFAULT_WORKER_OPTIONS
        return not is_plain or self.gpu != DEFAULT_GPU_OPTIONS

    @property
    def asks_for_gpu(self) -> bool:
        """True if :attr:`asks_for_kernels`, or results are to lie on a GPU."""
        return self.asks_for_kernels or self.location.gpu is not None

    def after(self, elapsed_s: float) -> SolverOptions:
        """Return the options for all cores, which take over a query after some seconds on a GPU."""
        left_s = None if self.timeout_s is None else max(self.timeout_s - elapsed_s, 1e-9)
        return replace(self, timeout_s=left_s, hand_over=None)

    @property
    def in_steps(self) -> bool:
        """True if a vertex program must run in supersteps; other algorithms have their own rules."""
        return self.execution == "bulk-synchronous"


def query_options(
    *,
    execution: str = "auto",
    worker: WorkerOptions | None = None,
    gpu: GpuOptions | None = None,
    timeout_s: float | None = None,
    progress: ProgressArgument = None,
    results: str = "host",
) -> SolverOptions:
    """Return the options of a query from the arguments of a public function; None: the defaults.

    :param results: where GPUs leave their results: ``"host"``, ``"cuda"`` or ``"cuda:1"``
    :raises InputError: see :class:`SolverOptions`
    :raises DeviceError: ``results`` names a GPU that does not exist
    """
    location = ResultLocation.named(results)
    if timeout_s is None and (progress is None or isinstance(progress, bool)):
        try:
            return _lasting_options(execution, worker, gpu, location.gpu)
        except TypeError:  # an argument that cannot be hashed, which is refused below
            progress = None
    return SolverOptions(
        execution,  # type: ignore[arg-type]  # it is checked
        DEFAULT_WORKER_OPTIONS if worker is None else worker,
        DEFAULT_GPU_OPTIONS if gpu is None else gpu,
        timeout_s,
        None if isinstance(progress, bool) else progress,  # a bar is a function by now
        location,
    )


@lru_cache(maxsize=64)
def _lasting_options(
    execution: Any, worker: WorkerOptions | None, gpu: GpuOptions | None, results_gpu: int | None
) -> SolverOptions:
    """Return options that refer to nothing of a query."""
    return SolverOptions(
        execution,
        DEFAULT_WORKER_OPTIONS if worker is None else worker,
        DEFAULT_GPU_OPTIONS if gpu is None else gpu,
        location=ResultLocation(results_gpu),
    )


def as_execution(value: Any) -> Execution:
    """Return the value if it is one of ``EXECUTIONS``; raise InputError otherwise."""
    if isinstance(value, str) and value in EXECUTIONS:
        return value  # type: ignore[return-value, unused-ignore]
    names = " or ".join([", ".join(map(repr, EXECUTIONS[:-1])), repr(EXECUTIONS[-1])])
    raise InputError(f"execution must be {names}, got {shown(value)}")
