"""Power iterations on GPUs: fills in the arguments of power.cuh, runs it, and gathers the results.

Rows are summed up row by row or, where that is faster, by tiles (supersteps/tiled_rows). Kept on the
devices between queries: rows and the lists of long ones, or tiles.
"""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from godwit.algorithms.power_iteration.query import (
    Finish,
    PowerOutcome,
    PowerQuery,
    largest_weight,
)
from godwit.arrays import ResultLocation
from godwit.dtypes import Array
from godwit.graph.facts import in_offsets
from godwit.runtime.cuda.compile import c_type
from godwit.runtime.cuda.memory import Buffer
from godwit.runtime.cuda.structs import struct_dtype
from godwit.runtime.gpu_options import GpuOptions
from godwit.runtime.protocol import ProgressPoll
from godwit.supersteps.arrays import DeviceArray, StepPart
from godwit.supersteps.placement import StepPlacement
from godwit.supersteps.results import deliver_vertices
from godwit.supersteps.rows import Direction, StepRows
from godwit.supersteps.run import (
    STEP,
    StepPlan,
    point_rows,
    refuse_selective,
    step_source,
)
from godwit.supersteps.tiled_rows import (
    KeptTiles,
    TileKind,
    can_be_tiled,
    longest_row,
    make_with_tiles,
    takes_tiles,
    tile_bytes,
    tile_checks,
)

ARGUMENTS = struct_dtype("algorithms/power_iteration/power.cuh", "Arguments")

LONG_ROW, BLOCK_ROW = 256, 4096  # as in power.cuh
_START, _HUBS, _PULL = 0, 1, 3  # phases
_ITERATIONS, _RESIDUAL = 0, 1  # words of the state
_SUMS = 3
_ITEM = 8
_TILE_WORDS = 3
_UNIT_BITS = 54  # log2 of the least number of units in 1, where values are not normalized
_ROW_BITS = 22  # log2 of the length of rows that are summed up by tiles, at most
_WEIGHT_BITS = 256  # log2 of the largest weight, at most; at least its negative


@dataclass
class PowerWork:
    """Work and times of a query on GPUs, by device.

    :param supersteps: of each device
    :param vertices: own vertices of each device
    :param arcs: in-arcs of these, and with two sides, out-arcs
    :param seconds: by phase: ``rows``, ``compile``, ``kernel``, ``gather``
    """

    supersteps: Array
    vertices: Array
    arcs: Array
    seconds: dict[str, float] = field(default_factory=dict)


def source(
    id_dtype: Any, weight_dtype: Any = None, *, two_sided: bool = False, tile_words: int = 0
) -> str:
    """Return the source of the kernel for dtypes of positions and, if they count, weights.

    :param tile_words: words of a sum if rows are summed up by tiles; 0: row by row
    """
    types = {
        "Id": c_type(np.dtype(id_dtype)),
        "Weight": c_type(np.dtype(weight_dtype or np.float32)),
    }
    text = step_source(
        "algorithms/power_iteration/power.cuh", types=types, work="grid_power",
        enums=[Finish],
    )  # fmt: skip
    flags = {"TWO_SIDED": two_sided, "WEIGHTED": weight_dtype is not None}
    defines = "".join(f"#define {name} {str(on).lower()}\n" for name, on in flags.items())
    defines += f"#define TILE_WORDS {tile_words}\n"
    return defines + text + tile_checks()


def iterate_on_gpus(
    placement: StepPlacement,
    query: PowerQuery,
    gpu: GpuOptions,
    location: ResultLocation,
    poll: ProgressPoll | None,
    *,
    tiled: bool | None = None,
) -> tuple[PowerOutcome, PowerWork]:
    """Run a query of a graph that has vertices.

    :param location: where the results are to live
    :param tiled: True: rows are summed up by tiles where that is possible; False: row by row; None: what is
        faster
    :raises GraphTooLargeError: need against free, before anything but rows is allocated
    :raises InputError: selective communication where the host copies all values
    :raises DeviceError: a device waits for another in vain
    """
    refuse_selective(placement, gpu)
    n = placement.vertex_count
    seconds: dict[str, float] = {}
    with placement.held():
        tiling = _tiling(placement, query, tiled)

        def plan_with(tile_words: int) -> _PowerPlan:
            return placement.plan(
                ("power iteration", gpu, query.weighted, query.two_sided, tile_words),
                lambda: _PowerPlan(placement, query, gpu, tile_words, seconds),
            )

        plan = make_with_tiles(placement, tiling.words, plan_with, asked=tiled)
        seconds["kernel"] = plan.ask(query, tiling, poll)
        if plan.is_tiled and not math.isfinite(plan.residual):
            # Values have grown beyond what the words of a sum suffice for, or beyond float64.
            plan = plan_with(0)
            seconds["kernel"] += plan.ask(query, tiling, poll)
        if plan.exchange.by_host:
            seconds["exchange"] = plan.exchange_s
        controls = plan.controls()
        words = controls["state"][0]
        iterations = int(words[_ITERATIONS])
        written = plan.iterates[1 - iterations % 2]
        values, seconds["gather"] = deliver_vertices(placement, written, np.float64, location)
        hubs = None
        if query.two_sided:
            hubs, gather_s = deliver_vertices(placement, plan.hubs, np.float64, location)
            seconds["gather"] += gather_s
        residual = plan.residual
    outcome = PowerOutcome(values, hubs, iterations, residual / n / query.unit)
    work = PowerWork(
        controls["state"][:, STEP].astype(np.int64),
        np.array([part.owned for part in placement.parts], np.int64),
        plan.arcs,
        seconds,
    )
    return outcome, work


def _directions(query: PowerQuery) -> list[Direction]:
    return ["in", "out"] if query.two_sided else ["in"]


@dataclass(frozen=True)
class _Tiling:
    """Settings of sums by tiles.

    :param words: of a sum; 0: row by row
    :param units: in 1, of sums over values up to 1
    :param most_squares: of values, in sum, up to which units are fine enough
    """

    words: int = 0
    units: float = 1.0
    most_squares: float = math.inf


def _tiling(placement: StepPlacement, query: PowerQuery, asked: bool | None) -> _Tiling:
    """Return how a query sums up rows.

    A row's sum is at most its arcs times the largest weight times the largest value, and is to be at most
    2^94 units; the largest value is at most the norm of all. So values are rounded by their norm: at worst,
    the sum of a row of the longest allowed length by 2^-49 of it, times the largest weight. That suits
    values that are normalized. The others begin near 1, where iterations add a constant, or with the first
    iterate: their norm may only grow so far that 1 has 2^54 units.

    :param asked: whether tiles are to be taken; None: where they are faster
    """
    directions = _directions(query)
    if not takes_tiles(placement, asked, *directions):
        return _Tiling()
    graph = placement.graph
    row_bits = max(longest_row(graph, direction) for direction in directions).bit_length()
    weight_bits = math.frexp(largest_weight(graph) if query.weighted else 1.0)[1]
    suffices = row_bits <= _ROW_BITS and abs(weight_bits) <= _WEIGHT_BITS
    if not suffices or not can_be_tiled(placement, _TILE_WORDS):
        return _Tiling()
    bits = 32 * _TILE_WORDS - 2 - row_bits
    most = sys.float_info.max if query.normalizes else math.ldexp(1.0, 2 * (bits - _UNIT_BITS))
    return _Tiling(_TILE_WORDS, math.ldexp(1.0, bits - weight_bits), most)


class PowerArrays:
    """The arrays of power iterations, kept on the devices between queries.

    :ivar iterates: by parity of the iteration
    :ivar long_rows: by direction: local indexes of long rows
    :ivar long_counts: by direction and device: long rows, and of these, rows for a block each
    """

    def __init__(self, placement: StepPlacement) -> None:
        self.placement = placement
        self.iterates = DeviceArray(placement), DeviceArray(placement)
        self.hubs = DeviceArray(placement)
        self.start = DeviceArray(placement)
        self.constant = DeviceArray(placement)
        self.partials = DeviceArray(placement)
        self.long_rows: dict[Direction, DeviceArray] = {
            "in": DeviceArray(placement),
            "out": DeviceArray(placement),
        }
        self.long_counts: dict[tuple[Direction, int], tuple[int, int]] = {}

    def list_long_rows(self, direction: Direction, part: StepPart) -> tuple[Buffer, int, int]:
        """Return a device's long rows, the longest first, their number, and that of rows for a block."""
        array = self.long_rows[direction]
        if (direction, part.device) not in self.long_counts:
            graph = self.placement.graph
            offsets = graph.offsets if direction == "out" else in_offsets(graph)
            vertices = self.placement.numbering.vertices(part.device)
            if longest_row(graph, direction) <= LONG_ROW:  # spares reading offsets in that order
                vertices = vertices[:0]
            lengths = offsets[1:][vertices] - offsets[:-1][vertices]
            rows = np.flatnonzero(lengths > LONG_ROW)
            rows = rows[np.argsort(-lengths[rows], kind="stable")].astype(np.int64)
            array.room(part, max(_ITEM, rows.nbytes))
            if len(rows):
                array[part].upload(rows)
            self.long_counts[direction, part.device] = (
                len(rows),
                int(np.count_nonzero(lengths > BLOCK_ROW)),
            )
        return array[part], *self.long_counts[direction, part.device]


def _tile_kind(direction: Direction, query: PowerQuery) -> TileKind:
    return TileKind(direction, "float64" if query.weighted else None)


class _PowerPlan(StepPlan[StepPlacement]):
    """Power iterations of a placement for one set of options.

    :param seconds: gets the time of making rows, and of loading the kernel
    :raises GraphTooLargeError: need against free
    """

    def __init__(
        self,
        placement: StepPlacement,
        query: PowerQuery,
        gpu: GpuOptions,
        tile_words: int,
        seconds: dict[str, float],
    ) -> None:
        begin = perf_counter()
        self.is_tiled = tile_words > 0
        with ExitStack() as stack:
            self._rows = {
                way: self._rows_of(way, placement, query, stack) for way in _directions(query)
            }
            seconds["rows"] = perf_counter() - begin
            weight_dtype = placement.graph.weight_dtype if query.weighted else None
            code = source(
                placement.id_dtype,
                weight_dtype,
                two_sided=query.two_sided,
                tile_words=tile_words,
            )
            super().__init__(placement, code, np.zeros(len(placement.parts), ARGUMENTS), gpu)
            seconds["compile"] = self.compile_s
            self._arrays = placement.kept(PowerArrays)
            self.iterates, self.hubs = self._arrays.iterates, self._arrays.hubs
            self.exchange_on_host = self._exchange_on_host
            self._reserve(query)
            self._connect(query)
            begin = perf_counter()
            self._point(query)
            seconds["rows"] += perf_counter() - begin
        self.shared_bytes = tile_bytes(tile_words)
        self._make_partials()
        self.lay_out()

    @property
    def residual(self) -> float:
        """The sum of absolute changes by the last iteration."""
        words = self.controls()["state"][0, _RESIDUAL : _RESIDUAL + 1]
        return float(words.view(np.float64)[0])

    def _rows_of(
        self, way: Direction, placement: StepPlacement, query: PowerQuery, stack: ExitStack
    ) -> list[StepRows]:
        """Return rows of a direction; of tiles, rows that may be freed when the stack ends."""
        if self.is_tiled:
            return placement.kept(KeptTiles).rows(_tile_kind(way, query), stack)
        return placement.rows(way, query.weighted)

    @property
    def arcs(self) -> Array:
        """Arcs that an iteration visits, by device."""
        return np.array(
            [sum(rows[part.device].arcs for rows in self._rows.values()) for part in self.placement.parts],
            np.int64,
        )  # fmt: skip

    def _reserve(self, query: PowerQuery) -> None:
        """Allocate the arrays of values.

        :raises GraphTooLargeError: need against free
        """
        devices, count = len(self.placement.parts), self.placement.count
        arrays = [*self.iterates, *([self.hubs] if query.two_sided else [])]
        self.placement.reserve(*((array, [_ITEM * count] * devices) for array in arrays))

    def _make_partials(self) -> None:
        """Allocate the sums of tiles and blocks, and point to them."""
        for arguments, part in zip(self.arguments, self.placement.parts, strict=True):
            tiles = max(int(arguments[way]["tiled"]["count"]) for way in self._rows)
            sums = tiles + self.blocks_with(part.device, self.shared_bytes)
            partials = self._arrays.partials.room(part, _ITEM * _SUMS * sums)
            arguments["partials"] = partials.pointer

    def _point(self, query: PowerQuery) -> None:
        """Point to rows and lists of long ones, or make tiles, if there are none, and point to these.

        :raises GraphTooLargeError: need against free
        """
        for way, rows in self._rows.items():
            tiled = None
            if self.is_tiled:
                tiled = self.placement.kept(KeptTiles).of(_tile_kind(way, query), rows)
            for arguments, part in zip(self.arguments, self.placement.parts, strict=True):
                matrix = arguments[way]
                point_rows(matrix["rows"], rows[part.device])
                if tiled is not None:
                    tiled.point(part, matrix["tiled"])
                else:
                    self._point_matrix(matrix, way, part, rows[part.device])

    def _point_matrix(
        self, matrix: Any, direction: Direction, part: StepPart, rows: StepRows
    ) -> None:
        if rows.weights is not None:
            matrix["weights"] = rows.weights.pointer
        listed, long_count, block_count = self._arrays.list_long_rows(direction, part)
        matrix["long_rows"] = listed.pointer
        matrix["long_count"], matrix["block_count"] = long_count, block_count

    def _connect(self, query: PowerQuery) -> None:
        """Fill in the pointers to all devices' memory, and the subscriber masks."""
        exchange, placement = self.exchange, self.placement
        for parity, array in enumerate(self.iterates):
            self.arguments["iterates"][:, parity] = exchange.broadcast_pointers(array)
        if query.two_sided:
            self.arguments["hubs"] = exchange.broadcast_pointers(self.hubs)
        if len(placement.parts) == 1:
            return
        broadcasts = self.gpu.communication == "broadcast"
        # Iterates are read along out-rows if hubs are computed from them, and hubs along in-rows.
        readers: dict[str, Direction] = {"subscribers": "in"}
        if query.two_sided:
            readers = {"subscribers": "out", "hub_subscribers": "in"}
        for name, way in readers.items():
            masks = placement.subscriber_masks(*([] if broadcasts else [way]))
            for arguments, mask in zip(self.arguments, masks, strict=True):
                arguments[name] = mask.pointer

    def ask(self, query: PowerQuery, tiling: _Tiling, poll: ProgressPoll | None) -> float:
        """Answer a query; return the seconds that kernels ran."""
        arguments, n = self.arguments, self.placement.vertex_count
        arguments["units"] = tiling.units
        arguments["most_squares"] = tiling.most_squares
        repeated = n if len(query.start) == 1 else 1
        arguments["start_squares"] = repeated * float((query.start * query.start).sum())
        arguments["factor"], arguments["shift"] = query.factor, query.shift
        arguments["values_factor"], arguments["hubs_factor"] = 1 / query.unit, query.hubs_factor
        arguments["tolerance"] = query.tolerance * query.unit * n
        arguments["most_iterations"] = query.max_iterations
        arguments["normalizes"], arguments["finish"] = query.normalizes, query.finish
        self._upload("start", query.start, self._arrays.start)
        constant = np.zeros(1) if query.constant is None else query.constant
        self._upload("constant", constant, self._arrays.constant)
        return self.run(phase=_START, poll=poll)

    def _upload(self, name: str, values: Array, array: DeviceArray) -> None:
        """Upload values of all vertices and point to them; one value for all is an argument."""
        placement = self.placement
        self.arguments[name] = 0
        self.arguments[f"uniform_{name}"] = values[0]
        if len(values) == 1:
            return
        placement.reserve((array, [_ITEM * max(1, part.owned) for part in placement.parts]))
        for arguments, part in zip(self.arguments, placement.parts, strict=True):
            if part.owned:
                array[part].upload(values[placement.numbering.vertices(part.device)])
            arguments[name] = array[part].pointer

    def _exchange_on_host(self, last: int, coming: int, state: Array) -> None:
        """Copy what the next pass reads, where the host copies."""
        if last == _HUBS:
            self.exchange.broadcast(self.hubs, 8 * _ITEM)
        elif last in (_START, _PULL):
            written = (int(state[_ITERATIONS]) + (last == _PULL)) % 2
            self.exchange.broadcast(self.iterates[written], 8 * _ITEM)
