"""What the layers above may ask of a backend, and what they tell it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np

from godwit.dtypes import as_count, as_float, as_positive_number
from godwit.errors import InputError, shown

if TYPE_CHECKING:
    from godwit.graph.csr import Graph
    from godwit.graph.partition import Partition
    from godwit.graph.partition.layout import LocalGraph

Array = np.ndarray[Any, np.dtype[Any]]

# What on_send and on_receive return: flags, as in Groute's figure 10.
DROP = 0
KEEP = 1
PASS = 2
DUPLICATE = 3


class Progress(int):
    """Items processed so far; GPUs tell more.

    :ivar threshold: priorities up to it are due now, or None
    :ivar idle_share: of each GPU's time so far, the part in which its blocks waited for others
    """

    threshold: float | None = None
    idle_share: tuple[float, ...] = ()


ProgressPoll = Callable[[int], None]
"""Called now and then in the caller's thread with the :class:`Progress` so far; may raise to stop."""


@dataclass(frozen=True)
class Device:
    """Something that has memory and runs kernels.

    :param name: ``"cpu"`` (all cores, one shared memory) or ``"cpu:3"`` (a virtual device: one
        thread with its own partition, worklists and mailboxes)
    :param kind: the backend's name
    :param description: for people
    :param memory: tells how much memory may still be allocated on it, in bytes
    :param threads: threads that work for it
    :param shares_memory: whether these threads work on one memory, without mailboxes between them
    :param fills: whether it initializes values itself: an array of one number repeated (strides 0)
        costs nothing to hand over
    :param delivers: whether it brings results to a :class:`Destination`; else the parts hold them
    """

    name: str
    kind: str
    description: str = ""
    memory: Callable[[], int] = field(default=int, repr=False, compare=False)
    threads: int = 1
    shares_memory: bool = False
    fills: bool = False
    delivers: bool = False

    @property
    def memory_bytes(self) -> int:
        """Memory that may still be allocated on it."""
        return self.memory()


@dataclass(frozen=True)
class ProgramOperators:
    """A VertexProgram as a backend compiles it: operators of fixed signatures.

    ``message(value, weight, degree, vertex, field, parameters)``, ``activate(value, parameters)``,
    ``update(field, value, parameters)`` and ``priority(value)`` are plain Python functions;
    ``identity`` is the value that every message improves on, or that adds nothing.
    """

    name: str
    combine: Literal["min", "max", "add"]
    value_dtype: np.dtype[Any]
    message: Callable[..., Any]
    activate: Callable[..., Any]
    priority: Callable[..., Any] | None = None
    field_dtype: np.dtype[Any] | None = None
    update: Callable[..., Any] | None = None
    uses_weight: bool = True
    uses_degree: bool = False
    uses_vertex: bool = False
    identity: Any = 0
    compiled: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What a backend has compiled of it, by the backend's own keys."""


@dataclass(frozen=True)
class WorklistOperators:
    """A distributed worklist as a backend compiles it; the callbacks of Groute's figure 10.

    ``bindings`` maps the names of the backend's operators (process, fanout, owner, on_send, pack,
    unpack, on_receive, priority) to plain Python functions.
    """

    value_dtype: np.dtype[Any]
    item_bytes: Literal[8, 16]
    bindings: Mapping[str, Any]
    compiled: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What a backend has compiled of it, by the backend's own keys."""


LONGEST_SLICE_S = 10

Schedule = Literal["mixed", "thread", "warp", "block", "merge-path"]
"""How the arcs of a frontier are shared out among threads: a file of kernels/schedule_*.cuh each."""
Communication = Literal["selective", "broadcast"]
"""What travels to another device: what it reads, or everything."""


@dataclass(frozen=True)
class GpuOptions:
    """How kernels are run; the defaults are good, the others are for tests and comparisons.

    :param transport: ``"direct"`` (items go into the receiver's memory where devices are peers; where they
        are not, by a neighbour that is one of both, else through pinned host memory), ``"host"``
        (always through pinned host memory; in supersteps, the host copies between one and the next, as it
        does where devices are no peers) or ``"ring"`` (each device sends to the next only)
    :param slice_s: a kernel leaves after so many seconds, and is started again; 0: after every round
    :param hops: how many arcs far a block may run ahead between two meetings; 0: not at all; None for what
        suits delta and weights
    :param threads: of a block, 64 at least in supersteps; None for what suits the graph
    :param blocks: at most so many; None for as many as fit
    :param patience_s: how long a device waits for the others at a meeting before it gives the run up
    :param delay_ns: blocks lag behind at random, by up to so much
    :param latency_ns: added to every meeting of several devices, to see what it costs
    :param volume: every item is sent so often, to see what that costs
    :param frontier_items: room of a frontier's queue in supersteps at the start; that of a search grows
        where it is not enough, and step programs do without. None for an estimate ("just enough": multi-GPU
        Gunrock, section VI-B)
    :param communication: to whom an owner sends what its vertices have got: ``"selective"``: to the devices
        that read them, ``"broadcast"``: to all; None for what suits the primitive. Not every primitive
        takes either (docs/supersteps.md)
    :param schedule: how searches in supersteps and step programs share out the arcs that they push along:
        a row a ``"thread"``, ``"warp"`` or ``"block"``, by ``"merge-path"``, or ``"mixed"``, by the rows'
        lengths (docs/supersteps.md). The results are the same; what does not push does not ask
    :param turn_down: a search in supersteps pulls once pushing would look at more than so many times the
        arcs that pulling would: 0 for at once, infinity for never (``do_a`` of multi-GPU Gunrock, section
        VI-A)
    :param turn_back: and pushes again once it would look at less than so many times these (``do_b``)
    :raises InputError: a value out of range
    """

    transport: Literal["direct", "host", "ring"] = "direct"
    slice_s: float = 0.1
    hops: int | None = None
    threads: int | None = None
    blocks: int | None = None
    patience_s: float = 30.0
    delay_ns: int = 0
    latency_ns: int = 0
    volume: int = 1
    frontier_items: int | None = None
    communication: Communication | None = None
    schedule: Schedule = "mixed"
    turn_down: float = 0.01
    turn_back: float = 0.1

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
    """Whether it is such a text: an array, compared with one, would be no truth."""
    return isinstance(value, str) and value in known


USUAL = GpuOptions()
"""As kernels are run if nobody says how."""


@dataclass
class Destination:
    """Where a run's results go: arrays of all vertices, in their order.

    :param values: (n) NumPy's, or CuPy's on ``gpu``; of the program's dtype, or of a wider integer's
    :param fields: (n) likewise of the fields' dtype, or None
    :param never: what stands in ``values`` for the program's identity, and for what is beyond the limit
    :param gpu: the number of the GPU that they are on; None for the host
    :param ranges: whether the parts' vertices are ranges, in the order of the parts
    :param seconds: that bringing them there took
    """

    values: Any
    fields: Any
    never: Any
    gpu: int | None
    ranges: bool
    seconds: float = 0.0


@dataclass
class WorklistOptions:
    """How a run is to go.

    :param delta: width of a priority bucket, in units of priority
    :param window: how many buckets a device may run ahead of the lowest one of all
    :param ring_items: slots of each mailbox; None for what the backend finds good
    :param capacity_items: room of each device's worklist at the start; it grows
    :param next_hop: (devices, devices) where device i sends what is for device j; direct if None
    :param hops: how many arcs far a GPU's block may run ahead between two meetings
    :param in_steps: whether CPUs go in supersteps: what is due is processed once, then all meet (GPUs do
        where hops is 0 or 1)
    :param gpu: how kernels are run
    :param destination: where results go, of devices that deliver them
    """

    delta: float = 1.0
    window: int = 1
    ring_items: int | None = None
    capacity_items: int = 1 << 14
    next_hop: Array | None = None
    hops: int = 0
    in_steps: bool = False
    gpu: GpuOptions = field(default_factory=GpuOptions)
    destination: Destination | None = None


@dataclass
class WorklistCounts:
    """What the workers of a run counted, an entry a device.

    ``kernel_s`` is the time that kernels ran, ``busy_share`` the part of it in which blocks did not wait
    for others; both of GPUs only.
    ``sent_items[i, j]`` counts the items that device i put into the mailbox of device j.
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
    kernel_s: float | None = None
    busy_share: Array | None = None
    item_bytes: int | None = None


@dataclass
class Seeds:
    """The initial work of one device: items (keys int64), and a range of keys [0, initial_keys)."""

    keys: Array
    values: Array
    initial_keys: int = 0


@dataclass
class PlacedPart:
    """One device's part of a run of a VertexProgram.

    :param graph: its vertices, arcs and halo
    :param values: (owned) value per vertex, initialized; holds the result afterwards, unless that went
        to a :class:`Destination`
    :param halo_values: (halo) likewise for halo vertices
    :param fields: (owned) the program's state per vertex, or empty
    :param seeds: its initial work
    :param limit: (1) shared by all parts: messages worse than it are dropped
    :param target: local index of the vertex whose value lowers the limit, or -1
    :param parameters: float64, the program's parameters
    """

    graph: LocalGraph
    values: Array
    halo_values: Array
    fields: Array
    seeds: Seeds
    limit: Array
    target: int
    parameters: Array


class Placement(Protocol):
    """Parts of a graph in the memory of their devices."""

    def close(self) -> None:
        """Give the memory back; closing twice does no harm."""


class Backend(Protocol):
    """A kind of device, and how to run on it."""

    kind: str

    def devices(self) -> Sequence[Device]:
        """The devices that are there, in order."""

    def find(self, name: str) -> Device:
        """The device of a name; DeviceError, saying what there is, if it is not there."""

    def require_idle(self, devices: Sequence[Device]) -> None:
        """Asked before waiting for anything that a run on these devices may hold.

        :raises InputError: the calling thread is in such a run, as a progress function is
        """

    def place(self, devices: Sequence[Device], parts: Sequence[LocalGraph]) -> Placement | None:
        """Bring parts to their devices; None where they are there already.

        :raises GraphTooLargeError: they do not fit; before anything is allocated
        """

    def place_steps(
        self, devices: Sequence[Device], graph: Graph, partition: Partition | None
    ) -> Placement | None:
        """A graph on devices that take supersteps; None where they do so on the host's memory.

        :param partition: who owns which vertex; None for what suits graph and devices
        """

    def run_worklist(
        self,
        operators: WorklistOperators,
        states: Sequence[Any],
        seeds: Sequence[Seeds],
        options: WorklistOptions,
        poll: ProgressPoll | None,
    ) -> WorklistCounts:
        """Run a distributed worklist over ``len(states)`` virtual devices to its end."""

    def run_program(
        self,
        program: ProgramOperators,
        placement: Any,
        devices: Sequence[Device],
        parts: Sequence[PlacedPart],
        options: WorklistOptions,
        poll: ProgressPoll | None,
    ) -> WorklistCounts:
        """Run a VertexProgram, one part a device, to its end; the parts hold the result.

        :param placement: what :meth:`place` gave for these parts
        """
