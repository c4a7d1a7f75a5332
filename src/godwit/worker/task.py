"""The run of a vertex program or worklist as engines get it: operators, each device's part, options."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from godwit.arrays import ResultLocation, host_array
from godwit.dtypes import Array, as_array
from godwit.errors import InputError, shown
from godwit.graph.csr import Graph
from godwit.graph.partition.layout import LocalGraph
from godwit.placement import PlacedGraph
from godwit.runtime.gpu_options import GpuOptions
from godwit.worker.program import BITWISE, Initial, VertexProgram

Start = Literal["all"] | Array | Mapping[int, Any]
"""Initial work: all vertices with their initial values, or with those of an array of shape (n); or some
vertices, each with a value that is combined into its initial one."""


_PLAIN: dict[str, tuple[type, ...]] = {"i": (int,), "u": (int,), "f": (int, float)}
"""By kind of dtype: types of numbers that NumPy converts as it should, or refuses with an OverflowError."""


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
    """Location and form of the results of a run on GPUs; after the run it holds them.

    :param location: of the arrays
    :param dtype: of the values: the program's, or a wider integer dtype
    :param never: the value of vertices that were not reached, or lie beyond the limit
    :param ranges: True if each part's vertices are a range, in the order of the parts
    :ivar values: (n) values
    :ivar fields: (n) fields, or None
    :ivar seconds: time that it took to make these
    """

    location: ResultLocation
    dtype: np.dtype[Any]
    never: Any
    ranges: bool
    values: Any = None
    fields: Any = None
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
    :param adapts: GPUs change delta and hops while they run, if others turn out to be faster
    :param hops: number of arcs that a GPU's block may follow before all blocks synchronize
    :param in_steps: CPUs run in supersteps: they process due items once, then meet (GPUs do if hops is 0 or
        1)
    :param gpu: options of kernels
    """

    delta: float = 1.0
    window: int = 1
    ring_items: int | None = None
    capacity_items: int = 1 << 14
    next_hop: Array | None = None
    adapts: bool = False
    hops: int = 0
    in_steps: bool = False
    gpu: GpuOptions = field(default_factory=GpuOptions)


@dataclass
class Seeds:
    """Initial work of one device: items (keys int64, each once), and all keys below ``initial_keys``."""

    keys: Array
    values: Array
    initial_keys: int = 0


@dataclass
class PlacedPart:
    """One device's part of a run of a VertexProgram.

    In place of an array whose elements are all one number, devices that fill their memory themselves (GPUs)
    get that number.

    :param graph: its vertices, arcs and halo
    :param values: (owned) initial values, for GPUs without those of the seeds; afterwards the result,
        unless it went to a :class:`Destination`
    :param halo_values: (halo) initial values of halo vertices: the program's identity for each
    :param fields: (owned) initial fields, or empty
    :param seeds: its initial work
    :param limit: (1) shared by all parts: worse messages are dropped
    :param target: local index of the vertex whose value lowers the limit, or -1
    :param parameters: values of the program's parameters, float64
    """

    graph: LocalGraph
    values: Any
    halo_values: Any
    fields: Any
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
        for local in placed.parts
    ]
    if isinstance(start, Mapping):
        builder.seed(parts, start)
    if target is not None:
        builder.set_target(parts, target)
    return parts


class _PartBuilder:
    """Builder of the parts of one run.

    ``_fills``: the devices fill their memory themselves.
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
        self._fills = placed.context.devices[0].fills
        worst = program.identity if limit is None else as_value(program, limit, "limit")
        self._limits = np.array([worst], program.dtype)
        self._parameters = program.parameter_values(parameters)

    def part(self, local: LocalGraph, initial: Initial, *, start_all: bool) -> PlacedPart:
        """Return a device's part, without seeds."""
        program = self._program
        values = self._initial(initial, program.identity, local, program.dtype)
        no_values = np.empty(0, program.dtype)
        fields: Any = no_values
        if program.field_dtype is not None:
            fields = self._initial(program.field_initial, 0, local, program.field_dtype)
        return PlacedPart(
            graph=local,
            values=values,
            # The owner's initial value is not known here; with the worst value more is sent than needed.
            halo_values=self._repeated(program.identity, local.halo_count, program.dtype),
            fields=fields,
            seeds=Seeds(np.empty(0, np.int64), no_values, local.vertex_count if start_all else 0),
            limit=self._limits,
            target=-1,
            parameters=self._parameters,
        )

    def seed(self, parts: list[PlacedPart], start: Mapping[int, Any]) -> None:
        """Combine the given values into initial ones, and make their vertices the initial work."""
        program = self._program
        # Where values accumulate, initial values may be active themselves: all vertices are examined.
        some_are_active = program.combine == "add" and program.initial is not None
        vertices = np.fromiter(start, np.int64, len(start))
        given = start_values(program, start)
        for device, part in enumerate(parts):
            keys, values = vertices, given
            if len(parts) > 1:
                layout = self._placed.layout
                here = np.flatnonzero(layout.owner[vertices] == device)
                keys, values = layout.local_index[vertices[here]].astype(np.int64), given[here]
            # Otherwise the values before are the identity.
            if program.initial is not None or program.dtype.kind == "f":
                is_number = not isinstance(part.values, np.ndarray)
                before = part.values if is_number else part.values[keys]
                values = combined(program, before, values)
            part.seeds = Seeds(keys, values, part.graph.vertex_count if some_are_active else 0)
            if not self._fills:
                part.values[keys] = values
                if some_are_active:
                    part.seeds = Seeds(keys[:0], values[:0], part.graph.vertex_count)

    def set_target(self, parts: list[PlacedPart], target: int) -> None:
        """Make the value of a vertex the limit."""
        part, index = parts[0], target
        if len(parts) > 1:
            layout = self._placed.layout
            part, index = parts[int(layout.owner[target])], int(layout.local_index[target])
        part.target = index
        seeded = np.flatnonzero(part.seeds.keys == part.target)
        if len(seeded):
            value = part.seeds.values[seeded[0]]
        else:
            is_number = not isinstance(part.values, np.ndarray)
            value = part.values if is_number else part.values[part.target]
        self._limits[0] = combined(self._program, self._limits[0], value)

    def _initial(
        self, initial: Initial, identity: Any, local: LocalGraph, dtype: np.dtype[Any]
    ) -> Any:
        """Return initial values or fields of a device's vertices: a new array, or a number for all."""
        count = self._placed.graph.vertex_count
        if initial is None or not (callable(initial) or np.ndim(initial)):
            made = initial_values(initial, identity, np.empty(0), count, dtype)
        else:
            made = initial_values(initial, identity, local.vertices, count, dtype)
        return made if made.ndim else self._repeated(made, local.vertex_count, dtype)

    def _repeated(self, number: Any, count: int, dtype: np.dtype[Any]) -> Any:
        return dtype.type(number) if self._fills else np.full(count, number, dtype)


def initial_state(program: VertexProgram, start: Start, graph: Graph) -> tuple[Array, Array]:
    """Return the value with which each vertex begins, shape (n), and True for those of the initial work."""
    count = graph.vertex_count
    vertices = np.arange(count, dtype=graph.id_dtype)
    initial = start if isinstance(start, np.ndarray) else program.initial
    made = initial_values(initial, program.identity, vertices, count, program.dtype)
    values = np.array(np.broadcast_to(made, (count,)), program.dtype)
    if not isinstance(start, Mapping):
        return values, np.full(count, True)
    is_start = np.full(count, False)
    given = np.fromiter(start, np.int64, len(start))
    values[given] = combined(program, values[given], start_values(program, start))
    is_start[given] = True
    return values, is_start


def initial_values(
    initial: Initial, identity: Any, vertices: Array, count: int, dtype: np.dtype[Any]
) -> Any:
    """Return initial values or fields of some of ``count`` vertices: a new array, or a number for all."""
    if initial is None:
        return dtype.type(identity)
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
        return _as_values(whole, dtype)
    if whole.shape != (count,):
        raise InputError(f"initial values must have shape ({count},), got {whole.shape}")
    return _as_values(whole[vertices], dtype)


def combined(program: VertexProgram, before: Any, values: Any) -> Any:
    """Return values combined into those before."""
    if program.combine == "add":
        return (before + values).astype(program.dtype)
    if program.combine in BITWISE:
        combined = np.bitwise_or if program.combine == "or" else np.bitwise_and
        return combined(before, values).astype(program.dtype)
    is_better = values < before if program.combine == "min" else values > before
    return np.where(is_better, values, before)


def start_values(program: VertexProgram, start: Mapping[int, Any]) -> Array:
    """Return the values of a mapping in the program's dtype; raise InputError for one that does not fit."""
    numbers = list(start.values())
    if all(type(number) in _PLAIN[program.dtype.kind] for number in numbers):
        with suppress(OverflowError):
            return np.array(numbers, program.dtype)
    values = [
        as_value(program, value, f"the value of vertex {vertex}") for vertex, value in start.items()
    ]
    return np.array(values, program.dtype)


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
