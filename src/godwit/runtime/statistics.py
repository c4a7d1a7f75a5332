"""Counts and times of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from godwit.dtypes import Array
from godwit.html_tables import table_of_facts
from godwit.trace import PROGRESS, active, seconds_since


def _zeros(devices: int) -> Array:
    return np.zeros(devices, np.int64)


def _none(devices: int) -> None:
    return None


_COUNTS: dict[str, Callable[[int], Any]] = {
    "processed_items": _zeros,
    "useless_items": _zeros,
    "arcs_relaxed": _zeros,
    "threshold_changes": _zeros,
    "sent_items": lambda devices: np.zeros((devices, devices), np.int64),
    "received_items": _zeros,
    "filtered_items": _zeros,
    "rounds": _zeros,
    "levels": _none,
    "growths": lambda devices: 0,
    "frontier_bytes": _none,
    "busy_share": _none,
    "item_bytes": _none,
}
"""Attributes that a run counts, and what each is of a number of devices before."""
_COUNTING = "_counting"
"""Name of what :meth:`RunStatistics.count_later` was given."""


class _Phase:
    """Block whose time is added to a phase; a generator would take five times as long."""

    __slots__ = ("_begin_s", "_name", "_seconds")

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._begin_s = perf_counter()

    def __exit__(self, *_: object) -> None:
        name, seconds = self._name, self._seconds
        seconds[name] = seconds.get(name, 0.0) + seconds_since(self._begin_s, name)


class _Run:
    """Block that runs on devices: its time is that of ``parts``, and of phase ``run`` the rest of it.

    :ivar parts: seconds by phase; none, if the block fails before it sets them
    """

    __slots__ = ("_begin_s", "_seconds", "parts")

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds
        self.parts: Mapping[str, float] = {}

    def __enter__(self) -> _Run:
        self._begin_s = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        rest_s = seconds_since(self._begin_s, "run")
        for taken in self.parts.values():
            rest_s -= taken
        self._seconds["run"] = rest_s
        self._seconds.update(self.parts)


@dataclass
class RunStatistics:
    """Statistics of one run.

    :param devices: names, in order; the arrays below have an entry a device
    :param solver: the execution that ran: ``"asynchronous"`` (workers and mailboxes), ``"delta-stepping"``
        (the same on one device whose threads share memory), ``"bulk-synchronous"`` (vertex programs in
        supersteps), ``"direction-optimizing"`` (BFS, SSSP), ``"pull"`` (PageRank), ``"brandes"``
        (betweenness), ``"bit-parallel"``, ``"contracted"`` or ``"side by side"`` (searches from many
        sources at once, in the bits of words, over a contracted graph, or each on its own),
        ``"depth-first"``, ``"forward-backward"`` or ``"least ids"``
        (strong components), ``"one thread"`` or ``"generation by generation"`` (topological
        generations), ``"peeling"`` (core and truss numbers), ``"oriented by degree"`` (triangles),
        ``"intersections"`` (similarity),
        ``"filter-kruskal"`` or ``"boruvka"`` (spanning forests), ``"random walks"``,
        ``"louvain"`` and its like (communities), or ``"step program"``
    :param seconds: time by phase, for those that happened: ``read``, ``partition``, ``place``, ``upload``
        (rows to GPUs), ``number`` and ``rows`` (the same for supersteps: positions, and rows in them),
        ``compile``, ``run`` (on GPUs, what is around the kernels), ``kernel`` (GPUs only), ``exchange``
        (what the host copied between GPUs that are no peers, superstep by superstep), ``overflow``
        (betweenness on GPUs that was given up for the CPU's wider numbers), ``contract`` (finding the
        contracted graph, or making it), ``gather``, ``predecessors``, ``verify``; no time is in two of them
    :param processed_items: work-items taken from a queue
    :param useless_items: those whose value had been improved meanwhile; GPUs do not look
        where rows are packed, and count only those beyond the limit
    :param arcs_relaxed: arcs along which a message was computed
    :param threshold_changes: times that a device's priority threshold was raised
    :param sent_items: (devices, devices): items put into the link from i to j
    :param received_items: items taken from mailboxes
    :param filtered_items: items that were not sent: the receiver has a better value already, or they were
        merged into one that still waited
    :param rounds: rounds of a worker's loop in which it found work, or meetings of the threads or of a
        GPU's blocks; where the solver is bulk-synchronous, supersteps
    :param delta: width of a priority bucket; on GPUs the first one, where none was set
    :param hops: arcs that a GPU's block may follow from a vertex before all blocks synchronize, at first
    :param window: buckets that a device may run ahead
    :param levels: levels of a level-synchronous search, or of communities
    :param growths: times that memory for frontiers was enlarged
    :param frontier_bytes: bytes of frontiers' queues on GPUs: of a search in supersteps at
        its end, of a step program all along
    :param busy_share: (devices) share of a GPU's time in which its blocks did not wait for others
    :param item_bytes: size of an item that GPUs send
    :param processes: number of processes that computed together
    :param supersteps: of several processes: number of times that they met
    :param messages: (processes, processes): messages from process i to j, headers included; None of one
        process without MPI
    :param message_bytes: (processes, processes): bytes of these messages
    :param waiting_s: (processes): seconds in which a process waited for messages
    """

    devices: tuple[str, ...]
    solver: str
    seconds: dict[str, float] = field(default_factory=dict)
    processed_items: Array = field(init=False)
    useless_items: Array = field(init=False)
    arcs_relaxed: Array = field(init=False)
    threshold_changes: Array = field(init=False)
    sent_items: Array = field(init=False)
    received_items: Array = field(init=False)
    filtered_items: Array = field(init=False)
    rounds: Array = field(init=False)
    delta: float | None = None
    hops: int | None = None
    window: int | None = None
    levels: int | None = field(init=False)
    growths: int = field(init=False)
    frontier_bytes: int | None = field(init=False)
    busy_share: Array | None = field(init=False)
    item_bytes: int | None = field(init=False)
    processes: int = 1
    supersteps: int | None = None
    messages: Array | None = None
    message_bytes: Array | None = None
    waiting_s: Array | None = None

    def begin_on(self, devices: Sequence[str]) -> None:
        """Set the devices of the run, and all counts to 0."""
        self.devices = tuple(devices)
        for name in (*_COUNTS, _COUNTING):
            self.__dict__.pop(name, None)

    def count_later(self, count: Callable[[RunStatistics], object]) -> None:
        """Set counts when one of them is first read, so that a query does not wait for that.

        :param count: sets the counts of these statistics; reads nothing that changes after the run
        """
        self.__dict__[_COUNTING] = count

    if not TYPE_CHECKING:  # which would take every name for an attribute

        def __getattr__(self, name: str) -> Any:
            if name not in _COUNTS:
                raise AttributeError(f"RunStatistics has no attribute {name!r}")
            self._complete()
            return self.__dict__[name]

    def _complete(self) -> None:
        """Set the counts that are not set yet: those of :meth:`count_later`, and the others to 0."""
        count = self.__dict__.get(_COUNTING)
        if count is not None:
            count(self)
            self.__dict__[_COUNTING] = None  # not before: another thread may read counts, too
        for name, zero in _COUNTS.items():
            self.__dict__.setdefault(name, zero(len(self.devices)))

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: all counts, as numbers."""
        self._complete()
        return {name: value for name, value in self.__dict__.items() if name != _COUNTING}

    @property
    def run_s(self) -> float:
        """Seconds of the algorithm itself, with kernels and exchanges; rates divide by it."""
        return sum(self.seconds.get(phase, 0.0) for phase in ("run", "kernel", "exchange"))

    @property
    def sent_bytes(self) -> Array | None:
        """(devices, devices): bytes put into the link from i to j; None if unknown."""
        return None if self.item_bytes is None else self.sent_items * self.item_bytes

    def take_counts(self, counts: WorklistCounts) -> None:
        """Add the counts of the workers."""
        devices = len(self.devices)
        if counts.compile_s:
            self.split_run({"compile": counts.compile_s})
        self.busy_share = counts.busy_share
        self.item_bytes = counts.item_bytes

        def per_device(values: Array) -> Array:
            # The threads of one shared-memory device count for that device.
            return values if len(values) == devices else values.sum(axis=0, keepdims=True)

        self.processed_items = per_device(counts.processed_items)
        trace = active()
        if trace is not None:
            trace.count(PROGRESS, int(self.processed_items.sum()))
        self.useless_items = per_device(counts.useless_items)
        self.arcs_relaxed = per_device(counts.arcs_relaxed)
        self.threshold_changes = per_device(counts.threshold_changes)
        self.received_items = per_device(counts.received_items)
        self.filtered_items = per_device(counts.filtered_items)
        self.rounds = per_device(counts.rounds)
        self.sent_items = counts.sent_items if devices > 1 else np.zeros((1, 1), np.int64)

    def split_run(self, seconds: Mapping[str, float]) -> None:
        """Move seconds from phase ``run``, which may still last, to phases of their own."""
        for phase, taken in seconds.items():
            self.seconds[phase] = taken
            self.seconds["run"] = self.seconds.get("run", 0.0) - taken

    def run(self) -> _Run:
        """Return a block that runs on devices, whose ``parts`` are to be set to the seconds by phase."""
        return _Run(self.seconds)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Add the time of the block to a phase."""
        return _Phase(self.seconds, name)

    def to_dict(self) -> dict[str, Any]:
        """Return all of these, ``run_s`` and ``sent_bytes`` as JSON values."""
        plain = {**asdict(self), "run_s": self.run_s, "sent_bytes": self.sent_bytes}
        return {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in plain.items()
        }

    def _repr_html_(self) -> str:
        return table_of_facts("RunStatistics", self._facts())

    def _facts(self) -> dict[str, Any]:
        """Return what a notebook shows: what happened, without counts of 0; a number for each device."""
        facts: dict[str, Any] = {"devices": list(self.devices), "solver": self.solver}
        for phase, taken in self.seconds.items():
            facts[f"seconds: {phase}"] = f"{taken:.6f}"
        for name in (declared.name for declared in fields(self)):
            value = getattr(self, name)
            if name in ("devices", "solver", "seconds") or value is None or not np.any(value):
                continue
            per_device = value.sum(axis=1) if np.ndim(value) == 2 else value
            listed = np.atleast_1d(per_device).tolist()
            texts = [f"{n:,.6g}" if isinstance(n, float) else f"{n:,}" for n in listed]
            facts[name] = texts if isinstance(value, np.ndarray) else texts[0]
        return facts


@dataclass
class WorklistCounts:
    """Counts of a run's workers, an entry for each device.

    ``sent_items[i, j]`` counts the items that device i put into the mailbox of device j.
    ``busy_share`` is the part of the kernels' time in which blocks did not wait for others; of GPUs only.
    """

    processed_items: Array
    useless_items: Array
    arcs_relaxed: Array
    threshold_changes: Array
    received_items: Array
    filtered_items: Array
    sent_items: Array
    rounds: Array
    growths: int = 0
    compile_s: float = 0.0
    value_overflow: bool = False
    busy_share: Array | None = None
    item_bytes: int | None = None
