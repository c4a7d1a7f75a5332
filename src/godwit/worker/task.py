"""The run of a vertex program or worklist as engines get it: operators, each device's part, options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from godwit.arrays import host_array
from godwit.dtypes import Array, as_array
from godwit.errors import InputError, shown
from godwit.graph.partition.layout import LocalGraph
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import GpuOptions
from godwit.worker.program import Initial, VertexProgram

Start = Literal["all"] | Array | Mapping[int, Any]
"""Initial work: all vertices with their initial values, or with those of an array of shape (n); or some
vertices, each with a value that is combined into its initial one."""


@dataclass(frozen=True)
class WorklistOperators:
    """The operators of a distributed worklist as the engine compiles them (Groute, figure 10).

    :param bindings: plain Python functions by the engine's names: process, fanout, owner, on_send, pack,
        unpack, on_receive, priority
    :param compiled: compiled forms, by their own keys
    """

    value_dtype: np.dtype[Any]
    item_bytes: Literal[8, 16]
    bindings: Mapping[str, Any]
    compiled: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)


@dataclass
class Destination:
    """The arrays that devices write the results of a run to.

    :param values: (n) of NumPy, or of CuPy on ``gpu``; of the program's dtype, or of a wider integer dtype
    :param fields: (n) likewise, of the fields' dtype; or None
    :param never: the value of vertices that were not reached, or lie beyond the limit
    :param gpu: the number of the arrays' GPU; None for the host
    :param ranges: True if each part's vertices are a range, in the order of the parts
    :param seconds: time that the copies took
    """

    values: Any
    fields: Any
    never: Any
    gpu: int | None
    ranges: bool
    seconds: float = 0.0


@dataclass
class WorklistOptions:
    """Options of a run, all chosen.

    :param delta: width of a priority bucket, in units of priority
    :param window: number of buckets that a device may run ahead of the lowest bucket of all devices
    :param ring_items: slots of each mailbox; None for the engine's default
    :param capacity_items: initial room of each device's worklist; it grows
    :param next_hop: (devices, devices): the device to which device i sends items for device j; None: j
        itself
    :param hops: number of arcs that a GPU's block may run ahead between two meetings
    :param in_steps: CPUs run in supersteps: they process due items once, then meet (GPUs do if hops is 0 or
        1)
    :param gpu: options of kernels
    :param destination: of the results, where devices copy them there themselves
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
    """The initial work of one device: items (keys int64), and all keys below ``initial_keys``."""

    keys: Array
    values: Array
    initial_keys: int = 0


@dataclass
class PlacedPart:
    """One device's part of a run of a VertexProgram.

    :param graph: its vertices, arcs and halo
    :param values: (owned) initial values; afterwards the result, unless it went to a :class:`Destination`
    :param halo_values: (halo) likewise for halo vertices
    :param fields: (owned) initial fields, or empty
    :param seeds: its initial work
    :param limit: (1) shared by all parts: worse messages are dropped
    :param target: local index of the vertex whose value lowers the limit, or -1
    :param parameters: values of the program's parameters, float64
    """

    graph: LocalGraph
    values: Array
    halo_values: Array
    fields: Array
    seeds: Seeds
    limit: Array
    target: int
    parameters: Array


def make_parts(
    program: VertexProgram,
    placed: PlacedGraph,
    start: Start,
    *,
    limit: Any = None,
    target: int | None = None,
    parameters: Mapping[str, float] | None = None,
) -> list[PlacedPart]:
    """Return the initial state of each device, for arguments as of :func:`godwit.worker.solve.solve`."""
    builder = _PartBuilder(program, placed, limit, parameters)
    initial = start if isinstance(start, np.ndarray) else program.initial
    parts = [
        builder.part(local, initial, start_all=not isinstance(start, Mapping))
        for local in placed.layout.parts
    ]
    if isinstance(start, Mapping):
        builder.seed(parts, start)
    if target is not None:
        builder.set_target(parts, target)
    return parts


class _PartBuilder:
    """Builder of the parts of one run.

    ``_views``: the devices fill their memory themselves, so one number for all vertices may be a view that
    repeats it.
    """

    def __init__(
        self,
        program: VertexProgram,
        placed: PlacedGraph,
        limit: Any,
        parameters: Mapping[str, float] | None,
    ) -> None:
        self._program = program
        self._placed = placed
        self._views = placed.context.devices[0].fills
        worst = program.identity if limit is None else as_value(program, limit, "limit")
        self._limits = np.full(1, worst)
        self._parameters = program.parameter_values(parameters)

    def part(self, local: LocalGraph, initial: Initial, *, start_all: bool) -> PlacedPart:
        """Return a device's part, without seeds."""
        program = self._program
        values = self._initial(initial, program.identity, local, program.dtype, views=self._views)
        fields = np.empty(0, program.dtype)
        if program.field_dtype is not None:
            fields = self._initial(
                program.field_initial, 0, local, program.field_dtype, views=False
            )
        nothing = np.empty(0, np.int64)
        halo_count = len(local.halo_vertices)
        return PlacedPart(
            graph=local,
            values=values,
            # The owner's initial value is not known here; with the worst value more is sent than needed.
            halo_values=_repeated(program.identity, halo_count, program.dtype, views=self._views),
            fields=fields,
            seeds=Seeds(nothing, nothing.astype(program.dtype), len(values) if start_all else 0),
            limit=self._limits,
            target=-1,
            parameters=self._parameters,
        )

    def seed(self, parts: list[PlacedPart], start: Mapping[int, Any]) -> None:
        """Combine the given values into initial ones, and make their vertices the initial work."""
        program, layout = self._program, self._placed.layout
        # Where values accumulate, initial values may be active themselves: all vertices are examined.
        some_are_active = program.combine == "add" and program.initial is not None
        seeds: list[dict[int, Any]] = [{} for _ in parts]
        for vertex, given in start.items():
            value = as_value(program, given, f"the value of vertex {vertex}")
            device = int(layout.partition.owner[vertex])
            key = int(layout.local_index[vertex])
            before = seeds[device].get(key, parts[device].values[key])
            seeds[device][key] = self._combined(before, value)
        for part, part_seeds in zip(parts, seeds, strict=True):
            keys = np.array(list(part_seeds), np.int64)
            values = np.array(list(part_seeds.values()), program.dtype)
            if some_are_active and len(keys) and not part.values.flags.writeable:
                part.values = np.array(part.values)
            if part.values.flags.writeable:
                part.values[keys] = values
            part.seeds = Seeds(keys, values)
            if some_are_active:
                part.seeds = Seeds(keys[:0], values[:0], len(part.values))

    def set_target(self, parts: list[PlacedPart], target: int) -> None:
        """Make the value of a vertex the limit."""
        layout = self._placed.layout
        part = parts[int(layout.partition.owner[target])]
        part.target = int(layout.local_index[target])
        seeded = np.flatnonzero(part.seeds.keys == part.target)
        value = part.seeds.values[seeded[0]] if len(seeded) else part.values[part.target]
        self._limits[0] = self._combined(self._limits[0], value)

    def _combined(self, before: Any, value: Any) -> Any:
        if self._program.combine == "add":
            return self._program.dtype.type(before + value)
        return min(before, value) if self._program.combine == "min" else max(before, value)

    def _initial(
        self,
        initial: Initial,
        identity: Any,
        local: LocalGraph,
        dtype: np.dtype[Any],
        *,
        views: bool,
    ) -> Array:
        """Return a new array of initial values or fields of a device's vertices."""
        vertices, count = local.vertices, self._placed.graph.vertex_count
        if initial is None:
            return _repeated(identity, len(vertices), dtype, views=views)
        if callable(initial):
            made = as_array(initial(vertices), "initial")
            if made.shape not in ((), vertices.shape):
                raise InputError(
                    f"initial must return a number, or one for each of {len(vertices)} vertices, "
                    f"got an array of shape {made.shape}"
                )
            return np.array(np.broadcast_to(_as_values(made, dtype), vertices.shape))
        whole = as_array(initial, "initial")
        if whole.ndim == 0:
            return _repeated(_as_values(whole, dtype), len(vertices), dtype, views=views)
        if whole.shape != (count,):
            raise InputError(f"initial values must have shape ({count},), got {whole.shape}")
        return _as_values(whole[vertices], dtype)


def _repeated(number: Any, count: int, dtype: np.dtype[Any], *, views: bool) -> Array:
    if views:
        return np.broadcast_to(np.array(number, dtype), (count,))
    return np.full(count, number, dtype)


def as_value(program: VertexProgram, value: Any, what: str) -> Any:
    """Return a number in the program's dtype; raise InputError if it does not fit."""
    try:
        given = host_array(value)
        converted = given.astype(program.dtype).item() if given.ndim == 0 else None
    except (TypeError, ValueError, OverflowError):
        converted = None
    if converted is not None and program.dtype.kind != "f" and converted != value:
        converted = None
    if converted is None:
        raise InputError(
            f"{what} must be a number that {program.dtype.name} holds, got {shown(value)}"
        )
    return program.dtype.type(converted)


def _as_values(given: Array, dtype: np.dtype[Any]) -> Array:
    """Return numbers in a dtype; raise InputError for the first that it does not hold exactly."""
    if given.dtype.kind not in "biuf":
        raise InputError(f"initial values must be numbers, got {given.dtype}")
    with np.errstate(invalid="ignore", over="ignore"):
        converted = given.astype(dtype)
        if dtype.kind in "iu" and given.dtype != dtype:
            # Converting back gives the original number, unless it wrapped around; so does the sign.
            wrong = (converted.astype(given.dtype) != given) | ((converted < 0) != (given < 0))
            if wrong.any():
                first = np.atleast_1d(given)[np.argmax(np.atleast_1d(wrong))]
                raise InputError(f"initial values must fit {dtype.name}, got {first}")
    return converted
