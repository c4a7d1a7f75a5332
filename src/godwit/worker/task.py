"""What the asynchronous engine is given: operators, each device's part of a run, and options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from godwit.dtypes import Array
from godwit.runtime.gpu_options import GpuOptions

if TYPE_CHECKING:
    from godwit.graph.partition.layout import LocalGraph


@dataclass(frozen=True)
class ProgramOperators:
    """A VertexProgram as the engine compiles it: operators of fixed signatures.

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
    """What has been compiled of it, for CPUs and for GPUs, each by keys of its own."""


@dataclass(frozen=True)
class WorklistOperators:
    """A distributed worklist as the engine compiles it; the callbacks of Groute's figure 10.

    ``bindings`` maps the names of the engine's operators (process, fanout, owner, on_send, pack,
    unpack, on_receive, priority) to plain Python functions.
    """

    value_dtype: np.dtype[Any]
    item_bytes: Literal[8, 16]
    bindings: Mapping[str, Any]
    compiled: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What has been compiled of it, for CPUs and for GPUs, each by keys of its own."""


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
    :param ring_items: slots of each mailbox; None for the engine's default
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
